/* SPDX-License-Identifier: MIT */
/*
 * main.c - dinstd: options and the start.
 *
 * Runs in the foreground with its log on standard error; the client makes it a
 * daemon.
 */
#include "daemon/server/http.h"
#include "daemon/server/otlp.h"
#include "daemon/server/server.h"
#include "inject/descriptors.h"

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
	fputs("usage: dinstd [-s SOCKET] [-i SECONDS] [-m ADDRESS] [--token FILE] [--otlp URL]\n"
	      "The daemon of dinst, one per user; dinst starts it when none runs.\n\n"
	      "  -s, --socket PATH   listen there (default: $DINST_SOCKET, else the directory\n"
	      "                      $XDG_RUNTIME_DIR/dinst, for root /run/dinst)\n"
	      "  -i, --idle SECONDS  leave after so long without sessions and clients\n"
	      "                      (default 300, with -m or --otlp 0; 0: never)\n"
	      "  -m, --metrics ADDR  serve all values over HTTP: /metrics for Prometheus, and a\n"
	      "                      page for a browser; ADDR: 127.0.0.1:9464, unix:PATH. Who\n"
	      "                      reaches an address that is not loopback's reads /metrics\n"
	      "  --token FILE        who has the token in FILE (made if missing) may insert\n"
	      "                      and remove over HTTP; nobody may without\n"
	      "  --host NAME         HTTP clients may call us so, too (repeatable)\n"
	      "  --otlp URL          send all values there by OTLP/HTTP with JSON, too,\n"
	      "  --otlp-interval SECONDS   so often (default 15)\n"
	      "  -h, --help          this text\n"
	      "  -V, --version       the version\n\n"
	      "It stays in the foreground and logs to standard error. SIGTERM and SIGINT\n"
	      "detach everything first. Example:\n\n"
	      "    dinstd --metrics 127.0.0.1:9464 2> /tmp/dinstd.log &\n",
	      to);
}

struct start {
	const char *socket;
	unsigned long long idle;
	bool idle_given;
	int ready_fd;
	struct http_options http; /* .address NULL: nothing is served */
	const char *otlp;
	unsigned long long otlp_interval;
};

enum { OPTION_TOKEN = 256, OPTION_HOST, OPTION_OTLP, OPTION_OTLP_INTERVAL };

/* A whole number up to `max`; what else is complained about. */
static bool read_number(const char *option, const char *text, unsigned long long min,
			unsigned long long max, unsigned long long *value)
{
	if (parse_number(text, max, value) && *value >= min)
		return true;
	fprintf(stderr, "dinstd: --%s takes seconds, not '%s'\n", option, text);
	return false;
}

/* One option; returns -1 to go on, else the exit status. */
static int take_option(int c, struct start *start)
{
	unsigned long long number;

	switch (c) {
	case 's':
		start->socket = optarg;
		return -1;
	case 'i':
		start->idle_given = true;
		return read_number("idle", optarg, 0, 10000000, &start->idle) ? -1 : 2;
	case 'm':
		start->http.address = optarg;
		return -1;
	case OPTION_TOKEN:
		start->http.token = optarg;
		return -1;
	case OPTION_HOST:
		if (start->http.host_count == HTTP_HOSTS) {
			fprintf(stderr, "dinstd: more than %d names\n", HTTP_HOSTS);
			return 2;
		}
		start->http.hosts[start->http.host_count++] = optarg;
		return -1;
	case OPTION_OTLP:
		start->otlp = optarg;
		return -1;
	case OPTION_OTLP_INTERVAL:
		return read_number("otlp-interval", optarg, 1, 86400, &start->otlp_interval) ? -1
											     : 2;
	case 'R':
		/* between dinst and dinstd only */
		if (!parse_number(optarg, 1000000, &number) ||
		    fcntl((int)number, F_SETFD, FD_CLOEXEC) != 0)
			return 2;
		start->ready_fd = (int)number;
		return -1;
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

/* Returns -1 to go on, else the exit status. */
static int read_options(int argc, char **argv, struct start *start)
{
	static const struct option options[] = {
		{"socket", required_argument, NULL, 's'},
		{"idle", required_argument, NULL, 'i'},
		{"metrics", required_argument, NULL, 'm'},
		{"token", required_argument, NULL, OPTION_TOKEN},
		{"host", required_argument, NULL, OPTION_HOST},
		{"otlp", required_argument, NULL, OPTION_OTLP},
		{"otlp-interval", required_argument, NULL, OPTION_OTLP_INTERVAL},
		{"ready", required_argument, NULL, 'R'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{NULL, 0, NULL, 0},
	};
	int c, status;

	while ((c = getopt_long(argc, argv, "s:i:m:hV", options, NULL)) != -1) {
		status = take_option(c, start);
		if (status >= 0)
			return status;
	}
	if (optind < argc) {
		fprintf(stderr, "dinstd: unexpected argument '%s'\n", argv[optind]);
		return 2;
	}
	if (!start->http.address && (start->http.token || start->http.host_count)) {
		fprintf(stderr, "dinstd: --token and --host are of use with --metrics only\n");
		return 2;
	}
	/* whoever serves stays to serve */
	if ((start->http.address || start->otlp) && !start->idle_given)
		start->idle = 0;
	return -1;
}

/* What is served beside the socket. */
static int serve_more(struct server *s, const struct start *start, struct dinst_error *e)
{
	int err = start->http.address ? http_start(s, &start->http, e) : 0;

	if (!err && start->otlp)
		err = otlp_start(s, start->otlp, (unsigned)start->otlp_interval, e);
	return err;
}

int main(int argc, char **argv)
{
	static struct server server;
	struct dinst_error e = {0, ""};
	struct start start = {
		.idle = IDLE_DEFAULT_S, .ready_fd = -1, .otlp_interval = OTLP_SECONDS};
	int status = read_options(argc, argv, &start);

	if (status >= 0)
		return status;
	signal(SIGPIPE, SIG_IGN);
	descriptors_make_room();
	signal(SIGXFSZ, SIG_IGN); /* as a full disk */
	signal(SIGHUP, SIG_IGN);
	keep_descriptors();
	raise_limits();
	go_first();
	server.lock_fd = server.guard_fd = -1;
	server.idle_ms = start.idle * 1000;
	if (socket_place_find(&server.place, start.socket, &e) == 0 &&
	    program_find("dinst-mutator", "DINST_MUTATOR", server.mutator_path, &e) == 0 &&
	    server_init(&server, &e) == 0 && server_listen(&server, false, &e) == 0 &&
	    serve_more(&server, &start, &e) != 0)
		server_unlisten(&server);
	tell_starter(start.ready_fd, &e);
	if (e.code) {
		fprintf(stderr, "dinstd: %s\n", e.text);
		return 1;
	}
	/* the file that a client has made for us (start.c); any other is not ours to cut */
	log_start(start.ready_fd >= 0);
	/* no directory is kept busy by us */
	if (chdir("/") != 0)
		server_log("cannot change to /");
	server_log("version %s, pid %d, socket %s", DINST_VERSION, (int)getpid(),
		   server.place.path);
	uv_run(&server.loop, UV_RUN_DEFAULT);
	server_log("end");
	log_end();
	/* libuv would wait for its threads */
	if (uv_loop_alive(&server.loop))
		_exit(0);
	return 0;
}
