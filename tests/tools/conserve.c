/* SPDX-License-Identifier: MIT */
/*
 * conserve.c - what flows into blocks is what blocks execute: in every function
 * of a running program, the executions of all blocks are its entries and those
 * of all edges. A jump that the graph does not know, a table that it has read
 * wrongly, or a point that counts too much or too little would show.
 *
 *   conserve PID RESOURCE COMMAND
 *
 * Inserts entries, blocks and edges in each function, runs COMMAND in a shell,
 * compares, and detaches. Only functions of which every point can be had are
 * compared. Values are read while all threads sleep and none counts; the program
 * must come to that rest before and after COMMAND, and must not throw. Prints "N functions compared, M wrong, L left"; exits with 1 if any is
 * wrong or left, or if anything failed.
 */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutator/core.h"

static const struct raw_metric metrics[] = {
	{.name = "entries", .unit = "", .constraints = "/Code", .kind = POINT_ENTRY},
	{.name = "blocks", .unit = "", .constraints = "/Code", .kind = POINT_BLOCK},
	{.name = "edges", .unit = "", .constraints = "/Code", .kind = POINT_EDGE},
};

enum { KINDS = sizeof(metrics) / sizeof(metrics[0]), REST_US = 10000, RESTS = 12000 };

/* The instances of one kind, one a function. */
struct list {
	struct instance **items;
	uint64_t *before; /* their values when everything was in, then what came since */
	uint64_t *now;
	size_t count;
};

static int insert(struct session *s, const char *resource, const struct raw_metric *metric,
		  struct list *l, struct dinst_error *e)
{
	struct insert_result result;
	unsigned tries = 0;
	int status;

	do {
		dinst_error_clear(e);
		if (tries)
			usleep(20000);
		status = request_insert_raw(s, metric, &resource, 1, true, &result, e);
	} while (status == DINST_BUSY && ++tries < 3000);
	if (status < 0)
		return status;
	l->items = result.instances;
	l->count = result.count;
	l->before = calloc(result.count + 1, sizeof(*l->before));
	l->now = calloc(result.count + 1, sizeof(*l->now));
	return l->before && l->now ? 0 : dinst_fail(e, DINST_NO_MEMORY, "no memory");
}

/* All that was counted. Counters only grow: if this has not changed, none of them has. */
static uint64_t total(const struct list *lists)
{
	uint64_t sum = 0;

	for (size_t k = 0; k < KINDS; k++)
		for (size_t i = 0; i < lists[k].count; i++)
			sum += instance_value(lists[k].items[i]);
	return sum;
}

/* No thread runs or wants to: one that has lost its processor in a function is not at rest. */
static bool all_sleep(pid_t pid)
{
	char path[PATH_MAX], stat[512];
	const struct dirent *entry;
	bool asleep = true;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	if (!tasks)
		return false;
	while (asleep && (entry = readdir(tasks))) {
		const char *state;
		size_t got;
		FILE *file;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", (int)pid, entry->d_name);
		file = fopen(path, "r");
		got = file ? fread(stat, 1, sizeof(stat) - 1, file) : 0;
		stat[got] = '\0';
		state = strrchr(stat, ')');
		asleep = state && state[1] && state[2] == 'S';
		if (file)
			fclose(file);
	}
	closedir(tasks);
	return asleep;
}

/* Into `before`: how much more there is than what stands there. */
static int read_at_rest(struct list *lists, pid_t pid, struct dinst_error *e)
{
	for (unsigned tries = 0; tries < RESTS; tries++) {
		const uint64_t sum = total(lists);

		if (all_sleep(pid) && total(lists) == sum) {
			for (size_t k = 0; k < KINDS; k++)
				for (size_t i = 0; i < lists[k].count; i++)
					lists[k].now[i] = instance_value(lists[k].items[i]);
			if (total(lists) == sum)
				break;
		}
		if (tries + 1 == RESTS)
			return dinst_fail(e, DINST_FAILED, "it does not come to rest");
		usleep(REST_US);
	}
	for (size_t k = 0; k < KINDS; k++)
		for (size_t i = 0; i < lists[k].count; i++)
			lists[k].before[i] = lists[k].now[i] - lists[k].before[i];
	return 0;
}

/* The index of the instance with that focus, near `hint`; -1 if it cannot be compared. */
static long find_whole(const struct list *l, size_t hint, const char *focus)
{
	for (size_t i = 0; i < l->count; i++) {
		size_t at = (hint + i) % l->count, points, pending;
		const struct instance *found = l->items[at];

		if (strcmp(found->focus, focus) != 0)
			continue;
		instance_points(found, &points, &pending);
		return found->refused_count || pending || !points ? -1 : (long)at;
	}
	return -1;
}

static void compare(const struct list *lists, size_t *compared, size_t *wrong)
{
	for (size_t i = 0; i < lists[0].count; i++) {
		const char *focus = lists[0].items[i]->focus;
		uint64_t entries = lists[0].before[i], blocks, edges;
		long in[KINDS];

		for (size_t k = 0; k < KINDS; k++)
			in[k] = find_whole(&lists[k], i, focus);
		if (!entries || in[0] < 0 || in[1] < 0 || in[2] < 0)
			continue;
		blocks = lists[1].before[in[1]];
		edges = lists[2].before[in[2]];
		++*compared;
		if (blocks == entries + edges)
			continue;
		++*wrong;
		fprintf(stderr, "%s: %llu blocks, %llu entries, %llu edges\n", focus,
			(unsigned long long)blocks, (unsigned long long)entries,
			(unsigned long long)edges);
	}
}

static int run(struct session *s, char **argv, struct dinst_error *e)
{
	const pid_t pid = (pid_t)atoi(argv[1]);
	struct list lists[KINDS] = {{0}};
	struct detach_result left = {0};
	size_t compared = 0, wrong = 0;
	int status = 0;

	for (size_t k = 0; k < KINDS && status >= 0; k++)
		status = insert(s, argv[2], &metrics[k], &lists[k], e);
	if (status >= 0)
		status = read_at_rest(lists, pid, e);
	if (status >= 0 && system(argv[3]) != 0)
		status = dinst_fail(e, DINST_FAILED, "%s failed", argv[3]);
	if (status >= 0)
		status = read_at_rest(lists, pid, e);
	if (status >= 0)
		compare(lists, &compared, &wrong);
	for (size_t k = 0; k < KINDS; k++) {
		free(lists[k].items);
		free(lists[k].before);
		free(lists[k].now);
	}
	if (status >= 0)
		status = session_detach(s, 10, &left, e);
	if (status < 0)
		return status;
	printf("%zu functions compared, %zu wrong, %zu left\n", compared, wrong, left.left);
	return wrong || left.left || !compared ? DINST_FAILED : 0;
}

int main(int argc, char **argv)
{
	struct dinst_error e = {0};
	struct session *s = NULL;
	int status;

	if (argc != 4) {
		fprintf(stderr, "usage: conserve PID RESOURCE COMMAND\n");
		return 2;
	}
	status = session_attach((pid_t)atoi(argv[1]), "conserve", &s, &e);
	if (status >= 0)
		status = run(s, argv, &e);
	if (status < 0 && e.text[0])
		fprintf(stderr, "conserve: %s\n", e.text);
	if (s)
		session_free(s);
	return status < 0;
}
