/* SPDX-License-Identifier: MIT */
/*
 * evaluate.c - what metrics and foci mean in a running program: which
 * functions and points a request names, which constraints it takes, and what is
 * refused. Nothing is ever inserted here.
 */
#include "mutator/evaluate.h"
#include "tests/live/harness_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A program, and what is known of metrics in it. */
struct scene {
	struct session *s;
	struct mdl_library *l;
	struct mdl_plan *plans;
	size_t count;
	struct dinst_error e;
};

static void load(struct scene *sc, const char *text)
{
	struct dinst_error e = {0};

	if (mdl_load_text(sc->l, "test", text, strlen(text), &e) < 0)
		fail_msg("%s", e.text);
}

static void scene_begin(struct harness *h, struct scene *sc, const char *program, const char *text)
{
	struct dinst_error e = {0};

	*sc = (struct scene){0};
	harness_start(h, program, NULL);
	sc->s = session_begin(h);
	assert_int_equal(mdl_library_create(&sc->l, &e), 0);
	if (text)
		load(sc, text);
}

static void drop(struct scene *sc)
{
	mdl_plans_free(sc->plans, sc->count);
	sc->plans = NULL;
	sc->count = 0;
}

static void scene_end(struct harness *h, struct scene *sc)
{
	drop(sc);
	mdl_library_free(sc->l);
	session_end(sc->s);
	harness_verify(h);
	harness_end(h, 0);
}

/* Words of a focus, separated by blanks. */
static int try_each(struct scene *sc, const char *metric, const char *focus, bool each)
{
	char copy[512], *rest = copy, *word;
	const char *words[16];
	size_t count = 0;

	drop(sc);
	dinst_error_clear(&sc->e);
	snprintf(copy, sizeof(copy), "%s", focus);
	while ((word = strsep(&rest, " ")))
		if (*word)
			words[count++] = word;
	return mdl_evaluate(sc->s, sc->l, metric, words, count, each, &sc->plans, &sc->count,
			    &sc->e);
}

static int try(struct scene *sc, const char *metric, const char *focus)
{
	return try_each(sc, metric, focus, false);
}

static struct mdl_plan *evaluate(struct scene *sc, const char *metric, const char *focus)
{
	if (try(sc, metric, focus) < 0)
		fail_msg("%s %s: %s", metric, focus, sc->e.text);
	assert_int_equal(sc->count, 1);
	return &sc->plans[0];
}

static void refused(struct scene *sc, const char *metric, const char *focus, int code,
		    const char *text)
{
	int status = try(sc, metric, focus);

	if (status >= 0)
		fail_msg("%s %s was not refused", metric, focus);
	if (status != code || sc->e.code != code || !strstr(sc->e.text, text))
		fail_msg("%s %s: %d '%s', expected %d '%s'", metric, focus, status, sc->e.text,
			 code, text);
	assert_null(sc->plans);
}

static const char *name_of(const struct function_ref *f)
{
	const struct image_function *functions;

	image_functions(f->module->image, &functions);
	return functions[f->index].name;
}

/* Name, kind and role of a placement, as "foo entry sets append guarded". */
static const char *describe(const struct mdl_placement *p)
{
	static const char *const roles[] = {"sets", "measures", "clears"};
	static char text[4][256];
	static unsigned turn;
	char *to = text[turn++ % 4];

	snprintf(to, 256, "%s %s %s %s%s", name_of(&p->function), point_kind_name(p->kind),
		 roles[p->role], p->prepend ? "prepend" : "append", p->guarded ? " guarded" : "");
	return to;
}

static void expect(const struct mdl_placement *placements, size_t count, ...)
{
	va_list args;
	size_t n = 0;

	va_start(args, count);
	for (const char *want; (want = va_arg(args, const char *)); n++) {
		if (n >= count)
			fail_msg("only %zu placements; '%s' is missing", count, want);
		assert_string_equal(describe(&placements[n]), want);
	}
	va_end(args);
	if (n < count)
		fail_msg("'%s' is too much", describe(&placements[n]));
}

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
			       "  // List of constraints that can be applied\n"
			       "  constraint module;\n"
			       "  constraint procedure;\n"
			       "  // the base computation of the metric.\n"
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
		sets += f->role == MDL_SETS_FLAGS && f->kind == POINT_ENTRY;
		clears += f->role == MDL_CLEARS_FLAGS && f->kind == POINT_EXIT;
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
	refused(&sc, "msgs", "/Code/evaluated/fooo", DINST_NO_FUNCTION, "did you mean foo");
	refused(&sc, "msgs", "/Code/evaluatd/foo", DINST_NO_MODULE, "there are evaluated");
	refused(&sc, "msgs", "/Cod/evaluated/foo", DINST_USAGE, "did you mean /Code?");
	refused(&sc, "mgs", "", DINST_NO_METRIC, "did you mean msgs?");
	scene_end(h, &sc);
}

#define LIVE_CASE(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LIVE_CASE(test_figure_3),
		LIVE_CASE(test_module_of_the_paper),
		LIVE_CASE(test_unmatched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
