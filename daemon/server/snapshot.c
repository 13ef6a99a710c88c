/* SPDX-License-Identifier: MIT */
/*
 * snapshot.c - asking all mutators that are idle, not too often.
 *
 * Owns the last values of each session. Never waits for a mutator that is at work.
 */
#include "daemon/server/snapshot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/server/heat.h"
#include "daemon/server/sampler.h"

enum { MS = 1000 * 1000, SHARE = 50 /* of the time at most: 1 part */ };

struct snapshot_waiter {
	struct snapshot_waiter *next;
	void (*ready)(void *arg);
	void *arg;
};

/* ------------------------------------------------------------------ waiters */

static void release_waiters(struct server *s)
{
	struct snapshot_waits *w = &s->snapshots;
	struct snapshot_waiter *list = w->first, *next;

	w->first = NULL;
	if (w->timer_made)
		uv_timer_stop(&w->timer);
	for (; list; list = next) {
		next = list->next;
		list->ready(list->arg);
		free(list);
	}
}

static void waited(uv_timer_t *timer)
{
	release_waiters(timer->data);
}

static void arrived(struct server *s)
{
	if (--s->snapshots.out == 0)
		release_waiters(s);
}

/* ------------------------------------------------------------------- values */

static uint64_t real_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/*
 * Since when each instance is there: not before the snapshot in which it was not, nor before the
 * death of the mutator that had others, to which those who take exports would add it otherwise. And
 * what its code was predicted to take since the snapshot before.
 */
static void look_at_rows(struct snapshot *sn, json_t *rows, uint64_t now_ns, uint64_t opened_ns)
{
	json_t *starts = json_object(), *before = json_object(), *row;
	const uint64_t real = real_now();
	const uint64_t span = sn->taken_ns ? now_ns - sn->taken_ns : 0;
	const uint64_t before_ns = sn->taken_ns	 ? sn->taken_ns
				   : sn->lost_ns ? sn->lost_ns
						 : opened_ns;
	const uint64_t unseen = now_ns - before_ns;
	double cost = 0;
	size_t index;

	sn->cost_known = false;
	json_array_foreach(rows, index, row)
	{
		const json_t *hits = json_object_get(row, "hits"), *old;
		json_t *start;
		char id[24];

		snprintf(id, sizeof(id), "%lld",
			 (long long)json_integer_value(json_object_get(row, "id")));
		start = json_object_get(sn->starts, id);
		json_object_set_new(starts, id,
				    start ? json_incref(start)
					  : json_integer((json_int_t)(real - unseen)));
		if (!hits)
			continue;
		sn->cost_known = true;
		old = json_object_get(sn->before, id);
		if (old && json_integer_value(hits) > json_integer_value(old))
			cost += (double)(json_integer_value(hits) - json_integer_value(old)) *
				json_number_value(json_object_get(row, "predicted_ns"));
		json_object_set_new(before, id, json_integer(json_integer_value(hits)));
	}
	sn->cost_ns = span ? cost * 1e9 / (double)span : 0;
	json_decref(sn->starts);
	json_decref(sn->before);
	sn->starts = starts;
	sn->before = before;
}

static void read_done(void *arg, const struct reply *reply)
{
	struct session *se = arg;
	struct server *s = se->server;
	struct snapshot *sn = se->snapshot;
	struct dinst_error e = {0, ""};
	const uint64_t now = uv_hrtime();
	json_t *answer = NULL, *rows;

	sn->waiting--;
	/* Of one that has died it says nothing about the next one. An answer may be too long, too. */
	if (reply->failure.code != DINST_DAEMON) {
		const uint64_t took = now - sn->asked_ns;

		sn->least_ns = took < sn->took_ns ? took : sn->took_ns;
		sn->took_ns = took;
	}
	sn->total_ns += now - sn->asked_ns;
	sn->too_long = reply->result.text && reply->result.length > SNAPSHOT_TEXT_MAX;
	if (reply->result.text && !sn->too_long)
		answer = rpc_load(reply->result.text, reply->result.length, &e);
	rows = json_object_get(answer, "rows");
	if (json_is_array(rows) && !se->closing) {
		look_at_rows(sn, rows, now, se->opened_ns);
		json_decref(sn->rows);
		sn->rows = json_incref(rows);
		sn->taken_ns = now;
		heat_take(se, rows);
	}
	json_decref(answer);
	arrived(s);
}

static void status_done(void *arg, const struct reply *reply)
{
	struct session *se = arg;
	struct server *s = se->server;

	se->snapshot->waiting--;
	if (!se->closing)
		session_status(se, reply);
	arrived(s);
}

/* ------------------------------------------------------------------- asking */

static bool is_due(const struct session *se)
{
	const struct snapshot *sn = se->snapshot;
	uint64_t pause = SNAPSHOT_YOUNG_MS * (uint64_t)MS;

	if (!se->mutator || mutator_busy(se->mutator) ||
	    (se->state != SESSION_LIVE && se->state != SESSION_EXITED))
		return false;
	if (sn && sn->waiting)
		return false;
	if (sn && pause < sn->least_ns * SHARE)
		pause = sn->least_ns * SHARE;
	return !sn || !sn->asked_ns || uv_hrtime() - sn->asked_ns >= pause;
}

static void ask(struct session *se)
{
	struct snapshot *sn = se->snapshot;
	json_t *params;

	if (!sn)
		sn = se->snapshot = calloc(1, sizeof(*sn));
	params = json_pack("{s:[], s:b}", "ids", "verbose", true);
	if (sn && params) {
		sn->asked_ns = uv_hrtime();
		sn->waiting += 2;
		se->server->snapshots.out += 2;
		mutator_call(se->mutator, "status", NULL, NULL, status_done, se);
		/* one that is gone answers at once */
		mutator_call(se->mutator, "read", params, NULL, read_done, se);
	}
	json_decref(params);
}

void snapshot_wait(struct server *s, void (*ready)(void *arg), void *arg)
{
	struct snapshot_waits *w = &s->snapshots;
	struct snapshot_waiter *waiter;

	/* so that nobody is called while there is more to ask */
	w->out++;
	for (struct session *se = s->sessions; se && !s->stopping; se = se->next)
		if (is_due(se))
			ask(se);
	waiter = w->out > 1 && !s->ending ? calloc(1, sizeof(*waiter)) : NULL;
	w->out--;
	if (!waiter) {
		ready(arg);
		return;
	}
	waiter->ready = ready;
	waiter->arg = arg;
	waiter->next = w->first;
	if (!w->timer_made) {
		uv_timer_init(&s->loop, &w->timer);
		w->timer.data = s;
		w->timer_made = true;
	}
	if (!w->first)
		uv_timer_start(&w->timer, waited, SNAPSHOT_WAIT_MS, 0);
	w->first = waiter;
}

/* --------------------------------------------------------------- interface */

void snapshot_end(struct server *s)
{
	release_waiters(s);
	if (s->snapshots.timer_made && !uv_is_closing((uv_handle_t *)&s->snapshots.timer))
		uv_close((uv_handle_t *)&s->snapshots.timer, NULL);
}

static void clear(struct snapshot *sn)
{
	json_decref(sn->rows);
	json_decref(sn->starts);
	json_decref(sn->before);
	sn->rows = sn->starts = sn->before = NULL;
	sn->taken_ns = 0;
	sn->cost_ns = 0;
	sn->cost_known = false;
}

void snapshot_lost(struct session *se)
{
	if (!se->snapshot)
		return;
	clear(se->snapshot);
	se->snapshot->took_ns = se->snapshot->least_ns = 0;
	se->snapshot->lost_ns = uv_hrtime();
}

void snapshot_close(struct session *se)
{
	if (!se->snapshot)
		return;
	clear(se->snapshot);
	free(se->snapshot);
	se->snapshot = NULL;
}
