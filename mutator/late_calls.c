/* SPDX-License-Identifier: MIT */
/*
 * late_calls.c - threads that did not come back from a system call of ours in time.
 *
 * Such a thread ends the call by itself, later, and goes on where it was
 * interrupted, perhaps in a trampoline: in the meantime that is in no register
 * and on no stack. So while it lasts nothing of ours is freed; and at detach what
 * the call has left in the process is taken out, as is what calls have made
 * of which the rest was given up.
 */
#include <stdio.h>
#include <stdlib.h>

#include "inject/remote.h"
#include "inject/stack.h"
#include "mutator/core.h"

/* A child that is looked at again and again is kept once: its claim can be had once only. */
static bool is_kept(const struct session *s, const struct target *member)
{
	for (size_t i = 0; i < s->late_count; i++)
		if (target_pid(s->late[i]) == target_pid(member) && target_alive(s->late[i]))
			return true;
	return false;
}

/* Without memory for it `dinst repair` finds what is left, as it finds what a dead mutator left. */
bool late_calls_keep(struct session *s, struct target *member)
{
	struct target **late;

	if (!target_left_calls(member) || !target_alive(member) || is_kept(s, member))
		return false;
	late = realloc(s->late, (s->late_count + 1) * sizeof(struct target *));
	if (!late)
		return false;
	s->late = late;
	s->late[s->late_count++] = member;
	return true;
}

/* The calls themselves lie in an arena. One past the end too: a call that restarts goes back. */
static pid_t who_makes_them_inside(struct session *s, struct stop *stop)
{
	struct stack_range code = {.lo = s->late_code, .hi = s->late_code + ARCH_REMOTE_MAX + 1};
	struct dinst_error ignored = {0};
	struct snapshot *shot;
	pid_t inside = 0;

	if (!s->late_code || stop_target(stop) != s->target)
		return 0;
	if (snapshot_take(stop, &shot, &ignored) < 0)
		return s->pid;
	if (snapshot_scan(shot, &code, 1))
		inside = s->pid;
	for (size_t i = 0; inside && i < stop_thread_count(stop); i++)
		if (snapshot_touches(shot, stop_thread(stop, i)->tid, &code, 1))
			inside = stop_thread(stop, i)->tid;
	snapshot_free(shot);
	/* Nobody comes back to it: from now on it may be other memory. */
	if (!inside)
		s->late_code = 0;
	return inside;
}

pid_t late_calls_last(struct session *s, struct stop *stop)
{
	const struct target *t = stop_target(stop);
	const pid_t inside = who_makes_them_inside(s, stop);
	struct dinst_error ignored = {0};
	bool late = target_left_program(t);
	struct remote_tails tails;

	if (inside)
		return inside;
	for (size_t i = 0; i < s->late_count && !late; i++)
		late = target_pid(s->late[i]) == target_pid(t);
	if (!late)
		return 0;
	return remote_clean_tails(stop, &tails, &ignored) < 0 ? target_pid(t) : tails.inside;
}

int late_calls_fail(pid_t tid, struct dinst_error *e)
{
	char who[32] = "a thread", where[64] = "";

	if (tid) {
		snprintf(who, sizeof(who), "thread %d", (int)tid);
		snprintf(where, sizeof(where), " (/proc/%d/wchan says what it waits for)",
			 (int)tid);
	}
	return dinst_fail(
		e, DINST_BUSY,
		"%s has not come back from a system call that it was to make for us, and goes on in code that would go%s",
		who, where);
}

static int clean(struct target *t, uint64_t deadline, struct detach_result *result,
		 struct dinst_error *e)
{
	const uint64_t now = clock_ns() / 1000;
	struct leftovers late;
	int status;

	if (!target_left_calls(t) || !target_alive(t))
		return 0;
	status = leftovers_clean(t, deadline > now ? (unsigned)((deadline - now) / 1000) : 0, &late,
				 e);
	if (late.stop_ns > result->stop_ns)
		result->stop_ns = late.stop_ns;
	result->left += status < 0 ? 1 : late.arenas_left;
	if (late.others && target_alive(t))
		result->others = late.others;
	return status;
}

int late_calls_clean(struct session *s, uint64_t deadline, struct detach_result *result,
		     struct dinst_error *e)
{
	int status = 0;

	family_release(s);
	/* Nothing of ours outlives the program, also where the one that it executed may not be looked at. */
	if (s->state != SESSION_EXECED || !target_incarnation_is_sure(s->target))
		status = clean(s->target, deadline, result, e);
	for (size_t i = 0; i < s->late_count; i++) {
		struct dinst_error ignored = {0};
		const int next = clean(s->late[i], deadline, result, status < 0 ? &ignored : e);

		target_unclaim(s->late[i]);
		status = status < 0 ? status : next;
	}
	return status;
}
