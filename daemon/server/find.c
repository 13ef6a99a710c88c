/* SPDX-License-Identifier: MIT */
/*
 * find.c - the process of a name, found beside the loop.
 *
 * Owns waiting for what /proc says. The kernel shows another process' command line
 * only under the lock of its memory (proc_pid_cmdline(5)): one that holds it and gets no
 * processor, of whoever it is, would hold up all clients of ours. So a thread of
 * libuv's looks, which knows nothing but the name, and the method goes on with the pid.
 * Who holds it for ever, as anybody can, keeps the thread, but not the client.
 */
#include "daemon/server/server.h"

#include <stdlib.h>
#include <string.h>

enum { FIND_WAIT_MS = 10000 };

struct find {
	uv_work_t work;
	uv_timer_t timer;
	unsigned users; /* the work, the timer */
	struct server *server;
	struct request *request; /* NULL: it has its answer */
	json_t *params;		 /* of the request */
	const char *method;	 /* a static text */
	method_server *serve;
	char *name;
	pid_t pid;
	struct dinst_error error;
};

/* In the thread. */
static void look(uv_work_t *work)
{
	struct find *f = work->data;

	process_resolve(f->name, NULL, 0, &f->pid, &f->error);
}

static void release(struct find *f)
{
	if (--f->users > 0)
		return;
	json_decref(f->params);
	free(f->name);
	free(f);
}

static void timer_closed(uv_handle_t *handle)
{
	release(handle->data);
}

static void too_long(uv_timer_t *timer)
{
	struct find *f = timer->data;
	struct dinst_error e = {0, ""}; /* the thread may be writing to the other one */

	dinst_fail(&e, DINST_BUSY,
		   "the process of the name '%.64s' is not found within %d s: the kernel does not "
		   "show the command line of some process, whose memory is locked; name the one "
		   "that is meant by its pid",
		   f->name, FIND_WAIT_MS / 1000);
	request_error_from(f->request, &e);
	f->request = NULL;
}

static void looked(uv_work_t *work, int status)
{
	struct find *f = work->data;

	uv_close((uv_handle_t *)&f->timer, timer_closed);
	if (!f->request) {
		release(f);
		return;
	}
	stalls_step(f->server, f->method);
	if (status != 0)
		dinst_fail(&f->error, DINST_FAILED, "cannot look for the process '%.64s': %s",
			   f->name, uv_strerror(status));
	if (f->error.code) {
		request_error_from(f->request, &f->error);
	} else if (!f->request->peer) {
		/* nobody waits for it any more: what has not begun does not begin */
		request_error(f->request, DINST_GONE, "the client has gone");
	} else {
		json_object_set_new(f->params, "target", json_integer(f->pid));
		f->serve(f->server, f->request, f->method, f->params);
	}
	release(f);
}

void find_process(struct server *s, struct request *r, const char *name, const char *method,
		  json_t *params, method_server *serve)
{
	struct find *f = calloc(1, sizeof(*f));
	int err;

	if (!f || !(f->name = strdup(name)) || !(f->params = json_copy(params))) {
		if (f)
			free(f->name);
		free(f);
		request_error(r, DINST_NO_MEMORY, "no memory to look for a process");
		return;
	}
	f->work.data = f;
	f->server = s;
	f->request = r;
	f->method = method;
	f->serve = serve;
	f->users = 2;
	f->timer.data = f;
	uv_timer_init(&s->loop, &f->timer);
	uv_timer_start(&f->timer, too_long, FIND_WAIT_MS, 0);
	err = uv_queue_work(&s->loop, &f->work, look, looked);
	if (err)
		looked(&f->work, err);
}
