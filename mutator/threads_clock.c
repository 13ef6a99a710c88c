/* SPDX-License-Identifier: MIT */
/*
 * threads_clock.c - whether a thread can know that it was not switched out.
 *
 * A thread that is not in a restartable sequence when the kernel returns it to
 * user mode after a switch has its rseq_cs cleared (kernel/rseq.c), so one that
 * still has what it wrote there has run all the time. No document promises
 * that, so it is tried out once, on a thread of ours: after sleeping in the
 * kernel, after another thread of the same CPU had its turn, and that it does
 * not happen for no reason.
 */
#include <linux/rseq.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "mutator/threads_private.h"

/* Of the C library (glibc 2.35, manual, "Restartable Sequences"); not everywhere. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned __rseq_size __attribute__((weak));

enum {
	SLEEPS = 5,
	SLEEP_NS = 200 * 1000,
	SWITCHES = 3,
	SWITCH_NS = 100 * 1000 * 1000, /* two threads of one CPU have had their turns by then */
	STEADY_TRIES = 200,
	STEADY_NS = 2000,
};

/* Nothing of it is executed. */
struct trial_section {
	_Alignas(32) struct rseq_cs section;
	uint32_t filling, signature;
	uint64_t never[2];
};

struct trial {
	struct trial_section section;
	struct rseq *rseq;
	atomic_bool stop; /* for the thread that wants the CPU */
	bool works;
};

static uint64_t pointer_of(const struct trial *t)
{
	return (uint64_t)(uintptr_t)&t->section.section;
}

static void arm(struct trial *t)
{
	__atomic_store_n((uint64_t *)&t->rseq->rseq_cs, pointer_of(t), __ATOMIC_SEQ_CST);
}

static bool is_armed(const struct trial *t)
{
	return __atomic_load_n((const uint64_t *)&t->rseq->rseq_cs, __ATOMIC_SEQ_CST) ==
	       pointer_of(t);
}

static void disarm(struct trial *t)
{
	__atomic_store_n((uint64_t *)&t->rseq->rseq_cs, 0, __ATOMIC_SEQ_CST);
}

/* It was in the kernel, and off the CPU, and came back to the same one. */
static bool is_cleared_by_sleep(struct trial *t)
{
	const struct timespec some = {.tv_nsec = SLEEP_NS};

	for (int i = 0; i < SLEEPS; i++) {
		arm(t);
		clock_nanosleep(CLOCK_MONOTONIC, 0, &some, NULL);
		if (is_armed(t))
			return false;
	}
	return true;
}

static void *want_cpu(void *arg)
{
	struct trial *t = arg;

	while (!atomic_load_explicit(&t->stop, memory_order_relaxed))
		;
	return NULL;
}

/* Two threads on one CPU, neither of which ever waits. */
static bool is_cleared_by_preemption(struct trial *t)
{
	pthread_t other;
	bool cleared = true;

	if (pthread_create(&other, NULL, want_cpu, t))
		return false;
	for (int i = 0; i < SWITCHES && cleared; i++) {
		const uint64_t end = clock_ns() + SWITCH_NS;

		arm(t);
		while (is_armed(t) && clock_ns() < end)
			;
		cleared = !is_armed(t);
	}
	atomic_store(&t->stop, true);
	pthread_join(other, NULL);
	return cleared;
}

/* Else it would be of no use. */
static bool is_kept_while_running(struct trial *t)
{
	unsigned kept = 0;

	for (int i = 0; i < STEADY_TRIES; i++) {
		const uint64_t end = clock_ns() + STEADY_NS;

		arm(t);
		while (clock_ns() < end)
			;
		kept += is_armed(t);
	}
	return kept > STEADY_TRIES / 2;
}

static bool find_rseq(struct trial *t)
{
	if (!&__rseq_offset || !&__rseq_size || !__rseq_size)
		return false;
	t->rseq = (struct rseq *)((uint8_t *)__builtin_thread_pointer() + __rseq_offset);
	return (int32_t)t->rseq->cpu_id >= 0;
}

static void *try_out(void *arg)
{
	struct trial *t = arg;
	cpu_set_t one;
	const int cpu = sched_getcpu();

	CPU_ZERO(&one);
	if (cpu < 0 || cpu >= CPU_SETSIZE || !find_rseq(t))
		return NULL;
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		return NULL;
	t->section.section.start_ip = (uint64_t)(uintptr_t)&t->section.never[1];
	t->section.section.post_commit_offset = 1;
	t->section.section.abort_ip = (uint64_t)(uintptr_t)&t->section.never[0];
	t->section.signature = arch_rseq_signature;
	t->works =
		is_cleared_by_sleep(t) && is_kept_while_running(t) && is_cleared_by_preemption(t);
	disarm(t);
	return NULL;
}

bool threads_clock_is_kept(void)
{
	static enum { UNKNOWN, WORKS, FAILS } known;
	struct trial t = {.works = false};
	pthread_t thread;

	if (known == UNKNOWN) {
		if (!pthread_create(&thread, NULL, try_out, &t))
			pthread_join(thread, NULL);
		known = t.works ? WORKS : FAILS;
	}
	return known == WORKS;
}
