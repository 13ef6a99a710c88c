/* SPDX-License-Identifier: MIT */
/*
 * aarch64_program.c - builds tests/unit/aarch64/program.c, with arch/aarch64 in
 * it, for AArch64 and runs it under qemu-aarch64: random programs, executed.
 * Skipped where there is no cross compiler or no qemu.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmocka.h>

enum { GUEST_SKIPS = 77, SECONDS_MAX = 120 };

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
	int status;

	(void)state;
	need("aarch64-linux-gnu-gcc");
	need("qemu-aarch64");
	snprintf(guest, sizeof(guest), "%s/tests/unit/aarch64_program_guest",
		 build ? build : "build");
	snprintf(command, sizeof(command),
		 "aarch64-linux-gnu-gcc -std=gnu11 -O2 -g -static -D_GNU_SOURCE -I. -Iarch/aarch64 "
		 "-Wall -Wextra -o %s tests/unit/aarch64/program.c arch/common/liveness.c "
		 "arch/common/lift.c arch/common/sums.c "
		 "arch/common/words.c "
		 "$(ls arch/common/program*.c) "
		 "$(ls arch/aarch64/*.c | grep -v describe.c)",
		 guest);
	assert_int_equal(shell(command), 0);
	snprintf(command, sizeof(command), "timeout %d qemu-aarch64 -cpu max %s", SECONDS_MAX,
		 guest);
	status = shell(command);
	if (status == GUEST_SKIPS)
		skip();
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_under_qemu),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
