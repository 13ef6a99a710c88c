/* SPDX-License-Identifier: MIT */
/*
 * evaluate_private.h - what the evaluate*.c files share:
 *
 *   evaluate.c             mdl_evaluate(): a plan from a metric and a focus
 *   evaluate_focus.c       words to foci
 *   evaluate_resources.c   threads, files, objects, processes that a focus names
 *   evaluate_match.c       which constraints a focus takes
 *   evaluate_values.c      expressions of the where-world
 *   evaluate_lists.c       lists, $procedures, $modules
 *   evaluate_start.c       $start, $exit
 *   evaluate_points.c      calls and blocks
 *   evaluate_callees.c     what calls lead to, who calls whom
 *   evaluate_statements.c  statements to placements
 *   evaluate_extent.c      inclusive and exclusive
 *   evaluate_code.c        what code does with names
 *   evaluate_memory.c      memory of plans
 */
#ifndef DINST_MUTATOR_EVALUATE_PRIVATE_H
#define DINST_MUTATOR_EVALUATE_PRIVATE_H

#include "mutator/evaluate.h"

/* --------------------------------------------------------------- memory */

/* With one reference; NULL without memory. */
struct mdl_memory *mdl_memory_new(struct dinst_error *e);
struct mdl_memory *mdl_memory_ref(struct mdl_memory *m);
void mdl_memory_unref(struct mdl_memory *m); /* NULL is fine */
/* Zeros; NULL without memory, *e says so. Lives as long as `m`. */
void *mdl_alloc(struct mdl_memory *m, size_t count, size_t size, struct dinst_error *e);
void *mdl_keep(struct mdl_memory *m, const void *from, size_t count, size_t size,
	       struct dinst_error *e);
char *mdl_print(struct mdl_memory *m, struct dinst_error *e, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* --------------------------------------------------------------- values */

enum value_kind {
	VALUE_NUMBER,
	VALUE_TEXT,
	VALUE_FUNCTIONS, /* one, or several that are taken for one; also lists of them */
	VALUE_MODULES,
	VALUE_PLACES,  /* the entries, or the exits, of functions */
	VALUE_CALLS,   /* calls and blocks: points with an address */
	VALUE_NUMBERS, /* a list */
	VALUE_TEXTS,   /* a list */
	VALUE_ANY,     /* what a pattern stands for that names many */
};

/* A point with an address of its own. */
struct site_ref {
	struct function_ref function;
	vaddr_t address; /* of the call, or of the block's first instruction; link-time */
	vaddr_t callee;	 /* direct calls, else 0 */
	bool usable;	 /* the point is not refused */
};

/* Arrays belong to the memory of the evaluation. */
struct value {
	enum value_kind kind;
	int64_t number;
	const char *text;      /* with a function: of that name, which may have others, too */
	enum point_kind point; /* VALUE_PLACES, VALUE_CALLS */
	size_t count;
	const struct function_ref *functions;
	struct module *const *modules;
	const struct site_ref *sites;
	const int64_t *numbers;
	const char *const *texts;
};

/* ----------------------------------------------------------------- foci */

enum { FOCUS_MAX = 8, RESOURCE_DEPTH_CODE = 3 };

/* One word of a focus, and what it stands for in this target. */
struct focus_resource {
	struct mdl_resource resource;
	const char *text; /* as it is shown */
	struct value value;
	/* VALUE_ANY: only these, where there are any. */
	const uint64_t *keys;
	size_t key_count;
	/* Code: all functions in question, also of a module. */
	const struct function_ref *functions;
	size_t function_count;
	char *waits_for;
};

/* At most one resource of each hierarchy. */
struct focus {
	const struct focus_resource *resources[FOCUS_MAX];
	size_t count;
};

/* ----------------------------------------------------------- evaluation */

struct function_set {
	struct function_ref *items; /* sorted */
	size_t count, room;
};

/* A list of the library as this target has it. */
struct known_list {
	const struct mdl_list *list;
	struct value value;
	char **skipped; /* items that nothing matches */
	size_t skipped_count;
	unsigned excluded;		   /* evaluation.exclusion that it was taken into last */
	const struct mdl_plan *skipped_in; /* the plan that was told of them last */
	struct known_list *next;
};

struct callee_cache; /* evaluate_callees.c */
struct call_edge;

/* One call of mdl_evaluate(); what is the same for all of its plans is kept. */
struct evaluation {
	struct session *s;
	const struct mdl_library *l;
	const struct mdl_metric *metric;
	struct mdl_memory *memory;
	struct dinst_error *e;
	struct known_list *lists;
	struct value procedures, modules, start, exits;
	bool has_procedures, has_modules, has_start, has_exits;
	/* Of $start: those that threads begin in, which have no way out of their own. */
	struct function_set thread_starts;
	char *awaited;	     /* a module of an item of a list, that may be loaded yet; or NULL */
	char *start_skipped; /* why there are none; NULL: there are */
	struct callee_cache *callees;
	struct call_edge *callers; /* who calls whom, sorted by callee; malloc'ed */
	size_t caller_count;
	bool has_callers;
	unsigned exclusion; /* number of the set of callees left out that is made, from 1 on */
	uint64_t steps;	    /* taken so far: what loops inside of loops cost is bounded */
	unsigned looks; /* at parts of expressions and code that are no step yet: spend_looks() */
};

/* A loop variable that is in force. */
struct scope {
	const char *name;
	struct value value;
	const struct scope *outer;
};

enum { BOUND_KEPT = 8 };

struct bound_code {
	const struct mdl_code *code;
	const struct mdl_binding *items;
	size_t count;
};

/* The placements of one body (base, replacement or flag) in the making. */
struct drawing {
	struct evaluation *v;
	struct mdl_plan *plan;
	const struct mdl_constraint *constraint; /* NULL: the base */
	const struct focus_resource *resource;	 /* that the constraint is for */
	const struct function_set *excluded;	 /* callees that `.calls` leaves out */
	const char *flag;			 /* the flag's name, NULL: this measures */
	const struct scope *scope;
	struct mdl_placement *items; /* malloc'ed */
	size_t count, room;
	/* Bindings of the last pieces of code that are the same wherever the code goes. */
	struct bound_code bound[BOUND_KEPT];
	unsigned next_bound;
	const struct mdl_code *guard; /* without a point */
	const struct mdl_binding *guard_bindings;
	size_t guard_binding_count;
	bool uses_any; /* something stands for the many objects of a pattern */
};

static inline int no_memory(struct dinst_error *e)
{
	return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
}

/* Counts work of about `steps` looks at something. DINST_USAGE where it is too much. */
int spend(struct evaluation *v, uint64_t steps);
/* Counts looks at parts of a tree, which are less than a step each. */
int spend_looks(struct evaluation *v, unsigned parts);
bool function_is(const struct function_ref *a, const struct function_ref *b);
/* Adds at the end; set_sort() when all are there. DINST_NO_MEMORY. */
int set_add(struct function_set *set, const struct function_ref *f, struct dinst_error *e);
void set_sort(struct function_set *set); /* and takes out what is there twice */
bool set_has(const struct function_set *set, const struct function_ref *f);
void set_release(struct function_set *set);

const char *function_name(const struct function_ref *f);
/* The function of m (NULL: none) that begins at exactly that place and is no linker stub. */
bool function_starting(struct module *m, vaddr_t v, struct function_ref *out);
/* "module:function" into text. */
void function_text(const struct function_ref *f, char *text, size_t size);

/* For -v: something that was left out; once: unless that was said before. */
int plan_skip(struct evaluation *v, struct mdl_plan *plan, const char *text);
int plan_skip_once(struct evaluation *v, struct mdl_plan *plan, const char *text);

/* evaluate_focus.c: *out and what it holds belong to the evaluation's memory. */
int foci_parse(struct evaluation *v, const char *const *words, size_t count, bool each,
	       struct focus **out, size_t *out_count);
/* True if a module of that name, which is not there, may be loaded later. */
bool module_may_come(const char *module);
/* "/Code/a/f /Process/12" */
char *focus_text(struct evaluation *v, const struct focus *f);

/*
 * evaluate_resources.c: what a resource of a hierarchy other than Code stands
 * for: fills value and keys. With `each`: *out_count resources in place of one.
 */
int resource_find(struct evaluation *v, struct focus_resource *r, bool each,
		  struct focus_resource **out, size_t *out_count);
bool is_pattern(const char *text);

/* evaluate_match.c */
/* How many parts a resource must have for c; -1: any number but none. */
int constraint_depth(const struct mdl_constraint *c);
bool constraint_matches(const struct mdl_constraint *c, const struct mdl_resource *r);
/* DINST_USAGE, with what there is, if no constraint of the metric matches. */
int resource_check(struct evaluation *v, const struct focus_resource *r);
struct selection {
	const struct mdl_constraint *flags[FOCUS_MAX * 4];
	const struct focus_resource *flag_resources[FOCUS_MAX * 4];
	size_t flag_count;
	const struct mdl_constraint *replace;
	const struct focus_resource *replace_resource;
};
int selection_make(struct evaluation *v, const struct focus *f, struct selection *out);
/* $constraint[index] where c is used for r. */
int constraint_value(struct evaluation *v, const struct mdl_constraint *c,
		     const struct focus_resource *r, int64_t index, const struct mdl_place *place,
		     struct value *out);

/* evaluate_values.c */
int value_of(struct drawing *d, const struct mdl_expr *x, struct value *out);
int value_truth(struct drawing *d, const struct mdl_expr *x, bool *out);
/* Element i of a list, i < count. */
struct value value_element(const struct value *list, size_t i);
/* "a procedure", "a number", ... */
const char *value_kind_name(enum value_kind kind);

/* evaluate_lists.c */
int list_value(struct evaluation *v, const struct mdl_list *list, struct value *out);
int list_skipped(struct evaluation *v, struct mdl_plan *plan, const struct mdl_list *list);
int all_procedures(struct evaluation *v, struct value *out);
int all_modules(struct evaluation *v, struct value *out);
int module_functions(struct evaluation *v, struct module *const *modules, size_t count,
		     struct value *out);
/* Adds functions of exactly that name in module m (NULL: all) to the set; none is no error. */
int functions_named(struct evaluation *v, struct module *m, const char *name,
		    struct function_set *set);
/* Callees that `.calls` leaves out: all in lists of procedures that these statements name. */
int excluded_add(struct evaluation *v, const struct mdl_statement *body, struct function_set *set);

/* evaluate_start.c */
/* Where the threads that `creator` (pthread_create) makes begin, told from its code alone. */
int thread_starts_by_code(struct evaluation *v, const struct function_ref *creator,
			  struct function_set *set);
/* Functions that the program passes to `creators`; of *calls calls *untold do not tell. */
int thread_routines(struct evaluation *v, const struct function_set *creators,
		    struct function_set *set, size_t *calls, size_t *untold);
int start_value(struct evaluation *v, struct value *out);
int exit_value(struct evaluation *v, struct value *out);

/* evaluate_callees.c */
bool decode_at(const struct module *m, vaddr_t at, struct arch_insn *insn);
/* A call, or a jump to another function, which calls it, too; once, however many parts the point has. */
bool leads_on(const struct point *p);
/* The function that a call or such a jump leads to, as far as that is known. */
int callee_of(struct evaluation *v, const struct site_ref *site, struct function_ref *out,
	      bool *known);
/* Functions that call one of `functions`, or jump to it. */
int callers_of(struct evaluation *v, const struct value *functions, struct value *out);
/* serve_callees.c: adds what f calls or jumps to; *unknown grows by what goes through pointers. */
int callees_add(struct evaluation *v, const struct function_ref *f, struct function_set *callees,
		size_t *unknown);
/* What is kept of an evaluation. */
void callees_free(struct evaluation *v);

/* evaluate_points.c */
/* The calls of functions, without those of callees that are left out. */
int calls_of(struct drawing *d, const struct value *functions, struct value *out);
/*
 * Where control comes back to from calls of f (sorted): usable[i] tells if there is
 * a point before calls[i] and one behind it, has[i] if it returns at all.
 */
int after_usable(struct evaluation *v, const struct function_ref *f, const vaddr_t *calls,
		 size_t count, bool *usable, bool *has);
/*
 * The ways out of a thread's start: direct calls, before which, and indirect ones,
 * behind which there is nothing of the thread left.
 */
int start_ways_out(struct evaluation *v, const struct function_ref *f, struct value *out);
/* The block that begins at an address of the target ("0x..."), or all ("*"). */
int blocks_of(struct evaluation *v, const struct function_ref *f, const char *which,
	      const struct site_ref **out, size_t *count);

/* evaluate_statements.c */
int draw_statement(struct drawing *d, const struct mdl_statement *st);
/* Adds one placement; `addresses` are copied. */
int draw_placement(struct drawing *d, const struct mdl_placement *p);

/* evaluate_extent.c */
int draw_extent(struct drawing *d, enum mdl_extent extent);

/* evaluate_code.c */
bool code_clears(const struct mdl_code *code, const char *flag);
/* Calls found() for each name and $constraint in it, until it returns non-zero, which is returned. */
int code_names(const struct mdl_code *code, int (*found)(void *arg, const struct mdl_expr *x),
	       void *arg);
int expr_names(const struct mdl_expr *x, int (*found)(void *arg, const struct mdl_expr *x),
	       void *arg);
/* The same for all expressions of statements, where- and what-world. `attribute`: of which the
 * $constraint is asked, else NULL. */
typedef int (*constraint_found)(void *arg, const struct mdl_expr *x, const char *attribute);
int body_constraints(const struct mdl_statement *st, constraint_found found, void *arg);
/* True if it starts a timer. */
bool code_starts(const struct mdl_code *code);
/* Of how many parts the trees of code are. */
unsigned code_parts(const struct mdl_code *code);

#endif
