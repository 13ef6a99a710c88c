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

static int64_t temporary_now; /* what the temporary holds while text is written */

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
		return temporary_now;
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
		temporary_now = (int64_t)(draw(2) ? draw(5) : seed * 31);
		store(&w, RECORD + TEMPORARY_AT, (uint64_t)temporary_now, 8);
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

/* ------------------------------------------------------------- statements */

/* What code should have done by now. */
struct model {
	int64_t total, other, timer_total;
	uint64_t started, clock, recorded;
	unsigned count;
};

static void write_statements(struct writer *w, const struct world *at, struct model *m,
			     unsigned depth, bool live);

static void write_if(struct writer *w, const struct world *at, struct model *m, unsigned depth,
		     bool live)
{
	bool holds;

	put(w, "if (");
	holds = write_expression(w, at, 2) != 0;
	put(w, ") { ");
	write_statements(w, at, m, depth - 1, live && holds);
	put(w, "} ");
	if (draw(2) == 0)
		return;
	put(w, "else { ");
	write_statements(w, at, m, depth - 1, live && !holds);
	put(w, "} ");
}

static void write_assignment(struct writer *w, const struct world *at, struct model *m, bool live)
{
	static const char *const texts[] = {
		"t = ", "t += ", "t -= ", "m += ", "other -= ", "record(d, "};
	const unsigned which = (unsigned)draw(COUNT(texts));
	int64_t value;

	put(w, texts[which]);
	value = write_expression(w, at, 2);
	put(w, which == 5 ? "); " : "; ");
	if (!live)
		return;
	if (which == 0)
		temporary_now = value;
	else if (which == 1)
		temporary_now = (int64_t)((uint64_t)temporary_now + (uint64_t)value);
	else if (which == 2)
		temporary_now = (int64_t)((uint64_t)temporary_now - (uint64_t)value);
	else if (which == 3)
		m->total = (int64_t)((uint64_t)m->total + (uint64_t)value);
	else if (which == 4)
		m->other = (int64_t)((uint64_t)m->other - (uint64_t)value);
	else if (value >= 0)
		m->recorded += (uint64_t)value;
}

static void write_timer(struct writer *w, struct model *m, bool live)
{
	const bool start = draw(2);

	put(w, start ? "startWallTimer(w); " : "m += stopWallTimer(w); ");
	if (!live)
		return;
	if (start) {
		if (m->count++ == 0)
			m->started = m->clock;
	} else if (m->count == 0 || --m->count) {
		m->total--; /* it ended none: -1 */
	} else {
		m->timer_total += (int64_t)(m->clock - m->started);
		m->total += (int64_t)(m->clock - m->started);
	}
}

static void write_statements(struct writer *w, const struct world *at, struct model *m,
			     unsigned depth, bool live)
{
	for (uint64_t left = 1 + draw(3); left; left--)
		switch (draw(depth ? 5 : 3)) {
		case 0:
			write_timer(w, m, live);
			break;
		case 1:
		case 2:
			write_assignment(w, at, m, live);
			break;
		default:
			write_if(w, at, m, depth, live);
			break;
		}
}

static void compare(const char *text, struct world *w, const struct model *m)
{
	const struct {
		const char *name;
		taddr_t address;
		uint64_t want;
	} words[] = {
		{"m", TOTAL_AT, (uint64_t)m->total},
		{"other", TOTAL_AT + 0x1000, (uint64_t)m->other},
		{"t", RECORD + TEMPORARY_AT, (uint64_t)temporary_now},
		{"timer", TOTAL_AT + 0x2000, (uint64_t)m->timer_total},
		{"sum", OTHER_AT + 8 * VARIABLE_BUCKETS, m->recorded},
	};

	for (unsigned i = 0; i < COUNT(words); i++)
		if (word_at(w, words[i].address) != words[i].want)
			fail_msg("%s: %s is %lld, not %lld", text, words[i].name,
				 (long long)word_at(w, words[i].address), (long long)words[i].want);
	if ((word_at(w, RECORD + TIMER_AT) & UINT32_MAX) != m->count)
		fail_msg("%s: the timer runs %lld times, not %u", text,
			 (long long)(word_at(w, RECORD + TIMER_AT) & UINT32_MAX), m->count);
}

/* Programs one after the other in one thread; what is left is compared after each. */
static void test_statements(void **state)
{
	unsigned made = 0;

	(void)state;
	for (unsigned round = 0; round < 500; round++) {
		struct world w = {0};
		struct model m = {0};

		seed = 0x9e3779b97f4a7c15ull * (round + 77) | 1;
		for (unsigned i = 0; i < 8; i++)
			draw(2);
		temporary_now = 0;
		w.results[0] = draw(50);
		for (unsigned i = 0; i < 6; i++) {
			const int64_t before = temporary_now;
			const struct model was = m;
			struct writer text = {0};

			w.clock = m.clock = was.clock + 1000;
			write_statements(&text, &w, &m, 2, true);
			if (text.full) {
				temporary_now = before;
				m = was;
				continue;
			}
			run(text.text, &w);
			compare(text.text, &w, &m);
			made++;
		}
	}
	assert_true(made > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_random),
					   cmocka_unit_test(test_statements)};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
