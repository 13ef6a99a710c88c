/* SPDX-License-Identifier: MIT */
/*
 * threads_ids.c - the numbers of functions.
 *
 * A number that was dropped is retired: some record may still have it. It is
 * used again when no code can enter it any more and it was taken out of all
 * records, which takes a stop and happens when there is no other.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/body.h"
#include "mutator/threads_private.h"

void threads_release(struct threads *t)
{
	for (uint32_t id = 1; t && id <= PAIR_ID_MASK; id++) {
		struct paired *p = &t->paired[id];

		if (t->ids[id] == ID_FREE)
			continue;
		while (p->code_count)
			snippet_code_unref(p->codes[--p->code_count]);
	}
}

void threads_free_ids(struct threads *t)
{
	if (t->paired && t->ids)
		for (uint32_t id = 1; id <= PAIR_ID_MASK; id++)
			if (t->ids[id] != ID_FREE)
				free(t->paired[id].codes);
	free(t->paired);
	free(t->held_undos);
	free(t->routines);
	free(t->ids);
}

/* --------------------------------------------------------------- sweeping */

struct sweep {
	struct session *session;
	size_t left; /* threads that could not be brought home */
};

static int tidy_work(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct sweep *sweep = arg;
	struct session *s = sweep->session;
	struct dinst_error why = {0};
	size_t left = 0;

	(void)e;
	threads_tidy(s, stop);
	if (s->threads->strayed && threads_bring_home_in(s, stop, &left, &why) < 0)
		left = 1;
	dinst_error_clear(&why);
	sweep->left += left;
	return 0;
}

int threads_sweep(struct session *s, bool ids, struct dinst_error *e)
{
	struct threads *t = s->threads;
	struct sweep sweep = {.session = s};
	struct stop_report report = {0};
	int status;

	t->purging = ids;
	status = family_stop(s, tidy_work, &sweep, &report, e);
	t->strayed &= status < 0 || sweep.left;
	family_release(s);
	session_note_stop(s, &report, NULL);
	t->purging = false;
	return status;
}

static bool has_retired(const struct threads *t, const struct body *body)
{
	for (unsigned i = 0; body && i < body->count; i++) {
		const struct snippet *x = &body->pieces[i].snippet;
		const bool raw = x->kind == SNIPPET_ENTER || x->kind == SNIPPET_LEAVE;

		if (t->ids[(raw ? x->argument : x->pair) & PAIR_ID_MASK] == ID_RETIRED)
			return true;
	}
	return false;
}

/*
 * True if code that still runs has one of them: where the heap was full when it was to be
 * written anew without.
 */
static bool runs_retired(const struct session *s)
{
	for (const struct site *site = site_next(s, NULL); site; site = site_next(s, site))
		if (has_retired(s->threads, site->body))
			return true;
	return false;
}

/* No code can enter them any more when the queue is empty, and all code is what it should be. */
static int reuse_retired(struct session *s, struct dinst_error *e)
{
	struct threads *t = s->threads;
	struct flush_result flushed;
	int status = removal_flush(s, &flushed, e);

	if (status >= 0 && (s->spent || s->queue_length || runs_retired(s)))
		status = dinst_fail(e, DINST_BUSY, "threads are still in code that was removed");
	if (status >= 0)
		status = threads_sweep(s, true, e);
	for (uint32_t id = 1; status >= 0 && id <= PAIR_ID_MASK; id++)
		if (t->ids[id] == ID_RETIRED)
			t->ids[id] = ID_FREE;
	if (status >= 0)
		t->retired = 0;
	return status;
}

/* ---------------------------------------------------------------- numbers */

/* `kind`: 0, or PAIR_RAW. */
static uint32_t find_free(struct threads *t, uint32_t kind)
{
	uint32_t *next_id = kind ? &t->next_raw : &t->next_id;

	for (uint32_t n = 0; n < PAIR_RAW - 1; n++) {
		const uint32_t id = kind | *next_id;

		*next_id = *next_id == PAIR_RAW - 1 ? 1 : *next_id + 1;
		if (t->ids[id] == ID_FREE)
			return id;
	}
	return 0;
}

static int take(struct session *s, uint32_t kind, uint32_t *id, struct dinst_error *e)
{
	struct threads *t = s->threads;
	int status = 0;

	*id = find_free(t, kind);
	if (!*id && t->retired) {
		status = reuse_retired(s, e);
		*id = status < 0 ? 0 : find_free(t, kind);
	}
	if (status < 0)
		return status;
	if (!*id)
		return dinst_fail(e, DINST_NO_MEMORY,
				  "no more than %u functions can be paired at a time",
				  PAIR_RAW - 1);
	t->ids[*id] = ID_TAKEN;
	t->paired[*id] = (struct paired){.references = 1};
	return 0;
}

static void retire(struct threads *t, uint32_t id)
{
	t->ids[id] = ID_RETIRED;
	t->retired++;
}

/* ---------------------------------------------------- one for each function */

static uint32_t *hash_head(struct threads *t, const struct module *m, uint32_t index)
{
	const uint64_t key = ((uint64_t)(uintptr_t)m >> 4) * 31 + index;

	return &t->hash[key * 0x9e3779b97f4a7c15ull >> 52];
}

_Static_assert(PAIRED_HASH == 1 << 12, "twelve bits are taken");

uint32_t threads_paired(const struct session *s, const struct function_ref *f)
{
	struct threads *t = s->threads;
	uint32_t id = t && t->paired ? *hash_head(t, f->module, f->index) : 0;

	while (id && (t->paired[id].module != f->module || t->paired[id].index != f->index))
		id = t->paired[id].next;
	return id;
}

int threads_pair(struct session *s, const struct function_ref *f, uint32_t *id, bool *fresh,
		 struct dinst_error *e)
{
	struct threads *t = s->threads;
	uint32_t *head = hash_head(t, f->module, f->index);
	int status;

	*fresh = false;
	for (*id = *head; *id; *id = t->paired[*id].next)
		if (t->paired[*id].module == f->module && t->paired[*id].index == f->index) {
			t->paired[*id].references++;
			return 0;
		}
	status = take(s, 0, id, e);
	if (status < 0)
		return status;
	*fresh = true;
	t->paired[*id].module = f->module;
	t->paired[*id].index = f->index;
	t->paired[*id].next = *head;
	*head = *id;
	return 0;
}

void threads_unpair(struct session *s, uint32_t id)
{
	struct threads *t = s->threads;
	struct paired *p = &t->paired[id];
	uint32_t *at = hash_head(t, p->module, p->index);

	if (--p->references)
		return;
	threads_drop_undo(s, id);
	while (*at && *at != id)
		at = &t->paired[*at].next;
	if (*at)
		*at = p->next;
	p->module = NULL;
	retire(t, id);
}

/* ------------------------------------------------------------ the older way */

int threads_take_id(struct session *s, struct instance *i, uint32_t *id, struct dinst_error *e)
{
	uint32_t *grown;
	int status = 0;

	if (i->pair_id_count == i->pair_id_room) {
		size_t room = i->pair_id_room ? i->pair_id_room * 2 : 8;

		grown = realloc(i->pair_ids, room * sizeof(*grown));
		if (!grown)
			return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		i->pair_ids = grown;
		i->pair_id_room = room;
	}
	status = take(s, PAIR_RAW, id, e);
	if (status >= 0)
		i->pair_ids[i->pair_id_count++] = *id;
	return status;
}

void threads_drop_ids(struct session *s, struct instance *i)
{
	for (size_t n = 0; n < i->pair_id_count; n++)
		retire(s->threads, i->pair_ids[n]);
	i->pair_id_count = 0;
}
