/* SPDX-License-Identifier: MIT */
/*
 * inject_error.c - the first message wins, its text is one line, and each code has a
 * name that leads back to it.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "inject/error.h"

static void test_first_message_wins(void **state)
{
	struct dinst_error e = {0};

	(void)state;
	errno = EAGAIN;
	assert_int_equal(dinst_fail(&e, DINST_BUSY, "thread %d", 7), DINST_BUSY);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(dinst_fail_errno(&e, DINST_GONE, ENOENT, "later"), DINST_GONE);
	assert_int_equal(e.code, DINST_BUSY);
	assert_string_equal(e.text, "thread 7");
	dinst_error_clear(&e);
	assert_int_equal(e.code, 0);
	assert_int_equal(dinst_fail_errno(&e, DINST_GONE, ENOENT, "later"), DINST_GONE);
	assert_string_equal(e.text, "later: No such file or directory");
	assert_int_equal(dinst_fail(NULL, DINST_USAGE, "nobody listens"), DINST_USAGE);
	dinst_error_clear(NULL);
}

static void test_text_is_one_line(void **state)
{
	struct dinst_error e = {0};
	char text[2 * DINST_ERROR_TEXT];

	(void)state;
	dinst_fail(&e, DINST_FAILED, "a\nb\033c");
	assert_string_equal(e.text, "a?b?c");
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	dinst_error_clear(&e);
	dinst_fail_errno(&e, DINST_FAILED, ENOENT, "%s", text);
	assert_int_equal(strlen(e.text), DINST_ERROR_TEXT - 1);
}

static void test_names(void **state)
{
	(void)state;
	for (int code = DINST_DAEMON; code <= DINST_OK; code++) {
		assert_int_equal(dinst_code_from_name(dinst_code_name(code)), code);
		for (int other = DINST_DAEMON; other < code; other++)
			assert_string_not_equal(dinst_code_name(code), dinst_code_name(other));
	}
	assert_string_equal(dinst_code_name(DINST_NO_PROCESS), "no-such-process");
	assert_string_equal(dinst_code_name(-999), "failed");
	assert_int_equal(dinst_code_from_name("nonsense"), DINST_FAILED);
	assert_int_equal(dinst_code_from_name(NULL), DINST_FAILED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first_message_wins),
		cmocka_unit_test(test_text_is_one_line),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
