/* SPDX-License-Identifier: MIT */
/*
 * death_repair.c - who comes after a mutator that was killed: it is killed itself
 * while it repairs or adopts, it finds processes that were forked meanwhile, or
 * one that lives and is not to be touched. As death.c.
 */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>

#include "inject/arena.h"
#include "mutator/leftovers.h"
#include "tests/live/death_help.h"
#include "tests/live/harness_thread.h"

enum { BUSY_MS = 300 };

/* ---------------------------------------------------- the one that cleans up */

/* What another dies of that takes out what one left. `adopts`: it attaches, and inserts anew. */
static void clean_and_die(pid_t pid, bool adopts, unsigned long countdown)
{
	struct dinst_error e = {0};
	struct leftovers left = {0};
	struct instance *first;
	struct session *s = NULL;
	struct target *t = NULL;
	int status;

	fault_passed = 0;
	fault_countdown = countdown;
	stage(adopts ? 0 : 8);
	if (adopts) {
		status = session_attach(pid, "heir", &s, &e);
		if (status >= 0)
			status = leftovers_clean(s->target, CLEAN_MS, &left, &e);
		if (status >= 0)
			status = insert_one(s, all, POINT_ENTRY, &first, &e);
	} else {
		status = target_open(pid, &t, &e);
		if (status >= 0)
			status = leftovers_clean(t, CLEAN_MS, &left, &e);
	}
	account->passed = fault_passed;
	memcpy(account->text, e.text, sizeof(e.text));
	_exit(status >= 0 ? ENDED : status == DINST_BUSY ? GAVE_UP : FAILED);
}

static bool run_heir(struct harness *h, bool adopts, unsigned long countdown)
{
	pid_t child;

	memset(account, 0, sizeof(*account));
	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		clean_and_die(h->pid, adopts, countdown);
	return end_mutator(child, countdown != 0);
}

/* A mutator that dies with all of its windows in place and a thread in them. */
static void leave_all(struct harness *h)
{
	pid_t child;

	memset(account, 0, sizeof(*account));
	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct dinst_error e = {0};
		struct instance *first;
		struct session *s;

		fault_countdown = 0;
		if (session_attach(h->pid, "doomed", &s, &e) < 0 ||
		    insert_at_last(s, all, POINT_ENTRY, &first, &e) < 0 ||
		    insert_at_last(s, all, POINT_EXIT, &first, &e) < 0)
			_exit(FAILED);
		kill(getpid(), SIGKILL);
	}
	assert_true(end_mutator(child, true));
}

static void heir_deaths(struct harness *h, bool adopts)
{
	unsigned long points, step = getenv("DINST_SHORT") ? 4 : 1;
	int deaths = 0, turns = 0, before;

	harness_limit(600);
	harness_start(h, "calls", "2", NULL);
	leave_all(h);
	do {
		before = gave_up;
		assert_false(run_heir(h, adopts, 0));
	} while (gave_up != before);
	points = account->passed;
	assert_true(points > 10);
	clean_up(h, 0);
	verify(h, 0);
	for (unsigned long at = 1; at <= points; at += step, turns++) {
		harness_send(h, "go 10000\n");
		leave_all(h);
		deaths += run_heir(h, adopts, at);
		/* And the one after that, at another moment. */
		run_heir(h, !adopts, 1 + (at * 7) % points);
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
		clean_up(h, at);
		verify(h, at);
	}
	assert_true(2 * deaths > turns);
	harness_end(h, 0);
}

/*
 * fear J2: who repairs after a mutator's death is killed itself, at each step that changes
 * something, and so is the one after it; the target computes rightly and ends as it was
 */
static void test_deaths_of_repair(void **state)
{
	heir_deaths(*state, false);
}

/* fear J2: the same for one that attaches, takes out what it finds, and inserts its own */
static void test_deaths_of_adoption(void **state)
{
	heir_deaths(*state, true);
}

/* ------------------------------------------------------------------ families */

/* In the child: inserts and is killed when the family has been made. */
static void insert_and_wait(pid_t pid, int ready)
{
	struct dinst_error e = {0};
	struct instance *first;
	struct session *s;

	if (session_attach(pid, "doomed", &s, &e) < 0 ||
	    insert_at_last(s, "hit", POINT_ENTRY, &first, &e) < 0 || write(ready, "x", 1) != 1)
		_exit(3);
	for (;;)
		pause();
}

static unsigned long child_hits(struct harness *h)
{
	harness_send(h, "count\n");
	return strtoul(harness_line(h, HARNESS_ANSWER_MS), NULL, 10);
}

/* fear J2: a mutator dies whose target has a child that runs through the same trampolines. */
static void test_deaths_in_a_family(void **state)
{
	enum { DEATHS = 40 };
	struct harness *h = *state;
	unsigned short seed[3] = {SEED + 3, 0, 0};
	char command[128], line[4096];
	unsigned long points, hits;
	pid_t child = 0;
	int deaths = 0;

	victim = "hit";
	all = "/Code/forks/*";
	caller = "hits";
	harness_start(h, "forks", NULL);
	run_whole(h);
	points = account->passed;
	clean_up(h, 0);
	for (int turn = 0; turn < DEATHS; turn++) {
		unsigned long at = 1 + (unsigned long)nrand48(seed) % points;
		pid_t mutator = start_mutator(h, at);

		/* It is born somewhere in the middle of it all. */
		usleep((useconds_t)nrand48(seed) % 20000);
		harness_send(h, "linger\n");
		snprintf(line, sizeof(line), "%s", harness_line(h, HARNESS_ANSWER_MS));
		assert_int_equal(sscanf(line, "child %d", &child), 1);
		deaths += end_mutator(mutator, true);
		clean_up(h, at);
		verify(h, at);
		snprintf(command, sizeof(command), "grep -q memfd:dinst /proc/%d/maps", (int)child);
		if (system(command) == 0)
			fail_msg("the child still has an arena after death at %lu (%s)", at,
				 stages[account->stage]);
		hits = child_hits(h);
		for (int i = 0; i < 50000 && child_hits(h) == hits; i++)
			usleep(2000);
		if (child_hits(h) == hits)
			fail_msg("the child does not go on after death at %lu (%s): %s", at,
				 stages[account->stage], harness_status(child, child, "State:"));
		harness_send(h, "unlinger\n");
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ended 7");
	}
	assert_true(2 * deaths > DEATHS);
	harness_end(h, 0);
	victim = "many";
	all = "/Code/calls/*";
	caller = "work";
}

static pid_t start_inserter(struct harness *h)
{
	pid_t mutator;
	int ready[2];
	char byte;

	assert_int_equal(pipe(ready), 0);
	fflush(NULL);
	mutator = fork();
	if (mutator == 0)
		insert_and_wait(h->pid, ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return mutator;
}

/* fear J6: what a living mutator has in the target is not taken out by another one, who is told of it. */
static void test_living_mutator(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;
	pid_t mutator;

	harness_start(h, "forks", NULL);
	mutator = start_inserter(h);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	assert_int_equal(leftovers_clean(t, CLEAN_MS, &left, &e), DINST_BUSY);
	assert_non_null(strstr(e.text, harness_number(mutator)));
	assert_int_equal(left.restored, 0);
	target_close(t);
	harness_send(h, "fork 2 1000\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	kill(mutator, SIGKILL);
	assert_int_equal(waitpid(mutator, NULL, 0), mutator);
	clean_up(h, 0);
	verify(h, 0);
	harness_end(h, 0);
}

/* How many descriptors of arenas a process has. */
static unsigned count_descriptors(pid_t pid)
{
	char command[128], text[16] = "";
	FILE *pipe;

	snprintf(command, sizeof(command), "ls -l /proc/%d/fd | grep -c memfd:dinst", (int)pid);
	pipe = popen(command, "r");
	assert_non_null(pipe);
	assert_non_null(fgets(text, sizeof(text), pipe));
	pclose(pipe);
	return (unsigned)atoi(text);
}

/*
 * fear J6: somebody looks into a mutator: its descriptors of arenas are what it works with, and stay; those that
 * one has left in its target are closed as ever
 */
static void test_mutator_as_a_target(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;
	unsigned count;
	pid_t mutator;

	harness_start(h, "forks", NULL);
	mutator = start_inserter(h);
	count = count_descriptors(mutator);
	assert_true(count > 0);
	assert_int_equal(target_open(mutator, &t, &e), 0);
	if (leftovers_clean(t, CLEAN_MS, &left, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(left.arenas, 0);
	target_close(t);
	assert_int_equal(count_descriptors(mutator), count);
	kill(mutator, SIGKILL);
	assert_int_equal(waitpid(mutator, NULL, 0), mutator);
	clean_up(h, 0);
	verify(h, 0);
	harness_end(h, 0);
}

/* What was inherited from a target whose mutator died is taken out of the child as well. */
static void test_child_of_the_orphaned(void **state)
{
	struct harness *h = *state;
	pid_t mutator, child = 0;
	char command[128];

	harness_start(h, "forks", NULL);
	mutator = start_inserter(h);
	harness_send(h, "linger\n");
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "child %d", &child), 1);
	kill(mutator, SIGKILL);
	assert_int_equal(waitpid(mutator, NULL, 0), mutator);
	snprintf(command, sizeof(command), "grep -q memfd:dinst /proc/%d/maps", (int)child);
	assert_int_equal(system(command), 0);
	clean_up(h, 0);
	verify(h, 0);
	assert_int_not_equal(system(command), 0);
	usleep(10000);
	harness_send(h, "unlinger\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ended 7");
	harness_end(h, 0);
}

/* Which word of the stack, above what the thread is blocked with; its function never looks there. */
enum { WORD_OF_CALLER = 24 };

static taddr_t word_at; /* in the target */

static int find_word(struct stop *stop, void *arg, struct dinst_error *e)
{
	(void)arg;
	(void)e;
	word_at = arch_sp(&stop_thread(stop, 0)->regs) + WORD_OF_CALLER;
	return 0;
}

static size_t arenas_left_with(struct target *t, uint64_t word)
{
	struct leftovers left = {0};
	struct dinst_error e = {0};
	char path[64];
	int memory;

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)target_pid(t));
	memory = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(pwrite(memory, &word, sizeof(word), (off_t)word_at), sizeof(word));
	close(memory);
	if (leftovers_clean(t, 300, &left, &e) < 0)
		fail_msg("cleaning with %#llx on the stack: %s", (unsigned long long)word, e.text);
	return left.arenas_left;
}

/*
 * fear C2: a number on a stack that cannot be walked keeps what a mutator left if it is an address of its
 * code, and not if it only lies in the room that was set apart for that
 */
static void test_numbers_like_addresses(void **state)
{
	struct harness *h = *state;
	struct arena_found found[4];
	struct dinst_error e = {0};
	struct session *s;
	struct target *t;

	harness_start(h, "stack-lies", "pointer", NULL);
	thread_wait_input(h->pid);
	s = session_begin(h);
	session_insert_kind(s, "pointer", POINT_ENTRY);
	/* As a mutator that dies. */
	session_free(s);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	assert_int_equal(target_stop(t, NULL, find_word, NULL, NULL, &e), 0);
	assert_int_equal(arena_find(t, found, 4, &e), 1);
	assert_in_range(found[0].code_floor, 1, found[0].code_size - 1);
	assert_int_equal(arenas_left_with(t, found[0].code + found[0].code_size - 1), 1);
	assert_int_equal(arenas_left_with(t, found[0].code + found[0].code_floor), 1);
	assert_int_equal(arenas_left_with(t, found[0].code + found[0].code_floor - 1), 0);
	assert_int_equal(arenas_left_with(t, 0), 0);
	target_close(t);
	verify(h, 0);
	harness_end(h, 0);
}

static bool has_child(pid_t pid)
{
	char path[64];
	FILE *children;
	int first;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	children = fopen(path, "re");
	assert_non_null(children);
	first = fgetc(children);
	fclose(children);
	return first != EOF;
}

/* Whether it still ran when that was taken out. */
static bool clean_beside_a_clone(struct harness *h, long calls)
{
	struct pollfd answer = {.events = POLLIN};
	struct session *s;
	char clone[64];
	bool ran;

	harness_start(h, "life-family", NULL);
	s = session_begin(h);
	session_insert_kind(s, "handle", POINT_ENTRY);
	snprintf(clone, sizeof(clone), "clone vm %ld\n", calls);
	harness_send(h, clone);
	harness_until(has_child(h->pid));
	/* As a mutator that dies. */
	session_free(s);
	clean_up(h, 0);
	answer.fd = h->output;
	ran = !poll(&answer, 1, 0);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	verify(h, 0);
	harness_end(h, 0);
	return ran;
}

/*
 * fear J2, G1: a process that clone() has made in the target's memory runs through what a dead mutator left: it
 * is taken out once for both, which is no failure
 */
static void test_process_in_the_same_memory(void **state)
{
	long calls = 300000000;

	while (!clean_beside_a_clone(*state, calls))
		calls *= 2;
}

/*
 * fear J2, G3: a process executes another program after it was seen what a dead mutator left in it: that is
 * gone, which is no failure
 */
static void test_execution_before_it_is_taken_out(void **state)
{
	struct harness *h = *state;
	struct process p = {.count = 1};
	struct dinst_error e = {0};
	struct leftovers left = {0};
	struct session *s;

	harness_start(h, "forks", NULL);
	s = session_begin(h);
	session_insert_kind(s, "hit", POINT_ENTRY);
	session_free(s);
	assert_int_equal(target_open(h->pid, &p.target, &e), 0);
	assert_int_equal(arena_find(p.target, p.found, ARENAS_MOST, &e), 1);
	harness_send(h, "exec\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ready");
	if (leftovers_take_out(&p, 0, false, 0, &left, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(left.arenas_left, 0);
	target_close(p.target);
	harness_end(h, 0);
}

/*
 * fear C2, H5, J2, K2: a program with jumps in its holes has too much memory to be searched for what is parked: that is told,
 * after one stop, since another one would find no less
 */
static void test_too_large_to_be_searched(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct leftovers left = {0};
	struct session *s;
	struct target *t;

	harness_start(h, "parked", "fiber", NULL);
	s = session_begin(h);
	session_insert_kind(s, "/Code/libc.so.6/*", POINT_EXIT);
	session_free(s);
	harness_send(h, "fill 200\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "filled");
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	if (leftovers_clean(t, 10000, &left, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(left.arenas_left, 1);
	assert_int_equal(left.unsearched, 1);
	harness_send(h, "fill 0\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "filled");
	target_close(t);
	clean_up(h, 0);
	harness_send(h, "go 100\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	harness_verify(h);
	harness_end(h, 0);
}

/* Takes every moment of a CPU from all others there, for BUSY_MS. */
static pid_t take_cpu(int cpu)
{
	const struct sched_param first = {.sched_priority = 1};
	const uint64_t until = clock_ns() + BUSY_MS * 1000000ull;
	cpu_set_t one;
	pid_t child = fork();

	if (child)
		return child;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one) || sched_setscheduler(0, SCHED_FIFO, &first))
		_exit(1);
	while (clock_ns() < until)
		continue;
	_exit(0);
}

/* A process that has the claim on another one, on that CPU only, and stays. */
static pid_t hold_claim(pid_t pid, int cpu)
{
	struct dinst_error e = {0};
	struct target *t;
	cpu_set_t one;
	int ready[2];
	char byte;
	pid_t child;

	assert_int_equal(pipe(ready), 0);
	child = fork();
	if (child == 0) {
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (!sched_setaffinity(0, sizeof(one), &one) && !target_open(pid, &t, &e) &&
		    !target_claim(t, 0, &e) && write(ready[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return child;
}

/* fear J6: a mutator that was killed, and gets no CPU to end on, is waited for, and does not count as one that works */
static void test_killed_mutator_without_a_cpu(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct target *t;
	pid_t holder, busy;
	int status, took, cpu = 0;
	cpu_set_t allowed;

	assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
	while (!CPU_ISSET(cpu, &allowed))
		cpu++;
	harness_start(h, "forks", NULL);
	holder = hold_claim(h->pid, cpu);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	assert_int_equal(target_claim(t, 0, &e), DINST_BUSY);
	assert_non_null(strstr(e.text, "detach that session first"));
	dinst_error_clear(&e);
	busy = take_cpu(cpu);
	usleep(BUSY_MS * 1000 / 4);
	kill(holder, SIGKILL);
	status = target_claim(t, 10000, &e);
	waitpid(holder, NULL, 0);
	assert_int_equal(waitpid(busy, &took, 0), busy);
	if (status)
		fail_msg("%s", e.text);
	target_close(t);
	harness_end(h, 0);
	if (took) {
		print_message("skipped: nobody may take a CPU for himself here\n");
		skip();
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, death_setup, death_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_deaths_of_repair),
		TEST(test_deaths_of_adoption),
		TEST(test_child_of_the_orphaned),
		TEST(test_living_mutator),
		TEST(test_mutator_as_a_target),
		TEST(test_deaths_in_a_family),
		TEST(test_numbers_like_addresses),
		TEST(test_process_in_the_same_memory),
		TEST(test_execution_before_it_is_taken_out),
		TEST(test_too_large_to_be_searched),
		TEST(test_killed_mutator_without_a_cpu),
	};

	return cmocka_run_group_tests_name("live/death_repair", tests, NULL, NULL);
}
