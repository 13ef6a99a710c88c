/* SPDX-License-Identifier: MIT */
/*
 * instrument.c - instruments a program by hand or for a test: every point of
 * the given kinds in the given resources.
 *
 *   instrument PID KINDS ROUNDS MILLISECONDS RESOURCE...
 *   instrument --exec KINDS RESOURCE... -- COMMAND [ARGUMENT]...
 *
 * KINDS is any of the letters that the names of `metrics` below begin with:
 * e entry, x exit, c call, a after a call, b block, d edge, l loop, i every
 * instruction, m memory (loads and stores), p entries paired with exits (not
 * before the first instruction). A resource is a focus as the
 * command line takes it, or @main (all of the program's main module) or @libc.
 *
 * The first form works on a process that runs: each round inserts, waits (until
 * the process ends, at the longest), prints what was counted, and removes; at
 * the end everything is detached. Exits with 1 if anything failed or was left, with
 * 3 if a request was told again and again to come back later, and nothing is left.
 * If MILLISECONDS is "-", it waits until its standard input ends.
 *
 * The second form *becomes* COMMAND, with all of it inserted before its first
 * instruction: same pid, same files, same exit status. The mutator is a process
 * of its own that is nobody's child and ends with the program. What it says
 * goes to a file INSTRUMENT_LOG/NAME.PID.log if that variable names a folder;
 * its last line is "end: ..." if nothing failed.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mutator/core.h"

static const struct raw_metric metrics[] = {
	{.name = "e", .unit = "entries", .constraints = "/Code", .kind = POINT_ENTRY},
	{.name = "x", .unit = "exits", .constraints = "/Code", .kind = POINT_EXIT},
	{.name = "c", .unit = "calls", .constraints = "/Code", .kind = POINT_CALL},
	{.name = "a", .unit = "returns", .constraints = "/Code", .kind = POINT_AFTER},
	{.name = "b", .unit = "blocks", .constraints = "/Code", .kind = POINT_BLOCK},
	{.name = "d", .unit = "edges", .constraints = "/Code", .kind = POINT_EDGE},
	{.name = "l entry", .unit = "entries", .constraints = "/Code", .kind = POINT_LOOP_ENTRY},
	{.name = "l round", .unit = "rounds", .constraints = "/Code", .kind = POINT_LOOP_ROUND},
	{.name = "l exit", .unit = "exits", .constraints = "/Code", .kind = POINT_LOOP_EXIT},
	{.name = "i", .unit = "", .constraints = "/Code", .kind = POINT_INSTRUCTION},
	{.name = "m load", .unit = "loads", .constraints = "/Code", .kind = POINT_LOAD},
	{.name = "m store", .unit = "stores", .constraints = "/Code", .kind = POINT_STORE},
	{.name = "p",
	 .unit = "activations",
	 .constraints = "/Code",
	 .kind = POINT_ENTRY,
	 .snippet = SNIPPET_ENTER},
};

#define UNTIL_INPUT_ENDS UINT_MAX

enum {
	METRICS = sizeof(metrics) / sizeof(metrics[0]),
	FOCI_MAX = 16,
	CATCH_MS = 20 * 1000,
	AGAIN = 20,
	AGAIN_US = 200 * 1000,
	BUSY_TO_THE_END = 3
};

struct order {
	const char *kinds;
	char **resources;
	size_t count;
};

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static const char *main_module(const struct session *s)
{
	for (size_t i = 0; i < module_count(s->modules); i++)
		if (module_get(s->modules, i)->main)
			return module_get(s->modules, i)->name;
	return "?";
}

/*
 * Whether what was told to come back later is to be asked again, as anybody would: a vfork child, or a machine under load, may
 * not let a thread stop in time. `asked` counts how often it was.
 */
static bool ask_again(int status, unsigned *asked, struct dinst_error *e)
{
	if (status != DINST_BUSY || *asked > AGAIN)
		return false;
	printf("busy: %s\n", e->text);
	usleep(AGAIN_US);
	dinst_error_clear(e);
	(*asked)++;
	return true;
}

static void print_asked(unsigned asked, const char *what)
{
	if (asked > 1)
		printf("asked %u times: %s\n", asked, what);
}

/* The resources as foci; text[] is where those live that stand for others. */
static size_t make_foci(const struct session *s, const struct order *o, char text[][512],
			const char **foci)
{
	size_t count = o->count < FOCI_MAX ? o->count : FOCI_MAX;

	for (size_t i = 0; i < count; i++) {
		foci[i] = o->resources[i];
		if (strcmp(foci[i], "@main") == 0) {
			snprintf(text[i], sizeof(text[i]), "/Code/%s/*", main_module(s));
			foci[i] = text[i];
		} else if (strcmp(foci[i], "@libc") == 0) {
			foci[i] = "/Code/libc.so.6/*";
		}
	}
	return count;
}

static int insert_kind(struct session *s, const struct raw_metric *m, const char *const *foci,
		       size_t count, struct dinst_error *e)
{
	struct insert_result r;
	double start = now_ms();
	unsigned asked = 1;
	int status;

	do
		status = request_insert_raw(s, m, foci, count, false, &r, e);
	while (ask_again(status, &asked, e));
	print_asked(asked, "insert");
	for (size_t i = 0; status >= 0 && i < r.count; i++) {
		size_t points, pending;

		instance_points(r.instances[i], &points, &pending);
		printf("%s %s: %zu points, %zu refused, %zu pending, %.0f ms, stopped %.3f ms\n",
		       m->name, r.instances[i]->focus, points, r.instances[i]->refused_count,
		       pending, now_ms() - start, (double)r.stop_ns / 1e6);
	}
	if (status >= 0)
		free(r.instances);
	return status;
}

static int insert_all(struct session *s, const struct order *o, struct dinst_error *e)
{
	char text[FOCI_MAX][512];
	const char *foci[FOCI_MAX];
	size_t count = make_foci(s, o, text, foci);
	int status = 0;

	for (size_t k = 0; status >= 0 && k < METRICS; k++)
		if (strchr(o->kinds, metrics[k].name[0]))
			status = insert_kind(s, &metrics[k], foci, count, e);
	return status;
}

static void print_values(const struct session *s)
{
	for (const struct instance *i = s->instances; i; i = i->next) {
		size_t points, pending;

		instance_points(i, &points, &pending);
		printf("  %s %s = %llu (%zu points, %zu refused, %zu pending%s)\n", i->metric,
		       i->focus, (unsigned long long)instance_value(i), points, i->refused_count,
		       pending, i->waiting ? ", waiting" : "");
	}
}

/* ------------------------------------------------------ a running process */

/* Whether to stay: until the end, or without one, until standard input ends. */
static bool has_time(double end)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};

	return end > 0 ? now_ms() < end : poll(&input, 1, 0) == 0;
}

/* Removes all that is inserted. */
static int take_out(struct session *s, struct flush_result *flush, struct dinst_error *e)
{
	unsigned asked = 1;
	int status = 0;

	while (status >= 0 && s->instances)
		do
			status = removal_switch_off(s, s->instances, e);
		while (ask_again(status, &asked, e));
	if (status >= 0)
		do
			status = removal_flush(s, flush, e);
		while (ask_again(status, &asked, e));
	print_asked(asked, "remove");
	return status;
}

static int one_round(struct session *s, const struct order *o, unsigned ms, struct dinst_error *e)
{
	struct flush_result flush = {0};
	int status = insert_all(s, o, e);
	double end = ms == UNTIL_INPUT_ENDS ? 0 : now_ms() + ms;

	while (status >= 0 && has_time(end) && kill(s->pid, 0) == 0) {
		usleep(50000);
		request_poll(s);
	}
	print_values(s);
	if (status >= 0)
		status = take_out(s, &flush, e);
	printf("removed: %zu freed, %zu queued, stopped %.3f ms\n", flush.freed, flush.queued,
	       (double)flush.stop_ns / 1e6);
	return status;
}

static bool has_ended(struct session *s, int status)
{
	return status == DINST_GONE || s->state == SESSION_EXITED || !target_alive(s->target);
}

static int attach_main(pid_t pid, const struct order *o, int rounds, unsigned ms)
{
	struct detach_result detached = {0};
	struct dinst_error e = {0};
	struct session *s;
	unsigned asked = 1;
	int status;

	do
		status = session_attach(pid, "instrument", &s, &e);
	while (ask_again(status, &asked, &e));
	print_asked(asked, "attach");
	if (status < 0) {
		fprintf(stderr, "instrument: %s\n", e.text);
		return 1;
	}
	for (int round = 0; status >= 0 && round < rounds; round++)
		status = one_round(s, o, ms, &e);
	/* That it comes to its end under us is how a test of a whole run ends. */
	if (has_ended(s, status)) {
		printf("end: the process has ended\n");
		session_free(s);
		return 0;
	}
	if (status < 0)
		fprintf(stderr, "instrument: %s\n", e.text);
	e.code = 0;
	if (session_detach(s, 10, &detached, &e) < 0) {
		fprintf(stderr, "instrument: %s\n", e.text);
		status = has_ended(s, e.code) ? status : e.code;
	}
	printf("detached: %zu left, stopped %.3f ms\n", detached.left,
	       (double)detached.stop_ns / 1e6);
	session_free(s);
	if (detached.left)
		return 1;
	return status == DINST_BUSY ? BUSY_TO_THE_END : status < 0;
}

/* --------------------------------------------------- from the first instruction */

static void armed(void *arg)
{
	int gate = *(int *)arg;

	if (write(gate, "x", 1) != 1)
		fprintf(stderr, "instrument: cannot let the program begin: %s\n", strerror(errno));
	close(gate);
}

/* What the mutator says must not come out of the program's own files, nor keep them open. */
static void own_files(const char *command, pid_t pid, int gate)
{
	const char *folder = getenv("INSTRUMENT_LOG"), *slash = strrchr(command, '/');
	char path[4096] = "/dev/null";
	int null = open("/dev/null", O_RDONLY), log;

	if (folder)
		snprintf(path, sizeof(path), "%s/%s.%d.log", folder, slash ? slash + 1 : command,
			 (int)pid);
	log = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
	if (null < 0 || log < 0 || dup2(null, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
		_exit(125);
	if (gate != 3 && dup2(gate, 3) < 0)
		_exit(125);
	close_range(4, ~0u, 0);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (chdir("/") != 0)
		_exit(125);
}

/* Everything that the program is to have before it runs; then it runs to its end. */
static int follow(struct session *s, const struct order *o, struct dinst_error *e)
{
	double start = now_ms();
	int status;

	s->state = SESSION_HELD;
	status = insert_all(s, o, e);
	if (status < 0) {
		struct dinst_error ignored = {0};

		target_release(s->target, &ignored);
		return status;
	}
	status = gate_release(s, e);
	if (status < 0)
		return status;
	printf("released after %.0f ms\n", now_ms() - start);
	print_values(s);
	while (session_check(s, e) >= 0) {
		request_poll(s);
		usleep(20000);
	}
	dinst_error_clear(e);
	print_values(s);
	printf("end: %s after %.0f ms\n",
	       s->state == SESSION_EXITED ? "the program has ended" : "another program runs",
	       now_ms() - start);
	return 0;
}

static int mutator_main(pid_t pid, const struct order *o, const char *command, int gate)
{
	struct dinst_error e = {0};
	struct session *s = NULL;
	int status;

	own_files(command, pid, gate);
	gate = 3;
	status = target_catch_exec(pid, armed, &gate, CATCH_MS, &e);
	if (status >= 0) {
		status = session_attach(pid, "instrument", &s, &e);
		if (status < 0)
			kill(pid, SIGCONT);
	}
	if (status >= 0)
		status = follow(s, o, &e);
	if (status < 0)
		fprintf(stderr, "instrument: %s\n", e.text);
	session_free(s);
	return status < 0 ? 1 : 0;
}

/* The mutator is a grandchild, so that the program sees no child that it did not make. */
static bool start_mutator(const struct order *o, const char *command, int gate[2])
{
	pid_t target = getpid(), child;

	if (pipe2(gate, O_CLOEXEC) != 0)
		return false;
	child = fork();
	if (child == 0) {
		child = fork();
		if (child == 0) {
			close(gate[0]);
			setsid();
			_exit(mutator_main(target, o, command, gate[1]));
		}
		_exit(child < 0);
	}
	close(gate[1]);
	return child > 0 && waitpid(child, NULL, 0) == child;
}

static int exec_main(int argc, char **argv)
{
	struct order order = {.kinds = argv[0], .resources = argv + 1};
	int gate[2];
	char byte;

	while ((int)order.count + 1 < argc && strcmp(argv[order.count + 1], "--") != 0)
		order.count++;
	if ((int)order.count + 2 >= argc) {
		fprintf(stderr, "instrument: no command\n");
		return 2;
	}
	argv += order.count + 2;
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	if (!start_mutator(&order, argv[0], gate)) {
		fprintf(stderr, "instrument: cannot start: %s\n", strerror(errno));
		return 125;
	}
	if (read(gate[0], &byte, 1) != 1) {
		fprintf(stderr, "instrument: cannot be traced\n");
		return 125;
	}
	execvp(argv[0], argv);
	fprintf(stderr, "instrument: cannot execute %s: %s\n", argv[0], strerror(errno));
	return 127;
}

int main(int argc, char **argv)
{
	struct order order;

	if (argc > 4 && strcmp(argv[1], "--exec") == 0)
		return exec_main(argc - 2, argv + 2);
	if (argc < 6) {
		fprintf(stderr, "usage: instrument PID KINDS ROUNDS MILLISECONDS RESOURCE...\n"
				"       instrument --exec KINDS RESOURCE... -- COMMAND...\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	order = (struct order){argv[2], argv + 5, (size_t)(argc - 5)};
	return attach_main(atoi(argv[1]), &order, atoi(argv[3]),
			   strcmp(argv[4], "-") == 0 ? UNTIL_INPUT_ENDS : (unsigned)atoi(argv[4]));
}
