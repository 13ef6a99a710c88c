/* SPDX-License-Identifier: MIT */
/*
 * points_plan.c - plans of the functions in tests/live/targets/points-layout.S, points-flow.S, points-tactics.S,
 * points-fixed.S, points-absolute.S, points-go.S and points-managed.S, one line a case.
 *
 * A plan is written as its points in order: KIND+OFFSET, then either =TACTIC with the window as (start offset,
 * bytes of instructions[+padding]) or =!REFUSAL. Offsets are from the function's address; points and windows in
 * other parts of the function, or in other ones, have offset "cold". Parts that follow the first begin with "&"; a
 * place that is not before its instruction stands behind the tactic, and the host of a short jump and the distance
 * of the hole from its start behind the window: (9,2>0+5).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutator/points.h"

struct plan_case {
	const char *function, *points;
};

static const struct plan_case layout_cases[] = {
	{"a_ret", "entry+0=padding(0,1+4) exit+0=merged(0,1+4)"},
	{"a_xor_ret", "entry+0=padding(0,3+2) exit+2=merged(0,3+2)"},
	{"a_tight", "entry+0=short(0,3) exit+2=merged(0,3)"},
	{"a_tight_next", "entry+0=jump(0,8) exit+7=merged(0,8)"},
	{"a_nothing", "entry+0=evicted(0,3>cold+31) exit+2=merged(0,3>cold+31)"},
	{"a_ends_in_call", "entry+0=jump(0,9) call+4=merged(0,9)"},
	{"a_adjacent", "entry+0=jump(0,6) exit+5=merged(0,6)"},
	{"a_endbr_ret", "entry+0=padding(4,1+4) exit+4=merged(4,1+4)"},
	{"a_endbr", "entry+0=jump(4,10) exit+13=merged(4,10)"},
	{"a_alias", "entry+0=jump(0,6) exit+5=merged(0,6)"},
	{"a_ifunc", "entry+0=!ifunc exit+7=!ifunc"},
	{"a_outer", "entry+0=evicted(0,2>cold+31) exit+2=evicted/falls(2,2>cold+5)"},
	{"a_inner", "entry+0=padding(0,4+1) exit+3=merged(0,4+1)"},
	{"a_data", "entry+0=jump(0,6) exit+5=merged(0,6)"},
	{"a_zeros", "entry+0=padding(0,1+4) exit+0=merged(0,1+4)"},
	{"a_after_zeros", "entry+0=jump(0,6) exit+5=merged(0,6)"},
	{"a_table_behind", "entry+0=!no-room exit+0=!no-room"},
	{"a_zero_constant", "entry+0=!no-room exit+0=!no-room"},
	{"a_zero_read", "entry+0=!no-room exit+0=!no-room"},
	{"a_mask_read", "entry+0=!no-room exit+0=!no-room"},
	{"a_run_into", "entry+0=evicted(0,3>cold+30) exit+2=merged(0,3>cold+30)"},
	{"a_called_into", "entry+0=evicted(0,3>cold+31) exit+2=merged(0,3>cold+31)"},
	{"a_int3", "entry+0=padding(0,1+4) exit+0=merged(0,1+4)"},
	{"p_entry", "entry+0=short(0,4) exit+10=previous(4,7)"},
	{"p_padding", "entry+0=padding(0,1+4) exit+0=merged(0,1+4)"},
	{"p_call", "entry+0=jump(0,14) call+9=merged(0,14) exit+19=previous(14,6)"},
	{"p_call_only",
	 "entry+0=retarget(0,5) call+0=merged(0,5) call+5=short(5,5) exit+12=padding(12,1+4)"},
	{"b_loop_1", "entry+0=!branch-target exit+6=across(1,6)"},
	{"b_loop_4", "entry+0=short(0,3) exit+9=across(4,6)"},
	{"b_loop_5", "entry+0=jump(0,5) exit+9=across(5,5)"},
	{"b_loop_0", "entry+0=bypass(0,8) &entry+0=bypass/bypass(0,8) exit+7=merged(0,8)"},
	{"b_jcc_out", "entry+0=jump(0,10) exit+9=merged(0,10) exit+15=previous(10,6)"},
	{"b_jcc_in", "entry+0=short(0,2) exit+10=previous(5,6)"},
	{"b_call_last", "entry+0=jump(0,6) call+1=merged(0,6) exit+13=previous(9,5)"},
	{"b_riprel", "entry+0=jump(0,7) exit+13=previous(7,7)"},
	{"b_jmp_first", "entry+0=short(0,2) exit+9=previous(4,6)"},
	{"b_recursion",
	 "entry+0=jump(0,5) exit+4=merged(0,5) call+7=retarget(7,5) exit+17=previous(12,6)"},
	{"e_lock_skip", "entry+0=jump(0,5) exit+22=padding(22,1+4)"},
	{"e_loops", "entry+0=jump(0,5) exit+22=previous(16,7)"},
	{"e_loop_entry_window", "entry+0=jump(0,6) exit+14=previous(8,7)"},
	{"e_xbegin", "entry+0=short(0,2) exit+22=previous(16,7)"},
	{"e_syscall", "entry+0=jump(0,5) exit+7=padding(7,1+4)"},
	{"e_rseq", "entry+0=!rseq exit+12=!rseq exit+25=padding(25,1+4)"},
	{"e_rseq_other", "entry+0=!rseq exit+12=!rseq exit+25=padding(25,1+4)"},
	{"e_rseq_table", "entry+0=!rseq exit+12=!rseq exit+25=padding(25,1+4)"},
	{"e_cancel", "entry+0=!rseq exit+13=!branch-target exit+22=previous(14,9)"},
	{"e_sigreturn", "entry+0=!stub"},
	{"e_from_next", "entry+0=jump(0,6) exit+9=short(8,2)"},
	{"e_next_door", "entry+0=jump(0,10) exit+4=merged/taken(0,10) exit+9=merged(0,10)"},
	{"e_into_padding", "entry+0=short(0,2) exit+2=evicted/taken(2,2>cold+30)"},
	{"e_behind_padding", "entry+0=jump(0,8) exit+7=merged(0,8)"},
	{"e_may_return", "entry+0=jump(0,5) call+5=retarget(5,5) exit+21=evicted(20,2>cold+31)"},
	{"e_own_padding", "entry+0=evicted(0,2>cold+31) exit+27=evicted(25,3>cold+20)"},
	{"e_by_nameless", "entry+0=evicted(0,2>cold+31) exit+14=previous(8,7)"},
	{"e_tail",
	 "entry+0=evicted(0,2>cold+31) exit+14=previous(8,7) exit+15=evicted/falls(15,2>cold+10)"},
	{"e_cut",
	 "entry+0=jump(0,5) exit+2=merged/falls(0,5) exit+16=!undecoded exit+21=!undecoded exit+23=!undecoded"},
	{"e_table_behind", "entry+0=jump(0,11) exit+18=evicted(16,3>0+5)"},
	{"a_section_end", "entry+0=!no-room exit+0=!no-room"},
};

static const struct plan_case flow_cases[] = {
	{"c_target_ret", "entry+0=jump(0,6) exit+11=padding(11,1+4)"},
	{"c_target_tight", "entry+0=jump(0,6) exit+11=edges/falls(6,5) &exit+11=edges/taken(6,5)"},
	{"c_target_next", "entry+0=jump(0,5) exit+4=merged(0,5)"},
	{"c_pop_ret", "entry+0=jump(0,9) call+4=merged(0,9) exit+10=padding(10,1+4)"},
	{"c_pop_tight", "entry+0=jump(0,9) call+4=merged(0,9) exit+10=short(9,2)"},
	{"c_pop_next", "entry+0=jump(0,8) exit+7=merged(0,8)"},
	{"c_previous", "entry+0=jump(0,6) exit+12=previous(8,5)"},
	{"c_across", "entry+0=jump(0,5) exit+10=across(5,6) exit+21=previous(17,5)"},
	{"c_two_rets", "entry+0=jump(0,5) exit+10=across(5,6) exit+14=previous+padding(11,4+1)"},
	{"c_ret_ret", "entry+0=jump(0,7) exit+12=previous(7,6) exit+13=edges/taken(0,7)"},
	{"c_rep_ret", "entry+0=jump(0,7) exit+5=merged(0,7)"},
	{"c_bnd_ret", "entry+0=jump(0,7) exit+5=merged(0,7)"},
	{"c_ret_8", "entry+0=jump(0,8) exit+5=merged(0,8)"},
	{"c_jcc_tail", "entry+0=jump(0,5) exit+7=retarget/taken(7,6) exit+18=previous(13,6)"},
	{"c_jcc_entry", "entry+0=jump(0,8) exit+2=merged/taken(0,8) exit+13=previous(8,6)"},
	{"c_jcc_short", "entry+0=jump(0,13) exit+7=merged/taken(0,13) exit+12=merged(0,13)"},
	{"c_jcc_short_to", "entry+0=jump(0,7) exit+6=merged(0,7)"},
	{"c_tail", "entry+0=jump(0,9) exit+9=retarget(9,5)"},
	{"c_wrapper", "entry+0=retarget(0,5) exit+0=merged(0,5)"},
	{"c_tail_short", "entry+0=jump(0,11) exit+9=merged(0,11)"},
	{"c_tail_short_to", "entry+0=jump(0,7) exit+6=merged(0,7)"},
	{"c_tail_memory", "entry+0=jump(0,9) exit+9=self(9,6)"},
	{"c_tail_register", "entry+0=jump(0,10) exit+8=merged(0,10)"},
	{"c_tail_field", "entry+0=jump(0,10) exit+7=merged(0,10)"},
	{"c_split", "entry+0=jump(0,5) exit+cold=previous(cold,7) exit+18=previous(14,5)"},
	{"c_noreturn", "entry+0=jump(0,5)"},
	{"d_direct",
	 "entry+0=jump(0,9) call+9=retarget(9,5) call+19=retarget(19,5) exit+28=previous(24,5)"},
	{"d_prefixed", "entry+0=jump(0,9) call+9=retarget(9,8) exit+21=previous(17,5)"},
	{"d_get_pc", "entry+0=jump(0,5) exit+16=previous(11,6)"},
	{"d_next", "entry+0=jump(0,9) call+9=retarget(9,5)"},
	{"d_next_to", "entry+0=jump(0,5) exit+9=previous(5,5)"},
	{"d_memory", "entry+0=jump(0,9) call+9=call(9,6) exit+19=previous(15,5)"},
	{"d_register",
	 "entry+0=jump(0,11) call+9=merged(0,11) call+19=previous(14,8) exit+26=previous(22,5)"},
	{"d_row",
	 "entry+0=jump(0,11) call+9=merged(0,11) call+11=short(11,2) exit+17=previous(13,5)"},
	{"d_field", "entry+0=jump(0,12) call+9=merged(0,12) exit+16=previous(12,5)"},
	{"d_stack",
	 "entry+0=jump(0,13) call+10=merged(0,13) call+18=previous(13,9) exit+26=previous(22,5)"},
	{"d_segment", "entry+0=jump(0,9) call+9=call(9,8) exit+21=previous(17,5)"},
	{"d_joined", "entry+0=jump(0,11) call+9=merged(0,11) exit+22=previous(18,5)"},
	{"f_table",
	 "entry+0=jump(0,5) exit+40=short(38,3) exit+46=previous(41,6) exit+52=previous(47,6)"},
	{"f_hoisted", "entry+0=jump(0,7) exit+173=previous+padding(171,3+2)"},
	{"f_in_text", "entry+0=jump(0,7) exit+35=padding(35,1+4)"},
	{"f_label_base", "entry+0=jump(0,7) exit+37=padding(37,1+4)"},
	{"f_computed", "entry+0=jump(0,7) exit+28=!undecoded"},
	{"f_many_places", "entry+0=jump(0,7) exit+1109=!unresolved exit+1912=!undecoded"},
	{"f_shifted", "entry+0=jump(0,7) exit+25=!undecoded"},
	{"f_goto", "entry+0=jump(0,7) exit+21=padding(21,1+4)"},
	{"f_handlers", "entry+0=jump(0,7) exit+11=previous(7,7)"},
	{"f_cold", "entry+0=jump(0,5) exit+21=padding(21,1+4)"},
	{"f_unknown", "entry+0=jump(0,5) exit+8=!undecoded"},
};

static const struct plan_case tactics_cases[] = {
	{"t_there", "entry+0=jump(0,10) call+13=retarget(13,5) exit+19=evicted(18,2>0+5)"},
	{"t_longer", "entry+0=jump(0,13) call+13=retarget(13,5) exit+19=evicted(18,2>0+5)"},
	{"t_two_holes",
	 "entry+0=jump(0,23) call+23=retarget(23,5) call+28=evicted(28,2>0+5) call+30=evicted(30,2>0+10) exit+33=evicted(32,2>0+15)"},
	{"t_fresh",
	 "entry+0=retarget(0,5) call+0=merged(0,5) call+5=evicted(5,2>7+5) call+19=retarget(19,5) call+24=short(24,2) exit+32=previous(26,7)"},
	{"t_next_door", "entry+0=evicted(0,3>12+5) exit+2=merged(0,3>12+5)"},
	{"t_door", "entry+0=jump(0,9) exit+26=across(21,6)"},
	{"t_behind_door", "entry+0=evicted(0,3>15+5) exit+2=merged(0,3>15+5)"},
	{"t_behind_next", "entry+0=jump(0,6) exit+5=merged(0,6)"},
	{"t_alone", "entry+0=evicted(0,3>cold+31) exit+2=merged(0,3>cold+31)"},
	{"t_ways_long", "entry+0=jump(0,6) exit+22=edges/taken(6,6) &exit+22=edges/taken(15,5)"},
	{"t_ways_table", "entry+0=jump(0,5) exit+29=!branch-target"},
	{"t_ways_foreign", "entry+0=jump(0,6) exit+11=!branch-target"},
	{"t_ways_stored", "entry+0=jump(0,6) exit+11=!branch-target"},
	{"t_ways_return", "entry+0=jump(0,6) call+8=retarget(8,5) exit+13=!branch-target"},
	{"t_loop_far",
	 "entry+0=bypass(0,7) &entry+0=bypass/bypass(cold,5) &entry+0=bypass/bypass(18,5) exit+17=across(13,5)"},
	{"t_loop_call",
	 "entry+0=bypass(0,6) &entry+0=bypass/bypass(15,5) call+10=retarget(10,5) exit+21=padding(21,1+4)"},
	{"t_loop_endbr", "entry+0=bypass(4,10) &entry+0=bypass/bypass(4,10) exit+13=merged(4,10)"},
	{"t_loop_table", "entry+0=!loop-entry exit+32=across(28,5)"},
};

static const struct plan_case fixed_cases[] = {
	{"x_table", "entry+0=jump(0,5) exit+27=short(25,3) exit+33=previous(28,6)"},
	{"x_load", "entry+0=jump(0,10) exit+23=padding(23,1+4)"},
	{"x_goto", "entry+0=jump(0,9) exit+20=padding(20,1+4)"},
	{"x_immediate", "entry+0=jump(0,5) exit+24=!undecoded"},
	{"x_moved", "entry+0=jump(0,5) exit+11=previous(7,5) exit+21=padding(21,1+4)"},
	{"x_wide", "entry+0=jump(0,5) exit+11=previous(7,5) exit+21=padding(21,1+4)"},
	{"x_stored", "entry+0=jump(0,5) exit+11=previous(7,5) exit+21=padding(21,1+4)"},
	{"x_pushed", "entry+0=jump(0,5) exit+11=previous(7,5) exit+21=padding(21,1+4)"},
	{"x_added", "entry+0=jump(0,5) exit+11=previous(7,5) exit+21=padding(21,1+4)"},
	{"x_based", "entry+0=jump(0,5) exit+11=previous(7,5) exit+21=padding(21,1+4)"},
	{"x_signed", "entry+0=jump(0,5) exit+11=previous(7,5) exit+21=padding(21,1+4)"},
	{"x_record", "entry+0=jump(0,5) exit+11=previous(7,5) exit+21=padding(21,1+4)"},
	{"x_unlike", "entry+0=jump(0,5) exit+11=previous(7,5) exit+21=previous(16,6)"},
	{"x_not", "entry+0=jump(0,5) exit+11=previous(7,5) exit+21=previous(16,6)"},
	{"x_number", "entry+0=jump(0,8) exit+7=merged(0,8)"},
};

static const struct plan_case absolute_cases[] = {
	{"x_read_plain", "entry+0=!no-room exit+0=!no-room"},
	{"x_read_indexed", "entry+0=!no-room exit+0=!no-room"},
	{"x_read_based", "entry+0=!no-room exit+0=!no-room"},
	{"x_read_both", "entry+0=!no-room exit+0=!no-room"},
	{"x_read_wide", "entry+0=!no-room exit+0=!no-room"},
	{"x_read_never", "entry+0=padding(0,1+4) exit+0=merged(0,1+4)"},
};

static const struct plan_case go_cases[] = {
	{"g_two", "entry+0=!no-room exit+5=padding(5,1+4)"},
	{"g_one", "entry+0=jump(0,5) exit+5=padding(5,1+4)"},
	{"g_hole", "entry+0=!no-room exit+4=padding(4,1+4)"},
	{"g_tight", "entry+0=!no-room exit+2=!no-room"},
	{"g_tight_next", "entry+0=jump(0,5) exit+5=padding(5,1+4)"},
	{"g_nil", "entry+0=!unmovable exit+5=padding(5,1+4)"},
	{"g_stack", "entry+0=jump(0,6) exit+6=edges/falls(0,6)"},
};

static struct image *open_target(const char *name)
{
	const char *build = getenv("DINST_BUILD");
	struct dinst_error e = {0};
	struct image *img = NULL;
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/tests/live/targets/%s", build ? build : "build", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	if (image_open(fd, path, NULL, &img, &e) < 0)
		fail_msg("%s: %s", path, e.text);
	close(fd);
	return img;
}

static long function_named(const struct image *img, const char *name)
{
	const struct image_function *functions;
	size_t n = image_functions(img, &functions);

	for (size_t i = 0; i < n; i++)
		if (strcmp(functions[i].name, name) == 0)
			return (long)i;
	return -1;
}

static void add(char *text, size_t size, const char *format, ...)
{
	size_t used = strlen(text);
	va_list args;

	va_start(args, format);
	vsnprintf(text + used, size - used, format, args);
	va_end(args);
}

static void add_offset(char *text, size_t size, const struct image_function *fn, vaddr_t v)
{
	if (v >= fn->address && v - fn->address < 4096)
		add(text, size, "%llu", (unsigned long long)(v - fn->address));
	else
		add(text, size, "cold");
}

static const char *const place_names[] = {
	[PLACE_BEFORE] = "",
	[PLACE_TAKEN] = "/taken",
	[PLACE_FALLS] = "/falls",
	[PLACE_BYPASS] = "/bypass",
};

static void describe(const struct image_function *fn, const struct function_plan *plan, char *text,
		     size_t size)
{
	text[0] = '\0';
	for (size_t i = 0; i < plan->point_count; i++) {
		const struct point *p = &plan->points[i];
		const struct window *w;

		add(text, size, "%s%s%s+", i ? " " : "", p->part ? "&" : "",
		    point_kind_name(p->kind));
		add_offset(text, size, fn, p->address);
		if (p->window < 0) {
			add(text, size, "=!%s", refusal_name(p->refusal));
			continue;
		}
		w = &plan->windows[p->window];
		add(text, size, "=%s%s(", tactic_name(p->tactic), place_names[p->place]);
		add_offset(text, size, fn, w->start);
		add(text, size, ",%u", w->length);
		if (w->padding)
			add(text, size, "+%u", w->padding);
		if (w->host >= 0) {
			add(text, size, ">");
			add_offset(text, size, fn, plan->windows[w->host].start);
			add(text, size, "+%u", (unsigned)(w->hole - plan->windows[w->host].start));
		}
		add(text, size, ")");
	}
}

static void check_cases(struct image *img, const struct plan_case *c, size_t n)
{
	const struct image_function *functions;
	unsigned wrong = 0;

	image_functions(img, &functions);
	for (size_t i = 0; i < n; i++) {
		struct dinst_error e = {0};
		struct function_plan *plan = NULL;
		long at = function_named(img, c[i].function);
		char text[2048];

		if (at < 0) {
			print_error("%s: no such function\n", c[i].function);
			wrong++;
			continue;
		}
		if (plan_function(img, (uint32_t)at, &plan, &e) < 0)
			fail_msg("%s: %s", c[i].function, e.text);
		describe(&functions[at], plan, text, sizeof(text));
		if (strcmp(text, c[i].points) != 0) {
			print_error("%s:\n   is %s\n  not %s\n", c[i].function, text, c[i].points);
			wrong++;
		}
		plan_free(img, plan);
	}
	image_close(img);
	assert_int_equal(wrong, 0);
}

static void test_layout(void **state)
{
	struct image *img = open_target("points-layout");

	(void)state;
	assert_non_null(img);
	check_cases(img, layout_cases, sizeof(layout_cases) / sizeof(*layout_cases));
}

static void test_flow(void **state)
{
	struct image *img = open_target("points-flow");

	(void)state;
	assert_non_null(img);
	check_cases(img, flow_cases, sizeof(flow_cases) / sizeof(*flow_cases));
}

/* fear C5: short functions, one by one */
static void test_tactics(void **state)
{
	struct image *img = open_target("points-tactics");

	(void)state;
	assert_non_null(img);
	check_cases(img, tactics_cases, sizeof(tactics_cases) / sizeof(*tactics_cases));
}

/* fear C3: where addresses are fixed, those in constants of other functions, and what only looks so */
static void test_fixed(void **state)
{
	struct image *img = open_target("points-fixed");

	(void)state;
	assert_non_null(img);
	assert_true(image_is_fixed(img));
	check_cases(img, fixed_cases, sizeof(fixed_cases) / sizeof(*fixed_cases));
}

/* fear C3: constants that look like padding, read by their whole addresses */
static void test_absolute(void **state)
{
	struct image *img = open_target("points-absolute");

	(void)state;
	assert_non_null(img);
	assert_true(image_is_fixed(img));
	check_cases(img, absolute_cases, sizeof(absolute_cases) / sizeof(*absolute_cases));
}

static void test_go(void **state)
{
	struct image *img = open_target("points-go");

	(void)state;
	assert_non_null(img);
	assert_true(image_is_go(img));
	check_cases(img, go_cases, sizeof(go_cases) / sizeof(*go_cases));
}

/* Whatever language it is of: what may fault is not moved. */
static void test_managed(void **state)
{
	static const struct plan_case cases[] = {
		{"n_null", "entry+0=!unmovable exit+5=padding(5,1+4)"},
		{"n_stack", "entry+0=jump(0,7) exit+6=merged(0,7)"},
		{"n_calls",
		 "entry+0=jump(0,10) call+8=merged(0,10) call+14=!unmovable exit+18=evicted(17,2>0+5)"},
		{"n_divides", "entry+0=jump(0,5) exit+8=padding(8,1+4)"},
	};
	struct image *img = open_target("points-managed");

	(void)state;
	assert_non_null(img);
	assert_false(image_is_go(img));
	assert_true(image_turns_faults(img));
	check_cases(img, cases, sizeof(cases) / sizeof(*cases));
}

static bool same_plan(const struct function_plan *a, const struct function_plan *b)
{
	if (a->point_count != b->point_count || a->window_count != b->window_count)
		return false;
	for (size_t i = 0; i < a->point_count; i++)
		if (a->points[i].window != b->points[i].window ||
		    a->points[i].tactic != b->points[i].tactic ||
		    a->points[i].refusal != b->points[i].refusal ||
		    a->points[i].insn != b->points[i].insn ||
		    a->points[i].place != b->points[i].place)
			return false;
	for (size_t i = 0; i < a->window_count; i++)
		if (a->windows[i].start != b->windows[i].start ||
		    a->windows[i].length != b->windows[i].length ||
		    a->windows[i].kind != b->windows[i].kind ||
		    a->windows[i].hole != b->windows[i].hole ||
		    a->windows[i].host != b->windows[i].host)
			return false;
	return true;
}

/* A plan depends on the image, not on what was planned before it. */
static void test_order_does_not_matter(void **state)
{
	struct image *forwards = open_target("points-tactics");
	struct image *backwards = open_target("points-tactics");
	const struct image_function *functions;
	struct function_plan **plans;
	struct dinst_error e = {0};
	size_t n;

	(void)state;
	assert_non_null(forwards);
	assert_non_null(backwards);
	n = image_functions(forwards, &functions);
	plans = calloc(n, sizeof(*plans));
	assert_non_null(plans);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(plan_function(forwards, (uint32_t)i, &plans[i], &e), 0);
	for (size_t i = n; i-- > 0;) {
		struct function_plan *plan = NULL, *again = NULL;

		assert_int_equal(plan_function(backwards, (uint32_t)i, &plan, &e), 0);
		assert_int_equal(plan_function(backwards, (uint32_t)i, &again, &e), 0);
		if (!same_plan(plans[i], plan) || !same_plan(plan, again))
			fail_msg("%s has two plans", functions[i].name);
		plan_free(backwards, plan);
		plan_free(backwards, again);
		plan_free(forwards, plans[i]);
	}
	free(plans);
	image_close(forwards);
	image_close(backwards);
}

/* Slots know more than that everything is live. */
static void test_liveness(void **state)
{
	struct image *img = open_target("points-layout");
	struct function_plan *plan = NULL;
	struct dinst_error e = {0};

	(void)state;
	assert_non_null(img);
	assert_int_equal(plan_function(img, (uint32_t)function_named(img, "a_alias"), &plan, &e),
			 0);
	assert_true(plan->point_count >= 1);
	assert_true(plan->points[0].live != arch_all_live);
	plan_free(img, plan);
	image_close(img);
}

/* What is live at the function's first point of that kind. */
static arch_regset live_at(struct image *img, const char *function, enum point_kind kind)
{
	struct function_plan *plan = NULL;
	struct dinst_error e = {0};
	arch_regset live = 0;

	assert_int_equal(plan_function(img, (uint32_t)function_named(img, function), &plan, &e), 0);
	for (size_t i = plan->point_count; i-- > 0;)
		if (plan->points[i].kind == kind)
			live = plan->points[i].live;
	plan_free(img, plan);
	return live;
}

/*
 * fear D3: what is dead is proved by the code that comes, in another function as well; an argument is live
 * at its beginning whatever that does, and what a handler finds where an access raises an exception
 */
static void test_liveness_elsewhere(void **state)
{
	enum { RAX = 1 << 0, RBX = 1 << 3, RDI = 1 << 7, R10 = 1 << 10, R11 = 1 << 11 };
	const arch_regset flags = arch_entry_scratch & ~(arch_regset)(RAX | R10 | R11);
	struct image *img = open_target("points-tactics");

	(void)state;
	assert_non_null(img);
	assert_true(flags != 0);
	/* At its own beginning it is its own affair. */
	assert_int_equal(live_at(img, "l_callee", POINT_ENTRY) & (flags | RAX | RDI | R10 | R11),
			 R11);
	assert_int_equal(live_at(img, "l_tail", POINT_EXIT), arch_all_live & ~(flags | RAX | R10));
	assert_int_equal(live_at(img, "l_taken", POINT_EXIT), arch_all_live & ~(flags | RAX | R10));
	/* Its own instructions read rax first. */
	assert_int_equal(live_at(img, "l_call", POINT_ENTRY), arch_all_live & ~(flags | R10));
	assert_int_equal(live_at(img, "l_unknown", POINT_ENTRY), arch_all_live);
	assert_true(live_at(img, "l_raise", POINT_ENTRY) & RBX);
	image_close(img);
}

/* fear F3: linker stubs are listed and refused; fragments have their points in their function's plan */
static void test_stubs_and_fragments(void **state)
{
	struct image *img = open_target("points-flow");
	const struct image_function *functions;
	unsigned stubs = 0, fragments = 0;
	size_t n;

	(void)state;
	assert_non_null(img);
	n = image_functions(img, &functions);
	for (size_t i = 0; i < n; i++) {
		struct function_plan *plan = NULL;
		struct dinst_error e = {0};

		assert_int_equal(plan_function(img, (uint32_t)i, &plan, &e), 0);
		if (functions[i].flags & FUNCTION_COLD) {
			fragments++;
			assert_int_equal(plan->point_count, 0);
		} else {
			assert_true(plan->point_count >= 1);
			assert_int_equal(plan->points[0].kind, POINT_ENTRY);
		}
		if (functions[i].flags & FUNCTION_STUB) {
			stubs++;
			assert_int_equal(plan->window_count, 0);
			for (size_t k = 0; k < plan->point_count; k++)
				assert_int_equal(plan->points[k].refusal, REFUSAL_STUB);
		}
		plan_free(img, plan);
	}
	assert_true(stubs > 0);
	assert_int_equal(fragments, 2);
	image_close(img);
}

static void test_no_such_function(void **state)
{
	struct image *img = open_target("points-flow");
	struct function_plan *plan = NULL;
	struct dinst_error e = {0};

	(void)state;
	assert_non_null(img);
	assert_true(plan_function(img, 1000000, &plan, &e) < 0);
	assert_null(plan);
	assert_true(e.code != 0 && e.text[0]);
	image_close(img);
}

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(tactic_name(TACTIC_BOTH), "previous+padding");
	assert_string_equal(refusal_name(REFUSAL_UNMAPPED), "unmapped");
	assert_string_equal(refusal_name((enum refusal)1000), "unknown");
	assert_string_equal(point_kind_name(POINT_CALL), "call");
	for (int i = 0; i < REFUSAL_COUNT; i++)
		assert_string_not_equal(refusal_text((enum refusal)i), "unknown reason");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_flow),
		cmocka_unit_test(test_tactics),
		cmocka_unit_test(test_fixed),
		cmocka_unit_test(test_absolute),
		cmocka_unit_test(test_go),
		cmocka_unit_test(test_managed),
		cmocka_unit_test(test_order_does_not_matter),
		cmocka_unit_test(test_stubs_and_fragments),
		cmocka_unit_test(test_no_such_function),
		cmocka_unit_test(test_liveness),
		cmocka_unit_test(test_liveness_elsewhere),
	};

	return cmocka_run_group_tests_name("points: plans", tests, NULL, NULL);
}
