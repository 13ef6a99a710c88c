/* SPDX-License-Identifier: MIT */
/*
 * stop_sharers.c - processes other than the target that are in its memory.
 *
 * Such a process is mostly the child of a vfork(), of posix_spawn() or the like, about to execute
 * another program. Where that has privileges of its own (set-uid, capabilities of the file, a domain
 * of a security module) the kernel withholds them from a process that is traced (LSM_UNSAFE_PTRACE),
 * so such a child is never seized: nor would it be of any use, for the thread that waits for
 * it does not stop before it has gone. So nobody is seized before the thread that created it stands still.
 */
#include <dirent.h>
#include <errno.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inject/control.h"
#include "inject/tasks.h"

bool stop_shares_memory(struct stop *s, pid_t pid)
{
	return task_same_memory(target_memory_tid(s->target), pid);
}

static bool is_in_stop(const struct stop *s, pid_t pid)
{
	for (size_t g = 0; g < s->groups.count; g++)
		if (s->groups.ids[g] == pid)
			return true;
	return false;
}

int stop_find_sharers(struct stop *s, const struct held *h, bool *more)
{
	struct proc_ids children = {0};
	int error = proc_children(h->tgid, h->pub.tid, &children);

	for (size_t i = 0; !error && i < children.count; i++) {
		if (is_in_stop(s, children.ids[i]) ||
		    !task_same_memory(h->pub.tid, children.ids[i]))
			continue;
		if (!h->stopped) {
			s->overlooked = true;
			continue;
		}
		error = proc_ids_add(&s->groups, children.ids[i]);
		*more = true;
	}
	proc_ids_release(&children);
	/* It has ended, or the kernel does not tell (CONFIG_PROC_CHILDREN). */
	return error == -ENOENT || error == -ESRCH ? 0 : error;
}

/*
 * 1 if a thread of `parent` that created process `pid` sleeps as one in vfork() does; 0, also where that is kept from
 * us; or why nobody can look now.
 */
static int is_awaited_by(pid_t pid, pid_t parent)
{
	struct proc_ids tasks = {0}, children = {0};
	struct proc_stat stat;
	bool awaited = false;
	int error = proc_unless_kept(proc_tasks(parent, &tasks));

	for (size_t i = 0; !awaited && !error && i < tasks.count; i++) {
		error = proc_thread_stat_read(parent, tasks.ids[i], &stat);
		if (!error && stat.state == 'D')
			error = proc_children(parent, tasks.ids[i], &children);
		for (size_t n = 0; n < children.count; n++)
			awaited |= children.ids[n] == pid;
		proc_ids_release(&children);
		error = proc_unless_kept(error);
	}
	proc_ids_release(&tasks);
	return awaited ? 1 : error;
}

/* And who created that one, as far as they share the memory: each of them may be in the middle of what is written. */
int stop_find_creator(struct stop *s, struct dinst_error *e)
{
	const struct target *t = s->target;
	struct proc_stat stat;
	pid_t pid = t->pid;
	int error, awaited = 0;

	while (!(error = proc_stat_read(pid, &stat)) && stat.parent > 0 &&
	       stop_shares_memory(s, stat.parent)) {
		awaited = is_awaited_by(pid, stat.parent);
		if (awaited < 0)
			break;
		if (awaited)
			return dinst_fail(
				e, DINST_BUSY,
				"process %d (%s) has yet to execute its program: process %d waits for that in vfork(), and stopping it might take privileges from the program; try again later",
				(int)pid, stat.name, (int)stat.parent);
		pid = stat.parent;
		if (proc_ids_add(&s->groups, pid))
			return dinst_fail(e, DINST_NO_MEMORY,
					  "no memory for the stop of process %d", (int)t->pid);
	}
	error = awaited < 0 ? awaited : proc_is_lack(error) ? error : 0;
	return error ? dinst_fail_errno(e, DINST_BUSY, -error,
					"cannot look for who has created process %d (%s)", (int)pid,
					t->name)
		     : 0;
}

/* Only where the kernel itself says so: who cannot be looked at is mostly somebody else's. */
static bool is_same_memory(pid_t a, pid_t b)
{
	return syscall(SYS_kcmp, a, b, KCMP_VM, 0, 0) == 0;
}

int target_find_sharers(const struct target *t, struct proc_ids *out, struct dinst_error *e)
{
	const pid_t tid = target_memory_tid(t);
	struct proc_stat stat;
	struct dirent *entry;
	DIR *proc = opendir("/proc");
	int error = 0;

	if (!proc)
		return dinst_fail_errno(e, DINST_NO_MEMORY, errno, "cannot list all processes");
	while (!error && (entry = proc_next(proc, &error))) {
		const pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (pid <= 0 || pid == t->pid || !is_same_memory(tid, pid))
			continue;
		error = proc_stat_read(pid, &stat);
		/* A worker of the kernel (vhost) borrows the memory, and executes nothing there. */
		if (!error && !(stat.flags & PROC_KERNEL_THREAD))
			error = proc_ids_add(out, pid);
		error = proc_unless_gone(error);
	}
	closedir(proc);
	return error ? dinst_fail_errno(e, DINST_NO_MEMORY, -error, "cannot list all processes")
		     : 0;
}

int stop_check_sharers(struct stop *s, const struct proc_ids *sharers, struct dinst_error *e)
{
	const pid_t tid = target_memory_tid(s->target);
	struct proc_stat stat;
	int error;

	for (size_t i = 0; i < sharers->count; i++) {
		const pid_t pid = sharers->ids[i];

		if (is_in_stop(s, pid) || !is_same_memory(tid, pid))
			continue;
		error = proc_stat_read(pid, &stat);
		if (error && !proc_unless_gone(error))
			continue;
		if (error)
			snprintf(stat.name, sizeof(stat.name), "?");
		return dinst_fail(
			e, DINST_REFUSED,
			"process %d (%s) is in the memory of process %d, and neither its child nor its creator (clone(2) with CLONE_VM; its creator has ended, or CLONE_PARENT): it cannot be stopped along with it, and would run through what is half written; instrument them when it has ended",
			(int)pid, stat.name, (int)s->target->pid);
	}
	return 0;
}
