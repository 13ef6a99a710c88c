/* SPDX-License-Identifier: MIT */
/*
 * main.c - dinst-mutator: one process per target, started by dinstd with its
 * socket as descriptor 3. It is no command for people.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "inject/descriptors.h"
#include "mutator/cache_plans.h"
#include "mutator/serve.h"
#include "mutator/types_reader.h"
#include "mutator/wall_clock.h"

enum { DAEMON_FD = 3 };

/* What files and functions of any size take at most; a user's limit may be far below. */
static const size_t STACK_SIZE = (size_t)8 << 20;

static void *serve_main(void *status)
{
	*(int *)status = serve(DAEMON_FD);
	return NULL;
}

/* Serves on a stack that is large enough whatever RLIMIT_STACK says, and so do all later threads. */
static int serve_on_large_stack(void)
{
	struct rlimit limit;
	pthread_attr_t attributes;
	pthread_t thread;
	int status = 1, error;

	if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur >= STACK_SIZE)
		return serve(DAEMON_FD);
	pthread_attr_init(&attributes);
	error = pthread_attr_setstacksize(&attributes, STACK_SIZE);
	if (!error)
		error = pthread_setattr_default_np(&attributes);
	if (!error)
		error = pthread_create(&thread, NULL, serve_main, &status);
	if (!error)
		pthread_join(thread, NULL);
	else
		fprintf(stderr, "dinst-mutator: no room for a stack: %s\n", strerror(error));
	pthread_attr_destroy(&attributes);
	return status;
}

/* For `dinst doctor`. */
static int tell_clock(void)
{
	struct wall_clock *clock = wall_clock_make(NULL, NULL);
	char text[240];

	wall_clock_tell(clock, text, sizeof(text));
	wall_clock_free(clock);
	return puts(text) < 0;
}

int main(int argc, char **argv)
{
	int type;
	socklen_t size = sizeof(type);

	if (argc == 2 && !strcmp(argv[1], "--clock"))
		return tell_clock();
	if (argc > 1 || getsockopt(DAEMON_FD, SOL_SOCKET, SO_TYPE, &type, &size) < 0) {
		fprintf(stderr, "dinst-mutator is started by dinstd; use dinst(1)\n");
		return 2;
	}
	/* The daemon's death shows as end of file; writing to it must not kill us first. */
	signal(SIGPIPE, SIG_IGN);
	descriptors_make_room();
	/* Nor does a limit on the size of files: the log or the cache is incomplete, then. */
	signal(SIGXFSZ, SIG_IGN);
	/*
	 * What ends the daemon is not for us, where it goes to all of its process group (a Ctrl-C, a
	 * terminal that goes, timeout(1), a service manager): we detach when it says so, and end when it has.
	 */
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	plan_cache_enable(true);
	types_reader_enable(true);
	return serve_on_large_stack();
}
