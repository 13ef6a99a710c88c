/* SPDX-License-Identifier: MIT */
/*
 * report_tree.c - call trees from events: counts and times are exact, whatever is missing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/report_calls.h"

static void expect_tree(struct calls *c, const char *expected)
{
	char *text;

	call_tree_end(c->tree, c->ns);
	text = tree_text(c->tree);
	assert_string_equal(text, expected);
	free(text);
	call_tree_free(c->tree);
}

static void counts_and_times(void **state)
{
	struct calls c;

	(void)state;
	calls_begin(&c, true);
	for (int i = 0; i < 3; i++) {
		enter(&c, "f", 100);
		enter(&c, "g", 5);
		enter(&c, "h", 2);
		leave(&c, "h", 10);
		leave(&c, "g", 3);
		enter(&c, "h", 1);
		leave(&c, "h", 30);
		leave(&c, "f", 4);
	}
	expect_tree(&c, "f 3 165 30 (h 3 90 90 g 3 45 15 (h 3 30 30))");
}

static void recursion_is_a_path(void **state)
{
	struct calls c;

	(void)state;
	calls_begin(&c, true);
	enter(&c, "f", 0);
	enter(&c, "f", 1);
	enter(&c, "f", 1);
	leave(&c, "f", 10);
	leave(&c, "f", 1);
	leave(&c, "f", 1);
	expect_tree(&c, "f 1 14 2 (f 1 12 2 (f 1 10 10))");
}

/* Threads share the tree, however their events are interleaved. */
static bool is_first(uint32_t pid, uint32_t tid)
{
	return pid == 77 && tid == 1;
}

/*
 * fear E3: a thread that ended inside of a function (pthread_exit, a child's exit) is taken to be in it for as
 * long as is looked.
 */
static void ended_threads_do_not_run_on(void **state)
{
	struct call_tree_facts facts;
	struct calls a, b;
	char *text;

	(void)state;
	calls_begin(&a, true);
	b = a;
	b.tid = 2;
	b.stack -= 1 << 30;
	enter(&a, "f", 0);
	enter(&b, "f", 0);
	enter(&b, "g", 10);
	leave(&b, "g", 10);
	a.ns += 1000;
	call_tree_gone(a.tree, is_first);
	call_tree_facts(a.tree, &facts);
	assert_int_equal(facts.left, 1);
	call_tree_end(a.tree, a.ns);
	text = tree_text(a.tree);
	assert_string_equal(text, "f 2 1020 1010 (g 1 10 10)");
	assert_int_equal(call_tree_root(a.tree)->open, 1);
	free(text);
	call_tree_free(a.tree);
}

static void threads_are_merged(void **state)
{
	char *first = NULL;

	(void)state;
	for (int order = 0; order < 2; order++) {
		struct calls a, b;
		char *text;

		calls_begin(&a, true);
		b = a;
		b.tid = 2;
		b.stack -= 1 << 30;
		enter(&a, "f", 5);
		enter(&a, "g", 5);
		if (order) {
			enter(&b, "f", 7);
			enter(&b, "x", 7);
		}
		leave(&a, "g", 5);
		if (!order) {
			enter(&b, "f", 7);
			enter(&b, "x", 7);
		}
		leave(&b, "x", 7);
		leave(&a, "f", 5);
		leave(&b, "f", 7);
		call_tree_end(a.tree, a.ns);
		text = tree_text(a.tree);
		assert_string_equal(text, "f 2 36 24 (x 1 7 7 g 1 5 5)");
		if (first)
			assert_string_equal(text, first);
		free(first);
		first = text;
		call_tree_free(a.tree);
	}
	free(first);
}

/* g and h are left by a jump back into f, which then calls k. */
static void jump_out(struct calls *c)
{
	enter(c, "f", 0);
	enter(c, "g", 10);
	enter(c, "h", 10);
	c->stack += 128;
	enter(c, "k", 10);
	leave(c, "k", 10);
	leave(c, "f", 10);
}

static void a_jump_out_is_seen_by_the_stack(void **state)
{
	struct call_tree_facts facts;
	struct calls c;

	(void)state;
	calls_begin(&c, true);
	jump_out(&c);
	call_tree_facts(c.tree, &facts);
	assert_int_equal(facts.left, 2);
	expect_tree(&c, "f 1 50 20 (g 1 20 10 (h 1 10 10) k 1 10 10)");
}

/*
 * An exception takes f and g away altogether, and the thread is idle before f is called again: that time is
 * nobody's. The same where what is called next is none of f's.
 */
static void who_is_left_does_not_wait_for_the_next(void **state)
{
	struct call_tree_facts facts;
	struct calls c;

	(void)state;
	for (int others = 0; others < 2; others++) {
		calls_begin(&c, true);
		if (!others)
			assert_int_equal(call_tree_only(c.tree, "f", NULL), 0);
		for (int i = 0; i < 3; i++) {
			enter(&c, "f", 1000000);
			enter(&c, "g", 10);
			enter(&c, "h", 10);
			leave(&c, "h", 10);
			c.stack += 128;
			if (others) {
				enter(&c, "z", 500000);
				leave(&c, "z", 1);
			}
		}
		c.ns += 1000000;
		enter(&c, others ? "z" : "f", 0);
		leave(&c, others ? "z" : "f", 1);
		call_tree_facts(c.tree, &facts);
		assert_int_equal(facts.left, 6);
		expect_tree(&c, others ? "f 3 90 30 (g 3 60 30 (h 3 30 30)) z 4 4 4"
				       : "f 4 91 31 (g 3 60 30 (h 3 30 30))");
	}
}

/* Without it, when f returns: k is taken for h's, and nothing is left for the next. */
static void a_jump_out_ends_with_the_return(void **state)
{
	struct calls c;

	(void)state;
	calls_begin(&c, false);
	jump_out(&c);
	enter(&c, "f", 0);
	leave(&c, "f", 10);
	expect_tree(&c, "f 2 60 20 (g 1 40 10 (h 1 30 20 (k 1 10 10)))");
}

static void who_was_inside_already(void **state)
{
	struct call_tree_facts facts;
	struct calls c;

	(void)state;
	for (int with_stack = 0; with_stack < 2; with_stack++) {
		calls_begin(&c, with_stack);
		leave(&c, "h", 10);
		enter(&c, "h", 10);
		leave(&c, "h", 3);
		leave(&c, "g", 10);
		leave(&c, "f", 10);
		enter(&c, "f", 10);
		enter(&c, "g", 1);
		leave(&c, "g", 2);
		leave(&c, "f", 3);
		call_tree_facts(c.tree, &facts);
		assert_int_equal(facts.unmatched, 3);
		expect_tree(&c, "f 1 6 4 (g 1 2 2) h 1 3 3");
	}
}

static void who_is_inside_still(void **state)
{
	struct calls c;
	const struct call_node *f;

	(void)state;
	calls_begin(&c, true);
	enter(&c, "f", 0);
	enter(&c, "g", 10);
	c.ns += 100;
	call_tree_end(c.tree, c.ns);
	f = call_tree_root(c.tree)->children;
	assert_int_equal(f->open, 1);
	assert_int_equal(f->count, 1);
	assert_int_equal(f->total_ns, 110);
	assert_int_equal(f->children->open, 1);
	assert_int_equal(f->children->total_ns, 100);
	call_tree_free(c.tree);
}

static void begins_at_one_function(void **state)
{
	struct calls c;

	(void)state;
	calls_begin(&c, true);
	assert_int_equal(call_tree_only(c.tree, "f", NULL), 0);
	enter(&c, "main", 0);
	enter(&c, "g", 1);
	leave(&c, "g", 1);
	enter(&c, "f", 1);
	enter(&c, "g", 1);
	leave(&c, "g", 7);
	leave(&c, "f", 1);
	leave(&c, "main", 1);
	expect_tree(&c, "f 1 9 2 (g 1 7 7)");
}

/* The return of f was dropped; its next entry is not one from within it. */
static void a_dropped_return(void **state)
{
	struct calls c;

	(void)state;
	calls_begin(&c, true);
	enter(&c, "f", 0);
	c.ns += 10;
	c.stack += 64;
	enter(&c, "f", 5);
	leave(&c, "f", 10);
	/* nothing is known of the first one after it was entered */
	expect_tree(&c, "f 2 10 10");
	calls_begin(&c, false);
	enter(&c, "f", 0);
	leave(&c, "f", 10);
	enter(&c, "f", 0);
	call_tree_lost(c.tree);
	enter(&c, "f", 5);
	leave(&c, "f", 10);
	expect_tree(&c, "f 3 20 20");
}

/* Events of one activation of f were lost: it is left out, the ones before and after it count. */
static void what_is_doubtful_is_left_out(void **state)
{
	struct call_tree_facts facts;
	struct calls c;

	(void)state;
	calls_begin(&c, true);
	enter(&c, "f", 10);
	leave(&c, "f", 10);
	call_tree_doubt(c.tree, c.ns + 1, c.ns + 100);
	enter(&c, "f", 10);
	enter(&c, "g", 1);
	c.stack += 64;
	leave(&c, "f", 50);
	enter(&c, "f", 10);
	enter(&c, "g", 1);
	leave(&c, "g", 1);
	leave(&c, "f", 1);
	/* after that, what is left without a return was left by a jump */
	enter(&c, "f", 100);
	enter(&c, "g", 1);
	c.stack += 64;
	leave(&c, "f", 5);
	call_tree_facts(c.tree, &facts);
	assert_int_equal(facts.doubtful, 1);
	expect_tree(&c, "f 3 19 13 (g 2 6 6)");
}

/*
 * The field says that this is another activation: the return of the first one was lost. Where nothing was lost it has
 * been left by an exception, and it counts.
 */
static void an_activation_that_goes_on_in_another(void **state)
{
	struct call_tree_facts facts;
	struct calls c;

	(void)state;
	for (int lost = 0; lost < 2; lost++) {
		calls_begin(&c, true);
		c.run = 1;
		assert_int_equal(call_tree_run(c.tree, "run"), 0);
		assert_int_equal(call_tree_only(c.tree, "f", NULL), 0);
		enter(&c, "f", 1);
		if (lost)
			call_tree_doubt(c.tree, c.ns + 1, c.ns + 1000);
		c.run = 2;
		enter(&c, "g", 1000);
		leave(&c, "g", 1);
		leave(&c, "f", 1);
		c.run = 3;
		enter(&c, "f", 1);
		enter(&c, "h", 2);
		leave(&c, "h", 3);
		c.stack += 64;
		c.run = 4;
		enter(&c, "f", 5000);
		leave(&c, "f", 1);
		call_tree_facts(c.tree, &facts);
		assert_int_equal(facts.doubtful, lost);
		assert_int_equal(facts.left, 2);
		expect_tree(&c, lost ? "f 2 6 3 (h 1 3 3)" : "f 3 6 3 (h 1 3 3)");
	}
}

/* Deeper than what is kept: counted, and back up nothing is mixed up. */
static void very_deep(void **state)
{
	const int deep = CALL_TREE_DEPTH + 500;
	struct call_tree_facts facts;
	const struct call_node *n;
	unsigned depth = 0, deepest = 0;
	struct calls c;

	(void)state;
	for (int with_stack = 0; with_stack < 2; with_stack++) {
		calls_begin(&c, with_stack);
		for (int round = 0; round < 2; round++) {
			for (int i = 0; i < deep; i++)
				enter(&c, "f", 1);
			for (int i = 0; i < deep; i++)
				leave(&c, "f", 1);
		}
		call_tree_facts(c.tree, &facts);
		assert_int_equal(facts.too_deep, 1000);
		assert_int_equal(facts.unmatched, 0);
		assert_int_equal(facts.left, 0);
		call_tree_end(c.tree, c.ns);
		n = call_tree_root(c.tree);
		assert_int_equal(n->count, 2);
		assert_int_equal(n->total_ns, 2 * (2 * deep - 1));
		for (; n; n = call_node_next(n, &depth))
			deepest = depth > deepest ? depth : deepest;
		assert_int_equal(deepest, CALL_TREE_DEPTH);
		call_tree_free(c.tree);
		depth = 0;
	}
}

/* A handler on a stack of its own is called by whom it interrupts. */
static void a_stack_of_its_own(void **state)
{
	struct calls c;
	uint64_t before;

	(void)state;
	calls_begin(&c, true);
	enter(&c, "f", 0);
	enter(&c, "g", 1);
	before = c.stack;
	c.stack = 0x555500000000;
	enter(&c, "handler", 1);
	leave(&c, "handler", 5);
	c.stack = before;
	leave(&c, "g", 1);
	leave(&c, "f", 1);
	expect_tree(&c, "f 1 9 2 (g 1 7 2 (handler 1 5 5))");
}

struct seen {
	char text[400];
};

static void see(void *arg, const struct call_span *span)
{
	struct seen *s = arg;
	size_t used = strlen(s->text);

	snprintf(s->text + used, sizeof(s->text) - used, "%s@%llu+%llu ", span->node->function,
		 (unsigned long long)span->begun_ns, (unsigned long long)span->ns);
	assert_int_equal(span->tid, 1);
	assert_int_equal(span->pid, 77);
}

static void each_activation_is_told(void **state)
{
	struct seen seen = {""};
	struct calls c;

	(void)state;
	calls_begin(&c, true);
	call_tree_watch(c.tree, see, &seen);
	enter(&c, "f", 0);
	enter(&c, "g", 1);
	enter(&c, "h", 1);
	c.stack += 64;
	leave(&c, "g", 5);
	leave(&c, "f", 1);
	assert_string_equal(seen.text, "h@1002+5 g@1001+6 f@1000+8 ");
	call_tree_free(c.tree);
}

/* Anything at all: no crash, and no time is counted twice. */
static void random_events(void **state)
{
	static const char *const names[] = {"a", "b", "c", "d", "e"};
	struct calls c;

	(void)state;
	srandom(1);
	for (int round = 0; round < 200; round++) {
		uint64_t self = 0;

		calls_begin(&c, round % 2);
		for (int i = 0; i < 2000; i++) {
			const char *name = names[random() % 5];

			c.tid = 1 + random() % 3;
			c.stack = 0x7ffc00000000 - (uint64_t)(random() % 50) * 64;
			c.ns += 1 + random() % 3;
			assert_int_equal(calls_event(&c, random() % 2 ? EVENT_ENTRY : EVENT_RETURN,
						     name, "prog"),
					 0);
			if (random() % 500 == 0)
				call_tree_lost(c.tree);
		}
		call_tree_end(c.tree, c.ns);
		for (const struct call_node *n = call_tree_root(c.tree); n;
		     n = call_node_next(n, NULL)) {
			uint64_t below = 0;

			for (const struct call_node *k = n->children; k; k = k->next)
				below += k->total_ns;
			assert_int_equal(n->total_ns, n->self_ns + below);
			self += n->self_ns;
		}
		assert_true(self <= 3 * (c.ns - 1000));
		call_tree_free(c.tree);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_and_times),
		cmocka_unit_test(recursion_is_a_path),
		cmocka_unit_test(threads_are_merged),
		cmocka_unit_test(ended_threads_do_not_run_on),
		cmocka_unit_test(a_jump_out_is_seen_by_the_stack),
		cmocka_unit_test(who_is_left_does_not_wait_for_the_next),
		cmocka_unit_test(a_jump_out_ends_with_the_return),
		cmocka_unit_test(who_was_inside_already),
		cmocka_unit_test(who_is_inside_still),
		cmocka_unit_test(begins_at_one_function),
		cmocka_unit_test(a_dropped_return),
		cmocka_unit_test(what_is_doubtful_is_left_out),
		cmocka_unit_test(an_activation_that_goes_on_in_another),
		cmocka_unit_test(very_deep),
		cmocka_unit_test(a_stack_of_its_own),
		cmocka_unit_test(each_activation_is_told),
		cmocka_unit_test(random_events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
