/* SPDX-License-Identifier: MIT */
/*
 * inject_cgroup.c - from a process to the files of its control groups: both
 * versions, both at once, containers that see a part of the hierarchy, paths
 * with blanks, and texts that are none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_ourselves),
		cmocka_unit_test(test_again),
	};

	return cmocka_run_group_tests_name("unit/inject_cgroup", tests, NULL, NULL);
}
