/* SPDX-License-Identifier: MIT */
/*
 * each.c - many instances that meet at the same points, in one request: what is
 * written there is written when all are known, also where a point of each has to
 * be left out (preadv2 leaves by a jump, so that there is no result yet), and
 * once when they go. Both took minutes where each of hundreds was written anew.
 */
#include <stdlib.h>

#include "mutator/body.h"
#include "tests/live/harness_session.h"

/* The Makefile wraps body_write(). */
int __real_body_write(struct session *s, struct site *site, bool is_head, struct body **out,
		      struct dinst_error *e);
int __wrap_body_write(struct session *s, struct site *site, bool is_head, struct body **out,
		      struct dinst_error *e);

static size_t written;

int __wrap_body_write(struct session *s, struct site *site, bool is_head, struct body **out,
		      struct dinst_error *e)
{
	written++;
	return __real_body_write(s, site, is_head, out, e);
}

static size_t insert(struct session *s, const char *focus, bool *left_out)
{
	const struct insert_options options = {.each = true};
	struct insert_result result = {0};
	struct dinst_error e = {0};
	size_t count;

	if (request_insert(s, "io_bytes", &focus, 1, &options, &result, &e) < 0)
		fail_msg("%s: %s", focus, e.text);
	count = result.count;
	for (size_t n = 0; n < count; n++)
		*left_out |= result.instances[n]->left_out_count != 0;
	free(result.instances);
	return count;
}

static void remove_all(struct session *s)
{
	struct instance *list[200] = {NULL};
	struct flush_result flush;
	struct dinst_error e = {0};
	size_t count = 0;

	for (struct instance *i = s->instances; i; i = i->next) {
		assert_true(count < sizeof(list) / sizeof(list[0]));
		list[count++] = i;
	}
	assert_int_equal(removal_switch_off_all(s, list, count, &e), 0);
	removal_settle(s, &flush);
	assert_null(s->instances);
}

/* An instance more costs what is its own, and nothing of what is there of the others. */
static void test_each(void **state)
{
	struct harness *h = *state;
	size_t few, many, few_written, many_written, removed;
	bool left_out = false;
	struct session *s;

	harness_start(h, "many", "2", NULL);
	s = session_begin(h);
	written = 0;
	few = insert(s, "/Code/many/many_100?", &left_out);
	few_written = written;
	assert_true(left_out);
	remove_all(s);
	session_flush_all(s);
	written = 0;
	many = insert(s, "/Code/many/many_30??", &left_out);
	many_written = written;
	remove_all(s);
	removed = written - many_written;
	print_message("%zu instances: %zu bodies written, %zu: %zu, and %zu when they went\n", few,
		      few_written, many, many_written, removed);
	assert_int_equal(few, 10);
	assert_int_equal(many, 100);
	assert_in_range(many_written, 1, 3 * few_written + 4 * many);
	assert_int_equal(removed, 0);
	session_flush_all(s);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_each, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests_name("live/each", tests, NULL, NULL);
}
