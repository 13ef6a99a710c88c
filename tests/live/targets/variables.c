/* SPDX-License-Identifier: MIT */
/* variables.c - ten thousand variables, named by four letters each. Ends with its standard input. */
#include <stdio.h>

/* clang-format off */
#define TEN(f, n) f(n##a) f(n##b) f(n##c) f(n##d) f(n##e) f(n##f) f(n##g) f(n##h) f(n##i) f(n##j)
/* A macro is not expanded in itself: three of them. */
#define AND_TEN(f, n) f(n##a) f(n##b) f(n##c) f(n##d) f(n##e) f(n##f) f(n##g) f(n##h) f(n##i) f(n##j)
#define AND_AGAIN_TEN(f, n) f(n##a) f(n##b) f(n##c) f(n##d) f(n##e) f(n##f) f(n##g) f(n##h) f(n##i) f(n##j)
#define ONE(n) int variable_##n;
#define ONES(n) TEN(ONE, n)
#define TENS(n) AND_TEN(ONES, n)
#define HUNDREDS(n) AND_AGAIN_TEN(TENS, n)

HUNDREDS(a) HUNDREDS(b) HUNDREDS(c) HUNDREDS(d) HUNDREDS(e)
HUNDREDS(f) HUNDREDS(g) HUNDREDS(h) HUNDREDS(i) HUNDREDS(j)
	/* clang-format on */

	int main(void)
{
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		continue;
	return 0;
}
