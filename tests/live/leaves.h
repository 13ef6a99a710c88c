/* SPDX-License-Identifier: MIT */
/*
 * leaves.h - how often the target "calls" calls leaf() below each of ten functions:
 * the truth for flags that are up inside of them. Told by the target's source alone.
 */
#ifndef DINST_TESTS_LIVE_LEAVES_H
#define DINST_TESTS_LIVE_LEAVES_H

#include <stdint.h>

/* How often leaf() is called in one round of calls' work(), below each function of `leaf_foci`. */
enum { BRANCHY, INDIRECT, RECURSIVE, LEAF, WORK, TINY, FLOATING, MANY, STRANGE, TAIL, LEAF_FOCI };

static const char *const leaf_foci[LEAF_FOCI] = {"/Code/calls/branchy",	  "/Code/calls/indirect",
						 "/Code/calls/recursive", "/Code/calls/leaf",
						 "/Code/calls/work",	  "/Code/calls/tiny",
						 "/Code/calls/floating",  "/Code/calls/many",
						 "/Code/calls/strange",	  "/Code/calls/tail"};

/* branchy() jumps to leaf() where its argument is odd: it has returned by then. */
static inline uint64_t leaves_in_branchy(unsigned long a)
{
	return (a & 3) == 2;
}

static inline void add_leaves(uint64_t expected[LEAF_FOCI], unsigned long v)
{
	const unsigned long n = v & 7; /* what indirect() gives to one of three functions */
	const unsigned long given = v % 3 ? n + 1 : n;
	const uint64_t by_branchy = (v & 3) != 0, by_tail = ((v + 1) & 3) != 0;
	const uint64_t recursive = n > 1 ? n - 1 : 0;
	const uint64_t by_indirect = v % 3 == 2 ? recursive : (given & 3) != 0;

	expected[BRANCHY] += leaves_in_branchy(v) + leaves_in_branchy(v + 1) +
			     (v % 3 == 2 ? 0 : leaves_in_branchy(given));
	expected[INDIRECT] += by_indirect;
	expected[RECURSIVE] += 3 + (v % 3 == 2 ? recursive : 0);
	expected[WORK] += 1 + by_branchy + 3 + by_tail + by_indirect;
}

#endif
