/* SPDX-License-Identifier: MIT */
/*
 * image_names.c - what the names of functions say of them: code that must stay as it is, and parts
 * that compilers moved out; and the hash that they are found by.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "mutator/image_private.h"
#include "mutator/siphash.h"

struct name_case {
	const char *name;
	uint8_t flags;
};

static void check(const struct name_case *cases, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const uint8_t flags = name_flags(cases[i].name, strlen(cases[i].name));

		if (flags != cases[i].flags)
			fail_msg("%s: %#x, not %#x", cases[i].name, flags, cases[i].flags);
	}
}

/* fear E3, H5: code that others find by its bytes, or that is entered and left by other ways than call and return */
static void test_stubs(void **state)
{
	static const struct name_case cases[] = {
		{"_init", FUNCTION_STUB},
		{"_fini", FUNCTION_STUB},
		{"__restore_rt", FUNCTION_STUB},
		{"__restore", FUNCTION_STUB},
		{"__sigreturn", FUNCTION_STUB},
		{"_dl_debug_state", FUNCTION_STUB},
		{"_dl_runtime_resolve", FUNCTION_STUB},
		{"_dl_runtime_resolve_fxsave", FUNCTION_STUB},
		{"_dl_runtime_resolve_xsave", FUNCTION_STUB},
		{"_dl_runtime_resolve_xsavec", FUNCTION_STUB},
		{"_dl_runtime_profile_avx512", FUNCTION_STUB},
		{"_dl_start_user", FUNCTION_STUB},
		{"__longjmp", FUNCTION_STUB},
		{"____longjmp_chk", FUNCTION_STUB},
		{"setcontext", FUNCTION_STUB},
		{"__setcontext", FUNCTION_STUB},
		{"swapcontext", FUNCTION_STUB},
		{"__swapcontext", FUNCTION_STUB},
		{"__start_context", FUNCTION_STUB},
		{"SafeFetch32_impl", FUNCTION_STUB},
		{"_SafeFetchN_impl", FUNCTION_STUB},
		{"JIT_WriteBarrier_PreGrow64", FUNCTION_STUB},
		{"JIT_CheckedWriteBarrier", FUNCTION_STUB},
		{"JIT_ByRefWriteBarrier", FUNCTION_STUB},
		{"JIT_MemSet", FUNCTION_STUB},
		{"JIT_MemCpy", FUNCTION_STUB},
		{"RhpAssignRefRAX", FUNCTION_STUB},
		{"RhpCheckedAssignRef", FUNCTION_STUB},
		{"RhpByRefAssignRef", FUNCTION_STUB},
		{"_Py_trampoline_func_start", FUNCTION_STUB},
		{"__cfi_main", FUNCTION_STUB},
	};

	(void)state;
	check(cases, sizeof(cases) / sizeof(cases[0]));
}

/* With a version, as linkers write it into tables for debuggers. */
static void test_versions(void **state)
{
	static const struct name_case cases[] = {
		{"setcontext@@GLIBC_2.2.5", FUNCTION_STUB},
		{"swapcontext@GLIBC_2.2.5", FUNCTION_STUB},
		{"_dl_debug_state@@GLIBC_PRIVATE", FUNCTION_STUB},
		{"setcontexts@@GLIBC_2.2.5", 0},
	};

	(void)state;
	check(cases, sizeof(cases) / sizeof(cases[0]));
}

/* What only looks like one can be instrumented. */
static void test_others(void **state)
{
	static const struct name_case cases[] = {
		{"", 0},
		{"_", 0},
		{"init", 0},
		{"_initialize", 0},
		{"_init_first", 0},
		{"_finish", 0},
		{"_dl_debug_states", 0},
		{"_dl_debug_initialize", 0},
		{"_dl_fixup", 0},
		{"longjmp", 0},
		{"__longjmp_cancel", 0},
		{"getcontext", 0},
		{"makecontext", 0},
		{"my_setcontext", 0},
		{"setcontext_again", 0},
		{"_ZN4_dl_runtime_resolveEv", 0},
	};

	(void)state;
	check(cases, sizeof(cases) / sizeof(cases[0]));
}

/* fear F3: parts that compilers moved out of a function */
static void test_parts(void **state)
{
	static const struct name_case cases[] = {
		{"foo.cold", FUNCTION_COLD},
		{"foo.cold.3", FUNCTION_COLD},
		{"foo.__part.12", FUNCTION_COLD},
		{"foo.eh", FUNCTION_COLD},
		{"_init.cold", FUNCTION_COLD},
		{".cold", 0},
		{"foo.cold.", 0},
		{"foo.colder", 0},
		{"foo.constprop.0", 0},
		{"cold", 0},
	};

	(void)state;
	check(cases, sizeof(cases) / sizeof(cases[0]));
}

/* By another program: SipHash-1-3, key 00 to 0f, of 00, 01, ... */
static void test_hash(void **state)
{
	static const struct {
		size_t size;
		uint64_t hash;
	} known[] = {
		{0, UINT64_C(0xabac0158050fc4dc)},  {1, UINT64_C(0xc9f49bf37d57ca93)},
		{7, UINT64_C(0xd3927d989bb11140)},  {8, UINT64_C(0x369095118d299a8e)},
		{15, UINT64_C(0xd320d86d2a519956)}, {63, UINT64_C(0x9d199062b7bbb3a8)},
	};
	struct siphash_key key;
	uint8_t bytes[64];

	(void)state;
	for (unsigned i = 0; i < 64; i++)
		bytes[i] = (uint8_t)i;
	memcpy(&key, bytes, sizeof(key));
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		assert_true(siphash(&key, bytes, known[i].size) == known[i].hash);
	assert_true(name_hash("abc", 3) == name_hash("abcd", 3));
	assert_true(name_hash("abc", 3) != name_hash("abd", 3));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stubs),  cmocka_unit_test(test_versions),
		cmocka_unit_test(test_others), cmocka_unit_test(test_parts),
		cmocka_unit_test(test_hash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
