/* SPDX-License-Identifier: MIT */
/*
 * page.js - asks the daemon once a second and shows what it says. Needs nothing from
 * anywhere else. What comes from programs (names) is never taken for HTML.
 */
'use strict';

const SECOND = 1000, CHARTS = 12, SERIES = 8, HEATS = 4, RATE_MS = 6000;
const $ = (id) => document.getElementById(id);
const page = {
	session: null, opened: undefined, token: '', state: null, values: new Map(), taken: undefined, last: new Map(), rates: new Map(),
	recording: 0, tree: null, inside: null, busy: false, again: false, charts: new Map(), heats: new Map(),
};

function make(tag, attributes, ...children) {
	const element = document.createElement(tag);

	for (const [key, value] of Object.entries(attributes || {}))
		if (value !== null && value !== undefined)
			element.setAttribute(key, value);
	element.append(...children.map((c) => typeof c === 'object' ? c : String(c)));
	return element;
}

/* What was asked for a session that is not shown any more is nobody's. */
async function ask(path, body) {
	const headers = {}, session = page.session;

	if (page.token)
		headers.Authorization = 'Bearer ' + page.token;
	if (body)
		headers['Content-Type'] = 'application/json';
	const answer = await fetch(path, {method: body ? 'POST' : 'GET', headers, body: body && JSON.stringify(body), cache: 'no-store'});
	const value = await answer.json();

	if (!body && page.session !== session)
		throw Object.assign(new Error('another session was chosen'), {stale: true});
	if (!answer.ok)
		throw Object.assign(new Error(value.error || value.message || answer.statusText), {status: answer.status});
	return value;
}

/* ------------------------------------------------------------------- sessions */

function stateClass(s) {
	return s.state === 'running' ? 'good' : s.state === 'exited' || s.state === 'lost' ? 'bad' : 'warn';
}

function showSessions(sessions) {
	$('sessions').replaceChildren(...sessions.map((s) => {
		const dot = make('span', {class: 'dot ' + stateClass(s)});
		const button = make('button', {type: 'button', 'aria-pressed': String(s.session === page.session), title: s.state}, dot, s.session, make('small', {}, s.pid));

		button.addEventListener('click', () => choose(s.session));
		return button;
	}));
}

/*
 * Shows another session, or none: what is known of the last one is not taken for its. One that was
 * opened at another moment is another one, also under the same name.
 */
function turnTo(name, opened) {
	page.session = name;
	page.opened = opened;
	for (const map of [page.values, page.last, page.rates, page.charts, page.heats])
		map.clear();
	page.taken = undefined;
	page.recording = 0;
	page.tree = null;
	$('charts').replaceChildren();
	$('heats').replaceChildren();
	showRows([]);
}

function choose(name) {
	turnTo(name);
	location.hash = name ? 'session=' + encodeURIComponent(name) : '';
	refresh();
}

/* ---------------------------------------------------------------------- tiles */

function perSecond(key, value, now) {
	const before = page.last.get(key);

	if (!before || now - before.now > 600)
		page.last.set(key, {now, value, rate: before && now > before.now ? (value - before.value) * 1000 / (now - before.now) : null});
	return page.last.get(key).rate;
}

function showTiles(s) {
	const now = performance.now();
	const mutator = perSecond('cpu', s.mutator_cpu_s || 0, now), asked = perSecond('asked', (s.asked_ns || 0) / 1e9, now);
	const percent = (x) => x === null || x === undefined ? '–' : (100 * x).toFixed(x < 0.1 ? 2 : 1) + ' %';
	const tiles = [
		['Stopped, in all', time((s.stops_us || 0) * 1000), `${number(s.stops || 0)} stops`],
		['Longest stop', time((s.longest_stop_us || 0) * 1000), 'of the program'],
		['Inserted', number(s.active), `metrics at ${number(s.points)} points`],
		['Cost', percent(s.cost_ns_per_s === undefined ? null : s.cost_ns_per_s / 1e9), 'of a CPU in it, where counted'],
		['Memory in it', bytes((s.heap_memory || s.heap_bytes || 0)), `and ${bytes(s.text_memory || 0)} of its code patched`],
		['Beside it', percent(mutator), `of a CPU to look at it; ${bytes(s.mutator_bytes || 0)}`],
		['Values', s.age_ms === undefined ? '–' : time(s.age_ms * 1e6), `old; ${percent(asked)} of the time asked`],
	];

	$('tiles').replaceChildren(...tiles.map(([name, value, more]) =>
		make('div', {class: 'card tile'}, make('span', {class: 'name'}, name), make('b', {}, value), make('span', {}, more))));
}

/* --------------------------------------------------------------------- values */

const isTime = (row) => row.unit === 'ns';
const isLevel = (row) => row.style === 'SampledFunction';

function sayValue(row, value) {
	return isTime(row) && !row.distribution ? time(value) : row.unit === 'bytes' ? bytes(value) : number(value);
}

/* What a second of a total is: time spent in time is a number of CPUs or threads. */
function sayRate(row, rate) {
	if (rate === null || rate === undefined)
		return '';
	if (isTime(row) && !row.distribution)
		return (rate / 1e7).toFixed(rate < 1e8 ? 2 : 1) + ' %';
	return (row.unit === 'bytes' ? bytes(rate) : number(rate)) + '/s';
}

/*
 * Of every row, also of those that are not charted: which ones move most is seen from it. Values
 * that were there already, since the mutator was not asked meanwhile, leave the rates as they are.
 */
function takeRates(rows, now) {
	const values = new Map(), rates = new Map();

	if (now !== undefined && now === page.taken)
		return;
	page.taken = now;
	for (const row of rows) {
		if (typeof row.value !== 'number' || isLevel(row))
			continue;
		const before = (page.values.get(row.id) || []).filter((v, i, all) => now - v.now <= RATE_MS || i === all.length - 1);
		const first = before[0];

		values.set(row.id, [...before, {now, value: row.value}]);
		if (first && now - first.now > SECOND / 2)
			rates.set(row.id, (row.value - first.value) * 1000 / (now - first.now));
		else if (page.rates.has(row.id))
			rates.set(row.id, page.rates.get(row.id));
	}
	page.values = values;
	page.rates = rates;
}

function showRows(rows) {
	const session = page.session;

	$('values').hidden = !rows.length;
	$('values-about').textContent = `${rows.length} inserted`;
	$('rows').replaceChildren(...rows.slice(0, 400).map((row) => {
		const quantile = (name) => row.distribution && row[name] !== undefined && row.value > 0 ? (isTime(row) ? time(row[name]) : number(row[name])) : '';
		const action = make('td', {});

		if (page.state && page.state.authorized) {
			const button = make('button', {type: 'button'}, 'remove');

			button.addEventListener('click', () => change('api/remove', {session, ids: [row.id]}));
			action.append(button);
		}
		return make('tr', {},
			make('td', {}, row.id), make('td', {}, row.metric), make('td', {title: row.focus}, row.focus),
			make('td', {class: 'n'}, sayValue(row, row.value)),
			make('td', {class: 'n'}, isLevel(row) ? '' : sayRate(row, page.rates.get(row.id))),
			make('td', {class: 'n'}, quantile('p50')), make('td', {class: 'n'}, quantile('p99')), make('td', {class: 'n'}, quantile('max')), action);
	}));
}

/* --------------------------------------------------------------------- charts */

/* Those of each metric that move most; together no more than the daemon gives at once. */
function pickSeries(rows) {
	const groups = new Map();

	for (const row of rows) {
		if (!groups.has(row.metric))
			groups.set(row.metric, []);
		groups.get(row.metric).push(row);
	}
	return [...groups.entries()].slice(0, CHARTS).map(([metric, list]) => ({
		metric, count: list.length, all: list,
		rows: list.sort((a, b) => (page.rates.get(b.id) || 0) - (page.rates.get(a.id) || 0) || b.value - a.value).slice(0, Math.min(SERIES, Math.max(1, Math.floor(64 / groups.size)))),
	}));
}

function pointsOf(history) {
	const points = [], width = history.width_ns / 1e6;
	let at = history.start / 1e6;

	history.bins.forEach((value, i) => {
		const covered = i === history.bins.length - 1 ? history.last_ns / 1e6 : width;

		if (history.style === 'SampledFunction')
			points.push([at + covered / 2, value]);
		else if (covered > width / 4)
			points.push([at + covered / 2, value * 1000 / covered]);
		at += width;
	});
	return points;
}

function chartCard(metric) {
	let card = page.charts.get(metric);

	if (!card) {
		const title = make('span', {}), about = make('small', {}), now = make('b', {}), canvas = make('canvas', {role: 'img'}), legend = make('ul', {class: 'legend'});

		card = {title, about, now, canvas, legend, element: make('article', {class: 'card'}, make('h2', {}, title, about, now), canvas, legend)};
		page.charts.set(metric, card);
		$('charts').append(card.element);
	}
	return card;
}

function showChart(group, histories, from, to) {
	const card = chartCard(group.metric), first = group.rows[0];
	const all = group.rows.map((row) => ({row, points: histories.has(row.id) ? pointsOf(histories.get(row.id)) : []}));
	const moving = all.filter((s) => s.points.some((p) => p[1] !== 0)), series = moving.length ? moving : all.slice(0, 1);

	series.forEach((s, i) => s.color = color('--c' + i % 8));
	const say = (v) => isLevel(first) ? sayValue(first, v) : sayRate(first, v);
	const rates = group.all.map((row) => page.rates.get(row.id)).filter((rate) => rate !== undefined);
	const sum = rates.length ? rates.reduce((n, rate) => n + rate, 0) : null;

	card.title.textContent = group.metric;
	card.about.textContent = group.count === 1 ? first.focus : series.length < group.count ? `the busiest ${series.length} of ${group.count}` : `${group.count} of it`;
	card.now.textContent = isLevel(first) ? sayValue(first, first.value) : sayRate(first, sum);
	card.canvas.setAttribute('aria-label', `${group.metric} over time`);
	card.legend.replaceChildren(...(series.length < 2 ? [] : series.map((s) => {
		const mark = make('i', {});

		mark.style.background = s.color;
		return make('li', {title: s.row.focus}, mark, make('span', {}, s.row.focus.replace(/^\/Code\/[^/]*\//, '')), make('b', {}, isLevel(s.row) ? sayValue(s.row, s.row.value) : sayRate(s.row, page.rates.get(s.row.id))));
	})));
	drawLines(card.canvas, series, from, to, say, first.unit === 'bytes');
}

async function showCharts(rows, from, to) {
	const groups = pickSeries(rows), histories = new Map();
	const ids = groups.flatMap((g) => g.rows.map((row) => row.id)).slice(0, 64);

	if (ids.length) {
		const answer = await ask(`api/history?session=${encodeURIComponent(page.session)}&ids=${ids.join(',')}&since=${Math.max(0, Math.floor(from))}`);

		for (const h of answer.rows)
			histories.set(h.id, h);
	}
	for (const [metric, card] of page.charts)
		if (!groups.some((g) => g.metric === metric)) {
			card.element.remove();
			page.charts.delete(metric);
		}
	const start = from || Math.min(to - 60 * SECOND, ...[...histories.values()].map((h) => h.start / 1e6));

	for (const group of groups)
		showChart(group, histories, start, to);
}

/* ----------------------------------------------------------------------- heat */

async function showHeats(rows, from, to) {
	const wanted = rows.filter((row) => row.distribution).slice(0, HEATS);

	for (const [id, card] of page.heats)
		if (!wanted.some((row) => row.id === id)) {
			card.element.remove();
			page.heats.delete(id);
		}
	for (const row of wanted) {
		let heat;

		try {
			heat = await ask(`api/heat?session=${encodeURIComponent(page.session)}&id=${row.id}`);
		} catch (e) {
			if (e.stale)
				throw e;
			continue;
		}
		let card = page.heats.get(row.id);

		if (!card) {
			const about = make('small', {}), now = make('b', {}), canvas = make('canvas', {role: 'img', 'aria-label': `${row.metric} as a heat map`});

			card = {about, now, canvas, element: make('article', {class: 'card'}, make('h2', {}, `${row.metric}, all values`, about, now), canvas)};
			page.heats.set(row.id, card);
			$('heats').append(card.element);
		}
		const say = heat.ns ? time : row.unit === 'bytes' ? bytes : number;

		card.about.textContent = row.focus;
		card.now.textContent = row.value > 0 ? `p50 ${say(row.p50)} · p99 ${say(row.p99)} · max ${say(row.max)}` : '';
		drawHeat(card.canvas, heat, from || Math.min(to - 60 * SECOND, ...heat.columns.map((c) => c.time - c.ms)), to, say);
	}
}

/* ---------------------------------------------------------------------- flame */

function drawTree() {
	const unit = page.unit, say = (n) => unit === 'ns' ? time(n) : unit === 'bytes' ? bytes(n) : number(n) + ' ' + unit;

	$('flame-up').hidden = page.inside === page.tree;
	drawFlame($('flame-graph'), page.tree, page.inside, say, (node) => {
		page.inside = node;
		drawTree();
	});
}

async function showFlame(s) {
	$('flame').hidden = !s.recording;
	if (!s.recording || s.recording.time === page.recording)
		return;
	const recording = await ask(`api/recording?session=${encodeURIComponent(page.session)}`);

	page.recording = recording.time;
	page.unit = recording.unit;
	page.tree = page.inside = foldedTree(recording.folded);
	$('flame-title').textContent = recording.title;
	$('flame-about').textContent = `recorded at ${clock(recording.time)}`;
	if (page.tree.total)
		drawTree();
	else
		$('flame-graph').replaceChildren('nothing in it');
}

/* -------------------------------------------------------------------- changes */

async function change(path, body) {
	page.token = $('token').value;
	try {
		const answer = await ask(path, body), rows = answer.rows || [];

		$('answer').textContent = [...rows.slice(0, 5).map((r) => `${r.id}: ${r.metric || ''} ${r.focus || ''}`), ...(answer.notes || [])].join('; ') || 'done';
	} catch (e) {
		$('answer').textContent = e.message;
	}
	refresh();
}

$('insert').addEventListener('submit', (event) => {
	event.preventDefault();
	const focus = $('focus').value.trim();

	change('api/insert', {session: page.session, metric: $('metric').value.trim(), focus: focus ? focus.split(/\s+(?=\/)/) : [], each: $('each').checked});
});
$('token').addEventListener('change', () => {
	page.token = $('token').value;
	refresh();
});
$('flame-up').addEventListener('click', () => {
	page.inside = page.tree;
	drawTree();
});

/* ---------------------------------------------------------------------- whole */

function say(text, bad) {
	$('link').textContent = text;
	$('link').className = bad ? 'pill bad' : 'pill';
}

function showEmpty(text) {
	$('empty').hidden = !text;
	$('empty').textContent = text;
}

async function refreshOnce() {
	try {
		const state = await ask('api/state'), sessions = state.sessions;

		page.state = state;
		$('version').textContent = state.version;
		$('mode').textContent = state.read_only ? 'read-only' : 'changes take the token';
		const s = sessions.find((one) => one.session === page.session) || sessions[0];

		if (!s)
			turnTo(null);
		else if (s.session !== page.session || s.opened_ns !== page.opened)
			turnTo(s.session, s.opened_ns);

		showSessions(sessions);
		showEmpty(s ? '' : 'No program is attached to. In a shell: dinst attach TARGET, then dinst insert calls FUNCTION.');
		$('write').hidden = state.read_only || !s;
		$('tiles').hidden = !s;
		if (!s) {
			$('flame').hidden = true;
		} else {
			const {rows, taken_ms, opened_ns} = await ask(`api/values?session=${encodeURIComponent(page.session)}`);

			if (opened_ns !== page.opened)
				return;
			const to = Date.now(), span = Number($('span').value) * SECOND, from = span ? to - span : 0;

			showTiles(s);
			takeRates(rows, taken_ms);
			await showCharts(rows, from, to);
			showRows(rows);
			await showHeats(rows, from, to);
			await showFlame(s);
			if (!rows.length)
				showEmpty('Nothing is inserted yet. In a shell: dinst insert latency FUNCTION.');
		}
		say('live');
	} catch (e) {
		if (e.stale)
			return;
		if (e.status === 401 && !page.token) {
			$('write').hidden = false;
			showEmpty('Beyond its own machine this daemon shows values to those who have the token.');
		}
		say(e.status ? e.message : 'the daemon does not answer', true);
	}
}

/* One at a time; who asks meanwhile has chosen something, and is not kept waiting for the next second. */
async function refresh() {
	page.again = page.busy;
	if (page.busy)
		return;
	page.busy = true;
	do {
		page.again = false;
		await refreshOnce();
	} while (page.again);
	page.busy = false;
}

function setTheme(name) {
	document.documentElement.dataset.theme = name;
	if (page.tree)
		drawTree();
}

const asked = new URLSearchParams(location.hash.slice(1));

page.session = asked.get('session');
setTheme(asked.get('theme') || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'));
if (asked.get('span'))
	$('span').value = asked.get('span');
$('theme').addEventListener('click', () => setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'));
$('span').addEventListener('change', refresh);
window.addEventListener('resize', () => {
	if (page.tree)
		drawTree();
});
refresh();
setInterval(() => page.busy || refresh(), SECOND);
