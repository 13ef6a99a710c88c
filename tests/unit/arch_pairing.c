/* SPDX-License-Identifier: MIT */
/*
 * arch_pairing.c - executes the code that pairs entries with exits, and compares
 * it with what is known to be true: random programs with calls, returns, tail
 * calls, longjmp and coroutines; threads that claim records at once; a forked
 * child. Handlers are in arch_pairing_signals.c.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/unit/arch_pairing.h"

enum { FRAMES = 600 };

/* ------------------------------------------------- a program, and the truth */

struct frame {
	uint64_t sp;
	unsigned function;
	bool seen; /* its entry was an event */
};

struct fiber {
	struct frame frames[FRAMES];
	unsigned depth;
	uint64_t top;
};

struct program {
	struct fiber fibers[STACKS];
	unsigned current;
	bool inserted[FUNCTIONS + 1];
	uint64_t entries, exits;
};

static struct fiber *now(struct program *p)
{
	return &p->fibers[p->current];
}

static void program_init(struct program *p)
{
	memset(p, 0, sizeof(*p));
	for (unsigned i = 0; i < STACKS; i++)
		p->fibers[i].top = (uint64_t)(uintptr_t)stacks[i] + STACK_BYTES - 64;
}

static uint64_t lowest(const struct fiber *f)
{
	return f->depth ? f->frames[f->depth - 1].sp : f->top;
}

static void do_call(struct program *p, uint64_t sp, unsigned function)
{
	struct fiber *f = now(p);

	if (f->depth == FRAMES)
		return;
	f->frames[f->depth++] =
		(struct frame){.sp = sp, .function = function, .seen = p->inserted[function]};
	if (p->inserted[function]) {
		assert_true(enter(function, sp));
		p->entries++;
	}
}

static void do_return(struct program *p)
{
	struct fiber *f = now(p);
	const struct frame *frame = &f->frames[f->depth - 1];

	f->depth--;
	if (!p->inserted[frame->function])
		return;
	if (leave(frame->function, frame->sp) != frame->seen)
		fail_msg("the exit of %u at %#llx, depth %u of stack %u: seen %d", frame->function,
			 (unsigned long long)frame->sp, f->depth, p->current, frame->seen);
	p->exits += frame->seen;
}

/* Two requests for one function: both enter, both leave in the same order. */
static void do_double(struct program *p, uint64_t sp, unsigned function)
{
	for (unsigned i = 0; i < 2; i++)
		assert_true(enter(function + i, sp));
	p->entries += 2;
	if (next_random() % 4 == 0)
		return; /* left by longjmp */
	for (unsigned i = 0; i < 2; i++)
		assert_true(leave(function + i, sp));
	p->exits += 2;
}

static void do_anything(struct program *p, bool coroutines)
{
	struct fiber *f = now(p);
	unsigned what = next_random() % 100, function = 1 + next_random() % (FUNCTIONS - 2);
	uint64_t below = lowest(f) - 16 - next_random() % 4 * 16;

	if (what < 45 && f->depth < 300) {
		do_call(p, below, function);
	} else if (what < 80 && f->depth) {
		do_return(p);
	} else if (what < 88 && f->depth) {
		/* A tail call: the exit of one, the entry of the other, one place. */
		uint64_t sp = lowest(f);

		do_return(p);
		do_call(p, sp, function);
	} else if (what < 92 && f->depth) {
		f->depth -= next_random() % (f->depth < 20 ? f->depth : 20) + 1; /* longjmp */
	} else if (what < 95 && p->current == 0) {
		do_double(p, below, FUNCTIONS - 1);
	} else if (what < 96) {
		p->inserted[1 + next_random() % FUNCTIONS] = true;
	} else if (coroutines) {
		p->current = next_random() % STACKS;
	}
}

/* What the record holds of the thread's own stack is what is alive, and nothing that is above. */
static void check_home(const struct program *p)
{
	const struct pair_record *r = own_record();
	const struct fiber *f = &p->fibers[0];
	unsigned at = 0;

	if (!r)
		return;
	assert_int_equal(r->depth % sizeof(struct pair_entry), 0);
	for (unsigned i = 0; i < r->depth / sizeof(struct pair_entry); i++) {
		if (i)
			assert_true(r->home[i].tag >> PAIR_ID_BITS <= r->home[i - 1].tag >>
				    PAIR_ID_BITS);
		while (at < f->depth && !f->frames[at].seen)
			at++;
		if (at < f->depth &&
		    r->home[i].tag == pair_tag(f->frames[at].sp, id_of(f->frames[at].function)))
			at++;
	}
	while (at < f->depth && !f->frames[at].seen)
		at++;
	assert_int_equal(at, f->depth);
}

static void run_program(bool coroutines, unsigned steps)
{
	static struct program p;

	clear_area();
	claim_stack(stacks[0], STACK_BYTES);
	program_init(&p);
	for (unsigned i = 0; i < steps; i++) {
		do_anything(&p, coroutines);
		if (i % 64 == 0)
			check_home(&p);
	}
	for (p.current = 0; p.current < STACKS; p.current++)
		while (now(&p)->depth)
			do_return(&p);
	check_home(&p);
	assert_int_equal(count_untrue(), 0);
	assert_true(p.exits > steps / 16);
	assert_int_equal(statistics[0], 0);
}

static void test_one_stack(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++)
		run_program(false, 20000);
	assert_int_equal(statistics[1], 0);
}

/* Deep frames on three more stacks fill what there is for them: then they are counted as lost. */
static void test_coroutines(void **state)
{
	static struct program p;

	(void)state;
	for (int turn = 0; turn < 20; turn++) {
		clear_area();
		claim_stack(stacks[0], STACK_BYTES);
		program_init(&p);
		memset(p.inserted, 1, sizeof(p.inserted));
		for (unsigned i = 0; i < 20000; i++) {
			if (p.current && now(&p)->depth >= 4)
				do_return(&p);
			else if (next_random() % 10 == 0)
				p.current = next_random() % STACKS;
			else if (now(&p)->depth && next_random() % 2)
				do_return(&p);
			else if (now(&p)->depth < 100)
				do_call(&p, lowest(now(&p)) - 48, 1 + next_random() % FUNCTIONS);
		}
		for (p.current = 0; p.current < STACKS; p.current++)
			while (now(&p)->depth)
				do_return(&p);
		assert_int_equal(p.entries, p.exits);
		assert_int_equal(statistics[0] + statistics[1] + statistics[2], 0);
	}
}

/* Jumps out of coroutines leave things behind; what is entered there again is right at once. */
static void test_coroutines_and_jumps(void **state)
{
	const uint64_t top = (uint64_t)(uintptr_t)stacks[1] + 4096;

	(void)state;
	clear_area();
	claim_stack(stacks[0], STACK_BYTES);
	for (int i = 0; i < 1000; i++) {
		assert_true(enter(1, top));
		assert_true(enter(2, top - 64));
		if (i % 3 == 0)
			continue;
		assert_true(leave(2, top - 64));
		assert_false(leave(2, top - 64));
		assert_true(leave(1, top));
	}
	assert_int_equal(statistics[1], 0);
}

/* Even if everything there is dead: what is entered now finds its entry when it is left. */
static void test_crowded_by_the_dead(void **state)
{
	const uint64_t top = (uint64_t)(uintptr_t)stacks[1] + STACK_BYTES / 2;

	(void)state;
	clear_area();
	claim_stack(stacks[0], STACK_BYTES);
	for (unsigned i = 0; i < 4000; i++)
		assert_true(enter(1 + i % FUNCTIONS, top - 16 * i));
	assert_true(statistics[1] >= 4000 - PAIR_OTHER);
	for (unsigned i = 0; i < 1000; i++) {
		assert_true(enter(3, top + 64 + 16 * i));
		assert_true(leave(3, top + 64 + 16 * i));
	}
	assert_int_equal(statistics[2], 0);
}

static void test_exits_without_entry(void **state)
{
	const uint64_t top = (uint64_t)(uintptr_t)stacks[0] + 65536;

	(void)state;
	clear_area();
	claim_stack(stacks[0], STACK_BYTES);
	assert_false(leave(1, top));
	assert_true(enter(1, top));
	assert_false(leave(2, top));
	assert_false(leave(1, top + 16));
	assert_false(leave(1, top - 16));
	assert_true(leave(1, top));
	assert_false(leave(1, top));
	assert_false(leave(1, (uint64_t)(uintptr_t)stacks[1] + 4096));
	assert_int_equal(statistics[2], 6);
}

/* Deeper than there is room: what is not kept is counted, and pairs with nothing. */
static void test_overflow(void **state)
{
	const uint64_t top = (uint64_t)(uintptr_t)stacks[0] + STACK_BYTES - 64;
	const unsigned deep = PAIR_HOME + 200;

	(void)state;
	clear_area();
	claim_stack(stacks[0], STACK_BYTES);
	for (int turn = 0; turn < 3; turn++) {
		memset(statistics, 0, sizeof(statistics));
		for (unsigned i = 0; i < deep; i++)
			assert_true(enter(1 + i % FUNCTIONS, top - 32 * i));
		assert_int_equal(statistics[1], 200);
		for (unsigned i = deep; i-- > 0;)
			assert_int_equal(leave(1 + i % FUNCTIONS, top - 32 * i), i < PAIR_HOME);
		assert_int_equal(statistics[2], 200);
		assert_int_equal(own_record()->depth, 0);
	}
}

/* Without knowledge of the stack only what is entered again at the same place is dropped. */
static void test_unknown_stack(void **state)
{
	const uint64_t top = (uint64_t)(uintptr_t)stacks[0] + STACK_BYTES - 64;

	(void)state;
	clear_area();
	config()->main_size = 0;
	config()->main_pointer = own_pointer();
	for (int i = 0; i < 1000; i++) {
		assert_true(enter(1, top));
		assert_true(enter(2, top - 256));
		if (i & 1)
			continue;
		assert_true(leave(2, top - 256));
		assert_true(leave(1, top));
	}
	assert_int_equal(own_record()->depth, 0);
	assert_int_equal(statistics[1], 0);
}

/* A new thread in the memory of one that ended begins with nothing. */
static void test_reused_block(void **state)
{
	const uint64_t top = (uint64_t)(uintptr_t)stacks[0] + STACK_BYTES - 64;
	struct pair_record *r;

	(void)state;
	clear_area();
	claim_stack(stacks[0], STACK_BYTES);
	assert_true(enter(1, top));
	assert_true(enter(2, (uint64_t)(uintptr_t)stacks[1] + 4096));
	r = own_record();
	shared->words = 2 * PAIR_CHUNK * 8;
	r->words[0] = r->words[2 * PAIR_CHUNK - 1] = 5;
	/* What was never given out is not touched. */
	r->words[2 * PAIR_CHUNK] = 7;
	assert_int_equal(r->tid, syscall(SYS_gettid));
	owners()[r - records()] ^= 1;
	assert_false(leave(1, top));
	assert_int_equal(r->depth, 0);
	assert_false(leave(2, (uint64_t)(uintptr_t)stacks[1] + 4096));
	assert_int_equal(r->words[0] + r->words[2 * PAIR_CHUNK - 1], 0);
	assert_int_equal(r->words[2 * PAIR_CHUNK], 7);
	shared->words = 0;
	assert_int_equal(owners()[r - records()], syscall(SYS_gettid));
	assert_true(enter(1, top));
	assert_true(leave(1, top));
}

/* ------------------------------------------------------------------- fork */

static int child_events(uint64_t top, uint64_t other)
{
	const struct pair_record *r = own_record();

#ifdef __aarch64__
	/* qemu-user does not do what the kernel does. */
	memset(owners(), 0, pair_owners_size(SHIFT));
#endif
	/* It finds what was copied, takes it out, and does not count it: the parent does. */
	if (!enter(3, top - 64) || !leave(3, top - 64))
		return 1;
	if (r->depth != 2 * sizeof(struct pair_entry) || leave(2, top - 32) || r->depth != 16)
		return 2;
	if (leave(5, other) || r->other[0].tag || !enter(5, other) || !leave(5, other))
		return 3;
	if (!enter(2, top - 32) || !leave(2, top - 32) || leave(1, top) || r->depth)
		return 4;
	if (statistics[2] != 0)
		return 5;
	return enter(1, top) && leave(1, top) ? 0 : 6;
}

static void test_fork(void **state)
{
	const uint64_t top = (uint64_t)(uintptr_t)stacks[0] + STACK_BYTES - 64;
	/* The first place of all. */
	uint64_t other = (uint64_t)(uintptr_t)stacks[1] + 4096;
	int status = -1;
	pid_t pid;

	(void)state;
	while (((uint32_t)(other >> 3) * PAIR_HASH) >> 25)
		other += 16;
	for (int generation = 0; generation < 3; generation++) {
		clear_area();
		claim_stack(stacks[0], STACK_BYTES);
		assert_true(enter(1, top));
		assert_true(enter(2, top - 32));
		assert_true(enter(5, other));
		pid = fork();
		if (pid == 0)
			_exit(child_events(top, other));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		assert_true(leave(5, other));
		assert_true(leave(2, top - 32));
		assert_true(leave(1, top));
	}
}

/* ---------------------------------------------------------------- threads */

enum { THREADS = 12, CROWD = 100, ROUNDS = 3000 };

static pthread_barrier_t start;

/* Each works on a piece of a stack of its own and checks each answer. */
static void *worker(void *arg)
{
	const unsigned function = (unsigned)(uintptr_t)arg;
	uint64_t top = (uint64_t)(uintptr_t)stacks[0] + (function + 1) * 8192;
	uint64_t wrong = 0;

	pthread_barrier_wait(&start);
	for (unsigned i = 0; i < ROUNDS; i++) {
		wrong += !enter(function, top);
		wrong += !enter(function, top - 64);
		wrong += !leave(function, top - 64);
		wrong += leave(function, top - 64);
		wrong += !leave(function, top);
	}
	return (void *)(uintptr_t)wrong;
}

static void test_threads_claim_at_once(void **state)
{
	pthread_t threads[THREADS];

	(void)state;
	for (int turn = 0; turn < 20; turn++) {
		unsigned claimed = 0;

		clear_area();
		config()->main_pointer = 0;
		pthread_barrier_init(&start, NULL, THREADS);
		for (uintptr_t i = 0; i < THREADS; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, worker, (void *)(i + 1)),
					 0);
		for (unsigned i = 0; i < THREADS; i++) {
			void *wrong;

			pthread_join(threads[i], &wrong);
			assert_null(wrong);
		}
		for (unsigned i = 0; i < 1u << SHIFT; i++) {
			claimed += keys()[i] != 0;
			for (unsigned j = 0; j < i; j++)
				assert_true(!keys()[i] || keys()[i] != keys()[j]);
		}
		assert_int_equal(claimed, THREADS);
		assert_int_equal(statistics[0], 0);
		pthread_barrier_destroy(&start);
	}
}

static _Atomic unsigned with_record, without_record, lost;

static void *one_of_many(void *arg)
{
	const unsigned function = (unsigned)(uintptr_t)arg;
	uint64_t top = (uint64_t)(uintptr_t)stacks[0] + (function + 1) * 4096;
	bool paired;

	if (!enter(function, top))
		return (void *)1;
	paired = leave(function, top);
	if (paired)
		with_record++;
	else
		without_record++;
	pthread_barrier_wait(&start);
	/* Entries that have none are counted, and what only looks for the record. */
	if (!paired)
		lost += is_operation(function) && function % 4 == 1 ? 4 : 2;
	/* The same answer again: nobody takes away anybody's record. */
	return enter(function, top) && leave(function, top) == paired ? NULL : (void *)1;
}

/* More threads than records: some have none, and that is counted. */
static void test_more_threads_than_records(void **state)
{
	pthread_t threads[CROWD];

	(void)state;
	clear_area();
	with_record = without_record = lost = 0;
	pthread_barrier_init(&start, NULL, CROWD);
	for (uintptr_t i = 0; i < CROWD; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, one_of_many, (void *)(i + 1)),
				 0);
	for (unsigned i = 0; i < CROWD; i++) {
		void *wrong;

		pthread_join(threads[i], &wrong);
		assert_null(wrong);
	}
	assert_int_equal(with_record, 1 << SHIFT);
	assert_int_equal(without_record, CROWD - (1 << SHIFT));
	assert_int_equal(statistics[0], lost);
	pthread_barrier_destroy(&start);
}

#ifndef __aarch64__
/* ------------------------------------------------------------------- cost */

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Entry and exit in a row, as often as said, on the stack that it is given. */
static taddr_t emit_loop(uint32_t turns, bool empty)
{
	struct arch_pairing spec = {.area = (taddr_t)(uintptr_t)area,
				    .shift = SHIFT,
				    .tid_offset = tid_offset,
				    .function = 1,
				    .enter = enter_routine,
				    .leave = leave_routine};
	static const uint8_t mov_edi[] = {0xbf}, next[] = {0xff, 0xcf, 0x0f, 0x85};
	static const uint8_t jump_r14[] = {0x41, 0xff, 0xe6};
	struct arch_buf out = {.bytes = code, .size = COLD_AT, .pc = (taddr_t)(uintptr_t)code};
	struct arch_buf cold = {.bytes = code, .size = CODE_SIZE, .pc = out.pc};
	struct arch_frame frame = {.reg = {RAX, RCX, RDX, RSI}};
	taddr_t entry, again;

	out.used = code_used;
	cold.used = cold_used;
	entry = arch_here(&out);
	x86_emit(&out, mov_edi, sizeof(mov_edi));
	x86_emit32(&out, turns);
	again = arch_here(&out);
	if (!empty) {
		arch_emit_enter(&spec, &frame, &out, &cold);
		arch_emit_leave(&spec, &frame, &out, &cold);
	}
	x86_emit(&out, next, sizeof(next));
	x86_emit_relative(&out, again);
	x86_emit(&out, jump_r14, sizeof(jump_r14));
	assert_int_equal(out.status | cold.status, ARCH_OK);
	code_used = out.used;
	cold_used = cold.used;
	return entry;
}

/* Not a test of anything: what a pair costs without its frame and its count. */
static void test_cost(void **state)
{
	const uint64_t top = (uint64_t)(uintptr_t)stacks[0] + STACK_BYTES - 64;
	enum { TURNS = 4000000 };
	taddr_t loop = emit_loop(TURNS, false), empty = emit_loop(TURNS, true);
	double best[2] = {1, 1};

	(void)state;
	clear_area();
	claim_stack(stacks[0], STACK_BYTES);
	for (int i = 0; i < 10; i++) {
		double begin = seconds(), took;

		run_at(i & 1 ? empty : loop, top, 0);
		took = seconds() - begin;
		best[i & 1] = took < best[i & 1] ? took : best[i & 1];
	}
	print_message("an entry and its exit: %.2f ns\n", (best[0] - best[1]) / TURNS * 1e9);
	assert_int_equal(own_record()->depth, 0);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_stack),
		cmocka_unit_test(test_coroutines),
		cmocka_unit_test(test_coroutines_and_jumps),
		cmocka_unit_test(test_crowded_by_the_dead),
		cmocka_unit_test(test_exits_without_entry),
		cmocka_unit_test(test_overflow),
		cmocka_unit_test(test_unknown_stack),
		cmocka_unit_test(test_reused_block),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_threads_claim_at_once),
		cmocka_unit_test(test_more_threads_than_records),
#ifndef __aarch64__
		cmocka_unit_test(test_cost),
#endif
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
