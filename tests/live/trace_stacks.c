/* SPDX-License-Identifier: MIT */
/*
 * trace_stacks.c - the calls around an event, on a program that calls one function by every kind
 * of way: what is shown is what there is, and where it cannot be known it says that there is more.
 */
#include <stdbool.h>
#include <sys/auxv.h>

#include "tests/live/harness_session.h"
#include "tests/live/trace_target.h"

static void check_done(const struct output *o)
{
	if (o->status)
		fail_msg("%d: %s", o->status, o->err);
}

/* ------------------------------------------------------------------- stacks */

enum { WAYS = 12, TEXT_MOST = 1024 };

/* How leaf() is reached, innermost first; "?": code without a name; '*' at the end: and more. */
struct way {
	const char *calls;
	bool complete, interrupted, guessed, any_end;
	const char *behind; /* one that comes later */
};

static const struct way ways[WAYS] = {
	[1] = {"three two one round_of_all main *", true, .behind = " _start"},
	[2] = {"down down down down down round_of_all main *", true, .behind = " _start"},
	[3] = {"compare *", true, .behind = " by_sorting round_of_all main "},
	[4] = {"big", .complete = false},
	[5] = {"varying round_of_all main *", true, .behind = " _start"},
	[6] = {"? by_memory round_of_all main *", true, .guessed = true, .behind = " _start"},
	[7] = {"on_signal *", true, .interrupted = true,
	       .behind = " interrupted round_of_all main "},
	[8] = {"on_signal *", false, .interrupted = true},
	[9] = {"fiber *", .any_end = true}, /* as the C library describes it */
	[10] = {"three two one thread *", .complete = true},
	[11] = {"last round_of_all main *", true, .behind = " _start"},
};

struct seen {
	char calls[TEXT_MOST];
	bool interrupted, guessed;
};

static void read_stack(const json_t *stack, struct seen *seen)
{
	size_t n;
	json_t *call;

	memset(seen, 0, sizeof(*seen));
	json_array_foreach((json_t *)stack, n, call)
	{
		const char *name = json_string_value(json_object_get(call, "function"));
		const size_t used = strlen(seen->calls);

		snprintf(seen->calls + used, TEXT_MOST - used, "%s%s", n ? " " : "",
			 name ? name : "?");
		seen->interrupted |= json_is_true(json_object_get(call, "interrupted"));
		seen->guessed |= json_is_true(json_object_get(call, "guessed"));
	}
}

/*
 * What a signal pushes may be more than all that is copied, where registers are many: then the stack
 * ends there, and says so.
 */
static bool is_cut(const struct way *way, const struct seen *seen, bool complete)
{
	enum { COPIED = 7680, CALLS = 1500 }; /* bytes; of all those calls together, about */

	return way->interrupted && !complete && getauxval(AT_MINSIGSTKSZ) + CALLS > COPIED &&
	       strstr(way->calls, "on_signal ") == way->calls &&
	       strstr(seen->calls, "on_signal ") == seen->calls;
}

static void check_way(const struct way *way, const struct seen *seen, bool complete)
{
	const size_t length = strlen(way->calls);
	const bool more = way->calls[length - 1] == '*';

	if (is_cut(way, seen, complete))
		return;
	if (more ? strncmp(seen->calls, way->calls, length - 1) != 0
		 : strcmp(seen->calls, way->calls) != 0)
		fail_msg("'%s' where '%s' is", seen->calls, way->calls);
	if (way->behind && !strstr(seen->calls, way->behind))
		fail_msg("no '%s' in '%s'", way->behind, seen->calls);
	if ((complete != way->complete && !way->any_end) || seen->interrupted != way->interrupted ||
	    seen->guessed != way->guessed)
		fail_msg("'%s': complete %d, interrupted %d, guessed %d", seen->calls, complete,
			 seen->interrupted, seen->guessed);
}

/* Every way is met, and is right each time. */
static void test_ways(void **state)
{
	struct output *o = malloc(sizeof(*o));
	unsigned met[WAYS] = {0};
	char *save = NULL;

	(void)state;
	start("stacks", NULL);
	run_dinst(o, "trace --json -p %d leaf -a --stack=32 -c 70", (int)target.pid);
	check_done(o);
	for (char *line = strtok_r(o->out, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		json_t *event = json_loads(line, 0, NULL), *stack, *args;
		struct seen seen;
		json_int_t n;

		assert_non_null(event);
		stack = json_object_get(event, "stack");
		args = json_object_get(event, "args");
		if (args) {
			n = json_integer_value(json_object_get(args, "way"));
			assert_true(n > 0 && n < WAYS && json_is_array(stack));
			read_stack(stack, &seen);
			check_way(&ways[n], &seen,
				  json_is_true(json_object_get(event, "stack_complete")));
			met[n]++;
		} else {
			assert_null(stack);
		}
		json_decref(event);
	}
	for (size_t n = 1; n < WAYS; n++)
		if (!met[n])
			fail_msg("%s was not met", ways[n].calls);
	free(o);
	stop_within(0);
}

/* ---------------------------------------------------------------------- text */

/* What stands behind a stack's line, for all of them; the calls' own lines are "|". */
static void shorten(char *text, char *to, size_t size)
{
	char *save = NULL;
	size_t used = 0;

	to[0] = '\0';
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		const char *call = line + strspn(line, " ");

		used += (size_t)snprintf(to + used, size - used, "%s ",
					 line[0] == ' ' ? call : "|");
		assert_true(used < size);
	}
}

static void test_text(void **state)
{
	struct output *o = malloc(sizeof(*o));
	char text[4096], way[64], *at;

	(void)state;
	start("stacks", NULL);
	/* As many as were asked for, and that there are more is told. */
	run_dinst(o, "trace -p %d leaf -a --if 'way == 1' --stack=2 -c 1", (int)target.pid);
	check_done(o);
	shorten(o->out, text, sizeof(text));
	if (sscanf(text, "| <- three+0x%*x <- two+0x%*x <- %3[.] %63s", way, way) != 1)
		fail_msg("%s", text);
	/* Exactly so many lines, with their stacks. */
	run_dinst(o, "trace -p %d leaf --stack=1 -c 5", (int)target.pid);
	check_done(o);
	shorten(o->out, text, sizeof(text));
	for (at = text, way[0] = 0; (at = strchr(at, '|')); at++)
		way[0]++;
	assert_int_equal(way[0], 5);
	/* When it is over the stack is the same. */
	run_dinst(o, "trace -p %d leaf -a --if '$elapsed >= 0 && way == 2' --stack=3 -c 1",
		  (int)target.pid);
	check_done(o);
	shorten(o->out, text, sizeof(text));
	if (strncmp(text, "| <- down+0x", 12) != 0 || !strstr(text, " <- ... "))
		fail_msg("%s", text);
	run_dinst(o, "trace -p %d leaf -a --caller --if 'way == 11' -c 1", (int)target.pid);
	check_done(o);
	assert_non_null(strstr(o->out, "leaf(way=11)  <- last+0x"));
	run_dinst(o, "trace -p %d leaf --stack=100", (int)target.pid);
	assert_int_equal(o->status, 2);
	assert_non_null(strstr(o->err, "--stack takes a number of calls from 1 to 64"));
	free(o);
	stop_within(0);
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

/* A recording has them, too, with their names. */
static void test_record(void **state)
{
	struct output *o = malloc(sizeof(*o));
	char text[4096];

	(void)state;
	start("stacks", NULL);
	assert_int_equal(shell("timeout 25 %s record -q -p %d leaf -a --stack --if 'way == 1' -d 1 "
			       "-o %s/stacks.ctf",
			       fixture_dinst, (int)target.pid, fixture_directory),
			 0);
	run_dinst(o, "report %s/stacks.ctf --trace -c 1", fixture_directory);
	check_done(o);
	shorten(o->out, text, sizeof(text));
	if (strncmp(text, "| <- three+0x", 13) != 0 || !strstr(text, " <- main+0x"))
		fail_msg("%s", text);
	/* Where babeltrace2 is not installed it cannot be asked. */
	assert_int_equal(shell("command -v babeltrace2 > /dev/null || exit 0; "
			       "babeltrace2 %s/stacks.ctf 2>&1 | grep -q 'backtrace = . .0. = 0x'",
			       fixture_directory),
			 0);
	free(o);
	stop_within(0);
}

static int setup(void **state)
{
	char path[600];
	const int status = fixture_setup(state);

	snprintf(path, sizeof(path), "%s-mutator", fixture_dinst);
	setenv("DINST_MUTATOR", path, 1);
	setenv("TZ", "UTC", 1);
	alarm(200);
	return status;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ways),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_record),
	};

	if (!harness_has_clock(true))
		return 0;
	return cmocka_run_group_tests(tests, setup, fixture_teardown);
}
