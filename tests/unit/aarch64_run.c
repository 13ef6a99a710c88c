/* SPDX-License-Identifier: MIT */
/*
 * aarch64_run.c - builds tests/unit/aarch64/run.c and exclusive.c, with
 * arch/aarch64 in them, for AArch64 and runs them under qemu-aarch64: relocated
 * instructions, patches, counters, remote programs and gates, executed; and
 * counters in code with exclusives. Skipped where there is no cross compiler or
 * no qemu.
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

/* Builds the sources, and what is common to all, into the guest `name`, and runs it. */
static void run_guest(const char *name, const char *sources)
{
	const char *build = getenv("DINST_BUILD");
	char command[1024], guest[512];
	int status;

	need("aarch64-linux-gnu-gcc");
	need("qemu-aarch64");
	snprintf(guest, sizeof(guest), "%s/tests/unit/%s", build ? build : "build", name);
	snprintf(command, sizeof(command),
		 "aarch64-linux-gnu-gcc -std=gnu11 -O2 -g -static -D_GNU_SOURCE -I. -Iarch/aarch64 "
		 "-Wall -Wextra -o %s %s arch/common/liveness.c "
		 "arch/common/lift.c arch/common/sums.c "
		 "arch/common/words.c "
		 "$(ls arch/common/program*.c) "
		 "$(ls arch/aarch64/*.c | grep -v describe.c)",
		 guest, sources);
	assert_int_equal(shell(command), 0);
	snprintf(command, sizeof(command), "timeout %d qemu-aarch64 -cpu max %s", SECONDS_MAX,
		 guest);
	status = shell(command);
	if (status == GUEST_SKIPS)
		skip();
	assert_int_equal(status, 0);
}

static void test_code(void **state)
{
	(void)state;
	run_guest("aarch64_guest", "tests/unit/aarch64/run.c");
}

static void test_exclusives(void **state)
{
	(void)state;
	run_guest("aarch64_exclusive_guest", "tests/unit/aarch64/exclusive.c "
					     "mutator/flow_sequences.c inject/error.c");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_code),
		cmocka_unit_test(test_exclusives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
