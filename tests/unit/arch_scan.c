/* SPDX-License-Identifier: MIT */
/*
 * arch_scan.c (test) - what is found in code without decoding it, a line a case:
 * branches and addresses that are computed, and whole addresses as constants.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "arch/scan.h"
#include "tests/unit/arch_bytes.h"

#define LOW	 0x400000ull
#define COUNT(x) (sizeof(x) / sizeof(*(x)))

struct finding {
	taddr_t from, target;
};

static struct {
	struct finding list[64];
	size_t count;
} findings;

static void on_reference(void *arg, taddr_t from, taddr_t target)
{
	assert_ptr_equal(arg, &findings);
	if (findings.count < COUNT(findings.list))
		findings.list[findings.count] = (struct finding){from, target};
	findings.count++;
}

static void test_scan(void **state)
{
	static const struct {
		const char *bytes;
		taddr_t from, target; /* relative to LOW */
	} cases[] = {
		{"e800010000", 0, 0x105},     {"90e900010000", 1, 0x106},
		{"0f8500010000", 0, 0x106},   {"488d0500010000", 1, 0x107},
		{"4c8d3d00010000", 1, 0x107}, {"c7f800010000", 0, 0x106},
		{"9090e8feffffff", 2, 5},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		uint8_t bytes[32];
		size_t size = parse(cases[i].bytes, bytes);

		findings.count = 0;
		arch_scan_references(bytes, size, LOW, LOW, LOW + 0x1000, on_reference, &findings);
		if (findings.count != 1 || findings.list[0].from != LOW + cases[i].from ||
		    findings.list[0].target != LOW + cases[i].target)
			fail_msg("%s: %zu findings", cases[i].bytes, findings.count);
		/* Cut off, or outside of what is asked for: nothing. */
		findings.count = 0;
		arch_scan_references(bytes, size - 1, LOW, LOW, LOW + 0x1000, on_reference,
				     &findings);
		arch_scan_references(bytes, size, LOW, LOW + 0x800, LOW + 0x1000, on_reference,
				     &findings);
		arch_scan_references(bytes, size, LOW, 0, LOW + cases[i].target, on_reference,
				     &findings);
		assert_int_equal(findings.count, 0);
	}
	findings.count = 0;
	arch_scan_references((const uint8_t *)"", 0, LOW, 0, UINT64_MAX, on_reference, &findings);
	assert_int_equal(findings.count, 0);
}

/* Whole addresses as constants, in each form that has room for one. */
static void test_scan_constants(void **state)
{
	enum { TO = 0x400105 };
	static const struct {
		const char *bytes;
		taddr_t from, target; /* from LOW, as it is */
	} cases[] = {
		{"bf05014000", 0, TO},
		{"41b905014000", 1, TO}, /* mov, reg */
		{"48c7c005014000", 1, TO},
		{"c744240805014000", 0, TO},
		{"48c7050101010105014000", 1, TO},
		{"c784240101010105014000", 0, TO},
		{"c704250101010105014000", 0, TO},
		{"6805014000", 0, TO}, /* push */
		{"480505014000", 1, TO},
		{"483d05014000", 1, TO}, /* add, cmp */
		{"4881ff05014000", 1, TO},
		{"48817f0805014000", 1, TO},
		{"8d04fd05014000", 0, TO},
		{"488d8005014000", 1, TO}, /* lea */
		{"488d84c705014000", 1, TO},
		{"48b80501400000000000", 1, TO}, /* movabs */
		{"49bf0501400007000000", 1, UINT64_C(0x700000000) + TO},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		uint8_t bytes[32];
		size_t size = parse(cases[i].bytes, bytes);
		taddr_t to = cases[i].target;
		struct arch_insn insn;

		findings.count = 0;
		arch_scan_constants(bytes, size, LOW, to, to + 1, on_reference, &findings);
		if (findings.count != 1 || findings.list[0].from != LOW + cases[i].from ||
		    findings.list[0].target != to)
			fail_msg("%s: %zu findings", cases[i].bytes, findings.count);
		assert_int_equal(arch_decode(bytes, size, LOW, &insn), ARCH_OK);
		assert_true(arch_ends_in(&insn, to));
		assert_false(arch_ends_in(&insn, to + 1));
		/* Cut off, or not asked for: nothing. */
		findings.count = 0;
		arch_scan_constants(bytes, size - 1, LOW, to, to + 1, on_reference, &findings);
		arch_scan_constants(bytes, size, LOW, to + 1, to + 9, on_reference, &findings);
		assert_int_equal(findings.count, 0);
	}
}

static void test_scan_absolute(void **state)
{
	enum { TO = 0x400105 };
	static const struct {
		const char *bytes;
		taddr_t from, target; /* from LOW, as it is */
	} cases[] = {
		{"48a10501400000000000", 2, TO},
		{"a30501400007000000", 1, UINT64_C(0x700000000) + TO},
		{"678b042505014000", 4, TO},
		{"488b042505014000", 4, TO},
		{"8b14fd05014000", 3, TO},
		{"408a8605014000", 3, TO},
		{"0f10847e05014000", 4, TO},
		{"8004250501400001", 3, TO},
		{"8005fbff3f00", 0, 0}, /* what counts from the next instruction */
		{"6805014000", 0, 0},
		{"8b440505014000", 0, 0},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		uint8_t bytes[32];
		size_t size = parse(cases[i].bytes, bytes);
		taddr_t to = cases[i].target ? cases[i].target : TO;

		findings.count = 0;
		arch_scan_absolute(bytes, size, LOW, to, to + 1, on_reference, &findings);
		if (!cases[i].target
			    ? findings.count != 0
			    : findings.count != 1 || findings.list[0].from != LOW + cases[i].from ||
				      findings.list[0].target != to)
			fail_msg("%s: %zu findings", cases[i].bytes, findings.count);
		/* Cut off before it: nothing. */
		findings.count = 0;
		arch_scan_absolute(bytes, cases[i].from + 3, LOW, to, to + 1, on_reference,
				   &findings);
		assert_int_equal(findings.count, 0);
	}
}

/* An address that an instruction names, and what those behind it add. */
static void test_scan_sums(void **state)
{
	static const struct {
		const char *bytes;
		bool fixed;
		taddr_t from, target; /* relative to LOW; 0: nothing is found */
	} cases[] = {
		/* lea 0x100(%rip), %r11; lea 4(%r11), %r11 */
		{"4c8d1d000100004d8d5b04", false, 7, 0x10b},
		/* lea, mov to another, which is added to; what it was is overwritten meanwhile */
		{"488d0d000100004889ca31c94883c108", false, 0, 0},
		{"488d0d000100004889ca31c94883c208", false, 12, 0x10f},
		/* a branch that is not taken, a jump over two bytes */
		{"488d050001000074024883c002", false, 9, 0x109},
		{"488d0500010000eb02ffff48ffc0", false, 11, 0x108},
		/* a call, which keeps rbx and changes rax */
		{"488d1d00010000ffd048ffc3", false, 9, 0x108},
		{"488d0500010000ffd048ffc0", false, 0, 0},
		/* what is named lies in front of [lo, hi), by a page at most */
		{"488d05f9efffff480500110000", false, 7, 0x100},
		{"488d05f8efffff480500110000", false, 0, 0},
		/* two steps, each of them; a copy is none */
		{"488d05000100004883c000", false, 0, 0},
		{"488d050001000048ffc8", false, 7, 0x106},
		/* behind a return or an indirect jump */
		{"488d0500010000c348ffc0", false, 0, 0},
		{"488d0500010000ffe048ffc0", false, 0, 0},
		/* mov $LOW + 0x100, %eax; add $4, %eax; movabs; not what is compared */
		{"b80001400083c004", true, 5, 0x104},
		{"b80001400083c004", false, 0, 0},
		{"49bb0001400000000000", true, 0, 0},
		{"49bb00014000000000004983c304", true, 10, 0x104},
		{"4881f80001400048ffc0", true, 0, 0},
		{"3d0001400083c004", true, 0, 0},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		uint8_t bytes[64];
		size_t size = parse(cases[i].bytes, bytes);

		findings.count = 0;
		arch_scan_sums(bytes, size, LOW, LOW, LOW + 0x1000, cases[i].fixed, on_reference,
			       &findings);
		if (!cases[i].target
			    ? findings.count != 0
			    : findings.count != 1 || findings.list[0].from != LOW + cases[i].from ||
				      findings.list[0].target != LOW + cases[i].target)
			fail_msg("%s: %zu findings, the first 0x%llx", cases[i].bytes,
				 findings.count, (unsigned long long)findings.list[0].target);
		/* Cut off, or outside of what is asked for: nothing. */
		findings.count = 0;
		arch_scan_sums(bytes, size - 1, LOW, LOW, LOW + 0x1000, cases[i].fixed,
			       on_reference, &findings);
		arch_scan_sums(bytes, size, LOW, LOW + cases[i].target + 1, LOW + 0x2000,
			       cases[i].fixed, on_reference, &findings);
		assert_int_equal(findings.count, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scan),
		cmocka_unit_test(test_scan_constants),
		cmocka_unit_test(test_scan_absolute),
		cmocka_unit_test(test_scan_sums),
	};

	return cmocka_run_group_tests_name("architecture: scans", tests, NULL, NULL);
}
