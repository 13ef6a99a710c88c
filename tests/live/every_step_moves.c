/* SPDX-License-Identifier: MIT */
/*
 * every_step_moves.c - code of a site moves together with others while a thread stands before one
 * instruction after the other of it: of a head, of a body behind a head, of a base that the thread was led to
 * before something came. The thread goes on where it stands, through what is not freed before it has
 * left; its work comes out right, all is counted, and then the old piece is given back.
 *
 * What has to move is made to: the pages around it are filled and emptied but for a few pieces, so that its
 * own are the emptiest. Environment: SWEEP_STEP, instructions between two tries.
 */
#include "mutator/removal.h"
#include "tests/live/every_step_log.h"
#include "tests/live/every_step_workers.h"

enum {
	STEPS_MOST = 6000,
	TRIES_LEAST = 2,
	SLABS = 16, /* as many as are filled: most of the heap */
	SLAB = 4 * 4096,
	PIECES_MOST = SLABS * SLAB / 32,
	KEPT_IN = 4, /* one in so many stays */
	FLUSHES = 4,
};

static struct scene playing; /* where teardown() finds it */
static taddr_t pieces[PIECES_MOST];
static size_t piece_count;

static unsigned insert(struct scene *c, const char *metric, const char *function)
{
	char focus[64];

	snprintf(focus, sizeof(focus), "/Code/step-state/%s", function);
	return session_insert_metric(c->s, metric, focus, NULL)->id;
}

static void begin(struct scene *c, struct harness *h, bool private)
{
	pid_t tids[WORKERS];

	*c = (struct scene){.h = h};
	harness_start(h, "step-state", NULL);
	assert_int_equal(harness_numbers(say(c, "where"), tids, WORKERS), WORKERS);
	for (unsigned i = 0; i < WORKERS; i++)
		c->p[i] = (struct stepper){.pid = h->pid, .tid = tids[i]};
	c->s = session_begin(h);
	c->s->private_arenas = private;
}

static void end(struct scene *c)
{
	session_end(c->s);
	c->s = NULL;
	harness_verify(c->h);
	harness_end(c->h, 0);
}

static void do_round(struct scene *c)
{
	say(c, "start 0 1");
	assert_string_equal(say(c, "wait"), "done");
}

/* ------------------------------------------------------------ what moves */

enum what { HEAD, BODY, BASE };

static taddr_t place_of(const struct site *site, enum what what, size_t *size)
{
	const struct body *b = what == HEAD ? site->head : site->body;

	*size = what == BASE ? site->base_size : b->code_size;
	return what == BASE ? site->base : b->code;
}

static bool is_near(taddr_t a, taddr_t b)
{
	return a - b < SLAB || b - a < SLAB;
}

/* The pages of what lies at `at` become the emptiest of those that have pieces of its size. */
static void make_lonely(struct heap *heap, enum what what, taddr_t at, size_t size)
{
	int (*const alloc)(struct heap *, size_t, taddr_t *, struct dinst_error *) =
		what == BASE ? heap_alloc_cold : heap_alloc_code;
	const size_t wanted = SLABS * SLAB / (size < 32 ? 32 : size);
	struct dinst_error e = {0};
	size_t count = 0;

	while (count < wanted && alloc(heap, size, &pieces[count], &e) >= 0)
		count++;
	piece_count = 0;
	for (size_t i = 0; i < count; i++)
		if (i % KEPT_IN || is_near(pieces[i], at))
			heap_free_code(heap, pieces[i]);
		else
			pieces[piece_count++] = pieces[i];
}

static void move(struct scene *c, struct site *site, enum what what)
{
	struct heap *heap = site->place->heap;
	struct flush_result result;
	struct dinst_error e = {0};
	size_t size;
	const taddr_t at = place_of(site, what, &size);

	make_lonely(heap, what, at, size);
	/* A site that was on the queue comes from there first. */
	for (unsigned i = 0; i < FLUSHES && place_of(site, what, &size) == at; i++)
		if (removal_flush(c->s, &result, &e) < 0)
			fail_msg("flush: %s", e.text);
	assert_true(place_of(site, what, &size) != at);
	while (piece_count)
		heap_free_code(heap, pieces[--piece_count]);
}

/* ------------------------------------------------------------- one sweep */

/* True if the thread stands before the nth instruction from where it has come in; false: there are not so many. */
static bool stand(struct scene *c, taddr_t lo, size_t size, unsigned n)
{
	struct stepper *p = &c->p[0];

	step_watch(p, lo);
	step_go(p, PTRACE_CONT);
	step_watch(p, 0);
	assert_true(p->regs.rip == lo);
	while (n-- && p->regs.rip - lo < size)
		step_checked(c, p);
	return p->regs.rip - lo < size;
}

/* Until it has left, and some more: whatever is not there any more, it would come to. */
static void go_on(struct scene *c, taddr_t lo, size_t size)
{
	enum { BEHIND = 40 };
	unsigned behind = 0;

	hold_all(c);
	if (place_at(c->s, c->p[0].regs.rip) &&
	    heap_is_poison(place_at(c->s, c->p[0].regs.rip)->heap, c->p[0].regs.rip))
		fail_msg("where the thread stands, %llx, is freed", c->p[0].regs.rip);
	for (unsigned i = 0; i < STEPS_MOST && behind < BEHIND; i++) {
		step_checked(c, &c->p[0]);
		behind += c->p[0].regs.rip - lo >= size;
	}
	release_all(c);
	assert_string_equal(say(c, "wait"), "done");
}

/* `id`: what is counted there; of a base: what was, and comes again. */
struct sweep {
	const char *metric, *function;
	enum what what;
	struct site *site;
	unsigned id;
	uint64_t round; /* what it is worth */
};

static bool try_at(struct scene *c, struct sweep *w, unsigned n)
{
	size_t size;
	const taddr_t lo = place_of(w->site, w->what, &size);
	const uint64_t before = session_value(c->s, w->id);
	bool stands;

	if (w->what == BASE)
		session_remove(c->s, w->id);
	hold_all(c);
	say(c, "start 0 1");
	stands = stand(c, lo, size, n);
	freeze_all(c);
	if (w->what == BASE)
		w->id = insert(c, w->metric, w->function);
	if (stands)
		move(c, w->site, w->what);
	go_on(c, lo, size);
	if (w->what != BASE)
		assert_int_equal(session_value(c->s, w->id) - before, w->round);
	session_flush_all(c->s);
	assert_true(!stands || heap_is_poison(w->site->place->heap, lo));
	return stands;
}

/* One after the other: all sites that the last instance has been linked to. */
static void sweep(struct scene *c, const char *metric, const char *function, enum what what)
{
	/* A base has a few instructions only. */
	const unsigned many = what == BASE ? 1 : getenv("DINST_SHORT") ? 7 : 3;
	const unsigned by = (unsigned)harness_setting("SWEEP_STEP", many);
	struct sweep w = {.metric = metric, .function = function, .what = what};
	const unsigned other = what == BODY ? insert(c, "calls", function) : 0;
	uint64_t before;
	unsigned tried = 0;

	w.id = insert(c, metric, function);
	note_places(c);
	before = session_value(c->s, w.id);
	do_round(c);
	w.round = session_value(c->s, w.id) - before;
	w.site = session_instance(c->s, w.id)->links->site;
	for (unsigned n = 0; try_at(c, &w, n); n += by)
		tried++;
	print_message("%s of %s: at %u instructions\n", metric, function, tried);
	assert_in_range(tried, TRIES_LEAST, STEPS_MOST);
	before = session_value(c->s, w.id);
	do_round(c);
	assert_int_equal(session_value(c->s, w.id) - before, w.round);
	session_remove(c->s, w.id);
	if (other)
		session_remove(c->s, other);
	session_flush_all(c->s);
}

static void sweep_all(struct harness *h, enum what what)
{
	/* A private arena is told of what was switched off in the next stop: nobody comes to a base before. */
	for (unsigned private = 0; private < (what == BASE ? 1 : 2); private ++) {
		begin(&playing, h, private);
		sweep(&playing, "latency", "st_leaf", what);
		sweep(&playing, "latency", "own_wide", what);
		end(&playing);
	}
}

/* fear J7, C1: a trampoline moves while a thread stands before any instruction of it */
static void test_heads(void **state)
{
	sweep_all(*state, HEAD);
}

/* fear J7, C1: the same with what a trampoline's switch leads to */
static void test_bodies(void **state)
{
	sweep_all(*state, BODY);
}

/* fear J7, C1: the same with the plain copy that a thread was led to while nothing was inserted */
static void test_bases(void **state)
{
	sweep_all(*state, BASE);
}

static int teardown(void **state)
{
	return teardown_workers(&playing, state);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, step_setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_heads),
		CASE(test_bodies),
		CASE(test_bases),
	};

	return cmocka_run_group_tests_name("live/every_step_moves", tests, NULL, NULL);
}
