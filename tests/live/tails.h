/* SPDX-License-Identifier: MIT */
/*
 * tails.h - something behind the code of a module, in a stop: a program as a mutator that dies
 * leaves it there, or anything else.
 */
#ifndef DINST_TESTS_LIVE_TAILS_H
#define DINST_TESTS_LIVE_TAILS_H

#include <sys/syscall.h>

#include "inject/remote_private.h"
#include "tests/live/harness.h"

/* What is in a tail: its address, and bytes to be written there; none: a program of ours. */
struct rest {
	taddr_t address;
	uint8_t bytes[ARCH_REMOTE_MAX];
	size_t size;
};

static inline int dirty_a_tail(struct stop *s, void *arg, struct dinst_error *e)
{
	const struct arch_remote_call call = {.number = SYS_getpid};
	const struct arch_remote_program program = {.calls = &call, .count = 1};
	struct rest *r = arg;
	struct arch_buf out = {.bytes = r->bytes, .size = sizeof(r->bytes)};
	struct remote_tail tail;

	if (remote_find_tail(s, &tail, e))
		return -1;
	r->address = out.pc = tail.address;
	if (!r->size) {
		arch_emit_remote(&program, &stop_thread(s, 0)->regs, &out);
		assert_int_equal(out.status, ARCH_OK);
		r->size = out.used;
	}
	return stop_write(s, r->address, r->bytes, r->size, e);
}

#endif
