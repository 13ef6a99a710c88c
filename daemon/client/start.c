/* SPDX-License-Identifier: MIT */
/*
 * start.c - starting a daemon from the client, as tmux does.
 *
 * Owns the double fork: the daemon belongs to a session of its own, has no
 * terminal and no descriptor of ours, and logs to a file beside the socket.
 * Two clients may do this at the same time: the lock decides, and the loser
 * hears "busy" and connects.
 */
#include "daemon/client/connect.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { START_WAIT_MS = 10000, LOG_MAX = 1 << 20, READY_FD = 3 };

/* The log starts again where it has become long; the old one is kept once. */
static int open_log(const struct socket_place *place, struct dinst_error *e)
{
	char old[NAME_MAX + 8];
	struct stat st;
	int fd;

	if (fstatat(place->fd, place->log, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size > LOG_MAX) {
		snprintf(old, sizeof(old), "%.200s.old", place->log);
		renameat(place->fd, place->log, place->fd, old);
	}
	fd = openat(place->fd, place->log,
		    O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (fd < 0)
		return dinst_fail_errno(e, DINST_FAILED, errno, "cannot open the log %s/%s",
					place->directory, place->log);
	if (!file_is_own(fd)) {
		close(fd);
		return dinst_fail(e, DINST_NOT_PERMITTED, "the log %s/%s is not ours",
				  place->directory, place->log);
	}
	return fd;
}

/* Of a caller that has none of 0 to 2 open, ours may be there: they go to where they are not in the way. */
static int above(int fd)
{
	return fcntl(fd, F_DUPFD_CLOEXEC, READY_FD + 1);
}

/* In the grandchild: becomes the daemon. Only returns on failure. */
static void become_daemon(const char *program, const struct socket_place *place, int log, int ready)
{
	char number[16];
	int null;

	snprintf(number, sizeof(number), "%d", READY_FD);
	null = above(open("/dev/null", O_RDWR | O_CLOEXEC));
	log = above(log);
	ready = above(ready);
	if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(log, 2) < 0 ||
	    dup2(ready, READY_FD) < 0)
		return;
	/* nothing that our caller has open stays open because of a daemon */
	if (close_range(READY_FD + 1, ~0U, 0) != 0)
		for (int fd = READY_FD + 1; fd < 65536; fd++)
			close(fd);
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	umask(077);
	if (place->chosen)
		execl(program, program, "--ready", number, "--socket", place->path, (char *)NULL);
	else
		execl(program, program, "--ready", number, (char *)NULL);
	dprintf(READY_FD, "%s cannot execute %s: %s\n", dinst_code_name(DINST_DAEMON), program,
		strerror(errno));
}

static int fork_daemon(const char *program, const struct socket_place *place, int log, int ready,
		       struct dinst_error *e)
{
	siginfo_t info;
	sigset_t none;
	pid_t child;

	child = fork();
	if (child < 0)
		return dinst_fail_errno(e, DINST_DAEMON, errno, "cannot fork to start the daemon");
	if (child == 0) {
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		setsid();
		child = fork();
		if (child == 0)
			become_daemon(program, place, log, ready);
		if (child < 0)
			dprintf(ready, "%s cannot fork to start the daemon: %s\n",
				dinst_code_name(DINST_DAEMON), strerror(errno));
		_exit(0);
	}
	while (waitid(P_PID, (id_t)child, &info, WEXITED) != 0 && errno == EINTR)
		;
	return 0;
}

/* Reads "ok", or the word and text of an error. */
static int read_verdict(int ready, const struct socket_place *place, struct dinst_error *e)
{
	struct pollfd fd = {ready, POLLIN, 0};
	char line[DINST_ERROR_TEXT + 40];
	size_t used = 0;
	ssize_t n = 0;
	char *space;

	while (used < sizeof(line) - 1) {
		const int came = poll(&fd, 1, START_WAIT_MS);

		if (came < 0 && errno == EINTR && !link_interrupted)
			continue;
		if (came <= 0)
			break;
		n = read(ready, line + used, sizeof(line) - 1 - used);
		if (n <= 0)
			break;
		used += (size_t)n;
	}
	line[used] = '\0';
	line[strcspn(line, "\n")] = '\0';
	if (strcmp(line, "ok") == 0)
		return 0;
	space = strchr(line, ' ');
	if (!space)
		return dinst_fail(e, DINST_FAILED, "the daemon did not start; its log is %s/%s",
				  place->directory, place->log);
	*space = '\0';
	return dinst_fail(e, dinst_code_from_name(line), "%s", space + 1);
}

int daemon_start(const struct socket_place *where, struct dinst_error *e)
{
	struct socket_place place = *where;
	char program[PATH_MAX];
	int ready[2] = {-1, -1};
	int log = -1, err;

	place.fd = -1;
	err = program_find("dinstd", "DINST_DAEMON", program, e);
	if (!err)
		err = socket_place_open(&place, true, e);
	if (err)
		return err == DINST_DAEMON ? DINST_FAILED : err;
	log = open_log(&place, e);
	if (log < 0)
		err = log;
	else if (pipe2(ready, O_CLOEXEC) != 0)
		err = dinst_fail_errno(e, DINST_FAILED, errno, "cannot make a pipe");
	else
		err = fork_daemon(program, &place, log, ready[1], e);
	if (ready[1] >= 0)
		close(ready[1]);
	if (!err)
		err = read_verdict(ready[0], &place, e);
	if (ready[0] >= 0)
		close(ready[0]);
	if (log >= 0)
		close(log);
	socket_place_close(&place);
	return err;
}
