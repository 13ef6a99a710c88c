/* SPDX-License-Identifier: MIT */
/*
 * hidden.c - without privileges: a forked child that made itself undumpable, or another user's, cannot
 * be looked at, and may run through our code. Nothing of it is freed until it has ended. Other processes
 * that may not be looked at either do not matter.
 */
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mutator/variable.h"
#include "tests/live/harness_session.h"

enum { NOBODY = 65534, TEXT = 1024 };

static char *text; /* what the mutator has to say, shared with it */

static void give_up(int status, const struct dinst_error *e, const char *what)
{
	snprintf(text, TEXT, "%s: %.900s", what, e->text);
	_exit(status);
}

static void wait_for(int byte_from)
{
	char byte;

	if (read(byte_from, &byte, 1) != 1)
		_exit(9);
}

/* What the mutator and the child are like. */
struct setting {
	const char *proc;  /* how the mutator's /proc is mounted; NULL: as ours */
	const char *child; /* the target's command */
	uid_t user;
};

static struct setting setting;

static void become(uid_t user)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2] = {{0}};

	if (user) {
		if (setresgid(user, user, user) || setresuid(user, user, user))
			_exit(8);
		return;
	}
	/* As root in a container: with the right to change the user, and few others. */
	data[0].effective = data[0].permitted = 1u << CAP_SETUID | 1u << CAP_SETGID;
	if (syscall(SYS_capset, &header, data))
		_exit(8);
}

/*
 * Somebody else's process of the same user that may not be looked at either, has executed nothing, as
 * an agent does that goes into the background, and ends with us.
 */
static pid_t make_stranger(void)
{
	int ready[2];
	pid_t pid;
	char byte;

	assert_int_equal(pipe(ready), 0);
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		become(setting.user ? setting.user : NOBODY);
		/* The target's end of input is not kept from it. */
		if (prctl(PR_SET_NAME, "agent") || prctl(PR_SET_DUMPABLE, 0) ||
		    dup2(ready[1], STDIN_FILENO) || close_range(3, ~0u, 0) ||
		    write(STDIN_FILENO, "r", 1) != 1)
			_exit(1);
		alarm(600);
		for (;;)
			pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

static void end_stranger(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* In a mount namespace that ends with us. */
static void hide_others(void)
{
	if (setting.proc &&
	    (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	     mount("proc", "/proc", "proc", 0, setting.proc)))
		_exit(12);
}

/* As an ordinary user: insert; the child is made; remove, reuse, detach; the child ends; detach. */
static void mutate(pid_t pid, int tell, int hear)
{
	struct dinst_error e = {0};
	struct detach_result detached;
	struct flush_result flush;
	struct session *s;
	unsigned id;
	int status;

	alarm(600);
	hide_others();
	become(setting.user);
	if (session_attach(pid, "ordinary", &s, &e) < 0 ||
	    session_insert_patiently(s, "hit", &id, &e) < 0)
		give_up(3, &e, "insert");
	if (write(tell, "i", 1) != 1)
		_exit(9);
	wait_for(hear);
	if (removal_remove(s, session_instance(s, id), &flush, &e) < 0)
		give_up(4, &e, "remove");
	do {
		dinst_error_clear(&e);
		status = removal_flush(s, &flush, &e);
	} while (status == DINST_BUSY);
	if (status >= 0 || e.code != DINST_NOT_PERMITTED || !s->queue_length)
		give_up(5, &e, "a flush freed what a hidden child may run through");
	snprintf(text, TEXT, "%.900s", e.text);
	dinst_error_clear(&e);
	if (session_insert_patiently(s, "other", &id, &e) < 0)
		give_up(6, &e, "insert again");
	dinst_error_clear(&e);
	session_detach(s, 1, &detached, &e);
	if (!detached.left)
		give_up(7, &e, "detach left a hidden child without its trampolines");
	if (write(tell, "d", 1) != 1)
		_exit(9);
	wait_for(hear);
	dinst_error_clear(&e);
	if (session_detach(s, 100, &detached, &e) < 0 || detached.left)
		give_up(10, &e, "detach when the child has ended");
	_exit(0);
}

/* A process of an ordinary user that works on the target, and the pipes by which they take turns. */
struct mutator {
	int to[2], from[2];
	pid_t pid;
};

static void begin(struct harness *h, void (*work)(pid_t pid, int tell, int hear), struct mutator *m)
{
	text = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(text != MAP_FAILED);
	harness_start(h, "hidden", harness_number(setting.user), NULL);
	assert_int_equal(pipe(m->to), 0);
	assert_int_equal(pipe(m->from), 0);
	fflush(NULL);
	m->pid = fork();
	if (m->pid == 0)
		work(h->pid, m->from[1], m->to[0]);
	close(m->from[1]);
}

static void wait_for_mutator(const struct mutator *m)
{
	int status = 0;

	assert_int_equal(waitpid(m->pid, &status, 0), m->pid);
	if (status)
		fail_msg("the mutator ended with %x: %s", (unsigned)status, text);
}

static void end(const struct mutator *m)
{
	close(m->from[0]);
	close(m->to[0]);
	close(m->to[1]);
	munmap(text, 4096);
}

/* The child runs through what was inserted, and nothing of it goes before the child has. */
static void check_child(struct harness *h, const struct setting *how)
{
	pid_t before, after = 0, child = 0;
	unsigned long hits, now;
	const char *line;
	struct mutator m;
	char byte, named[128];

	setting = *how;
	before = make_stranger();
	begin(h, mutate, &m);
	if (read(m.from[0], &byte, 1) == 1) {
		/* Where /proc tells nothing of it, whoever comes later may be a child. */
		if (!setting.proc)
			after = make_stranger();
		harness_send(h, setting.child);
		line = harness_line(h, HARNESS_ANSWER_MS);
		assert_int_equal(strncmp(line, "child ", 6), 0);
		child = (pid_t)strtol(line + 6, NULL, 10);
		usleep(20000);
		assert_int_equal(write(m.to[1], "g", 1), 1);
	}
	if (read(m.from[0], &byte, 1) == 1) {
		/* Which one is in the way, and whose it is. */
		snprintf(named, sizeof(named),
			 "process %d was forked from %d, it seems, and may not be looked at",
			 (int)child, (int)h->pid);
		if (!strstr(text, named))
			fail_msg("not '%s', but '%s'", named, text);
		harness_send(h, "count\n");
		hits = now = strtoul(harness_line(h, HARNESS_ANSWER_MS), NULL, 10);
		/* It may have to wait long for a CPU. */
		for (int i = 0; i < 1000 && now <= hits; i++) {
			usleep(20000);
			harness_send(h, "count\n");
			now = strtoul(harness_line(h, HARNESS_ANSWER_MS), NULL, 10);
		}
		assert_true(now > hits);
		harness_send(h, "unlinger\n");
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ended 7");
		/* An orphan is ours, and is gone when we have waited for it. */
		waitpid(child, NULL, 0);
		assert_int_equal(write(m.to[1], "g", 1), 1);
	}
	wait_for_mutator(&m);
	harness_verify(h);
	harness_end(h, 0);
	end(&m);
	end_stranger(before);
	if (after)
		end_stranger(after);
}

/* fear A12, J1: a forked child that may not be looked at: nothing that it may run through is freed */
static void test_hidden_child(void **state)
{
	check_child(*state, &(struct setting){NULL, "linger\n", NOBODY});
}

/* fear A12, J1: the same of a child whose parent has ended, that is in another session and has another name */
static void test_hidden_orphan(void **state)
{
	check_child(*state, &(struct setting){NULL, "orphan\n", NOBODY});
}

/* fear A12, J1: the same where /proc keeps what it knows of the child (hidepid=1) */
static void test_child_of_unknown_origin(void **state)
{
	check_child(*state, &(struct setting){"hidepid=1", "orphan\n", NOBODY});
}

/* fear A12, J1: the same where /proc does not list the child (hidepid=2) */
static void test_unlisted_child(void **state)
{
	check_child(*state, &(struct setting){"hidepid=2", "orphan\n", NOBODY});
}

/* fear A12, I2, J1: root in a container, without CAP_SYS_PTRACE: a worker that has become another user */
static void test_worker_of_another_user(void **state)
{
	check_child(*state, &(struct setting){NULL, "user\n", 0});
}

/* ------------------------------------------------- the target itself, for a while */

static const char timing[] =
	"metric time { name \"time\"; units ns; style EventCounter;\n"
	"	base is wallTimer { foreach f in holders {\n"
	"		append preInsn f.entry (* startWallTimer(time); *)\n"
	"		prepend preInsn f.return (* stopWallTimer(time); *) } } }\n"
	"list holders is procedure { items { \"held\" }; }\n";

static int64_t value_of(const struct instance *i)
{
	struct dinst_error e = {0};
	struct variable_value value;

	if (instance_read(i, 0, &value, &e) < 0)
		give_up(11, &e, "a value");
	variable_value_release(&value);
	return value.value;
}

/* A timer runs when the target becomes undumpable: it keeps its value, and goes on afterwards. */
static void measure(pid_t pid, int tell, int hear)
{
	struct insert_result result;
	struct dinst_error e = {0};
	struct detach_result detached;
	struct session *s;
	int64_t seen, hidden;

	alarm(600);
	hide_others();
	become(setting.user);
	if (session_attach(pid, "ordinary", &s, &e) < 0 ||
	    session_load_mdl(s, "test.mdl", timing, strlen(timing), &e) < 0 ||
	    request_insert(s, "time", NULL, 0, NULL, &result, &e) < 0)
		give_up(3, &e, "insert");
	if (write(tell, "i", 1) != 1)
		_exit(9);
	wait_for(hear);
	for (int i = 0; (seen = value_of(result.instances[0])) <= 0 && i < 60000; i++)
		usleep(1000);
	if (seen <= 0)
		give_up(4, &e, "the timer does not run");
	if (write(tell, "r", 1) != 1)
		_exit(9);
	wait_for(hear);
	hidden = value_of(result.instances[0]);
	if (hidden != seen)
		give_up(5, &e, "the value of a hidden target has changed");
	if (write(tell, "h", 1) != 1)
		_exit(9);
	wait_for(hear);
	if (value_of(result.instances[0]) <= seen)
		give_up(6, &e, "it does not go on");
	free(result.instances);
	if (session_detach(s, 100, &detached, &e) < 0 || detached.left)
		give_up(10, &e, "detach");
	_exit(0);
}

/* fear A12: the target may not be looked at for a while: what was measured stays */
static void test_hidden_for_a_while(void **state)
{
	static const char *const steps[] = {"stay\n", "hide\n", "show\n"};
	struct harness *h = *state;
	struct mutator m;
	char byte;

	setting = (struct setting){.user = NOBODY};
	begin(h, measure, &m);
	for (size_t k = 0; k < 3 && read(m.from[0], &byte, 1) == 1; k++) {
		harness_send(h, steps[k]);
		if (k)
			assert_int_equal(strncmp(harness_line(h, HARNESS_ANSWER_MS), steps[k], 4),
					 0);
		assert_int_equal(write(m.to[1], "g", 1), 1);
	}
	wait_for_mutator(&m);
	harness_send(h, "leave\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "leave");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "left");
	harness_verify(h);
	harness_end(h, 0);
	end(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_hidden_child, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_hidden_orphan, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_child_of_unknown_origin, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_unlisted_child, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_worker_of_another_user, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_hidden_for_a_while, harness_setup,
						harness_teardown),
	};

	if (geteuid()) {
		printf("live/hidden: skipped: only root can start a program of another user\n");
		return 0;
	}
	if (prctl(PR_SET_CHILD_SUBREAPER, 1))
		return 1;
	return cmocka_run_group_tests_name("live/hidden", tests, NULL, NULL);
}
