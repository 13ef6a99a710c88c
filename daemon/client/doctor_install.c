/* SPDX-License-Identifier: MIT */
/*
 * doctor_install.c - is dinst itself complete: its other programs and whether they can be
 * executed, its metrics, the place of its socket.
 *
 * Starts the programs for a moment, with an option that makes them end at once. Never a daemon.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/client/command.h"
#include "daemon/client/doctor.h"
#include "daemon/common/metrics.h"
#include "daemon/common/paths.h"

extern char **environ;

enum { CANNOT_EXECUTE = 127 /* of the dynamic linker, where a library is missing */ };

static void fill(struct target_check *c, const char *check, bool ok, const char *why,
		 const char *fix)
{
	c->check = check;
	c->ok = ok;
	snprintf(c->why, sizeof(c->why), "%s", why);
	snprintf(c->fix, sizeof(c->fix), "%s", ok ? "" : fix);
}

/* Reads what a child says into text[size], to its end; its first line is kept. */
static void hear(int fd, char *text, size_t size)
{
	size_t used = 0;
	char drop[256];
	ssize_t n;

	while ((n = read(fd, used < size - 1 ? text + used : drop,
			 used < size - 1 ? size - 1 - used : sizeof(drop))) > 0 ||
	       (n < 0 && errno == EINTR))
		if (n > 0 && used < size - 1)
			used += (size_t)n;
	text[used] = '\0';
	text[strcspn(text, "\n")] = '\0';
}

/* The exit status of `path`, and the first line that it says; negative: it cannot be executed. */
static int run(const char *path, char *option, char *why, size_t size)
{
	char *argv[] = {(char *)(uintptr_t)path, option, NULL};
	posix_spawn_file_actions_t actions;
	siginfo_t info = {0};
	int out[2], err;
	pid_t pid;

	if (pipe2(out, O_CLOEXEC) != 0) {
		snprintf(why, size, "cannot make a pipe: %s", strerror(errno));
		return -1;
	}
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, out[1], 1);
	posix_spawn_file_actions_adddup2(&actions, out[1], 2);
	err = posix_spawn(&pid, path, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(out[1]);
	if (err) {
		close(out[0]);
		snprintf(why, size, "%.180s: %s", path, strerror(err));
		return -1;
	}
	hear(out[0], why, size);
	close(out[0]);
	while (waitid(P_PID, (id_t)pid, &info, WEXITED) != 0 && errno == EINTR)
		;
	return info.si_code == CLD_EXITED && info.si_status != CANNOT_EXECUTE ? info.si_status : -1;
}

static void check_program(struct target_check *c, const char *check, const char *name,
			  const char *variable)
{
	char path[PATH_MAX], why[sizeof(c->why)], option[] = "--version";
	struct dinst_error e = {0, ""};

	if (program_find(name, variable, path, &e) != 0)
		fill(c, check, false, e.text,
		     "install all of dinst (make install), or set DINST_DAEMON and DINST_MUTATOR");
	else if (run(path, option, why, sizeof(why)) < 0)
		fill(c, check, false, why,
		     "install the libraries that are missing (README: bootstrap)");
	else {
		snprintf(why, sizeof(why), "%.200s", path);
		fill(c, check, true, why, "");
	}
}

/* What wall timers go by: nothing is wrong with any. False where the mutator does not tell. */
static bool check_clock(struct target_check *c)
{
	char path[PATH_MAX], why[sizeof(c->why)], option[] = "--clock";
	struct dinst_error e = {0, ""};

	if (program_find("dinst-mutator", "DINST_MUTATOR", path, &e) != 0 ||
	    run(path, option, why, sizeof(why)) != 0)
		return false;
	fill(c, "wall clock", true, why, "");
	return true;
}

static void check_metrics(struct target_check *c)
{
	struct mdl_library *l = NULL;
	struct dinst_error e = {0, ""};
	char *warnings = NULL, why[sizeof(c->why)];
	int err = mdl_library_create(&l, &e);
	json_t *rows = NULL;

	if (!err)
		err = mdl_library_load_installed(l, &warnings, &e);
	if (!err)
		rows = metric_rows(l);
	if (err || !json_array_size(rows)) {
		fill(c, "metrics", false, err ? e.text : "there are no metrics",
		     "install data/metrics (make install), or set DINST_METRICS to where it is");
	} else {
		snprintf(why, sizeof(why), "%zu metrics and constraints%s%s", json_array_size(rows),
			 warnings ? "; " : "", warnings ? warnings : "");
		fill(c, "metrics", true, why, "");
	}
	free(warnings);
	json_decref(rows);
	mdl_library_free(l);
}

static void check_socket(struct target_check *c)
{
	struct dinst_error e = {0, ""};
	struct socket_place place;
	char why[sizeof(c->why)];
	int err = socket_place_find(&place, NULL, &e);

	if (!err)
		err = socket_place_open(&place, false, &e);
	snprintf(why, sizeof(why), "%.200s", err ? e.text : place.path);
	/* a directory that is not there yet is made when the daemon is started */
	if (err == DINST_DAEMON)
		snprintf(why, sizeof(why), "%.180s, which is made when it is needed", place.path);
	fill(c, "socket", !err || err == DINST_DAEMON, why,
	     "set DINST_SOCKET to a path in a directory of your own with mode 0700");
	if (!err)
		socket_place_close(&place);
}

size_t install_checks(struct target_check *checks, size_t max)
{
	if (max < INSTALL_CHECKS)
		return 0;
	check_program(&checks[0], "daemon", "dinstd", "DINST_DAEMON");
	check_program(&checks[1], "mutator", "dinst-mutator", "DINST_MUTATOR");
	check_metrics(&checks[2]);
	check_socket(&checks[3]);
	return check_clock(&checks[4]) ? INSTALL_CHECKS : INSTALL_CHECKS - 1;
}
