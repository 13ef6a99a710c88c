/* SPDX-License-Identifier: MIT */
/*
 * page_rates.js - the page, without a browser, with more functions than one chart has lines: each
 * has its rate, those that are charted are the busiest ones now, and what is said of the metric is
 * said of all of them. What was learned of a session that is gone is not taken for another one's.
 * A rate is that between two moments at which values were taken, however seldom they are.
 *
 *   node page_rates.js data/page
 */
'use strict';

const {element, load, settle} = require('./page_world.js');
const FUNCTIONS = 12, BEGIN = 10, END = 25, SELDOM = 5;
let now = 0, tick = null, session = 'a', opened = 1, begun = 0, late = false, pause = 1;
const totals = new Array(FUNCTIONS).fill(0);
let taken = {ms: 0, totals: [...totals]};

/* The last one is the least busy one, and the busiest later. */
const rateOf = (i) => i === FUNCTIONS - 1 ? (now >= BEGIN * 1000 ? 900 : 1) : 10 * (FUNCTIONS - i);
const row = (i) => ({id: i + 1, metric: 'calls', focus: `/Code/a/f${i}`, value: session === 'a' ? taken.totals[i] : 5e6, unit: 'calls', style: 'EventCounter'});

function answerTo(path) {
	if (path === 'api/state')
		return {version: '', read_only: true, sessions: [{session, pid: 1, state: 'running', opened_ns: opened - late, mutator_cpu_s: (now - begun) / 4000}]};
	if (path.startsWith('api/values'))
		return {taken_ms: taken.ms, opened_ns: opened, rows: totals.map((_, i) => row(i))};
	if (path.startsWith('api/history'))
		return {rows: path.match(/ids=([0-9,]*)/)[1].split(',').map((id) => ({
			id: Number(id), style: 'EventCounter', start: 0, width_ns: 1e9, last_ns: 1e9, bins: new Array(6).fill(rateOf(Number(id) - 1)),
		}))};
	return {rows: []};
}

async function second() {
	now += 1000;
	for (let i = 0; i < FUNCTIONS; i++)
		totals[i] += rateOf(i);
	if (now - taken.ms >= pause * 1000)
		taken = {ms: now, totals: [...totals]};
	tick();
	await settle();
}

function must(is, text) {
	if (!is)
		throw new Error(text);
}

function ratesAre() {
	perSecond().forEach((text, i) => must(text === `${rateOf(i)}/s`, `f${i} has ${rateOf(i)} calls a second and '${text}' is shown at ${now / 1000} s, of values taken at ${taken.ms / 1000} s`));
}

/* The mutator is at work, or a reading takes so long that there are few: no answer makes a rate another one. */
async function seldom() {
	for (pause of [SELDOM, 12, 1])
		for (const end = now + 4 * SELDOM * 1000; now < end;) {
			await second();
			ratesAre();
		}
}

/*
 * Detached, attached and inserted again between two looks, or between the two questions of one: the
 * same name and numbers, another session.
 */
async function again() {
	for (const between of [false, true]) {
		opened++;
		begun = now;
		totals.fill(0);
		late = between;
		await second();
		late = false;
		if (between)
			await second();
		must(perSecond().every((text) => text === ''), `rates of what was detached: ${perSecond()}`);
		await second();
		ratesAre();
		must(beside() === '25.0 %', `the mutator, which takes 25 % of a CPU, takes ${beside()}`);
	}
}

const beside = () => element('tiles').children[5].children[1].children[0];
const perSecond = () => element('rows').children.map((tr) => tr.children[4].children[0]);

async function main() {
	load(process.argv[2], {
		setInterval: (call) => (tick = call), performance: {now: () => now},
		fetch: async (path) => ({ok: true, json: async () => answerTo(path)}),
	});
	await settle();
	while (now < END * 1000)
		await second();
	ratesAre();

	must(element('charts').children.length === 1, 'there is not one chart');
	const [head, , legend] = element('charts').children[0].children;
	const names = legend.children.map((line) => line.children[1].children[0]);
	const wanted = [FUNCTIONS - 1, 0, 1, 2, 3, 4, 5, 6].map((i) => `f${i}`);

	must(names.join() === wanted.join(), `charted are ${names.join()}, the busiest are ${wanted.join()}`);
	const sum = totals.reduce((n, _, i) => n + rateOf(i), 0), shown = head.children[2].textContent;

	must(Math.abs(parseFloat(shown) * (shown.includes('k') ? 1000 : 1) - sum) < sum / 100, `${sum} calls a second are ${shown}`);

	await seldom();
	await again();
	session = 'b';
	await second();
	must(perSecond().every((text) => text === ''), `rates of a session that was not looked at yet: ${perSecond()}`);
	must(element('charts').children.length === 1 && element('charts').children[0].children[0] !== head, 'the charts are those of the session that is gone');
	console.log(`${FUNCTIONS} functions of one metric`);
}

main().catch((e) => {
	console.error(e.message);
	process.exit(1);
});
