/* SPDX-License-Identifier: MIT */
/*
 * hazards.c - a program with a writable and executable page for what a test
 * does to it by hand.
 *
 * Prints "ready". Commands:
 *   page       the page's address
 *   nap MS     nanosleep(2); prints "sleeping", then "RESULT ERRNO MILLISECONDS"
 *   read MS    read(2) of a pipe into which a byte comes after so long; the same
 *   wait MS    epoll_wait(2); the same
 *   tree N     calls its own functions; "done"
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1000 + (double)t.tv_nsec / 1e6;
}

static void say(const char *text)
{
	puts(text);
	fflush(stdout);
}

__attribute__((noinline, noclone)) long leaf(long n)
{
	return n * 3 + 1;
}

__attribute__((noinline, noclone)) long tree(long n)
{
	return n <= 0 ? leaf(n) : tree(n - 1) + leaf(n);
}

static void block(const char *how, long ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
	struct epoll_event event;
	double start = now();
	long result;
	char byte;
	int ends[2];

	say("sleeping");
	errno = 0;
	if (!strcmp(how, "nap")) {
		result = nanosleep(&t, NULL);
	} else if (!strcmp(how, "wait")) {
		int fd = epoll_create1(0);

		result = epoll_wait(fd, &event, 1, (int)ms);
		close(fd);
	} else {
		if (pipe(ends))
			exit(2);
		if (fork() == 0) {
			usleep((useconds_t)ms * 1000);
			_exit(write(ends[1], "x", 1) != 1);
		}
		result = read(ends[0], &byte, 1);
	}
	printf("%ld %d %.0f\n", result, result < 0 ? errno : 0, now() - start);
	fflush(stdout);
}

int main(void)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char line[64], word[16];
	long n;

	if (page == MAP_FAILED)
		return 2;
	memset(page, 0xcc, 4096);
	signal(SIGCHLD, SIG_IGN);
	say("ready");
	while (fgets(line, sizeof(line), stdin)) {
		n = 0;
		if (sscanf(line, "%15s %ld", word, &n) < 1)
			continue;
		if (!strcmp(word, "page")) {
			printf("%lx\n", (unsigned long)page);
			fflush(stdout);
		} else if (!strcmp(word, "tree")) {
			if (tree(n) != n * (n + 1) / 2 * 3 + n + 1)
				return 1;
			say("done");
		} else {
			block(word, n);
		}
	}
	return 0;
}
