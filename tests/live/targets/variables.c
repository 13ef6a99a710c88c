/* SPDX-License-Identifier: MIT */
/* variables.c - ten thousand variables, named by four letters each. Ends with its standard input. */
#include <stdio.h>

#define ONE(n)	  int variable_##n;
#define TEN(f, n) f(n##a) f(n##b) f(n##c) f(n##d) f(n##e) f(n##f) f(n##g) f(n##h) f(n##i) f(n##j)
#define ONES(n)	  TEN(ONE, n)
#define TEN_MORE(n) \
	ONES(n##a)  \
	ONES(n##b)  \
	ONES(n##c) ONES(n##d) ONES(n##e) ONES(n##f) ONES(n##g) ONES(n##h) ONES(n##i) ONES(n##j)
#define HUNDREDS(n)                                                                               \
	TEN_MORE(n##a)                                                                            \
	TEN_MORE(n##b)                                                                            \
	TEN_MORE(n##c)                                                                            \
	TEN_MORE(n##d) TEN_MORE(n##e) TEN_MORE(n##f) TEN_MORE(n##g) TEN_MORE(n##h) TEN_MORE(n##i) \
		TEN_MORE(n##j)

HUNDREDS(a)
HUNDREDS(b)
HUNDREDS(c)
HUNDREDS(d) HUNDREDS(e) HUNDREDS(f) HUNDREDS(g) HUNDREDS(h) HUNDREDS(i) HUNDREDS(j)

	int main(void)
{
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		continue;
	return 0;
}
