/* SPDX-License-Identifier: MIT */
/*
 * callees.c - what is said of whom functions call or jump to, and of how much of that nobody knows
 * (targets/passing-on.c). What `dinst graph` makes of it: graph_command.c.
 */
#include "tests/live/daemon_calls.h"

static struct output *o;
static struct program program;

static int setup(void **state)
{
	int err = fixture_setup(state);

	unsetenv("DINST_MUTATOR");
	setenv("LC_ALL", "C.UTF-8", 1);
	o = malloc(sizeof(*o));
	start_program(&program, "passing-on");
	hear_line(&program, "ready");
	run_dinst(o, "attach %d -n passing", (int)program.pid);
	return err || o->status;
}

static int teardown(void **state)
{
	run_dinst(o, "detach passing");
	end_calls(&program);
	free(o);
	return fixture_teardown(state);
}

/* `callees`: the only ones, "module:function" with blanks between them, "" for none. */
static void leads_to(const char *function, const char *callees, int unknown)
{
	char params[200], text[400] = "";
	json_t *answer, *row, *callee;
	size_t index, used = 0;

	snprintf(params, sizeof(params), "{\"session\":\"passing\",\"functions\":[\"%s\"]}",
		 function);
	answer = ask("callees", params);
	row = json_array_get(json_object_get(json_object_get(answer, "result"), "rows"), 0);
	if (!row)
		fail_msg("%s: no answer", function);
	json_array_foreach(json_object_get(row, "callees"), index, callee) used +=
		(size_t)snprintf(text + used, sizeof(text) - used, "%s%s:%s", index ? " " : "",
				 json_string_value(json_object_get(callee, "module")),
				 json_string_value(json_object_get(callee, "function")));
	if (strcmp(text, callees) != 0 ||
	    json_integer_value(json_object_get(row, "unknown")) != unknown)
		fail_msg("%s leads to '%s', %lld unknown; not to '%s', %d unknown", function, text,
			 (long long)json_integer_value(json_object_get(row, "unknown")), callees,
			 unknown);
	json_decref(answer);
}

/* fear E5: what a jump through a pointer leads to is unknown, as what a call through one does; returns are not */
static void jumps_through_pointers(void **state)
{
	(void)state;
	leads_to("to_known", "passing-on:aim", 0);
	leads_to("returning", "", 0);
	leads_to("returning_guarded", "", 0);
	leads_to("to_pointer", "", 1);
	leads_to("to_argument", "", 1);
	leads_to("to_both", "", 2);
	leads_to("to_guarded", "", 1);
}

/* fear E5, F3: -fno-plt: a jump through the table leads where a call through it does */
static void jumps_through_the_table(void **state)
{
	(void)state;
	leads_to("to_library", "libc.so.6:strtol", 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(jumps_through_pointers),
		cmocka_unit_test(jumps_through_the_table),
	};

	return cmocka_run_group_tests_name("live/callees", tests, setup, teardown);
}
