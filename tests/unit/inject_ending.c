/* SPDX-License-Identifier: MIT */
/*
 * inject_ending.c - what is told of processes that end while they are being looked at, at any moment of it: half of
 * what they had is not taken for all of it, nor are they taken for nobody's children.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "inject/maps.h"
#include "inject/proc.h"

enum { MAPPINGS = 600, PAGE = 4096, ENDS = 200, LIFE_US = 4000, LIFE_STEPS = 8 };
enum { THREAD_US = 200, THREAD_STEP_US = 30, THREAD_STEPS = 7, LIST_SECONDS = 4, BORN = 1000 };

/* A child that lives for a moment, and may leave one of its own that does. */
static pid_t begin(int n, bool leaves_one)
{
	const struct timespec life = {.tv_nsec =
					      LIFE_US * 1000l * (n % LIFE_STEPS + 1) / LIFE_STEPS};
	const pid_t child = fork();

	if (child)
		return child;
	if (leaves_one && !fork())
		nanosleep(&life, NULL);
	nanosleep(&life, NULL);
	_exit(0);
}

static void wait_for_all(void)
{
	while (waitpid(-1, NULL, 0) > 0)
		;
}

/* Alternately of one page and none: no two of them become one. */
static void have_many_mappings(void)
{
	uint8_t *at = mmap(NULL, MAPPINGS * 2l * PAGE, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_true(at != MAP_FAILED);
	for (long i = 0; i < MAPPINGS; i++)
		assert_int_equal(mprotect(at + i * 2 * PAGE, PAGE, PROT_READ), 0);
}

/* fear G1: the mappings of a process that ends while they are read, page by page, are all of them or none */
static void test_maps(void **state)
{
	size_t reads = 0;

	(void)state;
	have_many_mappings();
	for (int n = 0; n < ENDS; n++) {
		struct dinst_error e = {0};
		const pid_t child = begin(n, false);
		struct maps m;
		int status;

		assert_true(child > 0);
		/* The stack, or what lies beyond it, comes last. */
		while (!(status = maps_read(child, &m, &e))) {
			assert_true(m.entries[m.count - 1].hi > (uintptr_t)&n);
			maps_release(&m);
			reads++;
		}
		assert_int_equal(status, DINST_GONE);
		wait_for_all();
	}
	assert_true(reads > 0);
}

/* fear G1: a child of ours may be one until nothing is to be seen of it, whenever that is; and its child may */
static void test_may_descend(void **state)
{
	const pid_t own = getpid();

	(void)state;
	signal(SIGCHLD, SIG_IGN);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (int n = 0; n < ENDS; n++) {
		const pid_t child = begin(n, true);
		struct proc_ids grandchildren = {0};
		size_t looks = 0;

		assert_true(child > 0);
		proc_children(child, child, &grandchildren);
		while (!kill(child, 0) || (grandchildren.count && !kill(grandchildren.ids[0], 0))) {
			assert_true(proc_may_descend(child, own));
			if (grandchildren.count)
				assert_true(proc_may_descend(grandchildren.ids[0], own));
			if (!looks++ && !grandchildren.count)
				proc_children(child, child, &grandchildren);
		}
		proc_ids_release(&grandchildren);
	}
	signal(SIGCHLD, SIG_DFL);
	prctl(PR_SET_CHILD_SUBREAPER, 0);
	wait_for_all();
}

struct threads {
	atomic_long turn; /* odd: `tid` lives, and will until it is even */
	atomic_int tid;
};

static struct threads *threads;
static atomic_int go_on;

static void *short_thread(void *us)
{
	usleep((useconds_t)(intptr_t)us);
	return NULL;
}

static void *long_thread(void *unused)
{
	(void)unused;
	atomic_store(&threads->tid, (int)syscall(SYS_gettid));
	atomic_fetch_add(&threads->turn, 1);
	while (atomic_load(&go_on))
		usleep(THREAD_US);
	return NULL;
}

/* Of two threads the first ends while the second, which the kernel tells behind it, is there. */
static void make_threads(void)
{
	for (intptr_t n = 0;; n++) {
		pthread_t first, second;

		atomic_store(&go_on, 1);
		if (pthread_create(&first, NULL, short_thread,
				   (void *)(THREAD_US + n % THREAD_STEPS * THREAD_STEP_US)) ||
		    pthread_create(&second, NULL, long_thread, NULL))
			_exit(1);
		pthread_join(first, NULL);
		while (atomic_load(&threads->turn) % 2 == 0)
			usleep(THREAD_US);
		usleep(2 * THREAD_US);
		atomic_fetch_add(&threads->turn, 1);
		atomic_store(&go_on, 0);
		pthread_join(second, NULL);
	}
}

/* fear A1: a thread that is there before and after the threads of its process are listed is told, whoever ends meanwhile */
static void test_tasks(void **state)
{
	struct proc_ids tasks = {0};
	size_t listings = 0;
	struct timespec now, end;
	pid_t child;

	(void)state;
	threads = mmap(NULL, sizeof(*threads), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	assert_true(threads != MAP_FAILED);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		make_threads();
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += LIST_SECONDS;
	do {
		const long turn = atomic_load(&threads->turn);
		const int tid = atomic_load(&threads->tid);
		bool told = false;

		clock_gettime(CLOCK_MONOTONIC, &now);
		if (turn % 2 == 0)
			continue;
		assert_int_equal(proc_tasks(child, &tasks), 0);
		if (atomic_load(&threads->turn) != turn)
			continue;
		for (size_t i = 0; i < tasks.count; i++)
			told = told || tasks.ids[i] == tid;
		listings++;
		if (!told)
			fail_msg("thread %d is not told, in listing %zu", tid, listings);
	} while (now.tv_sec < end.tv_sec);
	assert_true(listings > 100);
	proc_ids_release(&tasks);
	kill(child, SIGKILL);
	wait_for_all();
	munmap(threads, sizeof(*threads));
}

struct born {
	atomic_int count, pids[BORN];
};

static struct born *born;
static int end_of_all[2]; /* a pipe of which all that write are gone when the process is */

/* Has a child that lives as long as the process, and ends. */
static void *parent_thread(void *us)
{
	const int at = atomic_load(&born->count);
	const pid_t child = fork();
	char byte;

	if (!child) {
		close(end_of_all[1]);
		_exit(read(end_of_all[0], &byte, 1) ? 1 : 0);
	}
	atomic_store(&born->pids[at], child);
	atomic_fetch_add(&born->count, 1);
	return short_thread(us);
}

static void make_parents(void)
{
	assert_int_equal(pipe(end_of_all), 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (intptr_t n = 0; n < BORN; n++) {
		pthread_t parent;

		if (pthread_create(&parent, NULL, parent_thread, (void *)(n % THREAD_STEPS * 10)) ||
		    pthread_join(parent, NULL))
			_exit(1);
	}
	for (;;)
		pause();
}

/* fear G1: a child is told whichever thread has made it, and that one may end while the children of all are listed */
static void test_children(void **state)
{
	struct proc_ids told = {0};
	pid_t child;
	int count;

	(void)state;
	born = mmap(NULL, sizeof(*born), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(born != MAP_FAILED);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		make_parents();
	do {
		count = atomic_load(&born->count);
		told.count = 0;
		assert_int_equal(proc_all_children(child, &told), 0);
		for (int i = 0; i < count; i++)
			if (!proc_ids_have(&told, atomic_load(&born->pids[i])))
				fail_msg("child %d of %d is not told", i + 1, count);
	} while (count < BORN);
	assert_int_equal(told.count, BORN);
	proc_ids_release(&told);
	kill(child, SIGKILL);
	wait_for_all();
	munmap(born, sizeof(*born));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_may_descend),
		cmocka_unit_test(test_maps),
		cmocka_unit_test(test_tasks),
		cmocka_unit_test(test_children),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
