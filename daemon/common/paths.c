/* SPDX-License-Identifier: MIT */
/*
 * paths.c - where the socket, its lock and log, and the other programs are.
 *
 * Owns the checks that make the socket's directory safe. Never follows a
 * symbolic link in its last component.
 */
#include "daemon/common/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* snprintf that says whether everything fitted. */
static bool put(char *to, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static bool put(char *to, size_t size, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(to, size, format, args);
	va_end(args);
	return n >= 0 && (size_t)n < size;
}

/* What sudo and su may leave in the environment is another user's, and not ours to write to. */
static bool is_others(const char *directory)
{
	struct stat st;

	return stat(directory, &st) == 0 && st.st_uid != geteuid();
}

static bool put_path(struct socket_place *p, const char *given)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	char here[PATH_MAX];

	if (given && given[0] == '/')
		return put(p->path, sizeof(p->path), "%s", given);
	if (given)
		return getcwd(here, sizeof(here)) &&
		       put(p->path, sizeof(p->path), "%s/%s", here, given);
	if (runtime && runtime[0] == '/' && !is_others(runtime))
		return put(p->path, sizeof(p->path), "%s/dinst/dinstd.sock", runtime);
	if (geteuid() == 0)
		return put(p->path, sizeof(p->path), "/run/dinst/dinstd.sock");
	return put(p->path, sizeof(p->path), "/tmp/dinst-%u/dinstd.sock", (unsigned)geteuid());
}

/*
 * A directory stands for the socket dinstd.sock in it, but not one that somebody else has made where
 * a socket was meant: that would be his.
 */
static int complete_path(struct socket_place *p, struct dinst_error *e)
{
	static const char name[] = "/dinstd.sock";
	size_t length = strlen(p->path);
	struct stat st;

	const bool there = stat(p->path, &st) == 0 && S_ISDIR(st.st_mode);

	if (p->path[length - 1] != '/' && !there)
		return 0;
	if (there && st.st_uid != geteuid() && st.st_uid != 0)
		return dinst_fail(
			e, DINST_NOT_PERMITTED,
			"%s is a directory of uid %u and you are uid %u: set DINST_SOCKET "
			"to a place of your own, or to the path of that user's socket",
			p->path, (unsigned)st.st_uid, (unsigned)geteuid());
	while (length > 0 && p->path[length - 1] == '/')
		length--;
	if (length + sizeof(name) > sizeof(p->path))
		return dinst_fail(e, DINST_USAGE, "the path of the socket is too long");
	memcpy(p->path + length, name, sizeof(name));
	return 0;
}

int socket_place_find(struct socket_place *p, const char *given, struct dinst_error *e)
{
	const char *env = getenv("DINST_SOCKET");
	size_t stem;
	char *slash;
	int status;

	memset(p, 0, sizeof(*p));
	p->fd = -1;
	if (!given && env && *env)
		given = env;
	p->chosen = given != NULL;
	if (!put_path(p, given))
		return dinst_fail(e, DINST_USAGE, "the path of the socket is too long");
	status = complete_path(p, e);
	if (status < 0)
		return status;
	slash = strrchr(p->path, '/');
	stem = strlen(slash + 1);
	if (stem > 5 && strcmp(slash + 1 + stem - 5, ".sock") == 0)
		stem -= 5;
	if (!put(p->socket, sizeof(p->socket), "%s", slash + 1) ||
	    !put(p->lock, sizeof(p->lock), "%.*s.lock", (int)stem, slash + 1) ||
	    !put(p->log, sizeof(p->log), "%.*s.log", (int)stem, slash + 1) || stem > 64)
		return dinst_fail(e, DINST_USAGE, "the name of the socket is too long (64 bytes)");
	put(p->directory, sizeof(p->directory), "%.*s",
	    slash == p->path ? 1 : (int)(slash - p->path), p->path);
	return 0;
}

/* Who else could put something in the place of our files? */
static int check_directory(const struct socket_place *p, const struct stat *st,
			   struct dinst_error *e)
{
	uid_t me = geteuid();
	bool open_to_others =
		(st->st_mode & (p->chosen ? S_IWGRP | S_IWOTH : S_IRWXG | S_IRWXO)) != 0;

	if (st->st_uid != me && !(p->chosen && st->st_uid == 0) && !(p->chosen && me == 0))
		return dinst_fail(e, DINST_NOT_PERMITTED,
				  "%s belongs to uid %u and you are uid %u: set DINST_SOCKET to a "
				  "place of your own",
				  p->directory, (unsigned)st->st_uid, (unsigned)me);
	if (open_to_others && !(p->chosen && (st->st_mode & S_ISVTX)))
		return dinst_fail(e, DINST_NOT_PERMITTED,
				  "%s is open to others (mode %04o): chmod 700 %s", p->directory,
				  (unsigned)st->st_mode & 07777, p->directory);
	return 0;
}

int socket_place_open(struct socket_place *p, bool create, struct dinst_error *e)
{
	struct stat st;
	int fd, err;

	if (create && mkdir(p->directory, 0700) != 0 && errno != EEXIST)
		return dinst_fail_errno(e, DINST_FAILED, errno, "cannot make the directory %s",
					p->directory);
	fd = open(p->directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return dinst_fail_errno(e, errno == ENOENT ? DINST_DAEMON : DINST_FAILED, errno,
					"cannot open the socket's directory %s", p->directory);
	if (fstat(fd, &st) != 0)
		err = dinst_fail_errno(e, DINST_FAILED, errno, "cannot look at %s", p->directory);
	else
		err = check_directory(p, &st, e);
	if (err) {
		close(fd);
		return err;
	}
	p->fd = fd;
	return 0;
}

bool file_is_own(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_uid == geteuid() && S_ISREG(st.st_mode) &&
	       st.st_nlink == 1 && !(st.st_mode & (S_IWGRP | S_IWOTH));
}

void socket_place_close(struct socket_place *p)
{
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
}

void socket_place_address(const struct socket_place *p, struct sockaddr_un *address)
{
	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	/* p->socket has at most 64 bytes and ".sock", so it always fits */
	put(address->sun_path, sizeof(address->sun_path), "/proc/self/fd/%d/%s", p->fd, p->socket);
}

int program_find(const char *name, const char *variable, char *path, struct dinst_error *e)
{
	static const char *const places[] = {"", "../sbin/", "../libexec/dinst/"};
	const char *given = variable ? getenv(variable) : NULL;
	char own[PATH_MAX];
	char *slash;
	ssize_t n;

	if (given && *given) {
		if (!realpath(given, path) || access(path, X_OK) != 0)
			return dinst_fail(e, DINST_DAEMON, "%s=%s is not a program", variable,
					  given);
		return 0;
	}
	n = readlink("/proc/self/exe", own, sizeof(own) - 1);
	if (n <= 0)
		return dinst_fail_errno(e, DINST_DAEMON, errno,
					"cannot find our own binary by /proc/self/exe");
	own[n] = '\0';
	slash = strrchr(own, '/');
	if (slash)
		slash[1] = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (put(path, PATH_MAX, "%s%s%s", own, places[i], name) && access(path, X_OK) == 0)
			return 0;
	/* in a program of somebody else's that uses the library: where it was installed to */
	if (put(path, PATH_MAX, DINST_BINDIR "/../sbin/%s", name) && access(path, X_OK) == 0)
		return 0;
	return dinst_fail(e, DINST_DAEMON,
			  "%s is neither in %s nor in ../sbin or ../libexec/dinst "
			  "from there: is the installation complete?",
			  name, own);
}

bool home_is_own(void)
{
	const char *home = getenv("HOME");

	return home && home[0] == '/' && !is_others(home);
}

bool history_path(char *path)
{
	const char *state = getenv("XDG_STATE_HOME");
	const char *home = getenv("HOME");

	if (state && state[0] == '/') {
		if (is_others(state) || !put(path, PATH_MAX, "%s", state))
			return false;
	} else if (home_is_own()) {
		if (!put(path, PATH_MAX, "%s/.local", home))
			return false;
		mkdir(path, 0700);
		if (!put(path, PATH_MAX, "%s/.local/state", home))
			return false;
	} else {
		return false;
	}
	mkdir(path, 0700);
	if (strlen(path) + sizeof("/dinst/history") > PATH_MAX)
		return false;
	memcpy(path + strlen(path), "/dinst", sizeof("/dinst"));
	mkdir(path, 0700);
	memcpy(path + strlen(path), "/history", sizeof("/history"));
	return true;
}
