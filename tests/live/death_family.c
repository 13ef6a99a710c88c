/* SPDX-License-Identifier: MIT */
/*
 * death_family.c - what a mutator that was killed has left in a child which is not as its parent is: who
 * takes it out looks at each for itself.
 */
#include "mutator/leftovers.h"
#include "tests/live/death_help.h"

/* What cannot go yet is left. */
static size_t clean_for(struct harness *h, unsigned milliseconds)
{
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;

	assert_int_equal(target_open(h->pid, &t, &e), 0);
	if (leftovers_clean(t, milliseconds, &left, &e) < 0)
		fail_msg("%s", e.text);
	target_close(t);
	return left.arenas_left;
}

/*
 * fear J2, C2, H5: a child alone has loaded what switches between tasks, and one of them was interrupted in
 * our code: that stays after a mutator's death until the task has gone on
 */
static void test_switch_of_the_child(void **state)
{
	struct harness *h = *state;
	char command[1024];
	struct session *s;

	harness_start(h, "parked-child", NULL);
	s = session_begin(h);
	session_insert_kind(s, "parked_function", POINT_ENTRY);
	snprintf(command, sizeof(command), "fork %s\n",
		 harness_path("tests/live/targets/libswitches.so"));
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "parked");
	/* As a mutator that dies. */
	session_free(s);
	assert_int_not_equal(clean_for(h, 500), 0);
	harness_send(h, "resume\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ended 0");
	clean_up(h, 0);
	harness_send(h, "go 10\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	verify(h, 0);
	harness_end(h, 0);
}

/*
 * fear J2, A4: a descriptor that a dead mutator left is open in the first thread, and only a thread with
 * descriptors of its own can be made to call: what that has by this number is not closed
 */
static void test_descriptors_of_a_thread(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;

	harness_start(h, "own-files", NULL);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	assert_int_equal(leftovers_clean(t, 300, &left, &e), DINST_BUSY);
	if (!strstr(e.text, "descriptor 50"))
		fail_msg("%s", e.text);
	target_close(t);
	harness_end(h, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, death_setup, death_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_switch_of_the_child),
		TEST(test_descriptors_of_a_thread),
	};

	return cmocka_run_group_tests_name("live/death_family", tests, NULL, NULL);
}
