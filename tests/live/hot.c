/* SPDX-License-Identifier: MIT */
/*
 * hot.c - strlen() timed in a program that does nothing else: what it costs is
 * above its limit, it is switched off, and the program is as fast as before.
 *
 * Speed is the least CPU time that calls took, in one program within seconds: what
 * else the machine does may not change who is slower by far.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "mutator/variable.h"
#include "tests/live/harness_session.h"

static void told(void *arg, const struct instance *i, double percent)
{
	assert_true(percent > i->limit);
	print_message("%.1f %% of a CPU\n", percent);
	++*(int *)arg;
}

static double cost_ns(struct harness *h)
{
	long ps = 0;

	harness_send(h, "cost\n");
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "cost %ld", &ps), 1);
	return (double)ps / 1000;
}

static const struct instance *insert(struct session *s, double limit)
{
	const struct insert_options options = {.limit = limit};
	/* Whichever of them this processor has: the name itself is a resolver. */
	const struct instance *i =
		session_insert_metric(s, "latency", "/Code/libc.so.6/__strlen_*", &options);

	assert_int_equal(i->refused_count, 0);
	return i;
}

static uint64_t count(const struct instance *i)
{
	struct variable_value v = {0};
	struct dinst_error e = {0};
	uint64_t n;

	assert_int_equal(instance_read(i, 0, &v, &e), 0);
	n = v.count;
	variable_value_release(&v);
	return n;
}

/*
 * fear K3: strlen() is timed in a program that calls it a hundred million times a second: that is
 * above its limit and switched off within seconds; what was measured stays; calls are as fast again as they
 * were, but for a small part of what timing them took, and when it is removed, altogether
 */
static void test_guard(void **state)
{
	struct harness *h = *state;
	double before, timed, off, after;
	const struct instance *i;
	struct session *s;
	uint64_t value;
	int times = 0;

	harness_start(h, "hot", NULL);
	before = cost_ns(h);
	s = session_begin(h);
	i = insert(s, 0.05);
	timed = cost_ns(h);
	for (int n = 0; n < 2400 && !times; n++) {
		usleep(50000);
		session_poll(s, told, &times);
	}
	assert_int_equal(times, 1);
	assert_true(i->stopped);
	off = cost_ns(h);
	value = count(i);
	assert_true(value > 0);
	cost_ns(h);
	assert_int_equal(count(i), value);
	session_remove(s, i->id);
	session_flush_all(s);
	after = cost_ns(h);
	print_message("a call: %.2f ns, timed %.2f ns, switched off %.2f ns, removed %.2f ns\n",
		      before, timed, off, after);
	assert_true(timed > 3 * before);
	assert_true(off - before < (timed - before) / 4);
	assert_true(after - before < (timed - before) / 8);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_guard)};

	return cmocka_run_group_tests_name("live/hot", tests, NULL, NULL);
}
