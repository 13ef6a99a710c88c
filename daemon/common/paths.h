/* SPDX-License-Identifier: MIT */
/*
 * paths.h - where the socket, its lock and log, and the other programs are.
 *
 * The socket is $DINST_SOCKET, else $XDG_RUNTIME_DIR/dinst/dinstd.sock, else
 * /run/dinst/dinstd.sock for root and /tmp/dinst-UID/dinstd.sock for others.
 * An XDG_RUNTIME_DIR that belongs to somebody else is passed over.
 * A directory as $DINST_SOCKET stands for dinstd.sock in it.
 * Everything beside it is reached through a descriptor of its directory that
 * was checked once, so nothing can be exchanged under us by a symbolic link.
 */
#ifndef DINST_DAEMON_PATHS_H
#define DINST_DAEMON_PATHS_H

#include <limits.h>
#include <stdbool.h>
#include <sys/un.h>

#include "inject/error.h"

#define DINST_VERSION "0.1.0"

struct socket_place {
	char path[PATH_MAX]; /* of the socket, absolute; for people */
	char directory[PATH_MAX];
	char socket[NAME_MAX + 1]; /* names inside the directory */
	char lock[NAME_MAX + 1];
	char log[NAME_MAX + 1];
	bool chosen; /* by DINST_SOCKET or an option: the directory may be shared */
	int fd;	     /* of the directory, -1 until socket_place_open() */
};

/* Fills *p from `given` (NULL: from the environment). */
int socket_place_find(struct socket_place *p, const char *given, struct dinst_error *e);

/*
 * Opens and checks the directory: ours, mode 0700 (made so if it is missing
 * and `create`), not a symbolic link. A directory that the user chose may be
 * open to others if it is sticky. On failure p->fd stays -1; a missing
 * directory is DINST_DAEMON.
 */
int socket_place_open(struct socket_place *p, bool create, struct dinst_error *e);
void socket_place_close(struct socket_place *p);

/*
 * True for a plain file that belongs to us, that others may not write to, and that
 * has one name only: one with two may be something else of ours, which somebody has
 * linked to where we write.
 */
bool file_is_own(int fd);

/* The address by which the socket is bound and connected: through p->fd. */
void socket_place_address(const struct socket_place *p, struct sockaddr_un *address);

/*
 * Finds program `name`: $variable if set, else beside our own binary, else in
 * ../sbin and ../libexec/dinst from there, else in sbin where dinst was to be installed.
 * Fills path[PATH_MAX].
 */
int program_find(const char *name, const char *variable, char *path, struct dinst_error *e);

/* False where $HOME is another user's, as it may be for root after sudo or su. */
bool home_is_own(void);

/* $XDG_STATE_HOME/dinst/history (else ~/.local/state/dinst/history), directories made; false if
 * there is no place of our own for it. Fills path[PATH_MAX]. */
bool history_path(char *path);

#endif
