/* SPDX-License-Identifier: MIT */
/*
 * mdl_paper.c - every example of section 2 of Hollingsworth et al., "MDL: A
 * Language and Compiler for Dynamic Program Instrumentation", as printed, on a
 * program with functions pvm_send and pvm_recv. No message passing system is
 * needed: the language knows functions by their names only.
 */
#include "tests/live/mdl_help.h"

/* Figure 2. */
static const char figure_2[] = "list pvm_msg_func is procedure {\n"
			       "	flavor pvm;\n"
			       "	items { \"pvm_send\", \"pvm_recv\" };\n"
			       "}\n"
			       "constraint procedure /Code is counter {\n"
			       "	append preInsn $constraint[0].entry\n"
			       "		(* procedure = 1; *)\n"
			       "	prepend preInsn $constraint[0].return\n"
			       "		(* procedure = 0; *)\n"
			       "}\n"
			       "metric msgs {\n"
			       "	name \"Messages\";\n"
			       "	units opsPerSecond;\n"
			       "	aggregateOperator sum;\n"
			       "	flavor { pvm };\n"
			       "	// List of constraints that can be applied\n"
			       "	constraint module;\n"
			       "	constraint procedure;\n"
			       "	constraint msgTag;\n"
			       "	// the base computation of the metric.\n"
			       "	base is counter {\n"
			       "		foreach func in pvm_msg_func\n"
			       "			append preInsn func.entry constrained\n"
			       "				(* msgs++; *)\n"
			       "	}\n"
			       "}\n";

/* Section 2.2: the constraint for modules. */
static const char module_constraint[] = "constraint module /Code is counter {\n"
					"	foreach func in $constraint[1].funcs {\n"
					"		append preInsn func.entry\n"
					"			(* module = 1; *)\n"
					"		prepend preInsn func.return\n"
					"			(* module = 0; *)\n"
					"	}\n"
					"}\n";

/* Section 2.1: the first example. It is no metric, but it is asked for like one. */
static const char proc_calls[] = "foreach i in $procedures\n"
				 "	append preInsn i.entry\n"
				 "		(* proc_calls++; *)\n";

/* Section 2.1: a timer that starts after the 300th time step. */
static const char time_steps[] =
	"list step_func is procedure { items { \"step\" }; }\n"
	"metric x {\n"
	"	base is processTimer {\n"
	"		foreach func in step_func {\n"
	"			append preInsn func.entry\n"
	"				(*\n"
	"					if (readSymbol(\"timeSteps\") >= 300) {\n"
	"						startProcessTimer(x);\n"
	"					}\n"
	"				*)\n"
	"			prepend preInsn func.return\n"
	"				(* stopProcessTimer(x); *)\n"
	"		}\n"
	"	}\n"
	"}\n"
	"metric at300 {\n"
	"	base is processTimer {\n"
	"		foreach func in step_func {\n"
	"			append preInsn func.entry\n"
	"				(*\n"
	"					if (readSymbol(\"timeSteps\")==300) {\n"
	"						startProcessTimer(at300);\n"
	"					}\n"
	"				*)\n"
	"		}\n"
	"	}\n"
	"}\n";

static void begin(struct harness *h, const char *text, const char *more)
{
	char all[4096];

	snprintf(all, sizeof(all), "%s%s", text, more);
	harness_start(h, "mdl_messages", NULL);
	mdl_attach(h, all);
}

/* Figure 3: constrained to foo, messages that foo sends and receives count, no others. */
static void test_figure_3(void **state)
{
	struct harness *h = *state;
	unsigned all, foo, bar;

	begin(h, figure_2, "");
	foo = mdl_insert(h, "msgs", "/Code/mdl_messages/foo");
	mdl_ask(h, "foo 10");
	mdl_ask(h, "bar 7");
	assert_int_equal(mdl_value(h, foo), 20);
	/* by the name that the text gives it; beside the other one */
	all = mdl_insert(h, "Messages");
	bar = mdl_insert(h, "msgs", "/Code/mdl_messages/bar");
	mdl_ask(h, "foo 100");
	mdl_ask(h, "bar 30");
	mdl_ask(h, "steps 1");
	assert_int_equal(mdl_value(h, foo), 220);
	assert_int_equal(mdl_value(h, bar), 60);
	assert_int_equal(mdl_value(h, all), 260);
	/* the same twice costs once, and each goes on its own */
	mdl_remove(h, foo);
	mdl_ask(h, "bar 1");
	mdl_ask(h, "foo 1");
	assert_int_equal(mdl_value(h, bar), 62);
	assert_int_equal(mdl_value(h, all), 264);
	mdl_end(h);
}

/* The code that `points -v` shows at a function's points of one kind: an array, the caller frees. */
static json_t *code_at(struct harness *h, const char *function, const char *kind)
{
	json_t *rows = NULL, *row, *code = NULL;
	size_t i;

	assert_int_equal(
		harness_dinst(h, &rows, "points", function, "-v", "-p", harness_number(h->pid)), 0);
	json_array_foreach(rows, i, row)
	{
		if (!code && !strcmp(json_string_value(json_object_get(row, "kind")), kind))
			code = json_incref(json_object_get(row, "code"));
	}
	json_decref(rows);
	if (!code)
		fail_msg("%s has no %s", function, kind);
	return code;
}

/* The first instruction of what was inserted, from *at on, whose text has `part`; *at is behind it. */
static const char *inserted(const json_t *code, size_t *at, const char *part)
{
	for (size_t i = *at; i < json_array_size(code); i++) {
		const json_t *line = json_array_get(code, i);
		const char *text = json_string_value(json_object_get(line, "text"));
		const char *note = json_string_value(json_object_get(line, "note"));

		if (note && !strncmp(note, "program", 7) && !strstr(note, "seldom") &&
		    strstr(text, part)) {
			*at = i + 1;
			return text;
		}
	}
	fail_msg("nothing inserted has '%s'", part);
	return NULL;
}

/* The module constraint as printed; the focus is a module. */
static void test_module(void **state)
{
	struct harness *h = *state;
	unsigned own;

	begin(h, figure_2, module_constraint);
	own = mdl_insert(h, "msgs", "/Code/mdl_messages");
	mdl_ask(h, "foo 10");
	/* pvm_send is a function of the module: its own entry has set the flag by then */
	assert_int_equal(mdl_value(h, own), 20);
	/* a module whose functions send nothing */
	assert_int_equal(harness_dinst(h, NULL, "insert", "msgs", "/Code/libm.so.6", "-p",
				       harness_number(h->pid)) != 0,
			 1);
	mdl_end(h);
}

/* msgTag is a constraint that nobody wrote: what can be asked for is said. */
static void test_missing_constraint(void **state)
{
	struct harness *h = *state;

	begin(h, figure_2, "");
	assert_true(harness_dinst(h, NULL, "insert", "msgs", "/SyncObject/Message/7", "-p",
				  harness_number(h->pid)) != 0);
	assert_non_null(strstr(h->messages, "/Code"));
	mdl_end(h);
}

static void test_procedures(void **state)
{
	struct harness *h = *state;
	json_t *rows;
	unsigned id;
	int64_t before;

	begin(h, proc_calls, "");
	/* some of all functions of the program and its libraries cannot be entered through a patch */
	rows = mdl_insert_rows(h, true, (const char *const[]){"proc_calls", NULL});
	id = (unsigned)harness_integer(rows, "id");
	json_decref(rows);
	before = mdl_value(h, id);
	mdl_ask(h, "foo 1000");
	/* foo, exchange and 2,000 messages, and what reads the line and prints the answer */
	assert_true(mdl_value(h, id) - before >= 2002);
	assert_true(mdl_value(h, id) - before < 2400);
	mdl_end(h);
}

static void test_time_steps(void **state)
{
	struct harness *h = *state;
	unsigned after, at;
	const char *line;

	begin(h, time_steps, "");
	after = mdl_insert(h, "x");
	at = mdl_insert(h, "at300");
	mdl_ask(h, "steps 299");
	assert_int_equal(mdl_value(h, after), 0);
	assert_int_equal(mdl_value(h, at), 0);
	line = mdl_ask(h, "steps 101");
	mdl_near("after the 300th step", mdl_value(h, after), mdl_number(line, "worked"), 5, 0);
	/* started once and never stopped: it runs */
	assert_true(mdl_value(h, at) >= 100 * 1000000ll);
	mdl_end(h);
}

/* Tests the flag's word, then a jump over what counts. */
static void guarded_count(struct harness *h, const char *function, const char *word)
{
	json_t *code = code_at(h, function, "entry");
	size_t at = 0, test, jump;

	inserted(code, &at, word);
	test = at;
	inserted(code, &test, "test");
	jump = test;
	inserted(code, &jump, "je ");
	/* one right behind the other, and the count behind them */
	assert_int_equal(test, at + 1);
	assert_int_equal(jump, at + 2);
	inserted(code, &jump, "incq");
	json_decref(code);
}

/* Figure 3's snippets: a flag is set and cleared in foo, and tested before the count. */
static void test_guards(void **state)
{
	struct harness *h = *state;
	json_t *entry, *left;
	char clear[40], load[40];
	const char *set;
	unsigned word;
	size_t at = 0;

	begin(h, figure_2, "");
	mdl_insert(h, "msgs", "/Code/mdl_messages/foo");
	mdl_ask(h, "foo 1");
	entry = code_at(h, "mdl_messages:foo", "entry");
	set = inserted(entry, &at, "movq $1, ");
	assert_int_equal(sscanf(set, "movq $1, 0x%x(%%", &word), 1);
	snprintf(clear, sizeof(clear), "movq $0, 0x%x(%%", word);
	snprintf(load, sizeof(load), "movq 0x%x(%%", word);
	left = code_at(h, "mdl_messages:foo", "exit");
	at = 0;
	inserted(left, &at, clear);
	guarded_count(h, "mdl_messages:pvm_send", load);
	guarded_count(h, "mdl_messages:pvm_recv", load);
	json_decref(entry);
	json_decref(left);
	mdl_end(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_figure_3, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_guards, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_module, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_missing_constraint, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_procedures, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_time_steps, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
