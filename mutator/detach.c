/* SPDX-License-Identifier: MIT */
/*
 * detach.c - leaving the target as it was.
 *
 * Everything is switched off, flushed until the queue is empty, and then the arenas go, and the
 * target's private copies of text pages with them, all in one last stop; children's go after it. Never
 * unmaps anything while a window leads there.
 */
#include <stdlib.h>
#include <unistd.h>

#include "inject/remote.h"
#include "mutator/core.h"

enum {
	DETACH_SECONDS = 5, /* how long it is tried where nothing is said */
	RETRY_MIN_US = 500,
	RETRY_MAX_US = 50 * 1000,
	RETRY_STOPS = 4, /* the target runs at least so many times as long as it was stopped */
};

static uint64_t now_us(void)
{
	return clock_ns() / 1000;
}

/*
 * Private copies of text pages that equal the file again go back to the page cache. Memory only:
 * the bytes are right whether or not this succeeds, and it is tried once. False if a thread did
 * not come back from it, perhaps: the code that it is in then stays.
 */
static bool give_back_pages(struct session *s, struct stop *stop, const struct patch_files *files)
{
	struct dinst_error ignored = {0};
	struct place *p = s->places;
	const size_t count = s->page_count;
	taddr_t scratch = 0;
	int status;

	if (!p || p->unmapped || !count)
		return true;
	/* When unmapping fails after this, and is tried again, half of the arena may be gone. */
	s->page_count = 0;
	/* What we write into a private arena is not there before it is sent. */
	if (p->arena->mode != ARENA_PRIVATE &&
	    heap_alloc_code(p->heap, ARCH_REMOTE_MAX, &scratch, &ignored) < 0)
		return true;
	status = patch_drop_private_pages(
		stop, s->pages, count, files, scratch,
		scratch ? heap_map(p->heap, scratch, ARCH_REMOTE_MAX) : NULL, &ignored);
	if (status < 0 && target_left_program(stop_target(stop))) {
		s->late_code = scratch;
		return false;
	}
	if (scratch)
		heap_free_code(p->heap, scratch);
	return true;
}

struct last_stop {
	struct session *session;
	struct patch_files *files; /* of the session's pages */
	size_t page_count;
};

static int give_back_in_child(struct stop *stop, void *arg, struct dinst_error *e)
{
	const struct last_stop *last = arg;

	return patch_drop_private_pages(stop, last->session->pages, last->page_count, last->files,
					0, NULL, e);
}

/* One after the other, each in a stop of its own: nobody has anything of ours any more. */
static void give_back_in_children(struct last_stop *last, struct detach_result *result)
{
	struct session *s = last->session;
	struct dinst_error ignored = {0};

	for (size_t i = 0; i < s->member_count && last->page_count; i++) {
		struct stop_report report = {0};

		target_stop(s->members[i], NULL, give_back_in_child, last, &report, &ignored);
		session_note_stop(s, &report, &result->stop_ns);
	}
	/* Who did not come back from that is kept, for late_calls_clean(). */
	family_release(s);
}

/* For one process of the family. */
static int unmap_everything(struct stop *stop, void *arg, struct dinst_error *e)
{
	const struct last_stop *last = arg;
	struct session *s = last->session;
	const bool is_target = stop_target(stop) == s->target;
	const pid_t pid = target_pid(stop_target(stop)), late = late_calls_last(s, stop);

	if (late || (is_target && !s->unmapped && !give_back_pages(s, stop, last->files)))
		return late_calls_fail(late, e);
	for (struct place *p = s->places; p; p = p->next) {
		int status;

		/* What is not there any more must not be unmapped: it may be another's by now. */
		status = is_target ? !p->unmapped : arena_look_for(pid, p->arena, e);
		if (!status)
			continue;
		if (status > 0)
			status = arena_unmap(stop, p->arena, e);
		if (status < 0)
			return status;
		if (is_target)
			p->unmapped = s->unmapped = true;
	}
	return 0;
}

static size_t windows_in_place(const struct session *s)
{
	size_t windows = 0;

	for (const struct site *site = site_next(s, NULL); site; site = site_next(s, site))
		windows += site->state == SITE_PATCHED;
	return windows;
}

/* All of them in one go: no code is written for those that are still to go. */
static int remove_all(struct session *s, struct dinst_error *e)
{
	for (struct instance *i = s->instances; i; i = i->next)
		removal_unlink_only(s, i);
	for (struct instance *i = s->hidden; i; i = i->next)
		removal_unlink_only(s, i);
	site_update_all(s);
	while (s->instances) {
		struct instance *i = s->instances;
		int status = removal_switch_off(s, i, e);

		if (status < 0)
			return status;
	}
	return 0;
}

/*
 * Everything that is patched, or was, must be on the queue: the arenas go when
 * that is empty. What a failed request or a lack of memory left is found here.
 */
static void retire_all(struct session *s)
{
	for (struct site *site = site_next(s, NULL); site; site = site_next(s, site))
		removal_retire(s, site);
}

/*
 * Longer each time, and never shorter than a few of the last stop: where stops take long, on a
 * machine without a free CPU, most of the time stays the target's. Not beyond the deadline.
 */
static void pause_us(unsigned *us, uint64_t stop_ns, uint64_t deadline)
{
	const uint64_t now = now_us(), left = deadline > now ? deadline - now : 0;
	uint64_t pause = stop_ns / 1000 * RETRY_STOPS;

	if (pause < *us)
		pause = *us;
	usleep((useconds_t)(pause < left ? pause : left));
	*us = *us * 2 > RETRY_MAX_US ? RETRY_MAX_US : *us * 2;
}

static int fail_unsearched(const struct session *s, struct dinst_error *e)
{
	return dinst_fail(
		e, DINST_BUSY,
		"%s switches between tasks of its own (swapcontext() or the like), one that a signal "
		"interrupted may go on in there, and its memory is too large to be searched for that, "
		"or shared and not to be read without CAP_CHECKPOINT_RESTORE; "
		"it stays, and does nothing, until there is less, or the program ends",
		target_name(s->target));
}

/* Flushes until the queue is empty or the time is over; the last error stays in *e. */
static int drain(struct session *s, uint64_t deadline, struct detach_result *result,
		 struct dinst_error *e)
{
	struct flush_result flush = {0};
	unsigned pause = RETRY_MIN_US;
	int status = 0;

	while (s->queue_length) {
		dinst_error_clear(e);
		removal_look_for_tasks(s);
		status = removal_flush(s, &flush, e);
		if (flush.stop_ns > result->stop_ns)
			result->stop_ns = flush.stop_ns;
		if (!s->queue_length || now_us() >= deadline)
			break;
		pause_us(&pause, s->last_stop_ns, deadline);
	}
	if (status >= 0 && s->queue_length && flush.late)
		status = late_calls_fail(flush.late, e);
	else if (status >= 0 && s->queue_length && flush.unsearched)
		status = fail_unsearched(s, e);
	result->others = s->queue_length ? flush.others : 0;
	return status;
}

/* Takes the arenas out, as often as it takes until the deadline. */
static int unmap_all(struct session *s, uint64_t deadline, struct detach_result *result,
		     struct dinst_error *e)
{
	struct last_stop last = {s, patch_files_open(s->target, s->pages, s->page_count),
				 s->page_count};
	unsigned pause = RETRY_MIN_US;
	int status = 0;

	while (s->places) {
		struct stop_report report = {0};

		dinst_error_clear(e);
		status = family_stop(s, unmap_everything, &last, &report, e);
		session_note_stop(s, &report, &result->stop_ns);
		if (status >= 0) {
			give_back_in_children(&last, result);
			break;
		}
		if (now_us() >= deadline) {
			result->left = 1;
			break;
		}
		pause_us(&pause, s->last_stop_ns, deadline);
	}
	patch_files_close(last.files);
	return status;
}

int session_detach(struct session *s, unsigned seconds, struct detach_result *result,
		   struct dinst_error *e)
{
	uint64_t deadline = now_us() + (uint64_t)(seconds ? seconds : DETACH_SECONDS) * 1000000;
	size_t windows = windows_in_place(s);
	int status;

	*result = (struct detach_result){0};
	status = remove_all(s, e);
	if (status < 0) {
		result->left = s->queue_length + 1;
		return status;
	}
	retire_all(s);
	status = drain(s, deadline, result, e);
	/* Nobody was stopped where the program has gone and left no child: nothing was restored. */
	result->restored = result->stop_ns ? windows - windows_in_place(s) : 0;
	result->left = s->queue_length;
	if (!result->left)
		result->left = windows_in_place(s);
	if (result->left || status < 0)
		return status;
	status = unmap_all(s, deadline, result, e);
	if (status < 0)
		return status;
	status = late_calls_clean(s, deadline, result, e);
	if (status < 0 || result->left)
		return status;
	s->state = SESSION_DETACHED;
	target_unclaim(s->target);
	return 0;
}
