/* SPDX-License-Identifier: MIT */
/*
 * mdl_errors.c - each mistake is told where it is, with what would be right;
 * several in one go; and nothing of such a text is loaded.
 */
#include <stdlib.h>
#include <time.h>

#include "tests/slower.h"
#include "tests/unit/mdl_text.h"

/* A mistake stands at the '@' of the text, which is taken out before it is loaded. */
struct mistake {
	const char *text;
	const char *told;
};

static const struct mistake broken[] = {
	/* sentences */
	{"@metrc m { }", "unexpected 'metrc'; did you mean 'metric'?"},
	{"@x", "unexpected 'x'; expected a metric, constraint, list or statement"},
	{"@}", "unexpected '}'; expected a metric, constraint, list or statement"},
	{"metric@", "the text ends here; expected a name"},
	{"metric m {\n name \"x\"@\n units y; base is counter { } }", "';' is missing here"},
	{"metric m {\n\tbase is counter {\n@",
	 "the text ends here; the '{' of line 2 is not closed"},
	{"metric m { @bse is counter { } }", "did you mean 'base'?"},
	{"metric m { base is @contr { } }", "did you mean 'counter'?"},
	{"metric m { base @counter { } }", "unexpected 'counter'; expected 'is'"},
	{"metric m { base is counter { @apend preInsn x (* *) } }", "did you mean 'append'?"},
	{"metric m { base is counter { append @$start.entry (* *) } }",
	 "expected 'postInsn' or 'preInsn'"},
	{"metric m { base is counter { append preInsn $start.entry @m++; } }", "expected '(*'"},
	{"metric m { base is counter { append preInsn $start.entry (* m++ @*) } }", "expected ';'"},
	{"metric m { base is counter { append preInsn $start.entry (* m++; *)@; } }",
	 "no ';' goes behind '*)'"},
	{"metric m { base is counter { append preInsn $start.entry (* if @m m++; *) } }",
	 "expected '('"},
	{"metric m { base is counter { append preInsn $start.entry (* m = @; *) } }",
	 "expected an expression"},
	{"metric m { base is counter { append preInsn $start.entry (* m = (1@; *) } }",
	 "expected ')'"},
	{"metric m { base is counter { foreach f @$procedures { } } }", "expected 'in'"},
	{"metric m { units @\"x\"; }", "expected a name"},
	{"metric m { name @x; }", "expected a string"},
	{"list l @{ }", "expected 'is'"},
	{"list l is procedure { @item { \"a\" }; }", "did you mean 'items'?"},
	{"list l is procedure { items { \"a\" @\"b\" }; }", "expected '}' or ','"},
	{"constraint c@;", "expected a path like /Code/*"},
	{"constraint c /Code @counter { }", "expected 'is'"},
	/* words */
	{"metric m { name @\"no end; }\n base is counter { } }", "this string has no end"},
	{"metric m { description \"@\\q\"; base is counter { } }", "there is no such escape"},
	{"metric m { description \"a@\\400\"; base is counter { } }", "there is no such escape"},
	{"metric m { base is counter { if (@09) { } } }", "does not begin with 0"},
	{"metric m { base is counter { if (@12ab) { } } }", "neither a number nor a name"},
	{"metric m { base is counter { if (@0x) { } } }", "does not begin with 0"},
	{"metric m { base is counter { if (@9223372036854775808) { } } }", "too large"},
	{"metric m { base is counter { if (@0x10000000000000000) { } } }", "more than 64 bits"},
	{"metric m { base is counter { if (@18446744073709551616) { } } }", "more than 64 bits"},
	{"metric m { base is counter { } } @/* and so on", "this comment has no end"},
	{"metric m { base is counter { if (1 @# 2) { } } }", "'#' begins nothing here"},
	{"metric m { base is counter { } } @\x01", "byte 0x01"},
	/* declarations */
	{"metric @m { units x; }", "metric 'm' has no base"},
	{"metric m { name \"a\"; @name \"b\"; base is counter { } }", "name is given twice"},
	{"metric m { name @\"\"; base is counter { } }", "at least one letter"},
	{"metric m { base is counter { } @base is counter { } }", "base is given twice"},
	{"metric m { inclusive base is @exclusive counter { } }", "said twice"},
	{"metric m { aggregateOperator @summ; base is counter { } }", "did you mean 'sum'?"},
	{"metric m { unitsType @normalised; base is counter { } }", "did you mean 'normalized'?"},
	{"metric m { style @eventcounter; base is counter { } }", "did you mean 'EventCounter'?"},
	{"metric m { counter x; wallTimer @x; base is counter { } }",
	 "variable 'x' already, in line 1"},
	{"metric m { counter @m; base is counter { } }", "the metric's own variable already"},
	{"metric m { void @x; base is counter { } }", "cannot be void"},
	{"metric m { constraint c; constraint @c; base is counter { } }", "constraint 'c' already"},
	{"metric m { base is counter { } }\nmetric @m { base is counter { } }",
	 "metric 'm' already, in line 1"},
	{"list l is int { }\nlist @l is int { }", "list 'l' already, in line 1"},
	{"constraint c /Code is default;\nconstraint @c /Code is default;",
	 "constraint 'c' already, in line 1"},
	{"list l is @procedures { }", "did you mean 'procedure'?"},
	{"list l is int { items { 1, @\"x\" }; }",
	 "an item of this list is a string, not a number"},
	{"list l is procedure { items { @3 }; }", "an item of this list is a number, not a string"},
	{"list l is procedure { library @yes; }", "library is true or false"},
	{"constraint c @/Coed/* is default;", "did you mean 'Code'?"},
	{"constraint c @/Code//* is default;", "a part of this path is empty"},
	{"constraint c @/Process/*/* is default;", "at most 1 part behind it"},
	{"constraint c @/Code/*/*/*/*/*/*/* is default;", "too many parts"},
	{"constraint c exclusive @/Code/* is default;", "no code that could be exclusive"},
	{"constraint @c /Code/* is replace counter { }", "belongs to a metric"},
	/* where */
	{"metric m { base is counter { foreach f in @lisst { } } }\nlist liszt is int { }",
	 "no list or foreach variable 'lisst'; did you mean 'liszt'?"},
	{"metric m { counter n; base is counter { if (@n) { } } }",
	 "'n' is a counter of the running"},
	{"metric m { base is counter { if (@$proceduers) { } } }", "did you mean '$procedures'?"},
	{"metric m { base is counter { foreach f in $procedures append preInsn f.@entyr (* *) } }",
	 "a procedure has no '.entyr'; did you mean 'entry'?"},
	{"metric m { base is counter { foreach f in $modules append preInsn f.@return (* *) } }",
	 "a module has no '.return'; it has .name and .funcs"},
	{"metric m { base is counter { foreach f in $procedures append preInsn @f (* *) } }",
	 "this is a procedure; a point is needed: its .entry, .return or .calls"},
	{"metric m { base is counter { append preInsn @$modules (* *) } }", "take its .funcs"},
	{"metric m { base is counter { append preInsn @3 (* *) } }", "this is a number; a point"},
	{"metric m { base is counter { append postInsn $start.@entry (* *) } }",
	 "postInsn is behind calls only"},
	{"metric m { base is counter { append postInsn $start.@return (* *) } }",
	 "postInsn is behind calls only"},
	{"metric m { base is counter { foreach p in $start.return if (p.@callee.name == \"x\") { } } }",
	 "only calls have a .callee"},
	{"metric m { base is counter { foreach m in @\"x\" { } } }", "foreach needs a list"},
	{"metric m { base is counter { foreach @m in $procedures { } } }",
	 "'m' is the name of a counter already"},
	{"metric m { base is counter { foreach f in $modules foreach @f in f.funcs { } } }",
	 "'f' is the name of a foreach variable already"},
	{"metric m { base is counter { if ($machine == @3) { } } }", "compared with strings only"},
	{"metric m { base is counter { if (@\"x\" && 1) { } } }", "a number is needed"},
	{"metric m { base is counter { if (1 / @0) { } } }", "divides by zero"},
	{"metric m { base is counter { if ($procedures.@name == \"x\") { } } }", "one by one"},
	{"metric m { base is counter { if (@$machine[0] == 1) { } } }", "only lists have elements"},
	{"metric m { base is counter { if (1 ? 2 : @\"x\") { } } }", "what is before the ':'"},
	{"metric m { base is counter { if (@$arg[0]) { } } }", "it can stand in (* *) only"},
	{"metric m { base is counter { if (@f(1)) { } } }", "it can stand in (* *) only"},
	{"metric m { base is counter { if (@m = 1) { } } }", "an assignment has no meaning when"},
	{"metric m { base is counter { if (@$constraint[0]) { } } }", "known in constraints only"},
	{"constraint c /Code/* is counter { if (@$constraint) { } }", "$constraint needs a number"},
	{"constraint c /Code/* is counter { if ($constraint[@2].name == \"x\") { } }",
	 "the path has no part 2"},
	{"constraint c /Code/* is counter { if ($constraint[@-1] == 1) { } }", "from 0"},
	{"metric m { base is counter { @(* m = 1; *) } }", "this code has no point"},
	{"constraint c /Code/* is counter { foreach f in $procedures @(* c = 1; *) }",
	 "cannot be in a foreach"},
	/* outside */
	{"foreach @f in $procedures append preInsn f.entry (* g(1); *)", "write a metric"},
	{"@append preInsn $start.entry (* startWallTimer(t); *)", "write a metric"},
	{"append preInsn $start.entry (* n++; @m++; *)", "there is no variable 'm'"},
	{"append preInsn $start.entry (* n++; startWallTimer(@n); *)",
	 "'n' is a counter, not a wallTimer"},
	{"metric n { base is counter { } }\n@append preInsn $start.entry (* n++; *)",
	 "there is a metric 'n' already, in line 1"},
	{"foreach @f in $procedures append preInsn f.entry (* f++; *)",
	 "the name of a counter already"},
};

/* What stands in (* *), at entries or exits. */
static const struct mistake in_entry[] = {
	{"@mm = 1;", "there is no variable 'mm'; did you mean 'm'?"},
	{"@wrong = 1;", "a metric's own are declared as"},
	{"@t = 1;", "'t' is a wallTimer: '=' needs a counter"},
	{"@t++;", "'t' is a wallTimer: '++' needs a counter"},
	{"@h -= 1;", "'h' is a distribution: '-=' needs a counter"},
	{"m = @t;", "'t' is a wallTimer: it has no value in code"},
	{"m = @h;", "record(h, VALUE) adds to it"},
	{"@f = 1;", "'f' is a foreach variable: '=' needs a counter"},
	{"@3 = 1;", "'=' needs a variable"},
	{"m = &@3;", "'&' needs a variable"},
	{"m = &@t;", "'t' is a wallTimer: '&' needs a counter"},
	{"@m;", "this does nothing"},
	{"@m == 1;", "this does nothing; did you mean '='?"},
	{"@readSymbol(\"x\");", "this does nothing"},
	{"m = @l;", "'l' is a list"},
	{"m = @\"x\";", "a string has no value in code"},
	{"m = @$procedures;", "is known when the request is made, not in code"},
	{"m = f.@name;", "'.name' is known when the request is made"},
	{"m = $arg[0].len + @$return.len;", "$return is known at exits only"},
	{"m = $arg[0].data[@t];", "'t' is a wallTimer: it has no value"},
	{"m = readSymbol(@m).x;", "readSymbol needs a name in quotes"},
	{"@while (m) m++;", "there are no loops in code"},
	{"@++m;", "'++' stands behind its variable"},
	{"@$arg[0].len;", "this does nothing"},
	{"m = @l[0];", "elements of lists are known when the request is made"},
	{"m = @$return;", "$return is known at exits only, and this is an entry"},
	{"m = @$elapsed;", "$elapsed is known at exits only"},
	{"m = @$arg;", "$arg needs a number"},
	{"m = $arg[@m];", "known here, 0 to 63"},
	{"m = $arg[@64];", "known here, 0 to 63"},
	{"m = $arg[@0x8000000000000000 / -1];", "known here, 0 to 63"},
	{"m = @$argh[0];", "did you mean '$arg'?"},
	{"m = 1 % (@1 - 1);", "divides by zero"},
	{"@startWallTimer();", "startWallTimer takes 1 argument: a timer"},
	{"startWallTimer(@m);", "'m' is a counter, not a wallTimer"},
	{"startWallTimer(@1);", "needs the name of a timer"},
	{"startProcessTimer(@t);",
	 "'t' is a wallTimer, not a processTimer; did you mean startWallTimer?"},
	{"stopThreadTimer(@t);", "did you mean stopWallTimer?"},
	{"m = @startWallTimer(t);", "gives no value"},
	{"m = 1 + @record(h, 1);", "gives no value"},
	{"record(@m, 1);", "'m' is a counter, not a distribution"},
	{"@record(h);", "record takes 2 arguments: a distribution and a value"},
	{"m = readSymbol(@m);", "readSymbol needs a name in quotes"},
	{"m = readSymbol(@\"\");", "readSymbol needs a name in quotes"},
	{"m = readMemory($arg[0], @3);", "1, 2, 4 or 8 bytes"},
	{"m = readMemory($arg[0], @m);", "1, 2, 4 or 8 bytes"},
	{"@Call(m);", "the first argument of Call is the function's name"},
	{"@Call();", "the first argument of Call is the function's name"},
	{"@startWalTimer(t);", "there is no 'startWalTimer'; did you mean 'startWallTimer'?"},
	{"@recrod(h, 1);", "did you mean 'record'?"},
	{"something(@h);", "cannot be given to 'something'"},
	{"something(@\"x\");", "a string cannot be given to 'something'"},
	{"something(1, 2, 3, 4, 5, 6, @7);", "6 arguments at most"},
	{"@record();", "record takes a distribution and a value, or a stream and what"},
	{"m = @string($arg[0]);", "a field of an event: record(STREAM, string(...))"},
	{"@bytes($arg[0], 8);", "a field of an event"},
};

/* Loads text with its '@' taken out; returns the messages, to be freed. */
static char *load(const char *marked, unsigned *line, unsigned *column)
{
	const char *at = strchr(marked, '@');
	struct mdl_library *l = test_library();
	struct dinst_error e = {0};
	char *text = malloc(strlen(marked) + 1);

	assert_non_null(at);
	assert_non_null(text);
	memcpy(text, marked, (size_t)(at - marked));
	memcpy(text + (at - marked), at + 1, strlen(at + 1) + 1);
	*line = *column = 1;
	for (const char *c = marked; c < at; c++) {
		*column = *c == '\n' ? 1 : *column + 1;
		*line += *c == '\n';
	}
	if (mdl_load_text(l, "a.mdl", text, strlen(text), &e) != DINST_USAGE)
		fail_msg("loaded, or another error: %s\n%s", text, e.text);
	if (mdl_metrics(l) || mdl_constraints(l))
		fail_msg("something of it is loaded: %s", text);
	mdl_library_free(l);
	free(text);
	return strdup(e.text);
}

/* The first message is about the place, and its caret stands there. */
static void expect(const char *marked, const char *told)
{
	unsigned line, column;
	char *messages = load(marked, &line, &column);
	char head[64];
	char *second, *caret;

	snprintf(head, sizeof(head), "a.mdl:%u:%u: ", line, column);
	second = strstr(messages, "\n");
	if (strncmp(messages, head, strlen(head)) != 0 || !second)
		fail_msg("%s: not at %s\n%s", marked, head, messages);
	*second = '\0';
	if (!strstr(messages, told))
		fail_msg("%s: not \"%s\":\n%s", marked, told, messages);
	caret = strchr(second + 1, '\n');
	assert_non_null(caret);
	assert_int_equal(strspn(caret + 1, " "), strcspn(caret + 1, "^"));
	free(messages);
}

static void test_broken(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++)
		expect(broken[i].text, broken[i].told);
}

static void test_in_code(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(in_entry) / sizeof(in_entry[0]); i++) {
		char text[512];

		snprintf(text, sizeof(text),
			 "list l is procedure { items { \"f\" }; }\n"
			 "metric m { wallTimer t; distribution h; base is counter {\n"
			 "foreach f in $procedures append preInsn f.entry (* %s *) } }",
			 in_entry[i].text);
		expect(text, in_entry[i].told);
	}
}

/* Events and their fields. */
static void test_in_streams(void **state)
{
	static const struct mistake cases[] = {
		{"record(@x, 1);", "there is no variable 'x'"},
		{"record(@1, 1);", "record needs the name of a distribution or of a stream"},
		{"record(m, @t);", "'t' is a wallTimer: it has no value in code"},
		{"record(m, @m);", "'m' is a stream: it has no value in code"},
		{"@m++;", "'m' is a stream: '++' needs a counter"},
		{"@m = 1;", "'m' is a stream: '=' needs a counter"},
		{"a = @record(m, 1);", "'record' gives no value"},
		{"record(m, @string());", "string takes an address"},
		{"record(m, string($arg[0], @257));", "string takes 1 to 256 bytes"},
		{"record(m, string($arg[0], @a));", "string takes 1 to 256 bytes"},
		{"record(m, @bytes($arg[0]));", "bytes takes 2 arguments"},
		{"record(m, bytes($arg[0], @0));", "bytes takes 1 to 512 bytes"},
		{"record(m, bytes($arg[0], @513));", "bytes takes 1 to 512 bytes"},
		{"record(m, 1 + @string($arg[0]));", "a field of an event"},
		{"record(m, @$return);", "at exits"},
		{"record(m, @\"text\");", "a string has no value in code"},
		{"record(m, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, "
		 "22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, @41);",
		 "40 fields at most"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[512];

		snprintf(text, sizeof(text),
			 "metric m { counter a; wallTimer t; base is stream {\n"
			 "foreach f in $procedures append preInsn f.entry (* %s *) } }",
			 cases[i].text);
		expect(text, cases[i].told);
	}
	expect("metric m { stream @s; base is counter { } }", "a stream is the metric's own");
	expect("metric m { base is @strem { } }", "did you mean 'stream'?");
}

static void test_places_of_code(void **state)
{
	static const struct mistake cases[] = {
		{"foreach p in f.calls append postInsn p (* m = @$arg[0]; *)", "behind a call"},
		{"foreach p in f.calls append preInsn p (* m = @$return; *)", "this is a call"},
		{"foreach p in f.calls append preInsn p (* m = @$caller; *)", "this is a call"},
		{"append preInsn f.calls (* m = @$elapsed; *)", "this is a call"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[512];

		snprintf(text, sizeof(text),
			 "metric m { base is counter { foreach f in $procedures { %s } } }",
			 cases[i].text);
		expect(text, cases[i].told);
	}
	expect("constraint c /Code/*/*/* is counter { append preInsn $constraint[0].entry (* c = "
	       "@$arg[0]; *) }",
	       "this is a block");
	expect("constraint c /Code/*/* is counter { append preInsn $constraint[0].entry (* c = "
	       "@d; *) }",
	       "this constraint's only variable is its flag, 'c'");
	expect("metric m { constraint c /Code/* is counter { (* @m = 1; *) } base is counter { } }",
	       "there is no 'm' here");
	expect("metric m { base is void { append preInsn $start.entry (* @m++; *) } }",
	       "'m' is a void");
}

/* As many as there is room for, and how many more. */
static void test_several(void **state)
{
	static const char text[] = "metric a {\n"
				   "	name \"x\";\n"
				   "	bse is counter { append preInsn $start.entry (* a++; *) }\n"
				   "	stlye EventCounter;\n"
				   "	base is countr { append preInsn $start.entry (* b +; *)\n"
				   "	appnd preInsn x.entry (* *)\n"
				   "	prpend preInsn y (* *) }\n"
				   "}\n"
				   "constraint c /Codd/* is counter { }\n";
	static const char *const places[] = {
		":3:2: ", ":4:2: ", ":5:10: ", ":5:53: ", ":6:2: ", ":7:2: ", ":9:14: "};
	struct mdl_library *l = test_library();
	struct dinst_error e = {0};
	char many[8192] = "";
	unsigned told = 0, more = 0;
	const char *at, *end;

	(void)state;
	assert_int_equal(mdl_load_text(l, "f", text, strlen(text), &e), DINST_USAGE);
	at = e.text;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		at = strstr(at, places[i]);
		if (!at)
			fail_msg("nothing at %s\n%s", places[i], e.text);
	}
	for (int i = 0; i < 100; i++)
		snprintf(many + strlen(many), sizeof(many) - strlen(many),
			 "metric m%d { units x; }\n", i);
	dinst_error_clear(&e);
	assert_int_equal(mdl_load_text(l, "f", many, strlen(many), &e), DINST_USAGE);
	for (at = e.text; (at = strstr(at, "has no base")); at++)
		told++;
	end = strrchr(e.text, '\n');
	assert_non_null(end);
	assert_int_equal(sscanf(end, "\nand %u more errors", &more), 1);
	assert_int_equal(told + more, 100);
	assert_true(told > 10);
	/* and it is given up some time */
	memset(many, '@', sizeof(many));
	for (size_t i = 0; i < sizeof(many); i += 2)
		many[i] = ' ';
	dinst_error_clear(&e);
	assert_int_equal(mdl_load_text(l, "f", many, sizeof(many), &e), DINST_USAGE);
	assert_non_null(strstr(e.text, "\nand at least "));
	mdl_library_free(l);
}

/* What is shown of a line is printable, and a screen wide at most. */
static void test_shown(void **state)
{
	struct mdl_library *l = test_library();
	struct dinst_error e = {0};
	char text[1000];
	const char *line;

	(void)state;
	memset(text, ' ', sizeof(text));
	memcpy(text + 500, "x\xc3\xa4\xe2\x82\xac\xff\x1b\t#", 10);
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(mdl_load_text(l, "f", text, strlen(text), &e), DINST_USAGE);
	line = strchr(e.text, '\n');
	assert_non_null(line);
	assert_true(strncmp(e.text, "f:1:501: ", 9) == 0);
	assert_true(strcspn(line + 1, "\n") < 130);
	assert_non_null(strstr(line, "x\xc3\xa4\xe2\x82\xac?? #"));
	mdl_library_free(l);
}

static double cpu_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* fear L1: a text of divisions alone, without a blank, is not read to its end for each of them: that took minutes */
static void test_slashes(void **state)
{
	enum { SIZE = 512 << 10 };
	struct mdl_library *l = test_library();
	const double begun = cpu_time();
	struct dinst_error e = {0};
	char *slashes = malloc(SIZE);

	(void)state;
	assert_non_null(slashes);
	for (size_t i = 0; i < SIZE; i++)
		slashes[i] = i % 2 ? '/' : 'a';
	assert_int_equal(mdl_load_text(l, "f", slashes, SIZE, &e), DINST_USAGE);
	assert_true(cpu_time() - begun < 5 * SLOWER);
	assert_true(strncmp(e.text, "f:1:1: ", 7) == 0);
	free(slashes);
	mdl_library_free(l);
}

static void test_nearest(void **state)
{
	static const char *const names[] = {"entry", "return", "calls", "callers",
					    "name",  NULL,     ""};

	(void)state;
	assert_string_equal(mdl_nearest("entyr", names, 7), "entry");
	assert_string_equal(mdl_nearest("ENTRY", names, 7), "entry");
	assert_string_equal(mdl_nearest("retrun", names, 7), "return");
	assert_string_equal(mdl_nearest("call", names, 7), "calls");
	assert_string_equal(mdl_nearest("caller", names, 7), "callers");
	assert_null(mdl_nearest("something", names, 7));
	assert_null(mdl_nearest("", names, 7));
	assert_null(mdl_nearest("x", names, 7));
	assert_null(mdl_nearest("name", NULL, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_broken),	   cmocka_unit_test(test_in_code),
		cmocka_unit_test(test_in_streams), cmocka_unit_test(test_places_of_code),
		cmocka_unit_test(test_several),	   cmocka_unit_test(test_shown),
		cmocka_unit_test(test_slashes),	   cmocka_unit_test(test_nearest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
