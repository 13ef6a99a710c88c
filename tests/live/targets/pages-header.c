/* SPDX-License-Identifier: MIT */
/* build: -O2 -Wl,-z,now */
/*
 * pages-header.c - a program whose header nobody can read: the page with its ELF header is one that it provides
 * itself, by userfaultfd(2), and never does. Prints "ready", or "cannot"; ends by itself.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096 };

extern const char __ehdr_start[];

int main(void)
{
	char *page = (char *)((uintptr_t)__ehdr_start & ~(uintptr_t)(PAGE - 1));
	struct uffdio_register range = {.range = {(uintptr_t)page, PAGE},
					.mode = UFFDIO_REGISTER_MODE_MISSING};
	struct uffdio_api api = {.api = UFFD_API};
	const int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) ||
	    mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		 0) != page ||
	    ioctl(fd, UFFDIO_REGISTER, &range))
		puts("cannot");
	else
		puts("ready");
	fflush(stdout);
	sleep(300);
	return 0;
}
