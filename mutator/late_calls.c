/* SPDX-License-Identifier: MIT */
/*
 * late_calls.c - threads that did not come back from a system call of ours in time.
 *
 * Such a thread ends the call by itself, later, and goes on where it was
 * interrupted, perhaps in a trampoline: in the meantime that is in no register
 * and on no stack. So while it lasts nothing of ours is freed; and at detach what
 * the call has left in the process is taken out.
 */
#include <stdlib.h>

#include "inject/remote.h"
#include "inject/stack.h"
#include "mutator/core.h"

/* Without memory for it `dinst repair` finds what is left. */
bool late_calls_keep(struct session *s, struct target *member)
{
	struct target **late;

	if (!target_left_program(member) || !target_alive(member))
		return false;
	late = realloc(s->late, (s->late_count + 1) * sizeof(struct target *));
	if (!late)
		return false;
	s->late = late;
	s->late[s->late_count++] = member;
	return true;
}

/* The calls themselves lie in an arena. One past the end too: a call that restarts goes back. */
static bool makes_them_inside(const struct session *s, struct stop *stop)
{
	struct stack_range code = {.lo = s->late_code, .hi = s->late_code + ARCH_REMOTE_MAX + 1};
	struct dinst_error ignored = {0};
	struct snapshot *shot;
	bool inside;

	if (!s->late_code || target_pid(stop_target(stop)) != s->pid)
		return false;
	if (snapshot_take(stop, &shot, &ignored) < 0)
		return true;
	inside = snapshot_scan(shot, &code, 1) != 0;
	snapshot_free(shot);
	return inside;
}

bool late_calls_last(struct session *s, struct stop *stop)
{
	const struct target *t = stop_target(stop);
	struct dinst_error ignored = {0};
	bool late = target_left_program(t);
	size_t cleaned;

	if (makes_them_inside(s, stop))
		return true;
	for (size_t i = 0; i < s->late_count && !late; i++)
		late = target_pid(s->late[i]) == target_pid(t);
	if (!late)
		return false;
	remote_clean_tails(stop, &cleaned, &ignored);
	return remote_tails_dirty(t);
}

static int clean(struct target *t, uint64_t deadline, struct detach_result *result,
		 struct dinst_error *e)
{
	const uint64_t now = clock_ns() / 1000;
	struct leftovers late;
	int status;

	if (!target_left_program(t) || !target_alive(t))
		return 0;
	status = leftovers_clean(t, deadline > now ? (unsigned)((deadline - now) / 1000) : 0, &late,
				 e);
	if (late.stop_ns > result->stop_ns)
		result->stop_ns = late.stop_ns;
	result->left += status < 0 || remote_tails_dirty(t) ? 1 : late.arenas_left;
	return status;
}

int late_calls_clean(struct session *s, uint64_t deadline, struct detach_result *result,
		     struct dinst_error *e)
{
	int status;

	family_release(s);
	status = clean(s->target, deadline, result, e);
	for (size_t i = 0; i < s->late_count && status >= 0; i++)
		status = clean(s->late[i], deadline, result, e);
	return status;
}
