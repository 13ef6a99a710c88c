/* SPDX-License-Identifier: MIT */
/*
 * herd.c - a program with children that wait, as a server of many processes.
 *
 * Prints "ready". Commands, each answered with "done":
 *   fork N   N children, each of which waits
 *   end      they end, and are waited for; "wrong" if one ended otherwise
 *   data     a mebibyte that all have in common; answered with its address
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN_MOST = 256, DATA = 1 << 20 };

static char data[DATA + 4096];

static pid_t children[CHILDREN_MOST];
static int count;

static void fork_some(int n)
{
	for (int i = 0; i < n && count < CHILDREN_MOST; i++, count++) {
		children[count] = fork();
		if (children[count] < 0)
			exit(3);
		if (children[count])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
}

static int end_all(void)
{
	int status, wrong = 0;

	for (; count; count--) {
		kill(children[count - 1], SIGTERM);
		wrong |= waitpid(children[count - 1], &status, 0) < 0 || !WIFSIGNALED(status) ||
			 WTERMSIG(status) != SIGTERM;
	}
	return wrong;
}

int main(void)
{
	char line[64];
	int wrong = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	memset(data, 1, sizeof(data));
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "fork ", 5))
			fork_some(atoi(line + 5));
		else if (!strcmp(line, "end\n"))
			wrong |= end_all();
		if (!strcmp(line, "data\n")) {
			printf("%p\n", (void *)data);
			continue;
		}
		puts(wrong ? "wrong" : "done");
	}
	return wrong;
}
