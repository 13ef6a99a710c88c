/* SPDX-License-Identifier: MIT */
/*
 * inject_ending.c - what is told of processes that end while they are being looked at, at any moment of it: half of
 * what they had is not taken for all of it, nor are they taken for nobody's children.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "inject/maps.h"
#include "inject/proc.h"

enum { MAPPINGS = 600, PAGE = 4096, ENDS = 200, LIFE_US = 4000, LIFE_STEPS = 8 };

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_may_descend),
		cmocka_unit_test(test_maps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
