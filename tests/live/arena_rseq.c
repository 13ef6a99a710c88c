/* SPDX-License-Identifier: MIT */
/*
 * arena_rseq.c - the rseq_cs that outlives its sequence, and threads inside.
 *
 * A thread that ran a counter keeps pointing to the sequence's descriptor
 * until the kernel looks at it, when it next returns to user mode after having
 * been preempted: so, after every stop. The first case shows that this kernel
 * kills the target if the arena has gone by then; the second that
 * arena_destroy() prevents it in the very same situation.
 */
#include <linux/rseq.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/arena.h"
#include "inject/arena_unmap.h"
#include "inject/heap.h"
#include "inject/journal.h"
#include "tests/live/inject_help.h"

enum { TRIES = 50000 };

struct scene {
	struct harness *h;
	struct target *target;
	taddr_t function, nothing, turns; /* in the target */
	struct arena *arena;
	struct journal *journal;
	struct heap *heap;
	taddr_t code, counter;
	bool clear; /* by arena_destroy(), or munmap alone */
	bool done;
	unsigned inside; /* threads in the arena's code */
};

static taddr_t line_address(struct harness *h)
{
	return strtoull(harness_line(h, HARNESS_ANSWER_MS), NULL, 16);
}

/* A function that counts. It needs to know where the threads' struct rseq is. */
static void emit_counter(struct scene *c, struct stop *s)
{
	enum { HOT = ARCH_COUNT_HOT + 64 };
	struct arch_counter spec = {
		.mode = ARCH_COUNT_PER_CPU,
		.cpu_shift = c->arena->cpu_shift,
		.cpus = c->arena->cpus,
		.cpu_table = heap_cpu_table(c->heap),
	};
	const struct stop_thread *thread = stop_thread(s, 0);
	struct arch_frame frame = {.live = arch_all_live, .red_zone = true};
	struct arch_buf hot = {.size = HOT}, cold = {.size = ARCH_COUNT_COLD};
	struct dinst_error e = {0};

	assert_int_not_equal(thread->rseq, 0);
	spec.rseq_offset = (int64_t)(thread->rseq - arch_thread_pointer(&thread->regs));
	spec.rseq_signature = thread->rseq_signature;
	assert_int_equal(heap_alloc_counter(c->heap, &c->counter, &e), 0);
	assert_int_equal(heap_alloc_code(c->heap, HOT, &hot.pc, &e), 0);
	assert_int_equal(heap_alloc_cold(c->heap, ARCH_COUNT_COLD, &cold.pc, &e), 0);
	spec.counter_address = c->counter;
	hot.bytes = heap_map(c->heap, hot.pc, HOT);
	cold.bytes = heap_map(c->heap, cold.pc, ARCH_COUNT_COLD);
	arch_count_needs(&spec, &frame);
	arch_frame_open(&hot, &frame);
	arch_emit_count(&spec, &frame, &hot, &cold);
	arch_frame_close(&hot, &frame);
	assert_int_equal(hot.status, 0);
	assert_true(hot.used < HOT);
	hot.bytes[hot.used] = 0xc3;
	c->code = hot.pc;
}

static int create(struct stop *s, void *arg, struct dinst_error *e)
{
	struct scene *c = arg;
	taddr_t text = c->nothing / 4096 * 4096;

	if (arena_create(s, text, text + 4096, 4096, &c->arena, e))
		return e->code;
	if (journal_create(c->arena, "rseq", &c->journal, e) || heap_create(c->arena, &c->heap, e))
		return e->code;
	emit_counter(c, s);
	return stop_write(s, c->function, &c->code, sizeof(c->code), e);
}

static void begin(struct scene *c, struct harness *h)
{
	memset(c, 0, sizeof(*c));
	c->h = h;
	harness_start(h, "arena-rseq", NULL);
	c->function = line_address(h);
	c->nothing = line_address(h);
	c->turns = line_address(h);
	c->target = help_open(h->pid);
	help_stop_well(c->target, create, c);
	harness_until(heap_read_counter(c->heap, c->counter) > 0);
}

static void finish(struct scene *c)
{
	heap_destroy(c->heap);
	journal_destroy(c->journal);
	target_close(c->target);
}

/*
 * True if no thread is inside the arena and two point into it: of one the
 * kernel may have forgotten it when it makes our call of munmap.
 */
static bool two_dangle(struct scene *c, struct stop *s)
{
	taddr_t lo = c->arena->code, hi = lo + c->arena->code_size, descriptor = 0;
	unsigned found = 0;

	for (size_t i = 0; i < stop_thread_count(s); i++) {
		const struct stop_thread *t = stop_thread(s, i);
		taddr_t pc = arch_pc(&t->regs);

		if (pc >= lo && pc < hi)
			return false;
		descriptor = 0;
		target_read_some(c->target, t->rseq + offsetof(struct rseq, rseq_cs), &descriptor,
				 8);
		found += descriptor >= lo && descriptor < hi;
	}
	return found >= 2;
}

/* In the right moment only: takes the call out and the arena away. */
static int take_away(struct stop *s, void *arg, struct dinst_error *e)
{
	struct scene *c = arg;

	if (!two_dangle(c, s))
		return 0;
	c->done = true;
	if (stop_write(s, c->function, &c->nothing, sizeof(c->nothing), e))
		return e->code;
	if (c->clear)
		return arena_destroy(s, c->arena, e);
	return arena_munmap(s, c->arena->code, c->arena->code_size, c->arena->data,
			    c->arena->data_size, e);
}

static void wait_for_the_moment(struct scene *c)
{
	for (int i = 0; i < TRIES && !c->done; i++) {
		help_stop_well(c->target, take_away, c);
		usleep(500);
	}
	assert_true(c->done);
}

/*
 * fear B6: what happens without the remedy: the kernel kills a thread whose rseq_cs leads nowhere
 */
static void kills_if_it_dangles(void **state)
{
	struct scene c;
	int status;

	begin(&c, *state);
	wait_for_the_moment(&c);
	status = harness_wait(c.h, HARNESS_ANSWER_MS);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSEGV);
	arena_release(c.arena);
	finish(&c);
}

static uint64_t turns(const struct scene *c)
{
	struct dinst_error e = {0};
	uint64_t value = 0;

	if (target_read(c->target, c->turns, &value, sizeof(value), &e))
		fail_msg("%s", e.text);
	return value;
}

/* fear B6: with it, in the same situation, nothing happens */
static void lives_if_it_is_cleared(void **state)
{
	struct scene c;

	for (int round = 0; round < 5; round++) {
		uint64_t before;

		begin(&c, *state);
		c.clear = true;
		wait_for_the_moment(&c);
		before = turns(&c);
		harness_until(turns(&c) >= before + 10);
		finish(&c);
		harness_verify(c.h);
		harness_end(c.h, 0);
	}
}

/* ------------------------------------------------------- threads inside */

static int enter(struct stop *s, void *arg, struct dinst_error *e)
{
	/* 1: cmpl $0, 1f(%rip); je 1b; ret; 1: .long 0 */
	static const uint8_t code[] = {0x83, 0x3d, 3, 0, 0, 0, 0, 0x74, 0xf7, 0xc3, 0, 0, 0, 0};
	struct scene *c = arg;

	if (heap_alloc_code(c->heap, sizeof(code), &c->code, e))
		return e->code;
	memcpy(heap_map(c->heap, c->code, sizeof(code)), code, sizeof(code));
	return stop_write(s, c->function, &c->code, sizeof(c->code), e);
}

static int leave(struct stop *s, void *arg, struct dinst_error *e)
{
	struct scene *c = arg;

	return stop_write(s, c->function, &c->nothing, sizeof(c->nothing), e);
}

static int destroy(struct stop *s, void *arg, struct dinst_error *e)
{
	return arena_destroy(s, ((struct scene *)arg)->arena, e);
}

static int count_inside(struct stop *s, void *arg, struct dinst_error *e)
{
	struct scene *c = arg;

	(void)e;
	c->inside = 0;
	for (size_t i = 0; i < stop_thread_count(s); i++) {
		const taddr_t pc = arch_pc(&stop_thread(s, i)->regs);

		c->inside += pc >= c->arena->code && pc < c->arena->code + c->arena->code_size;
	}
	return 0;
}

static unsigned threads_inside(struct scene *c)
{
	help_stop_well(c->target, count_inside, c);
	return c->inside;
}

/* fear B6, J1: an arena is not unmapped under a thread's feet */
static void refuses_while_a_thread_is_inside(void **state)
{
	struct dinst_error e = {0};
	struct scene c;

	begin(&c, *state);
	help_stop_well(c.target, enter, &c);
	harness_until(threads_inside(&c) == 3);
	help_stop_well(c.target, leave, &c);
	assert_int_equal(help_stop(c.target, destroy, &c, &e), DINST_BUSY);
	assert_non_null(strstr(e.text, "inside"));
	/* It is still valid: our store lets the thread out. */
	*(volatile uint8_t *)heap_map(c.heap, c.code + 10, 1) = 1;
	harness_until(threads_inside(&c) == 0);
	help_stop_well(c.target, destroy, &c);
	finish(&c);
	harness_verify(c.h);
	harness_end(c.h, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(kills_if_it_dangles),
		CASE(lives_if_it_is_cleared),
		CASE(refuses_while_a_thread_is_inside),
	};

	return cmocka_run_group_tests_name("live/arena_rseq", tests, NULL, NULL);
}
