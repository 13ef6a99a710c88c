/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -fno-ipa-cp -fno-ipa-icf */
/*
 * heir.c - a server that hands over to a child of its own and ends, as one that becomes a daemon or is
 * upgraded while it runs; and a child of that one gets the number that it had.
 *
 * Prints "ready". Commands, each answered with "done" unless said otherwise:
 *   leave      a child goes on in our place, and we end with 0; "heir PID"
 *   under PID  a child with that number, which calls work_of() ever after; "no" if it cannot be had
 *   look       what that child says: "calls N" that it has made since, "wrong" if one was, "patched" if its
 *              code is not what the file has
 */
#include <linux/sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))

enum { CODE = 16, PAUSE_US = 200, ANSWER_MS = 5000, LIFE_S = 300 };

static struct shared {
	atomic_long calls;
	atomic_int wrong, patched;
} * shared;

static unsigned char code[CODE]; /* of work_of(), as the file has it */

KEEP long work_of(long x)
{
	asm volatile("" ::: "memory");
	return x * 5 + 2;
}

static void call_for_ever(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(LIFE_S);
	for (long i = 0;; i++) {
		atomic_store(&shared->patched, memcmp((const void *)work_of, code, CODE) != 0);
		atomic_fetch_add(&shared->wrong, work_of(i) != 5 * i + 2);
		atomic_fetch_add(&shared->calls, 1);
		usleep(PAUSE_US);
	}
}

static void leave(void)
{
	const pid_t child = fork();

	if (child)
		_exit(child < 0);
	/* As the number of a session or a group it would not be free. */
	setsid();
	alarm(LIFE_S);
	printf("heir %d\n", (int)getpid());
}

static void begin_under(pid_t pid)
{
	struct clone_args args = {
		.exit_signal = SIGCHLD, .set_tid = (unsigned long)&pid, .set_tid_size = 1};
	const long child = syscall(SYS_clone3, &args, sizeof(args));

	if (!child)
		call_for_ever();
	puts(child == pid ? "done" : "no");
}

static void look(void)
{
	const long before = atomic_load(&shared->calls);

	/* The one at hand may have begun with what was there before. */
	for (int ms = 0; ms < ANSWER_MS && atomic_load(&shared->calls) < before + 3; ms++)
		usleep(1000);
	if (atomic_load(&shared->wrong))
		puts("wrong");
	else if (atomic_load(&shared->patched))
		puts("patched");
	else
		printf("calls %ld\n", atomic_load(&shared->calls) - before);
}

int main(void)
{
	char line[64];

	setvbuf(stdout, NULL, _IONBF, 0);
	setvbuf(stdin, NULL, _IONBF, 0);
	signal(SIGCHLD, SIG_IGN);
	memcpy(code, (const void *)work_of, CODE);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return 1;
	puts("ready");
	while (fgets(line, sizeof(line), stdin))
		if (!strcmp(line, "leave\n"))
			leave();
		else if (!strncmp(line, "under ", 6))
			begin_under((pid_t)strtol(line + 6, NULL, 10));
		else if (!strcmp(line, "look\n"))
			look();
	return 0;
}
