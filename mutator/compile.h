/* SPDX-License-Identifier: MIT */
/*
 * compile.h - code trees of MDL become programs (arch/program.h): the "what"
 * half of a request.
 *
 * Types come from DWARF where there is any; without, everything is 64 bits wide
 * and signed. All arithmetic is of 64-bit numbers; a float or double is taken as
 * the integer in front of its point. Integer registers only.
 *
 * Programs that do not depend on the function (compiled.shared) can be used for
 * every function at that kind of point.
 *
 * What the code of a program looks like:
 *
 *     hits += 1                                   where it is wanted; locked beside a thread timer
 *     no activation? -> end                       at entries and exits, code with per-thread effects
 *     no record of the thread? -> end             code that looks at per-thread state
 *     no room in the record? -> end               at calls, code with per-thread effects
 *     flag == 0? -> end                           for each guard
 *     the code itself
 *   end:
 */
#ifndef DINST_MUTATOR_COMPILE_H
#define DINST_MUTATOR_COMPILE_H

#include "arch/program.h"
#include "mutator/evaluate.h"
#include "mutator/variable.h"

enum compile_mode {
	COMPILE_POINT, /* what runs at the point */
	/*
	 * What a request must do for an activation that was entered before it came:
	 * only effects on per-thread state, interpreted by us in the stop. Code that
	 * reads what only the moment of entry had ($arg) compiles to nothing.
	 */
	COMPILE_CATCH_UP,
	/* What stands for an exit that never came (longjmp, exceptions): per-thread state, and totals
	 * of timers that stop by it. */
	COMPILE_UNDO,
};

/* A guard in front of code: a flag that must be true. */
struct compile_guard {
	const struct variable *flag; /* VARIABLE_FLAG; NULL: evaluate `code` there and then */
	const struct mdl_code *code;
	const struct mdl_binding *bindings;
	size_t binding_count;
	const char *name; /* of the flag, as `code` calls it */
	bool many;
};

struct compile_request {
	struct session *session;
	const struct mdl_library *texts;
	struct place *place; /* whose counters are used */
	const struct mdl_placement *placement;
	const struct compile_guard *guards;
	size_t guard_count;
	/* What the code may name: the metric's variable and temporaries, or the flag itself. */
	struct variable *const *variables;
	size_t variable_count;
	const struct variable *vector; /* VARIABLE_TABLE of a plan that is many, else NULL */
	const struct variable *hits; /* counted up whenever the code is reached; NULL: not wanted */
	bool tail_exit;		     /* the exit is a jump to another function: no $return */
	/*
	 * The metric's style is SampledFunction: what `v++` and `v--` do at entries and
	 * exits belongs to the activation, like a flag, and is caught up and undone; of what a forked
	 * child has inherited, in its parent only.
	 */
	bool sampled;
	enum compile_mode mode;
};

struct compiled {
	struct arch_program program; /* optimised; the caller frees ops with free() */
	bool shared;		     /* the same for every function of the placement's kind */
	bool activation;   /* uses ARCH_VALUE_ACTIVATION: entries and exits are to be paired */
	bool start;	   /* uses ARCH_VALUE_START: entries must write down the time */
	bool per_thread;   /* reads or writes per-thread state: goes in and out in a stop */
	bool system_calls; /* makes some: seccomp must allow them */
	bool clock;	   /* it, or the entry for it, reads the processor's clock */
	bool reads;	   /* ... and reads memory by them, which may have to wait for it */
	/* What the target keeps of its threads must be there (threads_prepare()): $thread, reads that
	 * cannot fault, and all that is per thread. */
	bool needs_threads;
	uint64_t cost_ps;   /* predicted, arch_program_cost() */
	uint64_t switch_ps; /* arch_program_switch_cost() */
};

/*
 * DINST_REFUSED: this point cannot have it (no return value at a tail jump, a
 * call that is not safe): *e says why. DINST_USAGE and others fail the request.
 * An empty program (count 0) is nothing to insert.
 */
int compile(const struct compile_request *request, struct compiled *out, struct dinst_error *e);

/*
 * What variables a metric's code needs, found by looking at it before anything
 * is allocated: sets v->form by how each is used (variable.h).
 */
int compile_choose_forms(const struct mdl_plan *plan, struct variable *const *variables,
			 size_t count, struct dinst_error *e);

#endif
