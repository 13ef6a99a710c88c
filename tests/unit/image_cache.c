/* SPDX-License-Identifier: MIT */
/*
 * image_cache.c - plans from the cache are the plans that were made, and no
 * file in it, whatever has happened to it, is anything else but ignored.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mutator/cache.h"
#include "mutator/cache_pack.h"
#include "mutator/cache_plans.h"
#include "mutator/image_private.h"

static char home[64], directory[80];

static int make_home(void **state)
{
	(void)state;
	snprintf(home, sizeof(home), "/tmp/dinst-cache-XXXXXX");
	if (!mkdtemp(home))
		return -1;
	snprintf(directory, sizeof(directory), "%s/dinst", home);
	setenv("XDG_CACHE_HOME", home, 1);
	unsetenv("DINST_CACHE");
	plan_cache_enable(true);
	return 0;
}

static int drop_home(void **state)
{
	char command[128];

	(void)state;
	plan_cache_enable(false);
	snprintf(command, sizeof(command), "rm -rf %s", home);
	return system(command);
}

/* How many files there are, and the name of one of them. */
static unsigned files(char *name, size_t size)
{
	DIR *dir = opendir(directory);
	const struct dirent *d;
	unsigned n = 0;

	while (dir && (d = readdir(dir)))
		if (d->d_name[0] != '.') {
			if (name)
				snprintf(name, size, "%s", d->d_name);
			n++;
		}
	if (dir)
		closedir(dir);
	return n;
}

/* -------------------------------------------------------------- plans */

static void target_path(char *path, size_t size)
{
	const char *build = getenv("DINST_BUILD");

	snprintf(path, size, "%s/tests/live/targets/points-flow", build ? build : "build");
}

static struct image *open_file(const char *path)
{
	struct dinst_error e = {0};
	struct image *img = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	if (image_open(fd, path, NULL, &img, &e) < 0)
		fail_msg("%s", e.text);
	close(fd);
	return img;
}

static struct image *open_target(void)
{
	char path[4096];

	target_path(path, sizeof(path));
	return open_file(path);
}

struct plans {
	struct function_plan **items;
	size_t count;
};

static void free_plans(struct image *img, struct plans *p)
{
	for (size_t i = 0; i < p->count; i++)
		plan_free(img, p->items[i]);
	free(p->items);
}

/* Makes and remembers all plans; what closing writes. */
static void make_plans(struct image *img, struct plans *p)
{
	const struct image_function *functions;
	struct dinst_error e = {0};

	p->count = image_functions(img, &functions);
	p->items = calloc(p->count, sizeof(*p->items));
	assert_non_null(p->items);
	for (size_t i = 0; i < p->count; i++) {
		if (plan_function(img, (uint32_t)i, &p->items[i], &e) < 0)
			fail_msg("%s", e.text);
		plan_cache_put(img, p->items[i]);
	}
}

static bool same_point(const struct point *a, const struct point *b)
{
	return a->kind == b->kind && a->tactic == b->tactic && a->refusal == b->refusal &&
	       a->place == b->place && a->part == b->part && a->address == b->address &&
	       a->window == b->window && a->insn == b->insn && a->callee == b->callee &&
	       a->live == b->live;
}

static bool same_window(const struct window *a, const struct window *b)
{
	return a->start == b->start && a->length == b->length && a->padding == b->padding &&
	       a->insn_count == b->insn_count && a->hole_length == b->hole_length &&
	       a->kind == b->kind && a->hole == b->hole;
}

static bool same_plan(const struct function_plan *a, const struct function_plan *b)
{
	if (a->function != b->function || a->point_count != b->point_count ||
	    a->window_count != b->window_count || a->level != b->level)
		return false;
	for (size_t i = 0; i < a->point_count; i++)
		if (!same_point(&a->points[i], &b->points[i]))
			return false;
	for (size_t i = 0; i < a->window_count; i++)
		if (!same_window(&a->windows[i], &b->windows[i]))
			return false;
	return true;
}

/* How many plans the cache has; every one is as it was made. */
static size_t check_cached(const struct plans *p)
{
	struct image *img = open_target();
	size_t found = 0;

	for (size_t i = 0; i < p->count; i++) {
		struct function_plan *plan;

		if (!plan_cache_get(img, (uint32_t)i, &plan))
			continue;
		assert_true(same_plan(plan, p->items[i]));
		plan_free(img, plan);
		found++;
	}
	image_close(img);
	return found;
}

static void test_round_trip(void **state)
{
	struct image *img = open_target();
	struct plans p;
	char name[256];

	(void)state;
	make_plans(img, &p);
	assert_int_equal(files(NULL, 0), 0);
	plan_cache_flush(img);
	assert_int_equal(files(name, sizeof(name)), 1);
	assert_int_equal(check_cached(&p), p.count);
	/* Nothing new: nothing is written. */
	plan_cache_flush(img);
	assert_int_equal(files(NULL, 0), 1);
	free_plans(img, &p);
	image_close(img);
}

/* fear L1, F6: plans of a file that is written anew while it is looked at are nobody's: none is kept */
static void test_written_anew(void **state)
{
	const struct image_function *functions;
	char path[4096], copy[128], command[4300];
	struct function_plan *plan = NULL;
	const uint8_t *code;
	struct image *img;
	struct plans p;
	uint8_t byte;
	size_t size;
	int fd;

	(void)state;
	target_path(path, sizeof(path));
	snprintf(copy, sizeof(copy), "%s/copy", home);
	snprintf(command, sizeof(command), "cp %s %s", path, copy);
	assert_int_equal(system(command), 0);
	img = open_file(copy);
	/* What the file is now is what plans are kept for. */
	assert_false(plan_cache_get(img, 0, &plan));
	assert_true(image_functions(img, &functions) > 0);
	code = image_code(img, functions[0].address, &size);
	assert_non_null(code);
	byte = (uint8_t)~code[0];
	fd = open(copy, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, &byte, 1, code - img->file.bytes), 1);
	close(fd);
	assert_int_equal(code[0], byte);
	make_plans(img, &p);
	plan_cache_flush(img);
	assert_int_equal(files(NULL, 0), 0);
	free_plans(img, &p);
	image_close(img);
}

static void test_off(void **state)
{
	struct image *img = open_target();
	struct plans p;

	(void)state;
	plan_cache_enable(false);
	make_plans(img, &p);
	free_plans(img, &p);
	image_close(img);
	assert_int_equal(files(NULL, 0), 0);
	plan_cache_enable(true);
	setenv("DINST_CACHE", "off", 1);
	img = open_target();
	make_plans(img, &p);
	free_plans(img, &p);
	image_close(img);
	unsetenv("DINST_CACHE");
	assert_int_equal(files(NULL, 0), 0);
}

static void put_file(const char *name, const uint8_t *bytes, size_t size)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, size), size);
	close(fd);
}

/* fear L1: cut short anywhere, or with any byte changed, a file of plans is ignored */
static void test_damage(void **state)
{
	struct image *img = open_target();
	struct plans p;
	char name[256];
	uint8_t *bytes;
	size_t size;

	(void)state;
	make_plans(img, &p);
	plan_cache_flush(img);
	assert_int_equal(files(name, sizeof(name)), 1);
	assert_true(cache_read(name, &bytes, &size));
	assert_int_equal(check_cached(&p), p.count);
	for (size_t at = 0; at < size; at++) {
		put_file(name, bytes, at);
		assert_int_equal(check_cached(&p), 0);
		for (unsigned bit = 0; bit < 8; bit += 7) {
			bytes[at] ^= (uint8_t)(1u << bit);
			put_file(name, bytes, size);
			assert_int_equal(check_cached(&p), 0);
			bytes[at] ^= (uint8_t)(1u << bit);
		}
	}
	put_file(name, bytes, size);
	assert_int_equal(check_cached(&p), p.count);
	print_message("%zu bytes for %zu plans\n", size, p.count);
	free(bytes);
	free_plans(img, &p);
	image_close(img);
}

/* A row of items survives, and unpacking any bytes stays inside them. */
static void test_pack(void **state)
{
	uint64_t items[64][4], copy[64][4];
	struct pack_buffer b = {0};
	struct pack_reader r;

	(void)state;
	srandom(7);
	for (unsigned i = 0; i < 64; i++)
		for (unsigned k = 0; k < 4; k++)
			items[i][k] = i && random() % 2 ? items[i - 1][k]
							: (uint64_t)random() << random() % 40;
	pack_put(&b, 300);
	pack_put_items(&b, items, 64, sizeof(items[0]));
	assert_false(b.bad);
	for (size_t size = 0; size <= b.size; size++) {
		uint8_t *exact = malloc(size + !size);

		memcpy(exact, b.bytes, size);
		memset(copy, 0, sizeof(copy));
		r = (struct pack_reader){exact, exact + size, false};
		if (pack_take(&r) == 300)
			pack_take_items(&r, copy, 64, sizeof(copy[0]));
		assert_int_equal(r.bad, size < b.size);
		free(exact);
	}
	assert_memory_equal(items, copy, sizeof(items));
	free(b.bytes);
}

/* -------------------------------------------------------------- files */

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

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_home, drop_home)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_round_trip),	 CASE(test_off),   CASE(test_damage),
		CASE(test_written_anew), CASE(test_pack),  CASE(test_files),
		CASE(test_writers),	 CASE(test_limit), CASE(test_strangers),
		CASE(test_nowhere),
	};

	return cmocka_run_group_tests_name("image: cache", tests, NULL, NULL);
}
