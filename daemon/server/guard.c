/* SPDX-License-Identifier: MIT */
/*
 * guard.c - one daemon per socket, also while the socket's directory is gone.
 *
 * Who removes the directory takes the lock with it, and until the daemon notices, a second one could
 * lock and bind there: nobody would reach the sessions of the first. So a name is held that is in no
 * directory: an abstract socket, named after the user, the path, and whose files those are. Nothing is
 * served on it. One that another user has in our place does not count.
 */
#include "daemon/server/server.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Who has the name makes the socket anew within a second; one that does not is not waited for longer. */
enum { BACKLOG = 128, WAIT_MS = 3000, PAUSE_MS = 20 };

/* FNV-1a. */
static void mix(uint64_t *hash, const void *bytes, size_t size)
{
	const unsigned char *p = bytes;

	for (size_t i = 0; i < size; i++)
		*hash = (*hash ^ p[i]) * UINT64_C(0x100000001b3);
}

static void mix_file(uint64_t *hash, const char *path)
{
	struct stat st;

	if (stat(path, &st) != 0)
		return;
	mix(hash, &st.st_dev, sizeof(st.st_dev));
	mix(hash, &st.st_ino, sizeof(st.st_ino));
}

/* unix(7): an abstract name begins with a null byte. Another container's files are not ours. */
static socklen_t guard_address(const struct server *s, struct sockaddr_un *address)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);
	int n;

	mix_file(&hash, "/proc/self/ns/mnt");
	mix_file(&hash, "/");
	mix(&hash, s->place.path, strlen(s->place.path));
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	n = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "dinstd-%u-%016llx",
		     (unsigned)geteuid(), (unsigned long long)hash);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* The pid of the daemon of our own user that has the name; 0: none. */
static pid_t guard_owner(const struct sockaddr_un *address, socklen_t size)
{
	struct ucred peer = {0, 0, 0};
	socklen_t peer_size = sizeof(peer);
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	pid_t owner = 0;

	if (fd < 0)
		return 0;
	if (connect(fd, (const struct sockaddr *)address, size) == 0 &&
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) == 0 &&
	    peer.uid == geteuid())
		owner = peer.pid;
	close(fd);
	return owner;
}

static bool guard_bind(struct server *s, const struct sockaddr_un *address, socklen_t size)
{
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0 && bind(fd, (const struct sockaddr *)address, size) == 0 &&
	    listen(fd, BACKLOG) == 0) {
		s->guard_fd = fd;
		return true;
	}
	if (fd >= 0)
		close(fd);
	return false;
}

int guard_take(struct server *s, struct dinst_error *e)
{
	const struct timespec pause = {0, PAUSE_MS * 1000000L};
	struct sockaddr_un address;
	const socklen_t size = guard_address(s, &address);
	struct stat st;
	pid_t owner;

	if (guard_bind(s, &address, size))
		return 0;
	owner = guard_owner(&address, size);
	for (int ms = 0; owner && ms < WAIT_MS; ms += PAUSE_MS) {
		if (fstatat(s->place.fd, s->place.socket, &st, AT_SYMLINK_NOFOLLOW) == 0)
			return dinst_fail(e, DINST_BUSY, "another dinstd (pid %d) serves %s",
					  (int)owner, s->place.path);
		nanosleep(&pause, NULL);
		if (guard_bind(s, &address, size))
			break;
	}
	return 0;
}

void guard_look(struct server *s)
{
	int fd;

	while (s->guard_fd >= 0 &&
	       (fd = accept4(s->guard_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
		close(fd);
}

void guard_release(struct server *s)
{
	if (s->guard_fd >= 0)
		close(s->guard_fd);
	s->guard_fd = -1;
}
