/* SPDX-License-Identifier: MIT */
/*
 * compile_types.c - what DWARF says of a target's functions and globals, and
 * where compiled code then takes them from. Registers and stack are filled as
 * the psABI says they are, by hand.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdbool.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "mutator/compile_private.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

enum { BIAS = 0x10000000, HEAP = 0x5000 };

/* ------------------------------------------------------------- the target */

static struct module module = {.bias = BIAS, .main = true};
static const char *target;
static struct mdl_library *library;
static struct place place;
static struct variable total = {
	.name = "m", .elements = 1, .in = {{.place = &place, .counter = 0x100}}, .place_count = 1};

static int set_up(void **state)
{
	struct dinst_error e = {0};
	char path[512];
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "%s/tests/live/targets/%s",
		 getenv("DINST_BUILD") ? getenv("DINST_BUILD") : "build", target);
	fd = open(path, O_RDONLY);
	assert_true(fd >= 0);
	if (image_open(fd, path, NULL, &module.image, &e))
		fail_msg("%s", e.text);
	close(fd);
	snprintf(module.name, sizeof(module.name), "typed");
	assert_int_equal(mdl_library_create(&library, &e), 0);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	mdl_library_free(library);
	image_close(module.image);
	return 0;
}

static uint32_t function(const char *name)
{
	struct dinst_error e = {0};
	uint32_t *found, index;
	size_t count;

	assert_int_equal(image_match(module.image, name, &found, &count, &e), 0);
	assert_int_equal(count, 1);
	index = found[0];
	free(found);
	return index;
}

/* -------------------------------------------------------------- the thread */

struct thread {
	uint64_t integers[6], floats[8], results[2], stack[16];
	uint8_t heap[256];
	uint64_t sum;
};

static bool load(void *arg, taddr_t address, uint64_t *word, size_t size)
{
	struct thread *t = arg;

	if (address < HEAP || address + size > HEAP + sizeof(t->heap))
		return false;
	memcpy(word, t->heap + (address - HEAP), size);
	return true;
}

static bool other(void *arg, const struct arch_op *op, uint64_t a, uint64_t b, uint64_t *result,
		  uint64_t *second)
{
	struct thread *t = arg;

	(void)a;
	(void)second;
	switch (op->kind) {
	case ARCH_OP_ARGUMENT:
		*result = t->integers[op->number];
		return true;
	case ARCH_OP_FLOAT_ARGUMENT:
	case ARCH_OP_FLOAT_RESULT:
		*result = t->floats[op->number];
		return true;
	case ARCH_OP_RESULT:
		*result = t->results[op->number];
		return true;
	case ARCH_OP_STACK:
		*result = t->stack[op->number / 8];
		return op->number % 8 == 0;
	case ARCH_OP_STACK_POINTER: /* what is read by it is not there */
		*result = 0x7000;
		return true;
	case ARCH_OP_COUNT:
		t->sum += b;
		return true;
	default:
		return false;
	}
}

static struct mdl_expr *node(enum mdl_expr_kind kind, struct mdl_expr *left, const char *text,
			     int64_t number)
{
	static struct mdl_expr made[64];
	static unsigned used;
	struct mdl_expr *x = &made[used++ % COUNT(made)];

	*x = (struct mdl_expr){.kind = kind, .left = left, .text = text, .number = number};
	return x;
}

/* "arg2.pairs[1].x" and "return.d" become trees. */
static struct mdl_expr *path_of(const char *text)
{
	static char copies[16][64];
	static unsigned used;
	char *copy = copies[used++ % COUNT(copies)], *next;
	struct mdl_expr *x;

	snprintf(copy, 64, "%s", text);
	if (!strncmp(copy, "arg", 3))
		x = node(MDL_ARGUMENT, NULL, NULL, strtol(copy + 3, &next, 10));
	else
		x = node(MDL_RETURN, NULL, NULL, 0), next = copy + 6;
	while (*next) {
		if (*next == '.') {
			char *end = next + 1 + strcspn(next + 1, ".[");
			const char was = *end;
			static char names[64][32];
			static unsigned name;

			*end = 0;
			snprintf(names[name % 64], 32, "%s", next + 1);
			x = node(MDL_ATTRIBUTE, x, names[name++ % 64], 0);
			*end = was;
			next = end;
		} else {
			struct mdl_expr *index =
				node(MDL_INTEGER, NULL, NULL, strtol(next + 1, &next, 10));

			x = node(MDL_INDEX, x, NULL, 0);
			x->right = index;
			next++;
		}
	}
	return x;
}

static int take(const char *name, enum point_kind kind, struct mdl_expr *value, struct thread *t,
		int64_t *result, struct dinst_error *e)
{
	struct variable *const variables[] = {&total};
	struct mdl_expr sum = {.kind = MDL_ASSIGN, .op = '+', .right = value};
	struct mdl_expr m = {.kind = MDL_NAME, .text = "m"};
	const struct mdl_code code = {.kind = MDL_CODE_EXPR, .expr = &sum};
	const struct mdl_placement placement = {.function = {&module, function(name)},
						.kind = kind,
						.rank.role = MDL_MEASURES,
						.code = &code};
	const struct compile_request request = {.placement = &placement,
						.place = &place,
						.variables = variables,
						.variable_count = 1};
	const struct arch_machine machine = {t, load, NULL, other};
	uint64_t values[ARCH_PROGRAM_VALUES + 1] = {0};
	struct compiled c;
	int r;

	sum.left = &m;
	r = compile(&request, &c, e);
	if (r)
		return r;
	t->sum = 0;
	assert_false(c.shared);
	assert_true(arch_program_run(&c.program, &machine, values));
	*result = (int64_t)t->sum;
	free(c.program.ops);
	return 0;
}

static uint64_t bits_of(double d)
{
	uint64_t bits;

	memcpy(&bits, &d, sizeof(bits));
	return bits;
}

/* Two floats lie in one register. */
static uint64_t bits_of_floats(float low, float high)
{
	uint32_t x, y;

	memcpy(&x, &low, 4);
	memcpy(&y, &high, 4);
	return x | (uint64_t)y << 32;
}

static struct thread a_thread(void)
{
	struct thread t = {
		.integers = {HEAP, 0x0102030405060708, 0xfffffffffffff0fe, 0x8000000180000001,
			     0xaaaabbbbccccdddd, 0x1111222233334444},
		.floats = {bits_of_floats(-2.75f, 99.0f), bits_of(1e10), bits_of(-0.5),
			   bits_of(-6.5), bits_of_floats(3.5f, 0)},
		.results = {0x11111111fffefffd, 0x2222222222222222},
	};
	const int32_t value = -77, pairs[] = {1, 2 | 3 << 16, -4, (int32_t)(0xfffb | 250u << 16)};
	const uint64_t next = HEAP + 64, wide = 0x1122334455667788;
	/* low: 3 = 5, high: 5 = 17, sign: 4 = -2 */
	const uint32_t bits = 5 | 17 << 3 | 14 << 8;

	for (unsigned i = 0; i < COUNT(t.stack); i++)
		t.stack[i] = 0xf1f2f3f4f5f60000 + i * 0x101;
	memcpy(t.heap, &next, 8);
	memcpy(t.heap + 8, &value, 4);
	memcpy(t.heap + 12, &bits, 4);
	memcpy(t.heap + 16, &wide, 8);
	memcpy(t.heap + 24, pairs, sizeof(pairs));
	t.heap[64 + 8] = 42;
	return t;
}

static void test_taken(void **state)
{
	static const struct {
		const char *function;
		enum point_kind kind;
		const char *path;
		int64_t want;
	} cases[] = {
		/* Registers hold anything above what an argument's type is wide. */
		{"takes_small", POINT_ENTRY, "arg1", 8},
		{"takes_small", POINT_ENTRY, "arg2", -3842},
		{"takes_small", POINT_ENTRY, "arg3", 1},
		{"takes_small", POINT_ENTRY, "arg4", (int32_t)0xccccdddd},
		{"takes_small", POINT_ENTRY, "arg5", 0x33334444},
		/* On the stack above the return address, 8 bytes each. */
		{"takes_many", POINT_ENTRY, "arg5", 0x33334444},
		{"takes_many", POINT_ENTRY, "arg6", 1},
		{"takes_many", POINT_ENTRY, "arg7", (int64_t)0xf1f2f3f4f5f60202},
		{"takes_many", POINT_ENTRY, "arg8", 0x0303},
		{"takes_floats", POINT_ENTRY, "arg0", -2},
		{"takes_floats", POINT_ENTRY, "arg1", HEAP},
		{"takes_floats", POINT_ENTRY, "arg2", 10000000000},
		{"takes_floats", POINT_ENTRY, "arg3", 0},
		/* x and y and z share a register, and what follows has the next one. */
		{"takes_pair", POINT_ENTRY, "arg0.x", HEAP},
		{"takes_pair", POINT_ENTRY, "arg0.y", 0},
		{"takes_pair", POINT_ENTRY, "arg1", 0x05060708},
		/* One word in a vector register, one in an integer register. */
		{"takes_mixed", POINT_ENTRY, "arg0", HEAP},
		{"takes_mixed", POINT_ENTRY, "arg1.d", -2},
		{"takes_mixed", POINT_ENTRY, "arg1.i", 0x0102030405060708},
		{"takes_mixed", POINT_ENTRY, "arg2.a", 0},
		{"takes_mixed", POINT_ENTRY, "arg3", -3842},
		/* Too large: on the stack, and what follows still has registers. */
		{"takes_large", POINT_ENTRY, "arg1.words[1]", (int64_t)0xf1f2f3f4f5f60202},
		/* What is behind its end, or in front of it, may be behind the end of the stack. */
		{"takes_large", POINT_ENTRY, "arg1.words[3]", 0},
		{"takes_large", POINT_ENTRY, "arg1.words[100000]", 0},
		{"takes_large", POINT_ENTRY, "arg1.words[-100000]", 0},
		{"takes_large", POINT_ENTRY, "arg1.last", (int32_t)0xf5f60404},
		{"takes_large", POINT_ENTRY, "arg2", 0x05060708},
		/* Nor is anything as large as this on one. */
		{"takes_huge", POINT_ENTRY, "arg1.last", 0},
		{"takes_huge", POINT_ENTRY, "arg1.words[1]", 0},
		{"takes_huge", POINT_ENTRY, "arg6", 0x33334444},
		{"takes_huge", POINT_ENTRY, "arg7", 0},
		/* The last of the vector registers, and the first double that has none. */
		{"takes_doubles", POINT_ENTRY, "arg7", 7},
		{"takes_doubles", POINT_ENTRY, "arg8", 0},
		/* Packed, its members lie across words. */
		{"takes_packed", POINT_ENTRY, "arg0.before", 0x01},
		{"takes_packed", POINT_ENTRY, "arg0.i", 0x02f1f2f3f4f5f601},
		{"takes_packed", POINT_ENTRY, "arg0.last", 0x0303f1f2},
		{"takes_packed", POINT_ENTRY, "arg1", HEAP},
		{"takes_aligned", POINT_ENTRY, "arg0.words[1]", (int64_t)0xf1f2f3f4f5f60202},
		{"takes_aligned", POINT_ENTRY, "arg1", HEAP},
		{"takes_old", POINT_ENTRY, "arg0", -2},
		{"takes_old", POINT_ENTRY, "arg1", (int16_t)HEAP},
		{"takes_old", POINT_ENTRY, "arg2", 10000000000},
		/* Through pointers, as far as there is memory. */
		{"takes_node", POINT_ENTRY, "arg0", HEAP},
		{"takes_node", POINT_ENTRY, "arg0.value", -77},
		{"takes_node", POINT_ENTRY, "arg0.low", 5},
		{"takes_node", POINT_ENTRY, "arg0.high", 17},
		{"takes_node", POINT_ENTRY, "arg0.sign", -2},
		{"takes_node", POINT_ENTRY, "arg0.wide", 0x1122334455667788},
		{"takes_full", POINT_ENTRY, "arg0.low", (HEAP + 64) & 0x7f},
		{"takes_full", POINT_ENTRY, "arg0.high", (HEAP + 64) >> 7},
		{"takes_node", POINT_ENTRY, "arg0.text[1]", 0x77},
		{"takes_node", POINT_ENTRY, "arg0.pairs[1].x", -4},
		{"takes_node", POINT_ENTRY, "arg0.pairs[1].y", -5},
		{"takes_node", POINT_ENTRY, "arg0.pairs[1].z", 250},
		{"takes_node", POINT_ENTRY, "arg0[0].value", -77},
		{"takes_node", POINT_ENTRY, "arg0.next.value", 42},
		{"takes_node", POINT_ENTRY, "arg0.next.next.value", 0},
		{"takes_node", POINT_ENTRY, "arg1", 8},
		{"takes_node", POINT_ENTRY, "arg2", -3842},
		{"takes_any", POINT_ENTRY, "arg3", (int64_t)0x8000000180000001},
		{"gives_double", POINT_EXIT, "return", -2},
		{"gives_small", POINT_EXIT, "return", -3},
		{"gives_pair", POINT_EXIT, "return.x", (int32_t)0xfffefffd},
		{"gives_pair", POINT_EXIT, "return.y", 0x1111},
		{"gives_mixed", POINT_EXIT, "return.d", -2},
		{"gives_mixed", POINT_EXIT, "return.i", 0x11111111fffefffd},
		/* Where to store the result is passed as the first argument. */
		{"gives_large", POINT_ENTRY, "arg0", 0x05060708},
		{"gives_node", POINT_EXIT, "return.next", 0},
		/* What is an element of an array of arrays has elements of its own. */
		{"takes_tiled", POINT_ENTRY, "arg0.rows[1][3]", -77},
		{"takes_tiled", POINT_ENTRY, "arg0.rows[0][1]", 0x50},
		/* One part of its code lies elsewhere. */
		{"takes_cold", POINT_ENTRY, "arg1", HEAP},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct thread t = a_thread();
		struct dinst_error e = {0};
		int64_t got = 0;

		/* takes_floats' first argument is a float: the double's bits would be something else. */
		if (!strcmp(cases[i].function, "gives_double") ||
		    !strcmp(cases[i].function, "takes_old") || !strcmp(cases[i].path, "arg1.d") ||
		    !strcmp(cases[i].path, "return.d"))
			t.floats[0] = bits_of(-2.75);
		if (!strcmp(cases[i].function, "takes_doubles"))
			t.floats[7] = bits_of(7.5), t.stack[1] = bits_of(0.25);
		if (take(cases[i].function, cases[i].kind, path_of(cases[i].path), &t, &got, &e))
			fail_msg("%s %s: %s", cases[i].function, cases[i].path, e.text);
		if (got != cases[i].want)
			fail_msg("%s %s is %#llx, not %#llx", cases[i].function, cases[i].path,
				 (long long)got, (long long)cases[i].want);
	}
}

static void test_refused(void **state)
{
	static const struct {
		const char *function;
		enum point_kind kind;
		const char *path, *text;
	} cases[] = {
		{"takes_long_double", POINT_ENTRY, "arg0", "cannot be read"},
		{"takes_long_double", POINT_ENTRY, "arg1", "follows one of a type"},
		{"takes_pair", POINT_ENTRY, "arg0", "struct"},
		{"takes_pair", POINT_ENTRY, "arg0.X", "did you mean 'x'"},
		{"takes_pair", POINT_ENTRY, "arg1.x", "no struct"},
		{"takes_pair", POINT_ENTRY, "arg2", "has 2 arguments"},
		{"takes_node", POINT_ENTRY, "arg0.next", NULL},
		{"gives_nothing", POINT_EXIT, "return", "returns nothing"},
		{"takes_pair", POINT_ENTRY, "arg1[1]", "[] needs"},
		/* There is a gap in front of what must lie at a multiple of 16. */
		{"takes_gap", POINT_ENTRY, "arg6", NULL},
		{"takes_gap", POINT_ENTRY, "arg7.i", "cannot be read"},
		{"takes_gap", POINT_ENTRY, "arg8", "follows one of a type"},
		{"takes_gap_told", POINT_ENTRY, "arg8", NULL},
		{"takes_gap_told", POINT_ENTRY, "arg9.words[0]", "cannot be read"},
		/* The first argument is where to store the result. */
		{"gives_packed", POINT_ENTRY, "arg0", "its result is not known"},
		{"gives_packed", POINT_EXIT, "return.i", "cannot be read"},
		{"takes_tiled", POINT_ENTRY, "arg0.rows[1][3][0]", "[] needs"},
#ifdef __x86_64__
		{"takes_elsewhere", POINT_ENTRY, "arg0", "has changed how this function is called"},
#endif
		{"takes_turned", POINT_ENTRY, "arg0", NULL},
		/* In a vector register or in memory. */
		{"takes_vector", POINT_ENTRY, "arg1", "follows one of a type"},
		{"gives_vector", POINT_ENTRY, "arg0", "its result is not known"},
		{"gives_bare_vector", POINT_ENTRY, "arg0", "its result is not known"},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct thread t = a_thread();
		struct dinst_error e = {0};
		int64_t got;
		int r;

		/* Older versions do not tell of it. */
		if ((!strcmp(cases[i].function, "takes_gap_told") ||
		     strstr(cases[i].function, "_vector")) &&
		    strcmp(target, "typed") != 0)
			continue;
		r = take(cases[i].function, cases[i].kind, path_of(cases[i].path), &t, &got, &e);

		if ((r == 0) != !cases[i].text || (cases[i].text && !strstr(e.text, cases[i].text)))
			fail_msg("%s %s: %d %s", cases[i].function, cases[i].path, r, e.text);
	}
}

/* From any float or double to the integer in front of its point, without a vector instruction. */
static void test_truncate(void **state)
{
	static const double numbers[] = {0.0,
					 -0.0,
					 0.999,
					 1.0,
					 -1.5,
					 2.5,
					 1e9,
					 -1e9,
					 123456789.75,
					 4503599627370495.5,
					 9007199254740993.0,
					 1e18,
					 -1e18,
					 9.2e18,
					 -9.2e18,
					 -9223372036854775808.0}; /* -2^63 */
	uint64_t seed = 88172645463325252ull;

	(void)state;
	for (unsigned i = 0; i < 2000; i++) {
		struct thread t = a_thread();
		struct dinst_error e = {0};
		double d;
		float f;
		int64_t got;

		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		d = i < COUNT(numbers) ? numbers[i]
				       : (double)(int64_t)seed / (double)(1ull << seed % 60);
		f = (float)(d / 4);
		t.floats[0] = bits_of(d);
		assert_int_equal(take("gives_double", POINT_EXIT, path_of("return"), &t, &got, &e),
				 0);
		if (got != (int64_t)d)
			fail_msg("%.17g is %lld", d, (long long)got);
		t.floats[0] = bits_of_floats(f, 1.0f);
		assert_int_equal(take("takes_floats", POINT_ENTRY, path_of("arg0"), &t, &got, &e),
				 0);
		if (got != (int64_t)f)
			fail_msg("%.9g is %lld", (double)f, (long long)got);
	}
	/* What no integer is. */
	for (unsigned i = 0; i < 4; i++) {
		static const double large[] = {1e19, -1e19, __builtin_inf(), -__builtin_inf()};
		struct thread t = a_thread();
		struct dinst_error e = {0};
		int64_t got;

		t.floats[0] = bits_of(large[i]);
		assert_int_equal(take("gives_double", POINT_EXIT, path_of("return"), &t, &got, &e),
				 0);
		assert_int_equal(got, i & 1 ? INT64_MIN : INT64_MAX);
	}
}

static void test_functions(void **state)
{
	struct type_function f;

	(void)state;
	types_of_function(module.image, function("takes_any"), &f);
	assert_true(f.known && f.variadic);
	assert_int_equal(f.argument_count, 1);
	types_of_function(module.image, function("gives_node"), &f);
	assert_true(f.known && !f.variadic);
	assert_int_equal(f.argument_count, 0);
	assert_int_equal(f.result.kind, TYPE_POINTER);
	types_of_function(module.image, function("_start"), &f);
	assert_false(f.known);
}

/* fear H2: where the rules are not known, or the compiler says that it has others, nothing is guessed */
static void test_rules(void **state)
{
	static const struct {
		const char *function;
		enum point_kind kind;
		const char *path, *text;
	} cases[] = {
		/* Where to store the result may be passed as the first argument, as Rust does. */
		{"gives_wide", POINT_ENTRY, "arg0", "its result is not known"},
		{"gives_number", POINT_ENTRY, "arg0", NULL},
		/* () is nothing, and nothing is passed for it. */
		{"takes_nothing", POINT_ENTRY, "arg1", "follows one of a type"},
		{"takes_changed", POINT_ENTRY, "arg0", "has changed how"},
		{"takes_changed", POINT_EXIT, "return", "has changed how"},
	};
	const struct image_function *functions;
	struct type type = {0};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct thread t = a_thread();
		struct dinst_error e = {0};
		int64_t got;
		int r = take(cases[i].function, cases[i].kind, path_of(cases[i].path), &t, &got,
			     &e);

		if ((r == 0) != !cases[i].text || (cases[i].text && !strstr(e.text, cases[i].text)))
			fail_msg("%s %s: %d %s", cases[i].function, cases[i].path, r, e.text);
	}
	/* Its address stands in a table. */
	image_functions(module.image, &functions);
	types_of_variable(module.image, functions[function("beside")].address + 16, &type);
	assert_int_equal(type.kind, TYPE_FLOAT);
	assert_int_equal(type.size, 8);
}

/* What is described inside of another function: a lambda's call operator, as gcc has it. */
static void test_inner(void **state)
{
	struct thread t = a_thread();
	struct dinst_error e = {0};
	int64_t got;

	(void)state;
	if (take("main::{lambda*}::operator()*", POINT_ENTRY, path_of("arg2"), &t, &got, &e))
		fail_msg("%s", e.text);
	/* the object, a double, an int */
	assert_int_equal(got, 0x05060708);
}

/* Functions without their types (-g1): that nothing is told does not mean that they take nothing. */
static void test_lines(void **state)
{
	struct thread t = a_thread();
	struct dinst_error e = {0};
	struct type_function f;
	int64_t got;

	(void)state;
	types_of_function(module.image, function("takes_small"), &f);
	assert_false(f.known);
	if (take("takes_small", POINT_ENTRY, path_of("arg1"), &t, &got, &e))
		fail_msg("%s", e.text);
	assert_int_equal(got, 0x0102030405060708);
	if (take("gives_node", POINT_EXIT, path_of("return"), &t, &got, &e))
		fail_msg("%s", e.text);
	assert_int_equal(got, 0x11111111fffefffd);
}

int main(void)
{
	const struct CMUnitTest lines[] = {cmocka_unit_test(test_lines)};
	const struct CMUnitTest inner[] = {cmocka_unit_test(test_inner)};
	const struct CMUnitTest rules[] = {cmocka_unit_test(test_rules)};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_taken),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_truncate),
		cmocka_unit_test(test_functions),
	};

	int failed;

	target = "typed";
	failed = cmocka_run_group_tests_name("typed", tests, set_up, tear_down);
	target = "typed-old";
	failed += cmocka_run_group_tests_name("typed-old", tests, set_up, tear_down);
	target = "typed-rules";
	failed += cmocka_run_group_tests_name("typed-rules", rules, set_up, tear_down);
	target = "named";
	failed += cmocka_run_group_tests_name("named", inner, set_up, tear_down);
	target = "typed-lines";
	return failed + cmocka_run_group_tests_name("typed-lines", lines, set_up, tear_down);
}
