/* SPDX-License-Identifier: MIT */
/*
 * torture_list.c - the corner cases of patching code, item by item, and what
 * covers each: cases of the tortured target (t_...), cases of other tests
 * (FILE:FUNCTION), or the reason why there is none.
 *
 * What is named here must exist; and every case of the target must be named.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/live/asm/driver.h"
#include "tests/live/harness.h"

struct item {
	const char *item;
	const char *covered; /* words: t_NAME, t_GLOB* of one letter, or FILE:FUNCTION */
	const char *reason;  /* what is not covered, and why */
};

static const struct item items[] = {
	/* A. Layout */
	{"function of one byte",
	 "t_a_ret t_a_ret_tight t_a_ret_tight_next t_a_ret_between t_a_ret_row t_a_ret_row_last",
	 NULL},
	{"xor; ret before nops", "t_a_xor_ret", NULL},
	{"xor; ret before another function",
	 "t_a_xor_ret_tight t_a_xor_ret_next t_a_four_bytes t_a_five_bytes t_a_six_bytes", NULL},
	{"function that ends in a call",
	 "t_a_noreturn t_a_noreturn_next t_a_noreturn_only t_a_noreturn_only_next", NULL},
	{"fewer than five bytes at the end of a section or page",
	 "t_a_section_end t_a_page_end t_a_page_begin", NULL},
	{"window across a page and a line",
	 "t_a_cross_page t_a_cross_insn t_a_cross_exit t_a_cross_line "
	 "tests/live/windows.c:test_across_pages",
	 NULL},
	{"endbr64 and one byte", "t_a_endbr_ret t_a_endbr_tight t_a_endbr_next", NULL},
	{"called behind its endbr64", "t_a_endbr_skipped", NULL},
	{"adjacent functions of four bytes", "t_a_four_first t_a_four_second t_a_four_behind",
	 NULL},
	{"block of four bytes that ends in a jump to what follows",
	 "t_a_jmp_zero t_a_jmp_zero_inside", NULL},
	{"two symbols on one address", "t_a_two_names", NULL},
	{"symbol without a size", "t_a_no_size", NULL},
	{"symbol within a function", "t_a_nest t_a_nested", NULL},
	{"data within a function", "t_a_data", NULL},
	{"zeros that are a table", "t_a_before_zeros t_a_ret_before_zeros t_a_behind_zeros", NULL},

	/* B. Entry */
	{"loop back to entry+1 .. 4", "t_b_back_1 t_b_back_2 t_b_back_3 t_b_back_4 t_b_back_each",
	 NULL},
	{"back edge to entry+0", "t_b_back_0 t_b_back_0_wide", NULL},
	{"branch in the window",
	 "t_b_jcc_inside t_b_jcc_outside t_b_jcc_first_far t_b_jcc_skip_ret", NULL},
	{"call as last instruction of the window",
	 "t_b_call_last t_b_call_first t_b_call_first_pointer t_b_call_behind_window "
	 "tests/live/windows.c:test_blocked_below_displaced_call",
	 NULL},
	{"operands relative to the pc",
	 "t_b_lea t_b_lea_code t_b_mov t_b_mov_byte t_b_mov_imm32 t_b_movups", NULL},
	{"... with immediates of 8, 16 and 32 bits", "t_b_cmp_imm8 t_b_cmp_imm16 t_b_cmp_imm32",
	 NULL},
	{"... of vmovdqu and EVEX", "t_b_vmovdqu t_b_evex", NULL},
	{"jump at once", "t_b_jmp_forward t_b_jmp_backward t_b_jmp_backward_own", NULL},
	{"recursion", "t_b_recursion t_b_even t_b_odd", NULL},
	{"stack pointer in the window", "t_b_stack t_b_enter", NULL},
	{"entered behind the first instruction", "t_b_fall_in t_b_fall_in_from t_b_fall_in_call",
	 NULL},

	/* C. Exit */
	{"ret is the target of a branch before it",
	 "t_c_target_ret t_c_target_tight t_c_target_next", NULL},
	{"pop; ret behind a call", "t_c_pop_ret t_c_ret_behind_call t_c_behind_tight", NULL},
	{"two rets one byte apart", "t_c_ret_ret t_c_ret_ret_ret t_c_after_rets", NULL},
	{"shared epilogue", "t_c_shared", NULL},
	{"ret in the cold part", "t_c_cold t_c_cold_leaf", NULL},
	{"repz ret, bnd ret, ret 8",
	 "t_c_rep_ret t_c_bnd_ret t_c_ret_8 t_c_ret_8_target t_c_ret_40", NULL},
	{"branch to a ret in another block", "t_c_jcc_ret t_c_block_ret", NULL},
	{"tail call rel32", "t_c_tail_rel32 t_c_tail_only", NULL},
	{"tail call rel8", "t_c_tail_rel8 t_c_tail_rel8_only t_c_tail_rel8_back", NULL},
	{"conditional tail call rel32", "t_c_jcc_rel32 t_c_jcc_row", NULL},
	{"conditional tail call rel8", "t_c_jcc_rel8", NULL},
	{"tail call through memory", "t_c_tail_rip t_c_tail_rip_only t_c_tail_field", NULL},
	{"tail call through a register", "t_c_tail_rax t_c_tail_rax_popped", NULL},
	{"notrack", "t_c_tail_notrack", NULL},
	{"tail call through a table, the stack, a return",
	 "t_c_tail_indexed t_c_tail_stack t_c_push_ret", NULL},
	{"no exit at all", "t_c_noreturn t_c_jmp_away", NULL},
	{"left by longjmp", "t_c_longjmp", NULL},
	{"left by an exception",
	 "t_c_throw t_c_throw_deep t_c_throw_tail tests/live/unwind.c:test_throw_through", NULL},
	{"pthread_exit, pthread_cancel, exit: entered and not left",
	 "tests/live/torture.c:test_endings_counted tests/live/torture.c:test_ends", NULL},

	/* D. Calls */
	{"rel32", "t_d_direct", NULL},
	{"prefixes 66 66 48, 48, f2, 67", "t_d_prefixed t_d_rex t_d_addr32", NULL},
	{"call $+5", "t_d_get_pc t_d_get_pc_far", NULL},
	{"call of the next function", "t_d_next t_d_next_to", NULL},
	{"call [rip]", "t_d_rip", NULL},
	{"call of a register", "t_d_rax t_d_r12", NULL},
	{"call 8(%rax) and with an index", "t_d_field t_d_indexed", NULL},
	{"call (%rsp), with an index and far",
	 "t_d_stack t_d_stack_indexed t_d_stack_far t_d_stack_below", NULL},
	{"call %fs:", "t_d_segment", NULL},
	{"call before a jump target", "t_d_joined t_d_landing t_d_target t_d_row", NULL},
	{"callee that keeps what it need not", "t_d_own_rules", NULL},
	{"setjmp, vfork, clone return twice",
	 "t_d_setjmp t_d_vfork t_d_clone tests/live/fork.c:test_churn_with_vforks", NULL},

	/* E. Branches */
	{"all 16 conditions, short", "t_e_short_*", NULL},
	{"all 16 conditions, near", "t_e_near_*", NULL},
	{"loop, loope, loopne",
	 "t_e_loop t_e_loop_first t_e_loop_self t_e_loope t_e_loopne t_e_loop_32", NULL},
	{"jrcxz, jecxz", "t_e_jrcxz t_e_jrcxz_first t_e_jrcxz_out", NULL},
	{"short jump back", "t_e_jmp_back t_e_jmp_next t_e_chain", NULL},
	{"xbegin", "t_e_xbegin_next t_e_xbegin_away t_e_xbegin_skipped",
	 "only relocated, not run, where the processor has no transactions"},
	{"66 before call, jmp, jcc", "t_e_call_66 t_e_jmp_66", "run on Intel's processors only"},
	{"hint prefixes", "t_e_hints t_e_near_o", NULL},
	{"jump over a lock prefix", "t_e_lock_skip", NULL},
	{"symbol within an instruction", "t_e_inside t_e_middle t_e_inside_from", NULL},

	/* F. Tables */
	{"lea, movslq, add", "t_f_bounded t_f_hoisted t_f_label_base", NULL},
	{"absolute, in a program with a fixed address", "t_f_absolute t_f_absolute_operand", NULL},
	{"switch on a byte", "t_f_byte", NULL},
	{"without a bound", "t_f_unbounded", NULL},
	{"computed goto",
	 "t_f_goto t_f_computed tests/unit/image_references.c:test_packed_relocations", NULL},
	{"target in the middle of the exit's window", "t_f_window", NULL},
	{"table in the code", "t_f_in_text", NULL},
	{"table used from the cold part", "t_f_cold", NULL},
	{"table of calls", "t_f_calls", NULL},

	/* G. Runtime */
	{"thread inside each byte of a window",
	 "tests/live/windows.c:test_inside_entry_window "
	 "tests/live/windows.c:test_inside_exit_window",
	 NULL},
	{"system call whose return point is in a window, and its restart",
	 "t_g_syscall t_g_syscall_first t_g_syscall_tail t_g_syscall_row t_g_nanosleep "
	 "tests/live/windows.c:test_system_call_at_edges",
	 NULL},
	{"signal within window and trampoline",
	 "tests/live/torture.c:test_storm tests/live/windows.c:test_handler_normal_stack", NULL},
	{"SIGPROF storm and backtrace()",
	 "tests/live/torture.c:test_storm tests/live/unwind.c:test_backtrace_is_equal", NULL},
	{"sigaltstack",
	 "tests/live/torture.c:test_storm tests/live/windows.c:test_handler_alternate_stack", NULL},
	{"throw through patched frames", "t_c_throw_deep tests/live/unwind.c:test_throw_through",
	 NULL},
	{"breakpoint of gdb within a window",
	 "tests/live/hazards.c:test_foreign tests/live/unwind.c:test_gdb_beside_us", NULL},
	{"children of fork, vfork, clone",
	 "tests/live/fork.c:test_churn_with_forks tests/live/fork.c:test_churn_with_spawns "
	 "tests/live/torture.c:test_ends",
	 NULL},
	{"dlclose of a patched object", "tests/live/dlopen.c:test_unloaded_while_instrumented",
	 NULL},
	{"in and out under load, very often",
	 "tests/live/torture.c:test_churn tests/live/insert.c:test_churn",
	 "100,000 times take an hour here: TORTURE_MS, by hand"},
	{"restartable sequence",
	 "t_g_rseq tests/live/arena_rseq.c:refuses_while_a_thread_is_inside", NULL},
	{"shadow stack",
	 "tests/live/control_flow.c:test_shadow_stacks "
	 "tests/live/control_flow.c:test_no_site_moves_a_call",
	 "by a machine in software: the kernels at hand give no program a shadow stack"},
	{"program with a fixed address, no room below",
	 "tests/live/torture.c:test_churn_fixed tests/live/arena_create.c:fixed_address", NULL},
	{"library in a crowded neighbourhood",
	 "tests/live/arena_create.c:small_hole tests/live/arena_create.c:no_room_at_all", NULL},
	{"seccomp filter that forbids mmap", "tests/live/remote_run.c:test_filter", NULL},

	/* H. Decoder */
	{"AVX-512 mask operations", "t_h_mask t_h_ifma", NULL},
	{"VAES, GFNI", "t_h_vaes t_h_gfni", NULL},
	{"rdsspq", "t_h_rdsspq", NULL},
	{"padlock, ud0, ud1 with operand, XOP, APX", "t_h_skipped t_h_ud1 t_h_ud2",
	 "jumped over: no processor here has them"},
	{"15 bytes, 16 bytes", "t_h_fifteen t_h_sixteen", NULL},
	{"nops up to 11 bytes", "t_h_nops", NULL},
	{"truncated at the end of a section", "t_h_truncated", NULL},
	{"prefixes without a meaning, second encodings", "t_h_prefixes t_h_addr32 t_h_immediates",
	 NULL},
	{"lengths as other decoders see them",
	 "tests/unit/arch_zydis.c:test_programs tests/unit/arch_capstone.c:main", NULL},

	/* I. Discovery */
	{"stripped, frames only", "tests/unit/image_functions.c:test_stripped_parents", NULL},
	{"cold parts with and without a frame",
	 "t_c_cold t_c_cold_leaf tests/unit/image_frames.c:test_fragments", NULL},
	{"frame without symbol and the other way round",
	 "t_a_no_size tests/unit/image_functions.c:test_assembler", NULL},
	{"assembler code that nothing covers", "tests/unit/image_functions.c:test_assembler", NULL},
	{"aliases", "t_a_two_names tests/unit/image_functions.c:test_twins", NULL},
	{"PLT, .init, .fini are not patched", "tests/unit/points_plan.c:test_stubs_and_fragments",
	 NULL},
	{"targets of resolvers", "tests/unit/image_functions.c:test_fragments_and_resolvers", NULL},
	{"32-bit programs are refused", "tests/live/stop_refusals.c:test_32_bit",
	 "x32 is refused by the same check of the ELF class; no kernel here runs it"},
	{"DT_RELR", "tests/unit/image_references.c:test_packed_relocations", NULL},
	{"partial RELRO", "tests/unit/image_references.c:test_relocations",
	 "lazily bound slots lie in data and are never patched"},

	/* Not of the list: what every inserted instruction must keep. */
	{"flags at every step", "t_s_flags t_s_chain t_s_bignum t_s_lahf", NULL},
	{"all registers", "t_s_around t_s_misc t_s_atomics t_s_cmpxchg16b t_s_segments", NULL},
	{"red zone and stack", "t_s_red_zone t_s_red_loop t_s_stack t_s_frame t_s_switch", NULL},
	{"vectors, masks, x87, control words",
	 "t_s_vectors t_s_zmm t_s_upper t_s_x87 t_s_mmx t_s_mxcsr", NULL},
	{"strings and their direction", "t_s_direction t_s_strings", NULL},
};

enum { ITEMS = sizeof(items) / sizeof(items[0]), CASES_MAX = 512 };

struct known {
	char name[64];
	bool runs, named;
};

static size_t read_cases(struct harness *h, struct known *known, size_t count)
{
	const char *line;

	harness_send(h, "cases\n");
	while (strcmp(line = harness_line(h, HARNESS_ANSWER_MS), "end")) {
		struct known k = {0};
		unsigned flags;
		int runs;
		size_t i = 0;

		if (sscanf(line, "case %63s %x %d", k.name, &flags, &runs) != 3)
			fail_msg("not a case: %s", line);
		k.runs = runs;
		while (i < count && strcmp(known[i].name, k.name))
			i++;
		assert_true(i < CASES_MAX);
		known[i] = k;
		if (i == count)
			count++;
	}
	return count;
}

static void look_for_case(struct known *known, size_t count, const char *word)
{
	size_t length = strlen(word);
	bool found = false, glob = word[length - 1] == '*';

	for (size_t i = 0; i < count; i++)
		if (glob ? !strncmp(known[i].name, word, length - 1)
			 : !strcmp(known[i].name, word)) {
			known[i].named = found = true;
			if (!known[i].runs)
				print_message("%s does not run on this processor\n", known[i].name);
		}
	if (!found)
		fail_msg("the target has no case %s", word);
}

/* A test is looked for by its name, as a word of its file. */
static void look_for_test(const char *word)
{
	const char *colon = strchr(word, ':');
	char path[128], line[1024];
	bool found = false;
	FILE *file;

	assert_non_null(colon);
	snprintf(path, sizeof(path), "%.*s", (int)(colon - word), word);
	file = fopen(path, "re");
	if (!file)
		fail_msg("there is no %s", path);
	while (!found && fgets(line, sizeof(line), file))
		found = strstr(line, colon + 1) != NULL;
	fclose(file);
	if (!found)
		fail_msg("%s has no %s", path, colon + 1);
}

/*
 * fear C3, C4, C5, C10, F1, F2, F7: the corner cases of patching one by one, and the case that
 * covers each: what is named must exist
 */
static void test_everything_is_covered(void **state)
{
	static struct known known[CASES_MAX];
	struct harness *h = *state;
	size_t count = 0;

	if (access("tests/live/torture_list.c", R_OK)) {
		print_message("SKIP: runs in the source tree only\n");
		skip();
	}
	for (int fixed = 0; fixed < 2; fixed++) {
		harness_start(h, fixed ? "torture-fixed" : "torture", "1", NULL);
		count = read_cases(h, known, count);
		harness_end(h, 0);
	}
	for (size_t i = 0; i < ITEMS; i++) {
		char words[512], *rest = NULL;

		snprintf(words, sizeof(words), "%s", items[i].covered);
		if (!words[0] && !items[i].reason)
			fail_msg("%s: neither a case nor a reason", items[i].item);
		for (char *word = strtok_r(words, " ", &rest); word;
		     word = strtok_r(NULL, " ", &rest)) {
			if (!strncmp(word, "t_", 2))
				look_for_case(known, count, word);
			else
				look_for_test(word);
		}
		if (items[i].reason)
			print_message("%s: %s\n", items[i].item, items[i].reason);
	}
	for (size_t i = 0; i < count; i++)
		if (!known[i].named)
			fail_msg("%s is in no item of the list", known[i].name);
	print_message("%zu cases of the target, %d items\n", count, (int)ITEMS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_everything_is_covered, harness_setup,
						harness_teardown),
	};

	return cmocka_run_group_tests_name("live/torture_list", tests, NULL, NULL);
}
