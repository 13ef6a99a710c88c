/* SPDX-License-Identifier: MIT */
/*
 * http_address.c - binding the HTTP port, and the check of names.
 *
 * Never looks a name up: only addresses are bound, so that nothing depends on a resolver.
 */
#include "daemon/server/http_address.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 64 };

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_un local;
};

/* "127.0.0.1:9464", "[::1]:9464", ":9464" (loopback), "9464". */
static int parse(const char *text, union address *a, socklen_t *size, struct dinst_error *e)
{
	const char *colon = strrchr(text, ':');
	const char *port = colon ? colon + 1 : text;
	unsigned long long number;
	char host[64] = "127.0.0.1";

	memset(a, 0, sizeof(*a));
	if (colon && colon > text) {
		const bool brackets = text[0] == '[' && colon[-1] == ']';

		snprintf(host, sizeof(host), "%.*s", (int)(colon - text) - (brackets ? 2 : 0),
			 text + brackets);
		if (!strcmp(host, "localhost"))
			snprintf(host, sizeof(host), "127.0.0.1");
	}
	if (!parse_number(port, 65535, &number))
		return dinst_fail(e, DINST_USAGE,
				  "'%.100s' is no address: ADDRESS:PORT or unix:PATH, like "
				  "127.0.0.1:9464",
				  text);
	if (inet_pton(AF_INET, host, &a->v4.sin_addr) == 1) {
		a->v4.sin_family = AF_INET;
		a->v4.sin_port = htons((uint16_t)number);
		*size = sizeof(a->v4);
		return 0;
	}
	if (inet_pton(AF_INET6, host, &a->v6.sin6_addr) == 1) {
		a->v6.sin6_family = AF_INET6;
		a->v6.sin6_port = htons((uint16_t)number);
		*size = sizeof(a->v6);
		return 0;
	}
	return dinst_fail(e, DINST_USAGE, "'%.60s' is no address of a network interface", host);
}

static bool is_local(const union address *a)
{
	if (a->any.sa_family == AF_INET)
		return (ntohl(a->v4.sin_addr.s_addr) >> 24) == 127;
	return IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
}

/* The address with the port that it got (0 means any). */
static void describe(struct listening *l)
{
	union address a = {.any.sa_family = AF_UNSPEC};
	socklen_t size = sizeof(a);
	char host[INET6_ADDRSTRLEN] = "?";

	if (getsockname(l->fd, &a.any, &size) != 0)
		return;
	if (a.any.sa_family == AF_INET) {
		inet_ntop(AF_INET, &a.v4.sin_addr, host, sizeof(host));
		snprintf(l->text, sizeof(l->text), "%s:%u", host, ntohs(a.v4.sin_port));
	} else {
		inet_ntop(AF_INET6, &a.v6.sin6_addr, host, sizeof(host));
		snprintf(l->text, sizeof(l->text), "[%s]:%u", host, ntohs(a.v6.sin6_port));
	}
}

static int open_network(struct listening *l, const char *text, struct dinst_error *e)
{
	union address a;
	socklen_t size = 0;
	const int on = 1;
	int err = parse(text, &a, &size, e);

	if (err)
		return err;
	l->local = is_local(&a);
	l->fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0)
		return dinst_fail_errno(e, DINST_FAILED, errno, "cannot make a socket");
	setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (a.any.sa_family == AF_INET6)
		setsockopt(l->fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (bind(l->fd, &a.any, size) != 0 || listen(l->fd, BACKLOG) != 0)
		return dinst_fail_errno(e, errno == EADDRINUSE ? DINST_BUSY : DINST_FAILED, errno,
					"cannot serve HTTP at %.100s", text);
	describe(l);
	return 0;
}

/* The directory of a socket must be nobody else's but root's, or sticky: as for our own socket. */
static int check_place(const char *path, struct dinst_error *e)
{
	char directory[sizeof(((struct sockaddr_un *)0)->sun_path)];
	struct stat st;
	char *slash;

	snprintf(directory, sizeof(directory), "%s", path);
	slash = strrchr(directory, '/');
	slash[slash == directory] = '\0';
	if (stat(directory, &st) != 0)
		return dinst_fail_errno(e, DINST_FAILED, errno, "cannot look at %s", directory);
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return dinst_fail(
			e, DINST_NOT_PERMITTED,
			"%s belongs to uid %u, who could put a socket of his own in the place "
			"of ours: choose another directory",
			directory, (unsigned)st.st_uid);
	if ((st.st_mode & (S_IWGRP | S_IWOTH)) && !(st.st_mode & S_ISVTX))
		return dinst_fail(e, DINST_NOT_PERMITTED,
				  "%s is open to others (mode %04o): chmod 700 %s", directory,
				  (unsigned)st.st_mode & 07777, directory);
	return 0;
}

static int open_unix(struct listening *l, const char *path, struct dinst_error *e)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct stat st;
	mode_t mask;
	int err;

	if (!path[0] || strlen(path) >= sizeof(a.sun_path))
		return dinst_fail(e, DINST_USAGE, "unix: takes a path of 1 to %zu characters",
				  sizeof(a.sun_path) - 1);
	if (path[0] != '/')
		return dinst_fail(e, DINST_USAGE, "unix: takes an absolute path, not %.100s", path);
	err = check_place(path, e);
	if (err)
		return err;
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	l->local = true;
	if (lstat(path, &st) == 0) {
		if (!S_ISSOCK(st.st_mode) || st.st_uid != geteuid())
			return dinst_fail(e, DINST_REFUSED,
					  "%s exists and is not a socket of ours: remove it", path);
		/* what nobody listens on is left over */
		l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		err = l->fd < 0 || connect(l->fd, (struct sockaddr *)&a, sizeof(a)) == 0 ||
		      errno != ECONNREFUSED;
		if (l->fd >= 0)
			close(l->fd);
		l->fd = -1;
		if (err)
			return dinst_fail(e, DINST_BUSY, "somebody listens on %s", path);
		unlink(path);
	}
	l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0)
		return dinst_fail_errno(e, DINST_FAILED, errno, "cannot make a socket");
	mask = umask(0177);
	err = bind(l->fd, (struct sockaddr *)&a, sizeof(a));
	umask(mask);
	if (err != 0 || listen(l->fd, BACKLOG) != 0)
		return dinst_fail_errno(e, DINST_FAILED, errno, "cannot serve HTTP at %s", path);
	l->inode = stat(path, &st) == 0 ? st.st_ino : 0;
	snprintf(l->unix_path, sizeof(l->unix_path), "%s", path);
	snprintf(l->text, sizeof(l->text), "unix:%s", path);
	return 0;
}

static void allow(struct listening *l, const char *name)
{
	char *copy = name[0] && l->host_count < HTTP_HOSTS + 1 ? strdup(name) : NULL;

	if (!copy)
		return;
	for (char *p = copy; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	l->hosts[l->host_count++] = copy;
}

int listening_open(struct listening *l, const struct http_options *o, struct dinst_error *e)
{
	char own[256] = "";
	int err;

	memset(l, 0, sizeof(*l));
	l->fd = -1;
	if (!strncmp(o->address, "unix:", 5))
		err = open_unix(l, o->address + 5, e);
	else
		err = open_network(l, o->address, e);
	if (err)
		return err;
	if (gethostname(own, sizeof(own) - 1) == 0)
		allow(l, own);
	for (unsigned i = 0; i < o->host_count; i++)
		allow(l, o->hosts[i]);
	return 0;
}

void listening_close(struct listening *l)
{
	struct stat st;

	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
	/* Somebody else's who came meanwhile stays. */
	if (l->unix_path[0] && lstat(l->unix_path, &st) == 0 && st.st_ino == l->inode)
		unlink(l->unix_path);
	l->unix_path[0] = '\0';
	for (unsigned i = 0; i < l->host_count; i++)
		free(l->hosts[i]);
	l->host_count = 0;
}

/* Host without its port, in lower case; false: it is no name of a host. */
static bool host_name(const char *host, char *name, size_t size)
{
	size_t length = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");

	if (!length || length >= size || length > strlen(host))
		return false;
	if (host[length] && (host[length] != ':' || !host[length + 1] ||
			     host[length + 1 + strspn(host + length + 1, "0123456789")]))
		return false;
	for (size_t i = 0; i < length; i++)
		name[i] = (char)tolower((unsigned char)host[i]);
	name[length] = '\0';
	return true;
}

bool listening_host_ok(const struct listening *l, const char *host, bool open)
{
	struct in6_addr ignored;
	char name[256];
	size_t length;

	if (open && !l->local)
		return true;
	if (!host || !host_name(host, name, sizeof(name)))
		return false;
	/* rebinding needs a name: an address says where the page came from */
	if (!strcmp(name, "localhost") || inet_pton(AF_INET, name, &ignored) == 1)
		return true;
	length = strlen(name);
	if (name[0] == '[' && length > 2) {
		name[length - 1] = '\0';
		return inet_pton(AF_INET6, name + 1, &ignored) == 1;
	}
	for (unsigned i = 0; i < l->host_count; i++)
		if (!strcmp(l->hosts[i], name))
			return true;
	return false;
}
