/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -fno-omit-frame-pointer -fno-optimize-sibling-calls -lunwind */
/*
 * walkers.c - a profiler in the program itself: a timer's signal, whose handler
 * walks the stack in three ways from where it has interrupted: by backtrace(3)
 * of the C library, by libunwind, and along the frame pointers.
 *
 * walkers: prints "ready". Commands:
 *   walk MS   works for so long under the profiler; then two lines,
 *             "own N backtrace N libunwind N pointers N" for what was interrupted in the
 *             program's own code, and "other ..." for anything else: how many
 *             samples, and how many walks of each kind came to main's caller
 *   spin      works without it until told otherwise; "spinning"
 *   rest      ends that; "resting"
 * Exits with 1 if any frame above the first one was not the program's own.
 */
#define UNW_LOCAL_ONLY
#include <dlfcn.h>
#include <libunwind.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum { FRAMES = 64, DEPTH = 6 };

struct sums {
	unsigned long samples, backtraces, unwinds, pointers;
};

static struct sums own, other;
static struct {
	uintptr_t lo, hi;
} ranges[64];
static size_t range_count;
static uintptr_t low, high; /* of the program itself */
static void *bottom;	    /* where the worker was called from */
static atomic_int wrong, over;
static atomic_ulong work_done;
static pthread_t spinner;

static int add_range(struct dl_phdr_info *info, size_t size, void *arg)
{
	for (int i = 0; i < info->dlpi_phnum && range_count < 64; i++)
		if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
			ranges[range_count].lo = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
			ranges[range_count].hi =
				ranges[range_count].lo + info->dlpi_phdr[i].p_memsz;
			if (!range_count) {
				low = ranges[0].lo;
				high = ranges[0].hi;
			}
			range_count++;
		}
	(void)size;
	(void)arg;
	return 0;
}

static int is_known(uintptr_t pc)
{
	for (size_t i = 0; i < range_count; i++)
		if (pc >= ranges[i].lo && pc < ranges[i].hi)
			return 1;
	return 0;
}

static int walk_libunwind(ucontext_t *context)
{
	unw_cursor_t cursor;
	unw_word_t pc;
	int first = 1;

	if (unw_init_local2(&cursor, (unw_context_t *)context, UNW_INIT_SIGNAL_FRAME))
		return 0;
	for (int i = 0; i < FRAMES; i++) {
		if (unw_get_reg(&cursor, UNW_REG_IP, &pc))
			return 0;
		if (pc == (unw_word_t)(uintptr_t)bottom)
			return 1;
		if (!first && !is_known(pc))
			return 0;
		first = 0;
		if (unw_step(&cursor) <= 0)
			return 0;
	}
	return 0;
}

static int walk_pointers(const greg_t *r)
{
	const uintptr_t *frame = (const uintptr_t *)r[REG_RBP];

	for (int i = 0; i < FRAMES && frame && !((uintptr_t)frame & 7); i++) {
		if (frame[1] == (uintptr_t)bottom)
			return 1;
		if ((const uintptr_t *)frame[0] <= frame)
			return 0;
		frame = (const uintptr_t *)frame[0];
	}
	return 0;
}

/* The C library's own: that of libunwind has the same name. */
static int (*backtrace)(void **frames, int max);

static int walk_backtrace(uintptr_t pc)
{
	void *frames[FRAMES];
	int count = backtrace(frames, FRAMES), found = 0;

	for (int i = 0; i < count; i++) {
		found |= frames[i] == bottom;
		if (!is_known((uintptr_t)frames[i]) && (uintptr_t)frames[i] != pc)
			wrong = 1;
	}
	return found;
}

static void on_tick(int sig, siginfo_t *info, void *context)
{
	greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
	uintptr_t pc = (uintptr_t)r[REG_RIP];
	struct sums *s = pc >= low && pc < high ? &own : &other;

	if (is_known(pc) && s == &other)
		return; /* in a library: its own matter */
	s->samples++;
	s->backtraces += walk_backtrace(pc);
	s->unwinds += walk_libunwind(context);
	s->pointers += walk_pointers(r);
	(void)sig;
	(void)info;
}

/* --------------------------------------------------------------- the work */

static volatile unsigned long sink;

__attribute__((noinline)) unsigned long walker_leaf(unsigned long n)
{
	for (int i = 0; i < 20; i++) {
		n = n * 3 + 1;
		sink ^= n;
	}
	return n;
}

__attribute__((noinline)) unsigned long walker_tree(int depth, unsigned long n)
{
	unsigned long r = walker_leaf(n);

	if (depth > 0)
		r += walker_tree(depth - 1, n + 1);
	sink++;
	return r + 1;
}

static int now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int)(t.tv_sec % 1000000 * 1000 + t.tv_nsec / 1000000);
}

__attribute__((noinline)) unsigned long walker_bottom(long ms)
{
	int end = now_ms() + (int)ms;
	unsigned long r = 0;

	bottom = __builtin_return_address(0);
	while (ms ? now_ms() < end : !over)
		for (int i = 0; i < 50; i++, work_done++)
			r += walker_tree(DEPTH, r);
	__asm__ volatile("" ::: "memory");
	return r;
}

static void walk(long ms)
{
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGPROF};
	struct itimerspec time = {{0, 1000000}, {0, 1000000}};
	timer_t timer;

	memset(&own, 0, sizeof(own));
	memset(&other, 0, sizeof(other));
	event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &time, NULL))
		exit(2);
	sink += walker_bottom(ms);
	timer_delete(timer);
	printf("own %lu backtrace %lu libunwind %lu pointers %lu\n", own.samples, own.backtraces,
	       own.unwinds, own.pointers);
	printf("other %lu backtrace %lu libunwind %lu pointers %lu\n", other.samples,
	       other.backtraces, other.unwinds, other.pointers);
	fflush(stdout);
}

static void *spin(void *arg)
{
	sink += walker_bottom(0);
	return arg;
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = on_tick, .sa_flags = SA_SIGINFO | SA_RESTART};
	void *frames[4];
	unw_context_t context;
	unw_cursor_t cursor;
	char line[64];

	*(void **)&backtrace = dlsym(dlopen("libc.so.6", RTLD_NOW), "backtrace");
	if (!backtrace)
		return 2;
	backtrace(frames, 4);
	unw_getcontext(&context);
	unw_init_local(&cursor, &context);
	while (unw_step(&cursor) > 0)
		;
	dl_iterate_phdr(add_range, NULL);
	sigaction(SIGPROF, &action, NULL);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "walk ", 5)) {
			walk(atol(line + 5));
			continue;
		}
		if (!strncmp(line, "spin", 4)) {
			over = 0;
			pthread_create(&spinner, NULL, spin, NULL);
			puts("spinning");
		} else {
			over = 1;
			pthread_join(spinner, NULL);
			puts("resting");
		}
		fflush(stdout);
	}
	return wrong;
}
