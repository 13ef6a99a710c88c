/* SPDX-License-Identifier: MIT */
/*
 * death_family.c - what a mutator that was killed has left in a child which is not as its parent is: who
 * takes it out looks at each for itself.
 */
#include <sys/prctl.h>
#include <sys/ptrace.h>

#include "inject/ptrace.h"
#include "mutator/leftovers.h"
#include "tests/live/death_help.h"
#include "tests/live/harness_thread.h"

/*
 * fear J2, C2, H5: a child alone has loaded what switches between tasks, and one of them was interrupted in
 * our code: that stays after a mutator's death until the task has gone on, and whoever repairs the parent is told
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
	/* Said again, as often as somebody asks: the target leads to it. */
	for (int n = 0; n < 2; n++)
		assert_int_not_equal(clean_for(h, 500), 0);
	harness_send(h, "resume\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ended 0");
	clean_up(h, 0);
	harness_send(h, "go 10\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	verify(h, 0);
	harness_end(h, 0);
}

/* The target has it that its first thread dispatches its calls, though of no address: it must be told. */
static void skip_unless_told(void)
{
	taddr_t selector;
	pid_t pid = fork();
	bool told;

	assert_true(pid >= 0);
	if (!pid)
		for (prctl(PR_SET_PDEATHSIG, SIGKILL);;)
			pause();
	thread_seize(pid);
	told = tracee_dispatches(pid, &selector) >= 0;
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, __WALL), pid);
	if (told)
		return;
	print_message("SKIP: the kernel (before 6.4) does not tell who dispatches system calls\n");
	skip();
}

/*
 * fear J2, A4: a descriptor that a dead mutator left is open in the first thread, and only a thread with
 * descriptors of its own can be made to call: what that has by this number is not closed, and the code is
 * restored all the same
 */
static void test_descriptors_of_a_thread(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct leftovers left;
	struct session *s;
	struct target *t;

	skip_unless_told();
	harness_start(h, "own-files", NULL);
	s = session_begin(h);
	session_insert_kind(s, "work", POINT_ENTRY);
	/* As a mutator that dies. */
	session_free(s);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	assert_int_equal(leftovers_clean(t, 300, &left, &e), DINST_BUSY);
	if (!strstr(e.text, "descriptor 50"))
		fail_msg("%s", e.text);
	target_close(t);
	verify(h, 0);
	harness_end(h, 0);
}

/* fear J2: the descriptor is open in that other thread alone, which was made to call: it is closed there */
static void test_descriptor_in_another_thread(void **state)
{
	struct harness *h = *state;

	skip_unless_told();
	harness_start(h, "own-files", "thread", NULL);
	clean_up(h, 0);
	harness_end(h, 0);
}

static void expect_text(struct harness *h, pid_t pid)
{
	struct harness_snapshot *now = harness_snapshot_take(pid);
	char text[4096];

	assert_non_null(now);
	if (harness_differences(pid == h->pid ? h->before : now, HARNESS_TEXT, text, sizeof(text)))
		fail_msg("process %d is not restored:\n%s", (int)pid, text);
	harness_snapshot_free(now);
}

/* A mutator has died, and a debugger has child number `n`; it is told of, the others get their code back. */
static void clean_around(struct harness *h, size_t n)
{
	struct dinst_error e = {0};
	struct leftovers left;
	struct session *s;
	struct target *t;
	pid_t workers[2];

	harness_start(h, "life-family", NULL);
	s = session_begin(h);
	session_insert_kind(s, "handle", POINT_ENTRY);
	harness_send(h, "serve 2\n");
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "workers %d %d", &workers[0],
				&workers[1]),
			 2);
	/* As a mutator that dies. */
	session_free(s);
	assert_int_equal(ptrace(PTRACE_SEIZE, workers[n], NULL, NULL), 0);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	assert_true(leftovers_clean(t, 500, &left, &e) < 0);
	if (!strstr(e.text, harness_number(workers[n])))
		fail_msg("it says: %s", e.text);
	target_close(t);
	expect_text(h, h->pid);
	expect_text(h, workers[!n]);
	harness_send(h, "requests 10\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	kill(workers[n], SIGSTOP);
	harness_until(waitpid(workers[n], NULL, __WALL | WNOHANG) == workers[n]);
	assert_int_equal(ptrace(PTRACE_DETACH, workers[n], NULL, NULL), 0);
	kill(workers[n], SIGCONT);
	clean_up(h, 0);
	expect_text(h, workers[n]);
	harness_send(h, "requests 10\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	harness_send(h, "dismiss\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	verify(h, 0);
	harness_end(h, 0);
}

/*
 * fear J2, A11: a mutator is killed, and a debugger has one of the children: the parent and the other children
 * get their code back all the same, and the rest once it has let go
 */
static void test_traced_child_of_a_dead_mutator(void **state)
{
	clean_around(*state, 0);
	clean_around(*state, 1);
}

/*
 * fear J2, J6: who looks after the children of a target that was left behind takes no claim on them: what another
 * dinst has put into one meanwhile, where the old arena was, stays
 */
static void test_arena_of_another_in_its_place(void **state)
{
	struct harness *h = *state;
	struct process p = {.count = 1};
	struct dinst_error e = {0};
	struct leftovers left = {0};
	struct session *s;
	unsigned id;

	harness_start(h, "forks", NULL);
	s = session_begin(h);
	session_insert_kind(s, "hit", POINT_ENTRY);
	/* As a mutator that dies. */
	session_free(s);
	assert_int_equal(target_open(h->pid, &p.target, &e), 0);
	assert_int_equal(arena_find(p.target, p.found, ARENAS_MOST, &e), 1);
	clean_up(h, 0);
	s = session_begin(h);
	id = session_insert_kind(s, "hit", POINT_ENTRY);
	assert_true(s->places->arena->code == p.found[0].code);
	if (leftovers_take_out(&p, 0, false, 0, &left, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(left.restored, 0);
	assert_int_equal(left.arenas_left, 0);
	target_close(p.target);
	harness_send(h, "fork 1 1000\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	assert_int_equal(session_value(s, id), 2000);
	session_end(s);
	verify(h, 0);
	harness_end(h, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, death_setup, death_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_switch_of_the_child),		  TEST(test_descriptors_of_a_thread),
		TEST(test_descriptor_in_another_thread),  TEST(test_traced_child_of_a_dead_mutator),
		TEST(test_arena_of_another_in_its_place),
	};

	return cmocka_run_group_tests_name("live/death_family", tests, NULL, NULL);
}
