/* SPDX-License-Identifier: MIT */
/*
 * top_views.c - the views of dinst top: names of any length, who calls a function, and its threads.
 */
#include "tests/unit/top_scene.h"

/* Of as many functions with such names as go into several requests all are counted. */
static void names(size_t number, size_t length, char filler)
{
	struct view *v = begin(number, length, filler);

	survey(v);
	assert_int_equal(e.code, 0);
	assert_int_equal(v->counts.count, number);
	assert_true(target.longest > RPC_CLIENT_LINE / 8);
	assert_true(target.inserts > 2);
	end();
}

static void long_names(void **state)
{
	(void)state;
	names(3000, 1000, 'n');
	/* each of them takes two bytes, and six, in a request */
	names(1500, 600, '"');
	names(1500, 200, '\1');
}

/* ------------------------------------------------------------------- callers */

static struct view *drill(enum view_kind kind, struct function *f)
{
	assert_int_equal(drill_into(t, kind, f, &e), 0);
	return t->views[t->depth - 1];
}

static void drill_once(struct view *v)
{
	assert_int_equal(drill_refresh(t, v, 0, &e), 0);
}

/* Their refreshes count, so that what they cost is told; a thread's processor time costs clocks, too. */
static void threads_are_within_the_limit(void **state)
{
	struct view *v = begin(FEW, 0, 0);
	const double call_ns = PREDICTED_NS + TOP_WAY_NS;
	struct function *f = &v->functions[0];

	(void)state;
	survey(v);
	f->mean = 1000 * TOP_CLOCK_NS;
	f->rate = 10;
	v = drill(VIEW_THREADS, f);
	t->spent_ns = 0;
	drill_once(v);
	assert_int_equal(v->rounds, 1);
	assert_int_equal(json_array_size(v->ids), 2);
	/* what they said at first was since zero */
	assert_true(t->spent_ns == target.reads * (double)HITS * (2 * call_ns + TOP_CLOCK_NS));
	/* its calls alone would be within the limit, but not the clocks of them: a part of the time */
	t->limit = f->rate * 400 / 1e7;
	t->credit_ns = 1e12;
	v->rate = f->rate;
	drill_once(v);
	assert_null(v->ids);
	end();
}

/* While it is busy the view stays and says so, until it goes on; what is refused goes back with the reason. */
static void callers_that_cannot_go_in(void **state)
{
	struct view *v = begin(FEW, 0, 0);

	(void)state;
	v = drill(VIEW_CALLERS, &v->functions[0]);
	target.busy_to = 1;
	drill_once(v);
	assert_int_equal(t->depth, 2);
	assert_null(v->ids);
	assert_true(t->busy);
	assert_non_null(strstr(t->message, "try again later"));
	drill_once(v);
	assert_int_equal(json_array_size(v->ids), 1);
	assert_int_equal(view_leave(t, v, &e), 0);
	target.fails = true;
	drill_once(v);
	assert_int_equal(t->depth, 1);
	assert_string_equal(t->message, "it cannot be done");
	assert_false(t->busy);
	end();
}

static json_t *element(const char *key, const char *name, double calls)
{
	return json_pack("{s:s,s:s,s:f,s:f,s:f,s:f,s:[]}", "key", key, "name", name, "count", calls,
			 "sum", calls, "min", 1.0, "max", 2.0, "buckets");
}

/* How often it is called is seen there, whatever it was when the view was opened. */
static void becomes_hot_meanwhile(void **state)
{
	struct view *v = begin(FEW, 0, 0);
	struct function *f = &v->functions[0];

	(void)state;
	survey(v);
	f->rate = 1;
	t->limit = 4;
	v = drill(VIEW_CALLERS, f);
	target.elements = json_array();
	drill_once(v);
	json_array_append_new(target.elements, element("0x10", "x:f000001+0x4", 1e6));
	drill_once(v);
	assert_true(v->rate > 1e6);
	assert_null(v->ids);
	t->limit = 10000;
	json_array_clear(target.elements);
	drill_once(v);
	assert_true(v->rate < 1e6);
	end();
}

static struct function *called(const char *name)
{
	struct view *v = t->views[t->depth - 1];

	json_array_clear(target.elements);
	json_array_append_new(target.elements, element("0x10", name, 5));
	drill_once(v);
	assert_int_equal(v->line_count, 1);
	return v->lines[0].function;
}

static void rename_function(struct function *f, const char *name)
{
	free(f->name);
	f->name = strdup(name);
}

/* Who calls is told by the name that people read: of C++ that is not the symbol. */
static void callers_by_readable_names(void **state)
{
	struct view *v = begin(FEW, 0, 0);

	(void)state;
	rename_function(&v->functions[3], "ns::f(int)");
	rename_function(&v->functions[4], "ns::operator+(ns::a, int)");
	rename_function(&v->functions[5], "y:ns::f(int)");
	target.elements = json_array();
	drill(VIEW_CALLERS, &v->functions[0]);
	assert_ptr_equal(called("x:f000001+0x4"), &v->functions[1]);
	assert_ptr_equal(called("x:ns::f(int)+0x4"), &v->functions[3]);
	assert_ptr_equal(called("x:ns::operator+(ns::a, int)+0x14"), &v->functions[4]);
	assert_ptr_equal(called("x:ns::operator+(ns::a, int)"), &v->functions[4]);
	assert_ptr_equal(called("y:ns::f(int)+0x4"), &v->functions[5]);
	assert_null(called("z:ns::f(int)+0x4"));
	end();
}

/* The filter that the head tells of is applied there, too, and can be taken back. */
static void callers_are_filtered(void **state)
{
	struct view *v = begin(FEW, 0, 0);

	(void)state;
	target.elements = json_array();
	json_array_append_new(target.elements, element("0x10", "x:f000001+0x4", 1));
	json_array_append_new(target.elements, element("0x20", "x:f000002+0x4", 2));
	json_array_append_new(target.elements, element("0x30", "x:f000003+0x4", 3));
	v = drill(VIEW_CALLERS, &v->functions[0]);
	drill_once(v);
	lines_make(t, v);
	assert_int_equal(v->line_count, 3);
	snprintf(t->filter, sizeof(t->filter), "000003");
	lines_make(t, v);
	assert_int_equal(v->line_count, 1);
	assert_string_equal(v->lines[0].name, "x:f000003+0x4");
	drill_once(v);
	lines_make(t, v);
	assert_int_equal(v->line_count, 1);
	t->filter[0] = '\0';
	lines_make(t, v);
	assert_int_equal(v->line_count, 3);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(long_names),
		cmocka_unit_test(threads_are_within_the_limit),
		cmocka_unit_test(callers_that_cannot_go_in),
		cmocka_unit_test(becomes_hot_meanwhile),
		cmocka_unit_test(callers_by_readable_names),
		cmocka_unit_test(callers_are_filtered),
	};

	return cmocka_run_group_tests_name("top_views", tests, NULL, NULL);
}
