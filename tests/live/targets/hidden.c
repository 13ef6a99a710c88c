/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline */
/*
 * hidden.c - a program of another user with a child that may not be looked at.
 *
 * hidden UID: becomes that user, prints "ready"; root keeps the right to change its user
 * only (CAP_SETUID, CAP_SETGID).
 * Commands:
 *   linger    an undumpable child that calls hit() until told to end; prints "child PID"
 *   orphan    the same, of a parent that ends at once, in a session of its own and by another name
 *   user      the same that becomes user UID 65533 (of root's)
 *   count     prints how often it has called hit() so far
 *   unlinger  ends it; prints "ended STATUS"
 *   stay      calls held(), which waits in it for three lines: "hide" (it becomes undumpable),
 *             "show" (dumpable again) and "leave", each answered with itself
 */
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct shared {
	volatile unsigned long hits;
	volatile int end, status;
	volatile pid_t pid;
};

enum { OTHER_USER = 65533 };

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

static void end_with(int status)
{
	shared->status = status;
	_exit(status);
}

static void linger(const char *how)
{
	if (!strncmp(how, "orphan", 6)) {
		if (fork())
			_exit(0);
		if (setsid() < 0 || prctl(PR_SET_NAME, "somebody"))
			end_with(1);
	}
	if (!strncmp(how, "user", 4) && setresuid(OTHER_USER, OTHER_USER, OTHER_USER))
		end_with(1);
	if (prctl(PR_SET_DUMPABLE, 0))
		end_with(1);
	shared->pid = getpid();
	while (!shared->end) {
		if (hit((long)shared->hits) != (long)shared->hits * 5 + 1)
			end_with(2);
		shared->hits++;
	}
	end_with(7);
}

static void begin(const char *how)
{
	const pid_t child = fork();

	if (child == 0)
		linger(how);
	if (!strncmp(how, "orphan", 6))
		waitpid(child, NULL, 0);
	while (!shared->pid && !shared->status)
		usleep(1000);
	printf("child %d\n", (int)shared->pid);
}

static void end(void)
{
	shared->end = 1;
	while (!shared->status)
		usleep(1000);
	/* An orphan is another one's child. */
	waitpid(shared->pid, NULL, 0);
	printf("ended %d\n", shared->status);
}

static int drop_rights(void)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2] = {{0}};

	data[0].effective = data[0].permitted = 1u << CAP_SETUID | 1u << CAP_SETGID;
	return (int)syscall(SYS_capset, &header, data);
}

int main(int argc, char **argv)
{
	uid_t uid = argc > 1 ? (uid_t)atoi(argv[1]) : 0;
	char line[64];

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED || setresgid(uid, uid, uid) || setresuid(uid, uid, uid) ||
	    (!uid && drop_rights()) || prctl(PR_SET_DUMPABLE, 1))
		return 1;
	puts(other(0) == 2 ? "ready" : "wrong");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "linger", 6) || !strncmp(line, "orphan", 6) ||
		    !strncmp(line, "user", 4)) {
			begin(line);
		} else if (!strncmp(line, "count", 5)) {
			printf("%lu\n", shared->hits);
		} else if (!strncmp(line, "unlinger", 8)) {
			end();
		} else if (!strncmp(line, "stay", 4)) {
			printf("%s\n", held() ? "wrong" : "left");
		}
		fflush(stdout);
	}
	return 0;
}
