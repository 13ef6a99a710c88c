/* SPDX-License-Identifier: MIT */
/*
 * moments_kinds.h - what may happen to the target of moments.c, and who does it: happen().
 */
#ifndef DINST_TESTS_LIVE_MOMENTS_KINDS_H
#define DINST_TESTS_LIVE_MOMENTS_KINDS_H

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/live/harness_session.h"
#include "tests/live/targets/moments.h"

enum { ANSWER_US = 4000, STORM = 200 };

/* What may become of the target. */
enum fate { LIVES, DIES, EXECUTES };

struct kind {
	const char *name;
	const char *commands;		/* to the target */
	void (*act)(struct harness *h); /* or what we do */
	enum fate fate;
	int signal; /* of which it dies */
};

static struct moments *shared;
static int sent;	 /* commands */
static int later_signal; /* to be sent a while after the moment */
static unsigned long want_handled, want_queued;

static void kill_it(struct harness *h)
{
	kill(h->pid, SIGKILL);
}

static void kill_thread(struct harness *h)
{
	for (int i = 0; i < 64; i++)
		if (shared->threads[i] && !syscall(SYS_tgkill, h->pid, shared->threads[i], SIGBUS))
			return;
	kill(h->pid, SIGBUS);
}

static void stop_it(struct harness *h)
{
	kill(h->pid, SIGSTOP);
	later_signal = SIGCONT;
}

static void stop_and_go(struct harness *h)
{
	kill(h->pid, SIGSTOP);
	kill(h->pid, SIGCONT);
}

static void storm(struct harness *h)
{
	const union sigval value = {0};

	for (int i = 0; i < STORM; i++)
		if (!sigqueue(h->pid, SIGRTMIN, value))
			want_queued++;
}

/* One that is pending already is not pending twice. */
static void handled(struct harness *h)
{
	for (int i = 0; i < 64; i++)
		if (shared->threads[i] && !syscall(SYS_tgkill, h->pid, shared->threads[i], SIGUSR1))
			want_handled++;
}

static void trace_it(struct harness *h)
{
	if (ptrace(PTRACE_SEIZE, h->pid, NULL, NULL))
		return;
	usleep(2000);
	if (!ptrace(PTRACE_INTERRUPT, h->pid, NULL, NULL)) {
		waitpid(h->pid, NULL, __WALL);
		ptrace(PTRACE_DETACH, h->pid, NULL, NULL);
	}
}

static void attach_too(struct harness *h)
{
	struct dinst_error e = {0};
	struct session *s;

	if (session_attach(h->pid, "other", &s, &e) >= 0)
		session_free(s);
}

static void replace(struct harness *h)
{
	char from[128], to[128];

	snprintf(from, sizeof(from), "%s/other", h->directory);
	snprintf(to, sizeof(to), "%s/moments", h->directory);
	if (rename(from, to))
		fail_msg("rename: %s", strerror(errno));
}

static const struct kind kinds[] = {
	{"killed", NULL, kill_it, DIES, SIGKILL},
	{"thread-killed", NULL, kill_thread, DIES, SIGBUS},
	{"stopped", NULL, stop_it, LIVES, 0},
	{"stopped-and-continued", NULL, stop_and_go, LIVES, 0},
	{"storm", NULL, storm, LIVES, 0},
	{"signals", NULL, handled, LIVES, 0},
	{"thread-ends", "e", NULL, LIVES, 0},
	{"leader-ends", "l", NULL, LIVES, 0},
	{"thread-born", "b", NULL, LIVES, 0},
	{"threads-stay", "BBB", NULL, LIVES, 0},
	{"forks", "f", NULL, LIVES, 0},
	{"forks-long", "FF", NULL, LIVES, 0},
	{"forks-and-leader-ends", "Fl", NULL, LIVES, 0},
	{"vforks", "v", NULL, LIVES, 0},
	{"spawns", "s", NULL, LIVES, 0},
	{"forks-executes", "E", NULL, LIVES, 0},
	{"executes", "x", NULL, EXECUTES, 0},
	{"forks-and-executes", "Fx", NULL, EXECUTES, 0},
	{"executes-nothing", "X", NULL, LIVES, 0},
	{"unloads", "c", NULL, LIVES, 0},
	{"reloads", "co", NULL, LIVES, 0},
	{"unloads-forks-loads", "cFo", NULL, LIVES, 0},
	{"crowd", "m", NULL, LIVES, 0},
	{"crowd-goes", "mup", NULL, LIVES, 0},
	{"traced", NULL, trace_it, LIVES, 0},
	{"attached-too", NULL, attach_too, LIVES, 0},
	{"replaced", NULL, replace, LIVES, 0},
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static inline void happen(struct harness *h, const struct kind *kind)
{
	if (kind->act)
		kind->act(h);
	if (!kind->commands)
		return;
	harness_send(h, kind->commands);
	sent += (int)strlen(kind->commands);
	for (int us = 0; us < ANSWER_US && __atomic_load_n(&shared->done, __ATOMIC_SEQ_CST) < sent;
	     us += 100)
		usleep(100);
}

#endif
