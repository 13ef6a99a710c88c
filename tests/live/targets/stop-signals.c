/* SPDX-License-Identifier: MIT */
/*
 * stop-signals.c: gets a queued real-time signal about a thousand times a
 * second from a child, each with the next number, until standard input ends.
 * Every number must arrive once and in order. Meanwhile one thread sleeps in
 * epoll_wait with the signal blocked, and the main thread computes and reads.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static atomic_int ended_input, wrong, got;

static void handler(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	if (info->si_code != SI_QUEUE || info->si_value.sival_int != got + 1)
		wrong |= 1;
	got = info->si_value.sival_int;
}

static void *sleeper(void *arg)
{
	struct epoll_event event;
	int fd = epoll_create1(EPOLL_CLOEXEC);

	while (!ended_input)
		if (epoll_wait(fd, &event, 1, 20) != 0)
			wrong |= 2;
	return arg;
}

/* In the child: sends until go_on ends; returns how many were sent. */
static int send_all(int go_on)
{
	struct pollfd end = {go_on, POLLIN, 0};
	union sigval value = {.sival_int = 0};
	pid_t parent = getppid();

	while (poll(&end, 1, 1) == 0) {
		value.sival_int++;
		while (sigqueue(parent, SIGRTMIN + 3, value) && errno == EAGAIN)
			poll(NULL, 0, 1);
	}
	return value.sival_int;
}

/* Waits for the end of standard input, half of the time on the CPU. */
static void wait_for_end(void)
{
	struct pollfd input = {STDIN_FILENO, POLLIN, 0};
	struct timespec now;
	long until;

	while (poll(&input, 1, 2) <= 0) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		until = now.tv_nsec / 1000000 + 2;
		do {
			clock_gettime(CLOCK_MONOTONIC, &now);
		} while (now.tv_nsec / 1000000 < until && now.tv_nsec / 1000000 + 10 > until);
	}
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
	int result[2], go_on[2], sent = 0;
	pthread_t thread;
	sigset_t set;

	sigaction(SIGRTMIN + 3, &action, NULL);
	if (pipe(result) || pipe(go_on))
		return 3;
	if (!fork()) {
		close(go_on[1]);
		sent = send_all(go_on[0]);
		_exit(write(result[1], &sent, sizeof(sent)) != sizeof(sent));
	}
	close(go_on[0]);
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 3);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (pthread_create(&thread, NULL, sleeper, NULL))
		return 3;
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	printf("ready\n");
	fflush(stdout);
	wait_for_end();
	close(go_on[1]);
	if (read(result[0], &sent, sizeof(sent)) != sizeof(sent))
		return 3;
	for (int i = 0; i < 1000 && got != sent; i++)
		poll(NULL, 0, 1);
	ended_input = 1;
	pthread_join(thread, NULL);
	printf("%d %d\n", sent, (int)got);
	return got != sent ? 4 : wrong;
}
