/* SPDX-License-Identifier: MIT */
/*
 * standin_values.c - weak stand-ins for what THREADS and ARCH are writing now,
 * so that variable*.c and ticks.c can be linked. Goes when the parts are there.
 */
#include <time.h>

#include "mutator/threads.h"
#include "mutator/variable.h"

__attribute__((weak)) int threads_take_words(struct session *s, unsigned count,
					     const enum arch_clock *clock, uint32_t *offset,
					     struct dinst_error *e)
{
	(void)s, (void)count, (void)clock, (void)offset;
	return dinst_fail(e, DINST_UNSUPPORTED, "no per-thread words yet");
}

__attribute__((weak)) void threads_drop_words(struct session *s, uint32_t offset, unsigned count)
{
	(void)s, (void)offset, (void)count;
}

__attribute__((weak)) int threads_read_timer(struct session *s, uint32_t offset,
					     enum arch_clock clock, uint64_t (*total)(void *arg),
					     void *arg, uint64_t *value, struct dinst_error *e)
{
	(void)s, (void)offset, (void)clock, (void)e;
	*value = total(arg);
	return 0;
}

__attribute__((weak)) int threads_read_word(struct session *s, uint32_t offset,
					    void (*each)(void *arg, pid_t tid, uint64_t word),
					    void *arg, struct dinst_error *e)
{
	(void)s, (void)offset, (void)each, (void)arg, (void)e;
	return 0;
}
