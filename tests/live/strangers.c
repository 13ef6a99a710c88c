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

static void instrument_and_die(pid_t pid)
{
	struct dinst_error e = {0};
	struct journal_header *h;
	struct session *s;
	unsigned id;

	alarm(100);
	if (session_attach(pid, "later", &s, &e) < 0 ||
	    session_insert_patiently(s, "many", &id, &e) < 0)
		_exit(3);
	h = (struct journal_header *)(void *)s->places->arena->code_map;
	h->version++;
	h->checksum = journal_header_checksum(h);
	kill(getpid(), SIGKILL);
}

/*
 * fear J5: the program is really instrumented by another version that died: what it has patched is
 * left alone and goes on working, other functions can be instrumented, and that is gone afterwards
 */
static void test_another_version_at_work(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct leftovers left;
	uint8_t before[5], now[5];
	unsigned many, leaf;
	size_t count;
	struct session *s;
	struct target *t;
	taddr_t address;
	int status;
	pid_t child;

	harness_start(h, "calls", "2", NULL);
	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		instrument_and_die(h->pid);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	session_go(h, 100);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	assert_true(leftovers_clean(t, 1000, &left, &e) >= 0);
	assert_int_equal(left.arenas_left, 1);
	target_close(t);
	session_go(h, 100);
	s = session_begin(h);
	address = session_address(s, "many");
	assert_int_equal(target_read(s->target, address, before, sizeof(before), &e), 0);
	assert_int_equal(session_try_insert(s, "many", false, &count, &many, &e), DINST_REFUSED);
	assert_non_null(strstr(e.text, "another tool's patch"));
	dinst_error_clear(&e);
	leaf = session_insert(s, "leaf");
	session_go(h, 100);
	assert_true(session_value(s, leaf) > 0);
	session_end(s);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	assert_int_equal(target_read(t, address, now, sizeof(now), &e), 0);
	assert_memory_equal(now, before, sizeof(now));
	target_close(t);
	session_go(h, 100);
	harness_end(h, 0);
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
		cmocka_unit_test_setup_teardown(test_another_version_at_work, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_unfinished, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests_name("live/strangers", tests, NULL, NULL);
}
