/* SPDX-License-Identifier: MIT */
/*
 * evaluate.c - what metrics and foci mean in a running program: which
 * functions and points a request names, which constraints it takes, and what is
 * refused. Nothing is ever inserted here.
 */
#include "tests/live/evaluate_scene.h"

/* ---------------------------------------------------------- the paper's */

/* papers/002, section 2: as printed, but for what the scanner made of it. */
static const char figure_2[] = "list pvm_msg_func is procedure {\n"
			       "  flavor pvm;\n"
			       "  items { \"pvm_send\", \"pvm_recv\" };\n"
			       "}\n"
			       "constraint module /Code is counter {\n"
			       "  foreach func in $constraint[1].funcs {\n"
			       "    append preInsn func.entry\n"
			       "      (* module = 1; *)\n"
			       "    prepend preInsn func.return\n"
			       "      (* module = 0; *)\n"
			       "  }\n"
			       "}\n"
			       "constraint procedure /Code is counter {\n"
			       "  append preInsn $constraint[0].entry\n"
			       "    (* procedure = 1; *)\n"
			       "  prepend preInsn $constraint[0].return\n"
			       "    (* procedure = 0; *)\n"
			       "}\n"
			       "metric msgs {\n"
			       "  name \"Messages\";\n"
			       "  units opsPerSecond;\n"
			       "  aggregateOperator sum;\n"
			       "  flavor { pvm };\n"
			       "  "
			       "// List of constraints that can be applied\n"
			       "  constraint module;\n"
			       "  constraint procedure;\n"
			       "  "
			       "// the base computation of the metric.\n"
			       "  base is counter {\n"
			       "    foreach func in pvm_msg_func\n"
			       "      append preInsn func.entry constrained\n"
			       "        (* msgs++; *)\n"
			       "  }\n"
			       "}\n";

static void test_figure_3(void **state)
{
	struct harness *h = *state;
	struct mdl_plan *p;
	struct scene sc;

	scene_begin(h, &sc, "evaluated", figure_2);
	p = evaluate(&sc, "msgs", "/Code/evaluated/foo");
	assert_int_equal(p->type, MDL_COUNTER);
	assert_null(p->replaced_by);
	assert_false(p->many);
	assert_string_equal(p->focus, "/Code/evaluated/foo");
	expect(p->placements, p->placement_count, "pvm_send entry measures append guarded",
	       "pvm_recv entry measures append guarded", NULL);
	assert_int_equal(p->flag_count, 1);
	assert_string_equal(p->flags[0].constraint->name, "procedure");
	expect(p->flags[0].placements, p->flags[0].placement_count, "foo entry sets append",
	       "foo exit clears prepend", NULL);
	assert_null(p->flags[0].placements[1].addresses);
	/* The same of another function is another flag, of the same is the same. */
	char *key = strdup(p->flags[0].key);

	p = evaluate(&sc, "Messages", "/Code/evaluated/foo");
	assert_string_equal(p->flags[0].key, key);
	p = evaluate(&sc, "msgs", "/Code/evaluated/bar");
	assert_string_not_equal(p->flags[0].key, key);
	free(key);
	/* Unconstrained: snippets without if. */
	p = evaluate(&sc, "msgs", "");
	assert_int_equal(p->flag_count, 0);
	assert_int_equal(p->placement_count, 2);
	assert_string_equal(p->focus, "/Code");
	scene_end(h, &sc);
}

static void test_module_of_the_paper(void **state)
{
	struct harness *h = *state;
	struct mdl_plan *p;
	struct scene sc;
	size_t sets = 0, clears = 0;

	scene_begin(h, &sc, "evaluated", figure_2);
	p = evaluate(&sc, "msgs", "/Code/evaluated");
	assert_int_equal(p->flag_count, 1);
	assert_string_equal(p->flags[0].constraint->name, "module");
	for (size_t i = 0; i < p->flags[0].placement_count; i++) {
		const struct mdl_placement *f = &p->flags[0].placements[i];

		assert_string_equal(f->function.module->name, "evaluated");
		sets += f->rank.role == MDL_SETS_FLAGS && f->kind == POINT_ENTRY;
		clears += f->rank.role == MDL_CLEARS_FLAGS && f->kind == POINT_EXIT;
	}
	assert_true(sets > 5);
	assert_int_equal(sets, clears);
	assert_int_equal(sets + clears, p->flags[0].placement_count);
	assert_int_equal(p->placement_count, 2);
	scene_end(h, &sc);
}

/* -------------------------------------------------------------- foci */

static void test_unmatched(void **state)
{
	struct harness *h = *state;
	struct scene sc;

	scene_begin(h, &sc, "evaluated", figure_2);
	refused(&sc, "msgs", "/Process/worker-1", DINST_USAGE, "it takes /Code/*, /Code/*/*");
	refused(&sc, "msgs", "/Code/evaluated/foo /SyncObject/Mutex/0x10", DINST_USAGE,
		"cannot be constrained by /SyncObject/Mutex/0x10");
	refused(&sc, "msgs", "/Code/evaluated/fooo", DINST_NO_FUNCTION,
		"no function matches 'fooo' in evaluated; did you mean 'foo'");
	refused(&sc, "msgs", "/Code/evaluatd/foo", DINST_NO_MODULE, "there are evaluated");
	refused(&sc, "msgs", "/Cod/evaluated/foo", DINST_USAGE, "did you mean '/Code'?");
	refused(&sc, "mgs", "", DINST_NO_METRIC, "did you mean 'msgs'?");
	scene_end(h, &sc);
}

/* ------------------------------------------------------ replace, default */

static const char selection[] =
	"constraint flagged /Code/*/* is counter {\n"
	"  append preInsn $constraint[0].entry (* flagged++; *)\n"
	"  prepend preInsn $constraint[0].return (* flagged--; *)\n"
	"}\n"
	"constraint whole /Code/* is counter {\n"
	"  foreach f in $constraint[0].funcs {\n"
	"    append preInsn f.entry (* whole++; *)\n"
	"    prepend preInsn f.return (* whole -= 1; *)\n"
	"  }\n"
	"}\n"
	"constraint inThread /Process/* is counter { (* inThread = ($thread == $constraint[0]); *) }\n"
	"constraint ofMutex /SyncObject/Mutex/* is counter {\n"
	"  append preInsn $start.entry (* ofMutex = ($arg[0] == $constraint[0]); *)\n"
	"}\n"
	"constraint anyKind /SyncObject is default;\n"
	"metric entries {\n"
	"  name \"entries of all\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"  constraint flagged; constraint inThread; constraint whole;\n"
	"  constraint one /Code/*/* is replace wallTimer {\n"
	"    append preInsn $constraint[0].entry (* startWallTimer(entries); *)\n"
	"    append preInsn $constraint[0].return unconstrained (* stopWallTimer(entries); *)\n"
	"  }\n"
	"  base is counter { foreach f in $procedures append preInsn f.entry (* entries++; *) }\n"
	"}\n"
	"metric twice {\n"
	"  name \"twice\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"  constraint a /Code/*/* is replace counter { append preInsn $constraint[0].entry (* twice++; *) }\n"
	"  constraint b /Code/*/* is replace counter { append preInsn $constraint[0].entry (* twice++; *) }\n"
	"  base is counter { append preInsn $start.entry (* twice++; *) }\n"
	"}\n"
	"metric mild {\n"
	"  name \"mild\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"  constraint anyKind; constraint ofMutex; constraint inThread;\n"
	"  constraint everywhere /Code is default;\n"
	"  base is counter { append preInsn $exit.entry (* mild++; *) }\n"
	"}\n";

static void test_selection(void **state)
{
	struct harness *h = *state;
	const struct mdl_plan *p;
	struct scene sc;

	scene_begin(h, &sc, "evaluated", selection);
	/* The base is replaced, and guarded by the flag beside it; not what is unconstrained. */
	p = evaluate(&sc, "entries", "/Code/evaluated/foo");
	assert_string_equal(p->replaced_by->name, "one");
	assert_int_equal(p->type, MDL_WALL_TIMER);
	expect(p->placements, p->placement_count, "foo entry measures append guarded",
	       "foo exit measures append", NULL);
	assert_int_equal(p->flag_count, 1);
	assert_string_equal(p->flags[0].constraint->name, "flagged");
	/* Another hierarchy beside it; what is asked on the spot comes first. */
	p = evaluate(&sc, "entries", "/Code/evaluated/foo /Process/worker-1");
	assert_int_equal(p->flag_count, 2);
	assert_string_equal(p->flags[0].constraint->name, "inThread");
	assert_non_null(p->flags[0].inline_code);
	assert_int_equal(p->flags[0].placement_count, 0);
	assert_int_equal(p->flags[0].binding_count, 1);
	assert_int_equal(p->flags[0].bindings[0].kind, MDL_BOUND_NUMBER);
	assert_true(p->flags[0].bindings[0].number > h->pid);
	assert_null(p->flags[1].inline_code);
	/* A module: a flag over all of its functions. */
	p = evaluate(&sc, "entries", "/Code/evaluated /Process/worker-2");
	assert_null(p->replaced_by);
	assert_int_equal(p->flag_count, 2);
	assert_string_equal(p->flags[1].constraint->name, "whole");
	assert_true(p->flags[1].placement_count > 10);
	assert_true(p->placement_count > 1000);
	/* Accepted as it is: no flag, and the others still count. */
	p = evaluate(&sc, "mild", "/SyncObject/Barrier");
	assert_int_equal(p->flag_count, 0);
	p = evaluate(&sc, "mild", "/Code/evaluated/foo /SyncObject/Mutex/0x1234");
	assert_int_equal(p->flag_count, 1);
	assert_int_equal(p->flags[0].placements[0].bindings[0].number, 0x1234);
	assert_int_equal(p->flags[0].placements[0].rank.role, MDL_SETS_FLAGS);
	refused(&sc, "twice", "/Code/evaluated/foo", DINST_USAGE, "both 'a' and 'b' would replace");
	assert_int_equal(evaluate(&sc, "twice", "")->flag_count, 0);
	refused(&sc, "twice", "/Process/1", DINST_USAGE, "/Code/*/*");
	scene_end(h, &sc);
}

/* ------------------------------------------------------------------ foci */

static const char counting[] =
	"constraint thread /Process/* is counter { (* thread = ($thread == $constraint[0]); *) }\n"
	"constraint process /Machine/* is counter { (* process = ($pid == $constraint[0]); *) }\n"
	"constraint file /File/* is counter {\n"
	"  append preInsn $exit.entry (* file = ($arg[0] == $constraint[0]); *)\n"
	"}\n"
	"constraint mutex /SyncObject/Mutex/* is counter {\n"
	"  append preInsn $exit.entry (* if ($arg[0] == $constraint[0]) mutex = 1; *)\n"
	"}\n"
	"constraint kind /SyncObject/* is default;\n"
	"metric n {\n"
	"  name \"n\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"  constraint thread; constraint process; constraint file; constraint mutex; constraint kind;\n"
	"  constraint ofFunction /Code/*/* is replace counter {\n"
	"    append preInsn $constraint[0].entry (* n++; *)\n"
	"  }\n"
	"  constraint ofModule /Code/* is replace counter {\n"
	"    foreach f in $constraint[0].funcs append preInsn f.entry (* n++; *)\n"
	"  }\n"
	"  constraint ofBlock /Code/*/*/* is replace counter { append preInsn $constraint[0] (* n++; *) }\n"
	"  base is counter { foreach f in $procedures append preInsn f.entry (* n++; *) }\n"
	"}\n"
	"metric m {\n"
	"  name \"m\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"  constraint ofModule /Code/* is replace counter {\n"
	"    foreach f in $constraint[0].funcs append preInsn f.entry (* m++; *)\n"
	"  }\n"
	"  base is counter { foreach f in $procedures append preInsn f.entry (* m++; *) }\n"
	"}\n";

static void test_words_of_code(void **state)
{
	struct harness *h = *state;
	struct scene sc;
	char word[64];
	size_t all;

	scene_begin(h, &sc, "evaluated", counting);
	/* Names without a hierarchy, as `insert` has always had them. */
	expect(evaluate(&sc, "n", "foo")->placements, 1, "foo entry measures append guarded", NULL);
	assert_string_equal(sc.plans[0].focus, "foo");
	expect(evaluate(&sc, "n", "evaluated:bar")->placements, 1,
	       "bar entry measures append guarded", NULL);
	snprintf(word, sizeof(word), "0x%llx",
		 (unsigned long long)session_address(sc.s, "pvm_send"));
	expect(evaluate(&sc, "n", word)->placements, 1, "pvm_send entry measures append guarded",
	       NULL);
	/* All that match are one. */
	assert_int_equal(evaluate(&sc, "n", "/Code/*/pvm_*")->placement_count, 2);
	assert_int_equal(try(&sc, "n", "/Code/evaluated/foo /Code/evaluated/bar"), 0);
	assert_int_equal(sc.count, 2);
	/* Whole hierarchies say nothing. */
	all = evaluate(&sc, "n", "")->placement_count;
	assert_true(all > 1000);
	assert_int_equal(
		evaluate(&sc, "n", "/Code /Process /SyncObject /File /Machine")->placement_count,
		all);
	assert_int_equal(sc.plans[0].flag_count, 0);
	/* What is not loaded may come. */
	assert_string_equal(evaluate(&sc, "n", "/Code/libnone.so.1/f")->waits_for, "libnone.so.1");
	assert_int_equal(sc.plans[0].placement_count, 0);
	assert_int_equal(sc.plans[0].flag_count, 0);
	assert_non_null(sc.plans[0].replaced_by);
	refused(&sc, "n", "/Code/libnone/f", DINST_NO_MODULE, "no module");
	refused(&sc, "n", "procesCommand", DINST_NO_FUNCTION, "no function");
	refused(&sc, "n",
		"/Code/"
		"/foo",
		DINST_USAGE, "empty");
	/* Each. */
	assert_int_equal(try_each(&sc, "n", "", true), 0);
	assert_int_equal(sc.count, all);
	assert_int_equal(try_each(&sc, "n", "/Code/evaluated/pvm_*", true), 0);
	assert_int_equal(sc.count, 2);
	assert_string_equal(sc.plans[1].focus, "/Code/evaluated/pvm_recv");
	assert_int_equal(try_each(&sc, "m", "/Code/lib*", true), 0);
	assert_true(sc.count >= 1 && sc.count < 8);
	assert_int_equal(try_each(&sc, "n", "foo /Process/worker-*", true), 0);
	assert_int_equal(sc.count, 2);
	assert_int_equal(sc.plans[0].placement_count, 1);
	assert_int_equal(sc.plans[0].flag_count, 1);
	assert_false(sc.plans[0].many);
	scene_end(h, &sc);
}

static void test_blocks(void **state)
{
	struct harness *h = *state;
	const struct mdl_plan *p;
	struct scene sc;
	char word[128];
	size_t blocks;
	taddr_t foo;

	scene_begin(h, &sc, "evaluated", counting);
	p = evaluate(&sc, "n", "/Code/evaluated/bar/*");
	assert_int_equal(p->placement_count, 1);
	assert_int_equal(p->placements[0].kind, POINT_BLOCK);
	blocks = p->placements[0].address_count;
	assert_true(blocks >= 3);
	foo = session_address(sc.s, "bar");
	snprintf(word, sizeof(word), "/Code/evaluated/bar/0x%llx", (unsigned long long)foo);
	p = evaluate(&sc, "n", word);
	assert_int_equal(p->placements[0].address_count, 1);
	assert_true(p->placements[0].addresses[0] + p->placements[0].function.module->bias == foo);
	snprintf(word, sizeof(word), "/Code/evaluated/bar/0x%llx", (unsigned long long)foo + 1);
	refused(&sc, "n", word, DINST_NO_FUNCTION, "no block begins there");
	scene_end(h, &sc);
}

static void test_combinations(void **state)
{
	struct harness *h = *state;
	struct scene sc;

	scene_begin(h, &sc, "evaluated", counting);
	assert_int_equal(try(&sc, "n", "/Code/evaluated/foo /Code/evaluated/bar /Process/worker-1"),
			 0);
	assert_int_equal(sc.count, 2);
	assert_string_equal(sc.plans[0].focus, "/Code/evaluated/foo /Process/worker-1");
	assert_string_equal(sc.plans[1].focus, "/Code/evaluated/bar /Process/worker-1");
	assert_int_equal(try(&sc, "n", "/Process/worker-1 foo /Process/worker-2"), 0);
	assert_int_equal(sc.count, 2);
	assert_string_equal(sc.plans[0].focus, "foo /Process/worker-1");
	assert_string_equal(sc.plans[1].focus, "foo /Process/worker-2");
	assert_string_not_equal(sc.plans[0].flags[0].key, sc.plans[1].flags[0].key);
	scene_end(h, &sc);
}

static void test_many(void **state)
{
	struct harness *h = *state;
	const struct mdl_plan *p;
	struct scene sc;
	char word[64];

	scene_begin(h, &sc, "evaluated", counting);
	p = evaluate(&sc, "n", "/SyncObject/Mutex/*");
	assert_true(p->many);
	assert_string_equal(p->many_of, "/SyncObject/Mutex/*");
	assert_int_equal(p->key_count, 0);
	assert_true(p->flags[0].many);
	assert_int_equal(p->flags[0].placements[0].bindings[0].kind, MDL_BOUND_ANY);
	assert_string_equal(p->flags[0].placements[0].bindings[0].name, "$constraint");
	/* One that is known. */
	p = evaluate(&sc, "n", "/SyncObject/Mutex/lock");
	assert_false(p->many);
	assert_int_equal(p->flags[0].placements[0].bindings[0].kind, MDL_BOUND_NUMBER);
	assert_true(p->flags[0].placements[0].bindings[0].number > 0x1000);
	/* Several that are known: places for them only. */
	p = evaluate(&sc, "n", "/Process/worker-*");
	assert_true(p->many);
	assert_int_equal(p->key_count, 2);
	assert_true(p->keys[0] > (uint64_t)h->pid && p->keys[1] > (uint64_t)h->pid);
	p = evaluate(&sc, "n", "/Process/*");
	assert_true(p->many);
	assert_int_equal(p->key_count, 0);
	/* The process itself, files by descriptor and by name. */
	snprintf(word, sizeof(word), "/Machine/%d", (int)h->pid);
	p = evaluate(&sc, "n", word);
	assert_int_equal(p->flags[0].bindings[0].number, h->pid);
	p = evaluate(&sc, "n", "/File/77");
	assert_int_equal(p->flags[0].placements[0].bindings[0].number, 77);
	p = evaluate(&sc, "n", "/File/pipe:*");
	assert_true(p->many);
	assert_true(p->key_count >= 2);
	refused(&sc, "n", "/SyncObject/Mutex/* /Process/*", DINST_USAGE, "both");
	refused(&sc, "n", "/Process/nobody", DINST_USAGE, "no such thread; there are");
	refused(&sc, "n", "/Process/1", DINST_USAGE, "no such thread");
	refused(&sc, "n",
		"/File/"
		"/no/such/file",
		DINST_USAGE, "no such open file");
	refused(&sc, "n", "/SyncObject/Mutex/loc?", DINST_USAGE, "not known before");
	refused(&sc, "n", "/SyncObject/*", DINST_USAGE, "name a kind");
	assert_int_equal(try_each(&sc, "n", "/SyncObject/Mutex/*", true), DINST_USAGE);
	scene_end(h, &sc);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		LIVE_CASE(test_figure_3),      LIVE_CASE(test_module_of_the_paper),
		LIVE_CASE(test_unmatched),     LIVE_CASE(test_selection),
		LIVE_CASE(test_words_of_code), LIVE_CASE(test_blocks),
		LIVE_CASE(test_combinations),  LIVE_CASE(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
