/* SPDX-License-Identifier: MIT */
/*
 * arch_run.h - runs a piece of machine code on a given processor state in this
 * process, and says what state it left. For the arch tests only.
 *
 * A signal handler replaces the interrupted state (general registers, flags,
 * the whole extended state) by the wanted one; the code runs until it reaches
 * a byte that is no instruction (all areas are filled with RUN_END) or faults;
 * the handler of that signal takes the state away and puts the first one back.
 * One thread at a time.
 */
#ifndef DINST_TESTS_ARCH_RUN_H
#define DINST_TESTS_ARCH_RUN_H

#include <cpuid.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { RUN_END = 0x06, RUN_EXTENDED_MAX = 16384, RUN_STACK = 1 << 17 };

/* Arithmetic flags and DF. */
#define RUN_FLAGS 0xcd5ul

struct run_state {
	uint64_t r[16]; /* by register number */
	uint64_t flags;
	uint64_t pc;
	int signal;			    /* that ended the run */
	uint64_t fault;			    /* si_addr */
	uint8_t extended[RUN_EXTENDED_MAX]; /* XSAVE standard format */
};

static struct {
	struct run_state *in, *out;
	bool running;
	gregset_t gregs;
	uint8_t extended[RUN_EXTENDED_MAX];
	size_t extended_size;
	uint64_t features;
} run_engine;

/* Where register n of the encoding stands in gregset_t. */
static const int run_greg[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
				 REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
				 REG_R12, REG_R13, REG_R14, REG_R15};

/*
 * Size of the extended state in a signal frame (struct _fpx_sw_bytes in the
 * last 48 bytes of the legacy area; arch/x86/include/uapi/asm/sigcontext.h).
 */
static size_t run_frame_extended(const void *fp, uint64_t *features)
{
	uint32_t magic, size;

	memcpy(&magic, (const uint8_t *)fp + 464, 4);
	if (magic != 0x46505853) {
		*features = 3;
		return 512;
	}
	memcpy(features, (const uint8_t *)fp + 472, 8);
	memcpy(&size, (const uint8_t *)fp + 480, 4);
	return size <= RUN_EXTENDED_MAX ? size : RUN_EXTENDED_MAX;
}

static inline void run_begin(int signal, siginfo_t *info, void *context)
{
	ucontext_t *u = context;
	uint8_t *fp = (uint8_t *)u->uc_mcontext.fpregs;
	struct run_state *in = run_engine.in;

	(void)signal;
	(void)info;
	run_engine.extended_size = run_frame_extended(fp, &run_engine.features);
	memcpy(run_engine.gregs, u->uc_mcontext.gregs, sizeof(gregset_t));
	memcpy(run_engine.extended, fp, run_engine.extended_size);
	if (!in)
		return; /* only a look at the sizes */
	for (int i = 0; i < 16; i++)
		u->uc_mcontext.gregs[run_greg[i]] = (greg_t)in->r[i];
	u->uc_mcontext.gregs[REG_RIP] = (greg_t)in->pc;
	u->uc_mcontext.gregs[REG_EFL] =
		(greg_t)(((uint64_t)u->uc_mcontext.gregs[REG_EFL] & ~RUN_FLAGS) |
			 (in->flags & RUN_FLAGS));
	/* The software bytes at 464 belong to the kernel. */
	memcpy(fp, in->extended, 464);
	memcpy(fp + 512, in->extended + 512, run_engine.extended_size - 512);
	run_engine.running = true;
}

static inline void run_end(int signal, siginfo_t *info, void *context)
{
	ucontext_t *u = context;
	uint8_t *fp = (uint8_t *)u->uc_mcontext.fpregs;
	struct run_state *out = run_engine.out;

	if (!run_engine.running)
		abort(); /* our own fault */
	run_engine.running = false;
	for (int i = 0; i < 16; i++)
		out->r[i] = (uint64_t)u->uc_mcontext.gregs[run_greg[i]];
	out->pc = (uint64_t)u->uc_mcontext.gregs[REG_RIP];
	out->flags = (uint64_t)u->uc_mcontext.gregs[REG_EFL] & RUN_FLAGS;
	out->signal = signal;
	out->fault = (uint64_t)info->si_addr;
	memcpy(out->extended, fp, run_engine.extended_size);
	memcpy(u->uc_mcontext.gregs, run_engine.gregs, sizeof(gregset_t));
	memcpy(fp, run_engine.extended, run_engine.extended_size);
}

/* Executes from in->pc; *out is the state at the first signal. */
static void run_code(const struct run_state *in, struct run_state *out)
{
	run_engine.in = (struct run_state *)in;
	run_engine.out = out;
	raise(SIGUSR1);
}

static inline void run_init(void)
{
	static const int ends[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGTRAP};
	struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
	stack_t stack = {.ss_size = RUN_STACK};

	stack.ss_sp =
		mmap(NULL, RUN_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack.ss_sp == MAP_FAILED || sigaltstack(&stack, NULL) != 0)
		abort();
	sigfillset(&action.sa_mask);
	action.sa_sigaction = run_end;
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		sigaction(ends[i], &action, NULL);
	action.sa_sigaction = run_begin;
	sigaction(SIGUSR1, &action, NULL);
	run_engine.in = NULL;
	raise(SIGUSR1);
}

/* --------------------------------------------------------- random states */

static uint64_t run_seed = 0x9e3779b97f4a7c15ull;

/* xorshift64*: the same numbers in every run. */
static inline uint64_t run_random(void)
{
	run_seed ^= run_seed >> 12;
	run_seed ^= run_seed << 25;
	run_seed ^= run_seed >> 27;
	return run_seed * 0x2545f4914f6cdd1dull;
}

static inline void run_fill(void *to, size_t size)
{
	for (size_t i = 0; i + 8 <= size; i += 8) {
		uint64_t value = run_random();

		memcpy((uint8_t *)to + i, &value, 8);
	}
}

/*
 * Random vector, mask and x87 registers in a state that XRSTOR accepts: the
 * components that the kernel saves (Intel SDM volume 1, 13.4), tiles left out.
 */
static inline void run_random_extended(struct run_state *s)
{
	const uint64_t wanted = run_engine.features & 0xe7; /* x87 SSE AVX opmask ZMM */

	memcpy(s->extended, run_engine.extended, run_engine.extended_size);
	run_fill(s->extended + 32, 128 + 256);
	for (unsigned i = 0; i < 8; i++) {
		memset(s->extended + 32 + 16 * i + 10, 0, 6);
		s->extended[32 + 16 * i + 7] |= 0x80; /* a normal number */
		s->extended[32 + 16 * i + 9] = (uint8_t)(0x3f | (run_random() & 0x80));
	}
	memset(s->extended, 0, 24);
	s->extended[0] = 0x7f; /* control word 0x37f: all exceptions masked */
	s->extended[1] = 0x03;
	s->extended[4] = (uint8_t)run_random(); /* which x87 registers are in use */
	if (run_engine.extended_size <= 576)
		return;
	for (unsigned i = 2; i < 8; i++) {
		unsigned size, offset, c, d;

		if (!(wanted >> i & 1) || !__get_cpuid_count(0xd, i, &size, &offset, &c, &d) ||
		    offset + size > run_engine.extended_size)
			continue;
		run_fill(s->extended + offset, size);
	}
	memcpy(s->extended + 512, &wanted, 8); /* XSTATE_BV: nothing in its initial state */
}

/*
 * `wanted` as a stack pointer. There are hypervisors with which no thread goes back to user mode with
 * one that cannot be an address (that is not canonical): it gets SIGSEGV where it stands. That is
 * tried out; there it is made an address.
 */
static inline uint64_t run_stack_pointer(uint64_t wanted)
{
	static struct run_state in, out;
	static int any = -1;
	uint8_t *page;

	if (any < 0) {
		page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (page == MAP_FAILED)
			abort();
		memset(page, RUN_END, 4096);
		run_init();
		run_random_extended(&in);
		in.r[4] = 0x5a5a5a5a5a5a5a5a;
		in.pc = (uint64_t)(uintptr_t)page;
		run_code(&in, &out);
		any = out.signal == SIGILL;
		munmap(page, 4096);
	}
	return any ? wanted : (uint64_t)((int64_t)(wanted << 17) >> 17);
}

#endif
