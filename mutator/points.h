/* SPDX-License-Identifier: MIT */
/*
 * points.h - where code can be inserted in a function, and how to get there.
 *
 * plan_function() decodes one function, finds its entry, exit and call points
 * and gives each either a window with a tactic or a refusal with a reason. The
 * plan is made for all points at once, so that windows never contradict each
 * other whatever subset is patched later: windows that would overlap are
 * merged into one that serves several points.
 *
 * Everything is in link-time addresses of the image; nothing here looks at a
 * target. Rules for a window: no branch target, landing pad, return point of a
 * call, computed code address or symbol strictly inside it; a call only as its
 * last instruction; no system call; no landing-pad instruction; not across a
 * page unless its live bytes lie in one; every instruction relocatable; no
 * restartable sequence; not one that only leads back to its own beginning.
 */
#ifndef DINST_MUTATOR_POINTS_H
#define DINST_MUTATOR_POINTS_H

#include "mutator/image.h"

enum point_kind {
	POINT_ENTRY,
	POINT_EXIT,
	POINT_CALL, /* before a call, direct or indirect */
	/* What follows is planned on request only: PLAN_DETAIL. */
	POINT_AFTER,	   /* at the return point of a call */
	POINT_BLOCK,	   /* before the first instruction of a basic block */
	POINT_EDGE,	   /* on the way from one basic block to another */
	POINT_LOOP_ENTRY,  /* on the edges that enter a loop */
	POINT_LOOP_ROUND,  /* on its back edges */
	POINT_LOOP_EXIT,   /* on the edges that leave it */
	POINT_INSTRUCTION, /* before any single instruction */
	POINT_LOAD,	   /* before an instruction that reads memory */
	POINT_STORE,	   /* before one that writes memory */
	POINT_KINDS,
};

/*
 * Where in its window's code a snippet of the point runs, relative to
 * instruction `insn` of the window.
 */
enum point_place {
	PLACE_BEFORE, /* just before it */
	PLACE_TAKEN,  /* a direct jump or branch: on the way to its target */
	PLACE_FALLS,  /* behind it, where control falls through to the next instruction */
	/*
	 * No snippet: where the branch is taken, its target's window is gone
	 * round, so that what is inserted there does not run. The way leads over a
	 * copy of that window's instructions and then behind it.
	 */
	PLACE_BYPASS,
};

/* How a point is reached; names as in the documentation (tactic_name()). */
enum tactic {
	TACTIC_NONE,	 /* refused */
	TACTIC_RETARGET, /* "retarget": displacement of the call, jump or conditional jump */
	TACTIC_CALL,	 /* "call": indirect call overwritten in place */
	TACTIC_JUMP,	 /* "jump": near jump over instructions from the point on */
	TACTIC_SELF,	 /* "self": the exit instruction itself is long enough */
	TACTIC_PREVIOUS, /* "previous": instructions before the point (b) */
	TACTIC_ACROSS,	 /* "across": the same, across a not-taken branch (b') */
	TACTIC_PADDING,	 /* "padding": completed by padding behind (c) */
	TACTIC_BOTH,	 /* "previous+padding" (bc) */
	TACTIC_SHORT,	 /* "short": short jump to a hole in reach */
	TACTIC_EVICTED,	 /* "evicted": the same, to a hole in a window made for that (d') */
	TACTIC_EDGES,	 /* "edges": on every way that leads to the point, not at the point */
	TACTIC_BYPASS,	 /* "bypass": at the point, and jumps that must not count go round */
	TACTIC_MERGED,	 /* "merged": served by the window of another point */
	TACTIC_COUNT,
};

enum refusal {
	REFUSAL_NONE,
	REFUSAL_UNDECODED,  /* an instruction that is not known for sure */
	REFUSAL_UNRESOLVED, /* an indirect jump, or code that the file has not, may lead anywhere */
	REFUSAL_BRANCH_TARGET, /* something jumps into every window that would do */
	REFUSAL_NO_ROOM,       /* too short, and no padding or hole in reach */
	REFUSAL_PAGE,	       /* the window would lie across two pages */
	REFUSAL_UNMOVABLE,     /* an instruction that must not be relocated */
	REFUSAL_RSEQ,	       /* a restartable sequence */
	REFUSAL_STUB,	       /* linker stub, signal return, loader hook */
	REFUSAL_LOOP_ENTRY,    /* the function loops back to its first instruction */
	REFUSAL_TAKEN,	       /* its bytes are needed for another point */
	REFUSAL_IFUNC,	       /* the name stands for a resolver, not for the code */
	REFUSAL_FOREIGN, /* the bytes in memory are not the file's: another tool's patch, or unloaded */
	REFUSAL_UNMAPPED,     /* the module is no longer mapped */
	REFUSAL_SHADOW_STACK, /* a call would move, which the target's shadow stacks forbid */
	REFUSAL_UNWRITABLE,   /* the kernel wrote nothing there for us */
	REFUSAL_STACK,	      /* what is inserted takes more stack than there may be (Go, OCaml) */
	REFUSAL_COUNT,
};

const char *point_kind_name(enum point_kind kind); /* "entry", "loop-exit", ... */
const char *tactic_name(enum tactic tactic);
const char *refusal_name(enum refusal refusal); /* one word, for tables: "branch-target" */
const char *refusal_text(enum refusal refusal); /* a sentence */

enum { WINDOW_INSNS_MAX = 24, WINDOW_BYTES_MAX = 64 };

/*
 * Bytes of the target's own code that one patch overwrites, and the
 * instructions that move to its base trampoline.
 *
 *   start                        start + length
 *   | insn 0 | insn 1 | ... | insn n-1 | padding |
 *   `-- patch (kind) writes its first bytes
 */
struct window {
	vaddr_t start;
	uint8_t length;	 /* bytes of whole instructions, padding not counted */
	uint8_t padding; /* unused bytes behind that the patch may overwrite */
	uint8_t insn_count;
	uint8_t hole_length;
	enum arch_patch_kind kind;
	vaddr_t hole; /* SHORT_JUMP: address of the near jump, else 0 */
	/*
	 * SHORT_JUMP: index of the window of the same plan in whose tail the hole is,
	 * -1 if it is in padding. The host is patched before the near jump is written
	 * and stays as long as that is there; then no pc may be in the hole, its first
	 * byte included. It may lie in another function, and serve no point.
	 */
	int32_t host;
};

/*
 * A point has one or more places in windows. Those behind the first follow it
 * in plan->points as its `part`s 1, 2, ... with the same kind and address: a
 * snippet at the point goes into all of them, and all their windows must be
 * patched. Either all parts have a window, or the point has one part, refused.
 */
struct point {
	vaddr_t address;  /* of the instruction: first of the function, exit, call */
	vaddr_t callee;	  /* direct calls and tail jumps, else 0; edges: where they lead */
	arch_regset live; /* what may be needed at the place; everything where refused */
	int32_t window;	  /* index into plan->windows, -1 if refused */
	uint16_t part;
	uint8_t insn; /* index into the window: see place */
	/* There are dozens of points for each function. */
	enum point_kind kind : 8;
	enum tactic tactic : 8;
	enum refusal refusal : 8;
	enum point_place place : 8;
	/* Behind a call: only after what it returns has been, or may have been, overwritten. */
	bool late;
	/* An exit that is no return: a jump to what a register or memory holds, of whatever form. */
	bool through_pointer;
};

/*
 * How much a plan has. The windows of PLAN_BASE are the same in both, so that a
 * function can be asked for detail while it is instrumented.
 */
enum plan_level {
	PLAN_BASE,   /* entry, exits, calls */
	PLAN_DETAIL, /* every kind */
};

struct function_plan {
	uint32_t function; /* index into image_functions() */
	enum plan_level level;
	size_t point_count, window_count;
	struct point *points;	/* entry first, then by address */
	struct window *windows; /* by start; they do not overlap */
};

/*
 * The instructions of a window, at their link-time addresses: decoded again
 * from the file, since a plan that is kept must be small. Returns how many
 * (window.insn_count); `insns` has room for WINDOW_INSNS_MAX.
 */
size_t window_instructions(const struct image *img, const struct window *w,
			   struct arch_insn *insns);

/*
 * Makes the plan of one function (its cold fragments included). The plan depends
 * on the image only: asked again, in whatever order, it is the same, and the
 * plans of two functions never contradict each other. image_references() is
 * computed if need be. A function that cannot be instrumented at all has a plan,
 * too: all refused. The caller frees it.
 */
int plan_function(struct image *img, uint32_t function, struct function_plan **out,
		  struct dinst_error *e);
void plan_free(struct image *img, struct function_plan *plan);

#endif
