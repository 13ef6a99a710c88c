/* SPDX-License-Identifier: MIT */
/*
 * main.c - dinst-mutator: one process per target, started by dinstd with its
 * socket as descriptor 3. It is no command for people.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "mutator/cache_plans.h"
#include "mutator/serve.h"
#include "mutator/types_reader.h"

enum { DAEMON_FD = 3 };

int main(int argc, char **argv)
{
	int type;
	socklen_t size = sizeof(type);

	(void)argv;
	if (argc > 1 || getsockopt(DAEMON_FD, SOL_SOCKET, SO_TYPE, &type, &size) < 0) {
		fprintf(stderr, "dinst-mutator is started by dinstd; use dinst(1)\n");
		return 2;
	}
	/* The daemon's death shows as end of file; writing to it must not kill us first. */
	signal(SIGPIPE, SIG_IGN);
	/* A Ctrl-C at the terminal that started the daemon is not for us. */
	signal(SIGINT, SIG_IGN);
	plan_cache_enable(true);
	types_reader_enable(true);
	return serve(DAEMON_FD);
}
