/* SPDX-License-Identifier: MIT */
/*
 * questions.c - commands that answer a question leave the target clean, however they end:
 * by themselves, by signals, by kill -9, and whoever else uses the session keeps his.
 */
#include "tests/live/daemon_calls.h"

#include <pthread.h>

enum { CLEAN_MS = 120000, KILLS = 15, PATIENCE_MS = ANSWER_MS };

static struct output *o;
static struct program program;
static char prove_path[600], picture[100];
static int busy; /* asked by the worker */
static pthread_t worker;

/* ---------------------------------------------------------------- the scene */

/* The target has something to do while it is asked about. */
static void *work(void *arg)
{
	(void)arg;
	while (__atomic_load_n(&busy, __ATOMIC_RELAXED)) {
		go(&program, 200);
		nap_ms(1);
	}
	return NULL;
}

static int prove(const char *what)
{
	char pid[16], *words[] = {(char *)what, pid, picture, NULL};

	snprintf(pid, sizeof(pid), "%d", (int)program.pid);
	run_words(prove_path, words, o);
	return o->status;
}

static void set_busy(int on)
{
	if (busy == on)
		return;
	__atomic_store_n(&busy, on, __ATOMIC_RELAXED);
	if (on)
		assert_int_equal(pthread_create(&worker, NULL, work, NULL), 0);
	else
		pthread_join(worker, NULL);
}

static int setup(void **state)
{
	int err = fixture_setup(state);
	char *slash;

	alarm(600);
	unsetenv("DINST_MUTATOR");
	o = malloc(sizeof(*o));
	snprintf(prove_path, sizeof(prove_path), "%s", fixture_dinst);
	slash = strrchr(prove_path, '/');
	snprintf(slash, sizeof(prove_path) - (size_t)(slash - prove_path), "/examples/prove");
	snprintf(picture, sizeof(picture), "%s/picture", fixture_directory);
	start_calls(&program);
	go(&program, 10);
	/* the first daemon and the first attach of all */
	run_dinst(o, "hist -p %d leaf -d 0.1", (int)program.pid);
	return err || o->status || prove("save");
}

static int teardown(void **state)
{
	set_busy(0);
	end_calls(&program);
	free(o);
	return fixture_teardown(state);
}

static int session_count(void)
{
	int count = 0;

	run_dinst(o, "ls --json");
	for (const char *p = o->out; (p = strchr(p, '\n')) != NULL; p++)
		count++;
	return count;
}

/* Nobody has asked for the end, so it may take a moment; but then everything is as before. */
static void assert_clean(const char *after)
{
	int count = 1;

	for (int ms = 0; ms < CLEAN_MS && (count = session_count()) > 0; ms += 50)
		nap_ms(50);
	if (count)
		fail_msg("after %s: a session is left: %.300s", after, o->out);
	set_busy(0);
	if (prove("check") != 0)
		fail_msg("after %s: %.400s %.400s", after, o->out, o->err);
	go(&program, 10);
}

/* Starts dinst with its output going nowhere. */
static pid_t start_dinst(const char *line)
{
	struct dinst_error e = {0, ""};
	char *argv[32] = {fixture_dinst}, text[300];
	struct words w;
	pid_t pid;

	snprintf(text, sizeof(text), line, (int)program.pid);
	assert_int_equal(words_split(text, &w, &e), 0);
	for (int n = 0; n < 30 && w.word[n]; n++)
		argv[n + 1] = w.word[n];
	pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		alarm(600);
		dup2(null, 0);
		dup2(null, 1);
		dup2(null, 2);
		execv(fixture_dinst, argv);
		_exit(126);
	}
	words_release(&w);
	return pid;
}

/* -1 if it does not end in time. */
static int end_of(pid_t pid)
{
	int status;

	for (int ms = 0; ms < PATIENCE_MS; ms += 5) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		nap_ms(5);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return -1;
}

static const char *const questions[] = {
	"hist -p %d leaf",
	"hist -p %d branchy --by arg0 -i 0.1",
	"hist -p %d calls:* --by caller",
	"top %d -i 0.3",
	"top %d --json -s wall",
};

enum { QUESTIONS = sizeof(questions) / sizeof(questions[0]) };

/* ----------------------------------------------------------------- the cases */

/* The client is killed at any moment: while it attaches, inserts, reads, removes. */
static void killed_at_any_moment(void **state)
{
	(void)state;
	srandom(4711);
	for (int n = 0; n < KILLS; n++) {
		const char *line = questions[n % QUESTIONS];
		const long ms = random() % (n < QUESTIONS ? 60 : 900);
		pid_t pid;

		set_busy(1);
		pid = start_dinst(line);
		nap_ms(ms);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		assert_clean(line);
	}
}

static void signals_end_it(void **state)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

	(void)state;
	/* Each of them by each of these. */
	for (int n = 0; n < 4 * QUESTIONS; n++) {
		const char *question = questions[n / 4];
		const int number = signals[n % 4];
		pid_t pid;
		int status;

		set_busy(1);
		pid = start_dinst(question);
		wait_active(o);
		kill(pid, number);
		status = end_of(pid);
		if (status != 0)
			fail_msg("%s, signal %d: status %d", question, number, status);
		/* it has cleaned up itself: nothing is to be waited for */
		assert_int_equal(session_count(), 0);
		assert_clean(question);
	}
}

/* The second Ctrl-C ends it at once, and the daemon cleans up. */
static void second_signal(void **state)
{
	(void)state;
	for (int n = 0; n < QUESTIONS; n++) {
		pid_t pid;

		set_busy(1);
		pid = start_dinst(questions[n]);
		nap_ms(20 + 40 * n);
		kill(pid, SIGINT);
		nap_ms(n % 2 ? 5 : 300);
		kill(pid, SIGINT);
		assert_int_not_equal(end_of(pid), -1);
		assert_clean(questions[n]);
	}
}

/* Somebody stops the daemon: whoever reads a half answer is told that it is one. */
static void daemon_goes_first(void **state)
{
	static const char *const asked[] = {"hist -p %d leaf", "top %d --json", "trace -p %d leaf",
					    "why %d -d 60", "why %d -d 60 --json"};

	(void)state;
	for (size_t n = 0; n < sizeof(asked) / sizeof(asked[0]); n++) {
		pid_t pid;
		int status;

		set_busy(1);
		pid = start_dinst(asked[n]);
		wait_active(o);
		run_dinst(o, "stop");
		assert_int_equal(o->status, 0);
		status = end_of(pid);
		if (status != 1)
			fail_msg("%s: status %d, its daemon was stopped", asked[n], status);
		assert_clean(asked[n]);
	}
}

/* A pipe whose reader has what it wanted. */
static void reader_goes_away(void **state)
{
	int ends[2], status;
	char pid[16];
	pid_t child;

	(void)state;
	set_busy(1);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	snprintf(pid, sizeof(pid), "%d", (int)program.pid);
	child = fork();
	if (child == 0) {
		alarm(600);
		dup2(ends[1], 1);
		execl(fixture_dinst, "dinst", "top", pid, "-i", "0.2", (char *)NULL);
		_exit(126);
	}
	close(ends[1]);
	assert_true(read(ends[0], pid, 1) == 1);
	close(ends[0]);
	status = end_of(child);
	assert_int_not_equal(status, -1);
	assert_clean("its reader went");
}

/* Twice in a row, the second while the first is still being cleaned up. */
static void one_after_the_other(void **state)
{
	(void)state;
	for (int n = 0; n < 5; n++) {
		pid_t pid = start_dinst("hist -p %d leaf");

		nap_ms(60 + 30 * n);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		run_dinst(o, "hist -p %d leaf -d 0.1 --json", (int)program.pid);
		if (o->status != 0)
			fail_msg("%d: %.300s", o->status, o->err);
	}
	assert_clean("questions in a row");
}

/* One that can be traced, and one of the C library's that cannot, where it has one. */
#define IN_PART "trace -p %d leaf libc.so.6:__pthread_enable_asynccancel -d 1 -o "

/* What is done in part is a result: the file of before is gone, and what went wrong is no part. */
static void done_in_part(void **state)
{
	char path[100], line[300];
	FILE *f;
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "%s/before", fixture_directory);
	f = fopen(path, "we");
	assert_non_null(f);
	fputs("of another run\n", f);
	assert_int_equal(fclose(f), 0);
	snprintf(line, sizeof(line), IN_PART "%s", (int)program.pid, path);
	run_dinst(o, "%s", line);
	if (!strstr(o->err, "refused:")) {
		print_message("nothing of the C library is refused: %.200s\n", o->err);
		skip();
	}
	assert_int_equal(o->status, 3);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	read_all(fd, o->out);
	close(fd);
	assert_string_equal(o->out, "");
	set_busy(1);
	run_dinst(o, IN_PART "/dev/full", (int)program.pid);
	assert_non_null(strstr(o->err, "cannot write"));
	assert_int_equal(o->status, 1);
	assert_clean("a part of a trace");
}

/* ----------------------------------------------------------- by hand: hold */

static json_t *say_to(int fd, const char *method, const char *params)
{
	static int id;
	char line[500];
	json_t *answer;

	snprintf(line, sizeof(line),
		 "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"%s\",\"params\":%s}\n", ++id, method,
		 params);
	raw_say(fd, line);
	for (;;) {
		answer = raw_hear(fd, PATIENCE_MS);
		if (!answer)
			fail_msg("no answer to %s %s", method, params);
		if (json_integer_value(json_object_get(answer, "id")) == id)
			return answer;
		json_decref(answer);
	}
}

static json_t *say_pid(int fd, const char *method, const char *format)
{
	char params[300];

	snprintf(params, sizeof(params), format, (int)program.pid);
	return say_to(fd, method, params);
}

static void must(json_t *answer, const char *what)
{
	if (!json_object_get(answer, "result"))
		fail_msg("%s: %s", what, json_dumps(answer, 0));
	json_decref(answer);
}

/* SIZE_MAX while another mutator is about to take over. */
static size_t instance_count(int fd)
{
	json_t *answer = say_pid(fd, "read", "{\"session\":%d}");
	json_t *rows = json_object_get(json_object_get(answer, "result"), "rows");
	size_t count = rows ? json_array_size(rows) : SIZE_MAX;

	json_decref(answer);
	return count;
}

static void wait_instances(int fd, size_t wanted)
{
	size_t count = 0;

	for (int ms = 0; ms < PATIENCE_MS && (count = instance_count(fd)) != wanted; ms += 20)
		nap_ms(20);
	assert_int_equal(count, wanted);
}

static const char hold_attach[] = "{\"target\":%d,\"hold\":true}";
static const char hold_leaf[] =
	"{\"session\":%d,\"metric\":\"calls\",\"focus\":[\"/Code/calls/leaf\"],\"hold\":true}";
static const char plain_tiny[] =
	"{\"session\":%d,\"metric\":\"calls\",\"focus\":[\"/Code/calls/tiny\"]}";

/* What somebody else inserted stays, and the session with it; what was held goes. */
static void others_keep_theirs(void **state)
{
	int holder, other;

	(void)state;
	holder = raw_connect();
	other = raw_connect();
	must(say_pid(holder, "attach", hold_attach), "attach");
	must(say_pid(holder, "insert", hold_leaf), "held insert");
	must(say_pid(other, "insert", plain_tiny), "plain insert");
	assert_int_equal(instance_count(other), 2);
	close(holder);
	wait_instances(other, 1);
	assert_int_equal(session_count(), 1);
	close(other);
	nap_ms(200);
	assert_int_equal(session_count(), 1);
	run_dinst(o, "detach %d", (int)program.pid);
	assert_int_equal(o->status, 0);
	assert_clean("others");
}

/* Who joins without hold makes it a session that stays; who joins with it, one that stays as long as he. */
static void joining(void **state)
{
	int first, second;

	(void)state;
	first = raw_connect();
	second = raw_connect();
	must(say_pid(first, "attach", hold_attach), "attach");
	must(say_pid(second, "attach", hold_attach), "join");
	must(say_pid(first, "insert", hold_leaf), "insert");
	close(first);
	wait_instances(second, 0);
	assert_int_equal(session_count(), 1);
	close(second);
	assert_clean("two holders");
	first = raw_connect();
	second = raw_connect();
	must(say_pid(first, "attach", hold_attach), "attach");
	must(say_pid(second, "attach", "{\"target\":%d}"), "plain join");
	close(first);
	close(second);
	nap_ms(300);
	assert_int_equal(session_count(), 1);
	run_dinst(o, "detach %d", (int)program.pid);
	assert_clean("a plain join");
}

/* The orderly way to leave. */
static void letting_go(void **state)
{
	int first, second;
	json_t *answer;

	(void)state;
	first = raw_connect();
	second = raw_connect();
	must(say_pid(first, "attach", hold_attach), "attach");
	must(say_pid(second, "attach", hold_attach), "join");
	must(say_pid(first, "insert", hold_leaf), "insert");
	/* an id that is gone already is no trouble */
	must(say_pid(second, "remove", "{\"session\":%d,\"all\":true}"), "remove");
	must(say_pid(first, "insert", hold_leaf), "insert again");
	answer = say_pid(first, "detach", "{\"session\":%d,\"hold\":true}");
	assert_true(json_is_true(json_object_get(json_object_get(answer, "result"), "kept")));
	must(answer, "detach");
	assert_int_equal(instance_count(second), 0);
	answer = say_pid(second, "detach", "{\"session\":%d,\"hold\":true}");
	assert_null(json_object_get(json_object_get(answer, "result"), "kept"));
	must(answer, "last detach");
	assert_int_equal(session_count(), 0);
	close(first);
	close(second);
	assert_clean("letting go");
}

/* The mutator dies, another one takes over; the client goes after that, or together with it. */
static void mutator_dies_too(void **state)
{
	(void)state;
	for (int together = 0; together < 2; together++) {
		int fd = raw_connect();
		pid_t mutator;

		must(say_pid(fd, "attach", hold_attach), "attach");
		must(say_pid(fd, "insert", hold_leaf), "insert");
		mutator = mutator_pid();
		assert_true(mutator > 0);
		kill(mutator, SIGKILL);
		if (!together)
			wait_instances(fd, 0);
		close(fd);
		assert_clean("the mutator's death");
	}
}

/* A program's file may have a name that is longer than any process's: top looks at its functions all the same. */
static void a_program_of_a_long_name(void **state)
{
	char name[140], from[600], to[600];
	struct program p;

	(void)state;
	snprintf(name, sizeof(name), "%0120d", 7);
	target_path("calls", from, sizeof(from));
	target_path(name, to, sizeof(to));
	unlink(to);
	assert_int_equal(link(from, to), 0);
	start_program(&p, name);
	hear_line(&p, "ready");
	run_dinst(o, "top %d -m %s -c 1 -i 0.2", (int)p.pid, name);
	end_calls(&p);
	unlink(to);
	if (o->status)
		fail_msg("top: %s", o->err);
	assert_non_null(strstr(o->out, name));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(others_keep_theirs),  cmocka_unit_test(joining),
		cmocka_unit_test(letting_go),	       cmocka_unit_test(mutator_dies_too),
		cmocka_unit_test(signals_end_it),      cmocka_unit_test(second_signal),
		cmocka_unit_test(reader_goes_away),    cmocka_unit_test(done_in_part),
		cmocka_unit_test(one_after_the_other), cmocka_unit_test(killed_at_any_moment),
		cmocka_unit_test(daemon_goes_first),   cmocka_unit_test(a_program_of_a_long_name),
	};

	return cmocka_run_group_tests_name("live/questions", tests, setup, teardown);
}
