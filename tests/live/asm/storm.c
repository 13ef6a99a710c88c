/* SPDX-License-Identifier: MIT */
/*
 * storm.c - a profiler: timers of every thread whose handler walks the stack
 * and expects nothing but the program's own code on it.
 */
#include <execinfo.h>
#include <link.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "tests/live/asm/driver.h"

enum { RANGES = 64, FRAMES = 64 };

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

__thread void *storm_base;
volatile uint64_t storm_signals, storm_inside;

static struct {
	uint64_t lo, hi;
} own[RANGES]; /* the program first */
static size_t own_count;
static __thread timer_t timer;

/* libgcc's own, without a header: what unwinding information covers a pc. */
struct dwarf_eh_bases {
	void *tbase, *dbase, *func;
};
extern const void *_Unwind_Find_FDE(void *pc, struct dwarf_eh_bases *bases);

static int add_range(struct dl_phdr_info *info, size_t size, void *arg)
{
	for (int i = 0; i < info->dlpi_phnum && own_count < RANGES; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD && p->p_flags & PF_X) {
			own[own_count].lo = info->dlpi_addr + p->p_vaddr;
			own[own_count++].hi = info->dlpi_addr + p->p_vaddr + p->p_memsz;
		}
	}
	(void)size;
	(void)arg;
	return 0;
}

static bool is_own(uint64_t pc)
{
	for (size_t i = 0; i < own_count; i++)
		if (pc >= own[i].lo && pc < own[i].hi)
			return true;
	return false;
}

static void on_storm(int sig, siginfo_t *info, void *context)
{
	uint64_t pc = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	const uint64_t *sp = (const uint64_t *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RSP];
	struct dwarf_eh_bases bases;
	bool arrived = false;
	void *frames[FRAMES];
	int n;

	__atomic_add_fetch(&storm_signals, 1, __ATOMIC_RELAXED);
	if (!is_own(pc))
		__atomic_add_fetch(&storm_inside, 1, __ATOMIC_RELAXED);
	/*
	 * Libraries are their own matter: where the unwinder itself leaves a stack for another,
	 * nothing can walk it.
	 */
	else if (pc < own[0].lo || pc >= own[0].hi)
		return;
	n = backtrace(frames, FRAMES);
	for (int i = 0; i < n; i++) {
		uint64_t frame = (uint64_t)(uintptr_t)frames[i];

		if (!is_own(frame) && frame != pc)
			wrong("pc %#llx: the stack has %#llx, which is not the program's",
			      (unsigned long long)pc, (unsigned long long)frame);
		arrived |= frames[i] == storm_base;
	}
	/* The near half of a jump may lie in padding, where nothing says how to unwind. */
	if (!arrived && _Unwind_Find_FDE((void *)pc, &bases))
		wrong("pc %#llx (+%#llx): the walk of %d frames does not come to the thread's "
		      "start; sp %#llx, there %#llx, %#llx",
		      (unsigned long long)pc, (unsigned long long)(pc - own[0].lo), n,
		      (unsigned long long)(uintptr_t)sp, (unsigned long long)sp[0],
		      (unsigned long long)sp[1]);
	(void)sig;
	(void)info;
}

void storm_setup(void)
{
	struct sigaction action = {
		.sa_sigaction = on_storm,
		.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART,
	};
	void *frames[4];

	backtrace(frames, 4);
	dl_iterate_phdr(add_range, NULL);
	sigaction(SIGPROF, &action, NULL);
}

void storm_begin(void)
{
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGPROF};
	struct itimerspec time = {{0, 400000}, {0, 400000}};

	event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &time, NULL))
		abort();
}

void storm_end(void)
{
	timer_delete(timer);
}
