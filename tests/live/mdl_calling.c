/* SPDX-License-Identifier: MIT */
/*
 * mdl_calling.c - inserted code that calls the program's own functions: what it
 * gets is what the program itself gets, what is inserted into the function does
 * not run, and what cannot be proved safe is refused with its reason.
 */
#include "tests/live/mdl_help.h"

#define METRIC(name, code)                                                          \
	"metric " name " { counter v; base is counter { foreach f in subject_func " \
	"append preInsn f.entry (* " code " *) } }\n"

static const char text[] = "list subject_func is procedure { items { \"subject\" }; }\n" METRIC(
	"scaled", "scaled += scale($arg[0]);") METRIC("signs", "signs += sign_of($arg[0]);")
	METRIC("narrowed", "narrowed += narrow($arg[0], $arg[0] * 77);") METRIC(
		"values", "values += value_of($arg[1]);") METRIC("lows",
								 "split($arg[0], &v); lows += v;")
		METRIC("weights_of", "weights_of += Call(\"mdl_computes:weight_of\", $arg[0]);")
			METRIC("starred", "starred += Call(\"main.(*T).Scale\", $arg[0]);") METRIC(
				"plains", "plains += plain($arg[0], 100);")
				METRIC("network", "network += htons($arg[0] & 0xffff);") METRIC(
					"nested",
					"nested += scale(scale(sign_of($arg[0])) - scale(0));");

/* Each metric and the program's name for the same number. */
static const char *const pairs[][2] = {
	{"scaled", "scale"}, {"signs", "sign"},	     {"narrowed", "narrow"},
	{"values", "value"}, {"lows", "low"},	     {"weights_of", "weight"},
	{"plains", "plain"}, {"network", "network"}, {"starred", "scale"},
};

enum { PAIRS = sizeof(pairs) / sizeof(pairs[0]) };

/* From one thread, and from eight at once. */
static void test_values(void **state)
{
	struct harness *h = *state;
	unsigned ids[PAIRS], nested;
	const char *line;

	harness_start(h, "mdl_computes", NULL);
	mdl_attach(h, text);
	for (unsigned i = 0; i < PAIRS; i++)
		ids[i] = mdl_insert(h, pairs[i][0]);
	nested = mdl_insert(h, "nested");
	for (unsigned threads = 1; threads <= 8; threads += 7) {
		line = mdl_ask(h, "go %u 2000", threads);
		for (unsigned i = 0; i < PAIRS; i++)
			if (mdl_value(h, ids[i]) != mdl_number(line, pairs[i][1]))
				fail_msg("%s is %lld: %s", pairs[i][0],
					 (long long)mdl_value(h, ids[i]), line);
	}
	/* scale(3 * sign + 17 - 17): 9 * sign + 17 */
	assert_int_equal(mdl_value(h, nested),
			 9 * mdl_number(line, "sign") + 17 * mdl_number(line, "calls"));
	mdl_end(h);
}

/* Before, after and while code is inserted into the callee itself: only the program's calls count. */
/*
 * fear D6: inserted code uses a function of the program that is instrumented itself: it runs none of
 * what is inserted there, and gets what the program gets
 */
static void test_instrumented(void **state)
{
	struct harness *h = *state;
	unsigned calls, scaled, again;
	const char *line;

	harness_start(h, "mdl_computes", NULL);
	mdl_attach(h, text);
	calls = mdl_insert(h, "calls", "/Code/mdl_computes/scale");
	scaled = mdl_insert(h, "scaled");
	again = mdl_insert(h, "latency", "/Code/mdl_computes/scale");
	mdl_ask(h, "own 700");
	line = mdl_ask(h, "go 3 1000");
	assert_int_equal(mdl_value(h, calls), 700 + mdl_number(line, "calls"));
	assert_int_equal(mdl_value(h, scaled), mdl_number(line, "scale"));
	mdl_remove(h, calls);
	mdl_remove(h, again);
	line = mdl_ask(h, "go 2 500");
	assert_int_equal(mdl_value(h, scaled), mdl_number(line, "scale"));
	mdl_end(h);
}

static void refuse(struct harness *h, const char *metric, const char *why)
{
	if (!harness_dinst(h, NULL, "insert", metric, "-p", harness_number(h->pid)))
		fail_msg("%s is not refused", metric);
	if (!strstr(h->messages, why))
		fail_msg("%s: %s", metric, h->messages);
}

static void test_refused(void **state)
{
	static const char refused[] = "list subject_func is procedure { items { \"subject\" }; }\n" METRIC(
		"r_loop", "r_loop += looped($arg[0]);") METRIC("r_call",
							       "r_call += calls_scale($arg[0]);")
		METRIC("r_store", "stores($arg[1]); r_store++;") METRIC(
			"r_variable",
			"stores(&v); r_variable++;") METRIC("r_float", "r_float += half($arg[0]);")
			METRIC("r_variadic", "r_variadic += any_number(1, 2);") METRIC(
				"r_few", "r_few += narrow($arg[0]);")
				METRIC("r_many", "r_many += scale($arg[0], 1);") METRIC(
					"r_resolver",
					"r_resolver += Call(\"libc.so.6:strlen\", $arg[1]);")
					METRIC("r_system", "r_system += Call(\"libc.so.6:getpid\");") METRIC(
						"r_heavy",
						"r_heavy += Call(\"libc.so.6:malloc\", 8);")
						METRIC("r_none", "r_none += scal($arg[0]);") METRIC(
							"r_module",
							"r_module += Call(\"nowhere.so:f\", 1);")
							METRIC("r_glob",
							       "r_glob += Call(\"sc*\", 1);");
	static const char *const why[][2] = {
		{"r_loop", "it has a loop"},
		{"r_call", "calls another function"},
		{"r_store", "memory that is not its own"},
		{"r_variable", "memory that is not its own"},
		{"r_float", "no integer and no pointer"},
		{"r_variadic", "any number of arguments"},
		{"r_few", "takes 2 arguments, not 1"},
		{"r_many", "takes 1 argument, not 2"},
		{"r_resolver", "resolver"},
		{"r_system", "it makes a system call"},
		{"r_heavy", "cannot be called"},
		{"r_none", "did you mean 'scale'"},
		{"r_module", "no module 'nowhere.so'"},
		{"r_glob", "the name of one function"},
	};
	struct harness *h = *state;

	harness_start(h, "mdl_computes", NULL);
	mdl_attach(h, refused);
	for (unsigned i = 0; i < sizeof(why) / sizeof(why[0]); i++)
		refuse(h, why[i][0], why[i][1]);
	mdl_ask(h, "go 2 100");
	mdl_end(h);
}

/*
 * fear G7: the program closes a page of its own variables, before code that reads them is inserted and
 * while it is there: what cannot be read is 0
 */
static void test_closed(void **state)
{
	static const char vaults[] =
		"list subject_func is procedure { items { \"subject\" }; }\n" METRIC(
			"called", "called += vault_of($arg[0] & 0);")
			METRIC("known", "known += vault_of(0);")
				METRIC("named", "named += readSymbol(\"vault[0]\");");
	static const struct {
		const char *is;
		int64_t worth; /* of vault[0] */
	} states[] = {{"closed", 0}, {"open", 42}, {"closed", 0}, {"open", 42}};
	enum { ROUNDS = 100 };
	struct harness *h = *state;
	unsigned called, known, named;
	int64_t sum = 0;

	harness_start(h, "mdl_computes", NULL);
	mdl_ask(h, "vault closed");
	mdl_attach(h, vaults);
	called = mdl_insert(h, "called");
	known = mdl_insert(h, "known");
	named = mdl_insert(h, "named");
	for (unsigned i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		mdl_ask(h, "vault %s", states[i].is);
		mdl_ask(h, "go 1 %d", ROUNDS);
		sum += ROUNDS * states[i].worth;
		assert_int_equal(mdl_value(h, named), sum);
		assert_int_equal(mdl_value(h, called), 2 * sum);
		assert_int_equal(mdl_value(h, known), 2 * sum);
	}
	mdl_end(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_values, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_instrumented, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_closed, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_refused, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
