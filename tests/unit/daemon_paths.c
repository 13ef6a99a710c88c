/* SPDX-License-Identifier: MIT */
/*
 * daemon_paths.c - where the socket is, and which directories are refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/paths.h"

static char directory[] = "/tmp/dinst-paths-XXXXXX";

static int setup(void **state)
{
	(void)state;
	return mkdtemp(directory) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return rmdir(directory);
}

static void set(const char *name, const char *value)
{
	if (value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

static void places(void **state)
{
	static const struct {
		const char *given, *socket, *runtime;
		const char *path, *name, *lock, *log;
	} cases[] = {
		{NULL, NULL, "/x", "/x/dinst/dinstd.sock", "dinstd.sock", "dinstd.lock",
		 "dinstd.log"},
		{NULL, NULL, "relative", NULL, "dinstd.sock", "dinstd.lock", "dinstd.log"},
		{NULL, "/y/z.sock", "/x", "/y/z.sock", "z.sock", "z.lock", "z.log"},
		{NULL, "/y/z", "/x", "/y/z", "z", "z.lock", "z.log"},
		{NULL, "/y/z/", "/x", "/y/z/dinstd.sock", "dinstd.sock", "dinstd.lock",
		 "dinstd.log"},
		{NULL, "", "/x", "/x/dinst/dinstd.sock", "dinstd.sock", "dinstd.lock",
		 "dinstd.log"},
		{NULL, "/", "/x", "/dinstd.sock", "dinstd.sock", "dinstd.lock", "dinstd.log"},
		{"/g/h.sock", "/y/z.sock", "/x", "/g/h.sock", "h.sock", "h.lock", "h.log"},
		{NULL, "/usr", "/x", "/usr/dinstd.sock", "dinstd.sock", "dinstd.lock",
		 "dinstd.log"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct dinst_error e = {0, ""};
		struct socket_place p;

		set("DINST_SOCKET", cases[i].socket);
		set("XDG_RUNTIME_DIR", cases[i].runtime);
		assert_int_equal(socket_place_find(&p, cases[i].given, &e), 0);
		if (cases[i].path)
			assert_string_equal(p.path, cases[i].path);
		assert_string_equal(p.socket, cases[i].name);
		assert_string_equal(p.lock, cases[i].lock);
		assert_string_equal(p.log, cases[i].log);
		assert_int_equal(p.fd, -1);
	}
}

static void defaults(void **state)
{
	struct dinst_error e = {0, ""};
	struct socket_place p;
	char expected[64];

	(void)state;
	set("DINST_SOCKET", NULL);
	set("XDG_RUNTIME_DIR", NULL);
	assert_int_equal(socket_place_find(&p, NULL, &e), 0);
	if (geteuid() == 0)
		snprintf(expected, sizeof(expected), "/run/dinst/dinstd.sock");
	else
		snprintf(expected, sizeof(expected), "/tmp/dinst-%u/dinstd.sock",
			 (unsigned)geteuid());
	assert_string_equal(p.path, expected);
	assert_false(p.chosen);
	/* another user's runtime directory, as sudo leaves it behind */
	if (geteuid() == 0) {
		assert_int_equal(chown(directory, 12345, 0), 0);
		set("XDG_RUNTIME_DIR", directory);
		assert_int_equal(socket_place_find(&p, NULL, &e), 0);
		assert_string_equal(p.path, expected);
		assert_int_equal(chown(directory, 0, 0), 0);
	}
}

static void too_long(void **state)
{
	struct dinst_error e = {0, ""};
	struct socket_place p;
	char name[200];

	(void)state;
	memset(name, 'x', sizeof(name) - 1);
	name[0] = '/';
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(socket_place_find(&p, name, &e), DINST_USAGE);
}

/* Opens $XDG_RUNTIME_DIR/dinst; returns the code. */
static int open_place(bool create)
{
	struct dinst_error e = {0, ""};
	struct socket_place p;
	int err;

	set("DINST_SOCKET", NULL);
	set("XDG_RUNTIME_DIR", directory);
	assert_int_equal(socket_place_find(&p, NULL, &e), 0);
	err = socket_place_open(&p, create, &e);
	assert_int_equal(p.fd >= 0, err == 0);
	assert_int_equal(e.code, err);
	socket_place_close(&p);
	return err;
}

/* fear L2: a directory for the socket that is a link, somebody else's, or open to others is refused */
static void directories(void **state)
{
	char path[100], other[100];
	struct stat st;

	(void)state;
	snprintf(path, sizeof(path), "%s/dinst", directory);
	snprintf(other, sizeof(other), "%s/other", directory);
	assert_int_equal(open_place(false), DINST_DAEMON);
	/* made, with the right mode whatever the umask */
	umask(0);
	assert_int_equal(open_place(true), 0);
	umask(022);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(open_place(true), 0);
	for (unsigned mode = 0701; mode <= 0777; mode++) {
		chmod(path, mode);
		assert_int_equal(open_place(true), DINST_NOT_PERMITTED);
	}
	if (geteuid() == 0) {
		chmod(path, 0700);
		assert_int_equal(chown(path, 12345, 0), 0);
		assert_int_equal(open_place(true), DINST_NOT_PERMITTED);
	}
	rmdir(path);
	/* neither a symbolic link nor a file */
	mkdir(other, 0700);
	assert_int_equal(symlink(other, path), 0);
	assert_int_equal(open_place(true), DINST_FAILED);
	unlink(path);
	rmdir(other);
	fclose(fopen(path, "w"));
	assert_int_equal(open_place(true), DINST_FAILED);
	unlink(path);
}

static void programs(void **state)
{
	struct dinst_error e = {0, ""};
	char path[PATH_MAX];

	(void)state;
	set("DINST_MUTATOR", "/bin/sh");
	assert_int_equal(program_find("dinst-mutator", "DINST_MUTATOR", path, &e), 0);
	assert_int_equal(path[0], '/');
	set("DINST_MUTATOR", "/nonexistent");
	assert_int_equal(program_find("dinst-mutator", "DINST_MUTATOR", path, &e), DINST_DAEMON);
	set("DINST_MUTATOR", NULL);
	dinst_error_clear(&e);
	assert_int_equal(program_find("no-such-program", NULL, path, &e), DINST_DAEMON);
	dinst_error_clear(&e);
	assert_int_equal(program_find("daemon_paths", NULL, path, &e), 0);
}

static void histories(void **state)
{
	char path[PATH_MAX], expected[200];

	(void)state;
	set("XDG_STATE_HOME", directory);
	assert_true(history_path(path));
	snprintf(expected, sizeof(expected), "%s/dinst/history", directory);
	assert_string_equal(path, expected);
	path[strlen(path) - strlen("/history")] = '\0';
	rmdir(path);
	set("XDG_STATE_HOME", NULL);
	set("HOME", NULL);
	assert_false(history_path(path));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(places),   cmocka_unit_test(defaults),
		cmocka_unit_test(too_long), cmocka_unit_test(directories),
		cmocka_unit_test(programs), cmocka_unit_test(histories),
	};

	return cmocka_run_group_tests_name("daemon_paths", tests, setup, teardown);
}
