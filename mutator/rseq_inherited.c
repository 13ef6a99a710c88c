/* SPDX-License-Identifier: MIT */
/*
 * rseq_inherited.c - what becomes of the rseq_cs of a thread that ends.
 *
 * The C library gives the stack of a thread that has ended to a new one, with
 * the struct rseq in it, and clears of that only the CPU (glibc 2.35 to 2.40).
 * So the new thread registers with the rseq_cs that the old one ended with.
 * Kernels clear it then since Linux 6.15, and in some older branches; others
 * take it for the new thread's, read the descriptor, and kill where that has
 * gone: long after a detach, perhaps. No thread has it by then, so no stop can
 * put it right. There code must leave no rseq_cs behind.
 *
 * Which kind this kernel is of no number says: it is tried out, in a child.
 */
#include <errno.h>
#include <linux/rseq.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inject/ptrace.h"
#include "mutator/core.h"

/* Of the C library (glibc 2.35, manual, "Restartable Sequences"); not everywhere. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));

enum { FIRST_SIZE = 32, MOST_SIZE = 256 }; /* of struct rseq: as all kernels take it, and more */

/* Nothing is there, in no process. */
static const uint64_t NOWHERE = 4096;

/* What the C library has registered for this thread; how large it takes it to be no header says. */
static void unregister(void)
{
	void *area = (uint8_t *)__builtin_thread_pointer() + __rseq_offset;

	for (unsigned size = FIRST_SIZE; size <= MOST_SIZE; size += FIRST_SIZE)
		if (!syscall(SYS_rseq, area, size, RSEQ_FLAG_UNREGISTER, arch_rseq_signature))
			return;
}

enum { IS_CLEARED = -EALREADY }; /* neither what no child says, nor one that cannot register */

/* In a child of probe_in_child(), which dies of it where the kernel believes what it finds. */
static int register_with_leftover(void)
{
	static _Alignas(MOST_SIZE) union {
		struct rseq area;
		uint8_t bytes[MOST_SIZE];
	} own;

	if (&__rseq_offset)
		unregister();
	own.area.cpu_id = (uint32_t)RSEQ_CPU_ID_UNINITIALIZED;
	own.area.rseq_cs = NOWHERE;
	if (syscall(SYS_rseq, &own, FIRST_SIZE, 0, arch_rseq_signature))
		return -errno;
	return own.area.rseq_cs ? 0 : IS_CLEARED;
}

bool rseq_is_inherited(void)
{
	static enum { UNKNOWN, CLEARED, INHERITED } known;
	const char *set = getenv("DINST_RSEQ");

	if (known == UNKNOWN)
		known = (set && !strcmp(set, "inherited")) ||
					probe_in_child(register_with_leftover) != IS_CLEARED
				? INHERITED
				: CLEARED;
	return known == INHERITED;
}
