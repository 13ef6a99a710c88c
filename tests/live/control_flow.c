/* SPDX-License-Identifier: MIT */
/*
 * control_flow.c - processors that enforce control flow: indirect branch
 * tracking and shadow stacks. The kernels at hand give neither to programs, so
 * the target steps itself and sees to the rules in software; that threads have
 * shadow stacks is said by the test (tests/unit/inject_shadow.c: how it is told).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/body.h"
#include "tests/live/harness_session.h"
#include "tests/live/harness_thread.h"

struct verdict {
	unsigned long steps, shadow, branch;
};

static struct session *begin(struct harness *h)
{
	harness_start(h, "control-flow", NULL);
	return session_begin(h);
}

static struct verdict step(struct harness *h)
{
	struct verdict v = {0};

	harness_send(h, "step\n");
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS),
				"steps %lu shadow %lu branch %lu", &v.steps, &v.shadow, &v.branch),
			 3);
	return v;
}

static void work(struct harness *h)
{
	harness_send(h, "work\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
}

static void insert_everything(struct session *s, int most)
{
	for (int kind = POINT_ENTRY; kind <= most; kind++)
		session_insert_kind(s, "/Code/control-flow/*", (enum point_kind)kind);
}

static const struct instance *insert_state(struct session *s, const char *focus)
{
	session_insert_metric(s, "latency", focus, NULL);
	session_insert_metric(s, "wall_inclusive", focus, NULL);
	return session_insert_metric(s, "active", focus, NULL);
}

/*
 * Per-thread state as well: clocks, routines, and those that undo what a jump leaves behind. First
 * without the machine itself, which takes the place of what is entered while it is stepped.
 */
static void check_state(struct harness *h, struct session *s)
{
	const struct instance *active = insert_state(s, "/Code/control-flow/jump*");
	struct verdict v = step(h);

	/* Two were left by a jump, each was undone. */
	assert_int_equal(session_value(s, active->id), 0);
	assert_int_equal(v.branch, 0);
	assert_int_equal(v.shadow, 0);
	insert_state(s, "/Code/control-flow/*");
}

/* The functions of the program that begin with a landing pad are as the file has them. */
static void check_landing_pads(struct session *s)
{
	static const uint8_t pad[] = {0xf3, 0x0f, 0x1e, 0xfa};
	const struct image_function *functions;
	unsigned pads = 0;

	for (size_t i = 0; i < module_count(s->modules); i++) {
		struct module *m = module_get(s->modules, i);
		size_t count = m->main ? image_functions(m->image, &functions) : 0;

		for (size_t n = 0; n < count; n++) {
			uint8_t now[sizeof(pad)];
			size_t size = 0;
			const uint8_t *code = image_code(m->image, functions[n].address, &size);

			if (!code || size < sizeof(pad) || memcmp(code, pad, sizeof(pad)))
				continue;
			thread_peek(s->pid, functions[n].address + m->bias, now, sizeof(now));
			assert_memory_equal(now, pad, sizeof(pad));
			pads++;
		}
	}
	assert_true(pads > 15);
}

/*
 * fear C8: a program built with -fcf-protection=full, all its points instrumented: the first four
 * bytes of its functions stay, and every indirect branch, ours too, leads to a landing pad
 */
static void test_landing_pads(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	struct verdict before = step(h), with;

	assert_int_equal(before.branch, 0);
	check_state(h, s);
	insert_everything(s, POINT_STORE);
	check_landing_pads(s);
	with = step(h);
	assert_true(with.steps > 2 * before.steps);
	assert_int_equal(with.branch, 0);
	session_end(s);
	s = session_begin(h);
	check_landing_pads(s);
	session_end(s);
	work(h);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear C9: what happens without the remedy: calls that were moved are none for a shadow stack */
static void raw_moved_calls(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);

	assert_int_equal(step(h).shadow, 0);
	insert_everything(s, POINT_STORE);
	assert_true(step(h).shadow > 0);
	session_end(s);
	assert_int_equal(step(h).shadow, 0);
	harness_verify(h);
	harness_end(h, 0);
}

static size_t refused_so(const struct session *s, unsigned id)
{
	const struct instance *i = session_instance(s, id);
	size_t count = 0;

	for (size_t n = 0; n < i->refused_count; n++)
		count += i->refused[n].refusal == REFUSAL_SHADOW_STACK;
	return count;
}

/*
 * fear C9: with shadow stacks no call is moved: every return agrees, all kinds of points together;
 * what would need it is refused and says so
 */
static void test_shadow_stacks(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	struct dinst_error e = {0};
	unsigned id = 0, calls;
	struct verdict with;

	s->shadow_stacks = true;
	assert_int_equal(session_try_insert_kind(s, "call_first", POINT_ENTRY, &id, &e),
			 DINST_REFUSED);
	assert_non_null(strstr(e.text, "shadow-stack"));
	check_state(h, s);
	insert_everything(s, POINT_STORE);
	with = step(h);
	assert_int_equal(with.shadow, 0);
	assert_int_equal(with.branch, 0);
	calls = session_insert_kind(s, "/Code/control-flow/*", POINT_CALL);
	assert_true(refused_so(s, calls) > 0);
	/* Calls that can be retargeted or stay where they are count; the compiler has left one. */
	id = session_insert_kind(s, "recursive", POINT_CALL);
	assert_int_equal(refused_so(s, id), 0);
	work(h);
	assert_int_equal(session_value(s, id), 1);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear C9: the torture target with everything inserted: not one site moves a call */
static void test_no_site_moves_a_call(void **state)
{
	struct harness *h = *state;
	struct session *s;
	size_t sites = 0;

	harness_start(h, "torture", "1", NULL);
	s = session_begin(h);
	s->shadow_stacks = true;
	for (int kind = POINT_ENTRY; kind <= POINT_STORE; kind++)
		session_insert_kind(s, "/Code/torture/t_*", (enum point_kind)kind);
	for (size_t b = 0; b < s->site_buckets; b++)
		for (struct site *site = s->site_hash[b]; site; site = site->next_hash) {
			assert_false(code_moves_call(site));
			sites++;
		}
	print_message("%zu sites\n", sites);
	assert_true(sites > 500);
	harness_send(h, "run 3\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_landing_pads),
		CASE(raw_moved_calls),
		CASE(test_shadow_stacks),
		CASE(test_no_site_moves_a_call),
	};

	return cmocka_run_group_tests_name("live/control_flow", tests, NULL, NULL);
}
