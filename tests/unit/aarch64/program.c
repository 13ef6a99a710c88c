/* SPDX-License-Identifier: MIT */
/*
 * program.c - executed on AArch64 (by aarch64_program.c, under qemu-aarch64):
 * random programs as arch/aarch64 emits them, judged by arch_program_run(), and
 * the operations that make system calls. Whatever is live must be as it was.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/aarch64/run.h"
#include "tests/unit/arch_program_random.h"

enum {
	CPUS = 6,
	SHIFT = 12,
	COUNTERS_AT = 64,    /* of LOW: CPU 0's slots */
	MEMORY_AT = 0x40000, /* of LOW */
	RSEQ_AT = 0x30000,   /* of the area: a struct rseq of our own */
	TID_AT = 0x30100,
	COLD = 0x50000,
	CODE_MAX = 0x10000,
	ROUNDS = 1500,
};

static const struct random_places places = {
	.memory = LOW + MEMORY_AT,
	.counters = LOW + COUNTERS_AT,
	.inputs = {8, 1, 2, 1, 0, 1, 1},
};
static uint8_t *const memory = (uint8_t *)(LOW + MEMORY_AT);

/* A program, and the state that it ran on. */
struct made {
	struct arch_op ops[ARCH_PROGRAM_OPS];
	struct arch_program p;
	struct arch_environment env;
	struct arch_frame frame;
	struct state in;
	uint64_t sp;
};

static struct made made;

static void *slot_of(unsigned cpu, unsigned n)
{
	return (void *)(LOW + COUNTERS_AT + 8 * n + ((uint64_t)cpu << SHIFT));
}

static uint64_t counted(unsigned n)
{
	uint64_t sum = 0, word;

	for (unsigned cpu = 0; cpu <= CPUS; cpu++) {
		memcpy(&word, slot_of(cpu, n), 8);
		sum += word;
	}
	return sum;
}

/* ------------------------------------------------------------------- runs */

static void begin(enum arch_count_mode mode)
{
	memset(&made, 0, sizeof(made));
	made.p.ops = made.ops;
	made.p.room = ARCH_PROGRAM_OPS;
	made.env.counter = (struct arch_counter){
		.mode = mode, .cpu_shift = SHIFT, .cpus = CPUS, .rseq_offset = -0x6e0};
	made.env.pairing.tid_offset = TID_AT - RSEQ_AT - 0x6e0;
	made.frame.live = run_random() % 3 ? run_random() & SET_ALL : SET_ALL;
}

static void emit(void)
{
	struct arch_buf hot = at(AREA + NEAR, CODE_MAX), cold = at(AREA + COLD, CODE_MAX);
	size_t most_hot, most_cold, start;

	arch_program_sizes(&made.p, &most_hot, &most_cold);
	arch_program_needs(&made.p, &made.env, &made.frame);
	arch_frame_open(&hot, &made.frame);
	start = hot.used;
	arch_emit_program(&made.p, &made.env, &made.frame, &hot, &cold);
	expect(hot.used - start <= most_hot && cold.used <= most_cold, "sizes", hot.used, most_hot);
	arch_frame_close(&hot, &made.frame);
	arch_emit_jump(&hot, way_out(0));
	expect(hot.status == ARCH_OK && cold.status == ARCH_OK, "program",
	       (unsigned long)hot.status, (unsigned long)cold.status);
	if (hot.status != ARCH_OK)
		exit(1);
}

/* On made.in. */
static void run_on_state(void)
{
	const int32_t cpu = (int32_t)(run_random() % (CPUS + 1)) - 1;
	const uint32_t tid = (uint32_t)syscall(SYS_gettid);

	made.in.tp = AREA + RSEQ_AT + 0x6e0;
	memcpy(area + RSEQ_AT + 4, &cpu, 4);
	memcpy(area + TID_AT, &tid, 4);
	*state = made.in;
	made.sp = run(AREA + NEAR);
	for (unsigned i = 0; i < 31; i++)
		if (made.frame.live & SET(i))
			expect(state->x[i] == made.in.x[i], "register", i, state->x[i]);
	expect(state->sp == made.sp, "stack pointer", state->sp, made.sp);
	expect(!(made.frame.live & SET_FLAGS) || state->nzcv == made.in.nzcv, "flags", state->nzcv,
	       made.in.nzcv);
	expect(state->where == 0, "end", state->where, 0);
}

static void run_made(void)
{
	made.in = random_state();
	run_on_state();
}

/* As paciasp signs it, and without a signature: no-ops where there are none. */
static uint64_t sign(uint64_t address)
{
	register uint64_t x30 __asm__("x30") = address;

	__asm__ volatile("hint #25" : "+r"(x30));
	return x30;
}

static uint64_t strip(uint64_t address)
{
	register uint64_t x30 __asm__("x30") = address;

	__asm__ volatile("hint #7" : "+r"(x30));
	return x30;
}

/* ---------------------------------------------------------- random programs */

static bool judge_load(void *arg, taddr_t address, uint64_t *word, size_t size)
{
	(void)arg;
	return random_load(&places, address, word, size);
}

static bool judge_store(void *arg, taddr_t address, uint64_t word, size_t size)
{
	(void)arg;
	return random_store(&places, address, word, size);
}

static bool judge_other(void *arg, const struct arch_op *op, uint64_t a, uint64_t b,
			uint64_t *result, uint64_t *second)
{
	(void)arg;
	(void)second;
	switch (op->kind) {
	case ARCH_OP_ARGUMENT:
	case ARCH_OP_RESULT:
		*result = made.in.x[op->number];
		return true;
	case ARCH_OP_FLOAT_ARGUMENT:
	case ARCH_OP_FLOAT_RESULT:
		*result = made.in.v0[0];
		return true;
	case ARCH_OP_STACK_POINTER:
		*result = made.sp;
		return true;
	case ARCH_OP_CALLER:
		*result = strip(made.in.x[30]);
		return true;
	case ARCH_OP_COUNT:
		random_count(&places, a + op->number, b);
		return true;
	case ARCH_OP_FIND:
		*result = random_find(a);
		return true;
	default:
		return false;
	}
}

static bool judge(void)
{
	static const struct arch_machine machine = {
		.load = judge_load, .store = judge_store, .other = judge_other};
	static uint64_t values[ARCH_PROGRAM_VALUES + 1];
	const unsigned before = failures;

	memset(values, 0, sizeof(values));
	memset(random_counts, 0, sizeof(random_counts));
	expect(arch_program_run(&made.p, &machine, values), "judged", 0, 0);
	for (unsigned i = 0; i < RANDOM_SIZE; i += 8) {
		uint64_t want, got;

		memcpy(&want, random_shadow + i, 8);
		memcpy(&got, memory + i, 8);
		expect(want == got, "memory", i, got);
	}
	for (unsigned n = 0; n < RANDOM_COUNTERS; n++)
		expect(counted(n) == random_counts[n], "counter", n, counted(n));
	return failures == before;
}

static unsigned test_random(void)
{
	unsigned with_slots = 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		begin(i & 1 ? ARCH_COUNT_PER_CPU : ARCH_COUNT_LOCKED);
		write_program(&made.p, &places);
		emit();
		with_slots += made.frame.slots > 0;
		memset(memory, 0, RANDOM_SIZE);
		for (unsigned n = 0; n < RANDOM_WORDS; n += 8) {
			const uint64_t word = run_random();

			memcpy(memory + n, &word, 8);
		}
		memcpy(random_shadow, memory, RANDOM_SIZE);
		for (unsigned cpu = 0; cpu <= CPUS; cpu++)
			memset(slot_of(cpu, 0), 0, 8 * RANDOM_COUNTERS);
		run_made();
		if (judge())
			continue;
		for (unsigned n = 0; n < made.p.count; n++) {
			char text[160];

			arch_op_format(&made.ops[n], text, sizeof(text));
			printf("%4u %s\n", n, text);
		}
		return with_slots;
	}
	return with_slots;
}

/* ------------------------------------------------------------ system calls */

static void add_op(struct arch_op op)
{
	if (op.result > made.p.values)
		made.p.values = op.result;
	if (op.second > made.p.values)
		made.p.values = op.second;
	made.ops[made.p.count++] = op;
}

static void keep(unsigned v, unsigned n)
{
	add_op((struct arch_op){.kind = ARCH_OP_STORE,
				.size = 8,
				.b = (uint16_t)v,
				.number = places.memory + 8 * n});
}

static uint64_t word_at(unsigned n)
{
	uint64_t word;

	memcpy(&word, memory + 8 * n, 8);
	return word;
}

/* qemu-aarch64 may lack the system call; then every read fails, as it is to where there is none. */
static bool can_read(void)
{
	uint64_t from = 1, to = 0;
	const struct iovec local = {&to, 8}, remote = {&from, 8};

	return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 8;
}

static void test_read(void)
{
	const bool able = can_read();
	static const uint64_t bad[] = {0, FIRST, UINT64_MAX - 3, AREA + AREA_SIZE - 1};
	const uint64_t good = AREA + 0x40000 + 101, filling = 0xf1e2d3c4b5a69788;

	memcpy((void *)good, &filling, 8);
	for (unsigned i = 0; i < 128; i++) {
		const unsigned size = 1 + i % 8, shift = 64 - 8 * size;
		const bool readable = able && (i % 16 < 8 || (i / 16 % 4 == 3 && size == 1));
		const uint64_t address = i % 16 < 8 ? good : bad[i / 16 % 4];
		const bool by_value = i & 16, is_signed = i & 32;
		uint64_t want = filling << shift;

		begin(ARCH_COUNT_LOCKED);
		add_op((struct arch_op){
			.kind = ARCH_OP_CONST, .result = 1, .number = address - 0x123456789});
		add_op((struct arch_op){.kind = ARCH_OP_ARGUMENT, .result = 4, .number = 3});
		add_op((struct arch_op){.kind = ARCH_OP_READ,
					.result = 2,
					.second = 3,
					.size = (uint8_t)size,
					.is_signed = is_signed,
					.a = by_value,
					.number = by_value ? 0x123456789 : address});
		for (unsigned v = 2; v < 5; v++)
			keep(v, v);
		emit();
		run_made();
		want = is_signed ? (uint64_t)((int64_t)want >> shift) : want >> shift;
		if (readable && address != good)
			want = 0;
		expect(word_at(2) == (readable ? want : 0), "read", i, word_at(2));
		expect(word_at(3) == readable, "readable", i, word_at(3));
		expect(word_at(4) == made.in.x[3], "argument", i, word_at(4));
	}
}

static uint64_t now(unsigned clock)
{
	static const clockid_t ids[] = {0, CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID,
					CLOCK_PROCESS_CPUTIME_ID};
	struct timespec t;

	if (clock == ARCH_CLOCK_TICKS)
		return arch_clock_ticks();
	clock_gettime(ids[clock], &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void test_clocks(void)
{
	for (unsigned i = 0; i < 40; i++) {
		uint64_t before;

		begin(ARCH_COUNT_LOCKED);
		add_op((struct arch_op){.kind = ARCH_OP_CLOCK, .result = 1, .number = i % 4});
		add_op((struct arch_op){.kind = ARCH_OP_CLOCK, .result = 2, .number = i % 4});
		add_op((struct arch_op){.kind = ARCH_OP_PROCESS, .result = 3});
		add_op((struct arch_op){.kind = ARCH_OP_THREAD, .result = 4});
		add_op((struct arch_op){.kind = ARCH_OP_CPU, .result = 5});
		for (unsigned v = 1; v < 6; v++)
			keep(v, v);
		emit();
		before = now(i % 4);
		run_made();
		expect(before <= word_at(1) && word_at(1) <= word_at(2) && word_at(2) <= now(i % 4),
		       "clock", i % 4, word_at(1));
		expect(word_at(3) == (uint64_t)getpid(), "process", word_at(3), 0);
		expect(word_at(4) == (uint64_t)syscall(SYS_gettid), "thread", word_at(4), 0);
		expect((int32_t)word_at(5) == *(int32_t *)(area + RSEQ_AT + 4) &&
			       (int64_t)word_at(5) == (int32_t)word_at(5),
		       "cpu", word_at(5), 0);
	}
}

/* The return address as it is, though x30 holds a signed one; and x30 is left as it was. */
static void test_caller(void)
{
	static const uint64_t addresses[] = {0, LOW + 4, AREA + 0x1234, 0x7fffffffffffull};
	unsigned signed_ones = 0;

	for (unsigned i = 0; i < 64; i++) {
		const uint64_t address = addresses[i % 4], x30 = i & 4 ? sign(address) : address;

		signed_ones += x30 != address;
		begin(ARCH_COUNT_LOCKED);
		made.frame.live |= SET(X30);
		add_op((struct arch_op){.kind = ARCH_OP_CALLER, .result = 1});
		add_op((struct arch_op){.kind = ARCH_OP_CALLER, .result = 2});
		add_op((struct arch_op){.kind = ARCH_OP_ARGUMENT, .result = 3, .number = i % 8});
		for (unsigned v = 1; v < 4; v++)
			keep(v, v);
		emit();
		made.in = random_state();
		made.in.x[30] = x30;
		run_on_state();
		expect(word_at(1) == address && word_at(2) == address, "caller", x30, word_at(1));
		expect(word_at(3) == made.in.x[i % 8], "argument", i, word_at(3));
	}
	expect(signed_ones > 0, "signed", signed_ones, 0);
}

/* Once the process has begun to put a filter on itself nothing makes a system call in it. */
static void test_filter_begun(void)
{
	static struct pair_config config;

	for (unsigned i = 0; i < 16; i++) {
		const bool forbidden = i & 1;

		config.filters_seen = i / 2;
		config.filters_begun = config.filters_seen + forbidden;
		begin(ARCH_COUNT_LOCKED);
		made.env.pairing.area = (taddr_t)(uintptr_t)&config;
		add_op((struct arch_op){.kind = ARCH_OP_READ,
					.result = 1,
					.second = 2,
					.size = 8,
					.number = places.memory});
		for (uint16_t clock = ARCH_CLOCK_MONOTONIC; clock <= ARCH_CLOCK_PROCESS; clock++)
			add_op((struct arch_op){.kind = ARCH_OP_CLOCK,
						.result = (uint16_t)(2 + clock),
						.number = clock});
		add_op((struct arch_op){.kind = ARCH_OP_PROCESS, .result = 6});
		for (unsigned v = 1; v <= 6; v++)
			keep(v, v);
		memset(memory, 0x5a, 64);
		emit();
		run_made();
		expect(word_at(2) == (!forbidden && can_read()), "readable", i, word_at(2));
		for (unsigned v = 3; v <= 6; v++)
			expect((word_at(v) == 0) == forbidden, "forbidden", v, word_at(v));
	}
}

static void test_refusals(void)
{
	static const uint8_t kinds[] = {ARCH_OP_RECORD, ARCH_OP_ENTER, ARCH_OP_LEAVE, ARCH_OP_LEFT};

	for (unsigned i = 0; i < sizeof(kinds); i++) {
		struct arch_buf hot = at(AREA + NEAR, CODE_MAX), cold = at(AREA + COLD, CODE_MAX);

		begin(ARCH_COUNT_LOCKED);
		add_op((struct arch_op){.kind = kinds[i], .result = 1, .second = 2, .number = 1});
		keep(1, 1);
		arch_program_needs(&made.p, &made.env, &made.frame);
		arch_frame_open(&hot, &made.frame);
		arch_emit_program(&made.p, &made.env, &made.frame, &hot, &cold);
		expect(hot.status == ARCH_REFUSED, "refused", kinds[i], (unsigned long)hot.status);
	}
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
	const ucontext_t *uc = context;

	printf("FAIL signal %d at %#lx, address %p\n", signal, (unsigned long)uc->uc_mcontext.pc,
	       info->si_addr);
	_exit(1);
}

int main(void)
{
	const struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	void *code = mmap(area, AREA_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0);
	void *low = mmap((void *)LOW, 1 << 20, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	unsigned with_slots;

	if (code != area || low != (void *)LOW) {
		printf("SKIP no memory where the tests want it\n");
		return 77;
	}
	alarm(100);
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGILL, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	emit_way_out(0);
	emit_way_out(1);
	random_number = run_random;
	with_slots = test_random();
	expect(with_slots > 100, "values on the stack", with_slots, 0);
	test_clocks();
	test_caller();
	test_filter_begun();
	test_read();
	test_refusals();
	if (!can_read())
		printf("no process_vm_readv here: reads were only seen to fail\n");
	printf("%u checks, %u failures, %u programs with values on the stack\n", checks, failures,
	       with_slots);
	return failures != 0;
}
