/* SPDX-License-Identifier: MIT */
/*
 * http_address.h - where HTTP is served, and by which names that place may be called.
 */
#ifndef DINST_DAEMON_HTTP_ADDRESS_H
#define DINST_DAEMON_HTTP_ADDRESS_H

#include "daemon/server/http.h"

struct listening {
	int fd;			     /* not blocking; -1: none */
	char text[HTTP_ADDRESS_MAX]; /* for people, and as part of a URL: "127.0.0.1:9464" */
	char unix_path[108];	     /* to be removed at the end; "": none */
	ino_t inode;		     /* of it */
	bool local;		     /* nobody but this machine's users can connect */
	char *hosts[HTTP_HOSTS + 1]; /* names that are allowed besides; lower case */
	unsigned host_count;
};

/* Binds and listens. See http_start() for errors. */
int listening_open(struct listening *l, const struct http_options *o, struct dinst_error *e);
void listening_close(struct listening *l);
/*
 * True if a request's Host (NULL: it has none) means us: an address, localhost, or a name that
 * is allowed. `open`: what is asked for is for everybody, so beyond this machine any name does.
 */
bool listening_host_ok(const struct listening *l, const char *host, bool open);

#endif
