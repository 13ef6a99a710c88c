/* SPDX-License-Identifier: MIT */
/*
 * callee_program.h - where tests of callee.h have functions lifted to, and what
 * interprets it: values 1 to 6 are the arguments, 7 is the result. Reads memory
 * so that it cannot fault; each test that includes this has a `made` of its own.
 */
#ifndef DINST_TESTS_UNIT_CALLEE_PROGRAM_H
#define DINST_TESTS_UNIT_CALLEE_PROGRAM_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "mutator/callee.h"
#include "mutator/image.h"

enum { OPS = 4000 };

static uint64_t seed = 20261121;

static uint64_t random64(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed * 0x2545f4914f6cdd1dull;
}

static struct made {
	struct arch_op ops[OPS], nowhere;
	unsigned count, values, labels;
	struct image *image;
	taddr_t bias;
	bool known_memory; /* loads of the image's own memory are plain ones */
} made;

static struct arch_op *new_op(void *arg, unsigned kind)
{
	struct made *m = arg;
	struct arch_op *op = m->count < OPS ? &m->ops[m->count++] : &m->nowhere;

	*op = (struct arch_op){.kind = (uint8_t)kind};
	return op;
}

static unsigned new_value(void *arg)
{
	return ++((struct made *)arg)->values;
}

static unsigned new_label(void *arg)
{
	return ++((struct made *)arg)->labels;
}

static bool load(void *arg, taddr_t address, uint64_t *word, size_t size)
{
	struct iovec to = {word, size}, from = {(void *)(uintptr_t)address, size};

	(void)arg;
	*word = 0;
	return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)size;
}

static bool store(void *arg, taddr_t address, uint64_t word, size_t size)
{
	(void)arg;
	memcpy((void *)(uintptr_t)address, &word, size);
	return true;
}

static bool no_other(void *arg, const struct arch_op *op, uint64_t a, uint64_t b, uint64_t *result,
		     uint64_t *second)
{
	(void)arg, (void)op, (void)a, (void)b, (void)result, (void)second;
	return false;
}

static uint64_t interpret(const uint64_t *arguments)
{
	const struct arch_machine machine = {.load = load, .store = store, .other = no_other};
	struct arch_program p = {.ops = made.ops,
				 .count = (uint16_t)made.count,
				 .room = (uint16_t)made.count,
				 .values = (uint16_t)made.values,
				 .labels = (uint16_t)made.labels};
	static uint64_t values[UINT16_MAX];

	memset(values, 0x5a, (made.values + 1) * sizeof(values[0]));
	memcpy(values + 1, arguments, 6 * sizeof(values[0]));
	if (!arch_program_run(&p, &machine, values))
		fail_msg("a program did not run to its end");
	return values[7];
}

static void show(void)
{
	char text[160];

	for (unsigned i = 0; i < made.count; i++) {
		arch_op_format(&made.ops[i], text, sizeof(text));
		fprintf(stderr, "\t%s\n", text);
	}
}

#endif
