/* SPDX-License-Identifier: MIT */
/*
 * builds.c - the same program linked in every way there is, and one without any
 * library: counted exactly, also where it is left by longjmp(), and as it was
 * afterwards. What cannot be built here is skipped, and says so.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inject/maps.h"
#include "inject/remote.h"
#include "mutator/threads.h"
#include "tests/live/harness_session.h"
#include "tests/live/tails.h"

enum { THREADS = 3, ROUNDS = 2000, LEAVES = 4, DEEPS = 3 };

#define FLAGS " -O2 -pthread -D_GNU_SOURCE -fno-inline -fno-ipa-cp -fno-ipa-icf -w "

static const struct build {
	const char *name, *command;
	bool stripped;
} builds[] = {
	{"glibc, at a fixed address", "gcc -no-pie -fno-pie" FLAGS, false},
	{"glibc, anywhere, lazy binding", "gcc -pie -fPIE -Wl,-z,lazy" FLAGS, false},
	{"glibc, static", "gcc -static -no-pie" FLAGS, false},
	{"glibc, static, anywhere", "gcc -static-pie" FLAGS, false},
	{"glibc, static, stripped", "gcc -static -no-pie" FLAGS, true},
	{"glibc, static, stripped, code among data, without build id",
	 "gcc -static -no-pie" FLAGS "-Wl,-z,noseparate-code -Wl,--build-id=none", true},
	{"glibc, branch targets marked", "gcc -pie -fPIE -fcf-protection=full" FLAGS "-Wl,-z,ibt",
	 false},
	{"glibc, static, branch targets marked",
	 "gcc -static-pie -fcf-protection=full" FLAGS "-Wl,-z,ibt", false},
	/* clang knows no -fno-ipa-icf. */
	{"glibc, returns by a jump (load value injection)",
	 "clang -mlvi-cfi -O2 -pthread -D_GNU_SOURCE -fno-inline -w", false},
	{"musl, dynamic", "musl-gcc" FLAGS, false},
	{"musl, static", "musl-gcc -static" FLAGS, false},
	{"musl, static, anywhere", "musl-gcc -static-pie" FLAGS, false},
	{"musl, static, stripped", "musl-gcc -static" FLAGS, true},
};

static const struct raw_metric pairs = {
	.name = "pairs",
	.unit = "activations",
	.constraints = "/Code",
	.kind = POINT_ENTRY,
	.snippet = SNIPPET_ENTER,
};

/* Where `name` is by the file's own table, from its first byte in memory on. */
static unsigned long offset_of(const char *path, const char *name)
{
	unsigned long at = 0, base = 0;
	char command[512], text[64];
	FILE *f;

	snprintf(command, sizeof(command),
		 "nm '%s' | sed -n 's/ [tT] %s$//p'; "
		 "readelf -lW '%s' | awk '$1 == \"LOAD\" { print $3; exit }'",
		 path, name, path);
	f = popen(command, "re");
	assert_non_null(f);
	if (fgets(text, sizeof(text), f))
		at = strtoul(text, NULL, 16);
	if (fgets(text, sizeof(text), f))
		base = strtoul(text, NULL, 16);
	pclose(f);
	assert_true(at > base);
	return at - base;
}

static bool make(const char *path, const struct build *b)
{
	char command[1024];

	snprintf(command, sizeof(command), "command -v %.*s >/dev/null 2>&1",
		 (int)strcspn(b->command, " "), b->command);
	if (system(command)) {
		print_message("SKIP %s: no compiler\n", b->name);
		return false;
	}
	snprintf(command, sizeof(command), "%s -o '%s' tests/live/targets/jumping.c", b->command,
		 path);
	if (system(command))
		fail_msg("%s failed", command);
	return true;
}

/* Activations of a function: entries, and exits but for those that longjmp() took. */
static void check_pairs(struct harness *h, struct session *s, const char *focus, uint64_t entries,
			uint64_t exits)
{
	struct threads_statistics found;
	const struct instance *i = session_insert_raw(s, &pairs, focus);

	session_go(h, ROUNDS);
	assert_int_equal(instance_value(i), entries);
	assert_int_equal(instance_exits(i), exits);
	assert_int_equal(threads_alive(s, i), 0);
	threads_statistics(s, &found);
	assert_int_equal(found.lost, 0);
	assert_int_equal(found.overflow, 0);
	assert_int_equal(found.orphans, 0);
	session_remove(s, i->id);
}

static void check(struct harness *h, const char *path, const struct build *b)
{
	const uint64_t all = (uint64_t)THREADS * ROUNDS;
	const char *argv[] = {path, harness_number(THREADS), NULL};
	char leaf[64] = "leaf", deep[64] = "deep", choose[64] = "choose", command[512];
	struct session *s;
	unsigned id, every;

	if (b->stripped) {
		snprintf(leaf, sizeof(leaf), "build+0x%lx", offset_of(path, "leaf"));
		snprintf(deep, sizeof(deep), "build+0x%lx", offset_of(path, "deep"));
		snprintf(choose, sizeof(choose), "build+0x%lx", offset_of(path, "choose"));
		snprintf(command, sizeof(command), "strip -s '%s'", path);
		assert_int_equal(system(command), 0);
	}
	harness_start_argv(h, argv, true);
	s = session_begin(h);
	id = session_insert(s, leaf);
	every = session_insert(s, "/Code/build/*");
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, id), all * LEAVES);
	assert_true(session_value(s, every) >= all * (LEAVES + DEEPS + 1));
	session_remove(s, every);
	check_pairs(h, s, leaf, all * LEAVES, all * LEAVES);
	check_pairs(h, s, deep, all * DEEPS, 0);
	check_pairs(h, s, choose, all, all);
	session_end(s);
	harness_verify_what(h, HARNESS_TEXT | HARNESS_THREADS | HARNESS_SIGNALS | HARNESS_FDS);
	session_go(h, ROUNDS);
	harness_end(h, 0);
}

/*
 * fear B2, C8, E3, E5, H3: one program as dynamic, static, static-pie, stripped, with and without musl,
 * with marked branch targets: exact counts, also of what longjmp() leaves, and of a switch
 * that ends in tail jumps, and nothing is left
 */
static void test_builds(void **state)
{
	struct harness *h = *state;
	char path[128];

	harness_limit(600);
	for (size_t i = 0; i < sizeof(builds) / sizeof(builds[0]); i++) {
		snprintf(path, sizeof(path), "%s/build", h->directory);
		unlink(path);
		if (!make(path, &builds[i]))
			continue;
		print_message("%s\n", builds[i].name);
		check(h, path, &builds[i]);
	}
}

/*
 * fear B2, B3: a program without any library, thread pointer, build id or room behind its code, so
 * that its first system calls stand behind the vdso: counted exactly, as before afterwards; also stripped
 */
static void alone(struct harness *h, bool stripped)
{
	char path[128], command[512], focus[64] = "step";
	const char *argv[] = {path, NULL};
	struct session *s;
	unsigned id, calls;

	snprintf(path, sizeof(path), "%s/alone", h->directory);
	snprintf(command, sizeof(command), "cp '%s' '%s'", harness_path("tests/live/targets/alone"),
		 path);
	assert_int_equal(system(command), 0);
	if (stripped) {
		snprintf(focus, sizeof(focus), "alone+0x%lx", offset_of(path, "step"));
		snprintf(command, sizeof(command), "strip -s '%s'", path);
		assert_int_equal(system(command), 0);
	}
	harness_start_argv(h, argv, true);
	s = session_begin(h);
	for (int i = 0; i < 3; i++) {
		id = session_insert(s, focus);
		calls = session_insert_kind(s, focus, POINT_EXIT);
		session_go(h, ROUNDS);
		assert_int_equal(session_value(s, id), ROUNDS);
		assert_int_equal(session_value(s, calls), ROUNDS);
		session_remove(s, id);
		session_remove(s, calls);
	}
	session_end(s);
	harness_verify(h);
	session_go(h, ROUNDS);
	harness_end(h, 0);
}

static void test_alone(void **state)
{
	alone(*state, false);
}

static void test_alone_stripped(void **state)
{
	alone(*state, true);
}

static int clean(struct stop *s, void *arg, struct dinst_error *e)
{
	return remote_clean_tails(s, arg, e);
}

/* fear B2, J2: what a mutator that died left behind the vdso is found and taken away */
static void test_dead_behind_vdso(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct target *t = NULL;
	struct remote_tails tails = {0};
	struct rest rest = {0};
	struct maps maps;
	const char *where = NULL;

	harness_start(h, "alone", NULL);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	assert_false(remote_tails_dirty(t));
	assert_int_equal(target_stop(t, NULL, dirty_a_tail, &rest, NULL, &e), 0);
	assert_int_equal(maps_read(h->pid, &maps, &e), 0);
	for (size_t i = 0; i < maps.count; i++)
		if (rest.address - maps.entries[i].lo < maps.entries[i].hi - maps.entries[i].lo)
			where = maps.entries[i].name;
	assert_string_equal(where, "[vdso]");
	maps_release(&maps);
	assert_true(remote_tails_dirty(t));
	assert_int_equal(target_stop(t, NULL, clean, &tails, NULL, &e), 0);
	assert_int_equal(tails.cleaned, 1);
	assert_false(remote_tails_dirty(t));
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_builds),
		CASE(test_alone),
		CASE(test_alone_stripped),
		CASE(test_dead_behind_vdso),
	};

	return cmocka_run_group_tests_name("live/builds", tests, NULL, NULL);
}
