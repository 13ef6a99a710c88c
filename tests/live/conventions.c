/* SPDX-License-Identifier: MIT */
/*
 * conventions.c - every instruction of functions with conventions of their own:
 * registers that other functions may overwrite carry values across calls there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/live/harness_session.h"

enum { ROUNDS = 400 };

static void run(struct harness *h, const char *path)
{
	static const char *const metrics[] = {"latency", "wall_inclusive", "cpu", "active"};
	char focus[64];
	struct session *s;
	unsigned kept;

	harness_start_argv(h, (const char *const[]){path, NULL}, true);
	snprintf(focus, sizeof(focus), "/Code/%s/*", strrchr(path, '/') + 1);
	s = session_begin(h);
	kept = session_insert_kind(s, "many_live", POINT_ENTRY);
	for (int kind = POINT_ENTRY; kind <= POINT_STORE; kind++) {
		unsigned id = session_insert_kind(s, focus, (enum point_kind)kind);

		session_go(h, ROUNDS);
		session_remove(s, id);
	}
	/* Two calls of it a round: directly and by way of Windows. */
	assert_int_equal(session_value(s, kept), 2ull * ROUNDS * (POINT_STORE + 1));
	for (int kind = POINT_ENTRY; kind <= POINT_STORE; kind++)
		session_insert_kind(s, focus, (enum point_kind)kind);
	session_go(h, ROUNDS);
	/* Activations and clocks at entries and exits need registers of their own. */
	for (size_t i = 0; i < sizeof(metrics) / sizeof(*metrics); i++) {
		const struct instance *m = session_insert_metric(s, metrics[i], focus, NULL);

		session_go(h, ROUNDS);
		if (strcmp(metrics[i], "active"))
			assert_true(session_value(s, m->id) > 0);
	}
	session_end(s);
	session_go(h, 10);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear D3: -fipa-ra and ms_abi: values in "volatile" registers, xmm6-15 included, live across calls */
static void test_gcc(void **state)
{
	char path[512];

	snprintf(path, sizeof(path), "%s", harness_path("tests/live/targets/conventions"));
	run(*state, path);
}

static void run_clang(void **state, const char *flags)
{
	struct harness *h = *state;
	char path[512], command[2048];
	const char *compiler =
		system("command -v clang >/dev/null 2>&1") == 0 ? "clang" : "clang-14";

	snprintf(path, sizeof(path), "%s/conventions-clang", h->directory);
	snprintf(command, sizeof(command),
		 "command -v %s >/dev/null 2>&1 && [ -r tests/live/targets/conventions.c ] && "
		 "%s -O2 -g %s -o '%s' tests/live/targets/conventions.c 2>/dev/null",
		 compiler, compiler, flags, path);
	if (system(command) != 0) {
		print_message("SKIP clang's conventions: no clang, or not in the source tree\n");
		skip();
	}
	run(h, path);
	unlink(path);
}

/* fear D3, F2: the same made by clang, with regcall, vectorcall, preserve_most and preserve_all, and its jump tables */
static void test_clang(void **state)
{
	run_clang(state, "-fPIE -pie");
}

/* fear D3, F2: likewise at a fixed address, where its tables are of addresses */
static void test_clang_fixed(void **state)
{
	run_clang(state, "-fno-pie -no-pie");
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_gcc), CASE(test_clang),
					   CASE(test_clang_fixed)};

	return cmocka_run_group_tests_name("live/conventions", tests, NULL, NULL);
}
