/* SPDX-License-Identifier: MIT */
/*
 * arena_kinds.c - arenas of one session are all shared with children of the target, or none is.
 */
#include <string.h>
#include <sys/resource.h>

#include "tests/live/harness_session.h"

/* The C library is out of reach of the executable's arena. */
static const char near[] = "/Code/calls/tiny", far[] = "/Code/libc.so*/getenv";

/* No descriptor is free in the target, or as many as we have. */
static void have_descriptors(struct harness *h, bool have)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	if (!have)
		limit.rlim_cur = 0;
	assert_int_equal(prlimit(h->pid, RLIMIT_NOFILE, &limit, NULL), 0);
}

static unsigned count_places(const struct session *s, enum arena_mode mode)
{
	unsigned count = 0;

	for (const struct place *p = s->places; p; p = p->next) {
		assert_int_equal(p->arena->mode, mode);
		count++;
	}
	return count;
}

/*
 * fear G1, B7: a second arena could only be one that children do not share, as no descriptor is free in the
 * target: it is refused, since a child with the first one would be led into what it does not have
 */
static void test_shared_stays_shared(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct session *s;
	size_t count = 0;
	unsigned id, other;

	harness_start(h, "calls", "2", NULL);
	s = session_begin(h);
	id = session_insert(s, near);
	have_descriptors(h, false);
	assert_int_equal(session_try_insert(s, far, false, &count, &other, &e), DINST_BUSY);
	assert_non_null(strstr(e.text, "cannot share memory with its children just now"));
	dinst_error_clear(&e);
	assert_int_equal(count_places(s, ARENA_SHARED), 1);
	session_go(h, 100);
	have_descriptors(h, true);
	session_insert(s, far);
	assert_int_equal(count_places(s, ARENA_SHARED), 2);
	session_go(h, 100);
	assert_int_equal(session_value(s, id), 200 * 2);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear G1, B7: the first could not be shared: none that comes later is, though it could be */
static void test_private_stays_private(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned id;

	harness_start(h, "calls", "2", NULL);
	s = session_begin(h);
	have_descriptors(h, false);
	id = session_insert(s, near);
	have_descriptors(h, true);
	session_insert(s, far);
	assert_int_equal(count_places(s, ARENA_PRIVATE), 2);
	session_go(h, 100);
	assert_int_equal(session_value(s, id), 100 * 2);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_shared_stays_shared),
					   CASE(test_private_stays_private)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
