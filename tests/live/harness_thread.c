/* SPDX-License-Identifier: MIT */
/*
 * harness_thread.c - see harness_thread.h.
 */
#include "tests/live/harness_thread.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WAIT_TRIES = 600000, WAIT_US = 200 };

void thread_seize(pid_t tid)
{
	int status;

	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) || ptrace(PTRACE_INTERRUPT, tid, NULL, NULL))
		fail_msg("cannot seize thread %d: %s", (int)tid, strerror(errno));
	if (waitpid(tid, &status, __WALL) != tid || !WIFSTOPPED(status))
		fail_msg("thread %d does not stop (status %x)", (int)tid, (unsigned)status);
	if (status >> 16 != PTRACE_EVENT_STOP)
		fail_msg("thread %d stopped for another reason (status %x)", (int)tid,
			 (unsigned)status);
}

void thread_get(pid_t tid, struct user_regs_struct *regs)
{
	if (ptrace(PTRACE_GETREGS, tid, NULL, regs))
		fail_msg("registers of %d: %s", (int)tid, strerror(errno));
}

void thread_set(pid_t tid, const struct user_regs_struct *regs)
{
	if (ptrace(PTRACE_SETREGS, tid, NULL, regs))
		fail_msg("registers of %d: %s", (int)tid, strerror(errno));
}

void thread_let_go(pid_t tid)
{
	if (ptrace(PTRACE_DETACH, tid, NULL, NULL))
		fail_msg("letting go of %d: %s", (int)tid, strerror(errno));
}

void thread_continue(pid_t tid)
{
	if (ptrace(PTRACE_CONT, tid, NULL, NULL))
		fail_msg("continuing %d: %s", (int)tid, strerror(errno));
}

void thread_seize_at(pid_t tid, uint64_t lo, uint64_t hi, struct user_regs_struct *regs)
{
	for (int i = 0; i < WAIT_TRIES; i++) {
		thread_seize(tid);
		thread_get(tid, regs);
		if (regs->rip >= lo && regs->rip < hi && (long)regs->orig_rax < 0)
			return;
		thread_let_go(tid);
		usleep(WAIT_US);
	}
	fail_msg("thread %d never comes to %llx", (int)tid, (unsigned long long)lo);
}

static int open_memory(pid_t pid)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		fail_msg("%s: %s", path, strerror(errno));
	return fd;
}

void thread_poke(pid_t pid, uint64_t address, const void *bytes, size_t size)
{
	int fd = open_memory(pid);

	if (pwrite(fd, bytes, size, (off_t)address) != (ssize_t)size)
		fail_msg("writing %zu bytes at %llx: %s", size, (unsigned long long)address,
			 strerror(errno));
	close(fd);
}

void thread_peek(pid_t pid, uint64_t address, void *bytes, size_t size)
{
	int fd = open_memory(pid);

	if (pread(fd, bytes, size, (off_t)address) != (ssize_t)size)
		fail_msg("reading %zu bytes at %llx: %s", size, (unsigned long long)address,
			 strerror(errno));
	close(fd);
}

void thread_freeze(pid_t pid, pid_t tid)
{
	thread_freeze_all(pid, &tid, 1);
}

static bool is_stopped(pid_t pid, pid_t tid)
{
	return harness_status(pid, tid, "State:")[0] == 'T';
}

void thread_freeze_all(pid_t pid, const pid_t *tids, size_t count)
{
	/* Sent while they are held: they take it before they execute anything. */
	for (size_t i = 0; i < count; i++)
		if (syscall(SYS_tgkill, pid, tids[i], SIGSTOP))
			fail_msg("SIGSTOP to %d: %s", (int)tids[i], strerror(errno));
	for (size_t i = 0; i < count; i++)
		thread_let_go(tids[i]);
	for (int i = 0; i < WAIT_TRIES; i++) {
		size_t stopped = 0;

		for (size_t k = 0; k < count; k++)
			stopped += is_stopped(pid, tids[k]);
		if (stopped == count && is_stopped(pid, pid))
			return;
		usleep(WAIT_US);
	}
	fail_msg("process %d does not take SIGSTOP", (int)pid);
}

void thread_thaw(pid_t pid)
{
	kill(pid, SIGCONT);
	for (int i = 0; i < WAIT_TRIES; i++) {
		if (!is_stopped(pid, pid))
			return;
		usleep(WAIT_US);
	}
	fail_msg("process %d does not go on", (int)pid);
}

/* /proc/PID/task/TID/syscall: "running", "-1 SP PC" or "NR six arguments SP PC". */
static bool read_syscall(pid_t pid, pid_t tid, long *number, uint64_t *pc)
{
	char path[64], text[256] = "", *word, *rest = text, *last = NULL;
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", (int)pid, (int)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	got = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (got <= 0 || text[0] == 'r')
		return false;
	text[got] = '\0';
	*number = strtol(text, NULL, 0);
	while ((word = strtok_r(rest, " \n", &rest)))
		last = word;
	*pc = last ? strtoull(last, NULL, 16) : 0;
	return last != NULL;
}

uint64_t thread_pc(pid_t pid, pid_t tid)
{
	uint64_t pc = 0;
	long number;

	return read_syscall(pid, tid, &number, &pc) ? pc : 0;
}

long thread_syscall(pid_t pid, pid_t tid)
{
	long number = -1;
	uint64_t pc;

	return read_syscall(pid, tid, &number, &pc) ? number : -1;
}

void thread_wait_syscall(pid_t pid, pid_t tid, long number)
{
	for (int i = 0; i < WAIT_TRIES; i++) {
		if (thread_syscall(pid, tid) == number)
			return;
		usleep(WAIT_US);
	}
	fail_msg("thread %d is not in system call %ld (state %s)", (int)tid, number,
		 harness_status(pid, tid, "State:"));
}

void thread_wait_input(pid_t pid)
{
	char path[64], text[64];

	snprintf(path, sizeof(path), "/proc/%d/syscall", (int)pid);
	for (int i = 0; i < WAIT_TRIES; i++) {
		const int fd = open(path, O_RDONLY | O_CLOEXEC);
		const ssize_t got = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;

		if (fd >= 0)
			close(fd);
		text[got > 0 ? got : 0] = '\0';
		if (!strncmp(text, "0 0x0 ", 6))
			return;
		usleep(WAIT_US);
	}
	fail_msg("process %d does not wait for its input: %s", (int)pid, text);
}

size_t harness_numbers(const char *line, pid_t *numbers, size_t max)
{
	size_t count = 0;
	char *end;

	while (count < max) {
		long value = strtol(line, &end, 10);

		if (end == line)
			break;
		numbers[count++] = (pid_t)value;
		line = end;
	}
	return count;
}

uint64_t harness_symbol(const char *program, const char *name)
{
	char command[1024], text[64] = "";
	FILE *nm;

	snprintf(command, sizeof(command), "nm '%s' | awk '$3 == \"%s\" { print $1 }'",
		 harness_path(program), name);
	nm = popen(command, "r");
	assert_non_null(nm);
	if (!fgets(text, sizeof(text), nm))
		fail_msg("no symbol %s", name);
	pclose(nm);
	return strtoull(text, NULL, 16);
}
