/* SPDX-License-Identifier: MIT */
/*
 * coverage.c - what can be instrumented in a file, without any process: plans
 * all of its functions and counts points, tactics and refusals, as
 * `dinst points --summary` does for a module of a target.
 *
 *   coverage [-l | -m] FILE...
 *   coverage -r
 *
 * Prints a line per file and kind of point; with -m as rows of a table in
 * Markdown, with -l also a line for each point that is refused; -r lists the reasons. The last line
 * per file says how long it took and how much memory there is now (its peak).
 * Exits with 1 if a file cannot be read, 3 if one misses the share of points
 * that must be reached (99.9 %, or 99.5 % of less than a thousand), where those that lie in restartable
 * sequences or where threads may be cancelled at any instruction may be another 0.5 %.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "mutator/points.h"

enum {
	KINDS = POINT_CALL + 1,
	REASONS = REFUSAL_COUNT,
	LEFT_OUT = FUNCTION_COLD | FUNCTION_STUB | FUNCTION_IFUNC
};

enum form { PLAIN, LIST, MARKDOWN, REASONS_ONLY };

struct counts {
	size_t functions;
	size_t points[KINDS], refused[KINDS];
	size_t tactics[KINDS][TACTIC_COUNT], reasons[KINDS][REASONS];
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void count_plan(const struct function_plan *plan, const struct image_function *fn,
		       struct counts *c, bool list)
{
	for (size_t i = 0; i < plan->point_count; i++) {
		const struct point *p = &plan->points[i];

		if (p->kind > POINT_CALL || p->part)
			continue;
		c->points[p->kind]++;
		if (p->window >= 0) {
			c->tactics[p->kind][p->tactic]++;
			continue;
		}
		c->refused[p->kind]++;
		c->reasons[p->kind][p->refusal]++;
		if (list)
			printf("  refused %-5s %#llx %s in %s\n", point_kind_name(p->kind),
			       (unsigned long long)p->address, refusal_name(p->refusal), fn->name);
	}
}

static int count_file(const char *path, struct counts *c, bool list, struct dinst_error *e)
{
	const struct image_function *functions;
	int fd = open(path, O_RDONLY | O_CLOEXEC), status;
	struct image *img = NULL;
	size_t count;

	if (fd < 0)
		return dinst_fail(e, DINST_FAILED, "cannot open %s", path);
	status = image_open(fd, path, NULL, &img, e);
	close(fd);
	if (status < 0)
		return status;
	count = image_functions(img, &functions);
	for (size_t i = 0; status >= 0 && i < count; i++) {
		struct function_plan *plan;

		if (functions[i].flags & LEFT_OUT)
			continue;
		status = plan_function(img, (uint32_t)i, &plan, e);
		if (status < 0)
			break;
		c->functions++;
		count_plan(plan, &functions[i], c, list);
		plan_free(img, plan);
	}
	image_close(img);
	return status;
}

/* Of a hundred thousand, rounded down: what is not all must not look so. */
static unsigned share(size_t points, size_t refused)
{
	return points ? (unsigned)((points - refused) * 100000 / points) : 100000;
}

/* What must not be touched for the program's sake is not what a tactic lacks for. */
static bool is_enough(const struct counts *c, int k)
{
	const size_t points = c->points[k], kept = c->reasons[k][REFUSAL_RSEQ];
	const size_t refused = c->refused[k] - kept;

	return kept * 200 <= points &&
	       (refused * 1000 <= points || (points < 1000 && refused * 200 <= points));
}

static void print_kind(const char *name, const struct counts *c, int k, enum form form)
{
	const char *gap = "";
	unsigned reached = share(c->points[k], c->refused[k]);

	printf(form == MARKDOWN ? "| %s | %s | %zu | %u.%03u %% | "
				: "%-20s %-5s %7zu %3u.%03u %% ",
	       name, point_kind_name((enum point_kind)k), c->points[k], reached / 1000,
	       reached % 1000);
	for (int t = 0; t < TACTIC_COUNT; t++)
		if (c->tactics[k][t]) {
			printf("%s%s %zu", gap, tactic_name((enum tactic)t), c->tactics[k][t]);
			gap = ", ";
		}
	gap = form == MARKDOWN ? " | " : "; refused: ";
	if (form == MARKDOWN && !c->refused[k])
		printf(" | ");
	for (int r = 0; r < REASONS; r++)
		if (c->reasons[k][r]) {
			printf("%s%s %zu", gap, refusal_name((enum refusal)r), c->reasons[k][r]);
			gap = ", ";
		}
	printf(form == MARKDOWN ? " |\n" : "\n");
}

static int one_file(const char *path, enum form form)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	struct dinst_error e = {0};
	struct counts c = {0};
	struct rusage usage;
	double start = now();
	int result = 0;

	if (count_file(path, &c, form == LIST, &e) < 0) {
		fprintf(stderr, "coverage: %s: %s\n", path, e.text);
		return 1;
	}
	for (int k = 0; k < KINDS; k++) {
		print_kind(name, &c, k, form);
		if (!is_enough(&c, k))
			result = 3;
	}
	getrusage(RUSAGE_SELF, &usage);
	fprintf(form == MARKDOWN ? stderr : stdout, "%-20s %zu functions, %.2f s, at most %ld MB\n",
		name, c.functions, now() - start, usage.ru_maxrss / 1024);
	fflush(stdout);
	return result;
}

int main(int argc, char **argv)
{
	enum form form = PLAIN;
	int option, result = 0;

	while ((option = getopt(argc, argv, "lmr")) != -1) {
		if (option == '?')
			return 2;
		form = option == 'l' ? LIST : option == 'm' ? MARKDOWN : REASONS_ONLY;
	}
	if (form == REASONS_ONLY) {
		for (int r = REFUSAL_NONE + 1; r < REASONS; r++)
			printf("- `%s`: %s\n", refusal_name((enum refusal)r),
			       refusal_text((enum refusal)r));
		return 0;
	}
	if (optind == argc) {
		fprintf(stderr, "usage: coverage [-l | -m] FILE... | -r\n");
		return 2;
	}
	for (int i = optind; i < argc; i++) {
		int one = one_file(argv[i], form);

		if (one && result != 1)
			result = one;
	}
	return result;
}
