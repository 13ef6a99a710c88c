/* SPDX-License-Identifier: MIT */
/*
 * server.c - signals, leaving.
 *
 * Owns the end of the daemon. Never ends without having detached, unless it is
 * killed or told to a second time.
 */
#include "daemon/server/http.h"
#include "daemon/server/otlp.h"
#include "daemon/server/server.h"
#include "daemon/server/snapshot.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { IDLE_LOOK_MS = 1000, SAME_SIGNAL_MS = 250, LAST_MS = 4000 };

void server_busy(struct server *s)
{
	s->busy_at = uv_now(&s->loop);
}

/* ----------------------------------------------------------------- the end */

/* A client that does not take its answer, or a look at /proc or for a host that lasts for good. */
static void not_waited_for(uv_timer_t *timer)
{
	server_log("what does not end is not waited for any longer");
	uv_stop(timer->loop);
}

void server_end(struct server *s)
{
	struct peer *p, *next;

	if (s->ending)
		return;
	s->ending = s->stopping = true;
	server_unlisten(s);
	while (s->sessions)
		session_close(s->sessions, "the daemon ends");
	snapshot_end(s);
	http_end(s);
	otlp_end(s);
	stalls_end(s);
	orphans_end(s);
	/* those that repair something for a client */
	mutators_end(s, "the daemon ends: what was being repaired is to be repaired again");
	uv_close((uv_handle_t *)&s->idle, NULL);
	uv_close((uv_handle_t *)&s->resume, NULL);
	uv_close((uv_handle_t *)&s->sigterm, NULL);
	uv_close((uv_handle_t *)&s->sigint, NULL);
	/* the last answers go out first, and mutators end; all of it within some seconds */
	uv_timer_init(&s->loop, &s->last);
	uv_timer_start(&s->last, not_waited_for, LAST_MS, 0);
	uv_unref((uv_handle_t *)&s->last);
	/* should the loop itself stand still */
	alarm(2 * LAST_MS / 1000);
	for (p = s->peers; p; p = next) {
		next = p->next;
		peer_finish(p);
	}
}

/* The second one ends it at once; but timeout(1) and sudo(8) pass on what the group gets as well. */
static void on_signal(uv_signal_t *handle, int number)
{
	struct server *s = handle->data;

	if (s->stopping && uv_now(&s->loop) - s->signalled_at < SAME_SIGNAL_MS)
		return;
	s->signalled_at = uv_now(&s->loop);
	server_log("signal %d (%s)", number, strsignal(number));
	if (s->stopping)
		server_end(s);
	else
		server_stop(s, NULL);
}

static void on_idle(uv_timer_t *timer)
{
	struct server *s = timer->data;

	hold_sweep(s);
	server_look_after_socket(s);
	if (s->sessions || s->peers || s->orphans) {
		server_busy(s);
	} else if (s->idle_ms && uv_now(&s->loop) - s->busy_at >= s->idle_ms) {
		server_log("nothing to do for %llu s: leaving",
			   (unsigned long long)s->idle_ms / 1000);
		server_end(s);
	}
}

/* ------------------------------------------------------------------ start */

int server_init(struct server *s, struct dinst_error *e)
{
	int err = pool_start(e);

	if (err)
		return err;
	err = uv_loop_init(&s->loop);
	if (err)
		return dinst_fail(e, DINST_FAILED, "cannot make an event loop: %s",
				  uv_strerror(err));
	uv_timer_init(&s->loop, &s->idle);
	uv_timer_init(&s->loop, &s->resume);
	uv_signal_init(&s->loop, &s->sigterm);
	uv_signal_init(&s->loop, &s->sigint);
	s->idle.data = s->resume.data = s->sigterm.data = s->sigint.data = s;
	uv_timer_start(&s->idle, on_idle, IDLE_LOOK_MS, IDLE_LOOK_MS);
	uv_signal_start(&s->sigterm, on_signal, SIGTERM);
	uv_signal_start(&s->sigint, on_signal, SIGINT);
	stalls_watch(s);
	server_busy(s);
	return 0;
}
