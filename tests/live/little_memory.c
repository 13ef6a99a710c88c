/* SPDX-License-Identifier: MIT */
/*
 * little_memory.c - a program whose control group has hardly any memory left: what
 * is counted and measured in it is not its own to pay for, what would be is refused
 * by the group's name, and with more room it goes in. The kernel kills nobody.
 */
#include "tests/live/harness_session.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutator/variable.h"

/*
 * LIMIT is more than the copies of the functions' pages and what is left free for the program, and
 * less than a page for each distribution.
 */
enum { PARTS = 256, ROUNDS = 20, LIMIT = 1 << 20, MORE = 32 << 20 };

enum { THREADS = 200 };

static bool limit(struct harness *h, char *directory, size_t size)
{
	char bytes[32];

	snprintf(bytes, sizeof(bytes), "%d", LIMIT);
	if (harness_confine(h->pid, HARNESS_LIMIT_MEMORY, bytes, directory, size))
		return true;
	print_message("skipped: no memory control group can be made here\n");
	return false;
}

/* Writes to, or looks into, a file of the group by its name in either version. */
static FILE *open_of(const char *directory, const char *old, const char *name, const char *mode)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", directory, old);
	f = fopen(path, mode);
	if (f)
		return f;
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return fopen(path, mode);
}

static void raise_limit(const char *directory)
{
	FILE *f = open_of(directory, "memory.limit_in_bytes", "memory.max", "r+e");

	assert_non_null(f);
	assert_true(fprintf(f, "%d", MORE) > 0);
	assert_int_equal(fclose(f), 0);
}

static void expect_nobody_killed(const char *directory)
{
	FILE *f = open_of(directory, "memory.oom_control", "memory.events", "re");
	char line[64];
	bool told = false;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, "oom_kill ", 9)) {
			told = true;
			assert_string_equal(line, "oom_kill 0\n");
		}
	fclose(f);
	assert_true(told);
}

static int try_insert(struct session *s, const char *metric, const char *focus,
		      struct insert_result *result, struct dinst_error *e)
{
	const struct insert_options options = {.each = true};
	int status;

	do {
		dinst_error_clear(e);
		status = request_insert(s, metric, &focus, 1, &options, result, e);
	} while (status == DINST_BUSY);
	return status;
}

static void end(struct harness *h, struct session *s, const char *directory)
{
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
	harness_until(!rmdir(directory));
}

/*
 * fear I3: distributions of more than its group has room for, in functions that all run: they are
 * dinst's to pay for, every value is there, and the program lives
 */
static void test_distributions(void **state)
{
	struct harness *h = *state;
	struct insert_result result;
	struct dinst_error e = {0};
	char directory[64];
	struct session *s;

	harness_start(h, "fragments", "1", NULL);
	session_go(h, 1);
	s = session_begin(h);
	if (!limit(h, directory, sizeof(directory)))
		skip();
	if (try_insert(s, "latency", "part_0*", &result, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(result.count, PARTS);
	session_go(h, ROUNDS);
	for (size_t n = 0; n < result.count; n++) {
		struct variable_value value;

		assert_int_equal(instance_read(result.instances[n], 0, &value, &e), 0);
		assert_int_equal(value.count, ROUNDS);
		variable_value_release(&value);
	}
	free(result.instances);
	expect_nobody_killed(directory);
	end(h, s, directory);
}

/*
 * fear I3: more pages of code than its group has room for are refused, with the group's name, and
 * nothing is changed; with more room the same goes in
 */
static void test_refused(void **state)
{
	struct harness *h = *state;
	struct insert_result result;
	struct dinst_error e = {0};
	char directory[64];
	struct session *s;
	unsigned id;

	harness_start(h, "fragments", "1", NULL);
	session_go(h, 1);
	s = session_begin(h);
	if (!limit(h, directory, sizeof(directory)))
		skip();
	assert_int_equal(try_insert(s, "calls", "/Code/libc.so.6/*", &result, &e), DINST_REFUSED);
	assert_non_null(strstr(e.text, strrchr(directory, '/')));
	print_message("%s\n", e.text);
	id = session_insert(s, "part_0ff");
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, id), ROUNDS);
	raise_limit(directory);
	if (try_insert(s, "calls", "/Code/libc.so.6/*", &result, &e) < 0)
		fail_msg("%s", e.text);
	assert_true(result.count > 1000);
	free(result.instances);
	session_go(h, ROUNDS);
	expect_nobody_killed(directory);
	end(h, s, directory);
}

/*
 * fear I3: what is kept for each of many threads is more than its group has room for: refused, with
 * the group's name; with more room it goes in
 */
static void test_threads(void **state)
{
	struct harness *h = *state;
	struct insert_result result;
	struct dinst_error e = {0};
	char directory[64];
	struct session *s;

	harness_start(h, "calls", harness_number(THREADS), NULL);
	session_go(h, 1);
	s = session_begin(h);
	if (!limit(h, directory, sizeof(directory)))
		skip();
	assert_int_equal(try_insert(s, "latency", "many", &result, &e), DINST_UNSUPPORTED);
	assert_non_null(strstr(e.text, strrchr(directory, '/')));
	print_message("%s\n", e.text);
	session_go(h, 1);
	raise_limit(directory);
	if (try_insert(s, "latency", "many", &result, &e) < 0)
		fail_msg("%s", e.text);
	free(result.instances);
	session_go(h, 1);
	expect_nobody_killed(directory);
	end(h, s, directory);
}

/* ---------------------------------------------------------------- families */

enum { CHILDREN = 40, PLENTY = 256 << 20, LITTLE = 1 << 20 };

static void set_limit(const char *directory, uint64_t bytes)
{
	FILE *f = open_of(directory, "memory.limit_in_bytes", "memory.max", "r+e");

	assert_non_null(f);
	assert_true(fprintf(f, "%llu", (unsigned long long)bytes) > 0);
	assert_int_equal(fclose(f), 0);
}

static uint64_t used_by(const char *directory)
{
	FILE *f = open_of(directory, "memory.usage_in_bytes", "memory.current", "re");
	unsigned long long bytes = 0;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%llu", &bytes), 1);
	fclose(f);
	return bytes;
}

/* Private copies of files' code in KiB. */
static unsigned long text_copies(pid_t pid)
{
	unsigned long lo, hi, kib, total = 0;
	char path[64], line[512], kind[5];
	bool inside = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)pid);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx %4s", &lo, &hi, kind) == 3)
			inside = kind[2] == 'x' && strchr(line, '/');
		else if (inside && sscanf(line, "Anonymous: %lu kB", &kib) == 1)
			total += kib;
	}
	fclose(f);
	return total;
}

static size_t read_children(pid_t pid, pid_t *children, size_t room)
{
	char path[64];
	size_t count = 0;
	int child;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	f = fopen(path, "re");
	assert_non_null(f);
	while (count < room && fscanf(f, "%d", &child) == 1)
		children[count++] = child;
	fclose(f);
	return count;
}

static void ask(struct harness *h, const char *command)
{
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
}

/* All of libc counted, and then forty children, all in a group whose limit is far away; false: no groups here. */
static bool begin_herd(struct harness *h, struct session **s, char *directory, size_t size)
{
	char bytes[32];

	harness_start(h, "herd", NULL);
	snprintf(bytes, sizeof(bytes), "%d", PLENTY);
	*s = session_begin(h);
	if (!harness_confine(h->pid, HARNESS_LIMIT_MEMORY, bytes, directory, size))
		return false;
	session_insert(*s, "/Code/libc.so.6/*");
	ask(h, "fork 40\n");
	return true;
}

/* All but the page in whose tail the calls were made that took our memory out. */
static void expect_given_back(struct harness *h)
{
	pid_t children[CHILDREN];
	size_t given_back = 0;

	assert_int_equal(read_children(h->pid, children, CHILDREN), CHILDREN);
	for (size_t i = 0; i < CHILDREN; i++)
		given_back += text_copies(children[i]) <= 4;
	/* As far as each stop has time for it. */
	assert_true(given_back > CHILDREN / 2);
}

static void end_herd(struct harness *h, const char *directory)
{
	expect_given_back(h);
	ask(h, "end\n");
	expect_nobody_killed(directory);
	harness_verify(h);
	harness_end(h, 0);
	harness_until(!rmdir(directory));
}

/*
 * fear I3: code goes out of forty processes that have it by fork: each would have a copy of every page of it
 * for itself, and their group has no room for that: nobody is killed, they are told why it stays, and
 * with more room it goes, and the copies are given back
 */
static void test_children(void **state)
{
	struct harness *h = *state;
	struct detach_result result;
	struct dinst_error e = {0};
	char directory[64];
	struct session *s;

	if (!begin_herd(h, &s, directory, sizeof(directory)))
		skip();
	set_limit(directory, used_by(directory) + LITTLE);
	assert_int_equal(session_detach(s, 1, &result, &e), DINST_REFUSED);
	assert_true(result.left > 0);
	expect_nobody_killed(directory);
	print_message("%s\n", e.text);
	assert_non_null(strstr(e.text, strrchr(directory, '/')));
	set_limit(directory, PLENTY);
	if (session_detach(s, 10, &result, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(result.left, 0);
	session_free(s);
	end_herd(h, directory);
}

/* fear I3, J2: the same where the mutator has died: repair waits for memory, kills nobody, and gives the copies back */
static void test_heirs(void **state)
{
	struct harness *h = *state;
	struct leftovers left;
	struct dinst_error e = {0};
	char directory[64];
	struct session *s;
	struct target *t;

	if (!begin_herd(h, &s, directory, sizeof(directory)))
		skip();
	/* Our side only: as if we had died. */
	session_free(s);
	set_limit(directory, used_by(directory) + LITTLE);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	assert_int_equal(leftovers_clean(t, 2000, &left, &e), DINST_REFUSED);
	assert_non_null(strstr(e.text, strrchr(directory, '/')));
	expect_nobody_killed(directory);
	set_limit(directory, PLENTY);
	dinst_error_clear(&e);
	if (leftovers_clean(t, 10000, &left, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(left.arenas_left, 0);
	target_close(t);
	end_herd(h, directory);
}

/* SCANTY is enough for one process with one thread. */
enum { SCANTY = 384 << 10 };

/*
 * fear I3, G8: what is kept for the threads of a server's workers is more than their group has room for, and that for its own
 * thread is not: refused, with the group's name; with more room it goes in
 */
static void test_workers(void **state)
{
	struct harness *h = *state;
	struct insert_result result;
	struct dinst_error e = {0};
	char directory[64], bytes[32];
	struct session *s;

	harness_start(h, "life-family", NULL);
	snprintf(bytes, sizeof(bytes), "%d", PLENTY);
	s = session_begin(h);
	if (!harness_confine(h->pid, HARNESS_LIMIT_MEMORY, bytes, directory, sizeof(directory)))
		skip();
	session_insert(s, "handle");
	harness_send(h, "serve 64\n");
	assert_memory_equal(harness_line(h, HARNESS_ANSWER_MS), "workers ", 8);
	ask(h, "requests 1\n");
	set_limit(directory, used_by(directory) + SCANTY);
	assert_int_equal(try_insert(s, "latency", "handle", &result, &e), DINST_UNSUPPORTED);
	print_message("%s\n", e.text);
	assert_non_null(strstr(e.text, "65 threads"));
	assert_non_null(strstr(e.text, strrchr(directory, '/')));
	ask(h, "requests 1\n");
	set_limit(directory, PLENTY);
	if (try_insert(s, "latency", "handle", &result, &e) < 0)
		fail_msg("%s", e.text);
	ask(h, "requests 1\n");
	free(result.instances);
	expect_nobody_killed(directory);
	session_end(s);
	ask(h, "dismiss\n");
	harness_verify(h);
	harness_end(h, 0);
	harness_until(!rmdir(directory));
}

/* --------------------------------------------------------------- reading */

enum { DATA = 1 << 20, PAGE = 4096 };

/* Pages of the data that the process has for itself. */
static size_t count_own(pid_t pid, taddr_t data)
{
	static const uint64_t exclusive = (uint64_t)1 << 56;
	uint64_t entries[DATA / PAGE];
	size_t own = 0;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, entries, sizeof(entries),
			       (off_t)(data / PAGE * sizeof(*entries))),
			 sizeof(entries));
	close(fd);
	for (size_t i = 0; i < DATA / PAGE; i++)
		own += (entries[i] & exclusive) != 0;
	return own;
}

struct reading {
	taddr_t data;
	bool many;
};

static int read_all(const struct target *t, const struct reading *r, struct dinst_error *e)
{
	static uint8_t bytes[DATA];
	struct target_range ranges[] = {{r->data, DATA / 2, bytes},
					{r->data + DATA / 2, DATA / 2, bytes + DATA / 2}};
	int status;

	memset(bytes, 0, DATA);
	status = r->many ? target_read_many(t, ranges, 2, e)
			 : target_read(t, r->data, bytes, DATA, e);
	for (size_t i = 0; i < DATA && !status; i++)
		assert_int_equal(bytes[i], 1);
	return status;
}

static int read_in_stop(struct stop *stop, void *arg, struct dinst_error *e)
{
	return read_all(stop_target(stop), arg, e);
}

/*
 * fear I3: what a child has in common with its parent is read, while it runs and in a stop: neither gets a copy of its
 * own of it for that, as process_vm_readv() would have the kernel make
 */
static void test_reading(void **state)
{
	struct harness *h = *state;
	struct reading r = {0};
	struct dinst_error e = {0};
	struct target *t;
	pid_t child = 0;

	harness_start(h, "herd", NULL);
	ask(h, "fork 1\n");
	harness_send(h, "data\n");
	r.data = (strtoull(harness_line(h, HARNESS_ANSWER_MS), NULL, 16) + PAGE - 1) / PAGE * PAGE;
	assert_int_equal(read_children(h->pid, &child, 1), 1);
	for (int i = 0; i < 4; i++) {
		r.many = i & 1;
		assert_int_equal(target_open(i & 2 ? child : h->pid, &t, &e), 0);
		if (read_all(t, &r, &e) < 0)
			fail_msg("%s", e.text);
		if (target_stop(t, NULL, read_in_stop, &r, NULL, &e) < 0)
			fail_msg("%s", e.text);
		target_close(t);
		assert_int_equal(count_own(h->pid, r.data), 0);
		assert_int_equal(count_own(child, r.data), 0);
	}
	ask(h, "end\n");
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_distributions), CASE(test_refused), CASE(test_threads),
		CASE(test_children),	  CASE(test_heirs),   CASE(test_workers),
		CASE(test_reading),
	};

	return cmocka_run_group_tests_name("live/little_memory", tests, NULL, NULL);
}
