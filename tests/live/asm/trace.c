/* SPDX-License-Identifier: MIT */
/*
 * trace.c - runs a round with the trap flag set and counts every instruction
 * and every step from one to the next: the truth for the counters of a test.
 */
#include <link.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "tests/live/asm/driver.h"

struct trace traces[2];
uint64_t trace_low, trace_high;
volatile bool tracing;

static struct trace *current;
static uint64_t previous, made;

static void count_edge(uint64_t from, uint64_t to)
{
	size_t at = (from * 31 + to) * 0x9e3779b1u % TRACE_EDGES;

	for (size_t i = 0; i < TRACE_EDGES; i++, at = (at + 1) % TRACE_EDGES) {
		struct trace_edge *e = &current->edges[at];

		if (!e->from) {
			e->from = from;
			e->to = to;
		}
		if (e->from == from && e->to == to) {
			e->count++;
			return;
		}
	}
	wrong("too many edges");
}

/* The trap comes back to a repeated string instruction after every element. */
static bool is_repeat(const uint8_t *code)
{
	size_t i = 0;

	if (code[0] != 0xf2 && code[0] != 0xf3)
		return false;
	while (code[i] == 0xf2 || code[i] == 0xf3 || code[i] == 0x66 || (code[i] & 0xf0) == 0x40)
		i++;
	return (code[i] >= 0xa4 && code[i] <= 0xa7) || (code[i] >= 0xaa && code[i] <= 0xaf);
}

static bool is_syscall(uint64_t pc)
{
	return ((const uint8_t *)pc)[0] == 0x0f && ((const uint8_t *)pc)[1] == 0x05;
}

/* Where it goes on when a transaction that begins there comes to nothing; 0: none begins. */
static uint64_t transaction_end(uint64_t pc)
{
	const uint8_t *code = (const uint8_t *)pc;
	int32_t distance;

	if (code[0] != 0xc7 || code[1] != 0xf8)
		return 0;
	memcpy(&distance, code + 2, sizeof(distance));
	return pc + 6 + (uint64_t)(int64_t)distance;
}

static void count(uint64_t pc)
{
	bool inside = pc >= trace_low && pc < trace_high;

	if (inside && pc == previous && is_repeat((const uint8_t *)pc))
		return;
	if (previous)
		count_edge(previous, inside ? pc : 0);
	if (inside)
		current->counts[pc - trace_low]++;
	previous = inside ? pc : 0;
}

static void on_trap(int sig, siginfo_t *info, void *context)
{
	uint64_t pc = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];

	if (!tracing)
		wrong("a trap at %#llx", (unsigned long long)pc);
	/* After a system call the trap comes one instruction late. */
	while (previous && is_syscall(previous) && pc != previous + 2)
		count(previous + 2);
	/* So it does where it ends a transaction, which it always does. */
	if (previous && transaction_end(previous) && pc != transaction_end(previous))
		count(transaction_end(previous));
	count(pc);
	if (is_syscall(pc)) {
		long number = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX];

		/* What a child did ends there; its parent comes out of the call that made it. */
		if (number == SYS_clone)
			made = pc;
		else if (number == SYS_exit)
			previous = made;
	}
	(void)sig;
	(void)info;
}

static int find_text(struct dl_phdr_info *info, size_t size, void *arg)
{
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD && p->p_flags & PF_X) {
			trace_low = info->dlpi_addr + p->p_vaddr;
			trace_high = trace_low + p->p_memsz;
		}
	}
	(void)size;
	(void)arg;
	return 1; /* the program is the first */
}

void trace_rounds(struct worker *w)
{
	struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	struct sigaction before;

	dl_iterate_phdr(find_text, NULL);
	sigaction(SIGTRAP, &action, &before);
	for (int i = 0; i < 2; i++) {
		traces[i].counts = calloc(trace_high - trace_low, sizeof(*traces[i].counts));
		if (!traces[i].counts)
			abort();
		current = &traces[i];
		previous = 0;
		tracing = true;
		run_round(w, i == 1);
		tracing = false;
	}
	sigaction(SIGTRAP, &before, NULL);
}
