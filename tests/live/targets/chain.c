/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -fno-ipa-cp -fno-ipa-icf */
/*
 * chain.c - processes of which each forks the next one and ends, a quarter of a millisecond later: whoever
 * lists all processes may see one and find it gone, while the next one has a pid that the list has passed.
 *
 * Prints "ready". Commands:
 *   start   a chain begins; "started"
 *   flock   forty begin, of which each process sleeps for a hundredth of a second; "started"
 *   look    "links N wrong N patched N": how many there were, calls with a wrong result, and how many of
 *           the three that began since have found other code in link() than the file has; "broken" where
 *           none comes any more
 *   stop    the chain ends; "stopped"
 *   leave   a chain begins, and the first process ends; "left". Whichever link then finds a command says "link patched"
 *           or "link whole", after what it has found in link(), and is the last one
 */
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))

enum {
	LIFE_NS = 250 * 1000,
	CODE = 16,
	LOOKS = 3,
	PATIENCE_MS = 5000,
	FEW = 50,
	FLOCK = 40,
	LINK_MS = 5,
	SLEEP_US = 10000
};

struct shared {
	atomic_int stop, links, wrong, patched, ended;
	int chains;
};

static struct shared *shared;
static unsigned char code[CODE]; /* of link(), as the file has it */

KEEP long link_of(long x)
{
	asm volatile("" ::: "memory");
	return x * 3 + 1;
}

KEEP long other_of(long x)
{
	asm volatile("" ::: "memory");
	return x * 9 + 100;
}

static long now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000 + t.tv_nsec;
}

static void live(void)
{
	const long began = now_ns();

	atomic_fetch_add(&shared->patched, memcmp((const void *)link_of, code, CODE) != 0);
	atomic_fetch_add(&shared->links, 1);
	do {
		for (long i = 0; i < FEW; i++)
			atomic_fetch_add(&shared->wrong, link_of(i) != 3 * i + 1);
	} while (now_ns() - began < LIFE_NS);
}

static void sleep_a_moment(void)
{
	atomic_fetch_add(&shared->wrong, link_of(1) != 4);
	usleep(SLEEP_US);
	atomic_fetch_add(&shared->links, 1);
}

static void live_alone(void)
{
	struct pollfd command = {.events = POLLIN};

	if (!poll(&command, 1, LINK_MS))
		return;
	puts(memcmp((const void *)link_of, code, CODE) ? "link patched" : "link whole");
	atomic_store(&shared->stop, 1);
}

static void begin(int chains, void (*life)(void))
{
	atomic_store(&shared->stop, 0);
	atomic_store(&shared->ended, 0);
	shared->chains = chains;
	for (int n = 0; n < chains; n++) {
		if (fork())
			continue;
		for (pid_t next = 0; !next; next = atomic_load(&shared->stop) ? -1 : fork())
			life();
		if (atomic_load(&shared->stop))
			atomic_fetch_add(&shared->ended, 1);
		_exit(0);
	}
}

static void wait_for(atomic_int *value, int at_least)
{
	for (int ms = 0; ms < PATIENCE_MS && atomic_load(value) < at_least; ms++)
		usleep(1000);
}

static void look(void)
{
	const int links = atomic_load(&shared->links);

	/* The one that has begun already may have found what was there before. */
	wait_for(&shared->links, links + 1);
	atomic_store(&shared->patched, 0);
	wait_for(&shared->links, links + 1 + LOOKS);
	if (atomic_load(&shared->links) <= links + LOOKS)
		puts("broken");
	else
		printf("links %d wrong %d patched %d\n", atomic_load(&shared->links),
		       atomic_load(&shared->wrong), atomic_load(&shared->patched));
}

/*
 * Somebody lives who has a pid that is higher than all that come next: a listing, which goes upwards, does not
 * end with the newest. Needs a privilege; without it the machine's own processes have to do.
 */
static void have_high_pid(void)
{
	char text[32] = "";
	const int fd = open("/proc/sys/kernel/pid_max", O_RDONLY);
	const ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	pid_t pid = got > 0 ? (pid_t)strtol(text, NULL, 10) - 2 : 0;
	struct clone_args args = {
		.exit_signal = SIGCHLD, .set_tid = (unsigned long)&pid, .set_tid_size = 1};

	close(fd);
	for (int tries = 0; tries < FEW; tries++, pid--) {
		const long child = syscall(SYS_clone3, &args, sizeof(args));

		if (child > 0)
			return;
		if (!child)
			for (prctl(PR_SET_PDEATHSIG, SIGKILL);;)
				pause();
	}
}

int main(void)
{
	char line[64];

	setvbuf(stdout, NULL, _IOLBF, 0);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	signal(SIGCHLD, SIG_IGN);
	memcpy(code, (const void *)link_of, CODE);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return 1;
	have_high_pid();
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "start\n")) {
			begin(1, live);
			puts("started");
		} else if (!strcmp(line, "flock\n")) {
			begin(FLOCK, sleep_a_moment);
			puts("started");
		} else if (!strcmp(line, "look\n")) {
			look();
		} else if (!strcmp(line, "stop\n")) {
			atomic_store(&shared->stop, 1);
			wait_for(&shared->ended, shared->chains);
			puts("stopped");
		} else if (!strcmp(line, "leave\n")) {
			begin(1, live_alone);
			puts("left");
			_exit(0);
		}
	}
	atomic_store(&shared->stop, 1);
	return link_of(1) + other_of(1) == 113 ? 0 : 1;
}
