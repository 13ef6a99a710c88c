/* SPDX-License-Identifier: MIT */
/*
 * library.c - libdinst, as a program uses it: sessions, exact values, distributions, events, what
 * fails and how it is told, interrupts, and that what is held ends with the connection.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "lib/dinst.h"
#include "tests/live/daemon_calls.h"
#include "tests/live/harness_session.h"

static struct dinst_failure f;
static struct program p;
static char by_pid[16]; /* others may run the same program */

/* A call that has to work. */
#define works(call) works_at((call), #call)

static void works_at(int err, const char *what)
{
	if (err)
		fail_msg("%s: %d %s", what, err, f.text);
}

static int setup(void **state)
{
	int err = fixture_setup(state);

	unsetenv("DINST_MUTATOR");
	setenv("DINST_DAEMON", fixture_dinstd, 1);
	start_calls(&p);
	snprintf(by_pid, sizeof(by_pid), "%d", (int)p.pid);
	return err;
}

static int teardown(void **state)
{
	end_calls(&p);
	return fixture_teardown(state);
}

static struct dinst *opened(void)
{
	struct dinst *d = NULL;

	works(dinst_open(&d, NULL, DINST_START, &f));
	return d;
}

static uint64_t sessions(void)
{
	json_t *answer = ask("sessions", "{}");
	size_t count = json_array_size(json_object_get(json_object_get(answer, "result"), "rows"));

	json_decref(answer);
	return count;
}

static void none_runs(void **state)
{
	struct dinst *d = NULL;

	(void)state;
	assert_int_equal(dinst_open(&d, NULL, 0, &f), DINST_E_DAEMON);
	assert_int_equal(f.code, DINST_E_DAEMON);
	assert_true(f.text[0] != '\0');
	assert_string_equal(dinst_word(f.code), "daemon");
	assert_null(d);
	assert_int_equal(dinst_open(&d, "/nowhere/at.all", 0, NULL), DINST_E_DAEMON);
	dinst_close(NULL);
}

static const struct dinst_value *value_of(const struct dinst_values *v, const char *focus)
{
	for (size_t i = 0; i < v->count; i++)
		if (strcmp(v->row[i]->focus, focus) == 0)
			return v->row[i];
	fail_msg("no row with focus %s", focus);
	return NULL;
}

static void counts_are_exact(void **state)
{
	const char *const foci[] = {"/Code/calls/many", "/Code/calls/work", NULL};
	struct dinst_instances *in = NULL;
	struct dinst_session *s = NULL;
	struct dinst_values *v = NULL;
	struct dinst *d = opened();
	char target[16];
	uint64_t left = 9;

	(void)state;
	snprintf(target, sizeof(target), "%d", (int)p.pid);
	works(dinst_attach(d, target, "counted", 0, &s, &f));
	assert_string_equal(s->name, "counted");
	assert_int_equal(s->pid, p.pid);
	assert_true(s->functions > 10 && s->modules >= 2 && !s->joined);
	works(dinst_insert(d, s->name, "calls", foci, DINST_EACH, 0, &in, &f));
	assert_int_equal(in->count, 2);
	assert_string_equal(in->row[0]->metric, "calls");
	assert_true(in->row[0]->points >= 1 && in->row[0]->id > 0);
	assert_false(in->partial);
	go(&p, 1000);
	works(dinst_read(d, NULL, NULL, 0, &v, &f));
	assert_int_equal(v->count, 2);
	assert_true(value_of(v, "/Code/calls/many")->value == 2000);
	assert_true(value_of(v, "/Code/calls/work")->value == 2);
	assert_string_equal(v->row[0]->unit, "calls");
	assert_null(v->row[0]->distribution);
	assert_false(v->row[0]->is_level);
	dinst_values_free(v);
	works(dinst_remove(d, s->name, &in->row[0]->id, 1, &f));
	works(dinst_read(d, NULL, NULL, 0, &v, &f));
	assert_int_equal(v->count, 1);
	dinst_values_free(v);
	works(dinst_remove(d, s->name, NULL, 0, &f));
	dinst_instances_free(in);
	works(dinst_detach(d, "counted", &left, &f));
	assert_int_equal(left, 0);
	dinst_session_free(s);
	dinst_close(d);
	go(&p, 10);
}

static void distributions(void **state)
{
	const char *const foci[] = {"/Code/calls/many", NULL};
	const struct dinst_distribution *x;
	struct dinst_values *v = NULL;
	struct dinst *d = opened();
	uint64_t total = 0;

	(void)state;
	works(dinst_attach(d, by_pid, NULL, 0, NULL, &f));
	works(dinst_insert(d, NULL, "latency", foci, 0, 50, NULL, &f));
	go(&p, 500);
	works(dinst_read(d, NULL, NULL, 0, &v, &f));
	assert_int_equal(v->count, 1);
	x = v->row[0]->distribution;
	assert_non_null(x);
	assert_int_equal(x->count, 1000);
	for (size_t i = 0; i < x->bucket_count; i++) {
		assert_true(x->buckets[i].low < x->buckets[i].high);
		total += x->buckets[i].count;
	}
	assert_int_equal(total, 1000);
	assert_true(x->min <= x->p50 && x->p50 <= x->p99 && x->p99 <= x->max * 33 / 32);
	dinst_values_free(v);
	works(dinst_detach(d, NULL, NULL, &f));
	dinst_close(d);
}

/* Each failure has its code and a text, and the connection goes on. */
static void failures(void **state)
{
	const char *const nobody[] = {"/Code/calls/no_such_function", NULL};
	struct dinst *d = opened();
	char *result = NULL;

	(void)state;
	assert_int_equal(dinst_attach(d, "no-such-process-here", NULL, 0, NULL, &f),
			 DINST_E_NO_PROCESS);
	assert_int_equal(dinst_insert(d, "calls", "calls", NULL, 0, 0, NULL, &f),
			 DINST_E_NO_SESSION);
	works(dinst_attach(d, by_pid, NULL, 0, NULL, &f));
	assert_int_equal(dinst_insert(d, NULL, "no_such_metric", NULL, 0, 0, NULL, &f),
			 DINST_E_NO_METRIC);
	assert_int_equal(dinst_insert(d, NULL, "calls", nobody, 0, 0, NULL, &f),
			 DINST_E_NO_FUNCTION);
	assert_non_null(strstr(f.text, "no_such_function"));
	assert_int_equal(dinst_load(d, NULL, "mine.mdl", "metric {", &f), DINST_E_USAGE);
	assert_non_null(strstr(f.text, "mine.mdl"));
	assert_int_equal(dinst_call(d, "no-such-method", NULL, &result, &f), DINST_E_PROTOCOL);
	assert_int_equal(dinst_call(d, "ping", "not JSON", &result, &f), DINST_E_PROTOCOL);
	assert_int_equal(dinst_call(d, "ping", "[1]", &result, &f), DINST_E_USAGE);
	assert_null(result);
	works(dinst_call(d, "ping", NULL, &result, &f));
	assert_non_null(strstr(result, "\"sessions\":1"));
	dinst_free(result);
	works(dinst_detach(d, NULL, NULL, &f));
	dinst_close(d);
}

/* NULL where something must be given is an error, and changes nothing. */
static void nothing_given(void **state)
{
	const uint64_t id = 1;
	struct dinst_values *values = NULL;
	struct dinst_instances *instances = NULL;
	struct dinst *d = opened();
	char *result = NULL;

	(void)state;
	works(dinst_attach(d, by_pid, NULL, 0, NULL, &f));
	works(dinst_insert(d, NULL, "calls", NULL, 0, 0, NULL, &f));
	assert_int_equal(dinst_open(NULL, NULL, 0, &f), DINST_E_USAGE);
	assert_int_equal(dinst_attach(d, NULL, NULL, 0, NULL, &f), DINST_E_USAGE);
	assert_int_equal(dinst_attach(NULL, by_pid, NULL, 0, NULL, &f), DINST_E_USAGE);
	assert_int_equal(dinst_load(d, NULL, NULL, "", &f), DINST_E_USAGE);
	assert_int_equal(dinst_load(d, NULL, "x.mdl", NULL, &f), DINST_E_USAGE);
	assert_int_equal(dinst_insert(d, NULL, NULL, NULL, 0, 0, NULL, &f), DINST_E_USAGE);
	assert_int_equal(dinst_insert(NULL, NULL, "calls", NULL, 0, 0, &instances, &f),
			 DINST_E_USAGE);
	assert_int_equal(dinst_remove(d, NULL, NULL, 1, &f), DINST_E_USAGE);
	assert_int_equal(dinst_read(d, NULL, NULL, 0, NULL, &f), DINST_E_USAGE);
	assert_int_equal(dinst_read(d, NULL, NULL, 1, &values, &f), DINST_E_USAGE);
	assert_int_equal(dinst_watch(d, NULL, NULL, 0, 1, NULL, NULL, &f), DINST_E_USAGE);
	assert_int_equal(dinst_events(d, NULL, &id, 1, NULL, NULL, NULL, &f), DINST_E_USAGE);
	assert_int_equal(dinst_call(d, NULL, NULL, &result, &f), DINST_E_USAGE);
	assert_int_equal(dinst_call(d, "ping", NULL, NULL, &f), DINST_E_USAGE);
	assert_int_equal(dinst_detach(NULL, NULL, NULL, NULL), DINST_E_USAGE);
	dinst_interrupt(NULL);
	dinst_on_notice(NULL, NULL, NULL);
	works(dinst_read(d, NULL, NULL, 0, &values, &f));
	assert_int_equal(values->count, 1);
	dinst_values_free(values);
	works(dinst_detach(d, NULL, NULL, &f));
	dinst_close(d);
}

static int watch_three(void *arg, const struct dinst_values *now, const struct dinst_values *before)
{
	int *seen = arg;

	assert_true((*seen == 0) == (before == NULL));
	assert_true(!before || now->time_ns > before->time_ns);
	return ++*seen == 3;
}

static int watch_for_ever(void *arg, const struct dinst_values *now,
			  const struct dinst_values *before)
{
	(void)now;
	(void)before;
	*(atomic_int *)arg = 1;
	return 0;
}

static atomic_int watched;

static void *interrupt(void *d)
{
	while (watched != 1)
		nap_ms(10);
	dinst_interrupt(d);
	return NULL;
}

static void watching(void **state)
{
	struct dinst *d = opened();
	int seen = 0;
	pthread_t t;

	(void)state;
	watched = 0;
	works(dinst_attach(d, by_pid, NULL, 0, NULL, &f));
	works(dinst_insert(d, NULL, "calls", (const char *const[]){"/Code/calls/many", NULL}, 0, 0,
			   NULL, &f));
	works(dinst_watch(d, NULL, NULL, 0, 10000000, watch_three, &seen, &f));
	assert_int_equal(seen, 3);
	assert_int_equal(pthread_create(&t, NULL, interrupt, d), 0);
	works(dinst_watch(d, NULL, NULL, 0, 3600ULL * 1000000000, watch_for_ever, (void *)&watched,
			  &f));
	pthread_join(t, NULL);
	works(dinst_detach(d, NULL, NULL, &f));
	dinst_close(d);
}

/* Whatever the watch does at the moment: it ends, and that is no failure. */
static void interrupting(void **state)
{
	struct dinst *d = opened();

	(void)state;
	works(dinst_attach(d, by_pid, NULL, 0, NULL, &f));
	works(dinst_insert(d, NULL, "calls", (const char *const[]){"/Code/calls/many", NULL}, 0, 0,
			   NULL, &f));
	for (int round = 0; round < 40; round++) {
		struct dinst *w = opened();
		pthread_t t;

		watched = 0;
		assert_int_equal(pthread_create(&t, NULL, interrupt, w), 0);
		works(dinst_watch(w, NULL, NULL, 0, 0, watch_for_ever, (void *)&watched, &f));
		pthread_join(t, NULL);
		dinst_close(w);
	}
	works(dinst_detach(d, NULL, NULL, &f));
	dinst_close(d);
}

/* Two connections in two threads, each with a session of its own request. */
static void *read_often(void *arg)
{
	struct dinst *d = NULL;
	int *bad = arg;

	if (dinst_open(&d, NULL, 0, NULL) != 0)
		*bad = 1;
	for (int i = 0; d && i < 50 && !*bad; i++) {
		struct dinst_values *v = NULL;

		*bad = dinst_read(d, "calls", NULL, 0, &v, NULL) != 0 || v->count != 1;
		dinst_values_free(v);
	}
	dinst_close(d);
	return NULL;
}

static void threads(void **state)
{
	struct dinst *d = opened();
	int bad[4] = {0, 0, 0, 0};
	pthread_t t[4];

	(void)state;
	works(dinst_attach(d, by_pid, NULL, 0, NULL, &f));
	works(dinst_insert(d, NULL, "calls", (const char *const[]){"/Code/calls/many", NULL}, 0, 0,
			   NULL, &f));
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, read_often, &bad[i]), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(bad[i], 0);
	}
	works(dinst_detach(d, NULL, NULL, &f));
	dinst_close(d);
}

/* What is held goes when its connection does, the session with it. */
static void held(void **state)
{
	struct dinst *d = opened();

	(void)state;
	works(dinst_attach(d, by_pid, NULL, DINST_HOLD, NULL, &f));
	works(dinst_insert(d, NULL, "calls", (const char *const[]){"/Code/calls/many", NULL},
			   DINST_HOLD, 0, NULL, &f));
	assert_int_equal(sessions(), 1);
	dinst_close(d);
	for (int i = 0; i < 1000 && sessions(); i++)
		nap_ms(10);
	assert_int_equal(sessions(), 0);
	go(&p, 10);
}

static int count_event(void *arg, const struct dinst_event *e)
{
	uint64_t *seen = arg;

	assert_string_equal(e->function, "many");
	assert_string_equal(e->module, "calls");
	assert_true(e->ns > 0 && e->tid > 0);
	if (strcmp(e->what, "entry") == 0) {
		seen[0]++;
	} else {
		assert_string_equal(e->what, "return");
		seen[1]++;
	}
	return 0;
}

static void events(void **state)
{
	const char *const functions[] = {"many", NULL};
	uint64_t seen[2] = {0, 0}, dropped = 0;
	struct dinst *d = opened();

	(void)state;
	if (!harness_has_clock(false)) {
		dinst_close(d);
		skip();
	}
	works(dinst_attach(d, by_pid, NULL, DINST_HOLD, NULL, &f));
	works(dinst_trace(d, NULL, functions, DINST_ARGUMENTS | DINST_RETURNS | DINST_HOLD, NULL,
			  &f));
	go(&p, 50);
	for (int i = 0; i < 500 && (seen[0] < 100 || seen[1] < 100); i++) {
		works(dinst_events(d, NULL, NULL, 0, count_event, seen, &dropped, &f));
		nap_ms(10);
	}
	assert_int_equal(seen[0], 100);
	assert_int_equal(seen[1], 100);
	assert_int_equal(dropped, 0);
	works(dinst_detach(d, NULL, NULL, &f));
	dinst_close(d);
}

struct names {
	const char *expected;
	unsigned seen;
};

static int is_expected(void *arg, const struct dinst_event *e)
{
	struct names *n = arg;

	assert_string_equal(e->function, n->expected);
	n->seen += strcmp(e->what, "entry") == 0;
	return 0;
}

/* Two threads call it once, and nothing else is told. */
static void expect_events(struct dinst *d, const char *session, struct program *there,
			  const char *function)
{
	struct names n = {function, 0};

	go(there, 1);
	for (int i = 0; i < 500 && n.seen < 2; i++) {
		works(dinst_events(d, session, NULL, 0, is_expected, &n, NULL, &f));
		nap_ms(10);
	}
	assert_int_equal(n.seen, 2);
}

/* Each mutator numbers its kinds of events from 1: those of another one are not taken for them. */
static void kinds_of_sessions(void **state)
{
	const char *const many[] = {"many", NULL}, *const work[] = {"work", NULL};
	struct dinst *d = opened();
	char other[16];
	struct program q;
	pid_t killed;

	(void)state;
	if (!harness_has_clock(false)) {
		dinst_close(d);
		skip();
	}
	start_calls(&q);
	snprintf(other, sizeof(other), "%d", (int)q.pid);
	/* one behind the other */
	works(dinst_attach(d, by_pid, "first", 0, NULL, &f));
	works(dinst_trace(d, NULL, many, 0, NULL, &f));
	expect_events(d, NULL, &p, "many");
	works(dinst_detach(d, NULL, NULL, &f));
	works(dinst_attach(d, other, "first", 0, NULL, &f));
	works(dinst_trace(d, NULL, work, 0, NULL, &f));
	expect_events(d, NULL, &q, "work");
	/* two at once */
	works(dinst_attach(d, by_pid, "second", 0, NULL, &f));
	works(dinst_trace(d, "second", many, 0, NULL, &f));
	expect_events(d, "second", &p, "many");
	expect_events(d, "first", &q, "work");
	works(dinst_detach(d, "first", NULL, &f));
	/* a mutator that dies, and the next one */
	killed = mutator_pid();
	assert_int_equal(kill(killed, SIGKILL), 0);
	for (int i = 0; i < 12000 && (mutator_pid() == 0 || mutator_pid() == killed); i++)
		nap_ms(10);
	works(dinst_trace(d, by_pid, work, 0, NULL, &f));
	expect_events(d, "second", &p, "work");
	works(dinst_detach(d, "second", NULL, &f));
	dinst_close(d);
	end_calls(&q);
}

/* ------------------------------------------------------------------ starting */

static bool leads_to(long pid, int fd, const char *wanted)
{
	char path[40], found[200];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%ld/fd/%d", pid, fd);
	n = readlink(path, found, sizeof(found));
	return n == (ssize_t)strlen(wanted) && memcmp(found, wanted, (size_t)n) == 0;
}

/* A daemon of its own, that is stopped again; in a child. 0 or the line that failed. */
static int start_another(void)
{
	char path[80], log[80];
	struct dinst *d = NULL;
	char *answer = NULL;
	const char *pid;

	snprintf(path, sizeof(path), "%s/another.sock", fixture_directory);
	if (dinst_open(&d, path, DINST_START, &f) != 0)
		return __LINE__;
	if (dinst_call(d, "ping", NULL, &answer, &f) != 0 || !(pid = strstr(answer, "\"pid\":")))
		return __LINE__;
	snprintf(log, sizeof(log), "%s/another.log", fixture_directory);
	for (int fd = 0; fd < 3; fd++)
		if (!leads_to(atol(pid + 6), fd, fd < 2 ? "/dev/null" : log))
			return __LINE__;
	dinst_free(answer);
	if (dinst_call(d, "stop", NULL, &answer, &f) != 0)
		return __LINE__;
	dinst_free(answer);
	dinst_close(d);
	return 0;
}

static void *read_stdin(void *arg)
{
	char *line = NULL;
	size_t room = 0;

	return getline(&line, &room, stdin) < 0 ? arg : NULL;
}

/* A thread that reads has a lock that nobody gets before there is something to read. */
static void while_somebody_reads(void **state)
{
	int ends[2], status;
	pthread_t t;
	pid_t child;

	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	child = fork();
	if (child == 0) {
		alarm(60);
		dup2(ends[0], 0);
		pthread_create(&t, NULL, read_stdin, NULL);
		nap_ms(200);
		_exit(start_another() != 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	close(ends[0]);
	close(ends[1]);
	assert_int_equal(status, 0);
}

/* What is opened then has these numbers. */
static void without_standard_streams(void **state)
{
	int status;
	pid_t child;

	(void)state;
	for (int closed = 1; closed < 8; closed++) {
		child = fork();
		if (child == 0) {
			for (int fd = 0; fd < 3; fd++)
				if (closed & 1 << fd)
					close(fd);
			_exit(start_another() & 255);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		if (status)
			fail_msg("%d: line %d", closed, WEXITSTATUS(status));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(none_runs),
		cmocka_unit_test(counts_are_exact),
		cmocka_unit_test(distributions),
		cmocka_unit_test(failures),
		cmocka_unit_test(nothing_given),
		cmocka_unit_test(watching),
		cmocka_unit_test(interrupting),
		cmocka_unit_test(threads),
		cmocka_unit_test(held),
		cmocka_unit_test(events),
		cmocka_unit_test(kinds_of_sessions),
		cmocka_unit_test(while_somebody_reads),
		cmocka_unit_test(without_standard_streams),
	};

	return cmocka_run_group_tests_name("library", tests, setup, teardown);
}
