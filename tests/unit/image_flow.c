/* SPDX-License-Identifier: MIT */
/*
 * image_flow.c - what the analysis finds out about control flow: branches told
 * from chance, jump tables, data in code, calls that do not come back. The
 * functions are those of tests/live/targets/image-flow.S, image-parts.S, image-jumps.S and image-fixed.S.
 */
#include "tests/unit/image_flow.h"

static int open_target(void **state)
{
	(void)state;
	return open_named("image-flow");
}

/* ------------------------------------------------------- chance and truth */

/* fear C3: branches into the middle of other functions, told from chance */
static void test_hits(void **state)
{
	vaddr_t victim = start_of("h_victim") + 2;
	size_t first;

	(void)state;
	assert_int_equal(image_hits_into(img, victim, victim + 1, &first), 1);
	assert_int_equal(image_hit(img, first)->from, start_of("h_chance") + 2);
	assert_true(image_references_at(img, victim) & REFERENCE_BRANCH);
	assert_false(marks_of("h_victim", 2) & MARK_TARGET);
	assert_int_equal(image_hit_state(img, first), HIT_CHANCE);
	assert_false(image_references_at(img, victim) & REFERENCE_BRANCH);
	assert_true(marks_of("h_target", 2) & MARK_TARGET);
	assert_true(marks_of("h_target", 2) & MARK_FOREIGN);
	assert_true(marks_of("h_entered", 2) & MARK_TARGET);
	assert_true(marks_of("h_doubted", 2) & MARK_TARGET);
	assert_true(is_unresolved("h_doubts"));
	/* What branches where it branches is nobody else's business. */
	assert_true(marks_of("h_overlaps", 2) & MARK_CONFLICT);
	assert_int_equal(image_hits_from(img, 0, 1, &(const uint32_t *){NULL}), 0);
}

/* ------------------------------------------------------------- jump tables */

/* How many instructions a table leads to, and whether all of them are blocks of one mov. */
static size_t table_heads(const char *name)
{
	struct flow f = build(name);
	size_t n = 0;

	assert_false(f.unresolved);
	for (size_t i = 0; i < f.insns.count; i++) {
		vaddr_t v = f.insns.items[i].address;

		if (!(flow_marks(&f, v) & MARK_TABLE))
			continue;
		n++;
		assert_true(flow_marks(&f, v) & MARK_REACHED);
		assert_false(flow_marks(&f, v) & MARK_CONFLICT);
		assert_true(f.insns.items[i].length == 5 || f.insns.items[i].length == 7);
	}
	flow_release(&f);
	return n;
}

/* fear C4: jump tables in all the forms that compilers and people write */
static void test_tables(void **state)
{
	(void)state;
	assert_int_equal(table_heads("t_first"), 2);
	assert_int_equal(table_heads("t_second"), 2);
	assert_int_equal(table_heads("t_hoisted"), 4);
	/* What is behind an address inside the table is read, too. */
	assert_int_equal(table_heads("t_cut"), 4);
	assert_false(is_unresolved("t_whole"));
}

/* fear C4: tables of a width that is not read, beside one that is: nothing is taken for known */
static void test_odd_tables(void **state)
{
	static const char *const names[] = {"t_bytes", "t_words", "t_quads", "t_added", "t_chosen"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!is_unresolved(names[i]))
			fail_msg("%s: all jumps are taken for known", names[i]);
}

/* How many bytes of the padding in the function are taken for dead. */
static size_t dead_bytes(const char *name)
{
	struct flow f = build(name);
	struct dinst_error e = {0};
	struct windows w;
	size_t n = 0;

	assert_int_equal(windows_init(&w, &f, &e), 0);
	for (size_t i = 0; i < f.byte_count; i++)
		n += is_dead(&w, start_of(name) + i);
	windows_release(&w);
	flow_release(&f);
	return n;
}

/* fear A5: what is behind a breakpoint or an undefined instruction may be executed, by whom handles the trap */
static void test_traps(void **state)
{
	(void)state;
	assert_int_equal(dead_bytes("p_breakpoint"), 11);
	assert_int_equal(dead_bytes("p_undefined"), 10);
	assert_true(marks_of("p_breakpoint", 5) & MARK_REACHED);
}

/* fear C2: with -fsplit-stack a call comes back behind the return that follows it, be there padding */
static void test_split_stack(void **state)
{
	(void)state;
	assert_int_equal(dead_bytes("p_split"), 0);
	assert_true(marks_of("p_split", 29) & MARK_RETURN);
	assert_true(marks_of("p_split", 29) & MARK_REACHED);
	assert_int_equal(dead_bytes("p_not_split"), 10);
}

static void test_rows(void **state)
{
	struct flow f = build("t_row");
	vaddr_t start = start_of("t_row");
	size_t n = 0;

	(void)state;
	assert_false(f.unresolved);
	for (size_t i = 0; i < f.insns.count; i++) {
		vaddr_t v = f.insns.items[i].address;

		if (!(flow_marks(&f, v) & MARK_TABLE))
			continue;
		assert_int_equal((v - start) % 16, 0);
		n += f.insns.items[i].length == 2;
	}
	assert_true(n >= 2);
	flow_release(&f);
	assert_true(marks_of("t_row_of_threes", 32) & MARK_TABLE);
	assert_true(marks_of("t_row_of_threes", 48) & MARK_TABLE);
	assert_true(is_unresolved("t_row_of_any"));
}

static size_t jump_targets(const char *name, unsigned nth, size_t *jumps)
{
	struct dinst_error e = {0};
	struct flow f = build(name);
	size_t count = 0, n = 0;

	for (size_t i = 0; i < f.insns.count; i++) {
		uint64_t left = UINT64_MAX;
		vaddr_t *targets;
		size_t here;

		if (f.insns.items[i].flow != ARCH_FLOW_JUMP_INDIRECT)
			continue;
		assert_int_equal(flow_jump_targets(&f, i, &targets, &here, &left, &e), 0);
		for (size_t k = 1; k < here; k++)
			assert_true(targets[k - 1] < targets[k]);
		if (n++ == nth)
			count = here;
		free(targets);
	}
	*jumps = n;
	flow_release(&f);
	return count;
}

static void test_jump_targets(void **state)
{
	size_t jumps;

	(void)state;
	assert_int_equal(jump_targets("t_first", 0, &jumps), 2);
	assert_int_equal(jumps, 1);
	assert_int_equal(jump_targets("t_hoisted", 0, &jumps), 2);
	assert_int_equal(jump_targets("t_hoisted", 1, &jumps), 2);
	assert_int_equal(jumps, 2);
	assert_int_equal(jump_targets("t_cut", 0, &jumps), 4);
	assert_int_equal(jump_targets("t_whole", 0, &jumps), 2);
	assert_int_equal(jump_targets("t_tail", 0, &jumps), 0);
}

static size_t exits_of(const char *name)
{
	struct flow f = build(name);
	size_t n = 0;

	for (size_t i = 0; i < f.insns.count; i++)
		if (flow_marks(&f, f.insns.items[i].address) & MARK_REACHED)
			n += flow_is_exit(&f, i);
	flow_release(&f);
	return n;
}

/* Of a function of which all jumps are known. */
static size_t known_exits_of(const char *name)
{
	assert_false(is_unresolved(name));
	return exits_of(name);
}

/* fear E5: tail jumps are exits */
static void test_tail_jumps(void **state)
{
	(void)state;
	assert_int_equal(known_exits_of("t_tail"), 2);
	assert_int_equal(known_exits_of("t_tail_notrack"), 1);
	assert_int_equal(known_exits_of("t_first"), 3);
	assert_int_equal(known_exits_of("t_whole"), 2);
	assert_int_equal(known_exits_of("f_into"), 1);
}

/* -------------------------------------------------------------------- data */

/* fear F7: data between instructions is never patched */
static void test_data(void **state)
{
	struct flow f = build("d_string");
	size_t sure = 0;

	(void)state;
	/* lea, add, jmp; what is behind the string may or may not be in step with it. */
	for (size_t i = 0; i < f.insns.count; i++) {
		unsigned marks = flow_marks(&f, f.insns.items[i].address);

		sure += (marks & (MARK_REACHED | MARK_CONFLICT)) == MARK_REACHED;
	}
	assert_in_range(sure, 3, 5);
	flow_release(&f);
	f = build("d_table");
	for (unsigned i = 0; i < 8; i++) {
		vaddr_t v = start_of("d_table") + 19 + i;
		long at = flow_covering(&f, v);
		unsigned head = at < 0 ? 0 : flow_marks(&f, f.insns.items[at].address);

		assert_true(!(head & MARK_REACHED) || flow_marks(&f, v) & MARK_CONFLICT);
	}
	flow_release(&f);
	assert_true(marks_of("d_unknown", 5) & MARK_TARGET);
}

static void test_between(void **state)
{
	(void)state;
	assert_false(marks_of("d_behind", 2) & MARK_TARGET);
	assert_true(marks_of("d_called_behind", 2) & MARK_TARGET);
}

/* fear C3: code that stands behind the end of its function, and is reached by short jumps alone, jumps back */
static void test_outside(void **state)
{
	(void)state;
	assert_true(marks_of("g_work", 7) & MARK_TARGET);
	assert_true(marks_of("g_unknown", 5) & MARK_TARGET);
	assert_true(marks_of("g_known", 5) & MARK_TARGET);
	assert_true(marks_of("g_again", 5) & MARK_TARGET);
	assert_true(marks_of("g_falls", 5) & MARK_TARGET);
	assert_true(marks_of("g_behind", 2) & MARK_TARGET);
	assert_true(marks_of("g_inner", 2) & MARK_TARGET);
	assert_true(marks_of("g_next", 2) & MARK_TARGET);
	/* Nothing runs from the one into the other. */
	assert_false(marks_of("g_next", 0) & MARK_FOREIGN);
	/* What is its own is not taken for a stranger's. */
	assert_false(marks_of("g_outer", 32) & MARK_FOREIGN);
	assert_true(marks_of("g_outer", 32) & MARK_LOOP);
}

/* ------------------------------------------------- calls that do not return */

static void check_calls(const char *name, const bool *never, size_t count)
{
	struct flow f = build(name);
	size_t n = 0;

	for (size_t i = 0; i < f.insns.count; i++) {
		uint8_t flow = f.insns.items[i].flow;

		if (flow != ARCH_FLOW_CALL && flow != ARCH_FLOW_CALL_INDIRECT)
			continue;
		assert_true(n < count);
		if (flow_is_noreturn(&f, i) != never[n])
			fail_msg("%s: call %zu: not %d", name, n, never[n]);
		n++;
	}
	assert_int_equal(n, count);
	flow_release(&f);
}

/*
 * fear F1: calls that never return, proved or known by name, end a function; err() and its like are
 * no names that a library may not have for what does return
 */
static void test_noreturn(void **state)
{
	static const bool never[] = {true,  true,  true,  true,	 true,	true,
				     false, false, false, false, false, false};
	static const bool library[] = {true, true, true, false, false, false};

	(void)state;
	check_calls("n_calls", never, sizeof(never) / sizeof(*never));
	check_calls("n_library", library, sizeof(library) / sizeof(*library));
}

/* fear F1: a library's function that never returns is another one, that does, where the program has one of its name */
static void test_preempted(void **state)
{
	static const bool never[] = {false, false, true};
	struct flow f = build("h_calls");
	size_t n = 0;

	(void)state;
	for (size_t i = 0; i < f.insns.count; i++) {
		const struct arch_insn *insn = &f.insns.items[i];

		if (insn->flow != ARCH_FLOW_CALL && insn->flow != ARCH_FLOW_CALL_INDIRECT)
			continue;
		assert_true(n < sizeof(never) / sizeof(*never));
		assert_int_equal(flow_is_noreturn(&f, i), never[n]);
		/* The padding behind it runs. */
		if (!never[n])
			assert_true(flow_marks(&f, insn->address + insn->length) & MARK_REACHED);
		n++;
	}
	assert_int_equal(n, sizeof(never) / sizeof(*never));
	flow_release(&f);
}

static bool any_falls_out(const char *name)
{
	struct flow f = build(name);
	bool any = false;

	for (size_t i = 0; i < f.insns.count; i++)
		any |= flow_falls_out(&f, i);
	flow_release(&f);
	return any;
}

/* fear F1: a function that runs into the next one */
static void test_falls_out(void **state)
{
	(void)state;
	assert_true(any_falls_out("f_runs_on"));
	assert_false(any_falls_out("f_next"));
	assert_false(any_falls_out("f_ends"));
	assert_false(any_falls_out("t_first"));
}

/* ------------------------------------------------------------------- parts */

/* The one function without a name that has `size` bytes. */
static const struct image_function *piece(uint64_t size)
{
	const struct image_function *functions, *found = NULL;
	size_t n = image_functions(img, &functions);

	for (size_t i = 0; i < n; i++) {
		if (!(functions[i].flags & FUNCTION_NO_SYMBOL) || functions[i].size != size)
			continue;
		assert_null(found);
		found = &functions[i];
	}
	assert_non_null(found);
	return found;
}

/* fear F2: cold parts without frames belong to who jumps to them */
static void test_parts(void **state)
{
	static const uint64_t parts[] = {33, 39, 50}, functions[] = {34, 35, 36, 37, 38, 40};
	struct flow f;

	(void)state;
	f = build("p_one");
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		assert_true(piece(parts[i])->flags & FUNCTION_COLD);
		assert_int_equal(piece(parts[i])->parent, find("p_one"));
		assert_true(flow_contains(&f, piece(parts[i])->address));
	}
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		assert_false(piece(functions[i])->flags & FUNCTION_COLD);
		assert_false(flow_contains(&f, piece(functions[i])->address));
	}
	flow_release(&f);
	assert_true(piece(41)->flags & FUNCTION_COLD);
	assert_int_equal(piece(41)->parent, find("p_far"));
}

/* fear F2: a part that is called is a function, with exits of its own; one that is jumped to is none */
static void test_called_parts(void **state)
{
	static const char *const jumped[] = {"p_split.cold.2", "p_split.cold.3"};
	uint32_t flags;

	(void)state;
	assert_true(image_name_flags(img, "p_split.cold.1", &flags));
	assert_false(flags & FUNCTION_COLD);
	assert_int_equal(exits_of("p_split.cold.1"), 1);
	for (size_t i = 0; i < sizeof(jumped) / sizeof(*jumped); i++) {
		assert_true(image_name_flags(img, jumped[i], &flags));
		assert_true(flags & FUNCTION_COLD);
	}
	/* Two of its own, and one of each part. */
	assert_int_equal(exits_of("p_split"), 4);
}

/* ------------------------------------------------ jumps of other kinds */

/* fear C4: tables of 64 bits, tables of label differences, jumps by returns and thunks: read, and known */
static void test_jumps_known(void **state)
{
	static const char *const names[] = {"t_large",	       "t_large_plain", "t_labels",
					    "t_spilled_known", "t_by_thunk",	"t_by_return",
					    "t_by_push",       "t_extended"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (table_heads(names[i]) != 2)
			fail_msg("%s: the table is not read", names[i]);
}

/* fear C4: a sum that was spilled, popped, kept over a call, one of two ways; offsets from anywhere */
static void test_jumps_unknown(void **state)
{
	static const char *const names[] = {"t_spilled",	 "t_popped",	   "t_called",
					    "t_joined",		 "t_translated",   "t_by_thunk_odd",
					    "t_by_return_odd",	 "t_by_push_odd",  "t_own_address",
					    "t_own_changed",	 "t_chosen_apart", "t_odd",
					    "t_scaled",		 "t_negated",	   "t_shifted",
					    "t_subtracted",	 "t_moved_on",	   "t_inverted",
					    "t_changed_by_a_way"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!is_unresolved(names[i]))
			fail_msg("%s: all jumps are taken for known", names[i]);
	/* Where they are not, what nobody is seen to come to may be data as well as code. */
	assert_true(marks_of("t_odd", 16) & MARK_CONFLICT);
}

/* fear E5: a jump by a table, and a call, is no exit, in whatever guise; a tail jump is one */
static void test_jumps_exits(void **state)
{
	(void)state;
	assert_int_equal(known_exits_of("t_large"), 2);
	assert_int_equal(exits_of("t_spilled"), 1);
	assert_int_equal(exits_of("t_popped"), 1);
	assert_int_equal(known_exits_of("t_by_thunk"), 2);
	assert_int_equal(known_exits_of("t_by_return"), 2);
	assert_int_equal(known_exits_of("t_tail_by_thunk"), 2);
	assert_int_equal(known_exits_of("t_call_by_thunk"), 1);
	assert_int_equal(known_exits_of("t_call_and_jump"), 2);
}

/* fear C4: jumps into a row of instructions whose address is an operand, where addresses are fixed */
static void test_jumps_fixed(void **state)
{
	(void)state;
	assert_true(is_unresolved("x_row"));
	assert_true(is_unresolved("x_row_added"));
	assert_true(is_unresolved("x_row_beside"));
	assert_false(is_unresolved("x_label"));
}

/*
 * fear E5: where addresses are fixed, a function with a switch ends by tail jumps; an interpreter, whose
 * table is used for more than a switch's is, does not
 */
static void test_exits_fixed(void **state)
{
	static const char *const threaded[] = {"x_threaded", "x_threaded_base", "x_threaded_once"};
	size_t jumps;

	(void)state;
	assert_int_equal(known_exits_of("x_tail"), 3);
	assert_int_equal(jump_targets("x_tail", 0, &jumps), 3);
	assert_int_equal(jump_targets("x_tail", 1, &jumps), 0);
	assert_int_equal(jump_targets("x_tail", 2, &jumps), 0);
	assert_int_equal(jumps, 3);
	assert_int_equal(known_exits_of("x_tail_load"), 2);
	assert_int_equal(jump_targets("x_tail_load", 0, &jumps), 3);
	assert_int_equal(jump_targets("x_tail_load", 1, &jumps), 0);
	for (size_t i = 0; i < sizeof(threaded) / sizeof(*threaded); i++)
		if (exits_of(threaded[i]) != 1)
			fail_msg("%s: it is left by a jump", threaded[i]);
	assert_int_equal(known_exits_of("x_handlers"), 1);
	assert_int_equal(exits_of("x_beside"), 3);
	assert_int_equal(exits_of("x_beside_load"), 3);
}

/* fear E5: where a switch's table has ended, as what was compared says, a tail call beside it is an exit; else not */
static void test_bounds_fixed(void **state)
{
	static const char *const unbounded[] = {"x_beside_other",  "x_beside_changed",
						"x_beside_flags",  "x_beside_fewer",
						"x_beside_call",   "x_beside_joined",
						"x_called_other",  "x_called_changed",
						"x_called_unasked"};

	(void)state;
	assert_int_equal(leaving("x_bound"), 1);
	assert_int_equal(leaving("x_bound_twice"), 1);
	assert_int_equal(leaving("x_bound_all"), 1);
	assert_int_equal(leaving("x_called"), 1);
	for (size_t i = 0; i < sizeof(unbounded) / sizeof(*unbounded); i++)
		if (leaving(unbounded[i]))
			fail_msg("%s: it is left by a jump", unbounded[i]);
}

/* fear C4: where the function ends nothing is behind what loads an entry: `make valgrind` sees who reads on */
static void test_last_loads_entry(void **state)
{
	(void)state;
	assert_int_equal(exits_of("x_last"), 1);
}

/* fear C3: where addresses are fixed, labels of code that is found late, or not at all */
static void test_labels_late(void **state)
{
	(void)state;
	assert_true(marks_of("x_behind", 32) & MARK_REACHED);
	assert_true(marks_of("x_behind", 43) & MARK_TARGET);
	assert_true(marks_of("x_pushed", 2) & MARK_TARGET);
	assert_true(marks_of("x_tabled", 2) & MARK_TARGET);
}

static int open_parts(void **state)
{
	(void)state;
	return open_named("image-parts");
}

static int open_hooks(void **state)
{
	(void)state;
	return open_named("libhooks.so");
}

static int open_jumps(void **state)
{
	(void)state;
	return open_named("image-jumps");
}

static int open_fixed(void **state)
{
	(void)state;
	return open_named("image-fixed");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hits),	    cmocka_unit_test(test_tables),
		cmocka_unit_test(test_rows),	    cmocka_unit_test(test_jump_targets),
		cmocka_unit_test(test_tail_jumps),  cmocka_unit_test(test_data),
		cmocka_unit_test(test_split_stack), cmocka_unit_test(test_between),
		cmocka_unit_test(test_outside),	    cmocka_unit_test(test_noreturn),
		cmocka_unit_test(test_falls_out),   cmocka_unit_test(test_odd_tables),
		cmocka_unit_test(test_traps),
	};
	const struct CMUnitTest parts[] = {cmocka_unit_test(test_parts),
					   cmocka_unit_test(test_called_parts)};
	const struct CMUnitTest hooks[] = {cmocka_unit_test(test_preempted)};
	const struct CMUnitTest jumps[] = {
		cmocka_unit_test(test_jumps_known),
		cmocka_unit_test(test_jumps_unknown),
		cmocka_unit_test(test_jumps_exits),
	};
	const struct CMUnitTest fixed[] = {cmocka_unit_test(test_jumps_fixed),
					   cmocka_unit_test(test_exits_fixed),
					   cmocka_unit_test(test_bounds_fixed),
					   cmocka_unit_test(test_last_loads_entry),
					   cmocka_unit_test(test_labels_late)};
	int failed;

	failed = cmocka_run_group_tests_name("image: flow", tests, open_target, close_target);
	failed += cmocka_run_group_tests_name("image: parts", parts, open_parts, close_target);
	failed += cmocka_run_group_tests_name("image: hooks", hooks, open_hooks, close_target);
	failed += cmocka_run_group_tests_name("image: jumps", jumps, open_jumps, close_target);
	failed += cmocka_run_group_tests_name("image: fixed", fixed, open_fixed, close_target);
	return failed;
}
