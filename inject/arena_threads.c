/* SPDX-License-Identifier: MIT */
/*
 * arena_threads.c - making the private part of an arena (arena.h).
 *
 * Owns the order: the header says where it will be, then it is mapped, then it
 * gets its number. Whoever finds the header after our death finds the part in
 * any of these states. Never replaces a mapping.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "inject/arena.h"
#include "inject/arena_map.h"
#include "inject/arena_place.h"
#include "inject/arena_unmap.h"
#include "inject/fault.h"
#include "inject/journal_format.h"
#include "inject/maps.h"
#include "inject/remote.h"

enum { LOCKED_MOST = 5 << 20 }; /* bytes of it in a process that locks its memory */

/* Each is left out where the one before has failed: it is then not our memory. */
enum { CALL_MAP, CALL_WIPE, CALL_NO_DUMP, CALL_SMALL_PAGES, CALLS };

/* ------------------------------------------------------------ the place */

/* The maps of all processes that have the arena, as one. A process that has just ended has none. */
static int read_family(struct stop *s, const struct arena *a, struct maps *m, struct dinst_error *e)
{
	const pid_t pid = target_pid(stop_target(s));
	struct dinst_error ignored = {0};
	pid_t *pids = NULL;
	size_t count = 0;
	int result = maps_read(pid, m, e);

	if (result)
		return result;
	result = arena_sharers(a, pid, &pids, &count);
	for (size_t i = 0; i < count && !result; i++) {
		struct maps other;

		if (maps_read(pids[i], &other, &ignored))
			continue;
		if (!arena_place_add(m, &other))
			result = DINST_NO_MEMORY;
		maps_release(&other);
	}
	free(pids);
	if (!result)
		return DINST_OK;
	maps_release(m);
	return dinst_fail(e, result, "cannot look through the processes forked from %d", (int)pid);
}

/* All of it is made to exist at once where memory is locked. */
static int check_locked(struct stop *s, const struct arena_limits *limits, size_t size,
			struct dinst_error *e)
{
	struct memory_room room;
	int result;

	/* Little that is locked may be the first since it began to lock all that it maps. */
	if (!limits->locks_memory && !limits->locked)
		return DINST_OK;
	result = target_memory_room(stop_target(s), &room, e);
	if (!result && size > room.bytes / 2)
		return dinst_fail(
			e, DINST_NO_MEMORY,
			"the target locks its memory, and %zu KiB of per-thread state would "
			"leave its control group too little: it has %llu KiB left by %.160s",
			size >> 10, (unsigned long long)(room.bytes >> 10), room.limit);
	return result;
}

static int find_place(struct stop *s, struct arena *a, size_t size, taddr_t *out,
		      struct dinst_error *e)
{
	struct arena_limits limits;
	bool placed = false;
	struct maps m;
	int result;

	result = arena_limits_read(target_memory_tid(stop_target(s)), &limits, e);
	if (result)
		return result;
	/* What has been unlocked since it was mapped does not show any more. */
	limits.locks_memory |= a->locks_memory;
	result = check_locked(s, &limits, size, e);
	if (result)
		return result;
	/* All of it is made to exist at once, and not ours to make the target pay for. */
	if (size <= limits.own_room / ARENA_SHARE &&
	    (!limits.locks_memory || size <= LOCKED_MOST)) {
		result = read_family(s, a, &m, e);
		if (result)
			return result;
		placed = arena_place_near(&m, &limits, a->code, a->code + a->code_size, size, 0, 0,
					  out);
		maps_release(&m);
	}
	return placed ? DINST_OK
		      : dinst_fail(e, DINST_NO_MEMORY,
				   "the target has no room for %zu KiB of per-thread state, or "
				   "its limits leave too little (RLIMIT_AS, RLIMIT_DATA, "
				   "mlockall, vm.overcommit_memory)",
				   size >> 10);
}

/* ------------------------------------------------------------- making it */

/* Says in the header where the part is; `size` 0: there is none. */
static int tell_header(struct stop *s, struct arena *a, taddr_t at, size_t size,
		       struct dinst_error *e)
{
	struct journal_header *h = (struct journal_header *)(void *)a->code_map;

	fault_point();
	h->threads_check = 0;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	h->threads = at;
	h->threads_size = size;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	h->threads_check = ~(at + size);
	return arena_sync(s, a, e);
}

static struct arch_remote_arg constant(uint64_t value)
{
	return (struct arch_remote_arg){ARCH_ARG_CONST, value};
}

static struct arch_remote_call advise(taddr_t at, size_t size, int advice)
{
	return (struct arch_remote_call){
		SYS_madvise, {constant(at), constant(size), constant((uint64_t)advice)}, false};
}

static int map_it(struct stop *s, taddr_t at, size_t size, size_t wipe, size_t wipe_size,
		  long *results, struct dinst_error *e)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
	const struct arch_remote_call calls[CALLS] = {
		[CALL_MAP] = {SYS_mmap,
			      {constant(at), constant(size), constant(PROT_READ | PROT_WRITE),
			       constant((uint64_t)flags), constant(UINT64_MAX), constant(0)},
			      false},
		[CALL_WIPE] = advise(at + wipe, wipe_size, MADV_WIPEONFORK),
		[CALL_NO_DUMP] = advise(at, size, MADV_DONTDUMP),
		/* Records are touched one by one. Kernels without huge pages refuse it. */
		[CALL_SMALL_PAGES] = advise(at, size, MADV_NOHUGEPAGE),
	};
	const struct arch_remote_program program = {.calls = calls, .count = CALLS};

	for (size_t i = 0; i < CALLS; i++)
		results[i] = -ECANCELED;
	return remote_run(s, &program, 0, NULL, NULL, NULL, results, e);
}

/* What the calls returned, as an error; DINST_OK if all is there. */
static int judge(const long *results, taddr_t at, size_t size, struct dinst_error *e)
{
	const long map = results[CALL_MAP];

	if (map == -ENOMEM || map == -EEXIST || map == -EAGAIN)
		return dinst_fail(e, DINST_NO_MEMORY,
				  "the target has no memory for %zu KiB of per-thread state",
				  size >> 10);
	if (map < 0 && map > -4096)
		return dinst_fail_errno(e, DINST_NOT_PERMITTED, (int)-map,
					"the target may not map memory for per-thread state");
	if ((taddr_t)map != at)
		return dinst_fail(e, DINST_NO_MEMORY, "the target mapped it elsewhere");
	if (results[CALL_WIPE])
		return dinst_fail_errno(
			e, DINST_UNSUPPORTED, (int)-results[CALL_WIPE],
			"this kernel cannot tell a forked child from its parent "
			"(MADV_WIPEONFORK, Linux 4.14), so there is no per-thread state");
	return DINST_OK;
}

/* Gives back what was mapped, wherever the kernel put it. True if nothing is left. */
static bool take_back(struct stop *s, const long *results, size_t size)
{
	struct dinst_error ignored = {0};

	if (results[CALL_MAP] <= 0 && results[CALL_MAP] >= -4095)
		return true;
	return !arena_munmap(s, 0, 0, (taddr_t)results[CALL_MAP], size, &ignored);
}

/* In one process. *left: something of it may still be there. */
static int make_part(struct stop *s, taddr_t at, size_t size, size_t wipe, size_t wipe_size,
		     bool *left, struct dinst_error *e)
{
	const uint64_t magic = ARENA_THREADS_MAGIC ^ at;
	struct dinst_error ignored = {0};
	const unsigned lost = target_left_program(stop_target(s));
	long results[CALLS];
	int result = map_it(s, at, size, wipe, wipe_size, results, e);

	if (!result)
		result = judge(results, at, size, e);
	if (!result)
		result = stop_write(s, at, &magic, sizeof(magic), e);
	/* A thread that is lost maps it by itself, and marks it where nothing else may be by then. */
	*left = result &&
		(target_left_program(stop_target(s)) != lost || !take_back(s, results, size));
	/* By its number it is known also where the calls that mark it were not made. */
	if (*left && (taddr_t)results[CALL_MAP] == at)
		stop_write(s, at, &magic, sizeof(magic), &ignored);
	return result;
}

int arena_add_threads(struct stop *s, struct arena *a, size_t size, size_t wipe, size_t wipe_size,
		      struct dinst_error *e)
{
	struct dinst_error ignored = {0};
	bool left = false;
	taddr_t at;
	int result = find_place(s, a, size, &at, e);

	if (!result)
		result = tell_header(s, a, at, size, e);
	if (result)
		return result;
	result = make_part(s, at, size, wipe, wipe_size, &left, e);
	/* Where something is left of it, the header goes on saying where. */
	if (!result && a->locks_memory)
		arena_unlock(s, at, size, 0, 0);
	if (!result || left) {
		a->threads = at;
		a->threads_size = size;
	} else {
		tell_header(s, a, 0, 0, &ignored);
	}
	return result;
}

int arena_add_threads_too(struct stop *s, const struct arena *a, size_t wipe, size_t wipe_size,
			  struct dinst_error *e)
{
	struct arena_limits limits;
	bool left;
	int result;

	/* Its size was chosen for another one of the family. */
	result = arena_limits_read(target_memory_tid(stop_target(s)), &limits, e);
	/* What has been unlocked since it was mapped does not show any more. A child locks nothing by itself. */
	if (stop_target(s) == a->target)
		limits.locks_memory |= a->locks_memory;
	if (!result)
		result = check_locked(s, &limits, a->threads_size, e);
	if (!result && limits.locks_memory && a->threads_size > LOCKED_MOST)
		result = dinst_fail(
			e, DINST_NO_MEMORY,
			"process %d locks its memory: the %zu KiB of per-thread state that others of "
			"its family have would be made to exist there at once",
			(int)target_pid(stop_target(s)), a->threads_size >> 10);
	if (!result)
		result = make_part(s, a->threads, a->threads_size, wipe, wipe_size, &left, e);
	if (!result && limits.locks_memory)
		arena_unlock(s, a->threads, a->threads_size, 0, 0);
	return result;
}

int arena_unmap_threads(struct stop *s, const struct arena *a, struct dinst_error *e)
{
	struct target *t = stop_target(s);
	const struct maps *m;
	int result = stop_maps(s, &m, e);

	if (result)
		return result;
	return arena_is_threads(t, m, a->threads, a->threads_size, true)
		       ? arena_munmap(s, 0, 0, a->threads, a->threads_size, e)
		       : DINST_OK;
}

void arena_forget_threads(struct stop *s, struct arena *a)
{
	struct dinst_error ignored = {0};

	tell_header(s, a, 0, 0, &ignored);
	a->threads = a->threads_size = 0;
}
