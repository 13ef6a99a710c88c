/* SPDX-License-Identifier: MIT */
/*
 * error.c - filling and naming errors.
 *
 * Owns the table of code names. Never prints, never allocates, never changes
 * errno: it is called on the way out of failures.
 */
#define DINST_ERROR_HERE
#include "inject/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct {
	int code;
	const char *name;
} code_names[] = {
	{DINST_OK, "ok"},
	{DINST_FAILED, "failed"},
	{DINST_NO_PROCESS, "no-such-process"},
	{DINST_GONE, "gone"},
	{DINST_NOT_PERMITTED, "not-permitted"},
	{DINST_TRACED, "already-traced"},
	{DINST_UNSUPPORTED, "unsupported"},
	{DINST_NO_FUNCTION, "no-such-function"},
	{DINST_NO_MODULE, "no-such-module"},
	{DINST_NO_METRIC, "no-such-metric"},
	{DINST_NO_ID, "no-such-id"},
	{DINST_NO_SESSION, "no-such-session"},
	{DINST_USAGE, "usage"},
	{DINST_BUSY, "busy"},
	{DINST_NO_MEMORY, "no-memory"},
	{DINST_REFUSED, "refused"},
	{DINST_BAD_FILE, "bad-file"},
	{DINST_PROTOCOL, "protocol"},
	{DINST_DAEMON, "daemon"},
};

enum { CODE_COUNT = sizeof(code_names) / sizeof(code_names[0]) };

/* Keeps the text printable: names of files and threads may hold anything. */
static void make_printable(char *text, bool lines)
{
	for (; *text; text++)
		if (((unsigned char)*text < 0x20 || *text == 0x7f) && !(lines && *text == '\n'))
			*text = '?';
}

static void fill(struct dinst_error *e, int code, const char *format, va_list args)
{
	e->code = code;
	if (vsnprintf(e->text, sizeof(e->text), format, args) < 0)
		snprintf(e->text, sizeof(e->text), "%s", dinst_code_name(code));
	make_printable(e->text, false);
}

int dinst_fail(struct dinst_error *e, int code, const char *format, ...)
{
	int saved = errno;
	va_list args;

	if (e && !e->code) {
		va_start(args, format);
		fill(e, code, format, args);
		va_end(args);
	}
	errno = saved;
	return code;
}

int dinst_fail_errno(struct dinst_error *e, int code, int errnum, const char *format, ...)
{
	int saved = errno;
	size_t used;
	va_list args;

	if (e && !e->code) {
		va_start(args, format);
		fill(e, code, format, args);
		va_end(args);
		used = strlen(e->text);
		snprintf(e->text + used, sizeof(e->text) - used, ": %s", strerror(errnum));
	}
	errno = saved;
	return code;
}

int dinst_fail_text(struct dinst_error *e, int code, const char *text)
{
	int saved = errno;

	if (e && !e->code) {
		e->code = code;
		snprintf(e->text, sizeof(e->text), "%s", text);
		make_printable(e->text, true);
	}
	errno = saved;
	return code;
}

void dinst_error_clear(struct dinst_error *e)
{
	if (!e)
		return;
	e->code = DINST_OK;
	e->text[0] = '\0';
}

const char *dinst_code_name(int code)
{
	for (size_t i = 0; i < CODE_COUNT; i++)
		if (code_names[i].code == code)
			return code_names[i].name;
	return "failed";
}

int dinst_code_from_name(const char *name)
{
	for (size_t i = 0; name && i < CODE_COUNT; i++)
		if (!strcmp(code_names[i].name, name))
			return code_names[i].code;
	return DINST_FAILED;
}
