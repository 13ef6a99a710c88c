/* SPDX-License-Identifier: MIT */
/*
 * cache_home.h - a cache of a test's own.
 */
#ifndef DINST_TESTS_CACHE_HOME_H
#define DINST_TESTS_CACHE_HOME_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutator/cache.h"
#include "mutator/cache_plans.h"

static char home[64], directory[80];

static int make_home(void **state)
{
	(void)state;
	snprintf(home, sizeof(home), "/tmp/dinst-cache-XXXXXX");
	if (!mkdtemp(home))
		return -1;
	snprintf(directory, sizeof(directory), "%s/dinst", home);
	setenv("XDG_CACHE_HOME", home, 1);
	unsetenv("DINST_CACHE");
	plan_cache_enable(true);
	return 0;
}

static int drop_home(void **state)
{
	char command[128];

	(void)state;
	plan_cache_enable(false);
	snprintf(command, sizeof(command), "rm -rf %s", home);
	return system(command);
}

/* How many files there are, and the name of one of them. */
static unsigned files(char *name, size_t size)
{
	DIR *dir = opendir(directory);
	const struct dirent *d;
	unsigned n = 0;

	while (dir && (d = readdir(dir)))
		if (d->d_name[0] != '.') {
			if (name)
				snprintf(name, size, "%s", d->d_name);
			n++;
		}
	if (dir)
		closedir(dir);
	return n;
}

#endif
