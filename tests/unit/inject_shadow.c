/* SPDX-License-Identifier: MIT */
/*
 * inject_shadow.c - how it is told that threads have shadow stacks: texts as the
 * kernel writes them, since the machines at hand have none, in a /proc of the
 * test's own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "arch/thread.h"
#include "inject/shadow.h"

#define CPU(flags)                                                             \
	"processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu vme " flags \
	"\nbugs\t: spectre_v1\n"
#define STATUS(more) "Name:\tnginx\nState:\tS (sleeping)\nSeccomp:\t0\n" more "Cpus_allowed:\t3\n"

static const struct {
	const char *text;
	bool offered;
} machines[] = {
	{CPU("de pse"), false},
	{CPU("de user_shstk pse"), true},
	{CPU("user_shstk"), true},
	/* Words that contain it, and the word in another line. */
	{CPU("user_shstks xuser_shstk"), false},
	{CPU("de") "model name\t: user_shstk\n", false},
	{"", false},
	{"flags", false},
	{"flags\t\t:", false},
};

static const struct {
	const char *text;
	bool on;
} threads[] = {
	{STATUS(""), false},
	{STATUS("x86_Thread_features:\t\nx86_Thread_features_locked:\t\n"), false},
	{STATUS("x86_Thread_features:\tshstk \nx86_Thread_features_locked:\tshstk wrss \n"), true},
	{STATUS("x86_Thread_features:\twrss shstk \n"), true},
	/* Locked means that it cannot be changed any more, not that it is on. */
	{STATUS("x86_Thread_features:\t\nx86_Thread_features_locked:\tshstk wrss \n"), false},
	{"Name:\tshstk\n", false},
};

/* fear C9: what the kernel says of processor and thread is understood, to the word */
static void test_texts(void **state)
{
	(void)state;
	if (strcmp(arch_name, "x86-64"))
		skip();
	for (size_t i = 0; i < sizeof(machines) / sizeof(*machines); i++)
		if (arch_shadow_offered(machines[i].text) != machines[i].offered)
			fail_msg("machine %zu: %s", i, machines[i].text);
	for (size_t i = 0; i < sizeof(threads) / sizeof(*threads); i++)
		if (arch_shadow_is_on(threads[i].text) != threads[i].on)
			fail_msg("thread %zu: %s", i, threads[i].text);
}

static char root[] = "/tmp/dinst-shadow.XXXXXX";

static void put(const char *path, const char *text)
{
	char full[256];
	FILE *file;

	snprintf(full, sizeof(full), "%s/%s", root, path);
	if (!text) {
		assert_int_equal(mkdir(full, 0700), 0);
		return;
	}
	file = fopen(full, "we");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void take(const char *path)
{
	char full[256];

	snprintf(full, sizeof(full), "%s/%s", root, path);
	assert_int_equal(remove(full), 0);
}

/* Of a process with thousands of groups, as others may put it before what is looked for. */
static void put_long(const char *path, const char *last)
{
	enum { GROUPS = 5000, ROOM = 16 };
	char *text = calloc(GROUPS + 16, ROOM);
	size_t used;

	assert_non_null(text);
	used = (size_t)snprintf(text, 8 * ROOM, "Name:\tnginx\nGroups:\t");
	for (unsigned i = 0; i < GROUPS; i++)
		used += (size_t)snprintf(text + used, ROOM, "%u ", 1000000 + i);
	snprintf(text + used, 8 * ROOM, "\n%s", last);
	put(path, text);
	free(text);
}

/* fear C9: one thread with a shadow stack is enough; what cannot be read counts as one */
static void test_threads(void **state)
{
	(void)state;
	if (strcmp(arch_name, "x86-64"))
		skip();
	assert_non_null(mkdtemp(root));
	assert_true(shadow_offered(root));
	put("cpuinfo", CPU("user_shstk"));
	assert_true(shadow_offered(root));
	put("cpuinfo", CPU("sse"));
	assert_false(shadow_offered(root));
	assert_true(shadow_is_on(root, 7));
	put("7", NULL);
	put("7/task", NULL);
	put("7/task/7", NULL);
	put("7/task/8", NULL);
	/* A thread that is no more. */
	assert_false(shadow_is_on(root, 7));
	put("7/task/7/status", STATUS(""));
	put("7/task/8/status", STATUS("x86_Thread_features:\t\n"));
	assert_false(shadow_is_on(root, 7));
	put("7/task/8/status", STATUS("x86_Thread_features:\tshstk \n"));
	assert_true(shadow_is_on(root, 7));
	take("7/task/8/status");
	put_long("7/task/8/status", STATUS("x86_Thread_features:\t\n"));
	assert_false(shadow_is_on(root, 7));
	take("7/task/8/status");
	put_long("7/task/8/status", STATUS("x86_Thread_features:\tshstk \n"));
	assert_true(shadow_is_on(root, 7));
	take("7/task/8/status");
	put("7/task/8/status", "");
	assert_true(shadow_is_on(root, 7));
	take("7/task/8/status");
	assert_false(shadow_is_on(root, 7));
	take("7/task/7/status");
	take("7/task/7");
	take("7/task/8");
	take("7/task");
	take("7");
	take("cpuinfo");
	take("");
}

/* This machine, whatever it is. */
static void test_here(void **state)
{
	(void)state;
	print_message("shadow stacks are %soffered here, this process has %s\n",
		      shadow_offered("/proc") ? "" : "not ",
		      shadow_is_on("/proc", getpid()) ? "one" : "none");
	assert_true(shadow_offered("/proc") || !shadow_is_on("/proc", getpid()) ||
		    strcmp(arch_name, "x86-64"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_here),
	};

	return cmocka_run_group_tests_name("unit/inject_shadow", tests, NULL, NULL);
}
