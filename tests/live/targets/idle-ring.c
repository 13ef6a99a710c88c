/* SPDX-License-Identifier: MIT */
/* build: -O2 */
/*
 * idle-ring.c - a program that sleeps, and has a ring of io_uring's that a thread of the kernel's polls (SQPOLL).
 *
 * Prints "ready" (status 77: no io_uring here) and ends when standard input does.
 */
#include <linux/io_uring.h>
#include <poll.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { IDLE_MS = 1, ENTRIES = 4, LONG_MS = 1000000 };

int main(void)
{
	struct io_uring_params params = {.flags = IORING_SETUP_SQPOLL, .sq_thread_idle = IDLE_MS};
	struct pollfd input = {STDIN_FILENO, POLLIN, 0};

	if (syscall(SYS_io_uring_setup, ENTRIES, &params) < 0)
		return 77;
	puts("ready");
	fflush(stdout);
	/* With a timeout: what the kernel goes on with by restart_syscall. */
	while (poll(&input, 1, LONG_MS) < 1)
		;
	return 0;
}
