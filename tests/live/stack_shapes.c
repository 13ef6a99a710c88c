/* SPDX-License-Identifier: MIT */
/*
 * stack_shapes.c - scans and walks of every kind of stack, against what the
 * target's own backtrace(3) said.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "inject/arena.h"
#include "inject/heap.h"
#include "inject/stack.h"
#include "inject/stack_signals.h"
#include "tests/live/inject_help.h"

enum { FRAMES = 8192, SHOWN = 64 };

struct shown {
	pid_t tid;
	taddr_t pcs[SHOWN];
	size_t count;
};

struct scene {
	struct harness *h;
	struct target *target;
	struct snapshot *shot;
	taddr_t spin_begin, spin_end, function, nothing;
};

static int take(struct stop *s, void *arg, struct dinst_error *e)
{
	return snapshot_take(s, &((struct scene *)arg)->shot, e);
}

static void begin(struct scene *c, struct harness *h)
{
	char *at;

	memset(c, 0, sizeof(*c));
	c->h = h;
	harness_start(h, "stack-shapes", NULL);
	c->target = help_open(h->pid);
	at = (char *)(uintptr_t)help_ask(h, "addresses");
	c->spin_begin = strtoull(at, &at, 16);
	c->spin_end = strtoull(at, &at, 16);
	c->function = strtoull(at, &at, 16);
	c->nothing = strtoull(at, &at, 16);
	help_stop_well(c->target, take, c);
}

static void finish(struct scene *c)
{
	snapshot_free(c->shot);
	target_close(c->target);
	harness_verify(c->h);
	harness_end(c->h, 0);
}

static struct shown show(struct scene *c, const char *name)
{
	struct shown shown = {0};
	char question[64], *at;

	snprintf(question, sizeof(question), "show %s", name);
	at = (char *)(uintptr_t)help_ask(c->h, question);
	shown.tid = (pid_t)strtol(at, &at, 10);
	while (*at == ' ' && shown.count < SHOWN)
		shown.pcs[shown.count++] = strtoull(at, &at, 16);
	assert_true(shown.count >= 4 || !strcmp(name, "called"));
	return shown;
}

/* The walk goes through exactly the frames that the target saw, to the start of the thread. */
static void compare(struct scene *c, const char *name, size_t least)
{
	struct shown shown = show(c, name);
	static taddr_t pcs[FRAMES];
	bool complete = false;
	size_t count, at = 0;

	count = snapshot_backtrace(c->shot, shown.tid, NULL, NULL, pcs, FRAMES, &complete);
	assert_true(complete);
	assert_true(count >= least);
	while (at < count && pcs[at] != shown.pcs[0])
		at++;
	/* The thread is now in read(), called by the function that called backtrace(). */
	assert_in_range(at, 1, 4);
	for (size_t i = 0; i < shown.count; i++)
		assert_int_equal(pcs[at + i], shown.pcs[i]);
	if (shown.count < SHOWN - 1)
		assert_int_equal(at + shown.count, count);
}

/* fear C2, E6: our walk of a stack equals the target's own backtrace, through signal frames too */
static void walk_equals_backtrace(void **state)
{
	struct scene c;

	begin(&c, *state);
	compare(&c, "plain", 6);
	compare(&c, "alt", 8);
	compare(&c, "nested", 9);
	compare(&c, "deep", 5000);
	finish(&c);
}

/* ---------------------------------------------------------------- scanning */

typedef size_t (*look)(struct scene *c, struct stack_range *range);

static size_t with_scan(struct scene *c, struct stack_range *range)
{
	return snapshot_scan(c->shot, range, 1);
}

static size_t with_stacks(struct scene *c, struct stack_range *range)
{
	return snapshot_scan_stacks(c->shot, range, 1);
}

static size_t with_walk(struct scene *c, struct stack_range *range)
{
	return snapshot_walk(c->shot, NULL, NULL, range, 1);
}

static void expect(struct scene *c, look with, taddr_t lo, taddr_t hi, bool hit)
{
	struct stack_range range = {lo, hi, false};

	assert_int_equal(with(c, &range), hit);
	assert_int_equal(range.hit, hit);
}

/*
 * fear C2: the cautious scan finds each return address and each signal frame, nested ones on other
 * stacks too
 */
static void every_frame_is_found(void **state)
{
	static const char *const names[] = {"plain", "alt", "nested", "deep"};
	static const look all[] = {with_scan, with_stacks, with_walk};
	struct scene c;

	begin(&c, *state);
	for (size_t n = 0; n < 4; n++) {
		struct shown shown = show(&c, names[n]);

		for (size_t i = 0; i < shown.count; i++)
			for (size_t with = 0; with < 3; with++) {
				expect(&c, all[with], shown.pcs[i], shown.pcs[i] + 1, true);
				expect(&c, all[with], shown.pcs[i] - 3, shown.pcs[i] + 3, true);
			}
	}
	/* The interrupted loop, seen only in the signal frames of "alt" and "nested". */
	for (size_t with = 0; with < 3; with++)
		expect(&c, all[with], c.spin_begin, c.spin_end, true);
	/* An address that nobody has: the middle of an instruction. */
	for (size_t with = 0; with < 3; with++)
		expect(&c, all[with], c.spin_begin + 1, c.spin_begin + 2, false);
	/* Small numbers are on every stack, and are no program counters. */
	expect(&c, with_scan, 0, 64, true);
	expect(&c, with_walk, 0, 64, false);
	finish(&c);
}

static void many_ranges_at_once(void **state)
{
	enum { COUNT = 1000 };
	static struct stack_range ranges[COUNT];
	struct shown shown;
	struct scene c;
	size_t hits = 0, found;

	begin(&c, *state);
	shown = show(&c, "plain");
	for (size_t i = 0; i < COUNT; i++)
		ranges[i] =
			(struct stack_range){shown.pcs[1] - 500 + i, shown.pcs[1] - 499 + i, false};
	found = snapshot_walk(c.shot, NULL, NULL, ranges, COUNT);
	assert_true(ranges[500].hit);
	for (size_t i = 0; i < COUNT; i++)
		hits += ranges[i].hit;
	assert_int_equal(hits, found);
	/* The functions lie side by side: some of the frames, and not everything. */
	assert_in_range(found, 1, 20);
	assert_int_equal(snapshot_scan(c.shot, ranges, 0), 0);
	assert_int_equal(snapshot_walk(c.shot, NULL, NULL, ranges, 0), 0);
	finish(&c);
}

/* ------------------------------------------------------ our own trampolines */

struct ours {
	struct scene *c;
	struct arena *arena;
	struct heap *heap;
	taddr_t code, pc;
	pid_t tid;
};

/* push %rax; 1: cmpl $0, flag(%rip); je 1b; pop %rax; ret; flag: .long 0 */
static const uint8_t trampoline[] = {0x50, 0x83, 0x3d, 4,    0, 0, 0, 0,
				     0x74, 0xf7, 0x58, 0xc3, 0, 0, 0, 0};
enum { FLAG = 12 };

static int enter(struct stop *s, void *arg, struct dinst_error *e)
{
	struct ours *o = arg;
	taddr_t text = o->c->nothing / 4096 * 4096;

	if (arena_create(s, text, text + 4096, 4096, &o->arena, e) ||
	    heap_create(o->arena, &o->heap, e) ||
	    heap_alloc_code(o->heap, sizeof(trampoline), &o->code, e))
		return e->code;
	memcpy(heap_map(o->heap, o->code, sizeof(trampoline)), trampoline, sizeof(trampoline));
	return stop_write(s, o->c->function, &o->code, sizeof(o->code), e);
}

static int leave(struct stop *s, void *arg, struct dinst_error *e)
{
	struct ours *o = arg;

	return stop_write(s, o->c->function, &o->c->nothing, sizeof(o->c->nothing), e);
}

/* Our code stands for the first instruction of nothing(). */
static bool home(void *arg, taddr_t pc, taddr_t *original, size_t *pushed)
{
	struct ours *o = arg;

	if (pc < o->code || pc >= o->code + sizeof(trampoline))
		return false;
	*original = o->c->nothing;
	*pushed = pc == o->code || pc == o->code + 11 ? 0 : 8;
	return true;
}

/* What the thread's stack looks like: through nothing(), to the start. */
static void check_walk(struct ours *o, pid_t tid, bool in_handler)
{
	struct stack_range range = {o->code, o->code + sizeof(trampoline), false};
	struct stack_range other = {o->code + 16, o->code + 32, false};
	taddr_t pcs[SHOWN];
	bool complete = false, seen = false;
	size_t count;

	help_stop_well(o->c->target, take, o->c);
	count = snapshot_backtrace(o->c->shot, tid, home, o, pcs, SHOWN, &complete);
	assert_true(complete);
	assert_in_range(count, in_handler ? 8 : 4, 16);
	for (size_t i = 0; i < count; i++)
		seen |= pcs[i] == o->c->nothing;
	assert_true(seen);
	assert_int_equal(pcs[0] == o->c->nothing, !in_handler);
	/* Without help it is lost in there. */
	snapshot_backtrace(o->c->shot, tid, NULL, NULL, pcs, SHOWN, &complete);
	assert_false(complete);
	assert_int_equal(snapshot_walk(o->c->shot, home, o, &range, 1), 1);
	assert_int_equal(snapshot_walk(o->c->shot, home, o, &other, 1), 0);
	assert_int_equal(snapshot_scan(o->c->shot, &range, 1), 1);
	snapshot_free(o->c->shot);
	o->c->shot = NULL;
}

static int look_at(struct stop *s, void *arg, struct dinst_error *e)
{
	struct ours *o = arg;

	(void)e;
	for (size_t i = 0; i < stop_thread_count(s); i++)
		if (stop_thread(s, i)->tid == o->tid)
			o->pc = arch_pc(&stop_thread(s, i)->regs);
	return 0;
}

/* In the loop: nowhere else is it seen in our code. */
static bool is_inside(struct ours *o, pid_t tid)
{
	o->tid = tid;
	help_stop_well(o->c->target, look_at, o);
	return o->pc > o->code && o->pc < o->code + FLAG - 2;
}

static void walks_out_of_our_own_code(void **state)
{
	struct scene c;
	struct ours o = {.c = &c};
	pid_t tid;

	begin(&c, *state);
	snapshot_free(c.shot);
	c.shot = NULL;
	tid = show(&c, "called").tid;
	help_stop_well(c.target, enter, &o);
	harness_until(is_inside(&o, tid));
	check_walk(&o, tid, false);
	assert_string_equal(help_ask(c.h, "signal"), "blocked");
	check_walk(&o, tid, true);
	help_stop_well(c.target, leave, &o);
	*(volatile uint8_t *)heap_map(o.heap, o.code + FLAG, 1) = 1;
	harness_verify_what(c.h, HARNESS_TEXT | HARNESS_FDS | HARNESS_THREADS);
	heap_destroy(o.heap);
	target_close(c.target);
	/* The handler, which is told to end with the input, returns into our code. */
	harness_end(c.h, 0);
	arena_release(o.arena);
}

/* Code that the maps show, and that cannot be read. */
static void add_unreadable(struct maps *m, taddr_t lo)
{
	struct maps_entry *entries = calloc(m->count + 1, sizeof(*entries));

	assert_non_null(entries);
	assert_true(m->count && lo + 4096 <= m->entries[0].lo);
	entries[0] = (struct maps_entry){
		.lo = lo, .hi = lo + 4096, .inode = 1, .protection = PROT_EXEC, .name = ""};
	memcpy(entries + 1, m->entries, m->count * sizeof(*entries));
	free(m->entries);
	m->entries = entries;
	m->count++;
}

/* Words of struct rt_sigframe, with the return address (registers.c). */
enum { FRAME_WORDS = ARCH_SIGNAL_FRAME / 8, SP = 21, PC = 22, FLAGS = 23, SEGMENTS = 24 };

/* Frames that are found in that. */
static size_t frames_in(struct scene *c, uint64_t frame[FRAME_WORDS])
{
	struct stack_region region = {
		.lo = 0x1000, .hi = 0x1000 + ARCH_SIGNAL_FRAME, .bytes = (uint8_t *)frame};
	struct signal_search *search = malloc(sizeof(*search));
	struct dinst_error e = {0};
	size_t count;

	assert_non_null(search);
	signal_search_begin(search, c->shot);
	assert_int_equal(signal_frames_find(search, &region, &e), 0);
	count = region.signals->count;
	free(region.signals);
	free(search);
	return count;
}

/* ... where the handler returns to `code`, and interrupted spin(). */
static size_t frames_to(struct scene *c, taddr_t code)
{
	const struct maps_entry *stack = maps_named(&c->shot->maps, "[stack]");
	uint64_t frame[FRAME_WORDS] = {code};

	assert_non_null(stack);
	frame[SP] = stack->lo;
	frame[PC] = c->spin_begin;
	return frames_in(c, frame);
}

/*
 * fear C2: where code that a handler returns to cannot be read (execute only, or we have no descriptor left), what else
 * looks like a signal frame is one: the stack that it leads to is not missed
 */
static void unreadable_return(void **state)
{
	enum { NOWHERE = 0x20000 };
	struct scene c;

	if (strcmp(arch_name, "x86-64"))
		skip();
	begin(&c, *state);
	assert_int_equal(frames_to(&c, c.spin_begin), 0);
	add_unreadable(&c.shot->maps, NOWHERE);
	assert_int_equal(frames_to(&c, NOWHERE + 16), 1);
	assert_int_equal(frames_to(&c, c.spin_begin), 0);
	finish(&c);
}

/*
 * fear C2: what was code or a stack when it was interrupted is none just now: flags and segments tell that the kernel
 * saved it, and an old address of sigreturn without these is no frame
 */
static void changed_memory(void **state)
{
	enum { NOWHERE = 0x20000, USER_CS = 0x33, USUAL_FLAGS = 0x246 };
	struct scene c;

	if (strcmp(arch_name, "x86-64"))
		skip();
	begin(&c, *state);
	add_unreadable(&c.shot->maps, NOWHERE);
	for (int i = 0; i < 4; i++) {
		uint64_t frame[FRAME_WORDS] = {NOWHERE + 16};
		const struct maps_entry *stack = maps_named(&c.shot->maps, "[stack]");

		frame[SP] = i % 2 ? stack->lo : 8;
		frame[PC] = i % 2 ? 8 : c.spin_begin;
		frame[FLAGS] = USUAL_FLAGS;
		frame[SEGMENTS] = i / 2 ? USER_CS : 0;
		assert_int_equal(frames_in(&c, frame), i / 2);
	}
	finish(&c);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(walk_equals_backtrace), CASE(every_frame_is_found),
		CASE(many_ranges_at_once),   CASE(walks_out_of_our_own_code),
		CASE(unreadable_return),     CASE(changed_memory),
	};

	return cmocka_run_group_tests_name("live/stack_shapes", tests, NULL, NULL);
}
