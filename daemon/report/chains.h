/* SPDX-License-Identifier: MIT */
/*
 * chains.h - what looks at stacks have shown: who calls whom where threads run or wait.
 *
 * A look is a chain of functions of one thread at one moment. What many of them have
 * in common says where it is worth measuring, and who calls what is found there; it is
 * no measurement. Recursion counts once. Owns its names; asks nobody, prints nothing.
 *
 * Calling sequence: chains_add() for each thread of each look; then the rest in any
 * order; chains_release().
 */
#ifndef DINST_REPORT_CHAINS_H
#define DINST_REPORT_CHAINS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a thread is doing. */
enum chain_kind { CHAIN_RUNS, CHAIN_LOCKS, CHAIN_READS, CHAIN_WRITES, CHAIN_IDLE, CHAIN_KINDS };

enum { CHAIN_FRAMES_MAX = 64, CHAIN_SAMPLES_MAX = 20000 };

struct chain_frame {
	const char *module;   /* NULL: not known */
	const char *function; /* as people read it; NULL: not known */
	const char *symbol;   /* as its file has it; NULL: not known */
};

struct chain_function {
	char *module, *function, *symbol;
	unsigned seen[CHAIN_KINDS]; /* looks in which it was somewhere in the chain */
	unsigned leaf[CHAIN_KINDS]; /* looks in which it was at the end */
	unsigned depth;		    /* how deep it was in a chain, at most */
	bool is_system;		    /* of the C library and its like, or what stands around main */
	bool is_start;		    /* stands around main or a thread's function: _start */
};

struct chain_sample {
	enum chain_kind kind;
	unsigned count;
	uint32_t *function; /* outermost first */
};

struct chains {
	struct chain_function *functions;
	size_t function_count, function_room;
	struct chain_sample *samples;
	size_t sample_count, sample_room;
	unsigned looks[CHAIN_KINDS]; /* how many threads were seen doing that */
};

/*
 * What a thread is doing whose state is that of /proc ('R', 'S', 'D') and whose frames
 * are these, innermost first: by the functions of the C library that it waits in.
 */
enum chain_kind chain_kind_of(char state, const struct chain_frame *frames, size_t count);

/* Frames innermost first. False: no memory, nothing was added. */
bool chains_add(struct chains *c, enum chain_kind kind, const struct chain_frame *frames,
		size_t count);

/*
 * The functions that were in at least `share` of all looks of that kind (a set of bits,
 * 1 << kind), most seen first, of those the innermost, without what stands around main; without system functions
 * unless `system`. Fills at most `max` numbers of functions; returns how many.
 */
size_t chains_candidates(const struct chains *c, unsigned kinds, double share, bool system,
			 uint32_t *out, size_t max);

/* Share of the looks of these kinds that function f was in; 0 without any. */
double chains_share(const struct chains *c, unsigned kinds, uint32_t f);
/* The same of looks at whose end it was. */
double chains_leaf_share(const struct chains *c, unsigned kinds, uint32_t f);

/* The number of a function; -1 if it was never seen. */
long chains_find(const struct chains *c, const char *module, const char *function);

/* True for names that are made of addresses, where a file has none: fn_64da0. */
bool chain_name_is_made(const char *function);

/* True for modules that everybody has: the C library, the loader, the C++ runtime, the kernel's. */
bool chain_module_is_system(const char *module);

void chains_release(struct chains *c);

#endif
