/* SPDX-License-Identifier: MIT */
/*
 * epoll-loop.c MS: a thread calls epoll_wait again and again by an instruction of its own, with a
 * timeout that it has loaded into its register once. "tell" is answered with what is in that register
 * now, with how many calls have returned, with the thread's id and with how many signals the main thread
 * has handled. "hold": another thread waits in vfork() from then on, which nothing can stop, up to "on".
 * "crowd": 64 more threads wait. "spin on": it makes no more calls but computes, up to "spin". "anew MS": it goes on with that
 * timeout, as a loop that is left and entered again. Ends with its input; status 1 if a call
 * returned anything but 0.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static long timeout, now, anew;
static unsigned long calls;
static int wrong, held[2], begun[2], gate[2];
static volatile pid_t looping;
static volatile int spinning;
static volatile sig_atomic_t handled;

static void *loop(void *arg)
{
	const long fd = epoll_create1(0);
	struct epoll_event event;
	register long r10 __asm__("r10");

	looping = gettid();
	r10 = timeout;
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
		if (__atomic_load_n(&anew, __ATOMIC_RELAXED))
			r10 = __atomic_exchange_n(&anew, 0, __ATOMIC_RELAXED);
		while (spinning)
			continue;
	}
	return arg;
}

/* A thread waits in an uninterruptible sleep for each child of its vfork(). */
static void *hold(void *arg)
{
	char byte;
	pid_t child;

	while (read(held[0], &byte, 1) == 1) {
		child = vfork();
		if (!child) {
			if (write(begun[1], "", 1) == 1 && read(gate[0], &byte, 1) == 1)
				_exit(0);
			_exit(1);
		}
		if (child < 0 || waitpid(child, NULL, 0) != child || write(begun[1], "", 1) != 1)
			wrong = 2;
	}
	return arg;
}

static void *wait_for_ever(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static void make_crowd(void)
{
	enum { CROWD = 64 };
	pthread_t thread;

	for (int i = 0; i < CROWD; i++)
		if (pthread_create(&thread, NULL, wait_for_ever, NULL))
			wrong = 4;
}

/* Once the thread is there, or has left it again. */
static void answer(const char *line)
{
	const int *to = !strcmp(line, "hold\n") ? held : !strcmp(line, "on\n") ? gate : NULL;
	char byte;

	if (!strncmp(line, "spin", 4))
		spinning = line[4] == ' ';
	if (!strncmp(line, "anew ", 5))
		__atomic_store_n(&anew, atol(line + 5), __ATOMIC_RELAXED);
	if (!strcmp(line, "crowd\n"))
		make_crowd();
	if (to && (write(to[1], "", 1) != 1 || read(begun[0], &byte, 1) != 1))
		wrong = 3;
}

static void on_signal(int signal)
{
	(void)signal;
	handled++;
}

int main(int argc, char **argv)
{
	const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	pthread_t thread, holder;
	char line[64];

	now = timeout = argc > 1 ? atol(argv[1]) : 1000;
	if (pipe(held) || pipe(begun) || pipe(gate) || pthread_create(&thread, NULL, loop, NULL) ||
	    pthread_create(&holder, NULL, hold, NULL) || sigaction(SIGUSR1, &action, NULL))
		return 2;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		answer(line);
		printf("%ld %lu %d %d\n", __atomic_load_n(&now, __ATOMIC_RELAXED),
		       __atomic_load_n(&calls, __ATOMIC_RELAXED), (int)looping, (int)handled);
		fflush(stdout);
	}
	return wrong;
}
