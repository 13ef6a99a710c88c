/* SPDX-License-Identifier: MIT */
/*
 * ticks.c - where the processor's clock is used: only if it says that it is steady, and the kernel
 * does not say that it is not. What the kernel says is the test's. And how it is told as CLOCK_MONOTONIC.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "mutator/variable.h"

static const char *told; /* NULL: there is no such file */
static bool steady;
static unsigned asked;
static time_t steered; /* s by which CLOCK_MONOTONIC has gone away from the processor's clock */

/* The C library's, and what machines that sleep do to it. */
int clock_gettime(clockid_t clock, struct timespec *to)
{
	const long status = syscall(SYS_clock_gettime, clock, to);

	if (!status && clock == CLOCK_MONOTONIC)
		to->tv_sec += steered;
	return (int)status;
}

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);
bool __wrap_arch_clock_is_steady(void);

FILE *__wrap_fopen(const char *path, const char *mode)
{
	FILE *f;

	if (!strstr(path, "clocksource"))
		return __real_fopen(path, mode);
	asked++;
	if (!told)
		return NULL;
	f = tmpfile();
	assert_non_null(f);
	fputs(told, f);
	rewind(f);
	return f;
}

bool __wrap_arch_clock_is_steady(void)
{
	return steady;
}

/* fear K4: the kernel has taken the processor's clock off its list, or never had it there: it is not used */
static void test_kernel_says(void **state)
{
	static const struct {
		const char *says; /* available_clocksource */
		bool used;
	} cases[] = {
		{"kvm-clock acpi_pm \n", false},
		{"tsc-early hpet acpi_pm \n", false},
		{"hpet acpi_pm tsc-early\n", false},
		{"hpet acpi_pm nottsc \n", false},
		{"hyperv_clocksource_tsc_page acpi_pm \n", false},
		{"jiffies \n", false},
		{"\n", false},
		{"tsc hpet acpi_pm \n", true},
		{"kvm-clock tsc hpet acpi_pm \n", true},
		{"hpet tsc\n", true},
		{"tsc", true},
		{"arch_sys_counter \n", true},
		/* Nothing is said. */
		{"", true},
		{NULL, true},
	};

	(void)state;
	unsetenv("DINST_UNSTEADY");
	steady = true;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		told = cases[i].says;
		asked = 0;
		if (ticks_may_do() != cases[i].used)
			fail_msg("'%s': %s", told ? told : "no file",
				 cases[i].used ? "not used" : "used");
		assert_int_equal(asked, 1);
	}
}

static void test_processor_says(void **state)
{
	(void)state;
	told = "tsc hpet acpi_pm \n";
	steady = false;
	assert_false(ticks_may_do());
	steady = true;
	assert_true(ticks_may_do());
}

/* fear K4: $now of what is inserted after the machine slept is that of now; of what goes in before, one and the same */
static void test_epoch(void **state)
{
	struct dinst_error e = {0};
	int64_t epoch, later;

	(void)state;
	told = NULL;
	steady = true;
	assert_int_equal(ticks_calibrate(&e), 0);
	epoch = ticks_epoch();
	usleep(1000);
	assert_int_equal(ticks_epoch(), epoch);
	steered = 3600;
	later = ticks_epoch();
	assert_in_range(later - epoch, 3599000000000, 3601000000000);
	usleep(1000);
	assert_int_equal(ticks_epoch(), later);
	steered = 0;
	assert_in_range(ticks_epoch() - epoch + 1000000000, 0, 2000000000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernel_says),
		cmocka_unit_test(test_processor_says),
		cmocka_unit_test(test_epoch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
