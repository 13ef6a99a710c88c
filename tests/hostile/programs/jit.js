// SPDX-License-Identifier: MIT
//
// jit.js - keeps a just-in-time compiler, its collector and its regular
// expressions busy: reads how many rounds, prints one number that depends on all.
const lines = require('fs').readFileSync(0, 'utf8').split('\n');
const rounds = Number(lines[0]);
let state = 12345;

function random() {
	state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
	return state;
}

class Node {
	constructor(key) { this.key = key; this.left = null; this.right = null; }
	insert(key) {
		if (key === this.key) throw new RangeError('twice');
		const side = key < this.key ? 'left' : 'right';
		if (this[side]) this[side].insert(key); else this[side] = new Node(key);
	}
	*keys() {
		if (this.left) yield* this.left.keys();
		yield this.key;
		if (this.right) yield* this.right.keys();
	}
}

let sum = 0;
for (let r = 0; r < rounds; r++) {
	const root = new Node(1 << 15);
	for (let i = 0; i < 500; i++) {
		try { root.insert(random() & 0xffff); } catch (e) { sum += e.message.length; }
	}
	const text = JSON.stringify([...root.keys()]);
	sum += JSON.parse(text).reduce((a, b) => a + b, 0) + (text.match(/1\d*3/g) || []).length;
	// Another type at the same place: what was compiled for numbers is thrown away.
	const twist = r % 7 === 3 ? String(r) : r;
	sum += Number(new Function('a', `return a * ${r % 13} + ${r & 31}`)(twist));
	sum %= 1e9;
}
console.log(sum, lines.length);
