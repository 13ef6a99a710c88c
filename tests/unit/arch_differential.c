/* SPDX-License-Identifier: MIT */
/*
 * arch_differential.c - executes instructions of the libc and libcrypto of this
 * machine at their place and relocated by 1 GiB, on the same random registers,
 * flags, vector state and memory, and compares everything that they left. Then
 * once more with other values in what the decoder says is not read.
 *
 *	CODE            + 512 MiB          + 1 GiB
 *	original        scratch memory     relocated
 *
 * pc-relative operands are made to name the scratch memory, branches a place
 * near the original, and registers that take part in an address are chosen so
 * that it lies in the scratch memory.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "arch/x86_64/x86.h"
#include "tests/unit/arch_forms.h"
#include "tests/unit/arch_run.h"
#include "tests/unit/arch_bytes.h"

/* Most of it above 4 GiB; the forms of a table below 2 GiB as well. */
#define HIGH 0x200000000000ull
#define LOW  0x10000000ull

static uint64_t base = HIGH;

#define CODE	base
#define SCRATCH (CODE + (512ull << 20))
#define MOVED	(CODE + (1ull << 30))

enum {
	AREA_SIZE = 8192,
	SCRATCH_SIZE = 32768,
	ORIGIN = 4096,	 /* offset of the instruction in its area */
	STACK_AT = 8192, /* offsets in the scratch memory */
	OPERAND_AT = 16384,
	SOURCE_AT = 20480,
	DESTINATION_AT = 24576,
	FORMS_WANTED = 10000,
	FORMS_MAX = 60000, /* per library; keeps the time in bounds */
	TABLE = 1 << 18,
};

static uint8_t *code, *moved, *scratch;
static uint8_t memory_before[SCRATCH_SIZE], memory_original[SCRATCH_SIZE];
static uint8_t known[TABLE][16];
static long counts[EX_COUNT], completed, faulted, mismatches, forms, effects;

/* The flags of an arch_regset in eflags. */
static const struct {
	arch_regset bit;
	uint64_t mask;
} tracked[] = {
	{FLAG_CF, 0x001}, {FLAG_PF, 0x004}, {FLAG_AF, 0x010}, {FLAG_ZF, 0x040},
	{FLAG_SF, 0x080}, {FLAG_DF, 0x400}, {FLAG_OF, 0x800},
};

static void *map_at(uint64_t address, size_t size, int protection)
{
	void *p = mmap((void *)address, size, protection,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	return p == (void *)address ? p : NULL;
}

/* --------------------------------------------------- making it executable */

static void store32(uint8_t *at, int64_t value)
{
	for (unsigned i = 0; i < 4; i++)
		at[i] = (uint8_t)((uint64_t)value >> (8 * i));
}

/* Data operands to the scratch memory, branches to a place near. */
static void localize(uint8_t *bytes, const struct x86_layout *l, const struct arch_insn *insn)
{
	int64_t after = (int64_t)(CODE + ORIGIN + l->length);
	bool far_target = run_random() & 1;

	if ((l->attributes & OP_IMM_MASK) == OP_MOFFS && l->imm_size == 8) {
		store32(bytes + l->imm_offset, (int64_t)(SCRATCH + OPERAND_AT));
		store32(bytes + l->imm_offset + 4, (int64_t)((SCRATCH + OPERAND_AT) >> 32));
	}
	if (x86_is_pc_relative(l) && !(l->prefixes & PREFIX_67))
		store32(bytes + l->disp_offset, (int64_t)(SCRATCH + OPERAND_AT) - after);
	if (!insn->target)
		return;
	if (l->imm_size == 1)
		bytes[l->imm_offset] = far_target ? 0x30 : 0xb0;
	else
		store32(bytes + l->imm_offset, far_target ? 0x400 : -0x500);
}

static bool is_new(const uint8_t *bytes, size_t length)
{
	uint8_t key[16] = {0};
	uint64_t hash = 1469598103934665603ull;
	size_t i;

	memcpy(key, bytes, length);
	key[15] = (uint8_t)length;
	for (i = 0; i < 16; i++)
		hash = (hash ^ key[i]) * 1099511628211ull;
	for (i = hash & (TABLE - 1); known[i][15]; i = (i + 1) & (TABLE - 1))
		if (memcmp(known[i], key, 16) == 0)
			return false;
	if (forms >= TABLE / 2)
		return false;
	memcpy(known[i], key, 16);
	return true;
}

/*
 * Chooses base and index so that the operand lies at SCRATCH + OPERAND_AT, or a
 * few bytes below where the same register is both. Returns the offset.
 */
static size_t aim(const struct x86_layout *l, const uint8_t *bytes, struct run_state *s)
{
	uint64_t at = SCRATCH + OPERAND_AT, fs;
	int64_t disp = x86_read_signed(bytes + l->disp_offset, l->disp_size);
	unsigned from, index, scale;

	if (!x86_is_memory(l) || x86_is_pc_relative(l))
		return OPERAND_AT;
	if (l->encoding == X86_EVEX && l->disp_size == 1)
		disp = 0; /* scaled by the operand's size: near enough */
	if (l->prefixes & PREFIX_FSGS) {
		__asm__("mov %%fs:0,%0" : "=r"(fs));
		at -= fs; /* gs is not used by this process: from 0, and then it faults alike */
	}
	at -= (uint64_t)disp;
	if (!x86_has_sib(l)) {
		s->r[x86_rm(l)] = at;
		return OPERAND_AT;
	}
	from = (l->sib & 7) | (l->rex & REX_B ? 8 : 0);
	index = (l->sib >> 3 & 7) | (l->rex & REX_X ? 8 : 0);
	scale = 1u << (l->sib >> 6);
	if ((l->sib & 7) == 5 && x86_mod(l) == 0) {
		if (index != RSP)
			s->r[index] = (uint64_t)((int64_t)at / (int64_t)scale);
		return OPERAND_AT - at % scale;
	} else if (index == RSP) {
		s->r[from] = at;
	} else if (index == from) {
		s->r[from] = at / (1 + scale);
		return OPERAND_AT - at % (1 + scale);
	} else {
		s->r[index] = run_random() & 0x78;
		s->r[from] = at - s->r[index] * scale;
	}
	return OPERAND_AT;
}

/* Registers, flags and memory; `attempt` makes numbers small now and then. */
static void make_state(const struct arch_insn *insn, const struct x86_layout *l, unsigned attempt,
		       struct run_state *s)
{
	uint64_t landing = CODE + 0x300;
	bool legacy = l->encoding == X86_LEGACY;
	bool repeats = l->prefixes & (PREFIX_F2 | PREFIX_F3);
	size_t operand;

	run_random_extended(s);
	for (unsigned i = 0; i < 16; i++)
		s->r[i] = attempt & 1 ? run_random() & 0xff : run_random();
	s->flags = run_random();
	s->r[RSP] = SCRATCH + STACK_AT;
	s->r[RBP] = SCRATCH + STACK_AT + 256;
	s->r[RSI] = SCRATCH + SOURCE_AT;
	s->r[RDI] = SCRATCH + DESTINATION_AT;
	s->r[RBX] = SCRATCH + SOURCE_AT + 1024;
	if (repeats || insn->flow == ARCH_FLOW_BRANCH)
		s->r[RCX] = run_random() & 3;
	if (legacy && l->map == 0 && (l->opcode & 0xfe) == 0xf6)
		s->r[RDX] &= attempt & 1 ? 0 : 3;
	if (legacy && l->map == 1 && x86_is_memory(l) &&
	    (l->opcode == 0xa3 || l->opcode == 0xab || l->opcode == 0xb3 || l->opcode == 0xbb))
		s->r[x86_reg(l)] &= 0x3ff;
	if ((insn->flow == ARCH_FLOW_CALL_INDIRECT || insn->flow == ARCH_FLOW_JUMP_INDIRECT) &&
	    !x86_is_memory(l))
		s->r[x86_rm(l)] = landing;
	operand = aim(l, insn->bytes, s);
	run_fill(scratch, SCRATCH_SIZE);
	if (insn->flow == ARCH_FLOW_CALL_INDIRECT || insn->flow == ARCH_FLOW_JUMP_INDIRECT)
		memcpy(scratch + operand, &landing, 8);
	if (insn->flow == ARCH_FLOW_RETURN)
		memcpy(scratch + STACK_AT, &landing, 8);
	memcpy(memory_before, scratch, SCRATCH_SIZE);
}

/* -------------------------------------------------------------- comparing */

static bool same_extended(struct run_state *a, struct run_state *b)
{
	/* x87 opcode and instruction pointer name the code itself; 464 on is the kernel's. */
	memset(a->extended + 6, 0, 10);
	memset(b->extended + 6, 0, 10);
	return memcmp(a->extended, b->extended, 464) == 0 &&
	       memcmp(a->extended + 512, b->extended + 512, run_engine.extended_size - 512) == 0;
}

static bool same_end(const struct arch_insn *insn, const struct run_state *a,
		     const struct run_state *b, size_t moved_size)
{
	uint64_t after = insn->address + insn->length;

	if (a->signal != b->signal)
		return false;
	if (a->pc == insn->address) /* faulted */
		return b->pc >= MOVED + ORIGIN && b->pc < MOVED + ORIGIN + moved_size;
	if (a->pc == after)
		return b->pc == MOVED + ORIGIN + moved_size ||
		       (insn->target == after && b->pc == after);
	return a->pc == b->pc;
}

static void report(const struct arch_insn *insn, const struct run_state *a,
		   const struct run_state *b, const char *what)
{
	char text[ARCH_OPERAND_NAME_MAX];

	if (++mismatches > 20)
		return;
	arch_format(insn, text, sizeof(text));
	fprintf(stderr, "%s differs: %s [", what, text);
	for (unsigned i = 0; i < insn->length; i++)
		fprintf(stderr, "%02x", insn->bytes[i]);
	fprintf(stderr, "] signals %d %d pcs %llx %llx flags %llx %llx\n", a->signal, b->signal,
		(unsigned long long)a->pc, (unsigned long long)b->pc, (unsigned long long)a->flags,
		(unsigned long long)b->flags);
}

static void compare(const struct arch_insn *insn, struct run_state *a, struct run_state *b,
		    size_t moved_size)
{
	if (!same_end(insn, a, b, moved_size))
		report(insn, a, b, "the end");
	else if (memcmp(a->r, b->r, sizeof(a->r)) != 0)
		report(insn, a, b, "a register");
	else if (a->flags != b->flags)
		report(insn, a, b, "a flag");
	else if (memcmp(memory_original, scratch, SCRATCH_SIZE) != 0)
		report(insn, a, b, "memory");
	else if (!same_extended(a, b))
		report(insn, a, b, "vector state");
}

/*
 * Executes once more with other values in all registers and flags that the
 * decoder says are not read. What is said to be overwritten must come out the
 * same, what is not said to be may differ, and nothing else changes.
 */
static void check_effects(const struct arch_insn *insn, const struct run_state *in,
			  const struct run_state *expected)
{
	static struct run_state other, out;
	uint64_t defined = 0, kept = 0;
	arch_regset reads, writes;

	arch_effects(insn, &reads, &writes);
	for (unsigned i = 0; i < 16; i++)
		if (in->r[i] != expected->r[i] && !(arch_changes(insn) & SET(i)))
			report(insn, in, expected, "without being said to a register");
	other = *in;
	other.pc = CODE + ORIGIN;
	for (unsigned i = 0; i < 16; i++)
		if (!(reads & SET(i)) && i != RSP)
			other.r[i] = ~other.r[i] ^ run_random() >> 40;
	for (size_t i = 0; i < sizeof(tracked) / sizeof(tracked[0]); i++) {
		if (!(reads & tracked[i].bit))
			other.flags ^= tracked[i].mask;
		if (writes & tracked[i].bit)
			defined |= tracked[i].mask;
		if (reads & tracked[i].bit)
			kept |= tracked[i].mask;
	}
	memcpy(scratch, memory_before, SCRATCH_SIZE);
	run_code(&other, &out);
	effects++;
	if (out.signal != expected->signal || out.pc != expected->pc)
		report(insn, expected, &out, "with other values the end");
	for (unsigned i = 0; i < 16; i++)
		if ((reads | writes) & SET(i) && out.r[i] != expected->r[i])
			report(insn, expected, &out, "with other values a register");
	if (memcmp(memory_original, scratch, SCRATCH_SIZE) != 0)
		report(insn, expected, &out, "with other values memory");
	if ((out.flags ^ expected->flags) & (defined | kept))
		report(insn, expected, &out, "with other values a flag");
	if (!same_extended(&out, (struct run_state *)expected))
		report(insn, expected, &out, "with other values vector state");
}

static enum exclusion execute(const struct arch_insn *insn, const struct x86_layout *l)
{
	static struct run_state in, a, b;
	struct arch_buf out = {
		.bytes = moved + ORIGIN, .size = ARCH_RELOCATED_MAX, .pc = MOVED + ORIGIN};
	bool done = false;
	unsigned attempts = 4;

	memcpy(code + ORIGIN, insn->bytes, insn->length);
	arch_relocate(insn, &out);
	if (out.status != ARCH_OK)
		report(insn, &a, &b, "the answer to relocation");
	/* Branches often enough to be taken, and not. */
	if (insn->flow == ARCH_FLOW_BRANCH)
		attempts = 12;
	for (unsigned attempt = 0; attempt < attempts && out.status == ARCH_OK; attempt++) {
		make_state(insn, l, attempt, &in);
		in.pc = CODE + ORIGIN;
		run_code(&in, &a);
		if (a.signal == SIGILL && a.pc == insn->address)
			break;
		memcpy(memory_original, scratch, SCRATCH_SIZE);
		memcpy(scratch, memory_before, SCRATCH_SIZE);
		in.pc = MOVED + ORIGIN;
		run_code(&in, &b);
		compare(insn, &a, &b, out.used);
		done = a.signal == SIGILL; /* the end of the run, not a fault on the way */
		if (done)
			check_effects(insn, &in, &a);
		if (done && attempts == 4)
			break;
	}
	memset(code + ORIGIN, RUN_END, insn->length);
	memset(moved + ORIGIN, RUN_END, out.used);
	if (!done && a.signal == SIGILL && a.pc == insn->address)
		return EX_ABSENT;
	completed += done;
	faulted += !done;
	return RUN_IT;
}

/* False if its like was tried before. */
static bool try_instruction(const struct arch_insn *found)
{
	struct arch_insn insn;
	struct x86_layout l;
	uint8_t bytes[ARCH_INSN_MAX];
	enum exclusion why;

	if (x86_layout_read(found->bytes, found->length, &l) != ARCH_OK)
		return false;
	memcpy(bytes, found->bytes, sizeof(bytes));
	localize(bytes, &l, found);
	if (!is_new(bytes, found->length))
		return false;
	if (arch_decode(bytes, found->length, CODE + ORIGIN, &insn) != ARCH_OK)
		return false;
	forms++;
	why = exclude(&insn, &l);
	if (why == RUN_IT)
		why = execute(&insn, &l);
	counts[why]++;
	return true;
}

/* Decodes all executable segments of a library from the beginning. */
static int sweep(struct dl_phdr_info *info, size_t size, void *name)
{
	(void)size;
	if (!strstr(info->dlpi_name, name))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		const uint8_t *text = (const uint8_t *)(info->dlpi_addr + p->p_vaddr);
		long limit = forms + FORMS_MAX;

		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
			continue;
		for (size_t at = 0; at < p->p_filesz && forms < limit;) {
			struct arch_insn insn;
			int status = arch_decode(text + at, p->p_filesz - at, CODE + ORIGIN, &insn);

			if (status == ARCH_OK)
				try_instruction(&insn);
			at += status == ARCH_OK ? insn.length : 1;
		}
	}
	return 1;
}

/* One form of a rule; what became of it must be what the rule says. */
static void try_rare_form(const char *text, const char *rule, enum outcome expected)
{
	long before = completed, refused = counts[EX_REFUSED], lacking = counts[EX_ABSENT];
	uint8_t bytes[ARCH_INSN_MAX + 1] = {0};
	size_t size = parse(text, bytes);
	struct arch_insn insn;
	bool ok;

	if (arch_decode(bytes, size, CODE + ORIGIN, &insn) != ARCH_OK || insn.length != size)
		fail_msg("%s is no instruction", text);
	/* A form may stand in more than one rule. */
	if (!try_instruction(&insn))
		return;
	switch (expected) {
	case REFUSED:
		ok = counts[EX_REFUSED] == refused + 1;
		break;
	case LEFT_OUT:
		ok = counts[EX_REFUSED] == refused;
		break;
	case MAY_LACK:
		ok = completed == before + 1 || counts[EX_ABSENT] == lacking + 1;
		break;
	default:
		ok = completed == before + 1;
	}
	if (!ok)
		fail_msg("%s: %s", rule, text);
}

static void try_rare_forms(void)
{
	for (size_t i = 0; i < sizeof(rare) / sizeof(rare[0]); i++)
		for (size_t k = 0; k < 20 && rare[i].forms[k]; k++)
			try_rare_form(rare[i].forms[k], rare[i].rule, rare[i].outcome);
	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
		uint8_t bytes[ARCH_INSN_MAX + 1] = {0};
		size_t size = parse(unknown[i], bytes);
		struct arch_insn insn;

		if (arch_decode(bytes, size, CODE + ORIGIN, &insn) != ARCH_UNKNOWN)
			fail_msg("%s is known", unknown[i]);
	}
	for (unsigned condition = 0; condition < 16; condition++) {
		char text[16];

		snprintf(text, sizeof(text), "%02x00", 0x70 + condition);
		try_rare_form(text, "conditional jumps", MOVED_ALIKE);
		snprintf(text, sizeof(text), "0f%02x00000000", 0x80 + condition);
		try_rare_form(text, "conditional jumps", MOVED_ALIKE);
	}
}

static void map_areas(uint64_t at)
{
	base = at;
	code = map_at(CODE, AREA_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC);
	moved = map_at(MOVED, AREA_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC);
	scratch = map_at(SCRATCH, SCRATCH_SIZE, PROT_READ | PROT_WRITE);
	assert_true(code && moved && scratch);
	memset(code, RUN_END, AREA_SIZE);
	memset(moved, RUN_END, AREA_SIZE);
	memset(known, 0, sizeof(known));
	run_init();
}

static void print_counts(void)
{
	print_message("%ld forms: %ld completed, %ld faulted alike", forms, completed, faulted);
	for (int i = 1; i < EX_COUNT; i++)
		print_message(", %ld %s", counts[i], exclusion_names[i]);
	print_message("\n");
}

/* fear C10: operands below 2 GiB without a base */
static void test_low_addresses(void **state)
{
	(void)state;
	map_areas(LOW);
	try_rare_forms();
	print_counts();
	assert_int_equal(mismatches, 0);
	assert_true(completed > 110);
}

/*
 * fear C10: instructions of libc and libcrypto, original and moved by 1 GiB, on the same random
 * registers, flags, vectors and memory
 */
static void test_differential(void **state)
{
	(void)state;
	forms = completed = faulted = 0;
	memset(counts, 0, sizeof(counts));
	map_areas(HIGH);
	try_rare_forms();
	assert_int_equal(dl_iterate_phdr(sweep, (void *)"libc.so"), 1);
	if (dlopen("libcrypto.so.3", RTLD_LAZY))
		assert_int_equal(dl_iterate_phdr(sweep, (void *)"libcrypto.so"), 1);
	else
		print_message("skipped: libcrypto.so.3 is not installed, libc alone\n");
	print_counts();
	assert_int_equal(mismatches, 0);
	assert_true(completed >= FORMS_WANTED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_low_addresses),
		cmocka_unit_test(test_differential),
	};

	alarm(250);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
