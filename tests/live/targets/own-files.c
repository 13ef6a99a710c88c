/* SPDX-License-Identifier: MIT */
/* build: -O2 */
/*
 * own-files.c - the first thread has a descriptor as dinst has of an arena, and is not to be made to call
 * anything (PR_SET_SYSCALL_USER_DISPATCH, though of no address); another one has descriptors of its own,
 * of which one has the same number and is of something else. Prints "ready"; ends with its input, with 1
 * where that has been closed. With an argument it is that other thread alone which has the descriptor, and
 * 1 says that it has not been closed.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { NUMBER = 50 };
enum { SET_DISPATCH = 59, DISPATCH_ON = 1, BLOCK = 1 }; /* linux/prctl.h */

static volatile int over, apart;

static bool in_thread;

static bool take_number(void)
{
	int fd = memfd_create("dinst", 0);

	return fd >= 0 && dup2(fd, NUMBER) == NUMBER && !close(fd);
}

static void *work(void *arg)
{
	bool lost = unshare(CLONE_FILES) ||
		    (in_thread ? !take_number() : dup2(STDIN_FILENO, NUMBER) != NUMBER);

	apart = 1;
	while (!over)
		usleep(1000);
	return lost || (fcntl(NUMBER, F_GETFD) < 0) != in_thread ? arg : NULL;
}

int main(int argc, char **argv)
{
	static volatile char selector = BLOCK;
	void *lost = NULL;
	pthread_t id;
	char byte;

	(void)argv;
	in_thread = argc > 1;
	if (pthread_create(&id, NULL, work, &lost))
		return 2;
	while (!apart)
		usleep(1000);
	if ((!in_thread && !take_number()) || prctl(SET_DISPATCH, DISPATCH_ON, 0, -1L, &selector))
		return 2;
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		continue;
	over = 1;
	pthread_join(id, &lost);
	return lost != NULL;
}
