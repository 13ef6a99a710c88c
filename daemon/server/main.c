/* SPDX-License-Identifier: MIT */
/*
 * main.c - dinstd: options and the start.
 *
 * Runs in the foreground with its log on standard error; the client makes it a
 * daemon.
 */
#include "daemon/server/server.h"

#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { IDLE_DEFAULT_S = 300 };

/* Many clients and mutators need many descriptors. */
static void raise_limits(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max < 65536 ? limit.rlim_max : 65536;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/*
 * Where memory runs out, of the machine or of a container that we share with a
 * target, the kernel is to end us and never the target. The mutators inherit it.
 */
static void go_first(void)
{
	static const char most[] = "1000";
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, most, sizeof(most) - 1) < 0)
		server_log("cannot make us the first to go where memory runs out");
	if (fd >= 0)
		close(fd);
}

/*
 * What else whoever started us had open is not for the mutators. The list is
 * the kernel's; where there is no such call (before 5.9) all that can be open is tried.
 */
static void keep_descriptors(void)
{
	struct rlimit limit;

	if (close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC) == 0 ||
	    getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	for (int fd = STDERR_FILENO + 1; (rlim_t)fd < limit.rlim_cur && fd < 65536; fd++)
		fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* Tells the client that started us how it went: a line on the descriptor it gave. */
static void tell_starter(int fd, const struct dinst_error *e)
{
	char line[DINST_ERROR_TEXT + 40];
	int n;

	if (fd < 0)
		return;
	n = e->code ? snprintf(line, sizeof(line), "%s %s\n", dinst_code_name(e->code), e->text)
		    : snprintf(line, sizeof(line), "ok\n");
	if (write(fd, line, (size_t)n) != n)
		server_log("the client that started us is gone");
	close(fd);
}

static void usage(FILE *to)
{
	fputs("usage: dinstd [-s SOCKET] [-i SECONDS]\n"
	      "The daemon of dinst, one per user; dinst starts it when none runs.\n\n"
	      "  -s, --socket PATH   listen there (default: $DINST_SOCKET, else\n"
	      "                      $XDG_RUNTIME_DIR/dinst/dinstd.sock, else\n"
	      "                      /run/dinst/ for root, /tmp/dinst-UID/ for others)\n"
	      "  -i, --idle SECONDS  leave after so long without sessions and clients\n"
	      "                      (default 300; 0: never)\n"
	      "  -h, --help          this text\n"
	      "  -V, --version       the version\n\n"
	      "It stays in the foreground and logs to standard error. SIGTERM and SIGINT\n"
	      "detach everything first. Example:\n\n"
	      "    dinstd -s /tmp/d/dinstd.sock 2> /tmp/d/log &\n",
	      to);
}

struct start {
	const char *socket;
	unsigned long long idle;
	int ready_fd;
};

/* Returns -1 to go on, else the exit status. */
static int read_options(int argc, char **argv, struct start *start)
{
	static const struct option options[] = {
		{"socket", required_argument, NULL, 's'}, {"idle", required_argument, NULL, 'i'},
		{"ready", required_argument, NULL, 'R'},  {"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},	  {NULL, 0, NULL, 0},
	};
	unsigned long long number;
	int c;

	while ((c = getopt_long(argc, argv, "s:i:hV", options, NULL)) != -1) {
		switch (c) {
		case 's':
			start->socket = optarg;
			break;
		case 'i':
			if (!parse_number(optarg, 10000000, &start->idle)) {
				fprintf(stderr, "dinstd: --idle takes seconds, not '%s'\n", optarg);
				return 2;
			}
			break;
		case 'R':
			/* between dinst and dinstd only */
			if (!parse_number(optarg, 1000000, &number) ||
			    fcntl((int)number, F_SETFD, FD_CLOEXEC) != 0)
				return 2;
			start->ready_fd = (int)number;
			break;
		case 'h':
			usage(stdout);
			return 0;
		case 'V':
			puts("dinstd " DINST_VERSION);
			return 0;
		default:
			usage(stderr);
			return 2;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "dinstd: unexpected argument '%s'\n", argv[optind]);
		return 2;
	}
	return -1;
}

int main(int argc, char **argv)
{
	static struct server server;
	struct dinst_error e = {0, ""};
	struct start start = {NULL, IDLE_DEFAULT_S, -1};
	int status = read_options(argc, argv, &start);

	if (status >= 0)
		return status;
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* as a full disk */
	signal(SIGHUP, SIG_IGN);
	keep_descriptors();
	raise_limits();
	go_first();
	server.lock_fd = -1;
	server.idle_ms = start.idle * 1000;
	if (socket_place_find(&server.place, start.socket, &e) == 0 &&
	    program_find("dinst-mutator", "DINST_MUTATOR", server.mutator_path, &e) == 0 &&
	    server_init(&server, &e) == 0)
		server_listen(&server, &e);
	tell_starter(start.ready_fd, &e);
	if (e.code) {
		fprintf(stderr, "dinstd: %s\n", e.text);
		return 1;
	}
	/* no directory is kept busy by us */
	if (chdir("/") != 0)
		server_log("cannot change to /");
	server_log("version %s, pid %d, socket %s", DINST_VERSION, (int)getpid(),
		   server.place.path);
	uv_run(&server.loop, UV_RUN_DEFAULT);
	server_log("end");
	return 0;
}
