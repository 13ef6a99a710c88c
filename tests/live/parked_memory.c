/* SPDX-License-Identifier: MIT */
/*
 * parked_memory.c - interrupted program counters that are on no stack that a thread runs on, in memory which
 * the process cannot write to, or has no pages of, just when it is looked for them: as parked.c.
 */
#include <linux/capability.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/live/parked_help.h"

/* Parked in a trampoline, and the stack is locked then: nothing of it is given back before the task has gone on. */
static void run_trampoline(struct harness *h, const char *how, const char *lock, const char *locked)
{
	struct flush_result flushed = {0};
	struct detach_result detached;
	struct dinst_error e = {0};
	struct session *s;
	unsigned id;

	harness_start(h, "parked", how, NULL);
	s = session_begin(h);
	id = session_insert_kind(s, "parked_function", POINT_ENTRY);
	ask(h, "go 100", "done");
	ask(h, "park", "parked");
	ask(h, lock, locked);
	session_remove(s, id);
	assert_int_equal(removal_flush(s, &flushed, &e), 0);
	assert_int_not_equal(flushed.queued, 0);
	assert_false(flushed.unsearched);
	assert_int_equal(session_detach(s, 1, &detached, &e), 0);
	assert_int_not_equal(detached.left, 0);
	ask(h, "rights 3", "set");
	ask(h, "resume", "resumed");
	ask(h, "go 100", "done");
	session_end(s);
	ask(h, "go 100", "done");
	harness_verify(h);
	harness_end(h, 0);
}

/* The same for a window, which is not patched. */
static void run_window(struct harness *h, const char *how, const char *lock, const char *locked)
{
	struct session *s;
	unsigned id;

	harness_start(h, "parked", how, NULL);
	s = session_begin(h);
	ask(h, "park", "parked");
	ask(h, lock, locked);
	id = session_insert_kind(s, "parked_function", POINT_ENTRY);
	assert_int_equal(session_pending(s, id), 1);
	assert_false(s->unsearched);
	ask(h, "rights 3", "set");
	ask(h, "resume", "resumed");
	end_when_active(h, s, id);
}

/* fear C2, H5: nobody may write to the task's stack just now, as under a collector's write barrier */
static void test_window_locked(void **state)
{
	run_window(*state, "mapped", "rights 1", "set");
}

/* fear C2, H5, J1: the same with the task in a trampoline that is removed */
static void test_trampoline_locked(void **state)
{
	run_trampoline(*state, "mapped", "rights 1", "set");
}

/* fear C2, H5, J1: nobody may even read it */
static void test_trampoline_closed(void **state)
{
	run_trampoline(*state, "mapped", "rights 0", "set");
}

/* fear C2, H5, J1: the same of one that is a private copy of a file's pages */
static void test_trampoline_painted(void **state)
{
	run_trampoline(*state, "painted", "rights 1", "set");
}

/* fear C2, H5, J7, K2: addresses that are reserved, and nothing more, however many: nothing waits for them */
static void test_reserved(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned id;

	harness_start(h, "parked", "mapped", NULL);
	for (int i = 0; i < 4; i++)
		ask(h, "reserve 1000", "reserved");
	s = session_begin(h);
	id = session_insert_kind(s, "parked_function", POINT_ENTRY);
	assert_int_equal(session_pending(s, id), 0);
	assert_false(s->unsearched);
	session_end(s);
	ask(h, "go 100", "done");
	harness_verify_what(h, HARNESS_TEXT | HARNESS_FDS | HARNESS_THREADS);
	harness_end(h, 0);
}

/* fear C2, H5: the task's stack is shared, and this process has no pages of it, as a child that has not touched it */
static void test_window_forgotten(void **state)
{
	run_window(*state, "shared", "forget", "forgotten");
}

/* fear C2, H5, J1: the same with the task in a trampoline that is removed */
static void test_trampoline_forgotten(void **state)
{
	run_trampoline(*state, "shared", "forget", "forgotten");
}

/* fear C2, H5, J1: nobody may write to it just now */
static void test_trampoline_shared_locked(void **state)
{
	run_trampoline(*state, "shared", "rights 1", "set");
}

/* Gives up for a while what opens /proc/PID/map_files; false where that cannot be done. */
static bool may_open_all(bool may)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &header, data))
		return false;
	for (int i = 0; i < 2; i++)
		data[i].effective = data[i].permitted;
	if (!may) {
		data[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective &= ~CAP_TO_MASK(CAP_SYS_ADMIN);
		data[CAP_TO_INDEX(CAP_CHECKPOINT_RESTORE)].effective &=
			~CAP_TO_MASK(CAP_CHECKPOINT_RESTORE);
	}
	return !syscall(SYS_capset, &header, data);
}

/* fear C2, H5: shared memory whose pages this process has not, and whose file may not be opened: anything may be there */
static void test_unprivileged(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned id;

	harness_start(h, "parked", "shared", NULL);
	s = session_begin(h);
	ask(h, "park", "parked");
	ask(h, "forget", "forgotten");
	assert_true(may_open_all(false));
	id = session_insert_kind(s, "parked_function", POINT_ENTRY);
	assert_int_equal(session_pending(s, id), 1);
	assert_true(s->unsearched);
	assert_true(may_open_all(true));
	ask(h, "resume", "resumed");
	assert_true(becomes_active(s, id));
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

static uint64_t shared_kib(pid_t pid)
{
	return strtoull(harness_status(pid, pid, "RssShmem:"), NULL, 10);
}

/*
 * fear C2, H5, J7, K2: shared memory of which there is hardly anything, and such as can only be read, on which nobody can
 * stand: nothing waits for them, and no page of them is made
 */
static void test_shared_data(void **state)
{
	struct harness *h = *state;
	struct session *s;
	uint64_t before;
	unsigned id;

	harness_start(h, "parked", "shared", NULL);
	ask(h, "sparse", "spread");
	ask(h, "readers", "mapped");
	before = shared_kib(h->pid);
	s = session_begin(h);
	id = session_insert_kind(s, "parked_function", POINT_ENTRY);
	assert_int_equal(session_pending(s, id), 0);
	assert_false(s->unsearched);
	assert_in_range(shared_kib(h->pid), 0, before + 1024);
	session_end(s);
	ask(h, "go 100", "done");
	harness_verify_what(h, HARNESS_TEXT | HARNESS_FDS | HARNESS_THREADS);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_window_locked),
		CASE(test_trampoline_locked),
		CASE(test_trampoline_closed),
		CASE(test_trampoline_painted),
		CASE(test_reserved),
		CASE(test_window_forgotten),
		CASE(test_trampoline_forgotten),
		CASE(test_trampoline_shared_locked),
		CASE(test_shared_data),
		CASE(test_unprivileged),
	};

	setenv("DINST_POISON", "1", 1);
	return cmocka_run_group_tests_name("live/parked_memory", tests, NULL, NULL);
}
