/* SPDX-License-Identifier: MIT */
/*
 * redis.c - what counting costs a real server: CPU time per request of
 * redis-server's main thread (schedstat) under redis-benchmark -P 16, with
 * nothing, with all entries, and with all entries and exits of the server
 * counted. Throughput says less: it is the client's, too.
 *
 * One server; the states are measured in turn, in rounds.
 */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/bench/measure.h"

enum { ROUNDS = 9, REQUESTS = 200 * 1000, CLIENTS = 50, PIPELINE = 16 };

static char directory[] = "/tmp/dinst-bench-redis-XXXXXX";

static pid_t start_server(void)
{
	char socket[256];
	struct stat st;
	pid_t pid;

	snprintf(socket, sizeof(socket), "%s/socket", directory);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!freopen("/dev/null", "w", stdout))
			_exit(1);
		execlp("taskset", "taskset", "1", "redis-server", "--port", "0", "--unixsocket",
		       socket, "--save", "", "--dir", directory, (char *)NULL);
		_exit(127);
	}
	for (int i = 0; pid > 0 && i < 250 && stat(socket, &st) != 0; i++)
		usleep(20000);
	return pid;
}

/* Nanoseconds that the main thread ran; 0 if it is gone. */
static uint64_t cpu_ns(pid_t pid)
{
	unsigned long long ns = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", (int)pid, (int)pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	if (fscanf(f, "%llu", &ns) != 1)
		ns = 0;
	fclose(f);
	return ns;
}

static double per_request(pid_t pid, const char *command)
{
	uint64_t before = cpu_ns(pid);
	char text[512];

	snprintf(
		text, sizeof(text),
		"taskset 2 redis-benchmark -s %s/socket -q -n %d -c %d -P %d -t %s >/dev/null 2>&1",
		directory, REQUESTS, CLIENTS, PIPELINE, command);
	if (system(text) != 0) {
		fprintf(stderr, "redis: redis-benchmark failed\n");
		exit(1);
	}
	return (double)(cpu_ns(pid) - before) / REQUESTS;
}

static struct measure_state states[] = {
	{.title = "uninstrumented", .kinds = ""},
	{.title = "a jump at all entries", .kinds = "e", .jump_only = true},
	{.title = "all entries counted", .kinds = "e"},
	{.title = "all entries and exits counted", .kinds = "ex"},
	{.title = "entries and exits, libc too", .kinds = "ex"},
};

enum { STATES = sizeof(states) / sizeof(states[0]) };

/* What one command has shown. */
struct figures {
	struct measure_table t;
	size_t points[STATES];
	double counts[STATES]; /* per request */
};

static double counted(const struct session *s)
{
	double sum = 0;

	for (const struct instance *i = s->instances; i; i = i->next)
		sum += (double)instance_value(i);
	return sum;
}

static int run_rounds(struct session *s, const char *command, struct figures *f,
		      struct dinst_error *e)
{
	int status = 0;

	f->t.rounds = ROUNDS;
	for (unsigned round = 0; round < ROUNDS; round++)
		for (unsigned i = 0; i < STATES; i++) {
			status = measure_enter(s, &states[i], &f->points[i], e);
			if (status < 0)
				return status;
			f->t.value[i][round] = per_request(s->pid, command);
			f->counts[i] = counted(s) / REQUESTS;
			status = measure_leave(s, e);
			if (status < 0)
				return status;
		}
	return status;
}

static void show(const char *command, const struct figures *f)
{
	const struct measure_table *t = &f->t;

	printf("redis-server, %s at -P %d: CPU time of its main thread per request\n", command,
	       PIPELINE);
	for (unsigned i = 0; i < STATES; i++)
		printf("  %-34s %8.0f ns %6.3fx  %5zu points, %5.1f counted\n", states[i].title,
		       measure_of(t, i), measure_ratio(t, i, 0), f->points[i], f->counts[i]);
	measure_want("all entries counted", measure_ratio(t, 2, 0), 1.05, "x");
	measure_want("all entries and exits counted", measure_ratio(t, 3, 0), 1.10, "x");
	fflush(stdout);
}

static int measure_server(pid_t pid, struct dinst_error *e)
{
	static const char *const commands[] = {"get", "set"};
	struct detach_result detached;
	struct session *s;
	int status = session_attach(pid, "redis", &s, e);

	if (status < 0)
		return status;
	for (unsigned i = 1; i < STATES; i++) {
		states[i].foci[0] = "/Code/redis-server/*";
		states[i].foci[1] = i == STATES - 1 ? "/Code/libc.so.6/*" : NULL;
	}
	per_request(pid, "set");
	for (unsigned i = 0; status >= 0 && i < 2; i++) {
		struct figures f;

		status = run_rounds(s, commands[i], &f, e);
		if (status >= 0)
			show(commands[i], &f);
	}
	if (status >= 0)
		status = session_detach(s, 5, &detached, e);
	session_free(s);
	return status;
}

int main(void)
{
	struct dinst_error e = {0};
	char command[300];
	int status = 0;
	pid_t pid;

	alarm(280);
	if (system("command -v redis-server redis-benchmark taskset >/dev/null 2>&1") != 0) {
		printf("redis-server or redis-benchmark is not installed\n");
		return 0;
	}
	if (!mkdtemp(directory))
		return 1;
	pid = start_server();
	if (pid <= 0 || cpu_ns(pid) == 0) {
		fprintf(stderr, "redis: the server does not start\n");
		status = -1;
	} else if (measure_server(pid, &e) < 0) {
		fprintf(stderr, "redis: %s\n", e.text);
		status = -1;
	}
	if (pid > 0) {
		kill(pid, SIGTERM);
		waitpid(pid, NULL, 0);
	}
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	if (system(command) != 0)
		status = -1;
	return status < 0;
}
