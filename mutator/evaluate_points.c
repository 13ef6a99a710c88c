/* SPDX-License-Identifier: MIT */
/*
 * evaluate_points.c - the calls of procedures, what they lead to, who calls
 * whom, and the blocks of procedures. Reads plans; the target's memory only to
 * see what the loader has bound a linker stub to.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/detail.h"
#include "mutator/evaluate_private.h"

enum { PROGRESS_EVERY = 256, STUB_INSNS = 3, STRAIGHT_INSNS = 24, AROUND_BYTES = 64 };

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

/* -------------------------------------------------------------- callees */

/* What is known of a linker stub, or of a place that a call goes through. */
struct known_callee {
	const struct module *module;
	vaddr_t at;
	struct function_ref function;
	bool used, known;
};

struct callee_cache {
	struct known_callee *items;
	size_t size, used; /* size: a power of two */
};

static size_t callee_hash(const struct module *m, vaddr_t at)
{
	return ((uintptr_t)m / 64 + at) * UINT64_C(0x9e3779b97f4a7c15) >> 20;
}

static struct known_callee *callee_slot(const struct callee_cache *c, const struct module *m,
					vaddr_t at)
{
	size_t i = callee_hash(m, at) & (c->size - 1);

	while (c->items[i].used && (c->items[i].module != m || c->items[i].at != at))
		i = (i + 1) & (c->size - 1);
	return &c->items[i];
}

static int callee_grow(struct callee_cache *c, struct dinst_error *e)
{
	struct callee_cache larger = {.size = c->size ? c->size * 2 : 256};

	if (c->size && c->used * 2 < c->size)
		return 0;
	larger.items = calloc(larger.size, sizeof(*larger.items));
	if (!larger.items)
		return no_memory(e);
	for (size_t i = 0; i < c->size; i++)
		if (c->items[i].used)
			*callee_slot(&larger, c->items[i].module, c->items[i].at) = c->items[i];
	free(c->items);
	c->items = larger.items;
	c->size = larger.size;
	return 0;
}

void callees_free(struct callee_cache *c)
{
	if (c)
		free(c->items);
	free(c);
}

bool function_starting(struct module *m, vaddr_t v, struct function_ref *out)
{
	const struct image_function *functions;
	long at;

	if (!m || !m->image)
		return false;
	at = image_function_at(m->image, v);
	if (at < 0 || image_is_stub(m->image, v))
		return false;
	image_functions(m->image, &functions);
	if (functions[at].address != v)
		return false;
	*out = (struct function_ref){m, functions[at].parent};
	return true;
}

/* The first module, in the loader's order, that exports the name. */
static int function_bound(struct evaluation *v, const char *name, struct known_callee *k)
{
	for (size_t i = 0; i < module_count(v->s->modules); i++) {
		struct module *m = module_get(v->s->modules, i);
		struct function_set set = {0};
		int status;

		if (m->gone || !m->image)
			continue;
		status = functions_named(v, m, name, &set);
		if (status >= 0 && set.count) {
			k->function = set.items[0];
			k->known = true;
		}
		set_release(&set);
		if (status < 0 || k->known)
			return status;
	}
	return 0;
}

/* What the loader has put there; before it has, what it will look for. */
static int look_at_slot(struct evaluation *v, struct module *m, vaddr_t slot,
			struct known_callee *k)
{
	const char *name = image_slot_name(m->image, slot);
	uint64_t to = 0;

	if (target_read_some(v->s->target, slot + m->bias, &to, sizeof(to)) == sizeof(to)) {
		struct module *other = to ? module_at(v->s->modules, to) : NULL;

		if (other && function_starting(other, to - other->bias, &k->function)) {
			k->known = true;
			return 0;
		}
	}
	return name ? function_bound(v, name, k) : 0;
}

static bool decode_at(const struct module *m, vaddr_t at, struct arch_insn *insn)
{
	size_t size = 0;
	const uint8_t *bytes = image_code(m->image, at, &size);

	return bytes && arch_decode(bytes, size, at, insn) == ARCH_OK;
}

/* A stub: perhaps a landing pad, then a jump through a slot. */
static bool stub_slot(const struct module *m, vaddr_t at, vaddr_t *slot)
{
	struct arch_insn insn;

	for (unsigned i = 0; i < STUB_INSNS && decode_at(m, at, &insn); i++) {
		if (insn.flow == ARCH_FLOW_JUMP_INDIRECT && insn.flags & ARCH_INSN_PC_RELATIVE) {
			*slot = insn.data_ref;
			return true;
		}
		if (insn.flow != ARCH_FLOW_NEXT)
			return false;
		at += insn.length;
	}
	return false;
}

/* A call through a place in memory that the loader fills. */
static bool call_slot(const struct module *m, vaddr_t at, vaddr_t *slot)
{
	struct arch_insn insn;

	if (!decode_at(m, at, &insn) || insn.flow != ARCH_FLOW_CALL_INDIRECT ||
	    !(insn.flags & ARCH_INSN_PC_RELATIVE) || !image_slot_name(m->image, insn.data_ref))
		return false;
	*slot = insn.data_ref;
	return true;
}

int callee_of(struct evaluation *v, const struct site_ref *site, struct function_ref *out,
	      bool *known)
{
	struct module *m = site->function.module;
	struct known_callee *k;
	vaddr_t slot;
	int status;

	*known = site->callee && function_starting(m, site->callee, out);
	if (*known)
		return 0;
	if (site->callee ? !stub_slot(m, site->callee, &slot) : !call_slot(m, site->address, &slot))
		return 0;
	if (!v->callees)
		v->callees = calloc(1, sizeof(*v->callees));
	if (!v->callees)
		return no_memory(v->e);
	status = callee_grow(v->callees, v->e);
	if (status < 0)
		return status;
	k = callee_slot(v->callees, m, slot);
	if (!k->used) {
		struct known_callee found = {.module = m, .at = slot, .used = true};

		status = look_at_slot(v, m, slot, &found);
		if (status < 0)
			return status;
		*k = found;
		v->callees->used++;
	}
	*known = k->known;
	*out = k->function;
	return 0;
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
		if (functions->count > PROGRESS_EVERY && i % PROGRESS_EVERY == 0)
			session_progress(d->v->s, "looking for calls", i, functions->count);
		status = add_calls(d->v, &functions->functions[i], d->excluded, &l);
	}
	if (status >= 0)
		status = keep_sites(d->v, &l, POINT_CALL, out);
	free(l.items);
	return status;
}

/* True if `f` has a call of one of the set. */
static int calls_any(struct evaluation *v, const struct function_ref *f,
		     const struct function_set *set, bool *yes)
{
	const struct function_plan *plan;
	int status = session_plan(v->s, f->module, f->index, &plan, v->e);

	*yes = false;
	for (size_t i = 0; status >= 0 && !*yes && i < plan->point_count; i++) {
		const struct point *p = &plan->points[i];
		/* A jump to another procedure calls it, too. */
		const bool tail = p->kind == POINT_EXIT && p->callee;
		struct function_ref callee;
		bool known;

		if ((p->kind != POINT_CALL && !tail) || p->part)
			continue;
		status = callee_of(v, &(struct site_ref){*f, p->address, p->callee, true}, &callee,
				   &known);
		*yes = status >= 0 && known && set_has(set, &callee);
	}
	return status;
}

int callers_of(struct evaluation *v, const struct value *functions, struct value *out)
{
	struct function_set set = {0}, found = {0};
	struct value all;
	int status = all_procedures(v, &all);

	for (size_t i = 0; status >= 0 && i < functions->count; i++)
		status = set_add(&set, &functions->functions[i], v->e);
	set_sort(&set);
	for (size_t i = 0; status >= 0 && i < all.count; i++) {
		bool yes;

		if (i % PROGRESS_EVERY == 0)
			session_progress(v->s, "looking for callers", i, all.count);
		status = calls_any(v, &all.functions[i], &set, &yes);
		if (status >= 0 && yes)
			status = set_add(&found, &all.functions[i], v->e);
	}
	if (status >= 0) {
		struct function_ref *kept =
			mdl_keep(v->memory, found.items, found.count, sizeof(*found.items), v->e);

		*out = (struct value){
			.kind = VALUE_FUNCTIONS, .functions = kept, .count = found.count};
		status = kept ? 0 : DINST_NO_MEMORY;
	}
	set_release(&set);
	set_release(&found);
	return status;
}

/* --------------------------------------------------------------- detail */

static vaddr_t behind(const struct module *m, vaddr_t call)
{
	struct arch_insn insn;

	return decode_at(m, call, &insn) ? call + insn.length : 0;
}

int after_usable(struct evaluation *v, const struct function_ref *f, const vaddr_t *calls,
		 size_t count, bool *usable, bool *has)
{
	const struct function_plan *plan;
	int status = session_plan_for(v->s, f->module, f->index, POINT_AFTER, &plan, v->e);

	for (size_t i = 0; status >= 0 && i < count; i++) {
		const vaddr_t next = behind(f->module, calls[i]);
		bool before = false;

		usable[i] = has[i] = false;
		for (size_t k = 0; k < plan->point_count; k++) {
			const struct point *p = &plan->points[k];

			if (p->kind == POINT_CALL && p->address == calls[i] && p->window >= 0)
				before = true;
			if (p->kind != POINT_AFTER || p->address != next)
				continue;
			has[i] = true;
			usable[i] = p->window >= 0;
		}
		usable[i] = usable[i] && before;
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
