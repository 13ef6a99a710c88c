/* SPDX-License-Identifier: MIT */
/*
 * evaluate.h - a metric and a focus become places and code trees: the "where"
 * half of MDL, evaluated when a request is made.
 *
 * The result names functions and points, not windows: nothing here plans code,
 * allocates in a target or writes to one. It is all or nothing: an error leaves
 * nothing behind and says what would be right.
 *
 *   focus = one resource of each hierarchy that the request names
 *           /Code/libc.so.6/malloc  /Process/worker*  /SyncObject/Mutex/0x5580...
 *
 * For each hierarchy of the focus that is not the whole of it, one constraint of
 * the metric must match by its path, as deep as the resource is; else the
 * request is refused with the list of what the metric can be constrained by.
 * Paths: one that ends in "*" is as deep as it is written: /Code/ * takes a
 * module, /Code/ * / * a procedure. One that ends in a name, with a body that
 * names $constraint, is papers/002's form: the resource is below the path, and
 * the body tells how far: under /Code, [0].funcs takes a module, any other [0]
 * a procedure ([1] its module), [1] alone the module at [1].
 * A `replace` takes the base's place, a `default` accepts, a flag guards; flags
 * guard a replacement's code as they do the base's.
 */
#ifndef DINST_MUTATOR_EVALUATE_H
#define DINST_MUTATOR_EVALUATE_H

#include "mutator/core.h"
#include "mutator/mdl/mdl.h"

/* In which order code runs where several pieces are at one point. */
enum mdl_role { MDL_SETS_FLAGS, MDL_MEASURES, MDL_CLEARS_FLAGS };

/* What one name of a hierarchy stands for, behind its first part. */
struct mdl_resource {
	const char *hierarchy;		 /* "Code", "Process", "SyncObject", "File", "Machine" */
	const char *parts[MDL_PATH_MAX]; /* without the hierarchy: "Mutex", "*" */
	size_t part_count;
};

/* Where-values that code may use by name: loop variables and constants. */
struct mdl_binding {
	const char *name; /* "$constraint" for $constraint[index] */
	unsigned index;
	/* A number, a text, or any: then comparing with it gives the place of what is compared in
	 * the request's vector, 0 if there is none; see struct mdl_plan. */
	enum { MDL_BOUND_NUMBER, MDL_BOUND_TEXT, MDL_BOUND_FUNCTION, MDL_BOUND_ANY } kind;
	int64_t number;
	const char *text;
	struct function_ref function;
};

/* A run of points of one function that get the same code. */
struct mdl_placement {
	struct function_ref function;
	enum point_kind kind; /* POINT_ENTRY, POINT_EXIT, POINT_CALL, POINT_AFTER, POINT_BLOCK */
	/* POINT_CALL and POINT_AFTER: the addresses of the calls, sorted (link-time); NULL: all of the
	 * function. POINT_BLOCK: of the blocks. */
	vaddr_t *addresses;
	size_t address_count;
	struct code_rank rank;
	bool guarded; /* by the plan's flags and guards */
	bool one_way; /* POINT_CALL: of calls that never return, where nothing is wanted behind them */
	const struct mdl_code *code;
	const struct mdl_binding *bindings; /* the plan's */
	size_t binding_count;
};

/*
 * A flag that a plan needs. Flags with equal keys are one and the same: they
 * are shared by all requests.
 */
struct mdl_flag {
	char *key; /* constraint, resource, and what `.calls` left out: "procedure /Code/a/f" */
	const struct mdl_constraint *constraint;
	struct mdl_resource resource;
	bool many; /* its value is a place in a vector, not just true */
	struct mdl_placement *placements;
	size_t placement_count;
	/* Guards without a point (MDL_GUARD): evaluated at each guarded piece of code. */
	const struct mdl_code *inline_code;
	const struct mdl_binding *bindings;
	size_t binding_count;
};

struct mdl_plan {
	const struct mdl_metric *metric;
	const struct mdl_constraint *replaced_by; /* NULL: the base stands */
	enum mdl_vartype type;			  /* of what is measured */
	char *focus;				  /* as it was asked for, normalized */
	struct mdl_flag *
		flags; /* in the order in which they are tested: cheapest and most selective first */
	size_t flag_count;
	/*
	 * True where the focus names many objects by one pattern: values are kept in
	 * a vector with a place for each object that is met. At most one hierarchy
	 * may be many. `many_of` is that resource's text, for columns: "/SyncObject/Mutex/ *".
	 */
	bool many;
	const char *many_of;
	/*
	 * Where the pattern names objects that are known ("/Process/worker*"): the
	 * vector has places for these keys only, others find none. None: any key.
	 */
	const uint64_t *keys;
	size_t key_count;
	struct mdl_placement *placements;
	size_t placement_count;
	/*
	 * Flags let nobody but the process, or the thread, with this id of its own begin what is measured;
	 * 0: any may. What a forked child inherits it has not begun.
	 */
	pid_t only_pid, only_tid;
	/* A module that is not loaded yet and may come: nothing is placed, try again then. */
	char *waits_for;
	/* Functions of lists that this program does not have: for -v. */
	char **skipped;
	size_t skipped_count;
	/* Calls that `exclusive` could not take out: what is called there counts as the function's own. */
	size_t own_calls;
	struct mdl_memory *memory; /* all of the above */
};

/*
 * Foci of a request. `each`: one plan for each resource that the globs match;
 * else one for all. *plans is malloc'ed, for mdl_plans_free().
 * DINST_NO_METRIC, DINST_NO_FUNCTION, DINST_NO_MODULE, DINST_USAGE.
 *
 * The words of a focus belong together when they are of different hierarchies;
 * a second word of the same hierarchy begins another focus, with what was said
 * of the others before it:
 *   /Code/a/f /Code/a/g /Process/12  ->  (f, 12), (g, 12)
 */
int mdl_evaluate(struct session *s, const struct mdl_library *l, const char *metric,
		 const char *const *words, size_t word_count, bool each, struct mdl_plan **plans,
		 size_t *count, struct dinst_error *e);
void mdl_plans_free(struct mdl_plan *plans, size_t count);

/* What foci the metric can be restricted by, for messages and listings: "/Code/ *, /Process/ *". */
void mdl_metric_constraints(const struct mdl_library *l, const struct mdl_metric *m, char *text,
			    size_t size);

#endif
