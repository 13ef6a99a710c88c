/* SPDX-License-Identifier: MIT */
/*
 * arch_emitted.c - what inserted code consists of, by capstone: random programs
 * in frames with random liveness, and the routines of per-thread state, are
 * taken apart instruction by instruction. No vector, mask or x87 register is
 * changed, nothing is called, nothing traps, and what a profiler needs, the
 * frame pointer, is left alone.
 */
/* Two names that capstone and arch/x86_64/x86.h both have. */
#define x86_prefix capstone_prefix
#define x86_reg	   capstone_reg
#include <capstone/capstone.h>
#undef x86_prefix
#undef x86_reg

#include "tests/unit/arch_program.h"
#include "tests/unit/arch_program_random.h"

enum { PROGRAMS = 3000, KINDS_MAX = 2048 };

static struct random_places places = {.inputs = {6, 8, 2, 2, 16, 1, 1, 6}};
static csh capstone;
static unsigned long instructions, with_rbp;
static bool pushed_rbp; /* by the code that is looked at */

static int setup(void **state)
{
	(void)state;
	if (map_all() < 0 || cs_open(CS_ARCH_X86, CS_MODE_64, &capstone) != CS_ERR_OK)
		return -1;
	cs_option(capstone, CS_OPT_DETAIL, CS_OPT_ON);
	random_number = run_random;
	places.memory = address_of(data);
	places.counters = counter_at(0);
	return 0;
}

/* Vector, mask, x87 and control registers, by what capstone calls them. */
static bool is_beyond(const char *name)
{
	static const char *const prefixes[] = {"xmm", "ymm", "zmm", "mm",
					       "st",  "fp",  "bnd", "mxcsr"};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
		if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
			return true;
	return name[0] == 'k' && name[1] >= '0' && name[1] <= '7';
}

static void fail_at(const cs_insn *insn, const char *what)
{
	fail_msg("%s: %s %s", what, insn->mnemonic, insn->op_str);
}

enum may { MAY_READ_VECTORS = 1, MAY_CALL = 2 };

/* What an instruction may do and which registers it may change. */
static void check_insn(const cs_insn *insn, unsigned may)
{
	static const unsigned never[] = {X86_INS_LCALL,	     X86_INS_INT,      X86_INS_INT3,
					 X86_INS_INTO,	     X86_INS_IRET,     X86_INS_IRETQ,
					 X86_INS_UD2,	     X86_INS_EMMS,     X86_INS_FNINIT,
					 X86_INS_LDMXCSR,    X86_INS_FXRSTOR,  X86_INS_XRSTOR,
					 X86_INS_VZEROUPPER, X86_INS_VZEROALL, X86_INS_HLT,
					 X86_INS_STD,	     X86_INS_CLI};
	cs_regs read, written;
	uint8_t reads, writes;

	for (size_t i = 0; i < sizeof(never) / sizeof(*never); i++)
		if (insn->id == never[i])
			fail_at(insn, "not for inserted code");
	if (insn->id == X86_INS_CALL && !(may & MAY_CALL))
		fail_at(insn, "calls");
	/* Who tracks indirect branches finds no landing pad where ours lead: notrack. */
	if ((insn->id == X86_INS_CALL || insn->id == X86_INS_JMP) &&
	    insn->detail->x86.operands[0].type != X86_OP_IMM && insn->bytes[0] != 0x3e)
		fail_at(insn, "an indirect branch that is tracked");
	if (insn->id == X86_INS_PUSH && !strcmp(insn->op_str, "rbp"))
		pushed_rbp = true;
	assert_int_equal(cs_regs_access(capstone, insn, read, &reads, written, &writes), 0);
	for (uint8_t i = 0; i < writes; i++) {
		const char *name = cs_reg_name(capstone, written[i]);

		if (is_beyond(name))
			fail_at(insn, "changes a register that is never saved");
		if (!strcmp(name, "rbp") && !pushed_rbp)
			fail_at(insn, "changes the frame pointer");
	}
	for (uint8_t i = 0; i < reads && !(may & MAY_READ_VECTORS); i++)
		if (is_beyond(cs_reg_name(capstone, read[i])))
			fail_at(insn, "reads a register that it has no use for");
}

static void check_code(const uint8_t *bytes, size_t size, unsigned may)
{
	const uint8_t *at = bytes;
	uint64_t pc = address_of(bytes);
	cs_insn *insn = cs_malloc(capstone);

	assert_non_null(insn);
	while (size) {
		if (!cs_disasm_iter(capstone, &at, &size, &pc, insn))
			fail_msg("no instruction: %02x %02x %02x %02x", at[0], at[1], at[2], at[3]);
		check_insn(insn, may);
		instructions++;
	}
	cs_free(insn, 1);
}

static bool asks_for_vectors(const struct arch_program *p)
{
	for (unsigned i = 0; i < p->count; i++)
		if (p->ops[i].kind == ARCH_OP_FLOAT_ARGUMENT ||
		    p->ops[i].kind == ARCH_OP_FLOAT_RESULT)
			return true;
	return false;
}

/*
 * fear B5, D4, D6, E6: 3,000 random programs as emitted, taken apart by capstone: no vector, mask or
 * x87 register changed, no call, no trap; rbp is no scratch but, put back, where all others are in use
 */
static void test_programs(void **state)
{
	static struct made m;
	unsigned with = 0, may;

	(void)state;
	run_init();
	for (unsigned i = 0; i < PROGRAMS; i++) {
		begin_program(&m, ARCH_COUNT_LOCKED);
		m.frame.live = SET(RSP) | (run_random() & (choose(2) ? run_random() : 0) & SET_ALL);
		m.frame.red_zone = choose(2);
		m.frame.before = choose(2) ? 8 : 0;
		write_program(&m.p, &places);
		if (choose(2))
			arch_program_optimise(&m.p);
		with += asks_for_vectors(&m.p);
		emit_program(&m);
		may = asks_for_vectors(&m.p) ? MAY_READ_VECTORS : 0;
		pushed_rbp = false;
		check_code(code, m.hot_size, may);
		check_code(code + COLD_AT, m.cold_size, may);
		with_rbp += pushed_rbp;
	}
	print_message(
		"%lu instructions of %u programs, %u of which read vector arguments, %lu need "
		"all registers\n",
		instructions, PROGRAMS, with, with_rbp);
	assert_true(with_rbp < PROGRAMS / 4);
	assert_true(instructions > 10 * PROGRAMS && with > 10 && with < PROGRAMS);
}

/* fear B5, D4: counters in restartable sequences, in all frames that there are */
static void test_counters(void **state)
{
	static struct made m;

	(void)state;
	run_init();
	instructions = 0;
	for (unsigned i = 0; i < PROGRAMS; i++) {
		begin_program(&m, ARCH_COUNT_PER_CPU);
		m.frame.live = SET(RSP) | (run_random() & SET_ALL);
		m.frame.red_zone = choose(2);
		for (unsigned n = choose(3) + 1; n; n--)
			add_op(&m, (struct arch_op){.kind = ARCH_OP_COUNT,
						    .number = counter_at(choose(COUNTERS)),
						    .immediate = 1});
		emit_program(&m);
		pushed_rbp = false;
		check_code(code, m.hot_size, 0);
	}
	assert_true(instructions > 5 * PROGRAMS);
}

/* fear B5, D4: the routines that keep activations and timers of threads, which call each other */
static void test_routines(void **state)
{
	static struct made m;
	const uint8_t *from = code + ROUTINES_AT;
	size_t size = 0;

	(void)state;
	run_init();
	instructions = 0;
	memset(code + ROUTINES_AT, RUN_END, COLD_AT - ROUTINES_AT);
	begin_program(&m, ARCH_COUNT_LOCKED);
	find_tid();
	make_area(&m);
	/* They end where what the memory was filled with goes on for long. */
	for (size_t run = 0; run < 64; run = from[size++] == RUN_END ? run + 1 : 0)
		;
	pushed_rbp = false;
	check_code(from, size - 64, MAY_CALL);
	print_message("%lu instructions of routines\n", instructions);
	assert_true(instructions > 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_programs),
		cmocka_unit_test(test_counters),
		cmocka_unit_test(test_routines),
	};

	return cmocka_run_group_tests_name("unit/arch_emitted", tests, setup, NULL);
}
