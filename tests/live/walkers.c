/* SPDX-License-Identifier: MIT */
/*
 * walkers.c - stack walks that begin in inserted code: what a profiler's signal
 * handler, perf and a debugger see there. Return addresses are the program's own
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

static void insert_kinds(struct session *s, int first, int last)
{
	for (int kind = first; kind <= last; kind++)
		session_insert_kind(s, "/Code/walkers/walker_*", (enum point_kind)kind);
}

/* Until there were so many samples of each: they come by the CPU time that it gets. */
static void sample(struct harness *h, unsigned long least_own, unsigned long least_other)
{
	struct sums own, other, all = {0}, inserted = {0};

	for (int i = 0; i < 200 && (all.samples < least_own || inserted.samples < least_other);
	     i++) {
		walk(h, 500, &own, &other);
		assert_int_equal(own.backtraces, own.samples);
		assert_int_equal(own.unwinds, own.samples);
		assert_int_equal(own.pointers, own.samples);
		assert_int_equal(other.pointers, other.samples);
		all.samples += own.samples;
		inserted.samples += other.samples;
		inserted.backtraces += other.backtraces;
		inserted.unwinds += other.unwinds;
	}
	print_message("own code: %lu samples; inserted code: %lu, of which backtrace() came to the "
		      "bottom from %lu, libunwind from %lu\n",
		      all.samples, inserted.samples, inserted.backtraces, inserted.unwinds);
	assert_true(all.samples >= least_own && inserted.samples >= least_other);
}

/*
 * fear E6: a timer's handler walks the stack wherever it interrupts, with entries, exits and calls
 * instrumented, and with every instruction. From the program's code backtrace(3), libunwind and frame
 * pointers come to main as ever. From inserted code frame pointers do; walks by unwind tables may end there,
 * for it has none
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
	insert_kinds(s, POINT_ENTRY, POINT_CALL);
	sample(h, 50, 10);
	insert_kinds(s, POINT_CALL + 1, POINT_STORE);
	sample(h, 1, 50);
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
	insert_kinds(s, POINT_ENTRY, POINT_STORE);
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

/* ------------------------------------------------------------------- perf */

struct chains {
	unsigned long own, own_whole, other, other_whole;
};

/* A sample: `function` was interrupted, in code of the program or in ours; its chain comes to the thread's start. */
static void add_chain(struct chains *c, const char *function, bool whole)
{
	const bool own = !strncmp(function, "walker_", 7);

	if (!own && strcmp(function, "[unknown]"))
		fail_msg("perf says that %s was running", function);
	*(own ? &c->own : &c->other) += 1;
	*(own ? &c->own_whole : &c->other_whole) += whole;
}

/* Half a second of the process under perf; false if perf cannot do that here. */
static bool perf(struct harness *h, const char *graph, struct chains *c)
{
	char command[512], line[512], function[128] = "", name[128];
	bool whole = false;
	FILE *script;

	snprintf(command, sizeof(command),
		 "timeout 100 perf record -q -N -e cpu-clock:u -F 997 --call-graph %s -p %d -o "
		 "'%s/perf' -- sleep 0.5 >'%s/perf.log' 2>&1",
		 graph, (int)h->pid, h->directory, h->directory);
	if (system(command) != 0)
		return false;
	snprintf(command, sizeof(command), "timeout 100 perf script -i '%s/perf' -F ip,sym 2>&1",
		 h->directory);
	script = popen(command, "r");
	assert_non_null(script);
	/* A line a frame, the interrupted one first, and an empty one behind each sample. */
	while (fgets(line, sizeof(line), script)) {
		if (sscanf(line, "%*x %127s", name) == 1) {
			if (!function[0])
				snprintf(function, sizeof(function), "%s", name);
			whole |= !strcmp(name, "start_thread");
		} else if (function[0]) {
			add_chain(c, function, whole);
			function[0] = '\0';
			whole = false;
		}
	}
	pclose(script);
	return true;
}

/*
 * fear E2, E6: perf record, its chains by frame pointers and by unwind tables: with entries,
 * exits and calls instrumented those that begin in the program's code come to the thread's start, by frame pointers
 * those from inserted code do, too
 */
static void test_perf(void **state)
{
	struct harness *h = *state;
	struct chains pointers = {0}, tables = {0};
	struct session *s;

	if (system("command -v perf >/dev/null 2>&1") != 0) {
		print_message("SKIP perf: it is not installed\n");
		skip();
	}
	harness_limit(600);
	harness_start(h, "walkers", NULL);
	harness_send(h, "spin\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "spinning");
	if (!perf(h, "fp", &pointers)) {
		print_message("SKIP perf: it may not look at this process\n");
		skip();
	}
	memset(&pointers, 0, sizeof(pointers));
	s = session_begin(h);
	insert_kinds(s, POINT_ENTRY, POINT_CALL);
	/* Samples come by the CPU time that it gets. */
	for (int i = 0; i < 40 && (pointers.own < 10 || pointers.other < 10 || tables.own < 10);
	     i++)
		assert_true(perf(h, "fp", &pointers) && perf(h, "dwarf,4096", &tables));
	print_message("by frame pointers: %lu of %lu in own code, %lu of %lu in inserted code; by "
		      "unwind tables: %lu of %lu, %lu of %lu\n",
		      pointers.own_whole, pointers.own, pointers.other_whole, pointers.other,
		      tables.own_whole, tables.own, tables.other_whole, tables.other);
	assert_true(pointers.own >= 10 && pointers.other >= 10 && tables.own >= 10);
	assert_int_equal(pointers.own_whole, pointers.own);
	assert_int_equal(pointers.other_whole, pointers.other);
	assert_int_equal(tables.own_whole, tables.own);
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
	const struct CMUnitTest tests[] = {CASE(test_profiler), CASE(test_gdb), CASE(test_perf)};

	return cmocka_run_group_tests_name("live/walkers", tests, NULL, NULL);
}
