/* SPDX-License-Identifier: MIT */
/*
 * evaluate_points.c - the calls of procedures, where they come back, and the
 * blocks of procedures. Reads plans only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/detail.h"
#include "mutator/evaluate_private.h"

enum { PROGRESS_EVERY = 256, STRAIGHT_INSNS = 24, AROUND_BYTES = 64 };

const char *function_name(const struct function_ref *f)
{
	const struct image_function *functions;

	image_functions(f->module->image, &functions);
	return functions[f->index].name;
}

void function_text(const struct function_ref *f, char *text, size_t size)
{
	snprintf(text, size, "%s:%s", f->module->name,
		 image_readable_name(f->module->image, function_name(f)));
}

/* ---------------------------------------------------------------- calls */

struct site_list {
	struct site_ref *items;
	size_t count, room;
};

static int add_site(struct site_list *l, const struct site_ref *site, struct dinst_error *e)
{
	if (l->count == l->room) {
		size_t room = l->room ? l->room * 2 : 64;
		void *more = reallocarray(l->items, room, sizeof(*l->items));

		if (!more)
			return no_memory(e);
		l->items = more;
		l->room = room;
	}
	l->items[l->count++] = *site;
	return 0;
}

/* The sites in memory that stays, as a value. */
static int keep_sites(struct evaluation *v, const struct site_list *l, enum point_kind kind,
		      struct value *out)
{
	struct site_ref *kept = mdl_keep(v->memory, l->items, l->count, sizeof(*l->items), v->e);

	if (!kept)
		return DINST_NO_MEMORY;
	*out = (struct value){.kind = VALUE_CALLS, .point = kind, .sites = kept, .count = l->count};
	return 0;
}

static int add_calls(struct evaluation *v, const struct function_ref *f,
		     const struct function_set *excluded, struct site_list *l)
{
	const struct function_plan *plan;
	int status = session_plan(v->s, f->module, f->index, &plan, v->e);

	for (size_t i = 0; status >= 0 && i < plan->point_count; i++) {
		const struct point *p = &plan->points[i];
		struct site_ref site = {*f, p->address, p->callee, p->window >= 0};
		struct function_ref callee;
		bool known = false;

		if (p->kind != POINT_CALL || p->part)
			continue;
		if (excluded && excluded->count)
			status = callee_of(v, &site, &callee, &known);
		if (status >= 0 && !(known && set_has(excluded, &callee)))
			status = add_site(l, &site, v->e);
	}
	return status;
}

int calls_of(struct drawing *d, const struct value *functions, struct value *out)
{
	struct site_list l = {0};
	int status = 0;

	for (size_t i = 0; i < functions->count && status >= 0; i++) {
		size_t before = l.count;

		if (functions->count > PROGRESS_EVERY && i % PROGRESS_EVERY == 0)
			session_progress(d->v->s, "looking for calls", i, functions->count);
		status = add_calls(d->v, &functions->functions[i], d->excluded, &l);
		if (status >= 0)
			status = spend(d->v, 4 + l.count - before);
	}
	if (status >= 0)
		status = keep_sites(d->v, &l, POINT_CALL, out);
	free(l.items);
	return status;
}

/* --------------------------------------------------------------- detail */

static vaddr_t behind(const struct module *m, vaddr_t call)
{
	struct arch_insn insn;

	return decode_at(m, call, &insn) ? call + insn.length : 0;
}

/* The index of the call at, or that comes back to, an address; -1: none of these. */
static long call_at(const struct module *m, const vaddr_t *calls, size_t count, vaddr_t address,
		    bool comes_back)
{
	size_t lo = 0, hi = count;

	while (lo < hi) {
		const size_t mid = lo + (hi - lo) / 2;
		const vaddr_t there = comes_back ? behind(m, calls[mid]) : calls[mid];

		if (there == address)
			return (long)mid;
		if (there < address)
			lo = mid + 1;
		else
			hi = mid;
	}
	return -1;
}

int after_usable(struct evaluation *v, const struct function_ref *f, const vaddr_t *calls,
		 size_t count, bool *usable, bool *has)
{
	const struct function_plan *plan;
	int status = session_plan_for(v->s, f->module, f->index, POINT_AFTER, &plan, v->e);

	memset(usable, 0, count * sizeof(*usable));
	memset(has, 0, count * sizeof(*has));
	for (size_t i = 0; status >= 0 && i < plan->point_count; i++) {
		const struct point *p = &plan->points[i];
		long at;

		if (p->kind != POINT_AFTER || p->part)
			continue;
		at = call_at(f->module, calls, count, p->address, true);
		if (at < 0)
			continue;
		has[at] = true;
		usable[at] = p->window >= 0;
	}
	/* Both or neither: what cannot be left is not come back to. */
	for (size_t i = 0; status >= 0 && i < plan->point_count; i++) {
		const struct point *p = &plan->points[i];
		const long at = p->kind == POINT_CALL && !p->part && p->window < 0
					? call_at(f->module, calls, count, p->address, false)
					: -1;

		if (at >= 0)
			usable[at] = false;
	}
	return status;
}

/* True if what a branch may go round comes to where it leads, too. */
static bool joins_again(const struct module *m, const struct arch_insn *branch)
{
	vaddr_t at = branch->address + branch->length;
	struct arch_insn insn;

	if (branch->target < at || branch->target - at > AROUND_BYTES)
		return false;
	while (at < branch->target && decode_at(m, at, &insn) &&
	       (insn.flow == ARCH_FLOW_NEXT || insn.flow == ARCH_FLOW_CALL))
		at += insn.length;
	return at == branch->target;
}

/*
 * The next call behind `at` that is always come by: threads that end early, by
 * pthread_exit(), come by there, too. 0: not found.
 */
static vaddr_t next_call(const struct module *m, vaddr_t at)
{
	for (unsigned i = 0; i < STRAIGHT_INSNS; i++) {
		struct arch_insn insn;

		if (!decode_at(m, at, &insn))
			return 0;
		switch (insn.flow) {
		case ARCH_FLOW_CALL:
			return at;
		case ARCH_FLOW_NEXT:
			at += insn.length;
			break;
		case ARCH_FLOW_BRANCH:
			if (!joins_again(m, &insn))
				return 0;
			/* fallthrough */
		case ARCH_FLOW_JUMP:
			at = insn.target;
			break;
		default:
			return 0;
		}
	}
	return 0;
}

static int add_once(struct site_list *l, const struct site_ref *site, struct dinst_error *e)
{
	for (size_t i = 0; i < l->count; i++)
		if (l->items[i].address == site->address)
			return 0;
	return add_site(l, site, e);
}

/* Where control is on its way out, once it is back from the call. */
static int add_way_out(struct evaluation *v, const struct site_ref *call,
		       const struct site_list *calls, struct site_list *out)
{
	struct module *m = call->function.module;
	const vaddr_t next = next_call(m, behind(m, call->address));
	bool usable, has;
	int status;

	for (size_t i = 0; next && i < calls->count; i++)
		if (calls->items[i].address == next && calls->items[i].usable)
			return add_once(out, &calls->items[i], v->e);
	status = after_usable(v, &call->function, &call->address, 1, &usable, &has);
	return status >= 0 && usable ? add_once(out, call, v->e) : status;
}

int start_ways_out(struct evaluation *v, const struct function_ref *f, struct value *out)
{
	struct site_list l = {0}, ways = {0};
	int status = add_calls(v, f, NULL, &l);

	for (size_t i = 0; status >= 0 && i < l.count; i++) {
		struct function_ref callee;
		bool known;

		/* What a thread was started for is known to nobody but the thread. */
		if (l.items[i].callee)
			continue;
		status = callee_of(v, &l.items[i], &callee, &known);
		if (status >= 0 && !known)
			status = add_way_out(v, &l.items[i], &l, &ways);
	}
	*out = (struct value){.kind = VALUE_CALLS};
	if (status >= 0)
		status = keep_sites(v, &ways, POINT_CALL, out);
	free(l.items);
	free(ways.items);
	return status;
}

int blocks_of(struct evaluation *v, const struct function_ref *f, const char *which,
	      const struct site_ref **out, size_t *count)
{
	const bool all = !strcmp(which, "*");
	const uint64_t wanted = strtoull(which, NULL, 0);
	const struct function_plan *plan;
	struct site_list l = {0};
	struct value kept = {0};
	int status = session_plan_for(v->s, f->module, f->index, POINT_BLOCK, &plan, v->e);

	for (size_t i = 0; status >= 0 && i < plan->point_count; i++) {
		const struct point *p = &plan->points[i];

		if (p->kind != POINT_BLOCK || p->part)
			continue;
		if (all || p->address + f->module->bias == wanted)
			status = add_site(&l, &(struct site_ref){*f, p->address, 0, true}, v->e);
	}
	if (status >= 0)
		status = keep_sites(v, &l, POINT_BLOCK, &kept);
	*out = kept.sites;
	*count = kept.count;
	free(l.items);
	return status;
}
