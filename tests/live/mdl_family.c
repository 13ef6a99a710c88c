/* SPDX-License-Identifier: MIT */
/*
 * mdl_family.c - flags and activations in processes that the target forks, and
 * in modules that it loads and unloads.
 */
#include "mutator/variable.h"
#include "tests/live/harness_session.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const char text[] =
	"list hit_only is procedure { items { \"hit\" }; }\n"
	"list leaf_only is procedure { items { \"plugin_leaf\" }; }\n"
	"constraint inside /Code/*/* is counter {\n"
	"	append preInsn $constraint[0].entry (* inside++; *)\n"
	"	prepend preInsn $constraint[0].return (* inside--; *)\n"
	"}\n"
	"metric hit_inside { name \"hit_inside\"; units calls; aggregateOperator sum;\n"
	"	style EventCounter; constraint inside;\n"
	"	base is counter { foreach f in hit_only append preInsn f.entry constrained\n"
	"		(* hit_inside++; *) } }\n"
	"metric leaf_inside { name \"leaf_inside\"; units calls; aggregateOperator sum;\n"
	"	style EventCounter; constraint inside;\n"
	"	constraint of /Code/*/* is replace counter {\n"
	"		append preInsn $constraint[0].entry (* leaf_inside++; *)\n"
	"		append preInsn $constraint[0].return (* leaf_inside++; *) }\n"
	"	base is counter { foreach f in leaf_only append preInsn f.entry constrained\n"
	"		(* leaf_inside++; *) } }\n"
	"metric spent { name \"spent\"; units ns; aggregateOperator sum; style EventCounter;\n"
	"	constraint of /Code/*/* is replace wallTimer {\n"
	"		append preInsn $constraint[0].entry (* startWallTimer(spent); *)\n"
	"		prepend preInsn $constraint[0].return (* stopWallTimer(spent); *) }\n"
	"	base is wallTimer { foreach f in leaf_only {\n"
	"		append preInsn f.entry (* startWallTimer(spent); *)\n"
	"		prepend preInsn f.return (* stopWallTimer(spent); *) } } }\n";

static struct session *begin(struct harness *h, const char *program)
{
	struct dinst_error e = {0};
	struct session *s;

	harness_start(h, program, NULL, NULL);
	s = session_begin(h);
	if (session_load_mdl(s, "test.mdl", text, strlen(text), &e) < 0)
		fail_msg("%s", e.text);
	return s;
}

static unsigned insert(struct session *s, const char *metric, const char *focus)
{
	struct insert_result result = {0};
	struct dinst_error e = {0};
	unsigned id = 0;
	int status = DINST_BUSY;

	for (unsigned tries = 0; tries < 50 && status == DINST_BUSY; tries++) {
		dinst_error_clear(&e);
		status = request_insert(s, metric, &focus, 1, NULL, &result, &e);
		if (status == DINST_BUSY)
			usleep(20000);
	}
	if (status < 0)
		fail_msg("%s %s: %s", metric, focus, e.text);
	assert_int_equal(result.count, 1);
	id = result.instances[0]->id;
	free(result.instances);
	return id;
}

static void ask(struct harness *h, const char *command)
{
	char line[64];

	snprintf(line, sizeof(line), "%s\n", command);
	harness_send(h, line);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
}

static pid_t linger(struct harness *h)
{
	const char *line;

	harness_send(h, "linger\n");
	line = harness_line(h, HARNESS_ANSWER_MS);
	assert_int_equal(strncmp(line, "child ", 6), 0);
	return atoi(line + 6);
}

static unsigned long child_hits(struct harness *h)
{
	harness_send(h, "count\n");
	return strtoul(harness_line(h, HARNESS_ANSWER_MS), NULL, 10);
}

static void unlinger(struct harness *h)
{
	harness_send(h, "unlinger\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ended 7");
}

/*
 * The child is there before anything is kept for threads: it runs through the
 * same bodies, and gets what they need when the target does.
 */
static void test_child_came_first(void **state)
{
	static const char *const focus = "/Code/forks/hit";
	struct harness *h = *state;
	struct session *s = begin(h, "forks");
	unsigned plain = insert(s, "calls", focus), flagged;
	unsigned long before;

	linger(h);
	harness_until(child_hits(h) > 0);
	flagged = insert(s, "hit_inside", focus);
	before = child_hits(h);
	harness_until(child_hits(h) > before);
	harness_until(session_value(s, flagged) > 0);
	session_remove(s, flagged);
	unlinger(h);
	/* Who comes now has all of it. */
	flagged = insert(s, "hit_inside", focus);
	linger(h);
	harness_until(child_hits(h) > 0);
	session_remove(s, insert(s, "hit_inside", "/Code/forks/hits"));
	ask(h, "fork 2 100");
	assert_true(session_value(s, flagged) >= 300);
	assert_true(session_value(s, plain) >= session_value(s, flagged));
	session_remove(s, flagged);
	session_flush_all(s);
	before = child_hits(h);
	harness_until(child_hits(h) > before);
	unlinger(h);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* Children that come later: each call is inside of itself. */
static void test_children_later(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h, "forks");
	unsigned flagged = insert(s, "hit_inside", "/Code/forks/hit");
	unsigned around = insert(s, "hit_inside", "/Code/forks/hits");
	unsigned plain = insert(s, "calls", "/Code/forks/hit");

	ask(h, "fork 3 500");
	ask(h, "tree 3 100");
	assert_true(session_value(s, plain) > 0);
	assert_int_equal(session_value(s, flagged), session_value(s, plain));
	assert_int_equal(session_value(s, around), session_value(s, plain));
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* An arena that only the target has: what is held is sent in the stop, whole. */
static void test_private_arena(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h, "forks");
	unsigned plain, flagged, around;

	s->private_arenas = true;
	plain = insert(s, "calls", "/Code/forks/hit");
	flagged = insert(s, "hit_inside", "/Code/forks/hit");
	around = insert(s, "hit_inside", "/Code/forks/hits");
	/* We call it as often as each child, whose counts are its own. */
	ask(h, "fork 2 1000");
	assert_int_equal(session_value(s, plain), 1000);
	assert_int_equal(session_value(s, flagged), 1000);
	assert_int_equal(session_value(s, around), 1000);
	session_remove(s, flagged);
	ask(h, "fork 1 500");
	assert_int_equal(session_value(s, plain), 1500);
	assert_int_equal(session_value(s, around), 1500);
	session_remove(s, around);
	assert_null(s->hidden);
	session_flush_all(s);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* A request with a flag waits for its module, comes whole, and goes with it. */
static void test_waits_for_its_module(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h, "loads");

	for (int turn = 0; turn < 3; turn++) {
		unsigned id = insert(s, "leaf_inside", "/Code/libplugin.so/plugin_leaf");

		assert_int_equal(session_pending(s, id), 1);
		ask(h, "open");
		for (int i = 0; i < 50000 && session_pending(s, id); i++) {
			request_retry_pending(s);
			usleep(2000);
		}
		assert_int_equal(session_pending(s, id), 0);
		ask(h, "call 1000");
		assert_int_equal(session_value(s, id), 2000);
		if (turn == 1) {
			ask(h, "close");
			assert_int_equal(session_value(s, id), 2000);
			session_remove(s, id);
		} else {
			session_remove(s, id);
			ask(h, "close");
		}
		session_flush_all(s);
		assert_null(s->hidden);
	}
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear G1, G4: a child was forked when only a function's entry was patched, and then begins what has
 * waited for the module: it would be timed there without an end, so it waits until the child has ended
 */
static void test_half_patched_meanwhile(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h, "loads");
	const unsigned spent = insert(s, "spent", "/Code/libplugin.so/plugin_work");

	assert_int_equal(session_pending(s, spent), 1);
	ask(h, "open");
	insert(s, "calls", "/Code/libplugin.so/plugin_work");
	ask(h, "linger");
	for (int i = 0; i < 20; i++) {
		request_retry_pending(s);
		usleep(5000);
	}
	assert_int_equal(session_pending(s, spent), 1);
	assert_int_equal(session_value(s, spent), 0);
	unlinger(h);
	for (int i = 0; i < 50000 && session_pending(s, spent); i++) {
		request_retry_pending(s);
		usleep(2000);
	}
	assert_int_equal(session_pending(s, spent), 0);
	ask(h, "call 1000");
	assert_true(session_value(s, spent) > 0);
	ask(h, "close");
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

/* What that instance is worth; *e says why it cannot be told. */
static int read_value(struct session *s, unsigned id, int64_t *value, struct dinst_error *e)
{
	struct variable_value v = {0};
	struct instance *i = s->instances;
	int status;

	while (i && i->id != id)
		i = i->next;
	assert_non_null(i);
	status = instance_read(i, 0, &v, e);
	*value = v.value;
	variable_value_release(&v);
	return status;
}

/* fear K2, G1: a child is frozen: what is measured can be read all the same, its part included */
static void test_frozen_child(void **state)
{
	enum { PAUSE_US = 300000 };
	struct harness *h = *state;
	struct session *s = begin(h, "mdl_threads");
	struct dinst_error e = {0};
	int64_t before = 0, now = 0;
	char directory[64];
	unsigned timer;
	bool frozen;
	int child = 0, status;

	snprintf(directory, sizeof(directory), "/sys/fs/cgroup/freezer/dinst-test-%d", (int)h->pid);
	if (mkdir(directory, 0755)) {
		print_message("skipped: no freezer of the first version here\n");
		skip();
	}
	timer = insert(s, "wall_inclusive", "/Code/mdl_threads/work_3");
	insert(s, "wall_inclusive", "/Code/mdl_threads/leaf");
	harness_send(h, "fork\n");
	assert_int_equal(sscanf(strstr(harness_line(h, HARNESS_ANSWER_MS), "child "), "child %d",
				&child),
			 1);
	usleep(PAUSE_US);
	assert_true(read_value(s, timer, &before, &e) >= 0);
	frozen =
		harness_join(child, directory) && harness_set(directory, "freezer.state", "FROZEN");
	usleep(PAUSE_US);
	status = read_value(s, timer, &now, &e);
	/* What is frozen cannot be killed. */
	harness_set(directory, "freezer.state", "THAWED");
	assert_true(frozen);
	if (status < 0)
		fail_msg("%s", e.text);
	assert_true(now >= before + 2 * (PAUSE_US * 1000ll));
	harness_send(h, "join\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
	rmdir(directory);
}

/*
 * No descriptor is left when a timer is read that runs in a child, too: that the child's part cannot be
 * read is told, instead of a value without it
 */
static void test_no_descriptor(void **state)
{
	enum { PAUSE_US = 300000, FOUND_NS = 150000000 };
	static const char *const metrics[] = {"wall_inclusive", "cpu_inclusive"};
	struct harness *h = *state;
	struct session *s = begin(h, "mdl_threads");
	struct dinst_error e = {0};
	struct rlimit before, least;
	int64_t value[2], now;
	unsigned timers[2];

	for (int k = 0; k < 2; k++)
		timers[k] = insert(s, metrics[k], "/Code/mdl_threads/work_3");
	insert(s, "wall_inclusive", "/Code/mdl_threads/leaf");
	harness_send(h, "fork\n");
	assert_non_null(strstr(harness_line(h, HARNESS_ANSWER_MS), "child "));
	usleep(PAUSE_US);
	for (int k = 0; k < 2; k++)
		assert_true(read_value(s, timers[k], &value[k], &e) >= 0);
	assert_true(value[0] >= 2ll * PAUSE_US * 1000);
	/* Children are looked for again some time later. */
	usleep(PAUSE_US);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	least = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
	for (int k = 0; k < 2; k++) {
		uint64_t began;
		int status;

		assert_int_equal(setrlimit(RLIMIT_NOFILE, &least), 0);
		status = read_value(s, timers[k], &now, &e);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
		if (status != DINST_BUSY)
			fail_msg("%s: status %d, %lld ns of %lld: %s", metrics[k], status,
				 (long long)now, (long long)value[k], e.text);
		dinst_error_clear(&e);
		began = clock_ns();
		assert_true(read_value(s, timers[k], &now, &e) >= 0);
		assert_true(now >= value[k]);
		/* Nor can the clock of a thread that is known be read. */
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &least), 0);
		status = read_value(s, timers[k], &now, &e);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
		/* Unless they had to be looked for once more. */
		if (k || clock_ns() - began < FOUND_NS)
			assert_int_equal(status, k ? DINST_BUSY : 0);
		dinst_error_clear(&e);
		usleep(PAUSE_US);
	}
	harness_send(h, "join\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_child_came_first),
		CASE(test_children_later),
		CASE(test_private_arena),
		CASE(test_waits_for_its_module),
		CASE(test_half_patched_meanwhile),
		cmocka_unit_test_setup_teardown(test_no_descriptor, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_frozen_child, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests_name("live/mdl_family", tests, NULL, NULL);
}
