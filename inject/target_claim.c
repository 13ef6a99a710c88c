/* SPDX-License-Identifier: MIT */
/*
 * target_claim.c - one dinst at a time works on a process.
 *
 * The claim is a lock on a file of /proc that belongs to the target, so it is
 * seen by every daemon of every user, is gone when its holder is, in whatever
 * way it ends, and can be taken only by those who may look into the target.
 * Nothing of it is in the target.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "inject/control.h"
#include "inject/proc_open.h"

enum { PAUSE_US = 20 * 1000, UNSEEN_MAX = 10 };

/* A line of /proc/locks (proc(5)): "NUMBER: FLOCK KIND WRITE PID MAJOR:MINOR:INODE ...", of this file? */
static bool is_held_by(const char *line, const struct stat *st, uint64_t *pid)
{
	static const char kind[] = " WRITE ";
	const char *at = strstr(line, ": FLOCK ") ? strstr(line, kind) : NULL;
	uint64_t device[2], inode;

	if (!at)
		return false;
	at += sizeof(kind) - 1;
	if (!proc_number(&at, 10, pid) || !proc_number(&at, 16, &device[0]) || *at++ != ':' ||
	    !proc_number(&at, 16, &device[1]) || *at++ != ':' || !proc_number(&at, 10, &inode))
		return false;
	return inode == st->st_ino &&
	       makedev((unsigned)device[0], (unsigned)device[1]) == st->st_dev;
}

/* 0: it is not told. */
static pid_t find_holder(int fd)
{
	uint64_t pid, found = 0;
	struct stat st;
	char line[256];
	FILE *locks;

	if (fstat(fd, &st))
		return 0;
	locks = fopen("/proc/locks", "re");
	while (locks && !found && fgets(line, sizeof(line), locks))
		if (is_held_by(line, &st, &pid))
			found = pid;
	if (locks)
		fclose(locks);
	return (pid_t)found;
}

/* What is known of who has the claim. */
struct holder {
	pid_t pid;    /* 0: it cannot be told */
	pid_t daemon; /* its own one, 0 if that is gone, or has to go */
	unsigned uid;
	bool leaves; /* it will end by itself before long */
	bool killed; /* it ends, and has yet to be given a CPU for that */
};

/*
 * A mutator whose daemon has died, or has let go of it, finishes the request
 * that it works on and ends. A test's process is no mutator. Whoever was killed
 * keeps the claim until it has had a CPU to end on.
 */
static void look_at_holder(int fd, struct holder *h, unsigned *unseen)
{
	struct proc_stat parent, self;
	struct proc_status own;

	*h = (struct holder){.pid = find_holder(fd)};
	/* It may have let go between two looks; one in another pid namespace is never told. */
	if (!h->pid || proc_status_read(h->pid, &own)) {
		h->leaves = h->pid || ++*unseen < UNSEEN_MAX;
		return;
	}
	h->uid = own.uid[0];
	/* One that was killed keeps its children until the last of its threads has ended. */
	if (!proc_stat_read(own.parent, &parent) && !strcmp(parent.name, "dinstd") &&
	    !proc_has_to_end(&parent))
		h->daemon = own.parent;
	h->leaves = !strcmp(own.name, "dinst-mutator") && (!h->daemon || h->daemon == getppid());
	h->killed = !proc_stat_read(h->pid, &self) && proc_has_to_end(&self);
	h->leaves = h->leaves || h->killed;
}

static int tell_holder(const struct target *t, const struct holder *h, struct dinst_error *e)
{
	char whose[80] = "";

	if (!h->pid)
		return dinst_fail(e, DINST_BUSY,
				  "process %d (%s) is being instrumented by another dinst, which "
				  "cannot be seen from here; detach that session first",
				  (int)t->pid, t->name);
	if (h->killed)
		snprintf(whose, sizeof(whose), ", which was killed and has yet to end");
	else if (h->daemon)
		snprintf(whose, sizeof(whose), ", of daemon %d", (int)h->daemon);
	else if (h->leaves)
		snprintf(whose, sizeof(whose), ", whose daemon has ended and which will end soon");
	return dinst_fail(e, DINST_BUSY,
			  "process %d (%s) is being instrumented by process %d of user %u%s; %s",
			  (int)t->pid, t->name, (int)h->pid, h->uid, whose,
			  h->leaves ? "try again later" : "detach that session first");
}

int target_claim(struct target *t, unsigned wait_ms, struct dinst_error *e)
{
	const uint64_t deadline = clock_ns() + (uint64_t)wait_ms * 1000000;
	struct holder holder;
	unsigned unseen = 0;
	char path[64];
	int fd, error;

	if (t->claim >= 0)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/personality", (int)t->pid);
	fd = proc_open(path, O_RDONLY);
	error = fd < 0 ? errno : 0;
	if (error && !target_alive(t))
		return dinst_fail(e, DINST_GONE, "process %d (%s) has ended", (int)t->pid, t->name);
	/* CAP_SYS_PTRACE alone does not open it; the journal names its owner all the same. */
	if (error == EACCES || error == EPERM)
		return 0;
	if (error)
		return dinst_fail_errno(e, DINST_FAILED, error,
					"cannot find out whether another dinst works on process "
					"%d (%s): %s",
					(int)t->pid, t->name, path);
	while (flock(fd, LOCK_EX | LOCK_NB)) {
		if (errno == EINTR)
			continue;
		/* The kernel has no memory for one (flock(2)): somebody else may have it, or be given it. */
		error = errno == ENOLCK || errno == ENOMEM ? errno : 0;
		if (error) {
			close(fd);
			return dinst_fail_errno(e, DINST_BUSY, error,
						"cannot claim process %d (%s)", (int)t->pid,
						t->name);
		}
		if (errno != EWOULDBLOCK)
			break; /* a kernel, or something like one, that has no locks there */
		look_at_holder(fd, &holder, &unseen);
		if (!holder.leaves || clock_ns() >= deadline) {
			close(fd);
			return tell_holder(t, &holder, e);
		}
		usleep(PAUSE_US);
	}
	t->claim = fd;
	return 0;
}

void target_unclaim(struct target *t)
{
	if (t->claim >= 0)
		close(t->claim);
	t->claim = -1;
}
