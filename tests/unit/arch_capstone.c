/* SPDX-License-Identifier: MIT */
/*
 * arch_capstone.c - capstone as the judge of our decoder, over the big programs
 * and libraries of this machine: every length, at least the registers and flags
 * that it says are read, at most those that it says are overwritten. Where the
 * two disagree for good, the difference is listed with its reason.
 */
#include <capstone/capstone.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "arch/arch.h"
#include "tests/unit/arch_text.h"

/* As in arch/x86_64/x86.h, which cannot stand beside capstone's names. */
#define R(n) (1ull << (n))
#define CF   (1ull << 16)
#define PF   (1ull << 17)
#define AF   (1ull << 18)
#define ZF   (1ull << 19)
#define SF   (1ull << 20)
#define OF   (1ull << 21)
#define DF   (1ull << 22)
#define F6   (CF | PF | AF | ZF | SF | OF)

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* Where the two disagree, and who is right. Counted, and nothing else may differ. */
static const struct {
	const char *mnemonic;
	const char *why;
} known[] = {
	{"xor", "capstone: a register is read by xor with itself"},
	{"cmov*", "what is kept or overwritten is not read: liveness goes through it"},
	{"bsf", "the same, where the operand is 0"},
	{"bsr", "the same, where the operand is 0"},
	{"stosb", "capstone: rcx is read without rep"},
	{"stosd", "capstone: rcx is read without rep"},
	{"stosw", "capstone: rcx is read without rep"},
	{"stosq", "capstone: rcx is read without rep"},
	{"movsd", "capstone takes the SSE move for the string move: DF"},
	{"movss", "capstone: the same"},
	{"pcmpistri", "capstone knows of no flags"},
	{"vpcmpistri", "capstone knows of no flags"},
	{"ptest", "capstone leaves OF out"},
	{"vptest", "capstone knows of no flags"},
	{"vtestps", "capstone knows of no flags"},
	{"vtestpd", "capstone knows of no flags"},
	{"kortestb", "capstone knows of no flags"},
	{"kortestw", "capstone knows of no flags"},
	{"kortestd", "capstone knows of no flags"},
	{"kortestq", "capstone knows of no flags"},
	{"ud0", "capstone: without its operand"},
	{"ud1", "capstone: without its operand"},
	{"ud2b", "capstone: without its operand"},
};

/* Instructions that we do not know, and why. */
static const struct {
	const char *mnemonic;
	const char *why;
} refused[] = {
	{"sal", "the undocumented form /6 of shl"},
	{"mov", "a load of cs, which faults; control and debug registers"},
	{"femms", "3DNow!: no processor of today has it"},
	{"pmulhrw", "3DNow!: no processor of today has it"},
	{"pfadd", "3DNow!: no processor of today has it"},
	{"lfs", "far pointers into segment registers"},
	{"lgs", "far pointers into segment registers"},
	{"lss", "far pointers into segment registers"},
	{"clts", "privileged"},
	{"invd", "privileged"},
	{"wbinvd", "privileged"},
	{"rdmsr", "privileged"},
	{"wrmsr", "privileged"},
	{"rdpmc", "privileged"},
	{"vmread", "of virtual machine monitors"},
	{"vmwrite", "of virtual machine monitors"},
};

static struct judgement {
	csh handle;
	long total, unknown, capstone_unknown, narrow_branches, locks, differences;
	long listed[COUNT(known)], refused[COUNT(refused)];
} judge;

static arch_regset general_registers(const uint16_t *regs, unsigned count)
{
	static const uint16_t names[16][5] = {
		{X86_REG_RAX, X86_REG_EAX, X86_REG_AX, X86_REG_AL, X86_REG_AH},
		{X86_REG_RCX, X86_REG_ECX, X86_REG_CX, X86_REG_CL, X86_REG_CH},
		{X86_REG_RDX, X86_REG_EDX, X86_REG_DX, X86_REG_DL, X86_REG_DH},
		{X86_REG_RBX, X86_REG_EBX, X86_REG_BX, X86_REG_BL, X86_REG_BH},
		{X86_REG_RSP, X86_REG_ESP, X86_REG_SP, X86_REG_SPL, X86_REG_SPL},
		{X86_REG_RBP, X86_REG_EBP, X86_REG_BP, X86_REG_BPL, X86_REG_BPL},
		{X86_REG_RSI, X86_REG_ESI, X86_REG_SI, X86_REG_SIL, X86_REG_SIL},
		{X86_REG_RDI, X86_REG_EDI, X86_REG_DI, X86_REG_DIL, X86_REG_DIL},
		{X86_REG_R8, X86_REG_R8D, X86_REG_R8W, X86_REG_R8B, X86_REG_R8B},
		{X86_REG_R9, X86_REG_R9D, X86_REG_R9W, X86_REG_R9B, X86_REG_R9B},
		{X86_REG_R10, X86_REG_R10D, X86_REG_R10W, X86_REG_R10B, X86_REG_R10B},
		{X86_REG_R11, X86_REG_R11D, X86_REG_R11W, X86_REG_R11B, X86_REG_R11B},
		{X86_REG_R12, X86_REG_R12D, X86_REG_R12W, X86_REG_R12B, X86_REG_R12B},
		{X86_REG_R13, X86_REG_R13D, X86_REG_R13W, X86_REG_R13B, X86_REG_R13B},
		{X86_REG_R14, X86_REG_R14D, X86_REG_R14W, X86_REG_R14B, X86_REG_R14B},
		{X86_REG_R15, X86_REG_R15D, X86_REG_R15W, X86_REG_R15B, X86_REG_R15B},
	};
	arch_regset set = 0;

	for (unsigned i = 0; i < count; i++)
		for (unsigned reg = 0; reg < 16; reg++)
			for (unsigned form = 0; form < 5; form++)
				if (names[reg][form] == regs[i])
					set |= R(reg);
	return set;
}

static void flags_of(const cs_insn *theirs, arch_regset *tested, arch_regset *changed)
{
	static const struct {
		arch_regset bit;
		uint64_t test, change;
	} table[] = {
#define FLAG(f)                  \
	{f, X86_EFLAGS_TEST_##f, \
	 X86_EFLAGS_MODIFY_##f | X86_EFLAGS_RESET_##f | X86_EFLAGS_UNDEFINED_##f}
		FLAG(CF),
		FLAG(PF),
		FLAG(AF),
		FLAG(ZF),
		FLAG(SF),
		FLAG(OF),
		{DF, X86_EFLAGS_TEST_DF,
		 X86_EFLAGS_MODIFY_DF | X86_EFLAGS_RESET_DF | X86_EFLAGS_SET_DF},
		{CF, 0, X86_EFLAGS_SET_CF},
	};

	*tested = *changed = 0;
	for (size_t i = 0; i < COUNT(table); i++) {
		if (theirs->detail->x86.eflags & table[i].test)
			*tested |= table[i].bit;
		if (theirs->detail->x86.eflags & table[i].change)
			*changed |= table[i].bit;
	}
}

/* A name of the tables; `*` at its end stands for anything. */
static bool is_named(const char *name, const char *mnemonic)
{
	size_t length = strlen(name);

	return name[length - 1] == '*' ? strncmp(name, mnemonic, length - 1) == 0
				       : strcmp(name, mnemonic) == 0;
}

static void differ(const struct arch_insn *ours, const cs_insn *theirs, const char *what)
{
	arch_regset reads, writes;

	for (size_t i = 0; i < COUNT(known); i++) {
		if (is_named(known[i].mnemonic, theirs->mnemonic)) {
			judge.listed[i]++;
			return;
		}
	}
	if (judge.differences++ > 20)
		return;
	arch_effects(ours, &reads, &writes);
	fprintf(stderr, "%s: %s %s, reads %#llx writes %#llx\n", what, theirs->mnemonic,
		theirs->op_str, (unsigned long long)reads, (unsigned long long)writes);
}

/* Ours must read at least what capstone's does, and overwrite at most that. */
static void compare(const struct arch_insn *ours, const cs_insn *theirs)
{
	arch_regset tested, changed, reads, writes;
	cs_regs read, written;
	uint8_t read_count, written_count;

	if (ours->length != theirs->size) {
		differ(ours, theirs, "length");
		return;
	}
	arch_effects(ours, &reads, &writes);
	if (cs_regs_access(judge.handle, theirs, read, &read_count, written, &written_count))
		return;
	if (general_registers(read, read_count) & ~reads)
		differ(ours, theirs, "registers read");
	if (writes & ~reads & 0xffff & ~general_registers(written, written_count))
		differ(ours, theirs, "registers overwritten");
	if (cs_insn_group(judge.handle, theirs, X86_GRP_FPU))
		return; /* another meaning of the same word */
	flags_of(theirs, &tested, &changed);
	if (tested & ~reads)
		differ(ours, theirs, "flags read");
	if (writes & ~reads & (F6 | DF) & ~changed)
		differ(ours, theirs, "flags overwritten");
}

/* Known to capstone alone. */
static void refuse(const uint8_t *text, size_t size, const cs_insn *theirs)
{
	judge.unknown++;
	if (theirs->detail->x86.prefix[0] == X86_PREFIX_LOCK) {
		judge.locks++; /* where it faults */
		return;
	}
	for (size_t i = 0; i < COUNT(refused); i++) {
		if (strcmp(refused[i].mnemonic, theirs->mnemonic) == 0) {
			judge.refused[i]++;
			return;
		}
	}
	/* 66 before a near branch: capstone sides with AMD. */
	for (size_t i = 0; i + 1 < size && i < theirs->size; i++) {
		if (text[i] == 0x66 &&
		    (cs_insn_group(judge.handle, theirs, X86_GRP_JUMP) ||
		     cs_insn_group(judge.handle, theirs, X86_GRP_CALL) ||
		     cs_insn_group(judge.handle, theirs, X86_GRP_RET) ||
		     cs_insn_group(judge.handle, theirs, X86_GRP_BRANCH_RELATIVE))) {
			judge.narrow_branches++;
			return;
		}
	}
	if (judge.differences++ < 60)
		fprintf(stderr, "only capstone knows: %s %s (%02x %02x %02x)\n", theirs->mnemonic,
			theirs->op_str, text[0], text[1], text[2]);
}

static void judge_text(const uint8_t *text, size_t size, uint64_t start)
{
	cs_insn *theirs = cs_malloc(judge.handle);

	for (size_t at = 0; at < size;) {
		struct arch_insn ours;
		const uint8_t *p = text + at;
		size_t left = size - at;
		uint64_t address = start + at;
		int status = arch_decode(text + at, left, address, &ours);
		bool known_to_them = cs_disasm_iter(judge.handle, &p, &left, &address, theirs);

		judge.total++;
		judge.capstone_unknown += status == ARCH_OK && !known_to_them;
		if (status == ARCH_OK && known_to_them)
			compare(&ours, theirs);
		else if (known_to_them)
			refuse(text + at, size - at, theirs);
		at += status == ARCH_OK ? ours.length : known_to_them ? theirs->size : 1;
	}
	cs_free(theirs, 1);
}

static void test_judge(void **state)
{
	int judged = 0;

	(void)state;
	assert_int_equal(cs_open(CS_ARCH_X86, CS_MODE_64, &judge.handle), CS_ERR_OK);
	cs_option(judge.handle, CS_OPT_DETAIL, CS_OPT_ON);
	for (int i = 0; i < TEXT_FILES; i++) {
		if (text_each(i, judge_text))
			judged++;
		else
			print_message("without %s, which is not here\n", text_files[i].name);
	}
	cs_close(&judge.handle);
	print_message("%ld instructions; unknown to us alone %ld, to capstone alone %ld\n",
		      judge.total, judge.unknown, judge.capstone_unknown);
	for (size_t i = 0; i < COUNT(known); i++)
		if (judge.listed[i])
			print_message("  %s: %ld, %s\n", known[i].mnemonic, judge.listed[i],
				      known[i].why);
	for (size_t i = 0; i < COUNT(refused); i++)
		if (judge.refused[i])
			print_message("  %s: %ld, %s\n", refused[i].mnemonic, judge.refused[i],
				      refused[i].why);
	print_message("  66 before a near branch: %ld, lock where it faults: %ld\n",
		      judge.narrow_branches, judge.locks);
	assert_true(judged >= 1);
	assert_int_equal(judge.differences, 0);
	assert_true(judge.total > 300000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_judge),
	};

	alarm(250);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
