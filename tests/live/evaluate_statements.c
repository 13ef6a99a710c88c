/* SPDX-License-Identifier: MIT */
/*
 * evaluate_statements.c - what statements come to in a running program: loops,
 * lists, conditions, calls and what they lead to, starts of threads. Nothing is
 * ever inserted here.
 */
#include "mutator/evaluate_private.h"
#include "tests/live/evaluate_scene.h"

#include <time.h>

/* ------------------------------------------------------------ statements */

static const char statements[] =
	"list sends is procedure { items { \"pvm_*\", \"evaluated:helper\", \"no_such\", \"x.so:f\" }; }\n"
	"list words is string { items { \"foo\", \"bar\" }; }\n"
	"list numbers is int { items { 1 }; }\n"
	"list both is module { items { \"evaluated\", \"libc.so*\", \"libnone.so\" }; }\n"
	"metric loops {\n"
	"  name \"loops\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"  base is counter {\n"
	"    foreach i in $procedures append preInsn i.entry (* loops++; *)\n"
	"  }\n"
	"}\n"
	"metric lists {\n"
	"  name \"lists\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"  base is counter {\n"
	"    foreach f in sends { prepend preInsn f.return (* lists++; *) }\n"
	"    foreach m in both if (m.name == \"evaluated\") foreach f in m.funcs {\n"
	"      if (f.name == \"foo\" || f.name == words[1]) append preInsn f.entry (* lists++; *)\n"
	"      else if (f.name > \"pvm_r\" && f.name <= \"pvm_recv\") append preInsn f.entry (* lists += 2; *)\n"
	"    }\n"
	"    if ($machine == \"\") append preInsn $start.entry (* lists++; *)\n"
	"    if ((3 << 2 | 1) == 13 && !(7 % 4 != 3) && ~0 == -1 && 5 / 2 - 1 ? 1 : 0)\n"
	"      append preInsn $exit.entry (* lists++; *)\n"
	"  }\n"
	"}\n"
	"metric bound {\n"
	"  name \"bound\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"  base is counter {\n"
	"    foreach w in words append preInsn $exit.entry (* if ($arg[0] == 3) bound++; *)\n"
	"    foreach f in sends foreach c in f.callers if (c.name == \"foo\")\n"
	"      append preInsn c.entry (* if ($caller == c) bound++; *)\n"
	"  }\n"
	"}\n";

static void test_statements(void **state)
{
	struct harness *h = *state;
	const struct mdl_plan *p;
	struct function_ref *all;
	struct dinst_error e = {0};
	struct scene sc;
	size_t count;

	scene_begin(h, &sc, "evaluated", statements);
	p = evaluate(&sc, "loops", "");
	assert_int_equal(find_resource(sc.s->modules, "/Code", &all, &count, &e), 0);
	assert_int_equal(p->placement_count, count);
	for (size_t i = 0; i < count; i++) {
		assert_true(p->placements[i].function.module == all[i].module);
		assert_int_equal(p->placements[i].function.index, all[i].index);
		assert_int_equal(p->placements[i].kind, POINT_ENTRY);
	}
	free(all);
	p = evaluate(&sc, "lists", "");
	expect(p->placements, p->placement_count, "pvm_send exit measures prepend guarded",
	       "pvm_recv exit measures prepend guarded", "helper exit measures prepend guarded",
	       "pvm_recv entry measures append guarded", "foo entry measures append guarded",
	       "bar entry measures append guarded", "exit entry measures append guarded",
	       "_exit entry measures append guarded", "pthread_exit entry measures append guarded",
	       NULL);
	assert_int_equal(p->skipped_count, 3);
	assert_string_equal(p->skipped[0], "no_such (of sends)");
	assert_string_equal(p->skipped[1], "x.so:f (of sends)");
	assert_string_equal(p->skipped[2], "libnone.so (of both)");
	p = evaluate(&sc, "bound", "");
	/* Twice for the words, and foo calls three of the list. */
	assert_int_equal(p->placement_count, 2 * 3 + 3);
	assert_int_equal(p->placements[8].binding_count, 1);
	assert_string_equal(p->placements[8].bindings[0].name, "c");
	assert_int_equal(p->placements[8].bindings[0].kind, MDL_BOUND_FUNCTION);
	assert_string_equal(name_of(&p->placements[8].bindings[0].function), "foo");
	scene_end(h, &sc);
}

/* Names of what the calls of a placement lead to, in order. */
static void expect_calls(struct scene *sc, const struct mdl_placement *p, const char *names)
{
	const struct function_plan *plan;
	struct dinst_error e = {0};
	char text[256] = "";

	assert_int_equal(session_plan(sc->s, p->function.module, p->function.index, &plan, &e), 0);
	for (size_t i = 0; i < p->address_count; i++) {
		vaddr_t callee = 0;
		bool found = false;
		long at;

		for (size_t k = 0; k < plan->point_count; k++)
			if (plan->points[k].kind == POINT_CALL &&
			    plan->points[k].address == p->addresses[i]) {
				callee = plan->points[k].callee;
				found = true;
			}
		assert_true(found);
		assert_true(!i || p->addresses[i - 1] < p->addresses[i]);
		at = image_is_stub(p->function.module->image, callee)
			     ? -1
			     : image_function_at(p->function.module->image, callee);
		snprintf(
			text + strlen(text), sizeof(text) - strlen(text), "%s ",
			at < 0 ? "stub"
			       : name_of(&(struct function_ref){p->function.module, (uint32_t)at}));
	}
	assert_string_equal(text, names);
}

static const char calling[] =
	"list messages is procedure { items { \"pvm_send\", \"pvm_recv\" }; }\n"
	"list converts is procedure { items { \"strtol\" }; }\n"
	"constraint alone exclusive /Code/*/* is counter {\n"
	"  append preInsn $constraint[0].entry (* alone++; *)\n"
	"  prepend preInsn $constraint[0].return (* alone--; *)\n"
	"}\n"
	"constraint byHand /Code/*/* is counter {\n"
	"  append preInsn $constraint[0].entry (* byHand = 1; *)\n"
	"  foreach c in $constraint[0].calls {\n"
	"    append preInsn c (* byHand = 0; *)\n"
	"    prepend postInsn c (* byHand = 1; *)\n"
	"  }\n"
	"  prepend preInsn $constraint[0].return (* byHand = 0; *)\n"
	"}\n"
	"metric sent {\n"
	"  name \"sent\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"  constraint alone;\n"
	"  base is counter { foreach f in messages append preInsn f.entry (* sent++; *) }\n"
	"}\n"
	"metric converted {\n"
	"  name \"converted\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"  constraint byHand;\n"
	"  base is counter { foreach f in converts append preInsn f.entry (* converted++; *) }\n"
	"}\n"
	"metric time {\n"
	"  name \"time\"; units ns; aggregateOperator sum; style EventCounter;\n"
	"  constraint ofFunction exclusive /Code/*/* is replace wallTimer {\n"
	"    append preInsn $constraint[0].entry (* startWallTimer(time); *)\n"
	"    prepend preInsn $constraint[0].return (* stopWallTimer(time); *)\n"
	"  }\n"
	"  base is wallTimer {\n"
	"    append preInsn $start.entry (* startWallTimer(time); *)\n"
	"    prepend preInsn $start.return (* stopWallTimer(time); *)\n"
	"  }\n"
	"}\n"
	"metric callees {\n"
	"  name \"callees\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"  constraint ofFunction /Code/*/* is replace counter {\n"
	"    foreach c in $constraint[0].calls if (c.callee.name == \"strtol\" || c.callee.name == \"helper\")\n"
	"      append preInsn c (* callees++; *)\n"
	"  }\n"
	"  base is counter { append preInsn $start.entry (* callees++; *) }\n"
	"}\n";

static void test_calls(void **state)
{
	struct harness *h = *state;
	const struct mdl_plan *p;
	const struct mdl_flag *f;
	struct scene sc;
	char *key;

	scene_begin(h, &sc, "evaluated", calling);
	/* Calls of what is measured belong to the function; others do not. */
	p = evaluate(&sc, "sent", "foo");
	f = &p->flags[0];
	expect(f->placements, f->placement_count, "foo entry sets append",
	       "foo exit clears prepend", "foo call clears prepend", "foo after sets append", NULL);
	expect_calls(&sc, &f->placements[2], "helper stub ");
	expect_calls(&sc, &f->placements[3], "helper stub ");
	/* The linker's stub is known by what it leads to. */
	p = evaluate(&sc, "converted", "foo");
	f = &p->flags[0];
	expect(f->placements, f->placement_count, "foo entry sets append", "foo call clears append",
	       "foo after sets prepend", "foo exit clears prepend", NULL);
	expect_calls(&sc, &f->placements[1], "pvm_send helper pvm_recv ");
	expect_calls(&sc, &f->placements[2], "pvm_send helper pvm_recv ");
	/* Another function's list: another flag. */
	key = strdup(evaluate(&sc, "sent", "bar")->flags[0].key);
	assert_string_not_equal(evaluate(&sc, "sent", "foo")->flags[0].key, key);
	free(key);
	p = evaluate(&sc, "time", "foo");
	expect(p->placements, p->placement_count, "foo entry measures append guarded",
	       "foo exit measures prepend guarded", "foo call measures prepend guarded",
	       "foo after measures append guarded", NULL);
	expect_calls(&sc, &p->placements[2], "pvm_send helper stub pvm_recv ");
	p = evaluate(&sc, "callees", "foo");
	assert_int_equal(p->placement_count, 1);
	expect_calls(&sc, &p->placements[0], "helper stub ");
	scene_end(h, &sc);
}

/* Threads begin in the C library, and go out of it by one way; main() is where it says. */
static void check_start(struct harness *h, const char *program, bool threads, bool shared)
{
	const struct mdl_plan *p;
	struct scene sc;
	taddr_t start;

	scene_begin(h, &sc, program, calling);
	start = strtoull(harness_line(h, HARNESS_ANSWER_MS) + strlen("main "), NULL, 16);
	p = evaluate(&sc, "time", "");
	assert_int_equal(p->placement_count, threads ? 4 : 2);
	for (size_t i = 0; i < p->placement_count; i++) {
		const struct mdl_placement *at = &p->placements[i];
		const struct image_function *functions;
		taddr_t address;

		image_functions(at->function.module->image, &functions);
		address = functions[at->function.index].address + at->function.module->bias;
		if (i % (p->placement_count / 2) == 0) {
			assert_true(address == start);
			assert_int_equal(at->kind, i ? POINT_EXIT : POINT_ENTRY);
			continue;
		}
		assert_int_equal(at->function.module->main, !shared);
		assert_true(function_is(&at->function, &p->placements[1].function));
		if (at->kind != POINT_ENTRY)
			assert_int_equal(at->address_count, 1);
		assert_true(i == 1 ? at->kind == POINT_ENTRY
				   : at->kind == POINT_CALL || at->kind == POINT_AFTER);
	}
	assert_int_equal(p->skipped_count, threads ? 0 : 1);
	scene_end(h, &sc);
}

static void test_start(void **state)
{
	check_start(*state, "evaluated", true, true);
}

static void test_start_stripped(void **state)
{
	check_start(*state, "evaluated-stripped", true, true);
}

static void test_start_fixed(void **state)
{
	check_start(*state, "evaluated-fixed", true, true);
}

static void test_start_static(void **state)
{
	check_start(*state, "evaluated-static", true, false);
}

/* Where the C library has no names for it, its code tells the same as its names do. */
static void test_start_by_code(void **state)
{
	struct harness *h = *state;
	struct function_set creators = {0}, named = {0}, found = {0};
	struct dinst_error e = {0};
	struct evaluation v = {.e = &e};
	size_t calls = 0, untold = 0, worked = 0;
	struct scene sc;

	scene_begin(h, &sc, "evaluated", calling);
	v.s = sc.s;
	v.l = sc.l;
	v.memory = mdl_memory_new(&e);
	assert_int_equal(functions_named(&v, NULL, "pthread_create", &creators), 0);
	assert_int_equal(functions_named(&v, NULL, "start_thread", &named), 0);
	assert_true(creators.count >= 1);
	assert_int_equal(thread_starts_by_code(&v, &creators.items[0], &found), 0);
	set_sort(&found);
	assert_int_equal(found.count, 1);
	if (named.count)
		assert_true(function_is(&named.items[0], &found.items[0]));
	/* And where that would not tell either, the program's own calls do. */
	set_release(&found);
	set_sort(&creators);
	assert_int_equal(thread_routines(&v, &creators, &found, &calls, &untold), 0);
	for (size_t i = 0; i < found.count; i++)
		worked += !strcmp(name_of(&found.items[i]), "work");
	assert_int_equal(worked, 1);
	assert_true(calls >= 1 && untold < calls);
	set_release(&creators);
	set_release(&named);
	set_release(&found);
	callees_free(&v);
	mdl_memory_unref(v.memory);
	scene_end(h, &sc);
}

static const char greedy[] =
	"list all is procedure { items { \"*\" }; }\n"
	"list few is procedure { items { \"exit\", \"read\" }; }\n"
	"metric squared {\n"
	"  name \"squared\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"  base is counter { foreach f in $procedures foreach g in $procedures foreach h in all\n"
	"    if (f.name == g.name && g.name != h.name) append preInsn f.entry (* squared++; *) }\n"
	"}\n"
	"metric inserted {\n"
	"  name \"inserted\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"  base is counter { foreach f in $procedures foreach g in $procedures\n"
	"    append preInsn g.entry (* inserted++; *) }\n"
	"}\n"
	"metric called {\n"
	"  name \"called\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"  base is counter { foreach f in $procedures foreach c in f.callers foreach k in c.calls\n"
	"    if (k.callee.name == f.name) append preInsn k (* called++; *) }\n"
	"}\n"
	"list later is procedure { items { \"libnone.so.1:f\", \"nowhere:f\" }; }\n"
	"list never is procedure { items { \"nowhere:f\" }; }\n"
	"metric waiting {\n"
	"  name \"waiting\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"  base is counter { foreach f in later append preInsn f.entry (* waiting++; *) }\n"
	"}\n"
	"metric nothing {\n"
	"  name \"nothing\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"  base is counter { foreach f in never append preInsn f.entry (* nothing++; *) }\n"
	"}\n"
	"metric named {\n"
	"  name \"named\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"  base is counter { foreach f in few if (f.name == \"__read\" || \"_exit\" == f.name)\n"
	"    append preInsn f.entry (* named++; *) }\n"
	"}\n";

/* Numbers are computed with when the request is made as they are in code. */
static void test_numbers(void **state)
{
	static const char *const truths[] = {
		"(1 << 63) % -1 == 0",
		"(1 << 63) / -1 == 1 << 63",
		"7 % (one[0] - 1) == 0 && 7 / (one[0] - 1) == 0",
		"-7 / 2 == -3 && -7 % 2 == -1 && 7 / -2 == -3",
		"1 << 64 == 1 && 1 << 40 >> 36 == 16 && (5 << 60) >> 66 == 5 << 58",
		"-16 >> 2 == -4 && ~5 == -6 && -(1 << 63) == 1 << 63",
		"0x7fffffffffffffff + one[0] == 1 << 63 && (1 << 63) - 1 > 0",
		"(12 & 10) == 8 && (12 ^ 10) == 6 && (12 | 10) == 14",
		"-1 < 0 && !(0 < -1) && 2 <= 2 && 3 >= 3 && !(3 > 3) && 1 != 2",
		"(0 ? 1 : 2) == 2 && (5 ? 1 : 2) == 1 && !0 && !!7 == 1",
		"(0 || 3) == 1 && (2 && 3) == 1 && (0 && 1 / (one[0] - 1) == 1) == 0",
		"one[2] == 3 && 3 * -4 == -12 && (1 << 62) * 4 == 0",
		"\"a\" < \"b\" && \"b\" >= \"b\" && !(\"b\" > \"b\") && \"a\" <= \"a\"",
	};
	struct harness *h = *state;
	struct scene sc;

	scene_begin(h, &sc, "evaluated", "list one is int { items { 1 }; }");
	for (size_t i = 0; i < sizeof(truths) / sizeof(truths[0]); i++) {
		char text[1024];

		snprintf(text, sizeof(text),
			 "list one is int { items { 1, 2, 3 }; }\n"
			 "list few is procedure { items { \"read\" }; }\n"
			 "metric true { name \"true\"; units calls; aggregateOperator sum; "
			 "style EventCounter; base is counter { foreach f in few if (%s) "
			 "append preInsn f.entry (* true++; *) } }\n",
			 truths[i]);
		load(&sc, text);
		if (try(&sc, "true", "") < 0)
			fail_msg("%s: %s", truths[i], sc.e.text);
	}
	load(&sc, "metric true { name \"true\"; units calls; aggregateOperator sum; "
		  "style EventCounter; base is counter { foreach f in few if (one[3]) "
		  "append preInsn f.entry (* true++; *) } }\n");
	refused(&sc, "true", "", DINST_USAGE, "there is no element 3");
	scene_end(h, &sc);
}

/* Appends "EXPRESSION OPERATOR EXPRESSION ...", `count` of them, as a tree that is not deep. */
static void add_many(FILE *to, const char *expression, const char *operator, unsigned count)
{
	if (count == 1) {
		fputs(expression, to);
		return;
	}
	fputc('(', to);
	add_many(to, expression, operator, count / 2);
	fputs(operator, to);
	add_many(to, expression, operator, count - count / 2);
	fputc(')', to);
}

static void load_large(struct scene *sc, const char *before, const char *expression,
		       const char *operator, const char * behind)
{
	enum { PARTS = 60000 };
	char *text;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	assert_non_null(to);
	fprintf(to,
		"metric large { name \"large\"; units calls; aggregateOperator sum; "
		"style EventCounter; base is counter { %s",
		before);
	add_many(to, expression, operator, PARTS);
	fprintf(to, "%s } }\n", behind);
	fclose(to);
	load(sc, text);
	free(text);
}

/* What is looked at again in each round of a loop may be as large as a text can be. */
static void test_large_trees(void **state)
{
	struct harness *h = *state;
	struct scene sc;
	struct timespec begin, end;

	scene_begin(h, &sc, "evaluated", NULL);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
	load_large(&sc, "foreach f in $procedures foreach g in $procedures if (", "0", " || ",
		   ") append preInsn f.entry (* large++; *)");
	refused(&sc, "large", "", DINST_USAGE, "too much");
	load_large(&sc,
		   "foreach f in $procedures foreach g in $procedures append preInsn f.entry (* "
		   "large += f + ",
		   "1", " + ", "; *)");
	refused(&sc, "large", "", DINST_USAGE, "too much");
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
	assert_true(end.tv_sec - begin.tv_sec < SLOWER * 60);
	scene_end(h, &sc);
}

/* Loops inside of loops end, in time and in memory. */
static void test_limits(void **state)
{
	struct harness *h = *state;
	const struct mdl_plan *p;
	struct scene sc;
	uint64_t start;

	scene_begin(h, &sc, "evaluated", greedy);
	start = clock_ns();
	refused(&sc, "squared", "", DINST_USAGE, "too much");
	refused(&sc, "inserted", "", DINST_USAGE, "more than");
	assert_true(clock_ns() - start < SLOWER * 60ull * 1000 * 1000 * 1000);
	p = evaluate(&sc, "called", "");
	assert_true(p->placement_count > 1000);
	for (size_t i = 0; i < p->placement_count; i++)
		assert_int_equal(p->placements[i].kind, POINT_CALL);
	/* What names a library may come with it. */
	p = evaluate(&sc, "waiting", "");
	assert_string_equal(p->waits_for, "libnone.so.1");
	assert_int_equal(p->placement_count, 0);
	refused(&sc, "nothing", "", DINST_NO_FUNCTION, "it lacks nowhere:f (of never)");
	/* By whichever of its names. */
	p = evaluate(&sc, "named", "");
	expect(p->placements, p->placement_count, "read entry measures append guarded", NULL);
	scene_end(h, &sc);
}

/* What is wrong is told with its place, and nothing comes of it. */
static void test_faults(void **state)
{
	static const struct {
		const char *base, *text;
	} faults[] = {
		{"append postInsn $start.return (* f++; *)", "return"},
		{"append postInsn $start.entry (* f++; *)", "calls"},
		{"foreach m in $modules foreach g in m.funcs foreach c in g.calls "
		 "if (c.callee) append preInsn c.callee (* f++; *)",
		 "point"},
	};
	struct harness *h = *state;
	char text[512];
	struct scene sc;

	scene_begin(h, &sc, "evaluated", NULL);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		struct dinst_error e = {0};

		snprintf(text, sizeof(text),
			 "metric f { name \"f\"; units n; aggregateOperator sum; style "
			 "EventCounter; base is counter { %s } }",
			 faults[i].base);
		/* The front end may see it before. */
		if (mdl_load_text(sc.l, "faults", text, strlen(text), &e) < 0) {
			assert_non_null(strstr(e.text, faults[i].text));
			continue;
		}
		refused(&sc, "f", "", DINST_USAGE, faults[i].text);
		assert_non_null(strstr(sc.e.text, "faults:1:"));
	}
	scene_end(h, &sc);
}

/* A focus of several modules: each of them has its own functions, the first one, too. */
static void test_modules_of_focus(void **state)
{
	static const char text[] =
		"constraint one_by_one /Code is counter {\n"
		"  foreach m in $constraint[1] foreach f in m.funcs\n"
		"    if (f.name == \"strtol\") append preInsn f.entry (* one_by_one++; *)\n"
		"}\n"
		"metric sum { constraint one_by_one;\n"
		"  base is counter { append preInsn $exit.entry (* sum++; *) } }\n";
	struct harness *h = *state;
	const struct mdl_plan *p;
	struct scene sc;

	scene_begin(h, &sc, "evaluated", text);
	p = evaluate(&sc, "sum", "/Code/*");
	assert_int_equal(p->flag_count, 1);
	assert_int_equal(p->flags[0].placement_count, 1);
	scene_end(h, &sc);
}

/* A list that names everything, over and over: it is told, not tried until memory is out. */
static void test_long_list(void **state)
{
	enum { ITEMS = 20000 };
	struct harness *h = *state;
	struct scene sc;
	char *text;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	assert_non_null(file);
	fputs("list all is procedure { items { \"*\"", file);
	for (unsigned i = 0; i < ITEMS; i++)
		fputs(",\"*\"", file);
	fputs(" }; }\nmetric sum { base is counter { append preInsn all.entry (* sum++; *) } }\n",
	      file);
	assert_int_equal(fclose(file), 0);
	scene_begin(h, &sc, "evaluated", text);
	refused(&sc, "sum", "", DINST_USAGE, "too much");
	free(text);
	scene_end(h, &sc);
}

/* A list of what is missing, in a loop over all functions: that is found, and told, once. */
static void test_long_list_of_missing(void **state)
{
	enum { ITEMS = 4000 };
	struct harness *h = *state;
	struct mdl_plan *p;
	struct scene sc;
	char *text;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	assert_non_null(file);
	fputs("list missing is procedure { items { \"foo\"", file);
	for (unsigned i = 0; i < ITEMS; i++)
		fprintf(file, ",\"no_%u\"", i);
	fputs(" }; }\nmetric sum { base is counter { foreach f in $procedures foreach m in missing\n"
	      "if (f.name == m.name) append preInsn f.entry (* sum++; *) } }\n",
	      file);
	assert_int_equal(fclose(file), 0);
	harness_limit(60);
	scene_begin(h, &sc, "evaluated", text);
	p = evaluate(&sc, "sum", "");
	assert_int_equal(p->placement_count, 1);
	assert_int_equal(p->skipped_count, ITEMS);
	free(text);
	scene_end(h, &sc);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		LIVE_CASE(test_statements),    LIVE_CASE(test_calls),
		LIVE_CASE(test_start),	       LIVE_CASE(test_start_stripped),
		LIVE_CASE(test_start_fixed),   LIVE_CASE(test_start_static),
		LIVE_CASE(test_start_by_code), LIVE_CASE(test_faults),
		LIVE_CASE(test_limits),	       LIVE_CASE(test_large_trees),
		LIVE_CASE(test_numbers),       LIVE_CASE(test_modules_of_focus),
		LIVE_CASE(test_long_list),     LIVE_CASE(test_long_list_of_missing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
