/* SPDX-License-Identifier: MIT */
/*
 * cfg.h - the control flow of one function: basic blocks, the edges between
 * them, dominators and loops.
 *
 * Built on a flow, which must outlive it and is not changed. A call ends a
 * block only if it does not return. Where the flow is unresolved the graph is
 * one of many that are possible, and `unresolved` says so: good for people to
 * look at, and for nothing else.
 *
 *   1. cfg_build(); 2. read the arrays; 3. cfg_release().
 *
 * Loops: a natural loop is a back edge's target (which dominates its source)
 * and all that reaches the source without passing it; those with the same
 * header are one loop (Aho, Lam, Sethi, Ullman, Compilers, 9.6). What is
 * entered at several places is called irreducible: its entries and rounds are
 * a matter of taste.
 */
#ifndef DINST_MUTATOR_CFG_H
#define DINST_MUTATOR_CFG_H

#include "mutator/flow.h"

enum cfg_block_flag {
	BLOCK_ENTRY = 1 << 0,	  /* the function's first */
	BLOCK_EXIT = 1 << 1,	  /* an exit of the function may end it */
	BLOCK_LANDING = 1 << 2,	  /* an exception handler starts it */
	BLOCK_ENTERED = 1 << 3,	  /* something that is no edge here may lead to it */
	BLOCK_UNREACHED = 1 << 4, /* decoded only: nothing leads to it */
	BLOCK_COLD = 1 << 5,	  /* in another piece than the entry */
	BLOCK_STOPS = 1 << 6,	  /* ends in a call that does not return, or in a trap */
	BLOCK_CALLS = 1 << 7,	  /* has a call */
	BLOCK_SURE = 1 << 8,	  /* edges lead to it from the entry or a handler: it is code */
};

enum cfg_edge_kind {
	EDGE_FALL,	/* into the next block, also where the last call returns */
	EDGE_BRANCH,	/* a conditional jump that is taken */
	EDGE_JUMP,	/* a direct jump */
	EDGE_TABLE,	/* an indirect jump whose targets are known */
	EDGE_UNKNOWN,	/* one whose targets are not: to and target are nothing */
	EDGE_EXCEPTION, /* a call in the block may throw, and this handler catches */
};

enum { CFG_NONE = -1 };

/*
 * Beyond this a function has no graph: a file that an enemy has made could ask for any number.
 * Each is several times what the largest function that was found needs. Those are of
 * PHP's interpreter, which has 1.3 million edges, 2.7 million blocks in 950 loops and takes
 * 1.5 thousand million steps, and one of GCC's with 20,000 blocks.
 */
enum {
	CFG_BLOCKS_MOST = 1 << 20,
	CFG_EDGES_MOST = 1 << 24,
	CFG_BODIES_MOST = 1 << 25, /* blocks of loops, each counted in each loop around it */
};

/* Steps take about a nanosecond each: ten seconds or so. */
static const uint64_t CFG_WORK_MOST = (uint64_t)1 << 33;
enum { CFG_LOOK = 16 /* steps: at an instruction, an entry of a table, a block, ... */ };

struct cfg_block {
	vaddr_t start, end;
	uint32_t first, count;	 /* instructions of the flow */
	uint32_t flags;		 /* enum cfg_block_flag */
	uint32_t out, out_count; /* into edges */
	uint32_t in, in_count;	 /* into `in` */
	int32_t dominator;	 /* the immediate one; CFG_NONE for what is entered from outside */
	int32_t loop;		 /* the innermost; CFG_NONE */
};

struct cfg_edge {
	int32_t from, to; /* blocks; to = CFG_NONE leaves the function, or is unknown */
	vaddr_t target;	  /* where it leads */
	uint8_t kind;	  /* enum cfg_edge_kind */
	bool back;	  /* to a block that dominates the source: a loop goes round */
};

struct cfg_loop {
	int32_t header;
	int32_t parent; /* the loop around it; CFG_NONE */
	uint32_t depth; /* 1: in no other */
	uint32_t body;	/* into bodies: blocks in their order, the header too */
	uint32_t body_count;
	bool irreducible; /* entered at other places than the header, too */
};

struct cfg {
	const struct flow *flow;
	struct cfg_block *blocks; /* by address */
	struct cfg_edge *edges;	  /* by source, then as control tries them: fall, then taken */
	uint32_t *in;		  /* indices of edges, by the block that they lead to */
	struct cfg_loop *loops;	  /* outer before inner, then by address */
	uint32_t *bodies;
	int32_t *block_of; /* of each instruction of the flow; CFG_NONE for padding */
	uint32_t block_count, edge_count, loop_count, body_count;
	uint32_t block_room, edge_room, loop_room, body_room;
	uint64_t work; /* so far: see CFG_WORK_MOST */
	bool unresolved;
};

/*
 * Builds the graph of f's function. On failure nothing is held: no memory, or
 * DINST_UNSUPPORTED for a function that is too complex.
 */
int cfg_build(struct cfg *g, const struct flow *f, struct dinst_error *e);
void cfg_release(struct cfg *g);

/* The block that contains the byte at v; CFG_NONE if none does. */
int32_t cfg_block_at(const struct cfg *g, vaddr_t v);

/* True if `block` is in loop `loop`. */
bool cfg_in_loop(const struct cfg *g, int32_t loop, int32_t block);

/* True if every way to `a` block leads through `by` (a block dominates itself). */
bool cfg_dominates(const struct cfg *g, int32_t by, int32_t block);

const char *cfg_edge_name(enum cfg_edge_kind kind); /* "fall", "branch", ... */

/* Counts `steps` of work; false if that is more than any function may take. */
static inline bool cfg_work(struct cfg *g, uint64_t steps)
{
	g->work += steps;
	return g->work <= CFG_WORK_MOST;
}

/* The error for more than `most` of something: "steps", "edges". */
int cfg_too_complex(const struct cfg *g, uint64_t most, const char *what, struct dinst_error *e);

/*
 * cfg_loops.c, for a graph whose blocks and edges are there. First BLOCK_SURE:
 * what is reached from the entry and from handlers is code; of what only an
 * address somewhere leads to, nobody knows: it may be a table.
 */
int cfg_mark_sure(struct cfg *g, struct dinst_error *e);
/* Then dominators and loops. */
int cfg_find_loops(struct cfg *g, struct dinst_error *e);

#endif
