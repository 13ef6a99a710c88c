/* SPDX-License-Identifier: MIT */
/*
 * inject_proc.c - what /proc says about ourselves, under names that were chosen to
 * mislead a parser.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "inject/proc.h"

static void test_names(void **state)
{
	static const char *const names[] = {"plain", ") R 1 (", "a b)c(", "(((", "x\ty", ""};
	struct proc_stat stat;
	struct proc_status status;
	uint64_t start = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		prctl(PR_SET_NAME, names[i]);
		assert_int_equal(proc_stat_read(getpid(), &stat), 0);
		assert_string_equal(stat.name, names[i]);
		assert_int_equal(stat.parent, getppid());
		assert_int_equal(stat.state, 'R');
		assert_true(!start || stat.start_time == start);
		start = stat.start_time;
		assert_int_equal(proc_status_read(getpid(), &status), 0);
		assert_int_equal(status.tgid, getpid());
		assert_int_equal(status.parent, getppid());
		assert_int_equal(status.tracer, 0);
		assert_int_equal(status.uid[1], geteuid());
		assert_int_equal(status.gid[2], getgid());
		assert_int_equal(status.threads, 1);
	}
	/* A name cannot bring in a line of its own: the kernel escapes it. */
	prctl(PR_SET_NAME, "a\nUid:\t9");
	assert_int_equal(proc_status_read(getpid(), &status), 0);
	assert_int_equal(status.uid[0], getuid());
	prctl(PR_SET_NAME, "proc");
}

/* What was spent, as others tell it that know: each figure lies between two of theirs. */
static void test_figures(void **state)
{
	const long hz = sysconf(_SC_CLK_TCK);
	struct rusage before, after;
	unsigned long pages = 0;
	struct proc_stat stat;
	uint64_t ticks;
	FILE *f;

	(void)state;
	do {
		assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
	} while (before.ru_utime.tv_sec * 1000000 + before.ru_utime.tv_usec < 60000);
	assert_int_equal(proc_stat_read(getpid(), &stat), 0);
	assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
	ticks = ((uint64_t)(after.ru_utime.tv_sec + after.ru_stime.tv_sec) * 1000000 +
		 (uint64_t)(after.ru_utime.tv_usec + after.ru_stime.tv_usec)) *
		(uint64_t)hz / 1000000;
	assert_in_range(stat.user_ticks, 60 * (uint64_t)hz / 1000 - 1, ticks);
	assert_in_range(stat.user_ticks + stat.system_ticks, stat.user_ticks, ticks);
	assert_in_range(stat.major_faults, before.ru_majflt, after.ru_majflt);
	f = fopen("/proc/self/statm", "re");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%*u %lu", &pages), 1);
	fclose(f);
	/* The kernel adds them up in batches, and reading takes some. */
	assert_in_range(stat.resident_pages, pages / 2, pages * 2);
}

/* fear J2: who has been killed is told from who lives before the kernel has let it end */
static void test_has_to_end(void **state)
{
	const uint64_t killed = UINT64_C(1) << (SIGKILL - 1), sent = UINT64_C(1) << (SIGUSR1 - 1);
	struct proc_stat stat;
	sigset_t usr1, old;
	pid_t child;
	int got;

	(void)state;
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &usr1, &old), 0);
	assert_int_equal(raise(SIGUSR1), 0);
	assert_int_equal(proc_stat_read(getpid(), &stat), 0);
	assert_int_equal(sigwait(&usr1, &got), 0);
	assert_int_equal(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
	assert_true(stat.pending == sent);
	assert_false(proc_has_to_end(&stat));
	stat.pending |= killed;
	assert_true(proc_has_to_end(&stat));
	stat.pending = 0;
	stat.flags |= PROC_EXITING;
	assert_true(proc_has_to_end(&stat));
	child = fork();
	if (!child)
		_exit(0);
	do {
		assert_int_equal(proc_stat_read(child, &stat), 0);
	} while (stat.state != 'Z');
	assert_true(proc_has_to_end(&stat));
	assert_int_equal(waitpid(child, NULL, 0), child);
}

/* fear A10: a thread of the kernel's is told by flags that older ones give to threads which have to be stopped */
static void test_worker_flags(void **state)
{
	static const struct {
		const char *release;
		unsigned flags;
	} cases[] = {
		{"4.18.0-553.el8_10.x86_64", 0},
		{"5.10.0-30-amd64", PROC_IO_WORKER},
		{"5.11.22", PROC_IO_WORKER},
		{"5.12.0", PROC_IO_WORKER},
		{"5.12", PROC_IO_WORKER},
		{"5.4.0-200-generic", 0},
		{"5.9.16", 0},
		{"5.10.245-242.959.amzn2.x86_64", PROC_IO_WORKER},
		{"6.1.0-18-amd64", PROC_IO_WORKER},
		{"6.3.13", PROC_IO_WORKER},
		{"6.4", PROC_IO_WORKER | PROC_USER_WORKER},
		{"6.4-rc1", PROC_IO_WORKER | PROC_USER_WORKER},
		{"6.18.5+", PROC_IO_WORKER | PROC_USER_WORKER},
		{"7.0.0", PROC_IO_WORKER | PROC_USER_WORKER},
		{"garbage", PROC_IO_WORKER | PROC_USER_WORKER},
		{"", PROC_IO_WORKER | PROC_USER_WORKER},
	};
	struct proc_stat stat;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (proc_worker_flags(cases[i].release) != cases[i].flags)
			fail_msg("%s: %#x, not %#x", cases[i].release,
				 proc_worker_flags(cases[i].release), cases[i].flags);
	assert_int_equal(proc_stat_read(getpid(), &stat), 0);
	assert_false(proc_is_worker(&stat));
}

static void test_nobody(void **state)
{
	struct proc_status status;
	struct proc_stat stat;
	struct proc_ids ids = {0};
	char word[16];

	(void)state;
	assert_true(proc_stat_read(0x3ffffffe, &stat) < 0);
	assert_true(proc_status_read(0x3ffffffe, &status) < 0);
	assert_true(proc_tasks(0x3ffffffe, &ids) < 0);
	assert_true(proc_children(0x3ffffffe, 0x3ffffffe, &ids) < 0);
	assert_int_equal(ids.count, 0);
	assert_int_equal(proc_thread_count(0x3ffffffe), -1);
	proc_word(0x3ffffffe, "comm", word, sizeof(word));
	assert_string_equal(word, "?");
	proc_ids_release(&ids);
}

/* Whether a thread lives cannot be told without a descriptor. */
static void test_cannot_look(void **state)
{
	struct rlimit before, none;
	pid_t tid = 1;
	int error;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = (struct rlimit){0, before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	error = proc_memory_look(getpid(), NULL, &tid);
	setrlimit(RLIMIT_NOFILE, &before);
	assert_int_equal(error, -EMFILE);
	assert_int_equal(proc_memory_look(getpid(), NULL, &tid), 0);
	assert_int_equal(tid, getpid());
	assert_int_equal(proc_memory_look(0x3ffffffe, NULL, &tid), 0);
	assert_int_equal(tid, 0);
}

static bool has(const struct proc_ids *ids, pid_t id)
{
	for (size_t i = 0; i < ids->count; i++)
		if (ids->ids[i] == id)
			return true;
	return false;
}

/* The thread sanitizer has one of its own. */
#ifdef __SANITIZE_THREAD__
enum { OWN_THREADS = 2 };
#else
enum { OWN_THREADS = 1 };
#endif

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void *wait_at_gate(void *arg)
{
	__atomic_store_n((pid_t *)arg, gettid(), __ATOMIC_RELEASE);
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
	return NULL;
}

static void test_lists(void **state)
{
	struct proc_ids ids = {0};
	pid_t tid = 0, children[40];
	pthread_t thread;

	(void)state;
	pthread_mutex_lock(&gate);
	assert_int_equal(pthread_create(&thread, NULL, wait_at_gate, &tid), 0);
	while (!__atomic_load_n(&tid, __ATOMIC_ACQUIRE))
		;
	assert_int_equal(proc_tasks(getpid(), &ids), 0);
	assert_int_equal(ids.count, OWN_THREADS + 1);
	assert_int_equal(proc_thread_count(getpid()), OWN_THREADS + 1);
	assert_true(has(&ids, tid) && has(&ids, getpid()));
	pthread_mutex_unlock(&gate);
	pthread_join(thread, NULL);
	ids.count = 0;
	for (int i = 0; i < 40; i++) {
		children[i] = fork();
		if (!children[i]) {
			pause();
			_exit(0);
		}
	}
	assert_int_equal(proc_children(getpid(), getpid(), &ids), 0);
	assert_int_equal(ids.count, 40);
	for (int i = 0; i < 40; i++) {
		assert_true(has(&ids, children[i]));
		kill(children[i], SIGKILL);
		waitpid(children[i], NULL, 0);
	}
	proc_ids_release(&ids);
}

static void test_births(void **state)
{
	int fd = proc_births_open();
	long before, after;
	pid_t child;

	(void)state;
	if (fd < 0) {
		print_message("skipped: /proc/loadavg is not the kernel's here\n");
		skip();
	}
	before = proc_births(fd);
	assert_true(before > 0);
	child = fork();
	if (!child)
		_exit(0);
	after = proc_births(fd);
	waitpid(child, NULL, 0);
	assert_true(after != before);
	close(fd);
	assert_int_equal(proc_births(-1), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),	   cmocka_unit_test(test_figures),
		cmocka_unit_test(test_has_to_end), cmocka_unit_test(test_worker_flags),
		cmocka_unit_test(test_nobody),	   cmocka_unit_test(test_lists),
		cmocka_unit_test(test_births),	   cmocka_unit_test(test_cannot_look),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
