/* SPDX-License-Identifier: MIT */
/*
 * daemon_departures.c - a live dinstd whose clients, programs and mutators are not there, or not able, when
 * it is their turn; and its own end while one is at work. The mutator is the fake one.
 */
#include "tests/live/daemon_fixture.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

/* What a mutator had no memory for is an error, even if it could not say which request that was, and no reason to lose it. */
static void no_memory_to_read_it(void **state)
{
	struct output *o = malloc(sizeof(*o));

	(void)state;
	run_dinst(o, "insert calls /Code/x/y -p base --json");
	assert_int_equal(o->status, 0);
	expect_word("funcs", "{\"session\":\"base\",\"pattern\":\"@unread\"}", "no-memory");
	run_dinst(o, "read -p base --json");
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "\"id\":"));
	assert_null(strstr(o->err, "started again"));
	run_dinst(o, "remove --all -p base");
	assert_int_equal(o->status, 0);
	free(o);
	still_well();
}

/*
 * fear L3: what a client has asked to insert, and did not wait for, is not inserted if it had not begun;
 * what it said it would not wait for is
 */
static void leaves_before_insert(void **state)
{
	static const char insert[] = "\"method\":\"insert\",\"params\":{\"session\":\"left\","
				     "\"metric\":\"calls\",\"focus\":[]}}\n";
	pid_t target = start_target("left-behind");
	int slow = raw_connect(), gone = raw_connect(), notifier = raw_connect();
	json_t *answer;
	char line[300], params[100], held[100];
	FILE *f;

	(void)state;
	snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"left\"}", (int)target);
	expect_word("attach", params, "");
	/* A question that is answered when we like: what comes behind it waits. */
	snprintf(held, sizeof(held), "%s.held", fixture_log);
	f = fopen(held, "w");
	assert_non_null(f);
	fclose(f);
	request(line, sizeof(line), "read", "{\"session\":\"left\",\"ids\":[]}");
	raw_say(slow, line);
	still_well();
	snprintf(line, sizeof(line), "{\"jsonrpc\":\"2.0\",\"id\":1,%s", insert);
	raw_say(gone, line);
	snprintf(line, sizeof(line), "{\"jsonrpc\":\"2.0\",%s", insert);
	raw_say(notifier, line);
	/* Behind each of them is a line that is answered: the daemon has both. */
	raw_say(gone, PING);
	assert_int_equal(raw_code(gone, ANSWER_MS), 0);
	close(gone);
	close(notifier);
	still_well();
	assert_int_equal(unlink(held), 0);
	assert_int_equal(raw_code(slow, ANSWER_MS), 0);
	close(slow);
	answer = ask("read", "{\"session\":\"left\",\"ids\":[]}");
	assert_int_equal(
		json_array_size(json_object_get(json_object_get(answer, "result"), "rows")), 1);
	json_decref(answer);
	expect_word("detach", "{\"session\":\"left\"}", "");
	end_target(target);
	still_well();
}

/* A session that is over, with its values, does not give way to one that cannot be made. */
static void stays_for_want_of_another(void **state)
{
	pid_t first = start_target("keeper"), second;
	struct output *o = malloc(sizeof(*o));
	struct rlimit before, least;
	int fd = raw_connect(), code;
	char line[200], params[100];

	(void)state;
	snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"keeper\"}", (int)first);
	expect_word("attach", params, "");
	end_target(first);
	/* One that is asked just now is shown as it was. */
	o->out[0] = '\0';
	for (int i = 0; i < 200 && !strstr(o->out, "exited"); i++) {
		nap_ms(50);
		run_dinst(o, "ls");
	}
	assert_non_null(strstr(o->out, "exited"));
	second = start_target("keeper");
	raw_say(fd, PING);
	assert_int_equal(raw_code(fd, ANSWER_MS), 0);
	/* One descriptor, to look at a process, and none for a mutator. */
	assert_int_equal(prlimit(daemon_pid(), RLIMIT_NOFILE, NULL, &before), 0);
	least = (struct rlimit){3, before.rlim_max};
	do
		snprintf(line, sizeof(line), "/proc/%d/fd/%d", (int)daemon_pid(),
			 (int)least.rlim_cur++);
	while (access(line, F_OK) == 0);
	assert_int_equal(prlimit(daemon_pid(), RLIMIT_NOFILE, &least, NULL), 0);
	snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"keeper\"}", (int)second);
	request(line, sizeof(line), "attach", params);
	raw_say(fd, line);
	code = raw_code(fd, ANSWER_MS);
	assert_int_equal(prlimit(daemon_pid(), RLIMIT_NOFILE, &before, NULL), 0);
	assert_int_equal(code, -32000);
	close(fd);
	run_dinst(o, "ls");
	assert_non_null(strstr(o->out, "keeper"));
	expect_word("attach", params, "");
	expect_word("detach", "{\"session\":\"keeper\"}", "");
	end_target(second);
	free(o);
	still_well();
}

/* A program that is killed before it is executed is told of, and does not take dinst along. */
static void killed_before_exec(void **state)
{
	struct output *o = malloc(sizeof(*o));

	(void)state;
	run_dinst(o, "exec -n @felled -- /bin/true");
	assert_int_equal(o->status, 1);
	assert_non_null(strstr(o->err, "ended before it was executed"));
	run_dinst(o, "ls");
	assert_null(strstr(o->out, "@felled"));
	free(o);
	still_well();
}

/* Who has asked a question, and leaves, hears from the mutator what had to stay. That it traces a part only is first. */
static void question_leaves_something(void **state)
{
	pid_t target = start_target("@remains");
	struct output *o = malloc(sizeof(*o));

	(void)state;
	run_dinst(o, "trace -p %d y -d 0.1", (int)target);
	assert_int_equal(o->status, 3);
	assert_non_null(strstr(o->err, "2 places had to stay for now: 2 trampolines stay"));
	end_target(target);
	free(o);
	still_well();
}

/*
 * fear J2: a mutator dies while it detaches from a target that has ended: nobody is told that nothing is left, and
 * another one looks after children that may have it
 */
static void dies_after_the_end(void **state)
{
	pid_t target = start_target("ended");
	struct output *o = malloc(sizeof(*o));
	char line[100];

	(void)state;
	run_dinst(o, "attach %d -n @dying", (int)target);
	assert_int_equal(o->status, 0);
	end_target(target);
	run_dinst(o, "funcs @event -p @dying");
	assert_int_equal(o->status, 0);
	run_dinst(o, "detach @dying --json");
	assert_int_equal(o->status, 3);
	assert_non_null(strstr(o->out, "\"left\":null"));
	assert_non_null(strstr(o->err, "its mutator died"));
	snprintf(line, sizeof(line), "pid %d is repaired", (int)target);
	assert_true(log_says(line));
	expect_word("detach", "{\"session\":\"@dying\"}", "no-such-session");
	free(o);
	still_well();
}

/* The mutator ends late, or not at all: asked for what lets it go, who is answered finds that it has ended. */
static void expect_gone_when_answered(pid_t mutator, const char *method, const char *params,
				      int code)
{
	char line[200];
	int fd = raw_connect();

	request(line, sizeof(line), method, params);
	raw_say(fd, line);
	still_well();
	/* Others are not kept waiting: that was before. */
	assert_int_equal(kill(mutator, 0), 0);
	assert_int_equal(raw_code(fd, ANSWER_MS), code);
	assert_int_equal(kill(mutator, 0), -1);
	assert_int_equal(errno, ESRCH);
	close(fd);
}

/* fear J2: who is told that a session is detached, and what it left, does not find its mutator alive behind that */
static void ends_late(void **state)
{
	static const char *const names[] = {"@lingers", "@remains-@lingers", "@stays"};
	pid_t target = start_target("late");
	char line[200], params[100];
	int fd;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"%s\"}", (int)target,
			 names[i]);
		expect_word("attach", params, "");
		snprintf(params, sizeof(params), "{\"session\":\"%s\"}", names[i]);
		expect_gone_when_answered(mutator_pid(), "detach", params, 0);
		expect_word("detach", params, "no-such-session");
	}
	assert_true(log_says("does not end: killed"));
	/* Whoever does not wait for that answer is no trouble. */
	snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"@lingers\"}", (int)target);
	expect_word("attach", params, "");
	fd = raw_connect();
	request(line, sizeof(line), "detach", "{\"session\":\"@lingers\"}");
	raw_say(fd, line);
	still_well();
	close(fd);
	assert_true(wait_gone(mutator_pid(), ANSWER_MS));
	end_target(target);
	still_well();
}

/* The same where it could not attach: another try comes behind it. */
static void fails_and_ends_late(void **state)
{
	pid_t target = start_target("refusing");
	char params[100];
	const pid_t newest = mutator_pid();

	(void)state;
	snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"@refuses-@lingers\"}",
		 (int)target);
	expect_word("attach", params, "not-permitted");
	assert_int_equal(mutator_pid(), newest);
	end_target(target);
	still_well();
}

/* A daemon that has no room for its lock and its log, as where /run is full, serves all the same. */
static void place_is_full(void **state)
{
	char path[100], command[1200];
	int status;
	pid_t pid;

	(void)state;
	snprintf(path, sizeof(path), "%s/full", fixture_directory);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(command, sizeof(command),
		 "dd if=/dev/zero of=%s/filled bs=4k 2>/dev/null; export DINST_SOCKET=%s/d.sock; "
		 "%.300s repair %d >/dev/null || exit 1; test -s %s/d.lock && exit 2; "
		 "%.300s stop -q",
		 path, path, fixture_dinst, (int)fixture_target, path, fixture_dinst);
	pid = fork();
	if (pid == 0) {
		alarm(100);
		if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		    mount("full", path, "tmpfs", 0, "size=16k,mode=0700"))
			_exit(99);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(126);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 99) {
		print_message("SKIP: no mounts of our own\n");
		skip();
	}
	assert_int_equal(status, 0);
	still_well();
}

/*
 * The daemon ends in order while a repair does not, nor a mutator that it has let go: who waits for
 * them is told. It is gone then, and what comes behind starts another one.
 */
static void ends_while_repairing(void **state)
{
	struct output *o = malloc(sizeof(*o));
	pid_t target = start_target("left-late");
	int fd = raw_connect(), detaching = raw_connect();
	char line[200], text[100];
	FILE *held;

	(void)state;
	snprintf(text, sizeof(text), "%s.held", fixture_log);
	held = fopen(text, "w");
	assert_non_null(held);
	fclose(held);
	snprintf(text, sizeof(text), "{\"target\":%d}", (int)getpid());
	request(line, sizeof(line), "repair", text);
	raw_say(fd, line);
	snprintf(text, sizeof(text), "{\"target\":%d,\"name\":\"@stays\"}", (int)target);
	expect_word("attach", text, "");
	request(line, sizeof(line), "detach", "{\"session\":\"@stays\"}");
	raw_say(detaching, line);
	nap_ms(500);
	run_dinst(o, "stop");
	assert_int_equal(o->status, 0);
	assert_int_equal(raw_code(fd, ANSWER_MS), -32000);
	assert_int_equal(raw_code(detaching, ANSWER_MS), 0);
	close(fd);
	close(detaching);
	end_target(target);
	assert_true(log_says(" dinstd: end"));
	snprintf(text, sizeof(text), "%s.held", fixture_log);
	assert_int_equal(unlink(text), 0);
	free(o);
}

/* Until a mutator is at work for this method. */
static void wait_busy(const char *method)
{
	struct output *o = malloc(sizeof(*o));
	char busy[40];

	snprintf(busy, sizeof(busy), "\"busy\":\"%s\"", method);
	for (int ms = 0; ms < ANSWER_MS; ms += 10) {
		run_dinst(o, "ls --json");
		if (strstr(o->out, busy))
			break;
		nap_ms(10);
	}
	assert_non_null(strstr(o->out, busy));
	free(o);
}

/* A session is being detached when the daemon is to end: that is no failure to detach it. */
static void ends_while_detaching(void **state)
{
	pid_t target = start_target("leaving");
	struct output *o = malloc(sizeof(*o));
	char line[200];
	int fd;

	(void)state;
	run_dinst(o, "attach %d -n @tarries", (int)target);
	assert_int_equal(o->status, 0);
	fd = raw_connect();
	request(line, sizeof(line), "detach", "{\"session\":\"@tarries\"}");
	raw_say(fd, line);
	wait_busy("detach");
	run_dinst(o, "stop");
	assert_string_equal(o->err, "");
	assert_int_equal(o->status, 0);
	assert_int_equal(raw_code(fd, ANSWER_MS), 0);
	close(fd);
	end_target(target);
	free(o);
}

/* The same where the daemon is told to end at once: that is one. */
static void ends_at_once(void **state)
{
	pid_t target = start_target("left-alone");
	struct output *o = malloc(sizeof(*o));
	char line[200];
	json_t *answer;
	int fd;

	(void)state;
	run_dinst(o, "attach %d -n @tarries", (int)target);
	assert_int_equal(o->status, 0);
	fd = raw_connect();
	request(line, sizeof(line), "stop", "{}");
	raw_say(fd, line);
	wait_busy("detach");
	assert_int_equal(kill(daemon_pid(), SIGTERM), 0);
	answer = raw_hear(fd, ANSWER_MS);
	assert_true(json_is_true(json_object_get(json_object_get(answer, "result"), "partial")));
	json_decref(answer);
	close(fd);
	end_target(target);
	free(o);
}

/* An empty file beside the fake mutator's log, which tells it something. */
static void make_sign(const char *suffix, char path[100])
{
	int fd;

	snprintf(path, 100, "%s.%s", fixture_log, suffix);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
}

/* Who has attached to it goes, and what had to stay in it is being repaired. */
static void leave_remains(pid_t target)
{
	struct output *o = malloc(sizeof(*o));
	char line[200], params[100];
	int fd = raw_connect();

	snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"@remains\",\"hold\":true}",
		 (int)target);
	request(line, sizeof(line), "attach", params);
	raw_say(fd, line);
	assert_int_equal(raw_code(fd, ANSWER_MS), 0);
	close(fd);
	do
		run_dinst(o, "ls");
	while (strstr(o->out, "@remains"));
	free(o);
}

/* fear J2: what could not be repaired yet when the daemon ends is told to who ends it, with the way out */
static void ends_with_remains(void **state)
{
	pid_t target = start_target("unrepaired");
	struct output *o = malloc(sizeof(*o));
	char sign[100], line[100];

	(void)state;
	start_daemon_by_client();
	make_sign("stays", sign);
	leave_remains(target);
	snprintf(line, sizeof(line), "pid %d is not yet repaired", (int)target);
	assert_true(log_says(line));
	run_dinst(o, "stop");
	assert_int_equal(o->status, 3);
	snprintf(line, sizeof(line), "dinst repair %d takes out", (int)target);
	assert_non_null(strstr(o->err, line));
	assert_int_equal(unlink(sign), 0);
	end_target(target);
	free(o);
}

/* What is being repaired just then is waited for, and told of if the daemon is to end at once. */
static void ends_while_orphan_is_repaired(void **state)
{
	pid_t target = start_target("in-repair");
	char sign[100], line[200];
	json_t *answer, *result;

	(void)state;
	for (int at_once = 0; at_once < 2; at_once++) {
		int fd;

		start_daemon_by_client();
		make_sign("held", sign);
		leave_remains(target);
		fd = raw_connect();
		request(line, sizeof(line), "stop", "{}");
		raw_say(fd, line);
		assert_null(raw_hear(fd, 500));
		if (at_once)
			assert_int_equal(kill(daemon_pid(), SIGTERM), 0);
		else
			assert_int_equal(unlink(sign), 0);
		answer = raw_hear(fd, ANSWER_MS);
		result = json_object_get(answer, "result");
		assert_non_null(result);
		assert_int_equal(json_is_true(json_object_get(result, "partial")), at_once);
		json_decref(answer);
		close(fd);
	}
	assert_int_equal(unlink(sign), 0);
	end_target(target);
}

/* Where the mutators' log has this text last; -1: nowhere. */
static long last_request(const char *text)
{
	static char all[1 << 20];
	FILE *f = fopen(fixture_log, "r");
	long last = -1;

	assert_non_null(f);
	all[fread(all, 1, sizeof(all) - 1, f)] = '\0';
	fclose(f);
	for (const char *at = all; (at = strstr(at, text)); at++)
		last = at - all;
	return last;
}

/*
 * fear J2: a mutator dies, and the last one who wanted its session is lost as he is told of the next one: that
 * takes the target over before it is asked to detach
 */
static void lost_as_he_is_told(void **state)
{
	pid_t target = start_target("taken-over"), daemon;
	char path[700], line[200], params[100];
	struct output *o = malloc(sizeof(*o));
	char *slash = strrchr(fixture_fake, '/');
	int fd;

	(void)state;
#ifdef __SANITIZE_ADDRESS__
	skip(); /* its library wants to be the first one */
#endif
	daemon = fork();
	if (daemon == 0) {
		snprintf(path, sizeof(path), "%.*s/libunwritten.so", (int)(slash - fixture_fake),
			 fixture_fake);
		setenv("LD_PRELOAD", path, 1);
		execl(fixture_dinstd, "dinstd", "-s", fixture_socket, "-i", "0", (char *)NULL);
		_exit(126);
	}
	for (int i = 0; i < 12000 && access(fixture_socket, F_OK) != 0; i++)
		nap_ms(10);
	run_dinst(o, "ls");
	fd = raw_connect();
	snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"told\",\"hold\":true}",
		 (int)target);
	request(line, sizeof(line), "attach", params);
	raw_say(fd, line);
	assert_int_equal(raw_code(fd, ANSWER_MS), 0);
	request(line, sizeof(line), "funcs", "{\"session\":\"told\",\"pattern\":\"@crash\"}");
	raw_say(fd, line);
	do
		run_dinst(o, "ls");
	while (strstr(o->out, "told"));
	close(fd);
	assert_true(last_request("\"method\":\"detach\"") > last_request("\"method\":\"attach\""));
	run_dinst(o, "stop");
	assert_int_equal(waitpid(daemon, NULL, 0), daemon);
	end_target(target);
	free(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_memory_to_read_it),
		cmocka_unit_test(leaves_before_insert),
		cmocka_unit_test(stays_for_want_of_another),
		cmocka_unit_test(killed_before_exec),
		cmocka_unit_test(question_leaves_something),
		cmocka_unit_test(dies_after_the_end),
		cmocka_unit_test(ends_late),
		cmocka_unit_test(fails_and_ends_late),
		cmocka_unit_test(place_is_full),
		cmocka_unit_test(ends_while_repairing),
		cmocka_unit_test(ends_while_detaching),
		cmocka_unit_test(ends_at_once),
		cmocka_unit_test(ends_with_remains),
		cmocka_unit_test(ends_while_orphan_is_repaired),
		cmocka_unit_test(lost_as_he_is_told),
	};

	return cmocka_run_group_tests_name("daemon_departures", tests, fixture_setup_base,
					   fixture_teardown);
}
