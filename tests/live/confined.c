/* SPDX-License-Identifier: MIT */
/*
 * confined.c - targets whose seccomp filters forbid each call that we make in
 * them, in each way that there is, from the beginning or from some moment on;
 * targets that may not make memory executable. With the right to suspend
 * filters all works and is exact; without it, nothing is tried, the reason is
 * told, and the target does not notice.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mutator/values.h"
#include "tests/live/harness_session.h"

enum { NOBODY = 65534, THREADS = 3, ROUNDS = 2000 };

#define USER "user=65534"

/* Inserts, counts exactly, inserts again, removes, and leaves nothing. `late`: taken on in between. */
static void work_on(struct harness *h, const char *late)
{
	struct session *s = session_begin(h);
	unsigned first = session_insert(s, "step"), second;

	session_go(h, ROUNDS);
	if (late) {
		harness_send(h, late);
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "taken");
	}
	second = session_insert(s, "/Code/confined/*");
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, first), 2ull * THREADS * ROUNDS);
	assert_true(session_value(s, second) >= 2ull * THREADS * ROUNDS);
	session_remove(s, first);
	session_flush_all(s);
	session_go(h, ROUNDS);
	session_end(s);
	harness_verify(h);
	session_go(h, ROUNDS);
	harness_end(h, 0);
}

static const char *const restrictions[] = {"errno", "kill", "trap",	   "notify",
					   "main",  "mdwe", "no-new-privs"};
enum { RESTRICTIONS = sizeof(restrictions) / sizeof(restrictions[0]) };

/*
 * fear A9, B8: filters that kill, fail, trap or never answer for mmap, mprotect, munmap, memfd_create
 * and madvise, and PR_SET_MDWE: as root all is inserted, counts exactly, and is gone again
 */
static void test_from_the_beginning(void **state)
{
	struct harness *h = *state;

	for (size_t i = 0; i < RESTRICTIONS; i++) {
		print_message("%s\n", restrictions[i]);
		harness_start(h, "confined", harness_number(THREADS), restrictions[i], NULL);
		work_on(h, NULL);
	}
}

/* fear A9, B8: the same, taken on by the target when it is instrumented already */
static void test_later(void **state)
{
	struct harness *h = *state;
	char command[64];

	for (size_t i = 0; i < RESTRICTIONS; i++) {
		if (!strcmp(restrictions[i], "notify"))
			continue; /* it brings a descriptor of its own */
		print_message("%s\n", restrictions[i]);
		snprintf(command, sizeof(command), "take %s\n", restrictions[i]);
		harness_start(h, "confined", harness_number(THREADS), NULL);
		work_on(h, command);
	}
}

/* ------------------------------------------------------- without privileges */

static char *text; /* what the mutator has to say, shared with it */

static void give_up(int status, const struct dinst_error *e, const char *what)
{
	snprintf(text, 1024, "%s: %.900s", what, e->text);
	_exit(status);
}

static void become_nobody(void)
{
	alarm(600);
	if (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY))
		_exit(8);
}

/* Runs `mutate` as an ordinary user, and fails with what it says. */
static void as_nobody(struct harness *h, void (*mutate)(pid_t pid, int tell, int hear),
		      const char *command)
{
	int to[2], from[2], status = 0;
	pid_t mutator;
	char byte;

	text = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(text != MAP_FAILED);
	assert_int_equal(pipe(to), 0);
	assert_int_equal(pipe(from), 0);
	fflush(NULL);
	mutator = fork();
	if (!mutator) {
		become_nobody();
		mutate(h->pid, from[1], to[0]);
		_exit(0);
	}
	close(from[1]);
	if (command && read(from[0], &byte, 1) == 1) {
		harness_send(h, command);
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "taken");
		session_go(h, ROUNDS);
		assert_int_equal(write(to[1], "g", 1), 1);
	}
	assert_int_equal(waitpid(mutator, &status, 0), mutator);
	if (status)
		fail_msg("the mutator ended with %x: %s", (unsigned)status, text);
	close(from[0]);
	close(to[0]);
	close(to[1]);
	munmap(text, 4096);
}

static bool says_no(pid_t pid, const char *check)
{
	struct target_check checks[40];
	size_t count = target_checks(pid, checks, 40);

	for (size_t i = 0; i < count; i++)
		if (!strcmp(checks[i].check, check))
			return !checks[i].ok && checks[i].fix[0];
	return false;
}

static void refused(pid_t pid, int tell, int hear)
{
	struct dinst_error e = {0};
	struct detach_result detached;
	struct session *s;
	unsigned id;
	size_t count;
	int status;

	(void)tell;
	(void)hear;
	if (session_attach(pid, "ordinary", &s, &e) < 0)
		give_up(3, &e, "attach");
	status = session_try_insert(s, "step", false, &count, &id, &e);
	if (status != DINST_REFUSED || !strstr(e.text, "seccomp filter") ||
	    !strstr(e.text, "CAP_SYS_ADMIN"))
		give_up(4, &e, "the filter is not named");
	if (!says_no(pid, "seccomp"))
		give_up(5, &e, "doctor does not name the filter");
	dinst_error_clear(&e);
	if (session_detach(s, 100, &detached, &e) < 0 || detached.left)
		give_up(6, &e, "detach");
}

/* fear A9: who may not suspend the filter tries nothing: insert is refused, doctor says so, it lives */
static void test_unprivileged(void **state)
{
	static const char *const filters[] = {"errno", "kill", "trap", "notify"};
	struct harness *h = *state;

	for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
		harness_start(h, "confined", harness_number(THREADS), USER, filters[i], NULL);
		as_nobody(h, refused, NULL);
		harness_verify(h);
		session_go(h, ROUNDS);
		harness_end(h, 0);
	}
}

static void insert_and_wait(pid_t pid, int tell, int hear, struct session **s)
{
	struct dinst_error e = {0};
	unsigned id;
	size_t count;
	char byte;

	if (session_attach(pid, "ordinary", s, &e) < 0 ||
	    session_try_insert(*s, "step", false, &count, &id, &e) < 0)
		give_up(3, &e, "insert");
	if (write(tell, "i", 1) != 1 || read(hear, &byte, 1) != 1)
		_exit(9);
	if (instance_value(session_instance(*s, id)) != (uint64_t)THREADS * ROUNDS)
		give_up(4, &e, "the count is wrong");
}

/* A thread without a filter does what we need. */
static void main_thread_filtered(pid_t pid, int tell, int hear)
{
	struct dinst_error e = {0};
	struct detach_result detached;
	struct session *s;

	insert_and_wait(pid, tell, hear, &s);
	if (session_detach(s, 100, &detached, &e) < 0 || detached.left)
		give_up(5, &e, "detach");
}

/* The code is the file's again, and what cannot be unmapped is told. */
static void all_filtered(pid_t pid, int tell, int hear)
{
	struct dinst_error e = {0};
	struct detach_result detached = {0};
	struct session *s;
	int status;

	insert_and_wait(pid, tell, hear, &s);
	status = session_detach(s, 1, &detached, &e);
	if (status >= 0 && !detached.left)
		give_up(5, &e, "the arena is said to be gone");
	if (!strstr(e.text, "seccomp filter"))
		give_up(6, &e, "the filter is not named");
}

/*
 * fear A9, J3: a filter that is installed while the target is instrumented, met without privileges:
 * the code is the file's again, what cannot be unmapped is told with the reason, and root takes it out
 */
static void test_unprivileged_later(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t = NULL;

	harness_start(h, "confined", harness_number(THREADS), USER, NULL);
	as_nobody(h, main_thread_filtered, "take main\n");
	harness_verify(h);
	harness_end(h, 0);
	harness_start(h, "confined", harness_number(THREADS), USER, NULL);
	as_nobody(h, all_filtered, "take kill\n");
	harness_verify_what(h, HARNESS_TEXT | HARNESS_ATTACHED);
	session_go(h, ROUNDS);
	if (target_open(h->pid, &t, &e) < 0 || leftovers_clean(t, 60000, &left, &e) < 0)
		fail_msg("%s", e.text);
	target_close(t);
	assert_int_equal(left.arenas_left, 0);
	harness_verify(h);
	session_go(h, ROUNDS);
	harness_end(h, 0);
}

static void denied(pid_t pid, int tell, int hear)
{
	struct dinst_error e = {0};
	struct session *s;

	(void)tell;
	(void)hear;
	if (session_attach(pid, "ordinary", &s, &e) != DINST_NOT_PERMITTED ||
	    !strstr(e.text, "not dumpable") || !says_no(pid, "dumpable"))
		give_up(3, &e, "an undumpable process");
}

/* fear A12: PR_SET_DUMPABLE 0, as its own user: named by attach and doctor; as root it works */
static void test_undumpable(void **state)
{
	struct harness *h = *state;

	harness_start(h, "confined", harness_number(THREADS), USER, "undumpable", NULL);
	as_nobody(h, denied, NULL);
	work_on(h, NULL);
}

/* ----------------------------------------------------------- children's filters */

static const char reading[] =
	"metric texts { name \"texts\"; units events; style EventCounter;\n"
	"	base is stream { foreach f in steps {\n"
	"		append preInsn f.entry (* record(texts, string($arg[0], 24)); *) } } }\n"
	"metric time { units ns; style EventCounter;\n"
	"	base is threadTimer { foreach f in steps {\n"
	"		append preInsn f.entry (* startThreadTimer(time); *)\n"
	"		prepend preInsn f.return (* stopThreadTimer(time); *) } } }\n"
	"list steps is procedure { items { \"step\" }; }\n";

static void told(void *arg, const struct instance *i, double percent)
{
	assert_non_null(i);
	assert_true(percent < 0);
	++*(int *)arg;
}

/* For a while in which somebody looks at it more than once. */
static void poll_for(struct session *s, unsigned ms, int *times)
{
	for (unsigned n = 0; n < ms / 50; n++) {
		usleep(50000);
		session_poll(s, told, times);
	}
}

/*
 * fear A9: a forked child takes on a filter of its own (a sandbox), under which what reads memory by a
 * system call would kill it: within a second that is switched off, for the children that come next
 */
static void test_child(void **state)
{
	struct harness *h = *state;
	struct insert_result result;
	struct dinst_error e = {0};
	const struct instance *i;
	struct session *s;
	int times = 0;

	if (!harness_has_clock(false))
		skip();
	harness_start(h, "confined", harness_number(THREADS), NULL);
	s = session_begin(h);
	if (session_load_mdl(s, "test.mdl", reading, strlen(reading), &e) < 0 ||
	    request_insert(s, "texts", NULL, 0, NULL, &result, &e) < 0)
		fail_msg("%s", e.text);
	i = result.instances[0];
	free(result.instances);
	harness_send(h, "child plain\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "taken");
	poll_for(s, 2500, &times);
	assert_int_equal(times, 0);
	harness_send(h, "child kill\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "taken");
	for (unsigned n = 0; n < 20 && !times; n++)
		poll_for(s, 500, &times);
	assert_int_equal(times, 1);
	assert_true(i->stopped);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

static void filtered_and_hidden(pid_t pid, int tell, int hear)
{
	struct insert_result result;
	struct dinst_error e = {0};
	struct session *s;
	int times = 0;
	char byte;

	if (session_attach(pid, "ordinary", &s, &e) < 0 ||
	    session_load_mdl(s, "test.mdl", reading, strlen(reading), &e) < 0 ||
	    request_insert(s, "texts", NULL, 0, NULL, &result, &e) < 0)
		give_up(3, &e, "insert");
	free(result.instances);
	if (write(tell, "i", 1) != 1 || read(hear, &byte, 1) != 1)
		_exit(9);
	for (unsigned n = 0; n < 20 && !times; n++)
		poll_for(s, 500, &times);
	if (times != 1)
		give_up(4, &e, "calls were not switched off");
	_exit(0);
}

/*
 * fear A9: a forked child takes on such a filter and makes itself undumpable, so that we may not look at
 * it: calls are switched off all the same
 */
static void test_hidden_child(void **state)
{
	struct harness *h = *state;

	if (!harness_has_clock(false))
		skip();
	harness_start(h, "confined", harness_number(THREADS), USER, NULL);
	as_nobody(h, filtered_and_hidden, "child hidden\n");
	harness_kill(h);
}

/* ------------------------------------------- filters that forbid what code of ours does */

static unsigned insert(struct session *s, const char *metric)
{
	struct insert_result result;
	struct dinst_error e = {0};
	unsigned id;

	if (request_insert(s, metric, NULL, 0, NULL, &result, &e) < 0)
		fail_msg("%s", e.text);
	id = result.instances[0]->id;
	free(result.instances);
	return id;
}

/* At step() memory is read by a system call, and the thread's CPU time by another. */
static struct session *read_and_time(struct harness *h, unsigned *time)
{
	struct dinst_error e = {0};
	struct session *s;

	if (!harness_has_clock(false))
		skip();
	harness_start(h, "confined", harness_number(THREADS), NULL);
	s = session_begin(h);
	if (session_load_mdl(s, "test.mdl", reading, strlen(reading), &e) < 0)
		fail_msg("%s", e.text);
	insert(s, "texts");
	*time = insert(s, "time");
	return s;
}

/* fear A9: two asked for the same, and the first has removed it: the other one is told that it is off */
static void test_shared(void **state)
{
	struct harness *h = *state;
	const struct instance *other;
	struct dinst_error e = {0};
	json_t *row = NULL;
	struct session *s;
	unsigned first, second;
	int times = 0;

	s = read_and_time(h, &first);
	second = insert(s, "time");
	other = session_instance(s, second);
	assert_non_null(other->source);
	session_remove(s, first);
	harness_send(h, "child kill\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "taken");
	for (unsigned n = 0; n < 20 && times < 2; n++)
		poll_for(s, 500, &times);
	assert_int_equal(times, 2);
	assert_true(other->stopped && other->source->stopped);
	/* It is told what for: its cost had no part in that. */
	if (values_row((struct instance *)other, false, &row, &e) < 0)
		fail_msg("%s", e.text);
	assert_true(json_is_true(json_object_get(row, "stopped")));
	assert_true(json_is_true(json_object_get(row, "forbidden")));
	json_decref(row);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

static void is_refused(struct session *s, const char *why)
{
	struct insert_result result;
	struct dinst_error e = {0};

	assert_true(request_insert(s, "time", NULL, 0, NULL, &result, &e) < 0);
	if (!strstr(e.text, why))
		fail_msg("%s", e.text);
}

static void ask(struct harness *h, const char *command, const char *answer)
{
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), answer);
}

/* Everybody runs on; what makes calls is switched off, and told, when somebody looks. */
static void goes_on(struct harness *h, struct session *s)
{
	int times = 0;

	session_go(h, ROUNDS);
	for (unsigned n = 0; n < 20 && times < 2; n++)
		poll_for(s, 500, &times);
	assert_int_equal(times, 2);
	session_go(h, ROUNDS);
}

static void ends(struct harness *h, struct session *s)
{
	session_end(s);
	harness_verify(h);
	session_go(h, ROUNDS);
	harness_end(h, 0);
}

/*
 * fear A9: forked children that take on a filter which kills for the system calls of inserted code,
 * and run through such code at once, before anybody can have looked at them: all of them live
 */
static void test_children_at_once(void **state)
{
	struct harness *h = *state;
	unsigned time;
	struct session *s = read_and_time(h, &time);

	ask(h, "children 100 calls\n", "died 0");
	ask(h, "children 100 calls-prctl\n", "died 0");
	session_go(h, ROUNDS);
	/* What the remedy is against, and what is not seen: a system call without the C library. */
	ask(h, "children 20 calls-raw\n", "died 20");
	assert_true(session_value(s, time) > 0);
	ends(h, s);
}

/*
 * fear A9: the same filter, taken on by the program itself, whose threads go on at once: it lives, what
 * makes calls is switched off when somebody looks, and does not go in again
 */
static void test_itself_at_once(void **state)
{
	static const char *const commands[] = {"take calls\n", "take calls-prctl\n"};
	struct harness *h = *state;

	for (unsigned i = 0; i < 2; i++) {
		unsigned time;
		struct session *s = read_and_time(h, &time);

		ask(h, commands[i], "taken");
		goes_on(h, s);
		is_refused(s, "runs under a seccomp filter");
		ends(h, s);
	}
}

/* fear A9: by a child that shares the program's memory (vfork): both live, and it is told */
static void test_vfork_at_once(void **state)
{
	struct harness *h = *state;
	unsigned time;
	struct session *s = read_and_time(h, &time);

	ask(h, "vfork 20 calls-prctl\n", "died 0");
	goes_on(h, s);
	is_refused(s, "not known to be done");
	ends(h, s);
}

/* fear A9: a filter that allows what inserted code does: told, and it works when it is inserted again */
static void test_harmless_filter(void **state)
{
	struct harness *h = *state;
	unsigned time, again;
	struct session *s = read_and_time(h, &time);

	ask(h, "take errno\n", "taken");
	goes_on(h, s);
	again = insert(s, "time");
	session_go(h, ROUNDS);
	assert_true(session_value(s, again) > 0);
	ends(h, s);
}

/*
 * fear A9: a filter is taken on, unseen, a moment after what makes calls was found to be allowed to: that is
 * asked again, and it is switched off
 */
static void test_taken_a_moment_later(void **state)
{
	struct harness *h = *state;
	unsigned time;
	struct session *s = read_and_time(h, &time);
	int times = 0;

	ask(h, "take calls-raw\n", "taken");
	session_poll(s, told, &times);
	assert_int_equal(times, 2);
	session_go(h, ROUNDS);
	ends(h, s);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_from_the_beginning),	 CASE(test_later),
		CASE(test_unprivileged),	 CASE(test_unprivileged_later),
		CASE(test_undumpable),		 CASE(test_child),
		CASE(test_children_at_once),	 CASE(test_itself_at_once),
		CASE(test_vfork_at_once),	 CASE(test_harmless_filter),
		CASE(test_hidden_child),	 CASE(test_shared),
		CASE(test_taken_a_moment_later),
	};

	if (geteuid()) {
		printf("live/confined: skipped: only root can be anybody\n");
		return 0;
	}
	return cmocka_run_group_tests_name("live/confined", tests, NULL, NULL);
}
