/* SPDX-License-Identifier: MIT */
/*
 * compile_random.c - random expressions, written as text and computed on the
 * side as they are made: parsed, compiled, optimised and interpreted they must
 * give the same.
 */
#include "tests/unit/compile_world.h"

enum { TEXT_MAX = 400 };

static uint64_t seed;

static uint64_t draw(uint64_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % n;
}

struct writer {
	char text[TEXT_MAX];
	size_t used;
	bool full;
};

static void put(struct writer *w, const char *text)
{
	const size_t length = strlen(text);

	if (w->used + length + 1 >= sizeof(w->text)) {
		w->full = true;
		return;
	}
	memcpy(w->text + w->used, text, length + 1);
	w->used += length;
}

static int64_t leaf(struct writer *w, const struct world *at)
{
	static const int64_t numbers[] = {0,  1,   2,	 3,	  7,	     8,	       10,
					  63, 255, 4096, 1000003, INT32_MAX, 1ll << 40};
	char text[32];
	int64_t n;

	switch (draw(4)) {
	case 0:
		put(w, "$return");
		return (int64_t)at->results[0];
	case 1:
		put(w, "$cpu");
		return 3;
	case 2:
		put(w, "t");
		return (int64_t)at->arguments[0];
	default:
		n = numbers[draw(COUNT(numbers))];
		snprintf(text, sizeof(text), "%lld", (long long)n);
		put(w, text);
		return n;
	}
}

static int64_t quotient(int64_t a, int64_t b, bool remainder)
{
	if (b == 0)
		return 0;
	if (b == -1)
		return remainder ? 0 : (int64_t)(0 - (uint64_t)a);
	return remainder ? a % b : a / b;
}

static int64_t apply(unsigned op, int64_t a, int64_t b)
{
	const uint64_t x = (uint64_t)a, y = (uint64_t)b;

	switch (op) {
	case 0:
		return (int64_t)(x + y);
	case 1:
		return (int64_t)(x - y);
	case 2:
		return (int64_t)(x * y);
	case 3:
		return quotient(a, b, false);
	case 4:
		return quotient(a, b, true);
	case 5:
		return (int64_t)(x & y);
	case 6:
		return (int64_t)(x | y);
	case 7:
		return (int64_t)(x ^ y);
	case 8:
		return a < b;
	case 9:
		return a <= b;
	case 10:
		return a > b;
	case 11:
		return a >= b;
	case 12:
		return a == b;
	case 13:
		return a != b;
	case 14:
		return a && b;
	default:
		return a || b;
	}
}

static int64_t write_expression(struct writer *w, const struct world *at, unsigned depth);

static int64_t write_binary(struct writer *w, const struct world *at, unsigned depth)
{
	static const char *const names[] = {
		" + ", " - ",  " * ", " / ",  " % ",  " & ",  " | ",  " ^ ",
		" < ", " <= ", " > ", " >= ", " == ", " != ", " && ", " || "};
	const unsigned op = (unsigned)draw(COUNT(names));
	int64_t a, b;

	put(w, "(");
	a = write_expression(w, at, depth - 1);
	put(w, names[op]);
	if (op == 3 || op == 4) { /* a divisor that the parser can see to be 0 is an error */
		static const int64_t divisors[] = {1, 2, 3, 7, 10, 16, 1000, 1000003};
		char text[32];

		if (draw(2)) {
			put(w, "$return");
			return put(w, ")"), apply(op, a, (int64_t)at->results[0]);
		}
		b = divisors[draw(COUNT(divisors))];
		snprintf(text, sizeof(text), "%lld)", (long long)b);
		put(w, text);
		return apply(op, a, b);
	}
	b = write_expression(w, at, depth - 1);
	put(w, ")");
	return apply(op, a, b);
}

static int64_t write_expression(struct writer *w, const struct world *at, unsigned depth)
{
	int64_t a, b, c;

	if (depth == 0 || draw(6) == 0)
		return leaf(w, at);
	switch (draw(8)) {
	case 0:
		put(w, "!");
		return !leaf(w, at);
	case 1:
		put(w, "~");
		return ~leaf(w, at);
	case 2:
		put(w, "-");
		return (int64_t)(0 - (uint64_t)leaf(w, at));
	case 3:
		put(w, "(");
		a = write_expression(w, at, depth - 1);
		put(w, " ? ");
		b = write_expression(w, at, depth - 1);
		put(w, " : ");
		c = write_expression(w, at, depth - 1);
		put(w, ")");
		return a ? b : c;
	default:
		return write_binary(w, at, depth);
	}
}

static void test_random(void **state)
{
	unsigned made = 0;

	(void)state;
	for (unsigned round = 0; round < 3000; round++) {
		struct world w = {0};
		struct writer text = {0};
		int64_t want, got;

		seed = 0x2545f4914f6cdd1dull * (round + 1) | 1;
		for (unsigned i = 0; i < 8; i++)
			draw(2);
		w.results[0] = draw(3) ? draw(1000) : seed * 0x9e3779b97f4a7c15ull;
		w.arguments[0] = draw(2) ? draw(5) : seed * 31;
		store(&w, RECORD + TEMPORARY_AT, w.arguments[0], 8);
		want = write_expression(&text, &w, 4);
		if (text.full)
			continue;
		made++;
		got = evaluate(text.text, &w);
		if (got != want)
			fail_msg("round %u: %s is %lld, not %lld", round, text.text, (long long)got,
				 (long long)want);
	}
	assert_true(made > 2000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
