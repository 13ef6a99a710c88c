/* SPDX-License-Identifier: MIT */
/*
 * aarch64_pairing.c - builds tests/unit/arch_pairing.c with arch/aarch64 and runs
 * it under qemu-aarch64. Skipped where there is no cross compiler or no qemu.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmocka.h>

enum { SECONDS_MAX = 120 };

static int shell(const char *command)
{
	int status = system(command);

	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void need(const char *program)
{
	char command[256];

	snprintf(command, sizeof(command), "command -v %s >/dev/null 2>&1", program);
	if (shell(command) != 0) {
		print_message("skip: %s is not installed\n", program);
		skip();
	}
}

static void test_under_qemu(void **state)
{
	const char *build = getenv("DINST_BUILD");
	char command[1024], guest[512];

	(void)state;
	need("aarch64-linux-gnu-gcc");
	need("qemu-aarch64");
	snprintf(guest, sizeof(guest), "%s/tests/unit/aarch64_pairing_guest",
		 build ? build : "build");
	snprintf(
		command, sizeof(command),
		"aarch64-linux-gnu-gcc -std=gnu11 -O2 -g -static -pthread -D_GNU_SOURCE "
		"-Itests/unit/aarch64 -I. -Iarch/aarch64 -Wall -Wextra -o %s "
		"tests/unit/arch_pairing.c arch/common/liveness.c arch/common/words.c arch/common/lift.c arch/common/sums.c $(ls arch/common/program*.c) "
		"$(ls arch/aarch64/*.c | grep -v describe.c)",
		guest);
	assert_int_equal(shell(command), 0);
	snprintf(command, sizeof(command), "timeout %d qemu-aarch64 %s", SECONDS_MAX, guest);
	assert_int_equal(shell(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_under_qemu),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
