/* SPDX-License-Identifier: MIT */
/*
 * unsearched.c - programs that switch between tasks of their own, on a kernel that does not tell which
 * pages of their memory are there.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/request.h"
#include "tests/live/harness_session.h"

static int no_pagemap; /* the errno of who opens it */

int __real_maps_open_pagemap(pid_t tid);
int __wrap_maps_open_pagemap(pid_t tid);

int __wrap_maps_open_pagemap(pid_t tid)
{
	if (!no_pagemap)
		return __real_maps_open_pagemap(tid);
	errno = no_pagemap;
	return -1;
}

/*
 * fear C2, H5: where nobody may see which pages are there a request that is all or nothing is refused at once, with that reason:
 * whoever tries again would try for ever; and where only a descriptor was missing he is told to
 */
static void test_whole_never_searched(void **state)
{
	const char *focus = "/Code/parked/parked_function";
	struct harness *h = *state;
	struct insert_result inserted;
	struct dinst_error e = {0};
	struct session *s;

	harness_start(h, "parked", "fiber", NULL);
	s = session_begin(h);
	no_pagemap = ENOENT;
	assert_int_equal(request_insert(s, "wall_inclusive", &focus, 1, NULL, &inserted, &e),
			 DINST_REFUSED);
	assert_non_null(strstr(e.text, "in parked_function of parked"));
	assert_non_null(strstr(e.text, "pagemap: No such file"));
	no_pagemap = EMFILE;
	dinst_error_clear(&e);
	assert_int_equal(request_insert(s, "wall_inclusive", &focus, 1, NULL, &inserted, &e),
			 DINST_BUSY);
	assert_non_null(strstr(e.text, "try again"));
	no_pagemap = 0;
	dinst_error_clear(&e);
	assert_int_equal(request_insert(s, "wall_inclusive", &focus, 1, NULL, &inserted, &e), 0);
	free(inserted.instances);
	harness_send(h, "go 100\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_whole_never_searched, harness_setup,
						harness_teardown),
	};

	return cmocka_run_group_tests_name("live/unsearched", tests, NULL, NULL);
}
