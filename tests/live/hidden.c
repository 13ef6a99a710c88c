/* SPDX-License-Identifier: MIT */
/*
 * hidden.c - without privileges: a forked child that made itself undumpable
 * cannot be looked at, and may run through our code. Nothing of it is freed
 * until it has ended.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mutator/variable.h"
#include "tests/live/harness_session.h"

enum { NOBODY = 65534 };

static char *text; /* what the mutator has to say, shared with it */

static void give_up(int status, const struct dinst_error *e, const char *what)
{
	snprintf(text, 1024, "%s: %.900s", what, e->text);
	_exit(status);
}

static void wait_for(int byte_from)
{
	char byte;

	if (read(byte_from, &byte, 1) != 1)
		_exit(9);
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
	if (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY))
		_exit(8);
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
	harness_start(h, "hidden", harness_number(NOBODY), NULL);
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

/* fear A12, J1: a forked child that may not be looked at: nothing that it may run through is freed */
static void test_hidden_child(void **state)
{
	struct harness *h = *state;
	unsigned long hits, now;
	struct mutator m;
	char byte;

	begin(h, mutate, &m);
	if (read(m.from[0], &byte, 1) == 1) {
		harness_send(h, "linger\n");
		assert_int_equal(strncmp(harness_line(h, HARNESS_ANSWER_MS), "child ", 6), 0);
		usleep(20000);
		assert_int_equal(write(m.to[1], "g", 1), 1);
	}
	if (read(m.from[0], &byte, 1) == 1) {
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
		assert_int_equal(write(m.to[1], "g", 1), 1);
	}
	wait_for_mutator(&m);
	harness_verify(h);
	harness_end(h, 0);
	end(&m);
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
	if (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY))
		_exit(8);
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
		cmocka_unit_test_setup_teardown(test_hidden_for_a_while, harness_setup,
						harness_teardown),
	};

	if (geteuid()) {
		printf("live/hidden: skipped: only root can start a program of another user\n");
		return 0;
	}
	return cmocka_run_group_tests_name("live/hidden", tests, NULL, NULL);
}
