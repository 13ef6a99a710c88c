/* SPDX-License-Identifier: MIT */
/*
 * inject_processor.c - whether the processor has lahf and sahf, by what it tells (CPUID) and what it does,
 * both made up: processors without them are not at hand.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "inject/target_facts.h"

static bool told, there;

bool __real_arch_keeps_flags(void);
bool __wrap_arch_keeps_flags(void);
int __wrap_arch_try_flags(void);

bool __wrap_arch_keeps_flags(void)
{
	return told;
}

int __wrap_arch_try_flags(void)
{
	signal(SIGILL, SIG_DFL); /* cmocka has a handler */
	return there ? 0 : raise(SIGILL);
}

/*
 * fear A12: a processor without the instructions that keep flags is refused; a virtual one that does not tell
 * of them, as qemu's kvm64, and has them is not
 */
static void test_made_up(void **state)
{
	struct dinst_error e;
	struct facts f;

	(void)state;
	for (int i = 0; i < 4; i++) {
		told = i & 1;
		there = i & 2;
		memset(&e, 0, sizeof(e));
		facts_read(&f, 0, FACTS_OWN);
		assert_int_equal(f.flags_missing, i == 0);
		f.pid = 4711;
		f.exists = true;
		f.status.tgid = f.pid;
		facts_obstacle(&f, &e);
		assert_int_equal(strstr(e.text, "no LAHF and SAHF") != NULL, i == 0);
	}
}

/* What CPUID says is what the kernel says that it says. */
static void test_cpuid(void **state)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[8192];
	bool known = false, has = false;

	(void)state;
	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		known = known || !strncmp(line, "flags", 5);
		has = has || strstr(line, " lahf_lm");
	}
	fclose(file);
	if (!known) {
		print_message("SKIP cpuid: /proc/cpuinfo tells no flags\n");
		skip();
	}
	assert_int_equal(__real_arch_keeps_flags(), has);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_made_up),
		cmocka_unit_test(test_cpuid),
	};

	return cmocka_run_group_tests_name("unit/inject_processor", tests, NULL, NULL);
}
