/* SPDX-License-Identifier: MIT */
/* build: -O1 -fno-inline */
/*
 * pages-provided.c - a thread on a stack of memory that another thread of the program provides, by
 * userfaultfd(2), page by page as it is used.
 *
 * In the middle of the stack are pages that were never used, until "fill". Prints "ready", or
 * why there is no userfaultfd, and answers "done" to each line:
 *   go N    the thread calls step() N times
 *   fill    it writes to all of its array
 * Ends with standard input, with 0 if all was well.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))

enum { PAGE = 4096, ARRAY = 32 * PAGE, STACK = 256 * PAGE };

static int faults;
static char line[64];
static sem_t asked, answered;
static volatile long steps;
static volatile char *volatile kept;

KEEP long step(long n)
{
	steps++;
	return n * 5 + 1;
}

static void obey(volatile char *array)
{
	if (!strncmp(line, "go ", 3))
		for (long n = atol(line + 3); n > 0; n--)
			step(n);
	else if (!strcmp(line, "fill\n"))
		for (int i = 0; i < ARRAY; i += PAGE)
			array[i] = 1;
}

/* Of its array only the end is used: that is in the same page as what lies above. */
KEEP void work_on(void)
{
	volatile char array[ARRAY];

	kept = array;
	for (;;) {
		while (sem_wait(&asked))
			;
		obey(array);
		sem_post(&answered);
	}
}

static void *work(void *arg)
{
	(void)arg;
	work_on();
	return NULL;
}

static void *provide(void *arg)
{
	struct uffd_msg message;

	(void)arg;
	for (;;) {
		struct uffdio_zeropage page = {.range = {.len = PAGE}};

		if (read(faults, &message, sizeof(message)) != sizeof(message))
			continue;
		page.range.start = message.arg.pagefault.address & ~(uint64_t)(PAGE - 1);
		if (ioctl(faults, UFFDIO_ZEROPAGE, &page) && errno != EEXIST)
			abort();
	}
	return NULL;
}

int main(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	void *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_attr_t attr;
	pthread_t worker, provider;

	faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	range.range.start = (uintptr_t)stack;
	range.range.len = STACK;
	if (faults < 0 || ioctl(faults, UFFDIO_API, &api) ||
	    ioctl(faults, UFFDIO_REGISTER, &range)) {
		printf("no userfaultfd: %s\n", strerror(errno));
		return 77;
	}
	sem_init(&asked, 0, 0);
	sem_init(&answered, 0, 0);
	pthread_attr_init(&attr);
	pthread_attr_setstack(&attr, stack, STACK);
	if (pthread_create(&provider, NULL, provide, NULL) ||
	    pthread_create(&worker, &attr, work, NULL))
		return 1;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		sem_post(&asked);
		while (sem_wait(&answered))
			;
		puts("done");
		fflush(stdout);
	}
	return 0;
}
