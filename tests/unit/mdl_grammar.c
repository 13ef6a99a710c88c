/* SPDX-License-Identifier: MIT */
/*
 * mdl_grammar.c - texts become the trees that they say: precedence, names that
 * are keywords elsewhere, paths that look like comments, and the figures of
 * papers/002 as they are printed.
 */
#include "tests/unit/mdl_text.h"

/* Code of a metric `m` with counters a to e, a timer t and a distribution d. */
static void expect_code(const char *code, const char *tree)
{
	struct mdl_library *l = test_library();
	struct shown s = {.used = 0};
	const struct mdl_metric *m;
	char text[2048];

	snprintf(text, sizeof(text),
		 "metric m { counter a; counter b; counter c; counter d; counter e; wallTimer t;\n"
		 "distribution h;\n"
		 "base is counter { foreach f in $procedures prepend preInsn f.return (*%s*) } }",
		 code);
	test_load(l, text);
	m = mdl_find_metric(l, "m");
	assert_non_null(m);
	show_code(&s, m->base->first->then->code);
	assert_string_equal(s.text, tree);
	mdl_library_free(l);
}

/* What follows `base is counter` or a constraint's head. */
static void expect_statements(const char *block, const char *tree)
{
	struct mdl_library *l = test_library();
	struct shown s = {.used = 0};
	char text[2048];

	snprintf(text, sizeof(text),
		 "list l is procedure { items { \"f\" }; }\n"
		 "constraint c /Code/*/* is counter %s",
		 block);
	test_load(l, text);
	show_statement(&s, mdl_find_constraint(l, "c")->body);
	assert_string_equal(s.text, tree);
	mdl_library_free(l);
}

static void test_precedence(void **state)
{
	(void)state;
	expect_code("a = b - c - d;", "{(= a (- (- b c) d))}");
	expect_code("a = b + c * d;", "{(= a (+ b (* c d)))}");
	expect_code("a = b * c + d;", "{(= a (+ (* b c) d))}");
	expect_code("a = b / c % d * e;", "{(= a (* (% (/ b c) d) e))}");
	expect_code("a = b << c + d;", "{(= a (<< b (+ c d)))}");
	expect_code("a = b < c << d;", "{(= a (< b (<< c d)))}");
	expect_code("a = b <= c >= d;", "{(= a (>= (<= b c) d))}");
	expect_code("a = b == c < d;", "{(= a (== b (< c d)))}");
	expect_code("a = b != c > d;", "{(= a (!= b (> c d)))}");
	expect_code("a = b & c == d;", "{(= a (& b (== c d)))}");
	expect_code("a = b ^ c & d;", "{(= a (^ b (& c d)))}");
	expect_code("a = b | c ^ d;", "{(= a (| b (^ c d)))}");
	expect_code("a = b && c | d;", "{(= a (&& b (| c d)))}");
	expect_code("a = b || c && d;", "{(= a (|| b (&& c d)))}");
	expect_code("a = b ? c : d ? e : 1;", "{(= a (? b c (? d e 1)))}");
	expect_code("a = b || c ? d : e;", "{(= a (? (|| b c) d e))}");
	expect_code("a = b = c;", "{(= a (= b c))}");
	expect_code("a += b -= c + 1;", "{(+= a (-= b (+ c 1)))}");
	expect_code("a = !b + ~c - -d;", "{(= a (- (+ (! b) (~ c)) (- d)))}");
	expect_code("a = -b * c;", "{(= a (* (- b) c))}");
	expect_code("a = (b + c) * d;", "{(= a (* (+ b c) d))}");
	expect_code("a = b & & c;", "{(= a (& b (& c)))}");
	expect_code("a = b >> c >> d;", "{(= a (>> (>> b c) d))}");
}

static void test_code(void **state)
{
	(void)state;
	expect_code("", "{}");
	expect_code("a++; b--;", "{(++ a) (-- b)}");
	expect_code("if (a) b = 1; else if (c) b = 2; else { b = 3; c = 4; }",
		    "{(if a (= b 1) else (if c (= b 2) else {(= b 3) (= c 4)}))}");
	expect_code("if (a) if (b) c = 1; else c = 2;", "{(if a (if b (= c 1) else (= c 2)))}");
	expect_code("startWallTimer(t); stopWallTimer(t);", "{(call:1 startWallTimer t) "
							    "(call:2 stopWallTimer t)}");
	expect_code("record(h, $elapsed);", "{(call:7 record h $elapsed)}");
	expect_code("m += readSymbol(\"mod:x.y\") + readMemory($arg[0] + 8, 4);",
		    "{(+= m (+ (call:8 readSymbol \"mod:x.y\") (call:9 readMemory (+ $arg[0] 8) "
		    "4)))}");
	expect_code("Call(\"libc.so.6:puts\", $return, 2); puts(1);",
		    "{(call:0 libc.so.6:puts $return 2) (call:0 puts 1)}");
	expect_code("a = $thread + $pid + $cpu + $now + $caller;",
		    "{(= a (+ (+ (+ (+ $thread $pid) $cpu) $now) $caller))}");
	expect_code("a = $arg[1 + 2];", "{(= a $arg[3])}");
	expect_code("f2(&a, b);", "{(call:0 f2 (& a) b)}");
	expect_code("a = $arg[0].x.y[b + 1] + $return[2].name + readSymbol(\"s\").entry[0];",
		    "{(= a (+ (+ ([] (. (. $arg[0] x) y) (+ b 1)) (. ([] $return 2) name)) ([] (. "
		    "(call:8 readSymbol \"s\") entry) 0)))}");
	expect_code("a=b*(c);b=(a)*c;", "{(= a (* b c)) (= b (* a c))}");
}

static void test_numbers_and_strings(void **state)
{
	(void)state;
	expect_code("a = 0; a = 10; a = 0x1f; a = 0XfF;", "{(= a 0) (= a 10) (= a 31) (= a 255)}");
	expect_code("a = 9223372036854775807; b = 0xffffffffffffffff;",
		    "{(= a 9223372036854775807) (= b -1)}");
	expect_code("a = readSymbol(\"a\\n\\t\\\"\\\\\\x41\\101\\0b\");",
		    "{(= a (call:8 readSymbol \"a<0a><09>\"\\AA<00>b\"))}");
	expect_code(
		"a = readSymbol(\"/* no comment */ // nor this\");",
		"{(= a (call:8 readSymbol \"/*<20>no<20>comment<20>*/<20>//<20>nor<20>this\"))}");
}

static void test_comments(void **state)
{
	(void)state;
	expect_code("a /* one * / */ = /**/ b // = c\n /* \n */ + 1; /***/", "{(= a (+ b 1))}");
}

static void test_statements(void **state)
{
	(void)state;
	expect_statements("{}", "[]");
	expect_statements("{ append preInsn $constraint[0].entry (* c++; *)\n"
			  "prepend preInsn $constraint[0].return constrained (* c--; *) }",
			  "[(append pre (. $constraint[0] entry) {(++ c)}) (prepend pre (. "
			  "$constraint[0] return) {(-- c)})]");
	expect_statements("{ foreach p in $constraint[0].calls { append postInsn p unconstrained "
			  "(* c = 1; *) } }",
			  "[(foreach p (. $constraint[0] calls) [(append post unconstrained p {(= "
			  "c 1)})])]");
	expect_statements(
		"{ if ($constraint[1].name == \"libc.so.6\") append preInsn l[0].entry (* "
		"c = 1; *) else { } }",
		"[(if (== (. $constraint[1] name) \"libc.so.6\") (append pre (. ([] l 0) "
		"entry) {(= c 1)}) else [])]");
	expect_statements("{ if (1) if (0) { } else (* c = 1; *) }",
			  "[(if 1 (if 0 [] else (guard {(= c 1)})))]");
	expect_statements("{ (* c = ($thread == $constraint[0]); *) }",
			  "[(guard {(= c (== $thread $constraint[0]))})]");
	expect_statements("{ foreach s in $start.callers append preInsn s.entry (* c = 1; *) }",
			  "[(foreach s (. $start callers) (append pre (. s entry) {(= c 1)}))]");
}

/* Keywords are reserved in their places only. */
static void test_keywords_as_names(void **state)
{
	struct mdl_library *l = test_library();
	const struct mdl_metric *m;

	(void)state;
	test_load(
		l,
		"list items is procedure { items { \"f\" }; library true; }\n"
		"constraint constraint /Code is counter { append preInsn $constraint[0].entry\n"
		"(* constraint = 1; *) }\n"
		"constraint module /Code is default;\n"
		"constraint is /Code is default;\n"
		"constraint inclusive exclusive /Code/*/* is counter { }\n"
		"metric metric { counter counter; counter count; counter base; name \"name\";\n"
		"constraint is; constraint module; constraint default; constraint constraint;\n"
		"base is counter {\n"
		"foreach in in items append preInsn in.entry (* metric += counter + count + base;\n"
		"name(units); *) foreach flavor in $modules foreach f in flavor.funcs\n"
		"append preInsn f.entry constrained (* constrained(1); *) }\n"
		"counter units; }\n");
	assert_non_null(mdl_find_list(l, "items"));
	assert_non_null(mdl_find_constraint(l, "is"));
	assert_int_equal(mdl_find_constraint(l, "inclusive")->extent, MDL_EXCLUSIVE);
	m = mdl_find_metric(l, "metric");
	assert_non_null(m);
	assert_ptr_equal(m, mdl_find_metric(l, "name"));
	assert_string_equal(m->uses->name, "is");
	mdl_library_free(l);
	/* What is divided is no path. */
	l = test_library();
	test_load(
		l,
		"constraint constraint /Code/*/* is counter { append preInsn $constraint[0].entry\n"
		"(* constraint = (constraint)/2 + constraint/2 + constraint++/2; *) }\n");
	assert_non_null(mdl_find_constraint(l, "constraint"));
	mdl_library_free(l);
	/* Of members all of them. */
	expect_code("a = $arg[0].append.foreach + $arg[1].if;",
		    "{(= a (+ (. (. $arg[0] append) foreach) (. $arg[1] if)))}");
}

/* As it is shown to people: as it was written. */
static void test_shown(void **state)
{
	static const char *const values[] = {
		"- -b",		"- - -$arg[0]", "-!~b",	     "b - -1",
		"(b + 1) * -c", "f(b, -c)",	"b ? c : d", "$arg[0].next[1]",
	};
	char text[256], shown[64];

	(void)state;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct mdl_library *l = test_library();
		const struct mdl_code *code;

		snprintf(text, sizeof(text),
			 "metric m { counter b; counter c; counter d; base is counter {\n"
			 "append preInsn $procedures.entry (* m = %s; *) } }",
			 values[i]);
		test_load(l, text);
		code = mdl_find_metric(l, "m")->base->first->code->first;
		mdl_expr_text(code->expr->right, shown, sizeof(shown));
		assert_string_equal(shown, values[i]);
		mdl_library_free(l);
	}
}

static void test_paths(void **state)
{
	static const struct {
		const char *text, *path;
	} cases[] = {
		{"constraint c /Code is default;", "/Code"},
		{"constraint c /Code/* is default;", "/Code/*"},
		{"constraint c /Code/*/* is default;", "/Code/*/*"},
		{"constraint c /* of code */ /Code/*/*/* is default;", "/Code/*/*/*"},
		{"constraint c // all\n/SyncObject/Mutex/* is default;", "/SyncObject/Mutex/*"},
		{"constraint c /Code/libc.so.6/* is default; /* */", "/Code/libc.so.6/*"},
		{"constraint c exclusive /Process/* is counter{}", "/Process/*"},
		{"constraint c inclusive /File/Socket/* is counter{}", "/File/Socket/*"},
		{"constraint c /Machine/* is default;", "/Machine/*"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct mdl_library *l = test_library();
		char path[64];

		test_load(l, cases[i].text);
		mdl_path_text(mdl_find_constraint(l, "c"), path, sizeof(path));
		assert_string_equal(path, cases[i].path);
		mdl_path_text(mdl_find_constraint(l, "c"), path, 4);
		assert_int_equal(strlen(path), 3);
		mdl_library_free(l);
	}
}

static void test_metric(void **state)
{
	struct mdl_library *l = test_library();
	const struct mdl_metric *m;
	const struct mdl_use *u;

	(void)state;
	test_load(
		l,
		"constraint global /Code is default;\n"
		"metric m { name \"A metric\"; units ops; unitsType normalized;\n"
		"aggregateOperator avg; style SampledFunction; flavor one; flavor { two, three };\n"
		"flavor = { four }; mode developer; description \"first \" \"\" \"second\";\n"
		"counter x; threadTimer y;\n"
		"constraint global; constraint late;\n"
		"constraint own /Code/* is default;\n"
		"constraint other /Code/*/* is replace distribution {\n"
		"  prepend preInsn $constraint[0].return (* record(m, $elapsed); x++; *) }\n"
		"base is exclusive processTimer { } }\n"
		"metric s { base is stream { foreach f in $procedures append preInsn f.entry\n"
		"  (* record(s, $arg[0], string($arg[1]), string($arg[1], 8 * 4), bytes(8, 16)); *) } }\n"
		"metric n { inclusive base is void { } }\n"
		"metric o { base is counter { } }\n");
	m = mdl_find_metric(l, "s");
	assert_non_null(m);
	assert_int_equal(m->type, MDL_STREAM);
	m = mdl_find_metric(l, "A metric");
	assert_non_null(m);
	assert_string_equal(m->id, "m");
	assert_string_equal(m->units, "ops");
	assert_string_equal(m->units_type, "normalized");
	assert_string_equal(m->mode, "developer");
	assert_string_equal(m->description, "first second");
	assert_int_equal(m->aggregate, MDL_AVG);
	assert_int_equal(m->style, MDL_SAMPLED_FUNCTION);
	assert_int_equal(m->type, MDL_PROCESS_TIMER);
	assert_int_equal(m->extent, MDL_EXCLUSIVE);
	assert_int_equal(m->flavor_count, 4);
	assert_string_equal(m->flavors[3], "four");
	assert_string_equal(m->variables->name, "x");
	assert_int_equal(m->variables->next->type, MDL_THREAD_TIMER);
	u = m->uses;
	assert_ptr_equal(mdl_used_constraint(l, u), mdl_find_constraint(l, "global"));
	u = u->next;
	assert_null(mdl_used_constraint(l, u));
	u = u->next;
	assert_int_equal(mdl_used_constraint(l, u)->kind, MDL_DEFAULT);
	u = u->next;
	assert_int_equal(mdl_used_constraint(l, u)->type, MDL_DISTRIBUTION);
	assert_null(mdl_find_constraint(l, "own"));
	m = mdl_find_metric(l, "n");
	assert_int_equal(m->extent, MDL_INCLUSIVE);
	assert_string_equal(m->name, "n");
	assert_null(m->units);
	assert_int_equal(m->aggregate, MDL_SUM);
	mdl_library_free(l);
}

static void test_lists(void **state)
{
	struct mdl_library *l = test_library();
	const struct mdl_list *list;

	(void)state;
	test_load(l, "list a is procedure { items { \"x\", \"m:y*\" }; flavor { unix };\n"
		     "items { \"z\" }; library TRUE; }\n"
		     "resourceList b is module { items { }; library false; }\n"
		     "list c is int { items { 1, -2, 0x10 }; }\n"
		     "list d is string { }\n");
	list = mdl_find_list(l, "a");
	assert_int_equal(list->item_count, 3);
	assert_string_equal(list->items[2]->text, "z");
	assert_true(list->library);
	assert_int_equal(mdl_find_list(l, "b")->element, MDL_OF_MODULES);
	assert_false(mdl_find_list(l, "b")->library);
	assert_int_equal(mdl_find_list(l, "c")->items[1]->number, -2);
	assert_int_equal(mdl_find_list(l, "d")->item_count, 0);
	mdl_library_free(l);
}

/* papers/002, section 2, as printed; the block stands in a metric. */
static const char paper[] = "list pvm_msg_func is procedure {\n"
			    "    flavor pvm;\n"
			    "    items { \"pvm_send\", \"pvm_recv\" };\n"
			    "}\n"
			    "constraint module /Code is counter {\n"
			    "    foreach func in $constraint[1].funcs {\n"
			    "        append preInsn func.entry\n"
			    "            (* module = 1; *)\n"
			    "        prepend preInsn func.return\n"
			    "            (* module = 0; *)\n"
			    "    }\n"
			    "}\n"
			    "constraint procedure /Code is counter {\n"
			    "    append preInsn $constraint[0].entry\n"
			    "        (* procedure = 1; *)\n"
			    "    prepend preInsn $constraint[0].return\n"
			    "        (* procedure = 0; *)\n"
			    "}\n"
			    "metric msgs {\n"
			    "    name \"Messages\";\n"
			    "    units opsPerSecond;\n"
			    "    aggregateOperator sum;\n"
			    "    flavor { pvm };\n"
			    "\n"
			    "    // List of constraints that can be applied\n"
			    "    constraint module;\n"
			    "    constraint procedure;\n"
			    "    constraint msgTag;\n"
			    "\n"
			    "    // the base computation of the metric.\n"
			    "    base is counter {\n"
			    "        foreach func in pvm_msg_func\n"
			    "            append preInsn func.entry constrained\n"
			    "                (* msgs++; *)\n"
			    "    }\n"
			    "}\n"
			    "metric proc_calls { base is counter {\n"
			    "foreach i in $procedures\n"
			    "    append preInsn i.entry\n"
			    "        (* proc_calls++; *)\n"
			    "} }\n"
			    "metric x { base is processTimer { append preInsn $start.entry\n"
			    "(*\n"
			    "if (readSymbol(\"timeSteps\")==300) {\n"
			    "    startProcessTimer(x);\n"
			    "}\n"
			    "*)\n"
			    "} }\n";

static void test_paper(void **state)
{
	struct mdl_library *l = test_library();
	struct shown s = {.used = 0};

	(void)state;
	test_load(l, paper);
	show_statement(&s, mdl_find_constraint(l, "module")->body);
	show(&s, "\n");
	show_statement(&s, mdl_find_constraint(l, "procedure")->body);
	show(&s, "\n");
	show_statement(&s, mdl_find_metric(l, "Messages")->base);
	show(&s, "\n");
	show_statement(&s, mdl_find_metric(l, "proc_calls")->base);
	show(&s, "\n");
	show_statement(&s, mdl_find_metric(l, "x")->base);
	assert_string_equal(
		s.text,
		"[(foreach func (. $constraint[1] funcs) [(append pre (. func entry) {(= module "
		"1)}) (prepend pre (. func return) {(= module 0)})])]\n"
		"[(append pre (. $constraint[0] entry) {(= procedure 1)}) (prepend pre (. "
		"$constraint[0] return) {(= procedure 0)})]\n"
		"[(foreach func pvm_msg_func (append pre (. func entry) {(++ msgs)}))]\n"
		"[(foreach i $procedures (append pre (. i entry) {(++ proc_calls)}))]\n"
		"[(append pre (. $start entry) {(if (== (call:8 readSymbol \"timeSteps\") 300) "
		"{(call:3 startProcessTimer x)})})]");
	mdl_library_free(l);
}

/* Statements that change the same counter are one metric. */
static void test_outside(void **state)
{
	struct mdl_library *l = test_library();
	struct shown s = {.used = 0};
	const struct mdl_metric *m;

	(void)state;
	test_load(l, "append preInsn $start.entry (* if ($cpu) n++; *)\n"
		     "append preInsn $exit.entry (* other = $now; *)\n"
		     "metric m { base is counter { } }\n"
		     "if (1) { foreach f in $procedures append preInsn f.entry (* g(&n); *) }\n");
	m = mdl_find_metric(l, "n");
	assert_non_null(m);
	assert_string_equal(m->name, "n");
	assert_string_equal(m->units, "events");
	assert_int_equal(m->type, MDL_COUNTER);
	assert_int_equal(m->aggregate, MDL_SUM);
	assert_int_equal(m->style, MDL_EVENT_COUNTER);
	show_statement(&s, m->base);
	assert_string_equal(s.text,
			    "[(append pre (. $start entry) {(if $cpu (++ n))}) (if 1 [(foreach f "
			    "$procedures (append pre (. f entry) {(call:0 g (& n))}))])]");
	assert_non_null(mdl_find_metric(l, "other"));
	assert_non_null(mdl_find_metric(l, "m"));
	mdl_library_free(l);
}

static void test_places(void **state)
{
	struct mdl_library *l = test_library();
	const struct mdl_metric *m;
	const struct mdl_statement *st;

	(void)state;
	test_load(l, "\n  metric m {\r\n\tbase is counter {\n"
		     "    append preInsn $start.entry (* m = 1; *)\n}\n}\n");
	m = mdl_find_metric(l, "m");
	assert_string_equal(m->place.file, "test.mdl");
	assert_int_equal(m->place.line, 2);
	assert_int_equal(m->place.column, 10);
	st = m->base->first;
	assert_int_equal(st->place.line, 4);
	assert_int_equal(st->place.column, 5);
	assert_int_equal(st->expr->left->place.column, 20);
	assert_int_equal(st->code->first->place.column, 36);
	mdl_library_free(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_precedence),
		cmocka_unit_test(test_code),
		cmocka_unit_test(test_numbers_and_strings),
		cmocka_unit_test(test_comments),
		cmocka_unit_test(test_statements),
		cmocka_unit_test(test_keywords_as_names),
		cmocka_unit_test(test_shown),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_metric),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_paper),
		cmocka_unit_test(test_outside),
		cmocka_unit_test(test_places),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
