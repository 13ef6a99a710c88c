/* SPDX-License-Identifier: MIT */
/*
 * arena_threads.c - the private part of an arena: mapped, copied by fork but
 * for the range that the kernel clears, found after a death at any moment, and
 * nothing of it afterwards.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/arena_unmap.h"
#include "inject/fault.h"
#include "inject/journal.h"
#include "inject/maps.h"
#include "inject/remote.h"
#include "inject/stack_snapshot.h"
#include "tests/live/inject_help.h"

enum { SIZE = 1 << 20, WIPE = 8192, WIPE_SIZE = 4096, STEPS_MAX = 4000 };

struct job {
	taddr_t lo;
	bool private;
	struct arena *arena;
	struct journal *journal;
	bool is_one, searched, found; /* by find_parked() */
};

static int make(struct stop *s, void *arg, struct dinst_error *e)
{
	struct job *job = arg;
	int result;

	result = job->private ? arena_create_private(s, job->lo, job->lo + 4096, 4096, "a test",
						     &job->arena, e)
			      : arena_create(s, job->lo, job->lo + 4096, 4096, &job->arena, e);
	if (!result)
		result = journal_create(job->arena, "threads", &job->journal, e);
	if (!result)
		result = arena_sync(s, job->arena, e);
	if (!result)
		result = arena_add_threads(s, job->arena, SIZE, WIPE, WIPE_SIZE, e);
	return result;
}

static int destroy(struct stop *s, void *arg, struct dinst_error *e)
{
	return arena_destroy(s, ((struct job *)arg)->arena, e);
}

static int unmap(struct stop *s, void *arg, struct dinst_error *e)
{
	return arena_unmap(s, ((struct job *)arg)->arena, e);
}

static int unmap_found(struct stop *s, void *arg, struct dinst_error *e)
{
	return arena_unmap_found(s, arg, e);
}

static struct target *begin(struct harness *h, struct job *job)
{
	struct target *t;

	harness_start(h, "arena-space", "threads", NULL);
	t = help_open(h->pid);
	job->lo = help_ask_address(h, "text") / 4096 * 4096;
	return t;
}

static uint64_t word(struct target *t, taddr_t at)
{
	uint64_t value = 0;

	assert_int_equal(target_read_some(t, at, &value, sizeof(value)), sizeof(value));
	return value;
}

static int store(struct stop *s, void *arg, struct dinst_error *e)
{
	const struct job *job = arg;
	const uint64_t value = 77;
	int result = stop_write(s, job->arena->threads + 64, &value, 8, e);

	if (!result)
		result = stop_write(s, job->arena->threads + WIPE, &value, 8, e);
	if (!result)
		result = stop_write(s, job->arena->threads + WIPE + WIPE_SIZE - 8, &value, 8, e);
	if (!result)
		result = stop_write(s, job->arena->threads + WIPE + WIPE_SIZE, &value, 8, e);
	return result;
}

/* A child has a copy, but for what is cleared; each gives back its own. */
static void copied_by_fork(void **state)
{
	struct harness *h = *state;

	for (int private = 0; private < 2; private ++) {
		struct job job = {.private = private};
		struct target *t = begin(h, &job), *c;
		taddr_t at;
		pid_t child;

		help_stop_well(t, make, &job);
		at = job.arena->threads;
		assert_int_equal(job.arena->threads_size, SIZE);
		assert_int_equal(word(t, at), ARENA_THREADS_MAGIC ^ at);
		assert_int_equal(word(t, at + SIZE - 8), 0);
		help_stop_well(t, store, &job);
		child = (pid_t)atoi(help_ask(h, "fork"));
		c = help_open(child);
		assert_int_equal(word(c, at), ARENA_THREADS_MAGIC ^ at);
		assert_int_equal(word(c, at + 64), 77);
		assert_int_equal(word(c, at + WIPE), 0);
		assert_int_equal(word(c, at + WIPE + WIPE_SIZE - 8), 0);
		assert_int_equal(word(c, at + WIPE + WIPE_SIZE), 77);
		assert_int_equal(word(t, at + WIPE), 77);
		help_stop_well(c, unmap, &job);
		help_stop_well(c, unmap, &job);
		assert_int_equal(word(t, at + 64), 77);
		target_close(c);
		journal_destroy(job.journal);
		help_stop_well(t, destroy, &job);
		target_close(t);
		harness_verify(h);
		harness_end(h, 0);
	}
}

/* True if the child came to the end without passing `step` fault points. */
static bool die_at(pid_t pid, struct job *job, unsigned long step)
{
	pid_t child = fork();
	int status = 0;

	if (child == 0) {
		struct dinst_error e = {0};
		struct target *t;

		alarm(600);
		if (target_open(pid, &t, &e))
			_exit(2);
		fault_countdown = step;
		if (target_stop(t, NULL, make, job, NULL, &e))
			_exit(3);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFSIGNALED(status)) {
		assert_int_equal(WTERMSIG(status), SIGKILL);
		return false;
	}
	assert_int_equal(status, 0);
	return true;
}

static int clean_tails(struct stop *s, void *arg, struct dinst_error *e)
{
	return remote_clean_tails(s, arg, e);
}

/* A thread that was running our calls finishes them by itself. */
static void let_finish(struct target *t)
{
	struct remote_tails tails;

	for (int i = 0; i < 5000 && remote_tails_dirty(t); i++) {
		help_stop_well(t, clean_tails, &tails);
		usleep(1000);
	}
	assert_false(remote_tails_dirty(t));
}

/* Anonymous memory of ours that nobody has a record of. */
static size_t unknown_parts(pid_t pid)
{
	struct dinst_error e = {0};
	size_t count = 0;
	struct maps m;

	assert_int_equal(maps_read(pid, &m, &e), 0);
	for (size_t i = 0; i < m.count; i++)
		count += m.entries[i].hi - m.entries[i].lo >= SIZE - WIPE - WIPE_SIZE &&
			 m.entries[i].hi - m.entries[i].lo <= SIZE && !m.entries[i].inode &&
			 !m.entries[i].name[0] && !m.entries[i].shared;
	maps_release(&m);
	return count;
}

static void death_at_every_step(void **state)
{
	struct harness *h = *state;
	struct arena_found found[4];
	struct dinst_error e = {0};
	struct job job = {0};
	struct target *t = begin(h, &job);
	const size_t before = unknown_parts(h->pid);
	size_t with_part = 0;
	unsigned long step;

	for (step = 1; step < STEPS_MAX; step++) {
		bool whole = die_at(h->pid, &job, step);
		int count = 0;

		let_finish(t);
		count = arena_find(t, found, 4, &e);
		assert_in_range(count, 0, 1);
		if (count) {
			with_part += found[0].threads != 0;
			help_stop_well(t, unmap_found, &found[0]);
		}
		assert_int_equal(unknown_parts(h->pid), before);
		if (whole)
			break;
	}
	assert_in_range(step, 20, STEPS_MAX - 1);
	assert_true(with_part > 3);
	target_close(t);
	harness_kill(h);
}

static int steal(struct stop *s, void *arg, struct dinst_error *e)
{
	const struct job *job = arg;
	const uint64_t value = 1;

	return stop_write(s, job->arena->threads, &value, 8, e);
}

/* What does not look like ours any more is not unmapped. */
static void not_ours_any_more(void **state)
{
	struct harness *h = *state;
	struct arena_found found[2];
	struct dinst_error e = {0};
	struct job job = {0};
	struct target *t = begin(h, &job);
	taddr_t at;

	help_stop_well(t, make, &job);
	at = job.arena->threads;
	assert_int_equal(arena_find(t, found, 2, &e), 1);
	assert_int_equal(found[0].threads, at);
	assert_int_equal(found[0].threads_size, SIZE);
	help_stop_well(t, steal, &job);
	assert_int_equal(arena_find(t, found, 2, &e), 1);
	assert_int_equal(found[0].threads, 0);
	journal_destroy(job.journal);
	help_stop_well(t, destroy, &job);
	assert_int_equal(word(t, at), 1);
	target_close(t);
	harness_kill(h);
}

/* Our part has gone, and the program has memory of its own there, all zeros. */
static int replace(struct stop *s, void *arg, struct dinst_error *e)
{
	const struct job *job = arg;
	const struct arch_remote_call call = {
		SYS_mmap,
		{{ARCH_ARG_CONST, job->arena->threads},
		 {ARCH_ARG_CONST, SIZE},
		 {ARCH_ARG_CONST, PROT_READ | PROT_WRITE},
		 {ARCH_ARG_CONST, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE},
		 {ARCH_ARG_CONST, UINT64_MAX},
		 {ARCH_ARG_CONST, 0}},
		false};
	const struct arch_remote_program program = {.calls = &call, .count = 1};
	long at = 0;
	int result = arena_munmap(s, 0, 0, job->arena->threads, SIZE, e);

	if (!result)
		result = remote_run(s, &program, 0, NULL, NULL, NULL, &at, e);
	assert_int_equal((taddr_t)at, job->arena->threads);
	return result;
}

/* fear J4, J5: the program's own memory where the header says that ours is stays the program's */
static void somebody_elses_zeros(void **state)
{
	struct harness *h = *state;
	struct arena_found found[2];
	struct dinst_error e = {0};
	struct job job = {0};
	struct target *t = begin(h, &job);
	taddr_t at;

	help_stop_well(t, make, &job);
	at = job.arena->threads;
	help_stop_well(t, replace, &job);
	assert_int_equal(arena_find(t, found, 2, &e), 1);
	assert_int_equal(found[0].threads, 0);
	journal_destroy(job.journal);
	help_stop_well(t, destroy, &job);
	assert_int_equal(word(t, at), 0);
	target_close(t);
	harness_kill(h);
}

enum { PARKED_AT = 512 };

/* The program maps memory of its own behind our data half, of the same kind, and a context is saved there. */
static int make_neighbour(struct stop *s, void *arg, struct dinst_error *e)
{
	const struct job *job = arg;
	const taddr_t at = job->arena->data + job->arena->data_size;
	const struct arch_remote_call calls[] = {
		{SYS_mmap,
		 {{ARCH_ARG_CONST, at},
		  {ARCH_ARG_CONST, SIZE},
		  {ARCH_ARG_CONST, PROT_READ | PROT_WRITE},
		  {ARCH_ARG_CONST, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE},
		  {ARCH_ARG_CONST, UINT64_MAX},
		  {ARCH_ARG_CONST, 0}},
		 false},
		{SYS_madvise,
		 {{ARCH_ARG_CONST, at}, {ARCH_ARG_CONST, SIZE}, {ARCH_ARG_CONST, MADV_NOHUGEPAGE}},
		 true},
	};
	const struct arch_remote_program program = {.calls = calls, .count = 2};
	/* pc, flags, segments: struct sigcontext_64 (asm/sigcontext.h) */
	const uint64_t saved[] = {job->lo + 16, 0x202, 0x2b000000000033};
	long results[2];
	int result = remote_run(s, &program, 0, NULL, NULL, NULL, results, e);

	if (!result && (taddr_t)results[0] != at)
		result = dinst_fail(e, DINST_FAILED, "it is not there");
	return result ? result : stop_write(s, at + PARKED_AT, saved, sizeof(saved), e);
}

static int find_parked(struct stop *s, void *arg, struct dinst_error *e)
{
	struct job *job = arg;
	const struct stack_range range = {.lo = job->lo + 16, .hi = job->lo + 17};
	const taddr_t end = job->arena->data + job->arena->data_size;
	const struct maps_entry *entry;
	struct snapshot *shot = NULL;
	int result = snapshot_take_threads(s, &shot, e);

	if (result)
		return result;
	snapshot_find_parked(shot);
	entry = maps_find(snapshot_maps(shot), end);
	/* One mapping of both: that is what the test is about. */
	job->is_one = entry && entry->lo < end;
	job->searched = !snapshot_is_unsearched(shot);
	job->found = snapshot_parks(shot, &range, 1);
	snapshot_free(shot);
	return 0;
}

/* fear C2: memory of the program's that the kernel shows as one with ours is searched for what is parked there */
static void neighbours_memory(void **state)
{
	struct harness *h = *state;
	struct job job = {.private = true};
	struct target *t;

	if (strcmp(arch_name, "x86-64"))
		skip();
	t = begin(h, &job);
	help_stop_well(t, make, &job);
	help_stop_well(t, make_neighbour, &job);
	help_stop_well(t, find_parked, &job);
	assert_true(job.is_one && job.searched);
	assert_true(job.found);
	journal_destroy(job.journal);
	help_stop_well(t, destroy, &job);
	target_close(t);
	harness_kill(h);
}

static rlim_t own_pages(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	assert_true(f && fscanf(f, "%lu", &pages) == 1);
	fclose(f);
	return pages;
}

/* Our own limit on address space: no reason to give the target another kind of arena. */
static void own_address_space(void **state)
{
	struct harness *h = *state;
	struct job job = {0};
	struct target *t = begin(h, &job);
	struct dinst_error e = {0};
	pid_t child = fork();
	int status = 0;

	if (!child) {
		const rlim_t most = own_pages() * 4096 + (48 << 20);
		const struct rlimit small = {most, most};

		alarm(600);
		if (setrlimit(RLIMIT_AS, &small))
			_exit(1);
		if (help_stop(t, make, &job, &e) != DINST_FAILED || job.arena)
			_exit(2);
		_exit(strstr(e.text, "dinst itself cannot map") ? 0 : 3);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(copied_by_fork),	    CASE(death_at_every_step), CASE(not_ours_any_more),
		CASE(somebody_elses_zeros), CASE(neighbours_memory),   CASE(own_address_space),
	};

	return cmocka_run_group_tests_name("live/arena_threads", tests, NULL, NULL);
}
