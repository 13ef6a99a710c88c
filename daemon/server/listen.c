/* SPDX-License-Identifier: MIT */
/*
 * listen.c - the socket, its directory, the lock.
 *
 * Owns what makes sure that there is one daemon per socket: the lock file is
 * held for the whole life of the process, and only its holder binds, replaces
 * or removes the socket. Never removes anything that is not a dead socket, or our own.
 *
 * The directory does not always live as long as the daemon: that of an ordinary user
 * goes when he logs out, and comes back empty when he logs in. Sessions go on
 * meanwhile, so the socket is made anew as soon as there is a place for it.
 */
#include "daemon/server/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LEAVING_MS = 9000, LEAVING_PAUSE_MS = 10 };

/*
 * Locks as soon as it can be had. Who ends takes the socket away first, and has the lock for a moment
 * longer: that one is waited for, by somebody who does not serve yet, and nobody who serves.
 */
static int lock_behind(const struct server *s, int fd, int most_ms)
{
	const struct timespec pause = {0, LEAVING_PAUSE_MS * 1000000L};
	struct stat st;

	for (int ms = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; ms += LEAVING_PAUSE_MS) {
		const int saved = errno;

		if (saved != EWOULDBLOCK || ms >= most_ms ||
		    fstatat(s->place.fd, s->place.socket, &st, AT_SYMLINK_NOFOLLOW) == 0)
			return saved;
		nanosleep(&pause, NULL);
	}
	return 0;
}

static int take_lock(struct server *s, int most_ms, struct dinst_error *e)
{
	char owner[32] = "";
	int fd, n, saved;

	fd = openat(s->place.fd, s->place.lock,
		    O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (fd < 0)
		return dinst_fail_errno(e, DINST_FAILED, errno, "cannot open the lock %s/%s",
					s->place.directory, s->place.lock);
	if (!file_is_own(fd)) {
		close(fd);
		return dinst_fail(e, DINST_NOT_PERMITTED, "the lock %s/%s is not ours",
				  s->place.directory, s->place.lock);
	}
	saved = lock_behind(s, fd, most_ms);
	if (saved) {
		ssize_t got = pread(fd, owner, sizeof(owner) - 1, 0);

		close(fd);
		if (saved != EWOULDBLOCK)
			return dinst_fail_errno(e, DINST_FAILED, saved, "cannot lock %s/%s",
						s->place.directory, s->place.lock);
		owner[got > 0 ? strcspn(owner, "\n") : 0] = '\0';
		return dinst_fail(e, DINST_BUSY, "another dinstd (pid %s) serves %s",
				  owner[0] ? owner : "unknown", s->place.path);
	}
	n = snprintf(owner, sizeof(owner), "%d\n", (int)getpid());
	/* Where there is no room for it (a full /run) the lock is ours all the same, and only nobody told so. */
	if (ftruncate(fd, 0) != 0 || pwrite(fd, owner, (size_t)n, 0) != n)
		server_log("cannot write our pid to the lock %s/%s: %s", s->place.directory,
			   s->place.lock, strerror(errno));
	s->lock_fd = fd;
	return 0;
}

/* Removes a socket that nobody listens on; refuses everything else. */
static int clear_place(struct server *s, struct dinst_error *e)
{
	struct sockaddr_un address;
	struct ucred peer = {0, 0, 0};
	socklen_t size = sizeof(peer);
	struct stat st;
	int fd, err = 0;

	if (fstatat(s->place.fd, s->place.socket, &st, AT_SYMLINK_NOFOLLOW) != 0) {
		if (errno == ENOENT)
			return 0;
		return dinst_fail_errno(e, DINST_FAILED, errno, "cannot look at %s", s->place.path);
	}
	if (!S_ISSOCK(st.st_mode))
		return dinst_fail(e, DINST_REFUSED,
				  "%s exists and is not a socket: remove it or set DINST_SOCKET",
				  s->place.path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return dinst_fail_errno(e, DINST_FAILED, errno, "cannot make a socket");
	socket_place_address(&s->place, &address);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 || errno == EAGAIN ||
	    errno == EPROTOTYPE) {
		getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
		err = dinst_fail(
			e, DINST_REFUSED,
			"the socket %s is in use by another program (pid %d): stop it or set "
			"DINST_SOCKET",
			s->place.path, (int)peer.pid);
	} else if (errno != ECONNREFUSED) {
		err = dinst_fail_errno(e, DINST_BUSY, errno, "cannot tell who uses the socket %s",
				       s->place.path);
	} else if (unlinkat(s->place.fd, s->place.socket, 0) != 0 && errno != ENOENT) {
		err = dinst_fail_errno(e, DINST_FAILED, errno, "cannot replace the dead socket %s",
				       s->place.path);
	}
	close(fd);
	return err;
}

/* The socket's file stays, and the lock: nobody else is to serve meanwhile. */
static void crowded_closed(uv_handle_t *listener)
{
	struct server *s = listener->data;

	s->listening = false;
}

/*
 * libuv asks for the connection again at once, and for nothing else, until it gets it: without a free
 * descriptor that is for ever, unless it has one in reserve. And one that is not accepted it keeps, and
 * asks for no other. So nobody is listened to until a look at the
 * socket later on (server_look_after_socket()).
 */
static void listener_event(uv_stream_t *listener, int status)
{
	struct server *s = listener->data;

	if (status >= 0)
		status = peer_accept(s);
	if (status >= 0) {
		s->crowded_told = false;
		return;
	}
	if (!s->crowded_told)
		server_log("accept: %s", uv_strerror(status));
	s->crowded_told = true;
	if (uv_is_closing((uv_handle_t *)listener))
		return;
	s->crowded = true;
	uv_close((uv_handle_t *)listener, crowded_closed);
}

/* Another one may have come in place of what we have bound. */
static bool is_bound_at(const struct server *s, int directory, const char *name)
{
	struct stat st;

	return fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       st.st_dev == s->socket_device && st.st_ino == s->socket_inode;
}

static int bind_socket(struct server *s, struct dinst_error *e)
{
	struct sockaddr_un address;
	struct stat st;
	mode_t mask;
	int fd, err;

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return dinst_fail_errno(e, DINST_FAILED, errno, "cannot make a socket");
	socket_place_address(&s->place, &address);
	/* the mode must be right from the first moment on */
	mask = umask(0177);
	err = bind(fd, (struct sockaddr *)&address, sizeof(address));
	umask(mask);
	if (err != 0) {
		dinst_fail_errno(e, DINST_FAILED, errno, "cannot bind the socket %s",
				 s->place.path);
		close(fd);
		return e->code;
	}
	if (fstatat(s->place.fd, s->place.socket, &st, AT_SYMLINK_NOFOLLOW) != 0) {
		dinst_fail_errno(e, DINST_FAILED, errno, "cannot look at %s", s->place.path);
		close(fd);
		return e->code;
	}
	s->socket_device = st.st_dev;
	s->socket_inode = st.st_ino;
	s->bound = true;
	uv_pipe_init(&s->loop, &s->listener, 0);
	s->listener.data = s;
	s->listening = true;
	err = uv_pipe_open(&s->listener, fd);
	if (err) {
		close(fd);
		return dinst_fail(e, DINST_FAILED, "cannot use the socket: %s", uv_strerror(err));
	}
	err = uv_listen((uv_stream_t *)&s->listener, 128, listener_event);
	if (err)
		return dinst_fail(e, DINST_FAILED, "cannot listen on %s: %s", s->place.path,
				  uv_strerror(err));
	return 0;
}

int server_listen(struct server *s, bool serves, struct dinst_error *e)
{
	int err;

	err = socket_place_open(&s->place, true, e);
	/* first, so that whoever serves already finds the lock free when he makes the socket anew */
	if (!err && !serves)
		err = guard_take(s, e);
	if (!err)
		err = take_lock(s, serves ? 0 : LEAVING_MS, e);
	if (!err)
		err = clear_place(s, e);
	if (!err)
		err = bind_socket(s, e);
	return err;
}

/* The listener is closed, or there was none. */
static void listen_anew(uv_handle_t *listener)
{
	struct server *s = listener->data;
	struct dinst_error e = {0, ""};

	if (s->stopping)
		return;
	s->listening = s->bound = false;
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	s->lock_fd = -1;
	socket_place_close(&s->place);
	if (!server_listen(s, true, &e)) {
		server_log("the socket %s was gone: made anew", s->place.path);
		s->unreachable = false;
	} else if (!s->unreachable) {
		server_log("the socket %s is gone, and cannot be made anew yet: %s", s->place.path,
			   e.text);
		s->unreachable = true;
	}
}

/* Again, where there was no descriptor for a client. */
static void listen_again(struct server *s)
{
	struct dinst_error e = {0, ""};

	if (s->listening)
		return;
	s->crowded = clear_place(s, &e) || bind_socket(s, &e);
	/* what has come so far of one that cannot be used is closed; then all is made anew */
	if (s->crowded && s->listening)
		uv_close((uv_handle_t *)&s->listener, crowded_closed);
}

void server_look_after_socket(struct server *s)
{
	const bool there = s->bound && is_bound_at(s, AT_FDCWD, s->place.path);

	guard_look(s);
	if (s->stopping)
		return;
	if (there) {
		if (s->crowded)
			listen_again(s);
		return;
	}
	s->crowded = false;
	if (!s->listening)
		listen_anew((uv_handle_t *)&s->listener);
	else if (!uv_is_closing((uv_handle_t *)&s->listener))
		uv_close((uv_handle_t *)&s->listener, listen_anew);
}

void server_unlisten(struct server *s)
{
	if (s->bound && is_bound_at(s, s->place.fd, s->place.socket))
		unlinkat(s->place.fd, s->place.socket, 0);
	s->bound = false;
	guard_release(s);
	if (s->listening && !uv_is_closing((uv_handle_t *)&s->listener))
		uv_close((uv_handle_t *)&s->listener, NULL);
}
