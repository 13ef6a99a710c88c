/* SPDX-License-Identifier: MIT */
/*
 * uprobes.c - the kernel's own probes (perf, bpftrace) on functions of ours: one
 * that is set first is another's patch, one that comes later must not find half
 * of a jump behind it when we have left. The program runs a copy of its file, so
 * that the probe is in nobody else's.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "inject/maps.h"
#include "tests/live/harness_session.h"

#define TRACING_DIRECTORY "/sys/kernel/tracing"
#define TRACING		  TRACING_DIRECTORY "/"

enum { THREADS = 2, ROUNDS = 500, LEAVES = 4 };

static char event[64]; /* "p:dinst_PID/leaf ", and where it is; empty: no probe is set */

static bool put(const char *file, int flags, const char *text)
{
	const int fd = open(file, O_WRONLY | O_CLOEXEC | flags);
	const bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return done;
}

static void enable(bool on)
{
	char path[128];

	snprintf(path, sizeof(path), TRACING "events/dinst_%d/leaf/enable", (int)getpid());
	if (!put(path, O_TRUNC, on ? "1" : "0"))
		fail_msg("%s cannot be written", path);
}

static void unset(void)
{
	char text[64];

	if (!event[0])
		return;
	enable(false);
	snprintf(text, sizeof(text), "-:dinst_%d/leaf\n", (int)getpid());
	assert_true(put(TRACING "uprobe_events", O_APPEND, text));
	event[0] = 0;
}

static int teardown(void **state)
{
	unset();
	return harness_teardown(state);
}

/* A probe at the address of the file that is mapped there, in all processes that run the file. */
static void set(struct harness *h, taddr_t at)
{
	const struct maps_entry *entry;
	char text[512];
	struct maps m;

	assert_int_equal(maps_read(h->pid, &m, NULL), 0);
	entry = maps_find(&m, at);
	assert_non_null(entry);
	snprintf(event, sizeof(event), "p:dinst_%d/leaf", (int)getpid());
	snprintf(text, sizeof(text), "%s %s:0x%llx\n", event, entry->name,
		 (unsigned long long)(at - entry->lo + entry->offset));
	maps_release(&m);
	if (!put(TRACING "uprobe_events", O_APPEND, text))
		fail_msg("the probe is refused: %s", text);
	enable(true);
}

static uint8_t first_byte(struct session *s, taddr_t at)
{
	uint8_t byte = 0;

	assert_int_equal(target_read_some(s->target, at, &byte, 1), 1);
	return byte;
}

static struct session *begin_with(struct harness *h, const char *program)
{
	static char path[128];
	const char *argv[] = {path, harness_number(THREADS), NULL};
	char command[512];

	if (access(TRACING "uprobe_events", W_OK))
		skip();
	harness_limit(600);
	snprintf(path, sizeof(path), "%s/probed", h->directory);
	snprintf(command, sizeof(command), "cp '%s' '%s'", harness_path(program), path);
	assert_int_equal(system(command), 0);
	harness_start_argv(h, argv, true);
	return session_begin(h);
}

static struct session *begin(struct harness *h)
{
	return begin_with(h, "tests/live/targets/jumping");
}

/*
 * fear J4: a kernel probe set on a function while our jump is there, and not hit before we go: all
 * of the jump goes, the probe stays, and the program runs through it
 */
static void test_set_later(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	const taddr_t leaf = session_address(s, "leaf");
	const uint8_t original = first_byte(s, leaf);
	const unsigned id = session_insert(s, "leaf");

	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, id), THREADS * ROUNDS * LEAVES);
	assert_int_not_equal(first_byte(s, leaf), original);
	set(h, leaf);
	assert_int_equal(first_byte(s, leaf), 0xcc);
	session_remove(s, id);
	session_flush_all(s);
	assert_int_equal(first_byte(s, leaf), 0xcc);
	session_go(h, ROUNDS);
	session_end(s);
	session_go(h, ROUNDS);
	unset();
	harness_verify_what(h, HARNESS_TEXT | HARNESS_THREADS | HARNESS_SIGNALS | HARNESS_FDS);
	session_go(h, ROUNDS);
	harness_end(h, 0);
}

/* fear J4: likewise one that came and went, which leaves the file's first byte before our others */
static void test_came_and_went(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	const taddr_t leaf = session_address(s, "leaf");
	const uint8_t original = first_byte(s, leaf);

	session_insert(s, "leaf");
	assert_int_not_equal(first_byte(s, leaf), original);
	set(h, leaf);
	unset();
	assert_int_equal(first_byte(s, leaf), original);
	session_end(s);
	harness_verify_what(h, HARNESS_TEXT | HARNESS_THREADS | HARNESS_SIGNALS | HARNESS_FDS);
	session_go(h, ROUNDS);
	harness_end(h, 0);
}

/* fear J4: where a kernel probe was first, the place is refused and both go on */
static void test_set_first(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	const taddr_t leaf = session_address(s, "leaf");
	struct dinst_error e = {0};
	unsigned id;
	size_t count;

	set(h, leaf);
	if (session_try_insert(s, "leaf", false, &count, &id, &e) == 0)
		fail_msg("inserted over another's breakpoint");
	assert_int_equal(first_byte(s, leaf), 0xcc);
	session_go(h, ROUNDS);
	session_end(s);
	unset();
	harness_verify_what(h, HARNESS_TEXT | HARNESS_THREADS | HARNESS_SIGNALS | HARNESS_FDS);
	harness_end(h, 0);
}

/* Of a no-op of five bytes Linux 6.18 makes a call of its own where a probe on it was hit. */
static void expect_call(struct session *s, taddr_t at)
{
	if (first_byte(s, at) == 0xe8)
		return;
	session_end(s);
	unset();
	print_message("skipped: this kernel leaves probes breakpoints\n");
	skip();
}

/* fear J4: a kernel probe that has become a call of the kernel's: the place is refused, told as another's */
static void test_call_first(void **state)
{
	struct harness *h = *state;
	struct session *s = begin_with(h, "tests/live/targets/nopped");
	const taddr_t leaf = session_address(s, "leaf");
	struct dinst_error e = {0};
	unsigned id;
	size_t count;

	set(h, leaf);
	session_go(h, ROUNDS);
	expect_call(s, leaf);
	if (session_try_insert(s, "leaf", false, &count, &id, &e) == 0)
		fail_msg("inserted over another's call");
	if (!strstr(e.text, "the bytes in memory are not the file's"))
		fail_msg("%s", e.text);
	assert_int_equal(first_byte(s, leaf), 0xe8);
	session_go(h, ROUNDS);
	unset();
	assert_int_equal(first_byte(s, leaf), 0x0f);
	id = session_insert(s, "leaf");
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, id), THREADS * ROUNDS * LEAVES);
	session_end(s);
	harness_verify_what(h, HARNESS_TEXT | HARNESS_THREADS | HARNESS_SIGNALS | HARNESS_FDS);
	session_go(h, ROUNDS);
	harness_end(h, 0);
}

/*
 * fear J4: one that becomes such a call over our jump: it stays when we go, and what was inserted
 * stays mapped until it has gone; then all is the file's
 */
static void test_call_later(void **state)
{
	struct harness *h = *state;
	struct session *s = begin_with(h, "tests/live/targets/nopped");
	const taddr_t leaf = session_address(s, "leaf");
	struct dinst_error e = {0};
	struct detach_result detached;
	const unsigned id = session_insert(s, "leaf");

	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, id), THREADS * ROUNDS * LEAVES);
	set(h, leaf);
	session_go(h, ROUNDS);
	expect_call(s, leaf);
	if (session_detach(s, 5, &detached, &e) < 0)
		fail_msg("detach: %s", e.text);
	/* Whose it is cannot be seen in its bytes, so what it might lead to stays. */
	assert_int_equal(detached.left, 1);
	assert_int_equal(first_byte(s, leaf), 0xe8);
	session_go(h, ROUNDS);
	unset();
	session_go(h, ROUNDS);
	session_end(s);
	harness_verify_what(h, HARNESS_TEXT | HARNESS_THREADS | HARNESS_SIGNALS | HARNESS_FDS);
	harness_end(h, 0);
}

/* What `dinst doctor` says of uprobes; a reference of the caller's. */
static json_t *doctor(struct harness *h)
{
	json_t *rows, *row, *found = NULL;
	size_t i;

	assert_int_equal(harness_dinst(h, &rows, "doctor", harness_number(h->pid)), 0);
	json_array_foreach(rows, i, row)
	{
		if (!strcmp(json_string_value(json_object_get(row, "check")), "uprobes"))
			found = json_incref(row);
	}
	json_decref(rows);
	assert_non_null(found);
	assert_true(json_is_true(json_object_get(found, "ok")));
	return found;
}

static const char *fix_of(const json_t *row)
{
	return json_string_value(json_object_get(row, "fix"));
}

/* fear J4: doctor and attach warn where a kernel probe was hit, and where none was they do not */
static void test_warned(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	const taddr_t leaf = session_address(s, "leaf");
	struct maps m;
	json_t *row;

	session_end(s);
	row = doctor(h);
	assert_string_equal(fix_of(row), "");
	json_decref(row);
	assert_int_equal(harness_dinst(h, NULL, "attach", harness_number(h->pid)), 0);
	assert_null(strstr(h->messages, "uprobe"));
	assert_int_equal(harness_dinst(h, NULL, "detach", "-p", harness_number(h->pid)), 0);
	set(h, leaf);
	session_go(h, ROUNDS);
	unset();
	/* that it is known by this is the kernel's */
	assert_int_equal(maps_read(h->pid, &m, NULL), 0);
	assert_non_null(maps_named(&m, "[uprobes]"));
	maps_release(&m);
	row = doctor(h);
	assert_non_null(strstr(fix_of(row), "let nobody set uprobes"));
	json_decref(row);
	assert_int_equal(harness_dinst(h, NULL, "attach", harness_number(h->pid)), 0);
	assert_non_null(strstr(h->messages, "beware: a kernel uprobe"));
	assert_int_equal(harness_dinst(h, NULL, "detach", "-p", harness_number(h->pid)), 0);
	session_go(h, ROUNDS);
	harness_end(h, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, harness_setup, teardown)

/* Where nobody has mounted that file system it is mounted for us and our children alone. */
static void see_tracing(void)
{
	if (!access(TRACING "uprobe_events", W_OK) || unshare(CLONE_NEWNS) ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return;
	mount("tracefs", TRACING_DIRECTORY, "tracefs", 0, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_set_later),  CASE(test_came_and_went), CASE(test_set_first),
		CASE(test_call_first), CASE(test_call_later),	 CASE(test_warned),
	};

	see_tracing();
	return cmocka_run_group_tests_name("live/uprobes", tests, NULL, NULL);
}
