/* SPDX-License-Identifier: MIT */
/*
 * mishaps.h - calls of the libraries that fail when a test says so.
 *
 * Each of the calls here is one that the linker leads to __wrap_CALL (Makefile). From mishap_begin()
 * to mishap_end() those of each kind are counted, and from the one that mishap_set() chose on `count`
 * of them fail. What a call fails with is what it can fail with on a machine or
 * under a limit that has not enough of something.
 */
#ifndef DINST_TESTS_MISHAPS_H
#define DINST_TESTS_MISHAPS_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/live/harness.h"

enum { CALLS_MOST = 5000 };

enum mishap_kind {
	MISHAP_OPEN,	     /* files and directories, by whatever call */
	MISHAP_READ,	     /* of an open file */
	MISHAP_STORE,	     /* in files: write, rename, room in memory files */
	MISHAP_MEMORY,	     /* malloc and its like */
	MISHAP_MAP,	     /* mmap */
	MISHAP_TASK,	     /* new threads, processes, timers, pipes */
	MISHAP_READ_MEMORY,  /* of the target */
	MISHAP_WRITE_MEMORY, /* of the target */
	MISHAP_WAIT,	     /* poll, waitid, flock: interrupted */
	MISHAP_CALL,	     /* without a function in libc: descriptors of processes, kcmp, ... */
	MISHAP_LIST, /* the next name of a directory, the next line of a file, where a link leads */
	MISHAP_TRACE, /* requests of ptrace(2) that may be refused */
	MISHAP_END,   /* no request of ptrace(2) fails: a process beside the target is killed */
	MISHAP_KINDS,
};

struct mishap {
	enum mishap_kind kind;
	unsigned long at, count;
	int error;
};

static struct mishap mishap;
static bool mishap_on;
static bool mishap_no_compare;	     /* kcmp(2) is refused, as it is in many containers */
static bool mishap_no_call;	     /* process_vm_readv(2) is refused: files of /proc are read */
static unsigned long *mishap_counts; /* shared, by kind */
static pid_t mishap_victim;	     /* MISHAP_END: who is killed; 0: nobody */

static inline const char *mishap_name(enum mishap_kind kind)
{
	static const char *const names[] = {"open", "read",	   "store",	   "memory", "map",
					    "task", "read memory", "write memory", "wait",   "call",
					    "list", "trace",	   "end"};

	return names[kind];
}

/* One of those that such a call may fail with. */
static inline int mishap_error(enum mishap_kind kind, unsigned long n)
{
	static const int errors[MISHAP_KINDS][2] = {
		[MISHAP_OPEN] = {EMFILE, ENFILE},	 [MISHAP_READ] = {ENOMEM, EIO},
		[MISHAP_STORE] = {ENOSPC, EIO},		 [MISHAP_MEMORY] = {ENOMEM, ENOMEM},
		[MISHAP_MAP] = {ENOMEM, ENOMEM},	 [MISHAP_TASK] = {EAGAIN, EAGAIN},
		[MISHAP_READ_MEMORY] = {ENOMEM, EFAULT}, [MISHAP_WRITE_MEMORY] = {EIO, ENOMEM},
		[MISHAP_WAIT] = {EINTR, EINTR},		 [MISHAP_CALL] = {EMFILE, ENFILE},
		[MISHAP_LIST] = {ENOMEM, EIO},		 [MISHAP_TRACE] = {EPERM, EIO},
		[MISHAP_END] = {ESRCH, ESRCH},
	};

	return errors[kind][n % 2];
}

static inline void mishaps_open(void)
{
	mishap_counts = mmap(NULL, MISHAP_KINDS * sizeof(*mishap_counts), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* How many there were in the last life, or up to its mishap. */
static inline unsigned long mishap_calls(enum mishap_kind kind)
{
	return mishap_counts[kind];
}

static inline void mishap_set(const struct mishap *m)
{
	mishap = *m;
	memset(mishap_counts, 0, MISHAP_KINDS * sizeof(*mishap_counts));
}

static inline void mishap_begin(void)
{
	mishap_on = true;
}

static inline void mishap_end(void)
{
	mishap_on = false;
}

static inline bool fails(enum mishap_kind kind)
{
	unsigned long n;

	if (!mishap_on)
		return false;
	n = __atomic_add_fetch(&mishap_counts[kind], 1, __ATOMIC_RELAXED);
	if (kind != mishap.kind || n < mishap.at || n - mishap.at >= mishap.count)
		return false;
	errno = mishap.error;
	return true;
}

#define WRAP(type, name, ...)            \
	type __real_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

WRAP(int, open, const char *path, int flags, mode_t mode)
{
	return fails(MISHAP_OPEN) ? -1 : __real_open(path, flags, mode);
}

WRAP(int, openat, int at, const char *path, int flags, mode_t mode)
{
	return fails(MISHAP_OPEN) ? -1 : __real_openat(at, path, flags, mode);
}

WRAP(int, __openat_2, int at, const char *path, int flags)
{
	return fails(MISHAP_OPEN) ? -1 : __real___openat_2(at, path, flags);
}

WRAP(DIR *, opendir, const char *path)
{
	return fails(MISHAP_OPEN) ? NULL : __real_opendir(path);
}

WRAP(FILE *, fopen, const char *path, const char *mode)
{
	return fails(MISHAP_OPEN) ? NULL : __real_fopen(path, mode);
}

WRAP(struct dirent *, readdir, DIR *dir)
{
	return fails(MISHAP_LIST) ? NULL : __real_readdir(dir);
}

WRAP(ssize_t, readlink, const char *path, char *to, size_t size)
{
	return fails(MISHAP_LIST) ? -1 : __real_readlink(path, to, size);
}

WRAP(ssize_t, readlinkat, int at, const char *path, char *to, size_t size)
{
	return fails(MISHAP_LIST) ? -1 : __real_readlinkat(at, path, to, size);
}

/* What is read of a file from then on fails as it does of a directory: the stream says so itself. */
static inline void cut_stream(FILE *stream)
{
	const int unreadable = __real_open("/", O_RDONLY | O_CLOEXEC, 0);

	if (unreadable < 0 || dup3(unreadable, fileno(stream), O_CLOEXEC) < 0)
		abort();
	close(unreadable);
}

WRAP(ssize_t, getdelim, char **line, size_t *room, int end, FILE *stream)
{
	if (fails(MISHAP_LIST))
		cut_stream(stream);
	return __real_getdelim(line, room, end, stream);
}

WRAP(char *, fgets, char *line, int room, FILE *stream)
{
	if (fails(MISHAP_LIST))
		cut_stream(stream);
	return __real_fgets(line, room, stream);
}

WRAP(ssize_t, read, int fd, void *to, size_t size)
{
	return fails(MISHAP_READ) ? -1 : __real_read(fd, to, size);
}

WRAP(ssize_t, __read_chk, int fd, void *to, size_t size, size_t room)
{
	return fails(MISHAP_READ) ? -1 : __real___read_chk(fd, to, size, room);
}

WRAP(ssize_t, pread, int fd, void *to, size_t size, off_t at)
{
	return fails(MISHAP_READ) ? -1 : __real_pread(fd, to, size, at);
}

WRAP(ssize_t, write, int fd, const void *from, size_t size)
{
	return fails(MISHAP_STORE) ? -1 : __real_write(fd, from, size);
}

WRAP(int, renameat, int from_at, const char *from, int to_at, const char *to)
{
	return fails(MISHAP_STORE) ? -1 : __real_renameat(from_at, from, to_at, to);
}

WRAP(int, ftruncate, int fd, off_t size)
{
	return fails(MISHAP_STORE) ? -1 : __real_ftruncate(fd, size);
}

WRAP(int, fallocate, int fd, int mode, off_t from, off_t size)
{
	return fails(MISHAP_STORE) ? -1 : __real_fallocate(fd, mode, from, size);
}

WRAP(void *, malloc, size_t size)
{
	return fails(MISHAP_MEMORY) ? NULL : __real_malloc(size);
}

WRAP(void *, calloc, size_t count, size_t size)
{
	return fails(MISHAP_MEMORY) ? NULL : __real_calloc(count, size);
}

WRAP(void *, realloc, void *old, size_t size)
{
	return fails(MISHAP_MEMORY) ? NULL : __real_realloc(old, size);
}

WRAP(void *, reallocarray, void *old, size_t count, size_t size)
{
	return fails(MISHAP_MEMORY) ? NULL : __real_reallocarray(old, count, size);
}

WRAP(char *, strdup, const char *text)
{
	return fails(MISHAP_MEMORY) ? NULL : __real_strdup(text);
}

WRAP(void *, mmap, void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
	return fails(MISHAP_MAP) ? MAP_FAILED
				 : __real_mmap(at, size, protection, flags, fd, offset);
}

WRAP(int, pthread_create, pthread_t *thread, const pthread_attr_t *attributes,
     void *(*start)(void *), void *arg)
{
	return fails(MISHAP_TASK) ? EAGAIN : __real_pthread_create(thread, attributes, start, arg);
}

WRAP(pid_t, fork, void)
{
	return fails(MISHAP_TASK) ? -1 : __real_fork();
}

WRAP(int, timer_create, clockid_t clock, struct sigevent *event, timer_t *timer)
{
	return fails(MISHAP_TASK) ? -1 : __real_timer_create(clock, event, timer);
}

WRAP(int, pipe2, int ends[2], int flags)
{
	return fails(MISHAP_TASK) ? -1 : __real_pipe2(ends, flags);
}

/* Of all that it was to read it may read a part. */
WRAP(ssize_t, process_vm_readv, pid_t pid, const struct iovec *to, unsigned long to_count,
     const struct iovec *from, unsigned long from_count, unsigned long flags)
{
	struct iovec half;

	if (mishap_on && mishap_no_call) {
		errno = ENOSYS;
		return -1;
	}
	if (!fails(MISHAP_READ_MEMORY))
		return __real_process_vm_readv(pid, to, to_count, from, from_count, flags);
	if (mishap.at % 2 || from[0].iov_len < 2)
		return -1;
	half = from[0];
	half.iov_len /= 2;
	return __real_process_vm_readv(pid, to, 1, &half, 1, flags);
}

WRAP(ssize_t, pwrite, int fd, const void *from, size_t size, off_t at)
{
	if (!fails(MISHAP_WRITE_MEMORY))
		return __real_pwrite(fd, from, size, at);
	return mishap.at % 3 || size < 2 ? -1 : __real_pwrite(fd, from, size / 2, at);
}

WRAP(int, poll, struct pollfd *fds, nfds_t count, int milliseconds)
{
	return fails(MISHAP_WAIT) ? -1 : __real_poll(fds, count, milliseconds);
}

WRAP(int, waitid, idtype_t type, id_t id, siginfo_t *info, int options)
{
	return !(options & WNOHANG) && fails(MISHAP_WAIT) ? -1
							  : __real_waitid(type, id, info, options);
}

WRAP(int, flock, int fd, int what)
{
	return fails(MISHAP_WAIT) ? -1 : __real_flock(fd, what);
}

/* The registers of a tracee that stands still can always be read and set, unless it is being killed. */
static inline bool may_be_refused(enum __ptrace_request request)
{
	return request == PTRACE_SEIZE || request == PTRACE_POKEDATA || request == PTRACE_PEEKDATA;
}

WRAP(long, ptrace, enum __ptrace_request request, pid_t tid, void *address, void *data)
{
	if (fails(MISHAP_END) && mishap_victim > 0)
		kill(mishap_victim, SIGKILL);
	return may_be_refused(request) && fails(MISHAP_TRACE)
		       ? -1
		       : __real_ptrace(request, tid, address, data);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
/* As syscall(2) itself takes what six arguments would be, of however many there are. */
__attribute__((no_sanitize_address)) long __wrap_syscall(long number, ...)
{
	long a[6];
	va_list args;

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	if (number == SYS_kcmp && mishap_no_compare) {
		errno = EPERM;
		return -1;
	}
	/* The others need nothing that could be short. */
	if ((number == SYS_pidfd_open || number == SYS_pidfd_getfd || number == SYS_openat2) &&
	    fails(MISHAP_CALL))
		return -1;
	return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/*
 * Lets the first call of m->kind fail with m->error, then the second, and so on; alone, or with so many as
 * m->count says. Begins with m->at of 0. False when there are no more of them.
 */
static inline bool next_mishap(struct mishap *m)
{
	mishap_end();
	if (m->at && mishap_calls(m->kind) < m->at) {
		assert_true(m->at > 1); /* there was something to fail */
		return false;
	}
	m->at++;
	assert_true(m->at < CALLS_MOST);
	m->count = m->count ? m->count : 1;
	mishap_set(m);
	mishap_begin();
	return true;
}

#endif
