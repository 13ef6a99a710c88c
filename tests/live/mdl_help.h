/* SPDX-License-Identifier: MIT */
/*
 * mdl_help.h - what tests of metrics share: a target under a private daemon, by
 * the command line as a user types it.
 *
 *   1. harness_start(h, ...), then mdl_attach(h, text): text is MDL, or NULL;
 *   2. mdl_insert(), mdl_value(), mdl_row(); mdl_ask() makes the target do something;
 *   3. mdl_end(h): detach, everything as before, the target ends with 0.
 */
#ifndef DINST_TESTS_MDL_HELP_H
#define DINST_TESTS_MDL_HELP_H

#include "tests/live/harness.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MDL_WORDS = 24, MDL_ANSWER_MS = HARNESS_ANSWER_MS };

static inline void mdl_attach(struct harness *h, const char *text)
{
	char path[128];
	int status;

	if (text) {
		FILE *f;

		snprintf(path, sizeof(path), "%s/test.mdl", h->directory);
		f = fopen(path, "w");
		assert_non_null(f);
		assert_true(fputs(text, f) >= 0);
		assert_int_equal(fclose(f), 0);
		status = harness_dinst(h, NULL, "attach", harness_number(h->pid), "-M", path);
	} else {
		status = harness_dinst(h, NULL, "attach", harness_number(h->pid));
	}
	if (status != 0)
		fail_msg("attach: status %d: %s", status, h->messages);
}

/* The rows of an insert that must succeed; status 3 only where `partly`. The caller frees. */
static inline json_t *mdl_insert_rows(struct harness *h, bool partly, const char *const *words)
{
	const char *argv[MDL_WORDS] = {"insert"};
	json_t *rows = NULL;
	size_t n = 1;
	int status;

	while (*words && n < MDL_WORDS - 3)
		argv[n++] = *words++;
	argv[n++] = "-p";
	argv[n++] = harness_number(h->pid);
	status = harness_dinst_argv(h, &rows, argv);
	if (status != 0 && !(partly && status == 3))
		fail_msg("insert %s %s: status %d: %s", argv[1], argv[2], status, h->messages);
	return rows;
}

static inline unsigned mdl_insert_words(struct harness *h, const char *const *words)
{
	json_t *rows = mdl_insert_rows(h, false, words);
	const unsigned id = (unsigned)harness_integer(rows, "id");

	assert_int_equal(json_array_size(rows), 1);
	json_decref(rows);
	return id;
}

/* One instance: metric, focus words. Returns its id. */
#define mdl_insert(h, ...) mdl_insert_words((h), (const char *const[]){__VA_ARGS__, NULL})

/* The rows that read prints for an instance; the caller frees. */
static inline json_t *mdl_rows(struct harness *h, unsigned id)
{
	json_t *rows = NULL;
	int status =
		harness_dinst(h, &rows, "read", harness_number(id), "-p", harness_number(h->pid));

	if (status != 0)
		fail_msg("read %u: status %d: %s", id, status, h->messages);
	return rows;
}

static inline int64_t mdl_field(struct harness *h, unsigned id, const char *key)
{
	json_t *rows = mdl_rows(h, id);
	const int64_t value = harness_integer(rows, key);

	json_decref(rows);
	return value;
}

static inline int64_t mdl_value(struct harness *h, unsigned id)
{
	return mdl_field(h, id, "value");
}

static inline void mdl_remove(struct harness *h, unsigned id)
{
	if (harness_dinst(h, NULL, "remove", harness_number(id), "-p", harness_number(h->pid)) != 0)
		fail_msg("remove %u: %s", id, h->messages);
}

/* The number behind `key` in a line of "key value" pairs. */
static inline int64_t mdl_number(const char *line, const char *key)
{
	const size_t length = strlen(key);
	const char *p = line;

	while ((p = strstr(p, key)) != NULL) {
		if ((p == line || p[-1] == ' ') && p[length] == ' ')
			return strtoll(p + length, NULL, 10);
		p += length;
	}
	fail_msg("no %s in '%s'", key, line);
	return 0;
}

/* Sends a command and returns the answer, one line. */
static inline const char *mdl_ask(struct harness *h, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static inline const char *mdl_ask(struct harness *h, const char *format, ...)
{
	char line[200];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line) - 1, format, args);
	va_end(args);
	strncat(line, "\n", sizeof(line) - strlen(line) - 1);
	harness_send(h, line);
	return harness_line(h, MDL_ANSWER_MS);
}

/* Fails unless `got` is within `percent` of `wanted`, or within `slack`. */
static inline void mdl_near(const char *what, int64_t got, int64_t wanted, unsigned percent,
			    int64_t slack)
{
	const int64_t off = llabs(got - wanted);

	if (off > slack && off > llabs(wanted) / 100 * percent)
		fail_msg("%s: %" PRId64 " instead of %" PRId64 " (%+.1f %%, %u %% are allowed)",
			 what, got, wanted,
			 wanted ? 100.0 * (double)(got - wanted) / (double)wanted : 0.0, percent);
}

static inline void mdl_end(struct harness *h)
{
	if (harness_dinst(h, NULL, "detach", harness_number(h->pid)) != 0)
		fail_msg("detach: %s", h->messages);
	harness_verify(h);
	harness_end(h, 0);
}

#endif
