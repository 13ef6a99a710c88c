/* SPDX-License-Identifier: MIT */
/*
 * mdl_fuzz.c - any text is loaded or refused: no crash, hang, leak, or tree that
 * breaks its promises.
 *
 * LLVMFuzzerTestOneInput() takes any bytes; built with -DFUZZ_ENGINE it is for
 * libFuzzer (clang -fsanitize=fuzzer), to be started with the corpus in
 * tests/fuzz/corpus/mdl. Else this is a test that loads the corpus and the
 * library that ships, and damages both in a row of fixed pseudo-random ways.
 *
 * FUZZ_COUNT and FUZZ_SEED in the environment ask for more, or for others.
 */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "mutator/mdl/mdl.h"

enum { DEPTH_LIMIT = 600, LINES_LIMIT = 200 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* ------------------------------------------------------ promises of trees */

static void check_place(const struct mdl_place *place)
{
	if (!place->file || !place->line || !place->column)
		abort();
}

static void walk_expr(const struct mdl_expr *e, unsigned depth)
{
	if (!e)
		return;
	check_place(&e->place);
	if (depth > DEPTH_LIMIT)
		abort();
	if ((e->kind == MDL_NAME || e->kind == MDL_CALL || e->kind == MDL_ATTRIBUTE) && !e->text)
		abort();
	if (e->kind == MDL_ARGUMENT && (e->number < 0 || e->number > 1000))
		abort();
	if (e->kind == MDL_CONSTRAINT && (!e->left || e->left->kind != MDL_INTEGER))
		abort();
	if (e->kind == MDL_BINARY && (!e->left || !e->right))
		abort();
	walk_expr(e->left, depth + 1);
	walk_expr(e->right, depth + 1);
	walk_expr(e->condition, depth + 1);
	for (size_t i = 0; i < e->arg_count; i++)
		walk_expr(e->args[i], depth + 1);
}

static void walk_code(const struct mdl_code *first, unsigned depth)
{
	if (depth > DEPTH_LIMIT)
		abort();
	for (const struct mdl_code *c = first; c; c = c->next) {
		check_place(&c->place);
		if ((c->kind == MDL_CODE_BLOCK) != !c->expr ||
		    (c->kind == MDL_CODE_IF) != !!c->then)
			abort();
		walk_expr(c->expr, 0);
		walk_code(c->then, depth + 1);
		walk_code(c->otherwise, depth + 1);
		walk_code(c->first, depth + 1);
	}
}

static void walk_statements(const struct mdl_statement *first, unsigned depth)
{
	if (depth > DEPTH_LIMIT)
		abort();
	for (const struct mdl_statement *s = first; s; s = s->next) {
		check_place(&s->place);
		if ((s->kind == MDL_INSERT || s->kind == MDL_GUARD) != !!s->code)
			abort();
		walk_expr(s->expr, 0);
		walk_code(s->code, 0);
		walk_statements(s->then, depth + 1);
		walk_statements(s->otherwise, depth + 1);
		walk_statements(s->first, depth + 1);
	}
}

static void walk_library(const struct mdl_library *l)
{
	char path[256];
	struct dinst_error e = {0};

	for (const struct mdl_metric *m = mdl_metrics(l); m; m = m->next) {
		check_place(&m->place);
		if (!m->base || !m->name || mdl_find_metric(l, m->id) != m ||
		    (m->next && strcmp(m->id, m->next->id) >= 0))
			abort();
		walk_statements(m->base, 0);
		for (const struct mdl_use *u = m->uses; u; u = u->next)
			if (mdl_used_constraint(l, u) && u->constraint && u->constraint->body)
				walk_statements(u->constraint->body, 0);
		if (!mdl_fail(l, &e, DINST_USAGE, &m->place, "metric %s", m->id) || !e.text[0])
			abort();
	}
	for (const struct mdl_constraint *c = mdl_constraints(l); c; c = c->next) {
		if (!c->path_count || (c->kind == MDL_DEFAULT) != !c->body)
			abort();
		mdl_path_text(c, path, sizeof(path));
		walk_statements(c->body, 0);
	}
}

/* Messages are printable lines, each place with its file, and they fit. */
static void check_messages(const struct dinst_error *e, int code)
{
	size_t lines = 1;

	if (code != e->code || code >= 0 || !e->text[0] || strlen(e->text) >= DINST_ERROR_TEXT)
		abort();
	for (const char *c = e->text; *c; c++) {
		lines += *c == '\n';
		if ((unsigned char)*c < 0x20 && *c != '\n')
			abort();
	}
	if (lines > LINES_LIMIT || (code == DINST_USAGE && strncmp(e->text, "fuzz:", 5) != 0))
		abort();
}

/* fear L3: any text as a file of metrics is loaded or refused, soon, and keeps the promises of its tree */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	static const char before[] = "list earlier is procedure { items { \"f\" }; }\n"
				     "constraint earlier /Code/* is default;\n"
				     "metric earlier { base is counter { } }\n";
	struct mdl_library *l;
	struct dinst_error e = {0};
	int code;

	if (mdl_library_create(&l, &e) ||
	    mdl_load_text(l, "before", before, sizeof(before) - 1, &e))
		abort();
	/* twice: the second time it replaces what the first time gave */
	for (int i = 0; i < 2; i++) {
		dinst_error_clear(&e);
		code = mdl_load_text(l, "fuzz", (const char *)bytes, size, &e);
		if (code)
			check_messages(&e, code);
		walk_library(l);
		if (code && (mdl_metrics(l)->next || mdl_constraints(l)->next))
			abort();
	}
	mdl_library_free(l);
	return 0;
}

#ifndef FUZZ_ENGINE

/* ----------------------------------------------------------------- damage */

static uint64_t state;

/* Marsaglia's xorshift: the same row everywhere. */
static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static size_t below(size_t limit)
{
	return limit ? (size_t)(next_random() % limit) : 0;
}

enum { TEXT_ROOM = 64 * 1024, TEXTS_MOST = 64 };

struct corpus_text {
	char name[300];
	char *bytes;
	size_t size;
};

static struct corpus_text texts[TEXTS_MOST];
static size_t text_count;

static void add_text(const char *directory, const char *name)
{
	struct corpus_text *t = &texts[text_count];
	int fd;

	snprintf(t->name, sizeof(t->name), "%s/%s", directory, name);
	fd = open(t->name, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	t->bytes = malloc(TEXT_ROOM);
	assert_non_null(t->bytes);
	t->size = (size_t)read(fd, t->bytes, TEXT_ROOM);
	close(fd);
	text_count++;
}

static void add_directory(const char *directory)
{
	DIR *d = opendir(directory);
	struct dirent *entry;

	if (!d)
		fail_msg("there is no %s: tests run at the top of the tree", directory);
	while ((entry = readdir(d)) && text_count < TEXTS_MOST)
		if (entry->d_name[0] != '.')
			add_text(directory, entry->d_name);
	closedir(d);
}

static int set_up(void **unused)
{
	(void)unused;
	add_directory("tests/fuzz/corpus/mdl");
	add_directory("data/metrics");
	return text_count < 8;
}

static int tear_down(void **unused)
{
	(void)unused;
	for (size_t i = 0; i < text_count; i++)
		free(texts[i].bytes);
	return 0;
}

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Whatever is in a text, looking at it takes a moment. */
static void run_one(const char *bytes, size_t size, const char *what)
{
	double before = cpu_seconds();

	LLVMFuzzerTestOneInput((const uint8_t *)bytes, size);
	if (cpu_seconds() - before > 5)
		fail_msg("%s: took %.1f s", what, cpu_seconds() - before);
}

/* A piece of one text in the place of a piece of another. */
static size_t exchange(char *to, size_t size, size_t room)
{
	const struct corpus_text *other = &texts[below(text_count)];
	size_t from = below(other->size), length = below(other->size - from) % 200;
	size_t at = below(size), cut = below(size - at) % 200;

	if (size - cut + length > room)
		return size;
	memmove(to + at + length, to + at + cut, size - at - cut);
	memcpy(to + at, other->bytes + from, length);
	return size - cut + length;
}

static size_t damage(char *to, size_t size, size_t room)
{
	static const char nasty[] = "{}()[];,./*\"\\$&|!~-+=<>?:%^ \n\t\0\x80\xff"
				    "09azAZ_";
	unsigned times = 1 + (unsigned)below(4);

	for (unsigned i = 0; i < times && size > 4; i++) {
		switch (below(4)) {
		case 0:
			to[below(size)] = nasty[below(sizeof(nasty))];
			break;
		case 1:
			to[below(size)] = (char)next_random();
			break;
		case 2:
			size = below(8) ? size : below(size);
			break;
		default:
			size = exchange(to, size, room);
			break;
		}
	}
	return size;
}

static void test_corpus(void **unused)
{
	(void)unused;
	for (size_t i = 0; i < text_count; i++)
		run_one(texts[i].bytes, texts[i].size, texts[i].name);
}

static void test_damaged(void **unused)
{
	const char *count = getenv("FUZZ_COUNT"), *seed = getenv("FUZZ_SEED");
	uint64_t rounds = count ? strtoull(count, NULL, 0) : 8000;
	char *copy = malloc(TEXT_ROOM * 2);

	(void)unused;
	state = seed ? strtoull(seed, NULL, 0) : 0x2545f4914f6cdd1d;
	assert_non_null(copy);
	for (uint64_t i = 0; i < rounds; i++) {
		const struct corpus_text *t = &texts[below(text_count)];
		size_t size = t->size;

		memcpy(copy, t->bytes, size);
		size = damage(copy, size, TEXT_ROOM * 2);
		run_one(copy, size, t->name);
	}
	free(copy);
}

static void test_truncated(void **unused)
{
	(void)unused;
	for (size_t i = 0; i < text_count; i++)
		for (size_t size = 0; size < texts[i].size; size += 1 + texts[i].size / 50)
			run_one(texts[i].bytes, size, texts[i].name);
}

/* What is repeated to the limit of a text's size is refused, or loaded, soon. */
static void test_repeated(void **unused)
{
	static const char *const pieces[] = {
		"(",
		"{",
		"!",
		"-",
		"@",
		"\"",
		";",
		"}",
		"a ",
		"/*",
		"*/",
		"0x",
		"$x ",
		"if(1)",
		"a.",
		"a[",
		"f(",
		"1+",
		"1?",
		"1?1:",
		"else ",
		"\n",
		"\\",
		"\x80",
		"metric ",
		"list l is procedure { items { \"\",",
		"metric m { base is counter { (* ",
		"metric m { base is counter { ",
		"constraint c /Code is default;",
		"foreach a in b ",
		"description \"\" ",
		"flavor a,",
		"\"\" ",
		"a=",
		"// \n",
		"(**)",
		"foreach f in $procedures {",
		"append preInsn $start.entry (* x(",
	};
	static const char *const heads[] = {
		"",
		"metric m { base is counter { append preInsn $start.entry (* m = ",
		"metric m { base is counter { append preInsn $start.entry (* ",
		"metric m { base is counter { ",
		"metric m { description \"x\" ",
		"metric m { flavor ",
		"list l is int { items { 1,",
	};
	enum { LARGE = 1 << 20, SMALLER = 1 << 17 };
	char *text = malloc(LARGE);

	(void)unused;
	assert_non_null(text);
	for (size_t h = 0; h < sizeof(heads) / sizeof(heads[0]); h++) {
		for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
			size_t used = strlen(heads[h]), length = strlen(pieces[i]);
			size_t most = h ? SMALLER : LARGE;

			memcpy(text, heads[h], used);
			for (; used + length <= most; used += length)
				memcpy(text + used, pieces[i], length);
			run_one(text, used, pieces[i]);
		}
	}
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_corpus),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_repeated),
	};

	/* A hang is a failure, too. */
	alarm(250);
	return cmocka_run_group_tests(tests, set_up, tear_down);
}

#endif
