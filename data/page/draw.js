/* SPDX-License-Identifier: MIT */
/*
 * draw.js - numbers as text, lines, heat and flames. Knows no daemon: gets arrays, draws
 * on a canvas or makes SVG. Texts of the program go through textContent only.
 */
'use strict';

const SVG = 'http://www.w3.org/2000/svg';

function color(name) {
	return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function round(value) {
	const size = Math.abs(value);

	return size >= 100 || size === 0 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/* 1234567 as "1.23 M". */
function number(value) {
	const names = ['', ' k', ' M', ' G', ' T', ' P'];
	let at = 0;

	if (value === null || value === undefined || !isFinite(value))
		return '';
	while (Math.abs(value) >= 1000 && at < names.length - 1) {
		value /= 1000;
		at++;
	}
	return (at === 0 && Number.isInteger(value) ? String(value) : round(value)) + names[at];
}

function bytes(value) {
	const names = [' B', ' KiB', ' MiB', ' GiB', ' TiB'];
	let at = 0;

	while (Math.abs(value) >= 1024 && at < names.length - 1) {
		value /= 1024;
		at++;
	}
	return (at ? round(value) : String(Math.round(value))) + names[at];
}

function time(ns) {
	const names = [' ns', ' µs', ' ms', ' s'];
	let at = 0;

	if (ns === null || ns === undefined)
		return '';
	while (Math.abs(ns) >= 1000 && at < names.length - 1) {
		ns /= 1000;
		at++;
	}
	return (at ? round(ns) : String(Math.round(ns))) + names[at];
}

/* A canvas ready to be drawn on, in CSS pixels. */
function prepare(canvas) {
	const width = canvas.clientWidth, height = canvas.clientHeight, scale = window.devicePixelRatio || 1;
	const g = canvas.getContext('2d');

	canvas.width = Math.max(1, Math.round(width * scale));
	canvas.height = Math.max(1, Math.round(height * scale));
	g.scale(scale, scale);
	g.font = '11px system-ui, "DejaVu Sans", sans-serif';
	return {g, width, height};
}

/* The step of a scale with about `count` lines: 1, 2 or 5 times a power of ten, or for bytes a power of two. */
function step(most, count, binary) {
	const rough = most / count;

	if (binary)
		return 2 ** Math.ceil(Math.log2(rough));
	const power = 10 ** Math.floor(Math.log10(rough));

	return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
}

function clock(ms) {
	return new Date(ms).toLocaleTimeString([], {hour12: false});
}

function drawTimes(g, from, to, left, right, bottom) {
	const count = Math.max(1, Math.floor((right - left) / 110));

	g.fillStyle = color('--soft');
	for (let i = 0; i <= count; i++) {
		g.textAlign = i === 0 ? 'left' : i === count ? 'right' : 'center';
		g.fillText(clock(from + (to - from) * i / count), left + (right - left) * i / count, bottom + 14);
	}
}

/* series: [{color, points: [[ms, value]...]}]; `say` makes a text of a value; `binary`: of bytes. */
function drawLines(canvas, series, from, to, say, binary) {
	const {g, width, height} = prepare(canvas);
	const left = 66, right = width - 4, top = 8, bottom = height - 20;
	let most = 0;

	for (const s of series)
		for (const p of s.points)
			if (p[0] >= from)
				most = Math.max(most, p[1]);
	most = most || 1;
	const every = step(most * 1.05, 4, binary), high = Math.ceil(most * 1.02 / every) * every;
	const x = (ms) => left + (right - left) * (ms - from) / (to - from);
	const y = (value) => bottom - (bottom - top) * value / high;

	g.textBaseline = 'middle';
	for (let v = 0; v <= high * 1.001; v += every) {
		g.fillStyle = color('--grid');
		g.fillRect(left, Math.round(y(v)), right - left, 1);
		g.fillStyle = color('--soft');
		g.textAlign = 'right';
		g.fillText(say(v), left - 7, y(v));
	}
	g.textBaseline = 'alphabetic';
	drawTimes(g, from, to, left, right, bottom);
	g.save();
	g.beginPath();
	g.rect(left, 0, right - left, height);
	g.clip();
	series.forEach((s, index) => {
		if (!s.points.length)
			return;
		g.beginPath();
		s.points.forEach((p, i) => i ? g.lineTo(x(p[0]), y(p[1])) : g.moveTo(x(p[0]), y(p[1])));
		g.strokeStyle = s.color;
		g.lineWidth = 1.6;
		g.lineJoin = 'round';
		g.stroke();
		if (series.length === 1 || index === 0 && series.length <= 2) {
			g.lineTo(x(s.points[s.points.length - 1][0]), bottom);
			g.lineTo(x(s.points[0][0]), bottom);
			g.globalAlpha = 0.1;
			g.fillStyle = s.color;
			g.fill();
			g.globalAlpha = 1;
		}
	});
	g.restore();
}

function mix(a, b, part) {
	const hex = (c, i) => parseInt(c.slice(1 + 2 * i, 3 + 2 * i), 16);

	return 'rgb(' + [0, 1, 2].map((i) => Math.round(hex(a, i) + (hex(b, i) - hex(a, i)) * part)).join(' ') + ')';
}

/* 64 colours from nothing to most. */
function heatColors() {
	const stops = ['--h0', '--h1', '--h2', '--h3', '--h4'].map(color), list = [];

	for (let i = 0; i < 64; i++) {
		const at = i / 63 * (stops.length - 1), n = Math.min(stops.length - 2, Math.floor(at));

		list.push(mix(stops[n], stops[n + 1], at - n));
	}
	return list;
}

/* heat: as /api/heat gives it. Rows are buckets, columns time; the colour is how many, by logarithm. */
function drawHeat(canvas, heat, from, to, say) {
	const {g, width, height} = prepare(canvas);
	const left = 66, right = width - 4, top = 6, bottom = height - 20;
	const columns = heat.columns.filter((c) => c.time >= from);
	const colors = heatColors();
	let first = heat.bounds.length, last = 0, most = 0;

	for (const c of columns)
		for (const [row, count] of c.counts) {
			first = Math.min(first, row);
			last = Math.max(last, row);
			most = Math.max(most, count / c.ms);
		}
	if (first > last) {
		first = 0;
		last = 8;
	}
	first = Math.max(0, first - 1);
	last = Math.min(heat.bounds.length, last + 1);
	const rows = last - first + 1, size = (bottom - top) / rows;
	const x = (ms) => left + (right - left) * (ms - from) / (to - from);

	g.fillStyle = colors[0];
	g.fillRect(left, top, right - left, bottom - top);
	for (const c of columns)
		for (const [row, count] of c.counts) {
			const shade = Math.log1p(count / c.ms / most * 1000) / Math.log(1001);
			const x0 = Math.max(left, x(c.time - c.ms)), x1 = Math.min(right, x(c.time));

			g.fillStyle = colors[Math.max(6, Math.min(63, Math.round(shade * 63)))];
			g.fillRect(x0, bottom - (row - first + 1) * size, Math.max(1, x1 - x0 + 0.6), size + 0.6);
		}
	g.fillStyle = color('--soft');
	g.textAlign = 'right';
	g.textBaseline = 'middle';
	for (let r = first, near = 1e9; r < last && r < heat.bounds.length; r++) {
		const y = bottom - (r - first + 1) * size;

		if (near - y < 20)
			continue;
		near = y;
		g.fillText(say(heat.bounds[r] + 1), left - 7, y);
		g.fillRect(left - 4, Math.round(y), 4, 1);
	}
	g.textBaseline = 'alphabetic';
	drawTimes(g, from, to, left, right, bottom);
}

/* "a;b;c 12" lines as a tree {name, total, self, children: Map}. */
function foldedTree(text) {
	const root = {name: 'all', total: 0, self: 0, children: new Map()};

	for (const line of text.split('\n')) {
		const at = line.lastIndexOf(' '), count = Number(line.slice(at + 1));

		if (at < 1 || !(count > 0))
			continue;
		let node = root, depth = 0;

		node.total += count;
		for (const name of line.slice(0, at).split(';')) {
			if (++depth > 250)
				break;
			if (!node.children.has(name))
				node.children.set(name, {name, total: 0, self: 0, children: new Map()});
			node = node.children.get(name);
			node.total += count;
		}
		node.self += count;
	}
	return root;
}

function flameColor(name) {
	let hash = 0;

	for (const c of name)
		hash = (hash * 31 + c.codePointAt(0)) >>> 0;
	return `hsl(${14 + hash % 40} ${72 + hash % 19}% ${66 + (hash >> 8) % 11}%)`;
}

/* Draws `node` over the whole width of `box`; `say` makes a text of an amount; `enter` is called with a node that was clicked. */
function drawFlame(box, root, node, say, enter) {
	const width = Math.max(300, box.clientWidth), row = 19, least = width / 1000;
	const svg = document.createElementNS(SVG, 'svg');
	let deepest = 0, drawn = 0;

	const add = (n, x, w, depth) => {
		if (w < least || drawn > 5000)
			return;
		drawn++;
		deepest = Math.max(deepest, depth);
		const g = document.createElementNS(SVG, 'g'), rect = document.createElementNS(SVG, 'rect');
		const title = document.createElementNS(SVG, 'title');

		rect.setAttribute('x', x);
		rect.setAttribute('y', depth * row);
		rect.setAttribute('width', Math.max(0.4, w - 0.6));
		rect.setAttribute('height', row - 1);
		rect.setAttribute('rx', 2);
		rect.setAttribute('fill', depth ? flameColor(n.name) : color('--c7'));
		rect.addEventListener('click', () => enter(n));
		title.textContent = `${n.name}: ${say(n.total)}, ${(100 * n.total / root.total).toFixed(1)} %; itself ${say(n.self)}`;
		rect.appendChild(title);
		g.appendChild(rect);
		if (w > 34) {
			const text = document.createElementNS(SVG, 'text');
			const room = Math.floor((w - 8) / 6.4);

			text.setAttribute('x', x + 4);
			text.setAttribute('y', depth * row + 13);
			text.textContent = n.name.length > room ? n.name.slice(0, Math.max(1, room - 1)) + '…' : n.name;
			g.appendChild(text);
		}
		svg.appendChild(g);
		let at = x;

		for (const child of [...n.children.values()].sort((a, b) => a.name < b.name ? -1 : 1)) {
			const part = w * child.total / n.total;

			add(child, at, part, depth + 1);
			at += part;
		}
	};
	add(node, 0, width, 0);
	svg.setAttribute('viewBox', `0 0 ${width} ${(deepest + 1) * row}`);
	svg.setAttribute('height', (deepest + 1) * row);
	svg.setAttribute('role', 'img');
	box.replaceChildren(svg);
}
