/* SPDX-License-Identifier: MIT */
/* build: -O2 -fipa-ra -fno-ipa-icf -fno-stack-protector */
/*
 * conventions.c - functions that do not keep to the usual calling convention:
 * local ones of which the compiler knows which registers they leave alone
 * (-fipa-ra), those of Windows (ms_abi), and with clang regcall, vectorcall,
 * preserve_most and preserve_all; and those that jump by tables.
 *
 * conventions: prints "ready". "go N" calls all N times and prints "done".
 * Exits with 1 if a result was wrong.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP __attribute__((noinline))

static volatile uint64_t source = 12345;
static int wrong;

static void expect(const char *what, uint64_t is, uint64_t is_to_be)
{
	if (is == is_to_be)
		return;
	fprintf(stderr, "%s: %#llx, not %#llx\n", what, (unsigned long long)is,
		(unsigned long long)is_to_be);
	wrong = 1;
}

/* ------------------------------------------------- what local callees leave */

static uint64_t sink;

KEEP static void touch_little(uint64_t n)
{
	sink += n;
}

KEEP static uint64_t touch_two(uint64_t n)
{
	return n * 3 ^ sink;
}

/* Nine values live across calls: more than the registers that callees must keep. */
KEEP static uint64_t many_live(uint64_t n)
{
	uint64_t a = n + 1, b = n * 3, c = n ^ 0x55, d = n << 4, e = n - 7, f = n * n, g = ~n,
		 h = n >> 2, i = n | 1;

	touch_little(a);
	touch_little(b ^ c);
	a += touch_two(d);
	touch_little(e + f);
	b ^= touch_two(g);
	touch_little(h);
	return a * 2 + b * 3 + c * 5 + d * 7 + e * 11 + f * 13 + g * 17 + h * 19 + i * 23;
}

KEEP static double doubles_live(double x)
{
	double a = x + 1, b = x * 3, c = x - 2, d = x / 4, e = x * x, f = 1 / (x + 9), g = x - 100;

	touch_little((uint64_t)a);
	touch_little((uint64_t)b);
	return a + b * 2 + c * 3 + d * 4 + e * 5 + f * 6 + g * 7;
}

/* ------------------------------------------------------------------ Windows */

#define MS __attribute__((ms_abi, noinline))

MS static double ms_leaf(double x, uint64_t n, double y, uint64_t m, double z, uint64_t on_stack)
{
	return x * 2 + (double)n + y * 3 + (double)m + z * 5 + (double)on_stack;
}

/* xmm6 to xmm15, rdi and rsi stay what they are across calls. */
MS static double ms_middle(double x, uint64_t n)
{
	double a = x + 1, b = x + 2, c = x + 3, d = x + 4, e = x + 5, f = x + 6, g = x + 7,
	       h = x + 8;
	uint64_t i = n * 3, j = n ^ 77;
	double r = ms_leaf(a, i, b, j, c, n);

	r += ms_leaf(d, j, e, i, f, n + 1);
	r += ms_leaf(g, n, h, i, a, j);
	return r + a + b * 2 + c * 3 + d * 4 + e * 5 + f * 6 + g * 7 + h * 8 + (double)(i + j);
}

KEEP static double sysv_to_ms(double x, uint64_t n)
{
	double keep = x * 9;

	return ms_middle(x, n) + ms_leaf(x, n, x, n, x, n) + keep;
}

MS static uint64_t ms_to_sysv(uint64_t n)
{
	return many_live(n) + n;
}

/* -------------------------------------------------------------------- clang */

#ifdef __clang__
typedef float quad __attribute__((vector_size(16)));

__attribute__((regcall, noinline)) static uint64_t many_registers(
	uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g,
	uint64_t h, uint64_t i, uint64_t j, uint64_t k)
{
	return a + b * 2 + c * 3 + d * 4 + e * 5 + f * 6 + g * 7 + h * 8 + i * 9 + j * 10 + k * 11;
}

__attribute__((vectorcall, noinline)) static quad vectors(quad a, quad b, quad c, quad d, quad e,
							  quad f)
{
	return a + b * c - d * e + f;
}

__attribute__((preserve_most, noinline)) static void most_kept(uint64_t n)
{
	sink ^= n * 7;
}

__attribute__((preserve_all, noinline)) static void all_kept(uint64_t n)
{
	sink += n ^ 3;
}

KEEP static uint64_t clangs(uint64_t n)
{
	quad q = {(float)(n & 15), 2, 3, 4}, r;
	uint64_t a = n * 5, b = n ^ 9, c = n + 11, d = ~n, e = n * n;

	most_kept(a);
	all_kept(b);
	r = vectors(q, q + 1, q + 2, q + 3, q + 4, q + 5);
	most_kept(c);
	return many_registers(a, b, c, d, e, n, a ^ b, b ^ c, c ^ d, d ^ e, e ^ a) +
	       (uint64_t)r[0] * 3 + (uint64_t)(int64_t)r[3];
}
#else
KEEP static uint64_t clangs(uint64_t n)
{
	return n;
}
#endif

/* ------------------------------------------------------------ jumps by tables */

/* Dense, and each case long enough to be one of its own: a table of distances, or of addresses. */
KEEP static uint64_t by_switch(uint64_t n)
{
	switch (n % 9) {
	case 0:
		touch_little(n);
		return n * 3;
	case 1:
		return touch_two(n) + 1;
	case 2:
		touch_little(n + 2);
		return n ^ 0x77;
	case 3:
		return touch_two(n ^ 5) * 5;
	case 4:
		return ~n;
	case 5:
		touch_little(n * 9);
		return n << 3;
	case 6:
		return touch_two(n + 6) ^ n;
	case 7:
		touch_little(~n);
		return n - 1000;
	default:
		return n >> 1;
	}
}

/* The same by addresses of labels: each step jumps by a table that the function has itself. */
KEEP static uint64_t by_labels(uint64_t n)
{
	static const uint8_t steps[] = {0, 1, 2, 3, 2, 1, 3, 0, 2, 4};
	static const void *const table[] = {&&add, &&mix, &&turn, &&touch, &&done};
	const uint8_t *at = steps;

	goto *table[*at];
add:
	n += *at + 17u;
	goto *table[*++at];
mix:
	n ^= n << 7 | 3;
	goto *table[*++at];
turn:
	n = n << 13 | n >> 51;
	goto *table[*++at];
touch:
	touch_little(n);
	goto *table[*++at];
done:
	return n;
}

KEEP static uint64_t by_tables(uint64_t n)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < 18; i++)
		sum = sum * 31 + by_switch(n + i) + by_labels(n ^ i);
	return sum;
}

/* ------------------------------------------------------------------- the rest */

struct results {
	uint64_t many, doubles, windows, mixed, clangs, tables;
};

static uint64_t bits(double d)
{
	uint64_t u;

	memcpy(&u, &d, sizeof(u));
	return u;
}

KEEP static void all(struct results *r)
{
	uint64_t n = source;

	sink = 1;
	r->many = many_live(n);
	r->doubles = bits(doubles_live((double)n));
	r->windows = bits(sysv_to_ms((double)n, n));
	r->mixed = ms_to_sysv(n + 1);
	r->clangs = clangs(n);
	r->tables = by_tables(n);
}

int main(void)
{
	struct results first, now;
	char line[64];

	all(&first);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		for (long n = atol(line + 3); n > 0; n--) {
			all(&now);
			expect("many values", now.many, first.many);
			expect("doubles", now.doubles, first.doubles);
			expect("Windows", now.windows, first.windows);
			expect("Windows and back", now.mixed, first.mixed);
			expect("clang's", now.clangs, first.clangs);
			expect("tables", now.tables, first.tables);
		}
		puts("done");
		fflush(stdout);
	}
	return wrong;
}
