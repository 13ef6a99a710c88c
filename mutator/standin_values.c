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

__attribute__((weak)) uint64_t arch_clock_ticks(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

__attribute__((weak)) bool arch_clock_is_steady(void)
{
	return true;
}

__attribute__((weak)) int instance_read(const struct instance *i, unsigned element,
					struct variable_value *out, struct dinst_error *e)
{
	return variable_read(i->session, instance_source(i)->variables[0], element, out, e);
}

__attribute__((weak)) bool instance_hits(const struct instance *i, uint64_t *hits)
{
	(void)i, (void)hits;
	return false;
}

__attribute__((weak)) void session_poll(struct session *s,
					void (*told)(void *arg, const struct instance *i,
						     double percent),
					void *arg)
{
	(void)s, (void)told, (void)arg;
}
