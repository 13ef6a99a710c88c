/* SPDX-License-Identifier: MIT */
/*
 * scripts.c - commands in a row, by one dinst: what one of them was about, or how it ended, and the next one.
 */
#include <stdbool.h>

#include "tests/live/daemon_group.h"

/* A dinst that gets lines. */
struct script {
	pid_t pid;
	int in, out, err;
};

static struct program stays; /* has the session "stays" */

/* Sets up what stays. */
static int setup_stays(void **state)
{
	const int err = setup(state);

	signal(SIGPIPE, SIG_IGN);
	start_calls(&stays);
	run_dinst(o, "attach %d -n stays", (int)stays.pid);
	return err || o->status;
}

static int teardown_stays(void **state)
{
	run_dinst(o, "detach stays");
	end_calls(&stays);
	return teardown(state);
}

static void begin(struct script *s, const char *line)
{
	struct dinst_error e = {0, ""};
	char *argv[32] = {fixture_dinst};
	struct words w;
	int in[2];

	assert_int_equal(words_split(line, &w, &e), 0);
	for (int n = 0; n < 30 && w.word[n]; n++)
		argv[n + 1] = w.word[n];
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	s->in = in[1];
	s->out = scratch_file();
	s->err = scratch_file();
	s->pid = fork();
	if (s->pid == 0) {
		alarm(600);
		dup2(in[0], 0);
		dup2(s->out, 1);
		dup2(s->err, 2);
		execv(fixture_dinst, argv);
		_exit(126);
	}
	close(in[0]);
	words_release(&w);
}

static void say(const struct script *s, const char *line)
{
	/* where it has ended already, its status tells */
	if (write(s->in, line, strlen(line)) < 0)
		assert_int_equal(errno, EPIPE);
}

/* What it has said and how it ended, into *o. */
static void finish(struct script *s)
{
	int status;

	close(s->in);
	assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
	o->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	read_all(s->out, o->out);
	read_all(s->err, o->err);
	close(s->out);
	close(s->err);
}

/* ------------------------------------------------------------ whose event it is */

/*
 * A script attaches to a program, which ends once that is said; then it runs a command about another one, whose
 * words are in *o.
 */
static void after_another(const char *attach, const char *said, const char *line)
{
	struct program ends;
	struct script s;
	char text[300];

	start_calls(&ends);
	begin(&s, "run -");
	snprintf(text, sizeof(text), attach, (int)ends.pid);
	say(&s, text);
	do {
		nap_ms(10);
		read_all(s.out, o->out);
	} while (!strstr(o->out, said));
	end_calls(&ends);
	do {
		nap_ms(10);
		run_dinst(o, "ls");
	} while (!strstr(o->out, "exited"));
	say(&s, line);
	finish(&s);
	if (o->status != 0)
		fail_msg("%s: %d: %.300s", line, o->status, o->err);
}

/* It was asked for a second, and took one. */
static void assert_second(void)
{
	json_t *answer = json_loads(strchr(o->out, '\n') + 1, 0, NULL);

	if (!(json_number_value(json_object_get(answer, "seconds")) >= 1))
		fail_msg("%.300s %.300s", o->out, o->err);
	json_decref(answer);
}

/* fear F3: what is told of a program that has ended is taken for news of the one that is asked about */
static void another_has_ended(void **state)
{
	struct program third;
	char line[100];

	(void)state;
	after_another("attach %d -n ends\n", "attached in", "hist -p stays many -d 1 --json\n");
	assert_second();
	assert_non_null(strstr(o->err, "ends: the target has ended"));
	run_dinst(o, "detach ends");
	/* the same where the next session has the name of that which has ended */
	start_calls(&third);
	snprintf(line, sizeof(line), "hist -p %d many -d 1 --json\n", (int)third.pid);
	after_another("attach %d\n", "attached in", line);
	assert_second();
	end_calls(&third);
}

static size_t readings(void)
{
	size_t count = 0;

	for (const char *at = o->out; (at = strstr(at, "\"rate\":")) != NULL; at++)
		count++;
	return count;
}

/* A watch that is asked for so many readings takes so many, and of a program that has ended one. */
static void watch_after_another(void **state)
{
	struct script s;

	(void)state;
	run_dinst(o, "insert calls /Code/calls/many -p stays");
	assert_int_equal(o->status, 0);
	after_another("attach %d -n ends -e 'insert calls /Code/calls/leaf'\n", "calls/leaf",
		      "watch -p stays -i 0.05 -c 3 --json\n");
	assert_int_equal(readings(), 3);
	begin(&s, "watch -p ends -i 0.05 -c 1000 --json");
	finish(&s);
	assert_int_equal(o->status, 0);
	assert_int_equal(readings(), 1);
	run_dinst(o, "detach ends");
	run_dinst(o, "remove --all -p stays");
	assert_int_equal(o->status, 0);
}

/* ------------------------------------------------------------ ended by a signal */

/* Nothing is inserted in "stays", and `ls` does not say what was known before. */
static bool is_empty(void)
{
	do
		run_dinst(o, "ls -p stays --json");
	while (!strstr(o->out, "\"active\":0,"));
	run_dinst(o, "read -p stays --json");
	return o->status == 0 && !o->out[0];
}

/* Begins that, sends the signal when something is inserted, and expects this status, and these words if any. */
static void interrupt(const char *line, int sig, int status, const char *words)
{
	struct script s;

	begin(&s, line);
	do {
		nap_ms(10);
		run_dinst(o, "ls --json");
	} while (!strstr(o->out, "\"active\":1,"));
	assert_int_equal(kill(s.pid, sig), 0);
	finish(&s);
	if (o->status != status ||
	    (words ? !strstr(o->err, words) : strstr(o->err, "signal") != NULL))
		fail_msg("%s, signal %d: %d: %.300s", line, sig, o->status, o->err);
	assert_true(is_empty());
}

/* A script of these lines. */
static const char *script_of(const char *lines)
{
	static char command[100];
	char path[90];
	FILE *f;

	snprintf(path, sizeof(path), "%s/script", fixture_directory);
	f = fopen(path, "we");
	assert_non_null(f);
	fputs(lines, f);
	assert_int_equal(fclose(f), 0);
	snprintf(command, sizeof(command), "run %s", path);
	return command;
}

#define ASKS	"hist -p stays many -d 500\n"
#define INSERTS "insert calls /Code/calls/many -p stays\n"

/* What ends a line is meant for the script: the lines behind it are not run, and it is told. */
static void signal_ends_script(void **state)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	static const char undone[] = "what follows is not run";

	(void)state;
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		interrupt(script_of(ASKS INSERTS), signals[i], 1, undone);
	interrupt(script_of("-" ASKS "\n# now\n" INSERTS), SIGTERM, 1, undone);
	interrupt("attach stays -e 'hist many -d 500' -M /dev/null -e 'insert calls'", SIGTERM, 1,
		  undone);
	interrupt("attach stays -e 'hist many -d 500' -e 'insert calls'", SIGINT, 1, undone);
	/* where nothing follows all is done */
	interrupt(script_of("# one\n" ASKS "\n# end\n"), SIGTERM, 0, NULL);
	interrupt("attach stays -e 'hist many -d 500' -n stays", SIGHUP, 0, NULL);
}

/* A script in a script is not gone on with either, by whoever has called it. */
static void signal_ends_callers(void **state)
{
	char lines[200];

	(void)state;
	snprintf(lines, sizeof(lines), "attach stays -x %s/script -e 'insert calls'",
		 fixture_directory);
	script_of("-" ASKS);
	interrupt(lines, SIGTERM, 1, "what follows is not run");
	script_of(ASKS INSERTS);
	interrupt(lines, SIGTERM, 1, "what follows is not run");
}

/* `watch` without a count goes on until somebody ends it, and the script with it. */
static void watch_in_script(void **state)
{
	struct script s;

	(void)state;
	begin(&s, script_of(INSERTS "watch -p stays -i 0.05 --json\n" INSERTS));
	do {
		nap_ms(10);
		read_all(s.out, o->out);
	} while (!readings());
	assert_int_equal(kill(s.pid, SIGINT), 0);
	finish(&s);
	assert_int_equal(o->status, 1);
	run_dinst(o, "read -p stays -q --json");
	assert_non_null(strchr(o->out, '\n'));
	assert_null(strchr(strchr(o->out, '\n') + 1, '\n'));
	run_dinst(o, "remove --all -p stays");
	assert_true(is_empty());
}

/* A program that is held meanwhile goes on, and whoever was to wait for it ends without that. */
static void signal_ends_waiting(void **state)
{
	char line[700], path[600];

	(void)state;
	target_path("calls", path, sizeof(path));
	snprintf(line, sizeof(line), "exec -n waited --wait -e 'hist -p stays many -d 500' -- %s 2",
		 path);
	interrupt(line, SIGTERM, 1, "not waited for");
	run_dinst(o, "detach waited --json");
	assert_int_equal(o->status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_has_ended),  cmocka_unit_test(watch_after_another),
		cmocka_unit_test(signal_ends_script), cmocka_unit_test(signal_ends_callers),
		cmocka_unit_test(watch_in_script),    cmocka_unit_test(signal_ends_waiting),
	};

	return cmocka_run_group_tests_name("live/scripts", tests, setup_stays, teardown_stays);
}
