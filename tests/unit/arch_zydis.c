/* SPDX-License-Identifier: MIT */
/*
 * arch_zydis.c - Zydis as the judge of our decoder over every instruction of
 * the big programs and libraries of this machine.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/arch_text.h"
#include "tests/unit/arch_zydis.h"

static void judge_text(const uint8_t *text, size_t size, uint64_t address)
{
	for (size_t at = 0; at < size;)
		at += judge_one(text + at, size - at, address + at);
}

static void test_programs(void **state)
{
	int judged = 0;

	(void)state;
	judge_begin();
	for (int i = 0; i < TEXT_FILES; i++) {
		long before = judge.total;

		if (!text_each(i, judge_text)) {
			print_message("without %s, which is not here\n", text_files[i].name);
			continue;
		}
		judged++;
		print_message("%s: %ld instructions\n", text_files[i].name, judge.total - before);
	}
	print_message("%ld instructions, %ld known to both, %ld to none\n", judge.total, judge.both,
		      judge.neither);
	judge_report(true);
	assert_true(judged >= 1);
	assert_true(judge.both > 300000);
	assert_int_equal(judge.unlisted, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_programs),
	};

	alarm(250);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
