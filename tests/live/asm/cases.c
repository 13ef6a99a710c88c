/* SPDX-License-Identifier: MIT */
/*
 * cases.c - runs one case and compares everything that it left behind with
 * what it left when nothing was instrumented.
 */
#include <cpuid.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/live/asm/driver.h"

extern void t_callee(void), t_callee_second(void), t_tail_target(void);

__thread struct call *torture_current;
__thread void (*torture_function)(void);
__thread uint64_t torture_rsp, torture_rax, torture_slot;
__thread const char *torture_name = "none";
/* Of struct rseq from the thread pointer, in which the kernel looks for a sequence. */
long torture_rseq_offset;
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned __rseq_size __attribute__((weak));

static uint64_t features; /* enum case_flag that the CPU has */
static uint64_t state_mask;
static size_t state_size;
static uint8_t *inputs[INPUTS]; /* XSAVE areas */

static const char *const names[16] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
				      "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};

void wrong(const char *format, ...)
{
	char text[512];
	va_list list;
	int n = snprintf(text, sizeof(text), "WRONG %s: ", torture_name);

	va_start(list, format);
	n += vsnprintf(text + n, sizeof(text) - (size_t)n, format, list);
	va_end(list);
	if ((size_t)n > sizeof(text) - 2)
		n = sizeof(text) - 2;
	text[n++] = '\n';
	if (write(STDOUT_FILENO, text, (size_t)n) < 0 || write(STDERR_FILENO, text, (size_t)n) < 0)
		_exit(3);
	abort();
}

size_t case_count(void)
{
	return (size_t)(__stop_torture_cases - __start_torture_cases);
}

bool case_runs(const struct torture_case *c)
{
	const uint64_t wants = CASE_AVX | CASE_AVX512 | CASE_GFNI | CASE_VAES | CASE_RTM |
			       CASE_INTEL | CASE_CX16 | CASE_ADX;

	if (!strcmp(c->name, "t_g_rseq") && !torture_rseq_offset)
		return false;
	return !(c->flags & wants & ~features);
}

static uint64_t random_next(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x * UINT64_C(0x2545f4914f6cdd1d);
}

static void *memory(size_t size, size_t alignment)
{
	void *p = NULL;

	if (posix_memalign(&p, alignment, size))
		abort();
	memset(p, 0, size);
	return p;
}

static void find_features(void)
{
	unsigned a, b, c, d;

	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx2"))
		features |= CASE_AVX;
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
	    __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512ifma"))
		features |= CASE_AVX512;
	if (features & CASE_AVX && __builtin_cpu_supports("gfni"))
		features |= CASE_GFNI;
	if (features & CASE_AVX512 && __builtin_cpu_supports("vpclmulqdq"))
		features |= CASE_VAES;
	if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
		if (b & 1u << 11)
			features |= CASE_RTM;
		if (b & 1u << 19)
			features |= CASE_ADX;
	}
	__cpuid(0, a, b, c, d);
	if (b == signature_INTEL_ebx)
		features |= CASE_INTEL;
	__cpuid(1, a, b, c, d);
	if (c & 1u << 13)
		features |= CASE_CX16;
}

/* All components but tiles, protection keys and those that are gone. */
static void find_state(void)
{
	unsigned a, d, b, c;

	__asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
	state_mask = ((uint64_t)d << 32 | a) & 0xe7;
	state_size = 576;
	for (unsigned i = 2; i < 8; i++)
		if (state_mask >> i & 1) {
			__cpuid_count(0xd, i, a, b, c, d);
			if (b + a > state_size)
				state_size = b + a;
		}
	if (state_size > STATE)
		abort();
}

static void make_input(unsigned input)
{
	uint64_t seed = 0x9e3779b97f4a7c15 + input;
	uint8_t *p = inputs[input] = memory(STATE, 64);
	const uint16_t control = 0x037f;
	const uint32_t mxcsr = 0x1f80 | (input & 3) << 13;

	memcpy(p, &control, sizeof(control));
	memcpy(p + 24, &mxcsr, sizeof(mxcsr));
	memcpy(p + 512, &state_mask, sizeof(state_mask));
	for (size_t i = 160; i + 8 <= state_size; i += 8) {
		uint64_t value = random_next(&seed);

		if (i < 416 || i >= 576)
			memcpy(p + i, &value, sizeof(value));
	}
}

void cases_setup(void)
{
	find_features();
	find_state();
	if (&__rseq_offset && &__rseq_size && __rseq_size)
		torture_rseq_offset = __rseq_offset;
	for (unsigned i = 0; i < INPUTS; i++)
		make_input(i);
}

void worker_setup(struct worker *w, int number)
{
	size_t size = case_count() * INPUTS * sizeof(*w->expected);

	w->number = number;
	w->stack = memory(TEST_STACK, TEST_STACK);
	/* One case makes it its stack, and signals come then, too. */
	w->scratch = (uint8_t *)memory(TEST_STACK + SCRATCH, 4096) + TEST_STACK;
	w->state = memory(STATE, 64);
	w->now = memory(sizeof(*w->now), 64);
	w->expected = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (w->expected == MAP_FAILED)
		abort();
	w->call.mask = state_mask;
	w->call.xout = w->state;
	w->call.top = w->stack + TEST_STACK - 8;
}

static void prepare(struct worker *w, const struct torture_case *c, size_t number, unsigned input)
{
	uint64_t seed = (number * INPUTS + input + 1) * 0x9e3779b97f4a7c15;
	uint8_t *top = w->stack + TEST_STACK - 2048;
	uint64_t *words = (uint64_t *)w->scratch;
	struct call *call = &w->call;

	for (int i = 0; i < 16; i++)
		call->gpr[i] = random_next(&seed);
	call->gpr[7] = input;
	call->gpr[6] = (uintptr_t)w->scratch;
	call->flags = 0x202 | (random_next(&seed) & 0x8d5) | (tracing ? TRAP_FLAG : 0);
	/* Two workers see all sixteen places that a stack pointer can have in a line. */
	top -= input * 16 + (c->flags & CASE_ODD ? input * 2 + ((unsigned)w->number & 1) : 0);
	call->rsp = (uintptr_t)top;
	call->xin = inputs[input];
	memset(top - 512, 0xa5, 512);
	memset(top, 0x5a, ABOVE);
	memset(w->scratch, 0, SCRATCH);
	words[0] = (uintptr_t)t_callee;
	words[1] = (uintptr_t)t_callee_second;
	words[2] = (uintptr_t)t_tail_target;
	words[3] = (uintptr_t)w->scratch;
	for (int i = 4; i < 16; i++)
		words[i] = random_next(&seed);
	memset(w->state, 0, STATE);
	torture_name = c->name;
	torture_function = c->function;
}

static void take(struct worker *w, const struct torture_case *c, struct result *r)
{
	struct call *call = &w->call;
	uint8_t *state = r->state;

	if (c->flags & CASE_THROWS) {
		memset(r, 0, sizeof(*r));
		r->gpr[0] = (uint64_t)torture_try(call);
		torture_settle(call);
		return;
	}
	torture_call(call);
	memcpy(r->gpr, call->out, sizeof(r->gpr));
	r->gpr[4] -= call->rsp;
	r->flags = call->out_flags & ~UINT64_C(0x10100);
	memcpy(r->scratch, w->scratch, SCRATCH);
	memcpy(state, w->state, state_size);
	/* Where the last x87 instruction was, what software may use, and which parts were used. */
	memset(state + 6, 0, 18);
	memset(state + 28, 0, 4);
	memset(state + 416, 0, 160);
}

static void check_memory(const char *what, const uint8_t *expected, const uint8_t *now, size_t size,
			 unsigned input)
{
	for (size_t i = 0; i < size; i++)
		if (expected[i] != now[i])
			wrong("input %u: byte %zu of the %s is %02x, not %02x", input, i, what,
			      now[i], expected[i]);
}

static void check(const struct result *e, const struct result *n, unsigned input)
{
	for (int i = 0; i < 16; i++)
		if (e->gpr[i] != n->gpr[i])
			wrong("input %u: %s is %#llx, not %#llx", input, names[i],
			      (unsigned long long)n->gpr[i], (unsigned long long)e->gpr[i]);
	if (e->flags != n->flags)
		wrong("input %u: flags are %#llx, not %#llx", input, (unsigned long long)n->flags,
		      (unsigned long long)e->flags);
	if (memcmp(e->scratch, n->scratch, SCRATCH))
		check_memory("scratch", e->scratch, n->scratch, SCRATCH, input);
	if (memcmp(e->state, n->state, STATE))
		check_memory("vector state", e->state, n->state, STATE, input);
}

void case_run(struct worker *w, size_t number, unsigned input, bool compare)
{
	const struct torture_case *c = &__start_torture_cases[number];
	struct result *expected = &w->expected[number * INPUTS + input];
	const uint8_t *above;

	prepare(w, c, number, input);
	take(w, c, compare ? w->now : expected);
	above = (const uint8_t *)w->call.rsp;
	for (size_t i = 0; i < ABOVE; i++)
		if (above[i] != 0x5a)
			wrong("input %u: byte %zu above the stack pointer is %02x", input, i,
			      above[i]);
	if (compare)
		check(expected, w->now, input);
	torture_name = "none";
}

void run_round(struct worker *w, bool slow)
{
	for (size_t i = 0; i < case_count(); i++) {
		const struct torture_case *c = &__start_torture_cases[i];

		if (!case_runs(c) || !(c->flags & CASE_SLOW) != !slow)
			continue;
		/* A trap at every step restarts a restartable sequence for ever. */
		if (tracing && c->flags & CASE_NOCOUNT)
			continue;
		for (unsigned input = 0; input < (slow ? 1 : INPUTS); input++)
			case_run(w, i, input, true);
	}
}
