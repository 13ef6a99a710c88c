/* SPDX-License-Identifier: MIT */
/*
 * inject_seccomp.c - the interpreter for seccomp filters: each kind of instruction,
 * and everything that must deny.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "inject/seccomp.h"

enum { ALLOW = SECCOMP_RET_ALLOW, KILL = SECCOMP_RET_KILL_PROCESS };

#define LOAD_NR		       BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0)
#define RETURN(value)	       BPF_STMT(BPF_RET | BPF_K, (value))
#define IF(op, value, yes, no) BPF_JUMP(BPF_JMP | (op) | BPF_K, (value), (yes), (no))
#define ALU(op, value)	       BPF_STMT(BPF_ALU | (op) | BPF_K, (value))
#define END_IF_EQUAL(value)    IF(BPF_JEQ, (value), 0, 1), RETURN(ALLOW), RETURN(KILL)

enum { LENGTH_MAX = 12 };

/* The call that all are asked about: number 219, third argument 7 and, above, 9. */
static const struct {
	const char *name;
	bool allows;
	size_t count;
	struct sock_filter code[LENGTH_MAX];
} cases[] = {
	{"allow", true, 1, {RETURN(ALLOW)}},
	{"log", true, 1, {RETURN(SECCOMP_RET_LOG)}},
	{"errno", false, 1, {RETURN(SECCOMP_RET_ERRNO | 1)}},
	{"trace", false, 1, {RETURN(SECCOMP_RET_TRACE)}},
	{"kill", false, 1, {RETURN(KILL)}},
	{"number", true, 4, {LOAD_NR, END_IF_EQUAL(219)}},
	{"another number", false, 4, {LOAD_NR, END_IF_EQUAL(218)}},
	{"argument", true, 4, {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 32), END_IF_EQUAL(7)}},
	{"argument, upper half",
	 true,
	 4,
	 {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 36), END_IF_EQUAL(9)}},
	{"length", true, 4, {BPF_STMT(BPF_LD | BPF_LEN, 0), END_IF_EQUAL(64)}},
	{"immediate", true, 4, {BPF_STMT(BPF_LD | BPF_IMM, 5), END_IF_EQUAL(5)}},
	{"greater", true, 4, {LOAD_NR, IF(BPF_JGT, 218, 0, 1), RETURN(ALLOW), RETURN(KILL)}},
	{"not greater", false, 4, {LOAD_NR, IF(BPF_JGT, 219, 0, 1), RETURN(ALLOW), RETURN(KILL)}},
	{"greater or equal",
	 true,
	 4,
	 {LOAD_NR, IF(BPF_JGE, 219, 0, 1), RETURN(ALLOW), RETURN(KILL)}},
	{"bits", true, 4, {LOAD_NR, IF(BPF_JSET, 1, 0, 1), RETURN(ALLOW), RETURN(KILL)}},
	{"jump", true, 3, {BPF_STMT(BPF_JMP | BPF_JA, 1), RETURN(KILL), RETURN(ALLOW)}},
	{"add", true, 5, {LOAD_NR, ALU(BPF_ADD, 1), END_IF_EQUAL(220)}},
	{"subtract", true, 5, {LOAD_NR, ALU(BPF_SUB, 220), END_IF_EQUAL(0xffffffff)}},
	{"multiply", true, 5, {LOAD_NR, ALU(BPF_MUL, 2), END_IF_EQUAL(438)}},
	{"divide", true, 5, {LOAD_NR, ALU(BPF_DIV, 2), END_IF_EQUAL(109)}},
	{"divide by zero", false, 3, {LOAD_NR, ALU(BPF_DIV, 0), RETURN(ALLOW)}},
	{"and", true, 5, {LOAD_NR, ALU(BPF_AND, 0xf), END_IF_EQUAL(11)}},
	{"or", true, 5, {LOAD_NR, ALU(BPF_OR, 0x100), END_IF_EQUAL(475)}},
	{"exclusive or", true, 5, {LOAD_NR, ALU(BPF_XOR, 0xff), END_IF_EQUAL(36)}},
	{"left", true, 5, {LOAD_NR, ALU(BPF_LSH, 1), END_IF_EQUAL(438)}},
	{"right", true, 5, {LOAD_NR, ALU(BPF_RSH, 1), END_IF_EQUAL(109)}},
	/* What kernels make of it differs: x86-64 shifts by 0. */
	{"left by a register of 32",
	 false,
	 6,
	 {BPF_STMT(BPF_LDX | BPF_IMM, 32), LOAD_NR, BPF_STMT(BPF_ALU | BPF_LSH | BPF_X, 0),
	  END_IF_EQUAL(0)}},
	{"right by a register of 32",
	 false,
	 6,
	 {BPF_STMT(BPF_LDX | BPF_IMM, 32), LOAD_NR, BPF_STMT(BPF_ALU | BPF_RSH | BPF_X, 0),
	  END_IF_EQUAL(0)}},
	{"negate", true, 5, {LOAD_NR, ALU(BPF_NEG, 0), END_IF_EQUAL(0xffffff25)}},
	{"memory",
	 true,
	 7,
	 {LOAD_NR, BPF_STMT(BPF_ST, 3), BPF_STMT(BPF_LD | BPF_IMM, 0),
	  BPF_STMT(BPF_LD | BPF_MEM, 3), END_IF_EQUAL(219)}},
	{"x",
	 true,
	 8,
	 {LOAD_NR, BPF_STMT(BPF_MISC | BPF_TAX, 0), BPF_STMT(BPF_STX, 1),
	  BPF_STMT(BPF_LDX | BPF_MEM, 1), BPF_STMT(BPF_MISC | BPF_TXA, 0), END_IF_EQUAL(219)}},
	{"returned register",
	 true,
	 2,
	 {BPF_STMT(BPF_LD | BPF_IMM, ALLOW), BPF_STMT(BPF_RET | BPF_A, 0)}},
	{"nothing", false, 0, {RETURN(ALLOW)}},
	{"no end", false, 1, {LOAD_NR}},
	{"jump beyond the end", false, 2, {BPF_STMT(BPF_JMP | BPF_JA, 9), RETURN(ALLOW)}},
	{"load beyond the end", false, 2, {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 64), RETURN(ALLOW)}},
	{"load between words", false, 2, {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2), RETURN(ALLOW)}},
	{"memory beyond the end", false, 2, {BPF_STMT(BPF_ST, 16), RETURN(ALLOW)}},
	{"memory read beyond the end", false, 2, {BPF_STMT(BPF_LD | BPF_MEM, 99), RETURN(ALLOW)}},
	{"packet load", false, 2, {BPF_STMT(BPF_LD | BPF_B | BPF_IND, 0), RETURN(ALLOW)}},
};

/* fear A9: what a filter would say to a call, each instruction of filters; in doubt it says no */
static void test_cases(void **state)
{
	const struct seccomp_data call = {.nr = 219, .args = {1, 2, 0x900000007ull, 4, 5, 6}};
	bool allows;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		allows = seccomp_allows(cases[i].code, cases[i].count, &call);
		if (allows != cases[i].allows)
			fail_msg("%s: %s", cases[i].name, allows ? "allows" : "denies");
	}
}

/* fear A9: a filter that asks where a call is made says no to one that is made elsewhere */
static void test_places(void **state)
{
	const struct sock_filter halves[2][4] = {
		{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 8), END_IF_EQUAL(0)},
		{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 12), END_IF_EQUAL(0)},
	};
	struct seccomp_data call = {.nr = 219};

	(void)state;
	for (int half = 0; half < 2; half++) {
		call.instruction_pointer = 0;
		assert_false(seccomp_allows(halves[half], 4, &call));
		call.instruction_pointer = half ? 1 : 1ull << 32;
		assert_true(seccomp_allows(halves[half], 4, &call));
		call.instruction_pointer = half ? 1ull << 32 : 1;
		assert_false(seccomp_allows(halves[half], 4, &call));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cases),
		cmocka_unit_test(test_places),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
