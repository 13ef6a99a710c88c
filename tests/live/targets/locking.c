/* SPDX-License-Identifier: MIT */
/* build: -O2 */
/*
 * locking.c - a program that has all locked that it maps from now on (mlockall(2)).
 *
 * locking future|all [UID]: "future" has nothing else locked; "all" what there is, too. With UID it
 * becomes that user, who may lock 8 MiB. Prints "ready", or "cannot". Commands:
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

int main(int argc, char **argv)
{
	const int all = argc > 1 && !strcmp(argv[1], "all");
	const struct rlimit limit = {MAY_LOCK, MAY_LOCK};
	const uid_t uid = argc > 2 ? (uid_t)atoi(argv[2]) : 0;
	char line[64];

	if (uid && (setrlimit(RLIMIT_MEMLOCK, &limit) || setresgid(uid, uid, uid) ||
		    setresuid(uid, uid, uid) || prctl(PR_SET_DUMPABLE, 1)))
		return 1;
	puts(mlockall(MCL_FUTURE | (all ? MCL_CURRENT : 0)) ? "cannot" : "ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "go ", 3)) {
			for (long n = atol(line + 3); n > 0; n--)
				work(n);
			puts("done");
		} else if (!strncmp(line, "resident", 8)) {
			printf("%ld\n", resident());
		} else {
			puts(map());
		}
		fflush(stdout);
	}
	return 0;
}
