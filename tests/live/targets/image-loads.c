/* SPDX-License-Identifier: MIT */
/* build: -ldl */
/*
 * image-loads.c - loads and drops a shared object when it is told to: a line
 * "load", "again" (a second copy, in a namespace of its own), "drop" on its
 * standard input; answers "done". The file's path is its argument.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	void *first = NULL, *second = NULL;
	char line[64];

	if (argc != 2)
		return 2;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "load\n")) {
			int (*work)(int);

			first = dlopen(argv[1], RTLD_NOW);
			work = first ? (int (*)(int))dlsym(first, "plugin_work") : NULL;
			if (!work || work(2) != 17)
				return 3;
		} else if (!strcmp(line, "again\n")) {
			second = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
			if (!second)
				return 4;
		} else if (!strcmp(line, "drop\n")) {
			if (first && dlclose(first))
				return 5;
			if (second && dlclose(second))
				return 5;
			first = second = NULL;
		}
		puts("done");
		fflush(stdout);
	}
	return 0;
}
