/* SPDX-License-Identifier: MIT */
/* build: -O2 */
/*
 * supervised.c - a program whose supervisor makes a system call for it (SECCOMP_RET_USER_NOTIF,
 * seccomp_unotify(2)), as managers of containers do. The supervisor is its child and reads the input.
 *
 * Prints "ready". Commands:
 *   call    the program makes the call; prints "asked" when the supervisor has been asked, or "cannot"
 *   answer  the supervisor answers; prints "result R asked N", N: how often it was asked for it
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int listener = -1;

static void put_filter(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mkdir, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return;
	listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
				SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

static int wait_for_call(struct seccomp_notif *asked)
{
	int status;

	do {
		memset(asked, 0, sizeof(*asked));
		status = ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, asked);
	} while (status && (errno == EINTR || errno == ENOENT));
	return status;
}

static int supervise(int tell, int hear)
{
	struct seccomp_notif asked;
	struct seccomp_notif_resp answer;
	char line[64];
	long result;
	int times = 0;

	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "call", 4)) {
			if (listener >= 0 && (write(tell, "c", 1) != 1 || wait_for_call(&asked)))
				return 1;
			times = 1;
			puts(listener < 0 ? "cannot" : "asked");
		} else {
			answer = (struct seccomp_notif_resp){.id = asked.id};
			while (ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer)) {
				/* It was interrupted, and asks once more. */
				if (errno != ENOENT || wait_for_call(&asked))
					return 1;
				times++;
				answer.id = asked.id;
			}
			if (read(hear, &result, sizeof(result)) != sizeof(result))
				return 1;
			printf("result %ld asked %d\n", result, times);
		}
		fflush(stdout);
	}
	return 0;
}

int main(void)
{
	int to[2], from[2];
	long result;
	char byte;

	if (pipe(to) || pipe(from))
		return 1;
	put_filter();
	puts("ready");
	fflush(stdout);
	if (fork() == 0) {
		close(to[0]);
		close(from[1]);
		_exit(supervise(to[1], from[0]));
	}
	close(to[1]);
	while (read(to[0], &byte, 1) == 1) {
		result = syscall(SYS_mkdir, "/nowhere", 0700);
		if (write(from[1], &result, sizeof(result)) != sizeof(result))
			return 1;
	}
	return 0;
}
