/* SPDX-License-Identifier: MIT */
/*
 * request_commit.c - the end of a request: what was written begins to run, or
 * is taken back as if nothing had been asked.
 *
 * Without per-thread state switches are turned under running threads, and a
 * stop is needed for new windows only. With it all of it comes in one stop, or
 * not at all: a window that must wait makes the request wait.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutator/request.h"

/* Where many threads work in what is measured, one of them is always in a routine of the pairing. */
enum { PATIENT_TRIES = 8 };
enum { TRIES = 40, PAUSE_MIN_US = 500, PAUSE_MAX_US = 50 * 1000, RUN_STOPS = 2, HOME_TRIES = 2 };

static void unlist(struct request *r)
{
	for (size_t k = 0; k < r->site_count; k++)
		r->sites[k]->listed = false;
	r->site_count = 0;
}

/* ---------------------------------------------------------- simple ones */

static int apply(struct request *r, struct dinst_error *e)
{
	struct session *s = r->session;
	struct batch_result result;
	bool *foreign;
	int status;

	site_turn_held(s);
	if (!r->site_count)
		return place_send(s, &r->stop_ns, e);
	foreign = calloc(r->site_count, sizeof(*foreign));
	if (!foreign)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	session_progress(s, "patching", 0, r->site_count);
	status = batch_apply(s, r->sites, r->site_count, foreign, &result, e);
	if (result.stop_ns > r->stop_ns)
		r->stop_ns = result.stop_ns;
	if (status < 0 || result.pending) {
		s->maybe_pending = true;
		s->retry_pause_ns = 0;
	}
	for (size_t k = 0; k < r->site_count; k++)
		r->sites[k]->listed = false;
	if (status >= 0)
		request_drop_foreign(r, s, r->sites, foreign, r->site_count);
	free(foreign);
	return status;
}

/* ------------------------------------------------------ per-thread state */

/* Calls visit() for all instances of the request. */
static bool visit_own(const struct request *r, bool (*visit)(void *arg, const struct instance *i),
		      void *arg)
{
	bool more = true;

	for (size_t k = 0; more && k < r->count; k++)
		more = visit(arg, r->instances[k]);
	for (const struct instance *i = r->hidden; more && i; i = i->next)
		more = visit(arg, i);
	return more;
}

/* Calls visit() for all instances that there are, those of the request included. */
static bool visit_all(const struct request *r, const struct session *s,
		      bool (*visit)(void *arg, const struct instance *i), void *arg)
{
	const struct instance *lists[] = {s->hidden, s->instances};
	bool more = !r || visit_own(r, visit, arg);

	for (size_t k = 0; k < sizeof(lists) / sizeof(lists[0]); k++)
		for (const struct instance *i = lists[k]; more && i; i = i->next)
			more = visit(arg, i);
	return more;
}

enum { LOOK_SIZE = 4096 };

struct looking {
	struct stop *stop;
	uint8_t *absent; /* by function number; enum seen where halves are looked for */
	const struct site *half;
	taddr_t from; /* what was read last: links that follow each other are mostly near */
	size_t size;
	uint8_t bytes[LOOK_SIZE];
};

/* A stop lasts as long as this: most of what is looked at costs no system call. */
static bool is_at(struct looking *l, taddr_t address, const uint8_t *bytes, size_t length)
{
	uint8_t now[ARCH_PATCH_MAX];

	if (address < l->from || address - l->from >= LOOK_SIZE || !l->size) {
		l->from = address & ~(taddr_t)(LOOK_SIZE - 1);
		l->size = target_read_some(stop_target(l->stop), l->from, l->bytes, LOOK_SIZE);
	}
	if (address - l->from + length <= l->size)
		return !memcmp(l->bytes + (address - l->from), bytes, length);
	return target_read_some(stop_target(l->stop), address, now, length) == length &&
	       !memcmp(now, bytes, length);
}

/* The same short jump may be of a build that was there before: what it leads to says whose it is. */
static bool leads_to_us(struct looking *l, const struct site *site)
{
	bool leads = site->patch_count != 0;

	for (unsigned k = 0; k < site->patch_count && leads; k++) {
		const struct patch *p = &site->patches[k];

		leads = is_at(l, p->address, p->after, p->length) ||
			(!k && site->move &&
			 is_at(l, p->address, site->move->patch.before, p->length));
	}
	return leads;
}

static bool look_at_links(void *arg, const struct instance *i)
{
	struct looking *l = arg;

	for (const struct link *link = i->links; link; link = link->next_instance)
		if (link->snippet.pair && !l->absent[link->snippet.pair] &&
		    !leads_to_us(l, link->site))
			l->absent[link->snippet.pair] = 1;
	return true;
}

/* Which functions have a window in that process that does not lead to us. */
static void find_absent(void *arg, struct stop *stop, uint8_t *absent)
{
	const struct request *r = arg;
	struct looking l = {.stop = stop, .absent = absent};

	visit_all(r, r->session, look_at_links, &l);
}

/* SEEN_UNDOES: the instance that is looked at undoes something of the function. */
enum seen { SEEN_OURS = 1, SEEN_OTHERS = 2, SEEN_HALF = SEEN_OURS | SEEN_OTHERS, SEEN_UNDOES = 4 };

static bool look_for_halves(void *arg, const struct instance *i)
{
	struct looking *l = arg;

	for (size_t k = 0; k < i->undo_count; k++)
		l->absent[i->undos[k].pair] |= SEEN_UNDOES;
	for (const struct link *link = i->links; i->undo_count && link;
	     link = link->next_instance) {
		const struct site *site = link->site;
		const struct function_ref f = {.module = site->module, .index = site->function};
		/* What is at calls has no number. */
		const uint32_t pair =
			link->snippet.kind == SNIPPET_NONE ? 0 : threads_paired(i->session, &f);

		if (!pair || !(l->absent[pair] & SEEN_UNDOES))
			continue;
		l->absent[pair] |= leads_to_us(l, site) ? SEEN_OURS : SEEN_OTHERS;
		if ((l->absent[pair] & SEEN_HALF) == SEEN_HALF) {
			l->half = site;
			return false;
		}
	}
	for (size_t k = 0; k < i->undo_count; k++)
		l->absent[i->undos[k].pair] &= (uint8_t)~SEEN_UNDOES;
	return true;
}

/*
 * A process that runs through a part of a function's windows only would begin what nothing there ends,
 * or not see what interrupts it. The first such function's site, or NULL.
 */
static const struct site *find_half(void *arg, struct stop *stop, uint8_t *seen)
{
	const struct request *r = arg;
	struct looking l = {.stop = stop, .absent = seen};

	if (visit_own(r, look_for_halves, &l) && r->begun)
		look_for_halves(&l, r->begun);
	return l.half;
}

/* ---------------------------------------------------------------- undoing */

struct undoing {
	/* By function, and of each as at its exits: by role, and those that came first. */
	struct numbered_undo {
		const struct undo_code *undo;
		size_t number;
	} * all;
	size_t count, room;
	bool failed;
};

static bool add_undos(void *arg, const struct instance *i)
{
	struct undoing *u = arg;

	if (u->count + i->undo_count > u->room) {
		size_t room = (u->count + i->undo_count) * 2;
		struct numbered_undo *grown = realloc(u->all, room * sizeof(*grown));

		u->failed = !grown;
		if (!grown)
			return false;
		u->all = grown;
		u->room = room;
	}
	for (size_t k = 0; k < i->undo_count; k++, u->count++)
		u->all[u->count] = (struct numbered_undo){.undo = &i->undos[k], .number = u->count};
	return true;
}

/* As site_link() puts them in a row at a point; the numbers say which of the two came first. */
static int by_rank(struct code_rank x, size_t x_number, struct code_rank y, size_t y_number)
{
	if (x.role != y.role)
		return x.role < y.role ? -1 : 1;
	if (x.prepend != y.prepend)
		return x.prepend ? -1 : 1;
	if (x_number == y_number)
		return 0;
	return (x_number < y_number) != x.prepend ? -1 : 1;
}

static int by_pair(const void *a, const void *b)
{
	const struct numbered_undo *x = a, *y = b;

	if (x->undo->pair != y->undo->pair)
		return x->undo->pair < y->undo->pair ? -1 : 1;
	return by_rank(x->undo->rank, x->number, y->undo->rank, y->number);
}

/* The first of function `id`. */
static size_t first_of(const struct undoing *u, uint32_t id)
{
	size_t lo = 0, hi = u->count;

	while (lo < hi) {
		const size_t middle = (lo + hi) / 2;

		if (u->all[middle].undo->pair < id)
			lo = middle + 1;
		else
			hi = middle;
	}
	return lo;
}

static int set_undo(struct session *s, const struct undoing *u, uint32_t id,
		    struct snippet_code **codes, struct dinst_error *e)
{
	const size_t first = first_of(u, id);
	struct place *place = s->places;
	size_t count = 0;

	for (size_t n = first; n < u->count && u->all[n].undo->pair == id; n++) {
		if (count && !place_is_alike(u->all[n].undo->place, place))
			return dinst_fail(
				e, DINST_NO_MEMORY,
				"the arena with what measures one of the functions has no room for more of it: remove something first");
		codes[count++] = u->all[n].undo->code;
		place = u->all[n].undo->place;
	}
	return threads_set_undo(s, place, id, codes, count, e);
}

int request_set_undos(const struct request *r, struct session *s, const uint32_t *ids, size_t count,
		      struct dinst_error *e)
{
	struct undoing u = {0};
	struct snippet_code **codes = NULL;
	int status = 0;

	if (!count)
		return 0;
	visit_all(r, s, add_undos, &u);
	if (!u.failed)
		codes = calloc(u.count + 1, sizeof(struct snippet_code *));
	if (!codes)
		status = dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	if (u.count)
		qsort(u.all, u.count, sizeof(*u.all), by_pair);
	for (size_t n = 0; n < count && status >= 0; n++)
		status = set_undo(s, &u, ids[n], codes, e);
	free(codes);
	free(u.all);
	return status;
}

/* ------------------------------------------------------------ in one stop */

static int by_function(const void *a, const void *b)
{
	const struct threads_late *x = a, *y = b;

	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	/* what the call does comes behind what the entry does */
	if (x->call != y->call)
		return x->call < y->call ? -1 : 1;
	return by_rank(x->rank, x->number, y->rank, y->number);
}

static int set_all_undos(struct request *r, struct dinst_error *e)
{
	uint32_t *ids = calloc(r->function_count + 1, sizeof(*ids));
	int status;

	if (!ids)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	for (size_t n = 0; n < r->function_count; n++)
		ids[n] = r->functions[n].id;
	status = request_set_undos(r, r->session, ids, r->function_count, e);
	free(ids);
	return status;
}

/*
 * Before the next try: where all processors are taken, threads that stood for long wait as long for one
 * afterwards, and whoever is stopped before he has run is still where he was.
 */
static void let_run(unsigned *pause_us, uint64_t stop_ns)
{
	const uint64_t run_us = stop_ns / 1000 * RUN_STOPS;

	usleep(run_us > *pause_us ? (useconds_t)run_us : *pause_us);
	*pause_us = *pause_us * 2 > PAUSE_MAX_US ? PAUSE_MAX_US : *pause_us * 2;
}

static int try_whole(struct request *r, struct dinst_error *e)
{
	struct session *s = r->session;
	struct batch_whole whole = {
		.functions = r->functions,
		.function_count = r->function_count,
		.late = r->late,
		.late_count = r->late_count,
		.find_absent = find_absent,
		.find_half = find_half,
		.arg = r,
	};
	unsigned pause = PAUSE_MIN_US;
	int status = 0;

	for (unsigned try = 0; try < TRIES; try++) {
		struct batch_result result;

		dinst_error_clear(e);
		status = session_wanted(s, e);
		if (status < 0)
			break;
		whole.sites = r->sites;
		whole.count = r->site_count;
		whole.foreign = calloc(r->site_count + 1, sizeof(bool));
		if (!whole.foreign)
			return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		whole.patient = try < PATIENT_TRIES;
		session_progress(s, "patching", 0, r->site_count);
		status = batch_apply_whole(s, &whole, &result, e);
		if (result.stop_ns > r->stop_ns)
			r->stop_ns = result.stop_ns;
		free(whole.foreign);
		if (status != DINST_BUSY)
			break;
		let_run(&pause, result.stop_ns);
	}
	for (size_t n = 0; n < r->count && status >= 0; n++)
		r->instances[n]->unwalked = whole.unwalked;
	if (r->begun && status >= 0)
		r->begun->unwalked = whole.unwalked;
	unlist(r);
	return status;
}

/* Whoever was in code of ours is out of it soon, mostly; others are looked after by threads_poll(). */
static void settle_threads(struct request *r)
{
	unsigned pause = PAUSE_MIN_US;

	for (unsigned try = 0; try < HOME_TRIES && threads_have_strayed(r->session); try++) {
		let_run(&pause, r->stop_ns);
		threads_bring_home(r->session);
	}
}

static int apply_whole(struct request *r, struct dinst_error *e)
{
	const bool strayed = threads_have_strayed(r->session);
	int status;

	if (r->late_count)
		qsort(r->late, r->late_count, sizeof(*r->late), by_function);
	threads_hold_undos(r->session);
	status = set_all_undos(r, e);
	if (status >= 0)
		status = threads_list_routines(r->session, e);
	if (status >= 0)
		status = try_whole(r, e);
	/* Those of an earlier request have had their chance. */
	if (status >= 0 && !strayed)
		settle_threads(r);
	/* what failed is taken out by the caller: until then its values are nobody's */
	threads_let_undos_go(r->session);
	return status;
}

int request_commit(struct request *r, struct dinst_error *e)
{
	int status = session_wanted(r->session, e);

	if (status >= 0)
		status = request_check_family(r, e);
	r->session->holding = false;
	if (status < 0)
		return status;
	return r->in_stop ? apply_whole(r, e) : apply(r, e);
}

/* ------------------------------------------------------------------ ends */

void request_adopt(struct request *r)
{
	instances_adopt(r->session, &r->hidden);
}

/*
 * All links go before anything is written: what only a part of the request
 * would do must never run.
 */
static void unlink_request(struct request *r, struct instance *also)
{
	for (size_t n = 0; n < r->count; n++)
		removal_unlink_only(r->session, r->instances[n]);
	for (struct instance *i = r->hidden; i; i = i->next)
		removal_unlink_only(r->session, i);
	if (also)
		removal_unlink_only(r->session, also);
	site_update_all(r->session);
}

void request_undo(struct request *r, struct instance *also)
{
	struct dinst_error ignored = {0};
	struct flush_result flush;
	struct session *s = r->session;

	s->holding = false;
	unlist(r);
	unlink_request(r, also);
	/* Hidden ones first join the session's: who uses them lets go of them there. */
	request_adopt(r);
	while (r->count)
		removal_switch_off(s, r->instances[--r->count], &ignored);
	if (also)
		instance_strip(s, also);
	removal_settle(s, &flush);
}

void request_release(struct request *r)
{
	r->session->holding = false;
	request_free_codes(r);
	while (r->late_count)
		snippet_code_unref(r->late_codes[--r->late_count]);
	free(r->late_codes);
	free(r->late);
	free(r->functions);
	free(r->function_at);
	free(r->fragments);
	free(r->sites);
}
