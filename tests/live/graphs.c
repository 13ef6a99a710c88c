/* SPDX-License-Identifier: MIT */
/*
 * graphs.c - cfg, points --kinds and points -v of a real program through the
 * command line: the rows, the code, and the drawing, which a strict reader of
 * graphviz's language goes through word by word.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/live/harness.h"

/* ------------------------------------------------- the drawing's language */

enum { NODES_MAX = 512 };

/*
 * What dinst draws is a part of the language (graphviz, "The DOT Language"):
 * digraph ID { statement; ... }, a statement being ID=ID, node attributes, a
 * node with attributes, or an edge ID -> ID with attributes.
 */
struct reader {
	const char *at;
	char word[8192]; /* the last one; of a quoted one, its contents */
	bool quoted;
	char nodes[NODES_MAX][16];
	unsigned node_count, edges, back_edges;
};

static void expect(struct reader *r, const char *word);

/* The next word: a name or number, a quoted string, "->", or one of {}[]=,; */
static const char *next(struct reader *r)
{
	size_t used = 0;

	while (isspace((unsigned char)*r->at))
		r->at++;
	r->quoted = *r->at == '"';
	if (r->quoted) {
		for (r->at++; *r->at != '"'; r->at++) {
			if (!*r->at)
				fail_msg("a string does not end");
			if (*r->at == '\n')
				fail_msg("a line break in a string");
			if (*r->at == '\\' && strchr("\"\\ln", r->at[1]) == NULL)
				fail_msg("a bad escape: %.20s", r->at);
			assert_true(used + 2 < sizeof(r->word));
			if (*r->at == '\\')
				r->word[used++] = *r->at++;
			r->word[used++] = *r->at;
		}
		r->at++;
	} else if (!strncmp(r->at, "->", 2)) {
		used = 2;
		memcpy(r->word, r->at, used);
		r->at += 2;
	} else if (isalnum((unsigned char)*r->at) || *r->at == '_') {
		while (isalnum((unsigned char)*r->at) || *r->at == '_')
			r->word[used++] = *r->at++;
	} else if (*r->at) {
		if (!strchr("{}[]=,;", *r->at))
			fail_msg("unexpected: %.40s", r->at);
		r->word[used++] = *r->at++;
	}
	r->word[used] = '\0';
	return r->word;
}

static void expect(struct reader *r, const char *word)
{
	if (strcmp(next(r), word) != 0 || r->quoted)
		fail_msg("'%s' instead of '%s' before: %.40s", r->word, word, r->at);
}

/* NAME=VALUE, ... ] */
static void attributes(struct reader *r, bool *back)
{
	for (;;) {
		char name[32];

		snprintf(name, sizeof(name), "%.31s", next(r));
		assert_true(isalpha((unsigned char)name[0]));
		expect(r, "=");
		next(r);
		assert_true(r->quoted || r->word[0]);
		if (!strcmp(name, "label") && !strcmp(r->word, "loop"))
			*back = true;
		next(r);
		if (!strcmp(r->word, "]"))
			return;
		assert_string_equal(r->word, ",");
	}
}

static bool is_node(const struct reader *r, const char *name)
{
	for (unsigned i = 0; i < r->node_count; i++)
		if (!strcmp(r->nodes[i], name))
			return true;
	return false;
}

static void statement(struct reader *r)
{
	bool back = false;
	char name[32];

	snprintf(name, sizeof(name), "%.31s", r->word);
	next(r);
	if (!strcmp(r->word, "=")) {
		next(r);
	} else if (!strcmp(r->word, "->")) {
		assert_true(is_node(r, name));
		next(r);
		assert_true(is_node(r, r->word));
		expect(r, "[");
		attributes(r, &back);
		r->edges++;
		r->back_edges += back;
	} else {
		assert_string_equal(r->word, "[");
		if (strcmp(name, "node") != 0) {
			assert_false(is_node(r, name));
			assert_true(r->node_count < NODES_MAX && strlen(name) < 16);
			snprintf(r->nodes[r->node_count++], 16, "%.15s", name);
		}
		attributes(r, &back);
	}
	expect(r, ";");
}

static void read_drawing(struct reader *r, const char *text, const char *function)
{
	memset(r, 0, sizeof(*r));
	r->at = text;
	expect(r, "digraph");
	next(r);
	assert_true(r->quoted);
	assert_string_equal(r->word, function);
	expect(r, "{");
	while (strcmp(next(r), "}") != 0)
		statement(r);
	assert_string_equal(next(r), "");
}

/* ------------------------------------------------------------------ cases */

static const char *text_of(const json_t *row, const char *key)
{
	const char *text = json_string_value(json_object_get(row, key));

	if (!text)
		fail_msg("no %s in a row", key);
	return text;
}

static void test_rows(void **state)
{
	struct harness *h = *state;
	json_t *rows, *row;
	size_t index, loops = 0, back = 0;

	harness_start(h, "detail", "1", NULL);
	assert_int_equal(harness_dinst(h, NULL, "attach", harness_number(h->pid)), 0);
	assert_int_equal(harness_dinst(h, &rows, "cfg", "detail:d_nest"), 0);
	assert_int_equal(json_array_size(rows), 5);
	json_array_foreach(rows, index, row)
	{
		const json_t *edges = json_object_get(row, "edges");
		json_t *edge;
		size_t k;

		assert_string_equal(text_of(row, "function"), "d_nest");
		assert_int_equal(json_integer_value(json_object_get(row, "block")), index);
		loops += json_array_size(json_object_get(row, "loops"));
		json_array_foreach(edges, k, edge)
		{
			if (json_is_true(json_object_get(edge, "back")))
				back++;
			assert_non_null(text_of(edge, "kind"));
		}
	}
	/* Three blocks in the outer loop, one of them in the inner one, too. */
	assert_int_equal(loops, 4);
	assert_int_equal(back, 2);
	json_decref(rows);
	assert_int_equal(harness_dinst(h, NULL, "cfg", "detail:no_such_function"), 1);
	assert_int_equal(harness_dinst(h, NULL, "cfg", "detail:d_*", "--dot"), 2);
	assert_int_equal(harness_dinst(h, NULL, "detach"), 0);
	harness_verify(h);
	harness_end(h, 0);
}

static void draw(struct harness *h, const char *pattern, const char *name, unsigned edges,
		 unsigned back)
{
	struct reader *r = malloc(sizeof(*r));
	json_t *rows;

	assert_non_null(r);
	assert_int_equal(harness_dinst(h, &rows, "cfg", pattern, "--dot"), 0);
	assert_int_equal(json_array_size(rows), 1);
	read_drawing(r, text_of(json_array_get(rows, 0), "dot"), name);
	if (edges) {
		assert_int_equal(r->edges, edges);
		assert_int_equal(r->back_edges, back);
	}
	json_decref(rows);
	free(r);
}

static void test_drawing(void **state)
{
	struct harness *h = *state;
	json_t *rows, *row;
	size_t index;

	harness_start(h, "detail", "1", NULL);
	assert_int_equal(harness_dinst(h, NULL, "attach", harness_number(h->pid)), 0);
	draw(h, "detail:d_nest", "d_nest", 8, 2);
	draw(h, "detail:d_switch", "d_switch", 9, 0);
	draw(h, "libc.so.6:qsort_r", "qsort_r", 0, 0);
	draw(h, "libc.so.6:vfprintf", "vfprintf", 0, 0);
	/* All of the program, one after the other. */
	assert_int_equal(harness_dinst(h, &rows, "funcs", "detail:*"), 0);
	json_array_foreach(rows, index, row)
	{
		char pattern[128];

		snprintf(pattern, sizeof(pattern), "detail:%.100s", text_of(row, "function"));
		draw(h, pattern, text_of(row, "function"), 0, 0);
	}
	json_decref(rows);
	assert_int_equal(harness_dinst(h, NULL, "detach"), 0);
	harness_verify(h);
	harness_end(h, 0);
}

static size_t count_kind(const json_t *rows, const char *kind)
{
	size_t index, count = 0;
	json_t *row;

	json_array_foreach(rows, index, row) count += !strcmp(text_of(row, "kind"), kind);
	return count;
}

static void test_kinds(void **state)
{
	struct harness *h = *state;
	json_t *rows;

	harness_start(h, "detail", "1", NULL);
	assert_int_equal(harness_dinst(h, NULL, "attach", harness_number(h->pid)), 0);
	assert_int_equal(harness_dinst(h, &rows, "points", "detail:d_nest"), 0);
	assert_int_equal(json_array_size(rows), 2);
	json_decref(rows);
	assert_int_equal(harness_dinst(h, &rows, "points", "detail:d_nest", "--kinds", "all"), 0);
	assert_int_equal(count_kind(rows, "entry"), 1);
	assert_int_equal(count_kind(rows, "block"), 5);
	assert_int_equal(count_kind(rows, "edge"), 8);
	assert_int_equal(count_kind(rows, "instruction"), 12);
	assert_int_equal(count_kind(rows, "loop-entry"), 2);
	assert_int_equal(count_kind(rows, "loop-round"), 2);
	assert_int_equal(count_kind(rows, "loop-exit"), 2);
	assert_int_equal(count_kind(rows, "load"), 1);
	json_decref(rows);
	/* The plan has details now, and the listing is what it was. */
	assert_int_equal(harness_dinst(h, &rows, "points", "detail:d_nest"), 0);
	assert_int_equal(json_array_size(rows), 2);
	json_decref(rows);
	assert_int_equal(harness_dinst(h, &rows, "points", "detail:d_nest", "--kinds=loop"), 0);
	assert_int_equal(json_array_size(rows), 6);
	json_decref(rows);
	assert_int_equal(
		harness_dinst(h, &rows, "points", "--summary", "detail", "--kinds=block,edge"), 0);
	assert_int_equal(json_array_size(rows), 2);
	json_decref(rows);
	assert_int_equal(harness_dinst(h, NULL, "points", "detail:d_nest", "--kinds=blocks"), 2);
	assert_int_equal(harness_dinst(h, NULL, "detach"), 0);
	harness_verify(h);
	harness_end(h, 0);
}

/* The row of the entry has the code: nothing inserted, then a snippet, then two. */
static void look_at_code(struct harness *h, const char *expected_state, size_t lines_min,
			 const char *note)
{
	bool found = note == NULL;
	json_t *rows, *code, *line;
	size_t index;

	assert_int_equal(harness_dinst(h, &rows, "-v", "points", "detail:d_straight"), 0);
	assert_string_equal(harness_string(rows, "state"), expected_state);
	code = json_object_get(json_array_get(rows, 0), "code");
	assert_true(json_array_size(code) >= lines_min);
	json_array_foreach(code, index, line)
	{
		const char *text = json_string_value(json_object_get(line, "note"));

		assert_non_null(text_of(line, "address"));
		assert_non_null(text_of(line, "text"));
		found = found || (text && strstr(text, note));
	}
	assert_true(found);
	json_decref(rows);
}

static void test_code(void **state)
{
	struct harness *h = *state;

	harness_start(h, "detail", "1", NULL);
	assert_int_equal(harness_dinst(h, NULL, "attach", harness_number(h->pid)), 0);
	look_at_code(h, "nothing is inserted", 2, NULL);
	assert_int_equal(harness_dinst(h, NULL, "insert", "calls", "/Code/detail/d_straight"), 0);
	look_at_code(h, "inserted", 8, "(instance 1)");
	look_at_code(h, "inserted", 8, "switch");
	look_at_code(h, "inserted", 8, "back to the target");
	assert_int_equal(harness_dinst(h, NULL, "insert", "wall", "/Code/detail/d_straight"), 0);
	look_at_code(h, "inserted", 12, ", instance 2)");
	assert_int_equal(harness_dinst(h, NULL, "remove", "--all"), 0);
	assert_int_equal(harness_dinst(h, NULL, "detach"), 0);
	harness_verify(h);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_rows, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_drawing, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_kinds, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_code, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
