/* SPDX-License-Identifier: MIT */
/* build: -O2 */
/*
 * interrupted.c - threads in blocking calls, each of which a signal has to end.
 *
 * Prints "ready". "run MS" prints "begun", and for so long sends SIGUSR1 (no SA_RESTART) at random
 * moments to threads that are all asleep in their calls, while others compute on all
 * CPUs. Then "ROUNDS LOST": signals of rounds that have not made a call return EINTR
 * within ten seconds, or made it return something else. The first one that is lost ends the run; which call it was
 * is told on stderr.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { EACH = 3, COMPUTING = 3, PATIENCE_MS = 10000 };

static int empty[2], epoll, listener, queue;
static int word;

static long do_read(void)
{
	char byte;

	return read(empty[0], &byte, 1);
}

static long do_nanosleep(void)
{
	struct timespec t = {1000, 0};

	return nanosleep(&t, NULL);
}

static long do_poll(void)
{
	struct pollfd p = {.fd = empty[0], .events = POLLIN};

	return poll(&p, 1, 1000000);
}

static long do_pselect(void)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(empty[0], &set);
	return pselect(empty[0] + 1, &set, NULL, NULL, NULL, NULL);
}

static long do_epoll(void)
{
	struct epoll_event event;

	return epoll_wait(epoll, &event, 1, 1000000);
}

static long do_futex(void)
{
	return syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL, NULL, 0);
}

static long do_accept(void)
{
	return accept(listener, NULL, NULL);
}

static long do_receive(void)
{
	struct {
		long type;
		char byte;
	} message;

	return msgrcv(queue, &message, 1, 0, 0);
}

static const struct {
	const char *name;
	long (*function)(void);
} calls[] = {
	{"read", do_read},	 {"nanosleep", do_nanosleep}, {"poll", do_poll},
	{"pselect", do_pselect}, {"epoll_wait", do_epoll},    {"futex", do_futex},
	{"accept", do_accept},	 {"msgrcv", do_receive},
};

enum { CALLS = sizeof(calls) / sizeof(calls[0]), THREADS = CALLS * EACH };

static struct thread {
	pthread_t id;
	pid_t tid;
	volatile unsigned ended; /* calls */
	volatile unsigned wrong;
} threads[THREADS];

static volatile unsigned computed[COMPUTING];

static void on_signal(int sig)
{
	(void)sig;
}

static void *call_main(void *arg)
{
	struct thread *t = arg;

	__atomic_store_n(&t->tid, gettid(), __ATOMIC_RELEASE);
	for (;;) {
		if (calls[(t - threads) % CALLS].function() != -1 || errno != EINTR)
			t->wrong++;
		t->ended++;
	}
	return NULL;
}

static void *compute_main(void *arg)
{
	volatile unsigned *n = arg;

	for (;;)
		++*n;
	return NULL;
}

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Asleep in the kernel, and in a stop of ours. */
static int is_asleep(const struct thread *t)
{
	char path[64], text[256];
	const char *state;
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)t->tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	close(fd);
	if (got <= 0)
		return 0;
	text[got] = '\0';
	state = strrchr(text, ')');
	return state && state[2] == 'S';
}

/* 1: one is lost. */
static int round_once(void)
{
	unsigned before[THREADS];
	long until;

	for (int i = 0; i < THREADS; i++) {
		while (!is_asleep(&threads[i]))
			usleep(100);
		before[i] = threads[i].ended;
	}
	usleep((useconds_t)(random() % 3000));
	for (int i = 0; i < THREADS; i++)
		pthread_kill(threads[i].id, SIGUSR1);
	until = now_ms() + PATIENCE_MS;
	for (int i = 0; i < THREADS; i++) {
		while (threads[i].ended == before[i] && now_ms() < until)
			usleep(100);
		if (threads[i].ended == before[i] || threads[i].wrong) {
			fprintf(stderr, "%s: %s\n", calls[i % CALLS].name,
				threads[i].wrong ? "returned something else" : "did not return");
			return 1;
		}
	}
	return 0;
}

static void run(long ms)
{
	const long until = now_ms() + ms;
	int rounds = 0, lost = 0;

	puts("begun");
	fflush(stdout);
	while (!lost && now_ms() < until) {
		lost = round_once();
		rounds++;
	}
	printf("%d %d\n", rounds, lost);
	fflush(stdout);
}

int main(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	pthread_t computing;
	char line[64];

	sigaction(SIGUSR1, &action, NULL);
	if (pipe(empty))
		return 2;
	epoll = epoll_create1(0);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	listen(listener, 1);
	queue = msgget(IPC_PRIVATE, 0600);
	for (int i = 0; i < COMPUTING; i++)
		pthread_create(&computing, NULL, compute_main, (void *)&computed[i]);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i].id, NULL, call_main, &threads[i]);
	for (int i = 0; i < THREADS; i++)
		while (!__atomic_load_n(&threads[i].tid, __ATOMIC_ACQUIRE))
			usleep(100);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		if (!strncmp(line, "run ", 4))
			run(atol(line + 4));
	msgctl(queue, IPC_RMID, NULL);
	return 0;
}
