/* SPDX-License-Identifier: MIT */
/*
 * evaluate_scene.h - a program, a library of metrics, and plans: what the tests
 * of evaluation share. Included by one file of a program only.
 */
#ifndef DINST_TESTS_LIVE_EVALUATE_SCENE_H
#define DINST_TESTS_LIVE_EVALUATE_SCENE_H

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

__attribute__((unused)) static void load(struct scene *sc, const char *text)
{
	struct dinst_error e = {0};

	if (mdl_load_text(sc->l, "test", text, strlen(text), &e) < 0)
		fail_msg("%s", e.text);
}

__attribute__((unused)) static void scene_begin(struct harness *h, struct scene *sc,
						const char *program, const char *text)
{
	struct dinst_error e = {0};

	*sc = (struct scene){0};
	harness_start(h, program, NULL);
	sc->s = session_begin(h);
	assert_int_equal(mdl_library_create(&sc->l, &e), 0);
	if (text)
		load(sc, text);
}

__attribute__((unused)) static void drop(struct scene *sc)
{
	mdl_plans_free(sc->plans, sc->count);
	sc->plans = NULL;
	sc->count = 0;
}

__attribute__((unused)) static void scene_end(struct harness *h, struct scene *sc)
{
	drop(sc);
	mdl_library_free(sc->l);
	session_end(sc->s);
	harness_verify(h);
	harness_end(h, 0);
}

/* Words of a focus, separated by blanks. */
__attribute__((unused)) static int try_each(struct scene *sc, const char *metric, const char *focus,
					    bool each)
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

__attribute__((unused)) static int try(struct scene *sc, const char *metric, const char *focus)
{
	return try_each(sc, metric, focus, false);
}

__attribute__((unused)) static struct mdl_plan *evaluate(struct scene *sc, const char *metric,
							 const char *focus)
{
	if (try(sc, metric, focus) < 0)
		fail_msg("%s %s: %s", metric, focus, sc->e.text);
	assert_int_equal(sc->count, 1);
	return &sc->plans[0];
}

__attribute__((unused)) static void refused(struct scene *sc, const char *metric, const char *focus,
					    int code, const char *text)
{
	int status = try(sc, metric, focus);

	if (status >= 0)
		fail_msg("%s %s was not refused", metric, focus);
	if (status != code || sc->e.code != code || !strstr(sc->e.text, text))
		fail_msg("%s %s: %d '%s', expected %d '%s'", metric, focus, status, sc->e.text,
			 code, text);
	assert_null(sc->plans);
}

__attribute__((unused)) static const char *name_of(const struct function_ref *f)
{
	const struct image_function *functions;

	image_functions(f->module->image, &functions);
	return functions[f->index].name;
}

/* Name, kind and role of a placement, as "foo entry sets append guarded". */
__attribute__((unused)) static const char *describe(const struct mdl_placement *p)
{
	static const char *const roles[] = {"sets", "measures", "clears"};
	static char text[4][256];
	static unsigned turn;
	char *to = text[turn++ % 4];

	snprintf(to, 256, "%s %s %s %s%s", name_of(&p->function), point_kind_name(p->kind),
		 roles[p->rank.role], p->rank.prepend ? "prepend" : "append",
		 p->guarded ? " guarded" : "");
	return to;
}

__attribute__((unused)) static void expect(const struct mdl_placement *placements, size_t count,
					   ...)
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

#define LIVE_CASE(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

#endif
