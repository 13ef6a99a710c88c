/* SPDX-License-Identifier: MIT */
/*
 * epoll-loop.c MS: a thread calls epoll_wait again and again by an instruction of its own, with a
 * timeout that it has loaded into its register once. "tell" is answered with what is in that register
 * now and with how many calls have returned. Ends with its input; status 1 if a call
 * returned anything but 0.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

static long timeout, now;
static unsigned long calls;
static int wrong;

static void *loop(void *arg)
{
	const long fd = epoll_create1(0);
	struct epoll_event event;
	register long r10 __asm__("r10") = timeout;

	for (;;) {
		long result = SYS_epoll_wait;

		__asm__ volatile("syscall"
				 : "+a"(result), "+r"(r10)
				 : "D"(fd), "S"(&event), "d"(1L)
				 : "rcx", "r11", "memory");
		__atomic_store_n(&now, r10, __ATOMIC_RELAXED);
		__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
		if (result)
			wrong = 1;
	}
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	char line[64];

	now = timeout = argc > 1 ? atol(argv[1]) : 1000;
	if (pthread_create(&thread, NULL, loop, NULL))
		return 2;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		printf("%ld %lu\n", __atomic_load_n(&now, __ATOMIC_RELAXED),
		       __atomic_load_n(&calls, __ATOMIC_RELAXED));
		fflush(stdout);
	}
	return wrong;
}
