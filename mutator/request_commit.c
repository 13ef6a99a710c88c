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

enum { TRIES = 40, PAUSE_MIN_US = 500, PAUSE_MAX_US = 50 * 1000 };

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

/* Calls visit() for all instances that there are, those of the request included. */
static bool visit_all(const struct request *r, const struct session *s,
		      bool (*visit)(void *arg, const struct instance *i), void *arg)
{
	const struct instance *lists[] = {r ? r->hidden : NULL, s->hidden, s->instances};
	bool more = true;

	for (size_t k = 0; more && r && k < r->count; k++)
		more = visit(arg, r->instances[k]);
	for (size_t k = 0; k < sizeof(lists) / sizeof(lists[0]); k++)
		for (const struct instance *i = lists[k]; more && i; i = i->next)
			more = visit(arg, i);
	return more;
}

struct patched_in {
	struct stop *stop;
	uint32_t id;
};

static bool leads_to_us(struct stop *stop, const struct site *site)
{
	const struct patch *p = &site->patches[site->patch_count - 1];
	uint8_t now[ARCH_PATCH_MAX];

	return site->patch_count &&
	       target_read_some(stop_target(stop), p->address, now, p->length) == p->length &&
	       !memcmp(now, p->after, p->length);
}

static bool is_patched_for(void *arg, const struct instance *i)
{
	const struct patched_in *in = arg;

	for (const struct link *l = i->links; l; l = l->next_instance)
		if (l->snippet.pair == in->id && !leads_to_us(in->stop, l->site))
			return false;
	return true;
}

/* True if in that process every window that leads into the function's code does lead there. */
static bool is_patched(void *arg, struct stop *stop, uint32_t id)
{
	const struct request *r = arg;
	struct patched_in in = {.stop = stop, .id = id};

	if (target_pid(stop_target(stop)) == r->session->pid)
		return true;
	return visit_all(r, r->session, is_patched_for, &in);
}

struct undoing {
	uint32_t id;
	struct place *place;
	struct snippet_code **codes;
	size_t count, room;
	bool failed;
};

static bool add_undo(void *arg, const struct instance *i)
{
	struct undoing *u = arg;

	for (size_t k = 0; k < i->undo_count; k++) {
		if (i->undos[k].pair != u->id)
			continue;
		if (u->count == u->room) {
			size_t room = u->room + 8;
			struct snippet_code **grown =
				realloc(u->codes, room * sizeof(struct snippet_code *));

			u->failed = !grown;
			if (!grown)
				return false;
			u->codes = grown;
			u->room = room;
		}
		u->place = i->undos[k].place;
		u->codes[u->count++] = i->undos[k].code;
	}
	return true;
}

int request_set_undo(const struct request *r, struct session *s, uint32_t id, struct dinst_error *e)
{
	struct undoing u = {.id = id};
	int status;

	visit_all(r, s, add_undo, &u);
	if (u.failed)
		status = dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	else
		status =
			threads_set_undo(s, u.place ? u.place : s->places, id, u.codes, u.count, e);
	free(u.codes);
	return status;
}

static int apply_whole(struct request *r, struct dinst_error *e)
{
	struct session *s = r->session;
	struct batch_whole whole = {
		.functions = r->functions,
		.function_count = r->function_count,
		.late = r->late,
		.late_count = r->late_count,
		.is_patched = is_patched,
		.arg = r,
	};
	unsigned pause = PAUSE_MIN_US;
	int status = 0;

	for (size_t n = 0; n < r->function_count && status >= 0; n++)
		status = request_set_undo(r, s, r->functions[n].id, e);
	if (status < 0)
		return status;
	for (unsigned try = 0; try < TRIES; try++) {
		struct batch_result result;

		dinst_error_clear(e);
		whole.sites = r->sites;
		whole.count = r->site_count;
		whole.foreign = calloc(r->site_count + 1, sizeof(bool));
		if (!whole.foreign)
			return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		session_progress(s, "patching", 0, r->site_count);
		status = batch_apply_whole(s, &whole, &result, e);
		if (result.stop_ns > r->stop_ns)
			r->stop_ns = result.stop_ns;
		free(whole.foreign);
		if (status != DINST_BUSY)
			break;
		usleep(pause);
		pause = pause * 2 > PAUSE_MAX_US ? PAUSE_MAX_US : pause * 2;
	}
	for (size_t n = 0; n < r->count && status >= 0; n++)
		r->instances[n]->unwalked = whole.unwalked;
	unlist(r);
	return status;
}

int request_commit(struct request *r, struct dinst_error *e)
{
	r->session->holding = false;
	return r->in_stop ? apply_whole(r, e) : apply(r, e);
}

/* ------------------------------------------------------------------ ends */

void request_adopt(struct request *r)
{
	struct session *s = r->session;
	struct instance *last = r->hidden;

	while (last && last->next)
		last = last->next;
	if (last) {
		last->next = s->hidden;
		s->hidden = r->hidden;
		r->hidden = NULL;
	}
}

void request_undo(struct request *r)
{
	struct dinst_error ignored = {0};
	struct flush_result flush;
	struct session *s = r->session;

	s->holding = false;
	unlist(r);
	/* Hidden ones first join the session's: who uses them lets go of them there. */
	request_adopt(r);
	while (r->count)
		removal_switch_off(s, r->instances[--r->count], &ignored);
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
	free(r->sites);
}
