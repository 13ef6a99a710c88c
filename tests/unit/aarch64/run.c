/* SPDX-License-Identifier: MIT */
/*
 * run.c - executed on AArch64 (by aarch64_run.c, under qemu-aarch64): what
 * arch/aarch64 emits is run on given registers (run.h), and must do what it
 * promises.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "tests/unit/aarch64/run.h"

/* ------------------------------------------------------------ relocation */

struct outcome {
	struct state s;
	uint64_t sp;
};

static struct outcome run_at(taddr_t pc, const struct state *in)
{
	struct outcome o;

	*state = *in;
	o.sp = run(pc);
	o.s = *state;
	return o;
}

static void check_same(const struct outcome *a, const struct outcome *b, uint32_t w)
{
	char text[64];

	snprintf(text, sizeof(text), "relocated %08x", w);
	for (unsigned i = 0; i < 31; i++)
		expect(a->s.x[i] == b->s.x[i], text, a->s.x[i], b->s.x[i]);
	expect(a->s.sp == b->s.sp && b->s.sp == b->sp, text, a->s.sp, b->s.sp);
	expect(a->s.nzcv == b->s.nzcv, text, a->s.nzcv, b->s.nzcv);
	expect(a->s.where == b->s.where, text, a->s.where, b->s.where);
	expect(!memcmp(a->s.v0, b->s.v0, sizeof(a->s.v0)), text, a->s.v0[0], b->s.v0[0]);
}

/* Runs from `from` on, with the word at `pc` led elsewhere for once. */
static struct outcome run_diverted_from(taddr_t from, const struct state *in, taddr_t pc,
					taddr_t elsewhere)
{
	struct arch_buf hole = at(pc, A64_SIZE);
	uint8_t saved[A64_SIZE];
	struct outcome o;

	memcpy(saved, (uint8_t *)pc, A64_SIZE);
	arch_emit_jump(&hole, elsewhere);
	o = run_at(from, in);
	memcpy((uint8_t *)pc, saved, A64_SIZE);
	return o;
}

/* How far the stack is moved at each word is as noted. */
static void check_pushed(const struct arch_buf *copy, const struct state *in)
{
	for (size_t i = 0; i < copy->used; i += A64_SIZE) {
		struct outcome o = run_diverted_from(copy->pc, in, copy->pc + i, way_out(1));

		if (o.s.where == 1)
			expect(o.sp - o.s.sp == arch_pushed_at(copy->trace, i), "copy pushed",
			       copy->pc + i, o.sp - o.s.sp);
	}
}

static void relocate_one(uint32_t w)
{
	static const taddr_t places[] = {AREA + NEAR, AREA + FAR};
	struct arch_buf home = at(AREA + HOME, 64), target = at(AREA + TARGET, 64);
	struct state in = random_state();
	struct arch_insn insn;
	struct outcome real;

	a64_emit(&home, w);
	arch_emit_jump(&home, way_out(0));
	arch_emit_jump(&target, way_out(1));
	in.x[5] = AREA + TARGET; /* for br, blr, ret */
	expect(arch_decode(area + HOME, 4, AREA + HOME, &insn) == ARCH_OK, "decoded", w, 0);
	real = run_at(AREA + HOME, &in);
	for (unsigned i = 0; i < 2; i++) {
		struct arch_mark marks[4];
		struct arch_trace trace = {marks, 0, 4};
		struct arch_buf copy = at(places[i], 256);
		struct outcome moved;

		copy.trace = &trace;
		arch_relocate(&insn, &copy);
		expect(copy.status == ARCH_OK && copy.used <= ARCH_RELOCATED_MAX, "fits", w,
		       copy.used);
		if (arch_falls_through(&insn))
			arch_emit_jump(&copy, AREA + HOME + 4);
		moved = run_at(places[i], &in);
		check_same(&real, &moved, w);
		check_pushed(&copy, &in);
	}
}

static void test_relocation(void)
{
	static const uint32_t words[] = {
		0x14000010, 0x94000010,		    /* b, bl TARGET */
		0xd61f00a0, 0xd63f00a0, 0xd65f00a0, /* br x5, blr x5, ret x5 */
		0x10000203, 0x7000fde4, 0xb0000006, /* adr, adr + 3, adrp */
		0xf0ff0007, 0x58000408, 0x18000409, /* adrp back, ldr x8, ldr w9 */
		0x9800040a, 0xd8000400, 0x1c000400, /* ldrsw, prfm, ldr s0 */
		0x5c000400, 0x9c000400, 0x58000410, /* ldr d0, q0, ldr x16 */
		0x8b020021, 0xeb02003f, 0xd503201f, /* add, cmp, nop */
	};

	for (unsigned i = 0; i < 32; i++)
		area[LITERAL + i] = (uint8_t)run_random();
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		relocate_one(words[i]);
	for (unsigned cond = 0; cond < 16; cond++)
		for (unsigned i = 0; i < 40; i++)
			relocate_one(0x54000200 | cond);
	for (unsigned i = 0; i < 400; i++) {
		uint32_t reg = run_random() % 32, kind = run_random() & 0x81000000;

		relocate_one(0x34000200 | reg | kind);
		relocate_one(0x36000200 | reg | kind | (run_random() & 31) << 19);
	}
}

/* Loads into x1 of words that hold their own addresses: x9 must be the same. */
static void test_addresses(void)
{
	static const uint32_t words[] = {
		0xf9400041, 0xf9400441, 0xf85f8041, 0xf8408c41, 0xf8408441, /* #, pre, post */
		0xa9410841, 0xa9ff1041, 0xc85f7c41, 0xc8dffc41, 0x5807fe01, /* pairs, literal */
		0xf8636841, 0xf8637841, 0xf8634841, 0xf8635841, 0xf863c841, 0xf863d841, 0xf863f841};
	struct arch_memory m[ARCH_MEMORY_MAX] = {{0}};
	struct arch_insn insn;

	for (taddr_t a = AREA + NEAR; a < AREA + NEAR + 0x2000; a += 8)
		*(uint64_t *)a = a;
	for (unsigned i = 0; i < 32 * sizeof(words) / sizeof(words[0]); i++) {
		struct arch_buf code = at(AREA + HOME, 64), load = at(AREA + TARGET, 64);
		struct state in = random_state();
		uint32_t w = words[i / 32];

		/* Negative where the sign counts, and noise above 32 bits that do not. */
		in.x[2] = AREA + NEAR + 0x1000;
		in.x[3] = (w >> 15 & i & 1 ? -8ull : 8ull) * (i % 32);
		if (!(w >> 13 & 1))
			in.x[3] = (uint32_t)in.x[3] | run_random() << 32;
		a64_emit(&load, w);
		arch_emit_jump(&load, way_out(0));
		if (arch_decode(area + TARGET, 4, AREA + TARGET, &insn) == ARCH_OK &&
		    arch_memory_operands(&insn, m) == 1)
			arch_emit_effective_address(&code, m, SET(9), 0);
		arch_emit_jump(&code, AREA + TARGET);
		in = run_at(AREA + HOME, &in).s;
		expect(in.x[9] == in.x[1], "address", w, in.x[9]);
	}
}

/* Loads of x1 by x2 and x3, by registers that frames choose first, and by the stack pointer. */
static const uint32_t recorded[] = {
	0xf9400441, 0xf85f8041, 0xf8408c41, 0xf8637841, 0xf863d841, /* [x2, ...], [x2, x3, ...] */
	0xf9400621, 0xf8707a21, 0xf86f6a01, /* [x17, #8], [x17, x16, lsl #3], [x16, x15] */
	0xf94003e1, 0xf94007e1, 0xf8410fe1, 0xf8637be1, /* [sp], #8, #16!, [sp, x3, lsl #3] */
};

/* The word at `word` gets the address that the load uses, and nothing else changes. */
static void record_one(uint32_t w, arch_regset live, uint8_t needs, taddr_t word)
{
	const unsigned base = a64_rn(w), index = w & 1 << 21 ? a64_rm(w) : ARCH_NO_REGISTER;
	struct arch_frame frame = {.needs = needs};
	struct arch_memory m[ARCH_MEMORY_MAX] = {{0}};
	struct arch_buf code = at(AREA + NEAR, 256);
	struct state in = random_state();
	struct arch_insn insn;
	uint64_t address;
	uint8_t bytes[A64_SIZE];
	struct outcome o;

	in.x[base == SP ? 0 : base] = run_random();
	if (index != ARCH_NO_REGISTER)
		in.x[index] = run_random();
	a64_store(bytes, w);
	expect(arch_decode(bytes, sizeof(bytes), AREA + HOME, &insn) == ARCH_OK &&
		       arch_memory_operands(&insn, m) == 1,
	       "decoded", w, 0);
	/* The load itself reads them. */
	frame.live = live | SET(base) | (index == ARCH_NO_REGISTER ? 0 : SET(index));
	arch_record_needs(&frame);
	arch_frame_open(&code, &frame);
	arch_emit_record_address(m, word, 0, &frame, &code);
	arch_frame_close(&code, &frame);
	arch_emit_jump(&code, way_out(0));
	expect(code.status == ARCH_OK, "record", w, code.status);
	o = run_at(AREA + NEAR, &in);
	address = (base == SP ? o.sp : in.x[base]) + (uint64_t)m->offset;
	if (index != ARCH_NO_REGISTER) /* sxtw, or all of it */
		address += (m->extend == 6 ? (uint64_t)(int32_t)in.x[index] : in.x[index])
			   << m->shift;
	expect(*(uint64_t *)word == address, "recorded", w, *(uint64_t *)word - address);
	for (unsigned i = 0; i < 31; i++)
		if (frame.live & SET(i))
			expect(o.s.x[i] == in.x[i], "record register", w, i);
	expect(o.s.sp == o.sp && o.s.nzcv == in.nzcv, "record state", w, o.s.nzcv);
}

static void test_records(void)
{
	static const arch_regset lives[] = {SET_ALL, SET_SP | SET_FLAGS, SET_ALL & ~SET(9),
					    SET_ALL & ~(SET(15) | SET(16) | SET(17))};
	static const taddr_t words[] = {LOW + 64, AREA + NEAR + 0x1000, AREA + 0x4000008};

	for (size_t i = 0; i < sizeof(recorded) / sizeof(recorded[0]); i++)
		for (unsigned l = 0; l < 4; l++)
			for (unsigned at_word = 0; at_word < 3; at_word++)
				record_one(recorded[i], lives[l], at_word & 1 ? ARCH_NEED_FLAGS : 0,
					   words[at_word]);
}

/* --------------------------------------------------------------- patches */

static void patch_one(uint32_t w, enum arch_patch_kind kind, bool is_call)
{
	struct arch_buf home = at(AREA + HOME, 64), target = at(AREA + TARGET, 64);
	struct arch_buf tail = at(AREA + FAR, 64);
	struct state in = random_state();
	struct arch_insn insn;
	size_t first, count;

	a64_emit(&home, w);
	arch_emit_jump(&home, way_out(0));
	arch_emit_jump(&target, way_out(1));
	in.x[5] = AREA + TARGET;
	expect(arch_decode(area + HOME, 4, AREA + HOME, &insn) == ARCH_OK, "decoded", w, 0);
	if (is_call)
		arch_emit_call_tail(&insn, &tail);
	else
		arch_relocate(&insn, &tail);
	if (arch_falls_through(&insn))
		arch_emit_jump(&tail, AREA + HOME + 4);
	expect(arch_patch(kind, &insn, AREA + HOME, AREA + FAR, area + HOME, 4, &first, &count) ==
		       ARCH_OK,
	       "patched", w, 0);
	expect(first == 0 && count == 4, "whole word", first, count);
	*state = in;
	run(AREA + HOME);
	expect(state->where == !arch_falls_through(&insn), "patched goes on", w, state->where);
	if (is_call)
		expect(state->x[30] == AREA + HOME + 4, "return address", w, state->x[30]);
}

static void test_patches(void)
{
	patch_one(0x94000010, ARCH_PATCH_RETARGET, true);
	patch_one(0xd63f00a0, ARCH_PATCH_CALL, true);
	patch_one(0x14000010, ARCH_PATCH_RETARGET, false);
	patch_one(0xd65f00a0, ARCH_PATCH_JUMP, false);
	patch_one(0x8b020021, ARCH_PATCH_JUMP, false);
}

/* -------------------------------------------------------------- counters */

enum { CPUS = 6, SHIFT = 12, RSEQ_AT = 0x30000, COLD = NEAR + 0x1000, HANDLER = COLD + 36 };

static uint64_t *slot_of(unsigned cpu)
{
	return (uint64_t *)(LOW + 64 + ((uint64_t)cpu << SHIFT));
}

/* A counter in its frame, emitted at NEAR and COLD. */
struct counting {
	struct arch_counter spec;
	struct arch_frame frame;
	struct arch_trace hot_trace, cold_trace;
	struct arch_mark hot_marks[16], cold_marks[16];
	size_t hot_size, cold_size;
	uint64_t start, length; /* of the sequence */
};

/* What a run did: all that is live is as it was, and slot `cpu` counted. */
static void check_count(const struct counting *c, const struct state *in, uint64_t sp, unsigned cpu,
			const char *what)
{
	for (unsigned i = 0; i < 31; i++)
		if (c->frame.live & SET(i))
			expect(state->x[i] == in->x[i], what, i, state->x[i]);
	expect(state->sp == sp, what, state->sp, sp);
	expect(state->nzcv == in->nzcv, what, state->nzcv, in->nzcv);
	for (unsigned i = 0; i <= CPUS; i++)
		expect(*slot_of(i) == (i == cpu), what, i, *slot_of(i));
	expect(state->where == 0, what, state->where, 0);
}

static void clear_slots(void)
{
	for (unsigned i = 0; i <= CPUS; i++)
		*slot_of(i) = 0;
}

static uint64_t run_diverted(const struct state *in, taddr_t pc, taddr_t elsewhere)
{
	clear_slots();
	return run_diverted_from(AREA + NEAR, in, pc, elsewhere).sp;
}

static void expect_pushed(const struct state *in, taddr_t pc, size_t pushed)
{
	uint64_t sp = run_diverted(in, pc, way_out(1));

	if (state->where == 1)
		expect(sp - state->sp == pushed, "pushed", pc, sp - state->sp);
}

/* Aborts at each word of the sequence; and how far the stack is moved at each word. */
static void interrupt_count(const struct counting *c, const struct state *in)
{
	if (c->spec.mode == ARCH_COUNT_PER_CPU) {
		for (uint64_t i = c->start; i < c->start + c->length; i += 4)
			/* All but the jump to the locked path are executed, or lead there anyway. */
			if (a64_load((uint8_t *)i) >> 26 != 5)
				check_count(c, in, run_diverted(in, i, AREA + HANDLER), CPUS,
					    "aborted");
		for (size_t i = 36; i < c->cold_size; i += 4)
			expect_pushed(in, AREA + COLD + i, arch_pushed_at(&c->cold_trace, i));
	}
	for (size_t i = 0; i < c->hot_size; i += 4)
		expect_pushed(in, AREA + NEAR + i, arch_pushed_at(&c->hot_trace, i));
}

static void emit_counting(struct counting *c)
{
	struct arch_buf hot = at(AREA + NEAR, 256), cold = at(AREA + COLD, 256);

	c->hot_trace = (struct arch_trace){c->hot_marks, 0, 16};
	c->cold_trace = (struct arch_trace){c->cold_marks, 0, 16};
	hot.trace = &c->hot_trace;
	cold.trace = &c->cold_trace;
	arch_count_needs(&c->spec, &c->frame);
	arch_frame_open(&hot, &c->frame);
	arch_emit_count(&c->spec, &c->frame, &hot, &cold);
	arch_frame_close(&hot, &c->frame);
	c->hot_size = hot.used;
	c->cold_size = cold.used;
	arch_emit_jump(&hot, way_out(0));
	expect(hot.status == ARCH_OK && cold.status == ARCH_OK, "counter", hot.status, cold.status);
	memcpy(&c->start, area + COLD + 8, 8);
	memcpy(&c->length, area + COLD + 16, 8);
}

static void run_count(enum arch_count_mode mode, arch_regset live, uint8_t needs, int64_t offset,
		      int cpu_id)
{
	struct counting c = {.spec = {.mode = mode,
				      .counter_address = LOW + 64,
				      .cpu_shift = SHIFT,
				      .cpus = CPUS,
				      .rseq_offset = offset,
				      .rseq_signature = 0xd428bc00,
				      .clears = cpu_id & 1},
			     .frame = {.live = live, .needs = needs}};
	bool locked = mode == ARCH_COUNT_LOCKED || cpu_id < 0 || cpu_id >= CPUS;
	uint64_t *rseq_cs = (uint64_t *)(area + RSEQ_AT + 8);
	struct state in = random_state();
	uint64_t sp;

	emit_counting(&c);
	memcpy(area + RSEQ_AT + 4, &cpu_id, 4);
	*rseq_cs = 0;
	in.tp = AREA + RSEQ_AT - (uint64_t)offset;
	clear_slots();
	*state = in;
	sp = run(AREA + NEAR);
	check_count(&c, &in, sp, locked ? CPUS : (unsigned)cpu_id, "counter");
	expect(*rseq_cs == (mode == ARCH_COUNT_LOCKED || c.spec.clears ? 0 : AREA + COLD),
	       "rseq_cs", *rseq_cs, mode);
	interrupt_count(&c, &in);
}

static void test_counters(void)
{
	static const int64_t offsets[] = {-0x6e0, 0, 32, -32, 4096, 0x4ff8, -0x123460};
	static const arch_regset lives[] = {SET_ALL, SET_SP, SET_ALL & ~SET(9), SET_ALL & ~6ull};
	static const int cpu_ids[] = {0, 3, 5, -1, -2, 6};

	for (unsigned i = 0; i < 4; i++) {
		run_count(ARCH_COUNT_LOCKED, lives[i], 0, 0, 0);
		for (unsigned o = 0; o < 7; o++)
			for (unsigned c = 0; c < 6; c++)
				run_count(ARCH_COUNT_PER_CPU, lives[i], o & 1, offsets[o],
					  cpu_ids[c]);
	}
	for (unsigned i = 0; i < 60; i++)
		run_count(ARCH_COUNT_PER_CPU, run_random() & run_random() & SET_ALL, i & 1, -0x6e0,
			  (int)(run_random() % 8) - 1);
}

/* ------------------------------------------------- remote programs, gates */

static void run_remote(const struct arch_remote_call *calls, size_t count)
{
	static const uint8_t name[] = "remote";
	const struct arch_remote_program program = {calls, count, name, sizeof(name)};
	struct arch_buf out = at(AREA + FAR, ARCH_REMOTE_MAX), home = at(AREA + HOME, 4);
	struct state in = random_state();
	struct arch_regs r = {.system_call = -1};
	uint64_t sp;

	arch_emit_jump(&home, way_out(0));
	memcpy(r.user.regs, in.x, sizeof(r.user.regs));
	r.user.pc = AREA + HOME;
	arch_emit_remote(&program, &r, &out);
	expect(out.status == ARCH_OK, "remote", out.status, out.used);
	if (out.status != ARCH_OK)
		return;
	*state = in;
	sp = run(AREA + FAR);
	for (unsigned i = 0; i < 31; i++)
		expect(state->x[i] == in.x[i], "remote register", i, state->x[i]);
	expect(state->sp == sp && state->nzcv == in.nzcv, "remote state", state->sp, sp);
}

static void test_remote(void)
{
	struct arch_remote_call calls[4] = {
		{SYS_memfd_create, {{ARCH_ARG_DATA, 0}, {ARCH_ARG_CONST, 1}}, false},
		{SYS_ftruncate, {{ARCH_ARG_RESULT, 0}, {ARCH_ARG_CONST, 4096}}, false},
		{SYS_mmap,
		 {{ARCH_ARG_CONST, FIRST},
		  {ARCH_ARG_CONST, 4096},
		  {ARCH_ARG_CONST, PROT_READ | PROT_WRITE},
		  {ARCH_ARG_CONST, MAP_SHARED | MAP_FIXED_NOREPLACE},
		  {ARCH_ARG_RESULT, 0},
		  {ARCH_ARG_CONST, 0}},
		 false},
		{SYS_close, {{ARCH_ARG_RESULT, 0}}, true},
	};
	int before = dup(0), after;

	close(before);
	run_remote(calls, 4);
	expect(munmap((void *)FIRST, 4096) == 0, "mapped", 0, 0);
	*(volatile char *)(AREA + 0x3000) = 1;
	calls[1].args[1].value = UINT64_MAX; /* a negative length: no mapping, but closed */
	run_remote(calls, 4);
	expect(mmap((void *)FIRST, 4096, PROT_READ,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == (void *)FIRST,
	       "nothing mapped", 0, 0);
	munmap((void *)FIRST, 4096);
	after = dup(0);
	expect(before == after, "closed", before, after);
	close(after);
}

static void run_gate(taddr_t arrived, taddr_t go, taddr_t budget, unsigned open, unsigned turns)
{
	struct arch_buf out = at(AREA + NEAR, ARCH_GATE_MAX);

	*(uint32_t *)arrived = 0;
	*(uint32_t *)go = open;
	*(uint32_t *)budget = turns;
	arch_emit_gate(&out, arrived, go, budget, way_out(0));
	expect(out.status == ARCH_OK, "gate", out.status, out.used);
	*state = random_state();
	run(AREA + NEAR);
	expect(*(uint32_t *)arrived == 1, "arrived", *(uint32_t *)arrived, 1);
	expect(*(uint32_t *)budget == (open ? turns - 1 : 0), "budget", *(uint32_t *)budget, turns);
}

static void test_gates(void)
{
	for (unsigned open = 0; open < 2; open++) {
		run_gate(LOW, LOW + 4, LOW + 8, open, 1000);
		run_gate(LOW + 0x100000, LOW + 4, LOW + 0x80008, open, 1000);
		run_gate(AREA + 0x31000, AREA + 0x31004, AREA + 0x31008, open, 1000);
	}
}

/* --------------------------------------------------------- signal frames */

static void on_signal(int signal, siginfo_t *info, void *context)
{
	const ucontext_t *uc = context;
	const uint8_t *back = __builtin_extract_return_addr(__builtin_return_address(0));
	taddr_t pc = 0, sp = 0;

	(void)signal;
	/* The frame begins with the siginfo. */
	expect(arch_signal_frame((const uint8_t *)info, ARCH_SIGNAL_FRAME, &pc, &sp) == ARCH_OK,
	       "signal frame", 0, 0);
	expect(arch_signal_frame((const uint8_t *)info + 16, ARCH_SIGNAL_FRAME, &pc, &sp) ==
		       ARCH_UNKNOWN,
	       "no signal frame", 0, 0);
	expect(pc == uc->uc_mcontext.pc && sp == uc->uc_mcontext.sp, "interrupted at", pc, sp);
	expect(arch_is_sigreturn(back, ARCH_SIGRETURN_CODE), "sigreturn", a64_load(back), 0);
}

static void test_signal_frames(void)
{
	struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
	unsigned before = checks;

	sigaction(SIGUSR1, &action, NULL);
	raise(SIGUSR1);
	expect(checks == before + 4, "handled", checks, before);
}

int main(void)
{
	void *at_area =
		mmap(area, AREA_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	void *at_low = mmap((void *)LOW, 1 << 21, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (at_area != area || at_low != (void *)LOW) {
		puts("SKIP no room at the fixed addresses");
		return 77;
	}
	emit_way_out(0);
	emit_way_out(1);
	test_relocation();
	test_addresses();
	test_records();
	test_patches();
	test_counters();
	test_remote();
	test_gates();
	test_signal_frames();
	printf("%u checks, %u failures\n", checks, failures);
	return failures != 0;
}
