/* SPDX-License-Identifier: MIT */
/* inject_proc_open.c - files of tasks that end: told as not there, and nobody who goes first waits for their end. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "inject/proc.h"
#include "inject/proc_open.h"

static bool has_ended(const char *format, int a, int b)
{
	char path[64];

	snprintf(path, sizeof(path), format, a, b);
	return proc_has_ended(path);
}

static void *tell_id(void *id)
{
	*(pid_t *)id = gettid();
	return NULL;
}

static void test_paths(void **state)
{
	const int self = getpid();
	pthread_t thread;
	pid_t tid = 0, child;
	siginfo_t info;
	char path[64];

	(void)state;
	errno = EDOM;
	assert_false(proc_has_ended("/proc/self/stat"));
	assert_false(proc_has_ended("/proc/loadavg"));
	assert_false(proc_has_ended("/proc"));
	assert_false(proc_has_ended("/etc/passwd"));
	assert_false(has_ended("/proc/%d/task/%d/stat", self, self));
	assert_false(has_ended("/proc/%d/fd/%d", self, 1 << 22));
	assert_int_equal(errno, EDOM);
	assert_int_equal(pthread_create(&thread, NULL, tell_id, &tid), 0);
	pthread_join(thread, NULL);
	/* It is joined a moment before it has no number any more. */
	while (!syscall(SYS_tgkill, self, tid, 0))
		usleep(100);
	assert_true(has_ended("/proc/%d/task/%d/stat", self, tid));
	assert_true(has_ended("/proc/%d/task/%d", self, tid));
	child = fork();
	if (!child)
		_exit(0);
	assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
	/* It has ended, and may be looked at. */
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)child);
	assert_false(proc_has_ended(path));
	assert_int_equal(close(proc_open(path, O_RDONLY)), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	errno = 0;
	assert_true(proc_has_ended(path));
	assert_int_equal(errno, ENOENT);
	assert_int_equal(proc_open(path, O_RDONLY), -1);
	assert_int_equal(errno, ENOENT);
	assert_null(proc_fopen(path));
	assert_null(proc_opendir(path));
}

/* Children that end at once, and are reaped by nobody; each is told when it has been looked at. */
static _Noreturn void make_children(int to)
{
	struct proc_stat stat;

	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		const pid_t child = fork();

		if (!child)
			_exit(0);
		if (child < 0 || write(to, &child, sizeof(child)) != sizeof(child))
			_exit(1);
		/* The kernel keeps what it is to forget then. */
		proc_stat_read(child, &stat);
		proc_thread_stat_read(child, child, &stat);
	}
}

static int64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

enum { PAUSES = 4000, CPU_NS_MOST = 200 * 1000 * 1000 };

/*
 * fear K2: who has taken the processor, to go first, from a task that is just ending does not spin until that has
 * ended. Without the look before it takes a second of the processor, which the kernel ends.
 */
static void test_who_goes_first(void **state)
{
	const struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_RR)};
	const struct sched_param none = {0};
	unsigned looks = 0, seed = 1;
	struct proc_stat stat;
	int64_t worst = 0;
	cpu_set_t before, here;
	pid_t maker, child;
	int ends[2];

	(void)state;
	if (sched_setscheduler(0, SCHED_RR, &lowest)) {
		print_message("skipped: nobody may go first here\n");
		skip();
	}
	assert_int_equal(sched_setscheduler(0, SCHED_OTHER, &none), 0);
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	assert_int_equal(sched_setaffinity(0, sizeof(here), &here), 0);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	maker = fork();
	if (!maker)
		make_children(ends[1]);
	assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(sched_setscheduler(0, SCHED_RR, &lowest), 0);
	for (int n = 0; n < PAUSES; n++) {
		usleep((unsigned)rand_r(&seed) % 400 + 50);
		while (read(ends[0], &child, sizeof(child)) == sizeof(child)) {
			const int64_t began = cpu_ns();

			(void)proc_stat_read(child, &stat);
			if (cpu_ns() - began > worst)
				worst = cpu_ns() - began;
			looks++;
		}
	}
	assert_int_equal(sched_setscheduler(0, SCHED_OTHER, &none), 0);
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
	kill(maker, SIGKILL);
	assert_int_equal(waitpid(maker, NULL, 0), maker);
	close(ends[0]);
	close(ends[1]);
	assert_true(looks > PAUSES / 10);
	assert_in_range(worst, 0, CPU_NS_MOST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_who_goes_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
