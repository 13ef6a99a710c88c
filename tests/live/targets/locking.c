/* SPDX-License-Identifier: MIT */
/* build: -O2 */
/*
 * locking.c - a program that has all locked that it maps from now on (mlockall(2)).
 *
 * locking future|all|later [UID]: "future" has nothing else locked; "all" what there is, too; "later" does
 * it when it is told to. With UID it becomes that user, who may lock 8 MiB. Prints "ready", or "cannot".
 * Commands:
 *   lock       asks for it, maps the first page that is locked, and keeps it; prints "ready", or "cannot"
 *   go N       calls work() N times; prints "done"
 *   resident   prints how many KiB of it are in memory
 *   map        maps 4 MiB, and gives them back; prints "mapped" or why not
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MAY_LOCK = 8 << 20, MAP = 4 << 20 };

static volatile long sum;

__attribute__((noinline, noclone)) void work(long n)
{
	sum += n;
}

static long resident(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[128];
	long kib = -1;

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "VmRSS:", 6))
			kib = strtol(line + 6, NULL, 10);
	if (f)
		fclose(f);
	return kib;
}

static const char *map(void)
{
	void *p = mmap(NULL, MAP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return strerror(errno);
	munmap(p, MAP);
	return "mapped";
}

static const char *lock(int flags)
{
	return mlockall(flags) ? "cannot" : "ready";
}

/* As any program does that goes on: a page, of which it is seen that pages are locked. */
static const char *lock_later(void)
{
	const char *answer = lock(MCL_FUTURE);
	void *p = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? "cannot" : answer;
}

int main(int argc, char **argv)
{
	const char *when = argc > 1 ? argv[1] : "future";
	const int all = strcmp(when, "all") ? 0 : MCL_CURRENT;
	const struct rlimit limit = {MAY_LOCK, MAY_LOCK};
	const uid_t uid = argc > 2 ? (uid_t)atoi(argv[2]) : 0;
	char line[64];

	if (uid && (setrlimit(RLIMIT_MEMLOCK, &limit) || setresgid(uid, uid, uid) ||
		    setresuid(uid, uid, uid) || prctl(PR_SET_DUMPABLE, 1)))
		return 1;
	puts(strcmp(when, "later") ? lock(MCL_FUTURE | all) : "ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "go ", 3)) {
			for (long n = atol(line + 3); n > 0; n--)
				work(n);
			puts("done");
		} else if (!strncmp(line, "resident", 8)) {
			printf("%ld\n", resident());
		} else if (!strncmp(line, "lock", 4)) {
			puts(lock_later());
		} else {
			puts(map());
		}
		fflush(stdout);
	}
	return 0;
}
