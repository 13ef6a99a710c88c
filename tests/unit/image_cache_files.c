/* SPDX-License-Identifier: MIT */
/*
 * image_cache_files.c - the directory of the cache: whole files or none, not too
 * many, ours alone, and nobody is bothered where there is no room.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/cache_home.h"

static void test_files(void **state)
{
	uint8_t *bytes;
	size_t size;

	(void)state;
	assert_false(cache_read("a.plans", &bytes, &size));
	assert_true(cache_write("a.plans", "one", 3));
	assert_true(cache_write("a.plans", "three", 5));
	assert_true(cache_read("a.plans", &bytes, &size));
	assert_int_equal(size, 5);
	assert_memory_equal(bytes, "three", 5);
	free(bytes);
	assert_false(cache_write("../a", "one", 3));
	assert_false(cache_write("", "one", 3));
	assert_false(cache_write("other", "one", 3));
	assert_false(cache_write("b.plans", "", 0));
	assert_int_equal(files(NULL, 0), 1);
	cache_remove("a.plans");
	assert_int_equal(files(NULL, 0), 0);
}

/* Many write the same file: one of them is there, whole, and nothing else. */
static void test_writers(void **state)
{
	enum { WRITERS = 8, ROUNDS = 20, SIZE = 100000 };
	static uint8_t content[SIZE];
	uint8_t *bytes;
	size_t size;
	unsigned done = 0;

	(void)state;
	for (int i = 0; i < WRITERS; i++)
		if (fork() == 0) {
			memset(content, 'a' + i, SIZE);
			for (int k = 0; k < ROUNDS; k++)
				if (!cache_write("same.plans", content, SIZE - (size_t)i))
					_exit(1);
			_exit(0);
		}
	while (done < WRITERS) {
		int status;

		if (cache_read("same.plans", &bytes, &size)) {
			for (size_t i = 0; i < size; i++)
				assert_int_equal(bytes[i], bytes[0]);
			assert_int_equal(size, SIZE - (size_t)(bytes[0] - 'a'));
			free(bytes);
		}
		if (waitpid(-1, &status, WNOHANG) > 0) {
			assert_int_equal(status, 0);
			done++;
		}
	}
	assert_int_equal(files(NULL, 0), 1);
}

/* Files may be small, and of files that are changed again and again: there are not more and more. */
static void test_many(void **state)
{
	enum { FILES = 4200, MOST = 4096 };
	uint8_t *bytes;
	size_t size, left;

	(void)state;
	assert_true(cache_write("first.plans", "one", 3));
	for (int i = 0; i < FILES; i++) {
		char path[512];
		int fd;

		snprintf(path, sizeof(path), "%s/f%d.plans", directory, i);
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		assert_true(fd >= 0);
		close(fd);
	}
	assert_true(cache_write("last.plans", "one", 3));
	left = files(NULL, 0);
	assert_in_range(left, MOST / 2, MOST);
	assert_true(cache_read("last.plans", &bytes, &size));
	free(bytes);
}

/* Files that have not been used for longest go, as many as need be. */
static void test_limit(void **state)
{
	enum { FILES = 10, EACH = 30 << 20 };
	uint8_t *bytes;
	size_t size;

	(void)state;
	assert_true(cache_write("first.plans", "one", 3));
	for (int i = 0; i < FILES; i++) {
		struct timespec times[2] = {{.tv_sec = 1000 + i}, {.tv_sec = 1000 + i}};
		char path[512];
		int fd;

		snprintf(path, sizeof(path), "%s/f%d.plans", directory, i);
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		assert_true(fd >= 0);
		assert_int_equal(ftruncate(fd, EACH), 0);
		futimens(fd, times);
		close(fd);
	}
	/* 300 MiB: two must go, and the oldest but one has just been read. */
	assert_true(cache_read("f1.plans", &bytes, &size));
	free(bytes);
	assert_true(cache_write("last.plans", "one", 3));
	assert_int_equal(files(NULL, 0), FILES);
	assert_false(cache_read("f0.plans", &bytes, &size));
	assert_false(cache_read("f2.plans", &bytes, &size));
	assert_true(cache_read("f1.plans", &bytes, &size));
	free(bytes);
	assert_true(cache_read("last.plans", &bytes, &size));
	free(bytes);
	assert_false(cache_write("huge.plans", home, (size_t)CACHE_FILE_MAX + 1));
}

/* fear L2: a cache or a file in it that others own, may read, or have linked there is left alone */
static void test_strangers(void **state)
{
	char path[512];
	uint8_t *bytes;
	size_t size;

	(void)state;
	assert_true(cache_write("a.plans", "one", 3));
	snprintf(path, sizeof(path), "%s/a.plans", directory);
	chmod(path, 0644);
	assert_false(cache_read("a.plans", &bytes, &size));
	chmod(path, 0600);
	if (geteuid() == 0) {
		assert_int_equal(chown(path, 65534, 65534), 0);
		assert_false(cache_read("a.plans", &bytes, &size));
		assert_int_equal(chown(path, 0, 0), 0);
		assert_int_equal(chown(directory, 65534, 65534), 0);
		assert_false(cache_read("a.plans", &bytes, &size));
		assert_false(cache_write("b.plans", "one", 3));
		assert_int_equal(chown(directory, 0, 0), 0);
	} else {
		print_message("not root: files of other users are not tried\n");
	}
	assert_true(cache_read("a.plans", &bytes, &size));
	free(bytes);
	chmod(directory, 0755);
	assert_false(cache_read("a.plans", &bytes, &size));
	chmod(directory, 0700);
	/* Neither a link in the place of the file nor one in that of the directory is followed. */
	snprintf(path, sizeof(path), "%s/link.plans", directory);
	assert_int_equal(symlink("a.plans", path), 0);
	assert_false(cache_read("link.plans", &bytes, &size));
	snprintf(path, sizeof(path), "%s/real", home);
	assert_int_equal(rename(directory, path), 0);
	assert_int_equal(symlink("real", directory), 0);
	assert_false(cache_read("a.plans", &bytes, &size));
	assert_false(cache_write("a.plans", "one", 3));
}

/* fear L2: a directory that is missing is made below what is ours, not in another user's home, nor where a link of his leads */
static void test_missing(void **state)
{
	char user[128], victim[128], link[160], path[192];

	(void)state;
	snprintf(path, sizeof(path), "%s/new/deep", home);
	setenv("XDG_CACHE_HOME", path, 1);
	assert_true(cache_write("a.plans", "one", 3));
	if (geteuid() != 0) {
		print_message("not root: files of other users are not tried\n");
		skip();
	}
	snprintf(user, sizeof(user), "%s/user", home);
	snprintf(victim, sizeof(victim), "%s/victim", home);
	snprintf(link, sizeof(link), "%s/link", user);
	assert_int_equal(mkdir(user, 0755), 0);
	assert_int_equal(mkdir(victim, 0700), 0);
	assert_int_equal(symlink(victim, link), 0);
	assert_int_equal(lchown(link, 65534, 65534), 0);
	assert_int_equal(chown(user, 65534, 65534), 0);
	snprintf(path, sizeof(path), "%s/.cache", user);
	setenv("XDG_CACHE_HOME", path, 1);
	assert_false(cache_write("a.plans", "one", 3));
	assert_int_equal(access(path, F_OK), -1);
	snprintf(path, sizeof(path), "%s/missing", link);
	setenv("XDG_CACHE_HOME", path, 1);
	assert_false(cache_write("a.plans", "one", 3));
	assert_int_equal(access(path, F_OK), -1);
	/* What is there beyond it is ours, and it is his link still. */
	snprintf(path, sizeof(path), "%s/there", victim);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/there/missing", link);
	setenv("XDG_CACHE_HOME", path, 1);
	assert_false(cache_write("a.plans", "one", 3));
	assert_int_equal(access(path, F_OK), -1);
}

/* A link of one's own to where the caches are is followed, be it in the place of ~/.cache; a name is not too long. */
static void test_own_links(void **state)
{
	char path[512], round[128], name[300];
	uint8_t *bytes;
	size_t size;

	(void)state;
	snprintf(path, sizeof(path), "%s/elsewhere", home);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/.cache", home);
	assert_int_equal(symlink("elsewhere/", path), 0);
	unsetenv("XDG_CACHE_HOME");
	setenv("HOME", home, 1);
	assert_true(cache_write("a.plans", "one", 3));
	snprintf(path, sizeof(path), "%s/elsewhere/dinst/a.plans", home);
	assert_int_equal(access(path, F_OK), 0);
	snprintf(path, sizeof(path), "%s/.cache/below/it", home);
	setenv("XDG_CACHE_HOME", path, 1);
	assert_true(cache_write("a.plans", "one", 3));
	assert_true(cache_read("a.plans", &bytes, &size));
	free(bytes);
	snprintf(round, sizeof(round), "%s/round", home);
	assert_int_equal(symlink(round, round), 0);
	snprintf(path, sizeof(path), "%s/new", round);
	setenv("XDG_CACHE_HOME", path, 1);
	assert_false(cache_write("a.plans", "one", 3));
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	snprintf(path, sizeof(path), "%s/new/%s", home, name);
	setenv("XDG_CACHE_HOME", path, 1);
	assert_false(cache_write("a.plans", "one", 3));
}

/* What another user does in a directory that is everybody's (sticky), until he is killed: his link, and no link. */
static void change_links(const char *link, const char *victim)
{
	if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
		_exit(1);
	for (;;) {
		if (symlink(victim, link) == 0)
			unlink(link);
	}
}

/*
 * fear L2: of root's, in a directory where all may write, another user makes a link at any moment, or has made a
 * directory: nothing is made where it leads, nor in that
 */
static void test_sticky(void **state)
{
	char all[128], victim[128], theirs[160], path[192];
	pid_t other;

	(void)state;
	if (geteuid() != 0) {
		print_message("not root: files of other users are not tried\n");
		skip();
	}
	snprintf(all, sizeof(all), "%s/all", home);
	snprintf(victim, sizeof(victim), "%s/victim", home);
	assert_int_equal(chmod(home, 0755) | mkdir(all, 0755) | chmod(all, 01777), 0);
	assert_int_equal(mkdir(victim, 0700), 0);
	unsetenv("XDG_CACHE_HOME");
	setenv("HOME", all, 1);
	snprintf(theirs, sizeof(theirs), "%s/.cache", all);
	assert_int_equal(symlink(victim, theirs) | lchown(theirs, 65534, 65534), 0);
	assert_false(cache_write("a.plans", "one", 3));
	assert_int_equal(unlink(theirs), 0);
	assert_int_equal(mkdir(theirs, 0755) | chown(theirs, 65534, 65534), 0);
	assert_false(cache_write("a.plans", "one", 3));
	snprintf(path, sizeof(path), "%s/dinst", theirs);
	assert_int_equal(access(path, F_OK), -1);
	snprintf(theirs, sizeof(theirs), "%s/link", all);
	snprintf(path, sizeof(path), "%s/new", theirs);
	setenv("XDG_CACHE_HOME", path, 1);
	other = fork();
	if (other == 0)
		change_links(theirs, victim);
	for (unsigned i = 0; i < 300; i++) {
		cache_write("a.plans", "one", 3);
		/* What was made is ours, and goes out of his way for the next time. */
		snprintf(path, sizeof(path), "%s/made-%u", home, i);
		rename(theirs, path);
	}
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	/* It is empty still. */
	assert_int_equal(rmdir(victim), 0);
}

/* Nowhere to write to, and no room: nobody is bothered, nothing is left behind. */
static void test_nowhere(void **state)
{
	struct rlimit limit = {1000, 1000}, old;
	static char content[5000];
	uint8_t *bytes;
	size_t size;

	(void)state;
	setenv("XDG_CACHE_HOME", "/proc/none", 1);
	assert_false(cache_write("a.plans", "one", 3));
	setenv("XDG_CACHE_HOME", "relative", 1);
	unsetenv("HOME");
	assert_false(cache_write("a.plans", "one", 3));
	setenv("HOME", home, 1);
	assert_true(cache_write("a.plans", "one", 3));
	setenv("XDG_CACHE_HOME", home, 1);
	assert_false(cache_read("a.plans", &bytes, &size));
	assert_true(cache_write("b.plans", "one", 3));
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	limit.rlim_max = old.rlim_max;
	setrlimit(RLIMIT_FSIZE, &limit);
	assert_false(cache_write("b.plans", content, sizeof(content)));
	setrlimit(RLIMIT_FSIZE, &old);
	assert_true(cache_read("b.plans", &bytes, &size));
	assert_int_equal(size, 3);
	free(bytes);
	assert_int_equal(files(NULL, 0), 1);
}

static unsigned descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* A full disk, whoever asks how often: there is no key, and nothing else is different. */
static void test_no_key(void **state)
{
	struct rlimit limit = {8, 8}, old;
	struct siphash_key key;
	unsigned before, after;
	bool made;

	(void)state;
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	limit.rlim_max = old.rlim_max;
	setrlimit(RLIMIT_FSIZE, &limit);
	before = descriptors();
	made = cache_key(&key);
	after = descriptors();
	/* What the test says goes to a file, too. */
	setrlimit(RLIMIT_FSIZE, &old);
	assert_false(made);
	assert_int_equal(after, before);
	assert_true(cache_key(&key));
	assert_int_equal(files(NULL, 0), 0);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_home, drop_home)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_files),     CASE(test_writers), CASE(test_many),    CASE(test_limit),
		CASE(test_strangers), CASE(test_missing), CASE(test_nowhere), CASE(test_no_key),
		CASE(test_own_links), CASE(test_sticky),
	};

	return cmocka_run_group_tests_name("image: files of the cache", tests, NULL, NULL);
}
