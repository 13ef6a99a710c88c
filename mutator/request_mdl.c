/* SPDX-License-Identifier: MIT */
/*
 * request_mdl.c - the points of one function for the placements of a plan:
 * which of them get which program, and what the function's activations need.
 *
 * A function whose code is about activations is paired: a link at its entry and
 * at each exit says so, and it has all of them or is refused whole. What such
 * code would have done before it came is noted for the stop (threads_catch_up()),
 * and what stands for exits that never come, for threads_set_undo().
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/request.h"

/* A call of the function, and which sides of it can be instrumented. */
struct call_site {
	vaddr_t call, back;
	bool before, behind;
};

/* One function in the making. */
struct linking {
	struct request *request;
	struct instance *instance;
	struct function_work *work;
	const struct function_plan *plan;
	struct place *place;
	struct call_site *calls; /* by address */
	size_t call_count;
	bool both;   /* something is wanted before calls and behind them */
	bool result; /* what is behind one looks at what it returns */
};

/* ---------------------------------------------------------------- points */

static const uint8_t *bytes_at(const struct function_ref *f, vaddr_t address, size_t *size)
{
	return image_code(f->module->image, address, size);
}

/* True if the exit leads on to another function: there is no result yet. */
static bool is_tail_exit(const struct function_ref *f, const struct point *p)
{
	struct arch_insn insn;
	size_t size;
	const uint8_t *bytes = bytes_at(f, p->address, &size);

	return !bytes || arch_decode(bytes, size, p->address, &insn) != ARCH_OK ||
	       insn.flow != ARCH_FLOW_RETURN;
}

/* Where the call at that address returns to; 0 if it is none. */
static vaddr_t behind_call(const struct function_ref *f, vaddr_t address)
{
	struct arch_insn insn;
	size_t size;
	const uint8_t *bytes = bytes_at(f, address, &size);

	if (!bytes || arch_decode(bytes, size, address, &insn) != ARCH_OK)
		return 0;
	return address + insn.length;
}

static int by_call(const void *a, const void *b)
{
	const struct call_site *x = a, *y = b;

	return x->call < y->call ? -1 : x->call > y->call;
}

/* By where it begins, or by where it returns to: they are in the same order. */
static struct call_site *call_at(const struct linking *l, vaddr_t address, bool returned_to)
{
	size_t lo = 0, hi = l->call_count;

	while (lo < hi) {
		const size_t middle = (lo + hi) / 2;
		struct call_site *c = &l->calls[middle];
		const vaddr_t own = returned_to ? c->back : c->call;

		if (own == address)
			return c;
		if (own < address)
			lo = middle + 1;
		else
			hi = middle;
	}
	return NULL;
}

static bool is_too_late(const struct linking *l, const struct point *p)
{
	return l->result && p->late;
}

/* The function's calls, where somebody wants something of them. */
static int list_calls(struct linking *l, struct dinst_error *e)
{
	bool before = false, behind = false;

	for (size_t n = 0; n < l->work->count; n++) {
		before |= l->work->placements[n]->kind == POINT_CALL;
		behind |= l->work->placements[n]->kind == POINT_AFTER;
	}
	l->both = before && behind;
	if (!before && !behind)
		return 0;
	l->calls = calloc(l->plan->point_count + 1, sizeof(*l->calls));
	if (!l->calls)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	for (size_t n = 0; n < l->plan->point_count; n++) {
		const struct point *p = &l->plan->points[n];

		if (!p->part && p->kind == POINT_CALL)
			l->calls[l->call_count++] = (struct call_site){
				.call = p->address,
				.back = behind_call(&l->work->function, p->address),
				.before = p->window >= 0,
			};
	}
	if (l->call_count)
		qsort(l->calls, l->call_count, sizeof(*l->calls), by_call);
	for (size_t n = 0; n < l->plan->point_count; n++) {
		const struct point *p = &l->plan->points[n];
		struct call_site *c = NULL;

		if (!p->part && p->kind == POINT_AFTER)
			c = call_at(l, p->address, true);
		if (c)
			c->behind = p->window >= 0 && !is_too_late(l, p);
	}
	return 0;
}

/* True if the placement is about that point. */
static bool is_placed_at(const struct linking *l, const struct mdl_placement *pl,
			 const struct point *p)
{
	vaddr_t address = p->address;
	size_t lo = 0, hi = pl->address_count;

	if (pl->kind != p->kind)
		return false;
	if (!pl->addresses)
		return true;
	if (p->kind == POINT_AFTER) {
		const struct call_site *c = call_at(l, p->address, true);

		if (!c)
			return false;
		address = c->call;
	}
	while (lo < hi) {
		const size_t middle = (lo + hi) / 2;

		if (pl->addresses[middle] == address)
			return true;
		if (pl->addresses[middle] < address)
			lo = middle + 1;
		else
			hi = middle;
	}
	return false;
}

/* What some placement does before a call and another behind it is done at both or at neither. */
static bool has_half(const struct linking *l, const struct point *p)
{
	const struct call_site *c;

	if (!l->both || (p->kind != POINT_CALL && p->kind != POINT_AFTER))
		return false;
	c = call_at(l, p->address, p->kind == POINT_AFTER);
	return !c || !c->before || !c->behind;
}

/* --------------------------------------------------------------- pairing */

/* True if the compiler says that the function's entries and exits are to be paired. */
static int look_at_code(struct linking *l, bool *pairs, struct dinst_error *e)
{
	struct function_work *w = l->work;
	int status = 0;

	*pairs = w->start = w->per_thread = false;
	for (size_t n = 0; n < w->count && status >= 0; n++) {
		const struct mdl_placement *p = w->placements[n];

		for (int tail = 0; tail <= (p->kind == POINT_EXIT ? 1 : 0) && status >= 0; tail++) {
			struct snippet_code *code;

			status = request_code(l->request, l->instance, p, l->place, CODE_POINT,
					      tail, &code, e);
			if (status == DINST_REFUSED) {
				dinst_error_clear(e);
				status = 0;
				continue;
			}
			if (status < 0 || !code)
				continue;
			l->result |= p->kind == POINT_AFTER && request_uses_result(code);
			*pairs |= code->activation;
			w->start |= code->start;
			w->per_thread |= code->per_thread;
		}
	}
	return status;
}

/* The first point that a paired function cannot do without and that is refused. */
static const struct point *missing_point(const struct function_plan *plan)
{
	const struct point *p;

	for (size_t n = 0; n < plan->point_count; n++) {
		p = &plan->points[n];
		if (p->window < 0 && (p->kind == POINT_ENTRY || p->kind == POINT_EXIT))
			return p;
	}
	return NULL;
}

static int add_range(struct linking *l, const struct image_function *own, bool fresh,
		     struct dinst_error *e)
{
	const struct module *m = l->work->function.module;
	struct request *r = l->request;

	if (r->function_count == r->function_room) {
		size_t room = r->function_room ? r->function_room * 2 : 64;
		struct threads_function *grown = realloc(r->functions, room * sizeof(*grown));

		if (!grown)
			return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		r->functions = grown;
		r->function_room = room;
	}
	r->functions[r->function_count++] = (struct threads_function){
		.id = l->work->pair,
		.start = own->address + m->bias,
		.end = own->address + own->size + m->bias,
		/* Whoever is behind the first byte has passed the entry, or is moved behind it. */
		.body = own->flags & FUNCTION_COLD
				? own->address + m->bias
				: module_window_at(m, own->address + m->bias) + 1,
		.fresh = fresh,
	};
	return 0;
}

static int by_parent(const void *a, const void *b)
{
	const struct cold_fragment *x = a, *y = b;

	if (x->parent != y->parent)
		return x->parent < y->parent ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

/* The cold fragments of the image that was asked about last are kept: one function follows another. */
static int list_fragments(struct request *r, const struct image *image, struct dinst_error *e)
{
	const struct image_function *functions;
	const size_t count = image_functions(image, &functions);
	size_t cold = 0;

	if (r->fragments_of == image)
		return 0;
	for (size_t n = 0; n < count; n++)
		cold += (functions[n].flags & FUNCTION_COLD) != 0;
	free(r->fragments);
	r->fragments_of = NULL;
	r->fragment_count = 0;
	r->fragments = calloc(cold + 1, sizeof(*r->fragments));
	if (!r->fragments)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	for (size_t n = 0; n < count; n++)
		if (functions[n].flags & FUNCTION_COLD)
			r->fragments[r->fragment_count++] = (struct cold_fragment){
				.parent = functions[n].parent, .index = (uint32_t)n};
	qsort(r->fragments, r->fragment_count, sizeof(*r->fragments), by_parent);
	r->fragments_of = image;
	return 0;
}

static size_t first_fragment(const struct request *r, uint32_t parent)
{
	size_t lo = 0, hi = r->fragment_count;

	while (lo < hi) {
		const size_t middle = (lo + hi) / 2;

		if (r->fragments[middle].parent < parent)
			lo = middle + 1;
		else
			hi = middle;
	}
	return lo;
}

/* The function and its cold fragments, for the stop. */
static int note_function(struct linking *l, bool fresh, struct dinst_error *e)
{
	const struct function_ref *f = &l->work->function;
	const struct image_function *functions;
	struct request *r = l->request;
	size_t at;
	int status;

	if (!r->function_at)
		r->function_at = calloc(PAIR_ID_MASK + 1, sizeof(*r->function_at));
	if (!r->function_at)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	at = r->function_at[l->work->pair];
	if (at) {
		for (at--; at < r->function_count && r->functions[at].id == l->work->pair; at++)
			r->functions[at].fresh |= fresh;
		return 0;
	}
	image_functions(f->module->image, &functions);
	at = r->function_count;
	status = list_fragments(r, f->module->image, e);
	if (status >= 0)
		status = add_range(l, &functions[f->index], fresh, e);
	for (size_t n = first_fragment(r, f->index);
	     status >= 0 && n < r->fragment_count && r->fragments[n].parent == f->index; n++)
		status = add_range(l, &functions[r->fragments[n].index], fresh, e);
	/* All of it or nothing: what is there already is not noted again. */
	if (status < 0)
		r->function_count = at;
	else
		r->function_at[l->work->pair] = (uint32_t)at + 1;
	return status;
}

/* The function's number, kept with the instance; one for all that it places there. */
static int pair(struct linking *l, struct dinst_error *e)
{
	const struct function_ref *f = &l->work->function;
	const struct function_ref *last;
	struct instance *i = l->instance;
	bool fresh = false;
	int status;

	status = threads_prepare(l->request->session, l->place, &l->request->stop_ns, e);
	if (status == DINST_REFUSED && e)
		e->code = status = DINST_UNSUPPORTED;
	if (status < 0)
		return status;
	/* It is tried again: functions come one after the other. */
	last = i->pair_id_count ? &i->pair_functions[i->pair_id_count - 1] : NULL;
	if (last && last->module == f->module && last->index == f->index) {
		l->work->pair = i->pair_ids[i->pair_id_count - 1];
		return note_function(l, false, e);
	}
	if (status >= 0 && (!i->pair_functions || i->pair_id_count == i->pair_id_room)) {
		size_t room = i->pair_id_room ? i->pair_id_room * 2 : 8;
		uint32_t *ids = realloc(i->pair_ids, room * sizeof(*ids));
		struct function_ref *functions;

		if (ids)
			i->pair_ids = ids;
		functions = realloc(i->pair_functions, room * sizeof(*functions));
		if (functions)
			i->pair_functions = functions;
		if (!ids || !functions)
			return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		i->pair_id_room = room;
	}
	if (status >= 0)
		status = threads_pair(l->request->session, f, &l->work->pair, &fresh, e);
	if (status < 0)
		return status;
	i->pair_ids[i->pair_id_count] = l->work->pair;
	i->pair_functions[i->pair_id_count++] = *f;
	l->request->in_stop = true;
	status = note_function(l, fresh, e);
	if (status < 0) {
		/* So that it is as fresh when it is tried again. */
		threads_unpair(l->request->session, i->pair_ids[--i->pair_id_count]);
		l->work->pair = 0;
	}
	return status;
}

/* --------------------------------------------------- late and undone code */

static int add_late(struct linking *l, struct code_rank rank, taddr_t call, bool behind,
		    struct snippet_code *code, struct dinst_error *e)
{
	struct request *r = l->request;

	if (r->late_count == r->late_room) {
		size_t room = r->late_room ? r->late_room * 2 : 64;
		struct threads_late *late = realloc(r->late, room * sizeof(*late));
		struct snippet_code **codes;

		if (late)
			r->late = late;
		codes = realloc(r->late_codes, room * sizeof(struct snippet_code *));
		if (codes)
			r->late_codes = codes;
		if (!late || !codes)
			return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		r->late_room = room;
	}
	r->late[r->late_count] = (struct threads_late){.id = l->work->pair,
						       .call = call,
						       .behind = behind,
						       .rank = rank,
						       .number = r->late_count,
						       .program = &code->program};
	r->late_codes[r->late_count++] = snippet_code_ref(code);
	return 0;
}

/* What has to be done for activations that are there already. */
static int note_late(struct linking *l, const struct mdl_placement *pl, const struct point *p,
		     struct dinst_error *e)
{
	struct snippet_code *code;
	taddr_t call = 0;
	int status;

	if (p->kind != POINT_ENTRY && p->kind != POINT_CALL)
		return 0;
	if (p->kind == POINT_CALL)
		call = behind_call(&pl->function, p->address) + pl->function.module->bias;
	status =
		request_code(l->request, l->instance, pl, l->place, CODE_CATCH_UP, false, &code, e);
	if (status == DINST_REFUSED) {
		dinst_error_clear(e);
		return 0;
	}
	return status < 0 || !code ? status
				   : add_late(l, pl->rank, call, l->both && !pl->one_way, code, e);
}

static int note_undo(struct linking *l, const struct mdl_placement *pl, struct dinst_error *e)
{
	struct instance *i = l->instance;
	struct snippet_code *code;
	struct undo_code *undos;
	int status = request_code(l->request, i, pl, l->place, CODE_UNDO, false, &code, e);

	if (status == DINST_REFUSED) {
		dinst_error_clear(e);
		return 0;
	}
	if (status < 0 || !code)
		return status;
	undos = realloc(i->undos, (i->undo_count + 1) * sizeof(*undos));
	if (!undos)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	i->undos = undos;
	undos[i->undo_count++] = (struct undo_code){.pair = l->work->pair,
						    .rank = pl->rank,
						    .place = l->place,
						    .code = snippet_code_ref(code)};
	return 0;
}

void request_forget_late(struct request *r, struct instance *i, size_t late, size_t undos)
{
	while (r->late_count > late)
		snippet_code_unref(r->late_codes[--r->late_count]);
	while (i->undo_count > undos)
		snippet_code_unref(i->undos[--i->undo_count].code);
}

/* ----------------------------------------------------------------- links */

/* One point with all its parts gets a snippet; what it is depends on each part's place. */
static int link_point(struct linking *l, const struct mdl_placement *pl, const struct point *p,
		      struct dinst_error *e)
{
	const struct function_ref *f = &l->work->function;
	const size_t parts = request_parts(l->plan, (size_t)(p - l->plan->points));
	int status = 0;

	for (size_t k = 0; k < parts && status >= 0; k++) {
		struct snippet snippet = {.kind = SNIPPET_PROGRAM, .rank.role = MDL_MEASURES};
		struct snippet_code *code = NULL;
		struct site *site = NULL;

		status = request_site(l->request, f->module, l->place, l->plan, &p[k], &site, e);
		if (status >= 0 && l->work->pair)
			status = threads_prepare(l->request->session, site->place,
						 &l->request->stop_ns, e);
		if (status >= 0 && pl)
			status =
				request_code(l->request, l->instance, pl, site->place, CODE_POINT,
					     p->kind == POINT_EXIT && is_tail_exit(f, p), &code, e);
		if (status < 0 || (pl && !code)) {
			if (site)
				request_let_go(l->request->session, site);
			continue;
		}
		snippet.code = code;
		snippet.pair = !code || code->activation ? l->work->pair : 0;
		snippet.start = l->work->start && p->kind == POINT_ENTRY;
		if (pl)
			snippet.rank = pl->rank;
		status = request_link(l->request, l->instance, site, &p[k], &snippet, e);
		if (code && code->cost_ps > l->instance->cost_ps)
			l->instance->cost_ps = code->cost_ps;
		if (code && code->switch_ps > l->instance->switch_ps)
			l->instance->switch_ps = code->switch_ps;
	}
	return status;
}

/* What the compiler has nothing to take from is left out there, and told to those who ask. */
static int leave_out(struct linking *l, const struct link *mark, struct dinst_error *e)
{
	char why[200];

	snprintf(why, sizeof(why), "%.190s", e->text);
	dinst_error_clear(e);
	/* No code was written for them yet, and what else has changed waits for the end (write_sites()). */
	request_unlink_only(l->request->session, l->instance, mark);
	return request_leave_out(l->instance, &l->work->function, why, e);
}

static int link_placement(struct linking *l, const struct mdl_placement *pl, struct dinst_error *e)
{
	struct instance *i = l->instance;
	int status = 0;

	for (size_t n = 0; n < l->plan->point_count && status >= 0; n++) {
		const struct point *p = &l->plan->points[n];
		const struct link *mark = i->links;

		if (p->part || !is_placed_at(l, pl, p))
			continue;
		if (p->window < 0 || (!pl->one_way && has_half(l, p)) || is_too_late(l, p)) {
			status = request_refuse_point(i, &l->work->function, p, is_too_late(l, p),
						      e);
			continue;
		}
		status = link_point(l, pl, p, e);
		if (status == DINST_REFUSED) {
			status = leave_out(l, mark, e);
			continue;
		}
		if (status >= 0 && l->work->pair)
			status = note_late(l, pl, p, e);
	}
	/* Also where there is no exit at all: what never returns can be left, too. */
	if (status >= 0 && l->work->pair && pl->kind == POINT_EXIT)
		status = note_undo(l, pl, e);
	return status;
}

static int link_pairing(struct linking *l, struct dinst_error *e)
{
	int status = 0;

	for (size_t n = 0; n < l->plan->point_count && status >= 0; n++) {
		const struct point *p = &l->plan->points[n];

		if (!p->part && (p->kind == POINT_ENTRY || p->kind == POINT_EXIT))
			status = link_point(l, NULL, p, e);
	}
	return status;
}

int request_link_placements(struct request *r, struct instance *i, struct function_work *w,
			    const struct function_plan *plan, struct place *place,
			    struct dinst_error *e)
{
	struct linking l = {.request = r, .instance = i, .work = w, .plan = plan, .place = place};
	bool pairs = false;
	int status;

	w->pair = 0;
	status = look_at_code(&l, &pairs, e);
	if (status >= 0 && pairs) {
		const struct point *missing = missing_point(plan);

		if (missing)
			return request_refuse(i, &w->function, missing->refusal,
					      missing->kind == POINT_EXIT
						      ? "one of its exits cannot be instrumented"
						      : NULL,
					      e);
		status = pair(&l, e);
		if (status >= 0)
			status = link_pairing(&l, e);
	}
	if (status >= 0)
		status = list_calls(&l, e);
	for (size_t n = 0; n < w->count && status >= 0; n++)
		status = link_placement(&l, w->placements[n], e);
	free(l.calls);
	i->per_thread |= w->per_thread;
	return status;
}
