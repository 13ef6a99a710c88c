/* SPDX-License-Identifier: MIT */
/*
 * mounts.c - lines of /proc/PID/mountinfo: "ID PARENT DEVICE ROOT POINT OPTIONS [TAGS] - TYPE SOURCE
 * SUPER" (proc_pid_mountinfo(5)). Looks only; reading it waits for no file system.
 */
#include "inject/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "inject/proc.h"

enum { TEXT_ROOM = 1 << 20 };

const char *mounts_field(const char *line, const char *end, unsigned index, size_t *length)
{
	for (; index && line < end; index--) {
		line = memchr(line, ' ', (size_t)(end - line));
		if (!line)
			return NULL;
		line++;
	}
	*length = 0;
	while (line + *length < end && line[*length] != ' ')
		++*length;
	return *length ? line : NULL;
}

const char *mounts_type(const char *line, const char *end, size_t *length)
{
	const char *dash = line;

	while (dash && dash + 3 <= end && memcmp(dash, " - ", 3) != 0)
		dash = memchr(dash + 1, ' ', (size_t)(end - dash - 1));
	return dash && dash + 3 <= end ? mounts_field(dash + 3, end, 0, length) : NULL;
}

static bool is_served(const char *type, size_t length)
{
	static const char *const served[] = {"nfs", "fuse", "cifs", "smb",    "9p",
					     "afs", "ceph", "coda", "lustre", "virtiofs"};

	for (size_t i = 0; i < sizeof(served) / sizeof(served[0]); i++)
		if (length >= strlen(served[i]) && !memcmp(type, served[i], strlen(served[i])))
			return true;
	return false;
}

bool mounts_may_wait(const char *mounts, dev_t device)
{
	char wanted[32];
	const int size = snprintf(wanted, sizeof(wanted), "%u:%u", major(device), minor(device));
	const char *line = mounts, *end, *at;
	size_t length;

	for (; *line; line = *end ? end + 1 : end) {
		end = line + strcspn(line, "\n");
		at = mounts_field(line, end, 2, &length);
		if (!at || length != (size_t)size || memcmp(at, wanted, length) != 0)
			continue;
		at = mounts_type(line, end, &length);
		if (at && is_served(at, length))
			return true;
	}
	return false;
}

uint64_t mounts_generation(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct pollfd own = {.fd = -1, .events = POLLPRI};
	static uint64_t changes = 1;
	uint64_t generation = 0;

	pthread_mutex_lock(&lock);
	if (own.fd < 0)
		own.fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	if (own.fd >= 0 && poll(&own, 1, 0) >= 0 && !(own.revents & POLLNVAL)) {
		changes += (own.revents & (POLLPRI | POLLERR)) != 0;
		generation = changes;
	}
	pthread_mutex_unlock(&lock);
	return generation;
}

char *mounts_read(pid_t tid)
{
	char path[64], *text;

	snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)tid);
	/* A machine of many containers has megabytes of it. */
	text = proc_read_long(path, TEXT_ROOM);
	if (!text || *text)
		return text;
	free(text);
	errno = ENOENT;
	return NULL;
}
