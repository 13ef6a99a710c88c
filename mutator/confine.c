/* SPDX-License-Identifier: MIT */
/*
 * confine.c - the filter: see confine.h.
 */
#include "mutator/confine.h"

#include "arch/arch.h"
#include "inject/target.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Whatever their arguments are. Sanitizers want the last row. */
static const int harmless[] = {
	SYS_read,	SYS_write,	  SYS_pread64,	       SYS_lseek,	   SYS_close,
	SYS_fstat,	SYS_newfstatat,	  SYS_munmap,	       SYS_mremap,	   SYS_brk,
	SYS_madvise,	SYS_futex,	  SYS_clock_gettime,   SYS_getrandom,	   SYS_exit,
	SYS_exit_group, SYS_rt_sigreturn, SYS_restart_syscall, SYS_rt_sigprocmask, SYS_sched_yield,
	SYS_getpid,	SYS_gettid,	  SYS_sigaltstack,
};

/* Asked for in passing by libraries that do without. */
static const int refused[] = {
	SYS_fcntl,    SYS_ioctl,  SYS_prctl, SYS_readlinkat, SYS_faccessat,
#ifdef SYS_readlink
	SYS_readlink, SYS_access,
#endif
};

/*
 * Where certain bits of the third argument must be clear. What is to be read is open already: what a program's
 * file names may be a device, and opening one may do something.
 */
static const struct {
	int number;
	unsigned bits, otherwise;
} restricted[] = {
	{SYS_mmap, PROT_EXEC, SECCOMP_RET_ALLOW},
	{SYS_mprotect, PROT_EXEC, SECCOMP_RET_ALLOW},
	{SYS_openat, O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND, SECCOMP_RET_ERRNO | EPERM},
};

enum {
	HARMLESS = sizeof(harmless) / sizeof(harmless[0]),
	REFUSED = sizeof(refused) / sizeof(refused[0]),
	RESTRICTED = sizeof(restricted) / sizeof(restricted[0]),
	PROGRAM_MAX = 6 + 2 * HARMLESS + 2 * REFUSED + 5 * RESTRICTED,
};

struct program {
	struct sock_filter code[PROGRAM_MAX];
	unsigned short count;
};

static void load(struct program *p, size_t offset)
{
	p->code[p->count++] =
		(struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset);
}

/* Goes on where the test holds, else `otherwise` instructions further. */
static void test(struct program *p, unsigned short how, unsigned value, unsigned char otherwise)
{
	p->code[p->count++] =
		(struct sock_filter)BPF_JUMP(BPF_JMP | how | BPF_K, value, 0, otherwise);
}

static void give(struct program *p, unsigned verdict)
{
	p->code[p->count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, verdict);
}

/* Numbers of other ABIs (x32: bit 30) are none of ours and so end the process as well. */
static void make_program(struct program *p)
{
	p->count = 0;
	load(p, offsetof(struct seccomp_data, arch));
	/* jumps over the verdict where it is the native one */
	p->code[p->count++] = (struct sock_filter)BPF_JUMP(
		BPF_JMP | BPF_JEQ | BPF_K, arch_elf_machine | __AUDIT_ARCH_64BIT | __AUDIT_ARCH_LE,
		1, 0);
	give(p, SECCOMP_RET_KILL_PROCESS);
	load(p, offsetof(struct seccomp_data, nr));
	for (unsigned i = 0; i < HARMLESS; i++) {
		test(p, BPF_JEQ, (unsigned)harmless[i], 1);
		give(p, SECCOMP_RET_ALLOW);
	}
	for (unsigned i = 0; i < REFUSED; i++) {
		test(p, BPF_JEQ, (unsigned)refused[i], 1);
		give(p, SECCOMP_RET_ERRNO | EPERM);
	}
	for (unsigned i = 0; i < RESTRICTED; i++) {
		test(p, BPF_JEQ, (unsigned)restricted[i].number, 4);
		/* the low half: these are all ints */
		load(p, offsetof(struct seccomp_data, args[2]));
		test(p, BPF_JSET, restricted[i].bits, 1);
		give(p, SECCOMP_RET_KILL_PROCESS);
		give(p, restricted[i].otherwise);
	}
	give(p, SECCOMP_RET_KILL_PROCESS);
}

int confine_self(void)
{
	const struct rlimit none = {0, 0};
	struct program p;
	struct sock_fprog filter = {.filter = p.code};

	make_program(&p);
	filter.len = p.count;
	/* no file grows, and a death leaves no picture of our memory */
	setrlimit(RLIMIT_FSIZE, &none);
	setrlimit(RLIMIT_CORE, &none);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) != 0)
		return errno ? errno : EINVAL;
	return 0;
}

/* -------------------------------------------------------------------- children */

/* Bytes that there are of what RLIMIT_DATA bounds; 0 where that is not told. */
static rlim_t data_bytes(void)
{
	enum { COLUMN = 5 }; /* size, resident, shared, text, 0, data: pages */
	char line[256] = "", *at = line;
	FILE *f = fopen("/proc/self/statm", "re");
	unsigned long pages = 0;

	if (f && fgets(line, sizeof(line), f))
		for (int i = 0; i <= COLUMN; i++)
			pages = strtoul(at, &at, 10);
	if (f)
		fclose(f);
	return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

/* From here on, so what sanitizers have mapped does not count. Without /proc there is no limit. */
static void limit_memory(void)
{
	const rlim_t now = data_bytes(), most = now + CONFINED_BYTES;
	struct rlimit limit;

	if (!now || getrlimit(RLIMIT_DATA, &limit) != 0 || limit.rlim_cur <= most)
		return;
	limit.rlim_cur = limit.rlim_max = most;
	setrlimit(RLIMIT_DATA, &limit);
}

int confine_child(int fd, pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "dinst-reader");
	if (getppid() != parent || dup2(fd, CONFINED_FD) != CONFINED_FD)
		_exit(1);
	for (int i = 0; i < CONFINED_FD; i++)
		close(i);
	if (close_range(CONFINED_FD + 1, ~0U, 0) != 0)
		for (int i = CONFINED_FD + 1; i < 65536; i++)
			close(i);
	limit_memory();
	return confine_self();
}

int confine_write(int fd, const void *bytes, size_t size)
{
	const uint8_t *p = bytes;

	while (size) {
		ssize_t n = write(fd, p, size);

		if (n <= 0)
			return 0;
		p += n;
		size -= (size_t)n;
	}
	return 1;
}

/*
 * False at the deadline; signals do not put it off. Who comes after it, since he was stopped or had no
 * processor, finds what was there in time: `*late` is how often he may, for a child may go on.
 */
static int is_ready(int fd, short events, uint64_t deadline, int *late)
{
	struct pollfd p = {fd, events, 0};

	while (deadline) {
		const uint64_t now = clock_ns();
		const uint64_t ms = now < deadline ? (deadline - now) / 1000000 + 1 : 0;
		int n;

		if (!ms && !*late)
			return 0;
		n = poll(&p, 1, ms < INT_MAX ? (int)ms : INT_MAX);
		if (n > 0) {
			*late -= !ms;
			return 1;
		}
		if (n < 0 ? errno != EINTR : !ms)
			return 0;
	}
	return 1;
}

int confine_send(int fd, const void *bytes, size_t size, uint64_t deadline)
{
	const uint8_t *p = bytes;
	int late = 0; /* nobody would wait for what is answered */

	while (size) {
		ssize_t n;

		if (!is_ready(fd, POLLOUT, deadline, &late))
			return 0;
		n = send(fd, p, size, MSG_NOSIGNAL | (deadline ? MSG_DONTWAIT : 0));
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n <= 0)
			return 0;
		p += n;
		size -= (size_t)n;
	}
	return 1;
}

int confine_take(int fd, void *bytes, size_t size, uint64_t deadline)
{
	uint8_t *to = bytes;
	int late = 1;

	while (size) {
		ssize_t n;

		if (!is_ready(fd, POLLIN, deadline, &late))
			return 0;
		n = read(fd, to, size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return 0;
		to += n;
		size -= (size_t)n;
	}
	return 1;
}

/* Until the other side can write no more; false if it writes too much, or still can at the deadline. */
static int collect(int fd, uint8_t **bytes, size_t most, size_t *size, uint64_t deadline)
{
	size_t room = 0;
	ssize_t n = 1;
	int late = 2; /* all that is in the pipe, and that it is all */

	while (n) {
		if (*size == room) {
			uint8_t *more;

			if (room == most + 1)
				return 0;
			room = room ? room * 2 : 1 << 20;
			room = room > most ? most + 1 : room;
			more = realloc(*bytes, room);
			if (!more)
				return 0;
			*bytes = more;
		}
		if (!is_ready(fd, POLLIN, deadline, &late))
			return 0;
		n = read(fd, *bytes + *size, room - *size);
		if (n < 0 && errno != EINTR)
			return 0;
		*size += n > 0 ? (size_t)n : 0;
		n = n < 0 ? 1 : n;
	}
	return *size > 0 && *size <= most;
}

/* How confining itself went is in front of what it has to say: it cannot tell anybody else. */
static int take_answer(const struct confined_work *w, int fd, uint64_t deadline, uint8_t **bytes,
		       size_t *size)
{
	static int told;
	int error;

	if (!confine_take(fd, &error, sizeof(error), deadline))
		return 0;
	if (error && !told)
		fprintf(stderr, "dinst-mutator: %s without a filter of system calls (%s)\n",
			w->what, strerror(error));
	told |= error != 0;
	return collect(fd, bytes, w->most, size, deadline);
}

uint8_t *confine_run(const struct confined_work *w, size_t *size, int *forked)
{
	pid_t parent = getpid(), child;
	uint8_t *bytes = NULL;
	int ends[2], good = 0, status;

	*size = 0;
	*forked = CONFINED_NOT_FORKED;
	if (pipe2(ends, O_CLOEXEC) != 0)
		return NULL;
	fflush(NULL);
	child = fork();
	if (child == 0) {
		const int error = confine_child(ends[1], parent);

		if (!confine_write(CONFINED_FD, &error, sizeof(error)))
			_exit(1);
		w->work(w->arg, CONFINED_FD);
		_exit(0);
	}
	close(ends[1]);
	if (child > 0) {
		const uint64_t deadline = clock_ns() + w->patience_ns;

		good = take_answer(w, ends[0], deadline, &bytes, size);
		if (!good)
			kill(child, SIGKILL);
		/* That nobody can write any more does not say that it ends. */
		status = child_wait_until(child, deadline);
		good = status == 0 && good;
		*forked = status < 0 && *size <= w->most ? CONFINED_CUT : CONFINED_ENDED;
	}
	close(ends[0]);
	if (!good) {
		free(bytes);
		bytes = NULL;
	}
	return bytes;
}
