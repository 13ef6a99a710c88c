/* SPDX-License-Identifier: MIT */
/*
 * arch_cells.c - executes counter cells: every combination of live registers,
 * live flags and red zone on random states; then many threads that migrate and
 * are interrupted, and every count must be there at the end.
 *
 * The cells and counters of this test are never unmapped: a thread's rseq_cs
 * may point to them.
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
	EXIT_AT = 32768, /* offset of the place a cell leads to */
	THREADS = 6,
	SECONDS = 3,
};

static uint8_t *code, *counters, *stack;

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
	return 0;
}

static struct arch_counter make_spec(enum arch_count_mode mode, arch_regset live, bool red_zone)
{
	return (struct arch_counter){
		.mode = mode,
		.counter_address = (taddr_t)(uintptr_t)counters + COUNTER_OFFSET,
		.cpu_shift = CPU_SHIFT,
		.cpus = CPUS,
		.rseq_offset = __rseq_offset,
		.rseq_signature = RSEQ_SIG,
		.live = live,
		.red_zone = red_zone,
	};
}

static struct arch_cell emit(const struct arch_counter *spec, size_t at, size_t next)
{
	struct arch_buf out = {
		.bytes = code + at, .size = ARCH_CELL_SIZE, .pc = (taddr_t)(uintptr_t)code + at};
	struct arch_cell cell;

	memset(&cell, 0, sizeof(cell));
	arch_emit_counter_cell(&out, spec, (taddr_t)(uintptr_t)code + next, &cell);
	assert_int_equal(out.status, ARCH_OK);
	assert_int_equal(out.used, ARCH_CELL_SIZE);
	return cell;
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

static const char *differs(const struct arch_counter *spec, const struct run_state *in,
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
	if (memcmp(stack, before, STACK_AT - 128 - 16) != 0)
		return "memory below the stack";
	return memcmp(in->extended, out->extended, 464) ? "vector state" : NULL;
}

static void run_once(const struct arch_counter *spec)
{
	static struct run_state in, out;
	static uint8_t before[STACK_SIZE];
	struct arch_cell cell = emit(spec, 0, EXIT_AT);
	uint64_t count = total(), locked = slot(CPUS);
	const char *what;

	run_random_extended(&in);
	for (unsigned i = 0; i < 16; i++)
		in.r[i] = run_random();
	in.r[RSP] = (uint64_t)(uintptr_t)stack + STACK_AT;
	in.flags = run_random() & RUN_FLAGS;
	in.pc = (uint64_t)(uintptr_t)code + cell.entry;
	run_fill(before, STACK_SIZE);
	memcpy(stack, before, STACK_SIZE);
	run_code(&in, &out);
	runs++;
	what = differs(spec, &in, &out, before);
	if (!what && out.pc != (uint64_t)(uintptr_t)code + EXIT_AT)
		what = "pc";
	if (!what && total() != count + 1)
		what = "count";
	if (!what && spec->mode == ARCH_COUNT_LOCKED && slot(CPUS) != locked + 1)
		what = "locked slot";
	if (what)
		fail_msg("%s is not kept: live %#llx red zone %d mode %d", what,
			 (unsigned long long)spec->live, spec->red_zone, spec->mode);
}

static void run_combinations(enum arch_count_mode mode)
{
	/* rsp is live always; SF, ZF, AF, PF and CF are kept together. */
	static const arch_regset flag_sets[] = {0, FLAG_OF, FLAG_CF, SET_FLAGS};

	run_init(); /* after cmocka has set its own handlers for this test */
	for (unsigned bits = 0; bits < 1u << 15; bits++) {
		arch_regset live = SET(RSP) | (bits & 15) | (arch_regset)(bits >> 4) << 5;

		for (unsigned i = 0; i < 8; i++) {
			struct arch_counter spec = make_spec(mode, live | flag_sets[i / 2], i & 1);

			run_once(&spec);
		}
	}
}

static void test_per_cpu_combinations(void **state)
{
	(void)state;
	if (__rseq_size == 0) {
		print_message("skipped: this process has no rseq registration\n");
		skip();
	}
	run_combinations(ARCH_COUNT_PER_CPU);
	assert_int_equal(slot(CPUS), 0);
}

static void test_locked_combinations(void **state)
{
	(void)state;
	run_combinations(ARCH_COUNT_LOCKED);
}

/* A thread without a CPU number, and one beyond the blocks, count in the locked slot. */
static void test_no_cpu_number(void **state)
{
	struct arch_counter spec = make_spec(ARCH_COUNT_PER_CPU, SET_ALL, true);
	static const int32_t numbers[] = {-1, -2, CPUS, CPUS + 1, INT32_MAX, INT32_MIN};
	uint8_t *fake = (uint8_t *)__builtin_thread_pointer() + __rseq_offset;
	int32_t saved;

	(void)state;
	/* Not on the registered area: a place in our own thread-local storage. */
	static __thread uint8_t area[64] __attribute__((aligned(32)));
	run_init();
	fake = area;
	spec.rseq_offset = (int64_t)((uintptr_t)area - (uintptr_t)__builtin_thread_pointer());
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		uint64_t locked = slot(CPUS);

		saved = numbers[i];
		memcpy(fake + 4, &saved, 4);
		run_once(&spec);
		assert_int_equal(slot(CPUS), locked + 1);
	}
	for (int32_t cpu = 0; cpu < CPUS; cpu++) {
		uint64_t count = slot((unsigned)cpu);

		memcpy(fake + 4, &cpu, 4);
		run_once(&spec);
		assert_int_equal(slot((unsigned)cpu), count + 1);
	}
}

/* ----------------------------------------------------- geometry and bounds */

static void test_geometry(void **state)
{
	uint8_t first[64];

	(void)state;
	for (unsigned i = 0; i < 4096; i++) {
		struct arch_counter spec = make_spec(i & 1 ? ARCH_COUNT_LOCKED : ARCH_COUNT_PER_CPU,
						     run_random() & SET_ALL, run_random() & 1);
		struct arch_cell cell = emit(&spec, 0, EXIT_AT);
		uint64_t start, length, abort_ip;
		taddr_t base = (taddr_t)(uintptr_t)code;

		if (i == 0)
			memcpy(first, code, sizeof(first));
		/* Descriptor, signature, abort handler and locked path: the same always. */
		assert_memory_equal(code + ARCH_CELL_DESCRIPTOR, first, 49);
		memcpy(&start, code + 8, 8);
		memcpy(&length, code + 16, 8);
		memcpy(&abort_ip, code + 24, 8);
		assert_int_equal(base % 32, 0);
		assert_true(start >= base && start + length <= base + ARCH_CELL_SIZE);
		assert_true(abort_ip < start || abort_ip >= start + length);
		assert_true(abort_ip >= base + cell.code_begin);
		assert_int_equal(memcmp(code + (abort_ip - base) - 4, &spec.rseq_signature, 4), 0);
		assert_true(cell.slot % 4 == 0 && cell.slot + 4 <= ARCH_CELL_SIZE);
		assert_int_equal(code[cell.slot - 1], 0xe9);
		assert_true(cell.entry >= cell.code_begin && cell.entry < cell.code_end);
		if (spec.mode == ARCH_COUNT_LOCKED)
			assert_true(base + cell.entry < start);
	}
}

static void test_out_of_range(void **state)
{
	uint8_t bytes[ARCH_CELL_SIZE];
	struct arch_buf out = {.bytes = bytes, .size = sizeof(bytes), .pc = 0x7f0000000000};
	struct arch_counter spec = make_spec(ARCH_COUNT_PER_CPU, 0, false);
	struct arch_cell cell;

	(void)state;
	spec.counter_address = 0x7ffff000;
	arch_emit_counter_cell(&out, &spec, out.pc + 4096, &cell);
	assert_int_equal(out.status, ARCH_OUT_OF_RANGE);
	assert_int_equal(out.used, 0);
	out.status = ARCH_OK;
	spec.mode = ARCH_COUNT_LOCKED; /* pc-relative, within reach or not */
	spec.counter_address = 0x7f0010000000;
	arch_emit_counter_cell(&out, &spec, out.pc + 4096, &cell);
	assert_int_equal(out.status, ARCH_OK);
	out.used = 0;
	spec.counter_address = 0x7e0010000000;
	arch_emit_counter_cell(&out, &spec, out.pc + 4096, &cell);
	assert_int_equal(out.status, ARCH_OUT_OF_RANGE);
}

/* arch_cell_pushed() at each instruction, against the cell's own instructions. */
static void test_pushed(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2000; i++) {
		arch_regset live = run_random() & 1 ? SET_ALL : run_random() & SET_ALL;
		struct arch_counter spec = make_spec(i & 1 ? ARCH_COUNT_LOCKED : ARCH_COUNT_PER_CPU,
						     live, run_random() & 1);
		struct arch_cell cell = emit(&spec, 0, EXIT_AT);
		size_t pushed = 0, deepest = 0;

		for (size_t at = cell.entry; at < cell.code_end;) {
			struct arch_insn insn;

			assert_int_equal(arch_decode(code + at, ARCH_CELL_SIZE - at, at, &insn),
					 ARCH_OK);
			assert_int_equal(arch_cell_pushed(code, at), pushed);
			if ((insn.bytes[0] & 0xf8) == 0x50 ||
			    (insn.bytes[0] == 0x41 && (insn.bytes[1] & 0xf8) == 0x50))
				pushed += 8;
			else if ((insn.bytes[0] & 0xf8) == 0x58 ||
				 (insn.bytes[0] == 0x41 && (insn.bytes[1] & 0xf8) == 0x58))
				pushed -= 8;
			else if (insn.bytes[1] == 0x8d && insn.bytes[3] == 0x24)
				pushed += insn.bytes[2] == 0x64 ? 128 : (size_t)-128;
			if (pushed > deepest)
				deepest = pushed;
			at = insn.flow == ARCH_FLOW_JUMP && insn.target < ARCH_CELL_SIZE &&
					     at < cell.slot - 1
				     ? insn.target
				     : at + insn.length;
		}
		assert_int_equal(pushed, 0);
		/* In the abort handler and in the locked path everything is pushed. */
		if (spec.mode == ARCH_COUNT_PER_CPU) {
			assert_int_equal(arch_cell_pushed(code, 36), deepest);
			assert_int_equal(arch_cell_pushed(code, 38), deepest);
			assert_int_equal(arch_cell_pushed(code, 47), deepest);
		}
	}
}

/* A gate waits until it is opened or its budget is spent; it changes flags only. */
static void run_gate(uint8_t *words, uint32_t go, uint32_t budget, uint32_t left)
{
	static struct run_state in, out;
	taddr_t at = (taddr_t)(uintptr_t)words;
	struct arch_buf buf = {
		.bytes = code, .size = ARCH_GATE_MAX, .pc = (taddr_t)(uintptr_t)code};
	uint32_t values[3] = {0, go, budget};

	memset(code, RUN_END, CODE_SIZE);
	arch_emit_gate(&buf, at, at + 4, at + 8, (taddr_t)(uintptr_t)code + EXIT_AT);
	assert_int_equal(buf.status, ARCH_OK);
	memcpy(words, values, sizeof(values));
	run_random_extended(&in);
	for (unsigned i = 0; i < 16; i++)
		in.r[i] = run_random();
	in.pc = (uint64_t)(uintptr_t)code;
	run_code(&in, &out);
	memcpy(values, words, sizeof(values));
	assert_int_equal(out.pc, (uint64_t)(uintptr_t)code + EXIT_AT);
	assert_memory_equal(in.r, out.r, sizeof(in.r));
	assert_int_equal(values[0], 1);
	assert_int_equal(values[1], go);
	assert_int_equal(values[2], left);
}

static void test_gate(void **state)
{
	uint8_t *const places[] = {counters, code + CODE_SIZE - 64}; /* absolute, pc-relative */

	(void)state;
	run_init();
	for (unsigned i = 0; i < 2; i++) {
		run_gate(places[i], 1, 1000, 999);
		run_gate(places[i], 0, 1000, 0);
		run_gate(places[i], 7, 1, 0);
	}
	memset(counters, 0, 12);
	memset(code, RUN_END, CODE_SIZE);
}

/* ------------------------------------------------------- exact under load */

static bool *stop_flag;
static long calls_made[THREADS];
static long abort_seen, interrupted, registers_lost;
static struct arch_cell shared_cell;

/* A signal that arrives inside the sequence finds the pc at the abort handler. */
static void on_tick(int signal, siginfo_t *info, void *context)
{
	uint64_t pc = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	uint64_t offset = pc - (uint64_t)(uintptr_t)code;

	(void)signal;
	(void)info;
	__atomic_add_fetch(&interrupted, 1, __ATOMIC_RELAXED);
	if (offset == 36)
		__atomic_add_fetch(&abort_seen, 1, __ATOMIC_RELAXED);
}

/*
 * Calls the cell, which ends in a jump to a ret, with every register that the
 * psABI lets a callee change holding a bit of its own, CF and OF set. Returns
 * what is missing afterwards. (The call must not touch our own red zone.)
 */
static uint64_t call_cell(unsigned long times)
{
	uintptr_t entry = (uintptr_t)code + shared_cell.entry;
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
		if (call_cell(1000))
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

static void test_exact(void **state)
{
	struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART};
	struct arch_counter spec = make_spec(ARCH_COUNT_PER_CPU, SET_ALL, false);
	pthread_t threads[THREADS];
	bool stop = false;
	uint64_t before;
	long made = 0;
	time_t end;

	(void)state;
	if (__rseq_size == 0) {
		print_message("skipped: this process has no rseq registration\n");
		skip();
	}
	stop_flag = &stop;
	action.sa_sigaction = on_tick;
	sigaction(SIGUSR2, &action, NULL);
	shared_cell = emit(&spec, 0, EXIT_AT);
	code[EXIT_AT] = 0xc3;
	before = total();
	for (intptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, count, (void *)i), 0);
	end = time(NULL) + SECONDS;
	for (unsigned round = 0; time(NULL) < end; round++) {
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
	assert_int_equal(registers_lost, 0);
}

static void test_runs(void **state)
{
	(void)state;
	print_message("%ld runs of a cell\n", runs);
	assert_true(runs >= 2 * 8 * 32768);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_geometry),
		cmocka_unit_test(test_out_of_range),
		cmocka_unit_test(test_pushed),
		cmocka_unit_test(test_per_cpu_combinations),
		cmocka_unit_test(test_locked_combinations),
		cmocka_unit_test(test_no_cpu_number),
		cmocka_unit_test(test_runs),
		cmocka_unit_test(test_gate),
		cmocka_unit_test(test_exact),
	};

	alarm(100);
	return cmocka_run_group_tests(tests, setup, NULL);
}
