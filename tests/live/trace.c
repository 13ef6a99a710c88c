/* SPDX-License-Identifier: MIT */
/*
 * trace.c - dinst trace, record and report on a program whose calls are known: every form of
 * value, who calls whom, conditions, times, both ends of both commands; and that all that was
 * recorded or dropped is all that happened.
 */
#include <fnmatch.h>
#include <stdbool.h>

#include "tests/live/harness_session.h"
#include "tests/live/trace_target.h"

/* What stands behind time and thread. */
static char *call_of(char *line)
{
	char *thread = strstr(line, "  "), *call = thread ? strstr(thread + 2, "  ") : NULL;

	return call ? call + strspn(call, " ") : line;
}

/*
 * Each line is one of the patterns, and each pattern that does not begin with '~' is met. On a
 * machine that is busy a call may take so long that its line comes in two; and calls may have begun
 * before.
 */
static bool is_split(const char *call)
{
	const size_t length = strlen(call);

	return call[0] == '}' || (length > 2 && !strcmp(call + length - 2, " {"));
}

static void check_lines(char *text, const char *const *patterns)
{
	unsigned met[32] = {0};
	char *save = NULL;
	size_t n;

	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		for (n = 0; patterns[n]; n++)
			if (!fnmatch(patterns[n] + (patterns[n][0] == '~'), call_of(line), 0))
				break;
		if (!patterns[n] && !is_split(call_of(line)))
			fail_msg("'%s' was not expected", call_of(line));
		met[n] += patterns[n] != NULL;
	}
	for (n = 0; patterns[n]; n++)
		if (!met[n] && patterns[n][0] != '~')
			fail_msg("'%s' did not come", patterns[n]);
}

struct trace_case {
	const char *words;
	int status;
	const char *patterns[16];
};

static void check_case(const struct trace_case *t)
{
	struct output *o = malloc(sizeof(*o));

	run_dinst(o, "trace -p %d %s", (int)target.pid, t->words);
	if (o->status != t->status)
		fail_msg("%s: %d: %s", t->words, o->status, o->err);
	if (t->status != 0 && t->status != 3)
		check_lines(o->err, t->patterns);
	else
		check_lines(o->out, t->patterns);
	free(o);
}

/* A '[' stands for itself only in brackets. */
#define B "[[]"

static const struct trace_case typed[] = {
	{"paint -a -r -c 60",
	 0,
	 {"paint(c=0x* {id=*, name=\"al\\\\\"ice\\\\n\", at={x=1, y=-2}, load=0.25, colour=RED, low=5, "
	  "sign=-7, tag=\"xy\"}, colour=BLUE, hard=true) = BLUE " B "*s]",
	  "paint(c=0x* {id=*, name=\"al\\\\\"ice\\\\n\", at={x=1, y=-2}, load=0.25, colour=RED, low=5, "
	  "sign=-7, tag=\"xy\"}, colour=GREEN, hard=true) = GREEN " B "*s]",
	  "paint(c=0x* {id=*, name=\"bob\", at={x=3, y=4}, load=-1e+09, colour=RED, low=1, sign=3, "
	  "tag=\"abcd\"}, colour=GREEN, hard=false) = RED " B "*s]",
	  "paint(c=0x* {id=*, name=\"bob\", *}, colour=3, hard=false) = RED " B "*s]"}},
	{"scale move -a -r -c 20",
	 0,
	 {"scale(a=0.3333333333333333, b=0.1, n=-5) = -4.96666666* " B "*s]",
	  "move(p.x=10, p.y=20, by=*) = {x=*, y=*} " B "*s]"}},
	{"look_up -a -r -c 40",
	 0,
	 {"look_up(key=\"al\\\\\"ice\\\\n\", n=7) = \"al\\\\\"ice\\\\n\" " B "*]",
	  "look_up(key=\"bob\", n=3) = NULL " B "*]",
	  "look_up(key=\"carol\", n=5) = \"carol\" " B "*]",
	  "look_up(key=NULL, n=0) = NULL " B "*]"}},
	{"slow --args --string 3 -c 6",
	 0,
	 {"slow(n=*, what=\"somethin\"...) " B "*]", "~slow(n=*) {", "~}  slow (began before)",
	  "~} " B "*]  slow"}},
	{"fib -a -r -c 30",
	 0,
	 {"fib(n=4) {", "fib(n=3) {", "fib(n=2) {", "fib(n=1) = 1 " B "*]", "fib(n=0) = 0 " B "*]",
	  "} = 1 " B "*]  fib", "} = 2 " B "*]  fib", "} = 3 " B "*]  fib",
	  "~} = *  fib (began before)"}},
	/* Conditions: on arguments, members, what is returned; calls in calls. */
	{"fib -a -r --if 'n == 3' -c 10", 0, {"fib(n=3) = 2 " B "*]"}},
	{"fib -a -r --if 'n % 2 == 0 && n' -c 10",
	 0,
	 {"fib(n=4) {", "fib(n=2) = 1 " B "*]", "} = 3 " B "*]  fib",
	  "~} = *  fib (began before)"}},
	{"paint -a --if 'c->at.x == 3 && !hard && colour == 7' -c 5",
	 0,
	 {"paint(c=0x* {id=*, name=\"bob\", *}, colour=GREEN, hard=false) " B "*]"}},
	{"'paint' -a -r --if '$return == -3' -c 5",
	 0,
	 {"paint(c=0x* {id=*, name=\"al*\", *}, colour=BLUE, hard=true) = BLUE " B "*]"}},
	/* Of the quick ones those that were kept from the CPU for so long. */
	{"slow -a -t 2ms -c 5",
	 0,
	 {"slow(n=*[13579], what=\"something\") " B "*s]", "~slow(n=*[02468], *) " B "[2-9]*s]",
	  "~slow(n=*[02468], *) " B "1[0-9]*s]", "~slow(n=*[02468], *) " B "1.* s]"}},
	{"slow -a --if '$elapsed < 2000000 && n % 2 == 0' -c 5",
	 0,
	 {"slow(n=*[02468], what=\"something\") " B "*s]"}},
	{"outer -a -r -D 2 -c 40",
	 0,
	 {"outer(n=*) {", "leave(to=0x*, n=*) {", "step(n=*) = * " B "*]", "} = * " B "*]  outer",
	  "~} = *  outer (began before)"}},
	/* An exit that is a jump has no result, and is an end all the same. */
	{"tail -a -r -c 5", 0, {"tail(n=*) " B "*]"}},
	{"look_up --caller -c 5", 0, {"look_up()  <- * " B "*]"}},
	/* What is wrong is told. */
	{"paintt", 1, {"dinst: no function matches 'paintt'*did you mean 'paint'*"}},
	{"paint --if 'd > 1'", 2, {"dinst: paint has no argument 'd'; it has c, colour, hard"}},
	{"paint -t 5", 2, {"dinst: --min-time takes a time with its unit, *"}},
	{"paint -c none", 2, {"dinst: --count takes a number of lines, *"}},
};

static void test_typed(void **state)
{
	(void)state;
	start("traced", "on");
	for (size_t i = 0; i < sizeof(typed) / sizeof(typed[0]); i++)
		check_case(&typed[i]);
	stop();
}

/* Of calls too deep in calls nothing is recorded, and when all are over nobody is taken to be inside of one. */
static void test_deep(void **state)
{
	static const struct trace_case deep = {"dive -a --if 'n >= 0' -D 1 -c 400",
					       0,
					       {"dive(n=100) {", "dive(n=37) {",
						"sound(n=0) " B "*]", "} " B "*]  dive"}};

	(void)state;
	start("traced", "deep");
	check_case(&deep);
	stop();
}

static const struct trace_case plain[] = {
	{"look_up -a -r -c 20",
	 0,
	 {"look_up(\"al\\\\\"ice\\\\n\", 7, *) = * " B "*]", "look_up(\"bob\", 3, *) = 0 " B "*]",
	  "look_up(\"carol\", 5, *) = * " B "*]", "look_up(0, 0, *) = 0 " B "*]"}},
	{"look_up -a --if '$arg[1] == 3' -c 5", 0, {"look_up(\"bob\", 3, *) " B "*]"}},
	{"look_up -a --if 'n == 3'",
	 2,
	 {"dinst: 'n': there is no debug information that names the arguments of look_up; write "
	  "$arg" B "0], *"}},
};

static void test_plain(void **state)
{
	(void)state;
	start("traced-plain", "on");
	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
		check_case(&plain[i]);
	stop();
}

/* One object a line, with the values as values. */
static void test_json(void **state)
{
	struct output *o = malloc(sizeof(*o));
	unsigned lines = 0;
	char *save = NULL;

	(void)state;
	start("traced", "on");
	run_dinst(o, "trace --json -p %d scale -a -r -c 8", (int)target.pid);
	assert_int_equal(o->status, 0);
	for (char *line = strtok_r(o->out, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save), lines++) {
		json_t *event = json_loads(line, 0, NULL);
		const char *what = json_string_value(json_object_get(event, "event"));

		assert_string_equal(json_string_value(json_object_get(event, "function")), "scale");
		if (!strcmp(what, "entry"))
			assert_int_equal(json_integer_value(json_object_get(
						 json_object_get(event, "args"), "n")),
					 -5);
		else
			assert_true(json_real_value(json_object_get(event, "return")) < -4.9);
		json_decref(event);
	}
	assert_int_equal(lines, 8);
	free(o);
	stop();
}

/* ---------------------------------------------------------------------- ends */

/* Until a file has that text: a command has come so far. */
static void wait_text(const char *name, const char *text)
{
	static char all[OUTPUT_MAX];
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", fixture_directory, name);
	for (int ms = 0; ms < ANSWER_MS; ms += 10) {
		const int fd = open(path, O_RDONLY | O_CLOEXEC);

		if (fd >= 0) {
			read_all(fd, all);
			close(fd);
			if (strstr(all, text))
				return;
		}
		nap_ms(10);
	}
	fail_msg("%s does not come to have '%s'", path, text);
}

/* Traces step() in the background, into a file. */
static pid_t trace_into(const char *name, const char *option)
{
	char path[256], text[16];
	pid_t pid;

	snprintf(path, sizeof(path), "%s/%s", fixture_directory, name);
	snprintf(text, sizeof(text), "%d", (int)target.pid);
	pid = fork();
	if (pid == 0) {
		alarm(600);
		if (!freopen(path, "w", stdout))
			_exit(126);
		execl(fixture_dinst, "dinst", "trace", "-q", "-p", text, "step", option,
		      (char *)NULL);
		_exit(126);
	}
	return pid;
}

static void expect_end(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int shell(const char *format, ...)
{
	char command[1024];
	va_list args;
	int status;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	status = system(command);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void test_ends(void **state)
{
	pid_t pid;

	(void)state;
	start("traced", "on");
	/* Its time is over; whoever reads goes away; a signal. The target is left alone each time. */
	assert_int_equal(shell("%s trace -q -p %d step -d 0.3 > /dev/null", fixture_dinst,
			       (int)target.pid),
			 0);
	assert_int_equal(shell("timeout 300 %s trace -q -p %d step | head -n 3 | grep -c step "
			       "> %s/lines && test $(cat %s/lines) = 3",
			       fixture_dinst, (int)target.pid, fixture_directory,
			       fixture_directory),
			 0);
	pid = trace_into("lines", NULL);
	wait_text("lines", "step");
	assert_int_equal(kill(pid, SIGINT), 0);
	expect_end(pid);
	assert_int_equal(shell("timeout -s KILL 1 %s trace -q -p %d step > /dev/null; true",
			       fixture_dinst, (int)target.pid),
			 0);
	stop();
}

/* The target ends while it is traced: what it did last is there. */
static void test_target_ends(void **state)
{
	struct output *o = malloc(sizeof(*o));
	pid_t pid;

	(void)state;
	start("traced", NULL);
	pid = trace_into("last", "-a");
	wait_active(o);
	free(o);
	tell("round", 5);
	close(target.to);
	expect_end(target.pid);
	fclose(target.from);
	harness_snapshot_free(target.before);
	expect_end(pid);
	assert_int_equal(shell("test $(grep -c 'step(n=' %s/last) = 10", fixture_directory), 0);
}

/* -------------------------------------------------------------------- recording */

static pid_t record(const char *words, const char *name)
{
	char command[2048], path[256];
	pid_t pid = fork();

	snprintf(path, sizeof(path), "%s/%s", fixture_directory, name);
	if (pid == 0) {
		snprintf(command, sizeof(command), "exec %s record -p %d %s -o %s 2> %s/%s.err",
			 fixture_dinst, (int)target.pid, words, path, fixture_directory, name);
		alarm(600);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(126);
	}
	/* The directory is made when everything is in. */
	for (int ms = 0; ms < ANSWER_MS && access(path, F_OK) != 0; ms += 10)
		nap_ms(10);
	assert_int_equal(access(path, F_OK), 0);
	return pid;
}

static void end_record(pid_t pid)
{
	int status;

	assert_int_equal(kill(pid, SIGINT), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static json_int_t calls_of(struct output *o, const char *function)
{
	json_int_t calls = -1;
	char *save = NULL, *text = strdup(o->out);

	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		json_t *row = json_loads(line, 0, NULL);

		if (!strcmp(json_string_value(json_object_get(row, "function")), function))
			calls = json_integer_value(json_object_get(row, "calls"));
		json_decref(row);
	}
	free(text);
	return calls;
}

/* What is reported is what was done. */
static void test_record(void **state)
{
	struct output *o = malloc(sizeof(*o));
	pid_t pid;

	(void)state;
	start("traced", NULL);
	pid = record("paint look_up fib outer leave step tail -a -r", "one.ctf");
	tell("round", 100);
	end_record(pid);
	run_dinst(o, "--json report %s/one.ctf", fixture_directory);
	assert_int_equal(o->status, 0);
	assert_int_equal(calls_of(o, "paint"), 300);
	assert_int_equal(calls_of(o, "look_up"), 500);
	assert_int_equal(calls_of(o, "fib"), 900);
	assert_int_equal(calls_of(o, "step"), 200);
	assert_int_equal(calls_of(o, "outer"), 100);
	run_dinst(o, "report %s/one.ctf --trace -c 7", fixture_directory);
	assert_int_equal(o->status, 0);
	check_lines(o->out, (const char *const[]){"paint(c=*) {", "look_up(key=*) = * " B "*]",
						  "} = * " B "*]  paint", NULL});
	run_dinst(o, "report %s/one.ctf", fixture_directory);
	assert_non_null(strstr(o->out, ", 0 dropped"));
	run_dinst(o, "report %s", fixture_directory);
	assert_int_equal(o->status, 1);
	assert_non_null(strstr(o->err, "is no recording of dinst"));
	run_dinst(o, "record -p %d step -o %s/one.ctf", (int)target.pid, fixture_directory);
	assert_int_equal(o->status, 1);
	assert_non_null(strstr(o->err, "another name?"));
	free(o);
	stop();
}

/* Killed while it records: what was written can be read. */
static void test_record_killed(void **state)
{
	struct output *o = malloc(sizeof(*o));
	json_int_t calls = 0;
	pid_t pid;

	(void)state;
	start("traced", "on");
	pid = record("step -a", "killed.ctf");
	/* Something of it is there while it goes on, and no less of it afterwards. */
	for (int ms = 0; ms < ANSWER_MS && calls <= 0; ms += 100) {
		nap_ms(100);
		run_dinst(o, "--json report %s/killed.ctf", fixture_directory);
		if (o->status == 0)
			calls = calls_of(o, "step");
	}
	assert_true(calls > 0);
	end_target(pid);
	run_dinst(o, "--json report %s/killed.ctf", fixture_directory);
	assert_int_equal(o->status, 0);
	assert_true(calls_of(o, "step") >= calls);
	free(o);
	stop();
}

struct hot {
	json_int_t last[2], tids[2], entries;
};

static void check_hot(struct hot *h, const char *line)
{
	json_t *event = json_loads(line, 0, NULL), *n;
	const json_int_t tid = json_integer_value(json_object_get(event, "tid"));
	const int i = !h->tids[0] || h->tids[0] == tid ? 0 : 1;

	n = json_object_get(json_object_get(event, "args"), "n");
	if (n) {
		assert_true(!h->tids[i] || h->tids[i] == tid);
		h->tids[i] = tid;
		assert_true(json_integer_value(n) > h->last[i]);
		h->last[i] = json_integer_value(n);
		h->entries++;
	}
	json_decref(event);
}

/* As fast as two threads can: in order, and nothing that is neither there nor counted as dropped. */
static void test_hot(void **state)
{
	enum { CALLS = 300000 };
	struct output *o = malloc(sizeof(*o));
	struct hot h = {0};
	char command[1024], line[1024];
	long long events, dropped;
	pid_t pid;
	FILE *from;

	(void)state;
	start("traced", NULL);
	pid = record("step -a", "hot.ctf");
	tell("hot", CALLS);
	end_record(pid);
	run_dinst(o, "report %s/hot.ctf", fixture_directory);
	assert_int_equal(
		sscanf(o->out, "%*[^:]: %lld events in %*f s, %lld dropped", &events, &dropped), 2);
	assert_int_equal(events + dropped, 4ll * CALLS);
	snprintf(command, sizeof(command), "%s --json report %s/hot.ctf --trace", fixture_dinst,
		 fixture_directory);
	from = popen(command, "r");
	while (fgets(line, sizeof(line), from))
		check_hot(&h, line);
	assert_int_equal(pclose(from), 0);
	assert_true(h.entries > 1000);
	print_message("%lld of %d events were dropped\n", dropped, 4 * CALLS);
	free(o);
	stop();
}

/* A client that stands still for so long that the rings fill up: events are dropped. */
static void lose_some(struct output *o)
{
	enum { CALLS = 200000, STANDS_MS = 3000 };
	long long dropped = 0;
	pid_t pid = record("step -a", "lossy.ctf");

	assert_int_equal(kill(pid, SIGSTOP), 0);
	nap_ms(STANDS_MS); /* what it asked for last is taken out of the rings for a while */
	tell("hot", CALLS);
	assert_int_equal(kill(pid, SIGCONT), 0);
	end_record(pid);
	run_dinst(o, "report %s/lossy.ctf", fixture_directory);
	assert_int_equal(sscanf(o->out, "%*[^:]: %*d events in %*f s, %lld dropped", &dropped), 1);
	assert_true(dropped > 1000);
}

/* What was dropped in a session before is not told of what is recorded later. */
static void test_lost_before(void **state)
{
	struct output *o = malloc(sizeof(*o));
	pid_t pid;

	(void)state;
	start("traced", NULL);
	run_dinst(o, "attach %d", (int)target.pid);
	assert_int_equal(o->status, 0);
	lose_some(o);
	pid = record("step -a", "later.ctf");
	tell("round", 10);
	end_record(pid);
	run_dinst(o, "report %s/later.ctf", fixture_directory);
	assert_non_null(strstr(o->out, ": 40 events in "));
	assert_non_null(strstr(o->out, ", 0 dropped"));
	run_dinst(o, "detach");
	assert_int_equal(o->status, 0);
	free(o);
	stop();
}

/* Who cannot write its output for long ends soon all the same, and tells how much that cost. */
static void test_left_out(void **state)
{
	enum { CALLS = 600000 };
	char command[1024], path[256], text[4096];
	long long events = 0, dropped = 0, left = 0;
	int out[2], status;
	FILE *err;
	pid_t pid;

	(void)state;
	start("traced", NULL);
	snprintf(path, sizeof(path), "%s/left.err", fixture_directory);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		dup2(out[1], 1);
		snprintf(command, sizeof(command), "exec %s -v --json trace -p %d step -a 2> %s",
			 fixture_dinst, (int)target.pid, path);
		alarm(600);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(126);
	}
	close(out[1]);
	/* With -v it says what it has inserted. */
	wait_text("left.err", "inserted");
	tell("hot", CALLS);
	assert_int_equal(kill(pid, SIGINT), 0);
	while (read(out[0], text, sizeof(text)) > 0)
		continue;
	close(out[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	err = fopen(path, "r");
	assert_non_null(err);
	while (fgets(text, sizeof(text), err)) {
		if (strstr(text, " events, "))
			sscanf(text, "dinst: %lld events, %lld dropped", &events, &dropped);
		if (strstr(text, " left out"))
			sscanf(text, "dinst: %lld of these", &left);
	}
	fclose(err);
	print_message("%lld events, %lld dropped, %lld of them left out\n", events, dropped, left);
	assert_int_equal(events + dropped, 4ll * CALLS);
	assert_in_range(left, 0, dropped);
	stop();
}

static int setup(void **state)
{
	char path[600];
	const int status = fixture_setup(state);

	snprintf(path, sizeof(path), "%s-mutator", fixture_dinst);
	setenv("DINST_MUTATOR", path, 1);
	setenv("TZ", "UTC", 1);
	alarm(600);
	return status;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_typed),	    cmocka_unit_test(test_plain),
		cmocka_unit_test(test_deep),	    cmocka_unit_test(test_json),
		cmocka_unit_test(test_ends),	    cmocka_unit_test(test_target_ends),
		cmocka_unit_test(test_record),	    cmocka_unit_test(test_record_killed),
		cmocka_unit_test(test_hot),	    cmocka_unit_test(test_left_out),
		cmocka_unit_test(test_lost_before),
	};

	if (!harness_has_clock(true))
		return 0;
	return cmocka_run_group_tests(tests, setup, fixture_teardown);
}
