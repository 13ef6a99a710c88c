/* SPDX-License-Identifier: MIT */
/*
 * pid_space.c - pid namespaces, by the links in /proc/PID/ns and what the kernel says of them (ioctl_ns(2)).
 */
#include "inject/pid_space.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inject/proc_open.h"

enum { LEVELS_MAX = 33 }; /* of namespaces: MAX_PID_NS_LEVEL of the kernel, and the first one */

static uint64_t inode_of(int fd)
{
	struct stat st;

	return fd >= 0 && !fstat(fd, &st) ? (uint64_t)st.st_ino : 0;
}

static int open_space(const char *process)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/%s/ns/pid", process);
	return proc_open(path, O_RDONLY);
}

static uint64_t space_of(const char *process)
{
	const int fd = open_space(process);
	const uint64_t space = inode_of(fd);

	if (fd >= 0)
		close(fd);
	return space;
}

uint64_t pid_space(pid_t pid)
{
	char process[16];

	snprintf(process, sizeof(process), "%d", (int)pid);
	return space_of(process);
}

uint64_t pid_space_own(void)
{
	return space_of("self");
}

/* Whoever has seen the process is in its namespace or in one around it. So are we: one of the two is around the other. */
bool pid_space_is_seen(uint64_t space, pid_t pid)
{
	const uint64_t own = pid_space_own();
	char process[16];
	uint64_t at;
	int fd;

	if (space == own)
		return true;
	snprintf(process, sizeof(process), "%d", (int)pid);
	fd = open_space(process);
	at = inode_of(fd);
	for (int level = 0; level < LEVELS_MAX && at && at != space && at != own; level++) {
		const int around = ioctl(fd, NS_GET_PARENT);

		close(fd);
		fd = around;
		at = inode_of(fd);
	}
	if (fd >= 0)
		close(fd);
	return at && at == space;
}
