/* SPDX-License-Identifier: MIT */
/*
 * pages-supplied.c - a thread provides pages of the program's own memory, by userfaultfd(2), in a
 * function that is given their address before they are there.
 *
 * Prints "ready", or why there is no userfaultfd, and answers "done" to each line:
 *   begin     from here on there is such memory, and that thread ("ready" says the same where
 *             the program was started with "now")
 *   touch N   N pages are used for the first time
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone, used, externally_visible))

enum { PAGE = 4096, PAGES = 4096 };

void KEEP supply(char *page);

static int faults = -1;
static char *area;
static long used;

void supply(char *page)
{
	struct uffdio_zeropage zero = {.range = {.start = (uintptr_t)page, .len = PAGE}};

	if (ioctl(faults, UFFDIO_ZEROPAGE, &zero) && errno != EEXIST)
		abort();
}

static void *provide(void *arg)
{
	struct uffd_msg message;

	(void)arg;
	for (;;)
		if (read(faults, &message, sizeof(message)) == sizeof(message))
			supply((char *)(uintptr_t)(message.arg.pagefault.address &
						   ~(uint64_t)(PAGE - 1)));
	return NULL;
}

static int begin(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	pthread_t provider;

	area = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		    -1, 0);
	range.range.start = (uintptr_t)area;
	range.range.len = (uint64_t)PAGES * PAGE;
	faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (area == MAP_FAILED || faults < 0 || ioctl(faults, UFFDIO_API, &api) ||
	    ioctl(faults, UFFDIO_REGISTER, &range)) {
		printf("no userfaultfd: %s\n", strerror(errno));
		return -1;
	}
	return pthread_create(&provider, NULL, provide, NULL);
}

static void touch(long count)
{
	for (; count > 0 && used < PAGES; count--)
		((volatile char *)area)[PAGE * used++]++;
}

int main(int argc, char **argv)
{
	char line[64];

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1 && !strcmp(argv[1], "now") && begin())
		return 77;
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "begin\n") && begin())
			return 77;
		if (!strncmp(line, "touch ", 6))
			touch(atol(line + 6));
		puts("done");
	}
	return 0;
}
