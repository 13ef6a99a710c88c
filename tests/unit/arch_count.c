/* SPDX-License-Identifier: MIT */
/*
 * arch_count.c - executes counters in their frames: every combination of live
 * registers, live flags and red zone on random states, one counter and several
 * in a row; then many threads that migrate and are interrupted, and every count
 * must be there at the end.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "arch/x86_64/x86.h"
#include "tests/unit/arch_run.h"

enum {
	CPUS = 64,
	CPU_SHIFT = 12,
	COUNTER_OFFSET = 128,
	BLOCKS = (CPUS + 1) << CPU_SHIFT,
	CODE_SIZE = 65536,
	STACK_SIZE = 4096,
	STACK_AT = 2048,
	COLD_AT = 16384,
	EXIT_AT = 32768, /* offset of the place that the code leads to */
	HOT_MAX = 1024,
	ABORT_AT = 36,	     /* of a cold part */
	TABLE_OFFSET = 1024, /* of CPU 0's word */
	THREADS = 6,
	SECONDS = 2,
	MORE_SECONDS = 20, /* where no sequence has been aborted yet */
};

static uint8_t *code, *counters, *stack;
static bool wants_flags; /* as if another snippet of the frame changed them */

/* Below 2 GiB, as the counters of the real arena. */
static uint8_t *map_low(size_t size, int protection)
{
	for (uintptr_t at = 0x10000000; at < 0x60000000; at += 0x1000000) {
		void *p = mmap((void *)at, size, protection,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

		if (p == (void *)at)
			return p;
		if (p != MAP_FAILED)
			munmap(p, size);
	}
	return NULL;
}

static int setup(void **state)
{
	(void)state;
	code = mmap(NULL, CODE_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	counters = map_low(BLOCKS, PROT_READ | PROT_WRITE);
	stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED || !counters || stack == MAP_FAILED)
		return -1;
	memset(code, RUN_END, CODE_SIZE);
	for (uint64_t cpu = 0; cpu < CPUS; cpu++) {
		uint64_t word = (cpu << CPU_SHIFT) + 1;

		memcpy(counters + TABLE_OFFSET + 8 * cpu, &word, 8);
	}
	return 0;
}

/* What is emitted and how. */
struct made {
	struct arch_counter counter;
	struct arch_frame frame;
	unsigned count; /* counters in a row */
	size_t hot_size, cold_size;
	struct arch_trace hot_trace, cold_trace;
	struct arch_mark hot_marks[64], cold_marks[64];
};

static struct made make(enum arch_count_mode mode, arch_regset live, bool red_zone)
{
	return (struct made){
		.counter = {.mode = mode,
			    .counter_address = (taddr_t)(uintptr_t)counters + COUNTER_OFFSET,
			    .cpu_shift = CPU_SHIFT,
			    .cpus = CPUS,
			    .rseq_offset = __rseq_offset,
			    .rseq_signature = RSEQ_SIG,
			    .cpu_table = (taddr_t)(uintptr_t)counters + TABLE_OFFSET},
		.frame = {.live = live, .red_zone = red_zone},
		.count = 1,
	};
}

/* Before a descriptor is overwritten no thread may point to it. */
static void leave_descriptor(void)
{
	if (__rseq_size)
		memset((uint8_t *)__builtin_thread_pointer() + __rseq_offset + 8, 0, 8);
}

static void emit(struct made *m)
{
	taddr_t base = (taddr_t)(uintptr_t)code;
	struct arch_buf hot = {.bytes = code, .size = HOT_MAX, .pc = base};
	struct arch_buf cold = {.bytes = code + COLD_AT, .size = HOT_MAX, .pc = base + COLD_AT};

	leave_descriptor();
	memset(&m->hot_trace, 0, sizeof(m->hot_trace));
	memset(&m->cold_trace, 0, sizeof(m->cold_trace));
	m->hot_trace.marks = m->hot_marks;
	m->cold_trace.marks = m->cold_marks;
	m->hot_trace.room = m->cold_trace.room = 64;
	hot.trace = &m->hot_trace;
	cold.trace = &m->cold_trace;
	m->frame.needs = wants_flags ? ARCH_NEED_FLAGS : 0;
	m->frame.scratch = 0;
	arch_count_needs(&m->counter, &m->frame);
	arch_frame_open(&hot, &m->frame);
	for (unsigned i = 0; i < m->count; i++)
		arch_emit_count(&m->counter, &m->frame, &hot, &cold);
	arch_frame_close(&hot, &m->frame);
	arch_emit_jump(&hot, base + EXIT_AT);
	assert_int_equal(hot.status, ARCH_OK);
	assert_int_equal(cold.status, ARCH_OK);
	assert_true(cold.used <= m->count * ARCH_COUNT_COLD);
	m->hot_size = hot.used;
	m->cold_size = cold.used;
}

static uint64_t slot(unsigned cpu)
{
	uint64_t value;

	memcpy(&value, counters + COUNTER_OFFSET + ((size_t)cpu << CPU_SHIFT), 8);
	return value;
}

static uint64_t total(void)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i <= CPUS; i++)
		sum += slot(i);
	return sum;
}

/* ------------------------------------------------- every combination, once */

static long runs;

static const char *differs(const struct arch_frame *spec, const struct run_state *in,
			   struct run_state *out, const uint8_t *before)
{
	uint64_t flags = 0;

	for (unsigned i = 0; i < 16; i++)
		if ((spec->live & SET(i) || i == RSP) && in->r[i] != out->r[i])
			return "register";
	flags |= spec->live & FLAG_CF ? 0x001 : 0;
	flags |= spec->live & FLAG_PF ? 0x004 : 0;
	flags |= spec->live & FLAG_AF ? 0x010 : 0;
	flags |= spec->live & FLAG_ZF ? 0x040 : 0;
	flags |= spec->live & FLAG_SF ? 0x080 : 0;
	flags |= spec->live & FLAG_OF ? 0x800 : 0;
	flags |= 0x400;
	if ((in->flags ^ out->flags) & flags)
		return "flag";
	if (memcmp(stack + STACK_AT, before + STACK_AT, STACK_SIZE - STACK_AT) != 0)
		return "stack";
	if (spec->red_zone && memcmp(stack + STACK_AT - 128, before + STACK_AT - 128, 128) != 0)
		return "red zone";
	if (memcmp(stack, before, STACK_AT - 128 - 24) != 0)
		return "memory below the stack";
	return memcmp(in->extended, out->extended, 464) ? "vector state" : NULL;
}

static void run_once(struct made *m)
{
	static struct run_state in, out;
	static uint8_t before[STACK_SIZE];
	uint64_t count = total(), locked = slot(CPUS);
	const char *what;

	emit(m);
	run_random_extended(&in);
	for (unsigned i = 0; i < 16; i++)
		in.r[i] = run_random();
	in.r[RSP] = (uint64_t)(uintptr_t)stack + STACK_AT;
	in.flags = run_random() & RUN_FLAGS;
	in.pc = (uint64_t)(uintptr_t)code;
	run_fill(before, STACK_SIZE);
	memcpy(stack, before, STACK_SIZE);
	run_code(&in, &out);
	runs++;
	what = differs(&m->frame, &in, &out, before);
	if (!what && out.pc != (uint64_t)(uintptr_t)code + EXIT_AT)
		what = "pc";
	if (!what && total() != count + m->count)
		what = "count";
	if (!what && m->counter.mode == ARCH_COUNT_LOCKED && slot(CPUS) != locked + m->count)
		what = "locked slot";
	if (what)
		fail_msg("%s is not kept: live %#llx red zone %d mode %d", what,
			 (unsigned long long)m->frame.live, m->frame.red_zone, m->counter.mode);
}

/* Once more while something came between: an aborted sequence counts in the locked slot. */
static void run_unaborted(struct made *m)
{
	uint64_t locked;

	for (unsigned tries = 0; tries == 0 || slot(CPUS) != locked; tries++) {
		assert_true(tries < 20);
		locked = slot(CPUS);
		run_once(m);
	}
}

static void run_combinations(enum arch_count_mode mode)
{
	/* rsp is live always; SF, ZF, AF, PF and CF are kept together. */
	static const arch_regset flag_sets[] = {0, FLAG_OF, FLAG_CF, SET_FLAGS};

	run_init(); /* after cmocka has set its own handlers for this test */
	for (unsigned bits = 0; bits < 1u << 15; bits++) {
		arch_regset live = SET(RSP) | (bits & 15) | (arch_regset)(bits >> 4) << 5;

		for (unsigned i = 0; i < 8; i++) {
			struct made m = make(mode, live | flag_sets[i / 2], i & 1);

			m.counter.clears = bits >> 4 & 1;
			m.count = bits % 64 == 5 ? 3 : 1;
			(mode == ARCH_COUNT_PER_CPU ? run_unaborted : run_once)(&m);
		}
	}
}

/* fear D1, D2: each combination of live registers, flags and red zone around a counter */
static void test_per_cpu_combinations(void **state)
{
	(void)state;
	if (__rseq_size == 0) {
		print_message("skipped: this process has no rseq registration\n");
		skip();
	}
	run_combinations(ARCH_COUNT_PER_CPU);
}

static void test_locked_combinations(void **state)
{
	(void)state;
	run_combinations(ARCH_COUNT_LOCKED);
}

/* A thread without a CPU number, and one beyond the blocks, count in the locked slot. */
static void test_no_cpu_number(void **state)
{
	/* The table ends with the possible CPUs, and the kernel's numbers do. */
	static const int32_t numbers[] = {-1, -2, CPUS, CPUS + 1, INT32_MAX, INT32_MIN};
	static __thread uint8_t area[64] __attribute__((aligned(32)));
	static const arch_regset lives[] = {SET_ALL, SET(RSP), SET(RSP) | SET_FLAGS,
					    SET_ALL & ~SET_FLAGS};

	(void)state;
	run_init();
	for (size_t l = 0; l < sizeof(lives) / sizeof(lives[0]); l++) {
		struct made m = make(ARCH_COUNT_PER_CPU, lives[l], true);
		size_t count = lives[l] & SET_FLAGS ? 2 : sizeof(numbers) / sizeof(numbers[0]);

		/* Not on the registered area: a place in our own thread-local storage. */
		m.counter.rseq_offset =
			(int64_t)((uintptr_t)area - (uintptr_t)__builtin_thread_pointer());
		for (size_t i = 0; i < count; i++) {
			uint64_t locked = slot(CPUS);

			memcpy(area + 4, &numbers[i], 4);
			run_once(&m);
			assert_int_equal(slot(CPUS), locked + 1);
		}
		for (int32_t cpu = 0; cpu < CPUS; cpu++) {
			uint64_t counted = slot((unsigned)cpu);

			memcpy(area + 4, &cpu, 4);
			run_once(&m);
			assert_int_equal(slot((unsigned)cpu), counted + 1);
		}
	}
}

/* ----------------------------------------------------- geometry and bounds */

static void test_descriptors(void **state)
{
	taddr_t base = (taddr_t)(uintptr_t)code, cold = base + COLD_AT;

	(void)state;
	for (unsigned i = 0; i < 4096; i++) {
		struct made m = make(ARCH_COUNT_PER_CPU, run_random() & SET_ALL, run_random() & 1);
		uint64_t start, length, abort_ip;

		emit(&m);
		memcpy(&start, code + COLD_AT + 8, 8);
		memcpy(&length, code + COLD_AT + 16, 8);
		memcpy(&abort_ip, code + COLD_AT + 24, 8);
		assert_int_equal(cold % 32, 0);
		assert_true(start > base && start + length < base + m.hot_size);
		/* The kernel refuses a handler inside of its sequence. */
		assert_int_equal(abort_ip, cold + ABORT_AT);
		assert_int_equal(
			memcmp(code + COLD_AT + ABORT_AT - 4, &m.counter.rseq_signature, 4), 0);
	}
}

static void test_out_of_range(void **state)
{
	uint8_t bytes[HOT_MAX], cold_bytes[HOT_MAX];
	struct arch_buf out = {.bytes = bytes, .size = sizeof(bytes), .pc = 0x7f0000000000};
	struct arch_buf cold = {
		.bytes = cold_bytes, .size = sizeof(cold_bytes), .pc = 0x7f0000100000};
	struct made m = make(ARCH_COUNT_PER_CPU, 0, false);

	(void)state;
	m.counter.counter_address = 0x7ffff000;
	arch_count_needs(&m.counter, &m.frame);
	arch_frame_open(&out, &m.frame);
	arch_emit_count(&m.counter, &m.frame, &out, &cold);
	assert_int_equal(out.status, ARCH_OUT_OF_RANGE);
	out.status = ARCH_OK;
	m.counter.mode = ARCH_COUNT_LOCKED; /* pc-relative, within reach or not */
	m.counter.counter_address = 0x7f0010000000;
	arch_emit_count(&m.counter, &m.frame, &out, &cold);
	assert_int_equal(out.status, ARCH_OK);
	m.counter.counter_address = 0x7e0010000000;
	arch_emit_count(&m.counter, &m.frame, &out, &cold);
	assert_int_equal(out.status, ARCH_OUT_OF_RANGE);
}

/* How far an instruction moves the stack pointer down. */
static long moves_stack(const struct arch_insn *insn)
{
	const uint8_t *b = insn->bytes[0] == 0x41 ? insn->bytes + 1 : insn->bytes;

	/* Neither pushf nor popf: a debugger that steps leaves the trap flag with them. */
	assert_true(*b != 0x9c && *b != 0x9d);
	if ((*b & 0xf0) == 0x50)
		return *b & 8 ? -8 : 8;
	if (insn->bytes[1] == 0x8d && insn->bytes[3] == 0x24)
		return insn->bytes[2] == 0x64 ? 128 : -128;
	return 0;
}

/* From `at` straight on to `end`: the trace says what the instructions do. Returns what is left. */
static size_t follow(const struct arch_trace *trace, size_t from, size_t at, size_t end,
		     size_t pushed)
{
	while (at < end) {
		struct arch_insn insn;

		assert_int_equal(arch_decode(code + from + at, 16, at, &insn), ARCH_OK);
		assert_int_equal(arch_pushed_at(trace, at), pushed);
		pushed = (size_t)((long)pushed + moves_stack(&insn));
		at += insn.length;
	}
	assert_int_equal(at, end);
	return pushed;
}

static void test_pushed(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2000; i++) {
		arch_regset live = run_random() & 1 ? SET_ALL : run_random() & SET_ALL;
		struct made m = make(i & 1 ? ARCH_COUNT_LOCKED : ARCH_COUNT_PER_CPU, live,
				     run_random() & 1);

		emit(&m);
		assert_int_equal(follow(&m.hot_trace, 0, 0, m.hot_size, 0), 0);
		/* Abort handler and locked path: everything is pushed, and nothing more afterwards. */
		if (m.counter.mode == ARCH_COUNT_PER_CPU)
			assert_int_equal(follow(&m.cold_trace, COLD_AT, ABORT_AT, m.cold_size,
						m.frame.pushed),
					 m.frame.pushed);
	}
}

/* Nothing is saved that is dead; with dead registers nothing is pushed at all. */
static void test_frugal(void **state)
{
	static const struct {
		arch_regset live;
		size_t most;
		unsigned pushed;
	} cases[] = {
		{0, 43, 0}, /* a register and the flags are dead */
		{SET_FLAGS, 61, 0},
		{SET_ALL & ~SET_FLAGS, 43 + 2 + 13, 128 + 8},
		{SET_ALL, 61 + 4 + 13, 128 + 16},
		{SET_FLAGS | SET(RCX), 61 + 6, 0}, /* rcx is moved, not pushed */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct made m = make(ARCH_COUNT_PER_CPU, cases[i].live, true);

		emit(&m);
		if (m.hot_size - 5 > cases[i].most || m.frame.pushed != cases[i].pushed)
			fail_msg("case %zu: %zu bytes, %u pushed", i, m.hot_size - 5,
				 m.frame.pushed);
	}
}

/* ------------------------------------------------------- exact under load */

static bool *stop_flag;
static long calls_made[THREADS], abort_seen, interrupted, registers_lost;

/* A signal that arrives inside the sequence finds the pc at the abort handler. */
static void on_tick(int signal, siginfo_t *info, void *context)
{
	uint64_t pc = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	uint64_t offset = pc - (uint64_t)(uintptr_t)code - COLD_AT;

	(void)signal;
	(void)info;
	__atomic_add_fetch(&interrupted, 1, __ATOMIC_RELAXED);
	if (offset == ABORT_AT)
		__atomic_add_fetch(&abort_seen, 1, __ATOMIC_RELAXED);
}

/*
 * Calls the code, which ends in a jump to a ret, with every register that the
 * psABI lets a callee change holding a bit of its own, CF and OF set. Returns
 * what is missing afterwards. (The call must not touch our own red zone.)
 */
static uint64_t call_code(unsigned long times)
{
	uintptr_t entry = (uintptr_t)code;
	uint64_t sum, overflow, missing = 0;

	for (unsigned long i = 0; i < times; i++) {
		__asm__ volatile("lea -128(%%rsp),%%rsp\n\t"
				 "mov $0x7f,%%al\n\t"
				 "add $1,%%al\n\t"
				 "stc\n\t"
				 "mov $1,%%eax\n\t"
				 "mov $2,%%ecx\n\t"
				 "mov $4,%%edx\n\t"
				 "mov $8,%%esi\n\t"
				 "mov $16,%%edi\n\t"
				 "mov $32,%%r8d\n\t"
				 "mov $64,%%r9d\n\t"
				 "mov $128,%%r10d\n\t"
				 "mov $256,%%r11d\n\t"
				 "call *%2\n\t"
				 "seto %b1\n\t"
				 "adc %%rcx,%%rax\n\t"
				 "add %%rdx,%%rax\n\t"
				 "add %%rsi,%%rax\n\t"
				 "add %%rdi,%%rax\n\t"
				 "add %%r8,%%rax\n\t"
				 "add %%r9,%%rax\n\t"
				 "add %%r10,%%rax\n\t"
				 "add %%r11,%%rax\n\t"
				 "movzbl %b1,%k1\n\t"
				 "lea 128(%%rsp),%%rsp"
				 : "=&a"(sum), "=&b"(overflow)
				 : "r"(entry)
				 : "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory",
				   "cc");
		missing |= (sum ^ 512) | (overflow ^ 1); /* 511 and the carry */
	}
	return missing;
}

static void *count(void *index)
{
	long made = 0;

	while (!__atomic_load_n(stop_flag, __ATOMIC_RELAXED)) {
		if (call_code(1000))
			__atomic_add_fetch(&registers_lost, 1, __ATOMIC_RELAXED);
		made += 1000;
	}
	calls_made[(intptr_t)index] = made;
	return NULL;
}

static void migrate(pthread_t *threads, unsigned round)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	for (unsigned i = 0; i < THREADS; i++) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET((round + i) % (unsigned)cpus, &set);
		pthread_setaffinity_np(threads[i], sizeof(set), &set);
		pthread_kill(threads[i], SIGUSR2);
	}
}

static void check_exact(arch_regset live)
{
	struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART};
	struct made m = make(ARCH_COUNT_PER_CPU, live, false);
	pthread_t threads[THREADS];
	bool stop = false;
	uint64_t before, locked;
	time_t end;
	long made = 0;

	if (__rseq_size == 0) {
		print_message("skipped: this process has no rseq registration\n");
		skip();
	}
	interrupted = abort_seen = registers_lost = 0;
	stop_flag = &stop;
	action.sa_sigaction = on_tick;
	sigaction(SIGUSR2, &action, NULL);
	m.counter.clears = (live & SET_FLAGS) != 0;
	emit(&m);
	code[EXIT_AT] = 0xc3;
	before = total();
	locked = slot(CPUS);
	for (intptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, count, (void *)i), 0);
	end = time(NULL) + SECONDS;
	/* on a busy machine few signals come, and of these few in the middle of a sequence */
	for (unsigned round = 0;
	     time(NULL) < end + (__atomic_load_n(&abort_seen, __ATOMIC_RELAXED) ? 0 : MORE_SECONDS);
	     round++) {
		migrate(threads, round);
		usleep(500);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		made += calls_made[i];
	}
	code[EXIT_AT] = RUN_END;
	print_message("%ld counts, %ld signals, %ld of them aborted a sequence\n", made,
		      interrupted, abort_seen);
	assert_int_equal(total() - before, made);
	assert_true(interrupted > 0);
	assert_true(abort_seen > 0);
	assert_true(slot(CPUS) > locked); /* where those count */
	assert_int_equal(registers_lost, 0);
}

/* fear B6, D8: threads that migrate and are interrupted: no count is lost */
static void test_exact(void **state)
{
	(void)state;
	check_exact(SET_ALL); /* the sequence that does not touch the flags */
}

static void test_exact_with_flags(void **state)
{
	(void)state;
	/* Saved by the frame of something else: the other sequence. */
	wants_flags = true;
	check_exact(SET_ALL);
	wants_flags = false;
}

static void test_runs(void **state)
{
	(void)state;
	print_message("%ld runs\n", runs);
	assert_true(runs >= 2 * 8 * 32768);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_descriptors),
		cmocka_unit_test(test_out_of_range),
		cmocka_unit_test(test_pushed),
		cmocka_unit_test(test_frugal),
		cmocka_unit_test(test_per_cpu_combinations),
		cmocka_unit_test(test_locked_combinations),
		cmocka_unit_test(test_no_cpu_number),
		cmocka_unit_test(test_runs),
		cmocka_unit_test(test_exact),
		cmocka_unit_test(test_exact_with_flags),
	};

	alarm(400);
	return cmocka_run_group_tests(tests, setup, NULL);
}
