/* SPDX-License-Identifier: MIT */
/*
 * daemon_lines.c - streams cut into lines: every way of cutting the same bytes
 * gives the same lines, and a line that is too long is told once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/lines.h"

enum { LIMIT = 10 };

struct line_case {
	const char *input;
	const char *lines; /* separated by '|', "!" for one that was too long */
	int partial;
};

static const struct line_case cases[] = {
	{"", "", 0},
	{"a\n", "a|", 0},
	{"a\nb\n", "a|b|", 0},
	{"a\nb", "a|", 1},
	{"\n\n", "||", 0},
	{"0123456789\n", "0123456789|", 0},
	{"0123456789a\nx\n", "!|x|", 0},
	{"0123456789abcdefghijklmnopqrstuvwxyz\nx\n", "!|x|", 0},
	{"0123456789abcdefghijklmnopqrstuvwxyz", "!|", 1},
	{"x\n0123456789ab\n0123456789ab\ny\n", "x|!|!|y|", 0},
	{"a\r\nb\n", "a\r|b|", 0},
};

/* Feeds `input` in pieces of `piece` bytes. */
static void feed(const struct line_case *c, size_t piece)
{
	size_t left = strlen(c->input), length = 0;
	const char *from = c->input;
	char got[200] = "";
	struct lines l;
	char *to, *line;

	lines_init(&l, LIMIT);
	while (left > 0) {
		size_t room = lines_room(&l, &to), n = left < piece ? left : piece;
		enum lines_result result;

		assert_true(room > 0);
		if (n > room)
			n = room;
		memcpy(to, from, n);
		from += n;
		left -= n;
		lines_added(&l, n);
		while ((result = lines_next(&l, &line, &length)) != LINES_MORE) {
			if (result == LINES_LINE)
				assert_int_equal(strlen(line), length);
			snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s|",
				 result == LINES_LINE ? line : "!");
		}
	}
	assert_string_equal(got, c->lines);
	assert_int_equal(lines_partial(&l) != 0, c->partial);
	lines_release(&l);
}

static void cut_anywhere(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (size_t piece = 1; piece <= strlen(cases[i].input) + 1; piece++)
			feed(&cases[i], piece);
}

/* However much comes without a newline, the buffer stays near the limit. */
static void endless_line(void **state)
{
	size_t length, told = 0;
	struct lines l;
	char *to, *line;

	(void)state;
	lines_init(&l, 1000);
	for (int i = 0; i < 10000; i++) {
		size_t room = lines_room(&l, &to);

		memset(to, 'x', room);
		lines_added(&l, room);
		while (lines_next(&l, &line, &length) == LINES_TOO_LONG)
			told++;
		assert_true(l.size <= 1 << 17);
	}
	assert_int_equal(told, 1);
	lines_release(&l);
}

/* A big line is given back once it is dealt with. */
static void buffer_shrinks(void **state)
{
	enum { BIG = 3 << 20 };
	size_t length, sent = 0;
	struct lines l;
	char *to, *line;

	(void)state;
	lines_init(&l, BIG);
	while (sent < BIG) {
		size_t room = lines_room(&l, &to);

		if (room > BIG - sent)
			room = BIG - sent;
		memset(to, 'x', room);
		sent += room;
		if (sent == BIG)
			to[room - 1] = '\n';
		lines_added(&l, room);
	}
	assert_int_equal(lines_next(&l, &line, &length), LINES_LINE);
	assert_int_equal(length, BIG - 1);
	lines_room(&l, &to);
	assert_true(l.size < 1 << 18);
	lines_release(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cut_anywhere),
		cmocka_unit_test(endless_line),
		cmocka_unit_test(buffer_shrinks),
	};

	return cmocka_run_group_tests_name("daemon_lines", tests, NULL, NULL);
}
