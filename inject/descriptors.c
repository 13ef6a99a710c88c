/* SPDX-License-Identifier: MIT */
/*
 * descriptors.c - one descriptor with a high number, for a moment.
 */
#include "inject/descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { ROOM = 4096 };

void descriptors_make_room(void)
{
	struct rlimit limit;
	int fd, high;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur < 2)
		return;
	fd = open("/", O_PATH | O_CLOEXEC);
	high = fcntl(fd, F_DUPFD_CLOEXEC,
		     limit.rlim_cur < ROOM ? (int)limit.rlim_cur - 1 : ROOM - 1);
	/* Without it all works, and may wait. */
	if (high >= 0)
		close(high);
	if (fd >= 0)
		close(fd);
}
