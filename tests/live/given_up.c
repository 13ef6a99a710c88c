/* SPDX-License-Identifier: MIT */
/*
 * given_up.c - somebody stops and continues the target without a break, so that calls that we make
 * in it are given up at any moment: what those have made that were made is known, and taken out.
 * The moments are drawn from a fixed seed.
 */
#include "tests/live/inject_help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inject/arena.h"
#include "inject/journal.h"
#include "inject/maps.h"
#include "mutator/core.h"
#include "tests/live/fast_job_control.h"

enum {
	THREADS_SIZE = 1 << 20,
	WIPE = 4096,
	WIPE_SIZE = 4096,
	USUAL = 9, /* times that nobody disturbs, to know how long the work takes here */
	OFTEN = 8,
	TRIES = 4000,
};

struct job {
	taddr_t lo;
	struct arena *arena;
	struct journal *journal;
};

static int make(struct stop *s, void *arg, struct dinst_error *e)
{
	struct job *job = arg;

	return arena_create(s, job->lo, job->lo + 4096, 4096, &job->arena, e);
}

static int make_known(struct stop *s, void *arg, struct dinst_error *e)
{
	struct job *job = arg;
	int result = make(s, arg, e);

	if (!result)
		result = journal_create(job->arena, "given-up", &job->journal, e);
	return result ? result : arena_sync(s, job->arena, e);
}

static int add_threads(struct stop *s, void *arg, struct dinst_error *e)
{
	return arena_add_threads(s, ((struct job *)arg)->arena, THREADS_SIZE, WIPE, WIPE_SIZE, e);
}

static int take_threads(struct stop *s, void *arg, struct dinst_error *e)
{
	struct arena *a = ((struct job *)arg)->arena;
	int result = arena_unmap_threads(s, a, e);

	if (!result)
		arena_forget_threads(s, a);
	return result;
}

static int destroy(struct stop *s, void *arg, struct dinst_error *e)
{
	struct job *job = arg;
	int result = arena_unmap(s, job->arena, e);

	if (!result) {
		arena_release(job->arena);
		job->arena = NULL;
	}
	return result;
}

static taddr_t some_text(pid_t pid)
{
	struct dinst_error e = {0};
	taddr_t at = 0;
	struct maps m;

	assert_int_equal(maps_read(pid, &m, &e), 0);
	for (size_t i = 0; !at && i < m.count; i++)
		if (m.entries[i].inode && m.entries[i].protection & PROT_EXEC)
			at = m.entries[i].lo;
	maps_release(&m);
	assert_int_not_equal(at, 0);
	return at;
}

/* What a mutator does that detaches, or comes next. */
static void clean(struct target *t)
{
	struct leftovers left;
	struct dinst_error e = {0};

	if (leftovers_clean(t, 60000, &left, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(left.arenas_left, 0);
}

struct storm {
	storm_from *from;
	pid_t control;
	unsigned seed;
	uint64_t
		longest_ns; /* from the beginning of the work to that of a storm; 0: there is none */
	uint64_t took_ns;   /* the work, last time */
	stop_work work;
	struct job *job;
};

/* The work; some time after it has begun there is a storm, if one is wanted. */
static int do_work(struct stop *s, void *arg, struct dinst_error *e)
{
	struct storm *storm = arg;
	const uint64_t begin = clock_ns();
	int result;

	if (storm->longest_ns)
		*storm->from = begin + (uint64_t)rand_r(&storm->seed) % storm->longest_ns;
	result = storm->work(s, storm->job, e);
	storm->took_ns = clock_ns() - begin;
	return result;
}

static int compare(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Storms come while `work` is done, however long that takes on this machine, beside what else it does. */
static void learn_length(struct storm *storm, struct target *t, stop_work work, stop_work undo,
			 struct job *job)
{
	uint64_t took[USUAL];

	storm->work = work;
	storm->job = job;
	for (size_t i = 0; i < USUAL; i++) {
		help_stop_well(t, do_work, storm);
		took[i] = storm->took_ns;
		help_stop_well(t, undo, job);
	}
	qsort(took, USUAL, sizeof(took[0]), compare);
	storm->longest_ns = took[USUAL / 2];
	print_message("it takes %.2f ms\n", (double)storm->longest_ns / 1e6);
}

/* Stops for `work`, in a storm until the stop ends. */
static int stop_in_storm(struct storm *storm, struct target *t, stop_work work, struct job *job)
{
	struct dinst_error e = {0};
	int code;

	storm->work = work;
	storm->job = job;
	code = target_stop(t, NULL, do_work, storm, NULL, &e);
	*storm->from = 0;
	/* Its last pair of signals may be half sent. */
	usleep(1000);
	kill(target_pid(t), SIGCONT);
	if (code && code != DINST_BUSY)
		fail_msg("%s", e.text);
	return code;
}

/* What was left is told, and only that. Returns whether there was. */
static bool is_told(struct harness *h, struct target *t)
{
	const bool left = target_left_calls(t);

	assert_false(target_left_program(t));
	if (!left)
		harness_verify_what(h, HARNESS_MAPS | HARNESS_FDS);
	return left;
}

/*
 * fear A2, A3: an arena is made in a storm that begins at any moment of it: where its calls are given
 * up, what is left of it, mappings or the descriptor, is told, and then taken out
 */
static void test_arenas(void **state)
{
	struct harness *h = *state;
	struct storm storm = {.from = make_storm(), .seed = 11};
	unsigned tries, given_up = 0, left = 0;

	harness_start(h, "stop-busy", "3", NULL);
	storm.control = start_fast_job_control(h->pid, storm.from, false);
	for (tries = 0; tries < TRIES && left < OFTEN; tries++) {
		struct target *t = help_open(h->pid);
		struct job job = {.lo = some_text(h->pid)};

		if (!tries)
			learn_length(&storm, t, make, destroy, &job);
		if (stop_in_storm(&storm, t, make, &job)) {
			given_up++;
			if (is_told(h, t)) {
				left++;
				clean(t);
			}
		} else {
			help_stop_well(t, destroy, &job);
		}
		target_close(t);
		harness_verify_what(h, HARNESS_MAPS | HARNESS_FDS);
	}
	end_job_control(storm.control);
	print_message("%u of %u arenas given up, %u of those in the middle\n", given_up, tries,
		      left);
	assert_int_equal(left, OFTEN);
	harness_verify(h);
	harness_end(h, 0);
	munmap(storm.from, sizeof(*storm.from));
}

/*
 * fear A2, A3: the same for the part that threads have: it is found and taken out, now or by who comes
 * next, also where it was given up before it was marked
 */
static void test_parts(void **state)
{
	struct harness *h = *state;
	struct storm storm = {.from = make_storm(), .seed = 12};
	unsigned tries, given_up = 0, left = 0;

	harness_start(h, "stop-busy", "3", NULL);
	storm.control = start_fast_job_control(h->pid, storm.from, false);
	for (tries = 0; tries < TRIES && left < OFTEN; tries++) {
		struct target *t = help_open(h->pid);
		struct job job = {.lo = some_text(h->pid)};

		help_stop_well(t, make_known, &job);
		if (!tries)
			learn_length(&storm, t, add_threads, take_threads, &job);
		if (stop_in_storm(&storm, t, add_threads, &job)) {
			given_up++;
			left += job.arena->threads != 0;
			if (job.arena->threads && tries % 2)
				help_stop_well(t, take_threads, &job);
		}
		journal_destroy(job.journal);
		arena_release(job.arena);
		clean(t);
		target_close(t);
		harness_verify_what(h, HARNESS_MAPS | HARNESS_FDS);
	}
	end_job_control(storm.control);
	print_message("%u of %u parts given up, %u of those in the middle\n", given_up, tries,
		      left);
	assert_int_equal(left, OFTEN);
	harness_verify(h);
	harness_end(h, 0);
	munmap(storm.from, sizeof(*storm.from));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_arenas),
		TEST(test_parts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
