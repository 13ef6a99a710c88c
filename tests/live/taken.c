/* SPDX-License-Identifier: MIT */
/*
 * taken.c - two dinsts at one process that do not see each other: one of them is inside of the container in
 * which the process is, with a /proc of its own.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/live/harness_session.h"

enum { CLEAN_MS = 10000, INSIDE_S = 60 };

/* What a process inside of the container is to do, and what came of it. */
struct inside {
	int status;
	char text[DINST_ERROR_TEXT];
	size_t left;
	bool inserts, private; /* or it repairs */
	bool can, ready, leave;
};

static struct inside *inside;

static void begin_in_container(struct harness *h)
{
	const int ours = harness_container_begin();

	harness_start(h, "calls", "2", NULL);
	harness_container_end(ours);
	inside = mmap(NULL, sizeof(*inside), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	assert_ptr_not_equal(inside, MAP_FAILED);
}

/* In the container the target is the first process. */
static void repair_inside(void)
{
	struct dinst_error e = {0};
	struct leftovers left = {0};
	struct target *t;

	inside->status = target_open(1, &t, &e);
	if (inside->status >= 0) {
		inside->status = leftovers_clean(t, CLEAN_MS, &left, &e);
		target_close(t);
	}
	inside->left = left.arenas_left;
	snprintf(inside->text, sizeof(inside->text), "%s", e.text);
}

static void insert_inside(void)
{
	struct dinst_error e = {0};
	struct session *s;
	size_t count;
	unsigned id;

	inside->status = session_attach(1, "inside", &s, &e);
	if (inside->status >= 0) {
		s->private_arenas = inside->private;
		inside->status = session_try_insert(s, "tiny", false, &count, &id, &e);
	}
	snprintf(inside->text, sizeof(inside->text), "%s", e.text);
}

/* It says that it is ready, and ends, without a word, when it is told to. */
static void be_inside(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(INSIDE_S);
	inside->can = !unshare(CLONE_NEWNS) &&
		      !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
		      !mount("proc", "/proc", "proc", 0, NULL);
	if (inside->can && inside->inserts)
		insert_inside();
	else if (inside->can)
		repair_inside();
	__atomic_store_n(&inside->ready, true, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&inside->leave, __ATOMIC_SEQ_CST))
		usleep(1000);
	_exit(0);
}

/* Returns it: to be told to leave, and waited for. */
static pid_t start_inside(struct harness *h)
{
	const int ours = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
	char path[40];
	pid_t pid;
	int theirs;

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)h->pid);
	theirs = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(setns(theirs, CLONE_NEWPID), 0);
	pid = fork();
	if (!pid)
		be_inside();
	assert_int_equal(setns(ours, CLONE_NEWPID), 0);
	close(theirs);
	close(ours);
	assert_true(pid > 0);
	harness_until(__atomic_load_n(&inside->ready, __ATOMIC_SEQ_CST));
	if (!inside->can) {
		print_message("SKIP: no mounts of our own\n");
		skip();
	}
	return pid;
}

static void end_inside(pid_t pid)
{
	__atomic_store_n(&inside->leave, true, __ATOMIC_SEQ_CST);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	inside->ready = inside->leave = false;
}

static void end(struct harness *h)
{
	munmap(inside, sizeof(*inside));
	harness_verify(h);
	harness_end(h, 0);
}

/* fear J6, I1: a repair inside of the container takes nothing from a session outside, which it does not see */
static void test_repair_inside(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned id;

	begin_in_container(h);
	s = session_begin(h);
	id = session_insert(s, "tiny");
	end_inside(start_inside(h));
	assert_int_equal(inside->status, DINST_BUSY);
	assert_non_null(strstr(inside->text, "outside of the container"));
	session_go(h, 100);
	assert_int_equal(session_value(s, id), 100 * 2);
	session_end(s);
	/* Nothing is left: nobody is in the way of one inside. */
	end_inside(start_inside(h));
	assert_int_equal(inside->status, 0);
	end(h);
}

static int clean_outside(struct harness *h, struct leftovers *left, struct dinst_error *e)
{
	struct target *t;
	int status;

	dinst_error_clear(e);
	assert_int_equal(target_open(h->pid, &t, e), 0);
	status = leftovers_clean(t, CLEAN_MS, left, e);
	target_close(t);
	return status;
}

static void run_outside(struct harness *h, bool private)
{
	struct leftovers left = {0};
	struct dinst_error e = {0};
	char name[40];
	pid_t pid;

	begin_in_container(h);
	inside->inserts = true;
	inside->private = private;
	pid = start_inside(h);
	if (inside->status < 0)
		fail_msg("inside: %s", inside->text);
	session_go(h, 100);
	assert_int_equal(clean_outside(h, &left, &e), DINST_BUSY);
	snprintf(name, sizeof(name), "by process %d, session inside;", (int)pid);
	assert_non_null(strstr(e.text, name));
	end_inside(pid);
	if (clean_outside(h, &left, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(left.arenas_left, 0);
	assert_true(left.restored > 0);
	session_go(h, 100);
	end(h);
}

/* fear J6, I1: one outside sees a session inside, and takes out what that leaves when it dies */
static void test_repair_outside(void **state)
{
	run_outside(*state, false);
}

/* fear J6, I1: the same where only the header of a private arena says who made it */
static void test_repair_private_outside(void **state)
{
	run_outside(*state, true);
}

/*
 * fear J6, I1: what a session has inserted is taken out behind its back, as by an older dinst or by the program:
 * it leads nobody there any more, says so, and goes in order
 */
static void run_taken(struct harness *h, bool private)
{
	struct leftovers left = {0};
	struct dinst_error e = {0};
	struct session *s;
	unsigned id, other;
	size_t count;

	harness_start(h, "calls", "2", NULL);
	s = session_begin(h);
	s->private_arenas = private;
	id = session_insert(s, "tiny");
	session_go(h, 100);
	assert_int_equal(session_value(s, id), 100 * 2);
	target_unclaim(s->target);
	/* Of us it is no question who has it. */
	if (clean_outside(h, &left, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(left.arenas_left, 0);
	assert_int_equal(session_try_insert(s, "main", false, &count, &other, &e), DINST_GONE);
	assert_non_null(strstr(e.text, "taken out by somebody else"));
	assert_int_equal(s->state, SESSION_TAKEN);
	session_go(h, 100);
	assert_int_equal(session_value(s, id), 100 * 2);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

static void test_taken(void **state)
{
	run_taken(*state, false);
}

static void test_private_taken(void **state)
{
	run_taken(*state, true);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_repair_inside), CASE(test_repair_outside),
					   CASE(test_repair_private_outside), CASE(test_taken),
					   CASE(test_private_taken)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
