/* SPDX-License-Identifier: MIT */
/*
 * arch_switch.c - the words that are turned under running threads: switches,
 * executed while another thread turns them, and gates.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "arch/x86_64/x86.h"
#include "tests/unit/arch_run.h"

enum { CODE_SIZE = 65536, EXIT_AT = 32768, TURNS = 3000000, RUNNERS = 2 };

static uint8_t *code, *low;

/* One page below 2 GiB, for words that are named by their absolute address. */
static int setup(void **state)
{
	(void)state;
	code = mmap(NULL, CODE_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1,
		   0);
	return code == MAP_FAILED || low == MAP_FAILED;
}

/* A switch is one aligned word; it falls through or leads to any target in reach. */
static void test_switch(void **state)
{
	(void)state;
	for (unsigned at = 0; at < 16; at++) {
		uint8_t bytes[32];
		struct arch_buf out = {.bytes = bytes, .size = sizeof(bytes), .pc = 0x500000 + at};
		size_t offset = arch_emit_switch(&out);
		taddr_t pc = out.pc + offset;
		uint64_t word, stored;
		struct arch_insn insn;

		assert_int_equal(out.status, ARCH_OK);
		assert_int_equal(pc % ARCH_SWITCH_SIZE, 0);
		assert_int_equal(out.used, offset + ARCH_SWITCH_SIZE);
		assert_int_equal(arch_switch_value(pc, 0, &word), ARCH_OK);
		memcpy(&stored, bytes + offset, 8);
		assert_true(word == stored);
		assert_int_equal(arch_decode(bytes + offset, 8, pc, &insn), ARCH_OK);
		assert_int_equal(insn.length, ARCH_SWITCH_SIZE);
		assert_true(insn.flags & ARCH_INSN_NOP);
		assert_int_equal(arch_switch_value(pc, pc + 0x1000000, &word), ARCH_OK);
		memcpy(bytes, &word, 8);
		assert_int_equal(arch_decode(bytes, 8, pc, &insn), ARCH_OK);
		assert_int_equal(insn.flow, ARCH_FLOW_JUMP);
		assert_true(insn.target == pc + 0x1000000);
		assert_int_equal(arch_switch_value(pc, pc + 0x90000000, &word), ARCH_OUT_OF_RANGE);
	}
}

/* ---------------------------------------------------------- while it turns */

static bool turned_enough;
static unsigned long came_out[RUNNERS][3]; /* nowhere, behind the switch, at its target */

/* mov $n,%eax; ret */
static void emit_answer(uint8_t *at, uint8_t n)
{
	const uint8_t bytes[] = {0xb8, n, 0, 0, 0, 0xc3};

	memcpy(at, bytes, sizeof(bytes));
}

static void *run_through(void *index)
{
	unsigned (*enter)(void);
	void *at = code;
	unsigned long *seen = came_out[(intptr_t)index];

	memcpy(&enter, &at, sizeof(enter));
	while (!__atomic_load_n(&turned_enough, __ATOMIC_RELAXED))
		for (unsigned i = 0; i < 1000; i++) {
			unsigned where = enter();

			seen[where <= 2 ? where : 0]++;
		}
	return NULL;
}

/* Threads come out behind the switch or at its target, whatever it is doing; never elsewhere. */
static void test_turning(void **state)
{
	struct arch_buf out = {.bytes = code, .size = CODE_SIZE, .pc = (taddr_t)(uintptr_t)code};
	pthread_t runners[RUNNERS];
	uint64_t on, off;

	(void)state;
	assert_int_equal(arch_emit_switch(&out), 0);
	emit_answer(code + out.used, 1);
	emit_answer(code + EXIT_AT, 2);
	assert_int_equal(arch_switch_value(out.pc, 0, &on), ARCH_OK);
	assert_int_equal(arch_switch_value(out.pc, out.pc + EXIT_AT, &off), ARCH_OK);
	for (intptr_t i = 0; i < RUNNERS; i++)
		assert_int_equal(pthread_create(&runners[i], NULL, run_through, (void *)i), 0);
	for (unsigned i = 0; i < TURNS; i++) {
		__atomic_store_n((uint64_t *)(void *)code, i & 1 ? on : off, __ATOMIC_RELEASE);
		for (volatile unsigned pause = i & 1023; pause; pause--)
			;
	}
	__atomic_store_n(&turned_enough, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < RUNNERS; i++) {
		pthread_join(runners[i], NULL);
		assert_int_equal(came_out[i][0], 0);
		assert_true(came_out[i][1] > 0 && came_out[i][2] > 0);
	}
	print_message("%lu runs behind the switch, %lu at its target\n",
		      came_out[0][1] + came_out[1][1], came_out[0][2] + came_out[1][2]);
	memset(code, RUN_END, CODE_SIZE);
}

/* ------------------------------------------------------------------ gates */

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
	in.r[4] = run_stack_pointer(in.r[4]);
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
	uint8_t *const places[] = {low, code + CODE_SIZE - 64}; /* absolute, pc-relative */

	(void)state;
	run_init();
	for (unsigned i = 0; i < 2; i++) {
		run_gate(places[i], 1, 1000, 999);
		run_gate(places[i], 0, 1000, 0);
		run_gate(places[i], 7, 1, 0);
	}
	memset(low, 0, 12);
	memset(code, RUN_END, CODE_SIZE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_switch),
		cmocka_unit_test(test_turning),
		cmocka_unit_test(test_gate),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, setup, NULL);
}
