/* SPDX-License-Identifier: MIT */
/*
 * wall_clock_tell.c - which clock wall timers go by, for people. What a reading of it
 * takes is measured in this process; in the target it is the same function of the
 * kernel, or instructions like its own.
 */
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "inject/target.h"
#include "mutator/variable.h"
#include "mutator/wall_clock.h"

enum { BATCHES = 8, READINGS = 100, GIGA = 1000000000 };

enum reading { BY_PROCESSOR, BY_VDSO, BY_CALL };

static uint64_t read_it(enum reading how)
{
	struct timespec now;

	if (how == BY_PROCESSOR)
		return arch_clock_ticks();
	if (how == BY_VDSO)
		return (uint64_t)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
}

/* ns of one reading; of a few batches the fastest. */
static unsigned long took_ns(enum reading how)
{
	uint64_t least = UINT64_MAX;

	for (unsigned i = 0; i < BATCHES; i++) {
		const uint64_t before = clock_ns();
		volatile uint64_t kept;

		for (unsigned n = 0; n < READINGS; n++)
			kept = read_it(how);
		(void)kept;
		if (clock_ns() - before < least)
			least = clock_ns() - before;
	}
	return (unsigned long)(least / READINGS);
}

void wall_clock_tell(const struct wall_clock *clock, char *text, size_t size)
{
	struct dinst_error e = {0};

	if (!ticks_calibrate(&e)) {
		const uint64_t ns = ticks_to_ns(GIGA);

		snprintf(text, size, "the processor's, %.2f GHz, steady; %lu ns to read",
			 ns ? (double)GIGA / (double)ns : 0, took_ns(BY_PROCESSOR));
	} else {
		const enum reading how = clock ? BY_VDSO : BY_CALL;

		snprintf(text, size, "%s, %lu ns to read: %s; there are no streams",
			 clock ? "the vDSO's" : "a system call", took_ns(how), e.text);
	}
	dinst_error_clear(&e);
}
