/* SPDX-License-Identifier: MIT */
/*
 * leftovers.c - taking out what a mutator that died left in a target.
 *
 * The journal in the arena says what may have been patched; the target's bytes
 * say what is. What is ours becomes the original, what is neither ours nor the
 * original is left alone, and the arena goes when no thread can be in it. The
 * same is done for the processes that were forked with it. An arena that a
 * living mutator has mapped is its own, and not touched.
 *
 * Where there is per-thread state the arenas of a process lead into each other:
 * code in one uses the state in another and calls undo routines in a third. So
 * all windows of all of them are restored first, and none goes before nobody is
 * in any.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "inject/proc.h"
#include "inject/remote.h"
#include "mutator/leftovers.h"
#include "mutator/owners.h"

enum { LEVELS_MAX = 64 };

static uint64_t now_us(void)
{
	return clock_ns() / 1000;
}

/* Whatever was tried again before, and told there. */
static int fail_with(struct dinst_error *e, int code, const struct dinst_error *why)
{
	dinst_error_clear(e);
	return dinst_fail_text(e, code, why->text);
}

static int clean_tails(struct stop *stop, void *arg, struct dinst_error *e)
{
	return remote_clean_tails(stop, arg, e);
}

int leftovers_is_late(const struct target *t, pid_t tid, struct dinst_error *e)
{
	const int pid = (int)target_pid(t);
	char channel[64], advice[64] = "";
	struct proc_stat stat;

	proc_word(tid, "wchan", channel, sizeof(channel));
	if (proc_thread_stat_read(target_pid(t), tid, &stat))
		stat = (struct proc_stat){.name = "?", .state = '?'};
	if (stat.state == 'T')
		snprintf(advice, sizeof(advice), " (it is stopped: `kill -CONT %d`)", pid);
	return dinst_fail(
		e, DINST_BUSY,
		"thread %d (%s) of process %d (%s) has not come back from a system call that an earlier session had it make: state %c, waiting in %s; nothing is taken out until it has%s, then by `dinst repair %d`",
		(int)tid, stat.name, pid, target_name(t), stat.state,
		channel[0] == '0' ? "nothing" : channel, advice, pid);
}

/*
 * A thread that was running system calls for the dead mutator finishes them by
 * itself, later: an arena may appear, or go, after we looked, and it goes on where
 * it was interrupted, perhaps in an arena. So the program is waited for and wiped
 * out first, and where that takes too long nothing is touched: DINST_BUSY.
 */
static int wait_for_programs(struct target *t, uint64_t deadline, struct leftovers *result,
			     struct dinst_error *e)
{
	bool over = !remote_tails_dirty(t);
	unsigned pause = PAUSE_MIN_US;
	struct remote_tails tails = {0};
	int status = 0;

	while (!over) {
		struct stop_report report = {0};

		dinst_error_clear(e);
		status = target_stop(t, NULL, clean_tails, &tails, &report, e);
		if (report.stop_ns > result->stop_ns)
			result->stop_ns = report.stop_ns;
		over = status >= 0 && !tails.inside;
		if (over || (status < 0 && status != DINST_BUSY) || now_us() >= deadline)
			break;
		usleep(pause);
		pause = pause * 2 > PAUSE_MAX_US ? PAUSE_MAX_US : pause * 2;
	}
	if (status >= 0 && !over && target_alive(t))
		status = leftovers_is_late(t, tails.inside, e);
	result->unknown_tails += tails.unknown;
	return status;
}

/* ------------------------------------------------------- tasks of its own */

/* Where modules cannot be looked at any interrupted task may be anywhere, too. */
static void look_for_tasks(struct target *t)
{
	struct dinst_error ignored = {0};
	struct module_list *modules;

	if (target_parks(t))
		return;
	if (module_list_read(t, &modules, &ignored) < 0) {
		target_set_parks(t);
		return;
	}
	modules_tell_parks(modules, t);
	module_list_free(modules);
}

static bool has_code_of(const struct maps *m, const struct maps_entry *file)
{
	for (size_t i = 0; i < m->count; i++)
		if ((m->entries[i].protection & PROT_EXEC) && m->entries[i].inode == file->inode &&
		    m->entries[i].device == file->device)
			return true;
	return false;
}

/* True if the child may have code of a file that the target, which was looked at, has not. */
static bool has_more_code(const struct target *child, const struct target *of)
{
	struct maps own = {0}, others = {0};
	bool more = maps_read(target_pid(child), &own, NULL) ||
		    maps_read(target_pid(of), &others, NULL);

	for (size_t i = 0; i < own.count && !more; i++)
		more = (own.entries[i].protection & PROT_EXEC) && own.entries[i].inode &&
		       !has_code_of(&others, &own.entries[i]);
	maps_release(&others);
	maps_release(&own);
	return more;
}

/* What switches between tasks may have been loaded by the child alone. */
static void look_for_tasks_of_child(struct target *child, const struct target *of)
{
	if (target_parks(of))
		target_set_parks(child);
	else if (has_more_code(child, of))
		look_for_tasks(child);
}

/* The windows of all arenas, once. */
static int restore_each(struct process *p, uint64_t deadline, struct leftovers *result,
			struct dinst_error *e)
{
	int status = 0;

	p->blocked = p->late = false;
	for (size_t i = 0; i < p->count && status >= 0; i++)
		status = leftovers_take_out(p, i, true, deadline, result, e);
	return status;
}

/*
 * The same where one must not go before nothing leads to the others. What is of one of them is somebody
 * else's to another one that has had a window in that place before: it is looked at again without it. So
 * is a window that waits for a near jump of another one in its tail.
 */
static int restore_all(struct process *p, uint64_t deadline, struct leftovers *result,
		       struct dinst_error *e)
{
	int status = 0;

	/* Code in one arena uses words, rings and routines in any other. */
	p->linked = p->count > 1;
	p->blocked = p->late = false;
	leftovers_forget_guests(p);
	if (p->linked)
		status = leftovers_find_guests(p, e);
	if (status >= 0 && p->linked)
		status = restore_each(p, deadline, result, e);
	if (status >= 0 && p->blocked)
		status = restore_each(p, deadline, result, e);
	return status;
}

static bool is_same(const struct arena_found *a, const struct arena_found *b)
{
	return a->inode && a->inode == b->inode && a->device == b->device;
}

/*
 * True if `a` of another process is `b` of the target: a fork leaves it where it was.
 */
static bool is_inherited(const struct target *child, const struct arena_found *a,
			 const struct target *of, const struct arena_found *b)
{
	if (!is_same(a, b) || (a->code_size && a->code != b->code) ||
	    (a->data_size && a->data != b->data))
		return false;
	return owners_inherited(target_pid(child), target_pid(of), a->code_size != 0);
}

/* Keeps those that the target has, too: others are not ours to take out. */
static void keep_common(struct process *child, const struct process *of)
{
	size_t kept = 0;

	for (size_t i = 0; i < child->count; i++)
		for (size_t k = 0; k < of->count; k++)
			if (is_inherited(child->target, &child->found[i], of->target,
					 &of->found[k])) {
				child->found[kept++] = child->found[i];
				break;
			}
	child->count = kept;
}

static int find_common(struct process *child, const struct process *of, struct dinst_error *e)
{
	const int status = arena_find(child->target, child->found, ARENAS_MOST, e);

	child->count = status < 0 ? 0 : (size_t)status;
	keep_common(child, of);
	return status;
}

/*
 * The same arenas, out of a process that was forked with arena `n` of them. *none: it lives, and has
 * none that a fork would have left there, or that could be taken out.
 */
static int clean_sharer(pid_t pid, struct process *of, size_t n, uint64_t deadline, bool *none,
			struct leftovers *result, struct dinst_error *e)
{
	struct process child = {0};
	struct dinst_error open = {0};
	size_t left = result->arenas_left;
	int status = target_open_known(pid, TARGET_FORKED, &child.target, e);

	*none = false;
	if (status == DINST_NO_PROCESS || status == DINST_GONE) {
		dinst_error_clear(e);
		return 0;
	}
	if (status < 0)
		return status;
	status = find_common(&child, of, e);
	if (status >= 0 && child.count)
		look_for_tasks_of_child(child.target, of->target);
	*none = status >= 0 && !child.count;
	/* One that was open in its parent when it was forked; nothing of a process that has none. */
	if (status >= 0 && child.count)
		leftovers_close(child.target, deadline, result, &open);
	if (status >= 0 && child.count)
		status = find_common(&child, of, e);
	if (status >= 0)
		status = restore_all(&child, deadline, result, e);
	for (size_t i = 0; status >= 0 && i < child.count; i++)
		if (is_same(&child.found[i], &of->found[n]))
			status = leftovers_take_out(&child, i, false, deadline, result, e);
	/*
	 * What has ended meanwhile, or executed another program, has nothing left in it. One that ends has
	 * no memory any more before its end can be seen; were it wrong, the next round would find it again.
	 */
	if (status == DINST_GONE || target_has_to_end(child.target)) {
		dinst_error_clear(e);
		result->arenas_left = left;
		status = 0;
	} else {
		of->late = of->late || child.late;
		if (status >= 0 && open.code)
			status = fail_with(e, open.code, &open);
	}
	/* It has it still, and will next time. */
	*none = *none || target_has_sealed(child.target);
	leftovers_forget_guests(&child);
	target_close(child.target);
	return status;
}

/* Who has the arena; DINST_BUSY where one of them is a mutator that lives. The caller frees. */
static int find_sharers(const struct process *p, size_t n, struct owners *o, struct dinst_error *e)
{
	const struct arena_found *found = &p->found[n];
	int status = find_owners(o, target_pid(p->target), e);

	if (status >= 0 && o->mutator)
		status = dinst_fail(e, DINST_BUSY,
				    "process %d is being instrumented by process %d%s%s; detach "
				    "that session first",
				    (int)target_pid(p->target), (int)o->mutator,
				    found->session[0] ? ", session " : "", found->session);
	return status;
}

/*
 * Takes the arena out of everybody else who has it: those born meanwhile are
 * found in the next round. The target has it until last: it is what leads to them.
 */
static int clean_sharers(struct process *p, size_t n, uint64_t deadline, struct leftovers *result,
			 struct dinst_error *e)
{
	struct owners o = {.found = &p->found[n]};
	size_t left, cleaned;
	bool none;
	int status;

	do {
		left = result->arenas_left;
		cleaned = 0;
		status = find_sharers(p, n, &o, e);
		/* One that cannot be looked at, as a debugger has it, is told of: the others are given theirs back. */
		for (size_t i = 0; i < o.sharers.count && (i || status >= 0); i++) {
			struct dinst_error why = {0};
			const int one =
				clean_sharer(o.sharers.ids[i], p, n, deadline, &none, result, &why);

			if (one < 0 && status >= 0)
				status = fail_with(e, one, &why);
			cleaned += !none;
		}
	} while (status >= 0 && cleaned && result->arenas_left == left && now_us() < deadline);
	owners_release(&o);
	return status;
}

/* DINST_BUSY where an arena is of a mutator that lives: nothing is touched then. */
static int check_owners(const struct process *p, struct dinst_error *e)
{
	int status = 0;

	for (size_t i = 0; i < p->count && status >= 0; i++) {
		struct owners o = {.found = &p->found[i]};

		status = find_sharers(p, i, &o, e);
		owners_release(&o);
	}
	return status;
}

/* ----------------------------------------------------------- descendants */

/* Halves of arenas that no mutator has. */
static int clean_halves(struct process *child, uint64_t deadline, struct leftovers *result,
			struct dinst_error *e)
{
	int status = arena_find(child->target, child->found, ARENAS_MOST, e);

	child->count = status > 0 ? (size_t)status : 0;
	for (size_t i = 0; i < child->count && status >= 0; i++) {
		struct owners o = {.found = &child->found[i]};

		if (child->found[i].code_size && child->found[i].data_size)
			continue;
		status = find_owners(&o, target_pid(child->target), e);
		if (status >= 0 && !o.mutator)
			status = leftovers_take_out(child, i, false, deadline, result, e);
		owners_release(&o);
	}
	return status;
}

/*
 * When a mutator dies in the middle of a program that makes or removes an arena,
 * all threads of the target go on, and one of them may fork before the program
 * has come to its end: the child has a half of an arena that its parent soon has in
 * full or not at all, and the program's bytes, which nobody runs. What cannot be
 * looked at is left.
 */
static int clean_descendant(pid_t pid, bool program, uint64_t deadline, struct leftovers *result,
			    struct dinst_error *e)
{
	struct leftovers own = {0};
	struct dinst_error ignored = {0};
	struct process child = {0};
	const bool open = leftovers_descriptor(pid) != -1;
	const int half = arena_has_half(pid, e);

	if (half < 0)
		return half;
	if ((!program && !open && !half) || target_open(pid, &child.target, &ignored) < 0)
		return 0;
	if (program)
		wait_for_programs(child.target, deadline, &own, &ignored);
	if (open)
		leftovers_close(child.target, deadline, &own, &ignored);
	clean_halves(&child, deadline, &own, &ignored);
	if (target_alive(child.target))
		result->arenas_left += own.arenas_left;
	if (own.others && target_alive(child.target))
		result->others = own.others;
	if (own.stop_ns > result->stop_ns)
		result->stop_ns = own.stop_ns;
	target_close(child.target);
	return 0;
}

/* Whoever cannot be looked at is no reason to leave the others. */
static int clean_descendants(pid_t pid, bool program, unsigned level, uint64_t deadline,
			     struct leftovers *result, struct dinst_error *e)
{
	struct proc_ids children = {0};
	int error = proc_all_children(pid, &children), status = 0;

	if (error)
		status = dinst_fail_errno(
			e, DINST_BUSY, -error,
			"cannot look at the children of process %d; try again later", (int)pid);
	for (size_t i = 0; i < children.count; i++) {
		if (clean_descendant(children.ids[i], program, deadline, result, e) < 0 ||
		    (level < LEVELS_MAX && clean_descendants(children.ids[i], program, level + 1,
							     deadline, result, e) < 0))
			status = DINST_BUSY;
	}
	proc_ids_release(&children);
	return status;
}

/* One round: what is found now, in the target and in everybody who has it, too. */
static int clean_round(struct process *p, uint64_t deadline, struct leftovers *result,
		       struct dinst_error *e)
{
	struct dinst_error ignored = {0};
	int status = check_owners(p, e);

	if (status >= 0)
		status = restore_all(p, deadline, result, e);
	for (size_t i = 0; i < p->count && (i || status >= 0); i++) {
		const bool failed = status < 0;
		const size_t left = result->arenas_left;
		int one = clean_sharers(p, i, deadline, result, failed ? &ignored : e);

		/* While somebody else has it still, it stays for who repairs next. */
		if (one >= 0 && !failed)
			one = leftovers_take_out(p, i, p->late || result->arenas_left > left,
						 deadline, result, e);
		else if (!p->linked)
			/* It stays for the sake of another, but nobody comes in from here any more. */
			leftovers_take_out(p, i, true, deadline, result, &ignored);
		status = failed ? status : one;
	}
	/* What only stays for the sake of another is left as well. */
	result->arenas_left += p->late && !result->arenas_left;
	/* Those who were born before the last stop. */
	for (size_t i = 0; i < p->count && status >= 0 && !result->arenas_left; i++)
		status = clean_sharers(p, i, deadline, result, e);
	return status;
}

bool leftovers_any(struct target *t)
{
	struct arena_found found[ARENAS_MOST];
	struct dinst_error ignored = {0};

	/* What cannot be looked at now is for who cleans to tell. */
	return arena_find(t, found, ARENAS_MOST, &ignored) != 0;
}

int leftovers_clean(struct target *t, unsigned milliseconds, struct leftovers *result,
		    struct dinst_error *e)
{
	uint64_t deadline = now_us() + (uint64_t)milliseconds * 1000;
	struct process p = {.target = t};
	struct dinst_error open = {0};
	bool program;
	int status;

	*result = (struct leftovers){0};
	status = target_claim(t, milliseconds, e);
	if (status < 0)
		return status;
	program = remote_tails_dirty(t);
	status = wait_for_programs(t, deadline, result, e);
	/* One that cannot be closed is no reason to leave the rest. */
	if (status >= 0)
		leftovers_close(t, deadline, result, &open);
	/* That nothing is left is not believed but seen. */
	do {
		if (status >= 0)
			status = arena_find(t, p.found, ARENAS_MOST, e);
		if (status <= 0)
			break;
		p.count = (size_t)status;
		look_for_tasks(t);
		if (p.count > result->arenas)
			result->arenas = p.count;
		status = clean_round(&p, deadline, result, e);
		leftovers_forget_guests(&p);
	} while (status >= 0 && !result->arenas_left && !target_has_sealed(t) && target_alive(t) &&
		 now_us() < deadline);
	result->sealed = target_has_sealed(t);
	if (status >= 0)
		status = clean_descendants(target_pid(t), program, 0, deadline, result, e);
	if (status >= 0 && open.code && target_alive(t))
		status = fail_with(e, open.code, &open);
	return status < 0 ? status : 0;
}
