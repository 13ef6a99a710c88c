/* SPDX-License-Identifier: MIT */
/*
 * daemon_mutators.c - a live dinstd with mutators that die, talk nonsense or
 * are slow, and sessions whose targets end. After every case it must still
 * answer `ping` and serve the session that was there before.
 */
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "tests/live/daemon_fixture.h"

static void bad_mutators(void **state)
{
	static const char *const words[] = {"@crash", "@exit",	    "@garbage",
					    "@wrong", "@truncated", "@orphan"};
	char params[100];

	(void)state;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		pid_t target = start_target("bad-mutator");

		snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"bad\"}", (int)target);
		expect_word("attach", params, "");
		snprintf(params, sizeof(params), "{\"session\":\"bad\",\"pattern\":\"%s\"}",
			 words[i]);
		expect_word("funcs", params, "daemon");
		/* another mutator has taken over */
		expect_word("funcs", "{\"session\":\"bad\"}", "");
		expect_word("detach", "{\"session\":\"bad\"}", "");
		end_target(target);
		still_well();
	}
}

/* Too long an answer is an error, and no reason to lose the mutator with all that is inserted. */
static void answer_too_long(void **state)
{
	struct output *o = malloc(sizeof(*o));

	(void)state;
	run_dinst(o, "insert calls /Code/x/y -p base --json");
	assert_int_equal(o->status, 0);
	run_dinst(o, "funcs @flood -p base");
	assert_int_equal(o->status, 1);
	assert_non_null(strstr(o->err, "longer than 64 MiB"));
	run_dinst(o, "read -p base --json");
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "\"id\":1"));
	run_dinst(o, "remove --all -p base");
	assert_int_equal(o->status, 0);
	free(o);
	still_well();
}

/* Pending requests of others get the same answer, and the next client hears of it. */
static void death_is_told(void **state)
{
	pid_t target = start_target("dying");
	int first = raw_connect(), second = raw_connect();
	struct output *o = malloc(sizeof(*o));
	char line[200], params[100];

	(void)state;
	snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"dying\"}", (int)target);
	expect_word("attach", params, "");
	request(line, sizeof(line), "funcs",
		"{\"session\":\"dying\",\"pattern\":\"@slow @crash\"}");
	raw_say(first, line);
	request(line, sizeof(line), "funcs", "{\"session\":\"dying\",\"pattern\":\"@crash\"}");
	raw_say(first, line);
	nap_ms(50);
	request(line, sizeof(line), "funcs", "{\"session\":\"dying\"}");
	raw_say(second, line);
	assert_int_equal(raw_code(first, ANSWER_MS), -32000);
	assert_int_equal(raw_code(second, ANSWER_MS), -32000);
	close(first);
	close(second);
	run_dinst(o, "funcs -p dying");
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->err, "started again"));
	run_dinst(o, "funcs -p dying");
	assert_null(strstr(o->err, "started again"));
	expect_word("detach", "{\"session\":\"dying\"}", "");
	end_target(target);
	free(o);
	still_well();
}

/* Who attached it has gone, and what had to stay is told where he can find it. */
static void remains_are_logged(void **state)
{
	pid_t target = start_target("remains");
	int fd = raw_connect();
	char line[200], params[100];

	(void)state;
	snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"@remains\",\"hold\":true}",
		 (int)target);
	request(line, sizeof(line), "attach", params);
	raw_say(fd, line);
	assert_int_equal(raw_code(fd, ANSWER_MS), 0);
	close(fd);
	snprintf(line, sizeof(line), "2 pieces had to stay in pid %d: dinst repair %d", (int)target,
		 (int)target);
	assert_true(log_says(line));
	assert_true(log_says("session @remains: 2 trampolines stay"));
	end_target(target);
	still_well();
}

/* The session of a target that is there, by its number: lost, and all say what to do. */
static void expect_lost(pid_t target, const char *why)
{
	struct output *o = malloc(sizeof(*o));
	char repair[40];

	snprintf(repair, sizeof(repair), "dinst repair %d", (int)target);
	run_dinst(o, "ls --json");
	assert_non_null(strstr(o->out, "\"state\":\"lost\""));
	run_dinst(o, "funcs -p %d", (int)target);
	assert_int_equal(o->status, 1);
	assert_non_null(strstr(o->err, why));
	assert_non_null(strstr(o->err, repair));
	run_dinst(o, "detach %d", (int)target);
	assert_int_not_equal(o->status, 0);
	assert_non_null(strstr(o->err, repair));
	free(o);
	end_target(target);
	still_well();
}

/* The next mutator says that the process has ended, and it has not. */
static void blind_successor(void **state)
{
	pid_t target = start_target("blind");
	char params[100];

	(void)state;
	snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"@blind\"}", (int)target);
	expect_word("attach", params, "");
	expect_word("funcs", "{\"session\":\"@blind\",\"pattern\":\"@crash\"}", "daemon");
	assert_true(log_says("session @blind: the mutator of @blind died"));
	expect_lost(target, "another one could not take over: it has ended");
}

/* The daemon has no descriptor when a mutator dies: neither for /proc nor for another mutator. */
static void no_descriptor(void **state)
{
	pid_t target = start_target("wanting");
	struct rlimit before;
	int fd, code;
	char line[200], params[100];

	(void)state;
	snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"wanting\"}", (int)target);
	expect_word("attach", params, "");
	fd = raw_connect();
	raw_say(fd, PING);
	assert_int_equal(raw_code(fd, ANSWER_MS), 0);
	assert_int_equal(prlimit(daemon_pid(), RLIMIT_NOFILE, NULL, &before), 0);
	assert_int_equal(prlimit(daemon_pid(), RLIMIT_NOFILE, &(struct rlimit){0, before.rlim_max},
				 NULL),
			 0);
	request(line, sizeof(line), "funcs", "{\"session\":\"wanting\",\"pattern\":\"@crash\"}");
	raw_say(fd, line);
	code = raw_code(fd, ANSWER_MS);
	assert_true(log_says("session wanting: wanting: the mutator"));
	assert_int_equal(prlimit(daemon_pid(), RLIMIT_NOFILE, &before, NULL), 0);
	assert_int_equal(code, -32000);
	close(fd);
	expect_lost(target, "another one could not take over: cannot start");
}

/* One that dies again and again is given up; the session says so. */
static void crash_loop(void **state)
{
	pid_t target = start_target("looping");
	struct output *o = malloc(sizeof(*o));
	char params[100];

	(void)state;
	snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"looping\"}", (int)target);
	expect_word("attach", params, "");
	for (int i = 0; i < 5; i++)
		expect_word("funcs", "{\"session\":\"looping\",\"pattern\":\"@crash\"}", "daemon");
	run_dinst(o, "ls");
	assert_non_null(strstr(o->out, "lost"));
	run_dinst(o, "read -p looping");
	assert_int_equal(o->status, 1);
	assert_non_null(strstr(o->err, "repair"));
	/* a new attach starts over */
	expect_word("attach", params, "");
	expect_word("funcs", "{\"session\":\"looping\"}", "");
	expect_word("detach", "{\"session\":\"looping\"}", "");
	end_target(target);
	free(o);
	still_well();
}

/* A mutator that dies while it attaches: an error, no session, and a repair by another one. */
static void death_in_attach(void **state)
{
	pid_t target = start_target("fragile");
	char params[100], text[1 << 15] = "";
	FILE *log;
	size_t n;

	(void)state;
	snprintf(params, sizeof(params), "{\"target\":\"%d\",\"name\":\"@crash\"}", (int)target);
	expect_word("attach", params, "daemon");
	snprintf(params, sizeof(params), "\"method\":\"repair\",\"params\":{\"pid\":%d}",
		 (int)target);
	for (int ms = 0; ms < ANSWER_MS && !strstr(text, params); ms += 20) {
		nap_ms(20);
		log = fopen(fixture_log, "r");
		assert_non_null(log);
		fseek(log, -2000, SEEK_END);
		n = fread(text, 1, sizeof(text) - 1, log);
		fclose(log);
		text[n] = '\0';
	}
	assert_non_null(strstr(text, params));
	expect_word("read", "{\"session\":\"@crash\"}", "no-such-session");
	end_target(target);
	still_well();
}

/* Several wait for an attach that fails, or whose mutator dies: all are answered. */
static void attach_fails_for_many(void **state)
{
	static const char *const names[] = {"@slow-@crash", "@slow-@error", "@slow-@garbage"};
	pid_t target = start_target("fragile");
	int fds[5];

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char line[200], params[100];

		snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"%s\"}", (int)target,
			 names[i]);
		request(line, sizeof(line), "attach", params);
		for (int n = 0; n < 5; n++) {
			fds[n] = raw_connect();
			raw_say(fds[n], line);
			nap_ms(20);
		}
		snprintf(params, sizeof(params), "{\"session\":\"%s\"}", names[i]);
		request(line, sizeof(line), "read", params);
		raw_say(fds[4], line);
		for (int n = 0; n < 5; n++)
			assert_int_equal(raw_code(fds[n], ANSWER_MS), -32000);
		assert_int_equal(raw_code(fds[4], ANSWER_MS), -32000);
		for (int n = 0; n < 5; n++)
			close(fds[n]);
		still_well();
	}
	end_target(target);
}

/* Requests to one session wait for it; other sessions do not. */
static void no_blocking(void **state)
{
	pid_t target = start_target("blocked");
	int fd = raw_connect();
	enum { ASKED = 12 }; /* 0.4 s each */
	char line[200], params[100];
	int answered = 0;

	(void)state;
	snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"blocked\"}", (int)target);
	expect_word("attach", params, "");
	request(line, sizeof(line), "funcs", "{\"session\":\"blocked\",\"pattern\":\"@slow\"}");
	for (int i = 0; i < ASKED; i++)
		raw_say(fd, line);
	expect_word("funcs", "{\"session\":\"base\"}", "");
	expect_word("sessions", "{}", "");
	/* They were answered while the other session was at work. */
	while (answered < ASKED && raw_code(fd, 0) == 0)
		answered++;
	assert_true(answered < ASKED);
	for (; answered < ASKED; answered++)
		assert_int_equal(raw_code(fd, ANSWER_MS), 0);
	close(fd);
	expect_word("detach", "{\"session\":\"blocked\"}", "");
	end_target(target);
}

/* Progress comes with the id of its request, before the answer. */
static void progress(void **state)
{
	int fd = raw_connect();
	json_t *message, *params;
	char line[200];

	(void)state;
	request(line, sizeof(line), "funcs", "{\"session\":\"base\",\"pattern\":\"@progress\"}");
	raw_say(fd, line);
	for (int i = 1; i <= 3; i++) {
		message = raw_hear(fd, ANSWER_MS);
		params = json_object_get(message, "params");
		assert_string_equal(json_string_value(json_object_get(message, "method")),
				    "progress");
		assert_int_equal(json_integer_value(json_object_get(params, "done")), i);
		assert_int_equal(json_integer_value(json_object_get(params, "request")), 1);
		json_decref(message);
	}
	assert_int_equal(raw_code(fd, ANSWER_MS), 0);
	close(fd);
}

/* A target that ended keeps its session until detach, or until its name is taken. */
static void exited_target(void **state)
{
	pid_t target = start_target("short-lived");
	struct output *o = malloc(sizeof(*o));

	(void)state;
	run_dinst(o, "attach short-lived");
	assert_int_equal(o->status, 0);
	run_dinst(o, "funcs @event -p short-lived");
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->err, "has ended"));
	end_target(target);
	run_dinst(o, "ls");
	assert_non_null(strstr(o->out, "exited"));
	run_dinst(o, "read -p short-lived");
	assert_int_equal(o->status, 0);
	/* another process of that name takes the name over */
	target = start_target("short-lived");
	run_dinst(o, "attach short-lived --json");
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "\"session\":\"short-lived\""));
	run_dinst(o, "detach short-lived");
	assert_int_equal(o->status, 0);
	end_target(target);
	free(o);
	still_well();
}

static void *idle(void *name)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, name);
	for (;;)
		pause();
	return NULL;
}

/*
 * fear A13: the main thread has exited and others live, so that /proc calls the process a zombie:
 * it is found by its name, and when its mutator dies the session is taken over and not given up.
 */
static void leader_has_exited(void **state)
{
	struct output *o = malloc(sizeof(*o));
	char path[40], text[256] = "";
	pthread_t thread;
	pid_t target;
	FILE *f;

	(void)state;
	target = fork();
	if (target == 0) {
		prctl(PR_SET_NAME, "headless");
		if (pthread_create(&thread, NULL, idle, "headless"))
			_exit(1);
		syscall(SYS_exit, 0);
	}
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)target);
	for (int ms = 0; ms < ANSWER_MS && !strstr(text, "(headless) Z"); ms += 5) {
		nap_ms(5);
		f = fopen(path, "r");
		assert_non_null(f);
		assert_non_null(fgets(text, sizeof(text), f));
		fclose(f);
	}
	assert_non_null(strstr(text, "(headless) Z"));
	run_dinst(o, "attach headless");
	assert_string_equal(o->err, "");
	assert_int_equal(o->status, 0);
	expect_word("funcs", "{\"session\":\"headless\",\"pattern\":\"@crash\"}", "daemon");
	run_dinst(o, "funcs -p headless");
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->err, "started again"));
	run_dinst(o, "ls");
	assert_null(strstr(o->out, "exited"));
	run_dinst(o, "detach headless");
	assert_int_equal(o->status, 0);
	end_target(target);
	free(o);
	still_well();
}

/* Two clients attach the same process at once: one session, both are answered. */
static void attach_twice(void **state)
{
	pid_t target = start_target("wanted");
	int first = raw_connect(), second = raw_connect();
	char line[200], params[100];

	(void)state;
	snprintf(params, sizeof(params), "{\"target\":%d}", (int)target);
	request(line, sizeof(line), "attach", params);
	raw_say(first, line);
	raw_say(second, line);
	assert_int_equal(raw_code(first, ANSWER_MS), 0);
	assert_int_equal(raw_code(second, ANSWER_MS), 0);
	close(first);
	close(second);
	expect_word("detach", "{\"session\":\"wanted\"}", "");
	expect_word("detach", "{\"session\":\"wanted\"}", "no-such-session");
	end_target(target);
}

/*
 * Clients that come and go, attach and detach, while mutators die of what they
 * ask for; by a generator with a fixed seed. Every client left is answered.
 */
static void storm(void **state)
{
	enum { CLIENTS = 8, TARGETS = 3, STEPS = 600 };
	static const char *const patterns[] = {"x",	   "@crash", "@exit", "x",
					       "@garbage", "@error", "x"};
	static const char *const others[] = {"sessions", "detach", "read",
					     "status",	 "bogus",  "detach"};
	int fds[CLIENTS], waiting[CLIENTS] = {0};
	pid_t targets[TARGETS];
	char line[256], params[128];
	uint32_t seed = 7;

	(void)state;
	for (int i = 0; i < CLIENTS; i++)
		fds[i] = raw_connect();
	for (int i = 0; i < TARGETS; i++)
		targets[i] = start_target("stormy");
	for (int step = 0; step < STEPS; step++) {
		unsigned client, target, what;

		seed = seed * 1664525 + 1013904223;
		client = (seed >> 28) % CLIENTS;
		target = (seed >> 24) % TARGETS;
		what = (seed >> 16) % 16;
		if (what == 0) {
			close(fds[client]);
			fds[client] = raw_connect();
			waiting[client] = 0;
			continue;
		}
		if (what < 5) {
			snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"storm-%u%s\"}",
				 (int)targets[target], target, what == 1 ? "-@crash" : "");
			request(line, sizeof(line), "attach", params);
		} else if (what < 11) {
			snprintf(params, sizeof(params),
				 "{\"session\":\"storm-%u\",\"pattern\":\"%s\"}", target,
				 patterns[(seed >> 8) % 7]);
			request(line, sizeof(line), "funcs", params);
		} else {
			snprintf(params, sizeof(params), "{\"session\":\"storm-%u\"}", target);
			request(line, sizeof(line), others[(seed >> 8) % 6], params);
		}
		raw_say(fds[client], line);
		waiting[client]++;
		if (step % 16 == 0)
			nap_ms(5);
	}
	for (int i = 0; i < CLIENTS; i++) {
		while (waiting[i] > 0) {
			json_t *message = raw_hear(fds[i], ANSWER_MS);

			assert_non_null(message);
			waiting[i] -= json_object_get(message, "id") != NULL;
			json_decref(message);
		}
		close(fds[i]);
	}
	for (int i = 0; i < TARGETS; i++) {
		snprintf(params, sizeof(params), "{\"session\":\"%d\"}", (int)targets[i]);
		json_decref(ask("detach", params));
		end_target(targets[i]);
	}
	still_well();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_mutators),
		cmocka_unit_test(answer_too_long),
		cmocka_unit_test(death_is_told),
		cmocka_unit_test(crash_loop),
		cmocka_unit_test(death_in_attach),
		cmocka_unit_test(attach_fails_for_many),
		cmocka_unit_test(no_blocking),
		cmocka_unit_test(progress),
		cmocka_unit_test(exited_target),
		cmocka_unit_test(attach_twice),
		cmocka_unit_test(storm),
		cmocka_unit_test(leader_has_exited),
		cmocka_unit_test(remains_are_logged),
		cmocka_unit_test(blind_successor),
		cmocka_unit_test(no_descriptor),
	};

	return cmocka_run_group_tests_name("daemon_mutators", tests, fixture_setup_base,
					   fixture_teardown);
}
