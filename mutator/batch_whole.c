/* SPDX-License-Identifier: MIT */
/*
 * batch_whole.c - one stop for a request with per-thread state: all of it or
 * nothing.
 *
 * When everybody stands still it is checked that every window can be patched
 * now; only then are switches turned, for all processes at once, and each
 * process is caught up with while it is still stopped. A process that was
 * forked before a window was patched does not run through it: functions are
 * caught up with only where their entries lead to us.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inject/maps.h"
#include "mutator/batch_private.h"
#include "mutator/threads.h"

struct job {
	struct batch batch;
	struct batch_whole *whole;
	struct session *session;
	struct threads_function *here; /* those that are in one process */
	uint8_t *absent;	       /* by number: those that are not */
	bool turned;
	bool busy;   /* somebody is in a window */
	pid_t stuck; /* that thread, 0 if it is found on a stack */
	const struct site *stuck_in;
};

/* ------------------------------------------------------- all are stopped */

/* The first that is, or `count`. */
static size_t first(const bool *flags, size_t count)
{
	size_t i = 0;

	while (i < count && !flags[i])
		i++;
	return i;
}

/* The errno that every try to look at which pages are there will meet, or 0. */
static int never_searched(const struct target *t)
{
	const int pagemap = maps_open_pagemap(target_memory_tid(t)), error = errno;

	if (pagemap >= 0)
		close(pagemap);
	else if (target_alive(t) && (error == ENOENT || error == EACCES || error == EPERM))
		return error;
	return 0;
}

/*
 * Says, when all run again, what the request waits for: the thread that is stuck, or on whose stack it was found.
 * DINST_BUSY; or DINST_REFUSED where no other try can end differently.
 */
static int tell_busy(struct job *job, struct dinst_error *e)
{
	const struct batch *b = &job->batch;
	const struct image_function *functions;
	const char *function, *module;
	size_t i = 0;
	int never;

	dinst_error_clear(e);
	if (b->late)
		return dinst_fail(
			e, DINST_BUSY,
			"thread %d has not come back from a system call that it was to make for "
			"us, and may go on in the middle of what is to be patched: try again",
			(int)b->late);
	while (i < b->inside_count && !b->ranges[i].hit)
		i++;
	if (i < b->inside_count) {
		job->stuck_in = b->insides[i].home;
		job->stuck = snapshot_touches(b->shot, 0, &b->ranges[i], 1);
	}
	if (!job->stuck_in)
		return dinst_fail(e, DINST_BUSY,
				  "what is to be patched waits for what others insert");
	image_functions(job->stuck_in->module->image, &functions);
	function = functions[job->stuck_in->function].name;
	module = job->stuck_in->module->name;
	if (job->stuck)
		return dinst_fail(
			e, DINST_BUSY,
			"thread %d is in the middle of what is to be patched, or may return "
			"there, in %s of %s: try again, or leave it out",
			(int)job->stuck, function, module);
	if (!job->session->unsearched)
		return dinst_fail(
			e, DINST_BUSY,
			"a task that no thread executes now is in the middle of what is to be "
			"patched, in %s of %s: try again, or leave it out",
			function, module);
	never = never_searched(job->session->target);
	if (never)
		return dinst_fail(
			e, DINST_REFUSED,
			"the program switches between tasks of its own (swapcontext() or the like), one that a signal interrupted may go on inside of what is to be patched, in %s of %s, and its memory cannot be searched for that (/proc/%d/pagemap: %s): leave it out",
			function, module, (int)job->session->pid, strerror(never));
	return dinst_fail(
		e, DINST_BUSY,
		"the program switches between tasks of its own (swapcontext() or the "
		"like), one that a signal interrupted may go on inside of what is to be "
		"patched, in %s of %s, and its memory is too large to be searched for that, or "
		"shared and not to be read without CAP_CHECKPOINT_RESTORE: try again when there is "
		"less, or with that, or leave it out",
		function, module);
}

/* Mostly it is out of that with the next try. */
static int check_routines(const struct job *job, struct stop *stop, struct dinst_error *e)
{
	for (size_t i = 0; i < stop_thread_count(stop); i++) {
		const struct stop_thread *t = stop_thread(stop, i);

		if (t->kernel_worker)
			continue;
		if (threads_is_in_routine(job->session, arch_pc(&t->regs)))
			return dinst_fail(e, DINST_BUSY,
					  "thread %d is just noting what it has entered or left",
					  (int)t->tid);
		if (threads_leaves_perhaps(job->session, job->whole->functions,
					   job->whole->function_count, arch_pc(&t->regs)))
			return dinst_fail(
				e, DINST_BUSY,
				"thread %d is just about to leave what is to be measured, or not to",
				(int)t->tid);
	}
	return 0;
}

static int check(struct job *job, struct stop *stop, struct dinst_error *e)
{
	struct batch *b = &job->batch;
	size_t foreign;
	int status;

	if (target_incarnation(stop_target(stop)) != job->session->incarnation)
		return dinst_fail(e, DINST_GONE, "process %d has executed another program",
				  (int)job->session->pid);
	status = place_check(job->session, e);
	if (status < 0)
		return status;
	place_check_threads(job->session, stop);
	batch_check_windows(b, stop);
	status = batch_look_at_stacks(b, stop, e);
	if (status < 0)
		return status;
	batch_share_fate(b, stop);
	foreign = first(b->foreign, b->count);
	if (foreign < b->count)
		return dinst_fail(e, DINST_REFUSED,
				  "the code at %#llx of %s is not the file's, or belongs to two "
				  "functions: leave it out",
				  (unsigned long long)b->sites[foreign]->key.start,
				  b->sites[foreign]->module->name);
	job->stuck_in = NULL;
	job->stuck = batch_stuck_thread(b, stop, &job->stuck_in);
	job->busy = job->stuck || first(b->waits, b->count) < b->count;
	return job->busy ? dinst_fail(e, DINST_BUSY, "somebody is in what is to be patched") : 0;
}

/* In a process besides the target. */
static int check_member(struct job *job, struct stop *stop, struct dinst_error *e)
{
	const struct image_function *functions;
	const struct site *half;

	memset(job->absent, 0, PAIR_ID_MASK + 1);
	half = job->whole->find_half(job->whole->arg, stop, job->absent);
	if (!half)
		return 0;
	job->session->half_patched = true;
	image_functions(half->module->image, &functions);
	return dinst_fail(
		e, DINST_REFUSED,
		"process %d was forked from %d when only a part of what this request needs "
		"in %s of %s was patched, and would measure there what it is not asked for: "
		"remove first what is inserted there, or try again when it has ended",
		(int)target_pid(stop_target(stop)), (int)job->session->pid,
		functions[half->function].name, half->module->name);
}

static int ready(struct stop *const *stops, size_t count, void *arg, struct dinst_error *e)
{
	struct job *job = arg;
	const struct batch_whole *w = job->whole;
	int status = DINST_GONE;

	for (size_t n = 0; n < count; n++)
		if (stop_target(stops[n]) == job->session->target)
			status = check(job, stops[n], e);
	for (size_t n = 0; n < count && status >= 0; n++)
		if (stop_target(stops[n]) != job->session->target)
			status = check_member(job, stops[n], e);
	if (status < 0)
		return dinst_fail(e, status, "process %d has ended", (int)job->session->pid);
	for (size_t n = 0; n < count && status >= 0 && w->patient && w->function_count; n++)
		status = check_routines(job, stops[n], e);
	if (status < 0)
		return status;
	site_turn_held(job->session);
	threads_turn_undos(job->session);
	job->turned = true;
	return 0;
}

/* --------------------------------------------------------- one process */

/* The functions that are patched in this process; the target has all of them. */
static size_t find_here(struct job *job, struct stop *stop)
{
	struct batch_whole *w = job->whole;
	const bool is_target = stop_target(stop) == job->session->target;
	size_t count = 0;

	if (!is_target) {
		memset(job->absent, 0, PAIR_ID_MASK + 1);
		w->find_absent(w->arg, stop, job->absent);
	}
	for (size_t n = 0; n < w->function_count; n++)
		if (is_target || !job->absent[w->functions[n].id])
			job->here[count++] = w->functions[n];
	return count;
}

static int catch_up(struct job *job, struct stop *stop, struct dinst_error *e)
{
	struct batch_whole *w = job->whole;
	size_t count = find_here(job, stop), caught = 0, unwalked = 0;
	int status;

	if (!count)
		return 0;
	status = threads_catch_up(job->session, stop, job->here, count, w->late, w->late_count,
				  &caught, &unwalked, e);
	w->caught += caught;
	w->unwalked += unwalked;
	return status;
}

static int work(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct job *job = arg;
	int status = 0;

	if (stop_target(stop) == job->session->target) {
		status = place_sync(stop, job->session, e);
		if (status >= 0)
			status = batch_move_threads(&job->batch, stop, e);
		if (status >= 0)
			status = batch_patch(&job->batch, stop, e);
	}
	return status < 0 ? status : catch_up(job, stop, e);
}

int batch_apply_whole(struct session *s, struct batch_whole *whole, struct batch_result *result,
		      struct dinst_error *e)
{
	struct job job = {.whole = whole, .session = s};
	struct stop_report report = {0};
	int status;

	*result = (struct batch_result){0};
	whole->caught = whole->unwalked = 0;
	job.here = calloc(whole->function_count + 1, sizeof(*job.here));
	status = batch_begin(&job.batch, s, whole->sites, whole->count, whole->foreign, e);
	job.absent = malloc(PAIR_ID_MASK + 1);
	if (!job.here || !job.absent)
		status = dinst_fail(e, DINST_NO_MEMORY, "out of memory for a batch");
	if (status >= 0) {
		status = family_stop_all(s, ready, work, &job, &report, e);
		family_release(s);
		session_note_stop(s, &report, &result->stop_ns);
		/* Nobody was there to be stopped: it has ended, or executed another program. */
		if (status >= 0 && !job.turned)
			status = dinst_fail(e, DINST_GONE,
					    "process %d has ended or executed another program",
					    (int)s->pid);
		if (job.turned)
			batch_settle(&job.batch, status < 0, result);
		if (status == DINST_BUSY && job.busy)
			status = tell_busy(&job, e);
	}
	batch_end(&job.batch);
	free(job.absent);
	free(job.here);
	return status;
}
