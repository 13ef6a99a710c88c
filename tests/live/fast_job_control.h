/* SPDX-License-Identifier: MIT */
/*
 * fast_job_control.h - somebody who stops and continues a process faster than it can make a
 * system call: begun by start_fast_job_control(), ended by end_job_control().
 */
#ifndef DINST_TESTS_LIVE_FAST_JOB_CONTROL_H
#define DINST_TESTS_LIVE_FAST_JOB_CONTROL_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/target.h"
#include "tests/live/harness.h"

/* When it begins, clock_ns(); 0: it rests. Shared with who does it. */
typedef _Atomic uint64_t storm_from;

static inline storm_from *make_storm(void)
{
	storm_from *from = mmap(NULL, sizeof(*from), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(from != MAP_FAILED);
	return from;
}

/* Without a break, or with one of 10 ms after each 20. */
static inline pid_t start_fast_job_control(pid_t target, const storm_from *from, bool pauses)
{
	uint64_t until;
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		until = clock_ns() + 20000000;
		while (clock_ns() < until) {
			if (!*from || clock_ns() < *from)
				continue;
			kill(target, SIGSTOP);
			kill(target, SIGCONT);
		}
		if (pauses)
			usleep(10000);
	}
}

static inline void end_job_control(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

#endif
