/* SPDX-License-Identifier: MIT */
/*
 * wall_clock.c - the vdso's clock as operations (mutator/wall_clock.h). The judge
 * is the function itself: ours lies between two readings of it, from many threads;
 * and so with a copy of the vdso beside data that say that the kernel uses another
 * clock, or that the process is in a time namespace.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "inject/maps.h"
#include "mutator/wall_clock.h"

enum { CODE = 1 << 16, THREADS = 4, READS = 50000, TRIES = 100, PAGE = 4096 };

typedef void (*emitted)(uint64_t *ns);
typedef int (*original)(clockid_t clock, struct timespec *t);

static struct wall_clock_source vdso;

static int setup(void **state)
{
	struct maps maps;
	const struct maps_entry *m;

	(void)state;
	if (maps_read(getpid(), &maps, NULL))
		return -1;
	m = maps_named(&maps, "[vdso]");
	if (m) {
		vdso = (struct wall_clock_source){.code = (const uint8_t *)(uintptr_t)m->lo,
						  .size = m->hi - m->lo,
						  .start = m->lo,
						  .lo = m->lo,
						  .hi = m->hi};
		while (m-- > maps.entries && m->hi == vdso.lo && strstr(m->name, "[vvar"))
			vdso.lo = m->lo;
		vdso.entry = vdso.start + wall_clock_find(vdso.code, vdso.size);
	}
	maps_release(&maps);
	return 0;
}

static struct wall_clock *lift(const struct wall_clock_source *source)
{
	struct dinst_error e = {0};
	struct wall_clock *clock;

	if (!source->size)
		skip();
	clock = wall_clock_lift(source, &e);
	if (!clock) {
		print_message("this kernel's clock is not lifted: %s\n", e.text);
		skip();
	}
	return clock;
}

/* A function of C that stores the time: all registers are preserved. */
static emitted emit(const struct wall_clock *clock)
{
	struct arch_op ops[ARCH_PROGRAM_OPS] = {
		{.kind = ARCH_OP_ARGUMENT, .result = 3},
		{.kind = ARCH_OP_CLOCK, .number = ARCH_CLOCK_MONOTONIC, .result = 4},
		{.kind = ARCH_OP_STORE, .size = 8, .a = 3, .b = 4},
	};
	struct arch_program p = {.ops = ops, .count = 3, .room = ARCH_PROGRAM_OPS, .values = 4};
	uint8_t *code = mmap(NULL, CODE, PROT_READ | PROT_WRITE | PROT_EXEC,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const taddr_t at = (uintptr_t)code;
	struct arch_frame frame = {.live = ~(arch_regset)0};
	const struct arch_environment env = {0};
	struct arch_buf out = {.bytes = code, .size = CODE / 2, .pc = at};
	struct arch_buf cold = {.bytes = code + CODE / 2, .size = CODE / 2, .pc = at + CODE / 2};

	assert_ptr_not_equal(code, MAP_FAILED);
	assert_true(wall_clock_is_wanted(&p));
	wall_clock_expand(clock, &p);
	assert_false(wall_clock_is_wanted(&p));
	arch_program_needs(&p, &env, &frame);
	arch_frame_open(&out, &frame);
	arch_emit_program(&p, &env, &frame, &out, &cold);
	arch_frame_close(&out, &frame);
	assert_int_equal(out.status, ARCH_OK);
	code[out.used] = 0xc3; /* ret */
	return (emitted)(uintptr_t)code;
}

static uint64_t ns_of(original function)
{
	struct timespec t = {0};

	function(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct comparing {
	emitted ours;
	original theirs;
	unsigned wrong;
};

static void *compare(void *arg)
{
	struct comparing *c = arg;

	for (unsigned i = 0; i < READS; i++) {
		const uint64_t before = ns_of(c->theirs);
		uint64_t now = 0;

		c->ours(&now);
		c->wrong += now < before || now > ns_of(c->theirs);
	}
	return NULL;
}

/* ---------------------------------------------------------------------- tests */

/* fear K4: what the vDSO's clock becomes lies between two readings of the true one, in four threads */
static void test_agrees(void **state)
{
	struct wall_clock *clock = lift(&vdso);
	struct comparing c[THREADS];
	pthread_t threads[THREADS];

	(void)state;
	print_message("%u operations, %u values, %u labels\n", clock->program.count,
		      clock->program.values, clock->program.labels);
	for (unsigned n = 0; n < THREADS; n++) {
		c[n] = (struct comparing){.ours = emit(clock), .theirs = clock_gettime};
		assert_int_equal(pthread_create(&threads[n], NULL, compare, &c[n]), 0);
	}
	for (unsigned n = 0; n < THREADS; n++) {
		pthread_join(threads[n], NULL);
		assert_int_equal(c[n].wrong, 0);
		munmap((void *)(uintptr_t)c[n].ours, CODE);
	}
	wall_clock_free(clock);
}

struct watch {
	taddr_t first;	      /* what is loaded first: the number that tells of changes */
	unsigned times, from; /* loads of it; from this one on it is another number; 0: never */
	unsigned calls, ticks;
};

static bool load(void *arg, taddr_t address, uint64_t *word, size_t size)
{
	struct watch *w = arg;

	if (address < vdso.lo || address >= vdso.hi)
		return false;
	*word = 0;
	memcpy(word, (const void *)(uintptr_t)address, size);
	if (!w->first)
		w->first = address;
	if (address == w->first && ++w->times >= w->from && w->from)
		*word += 2;
	return true;
}

static bool other(void *arg, const struct arch_op *op, uint64_t a, uint64_t b, uint64_t *result,
		  uint64_t *second)
{
	struct watch *w = arg;

	(void)a, (void)b;
	*second = 0;
	if (op->kind != ARCH_OP_CLOCK)
		return false;
	w->calls += op->number == ARCH_CLOCK_MONOTONIC;
	w->ticks += op->number == ARCH_CLOCK_TICKS_ORDERED;
	*result = arch_clock_ticks();
	return true;
}

/* fear K4: where the kernel changes the time while it is read, it is read again: by the system call */
static void test_changes_are_seen(void **state)
{
	struct wall_clock *clock = lift(&vdso);
	uint64_t values[ARCH_PROGRAM_VALUES + 1];
	unsigned by_ticks = 0;

	(void)state;
	for (unsigned n = 0; n < TRIES; n++) {
		struct watch still = {0}, changed = {.from = 2};
		const struct arch_machine a = {.arg = &still, .load = load, .other = other};
		const struct arch_machine b = {.arg = &changed, .load = load, .other = other};

		assert_true(arch_program_run(&clock->program, &a, values));
		by_ticks += still.ticks == 1 && !still.calls;
		assert_true(still.calls || still.times >= 2);
		assert_true(arch_program_run(&clock->program, &b, values));
		assert_int_equal(changed.calls, 1);
	}
	/* Now and then it does change, and on a machine whose clock only the kernel reads always. */
	print_message("%u of %u by ticks\n", by_ticks, TRIES);
	for (unsigned i = 0; i < clock->program.count; i++)
		if (clock->program.ops[i].kind == ARCH_OP_LOAD)
			assert_true(clock->program.ops[i].fresh);
	wall_clock_free(clock);
}

enum forged { AS_IT_IS, HYPERVISOR, NAMESPACE };

/* The first page of data as of Linux 6.13 and later; on others the copy is just a copy. */
static void forge(uint8_t *data, size_t size, enum forged how)
{
	uint32_t *words = (uint32_t *)data, *clock = (uint32_t *)(data + 4 * PAGE);

	if (size < 6 * PAGE || words[1] != 1)
		return;
	words[14] += 1000; /* seconds: not what the system call says */
	if (how == AS_IT_IS)
		return;
	if (how == HYPERVISOR) {
		words[1] = 2;
		clock[0] = 2;	       /* version */
		clock[6] = 0x80000000; /* ticks times two, times this, by 2^32 */
		data[4 * PAGE + 28] = 1;
		data[4 * PAGE + 29] = 1; /* steady */
		return;
	}
	memcpy(data + PAGE, data, PAGE);
	memset(data, 0, PAGE);
	words[0] = 1;
	words[1] = 0x7fffffff;
	for (unsigned n = 8; n < PAGE / 4; n += 2)
		words[n] = 5; /* seconds and ns, ahead of all others */
}

static void compare_with_copy(enum forged how)
{
	const size_t before = vdso.start - vdso.lo, size = vdso.hi - vdso.lo;
	struct comparing c;
	struct wall_clock_source copy = vdso;
	struct wall_clock *clock;
	uint8_t *at;

	if (!vdso.size)
		skip();
	at = mmap(NULL, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		  0);
	assert_ptr_not_equal(at, MAP_FAILED);
	memcpy(at + before, vdso.code, vdso.size);
	if (before >= PAGE)
		memcpy(at, (const void *)(uintptr_t)vdso.lo, PAGE);
	forge(at, before, how);
	copy.code = at + before;
	copy.start = (uintptr_t)copy.code;
	copy.lo = (uintptr_t)at;
	copy.hi = copy.lo + size;
	copy.entry = copy.start + (vdso.entry - vdso.start);
	clock = lift(&copy);
	c = (struct comparing){.ours = emit(clock), .theirs = (original)(uintptr_t)copy.entry};
	compare(&c);
	assert_int_equal(c.wrong, 0);
	munmap((void *)(uintptr_t)c.ours, CODE);
	munmap(at, size);
	wall_clock_free(clock);
}

static void test_copy(void **state)
{
	(void)state;
	compare_with_copy(AS_IT_IS);
}

/* fear K4: with forged data of a hypervisor's clock it says what a copy of the vDSO says */
static void test_hypervisor(void **state)
{
	(void)state;
	compare_with_copy(HYPERVISOR);
}

/* fear K4: likewise in a time namespace */
static void test_namespace(void **state)
{
	(void)state;
	compare_with_copy(NAMESPACE);
}

/* Bytes that are no vdso, and one cut off anywhere. */
static void test_damaged(void **state)
{
	uint8_t *bytes;

	(void)state;
	if (!vdso.size)
		skip();
	for (size_t size = 0; size < vdso.size; size += 7) {
		bytes = malloc(size + 1);
		assert_non_null(bytes);
		memcpy(bytes, vdso.code, size);
		wall_clock_find(bytes, size);
		if (size)
			bytes[size / 2] ^= 0xff;
		assert_true(wall_clock_find(bytes, size) <= size);
		free(bytes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_agrees),	  cmocka_unit_test(test_changes_are_seen),
		cmocka_unit_test(test_copy),	  cmocka_unit_test(test_hypervisor),
		cmocka_unit_test(test_namespace), cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
