/* SPDX-License-Identifier: MIT */
/*
 * many.h - ten thousand small functions, many_0000 to many_9999, and a table
 * of them: something to put many points into.
 */
#ifndef DINST_TESTS_BENCH_MANY_H
#define DINST_TESTS_BENCH_MANY_H

#ifdef __clang__
#define MANY_APART __attribute__((noinline, used))
#else
#define MANY_APART __attribute__((noinline, noclone, used))
#endif

/* clang-format off */
#define MANY_ONE(n)                                                                                \
	MANY_APART static unsigned many_##n(unsigned x)                                            \
	{                                                                                          \
		__asm__ volatile("" : "+r"(x));                                                    \
		return x * 2654435761u + 1##n##u;                                                  \
	}
#define MANY_TEN(n)                                                                                \
	MANY_ONE(n##0) MANY_ONE(n##1) MANY_ONE(n##2) MANY_ONE(n##3) MANY_ONE(n##4)                 \
	MANY_ONE(n##5) MANY_ONE(n##6) MANY_ONE(n##7) MANY_ONE(n##8) MANY_ONE(n##9)
#define MANY_HUNDRED(n)                                                                            \
	MANY_TEN(n##0) MANY_TEN(n##1) MANY_TEN(n##2) MANY_TEN(n##3) MANY_TEN(n##4)                 \
	MANY_TEN(n##5) MANY_TEN(n##6) MANY_TEN(n##7) MANY_TEN(n##8) MANY_TEN(n##9)
#define MANY_THOUSAND(n)                                                                           \
	MANY_HUNDRED(n##0) MANY_HUNDRED(n##1) MANY_HUNDRED(n##2) MANY_HUNDRED(n##3)                \
	MANY_HUNDRED(n##4) MANY_HUNDRED(n##5) MANY_HUNDRED(n##6) MANY_HUNDRED(n##7)                \
	MANY_HUNDRED(n##8) MANY_HUNDRED(n##9)

MANY_THOUSAND(0) MANY_THOUSAND(1) MANY_THOUSAND(2) MANY_THOUSAND(3) MANY_THOUSAND(4)
MANY_THOUSAND(5) MANY_THOUSAND(6) MANY_THOUSAND(7) MANY_THOUSAND(8) MANY_THOUSAND(9)

#define NAME_TEN(n)                                                                                \
	many_##n##0, many_##n##1, many_##n##2, many_##n##3, many_##n##4, many_##n##5,              \
		many_##n##6, many_##n##7, many_##n##8, many_##n##9
#define NAME_HUNDRED(n)                                                                            \
	NAME_TEN(n##0), NAME_TEN(n##1), NAME_TEN(n##2), NAME_TEN(n##3), NAME_TEN(n##4),            \
		NAME_TEN(n##5), NAME_TEN(n##6), NAME_TEN(n##7), NAME_TEN(n##8), NAME_TEN(n##9)
#define NAME_THOUSAND(n)                                                                           \
	NAME_HUNDRED(n##0), NAME_HUNDRED(n##1), NAME_HUNDRED(n##2), NAME_HUNDRED(n##3),            \
		NAME_HUNDRED(n##4), NAME_HUNDRED(n##5), NAME_HUNDRED(n##6), NAME_HUNDRED(n##7),    \
		NAME_HUNDRED(n##8), NAME_HUNDRED(n##9)

static unsigned (*const many[])(unsigned) = {
	NAME_THOUSAND(0), NAME_THOUSAND(1), NAME_THOUSAND(2), NAME_THOUSAND(3), NAME_THOUSAND(4),
	NAME_THOUSAND(5), NAME_THOUSAND(6), NAME_THOUSAND(7), NAME_THOUSAND(8), NAME_THOUSAND(9),
};

/* clang-format on */

enum { MANY_COUNT = sizeof(many) / sizeof(many[0]) };

#endif
