/* SPDX-License-Identifier: MIT */
/*
 * inject_cgroup.c - from a process to the files of its control groups: both
 * versions, both at once, containers that see a part of the hierarchy, paths
 * with blanks, and texts that are none; and what the limits there leave.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "inject/cgroup.h"

#define V2     "41 23 0:38 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define MEMORY "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
#define OTHERS                                  \
	"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" \
	"32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"

static const struct {
	const char *title, *mounts, *groups, *controller;
	const char *directory; /* NULL: there is none */
	size_t root;
} cases[] = {
	{"version 2", OTHERS V2, "0::/user.slice/a.scope\n", NULL,
	 "/sys/fs/cgroup/user.slice/a.scope", 14},
	{"version 2, at the root", V2, "0::/\n", NULL, "/sys/fs/cgroup", 14},
	{"no newline at the end", V2, "0::/a", NULL, "/sys/fs/cgroup/a", 14},
	{"version 1", OTHERS MEMORY, "5:devices:/\n4:memory:/shop\n0::/x\n", "memory",
	 "/sys/fs/cgroup/memory/shop", 21},
	{"version 1, several controllers", OTHERS, "3:cpu,cpuacct:/b\n", "cpuacct",
	 "/sys/fs/cgroup/cpu,cpuacct/b", 26},
	{"no such controller", OTHERS MEMORY, "4:memory:/shop\n", "freezer", NULL, 0},
	{"a controller whose name only begins so", OTHERS, "3:cpu,cpuacct:/b\n", "cpuac", NULL, 0},
	{"not mounted here", OTHERS, "4:memory:/shop\n0::/x\n", "memory", NULL, 0},
	{"version 2 not mounted here", OTHERS MEMORY, "4:memory:/shop\n0::/x\n", NULL, NULL, 0},
	{"a part of it is mounted",
	 "9 8 0:1 /docker/77 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
	 "4:memory:/docker/77/inner\n", "memory", "/sys/fs/cgroup/memory/inner", 21},
	{"another part of it is mounted",
	 "9 8 0:1 /docker/7 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
	 "4:memory:/docker/77/inner\n", "memory", NULL, 0},
	{"outside of our namespace", V2, "0::/../other\n", NULL, NULL, 0},
	{"blanks", "9 8 0:1 / /my\\040groups rw - cgroup2 none rw\n", "0::/a b\n", NULL,
	 "/my groups/a b", 10},
	{"a colon in the name", V2, "0::/a:b\n", NULL, "/sys/fs/cgroup/a:b", 14},
	{"lines that are none", "x\n\n- - -\n1 2 3 / /p - cgroup2\n" V2, ":\nx:y\n\n0::/c\n", NULL,
	 "/sys/fs/cgroup/c", 14},
	{"nothing", "", "", NULL, NULL, 0},
};

/* fear I3: where the limits of a process are written is found, or nothing is believed. */
static void test_places(void **state)
{
	struct cgroup_place place;
	bool found;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		found = cgroup_locate(cases[i].mounts, cases[i].groups, cases[i].controller,
				      &place);
		if (found != (cases[i].directory != NULL))
			fail_msg("%s: %s", cases[i].title, found ? place.directory : "not found");
		if (found && (strcmp(place.directory, cases[i].directory) != 0 ||
			      place.root != cases[i].root))
			fail_msg("%s: %s (%zu)", cases[i].title, place.directory, place.root);
	}
}

static void test_too_long(void **state)
{
	struct cgroup_place place;
	char groups[2 * CGROUP_PATH_MAX];

	(void)state;
	memset(groups, 'a', sizeof(groups));
	memcpy(groups, "0::/", 4);
	groups[sizeof(groups) - 1] = '\0';
	assert_false(cgroup_locate(V2, groups, NULL, &place));
	groups[CGROUP_PATH_MAX] = '\0';
	assert_false(cgroup_locate(V2, groups, NULL, &place));
}

/* Ours are not frozen, or this would not run. */
static void test_ourselves(void **state)
{
	char group[CGROUP_PATH_MAX];
	uint64_t room = 0;

	(void)state;
	assert_false(cgroup_is_frozen(getpid(), group, sizeof(group)));
	group[0] = '\0';
	assert_int_equal(cgroup_memory_room(getpid(), &room, group, sizeof(group), NULL), 0);
	assert_true(room > 0 && (room == UINT64_MAX || group[0] == '/'));
	assert_false(cgroup_is_frozen(0x3ffffffe, group, sizeof(group)));
	assert_int_equal(cgroup_memory_room(0x3ffffffe, &room, group, sizeof(group), NULL), 0);
	assert_true(room == UINT64_MAX);
}

/* Asked again and again, about others meanwhile, the answer stays. */
static void test_again(void **state)
{
	char group[CGROUP_PATH_MAX], first[CGROUP_PATH_MAX] = "";

	(void)state;
	cgroup_find_freezer(getpid());
	for (int i = 0; i < 20; i++) {
		snprintf(group, sizeof(group), "%s", "");
		assert_false(cgroup_is_frozen(getpid(), group, sizeof(group)));
		if (!i)
			snprintf(first, sizeof(first), "%s", group);
		assert_string_equal(group, first);
		cgroup_find_freezer(i % 2 ? 1 : 0x3ffffffe);
	}
}

/* A file of a group of our own making; NULL takes it away. */
static void write_file(const char *directory, const char *name, const char *text)
{
	char path[CGROUP_PATH_MAX];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	if (!text) {
		unlink(path);
		return;
	}
	file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

/* A group that uses 500, of which 100 can be dropped, and what is left to it. */
static const struct {
	const char *title, *max, *high;
	uint64_t room;
	const char *file;
} limits[] = {
	{"none", "max\n", "max\n", UINT64_MAX, ""},
	{"killed above it", "1000\n", "max\n", 600, "memory.max"},
	{"held up above it", "max\n", "900\n", 500, "memory.high"},
	{"held up before it would be killed", "1000\n", "900\n", 500, "memory.high"},
	{"killed before it would be held up", "900\n", "1000\n", 500, "memory.max"},
	{"is held up", "max\n", "300\n", 0, "memory.high"},
	{"no such file", "1000\n", NULL, 600, "memory.max"},
	{"held up at once", "max\n", "0\n", 0, "memory.high"},
};

/* fear I3: the kernel holds up who takes more than memory.high: room ends there, and the file is named */
static void test_limits(void **state)
{
	char directory[] = "/tmp/dinst-cgroup-XXXXXX";
	char mounts[CGROUP_PATH_MAX], limit[CGROUP_PATH_MAX], wanted[CGROUP_PATH_MAX];
	uint64_t room;
	int lack = 0;

	(void)state;
	assert_non_null(mkdtemp(directory));
	snprintf(mounts, sizeof(mounts), "41 23 0:38 / %s rw - cgroup2 cgroup2 rw\n", directory);
	write_file(directory, "memory.current", "500\n");
	write_file(directory, "memory.stat", "anon 9\ninactive_file 70\nactive_file 30\n");
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		write_file(directory, "memory.max", limits[i].max);
		write_file(directory, "memory.high", limits[i].high);
		limit[0] = wanted[0] = '\0';
		if (limits[i].file[0])
			snprintf(wanted, sizeof(wanted), "%s/%s", directory, limits[i].file);
		room = cgroup_least_room(mounts, "0::/\n", limit, sizeof(limit), &lack);
		if (room != limits[i].room || strcmp(limit, wanted) != 0)
			fail_msg("%s: %llu by %s", limits[i].title, (unsigned long long)room,
				 limit);
	}
	assert_int_equal(lack, 0);
	write_file(directory, "memory.current", NULL);
	write_file(directory, "memory.stat", NULL);
	write_file(directory, "memory.max", NULL);
	write_file(directory, "memory.high", NULL);
	assert_int_equal(rmdir(directory), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_places),	  cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_ourselves), cmocka_unit_test(test_again),
		cmocka_unit_test(test_limits),
	};

	return cmocka_run_group_tests_name("unit/inject_cgroup", tests, NULL, NULL);
}
