/* SPDX-License-Identifier: MIT */
/*
 * target.c - which process the target is, and reading its memory.
 *
 * Owns struct target. A pid is believed only as long as the pidfd says that
 * the process it was opened for is alive. Never stops the target, never writes.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "inject/cgroup.h"
#include "inject/control.h"
#include "inject/proc_open.h"

/* Entries of the auxiliary vector (elf.h, getauxval(3)). */
enum { AUX_NULL = 0, AUX_RANDOM = 25 };

enum { RANDOM_BYTES = 16, AUX_WORDS = 128, READ_BATCH = 256, ROOM_LOOKS = 64 };

/* Neither that it is there nor that it is not can be said. */
static int fail_lack(pid_t pid, int error, struct dinst_error *e)
{
	return dinst_fail_errno(e, DINST_BUSY, -error, "cannot look at process %d", (int)pid);
}

static int open_pidfd(pid_t pid, enum target_origin origin, int *pidfd, struct dinst_error *e)
{
	struct proc_status status;
	int error, code;

	if (pid > 0 && !proc_status_read(pid, &status) && status.tgid != pid)
		return dinst_fail(e, DINST_NO_PROCESS,
				  "%d is a thread of process %d (%s); give the process's pid",
				  (int)pid, (int)status.tgid, status.name);
	*pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	if (*pidfd >= 0)
		return 0;
	error = errno;
	if (pid > 0 && proc_is_lack(-error))
		return fail_lack(pid, -error, e);
	/* A filter on us, or a /proc that is not ours: told with what to do about it. */
	code = pid > 0 ? target_find_obstacle(pid, origin, e) : 0;
	if (code)
		return code;
	if (pid <= 0 || error == ESRCH)
		return dinst_fail(e, DINST_NO_PROCESS, "no process has the pid %d", (int)pid);
	return dinst_fail_errno(e, DINST_FAILED, error, "cannot open process %d", (int)pid);
}

/*
 * True if an exec of the same program may put everything where it was (personality(2),
 * Documentation/admin-guide/sysctl/kernel.rst).
 */
static bool is_placed_alike(pid_t pid)
{
	char path[64], text[32];

	if (proc_read("/proc/sys/kernel/randomize_va_space", text, sizeof(text)) > 0 &&
	    !strtoul(text, NULL, 10))
		return true;
	snprintf(path, sizeof(path), "/proc/%d/personality", (int)pid);
	return proc_read(path, text, sizeof(text)) <= 0 ||
	       (strtoul(text, NULL, 16) & ADDR_NO_RANDOMIZE);
}

int target_open_known(pid_t pid, enum target_origin origin, struct target **out,
		      struct dinst_error *e)
{
	struct proc_status status;
	struct proc_stat stat;
	struct target *t;
	int pidfd = -1;
	int error, code;

	code = open_pidfd(pid, origin, &pidfd, e);
	if (code)
		return code;
	t = calloc(1, sizeof(*t));
	if (!t) {
		code = dinst_fail(e, DINST_NO_MEMORY, "no memory for process %d", (int)pid);
		goto close_pidfd;
	}
	t->pid = pid;
	t->memory_tid = pid;
	t->patience = 1;
	t->claim = -1;
	t->pidfd = pidfd;
	code = target_find_obstacle(pid, origin, e);
	if (code)
		goto free_target;
	error = target_test_access(target_memory_tid(t));
	if (error == -EPERM) {
		code = target_explain_denial(pid, e);
		goto free_target;
	}
	if (error == -ENOSYS)
		error = 0; /* built without it: /proc/PID/mem serves */
	if (!error)
		error = proc_stat_read(pid, &stat);
	if (proc_is_lack(error)) {
		code = fail_lack(pid, error, e);
		goto free_target;
	}
	if (error) {
		code = dinst_fail(e, DINST_GONE, "process %d ended while it was opened", (int)pid);
		goto free_target;
	}
	t->start_time = stat.start_time;
	if (!proc_status_read(target_memory_tid(t), &status))
		t->text_kib = status.text_kib;
	t->clock_offset = proc_clock_offset(t->memory_tid);
	t->placed_alike = is_placed_alike(pid);
	snprintf(t->name, sizeof(t->name), "%s", stat.name);
	pthread_mutex_init(&t->stop_lock, NULL);
	*out = t;
	return 0;

free_target:
	free(t);
close_pidfd:
	close(pidfd);
	return code;
}

int target_open(pid_t pid, struct target **out, struct dinst_error *e)
{
	return target_open_known(pid, TARGET_ANY, out, e);
}

void target_close(struct target *t)
{
	if (!t)
		return;
	pthread_mutex_destroy(&t->stop_lock);
	target_unclaim(t);
	close(t->pidfd);
	free(t->restarts);
	free(t);
}

int64_t target_clock_offset(const struct target *t)
{
	return t ? t->clock_offset : 0;
}

unsigned target_left_program(const struct target *t)
{
	return t->left_program;
}

void target_note_left(struct target *t)
{
	t->left_calls++;
}

unsigned target_left_calls(const struct target *t)
{
	return t->left_calls;
}

bool target_has_sealed(const struct target *t)
{
	return t->has_sealed;
}

void target_note_sealed(struct target *t)
{
	t->has_sealed = true;
}

pid_t target_pid(const struct target *t)
{
	return t->pid;
}

uint64_t target_start(const struct target *t)
{
	return t->start_time;
}

void target_set_parks(struct target *t)
{
	t->parks = true;
}

/* 2 GiB in all, some 0.8 s: where several processes stand still together all wait for the search of each. */
static const size_t PARKS_ALL_MOST = (size_t)2048 << 8;

void target_spend_parks(struct target *t, size_t pages)
{
	t->parks_spent = pages;
}

size_t target_parks_room(const struct target *t, size_t most)
{
	const size_t left = t->parks_spent < PARKS_ALL_MOST ? PARKS_ALL_MOST - t->parks_spent : 0;

	return left < most ? left : most;
}

bool target_parks(const struct target *t)
{
	return t->parks;
}

int target_pidfd(const struct target *t)
{
	return t->pidfd;
}

const char *target_name(const struct target *t)
{
	return t->name;
}

bool target_alive(const struct target *t)
{
	struct pollfd end = {.fd = t->pidfd, .events = POLLIN};
	int ready;

	do {
		ready = poll(&end, 1, 0);
	} while (ready < 0 && errno == EINTR);
	/* Whatever else keeps us from asking is no end. */
	return ready <= 0;
}

pid_t target_own_pid(const struct target *t)
{
	return target_alive(t) ? t->pid : 0;
}

bool target_has_to_end(const struct target *t)
{
	struct proc_stat stat;
	pid_t tid;

	return !target_alive(t) ||
	       (!proc_memory_look(t->pid, &stat, &tid) && (!tid || proc_has_to_end(&stat)));
}

bool target_is_denied(const struct target *t)
{
	pid_t tid = proc_memory_tid(t->pid, NULL);

	return tid && target_test_access(tid) == -EPERM && target_alive(t);
}

/* As target_memory_tid(), but it may have exited since: to be tried, then target_find_memory_tid(). */
static pid_t last_memory_tid(const struct target *t)
{
	return __atomic_load_n(&t->memory_tid, __ATOMIC_RELAXED);
}

bool target_find_memory_tid(struct target *t)
{
	pid_t tid = proc_memory_tid(t->pid, NULL);

	if (tid)
		__atomic_store_n(&t->memory_tid, tid, __ATOMIC_RELAXED);
	return tid != 0;
}

pid_t target_memory_tid(const struct target *t)
{
	if (!t->memory_tid_stays)
		target_find_memory_tid((struct target *)t);
	return last_memory_tid(t);
}

/* FNV-1a (Fowler, Noll, Vo), 64 bits: only to tell two programs apart. */
static uint64_t mix(uint64_t hash, const void *data, size_t size)
{
	const unsigned char *bytes = data;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ bytes[i]) * 0x100000001b3ull;
	return hash;
}

/* All that the kernel told the program when it began; returns its size in words, 0: nothing. */
static size_t read_auxv(pid_t tid, uint64_t *vector, size_t words, bool *denied)
{
	char path[64];
	ssize_t got;

	snprintf(path, sizeof(path), "/proc/%d/auxv", (int)tid);
	got = proc_read(path, (char *)vector, words * sizeof(*vector));
	*denied = got == -EACCES;
	return got > 0 ? (size_t)got / sizeof(*vector) : 0;
}

static taddr_t random_address(const uint64_t *vector, size_t words)
{
	for (size_t i = 0; i + 1 < words && vector[i] != AUX_NULL; i += 2)
		if (vector[i] == AUX_RANDOM)
			return vector[i + 1];
	/*
	 * One of 32 bits has pairs of 32: what it begins with has a value in its upper half, as no
	 * kind of 64 bits has.
	 */
	for (size_t i = 0; words && vector[0] > UINT32_MAX && i < words && vector[i]; i++)
		if ((uint32_t)vector[i] == AUX_RANDOM)
			return vector[i] >> 32;
	return 0;
}

/* The lowest bit of an incarnation tells what it was made of. */
static const uint64_t BY_LAYOUT = 1;

/*
 * For those who may look into memory but not open the files of others
 * (CAP_SYS_PTRACE alone): where the kernel has put the program's code, data and
 * stack (fields 26, 27, 28 and 47 of proc_pid_stat(5)) is new after an exec, too.
 */
static uint64_t layout_hash(const struct target *t, uint64_t hash)
{
	const uint64_t wanted = 1ull << 26 | 1ull << 27 | 1ull << 28 | 1ull << 47;
	char path[64], text[1024], *at;
	uint64_t value;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)target_memory_tid(t));
	if (proc_read(path, text, sizeof(text)) <= 0 || !(at = strrchr(text, ')')))
		return 0;
	hash = mix(hash, &t->start_time, sizeof(t->start_time));
	for (unsigned number = 3; number <= 47; number++) {
		at = strchr(at + 1, ' ');
		if (!at)
			return 0;
		if (!(wanted >> number & 1))
			continue;
		value = strtoull(at, NULL, 10);
		/* As it is shown to somebody who may not know. */
		if (number == 28 && !value)
			return 0;
		hash = mix(hash, &value, sizeof(value));
	}
	return hash | BY_LAYOUT;
}

/*
 * The bytes that AT_RANDOM leads to are the program's to change, and Go's runtime does when it begins
 * (runtime/rand.go, since 1.22): where addresses are random these are enough.
 */
uint64_t target_incarnation(const struct target *t)
{
	uint64_t hash = 0xcbf29ce484222325ull, vector[AUX_WORDS];
	uint8_t random[RANDOM_BYTES] = {0};
	taddr_t address;
	size_t words;
	bool denied;

	/* An exec between the two reads shows as a failure: looked at again. */
	for (int i = 0; i < 3 && target_alive(t); i++) {
		words = read_auxv(last_memory_tid(t), vector, AUX_WORDS, &denied);
		if (denied)
			return layout_hash(t, hash);
		if (!words && target_find_memory_tid((struct target *)t))
			words = read_auxv(last_memory_tid(t), vector, AUX_WORDS, &denied);
		if (denied)
			return layout_hash(t, hash);
		address = random_address(vector, words);
		if (!address || target_read(t, address, random, sizeof(random), NULL))
			continue;
		hash = mix(hash, &t->start_time, sizeof(t->start_time));
		hash = mix(hash, vector, words * sizeof(*vector));
		if (t->placed_alike)
			hash = mix(hash, random, sizeof(random));
		hash &= ~BY_LAYOUT;
		return hash ? hash : 2;
	}
	return 0;
}

int target_may_be_read(const struct target *t, struct dinst_error *e)
{
	return target_test_access(target_memory_tid(t)) == -EPERM ? target_explain_denial(t->pid, e)
								  : 0;
}

bool target_incarnation_is_sure(const struct target *t)
{
	return !t->placed_alike;
}

bool target_incarnations_compare(uint64_t a, uint64_t b)
{
	return a && b && (a & BY_LAYOUT) == (b & BY_LAYOUT);
}

/* /proc/PID/mem reads pages that may only be executed, too. Not kept open: it would be that of the program before an exec. */
static int open_memory(pid_t tid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)tid);
	return proc_open(path, O_RDONLY);
}

/* ESRCH goes to *error where that is nobody's memory any more. */
static size_t read_by_file(int fd, taddr_t address, void *to, size_t size, int *error)
{
	size_t done = 0;
	ssize_t got;

	while (done < size) {
		got = pread(fd, (char *)to + done, size - done, (off_t)(address + done));
		if (got < 0 && errno == EINTR)
			continue;
		if (!got && !done)
			*error = ESRCH;
		if (got <= 0)
			break;
		done += (size_t)got;
	}
	return done;
}

static size_t read_by_call(pid_t tid, taddr_t address, void *to, size_t size, int *error)
{
	const struct iovec local = {to, size};
	const struct iovec remote = {(void *)(uintptr_t)address, size};
	const ssize_t got = process_vm_readv(tid, &local, 1, &remote, 1, 0);

	*error = got < 0 ? errno : 0;
	return got > 0 ? (size_t)got : 0;
}

static size_t read_from(const struct target *t, taddr_t address, void *to, size_t size, int *error)
{
	const pid_t tid = last_memory_tid(t);
	size_t done = 0;
	int fd;

	*error = 0;
	if (target_at_hand(t, address, size))
		done = read_by_call(tid, address, to, size, error);
	if (done == size || *error == ESRCH)
		return done;
	fd = open_memory(tid);
	if (fd >= 0) {
		done += read_by_file(fd, address + done, (char *)to + done, size - done, error);
		close(fd);
	} else if (!done && !t->hold.held) {
		/* Nobody stands still: there is nobody to wait for. */
		done = read_by_call(tid, address, to, size, error);
	}
	return done;
}

/* A thread that was found behind a main thread that has ended may have ended itself, and its number be anybody's. */
static bool has_own_tid(const struct target *t)
{
	const pid_t tid = last_memory_tid(t);
	struct proc_stat stat;

	return tid == t->pid || t->memory_tid_stays || !proc_thread_stat_read(t->pid, tid, &stat);
}

size_t target_read_some(const struct target *t, taddr_t address, void *to, size_t size)
{
	size_t done;
	int error;

	if (!size || address > (taddr_t)LLONG_MAX - size)
		return 0;
	done = read_from(t, address, to, size, &error);
	if (((!done && error == ESRCH) || !has_own_tid(t)) && target_alive(t) &&
	    target_find_memory_tid((struct target *)t))
		done = read_from(t, address, to, size, &error);
	/* Alive now, so the pid was still its own while we read; and so is the thread's, where it is not the main one's. */
	return done && target_alive(t) && has_own_tid(t) ? done : 0;
}

int target_read(const struct target *t, taddr_t address, void *to, size_t size,
		struct dinst_error *e)
{
	size_t done = 0, got;

	while (done < size) {
		got = target_read_some(t, address + done, (char *)to + done, size - done);
		if (!got)
			break;
		done += got;
	}
	if (done == size)
		return 0;
	/* One that ends has no memory any more before its end can be seen. */
	if (target_has_to_end(t))
		return dinst_fail(e, DINST_GONE, "process %d (%s) has ended", (int)t->pid, t->name);
	return dinst_fail(
		e, DINST_FAILED,
		"cannot read %zu bytes at 0x%llx of process %d (%s): nothing readable at 0x%llx",
		size, (unsigned long long)address, (int)t->pid, t->name,
		(unsigned long long)(address + done));
}

static bool read_batch_by_file(const struct target *t, const struct target_range *ranges,
			       size_t count)
{
	const int fd = open_memory(last_memory_tid(t));
	size_t at = 0;
	int error = 0;

	while (fd >= 0 && at < count &&
	       read_by_file(fd, ranges[at].address, ranges[at].to, ranges[at].size, &error) ==
		       ranges[at].size)
		at++;
	if (fd >= 0)
		close(fd);
	return at == count;
}

/* One system call for up to READ_BATCH ranges, where that may be; true if all of them came. */
static bool read_batch(const struct target *t, const struct target_range *ranges, size_t count)
{
	struct iovec local[READ_BATCH], remote[READ_BATCH];
	size_t total = 0;

	for (size_t i = 0; i < count; i++) {
		if (!target_at_hand(t, ranges[i].address, ranges[i].size))
			return read_batch_by_file(t, ranges, count);
		local[i] = (struct iovec){ranges[i].to, ranges[i].size};
		remote[i] = (struct iovec){(void *)(uintptr_t)ranges[i].address, ranges[i].size};
		total += ranges[i].size;
	}
	return total <= SSIZE_MAX && process_vm_readv(last_memory_tid(t), local, count, remote,
						      count, 0) == (ssize_t)total;
}

int target_read_many(const struct target *t, const struct target_range *ranges, size_t count,
		     struct dinst_error *e)
{
	size_t batch;
	int code;

	for (size_t at = 0; at < count; at += batch) {
		batch = count - at < READ_BATCH ? count - at : READ_BATCH;
		if (read_batch(t, ranges + at, batch) && has_own_tid(t))
			continue;
		for (size_t i = at; i < at + batch; i++) {
			code = target_read(t, ranges[i].address, ranges[i].to, ranges[i].size, e);
			if (code)
				return code;
		}
	}
	if (!target_alive(t))
		return dinst_fail(e, DINST_GONE, "process %d (%s) has ended", (int)t->pid, t->name);
	return 0;
}

int target_memory_room(const struct target *t, struct memory_room *room, struct dinst_error *e)
{
	pid_t tid;
	int code;

	/* A thread that has ended meanwhile is in no group: then the one that is asked now is another. */
	for (int look = 0; look < ROOM_LOOKS; look++) {
		tid = target_memory_tid(t);
		code = cgroup_memory_room(tid, &room->bytes, room->limit, sizeof(room->limit), e);
		if (code || room->bytes != UINT64_MAX || target_memory_tid(t) == tid)
			return code;
	}
	return dinst_fail(
		e, DINST_BUSY,
		"cannot look at how much memory process %d (%s) may take: its threads end too fast; try again later",
		(int)t->pid, t->name);
}

int target_check_room(const struct target *t, const struct memory_room *room, uint64_t bytes,
		      const char *purpose, const char *instead, struct dinst_error *e)
{
	/* Tables, what the kernel charges at once, and what the target takes meanwhile. */
	const uint64_t slack = 256 << 10;

	if (!bytes || bytes + slack <= room->bytes)
		return DINST_OK;
	return dinst_fail(
		e, DINST_REFUSED,
		"process %d (%s) would need %llu KiB %s, and its control group has only "
		"%llu KiB left, so that the kernel might kill it or hold it up: raise %s%s",
		(int)t->pid, t->name, (unsigned long long)((bytes + slack) >> 10), purpose,
		(unsigned long long)(room->bytes >> 10), room->limit, instead);
}
