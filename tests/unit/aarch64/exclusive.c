/* SPDX-License-Identifier: MIT */
/*
 * exclusive.c - executed on AArch64 (by aarch64_run.c, under qemu-aarch64): a
 * counter wherever the planner (mutator/flow_sequences.c) lets one stand in code
 * with load-exclusives and store-exclusives, or prefixes. The code must come to
 * its end: with a counter between the two it would try for ever.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutator/flow_private.h"
#include "tests/unit/aarch64/run.h"

enum { INSNS_MAX = 16, SECONDS = 10, COLD = NEAR + 0x1000, WORD = 0x1000, BEFORE = 7, AFTER = 9 };

/*
 * x3: the address of a word that holds x1; x2 is what it becomes. `marks`: which instructions
 * may be in no window, because they stay where they are (s), or stand between or behind a prefix (-).
 */
static const struct {
	const char *name, *marks;
	uint32_t words[INSNS_MAX];
} cases[] = {
	/* 1: ldaxr w0,[x3]; cmp w0,w1; b.ne 2f; stlxr w4,w2,[x3]; cbnz w4,1b; 2: nop */
	{"compare and swap",
	 "s--s..",
	 {0x885ffc60, 0x6b01001f, 0x54000061, 0x8804fc62, 0x35ffff84, 0xd503201f}},
	/* 1: ldaxr w0,[x3]; cmp w0,w1; b.ne 2f; stlxr w4,w2,[x3]; cbnz w4,1b; b 3f; 2: nop; clrex; 3: nop */
	{"given up",
	 "s--s..-..",
	 {0x885ffc60, 0x6b01001f, 0x54000081, 0x8804fc62, 0x35ffff84, 0x14000003, 0xd503201f,
	  0xd5033f5f, 0xd503201f}},
	/* nop; 1: ldxr w0,[x3]; add w5,w0,#2; b 2f; nop; 3: stxr w4,w5,[x3]; cbnz w4,1b; b 4f; 2: nop; b 3b; 4: nop */
	{"led away and back",
	 ".s--.s..--.",
	 {0xd503201f, 0x885f7c60, 0x11000805, 0x14000005, 0xd503201f, 0x88047c65, 0x35ffff64,
	  0x14000003, 0xd503201f, 0x17fffffc, 0xd503201f}},
	/* ptrue p0.s; str w2,[x3]; movprfx z0,z1; fmla z0.s,p0/m,z2.s,z3.s; nop */
	{"a prefix", "..s-.", {0x2598e3e0, 0xb9000062, 0x0420bc20, 0x65a30040, 0xd503201f}},
	/* 1: ldxr w0,[x3]; cbz w0,2f; add w5,w0,#2; stxr w4,w5,[x3]; cbnz w4,1b; b 3f; 2: nop; nop; 3: nop */
	{"a way out that leads to no store",
	 "s--s.....",
	 {0x885f7c60, 0x340000a0, 0x11000805, 0x88047c65, 0x35ffff84, 0x14000003, 0xd503201f,
	  0xd503201f, 0xd503201f}},
};

/* What the planner is not asked here. */
unsigned image_references_at(const struct image *img, vaddr_t v)
{
	(void)img;
	(void)v;
	abort();
}

size_t flow_piece_behind(const struct flow *f, vaddr_t v)
{
	(void)f;
	(void)v;
	abort();
}

/* The code of a case at HOME, decoded. */
struct code {
	struct flow flow;
	struct piece piece;
	uint16_t marks[INSNS_MAX * A64_SIZE];
	uint32_t heads[INSNS_MAX * A64_SIZE];
	struct arch_insn insns[INSNS_MAX];
};

static void place(struct code *c, const uint32_t *words, size_t count)
{
	struct arch_buf home = at(AREA + HOME, 4 * INSNS_MAX + 64);

	memset(c, 0, sizeof(*c));
	c->piece = (struct piece){AREA + HOME, AREA + HOME + A64_SIZE * count, 0};
	c->flow = (struct flow){.pieces = &c->piece,
				.piece_count = 1,
				.marks = c->marks,
				.heads = c->heads,
				.insns = {c->insns, count, count}};
	for (size_t i = 0; i < count; i++) {
		a64_emit(&home, words[i]);
		expect(arch_decode(area + HOME + A64_SIZE * i, A64_SIZE, AREA + HOME + A64_SIZE * i,
				   &c->insns[i]) == ARCH_OK,
		       "decoded", words[i], i);
		c->heads[A64_SIZE * i] = (uint32_t)i + 1;
	}
	arch_emit_jump(&home, way_out(0));
}

/* A counter before that instruction, as a window of one instruction has it. */
static void count_at(const struct arch_insn *insn)
{
	struct arch_frame frame = {.live = SET_ALL};
	const struct arch_counter counter = {.mode = ARCH_COUNT_LOCKED, .counter_address = LOW};
	struct arch_buf hot = at(AREA + NEAR, 256), cold = at(AREA + COLD, 256);
	uint8_t bytes[A64_SIZE];
	size_t first, count;

	arch_count_needs(&counter, &frame);
	arch_frame_open(&hot, &frame);
	arch_emit_count(&counter, &frame, &hot, &cold);
	arch_frame_close(&hot, &frame);
	arch_relocate(insn, &hot);
	if (arch_falls_through(insn))
		arch_emit_jump(&hot, insn->address + insn->length);
	expect(hot.status == ARCH_OK && cold.status == ARCH_OK, "counter", hot.status, cold.status);
	memcpy(bytes, insn->bytes, A64_SIZE);
	expect(arch_patch(ARCH_PATCH_JUMP, insn, insn->address, AREA + NEAR, bytes, A64_SIZE,
			  &first, &count) == ARCH_OK,
	       "patched", insn->address, 0);
	memcpy((uint8_t *)insn->address, bytes, A64_SIZE);
}

static void run_code(void)
{
	uint32_t *word = (uint32_t *)(LOW + WORD);
	struct state in = random_state();

	in.x[1] = BEFORE;
	in.x[2] = AFTER;
	in.x[3] = LOW + WORD;
	*word = BEFORE;
	*state = in;
	alarm(SECONDS);
	run(AREA + HOME);
	alarm(0);
	expect(*word == AFTER, "stored", *word, AFTER);
}

static void try_case(size_t n)
{
	const size_t count = strlen(cases[n].marks);
	struct code c;

	for (size_t i = 0; i < count; i++) {
		struct dinst_error e = {0};
		char is;

		place(&c, cases[n].words, count);
		expect(flow_mark_exclusives(&c.flow, &e) == 0, cases[n].name, n, i);
		flow_mark_prefixed(&c.flow);
		is = c.insns[i].flags & ARCH_INSN_NO_MOVE		   ? 's'
		     : flow_marks(&c.flow, c.insns[i].address) & MARK_RSEQ ? '-'
									   : '.';
		expect(is == cases[n].marks[i], cases[n].name, i, (unsigned long)is);
		if (is != '.')
			continue;
		count_at(&c.insns[i]);
		run_code();
	}
}

static void on_alarm(int signal)
{
	static const char text[] = "FAIL: it tries for ever\n";

	(void)signal;
	_exit(write(STDOUT_FILENO, text, sizeof(text) - 1) < 0 ? 2 : 1);
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
	setvbuf(stdout, NULL, _IONBF, 0);
	signal(SIGALRM, on_alarm);
	emit_way_out(0);
	for (size_t n = 0; n < sizeof(cases) / sizeof(cases[0]); n++)
		try_case(n);
	printf("%u checks, %u failures\n", checks, failures);
	return failures != 0;
}
