/* SPDX-License-Identifier: MIT */
/*
 * analysis.c - what planning all functions of a file costs on one core: the
 * first time, and the second time, with what the first has left in the cache.
 *
 *     analysis FILE...
 *
 * Each time in a process of its own, CPU time; opening the file (symbols and
 * unwind data) apart from planning. The cache is one of our own.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mutator/cache_plans.h"

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int plan_all(const char *path, const char *when)
{
	const struct image_function *functions;
	struct dinst_error e = {0};
	double begin = seconds(), opened, planned;
	struct rusage usage;
	struct image *img;
	size_t count, points = 0, refused = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || image_open(fd, path, NULL, &img, &e) < 0) {
		printf("%s: %s\n", path, fd < 0 ? "not there" : e.text);
		return 1;
	}
	close(fd);
	opened = seconds();
	count = image_functions(img, &functions);
	for (size_t i = 0; i < count; i++) {
		struct function_plan *plan;

		if (plan_function(img, (uint32_t)i, &plan, &e) < 0) {
			printf("%s: %s: %s\n", path, functions[i].name, e.text);
			return 1;
		}
		points += plan->point_count;
		for (size_t k = 0; k < plan->point_count; k++)
			refused += plan->points[k].window < 0;
		plan_free(img, plan);
	}
	planned = seconds();
	getrusage(RUSAGE_SELF, &usage);
	printf("%-40s %-6s %6zu functions %7zu points %5zu refused: open %6.1f ms, plan %7.1f ms, "
	       "%4ld MB\n",
	       path, when, count, points, refused, (opened - begin) * 1e3, (planned - opened) * 1e3,
	       usage.ru_maxrss / 1024);
	image_close(img);
	return 0;
}

static int in_child(const char *path, const char *when)
{
	int status = 0;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		int r = plan_all(path, when);

		fflush(stdout);
		_exit(r);
	}
	return pid < 0 || waitpid(pid, &status, 0) != pid || status ? 1 : 0;
}

int main(int argc, char **argv)
{
	static char home[] = "/tmp/dinst-analysis-XXXXXX";
	char command[128];
	int r = 0;

	if (!mkdtemp(home))
		return 1;
	setenv("XDG_CACHE_HOME", home, 1);
	plan_cache_enable(true);
	for (int i = 1; i < argc; i++) {
		if (access(argv[i], R_OK) < 0) {
			printf("%-40s is not there\n", argv[i]);
			continue;
		}
		r |= in_child(argv[i], "first");
		r |= in_child(argv[i], "second");
	}
	snprintf(command, sizeof(command), "rm -rf %s", home);
	return system(command) ? 1 : r;
}
