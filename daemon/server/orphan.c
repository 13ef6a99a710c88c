/* SPDX-License-Identifier: MIT */
/*
 * orphan.c - processes that have something of ours left, and no session that would take it out.
 *
 * Owns the mutators that do, one after the other where the process cannot be stopped yet, and the
 * pauses between them. Gives up after some minutes, and says what is to be done then. A process that
 * has ended may have left children with what was in it: they are found by who made that.
 */
#include "daemon/server/server.h"

#include <stdio.h>
#include <stdlib.h>

#include "daemon/common/process.h"

enum { PAUSE_FIRST_MS = 1000, PAUSE_MOST_MS = 60000, TRIES_MOST = 12, TEXT_SIZE = 120 };

struct orphan {
	struct server *server;
	struct orphan *next;
	pid_t pid;
	uint64_t start;	    /* of the process: another one may get its number */
	struct maker maker; /* of what it and its children have */
	unsigned tries;
	uint64_t pause_ms;
	struct mutator *mutator; /* at work, or NULL */
	uv_timer_t again;
	void (*tried)(void *arg); /* waits for the end of what it is at; NULL: nobody */
	void *tried_arg;
	bool ending;
};

static void freed(uv_handle_t *handle)
{
	free(handle->data);
}

/* Whoever waits for the end of a try waits no longer. */
static void tell_tried(struct orphan *o)
{
	void (*tried)(void *arg) = o->tried;

	o->tried = NULL;
	if (tried)
		tried(o->tried_arg);
}

static void end(struct orphan *o)
{
	struct orphan **at = &o->server->orphans;

	while (*at != o)
		at = &(*at)->next;
	*at = o->next;
	uv_close((uv_handle_t *)&o->again, freed);
	tell_tried(o);
}

static void what_is_left(const struct orphan *o, char *text, size_t size)
{
	if (process_ended(o->pid, o->start))
		snprintf(text, size,
			 "pid %d has ended: dinst repair of a child takes out what is left in it "
			 "and its like",
			 (int)o->pid);
	else
		snprintf(text, size, "pid %d: dinst repair %d takes out what is left in it",
			 (int)o->pid, (int)o->pid);
}

static void tell(const struct orphan *o)
{
	char text[TEXT_SIZE];

	what_is_left(o, text, sizeof(text));
	server_log("%s", text);
}

static void try_again(struct orphan *o);

static void on_again(uv_timer_t *timer)
{
	try_again(timer->data);
}

static void wait_or_give_up(struct orphan *o)
{
	if (++o->tries == TRIES_MOST) {
		tell(o);
		end(o);
		return;
	}
	uv_timer_start(&o->again, on_again, o->pause_ms, 0);
	o->pause_ms = 2 * o->pause_ms < PAUSE_MOST_MS ? 2 * o->pause_ms : PAUSE_MOST_MS;
	tell_tried(o);
}

static void died(void *owner, const char *why)
{
	(void)owner;
	(void)why;
}

static void notified(void *owner, const char *method, json_t *params)
{
	(void)owner;
	(void)method;
	(void)params;
}

static void done(void *arg, const struct reply *reply)
{
	struct orphan *o = arg;
	struct mutator *m = o->mutator;
	struct dinst_error e = {0, ""};
	json_t *answer = NULL;
	bool clean;

	o->mutator = NULL;
	if (reply->result.text)
		answer = rpc_load(reply->result.text, reply->result.length, &e);
	clean = json_is_object(answer) && !json_is_true(json_object_get(answer, "partial"));
	json_decref(answer);
	server_log("pid %d is %srepaired: %.*s", (int)o->pid, clean ? "" : "not yet ",
		   (int)(reply->result.text ? reply->result.length : reply->error.length),
		   reply->result.text  ? reply->result.text
		   : reply->error.text ? reply->error.text
				       : "");
	mutator_release(m, "done");
	if (clean && !o->ending)
		end(o);
	else if (!o->ending)
		wait_or_give_up(o);
}

static const struct mutator_events events = {died, notified};

static void try_again(struct orphan *o)
{
	const bool ended = process_ended(o->pid, o->start);
	struct dinst_error e = {0, ""};
	json_t *params;

	if (ended && !o->maker.pid) {
		end(o);
		return;
	}
	o->mutator = mutator_start(o->server, &events, o, &e);
	if (!o->mutator) {
		server_log("%s", e.text);
		wait_or_give_up(o);
		return;
	}
	params = ended ? json_pack("{s:i, s:I}", "maker", (int)o->maker.pid, "maker_start",
				   (json_int_t)o->maker.start)
		       : json_pack("{s:i}", "pid", (int)o->pid);
	mutator_call(o->mutator, "repair", params, NULL, done, o);
	json_decref(params);
}

/* NULL, and told in the log, without memory. */
static struct orphan *add(struct server *s, pid_t pid, uint64_t start, struct maker maker)
{
	struct orphan *o = calloc(1, sizeof(*o));

	if (!o) {
		server_log("no memory to repair pid %d: dinst repair %d does", (int)pid, (int)pid);
		return NULL;
	}
	*o = (struct orphan){.server = s,
			     .next = s->orphans,
			     .pid = pid,
			     .start = start,
			     .maker = maker,
			     .pause_ms = PAUSE_FIRST_MS};
	s->orphans = o;
	uv_timer_init(&s->loop, &o->again);
	o->again.data = o;
	return o;
}

void repair_orphan(struct server *s, pid_t pid, uint64_t start, struct maker maker)
{
	struct orphan *o;

	for (o = s->orphans; o; o = o->next)
		if (o->pid == pid && o->start == start && o->maker.pid == maker.pid)
			return;
	o = add(s, pid, start, maker);
	/* Not from here: who calls may be about to let go of what it needs itself. */
	if (o)
		uv_timer_start(&o->again, on_again, 0, 0);
}

void detach_orphan(struct session *se)
{
	struct mutator *m = se->mutator;
	struct orphan *o = add(se->server, se->pid, se->start, mutator_identity(m));

	if (!o)
		return;
	o->mutator = m;
	se->mutator = NULL;
	mutator_hand_over(m, &events, o, "another session takes its place");
	mutator_call(m, "detach", NULL, NULL, done, o);
}

unsigned orphans_wait(struct server *s, void (*tried)(void *arg), void *arg)
{
	unsigned count = 0;

	for (struct orphan *o = s->orphans; o; o = o->next)
		/* one that was never tried is about to be */
		if (o->mutator || !o->tries) {
			o->tried = tried;
			o->tried_arg = arg;
			count++;
		}
	return count;
}

void orphans_tell(const struct server *s, void (*told)(void *arg, const char *text), void *arg)
{
	char text[TEXT_SIZE];

	for (const struct orphan *o = s->orphans; o; o = o->next) {
		what_is_left(o, text, sizeof(text));
		told(arg, text);
	}
}

void orphans_end(struct server *s)
{
	/* who waits for one is told of all of them */
	for (struct orphan *o = s->orphans; o; o = o->next)
		tell_tried(o);
	while (s->orphans) {
		struct orphan *o = s->orphans;

		tell(o);
		o->ending = true;
		if (o->mutator)
			mutator_release(o->mutator, "the daemon ends");
		end(o);
	}
}
