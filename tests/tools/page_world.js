/* SPDX-License-Identifier: MIT */
/*
 * page_world.js - what the page needs of a browser, for scripts that try it without one.
 *
 *   const {element, load, settle} = require('./page_world.js');
 *   load('data/page', {fetch, performance, setInterval}) runs its scripts; element(id) is what they
 *   have made of the element; settle() waits until they have done what they were told.
 */
'use strict';

const fs = require('fs'), vm = require('vm');
const known = new Map();

/* Enough of an element for page.js and draw.js. */
class Element {
	constructor() {
		Object.assign(this, {children: [], listeners: {}, attributes: {}, style: {}, dataset: {}, value: '', hidden: false, clientWidth: 300, clientHeight: 100});
	}
	setAttribute(name, value) {
		this.attributes[name] = value;
	}
	append(...children) {
		this.children.push(...children);
	}
	appendChild(child) {
		this.children.push(child);
	}
	replaceChildren(...children) {
		this.children = children;
	}
	remove() {}
	addEventListener(name, call) {
		this.listeners[name] = call;
	}
	getContext() {
		return new Proxy({}, {get: () => () => ({}), set: () => true});
	}
}

function element(id) {
	if (!known.has(id))
		known.set(id, new Element());
	return known.get(id);
}

const settle = () => new Promise((resolve) => setTimeout(resolve, 20));

function load(directory, more) {
	const world = vm.createContext({
		document: {getElementById: element, createElement: () => new Element(), createElementNS: () => new Element(), documentElement: new Element()},
		window: new Element(), location: {hash: ''}, performance, URLSearchParams, console,
		getComputedStyle: () => ({getPropertyValue: () => '#000000'}), matchMedia: () => ({matches: false}), ...more,
	});

	element('span').value = '300';
	for (const name of ['draw.js', 'page.js'])
		vm.runInContext(fs.readFileSync(`${directory}/${name}`, 'utf8'), world);
}

module.exports = {element, load, settle};
