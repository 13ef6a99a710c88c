/* SPDX-License-Identifier: MIT */
/*
 * waits.c - while the target stands still nobody waits for what only the target could do, and
 * whatever else may keep us from letting it go does not keep it.
 */
#include "tests/live/harness_session.h"
#include "tests/live/harness.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "inject/control.h"
#include "tests/live/mdl_help.h"

enum { SOON_MS = 300 };

static int insert(struct harness *h, const char *metric, const char *focus)
{
	return harness_dinst(h, NULL, "insert", metric, focus, "-p", harness_number(h->pid));
}

static void ask(struct harness *h, const char *command)
{
	assert_string_equal(mdl_ask(h, "%s", command), "done");
}

/*
 * fear K2: a thread of the program provides the pages of another one's stack by userfaultfd, and some are
 * missing: the program goes on after each request, and when they are there all is done
 */
static void test_pages_of_the_program(void **state)
{
	struct harness *h = *state;
	const char *first;
	unsigned id;

	harness_start_argv(
		h, (const char *const[]){harness_path("tests/live/targets/pages-provided"), NULL},
		false);
	first = harness_line(h, HARNESS_ANSWER_MS);
	if (strcmp(first, "ready")) {
		print_message("skipped: %s\n", first);
		harness_wait(h, HARNESS_ANSWER_MS);
		skip();
	}
	mdl_attach(h, NULL);
	/* What needs to know the whole stack cannot be had; no matter which of them. */
	for (int i = 0; i < 2; i++) {
		insert(h, "calls", "/Code/pages-provided/*");
		ask(h, "go 10");
		insert(h, "cpu_inclusive", "step");
		ask(h, "go 10");
		harness_dinst(h, NULL, "remove", "--all", "-p", harness_number(h->pid));
		ask(h, "go 10");
		harness_dinst(h, NULL, "flush", "-p", harness_number(h->pid));
		ask(h, "go 10");
	}
	ask(h, "fill");
	id = mdl_insert(h, "cpu_inclusive", "step");
	ask(h, "go 100000");
	assert_true(mdl_value(h, id) > 0);
	mdl_remove(h, id);
	id = mdl_insert(h, "calls", "step");
	ask(h, "go 1000");
	assert_int_equal(mdl_value(h, id), 1000);
	assert_int_equal(harness_dinst(h, NULL, "detach", harness_number(h->pid)), 0);
	ask(h, "go 10");
	harness_end(h, 0);
}

static int wait_for_ever(struct stop *s, void *arg, struct dinst_error *e)
{
	(void)arg;
	while (stop_thread_count(s))
		pause();
	return dinst_fail(e, DINST_FAILED, "nothing is stopped");
}

static int stop_ourselves(struct stop *s, void *arg, struct dinst_error *e)
{
	kill(getpid(), SIGSTOP);
	return wait_for_ever(s, arg, e);
}

static void check_last_resort(struct harness *h, stop_work work)
{
	struct dinst_error e = {0};
	struct target *t = NULL;
	int status = 0;
	pid_t child;

	harness_start(h, "calls", NULL);
	child = fork();
	if (!child) {
		stop_last_resort_ms = SOON_MS;
		if (!target_open(h->pid, &t, &e))
			target_stop(t, NULL, work, NULL, NULL, &e);
		_exit(1);
	}
	harness_until(!strcmp(harness_status(h->pid, h->pid, "TracerPid:"), "0") == false);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	harness_until(!strcmp(harness_status(h->pid, h->pid, "TracerPid:"), "0"));
	harness_verify(h);
	harness_end(h, 0);
}

/* fear J2, K2: work in a stop that does not come to its end: we do, and the target goes on */
static void test_hanging(void **state)
{
	check_last_resort(*state, wait_for_ever);
}

/* fear J2, K2: somebody stops us in a stop (SIGSTOP) for good: the same */
static void test_stopped(void **state)
{
	check_last_resort(*state, stop_ourselves);
}

static void sleep_for_long(int signal)
{
	const struct timespec for_long = {4, 0};

	(void)signal;
	nanosleep(&for_long, NULL);
}

/* Who asked for the stop is kept, as if it had no processor. */
static int keep_who_asked(struct stop *s, void *arg, struct dinst_error *e)
{
	(void)s;
	(void)arg;
	(void)e;
	return tgkill(getpid(), getpid(), SIGUSR1);
}

/* fear J2, K2: where we get no processor for long after everybody was let go, we do not end for that */
static void test_late_afterwards(void **state)
{
	const uint64_t late_ns = 3000000000;

	struct harness *h = *state;
	struct dinst_error e = {0};
	struct target *t = NULL;
	uint64_t start;
	int status = 0;
	pid_t child;

	harness_start(h, "calls", NULL);
	child = fork();
	if (!child) {
		stop_last_resort_ms = SOON_MS;
		signal(SIGUSR1, sleep_for_long);
		start = clock_ns();
		_exit(target_open(h->pid, &t, &e) ||
		      target_stop(t, NULL, keep_who_asked, NULL, NULL, &e) ||
		      clock_ns() - start < late_ns);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	harness_verify(h);
	harness_end(h, 0);
}

/* A control group of version 2; "": there is none. */
static char group[64];

static int freeze_ourselves(struct stop *s, void *arg, struct dinst_error *e)
{
	harness_join(getpid(), group);
	harness_set(group, "cgroup.freeze", "1");
	return wait_for_ever(s, arg, e);
}

/* fear J2, K2: the control group that we are in is frozen in a stop: the same (of version 2: those of version 1 let nobody end) */
static void test_frozen(void **state)
{
	static const char *const roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
	bool made = false;
	char path[96];

	for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]) && !made; i++) {
		snprintf(group, sizeof(group), "%s/dinst-test-%d", roots[i], (int)getpid());
		snprintf(path, sizeof(path), "%s/cgroup.freeze", group);
		made = !mkdir(group, 0755) && !access(path, W_OK);
		if (!made)
			rmdir(group);
	}
	if (!made) {
		print_message("skipped: no control groups of version 2 here\n");
		skip();
	}
	check_last_resort(*state, freeze_ourselves);
	harness_until(!rmdir(group));
}

/* A process that does nothing, and ends with us. */
static pid_t start_idle(void)
{
	const pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return pid;
}

static int nap(struct stop *s, void *arg, struct dinst_error *e)
{
	(void)s, (void)arg, (void)e;
	usleep(SOON_MS * 1000 / 2);
	return 0;
}

/* Stops of another process inside of this one's: each in time, and all together not. */
static int stop_others(struct stop *s, void *arg, struct dinst_error *e)
{
	int status = 0;

	(void)s;
	for (int i = 0; i < 6 && !status; i++)
		status = target_stop(arg, NULL, nap, NULL, NULL, e);
	return status;
}

static int hang_in_another(struct stop *s, void *arg, struct dinst_error *e)
{
	(void)s;
	return target_stop(arg, NULL, wait_for_ever, NULL, NULL, e);
}

/* How a process ends that does this: 0 if the stop succeeded. */
static int status_of(pid_t pid, pid_t other, stop_work work)
{
	struct target *outer = NULL, *inner = NULL;
	struct dinst_error e = {0};
	int status = 0;
	pid_t child = fork();

	if (!child) {
		stop_last_resort_ms = SOON_MS;
		if (target_open(pid, &outer, &e) || target_open(other, &inner, &e))
			_exit(2);
		_exit(target_stop(outer, NULL, work, inner, NULL, &e) ? 1 : 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

/*
 * fear J2, K2: a family is stopped one inside the other: as long as it goes on we live, however many they
 * are, and where it does not all of them are let go
 */
static void test_one_inside_the_other(void **state)
{
	struct harness *h = *state;
	pid_t other;
	int status;

	harness_start(h, "calls", NULL);
	other = start_idle();
	assert_true(other > 0);
	assert_int_equal(status_of(h->pid, other, stop_others), 0);
	status = status_of(h->pid, other, hang_in_another);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	harness_until(!strcmp(harness_status(h->pid, h->pid, "TracerPid:"), "0"));
	harness_until(!strcmp(harness_status(other, other, "TracerPid:"), "0"));
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	harness_verify(h);
	harness_end(h, 0);
}

/* Somebody's real-time work, on the first processor alone. */
struct hog {
	pid_t pid;
	volatile bool begun;
};

enum { HOG_MS = 5000 };

static int take_a_cpu(struct stop *s, void *arg, struct dinst_error *e)
{
	const struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_FIFO)};
	struct hog *hog = arg;
	cpu_set_t first;
	pid_t pid;

	(void)s, (void)e;
	CPU_ZERO(&first);
	CPU_SET(0, &first);
	pid = fork();
	if (!pid) {
		const uint64_t until = clock_ns() + HOG_MS * 1000000ull;

		if (sched_setaffinity(0, sizeof(first), &first) ||
		    sched_setscheduler(0, SCHED_FIFO, &lowest))
			_exit(1);
		hog->begun = true;
		while (clock_ns() < until)
			continue;
		_exit(0);
	}
	hog->pid = pid;
	while (pid > 0 && !hog->begun && !waitpid(pid, NULL, WNOHANG))
		usleep(1000);
	return hog->begun ? 0 : DINST_FAILED;
}

/* The tracer itself is on that one, and has a tenth of a second's work to do: twenty times as long, at best. */
static int work_beside_it(struct stop *s, void *arg, struct dinst_error *e)
{
	const uint64_t work_ns = 150000000;
	struct timespec used = {0};
	cpu_set_t first;

	CPU_ZERO(&first);
	CPU_SET(0, &first);
	if (take_a_cpu(s, arg, e) || sched_setaffinity(0, sizeof(first), &first))
		return DINST_FAILED;
	while ((uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec < work_ns)
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return 0;
}

/* How a process ends whose stop does this, on the other processors: 0 if the stop succeeded. */
static int status_beside_hog(struct harness *h, const char *program, stop_work work,
			     unsigned last_resort_ms)
{
	cpu_set_t all, first, others;
	struct hog *hog;
	int status = 0;
	pid_t child;

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	if (geteuid() || !CPU_ISSET(0, &all) || CPU_COUNT(&all) < 2) {
		print_message("skipped: root and two processors are needed\n");
		skip();
	}
	CPU_ZERO(&first);
	CPU_SET(0, &first);
	CPU_XOR(&others, &all, &first);
	hog = mmap(NULL, sizeof(*hog), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(hog, MAP_FAILED);
	harness_start(h, program, NULL);
	assert_int_equal(sched_setaffinity(h->pid, sizeof(first), &first), 0);
	child = fork();
	if (!child) {
		struct dinst_error e = {0};
		struct target *t = NULL;

		stop_last_resort_ms = last_resort_ms;
		if (sched_setaffinity(0, sizeof(others), &others) || target_open(h->pid, &t, &e))
			_exit(2);
		status = target_stop(t, NULL, work, hog, NULL, &e);
		if (status)
			fprintf(stderr, "the stop: %s\n", e.text);
		_exit(status ? 1 : 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (hog->pid > 0)
		kill(hog->pid, SIGKILL);
	munmap(hog, sizeof(*hog));
	return status;
}

/*
 * fear J2, K2: a thread of the target gets no processor on its way back into its call, for longer than the last
 * resort waits: nobody stands still, and we live
 */
static void test_late_on_the_way_back(void **state)
{
	struct harness *h = *state;

	/* Waits to be told something, and handles a signal: so it is watched until it waits again. */
	assert_int_equal(status_beside_hog(h, "interrupted", take_a_cpu, SOON_MS / 10), 0);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear J2, K2: the tracer gets hardly a processor for longer than the last resort waits: we live, since our end
 * would have to wait for one, too
 */
static void test_tracer_gets_no_processor(void **state)
{
	struct harness *h = *state;

	assert_int_equal(status_beside_hog(h, "calls", work_beside_it, HOG_MS / 2), 0);
	harness_verify(h);
	harness_end(h, 0);
}

static const char supplying[] =
	"list suppliers is procedure { items { \"supply\" }; }\n"
	"metric texts { units events; base is stream { foreach f in suppliers\n"
	"	append preInsn f.entry (* record(texts, string($arg[0], 24)); *) } }\n"
	"metric first { units bytes; base is counter { foreach f in suppliers\n"
	"	append preInsn f.entry (* if (readMemory($arg[0], 8) == 0) first++; *) } }\n";

static void leave(struct harness *h)
{
	assert_int_equal(harness_dinst(h, NULL, "detach", harness_number(h->pid)), 0);
	ask(h, "touch 10");
	harness_end(h, 0);
}

/*
 * fear K2: a thread provides pages of the program's own by userfaultfd: code that would read them before
 * they are there, and so wait for itself, does not go in; where it is in already it reads nothing any more
 */
static void test_pages_of_its_own(void **state)
{
	struct harness *h = *state;
	char path[512];
	const char *first;
	unsigned calls;

	if (!harness_has_clock(false))
		skip();
	snprintf(path, sizeof(path), "%s", harness_path("tests/live/targets/pages-supplied"));
	harness_start_argv(h, (const char *const[]){path, "now", NULL}, false);
	first = harness_line(h, HARNESS_ANSWER_MS);
	if (strcmp(first, "ready") != 0) {
		print_message("skipped: %s\n", first);
		harness_wait(h, HARNESS_ANSWER_MS);
		skip();
	}
	mdl_attach(h, supplying);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(harness_dinst(h, NULL, "insert", i ? "first" : "texts", "-p",
					       harness_number(h->pid)),
				 1);
		assert_non_null(strstr(h->messages, "userfaultfd"));
	}
	calls = mdl_insert(h, "calls", "/Code/pages-supplied/supply");
	ask(h, "touch 100");
	assert_int_equal(mdl_value(h, calls), 100);
	leave(h);

	harness_start_argv(h, (const char *const[]){path, NULL}, true);
	mdl_attach(h, supplying);
	mdl_insert(h, "texts");
	mdl_insert(h, "first");
	calls = mdl_insert(h, "calls", "/Code/pages-supplied/supply");
	ask(h, "begin");
	ask(h, "touch 100");
	assert_int_equal(mdl_value(h, calls), 100);
	leave(h);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_pages_of_the_program),
		CASE(test_pages_of_its_own),
		CASE(test_hanging),
		CASE(test_stopped),
		CASE(test_frozen),
		CASE(test_one_inside_the_other),
		CASE(test_tracer_gets_no_processor),
		CASE(test_late_on_the_way_back),
		CASE(test_late_afterwards),
	};

	return cmocka_run_group_tests_name("live/waits", tests, NULL, NULL);
}
