/* SPDX-License-Identifier: MIT */
/*
 * evaluate_callees.c - what calls lead to, through linker stubs too, and who
 * calls whom. Reads plans, and the target's memory only to see what the loader
 * has bound a stub to.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/evaluate_private.h"

enum { PROGRESS_EVERY = 256, STUB_INSNS = 3 };

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

void callees_free(struct evaluation *v)
{
	if (v->callees)
		free(v->callees->items);
	free(v->callees);
	free(v->callers);
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

/* The first of a set that is not only its own source file's; NULL if there is none. */
static const struct function_ref *exported(const struct function_set *set)
{
	const struct image_function *functions;

	for (size_t i = 0; i < set->count; i++) {
		image_functions(set->items[i].module->image, &functions);
		if (!(functions[set->items[i].index].flags & FUNCTION_LOCAL))
			return &set->items[i];
	}
	return NULL;
}

/* The first module, in the loader's order, that exports the name. */
static int function_bound(struct evaluation *v, const char *name, struct known_callee *k)
{
	for (size_t i = 0; i < module_count(v->s->modules); i++) {
		struct module *m = module_get(v->s->modules, i);
		const struct function_ref *found;
		struct function_set set = {0};
		int status;

		if (m->gone || !m->image)
			continue;
		status = functions_named(v, m, name, &set);
		found = status >= 0 ? exported(&set) : NULL;
		if (found) {
			k->function = *found;
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

bool decode_at(const struct module *m, vaddr_t at, struct arch_insn *insn)
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

/* A call, or a jump, through a place in memory that the loader fills. */
static bool call_slot(const struct module *m, vaddr_t at, vaddr_t *slot)
{
	struct arch_insn insn;

	if (!decode_at(m, at, &insn) ||
	    (insn.flow != ARCH_FLOW_CALL_INDIRECT && insn.flow != ARCH_FLOW_JUMP_INDIRECT) ||
	    !(insn.flags & ARCH_INSN_PC_RELATIVE) || !image_slot_name(m->image, insn.data_ref))
		return false;
	*slot = insn.data_ref;
	return true;
}

bool leads_on(const struct point *p)
{
	const bool tail = p->kind == POINT_EXIT && (p->callee || p->through_pointer);

	return (p->kind == POINT_CALL || tail) && !p->part;
}

int callee_of(struct evaluation *v, const struct site_ref *site, struct function_ref *out,
	      bool *known)
{
	struct module *m = site->function.module;
	struct known_callee *k;
	vaddr_t slot = 0;
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

/* -------------------------------------------------------------- callers */

struct call_edge {
	struct function_ref callee, caller;
};

struct edge_list {
	struct call_edge *items;
	size_t count, room;
};

static int by_function(const struct function_ref *a, const struct function_ref *b)
{
	if (a->module != b->module)
		return a->module < b->module ? -1 : 1;
	return a->index < b->index ? -1 : a->index > b->index;
}

static int by_edge(const void *a, const void *b)
{
	const struct call_edge *x = a, *y = b;
	int order = by_function(&x->callee, &y->callee);

	return order ? order : by_function(&x->caller, &y->caller);
}

static int add_edge(struct edge_list *l, const struct call_edge *edge, struct dinst_error *e)
{
	if (l->count == l->room) {
		size_t room = l->room ? l->room * 2 : 4096;
		void *more = reallocarray(l->items, room, sizeof(*l->items));

		if (!more)
			return no_memory(e);
		l->items = more;
		l->room = room;
	}
	l->items[l->count++] = *edge;
	return 0;
}

static int add_edges(struct evaluation *v, const struct function_ref *f, struct edge_list *l)
{
	const struct function_plan *plan;
	int status = session_plan(v->s, f->module, f->index, &plan, v->e);

	for (size_t i = 0; status >= 0 && i < plan->point_count; i++) {
		const struct point *p = &plan->points[i];
		struct call_edge edge = {.caller = *f};
		bool known;

		if (!leads_on(p))
			continue;
		status = callee_of(v, &(struct site_ref){*f, p->address, p->callee, true},
				   &edge.callee, &known);
		if (status >= 0 && known)
			status = add_edge(l, &edge, v->e);
	}
	return status;
}

/* Who calls whom in all of the program, as far as that is known: once for an evaluation. */
static int know_callers(struct evaluation *v)
{
	struct edge_list l = {0};
	struct value all;
	int status = v->has_callers ? 0 : all_procedures(v, &all);

	if (v->has_callers || status < 0)
		return status;
	for (size_t i = 0; status >= 0 && i < all.count; i++) {
		if (i % PROGRESS_EVERY == 0)
			session_progress(v->s, "looking for callers", i, all.count);
		status = add_edges(v, &all.functions[i], &l);
	}
	if (status < 0) {
		free(l.items);
		return status;
	}
	if (l.count)
		qsort(l.items, l.count, sizeof(*l.items), by_edge);
	v->callers = l.items;
	v->caller_count = l.count;
	v->has_callers = true;
	return 0;
}

/* The first edge to f or behind it. */
static size_t first_edge(const struct evaluation *v, const struct function_ref *f)
{
	size_t lo = 0, hi = v->caller_count;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (by_function(&v->callers[mid].callee, f) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

int callers_of(struct evaluation *v, const struct value *functions, struct value *out)
{
	struct function_set found = {0};
	struct function_ref *kept;
	int status = know_callers(v);

	for (size_t i = 0; status >= 0 && i < functions->count; i++) {
		const struct function_ref *f = &functions->functions[i];

		for (size_t k = first_edge(v, f);
		     status >= 0 && k < v->caller_count && function_is(&v->callers[k].callee, f);
		     k++)
			status = set_add(&found, &v->callers[k].caller, v->e);
	}
	set_sort(&found);
	if (status >= 0)
		status = spend(v, found.count);
	if (status >= 0) {
		kept = mdl_keep(v->memory, found.items, found.count, sizeof(*found.items), v->e);
		*out = (struct value){
			.kind = VALUE_FUNCTIONS, .functions = kept, .count = found.count};
		status = kept ? 0 : DINST_NO_MEMORY;
	}
	set_release(&found);
	return status;
}
