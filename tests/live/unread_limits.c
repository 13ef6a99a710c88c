/* SPDX-License-Identifier: MIT */
/*
 * unread_limits.c - a limit that could not be looked at is not taken for none (as unread.c).
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "inject/arena.h"
#include "inject/arena_place.h"
#include "inject/cgroup.h"
#include "inject/proc.h"
#include "inject/target.h"
#include "tests/live/harness_session.h"
#include "tests/live/mishaps.h"

enum { LOCKED = 2 << 20, GROUP = 16 << 20, ARENA_MOST = 24 << 20, TEXT = 4096 };
enum { LINK_US = 100, LEAVE_US = 20000, ROOMS = 2000 };

/* Files cannot be opened, or read. */
static const struct mishap kinds[] = {{.kind = MISHAP_OPEN, .error = EMFILE},
				      {.kind = MISHAP_READ, .error = ENOMEM}};
enum { KINDS = sizeof(kinds) / sizeof(*kinds) };

/* A process that has locked some of its memory, or locks what it maps from now on. */
static pid_t start_locking(bool later)
{
	int made[2];
	pid_t child;
	char byte;

	assert_int_equal(pipe(made), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (later ? mlockall(MCL_FUTURE)
			  : mlock(mmap(NULL, LOCKED, PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
				  LOCKED))
			abort();
		if (write(made[1], "", 1) != 1)
			abort();
		for (;;)
			usleep(10000);
	}
	assert_int_equal(__real_read(made[0], &byte, 1), 1);
	close(made[0]);
	close(made[1]);
	return child;
}

static void end_process(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* fear I3: what a process may map, and whether it locks that, cannot be looked at: no limit of it is taken for none */
static void test_limits(void **state)
{
	const pid_t pid = start_locking(false);
	struct arena_limits known, l;
	struct dinst_error e = {0};
	uint64_t locked = 0;
	int status;

	(void)state;
	assert_int_equal(arena_limits_read(pid, &known, &e), 0);
	assert_true(known.locks_memory && known.brk_start && known.locked == LOCKED);
	for (size_t i = 0; i < KINDS; i++)
		for (struct mishap m = kinds[i]; next_mishap(&m);) {
			dinst_error_clear(&e);
			status = arena_limits_read(pid, &l, &e);
			mishap_end();
			assert_true(status == 0 || (status == DINST_BUSY && e.text[0]));
			if (!status &&
			    (l.bottom != known.bottom || l.brk_start != known.brk_start ||
			     l.stack_limit != known.stack_limit || l.locked != known.locked ||
			     l.room != known.room || l.commits != known.commits))
				fail_msg("%s %lu: %llu bytes are locked, brk begins at %#llx",
					 mishap_name(m.kind), m.at, (unsigned long long)l.locked,
					 (unsigned long long)l.brk_start);
		}
	for (size_t i = 0; i < KINDS; i++)
		for (struct mishap m = kinds[i]; next_mishap(&m);) {
			status = arena_locked_bytes(pid, &locked, NULL);
			mishap_end();
			if (status ? status != DINST_BUSY : locked != LOCKED)
				fail_msg("%s %lu: %d", mishap_name(m.kind), m.at, status);
		}
	end_process(pid);
}

/*
 * fear I3: what the control groups of a process let it take cannot be looked at: that is said, and no limit that there is is
 * taken for none, or for more
 */
static void test_groups(void **state)
{
	static const struct mishap memory = {.kind = MISHAP_MEMORY, .error = ENOMEM};
	const pid_t pid = start_locking(false);
	char directory[128], limit[160], named[512];
	struct dinst_error e = {0};
	uint64_t known = 0, room = 0;
	int status;

	(void)state;
	if (!harness_confine(pid, HARNESS_LIMIT_MEMORY, harness_number(GROUP), directory,
			     sizeof(directory))) {
		end_process(pid);
		print_message("skipped: no memory control group can be made here\n");
		skip();
	}
	assert_int_equal(cgroup_memory_room(pid, &known, named, sizeof(named), &e), 0);
	assert_true(known <= GROUP);
	snprintf(limit, sizeof(limit), "%s/memory.max", directory);
	if (access(limit, F_OK)) /* of version 1 */
		snprintf(limit, sizeof(limit), "%s/memory.limit_in_bytes", directory);
	assert_string_equal(named, limit);
	for (size_t i = 0; i <= KINDS; i++)
		for (struct mishap m = i < KINDS ? kinds[i] : memory; next_mishap(&m);) {
			dinst_error_clear(&e);
			room = UINT64_MAX;
			status = cgroup_memory_room(pid, &room, named, sizeof(named), &e);
			mishap_end();
			if (status ? status != DINST_BUSY || !e.text[0] : room > GROUP)
				fail_msg("%s %lu: %d, %llu KiB are left", mishap_name(m.kind), m.at,
					 status, (unsigned long long)room >> 10);
		}
	end_process(pid);
	harness_until(!rmdir(directory));
}

/* Makes the next one, and ends. */
static void *link_thread(void *unused)
{
	pthread_attr_t detached;
	pthread_t next;

	(void)unused;
	usleep(LINK_US);
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&next, &detached, link_thread, NULL))
		abort();
	return NULL;
}

/* A process whose leader exits when it is told to, and of whose other threads none lives long. */
static pid_t start_links(int *leave)
{
	int told[2];
	pid_t child;
	char byte;

	assert_int_equal(pipe(told), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (read(told[0], &byte, 1) != 1)
			abort();
		link_thread(NULL);
		pthread_exit(NULL);
	}
	close(told[0]);
	*leave = told[1];
	return child;
}

/* fear I3, A13: the thread that is asked for its control groups ends meanwhile: the limit that there is is seen all the same */
static void test_groups_of_ending(void **state)
{
	int leave;
	const pid_t pid = start_links(&leave);
	char directory[128];
	struct dinst_error e = {0};
	struct memory_room room;
	struct target *t;
	int seen = 0, code;

	(void)state;
	if (!harness_confine(pid, HARNESS_LIMIT_MEMORY, harness_number(GROUP), directory,
			     sizeof(directory))) {
		end_process(pid);
		print_message("skipped: no memory control group can be made here\n");
		skip();
	}
	assert_int_equal(target_open(pid, &t, &e), 0);
	assert_int_equal(write(leave, "", 1), 1);
	usleep(LEAVE_US);
	for (int n = 0; n < ROOMS; n++) {
		dinst_error_clear(&e);
		code = target_memory_room(t, &room, &e);
		if (code ? code != DINST_BUSY : room.bytes > GROUP)
			fail_msg("%d: %d %s, %llu KiB are left", n, code, e.text,
				 (unsigned long long)room.bytes >> 10);
		seen += !code;
	}
	assert_true(seen > ROOMS / 2);
	target_close(t);
	close(leave);
	end_process(pid);
	harness_until(!rmdir(directory));
}

struct making {
	bool private;
	struct arena *arena;
};

/* Only here do calls fail. */
static int make(struct stop *s, void *arg, struct dinst_error *e)
{
	const taddr_t text = (taddr_t)(uintptr_t)make & ~(taddr_t)(TEXT - 1);
	struct making *m = arg;
	int result;

	mishap_begin();
	result = m->private
			 ? arena_create_private(s, text, text + TEXT, TEXT, "a test", &m->arena, e)
			 : arena_create(s, text, text + TEXT, TEXT, &m->arena, e);
	mishap_end();
	return result;
}

static uint64_t resident_bytes(pid_t pid)
{
	struct proc_stat stat;

	assert_int_equal(proc_stat_read(pid, &stat), 0);
	return stat.resident_pages * 4096;
}

/* An arena in a process that locks what it maps; mapped while that call fails. */
static void make_with(const struct mishap *m, bool private)
{
	const pid_t pid = start_locking(true);
	struct making making = {.private = private};
	struct dinst_error e = {0};
	struct target *t;
	uint64_t resident;
	size_t size = 0;

	assert_int_equal(target_open(pid, &t, &e), 0);
	resident = resident_bytes(pid);
	mishap_set(m);
	if (!target_stop(t, NULL, make, &making, NULL, &e)) {
		size = making.arena->code_size + making.arena->data_size;
		arena_release(making.arena);
	}
	assert_true(size || e.text[0]);
	resident = resident_bytes(pid) - resident;
	if (size > ARENA_MOST || resident > ARENA_MOST)
		fail_msg("%s %lu: an arena of %zu KiB, of which %llu KiB exist",
			 mishap_name(m->kind), m->at, size >> 10,
			 (unsigned long long)resident >> 10);
	target_close(t);
	end_process(pid);
}

/*
 * fear I3: whether a program locks what is mapped from now on cannot be looked at while an arena is mapped: it gets a small
 * one, or none, and nothing large is made to exist at once
 */
static void test_arena(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2 * KINDS; i++)
		for (struct mishap m = kinds[i / 2]; next_mishap(&m);) {
			mishap_end();
			make_with(&m, i % 2);
		}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_limits),
		TEST(test_groups),
		TEST(test_groups_of_ending),
		TEST(test_arena),
	};

	mishaps_open();
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("live/unread_limits", tests, NULL, NULL);
}
