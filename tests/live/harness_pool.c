/* SPDX-License-Identifier: MIT */
/*
 * harness_pool.c - see harness_pool.h; the file of the kernel's is locked for as long as there is one page more.
 */
#include "tests/live/harness_pool.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/live/harness.h"

static int pool = -1;

/* How many there are, once there were to be so many (-1: as it is); -1 where that cannot be had. */
static long pages(long wanted)
{
	char text[32] = "";
	long now = -1;

	if (wanted >= 0) {
		snprintf(text, sizeof(text), "%ld\n", wanted);
		if (pwrite(pool, text, strlen(text), 0) < 0)
			return -1;
	}
	if (pread(pool, text, sizeof(text) - 1, 0) > 0)
		now = strtol(text, NULL, 10);
	return now;
}

static void leave(void)
{
	if (pool >= 0)
		close(pool);
	pool = -1;
}

bool harness_pool_take(void)
{
	long count;

	pool = open("/proc/sys/vm/nr_hugepages", O_RDWR | O_CLOEXEC);
	count = pool < 0 || flock(pool, LOCK_EX) ? -1 : pages(-1);
	if (count >= 0 && pages(count + 1) == count + 1)
		return true;
	/* There is none. */
	if (count >= 0)
		pages(count);
	leave();
	return false;
}

void harness_pool_give_back(void)
{
	pages(pages(-1) - 1);
	leave();
}

bool harness_pool_is_written(void)
{
	const size_t size = (size_t)2 << 20;
	char *page = mmap(NULL, size, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	const int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	bool written;

	assert_ptr_not_equal(page, MAP_FAILED);
	page[0] = 'a';
	assert_int_equal(mprotect(page, size, PROT_READ), 0);
	written = pwrite(memory, "b", 1, (off_t)(uintptr_t)page) == 1;
	assert_int_equal(page[0], written ? 'b' : 'a');
	close(memory);
	munmap(page, size);
	return written;
}
