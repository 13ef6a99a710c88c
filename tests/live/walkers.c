/* SPDX-License-Identifier: MIT */
/*
 * walkers.c - stack walks that begin in inserted code: what a profiler's signal
 * handler and a debugger see there. Return addresses are the program's own
 * always, so every walk from the program's code goes through; inserted code
 * itself has no unwind tables, and walks that need them end in it at once.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/live/harness_session.h"
#include "tests/live/harness_thread.h"

struct sums {
	unsigned long samples, backtraces, unwinds, pointers;
};

static void read_sums(struct harness *h, const char *name, struct sums *s)
{
	char format[96];

	snprintf(format, sizeof(format), "%s %%lu backtrace %%lu libunwind %%lu pointers %%lu",
		 name);
	if (sscanf(harness_line(h, HARNESS_ANSWER_MS), format, &s->samples, &s->backtraces,
		   &s->unwinds, &s->pointers) != 4)
		fail_msg("no line '%s ...'", name);
}

static void walk(struct harness *h, unsigned ms, struct sums *own, struct sums *other)
{
	char text[32];

	snprintf(text, sizeof(text), "walk %u\n", ms);
	harness_send(h, text);
	read_sums(h, "own", own);
	read_sums(h, "other", other);
}

static void insert_everything(struct session *s)
{
	for (int kind = POINT_ENTRY; kind <= POINT_STORE; kind++)
		session_insert_kind(s, "/Code/walkers/walker_*", (enum point_kind)kind);
}

/*
 * fear E6: a timer's handler walks the stack wherever it interrupts. From the program's code, at
 * each of its instructions instrumented, backtrace(3), libunwind and frame pointers come to main as
 * ever. From inserted code frame pointers do; walks by unwind tables end there, for it has none
 */
static void test_profiler(void **state)
{
	struct sums own, other;
	struct harness *h = *state;
	struct session *s;

	harness_start(h, "walkers", NULL);
	/* Samples come by the CPU time that it gets. */
	for (int i = 0; i < 100; i++) {
		walk(h, 300, &own, &other);
		if (own.samples > 10)
			break;
	}
	assert_true(own.samples > 10);
	assert_int_equal(other.samples, 0);
	assert_int_equal(own.backtraces, own.samples);
	assert_int_equal(own.unwinds, own.samples);
	assert_int_equal(own.pointers, own.samples);
	s = session_begin(h);
	insert_everything(s);
	for (int i = 0; i < 200; i++) {
		walk(h, 500, &own, &other);
		print_message("own code: %lu samples, %lu by backtrace, %lu by libunwind, %lu by "
			      "frame pointers; inserted code: %lu, %lu, %lu, %lu\n",
			      own.samples, own.backtraces, own.unwinds, own.pointers, other.samples,
			      other.backtraces, other.unwinds, other.pointers);
		assert_int_equal(own.backtraces, own.samples);
		assert_int_equal(own.unwinds, own.samples);
		assert_int_equal(own.pointers, own.samples);
		assert_int_equal(other.pointers, other.samples);
		if (own.samples && other.samples > 50)
			break;
	}
	assert_true(own.samples && other.samples > 10);
	session_end(s);
	walk(h, 100, &own, &other);
	assert_int_equal(other.samples, 0);
	harness_verify(h);
	harness_end(h, 0);
}

/* -------------------------------------------------------------------- gdb */

static pid_t other_thread(pid_t pid)
{
	char path[64];
	struct dirent *entry;
	pid_t found = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	assert_non_null(dir);
	while ((entry = readdir(dir)))
		if (atoi(entry->d_name) > 0 && atoi(entry->d_name) != pid)
			found = atoi(entry->d_name);
	closedir(dir);
	return found;
}

/* The backtrace of one thread in gdb's words. */
static void gdb_backtrace(pid_t pid, pid_t tid, char *text, size_t size)
{
	char command[512];
	size_t used;
	FILE *gdb;

	snprintf(command, sizeof(command),
		 "timeout 250 gdb -nx -batch -p %d -ex 'set width 0' -ex 'thread find %d' "
		 "-ex 'thread apply all bt 20' 2>&1",
		 (int)pid, (int)tid);
	gdb = popen(command, "r");
	assert_non_null(gdb);
	used = fread(text, 1, size - 1, gdb);
	text[used] = '\0';
	pclose(gdb);
}

/*
 * fear E6: gdb stops a thread in inserted code: it has no name for that frame, may lose those behind
 * it, and the program is none the worse for it
 */
static void test_gdb(void **state)
{
	struct harness *h = *state;
	static char text[65536];
	struct user_regs_struct r;
	struct session *s;
	bool inside = false;
	pid_t tid;

	if (system("command -v gdb >/dev/null 2>&1") != 0) {
		print_message("SKIP gdb in inserted code: gdb is not installed\n");
		skip();
	}
	harness_start(h, "walkers", NULL);
	s = session_begin(h);
	insert_everything(s);
	harness_send(h, "spin\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "spinning");
	tid = other_thread(h->pid);
	for (int i = 0; i < 200000 && !inside; i++) {
		thread_seize(tid);
		thread_get(tid, &r);
		inside = place_at(s, r.rip) != NULL;
		if (!inside) {
			thread_let_go(tid);
			usleep(500);
		}
	}
	assert_true(inside);
	thread_freeze(h->pid, tid);
	gdb_backtrace(h->pid, tid, text, sizeof(text));
	print_message("gdb %s the frames behind inserted code\n",
		      strstr(text, "walker_bottom") ? "sees" : "does not see");
	/* The main thread stands in read(2): its frames are there in any case. */
	assert_non_null(strstr(text, " main "));
	thread_thaw(h->pid);
	harness_send(h, "rest\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "resting");
	session_end(s);
	/* The C library keeps the stack of the thread that has ended, and a handler for others. */
	harness_verify_what(h, HARNESS_TEXT | HARNESS_THREADS | HARNESS_FDS);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_profiler), CASE(test_gdb)};

	return cmocka_run_group_tests_name("live/walkers", tests, NULL, NULL);
}
