/* SPDX-License-Identifier: MIT */
/*
 * evaluate_start.c - where the program and its threads begin and end: $start
 * and $exit.
 *
 * Stripped files do not tell: main() is then what the program's first code
 * takes the address of, and where threads begin what pthread_create() takes
 * the address of and what calls a function that it got. Where the C library is
 * no help at all (musl without symbols has no functions that are not exported)
 * threads begin in what the program passes to pthread_create(). What is not
 * found is told, never guessed.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/evaluate_private.h"

enum { FIRST_INSNS = 64, FIRST_CALLS = 2, CREATOR_DEPTH = 1 };

static struct module *main_module(const struct evaluation *v)
{
	for (size_t i = 0; i < module_count(v->s->modules); i++)
		if (module_get(v->s->modules, i)->main)
			return module_get(v->s->modules, i);
	return NULL;
}

/* ----------------------------------------------------------------- main */

/* True if the instruction takes the address of a function; where it was linked, as a constant. */
static bool takes_function(struct module *m, const struct arch_insn *insn, struct function_ref *out)
{
	uint32_t constant;

	if (insn->flags & ARCH_INSN_ADDRESS_OF)
		return function_starting(m, insn->data_ref, out);
	if (!image_is_fixed(m->image) || insn->flow != ARCH_FLOW_NEXT ||
	    insn->length <= sizeof(constant))
		return false;
	memcpy(&constant, insn->bytes + insn->length - sizeof(constant), sizeof(constant));
	return function_starting(m, constant, out);
}

/* The last function whose address is taken from `at` on, before the C library is called. */
static bool first_taken(struct module *m, vaddr_t at, unsigned calls, struct function_ref *out)
{
	bool found = false;
	size_t size = 0;
	const uint8_t *bytes = image_code(m->image, at, &size);

	for (unsigned i = 0; bytes && i < FIRST_INSNS; i++) {
		struct arch_insn insn;

		if (arch_decode(bytes, size, at, &insn) != ARCH_OK)
			return false;
		found |= takes_function(m, &insn, out);
		if (insn.flow == ARCH_FLOW_CALL && !found && calls)
			return first_taken(m, insn.target, calls - 1, out);
		if (insn.flow != ARCH_FLOW_NEXT)
			return found;
		bytes += insn.length;
		size -= insn.length;
		at += insn.length;
	}
	return false;
}

static int add_main(struct evaluation *v, struct function_set *set)
{
	struct module *m = main_module(v);
	struct function_ref found;
	size_t before = set->count;
	int status;

	if (!m || !m->image)
		return 0;
	status = functions_named(v, m, image_is_go(m->image) ? "main.main" : "main", set);
	if (status < 0 || set->count > before)
		return status;
	if (first_taken(m, image_entry(m->image), FIRST_CALLS, &found))
		return set_add(set, &found, v->e);
	return 0;
}

/* -------------------------------------------------------------- threads */

/* A thread begins where something is called that is named nowhere, and nothing is returned to. */
static int is_thread_start(struct evaluation *v, const struct function_ref *f, bool *yes)
{
	const struct function_plan *plan;
	struct value ways = {0};
	int status = session_plan(v->s, f->module, f->index, &plan, v->e);
	bool returns = false;

	*yes = false;
	for (size_t i = 0; status >= 0 && i < plan->point_count; i++)
		returns |= plan->points[i].kind == POINT_EXIT;
	if (status >= 0 && !returns)
		status = start_ways_out(v, f, &ways);
	*yes = status >= 0 && ways.count > 0;
	return status;
}

/* What `creator`, or what it calls `depth` deep, takes the address of and begins a thread with. */
static int add_taken(struct evaluation *v, const struct function_ref *creator, unsigned depth,
		     struct function_set *set)
{
	const struct image_function *functions;
	struct module *m = creator->module;
	size_t size = 0;
	const uint8_t *bytes;
	vaddr_t at, end;
	int status = 0;

	image_functions(m->image, &functions);
	at = functions[creator->index].address;
	end = at + functions[creator->index].size;
	bytes = image_code(m->image, at, &size);
	while (bytes && at < end && status >= 0) {
		struct function_ref other;
		struct arch_insn insn;
		bool yes = false;

		if (arch_decode(bytes, size, at, &insn) != ARCH_OK)
			break;
		if (takes_function(m, &insn, &other) && other.index != creator->index)
			status = is_thread_start(v, &other, &yes);
		if (status >= 0 && yes)
			status = set_add(set, &other, v->e);
		if (status >= 0 && depth && insn.flow == ARCH_FLOW_CALL &&
		    function_starting(m, insn.target, &other))
			status = add_taken(v, &other, depth - 1, set);
		bytes += insn.length;
		size -= insn.length;
		at += insn.length;
	}
	return status;
}

/* Names under which C libraries keep it, where they tell. */
static int add_named_starts(struct evaluation *v, struct module *m, struct function_set *set)
{
	return functions_named(v, m, "start_thread", set);
}

int thread_starts_by_code(struct evaluation *v, const struct function_ref *creator,
			  struct function_set *set)
{
	return add_taken(v, creator, CREATOR_DEPTH, set);
}

/* What one function passes to `creators`: what it takes the address of just before it calls. */
static int add_passed(struct evaluation *v, const struct function_ref *caller,
		      const struct function_set *creators, struct function_set *set, size_t *calls,
		      size_t *untold)
{
	const struct image_function *functions;
	struct function_ref taken = {0}, callee;
	size_t candidates = 0;
	struct arch_insn insn;
	vaddr_t at, end;
	int status = 0;

	image_functions(caller->module->image, &functions);
	at = functions[caller->index].address;
	end = at + functions[caller->index].size;
	for (; at < end && status >= 0 && decode_at(caller->module, at, &insn); at += insn.length) {
		bool known = false;

		candidates += takes_function(caller->module, &insn, &taken);
		if (insn.flow == ARCH_FLOW_NEXT)
			continue;
		if (arch_is_call(&insn))
			status = callee_of(v, &(struct site_ref){*caller, at, insn.target, true},
					   &callee, &known);
		if (status >= 0 && known && set_has(creators, &callee)) {
			++*calls;
			*untold += candidates != 1;
			status = candidates == 1 ? set_add(set, &taken, v->e) : 0;
		}
		/* What a branch goes round is as near as what it leads to. */
		if (insn.flow != ARCH_FLOW_BRANCH)
			candidates = 0;
	}
	return status;
}

int thread_routines(struct evaluation *v, const struct function_set *creators,
		    struct function_set *set, size_t *calls, size_t *untold)
{
	const struct value functions = {
		.kind = VALUE_FUNCTIONS, .functions = creators->items, .count = creators->count};
	struct value callers = {0};
	int status = creators->count ? callers_of(v, &functions, &callers) : 0;

	for (size_t i = 0; i < callers.count && status >= 0; i++)
		status = add_passed(v, &callers.functions[i], creators, set, calls, untold);
	set_sort(set);
	return status;
}

static int tell_what_is_missing(struct evaluation *v, const struct function_set *creators,
				const struct function_set *routines, size_t calls, size_t untold)
{
	if (routines->count)
		v->start_skipped = mdl_print(v->memory, v->e,
					     "where threads start: told by %zu of %zu calls of "
					     "pthread_create; $start is main and what these name",
					     calls - untold, calls);
	else
		v->start_skipped = mdl_print(
			v->memory, v->e, "where threads start: not found (%s); $start is main only",
			creators->count ? "by what pthread_create does" : "no pthread_create");
	return v->start_skipped ? 0 : DINST_NO_MEMORY;
}

/* `set`: where the C library begins threads; where it does not tell, `routines` of the program. */
static int find_thread_starts(struct evaluation *v, struct function_set *set,
			      struct function_set *routines)
{
	struct function_set creators = {0};
	size_t calls = 0, untold = 0;
	int status = functions_named(v, NULL, "pthread_create", &creators);

	set_sort(&creators);
	for (size_t i = 0; i < creators.count && status >= 0; i++) {
		size_t before = set->count;

		status = add_named_starts(v, creators.items[i].module, set);
		if (status >= 0 && set->count == before)
			status = thread_starts_by_code(v, &creators.items[i], set);
	}
	if (status >= 0 && !set->count)
		status = thread_routines(v, &creators, routines, &calls, &untold);
	if (status >= 0 && !set->count)
		status = tell_what_is_missing(v, &creators, routines, calls, untold);
	set_release(&creators);
	set_sort(set);
	return status;
}

/* --------------------------------------------------------------- values */

/* In the order in which they were found. */
static int keep(struct evaluation *v, const struct function_set *set, struct value *out)
{
	struct function_ref *kept =
		mdl_keep(v->memory, set->items, set->count, sizeof(*set->items), v->e);

	*out = (struct value){.kind = VALUE_FUNCTIONS, .functions = kept, .count = set->count};
	return kept ? 0 : DINST_NO_MEMORY;
}

int start_value(struct evaluation *v, struct value *out)
{
	struct function_set all = {0}, routines = {0};
	int status = 0;

	if (!v->has_start) {
		status = add_main(v, &all);
		if (status >= 0)
			status = find_thread_starts(v, &v->thread_starts, &routines);
		for (size_t i = 0; i < v->thread_starts.count && status >= 0; i++)
			status = set_add(&all, &v->thread_starts.items[i], v->e);
		for (size_t i = 0; i < routines.count && status >= 0; i++)
			status = set_add(&all, &routines.items[i], v->e);
		if (status >= 0)
			status = keep(v, &all, &v->start);
		v->has_start = status >= 0;
		set_release(&all);
		set_release(&routines);
	}
	*out = v->start;
	return status;
}

int exit_value(struct evaluation *v, struct value *out)
{
	static const char *const names[] = {"exit", "_exit", "pthread_exit"};
	struct function_set all = {0}, libc = {0};
	int status = 0;

	if (!v->has_exits) {
		/* Those of the C library; a program may have functions of these names, too. */
		status = functions_named(v, NULL, "__libc_start_main", &libc);
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && status >= 0; i++)
			for (size_t k = 0; k < libc.count && status >= 0; k++)
				status = functions_named(v, libc.items[k].module, names[i], &all);
		if (status >= 0)
			status = keep(v, &all, &v->exits);
		v->has_exits = status >= 0;
		set_release(&all);
		set_release(&libc);
	}
	*out = v->exits;
	return status;
}
