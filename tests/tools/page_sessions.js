/* SPDX-License-Identifier: MIT */
/*
 * page_sessions.js - the page, without a browser: what is removed by its buttons belongs to the
 * session that is said, also where another session was chosen while values were on their way.
 *
 *   node page_sessions.js data/page
 */
'use strict';

const {element, load, settle} = require('./page_world.js');
const posts = [], held = [];
let tick = null, holding = false;

const row = (id) => ({id, metric: 'calls', focus: 'f', value: 1, unit: 'calls'});
const rowOf = {a: 1, b: 2};

function answerTo(path) {
	if (path === 'api/state')
		return {version: '', read_only: false, authorized: true, sessions: ['a', 'b'].map((session) => ({session, pid: 1, state: 'running'}))};
	if (path.startsWith('api/values'))
		return {rows: [row(rowOf[path.slice(-1)])]};
	return {rows: []};
}

async function fetchIt(path, options) {
	if (options.method === 'POST')
		posts.push(JSON.parse(options.body));
	else if (holding && path.startsWith('api/values'))
		await new Promise((resolve) => held.push(resolve));
	return {ok: true, json: async () => answerTo(path)};
}

const idOf = (tr) => tr.children[0].children[0];

/* What stands in the table is clicked away: it must be of the session that is named. */
async function removeAll() {
	for (const tr of element('rows').children) {
		const button = tr.children[tr.children.length - 1].children[0];

		button.listeners.click();
		const post = posts[posts.length - 1];
		if (String(rowOf[post.session]) !== idOf(tr) || String(post.ids[0]) !== idOf(tr))
			throw new Error(`instance ${idOf(tr)} would be removed in session ${post.session}`);
	}
	await settle();
}

async function main() {
	load(process.argv[2], {setInterval: (call) => (tick = call), fetch: fetchIt});
	await settle();
	if (element('rows').children.length !== 1)
		throw new Error('the values are not shown');
	await removeAll();
	holding = true;
	tick();
	await settle();
	element('sessions').children[1].listeners.click();
	await removeAll();
	holding = false;
	held.splice(0).forEach((go) => go());
	await settle();
	await removeAll();
	tick();
	await settle();
	if (element('rows').children.length !== 1 || idOf(element('rows').children[0]) !== '2')
		throw new Error('the values of the session that was chosen are not shown');
	await removeAll();
	console.log(`${posts.length} removed where they are`);
}

main().catch((e) => {
	console.error(e.message);
	process.exit(1);
});
