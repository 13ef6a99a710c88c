/* SPDX-License-Identifier: MIT */
/*
 * arena_map.c - mapping an arena in the target and here.
 *
 * Owns the remote programs that map, the descriptor's way out of the target,
 * and the seals. Never replaces a mapping, never leaves a descriptor in the
 * target.
 *
 * Why the steps come in this order (arena.h has the map of the file):
 *   1. memfd_create                in the target, empty
 *   2.   ftruncate, mmap           here, at the entry stop of 3: RLIMIT_FSIZE of
 *                                  the target would kill it with SIGXFSZ
 *   3. mmap the data half          writable, so it has to come before
 *   4.   F_SEAL_FUTURE_WRITE       here, at the entry stop of 5: from now on no
 *                                  mapping of the file can be made writable
 *   5. mmap the code half, close
 * All in one stop, so that no thread sees, and no fork inherits, the descriptor.
 */
#include "inject/arena_map.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inject/arena_place.h"
#include "inject/arena_unmap.h"
#include "inject/fault.h"
#include "inject/proc.h"
#include "inject/proc_open.h"
#include "inject/remote.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { PAGE = 4096 };

#define MEMFD_NAME "dinst"
#define MEMFD_LINK "/memfd:" MEMFD_NAME " (deleted)"

/* ------------------------------------------------------ the shared arena */

/*
 * True if the descriptor is the empty memfd that the target has just made. A process
 * that shares descriptors with it, and runs, may have put something else there;
 * of memory of huge pages there may be too little to be written to.
 */
static bool is_our_memfd(int fd, struct stat *st)
{
	char path[64], name[64];
	struct statfs fs;
	ssize_t length;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	length = proc_readlink(path, name, sizeof(name));
	return length == (ssize_t)strlen(MEMFD_LINK) && !memcmp(name, MEMFD_LINK, (size_t)length) &&
	       !fstat(fd, st) && S_ISREG(st->st_mode) && st->st_size == 0 && !fstatfs(fd, &fs) &&
	       fs.f_type == TMPFS_MAGIC;
}

/* Opens nothing but such a memfd: opening a device or a pipe may do something. */
static int open_memfd(pid_t tid, int number, struct stat *st)
{
	char path[96];
	int found, error, fd = -1;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)tid, number);
	found = proc_open(path, O_PATH);
	if (found >= 0 && is_our_memfd(found, st)) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", found);
		fd = proc_open(path, O_RDWR);
	}
	error = errno;
	if (found >= 0)
		close(found);
	errno = error;
	return fd;
}

/* What we have run out of, the target has not: no reason for another kind of arena. */
static bool is_our_lack(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOMEM;
}

/*
 * Copies the target's descriptor `number`. pidfd_getfd looks into the leader's
 * table; a thread may have one of its own (unshare(CLONE_FILES)), and
 * pidfd_getfd may be forbidden, so each thread's /proc entry is tried too.
 */
static int copy_descriptor(struct stop *s, int number, struct stat *st)
{
	int fd, error;

	fault_point();
	fd = (int)syscall(SYS_pidfd_getfd, target_pidfd(stop_target(s)), number, 0);
	if (fd >= 0 && is_our_memfd(fd, st))
		return fd;
	error = fd < 0 ? errno : EBADF;
	if (fd >= 0)
		close(fd);
	for (size_t i = 0; i < stop_thread_count(s); i++) {
		errno = 0;
		fd = open_memfd(stop_thread(s, i)->tid, number, st);
		if (fd >= 0)
			return fd;
		if (!is_our_lack(error))
			error = errno;
	}
	errno = error;
	return -1;
}

/* Our own limit on file sizes would kill us as it would the target. */
static bool may_size(size_t size)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit))
		return false;
	if (limit.rlim_cur >= size)
		return true;
	limit.rlim_cur = limit.rlim_max;
	return limit.rlim_max >= size && !setrlimit(RLIMIT_FSIZE, &limit);
}

/* Step 2: our copy of the descriptor and our mapping of the whole file. */
static int adopt_memfd(struct stop *s, struct arena *a, int number, struct dinst_error *e)
{
	size_t size = a->code_size + a->data_size;
	struct stat st;
	void *map;

	a->fd = copy_descriptor(s, number, &st);
	if (a->fd < 0 && is_our_lack(errno))
		return dinst_fail_errno(e, DINST_FAILED, errno,
					"dinst itself cannot take over the target's memfd");
	if (a->fd < 0) {
		snprintf(a->note, sizeof(a->note),
			 "the memfd cannot be copied out of the target: %s", strerror(errno));
		return -1;
	}
	fault_point();
	/* Not the data half yet: what is mapped behind the file's end cannot be filled. */
	if (!may_size(size) || ftruncate(a->fd, (off_t)a->code_size)) {
		snprintf(a->note, sizeof(a->note), "the memfd cannot be given %zu bytes: %s", size,
			 strerror(errno));
		return -1;
	}
	map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
	if (map == MAP_FAILED && !is_our_lack(errno)) {
		snprintf(a->note, sizeof(a->note), "the memfd cannot be mapped here: %s",
			 strerror(errno));
		return -1;
	}
	if (map == MAP_FAILED)
		return dinst_fail_errno(e, DINST_FAILED, errno,
					"dinst itself cannot map the %zu KiB of an arena",
					size >> 10);
	/* What we share with a target is for us alone: no child of ours gets it. */
	madvise(map, size, MADV_DONTFORK);
	a->code_map = map;
	a->data_map = a->code_map + a->code_size;
	a->device = st.st_dev;
	a->inode = st.st_ino;
	/* Where is_shared() writes. */
	return arena_make_pages(a, 0, PAGE, e);
}

/* DINST_UNSUPPORTED if, as was not known, the target locks what is mapped; another error where nobody can tell now. */
static int find_locked(struct stop *s, struct arena *a, struct dinst_error *e)
{
	uint64_t bytes = 0;
	int result = DINST_OK;

	if (!a->locks_memory)
		result = arena_locked_bytes(target_memory_tid(stop_target(s)), &bytes, e);
	if (result || a->locks_memory || bytes <= a->locked)
		return result;
	a->locks_memory = true;
	return dinst_fail(e, DINST_UNSUPPORTED, "the target locks what is mapped");
}

/*
 * Step 3 is behind us, and the data half is mapped, of which nothing exists: now it is seen
 * whether the target has asked for all to be locked that is mapped from now on
 * (mlockall(MCL_FUTURE)). Then whole halves are filled at its expense, and only small ones will do.
 */
static int grow_memfd(struct stop *s, struct arena *a, struct dinst_error *e)
{
	const size_t size = a->code_size + a->data_size;
	int result = find_locked(s, a, e);

	if (result == DINST_UNSUPPORTED) {
		snprintf(a->note, sizeof(a->note), "the target locks what is mapped");
		return -1;
	}
	if (result)
		return result;
	if (ftruncate(a->fd, (off_t)size)) {
		snprintf(a->note, sizeof(a->note), "the memfd cannot be given %zu bytes: %s", size,
			 strerror(errno));
		return -1;
	}
	/* What is there already when the target maps it is not made at its group's expense. */
	if (a->locks_memory && fallocate(a->fd, 0, 0, (off_t)size)) {
		snprintf(a->note, sizeof(a->note), "no memory for %zu bytes at once: %s", size,
			 strerror(errno));
		return -1;
	}
	return arena_make_pages(a, a->code_size, PAGE, e);
}

/*
 * Step 4. From here on nobody can cut it off under our mapping; until now a process
 * that shares the target's descriptors could.
 */
static int seal_memfd(struct arena *a)
{
	struct stat st;

	fault_point();
	if (fcntl(a->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW)) {
		snprintf(a->note, sizeof(a->note), "the memfd cannot be sealed: %s",
			 strerror(errno));
		return -1;
	}
	if (!fstat(a->fd, &st) && st.st_size == (off_t)(a->code_size + a->data_size))
		return 0;
	snprintf(a->note, sizeof(a->note), "the memfd is not of the size that it was given");
	return -1;
}

/*
 * Our half of the set-up; a refusal is told in a->note, and the rest is skipped. Where that is
 * empty it has failed.
 */
static int set_up_between(struct stop *s, size_t next, const long *results, void *arg,
			  struct dinst_error *e)
{
	struct arena *a = arg;
	int result = 0;

	if (next == 1)
		result = adopt_memfd(s, a, (int)results[0], e);
	if (next == 2) {
		result = grow_memfd(s, a, e);
		if (!result)
			result = seal_memfd(a);
	}
	if (result && a->note[0])
		result = dinst_fail(e, DINST_UNSUPPORTED, "%s", a->note);
	return result;
}

enum { CALL_MEMFD, CALL_DATA, CALL_CODE, CALL_CLOSE, SHARED_CALLS };

static struct arch_remote_arg constant(uint64_t value)
{
	return (struct arch_remote_arg){ARCH_ARG_CONST, value};
}

static struct arch_remote_arg memfd(void)
{
	return (struct arch_remote_arg){ARCH_ARG_RESULT, CALL_MEMFD};
}

static struct arch_remote_call map_call(taddr_t at, size_t size, int protection, int flags,
					struct arch_remote_arg fd, size_t offset)
{
	return (struct arch_remote_call){SYS_mmap,
					 {constant(at), constant(size),
					  constant((uint64_t)protection), constant((uint64_t)flags),
					  fd, constant(offset)},
					 false};
}

static int run_shared(struct stop *s, struct arena *a, unsigned flags, long *results,
		      struct dinst_error *e)
{
	const int map_flags = MAP_SHARED | MAP_FIXED_NOREPLACE;
	const struct arch_remote_call calls[SHARED_CALLS] = {
		[CALL_MEMFD] = {SYS_memfd_create, {{ARCH_ARG_DATA, 0}, constant(flags)}, false},
		[CALL_DATA] = map_call(a->data, a->data_size, PROT_READ | PROT_WRITE, map_flags,
				       memfd(), a->code_size),
		[CALL_CODE] = map_call(a->code, a->code_size, PROT_READ | PROT_EXEC, map_flags,
				       memfd(), 0),
		[CALL_CLOSE] = {SYS_close, {memfd()}, true},
	};
	const struct arch_remote_program program = {
		.calls = calls,
		.count = SHARED_CALLS,
		.data = (const uint8_t *)MEMFD_NAME,
		.data_size = sizeof(MEMFD_NAME),
	};

	for (size_t i = 0; i < SHARED_CALLS; i++)
		results[i] = -ECANCELED;
	return remote_run(s, &program, 0, NULL, set_up_between, a, results, e);
}

/* The address that a call of mmap returned, or 0. */
static taddr_t mapped_at(long result)
{
	return result < 0 && result > -4096 ? 0 : (taddr_t)result;
}

/* Takes back what an attempt mapped, wherever the kernel put it. */
static int undo_mappings(struct stop *s, const struct arena *a, long data, long code,
			 struct dinst_error *e)
{
	return arena_munmap(s, mapped_at(code), a->code_size, mapped_at(data), a->data_size, e);
}

/*
 * The descriptor, where the program was given up before it closed it. Fails as undo_mappings(). `lost`: how
 * many threads had been lost before.
 */
static void close_memfd(struct stop *s, const long *results, unsigned lost)
{
	const struct arch_remote_call call = {
		SYS_close, {constant((uint64_t)results[CALL_MEMFD])}, true};
	const struct arch_remote_program program = {.calls = &call, .count = 1};
	struct dinst_error ignored = {0};
	long result;

	if (results[CALL_MEMFD] < 0 || results[CALL_CLOSE] != -ECANCELED)
		return;
	/* A thread that is lost closes it by itself. */
	if (target_left_program(stop_target(s)) == lost)
		remote_run(s, &program, 0, NULL, NULL, NULL, &result, &ignored);
}

/* What we write is what the target reads, in both halves; zero again afterwards. */
static bool is_shared(struct arena *a)
{
	uint64_t probe = ARENA_PROBE ^ a->inode, code = 0, data = 0;
	bool same;

	fault_point();
	memcpy(a->code_map, &probe, sizeof(probe));
	memcpy(a->data_map, &probe, sizeof(probe));
	same = target_read_some(a->target, a->code, &code, sizeof(code)) == sizeof(code) &&
	       target_read_some(a->target, a->data, &data, sizeof(data)) == sizeof(data) &&
	       code == probe && data == probe;
	memset(a->code_map, 0, sizeof(probe));
	memset(a->data_map, 0, sizeof(probe));
	if (!same)
		snprintf(a->note, sizeof(a->note), "the mappings do not show the memfd");
	return same;
}

/* Which attempt follows one whose call returned this. */
static enum arena_attempt judge(struct arena *a, const char *call, long result)
{
	/* EAGAIN: RLIMIT_MEMLOCK, where new memory is locked. */
	if (result == -ENOMEM || result == -EEXIST || result == -EAGAIN)
		return ARENA_ATTEMPT_SMALLER;
	snprintf(a->note, sizeof(a->note), "%s in the target: %s", call, strerror((int)-result));
	return ARENA_ATTEMPT_PRIVATE;
}

static enum arena_attempt judge_shared(struct arena *a, const long *results)
{
	if (results[CALL_MEMFD] < 0)
		return judge(a, "memfd_create", results[CALL_MEMFD]);
	if (!mapped_at(results[CALL_DATA]))
		return judge(a, "mmap of the data half", results[CALL_DATA]);
	if (!mapped_at(results[CALL_CODE]))
		return judge(a, "mmap of the code half", results[CALL_CODE]);
	/* A kernel that does not know MAP_FIXED_NOREPLACE takes the address for a hint. */
	if (mapped_at(results[CALL_DATA]) != a->data || mapped_at(results[CALL_CODE]) != a->code)
		return ARENA_ATTEMPT_SMALLER;
	return is_shared(a) ? ARENA_ATTEMPT_DONE : ARENA_ATTEMPT_PRIVATE;
}

static struct arch_remote_call advise(taddr_t at, size_t size, int advice)
{
	return (struct arch_remote_call){
		SYS_madvise, {constant(at), constant(size), constant((uint64_t)advice)}, true};
}

/*
 * A core dump of the target would read, and so fill, all of the sparse file; a
 * huge page would fill what is far from anything used. It is no matter if the
 * kernel does not do it.
 */
static int keep_sparse(struct stop *s, const struct arena *a, struct dinst_error *e)
{
	const struct arch_remote_call calls[] = {
		advise(a->code, a->code_size, MADV_DONTDUMP),
		advise(a->data, a->data_size, MADV_DONTDUMP),
		advise(a->code, a->code_size, MADV_NOHUGEPAGE),
		advise(a->data, a->data_size, MADV_NOHUGEPAGE),
	};
	const size_t count = sizeof(calls) / sizeof(calls[0]);
	const struct arch_remote_program program = {.calls = calls, .count = count};
	long results[sizeof(calls) / sizeof(calls[0])] = {0};

	madvise(a->code_map, a->code_size + a->data_size, MADV_NOHUGEPAGE);
	return remote_run(s, &program, 0, NULL, NULL, NULL, results, e);
}

/* What is locked counts against a limit (RLIMIT_MEMLOCK; CAP_IPC_LOCK has none). */
static bool is_locking_limited(pid_t tid)
{
	struct proc_status status;
	const bool may = !proc_status_read(tid, &status) && status.capabilities >> CAP_IPC_LOCK & 1;

	return !may && arena_limit(tid, RLIMIT_MEMLOCK) != UINT64_MAX;
}

void arena_unlock(struct stop *s, taddr_t at, size_t size, taddr_t other, size_t other_size)
{
	const struct arch_remote_call calls[] = {
		{SYS_munlock, {constant(at), constant(size)}, true},
		{SYS_munlock, {constant(other), constant(other_size)}, true},
	};
	const struct arch_remote_program program = {.calls = calls, .count = other_size ? 2 : 1};
	struct dinst_error ignored = {0};
	long results[2];

	if (is_locking_limited(target_memory_tid(stop_target(s))))
		remote_run(s, &program, 0, NULL, NULL, NULL, results, &ignored);
}

enum arena_attempt arena_map_shared(struct stop *s, struct arena *a, struct dinst_error *e)
{
	const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	const unsigned lost = target_left_program(stop_target(s));
	const bool careful = a->locks_memory;
	struct dinst_error inner = {0}, undo = {0};
	long results[SHARED_CALLS];
	enum arena_attempt outcome;
	int result;

	a->mode = ARENA_SHARED;
	a->note[0] = '\0';
	result = run_shared(s, a, flags | MFD_EXEC, results, &inner);
	/* Linux before 6.3 does not know MFD_EXEC, and does not need it. */
	if (!result && results[CALL_MEMFD] == -EINVAL)
		result = run_shared(s, a, flags, results, &inner);
	if (result && (result != DINST_UNSUPPORTED || !a->note[0])) {
		/* The machinery's own failure; what it mapped it may have mapped. */
		outcome = ARENA_ATTEMPT_ERROR;
		if (e && !e->code)
			*e = inner;
	} else if (result) {
		outcome =
			a->locks_memory && !careful ? ARENA_ATTEMPT_SMALLER : ARENA_ATTEMPT_PRIVATE;
	} else {
		outcome = judge_shared(a, results);
	}
	if (outcome == ARENA_ATTEMPT_DONE && keep_sparse(s, a, e))
		outcome = ARENA_ATTEMPT_ERROR;
	if (outcome == ARENA_ATTEMPT_DONE && a->locks_memory)
		arena_unlock(s, a->code, a->code_size, a->data, a->data_size);
	if (outcome == ARENA_ATTEMPT_DONE)
		return outcome;
	close_memfd(s, results, lost);
	/* Where a thread is lost, this fails, too; what is told is the first failure. */
	if (undo_mappings(s, a, results[CALL_DATA], results[CALL_CODE], &undo)) {
		outcome = ARENA_ATTEMPT_ERROR;
		if (e && !e->code)
			*e = undo;
	}
	arena_close_ours(a);
	return outcome;
}

/* ------------------------------------------------------ the private arena */

/* Each map is followed by the copy of what was sent. */
static bool map_ours_private(struct arena *a)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	void *code = mmap(NULL, 2 * a->code_size, PROT_READ | PROT_WRITE, flags, -1, 0);
	void *data = mmap(NULL, 2 * a->data_size, PROT_READ | PROT_WRITE, flags, -1, 0);

	a->data_dirty = calloc(a->data_size / PAGE, sizeof(*a->data_dirty));
	if (code == MAP_FAILED || data == MAP_FAILED || !a->data_dirty) {
		free(a->data_dirty);
		a->data_dirty = NULL;
		if (code != MAP_FAILED)
			munmap(code, 2 * a->code_size);
		if (data != MAP_FAILED)
			munmap(data, 2 * a->data_size);
		return false;
	}
	a->code_map = code;
	a->code_sent = a->code_map + a->code_size;
	a->data_map = data;
	a->data_sent = a->data_map + a->data_size;
	return true;
}

/* The target pays for all of a huge page at the first byte. What `map` returned, if it mapped. */
static struct arch_remote_call small_pages(uint64_t map, size_t size)
{
	return (struct arch_remote_call){
		SYS_madvise,
		{{ARCH_ARG_RESULT, map}, constant(size), constant(MADV_NOHUGEPAGE)},
		true};
}

enum { PRIVATE_CODE, PRIVATE_DATA, PRIVATE_HALVES, PRIVATE_CALLS = 2 * PRIVATE_HALVES };

/* As in grow_memfd(): the code half is mapped, which is small; the data half would be filled, too. */
static int refuse_locked(struct stop *s, size_t next, const long *results, void *arg,
			 struct dinst_error *e)
{
	(void)results;
	return next == PRIVATE_DATA ? find_locked(s, arg, e) : DINST_OK;
}

static int run_private(struct stop *s, struct arena *a, long *results, struct dinst_error *e)
{
	const int map_flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
	const struct arch_remote_call calls[] = {
		[PRIVATE_CODE] = map_call(a->code, a->code_size, PROT_READ | PROT_EXEC, map_flags,
					  constant(UINT64_MAX), 0),
		[PRIVATE_DATA] = map_call(a->data, a->data_size, PROT_READ | PROT_WRITE, map_flags,
					  constant(UINT64_MAX), 0),
		small_pages(PRIVATE_CODE, a->code_size),
		small_pages(PRIVATE_DATA, a->data_size),
	};
	const struct arch_remote_program program = {.calls = calls, .count = PRIVATE_CALLS};

	return remote_run(s, &program, 0, NULL, refuse_locked, a, results, e);
}

/* Which attempt follows one whose calls were made, and returned this. */
static enum arena_attempt judge_private(const long *results, struct dinst_error *e)
{
	/* The second is left out where the first has failed. EAGAIN: RLIMIT_MEMLOCK, where new memory is locked. */
	const size_t which = mapped_at(results[PRIVATE_CODE]) ? PRIVATE_DATA : PRIVATE_CODE;
	const long result = results[which];

	if (mapped_at(result) || result == -ENOMEM || result == -EEXIST || result == -EAGAIN ||
	    result == -ECANCELED)
		return ARENA_ATTEMPT_SMALLER;
	dinst_fail_errno(e, DINST_NOT_PERMITTED, (int)-result,
			 "the target may not map %s memory for an arena%s",
			 which == PRIVATE_CODE ? "executable" : "writable",
			 result == -EACCES
				 ? " (forbidden by a security module, such as SELinux: execmem)"
				 : "");
	return ARENA_ATTEMPT_ERROR;
}

enum arena_attempt arena_map_private(struct stop *s, struct arena *a, struct dinst_error *e)
{
	const unsigned lost = target_left_program(stop_target(s));
	const bool careful = a->locks_memory;
	struct dinst_error own = {0}, undo = {0};
	long results[PRIVATE_CALLS] = {-ECANCELED, -ECANCELED};
	int result;

	a->mode = ARENA_PRIVATE;
	if (!map_ours_private(a)) {
		dinst_fail(e, DINST_NO_MEMORY, "no memory for the copy of a private arena");
		return ARENA_ATTEMPT_ERROR;
	}
	result = run_private(s, a, results, &own);
	/* Small pages are no more than better: without them it is used, or else both halves might stay. */
	if ((!result || (result == DINST_BUSY && target_left_program(stop_target(s)) == lost)) &&
	    mapped_at(results[PRIVATE_DATA]) == a->data &&
	    mapped_at(results[PRIVATE_CODE]) == a->code) {
		if (a->locks_memory)
			arena_unlock(s, a->code, a->code_size, a->data, a->data_size);
		return ARENA_ATTEMPT_DONE;
	}
	/* What was mapped by then; what is told is the first failure. */
	if (undo_mappings(s, a, results[PRIVATE_DATA], results[PRIVATE_CODE], &undo) && !result) {
		result = undo.code;
		own = undo;
	} else if (result == DINST_UNSUPPORTED && a->locks_memory && !careful && !undo.code) {
		result = DINST_OK;
	}
	arena_close_ours(a);
	if (!result)
		return judge_private(results, e);
	if (e && !e->code)
		*e = own;
	return ARENA_ATTEMPT_ERROR;
}
