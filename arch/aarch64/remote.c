/* SPDX-License-Identifier: MIT */
/*
 * remote.c - remote programs: a row of system calls, and a tail that puts the
 * interrupted thread back as it was. No stack is used, nothing is called, no
 * flag is touched. What a system call itself takes, streaming mode and the
 * scalable vectors above 128 bits, is not put back: a thread in the middle of
 * code that uses these is the wrong one.
 *
 *	movn x19 ... x22        results of calls that did not run are negative
 *	[call n: tests of what it depends on, arguments, svc, result kept]
 *	tail: every register that was changed from an immediate; b to where
 *	      the thread was
 *
 * No register is free for the way back, so it is a direct jump: the program
 * has to lie within 128 MiB of the interrupted program counter, or it is out
 * of range.
 */
#include <string.h>

#include "arch/aarch64/a64.h"

enum {
	RESULT_FIRST = 19, /* result of call n is in x19 + n */
	NUMBER = 8,	   /* the system call's number is in x8 */
	CALLS_MAX = 4,
	ARGUMENTS = 6,
};

#define SVC 0xd4000001u

/* mov to, from */
static void emit_move(struct arch_buf *out, unsigned from, unsigned to)
{
	a64_emit(out, 0xaa0003e0 | from << 16 | to);
}

/* Which earlier calls have to have succeeded: all, or those whose results it needs. */
static bool depends_on(const struct arch_remote_call *call, unsigned earlier)
{
	if (!call->always)
		return true;
	for (unsigned i = 0; i < ARGUMENTS; i++)
		if (call->args[i].kind == ARCH_ARG_RESULT && call->args[i].value == earlier)
			return true;
	return false;
}

static void emit_argument(struct arch_buf *out, unsigned n, const struct arch_remote_arg *arg,
			  taddr_t data)
{
	switch (arg->kind) {
	case ARCH_ARG_CONST:
		a64_emit_constant(out, n, arg->value);
		break;
	case ARCH_ARG_RESULT:
		if (arg->value >= CALLS_MAX)
			a64_fail(out, ARCH_REFUSED);
		emit_move(out, RESULT_FIRST + (arg->value & 3), n);
		break;
	case ARCH_ARG_DATA: /* near by: always one word */
		a64_emit_address(out, n, data + arg->value);
		break;
	}
}

static void emit_call(struct arch_buf *out, const struct arch_remote_call *call, unsigned n,
		      taddr_t data)
{
	size_t skips[CALLS_MAX];
	unsigned tested[CALLS_MAX], count = 0;

	for (unsigned earlier = 0; earlier < n; earlier++) {
		if (!depends_on(call, earlier))
			continue;
		tested[count] = RESULT_FIRST + earlier;
		skips[count++] = out->used;
		a64_emit(out, 0);
	}
	for (unsigned i = 0; i < ARGUMENTS; i++)
		emit_argument(out, i, &call->args[i], data);
	a64_emit_constant(out, NUMBER, call->number);
	a64_emit(out, SVC);
	emit_move(out, 0, RESULT_FIRST + n);
	for (unsigned i = 0; i < count && out->status == ARCH_OK; i++) /* tbnz x, #63 */
		a64_store(out->bytes + skips[i],
			  0xb7f80000 | a64_field((int64_t)(out->used - skips[i]), 5, 14) |
				  tested[i]);
}

static void emit_tail(struct arch_buf *out, const struct arch_regs *interrupted, size_t calls)
{
	const uint64_t *x = interrupted->user.regs;

	for (unsigned i = 0; i < ARGUMENTS; i++)
		a64_emit_constant(out, i, x[i]);
	a64_emit_constant(out, NUMBER, x[NUMBER]);
	for (size_t i = 0; i < calls; i++)
		a64_emit_constant(out, RESULT_FIRST + i, x[RESULT_FIRST + i]);
	arch_emit_jump(out, interrupted->user.pc);
}

static void emit_program(const struct arch_remote_program *program,
			 const struct arch_regs *interrupted, taddr_t data, struct arch_buf *out)
{
	for (size_t i = 0; i < program->count; i++)
		a64_emit_constant(out, RESULT_FIRST + i, UINT64_MAX);
	for (size_t i = 0; i < program->count; i++)
		emit_call(out, &program->calls[i], i, data);
	emit_tail(out, interrupted, program->count);
}

void arch_emit_remote(const struct arch_remote_program *program,
		      const struct arch_regs *interrupted, struct arch_buf *out)
{
	uint8_t scratch[ARCH_REMOTE_MAX];
	struct arch_buf probe = {.bytes = scratch, .size = sizeof(scratch), .pc = arch_here(out)};

	if (program->count > CALLS_MAX) {
		a64_fail(out, ARCH_REFUSED);
		return;
	}
	/* Once to see how long the code is; its length does not depend on where the data is. */
	emit_program(program, interrupted, probe.pc, &probe);
	if (probe.status != ARCH_OK) {
		a64_fail(out, probe.status);
		return;
	}
	emit_program(program, interrupted, probe.pc + probe.used, out);
	a64_emit_bytes(out, program->data, program->data_size);
}

/* Programs change no flag here, and what reads and writes them elsewhere (mrs, msr) every processor has. */
bool arch_keeps_flags(void)
{
	return true;
}

int arch_try_flags(void)
{
	return 0;
}

bool arch_is_remote(const uint8_t *bytes, size_t size)
{
	uint8_t first[4];
	struct arch_buf out = {.bytes = first, .size = sizeof(first)};

	a64_emit_constant(&out, RESULT_FIRST, UINT64_MAX);
	return size > sizeof(first) && out.status == ARCH_OK &&
	       !memcmp(bytes, first, sizeof(first));
}

void arch_begin_remote(struct arch_regs *r, taddr_t pc)
{
	arch_set_pc(r, pc);
	/* No system call is being left: the kernel must restart nothing. */
	r->system_call = -1;
}

long arch_remote_result(const struct arch_regs *r)
{
	return (long)r->user.regs[0];
}
