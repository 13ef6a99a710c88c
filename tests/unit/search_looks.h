/* SPDX-License-Identifier: MIT */
/*
 * search_looks.h - made-up looks at stacks, and what the kernel tells of a made-up program: for tests of the
 * search.
 */
#ifndef DINST_TESTS_UNIT_SEARCH_LOOKS_H
#define DINST_TESTS_UNIT_SEARCH_LOOKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "daemon/report/search.h"

enum { DEPTH_MAX = 8 };

/* A chain that is seen in so many looks; a list of them ends with one that is seen in none. */
struct made_chain {
	enum chain_kind kind;
	unsigned looks;
	const char *names[DEPTH_MAX]; /* outermost first; "lib:" before those of another module */
};

/* Adds a list of chains, which may be NULL, as looks at a program that is called "server". */
static inline void looks_add(struct chains *chains, const struct made_chain *list)
{
	for (const struct made_chain *c = list; c && c->looks; c++) {
		struct chain_frame frames[DEPTH_MAX + 1];
		size_t count = 0, depth = 0;

		while (depth < DEPTH_MAX && c->names[depth])
			depth++;
		while (depth-- > 0) {
			const char *name = c->names[depth];
			const bool system = !strncmp(name, "lib:", 4);

			frames[count++] = (struct chain_frame){system ? "libc.so.6" : "server",
							       system ? name + 4 : name,
							       system ? name + 4 : name};
		}
		frames[count++] = (struct chain_frame){"libc.so.6", "_start", "_start"};
		for (unsigned i = 0; i < c->looks; i++)
			assert_true(chains_add(chains, c->kind, frames, count));
	}
}

/* Of a program with one thread, which uses so much of a CPU. */
static inline struct search_facts busy(double cpu)
{
	struct search_facts f = {.seconds = 3, .cpu = cpu, .user = cpu, .threads = 1};

	f.busiest_count = 1;
	f.busiest[0] = (struct search_thread){.tid = 1, .name = "server", .cpu = cpu};
	return f;
}

#endif
