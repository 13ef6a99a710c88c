/* SPDX-License-Identifier: MIT */
/*
 * notes.c - what may have been left in a target is noted, and the notes hold: for its children, for
 * threads that come back late, and however many arenas there are.
 */
#include "tests/live/harness_session.h"
#include "tests/live/inject_help.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inject/arena.h"
#include "inject/maps.h"
#include "inject/remote.h"

enum { WORKERS = 2, DETACH_S = 20, NOTES = 8, ARENAS = 40, HALF = 1 << 16, FOUND = 32 };

static const char descriptor_name[] = "dinst";

/* What a storm of job control leaves that lasts until after the undo. */
static int leave_descriptor(struct stop *stop, void *arg, struct dinst_error *e)
{
	const struct arch_remote_call call = {
		SYS_memfd_create, {{ARCH_ARG_DATA, 0}, {ARCH_ARG_CONST, MFD_CLOEXEC}}, false};
	const struct arch_remote_program program = {.calls = &call,
						    .count = 1,
						    .data = (const uint8_t *)descriptor_name,
						    .data_size = sizeof(descriptor_name)};

	return remote_run(stop, &program, 0, NULL, NULL, NULL, arg, e);
}

static bool has_descriptor(pid_t pid, long fd)
{
	char path[64], link[64] = "";

	snprintf(path, sizeof(path), "/proc/%d/fd/%ld", (int)pid, fd);
	if (readlink(path, link, sizeof(link) - 1) < 0)
		return false;
	return strcmp(link, "/memfd:dinst (deleted)") == 0;
}

static void detach(struct session *s)
{
	struct dinst_error e = {0};
	struct detach_result result;

	if (session_detach(s, DETACH_S, &result, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(result.left, 0);
	session_free(s);
}

/*
 * fear J3: a child in which something may have been left was looked at twice: it is cleaned all the same;
 * and a descriptor that was open in the target when it forked is closed in its children, too
 */
static void test_children(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct target *first, *second;
	struct session *s;
	int workers[WORKERS];
	long fd = -1;

	harness_start(h, "life-family", NULL);
	s = session_begin(h);
	assert_int_equal(target_stop(s->target, NULL, leave_descriptor, &fd, NULL, &e), 0);
	assert_true(fd > 2 && has_descriptor(h->pid, fd));
	harness_send(h, "serve 2\n");
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "workers %d %d", &workers[0],
				&workers[1]),
			 WORKERS);
	session_insert(s, "handle");
	for (size_t i = 0; i < WORKERS; i++)
		assert_true(has_descriptor(workers[i], fd));
	/* The other one was looked at without a storm. */
	first = help_open(workers[0]);
	second = help_open(workers[0]);
	assert_false(late_calls_keep(s, first));
	target_note_left(first);
	target_note_left(second);
	assert_true(late_calls_keep(s, first));
	assert_false(late_calls_keep(s, second));
	target_close(second);
	target_note_left(s->target);
	detach(s);
	assert_false(has_descriptor(h->pid, fd));
	for (size_t i = 0; i < WORKERS; i++)
		assert_false(has_descriptor(workers[i], fd));
	harness_verify_what(h, HARNESS_TEXT | HARNESS_SIGNALS);
	harness_send(h, "requests 10\n");
	assert_non_null(strstr(harness_line(h, HARNESS_ANSWER_MS), "done"));
	harness_end(h, 0);
}

/* A target that keeps us from it again and again does not get an arena more each time. */
static void test_no_more_arenas(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct session *s;

	harness_start(h, "life-family", NULL);
	s = session_begin(h);
	for (int i = 0; i < NOTES; i++)
		target_note_left(s->target);
	assert_int_equal(session_try_insert(s, "handle", false, NULL, NULL, &e), DINST_BUSY);
	assert_non_null(strstr(e.text, "detach"));
	detach(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* Longer than we wait for it. */
static int sleep_in_target(struct stop *stop, void *arg, struct dinst_error *e)
{
	const struct timespec pause = {5, 0};
	const struct arch_remote_call call = {
		SYS_nanosleep, {{ARCH_ARG_DATA, 0}, {ARCH_ARG_CONST, 0}}, false};
	const struct arch_remote_program program = {.calls = &call,
						    .count = 1,
						    .data = (const uint8_t *)&pause,
						    .data_size = sizeof(pause)};
	long result;

	(void)arg;
	return remote_run(stop, &program, 0, NULL, NULL, NULL, &result, e);
}

static int insert_wall(struct session *s, struct dinst_error *e)
{
	const char *const foci[] = {"/Code/life-family/handle"};
	const struct insert_options options = {0};
	struct insert_result result;
	int status = request_insert(s, "wall", foci, 1, &options, &result, e);

	if (status >= 0)
		free(result.instances);
	return status;
}

/*
 * A thread that makes calls of ours by itself may map or unmap what threads have, later: nobody makes it,
 * or takes it out, before that thread is back.
 */
static void test_late_thread(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	unsigned refused = 0;
	struct session *s;
	int status;

	harness_start(h, "life-family", NULL);
	s = session_begin(h);
	session_insert(s, "handle");
	assert_int_equal(target_stop(s->target, NULL, sleep_in_target, NULL, NULL, &e), DINST_BUSY);
	assert_int_equal(target_left_program(s->target), 1);
	assert_int_equal(target_left_calls(s->target), 1);
	for (int i = 0; i < 1000; i++) {
		dinst_error_clear(&e);
		status = insert_wall(s, &e);
		if (status >= 0)
			break;
		assert_int_equal(status, DINST_BUSY);
		refused += strstr(e.text, "has not come back from a system call") != NULL;
		usleep(20000);
	}
	if (status < 0)
		fail_msg("%s", e.text);
	assert_int_not_equal(refused, 0);
	harness_send(h, "call 10\n");
	assert_non_null(strstr(harness_line(h, HARNESS_ANSWER_MS), "done"));
	detach(s);
	harness_verify(h);
	harness_end(h, 0);
}

static uint8_t *map_half(uintptr_t at, int protection, int fd, off_t offset)
{
	return mmap((void *)at, HALF, protection, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, offset);
}

/* Begins a process that does `work`, says whether that went well, and stays. */
static pid_t begin(int (*work)(pid_t other), pid_t other)
{
	char failed = 1;
	int pipes[2];
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		failed = (char)work(other);
		if (write(pipes[1], &failed, 1) == 1)
			pause();
		_exit(1);
	}
	assert_int_equal(read(pipes[0], &failed, 1), 1);
	assert_int_equal(failed, 0);
	close(pipes[0]);
	close(pipes[1]);
	return pid;
}

/* The data halves are low, the code halves high, as those of arenas. */
static int have_arenas(pid_t other)
{
	(void)other;
	for (uintptr_t i = 0; i < ARENAS; i++) {
		int fd = memfd_create(descriptor_name, MFD_CLOEXEC);

		if (fd < 0 || ftruncate(fd, 2 * HALF) != 0 ||
		    map_half(0x50000000 + i * HALF, PROT_READ | PROT_WRITE, fd, HALF) ==
			    MAP_FAILED ||
		    map_half(0x200000000000 + i * HALF, PROT_READ | PROT_EXEC, fd, 0) == MAP_FAILED)
			return 1;
		close(fd);
	}
	return 0;
}

/* Where there are more arenas than are looked at in one go, none of them seems to have one half only. */
static void test_many_arenas(void **state)
{
	struct arena_found found[FOUND];
	struct dinst_error e = {0};
	struct target *t;
	const pid_t child = begin(have_arenas, 0);

	(void)state;
	t = help_open(child);
	assert_int_equal(arena_find(t, found, FOUND, &e), FOUND);
	for (size_t i = 0; i < FOUND; i++) {
		assert_int_equal(found[i].code_size, HALF);
		assert_int_equal(found[i].data_size, HALF);
		assert_int_equal(found[i].code - 0x200000000000, found[i].data - 0x50000000);
	}
	target_close(t);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

enum { GIVEN = 100, LOW = 0x50000000, ELSEWHERE = LOW + 16 * HALF };

/* What looks like an arena that was left unfinished; all of it is our own. */
static int make_bait(pid_t other)
{
	const int fd = memfd_create(descriptor_name, MFD_CLOEXEC);

	(void)other;
	return fd < 0 || ftruncate(fd, 2 * HALF) != 0 || dup2(fd, GIVEN) != GIVEN ||
	       close(fd) != 0 || map_half(LOW, PROT_READ | PROT_WRITE, GIVEN, HALF) == MAP_FAILED ||
	       map_half(LOW + HALF, PROT_READ | PROT_EXEC, GIVEN, 0) == MAP_FAILED;
}

/* Shares its memory, as programs do that give each other files: at the same place and at another one. */
static int take_bait(pid_t other)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)other, GIVEN);
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 || dup2(fd, GIVEN) != GIVEN || close(fd) != 0 ||
	       map_half(LOW, PROT_READ | PROT_WRITE, GIVEN, HALF) == MAP_FAILED ||
	       map_half(ELSEWHERE, PROT_READ, GIVEN, HALF) == MAP_FAILED;
}

/* Runs it where it would be code of the arena, but as no fork leaves it. */
static int run_bait(pid_t other)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)other, GIVEN);
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ||
	       map_half(LOW + HALF + HALF / 2, PROT_READ | PROT_EXEC, fd, HALF / 2) == MAP_FAILED;
}

static uint64_t cpu_ms(void)
{
	struct timespec t;

	assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static size_t count_mappings(pid_t pid)
{
	struct dinst_error e = {0};
	size_t count = 0;
	struct maps m;

	assert_int_equal(maps_read(pid, &m, &e), 0);
	for (size_t i = 0; i < m.count; i++)
		count += !strcmp(m.entries[i].name, "/memfd:dinst (deleted)");
	maps_release(&m);
	return count;
}

/*
 * fear L1: a target gives a file that looks like an arena to a process that is none of its own: nothing
 * is unmapped or closed there when what was left in the target is taken out
 */
static void test_bait(void **state)
{
	const pid_t enemy = begin(make_bait, 0), other = begin(take_bait, enemy);
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;

	(void)state;
	assert_int_equal(count_mappings(enemy), 2);
	t = help_open(enemy);
	if (leftovers_clean(t, 20000, &left, &e) < 0)
		fail_msg("%s", e.text);
	target_close(t);
	assert_int_equal(count_mappings(enemy), 0);
	assert_false(has_descriptor(enemy, GIVEN));
	assert_int_equal(count_mappings(other), 2);
	assert_true(has_descriptor(other, GIVEN));
	for (int i = 0; i < 2; i++) {
		kill(i ? enemy : other, SIGKILL);
		waitpid(i ? enemy : other, NULL, 0);
	}
}

/*
 * fear L1: the same where that process runs the file, as none of the target's children would: it is left
 * alone, and not looked at again and again
 */
static void test_bait_that_runs(void **state)
{
	const pid_t enemy = begin(make_bait, 0), other = begin(run_bait, enemy);
	const uint64_t before = cpu_ms();
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;

	(void)state;
	t = help_open(enemy);
	if (leftovers_clean(t, 20000, &left, &e) < 0)
		fail_msg("%s", e.text);
	target_close(t);
	assert_in_range(cpu_ms() - before, 0, 4000 * SLOWER);
	assert_int_equal(count_mappings(enemy), 0);
	assert_int_equal(count_mappings(other), 1);
	for (int i = 0; i < 2; i++) {
		kill(i ? enemy : other, SIGKILL);
		waitpid(i ? enemy : other, NULL, 0);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_children),	TEST(test_no_more_arenas), TEST(test_late_thread),
		TEST(test_many_arenas), TEST(test_bait),	   TEST(test_bait_that_runs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
