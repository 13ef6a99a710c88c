/* SPDX-License-Identifier: MIT */
/*
 * life_family.c - servers with workers, daemons, processes made in unusual
 * ways, executions that fail, and programs that come to a bad end.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/live/family_help.h"
#include "tests/live/harness_thread.h"

/* No arena of ours, the file's text, nobody traced. */
static void expect_clean(struct harness *h, pid_t process, const struct harness_snapshot *before)
{
	char text[2048];

	(void)h;
	if (harness_differences(before, HARNESS_TEXT | HARNESS_MAPS | HARNESS_THREADS | HARNESS_FDS,
				text, sizeof(text)))
		fail_msg("process %d is not clean:\n%s", (int)process, text);
}

/* Starts the workers; a look at each. */
static void serve(struct harness *h, pid_t *workers, struct harness_snapshot **looks)
{
	pid_t numbers[WORKERS + 1];
	const char *line;

	harness_send(h, "serve 4\n");
	line = harness_line(h, HARNESS_ANSWER_MS);
	assert_int_equal(strncmp(line, "workers ", 8), 0);
	assert_int_equal(harness_numbers(line + 8, numbers, WORKERS + 1), WORKERS);
	/* Each has set itself up when it has answered. */
	if (looks)
		ask(h, "requests 1");
	for (int i = 0; i < WORKERS; i++) {
		workers[i] = numbers[i];
		if (looks)
			looks[i] = harness_snapshot_take(workers[i]);
	}
}

/*
 * fear G8, G1: a server forks its workers after dinst has come: counts are exact for the family and for
 * each process, workers that come later included; removal and detach reach each of them.
 */
static void test_workers(void **state)
{
	struct harness *h = *state;
	pid_t workers[WORKERS], other = 0;
	unsigned all, each;

	begin(h);
	all = mdl_insert(h, "calls", "handle");
	each = mdl_insert(h, "calls", "/Code/life-family/handle", "/Machine/*");
	serve(h, workers, NULL);
	ask(h, "requests 1000");
	ask(h, "call 77");
	assert_int_equal(mdl_value(h, all), WORKERS * 1000 + 77);
	assert_int_equal(mdl_value(h, each), WORKERS * 1000 + 77);
	for (int i = 0; i < WORKERS; i++)
		assert_int_equal(part_of(h, each, workers[i]), 1000);
	assert_int_equal(part_of(h, each, h->pid), 77);
	assert_int_equal(sscanf(mdl_ask(h, "replace"), "worker %d", &other), 1);
	ask(h, "requests 500");
	assert_int_equal(part_of(h, each, other), 500);
	assert_int_equal(part_of(h, each, workers[0]), 1000);
	assert_int_equal(mdl_value(h, all), WORKERS * 1500 + 77);
	/* What is removed is removed everywhere. */
	mdl_remove(h, each);
	ask(h, "requests 10");
	assert_int_equal(mdl_value(h, all), WORKERS * 1510 + 77);
	mdl_remove(h, all);
	ask(h, "requests 10");
	if (harness_dinst(h, NULL, "detach", harness_number(h->pid)) != 0)
		fail_msg("detach: %s", h->messages);
	for (int i = 0; i < WORKERS; i++) {
		pid_t worker = i ? workers[i] : other;
		char command[128];

		snprintf(command, sizeof(command), "grep -q memfd:dinst /proc/%d/maps",
			 (int)worker);
		assert_int_not_equal(system(command), 0);
		assert_string_equal(harness_status(worker, worker, "TracerPid:"), "0");
	}
	ask(h, "requests 10");
	ask(h, "dismiss");
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear G8: the workers are there before dinst comes to the server: what is inserted is the server's
 * alone, the workers are not touched, and each can be attached to by itself.
 */
static void test_workers_came_first(void **state)
{
	struct harness_snapshot *looks[WORKERS];
	struct harness *h = *state;
	pid_t workers[WORKERS];
	json_t *rows = NULL;
	unsigned id;

	harness_start(h, "life-family", NULL);
	serve(h, workers, looks);
	mdl_attach(h, NULL);
	id = mdl_insert(h, "calls", "handle");
	ask(h, "requests 1000");
	ask(h, "call 5");
	assert_int_equal(mdl_value(h, id), 5);
	for (int i = 0; i < WORKERS; i++)
		expect_clean(h, workers[i], looks[i]);
	assert_int_equal(harness_dinst(h, NULL, "attach", harness_number(workers[1])), 0);
	assert_int_equal(harness_dinst(h, &rows, "insert", "calls", "handle", "-p",
				       harness_number(workers[1])),
			 0);
	id = (unsigned)harness_integer(rows, "id");
	json_decref(rows);
	ask(h, "requests 300");
	rows = NULL;
	assert_int_equal(harness_dinst(h, &rows, "read", harness_number(id), "-p",
				       harness_number(workers[1])),
			 0);
	assert_int_equal(harness_integer(rows, "value"), 300);
	json_decref(rows);
	assert_int_equal(harness_dinst(h, NULL, "detach", harness_number(workers[1])), 0);
	if (harness_dinst(h, NULL, "detach", harness_number(h->pid)) != 0)
		fail_msg("detach: %s", h->messages);
	for (int i = 0; i < WORKERS; i++) {
		expect_clean(h, workers[i], looks[i]);
		harness_snapshot_free(looks[i]);
	}
	ask(h, "dismiss");
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear G1, G2: processes made by clone() with our memory, our descriptors, with everything but
 * CLONE_THREAD, or as siblings, and a daemon that forks twice: all their calls are counted, and the
 * session goes on.
 */
static void test_odd_processes(void **state)
{
	static const char *const kinds[] = {"files", "vm", "thread-like", "parent"};
	struct harness *h = *state;
	int64_t expected = 0;
	char command[64];
	unsigned id;

	begin(h);
	id = mdl_insert(h, "calls", "handle");
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		snprintf(command, sizeof(command), "clone %s 1000", kinds[i]);
		ask(h, command);
		expected += 1000;
		if (mdl_value(h, id) != expected)
			fail_msg("%s: %" PRId64 " instead of %" PRId64, kinds[i], mdl_value(h, id),
				 expected);
	}
	ask(h, "daemon 5000");
	assert_int_equal(mdl_value(h, id), expected + 5000);
	mdl_insert(h, "latency", "handle");
	ask(h, "clone files 10");
	ask(h, "clone vm 10");
	mdl_end(h);
}

/* -------------------------------------------------------- the strict mode */

static const char stamps[] =
	"list handle_only is procedure { items { \"handle\" }; }\n"
	"metric stamps { name \"stamps\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"	base is stream { foreach f in handle_only append preInsn f.entry\n"
	"		(* record(stamps, 1); *) } }\n";

/* With a counter, and all that timers and events need: no arena comes later. */
static unsigned begin_with_everything(struct harness *h)
{
	unsigned calls;

	harness_start(h, "life-family", NULL);
	mdl_attach(h, stamps);
	calls = mdl_insert(h, "calls", "handle");
	mdl_remove(h, mdl_insert(h, "stamps", NULL));
	mdl_remove(h, mdl_insert(h, "latency", "handle"));
	return calls;
}

static void expect_no_clock(struct harness *h, const char *metric, const char *focus)
{
	if (harness_dinst(h, NULL, "insert", metric, "-p", harness_number(h->pid), focus) == 0)
		fail_msg("%s is inserted", metric);
	if (!strstr(h->messages, "strict mode of seccomp"))
		fail_msg("%s: it says: %s", metric, h->messages);
}

static void expect_text(pid_t process)
{
	struct harness_snapshot *now = harness_snapshot_take(process);
	char text[2048];

	assert_non_null(now);
	if (harness_differences(now, HARNESS_TEXT, text, sizeof(text)))
		fail_msg("process %d is not restored:\n%s", (int)process, text);
	harness_snapshot_free(now);
}

/*
 * fear G1, A9: a worker goes into the strict mode of seccomp: what reads the clock is refused from then on, or it
 * would be killed; counters go on, are taken out of it, too, and its arena goes with it
 */
static void test_strict_worker(void **state)
{
	struct harness *h = *state;
	const unsigned calls = begin_with_everything(h);
	pid_t workers[WORKERS];

	serve(h, workers, NULL);
	ask(h, "strict worker");
	ask(h, "requests 10");
	expect_no_clock(h, "stamps", NULL);
	/* It cannot be looked at for what the threads need: that is not what is told. */
	expect_no_clock(h, "latency", "handle");
	if (strstr(h->messages, "came before"))
		fail_msg("it says: %s", h->messages);
	ask(h, "requests 10");
	assert_int_equal(mdl_value(h, calls), WORKERS * 20);
	mdl_remove(h, calls);
	assert_int_equal(harness_dinst(h, NULL, "detach", harness_number(h->pid)), 3);
	if (!strstr(h->messages, harness_number(workers[0])))
		fail_msg("it says: %s", h->messages);
	for (int i = 0; i < WORKERS; i++)
		expect_text(workers[i]);
	expect_text(h->pid);
	ask(h, "requests 10");
	ask(h, "dismiss");
	assert_int_equal(harness_dinst(h, NULL, "repair", harness_number(h->pid)), 0);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear A9: the target itself goes into the strict mode: what reads the clock is refused from then on */
static void test_strict_target(void **state)
{
	struct harness *h = *state;
	const unsigned calls = begin_with_everything(h);

	ask(h, "strict self");
	ask(h, "call 10");
	expect_no_clock(h, "stamps", NULL);
	expect_no_clock(h, "latency", "handle");
	expect_no_clock(h, "latency", "handle_all");
	ask(h, "call 10");
	assert_int_equal(mdl_value(h, calls), 20);
	mdl_remove(h, calls);
	assert_int_equal(harness_dinst(h, NULL, "detach", harness_number(h->pid)), 3);
	expect_text(h->pid);
	ask(h, "call 10");
	harness_end(h, 0);
}

/*
 * fear G1: a child of clone() keeps its parent's id where the C library keeps a thread's: what needs to know
 * its threads is not inserted while it is there, which is told, and all else is
 */
static void test_child_with_the_id_of_its_parent(void **state)
{
	struct harness *h = *state;
	unsigned calls, time;
	pid_t child;

	begin(h);
	calls = mdl_insert(h, "calls", "handle");
	harness_send(h, "clone files 100000000\n");
	child = child_of(h->pid, 0);
	assert_int_equal(kill(child, SIGSTOP), 0);
	assert_int_not_equal(harness_dinst(h, NULL, "insert", "cpu_inclusive", "handle", "-p",
					   harness_number(h->pid)),
			     0);
	if (!strstr(h->messages, harness_number(child)) ||
	    !strstr(h->messages, "try again when it has ended"))
		fail_msg("it says: %s", h->messages);
	mdl_remove(h, mdl_insert(h, "calls", "handle_all"));
	assert_int_equal(kill(child, SIGCONT), 0);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	assert_int_equal(mdl_value(h, calls), 100000000);
	time = mdl_insert(h, "cpu_inclusive", "handle");
	ask(h, "call 1000");
	assert_int_equal(mdl_value(h, calls), 100001000);
	assert_true(mdl_value(h, time) > 0);
	mdl_end(h);
}

/* Nanoseconds on a processor, as the kernel says. */
static int64_t run_of(pid_t pid)
{
	char path[64];
	int64_t ns = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%" SCNd64, &ns) != 1)
		fail_msg("cannot read %s", path);
	fclose(f);
	return ns;
}

/*
 * fear K4, G1: a child of clone() that keeps its parent's id runs while a timer of CPU time does: what
 * that has by now is the time of the child, not that of its parent
 */
static void test_time_of_a_child_with_the_id_of_its_parent(void **state)
{
	enum { ENOUGH_NS = 20000000, MUCH_NS = 2000000000 };
	struct harness *h = *state;
	int64_t before, value;
	unsigned time;
	pid_t child;

	begin(h);
	/* So much that the child has not had it, too, before it is stopped. */
	while (run_of(h->pid) < MUCH_NS)
		ask(h, "call 300000000");
	time = mdl_insert(h, "cpu_inclusive", "handle_all");
	ask(h, "call 1");
	before = mdl_value(h, time);
	harness_send(h, "clone files 300000000\n");
	child = child_of(h->pid, 0);
	while (run_of(child) < ENOUGH_NS)
		usleep(1000);
	assert_int_equal(kill(child, SIGSTOP), 0);
	/* New processes are looked for a few times a second. */
	usleep(300000);
	assert_true(run_of(h->pid) > 4 * run_of(child));
	value = mdl_value(h, time) - before;
	if (value > run_of(child) || value < ENOUGH_NS / 2)
		fail_msg("%" PRId64 " ns of the child's %" PRId64 ", its parent has %" PRId64,
			 value, run_of(child), run_of(h->pid));
	assert_int_equal(kill(child, SIGCONT), 0);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	mdl_end(h);
}

/* Pages of address space. */
static unsigned long pages_of(pid_t pid)
{
	unsigned long pages = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%lu", &pages) != 1)
		fail_msg("cannot read %s", path);
	fclose(f);
	return pages;
}

/* The same beside children that could be prepared: nothing of any try is left in them. */
static void test_nothing_is_left_in_a_worker(void **state)
{
	struct harness *h = *state;
	pid_t workers[WORKERS], child;
	unsigned long before;
	unsigned calls;

	begin(h);
	calls = mdl_insert(h, "calls", "handle");
	serve(h, workers, NULL);
	ask(h, "requests 1");
	harness_send(h, "clone files 100000000\n");
	child = child_of(h->pid, workers[WORKERS - 1]);
	assert_int_equal(kill(child, SIGSTOP), 0);
	before = pages_of(workers[0]);
	for (int i = 0; i < 3; i++) {
		assert_int_not_equal(harness_dinst(h, NULL, "insert", "cpu_inclusive", "handle_all",
						   "-p", harness_number(h->pid)),
				     0);
		/* For that child's sake, after the workers were prepared. */
		assert_non_null(strstr(h->messages, "its C library knows nothing of"));
	}
	assert_in_range(pages_of(workers[0]), before - 16, before + 16);
	assert_int_equal(kill(child, SIGCONT), 0);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	mdl_insert(h, "cpu_inclusive", "handle_all");
	ask(h, "requests 1");
	assert_true(mdl_value(h, calls) > 100000000);
	ask(h, "dismiss");
	mdl_end(h);
}

/*
 * fear G3: executions that fail, from each thread and from children: nothing of the instrumentation is
 * lost, and counts go on.
 */
static void test_failing_exec(void **state)
{
	struct harness *h = *state;
	unsigned id, active;

	begin(h);
	id = mdl_insert(h, "calls", "handle");
	active = mdl_insert(h, "active", "bad_exec");
	mdl_insert(h, "calls", "/Code/libc.so.6/exec*");
	ask(h, "badexec 5");
	assert_int_equal(mdl_value(h, id), 10);
	assert_int_equal(mdl_value(h, active), 0);
	ask(h, "call 90");
	assert_int_equal(mdl_value(h, id), 100);
	mdl_end(h);
}

/* ------------------------------------------------------------------- ends */

/* The values are what they were; the session says that the target is gone, and can be closed. */
static void expect_last_values(struct harness *h, pid_t pid, unsigned id, int64_t value)
{
	json_t *rows = NULL;

	assert_int_equal(
		harness_dinst(h, &rows, "read", harness_number(id), "-p", harness_number(pid)), 0);
	assert_int_equal(harness_integer(rows, "value"), value);
	json_decref(rows);
	assert_int_not_equal(harness_dinst(h, NULL, "insert", "calls", "handle_all", "-p",
					   harness_number(pid)),
			     0);
	if (!strstr(h->messages, "has ended"))
		fail_msg("it says: %s", h->messages);
	assert_int_equal(harness_dinst(h, NULL, "detach", harness_number(pid)), 0);
}

/* fear G7: a program that crashes in instrumented code dies of the same signal; its last values stay. */
static void test_crash(void **state)
{
	struct harness *h = *state;
	pid_t pid;
	unsigned id;

	begin(h);
	pid = h->pid;
	id = mdl_insert(h, "calls", "handle");
	mdl_insert(h, "calls", "/Code/life-family/crash");
	mdl_insert(h, "latency", "/Code/life-family/obey");
	ask(h, "call 1234");
	harness_send(h, "crash\n");
	assert_int_equal(harness_wait(h, HARNESS_ANSWER_MS) & 0x7f, SIGSEGV);
	expect_last_values(h, pid, id, 1234);
}

/* gdb's "frame" lines of a core: function names only. */
static void backtrace_of(const char *program, const char *core, char *text, size_t size)
{
	char command[512];
	size_t used;
	FILE *gdb;

	snprintf(command, sizeof(command),
		 "timeout 200 gdb -q -batch -ex bt %s %s 2>/dev/null | sed -n "
		 "'s/^#[0-9]* *\\(0x[0-9a-f]* in \\)\\{0,1\\}\\([a-z_A-Z0-9]*\\).*/\\2/p'",
		 program, core);
	gdb = popen(command, "r");
	assert_non_null(gdb);
	used = fread(text, 1, size - 1, gdb);
	text[used] = '\0';
	pclose(gdb);
}

/* Lets the program crash in `directory`; the name of its core, or false if there is none. */
static bool dump_core(struct harness *h, char *core, size_t size)
{
	pid_t pid = h->pid;

	harness_send(h, "crash\n");
	harness_wait(h, HARNESS_ANSWER_MS);
	snprintf(core, size, "%s/core", h->directory);
	if (access(core, R_OK))
		snprintf(core, size, "%s/core.%d", h->directory, (int)pid);
	return !access(core, R_OK);
}

/*
 * fear G7, E6: the core of a program that crashed in an instrumented function, below others, shows the
 * same stack to gdb as that of one without instrumentation.
 */
static void test_core(void **state)
{
	const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
	char plain[128], instrumented[128], before[2048], after[2048], program[256];
	struct harness *h = *state;
	char here[PATH_MAX];

	if (system("command -v gdb >/dev/null 2>&1") != 0 ||
	    system("grep -qv '[|/]' /proc/sys/kernel/core_pattern") != 0) {
		print_message("skipped: no gdb, or cores go elsewhere\n");
		skip();
	}
	harness_limit(600); /* gdb is slow on a busy machine */
	snprintf(program, sizeof(program), "%s", harness_path("tests/live/targets/life-family"));
	assert_non_null(realpath(program, here));
	assert_int_equal(setrlimit(RLIMIT_CORE, &all), 0);
	assert_non_null(getcwd(before, sizeof(before)));
	assert_int_equal(chdir(h->directory), 0);
	harness_start_argv(h, (const char *const[]){here, NULL}, true);
	if (!dump_core(h, plain, sizeof(plain))) {
		assert_int_equal(chdir(before), 0);
		print_message("skipped: no core is written here\n");
		skip();
	}
	rename(plain, "plain");
	harness_start_argv(h, (const char *const[]){here, NULL}, true);
	assert_int_equal(chdir(before), 0);
	mdl_attach(h, NULL);
	mdl_insert(h, "calls", "/Code/life-family/*");
	mdl_insert(h, "latency", "/Code/life-family/obey");
	assert_int_equal(chdir(h->directory), 0);
	harness_send(h, "crash\n");
	harness_wait(h, HARNESS_ANSWER_MS);
	assert_int_equal(chdir(before), 0);
	snprintf(plain, sizeof(plain), "%s/plain", h->directory);
	snprintf(instrumented, sizeof(instrumented), "%s/core", h->directory);
	backtrace_of(here, plain, before, sizeof(before));
	backtrace_of(here, instrumented, after, sizeof(after));
	assert_non_null(strstr(before, "main"));
	assert_string_equal(before, after);
}

/*
 * fear G7, I3: a program that is killed since its container has no memory left: its last values stay,
 * and neither the daemon nor the mutator is taken for it.
 */
static void test_out_of_memory(void **state)
{
	struct harness *h = *state;
	char directory[64];
	unsigned id;
	pid_t pid;

	begin(h);
	pid = h->pid;
	id = mdl_insert(h, "calls", "handle");
	ask(h, "call 4321");
	if (!harness_confine(h->pid, HARNESS_LIMIT_MEMORY, "33554432", directory,
			     sizeof(directory))) {
		print_message("skipped: no memory control group can be made here\n");
		skip();
	}
	harness_send(h, "eat 200\n");
	assert_int_equal(harness_wait(h, HARNESS_ANSWER_MS) & 0x7f, SIGKILL);
	expect_last_values(h, pid, id, 4321);
	for (int i = 0; i < 100 && rmdir(directory); i++)
		usleep(20000);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_workers),
		CASE(test_workers_came_first),
		CASE(test_odd_processes),
		CASE(test_strict_worker),
		CASE(test_strict_target),
		CASE(test_child_with_the_id_of_its_parent),
		CASE(test_time_of_a_child_with_the_id_of_its_parent),
		CASE(test_nothing_is_left_in_a_worker),
		CASE(test_failing_exec),
		CASE(test_crash),
		CASE(test_core),
		CASE(test_out_of_memory),
	};

	return cmocka_run_group_tests_name("live/life_family", tests, NULL, NULL);
}
