/* SPDX-License-Identifier: MIT */
/*
 * remote_run.c - system calls made by a thread of the target: their results, and that the thread
 * notices nothing, whatever it was doing. The target program checks its registers, its flags, its
 * red zone and the result of the call that was interrupted.
 */
#include "tests/live/inject_help.h"
#include "tests/live/program_32.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/maps.h"
#include "inject/remote.h"
#include "tests/live/harness_thread.h"
#include "tests/live/tails.h"

static void set_args(struct arch_remote_call *call, const uint64_t args[6])
{
	for (int i = 0; i < 6; i++)
		call->args[i].value = args[i];
}

static int check_long(const char *what, long is, long wanted, struct dinst_error *e)
{
	if (is == wanted)
		return 0;
	return dinst_fail(e, DINST_FAILED, "%s is %ld and should be %ld", what, is, wanted);
}

/* getpid; mmap; munmap of what mmap gave. */
static int map_and_unmap(struct stop *s, void *arg, struct dinst_error *e)
{
	const uint64_t map[6] = {
		0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, (uint64_t)-1, 0};
	struct arch_remote_call calls[3];
	struct arch_remote_program program = {.calls = calls, .count = 3};
	long results[3];
	int code;

	(void)arg;
	memset(calls, 0, sizeof(calls));
	calls[0].number = SYS_getpid;
	calls[1].number = SYS_mmap;
	set_args(&calls[1], map);
	calls[2].number = SYS_munmap;
	calls[2].args[0] = (struct arch_remote_arg){ARCH_ARG_RESULT, 1};
	calls[2].args[1].value = 8192;
	code = remote_run(s, &program, 0, NULL, NULL, NULL, results, e);
	if (!code)
		code = check_long("getpid", results[0], target_pid(stop_target(s)), e);
	if (!code && (results[1] & 0xfff || results[1] <= 0))
		code = check_long("mmap", results[1], 0, e);
	return code ? code : check_long("munmap", results[2], 0, e);
}

/* The second call fails: the third is left out, the fourth is made all the same. */
static int fail_and_go_on(struct stop *s, void *arg, struct dinst_error *e)
{
	struct arch_remote_call calls[4];
	struct arch_remote_program program = {.calls = calls, .count = 4};
	long results[4];
	int code;

	(void)arg;
	memset(calls, 0, sizeof(calls));
	calls[0].number = SYS_getpid;
	calls[1].number = SYS_close;
	calls[1].args[0].value = 1000000;
	calls[2].number = SYS_exit_group;
	calls[3].number = SYS_getuid;
	calls[3].always = true;
	code = remote_run(s, &program, 0, NULL, NULL, NULL, results, e);
	if (!code)
		code = check_long("close", results[1], -EBADF, e);
	if (!code)
		code = check_long("the call left out", results[2], -ECANCELED, e);
	return code ? code : check_long("getuid", results[3], getuid(), e);
}

static int refuse_second(struct stop *s, size_t next, const long *results, void *arg,
			 struct dinst_error *e)
{
	pid_t *victim = arg;

	*victim = remote_victim(s);
	if (next != 1 || results[0] != target_pid(stop_target(s)))
		return 0;
	return dinst_fail(e, DINST_REFUSED, "the test refuses");
}

/* What `between` refuses is not made, nor what follows, but for `always`. */
static int refuse_between(struct stop *s, void *arg, struct dinst_error *e)
{
	struct arch_remote_call calls[4];
	struct arch_remote_program program = {.calls = calls, .count = 4};
	struct dinst_error refusal = {0};
	long results[4];
	pid_t victim = 0;
	int code;

	(void)arg;
	memset(calls, 0, sizeof(calls));
	calls[0].number = SYS_getpid;
	calls[1].number = SYS_exit_group;
	calls[2].number = SYS_exit_group;
	calls[3].number = SYS_getuid;
	calls[3].always = true;
	code = remote_run(s, &program, 0, NULL, refuse_second, &victim, results, &refusal);
	code = check_long("the answer", code, DINST_REFUSED, e);
	if (!code)
		code = check_long("the refused call", results[1], -ECANCELED, e);
	if (!code)
		code = check_long("the call left out", results[2], -ECANCELED, e);
	if (!code)
		code = check_long("the victim", victim != 0, 1, e);
	if (!code)
		code = check_long("the victim afterwards", remote_victim(s), 0, e);
	return code ? code : check_long("getuid", results[3], getuid(), e);
}

static int call_once(struct stop *s, long number, const uint64_t args[6], long *result,
		     struct dinst_error *e)
{
	struct arch_remote_call call = {.number = number};
	struct arch_remote_program program = {.calls = &call, .count = 1};

	set_args(&call, args);
	return remote_run(s, &program, 0, NULL, NULL, NULL, result, e);
}

/* Mappings are read once, and once more after calls that change them; dropping pages changes none. */
static int look_at_mappings(struct stop *s, void *arg, struct dinst_error *e)
{
	const uint64_t map[6] = {
		0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, (uint64_t)-1, 0};
	const struct maps *before, *again, *after;
	const struct maps_entry *all;
	long made = 0, result = 0;
	int code;

	(void)arg;
	code = stop_maps(s, &before, e);
	if (!code)
		code = stop_maps(s, &again, e);
	if (!code)
		code = check_long("one copy", before == again && before->count > 4, 1, e);
	if (!code)
		code = call_once(s, SYS_mmap, map, &made, e);
	if (!code)
		code = stop_maps(s, &after, e);
	if (!code)
		code = check_long("shown", maps_find(after, (taddr_t)made + 4096) != NULL, 1, e);
	if (!code)
		code = call_once(s, SYS_madvise,
				 (const uint64_t[6]){(uint64_t)made, 8192, MADV_DONTNEED}, &result,
				 e);
	if (!code)
		code = check_long("madvise", result, 0, e);
	if (code)
		return code;
	all = after->entries;
	code = stop_maps(s, &again, e);
	if (!code)
		code = check_long("kept", again->entries == all, 1, e);
	if (!code)
		code = call_once(s, SYS_munmap, (const uint64_t[6]){(uint64_t)made, 8192}, &result,
				 e);
	if (!code)
		code = stop_maps(s, &after, e);
	return code ? code
		    : check_long("gone", maps_is_free(after, (taddr_t)made, (taddr_t)made + 8192),
				 1, e);
}

static const stop_work programs[] = {map_and_unmap, fail_and_go_on, refuse_between,
				     look_at_mappings};
enum { PROGRAMS = sizeof(programs) / sizeof(programs[0]) };

/* A target in one state, all programs, several times; everything is as before. */
static void run_in_state(struct harness *h, const char *mode)
{
	struct target *t;

	harness_start(h, "remote-registers", mode, NULL);
	t = help_open(h->pid);
	/* Each with a pause and without one, in turns. */
	for (size_t i = 0; i < 4 * PROGRAMS; i++) {
		help_stop_well(t, programs[i % PROGRAMS], NULL);
		usleep((i + i / PROGRAMS) % 2 ? 0 : 2000);
	}
	harness_verify(h);
	target_close(t);
	if (strcmp(mode, "nanosleep"))
		harness_end(h, 0);
	else
		assert_int_equal(harness_wait(h, HARNESS_ANSWER_MS), 0);
}

#define STATE(mode)                           \
	static void test_##mode(void **state) \
	{                                     \
		run_in_state(*state, #mode);  \
	}

STATE(read)
STATE(nanosleep)
STATE(futex)
STATE(poll)
STATE(ppoll)
STATE(accept)
STATE(sigtimedwait)
/* fear A4: calls made while all signals are blocked and SIGTRAP is pending: it is handled once, after everything */
STATE(blocked)
STATE(masked)
STATE(ignored)
STATE(epoll)
STATE(aligned)

/* fear B4: calls made by a thread that spins with known values in all registers and in its red zone */
static void test_running(void **state)
{
	cpu_set_t all, here = {0};

	run_in_state(*state, "running");
	/* And where it has our CPU only: who waits for it must not keep it from running. */
	CPU_SET(sched_getcpu(), &here);
	assert_false(sched_getaffinity(0, sizeof(all), &all) ||
		     sched_setaffinity(0, sizeof(here), &here));
	run_in_state(*state, "running");
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

/* fear D2: a thread whose registers the kernel refuses to take back as they are (a selector in es) */
static void test_selector(void **state)
{
	run_in_state(*state, "selector");
}

/* fear B4: the same by one whose stack pointer leads nowhere: what runs in it needs no stack at all */
static void test_stackless(void **state)
{
	run_in_state(*state, "stackless");
}

/*
 * fear B4: one that sleeps in a call of 32-bit programs makes none for us: if we died in the middle of ours it
 * could not go on with its own, whose number is another one
 */
static void test_compat(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct target *t;

	if (!has_compat_calls())
		skip();
	harness_start(h, "remote-registers", "compat", NULL);
	thread_wait_syscall(h->pid, h->pid, 162);
	t = help_open(h->pid);
	assert_int_equal(target_stop(t, NULL, map_and_unmap, NULL, NULL, &e), DINST_REFUSED);
	assert_non_null(strstr(e.text, "no thread that can make a system call"));
	target_close(t);
	assert_int_equal(harness_wait(h, HARNESS_ANSWER_MS), 0);
}

/* Two programs in one stop, on the same victim, and a thread stopped by job control. */
static int twice(struct stop *s, void *arg, struct dinst_error *e)
{
	int code = map_and_unmap(s, arg, e);

	return code ? code : fail_and_go_on(s, arg, e);
}

/*
 * fear B4: calls made by a thread that executes itself step by step: it gets no trap for what is
 * not its own
 */
static void test_steps(void **state)
{
	struct harness *h = *state;
	struct target *t;

	harness_start(h, "steps", NULL);
	t = help_open(h->pid);
	for (int i = 0; i < 300; i++)
		help_stop_well(t, map_and_unmap, NULL);
	target_close(t);
	harness_end(h, 0);
}

/*
 * fear A3, B4: calls made in a target that is stopped by job control, which stays stopped; its
 * registers, the carry flag and the red zone are compared
 */
static void test_group_stopped(void **state)
{
	static const char *const modes[] = {"read", "poll", "running"};
	struct harness *h = *state;
	struct target *t;

	for (size_t i = 0; i < 3; i++) {
		harness_start(h, "remote-registers", modes[i], NULL);
		kill(h->pid, SIGSTOP);
		t = help_open(h->pid);
		for (int k = 0; k < 5; k++) {
			harness_until(harness_status(h->pid, h->pid, "State:")[0] == 'T');
			help_stop_well(t, twice, NULL);
		}
		/* Letting go makes it look runnable until it has stopped again. */
		harness_until(harness_status(h->pid, h->pid, "State:")[0] == 'T');
		kill(h->pid, SIGCONT);
		harness_verify(h);
		target_close(t);
		harness_end(h, 0);
	}
}

static int seen_in_sequence(struct stop *s, void *arg, struct dinst_error *e)
{
	taddr_t abort_pc;

	*(int *)arg += stop_in_sequence(s, stop_thread(s, 0), &abort_pc);
	return map_and_unmap(s, NULL, e);
}

/* A victim inside a restartable sequence: its sequence is aborted, never swallowed. */
/* fear B6: a thread inside a restartable sequence is aborted, never swallowed */
static void test_sequence(void **state)
{
	struct harness *h = *state;
	struct target *t;
	int seen = 0;

	harness_start(h, "remote-registers", "sequence", NULL);
	t = help_open(h->pid);
	/* Where it has not run since the last stop it is behind the sequence that was aborted. */
	for (int i = 0; i < 30 || seen <= 15; i++) {
		assert_true(i < 20000);
		help_stop_well(t, seen_in_sequence, &seen);
		usleep(1000);
	}
	harness_verify(h);
	target_close(t);
	harness_end(h, 0);
}

/*
 * A filter that kills at mmap and at restart_syscall: with CAP_SYS_ADMIN it is
 * suspended, and the interrupted poll is not continued by restart_syscall.
 */
/* fear A8, A9: calls under a filter that kills at mmap and restart_syscall */
static void test_filter(void **state)
{
	struct harness *h = *state;
	struct target *t;

	if (geteuid()) {
		print_message("skipped: seccomp can be suspended by root only\n");
		skip();
	}
	harness_start(h, "stop-states", "filter", NULL);
	t = help_open(h->pid);
	for (int i = 0; i < 10; i++) {
		help_stop_well(t, map_and_unmap, NULL);
		usleep(2000);
	}
	harness_verify(h);
	target_close(t);
	harness_end(h, 0);
}

/* fear A13: calls in a process whose main thread has exited */
static void test_dead_leader(void **state)
{
	struct harness *h = *state;
	struct target *t;

	harness_start_argv(h,
			   (const char *const[]){harness_path("tests/live/targets/stop-states"),
						 "leader", NULL},
			   false);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ready");
	t = help_open(h->pid);
	for (int i = 0; i < 10; i++)
		help_stop_well(t, twice, NULL);
	target_close(t);
	harness_end(h, 0);
}

static int clean(struct stop *s, void *arg, struct dinst_error *e)
{
	return remote_clean_tails(s, arg, e);
}

/* A call that takes longer than anybody waits for one. */
static int sleep_long(struct stop *s, void *arg, struct dinst_error *e)
{
	const uint64_t arguments[6] = {0, 0, 4000};
	struct arch_remote_call call = {.number = SYS_poll};
	struct arch_remote_program program = {.calls = &call, .count = 1};
	long result;

	(void)arg;
	set_args(&call, arguments);
	return remote_run(s, &program, 0, NULL, NULL, NULL, &result, e);
}

/* The only thread does not come back from a call of ours: the process has not ended for that. */
static void test_not_back(void **state)
{
	struct harness *h = *state;
	const struct stop_options once = {.tries = 1};
	struct dinst_error e = {0};
	struct remote_tails tails = {0};
	struct target *t;

	harness_start(h, "remote-registers", "read", NULL);
	t = help_open(h->pid);
	/* On a busy machine the stop itself may fail, and nothing is lost then. */
	do {
		dinst_error_clear(&e);
		assert_int_equal(target_stop(t, &once, sleep_long, NULL, NULL, &e), DINST_BUSY);
	} while (!target_left_program(t));
	assert_non_null(strstr(e.text, "did not come back from a remote call"));
	assert_true(target_alive(t));
	help_stop_well(t, map_and_unmap, NULL);
	/* What it ran, and has left by itself, is wiped out. */
	while (!tails.cleaned && remote_tails_dirty(t))
		help_stop_well(t, clean, &tails);
	assert_int_equal(tails.cleaned, 1);
	harness_verify(h);
	target_close(t);
	harness_end(h, 0);
}

/*
 * fear A2, A3: the user's processes have as many signals pending as they may, so that the kernel
 * makes no timer for us: calls are made, and one that does not return is given up in time
 */
static void test_no_timers(void **state)
{
	struct harness *h = *state;
	struct rlimit limit, none;
	struct target *t;
	timer_t timer;

	assert_int_equal(getrlimit(RLIMIT_SIGPENDING, &limit), 0);
	none = (struct rlimit){0, limit.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_SIGPENDING, &none), 0);
	assert_int_equal(timer_create(CLOCK_MONOTONIC, NULL, &timer), -1);
	assert_int_equal(errno, EAGAIN);
	harness_start(h, "remote-registers", "read", NULL);
	t = help_open(h->pid);
	for (int i = 0; i < 50; i++)
		help_stop_well(t, map_and_unmap, NULL);
	harness_verify(h);
	target_close(t);
	harness_end(h, 0);
	test_not_back(state);
	assert_int_equal(setrlimit(RLIMIT_SIGPENDING, &limit), 0);
}

static void test_clean_tails(void **state)
{
	struct harness *h = *state;
	struct rest rest = {0};
	struct remote_tails tails = {.cleaned = 99};
	struct target *t;

	harness_start(h, "remote-registers", "read", NULL);
	t = help_open(h->pid);
	assert_false(remote_tails_dirty(t));
	help_stop_well(t, clean, &tails);
	assert_int_equal(tails.cleaned, 0);
	help_stop_well(t, dirty_a_tail, &rest);
	assert_true(remote_tails_dirty(t));
	help_stop_well(t, clean, &tails);
	assert_int_equal(tails.cleaned, 1);
	assert_false(remote_tails_dirty(t));
	harness_verify(h);
	target_close(t);
	harness_end(h, 0);
}

static int take_away(struct stop *s, void *arg, struct dinst_error *e)
{
	static const uint8_t zeros[ARCH_REMOTE_MAX];
	const struct rest *r = arg;

	return stop_write(s, r->address, zeros, r->size, e);
}

/* fear J4: code that another tool keeps behind a module's is that tool's, whatever thread is in it */
static void test_tails_of_others(void **state)
{
	struct harness *h = *state;
	/* push %rbp; mov %rsp,%rbp; nop; pop %rbp; ret: a hook */
	struct rest rest = {.bytes = {0x55, 0x48, 0x89, 0xe5, 0x90, 0x5d, 0xc3}, .size = 7};
	uint8_t bytes[7];
	struct remote_tails tails = {.cleaned = 99};
	struct target *t;

	harness_start(h, "remote-registers", "read", NULL);
	t = help_open(h->pid);
	help_stop_well(t, dirty_a_tail, &rest);
	assert_false(remote_tails_dirty(t));
	help_stop_well(t, clean, &tails);
	assert_int_equal(tails.cleaned, 0);
	/* ... nor is it a place for what we run. */
	help_stop_well(t, map_and_unmap, NULL);
	assert_int_equal(target_read(t, rest.address, bytes, sizeof(bytes), NULL), 0);
	assert_memory_equal(bytes, rest.bytes, sizeof(bytes));
	help_stop_well(t, take_away, &rest);
	harness_verify(h);
	target_close(t);
	harness_end(h, 0);
}

/*
 * fear A4, B4: calls made by a thread whose own fault has not come to its handler yet: it comes there
 * afterwards, for its own address, and is not taken for a fault of ours
 */
static void test_own_faults(void **state)
{
	static const char *const commands[] = {"probe 1000000\n", "traps 100000\n"};
	struct harness *h = *state;
	struct target *t;

	harness_start(h, "traps", NULL);
	t = help_open(h->pid);
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		harness_send(h, commands[i]);
		for (int k = 0; k < 300; k++) {
			help_stop_well(t, map_and_unmap, NULL);
			usleep(100 + 7 * k % 50);
		}
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	}
	harness_verify(h);
	target_close(t);
	harness_end(h, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_read),	  TEST(test_nanosleep),
		TEST(test_futex),	  TEST(test_poll),
		TEST(test_epoll),	  TEST(test_running),
		TEST(test_stackless),	  TEST(test_selector),
		TEST(test_compat),	  TEST(test_steps),
		TEST(test_group_stopped), TEST(test_sequence),
		TEST(test_filter),	  TEST(test_dead_leader),
		TEST(test_clean_tails),	  TEST(test_tails_of_others),
		TEST(test_not_back),	  TEST(test_own_faults),
		TEST(test_no_timers),	  TEST(test_aligned),
		TEST(test_ppoll),	  TEST(test_accept),
		TEST(test_sigtimedwait),  TEST(test_blocked),
		TEST(test_masked),	  TEST(test_ignored),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
