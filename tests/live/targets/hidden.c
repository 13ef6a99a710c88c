/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline */
/*
 * hidden.c - a program of another user with a child that may not be looked at.
 *
 * hidden UID: becomes that user, prints "ready". Commands:
 *   linger    an undumpable child that calls hit() until told to end; prints "child PID"
 *   count     prints how often it has called hit() so far
 *   unlinger  ends it; prints "ended STATUS"
 *   stay      calls held(), which waits in it for three lines: "hide" (it becomes undumpable),
 *             "show" (dumpable again) and "leave", each answered with itself
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct shared {
	volatile unsigned long hits;
	volatile int end;
};

static struct shared *shared;

__attribute__((noinline, noclone)) long hit(long n)
{
	return n * 5 + 1;
}

__attribute__((noinline, noclone)) long other(long n)
{
	return n * 7 + 2;
}

__attribute__((noinline, noclone)) int held(void)
{
	char line[64];
	int wrong = 0;

	for (int step = 0; step < 3 && fgets(line, sizeof(line), stdin); step++) {
		if (step < 2)
			wrong |= prctl(PR_SET_DUMPABLE, step) != 0;
		fputs(line, stdout);
		fflush(stdout);
	}
	return wrong;
}

static void linger(void)
{
	if (prctl(PR_SET_DUMPABLE, 0))
		_exit(1);
	while (!shared->end) {
		if (hit((long)shared->hits) != (long)shared->hits * 5 + 1)
			_exit(2);
		shared->hits++;
	}
	_exit(7);
}

int main(int argc, char **argv)
{
	uid_t uid = argc > 1 ? (uid_t)atoi(argv[1]) : 0;
	char line[64];
	pid_t child = 0;
	int status = 0;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED || setresgid(uid, uid, uid) || setresuid(uid, uid, uid) ||
	    prctl(PR_SET_DUMPABLE, 1))
		return 1;
	puts(other(0) == 2 ? "ready" : "wrong");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "linger", 6)) {
			child = fork();
			if (child == 0)
				linger();
			printf("child %d\n", (int)child);
		} else if (!strncmp(line, "count", 5)) {
			printf("%lu\n", shared->hits);
		} else if (!strncmp(line, "unlinger", 8)) {
			shared->end = 1;
			waitpid(child, &status, 0);
			printf("ended %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
		} else if (!strncmp(line, "stay", 4)) {
			printf("%s\n", held() ? "wrong" : "left");
		}
		fflush(stdout);
	}
	return 0;
}
