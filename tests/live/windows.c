/* SPDX-License-Identifier: MIT */
/*
 * windows.c - threads that stand where a patch goes: inside each byte of a
 * window, blocked in a system call at its edge, in a signal handler that
 * interrupted it, or in a long call below an instrumented function.
 *
 * The target's functions consist of one-byte instructions each of which changes
 * the result, so an instruction that is executed twice or not at all shows.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/live/harness_session.h"
#include "tests/live/harness_thread.h"

enum { THREADS = 5, ROUNDS = 20000 };

struct five {
	pid_t tids[16];
	size_t count;
	taddr_t park, park_end, entry, exit, back;
};

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void ask(struct harness *h, const char *command, const char *answer)
{
	char text[64];

	snprintf(text, sizeof(text), "%s\n", command);
	harness_send(h, text);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), answer);
}

/* The symbols of assembler code are no functions: their addresses come from a program. */
static taddr_t symbol(const char *name, taddr_t bias)
{
	char command[1024], text[64] = "";
	FILE *nm;

	snprintf(command, sizeof(command), "nm '%s' | awk '$3 == \"%s\" { print $1 }'",
		 harness_path("tests/live/targets/windows"), name);
	nm = popen(command, "r");
	assert_non_null(nm);
	if (!fgets(text, sizeof(text), nm))
		fail_msg("no symbol %s", name);
	pclose(nm);
	return strtoull(text, NULL, 16) + bias;
}

static void look(struct harness *h, struct session *s, struct five *f)
{
	taddr_t bias = 0;

	f->entry = session_address(s, "five");
	bias = f->entry - symbol("five", 0);
	f->park = symbol("park", bias);
	f->park_end = symbol("park_end", bias);
	f->exit = symbol("five_exit", bias);
	f->back = symbol("five_back", bias);
	harness_send(h, "tids\n");
	f->count = harness_numbers(harness_line(h, HARNESS_ANSWER_MS), f->tids, 16);
}

static void swap(unsigned long long *a, unsigned long long *b)
{
	unsigned long long c = (uint32_t)*a;

	*a = (uint32_t)*b;
	*b = c;
}

static void hash(struct user_regs_struct *r)
{
	r->rcx *= 10;
	r->rax += r->rcx;
	r->rdx *= 100;
	r->rax += r->rdx;
	r->rsi *= 1000;
	r->rax += r->rsi;
	r->rdi *= 10000;
	r->rax += r->rdi;
}

/* Makes the registers what they are at a position (see below). */
static void emulate(struct user_regs_struct *r, unsigned position)
{
	unsigned long long *with[] = {&r->rcx, &r->rdx, &r->rsi, &r->rdi, &r->rcx,
				      &r->rcx, &r->rdx, &r->rsi, &r->rdi};

	for (unsigned i = 0; i < position; i++) {
		if (i == 5)
			hash(r);
		swap(&r->rax, with[i]);
	}
	if (position == 5)
		hash(r);
}

/*
 * Position 0 .. 4: in the entry window, 5 .. 9: in the exit window (9 is the
 * return instruction). The thread is held there, as if the worker had called.
 */
static void put(struct harness *h, const struct five *f, pid_t tid, unsigned position)
{
	struct user_regs_struct r;
	uint64_t back = f->back, rounds = 1;

	thread_seize_at(tid, f->park, f->park_end, &r);
	r.rbp = 1;
	r.rax = 1;
	r.rcx = 2;
	r.rdx = 3;
	r.rsi = 4;
	r.rdi = 5;
	r.rsp -= 8;
	thread_poke(h->pid, r.rsp, &back, sizeof(back));
	thread_poke(h->pid, r.rbx, &rounds, sizeof(rounds));
	emulate(&r, position);
	r.rip = position < 5 ? f->entry + position : f->exit + position - 5;
	thread_set(tid, &r);
}

/* -------------------------------------------------- inside the window */

struct inside_case {
	enum point_kind kind;
	unsigned first;	  /* position of the first thread; one thread a position */
	unsigned at_once; /* how many of the threads count when they go on */
};

static void run_inside(struct harness *h, const struct inside_case *c)
{
	struct session *s;
	struct five f;
	unsigned id;

	harness_start(h, "windows", harness_number(THREADS), NULL);
	s = session_begin(h);
	look(h, s, &f);
	assert_int_equal(f.count, THREADS);
	for (unsigned i = 0; i < THREADS; i++)
		put(h, &f, f.tids[i], c->first + i);
	thread_freeze_all(h->pid, f.tids, THREADS);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(thread_pc(h->pid, f.tids[i]),
				 (c->first < 5 ? f.entry : f.exit) + i);
	id = session_insert_kind(s, "five", c->kind);
	assert_int_equal(session_pending(s, id), 0);
	assert_int_equal(session_value(s, id), 0);
	/* Nobody is left between the window's first byte and its end. */
	for (unsigned i = 1; i < THREADS; i++) {
		uint64_t pc = thread_pc(h->pid, f.tids[i]);

		assert_false(pc > (c->first < 5 ? f.entry : f.exit) &&
			     pc < (c->first < 5 ? f.entry : f.exit) + 5);
	}
	thread_thaw(h->pid);
	ask(h, "idle", "idle");
	assert_int_equal(session_value(s, id), c->at_once);
	ask(h, "go 20000 five", "done");
	assert_int_equal(session_value(s, id), c->at_once + (uint64_t)THREADS * ROUNDS);
	session_end(s);
	ask(h, "go 1000 five", "done");
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear C1: a thread before each byte of an entry's window when it is patched; results and counts
 * exact
 */
static void test_inside_entry_window(void **state)
{
	/* Only the thread before the first instruction has the function before it. */
	run_inside(*state, &(struct inside_case){POINT_ENTRY, 0, 1});
}

/*
 * fear C1: a thread before each byte of an exit's window when it is patched; results and counts
 * exact
 */
static void test_inside_exit_window(void **state)
{
	run_inside(*state, &(struct inside_case){POINT_EXIT, 5, THREADS});
}

/* Threads that stand in a trampoline when it is removed: nothing is freed under their feet. */
/* fear C1, J1: threads stand in a trampoline whose point is removed: it stays until they are out */
static void test_removed_while_inside(void **state)
{
	struct harness *h = *state;
	struct flush_result flushed;
	struct detach_result detached;
	struct dinst_error e = {0};
	struct session *s;
	struct five f;
	unsigned id;

	harness_start(h, "windows", harness_number(THREADS), NULL);
	s = session_begin(h);
	look(h, s, &f);
	for (unsigned i = 0; i < THREADS; i++)
		put(h, &f, f.tids[i], i);
	thread_freeze_all(h->pid, f.tids, THREADS);
	id = session_insert_kind(s, "five", POINT_ENTRY);
	session_remove(s, id);
	assert_int_equal(removal_flush(s, &flushed, &e), 0);
	assert_int_not_equal(flushed.queued, 0);
	assert_int_equal(session_detach(s, 1, &detached, &e), 0);
	assert_int_not_equal(detached.left, 0);
	thread_thaw(h->pid);
	ask(h, "idle", "idle");
	session_end(s);
	ask(h, "go 1000 five", "done");
	harness_verify(h);
	harness_end(h, 0);
}

/* What a detach had to leave is taken out later, by whoever comes, and not a moment too early. */
/* fear C1, J1: what could not be freed at detach is freed by the next who comes, not before */
static void test_left_and_repaired(void **state)
{
	struct harness *h = *state;
	struct detach_result detached;
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;
	struct session *s;
	struct five f;

	harness_start(h, "windows", harness_number(THREADS), NULL);
	s = session_begin(h);
	look(h, s, &f);
	for (unsigned i = 0; i < THREADS; i++)
		put(h, &f, f.tids[i], i);
	thread_freeze_all(h->pid, f.tids, THREADS);
	session_insert_kind(s, "five", POINT_ENTRY);
	assert_int_equal(session_detach(s, 1, &detached, &e), 0);
	assert_int_not_equal(detached.left, 0);
	session_free(s);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	assert_int_equal(leftovers_clean(t, 300, &left, &e), 0);
	assert_int_equal(left.arenas_left, 1);
	thread_thaw(h->pid);
	ask(h, "idle", "idle");
	assert_int_equal(leftovers_clean(t, 60000, &left, &e), 0);
	assert_int_equal(left.arenas_left, 0);
	target_close(t);
	ask(h, "go 1000 five", "done");
	harness_verify(h);
	harness_end(h, 0);
}

/* All threads at full speed through a window of five one-byte instructions. */
static void test_storm(void **state)
{
	enum { TURNS = 400 }; /* unless the machine is too busy for so many */
	static const char go[] = "go 3000000 five\n";
	struct harness *h = *state;
	struct session *s;
	unsigned kept, ids[2], rounds = 1;
	uint64_t end;

	harness_start(h, "windows", "4", NULL);
	s = session_begin(h);
	kept = session_insert_kind(s, "worker", POINT_CALL);
	harness_send(h, go);
	end = now_us() + 5000000;
	for (int turn = 0; turn < TURNS && now_us() < end; turn++) {
		ids[0] = session_insert_kind(s, "five", POINT_ENTRY);
		ids[1] = session_insert_kind(s, "five", POINT_EXIT);
		session_remove(s, ids[turn & 1]);
		session_remove(s, ids[!(turn & 1)]);
		session_flush_all(s);
		rounds += harness_again(h, go);
	}
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	assert_int_equal(session_value(s, kept), rounds * 4 * 3000000ull);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* ---------------------------------------------------- signal handlers */

struct handler_case {
	int first, second; /* second: a handler that interrupts the first; 0: none */
	unsigned position;
	enum point_kind kind;
};

/* Tries again until the window is patched; true if it ever is. */
static bool becomes_active(struct session *s, unsigned id)
{
	for (int i = 0; i < 12000 && session_pending(s, id); i++) {
		request_retry_pending(s);
		usleep(10000);
	}
	return !session_pending(s, id);
}

/* A signal that the thread has not taken yet. */
static bool has_pending(pid_t pid, pid_t tid)
{
	return strtoull(harness_status(pid, tid, "SigPnd:"), NULL, 16) != 0;
}

static void run_handler(struct harness *h, const struct handler_case *c)
{
	uint8_t before[16], after[16];
	struct session *s;
	struct five f;
	unsigned id;
	uint64_t value;

	harness_start(h, "windows", "2", NULL);
	s = session_begin(h);
	look(h, s, &f);
	put(h, &f, f.tids[0], c->position);
	syscall(SYS_tgkill, h->pid, f.tids[0], c->first);
	thread_let_go(f.tids[0]);
	thread_wait_syscall(h->pid, f.tids[0], SYS_read);
	if (c->second) {
		thread_seize(f.tids[0]);
		syscall(SYS_tgkill, h->pid, f.tids[0], c->second);
		thread_let_go(f.tids[0]);
		harness_until(!has_pending(h->pid, f.tids[0]));
		thread_wait_syscall(h->pid, f.tids[0], SYS_read);
	}
	thread_peek(h->pid, f.entry, before, sizeof(before));
	id = session_insert_kind(s, "five", c->kind);
	assert_int_equal(session_pending(s, id), 1);
	thread_peek(h->pid, f.entry, after, sizeof(after));
	assert_memory_equal(before, after, sizeof(before));
	/* As long as the handler runs every new attempt waits, too. */
	assert_true(request_has_pending(s));
	assert_int_equal(request_retry_pending(s), 0);
	assert_int_equal(session_pending(s, id), 1);
	harness_send(h, c->second ? "release 2\n" : "release 1\n");
	ask(h, "idle", "idle");
	assert_int_equal(session_value(s, id), 0);
	assert_true(becomes_active(s, id));
	value = session_value(s, id);
	ask(h, "go 20000 five", "done");
	assert_int_equal(session_value(s, id) - value, 2 * ROUNDS);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear C2: a handler interrupted the inside of a window: the window waits until it has returned */
static void test_handler_normal_stack(void **state)
{
	run_handler(*state, &(struct handler_case){SIGUSR1, 0, 3, POINT_ENTRY});
}

/* fear C2: the same where the handler runs on an alternate stack */
static void test_handler_alternate_stack(void **state)
{
	run_handler(*state, &(struct handler_case){SIGUSR2, 0, 1, POINT_ENTRY});
}

/* fear C2: the same for an exit */
static void test_handler_in_exit_window(void **state)
{
	run_handler(*state, &(struct handler_case){SIGUSR2, 0, 8, POINT_EXIT});
}

/* fear C2: the frame of the interrupted window lies below a second handler on another stack */
static void test_handlers_nested(void **state)
{
	run_handler(*state, &(struct handler_case){SIGUSR1, SIGUSR2, 2, POINT_ENTRY});
}

/* fear C2: the same with the alternate stack first */
static void test_handlers_nested_alternate_first(void **state)
{
	run_handler(*state, &(struct handler_case){SIGUSR2, SIGUSR1, 4, POINT_ENTRY});
}

/* ------------------------------------------- system calls at the edge */

static void run_edge(struct harness *h, const char *function)
{
	unsigned entry = 0, exits;
	struct dinst_error e = {0};
	struct five f;
	struct session *s;
	char command[64];
	bool refused;

	snprintf(command, sizeof(command), "block %s", function);
	harness_start(h, "windows", harness_number(THREADS), NULL);
	s = session_begin(h);
	look(h, s, &f);
	ask(h, command, "blocked");
	for (size_t i = 0; i < f.count; i++)
		thread_wait_syscall(h->pid, f.tids[i], SYS_read);
	for (int turn = 0; turn < 10; turn++) {
		session_remove(s, session_insert_kind(s, function, POINT_EXIT));
		session_flush_all(s);
	}
	exits = session_insert_kind(s, function, POINT_EXIT);
	assert_int_equal(session_pending(s, exits), 0);
	refused = session_try_insert_kind(s, function, POINT_ENTRY, &entry, &e) < 0;
	if (refused)
		assert_int_equal(e.code, DINST_REFUSED);
	for (size_t i = 0; i < f.count; i++)
		thread_wait_syscall(h->pid, f.tids[i], SYS_read);
	harness_send(h, "release 5\n");
	ask(h, "idle", "idle");
	assert_int_equal(session_value(s, exits), THREADS);
	if (!refused)
		assert_int_equal(session_value(s, entry), 0);
	ask(h, command, "blocked");
	if (!refused)
		assert_int_equal(session_value(s, entry), THREADS);
	harness_send(h, "release 5\n");
	ask(h, "idle", "idle");
	assert_int_equal(session_value(s, exits), 2 * THREADS);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear A6, C1: threads blocked in a system call right before an exit's and behind an entry's
 * window
 */
static void test_system_call_at_edges(void **state)
{
	run_edge(*state, "edge");
}

/* fear A6, C1: a system call among a function's first five bytes is never part of a window */
static void test_system_call_in_first_bytes(void **state)
{
	run_edge(*state, "tiny_edge");
}

/* ------------------------------------------------------ page boundary */

/* Refused with its reason, or patched and exact under full speed, in and out meanwhile. */
static void run_across_pages(struct harness *h, const char *function, const char *go,
			     const char *start)
{
	struct session *s = session_begin(h);
	unsigned id;

	assert_int_equal(session_address(s, function) % 4096, *function == 'c' ? 4094 : 4093);
	for (int kind = POINT_ENTRY; kind <= POINT_EXIT; kind++) {
		struct dinst_error e = {0};
		int status = session_try_insert_kind(s, function, (enum point_kind)kind, &id, &e);

		if (status < 0) {
			assert_int_equal(status, DINST_REFUSED);
			assert_non_null(strstr(e.text, refusal_name(REFUSAL_PAGE)));
			/* Only the entry lies across the pages. */
			assert_int_equal(kind, POINT_ENTRY);
			continue;
		}
		ask(h, go, "done");
		assert_int_equal(session_value(s, id), 4 * 200000ull);
		ask(h, start, "started");
		for (int turn = 0; turn < 20; turn++) {
			session_remove(s, id);
			session_flush_all(s);
			id = session_insert_kind(s, function, (enum point_kind)kind);
		}
		ask(h, "end", "ended");
		session_remove(s, id);
	}
	session_end(s);
	ask(h, go, "done");
	harness_verify(h);
}

/* fear C7: a window across two pages, code or padding in the second one, is refused, or exact under full speed */
static void test_across_pages(void **state)
{
	struct harness *h = *state;

	harness_start(h, "windows", "4", NULL);
	run_across_pages(h, "crossing", "go 200000 crossing", "start crossing");
	run_across_pages(h, "padded", "go 200000 padded_in", "start padded_in");
	harness_end(h, 0);
}

/* ---------------------------------------- long calls below the removed */

static void run_blocked_below(struct harness *h, const char *function, bool before)
{
	static const enum point_kind kinds[] = {POINT_ENTRY, POINT_CALL, POINT_EXIT};
	static const char *const names[] = {NULL, "inner", "waiter"};
	unsigned ids[9], count = 0;
	char command[64];
	struct flush_result flushed;
	struct dinst_error e = {0};
	struct session *s;
	uint64_t start;

	snprintf(command, sizeof(command), "block %s", function);
	harness_start(h, "windows", harness_number(THREADS), NULL);
	s = session_begin(h);
	if (!before)
		ask(h, command, "blocked");
	for (size_t n = 0; n < 3; n++)
		for (size_t k = 0; k < 3; k++) {
			/* A point that cannot be had is no matter here, but the entry must. */
			if (session_try_insert_kind(s, n ? names[n] : function, kinds[k],
						    &ids[count], &e) >= 0)
				count++;
			else
				assert_int_not_equal(kinds[k], POINT_ENTRY);
			dinst_error_clear(&e);
		}
	if (before)
		ask(h, command, "blocked");
	start = now_us();
	for (unsigned i = 0; i < count; i++)
		session_remove(s, ids[i]);
	/* The calls go on until we end them. */
	assert_true(now_us() - start < 200000);
	assert_int_equal(removal_flush(s, &flushed, &e), 0);
	/* No address of ours is on the blocked threads' stacks: everything is free. */
	assert_int_equal(flushed.queued, 0);
	assert_true(flushed.freed >= count);
	session_end(s);
	harness_verify(h);
	harness_send(h, "release 5\n");
	ask(h, "idle", "idle");
	harness_end(h, 0);
}

/* fear C2, J1: a long call below instrumented functions: removed at once, all memory given back */
static void test_blocked_below_removed(void **state)
{
	run_blocked_below(*state, "outer", true);
}

/* fear C2, J1: inserted and removed while the frames are live */
static void test_blocked_below_inserted_and_removed(void **state)
{
	run_blocked_below(*state, "outer", false);
}

/*
 * fear C2: a call in the first five bytes of a function, blocked: the return address is the
 * program's own
 */
static void test_blocked_below_displaced_call(void **state)
{
	run_blocked_below(*state, "outer_asm", true);
}

/* fear C2: the same, inserted while the call is under way */
static void test_blocked_below_displaced_call_later(void **state)
{
	run_blocked_below(*state, "outer_asm", false);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_inside_entry_window),
		CASE(test_inside_exit_window),
		CASE(test_removed_while_inside),
		CASE(test_left_and_repaired),
		CASE(test_storm),
		CASE(test_handler_normal_stack),
		CASE(test_handler_alternate_stack),
		CASE(test_handler_in_exit_window),
		CASE(test_handlers_nested),
		CASE(test_handlers_nested_alternate_first),
		CASE(test_system_call_at_edges),
		CASE(test_system_call_in_first_bytes),
		CASE(test_across_pages),
		CASE(test_blocked_below_removed),
		CASE(test_blocked_below_inserted_and_removed),
		CASE(test_blocked_below_displaced_call),
		CASE(test_blocked_below_displaced_call_later),
	};

	return cmocka_run_group_tests_name("live/windows", tests, NULL, NULL);
}
