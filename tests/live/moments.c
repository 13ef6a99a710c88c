/* SPDX-License-Identifier: MIT */
/*
 * moments.c - at any fault point of a mutator (inject/fault.h) something happens to its target, or
 * somebody else does something to it, and the mutator goes on.
 *
 * The mutator lives in a child process. At the point it lets us (the test's own process) do what is to
 * be done, and waits for that; what the target itself does is done in up to ANSWER_US, or, where it is
 * stopped, as soon as it runs. MOMENTS_MS milliseconds of rounds from MOMENTS_SEED on, each a kind and a
 * point by lot; MOMENTS_ALL=1: each kind at each point.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inject/fault.h"
#include "tests/live/moments_kinds.h"

enum { LIFE_SECONDS = 60, STOPPED_US = 30000 };
enum { ENDED, FAILED = 3, GAVE_UP };

struct account {
	unsigned long passed;
	int asked, did, hit;
	int stage;
	char text[DINST_ERROR_TEXT];
};

static struct account *account;
static struct harness *harness;
static unsigned busy_ends;
static int from_stage; /* the moment is counted from the beginning of this one on; 0: of all */
static unsigned long from_moment;

/* ------------------------------------------------------------ a mutator */

static void on_moment(void)
{
	account->hit = 1;
	__atomic_store_n(&account->asked, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&account->did, __ATOMIC_SEQ_CST))
		usleep(50);
}

/* All that work rest; false where that does not come, because it is gone or another program. */
static bool rest(void)
{
	__atomic_store_n(&shared->pause, 1, __ATOMIC_SEQ_CST);
	for (int i = 0; i < 2000; i++) {
		if (!__atomic_load_n(&shared->busy, __ATOMIC_SEQ_CST))
			return true;
		if (kill(harness->pid, 0) || shared->programs)
			return false;
		usleep(1000);
	}
	return false;
}

static void work_on(void)
{
	__atomic_store_n(&shared->pause, 0, __ATOMIC_SEQ_CST);
}

struct life {
	struct session *s;
	struct dinst_error e;
	int status;
	struct instance *kept; /* counts leaf() exactly */
	uint64_t value;
	unsigned long leaves;
};

/* A user asks again after a while. */
static bool again(struct life *l, int *tries)
{
	if (l->status != DINST_BUSY || ++*tries > 60)
		return false;
	dinst_error_clear(&l->e);
	usleep(10000);
	return true;
}

static struct instance *put(struct life *l, const char *focus, enum point_kind kind)
{
	static struct raw_metric metrics[POINT_KINDS];
	struct insert_result result;
	struct instance *i;
	int tries = 0;

	if (l->status < 0)
		return NULL;
	metrics[kind] = (struct raw_metric){
		.name = point_kind_name(kind), .unit = "", .constraints = "/Code", .kind = kind};
	do
		l->status =
			request_insert_raw(l->s, &metrics[kind], &focus, 1, false, &result, &l->e);
	while (again(l, &tries));
	if (l->status < 0)
		return NULL;
	i = result.instances[0];
	free(result.instances);
	return i;
}

static struct instance *put_metric(struct life *l, const char *metric, const char *focus)
{
	const struct insert_options options = {0};
	struct insert_result result;
	struct instance *i;
	size_t points, pending;
	int tries = 0;

	if (l->status < 0)
		return NULL;
	do
		l->status = request_insert(l->s, metric, &focus, 1, &options, &result, &l->e);
	while (again(l, &tries));
	/* A child that was forked when the code was there in part would measure by halves. */
	if (l->status == DINST_REFUSED && shared->child_count) {
		dinst_error_clear(&l->e);
		l->status = 0;
		return NULL;
	}
	if (l->status < 0)
		return NULL;
	i = result.instances[0];
	free(result.instances);
	instance_points(i, &points, &pending);
	if (l->s->state == SESSION_EXECED && pending)
		l->status = dinst_fail(&l->e, DINST_FAILED,
				       "%s is said to be in a program that has gone", metric);
	return i;
}

static void take(struct life *l, struct instance *i)
{
	struct flush_result flushed;
	int tries = 0;

	if (l->status < 0 || !i)
		return;
	l->status = removal_remove(l->s, i, &flushed, &l->e);
	while (again(l, &tries))
		l->status = removal_flush(l->s, &flushed, &l->e);
}

/* What is counted is what was called: since the last time, if there was one. */
static void count(struct life *l, bool first)
{
	uint64_t value;

	if (l->status < 0 || !l->kept)
		return;
	if (rest()) {
		value = instance_value(l->kept);
		if (!first && value - l->value != shared->leaves - l->leaves && !shared->programs &&
		    target_alive(l->s->target))
			l->status = dinst_fail(&l->e, DINST_FAILED, "%lu calls, counted %lu",
					       shared->leaves - l->leaves,
					       (unsigned long)(value - l->value));
		l->value = value;
		l->leaves = shared->leaves;
	}
	work_on();
}

/* The library may be gone: what is to be in it is not there, then, which is an answer. */
static struct instance *put_in_library(struct life *l, enum point_kind kind)
{
	struct instance *i = put(l, "/Code/libplugin.so/*", kind);

	if (l->status == DINST_NO_FUNCTION || l->status == DINST_NO_MODULE ||
	    (l->status == DINST_REFUSED && strstr(l->e.text, "unloaded"))) {
		dinst_error_clear(&l->e);
		l->status = 0;
	}
	return i;
}

static void begin_stage(int n)
{
	account->stage = n;
	if (n == from_stage)
		fault_countdown = from_moment;
}

static void change(struct life *l)
{
	struct instance *all, *calls, *wall, *latency, *plugin;
	struct flush_result flushed;
	int tries = 0;

	begin_stage(1);
	l->kept = put(l, "leaf", POINT_ENTRY);
	count(l, true);
	begin_stage(2);
	all = put(l, "/Code/moments/*", POINT_EXIT);
	calls = put(l, "work", POINT_CALL);
	begin_stage(3);
	wall = put_metric(l, "wall", "work");
	latency = put_metric(l, "latency", "batch");
	begin_stage(4);
	plugin = put_in_library(l, POINT_ENTRY);
	usleep(2000);
	if (wall && l->status >= 0)
		instance_value(wall);
	count(l, false);
	begin_stage(5);
	take(l, all);
	take(l, wall);
	take(l, plugin);
	begin_stage(6);
	if (l->status >= 0)
		do
			l->status = removal_flush(l->s, &flushed, &l->e);
		while (again(l, &tries));
	count(l, false);
	begin_stage(7);
	put(l, "/Code/moments/*", POINT_ENTRY);
	take(l, latency);
	take(l, calls);
	put_in_library(l, POINT_EXIT);
	count(l, false);
}

static bool may_answer(const struct kind *kind, int status)
{
	if (status == DINST_BUSY)
		return true;
	if (kind->fate != LIVES)
		return status == DINST_GONE || status == DINST_NO_PROCESS;
	return kind->act == trace_it && status == DINST_TRACED;
}

/* In the child: 0, or what is wrong. */
static void live(const struct kind *kind, unsigned long moment)
{
	struct detach_result detached = {0};
	struct life l = {0};
	struct dinst_error first;
	int tries = 0, status;

	alarm(LIFE_SECONDS);
	fault_passed = 0;
	fault_hook = on_moment;
	from_moment = moment;
	fault_countdown = from_stage ? 0 : moment;
	l.status = session_attach(harness->pid, "moments", &l.s, &l.e);
	if (l.status >= 0)
		change(&l);
	status = l.status;
	first = l.e;
	if (l.s) {
		account->stage = 8;
		dinst_error_clear(&l.e);
		do
			l.status = session_detach(l.s, 5000, &detached, &l.e);
		while (again(&l, &tries));
	}
	account->passed = fault_passed;
	snprintf(account->text, sizeof(account->text), "%.200s; %.200s", first.text, l.e.text);
	if (l.status >= 0 && detached.left)
		_exit(FAILED + 2);
	if (l.status < 0 && !may_answer(kind, l.status))
		_exit(FAILED);
	if (status < 0 && !may_answer(kind, status))
		_exit(FAILED);
	_exit(l.status < 0 && kind->fate == LIVES ? GAVE_UP : ENDED);
}

/* ---------------------------------------------------------------- after */

static bool is_quiet(pid_t pid, char *why, size_t size)
{
	struct harness_snapshot *now = harness_snapshot_take(pid);
	char path[64], line[512];
	bool quiet = true;
	FILE *f;

	if (!now)
		return true;
	quiet = !harness_differences(now, HARNESS_TEXT | HARNESS_THREADS, why, size);
	harness_snapshot_free(now);
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "r");
	while (quiet && f && fgets(line, sizeof(line), f))
		if (strstr(line, "memfd:dinst")) {
			snprintf(why, size, "process %d has %s", (int)pid, line);
			quiet = false;
		}
	if (f)
		fclose(f);
	return quiet;
}

static void expect_quiet(pid_t pid, const char *what)
{
	char why[4096];

	for (int i = 0; i < 300; i++) {
		if (is_quiet(pid, why, sizeof(why)))
			return;
		usleep(10000);
	}
	fail_msg("%s: %s", what, why);
}

static void expect_life(struct harness *h, const char *what)
{
	for (int i = 0; i < 20000 && (shared->done < sent || shared->handled < want_handled ||
				      shared->queued < want_queued);
	     i++)
		usleep(1000);
	if (shared->done != sent || shared->wrong || shared->queued != want_queued ||
	    shared->handled != want_handled)
		fail_msg("%s: %d of %d commands, %d wrong, %lu of %lu and %lu of %lu signals", what,
			 shared->done, sent, shared->wrong, shared->handled, want_handled,
			 shared->queued, want_queued);
	expect_quiet(h->pid, what);
	for (int i = 0; i < shared->child_count; i++)
		expect_quiet(shared->children[i], what);
	if (shared->wrong)
		fail_msg("%s: something was wrong", what);
	harness_end(h, 0);
}

/* In half of all rounds everything is where it was in another program, too, after an exec. */
static void set_up(struct harness *h, bool random)
{
	const int before = personality(0xffffffff);

	char path[128], file[128], library[4096], command[4096 + 512];
	const char *argv[] = {path, file, library, NULL};
	int fd;

	snprintf(path, sizeof(path), "%s/moments", h->directory);
	snprintf(file, sizeof(file), "%s/shared", h->directory);
	snprintf(command, sizeof(command), "cp %s %s && cp %s/moments %s/other",
		 harness_path("tests/live/targets/moments"), path, h->directory, h->directory);
	assert_int_equal(system(command), 0);
	snprintf(library, sizeof(library), "%s", harness_path("tests/live/targets/libplugin.so"));
	fd = open(file, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0 && !ftruncate(fd, sizeof(*shared)));
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(shared, MAP_FAILED);
	close(fd);
	memset(account, 0, sizeof(*account));
	sent = later_signal = 0;
	want_handled = want_queued = 0;
	personality((unsigned)before | (random ? 0 : ADDR_NO_RANDOMIZE));
	harness_start_argv(h, argv, true);
	personality((unsigned)before);
}

/* Until the mutator has ended; what waitpid(2) says. */
static int look_after(struct harness *h, const struct kind *kind, pid_t mutator)
{
	int status = 0, waited = 0;
	pid_t got;

	while (!(got = waitpid(mutator, &status, WNOHANG))) {
		if (account->asked && !account->did) {
			happen(h, kind);
			__atomic_store_n(&account->did, 1, __ATOMIC_SEQ_CST);
		}
		usleep(200);
		waited += account->did ? 200 : 0;
		if (later_signal && waited > STOPPED_US) {
			kill(h->pid, later_signal);
			later_signal = 0;
		}
	}
	assert_int_equal(got, mutator);
	if (later_signal)
		kill(h->pid, later_signal);
	return status;
}

/* One round; returns the points that the mutator has passed. */
static unsigned long play(struct harness *h, const struct kind *kind, unsigned long moment)
{
	char what[128 + DINST_ERROR_TEXT];
	pid_t mutator;
	int status;

	set_up(h, moment % 2);
	harness = h;
	snprintf(what, sizeof(what), "%s at %lu", kind->name, moment);
	fflush(NULL);
	mutator = fork();
	assert_true(mutator >= 0);
	if (!mutator)
		live(kind, moment);
	status = look_after(h, kind, mutator);
	snprintf(what, sizeof(what), "%s at %lu (stage %d)", kind->name, moment, account->stage);
	if (!WIFEXITED(status) || (WEXITSTATUS(status) != ENDED && WEXITSTATUS(status) != GAVE_UP))
		fail_msg("%s: the mutator ended with %x: %s", what, (unsigned)status,
			 account->text);
	if (WEXITSTATUS(status) == GAVE_UP) {
		busy_ends++;
		print_message("%s: %s\n", what, account->text);
		harness_kill(h);
	} else if (kind->fate == DIES && account->hit) {
		/* It may have dumped core. */
		assert_int_equal(harness_wait(h, HARNESS_ANSWER_MS) & 0x7f, kind->signal);
		harness_kill(h);
	} else {
		expect_life(h, what);
		assert_int_equal(shared->programs, kind->fate == EXECUTES && account->hit ? 1 : 0);
	}
	munmap(shared, sizeof(*shared));
	return account->passed;
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/*
 * fear A1, A3, A4, A13: at any moment of a mutator's a thread is born or ends, the leader does, the program is
 * stopped, continued, gets hundreds of signals, executes another program: each signal comes once, nothing is
 * left stopped, nothing is written into the new program
 */
/* fear A11: at any moment another tracer, or another dinst, tries to have the program */
/* fear G1, G2, G3: the same with fork, vfork, posix_spawn and exec: counts are exact, every child's text is the file's */
/* fear G4, B7: the same with a library that is unloaded and loaded, and a crowd of mappings near the code */
/* fear G7: killed at any moment, as a whole or by one thread's fatal signal: it dies of that */
/* fear F6: its file is replaced at any moment */
static void test_moments(void **state)
{
	const uint64_t ms = harness_setting("MOMENTS_MS", getenv("DINST_SHORT") ? 8000 : 25000);
	const bool all = harness_setting("MOMENTS_ALL", 0) != 0;
	const char *only = getenv("MOMENTS_KIND");
	const uint64_t begin = now_ms();
	unsigned long points, rounds = 0, moment;
	unsigned short seed[3] = {7, 7, (unsigned short)harness_setting("MOMENTS_SEED", 1)};

	harness_limit(all ? 100000 : HARNESS_SECONDS + (unsigned)(ms / 1000));
	/* One that nothing happens to. */
	points = play(*state, &kinds[KINDS - 1], 1000000);
	assert_true(points > 100);
	for (; all ? rounds < points * KINDS : now_ms() - begin < ms; rounds++) {
		const struct kind *kind = &kinds[rounds % KINDS];

		moment = 1 + (all ? rounds / KINDS : (unsigned long)nrand48(seed) % points);
		moment = harness_setting("MOMENTS_POINT", moment);
		if (only && strcmp(only, kind->name) != 0)
			continue;
		play(*state, kind, moment);
	}
	print_message("%lu rounds, %lu points, %u ended busy\n", rounds, points, busy_ends);
}

/* At every `step`th moment of one stage, below the `most`th. */
static void play_in(void **state, int stage, const struct kind *kind, unsigned long most,
		    unsigned long step)
{
	from_stage = stage;
	for (unsigned long moment = 1; moment < most; moment += step)
		play(*state, kind, moment);
	from_stage = 0;
}

/* fear G4: a library is unloaded while points are put into it: nobody else is said to have changed its code */
static void test_unloaded_meanwhile(void **state)
{
	play_in(state, 4, &(struct kind){"unloads", "c", NULL, LIVES, 0}, 30, 3);
}

/* fear G3: it executes another program while a metric with timers is put in: the answer is not that it is there */
static void test_executes_meanwhile(void **state)
{
	play_in(state, 3, &(struct kind){"executes", "x", NULL, EXECUTES, 0}, 60, 4);
}

static int setup(void **state)
{
	account = mmap(NULL, sizeof(*account), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	return account == MAP_FAILED ? -1 : harness_setup(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_moments, setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_unloaded_meanwhile, setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_executes_meanwhile, setup, harness_teardown),
	};

	return cmocka_run_group_tests_name("live/moments", tests, NULL, NULL);
}
