/* SPDX-License-Identifier: MIT */
/*
 * top.c - dinst top on programs whose calls are known: two functions of one name are both
 * counted, and after a pause, or on the way back, rates go on; at the prompt each begins anew; views
 * of callers and threads keep the limit and the filter, and where there can be none it says so. Keys
 * are typed into a terminal.
 */
#include <pthread.h>
#include <pty.h>

#include "tests/live/daemon_calls.h"

enum { SEE_MS = 60000 };

static struct output *o;
static struct program program;
static int busy; /* asked by the worker */
static pthread_t worker;
static int terminal;
static char screen[1 << 20];
static size_t screen_used, screen_seen;

static int setup(void **state)
{
	int err = fixture_setup(state);

	alarm(600);
	unsetenv("DINST_MUTATOR");
	setenv("TERM", "xterm", 1);
	o = malloc(sizeof(*o));
	return err;
}

static int teardown(void **state)
{
	free(o);
	return fixture_teardown(state);
}

/* ------------------------------------------------------------------ the load */

static void *work(void *arg)
{
	(void)arg;
	while (__atomic_load_n(&busy, __ATOMIC_RELAXED)) {
		go(&program, 5);
		nap_ms(5);
	}
	return NULL;
}

static void set_busy(int on)
{
	__atomic_store_n(&busy, on, __ATOMIC_RELAXED);
	if (on)
		assert_int_equal(pthread_create(&worker, NULL, work, NULL), 0);
	else
		pthread_join(worker, NULL);
}

/* ---------------------------------------------------------------- the screen */

/* Reads until `text` is written behind what was seen before. */
static void see(const char *text)
{
	struct pollfd p = {terminal, POLLIN, 0};

	for (int ms = 0; ms < SEE_MS; ms += 50) {
		const char *at = strstr(screen + screen_seen, text);
		ssize_t n;

		if (at) {
			screen_seen = (size_t)(at - screen) + strlen(text);
			return;
		}
		if (poll(&p, 1, 50) <= 0)
			continue;
		n = read(terminal, screen + screen_used, sizeof(screen) - 1 - screen_used);
		if (n <= 0)
			break;
		screen_used += (size_t)n;
		screen[screen_used] = '\0';
	}
	fail_msg("'%s' is not seen: %s", text, screen + screen_seen);
}

static void type(const char *keys)
{
	assert_int_equal(write(terminal, keys, strlen(keys)), strlen(keys));
}

/* `option` and its value may be NULL. */
static pid_t open_with(const char *command, const char *option, const char *value)
{
	struct winsize size = {.ws_row = 24, .ws_col = 120};
	char pid_text[16];
	pid_t pid;

	snprintf(pid_text, sizeof(pid_text), "%d", (int)program.pid);
	screen_used = screen_seen = 0;
	screen[0] = '\0';
	pid = forkpty(&terminal, NULL, NULL, &size);
	if (pid == 0) {
		alarm(600);
		execl(fixture_dinst, "dinst", command, pid_text, option, value, (char *)NULL);
		_exit(126);
	}
	return pid;
}

static pid_t open_client(const char *command)
{
	return open_with(command, NULL, NULL);
}

static void close_client(pid_t pid, const char *keys)
{
	int status = -1;

	type(keys);
	for (int ms = 0; ms < ANSWER_MS && waitpid(pid, &status, WNOHANG) == 0; ms += 10)
		nap_ms(10);
	assert_int_equal(status, 0);
	close(terminal);
}

static void wait_idle(void)
{
	for (int ms = 0; ms < ANSWER_MS; ms += 20) {
		run_dinst(o, "ls --json");
		if (strstr(o->out, "\"active\":0,"))
			return;
		nap_ms(20);
	}
	fail_msg("something stays inserted: %.300s", o->out);
}

/* --------------------------------------------------------------------- cases */

/* What nobody calls any more goes from the screen. */
static void sees_the_load_end(void)
{
	set_busy(0);
	see("looks at another module");
}

/* What was taken out meanwhile is counted again, not shown as it was then for ever */
static void rates_go_on(void **state)
{
	pid_t pid;

	(void)state;
	start_calls(&program);
	set_busy(1);
	pid = open_client("top");
	see("branchy");
	type(" ");
	see("PAUSED");
	wait_idle();
	type(" ");
	sees_the_load_end();
	set_busy(1);
	see("branchy");
	type("\r");
	see("called by");
	type("\177");
	see("were called");
	sees_the_load_end();
	close_client(pid, "q");
	end_calls(&program);
}

/* What stood on the screen when one ended, a question or help, is not there when the next one begins. */
static void begins_anew(void **state)
{
	pid_t pid;

	(void)state;
	start_calls(&program);
	set_busy(1);
	pid = open_client("attach");
	see("dinst calls> ");
	type("top\n");
	see("spc pause");
	type("/");
	see("only names with");
	type("\003");
	see("dinst calls> ");
	type("top\n");
	see("spc pause");
	type("?");
	see("processor time of the function itself");
	type("\003");
	see("dinst calls> ");
	type("top\n");
	see("branchy");
	type("q");
	see("dinst calls> ");
	set_busy(0);
	type("detach\n");
	see("dinst> ");
	close_client(pid, "quit\n");
	end_calls(&program);
}

static double rate_of(json_t *rows, const char *name)
{
	json_t *row;
	size_t index;

	json_array_foreach(
		rows, index,
		row) if (!strcmp(json_string_value(json_object_get(row, "function")),
				 name)) return json_number_value(json_object_get(row,
										 "calls_per_s"));
	return 0;
}

/* Of two functions of one name both are counted */
static void twins(void **state)
{
	char where[64], *line;
	json_t *object, *rows;
	double both, other;

	(void)state;
	start_program(&program, "twins");
	read_line(&program, where);
	set_busy(1);
	run_dinst(o, "top %d --json -i 0.5 -c 4", (int)program.pid);
	set_busy(0);
	assert_int_equal(o->status, 0);
	o->out[strlen(o->out) - 1] = '\0';
	line = strrchr(o->out, '\n');
	assert_non_null(line);
	object = json_loads(line, 0, NULL);
	rows = json_object_get(object, "rows");
	both = rate_of(rows, "same_name");
	other = rate_of(rows, "call_other");
	if (both < 2.7 * other || both > 3.3 * other || other <= 0)
		fail_msg("%.1f of two that are called three times, %.1f: %s", both, other, line);
	json_decref(object);
	end_calls(&program);
}

static void start_views(void)
{
	start_program(&program, "views");
	hear_line(&program, "ready");
	set_busy(1);
}

static void end_views(pid_t pid)
{
	close_client(pid, "q");
	set_busy(0);
	end_calls(&program);
}

/* What it costs is told there, the filter is applied, and who calls is found in C++, too */
static void callers(void **state)
{
	pid_t pid;

	(void)state;
	start_views();
	pid = open_with("top", "--filter", "views::inner");
	see("views::inner(int)");
	type("c");
	see("callers of views::inner(int)");
	see("costs it");
	see("nothing with such a name was called");
	type("/\033");
	see("views::outer(int)+0x");
	type("\r");
	see("d by views::outer(int)");
	end_views(pid);
}

/* Of a function that never returns nobody can tell who calls it: that is said, and it goes on */
static void no_view_of(const char *key)
{
	pid_t pid;

	start_views();
	pid = open_with("top", "--filter", "views::leaps");
	see("views::leaps()");
	type(key);
	see("none of its exits can be instrumented");
	type("/\033");
	see("views::outer(int)");
	end_views(pid);
}

static void no_callers(void **state)
{
	(void)state;
	no_view_of("c");
}

static void no_threads(void **state)
{
	(void)state;
	no_view_of("t");
}

/* A line that is no function's has none of the views of one */
static void of_threads_there_are_none(void **state)
{
	pid_t pid;

	(void)state;
	start_views();
	pid = open_with("top", "--filter", "views");
	see("views::outer(int)");
	type("t");
	see("threads in views::");
	see(" views");
	type("c");
	see("that is no function of views");
	end_views(pid);
}

/* Nothing was called since: how to go back is told */
static void nothing_seen(void **state)
{
	pid_t pid;

	(void)state;
	start_views();
	pid = open_client("top");
	see("views::outer(int)");
	type(" ");
	see("PAUSED");
	set_busy(0);
	type("c");
	see("callers of views::");
	type(" ");
	see("nothing was seen so far");
	set_busy(1);
	end_views(pid);
}

/* A target that cannot be stopped for a moment is asked again, and no function is given up */
static void busy_for_a_moment(void **state)
{
	static const char busy_soon[] = "vfork 8000\n";
	pid_t pid;

	(void)state;
	start_program(&program, "views");
	hear_line(&program, "ready");
	run_dinst(o, "attach %d", (int)program.pid);
	assert_int_equal(o->status, 0);
	assert_int_equal(write(program.in, busy_soon, strlen(busy_soon)), strlen(busy_soon));
	pid = open_with("top", "--filter", "views::inner");
	see("uninterruptible");
	hear_line(&program, "done");
	set_busy(1);
	see("views::inner(int)");
	close_client(pid, "q");
	set_busy(0);
	run_dinst(o, "detach %d", (int)program.pid);
	assert_int_equal(o->status, 0);
	end_calls(&program);
}

/* -d ends it on a terminal as it does elsewhere */
static void duration(void **state)
{
	struct pollfd p = {0};
	int status = -1;
	pid_t pid;

	(void)state;
	start_views();
	pid = open_with("top", "-d", "2");
	p = (struct pollfd){terminal, POLLIN, 0};
	for (int ms = 0; ms < SEE_MS && waitpid(pid, &status, WNOHANG) == 0; ms += 50)
		if (poll(&p, 1, 50) > 0 && read(terminal, screen, sizeof(screen)) <= 0)
			nap_ms(50);
	if (status == -1)
		close_client(pid, "q");
	else
		close(terminal);
	set_busy(0);
	end_calls(&program);
	assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rates_go_on),
		cmocka_unit_test(begins_anew),
		cmocka_unit_test(twins),
		cmocka_unit_test(callers),
		cmocka_unit_test(no_callers),
		cmocka_unit_test(no_threads),
		cmocka_unit_test(of_threads_there_are_none),
		cmocka_unit_test(nothing_seen),
		cmocka_unit_test(busy_for_a_moment),
		cmocka_unit_test(duration),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("top", tests, setup, teardown);
}
