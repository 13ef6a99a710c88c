/* SPDX-License-Identifier: MIT */
/*
 * serve_stacks.c - the method `stacks`: one look at where all threads are.
 *
 * One short stop in which registers and live stacks are copied; they are walked
 * when the target runs again. Nothing of the target is changed. A look is a
 * hint, not a measurement: who measures inserts a metric.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inject/proc.h"
#include "mutator/serve.h"

enum {
	FRAMES_SHOWN = 64, /* innermost ones; recursion may be as deep as it likes */
	THREADS_SHOWN = 4096,
	DEADLINE_US = 20000,
	TRIES = 3,
};

/* A thread as it was right before the stop, and in it. */
struct seen_thread {
	pid_t tid;
	char state; /* of /proc: 'R' runs or wants to, 'S' and 'D' sleep; '?' not known */
	bool in_call;
};

struct look {
	struct session *session;
	struct seen_thread *threads;
	size_t count, left_out; /* beyond THREADS_SHOWN */
	struct snapshot *shot;
	struct proc_ids tasks; /* whose states were read before the stop */
	char *states;
};

/* ------------------------------------------------------------- before, in */

static void read_states(struct look *k)
{
	const pid_t pid = k->session->pid;

	if (proc_tasks(pid, &k->tasks))
		return;
	k->states = malloc(k->tasks.count + 1);
	for (size_t i = 0; k->states && i < k->tasks.count; i++) {
		struct proc_stat stat;

		k->states[i] =
			proc_thread_stat_read(pid, k->tasks.ids[i], &stat) ? '?' : stat.state;
	}
}

static char state_of(const struct look *k, pid_t tid)
{
	for (size_t i = 0; k->states && i < k->tasks.count; i++)
		if (k->tasks.ids[i] == tid)
			return k->states[i];
	return '?';
}

static int copy_stacks(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct look *k = arg;
	const size_t count = stop_thread_count(stop);

	k->threads = calloc(count + 1, sizeof(*k->threads));
	if (!k->threads)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	k->count = k->left_out = 0;
	for (size_t i = 0; i < count; i++) {
		struct stop_thread *t = stop_thread(stop, i);

		if (t->kernel_worker || t->foreign || !arch_is_native(&t->regs))
			continue;
		if (k->count == THREADS_SHOWN) {
			k->left_out++;
			continue;
		}
		k->threads[k->count++] =
			(struct seen_thread){.tid = t->tid, .in_call = arch_in_syscall(&t->regs)};
	}
	return snapshot_take_threads(stop, &k->shot, e);
}

/* ------------------------------------------------------------------ after */

struct frames {
	struct session *session;
	json_t *list;
};

/* A frame behind a call is where the call was: its return address may be another function's. */
static bool add_frame(void *arg, const struct stack_frame *frame)
{
	struct frames *f = arg;
	const taddr_t at = frame->home - (frame->returns && frame->home ? 1 : 0);
	const struct module *m = module_at(f->session->modules, at);
	const struct image_function *functions;
	long index = m && m->image && !m->gone ? image_function_at(m->image, at - m->bias) : -1;

	if (index < 0) {
		json_array_append_new(f->list, json_pack("{s:o, s:n, s:n}", "module",
							 m ? serve_text(m->name) : json_null(),
							 "function", "symbol"));
		return json_array_size(f->list) < FRAMES_SHOWN;
	}
	image_functions(m->image, &functions);
	/* A piece that the compiler has moved away belongs to its function. */
	index = functions[index].parent;
	json_array_append_new(
		f->list, json_pack("{s:o, s:o, s:o}", "module", serve_text(m->name), "function",
				   serve_text(image_readable_name(m->image, functions[index].name)),
				   "symbol", serve_text(functions[index].name)));
	return json_array_size(f->list) < FRAMES_SHOWN;
}

static json_t *thread_row(struct look *k, const struct seen_thread *t, struct stack_walk *walk)
{
	struct frames f = {.session = k->session, .list = json_array()};
	const char state[2] = {state_of(k, t->tid), '\0'};
	char name[PROC_NAME_MAX];
	bool complete = stack_walk_thread(walk, t->tid, add_frame, &f);

	proc_word(t->tid, "comm", name, sizeof(name));
	return json_pack("{s:I, s:o, s:s, s:b, s:b, s:o}", "tid", (json_int_t)t->tid, "name",
			 serve_text(name), "state", state, "in_call", t->in_call, "complete",
			 complete, "frames", f.list);
}

static json_t *all_rows(struct look *k, struct dinst_error *e)
{
	struct stack_walk *walk;
	json_t *rows;

	if (stack_walk_begin(k->shot, site_home, k->session, &walk, e) < 0)
		return NULL;
	rows = json_array();
	for (size_t i = 0; i < k->count; i++)
		json_array_append_new(rows, thread_row(k, &k->threads[i], walk));
	stack_walk_end(walk);
	return rows;
}

int serve_stacks(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e)
{
	const struct stop_options options = {.deadline_us = DEADLINE_US, .tries = TRIES};
	struct stop_report report = {0};
	struct look k = {0};
	json_t *rows = NULL;
	uint64_t stop_ns = 0;
	int status = serve_session(sv, &k.session, e);

	(void)params;
	if (status >= 0)
		status = session_check(k.session, e);
	if (status >= 0)
		status = session_update_modules(k.session, e);
	if (status < 0)
		return status;
	read_states(&k);
	status = target_stop(k.session->target, &options, copy_stacks, &k, &report, e);
	session_note_stop(k.session, &report, &stop_ns);
	if (status >= 0) {
		rows = all_rows(&k, e);
		status = rows ? 0 : e->code;
	}
	if (rows)
		*result = json_pack("{s:o, s:I, s:I}", "rows", rows, "left_out",
				    (json_int_t)k.left_out, "stop_us", serve_us(stop_ns));
	snapshot_free(k.shot);
	proc_ids_release(&k.tasks);
	free(k.states);
	free(k.threads);
	return status;
}
