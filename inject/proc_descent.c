/* SPDX-License-Identifier: MIT */
/*
 * proc_descent.c - who was made by whom, as far as that can be seen: while somebody is looked at he may end, and so
 * may who lies between him and the one that is asked for, whose children are given to others then.
 */
#include <errno.h>
#include <string.h>

#include "inject/proc.h"

enum { ANCESTORS_MAX = 64 }; /* and looks */

/* 0, or why there is nothing to be seen of it: one that is being removed from the lists has no parent any more. */
static int look_at(pid_t pid, struct proc_stat *stat)
{
	const int error = proc_stat_read(pid, stat);

	return !error && !stat->parent && strchr("ZXx", stat->state) ? -ESRCH : error;
}

/*
 * 1: `of` made `pid`, or who made it, and so on; 0: it did not, as far as those in between live; or why nobody can tell:
 * -ESRCH, or -ENOENT, has ended. *parent is the one that was seen then.
 */
static int descends(pid_t pid, pid_t of, pid_t *parent)
{
	struct proc_stat stat;
	pid_t at = pid;
	int error;

	*parent = 0;
	for (int look = 0; look < ANCESTORS_MAX && at > 1; look++) {
		error = look_at(at, &stat);
		if (error && (at == pid || proc_is_lack(error)))
			return error;
		if (!error && at == pid)
			*parent = stat.parent;
		if (!error && stat.parent == of)
			return 1;
		/* Its children are another one's now. */
		at = error ? pid : stat.parent;
	}
	return at > 1 ? -EAGAIN : 0;
}

bool proc_descends(pid_t pid, pid_t of)
{
	pid_t parent;
	const int made = descends(pid, of, &parent);

	return made > 0 || proc_is_lack(made);
}

bool proc_may_descend(pid_t pid, pid_t of)
{
	pid_t parent, others;

	return of <= 0 || descends(pid, of, &parent) || parent <= 1 ||
	       descends(of, parent, &others);
}
