/* SPDX-License-Identifier: MIT */
/*
 * strangers.c - memory that only looks like an arena of ours: taking it out
 * would take a program its own memory, or code that it runs through.
 */
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/journal_format.h"
#include "tests/live/harness_session.h"

enum { SIZE = 1 << 20 };

/* A child with `first` at the start of an executable memfd called like ours. */
static pid_t start_stranger(const void *first, size_t size, void **at)
{
	int fd = memfd_create("dinst", MFD_CLOEXEC), ready[2];
	pid_t child;
	char byte;

	assert_true(fd >= 0 && !ftruncate(fd, SIZE) && !pipe(ready));
	assert_int_equal(pwrite(fd, first, size, 0), (ssize_t)size);
	*at = mmap(NULL, SIZE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
	assert_true(*at != MAP_FAILED);
	fflush(NULL);
	child = fork();
	if (child == 0) {
		alarm(600);
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	munmap(*at, SIZE);
	close(ready[0]);
	close(ready[1]);
	close(fd);
	return child;
}

/* Cleans, and says whether the memory is still there. */
static bool survives(const void *first, size_t size, struct leftovers *left)
{
	struct dinst_error e = {0};
	uint8_t now[256];
	struct target *t;
	bool there;
	void *at;
	pid_t child = start_stranger(first, size, &at);

	if (target_open(child, &t, &e) < 0 || leftovers_clean(t, 500, left, &e) < 0)
		fail_msg("%s", e.text);
	there = target_read_some(t, (taddr_t)(uintptr_t)at, now, size) == size &&
		!memcmp(now, first, size);
	target_close(t);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return there;
}

/* fear J5, L1: memory of the program that is only called like ours is left alone */
static void test_namesake(void **state)
{
	const uint8_t code[16] = {0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3};
	struct leftovers left;

	(void)state;
	assert_true(survives(code, sizeof(code), &left));
	assert_int_equal(left.arenas_left, 0);
}

/* fear J5: an arena of another version is left alone */
static void test_another_version(void **state)
{
	struct journal_header h = {.version = JOURNAL_VERSION + 1};
	struct leftovers left;

	(void)state;
	memcpy(h.magic, JOURNAL_MAGIC, sizeof(h.magic));
	h.checksum = journal_header_checksum(&h);
	assert_true(survives(&h, sizeof(h) < 256 ? sizeof(h) : 256, &left));
	assert_int_equal(left.arenas_left, 1);
}

/* Its maker died before it was of any use: that one goes. */
static void test_unfinished(void **state)
{
	const uint8_t nothing[16] = {0};
	struct leftovers left;

	(void)state;
	assert_false(survives(nothing, sizeof(nothing), &left));
	assert_int_equal(left.arenas_left, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_namesake, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_another_version, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_unfinished, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests_name("live/strangers", tests, NULL, NULL);
}
