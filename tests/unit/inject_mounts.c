/* SPDX-License-Identifier: MIT */
/*
 * inject_mounts.c - whose files may be read while a target stands still: by the type of the file
 * system that they are on.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "inject/mounts.h"

#define MOUNTS                                                                     \
	"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"                  \
	"41 22 0:38 /export /srv/a\\040b rw shared:9 master:3 - nfs4 host:/x rw\n" \
	"42 22 0:39 / /mnt rw - fuse.sshfs me@host: rw\n"                          \
	"43 22 0:40 / /var rw - overlay overlay rw,lowerdir=/a\n"                  \
	"44 22 0:3 / /short\n"                                                     \
	"45 22 0:41 / /x rw - 9p host rw"

/* fear K2: files of servers and of programs that serve them are not opened in a stop */
static void by_type(void **state)
{
	(void)state;
	assert_false(mounts_may_wait(MOUNTS, makedev(8, 1)));
	assert_true(mounts_may_wait(MOUNTS, makedev(0, 38)));
	assert_true(mounts_may_wait(MOUNTS, makedev(0, 39)));
	assert_false(mounts_may_wait(MOUNTS, makedev(0, 40)));
	assert_true(mounts_may_wait(MOUNTS, makedev(0, 41)));
	/* No type, none at all, another one whose number begins so. */
	assert_false(mounts_may_wait(MOUNTS, makedev(0, 3)));
	assert_false(mounts_may_wait(MOUNTS, makedev(9, 9)));
	assert_false(mounts_may_wait("41 22 0:381 / / rw - nfs4 a rw\n", makedev(0, 38)));
	assert_false(mounts_may_wait("", makedev(0, 38)));
	assert_false(mounts_may_wait(" \n - \n41 22 0:38 - nfs", makedev(0, 39)));
}

static void fields(void **state)
{
	static const char line[] = "a bc  d";
	const char *end = line + strlen(line);
	size_t length;

	(void)state;
	assert_ptr_equal(mounts_field(line, end, 0, &length), line);
	assert_int_equal(length, 1);
	assert_ptr_equal(mounts_field(line, end, 1, &length), line + 2);
	assert_int_equal(length, 2);
	assert_null(mounts_field(line, end, 2, &length));
	assert_ptr_equal(mounts_field(line, end, 3, &length), line + 6);
	assert_null(mounts_field(line, end, 4, &length));
	assert_null(mounts_type(line, end, &length));
}

/* Our own program is on some file system here. */
static void of_this_process(void **state)
{
	char *mounts = mounts_read(getpid());

	(void)state;
	assert_non_null(mounts);
	assert_non_null(strstr(mounts, " - "));
	free(mounts);
	assert_null(mounts_read(0x3ffffffe));
}

/* In a mount namespace of its own: 0 if it was told, 77 where that cannot be had. */
static int mount_something(void)
{
	uint64_t before, same, after;

	if (unshare(CLONE_NEWNS) && unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return 77;
	if (mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL))
		return 77;
	before = mounts_generation();
	same = mounts_generation();
	if (mount("none", "/tmp", "tmpfs", 0, NULL))
		return 77;
	after = mounts_generation();
	if (!before || same != before || after == before)
		return 1;
	return umount("/tmp") || mounts_generation() != after + 1;
}

static void changes_are_told(void **state)
{
	const pid_t child = fork();
	int status;

	(void)state;
	assert_true(child >= 0);
	if (!child)
		_exit(mount_something());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_true(mounts_generation() > 0);
}

enum { MANY = 400, LONG = 4000 };

/* On top of each other, so that their lines are long, and the last of them far down. */
static int mount_many(void)
{
	char source[LONG + 1], *mounts;
	struct stat st;
	int told;

	if (unshare(CLONE_NEWNS) && unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return 77;
	if (mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL))
		return 77;
	memset(source, 'x', LONG);
	source[LONG] = '\0';
	for (int i = 0; i < MANY; i++)
		if (mount(source, "/tmp", "tmpfs", 0, NULL))
			return 77;
	if (mount("the-last-one", "/tmp", "tmpfs", 0, NULL) || stat("/tmp", &st))
		return 77;
	mounts = mounts_read(getpid());
	told = mounts && strstr(mounts, " the-last-one ") && strlen(mounts) > (size_t)MANY * LONG;
	free(mounts);
	return told ? 0 : 1;
}

/* fear K2: a file system that is served is known as one also behind more mounts than a text has room for at first */
static void many_are_read_whole(void **state)
{
	const pid_t child = fork();
	int status;

	(void)state;
	assert_true(child >= 0);
	if (!child)
		_exit(mount_many());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_type),
		cmocka_unit_test(fields),
		cmocka_unit_test(of_this_process),
		cmocka_unit_test(changes_are_told),
		cmocka_unit_test(many_are_read_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
