/* SPDX-License-Identifier: MIT */
/*
 * files.c - regular files, and no others. Knows nothing of what is in them.
 */
#include "inject/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inject/proc_open.h"

enum { BLOCK = 512 };	  /* bytes of st_blocks (stat(2)) */
enum { HOLES_MOST = 64 }; /* a file may be so many times what is stored of it */

bool file_is_stored(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && st.st_blocks > 0 &&
	       st.st_size / HOLES_MOST <= (off_t)st.st_blocks * BLOCK;
}

int file_reopen_regular(int found, bool stored)
{
	char link[64];
	struct stat st;
	int fd = -1, error;

	if (found < 0)
		return -1;
	errno = ENOENT;
	if (!fstat(found, &st) && S_ISREG(st.st_mode) && (!stored || file_is_stored(found))) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", found);
		fd = open(link, O_RDONLY | O_CLOEXEC);
	}
	error = errno;
	close(found);
	errno = error;
	return fd;
}

int file_open_regular(const char *path)
{
	return file_reopen_regular(proc_open(path, O_PATH), false);
}
