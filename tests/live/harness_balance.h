/* SPDX-License-Identifier: MIT */
/*
 * harness_balance.h - entries minus exits of every function, against the stacks.
 *
 * Between two moments at which the target is quiet, a function whose entry and
 * exits are all patched was entered as often as it was left, plus the
 * activations that came to be alive, plus those that were thrown over:
 *
 *   entries - exits = alive afterwards - alive before + thrown over
 *
 * What is alive is read from the stacks of the stopped target.
 *
 *   1. session_begin(h), the target blocked everywhere;
 *   2. balance_begin(s, modules, count): a counter at each entry and one at the
 *      exits of each function of these modules, and a first look at the stacks;
 *   3. let the target work until it is quiet again;
 *   4. balance_look(b): reads all counters and the stacks in one stop;
 *   5. balance_of() of single functions, balance_check() of all;
 *   6. balance_free(b) before session_end(s).
 *
 * Every function fails the test itself when something goes wrong.
 */
#ifndef DINST_TESTS_LIVE_HARNESS_BALANCE_H
#define DINST_TESTS_LIVE_HARNESS_BALANCE_H

#include "tests/live/harness_session.h"

struct balance; /* opaque */

struct balance *balance_begin(struct session *s, const char *const *modules, size_t count);
void balance_free(struct balance *b);

/* Waits until the target does not run (no counter changes, no thread runs), and looks. */
void balance_look(struct balance *b);

struct balance_row {
	const char *module, *function;
	uint64_t entries, exits;
	long alive; /* now minus at the beginning */
	bool whole; /* entry and every exit are patched: the rest means something */
};

/* One function by name; fails if there is none or it is not whole. */
struct balance_row balance_of(const struct balance *b, const char *function);

struct balance_result {
	size_t functions;     /* of the modules */
	size_t whole, active; /* that were entered or left among the whole ones */
	size_t shared;	      /* whole, and another function jumps into their middle */
	size_t unequal;
};

/*
 * Compares all functions that have an exit. Those in `thrown` (names or globs,
 * NULL at the end; may be NULL) may have been entered more often than left, and
 * those that another function jumps into the middle of more often left. A line
 * for each other difference goes to standard error.
 */
struct balance_result balance_check(const struct balance *b, const char *const *thrown);

#endif
