/* SPDX-License-Identifier: MIT */
/* build: -fPIE -pie -Wl,-z,pack-relative-relocs */
/*
 * image-relr.c - 130 functions whose addresses stand in a table only, and are
 * put there by packed relocations: more than one bitmap takes.
 */
#include <stdio.h>

/* clang-format off */
#define F(n) static int work##n(void) { return n; }
#define TEN(m, t) m(t##0) m(t##1) m(t##2) m(t##3) m(t##4) m(t##5) m(t##6) m(t##7) m(t##8) m(t##9)
#define ALL(m)                                                                                     \
	TEN(m, 1) TEN(m, 2) TEN(m, 3) TEN(m, 4) TEN(m, 5) TEN(m, 6) TEN(m, 7) TEN(m, 8)            \
	TEN(m, 9) TEN(m, 10) TEN(m, 11) TEN(m, 12) TEN(m, 13)

ALL(F)

#define NAME(n) work##n,
static int (*volatile table[])(void) = { ALL(NAME) };
/* clang-format on */

int main(void)
{
	int sum = 0, c;

	for (unsigned i = 0; i < sizeof(table) / sizeof(*table); i++)
		sum += table[i]();
	puts("ready");
	fflush(stdout);
	while ((c = getchar()) != EOF)
		sum += c;
	return sum < 0;
}
