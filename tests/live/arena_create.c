/* SPDX-License-Identifier: MIT */
/*
 * arena_create.c - arenas in address spaces of all kinds, and nothing of them
 * afterwards.
 */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/arena.h"
#include "inject/arena_place.h"
#include "inject/heap.h"
#include "inject/journal.h"
#include "tests/live/inject_help.h"

#define MIB ((size_t)1 << 20)

struct job {
	taddr_t lo, hi;
	bool private;
	struct arena *arena;
};

static int make(struct stop *s, void *arg, struct dinst_error *e)
{
	struct job *job = arg;

	return job->private ? arena_create_private(s, job->lo, job->hi, job->hi - job->lo, "a test",
						   &job->arena, e)
			    : arena_create(s, job->lo, job->hi, job->hi - job->lo, &job->arena, e);
}

static int sync_it(struct stop *s, void *arg, struct dinst_error *e)
{
	return arena_sync(s, ((struct job *)arg)->arena, e);
}

static int destroy(struct stop *s, void *arg, struct dinst_error *e)
{
	return arena_destroy(s, ((struct job *)arg)->arena, e);
}

static taddr_t distance(taddr_t a, taddr_t b)
{
	return a > b ? a - b : b - a;
}

static void check_reach(const struct job *job)
{
	const struct arena *a = job->arena;

	assert_true(distance(a->code, job->hi) <= ARENA_REACH);
	assert_true(distance(a->code + a->code_size, job->lo) <= ARENA_REACH);
	assert_true(a->reach_lo <= job->lo && a->reach_hi >= job->hi);
	if (a->low_data)
		assert_true(a->data + a->data_size <= 0x80000000);
	else
		assert_true(distance(a->data, a->code + a->code_size) <= ARENA_REACH &&
			    distance(a->data + a->data_size, a->code) <= ARENA_REACH);
	assert_true((size_t)(a->cpus + 1) << a->cpu_shift <= a->data_size);
}

/*
 * Code and counters work: a function of ours counts in the locked slot, by its
 * absolute or relative address, and returns 42.
 */
static void write_function(struct arena *a, uint8_t *map, taddr_t at, taddr_t counter)
{
	static const uint8_t absolute[] = {0xf0, 0x48, 0xff, 0x04, 0x25}; /* lock incq disp32 */
	static const uint8_t relative[] = {0xf0, 0x48, 0xff, 0x05}; /* lock incq disp32(%rip) */
	static const uint8_t end[] = {0xb8, 42, 0, 0, 0, 0xc3};	    /* mov $42,%eax; ret */
	taddr_t slot = counter + ((taddr_t)a->cpus << a->cpu_shift);
	int32_t displacement = (int32_t)(a->low_data ? slot : slot - (at + 8));
	size_t used = a->low_data ? sizeof(absolute) : sizeof(relative);

	memcpy(map, a->low_data ? absolute : relative, used);
	memcpy(map + used, &displacement, 4);
	memcpy(map + used + 4, end, sizeof(end));
}

static void use(struct harness *h, struct target *t, struct job *job)
{
	struct dinst_error e = {0};
	struct journal *journal;
	struct heap *heap;
	taddr_t function, counter, again;
	char line[64];

	assert_int_equal(journal_create(job->arena, "test", &journal, &e), 0);
	assert_int_equal(heap_create(job->arena, &heap, &e), 0);
	assert_int_equal(heap_alloc_code(heap, 32, &function, &e), 0);
	assert_int_equal(heap_alloc_counter(heap, &counter, &e), 0);
	write_function(job->arena, heap_map(heap, function, 32), function, counter);
	help_stop_well(t, sync_it, job);
	snprintf(line, sizeof(line), "sum %" PRIx64, function);
	for (uint64_t i = 0; i < 3; i++) {
		assert_int_equal(heap_read_counter(heap, counter), i);
		assert_string_equal(help_ask(h, line), "42");
	}
	/* A counter that is used again begins at zero. */
	heap_unref_counter(heap, counter);
	assert_int_equal(heap_alloc_counter(heap, &again, &e), 0);
	assert_int_equal(again, counter);
	assert_int_equal(heap_read_counter(heap, counter), 0);
	assert_string_equal(help_ask(h, line), "42");
	assert_int_equal(heap_read_counter(heap, counter), 1);
	heap_destroy(heap);
	journal_destroy(journal);
}

static void check_found(struct target *t, const struct job *job)
{
	struct dinst_error e = {0};
	struct arena_found found[4];

	assert_int_equal(arena_find(t, found, 4, &e), 1);
	assert_int_equal(found[0].code, job->arena->code);
	assert_int_equal(found[0].data, job->arena->data);
	assert_int_equal(found[0].code_size, job->arena->code_size);
	assert_int_equal(found[0].data_size, job->arena->data_size);
	assert_true(found[0].header_valid);
	assert_string_equal(found[0].session, "test");
}

/* True if the mapping that begins at `at` never gets huge pages (nh, proc_pid_smaps(5)). */
static bool has_small_pages(pid_t pid, taddr_t at)
{
	bool here = false, found = false;
	char line[512], *end;
	FILE *smaps;

	snprintf(line, sizeof(line), "/proc/%d/smaps", (int)pid);
	smaps = fopen(line, "re");
	while (smaps && fgets(line, sizeof(line), smaps)) {
		const taddr_t first = strtoull(line, &end, 16);

		if (*end == '-')
			here = first == at;
		else if (here && !strncmp(line, "VmFlags:", 8))
			found = strstr(line, " nh");
	}
	if (smaps)
		fclose(smaps);
	return found;
}

/* The whole life of an arena around the address that the target names. */
static void whole_life(struct harness *h, const char *where, bool private, size_t code_size,
		       int low_data)
{
	struct target *t = help_open(h->pid);
	struct dinst_error e = {0};
	struct arena_found found;
	struct job job = {.private = private};

	job.lo = help_ask_address(h, where) / 4096 * 4096;
	job.hi = job.lo + 4096;
	harness_verify(h);
	help_stop_well(t, make, &job);
	check_reach(&job);
	assert_true(has_small_pages(h->pid, job.arena->data));
	assert_true(has_small_pages(h->pid, job.arena->code));
	assert_int_equal(job.arena->mode, private ? ARENA_PRIVATE : ARENA_SHARED);
	assert_int_equal(job.arena->code_size, code_size);
	assert_int_equal(job.arena->low_data, low_data);
	harness_verify_what(h, HARNESS_TEXT | HARNESS_THREADS | HARNESS_SIGNALS | HARNESS_FDS);
	use(h, t, &job);
	check_found(t, &job);
	help_stop_well(t, destroy, &job);
	assert_int_equal(arena_find(t, &found, 1, &e), 0);
	harness_verify(h);
	target_close(t);
	harness_end(h, 0);
}

static void threads(void **state)
{
	harness_start(*state, "arena-space", "threads", NULL);
	whole_life(*state, "text", false, 64 * MIB, true);
}

static void near_a_library(void **state)
{
	harness_start(*state, "arena-space", "threads", NULL);
	whole_life(*state, "libc", false, 64 * MIB, true);
}

/* fear B8, I3: the fallback by itself; no huge page is made for a few bytes that the target pays for */
static void private_memory(void **state)
{
	harness_start(*state, "arena-space", "threads", NULL);
	whole_life(*state, "text", true, 4 * MIB, true);
}

static void file_size_limit(void **state)
{
	harness_start(*state, "arena-space", "fsize", NULL);
	whole_life(*state, "text", false, 64 * MIB, true);
}

/* fear B7: nothing is free below 2 GiB */
static void no_low_memory(void **state)
{
	harness_start(*state, "arena-space", "nolow", NULL);
	whole_life(*state, "text", false, 64 * MIB, false);
}

/*
 * fear B7: a stack that the program has mapped for itself below 2 GiB grows: not into our data, where
 * nothing would stop it
 */
static void growing_stack(void **state)
{
	static const uint8_t zeros[4096];
	struct harness *h = *state;
	const struct arena *a;
	struct job job = {0};
	struct target *t;

	harness_start(h, "arena-space", "grows", NULL);
	t = help_open(h->pid);
	job.lo = help_ask_address(h, "text") / 4096 * 4096;
	job.hi = job.lo + 4096;
	assert_string_equal(help_ask(h, "grow 1024"), "grown");
	help_stop_well(t, make, &job);
	a = job.arena;
	assert_true(a->low_data);
	assert_string_equal(help_ask(h, "grow 4096"), "grown");
	for (size_t at = 0; at < a->data_size; at += sizeof(zeros))
		assert_memory_equal(a->data_map + at, zeros, sizeof(zeros));
	help_stop_well(t, destroy, &job);
	target_close(t);
	harness_end(h, 0);
}

/*
 * fear B7: 2 GiB either side are taken but for single pages and one hole of 6 MiB: the hole is
 * used
 */
static void small_hole(void **state)
{
	harness_start(*state, "arena-space", "hole", "6", NULL);
	whole_life(*state, "text", false, 4 * MIB, true);
}

/* fear B7, I3: RLIMIT_AS leaves 24 MiB: a smaller arena */
static void address_space_limit(void **state)
{
	harness_start(*state, "arena-space", "as", "24", NULL);
	whole_life(*state, "text", false, 4 * MIB, true);
}

/* What remains is the target's: with an arena it can still have most of what it could have had. */
static void leaves_room(struct harness *h, const char *limit, bool private)
{
	struct job job = {.private = private};
	struct target *t;

	harness_start(h, "arena-space", limit, "120", NULL);
	t = help_open(h->pid);
	job.lo = help_ask_address(h, "text") / 4096 * 4096;
	job.hi = job.lo + 4096;
	assert_string_equal(help_ask(h, "room 110"), "enough");
	assert_string_equal(help_ask(h, "room 130"), "too little");
	help_stop_well(t, make, &job);
	assert_string_equal(help_ask(h, "room 80"), "enough");
	help_stop_well(t, destroy, &job);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear B7, I3: a limit leaves the target 120 MiB, of address space or of data: an arena takes no more
 * than a quarter, so that what the target wants next is there
 */
static void limits_leave_room(void **state)
{
	leaves_room(*state, "as", false);
	leaves_room(*state, "as", true);
	leaves_room(*state, "data", true);
}

/* The thread that makes our calls has a descriptor table of its own. */
static void own_descriptors(void **state)
{
	harness_start(*state, "arena-space", "unshare", NULL);
	whole_life(*state, "text", false, 64 * MIB, true);
}

/* The leader has exited: its maps and descriptors are gone, the process is not. */
static void leader_gone(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct arena_found found;
	struct job job = {0};
	struct target *t;

	harness_start_argv(h,
			   (const char *const[]){harness_path("tests/live/targets/arena-space"),
						 "leaderless", NULL},
			   false);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ready");
	t = help_open(h->pid);
	job.lo = help_ask_address(h, "text") / 4096 * 4096;
	job.hi = job.lo + 4096;
	help_stop_well(t, make, &job);
	check_reach(&job);
	assert_int_equal(job.arena->mode, ARENA_SHARED);
	use(h, t, &job);
	check_found(t, &job);
	help_stop_well(t, destroy, &job);
	assert_int_equal(arena_find(t, &found, 1, &e), 0);
	target_close(t);
	harness_end(h, 0);
}

/* Where executable memfds are forbidden the fallback works, and says why. */
/* fear B8: vm.memfd_noexec: the fallback works, and says why */
static void no_executable_memfd(void **state)
{
	struct harness *h = *state;
	struct job job = {0};
	struct target *t;
	pid_t pid;

	harness_start(h, "arena-space", "noexec", NULL);
	pid = (pid_t)atoi(help_ask(h, "pid"));
	if (!pid) {
		harness_end(h, 0);
		print_message("this kernel has no vm.memfd_noexec, or we may not set it\n");
		skip();
	}
	t = help_open(pid);
	job.lo = help_ask_address(h, "text") / 4096 * 4096;
	job.hi = job.lo + 4096;
	help_stop_well(t, make, &job);
	assert_int_equal(job.arena->mode, ARENA_PRIVATE);
	assert_non_null(strstr(job.arena->note, "memfd_create"));
	use(h, t, &job);
	check_found(t, &job);
	help_stop_well(t, destroy, &job);
	target_close(t);
	harness_end(h, 0);
}

/* Our own limit on file sizes: ftruncate() beyond it would be the end of us. */
static void own_file_size_limit(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct rlimit small = {4096, 4096};
	struct job job = {0};
	struct target *t;
	pid_t child;
	int status;

	harness_start(h, "arena-space", "threads", NULL);
	job.lo = help_ask_address(h, "text") / 4096 * 4096;
	job.hi = job.lo + 4096;
	child = fork();
	if (!child) {
		alarm(600);
		if (setrlimit(RLIMIT_FSIZE, &small) || target_open(h->pid, &t, &e) ||
		    help_stop(t, make, &job, &e))
			_exit(1);
		if (job.arena->mode != ARENA_PRIVATE || !strstr(job.arena->note, "bytes"))
			_exit(2);
		_exit(help_stop(t, destroy, &job, &e) ? 3 : 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear B7: single pages only: a clear refusal, nothing changed */
static void no_room_at_all(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct job job = {0};
	struct target *t;

	harness_start(h, "arena-space", "crowded", NULL);
	t = help_open(h->pid);
	job.lo = help_ask_address(h, "text") / 4096 * 4096;
	job.hi = job.lo + 4096;
	assert_int_equal(help_stop(t, make, &job, &e), DINST_NO_MEMORY);
	assert_non_null(strstr(e.text, "within 2 GiB"));
	assert_null(job.arena);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear B7, I3: RLIMIT_AS leaves 1 MiB: refused, and the limit is named */
static void address_space_exhausted(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct job job = {0};
	struct target *t;

	harness_start(h, "arena-space", "as", "1", NULL);
	t = help_open(h->pid);
	job.lo = help_ask_address(h, "text") / 4096 * 4096;
	job.hi = job.lo + 4096;
	assert_int_equal(help_stop(t, make, &job, &e), DINST_NO_MEMORY);
	assert_non_null(strstr(e.text, "RLIMIT_AS"));
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

/* The brk heap of a program at a fixed address goes on growing, as far as we promised. */
/* fear B7: a program at 0x400000: its brk heap grows by 512 MiB beside the arena */
static void fixed_address(void **state)
{
	struct harness *h = *state;
	struct job job = {0};
	struct target *t;

	harness_start(h, "arena-fixed", NULL);
	t = help_open(h->pid);
	job.lo = help_ask_address(h, "text") / 4096 * 4096;
	job.hi = job.lo + 4096;
	assert_true(job.lo < 0x1000000);
	help_stop_well(t, make, &job);
	check_reach(&job);
	assert_true(job.arena->low_data);
	assert_int_equal(job.arena->code_size, 64 * MIB);
	for (int i = 0; i < 8; i++)
		assert_string_equal(help_ask(h, "grow 64"), "grown");
	help_stop_well(t, destroy, &job);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

static void large(void **state)
{
	struct harness *h = *state;
	struct job job = {0};
	struct target *t;

	harness_start(h, "arena-space", "threads", NULL);
	t = help_open(h->pid);
	job.lo = help_ask_address(h, "text") / 4096 * 4096;
	job.hi = job.lo + 3 * MIB;
	help_stop_well(t, make, &job);
	check_reach(&job);
	assert_int_equal(job.arena->code_size, 384 * MIB);
	assert_int_equal(job.arena->cpu_shift, 23);
	assert_true(journal_size(job.arena) > 700000 * 64);
	use(h, t, &job);
	help_stop_well(t, destroy, &job);
	job.hi = job.lo + 1000 * MIB;
	help_stop_well(t, make, &job);
	check_reach(&job);
	assert_int_equal(job.arena->code_size, 512 * MIB);
	help_stop_well(t, destroy, &job);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

/* Nothing in the target can make the code half writable. */
static void sealed(void **state)
{
	struct harness *h = *state;
	struct job job = {0};
	struct target *t;
	char line[128];

	harness_start(h, "arena-space", "threads", NULL);
	t = help_open(h->pid);
	job.lo = help_ask_address(h, "text") / 4096 * 4096;
	job.hi = job.lo + 4096;
	help_stop_well(t, make, &job);
	snprintf(line, sizeof(line), "attack %" PRIx64 " %" PRIx64, job.arena->code,
		 job.arena->code + job.arena->code_size);
	assert_string_equal(help_ask(h, line), "held");
	/* ... while we can write, and it sees it. */
	use(h, t, &job);
	help_stop_well(t, destroy, &job);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

static int unmap(struct stop *s, void *arg, struct dinst_error *e)
{
	return arena_unmap(s, arg, e);
}

static void shared_with_a_child(void **state)
{
	struct harness *h = *state;
	pid_t child, *sharers = NULL;
	struct job job = {0};
	struct target *t, *c;
	size_t count = 9;

	harness_start(h, "arena-space", "threads", NULL);
	t = help_open(h->pid);
	job.lo = help_ask_address(h, "text") / 4096 * 4096;
	job.hi = job.lo + 4096;
	help_stop_well(t, make, &job);
	assert_int_equal(arena_look_for(h->pid, job.arena, NULL), 1);
	assert_int_equal(arena_sharers(job.arena, h->pid, &sharers, &count), 0);
	assert_int_equal(count, 0);
	child = (pid_t)atoi(help_ask(h, "fork"));
	assert_int_equal(arena_sharers(job.arena, h->pid, &sharers, &count), 0);
	assert_int_equal(count, 1);
	assert_int_equal(sharers[0], child);
	free(sharers);
	c = help_open(child);
	help_stop_well(c, unmap, job.arena);
	assert_int_equal(arena_look_for(child, job.arena, NULL), 0);
	assert_int_equal(arena_look_for(h->pid, job.arena, NULL), 1);
	/* Once more is nothing to do. */
	help_stop_well(c, unmap, job.arena);
	target_close(c);
	help_stop_well(t, destroy, &job);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

static int unmap_found(struct stop *s, void *arg, struct dinst_error *e)
{
	return arena_unmap_found(s, arg, e);
}

/* A mutator that ended without a word: what it left is found and removed. */
static void left_behind(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct arena_found found[2];
	struct journal *journal;
	struct target *t;

	for (int private = 0; private < 2; private ++) {
		struct job job = {.private = private};

		harness_start(h, "arena-space", "threads", NULL);
		t = help_open(h->pid);
		job.lo = help_ask_address(h, "text") / 4096 * 4096;
		job.hi = job.lo + 4096;
		help_stop_well(t, make, &job);
		assert_int_equal(journal_create(job.arena, "dead", &journal, &e), 0);
		help_stop_well(t, sync_it, &job);
		journal_destroy(journal);
		arena_release(job.arena);
		assert_int_equal(arena_find(t, found, 2, &e), 1);
		assert_true(found[0].header_valid);
		assert_string_equal(found[0].session, "dead");
		help_stop_well(t, unmap_found, &found[0]);
		assert_int_equal(arena_find(t, found, 2, &e), 0);
		target_close(t);
		harness_verify(h);
		harness_end(h, 0);
	}
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(threads),
		CASE(near_a_library),
		CASE(private_memory),
		CASE(file_size_limit),
		CASE(no_low_memory),
		CASE(growing_stack),
		CASE(small_hole),
		CASE(address_space_limit),
		CASE(limits_leave_room),
		CASE(own_descriptors),
		CASE(leader_gone),
		CASE(no_executable_memfd),
		CASE(own_file_size_limit),
		CASE(no_room_at_all),
		CASE(address_space_exhausted),
		CASE(fixed_address),
		CASE(large),
		CASE(sealed),
		CASE(shared_with_a_child),
		CASE(left_behind),
	};

	return cmocka_run_group_tests_name("live/arena_create", tests, NULL, NULL);
}
