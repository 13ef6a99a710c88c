/* SPDX-License-Identifier: MIT */
/* build: -O2 -ldl */
/*
 * large.c - a program with a library of any size: `large LIBRARY FUNCTION` loads it, prints "ready",
 * and calls that function every 5 ms until its input ends. Exits with 1 if it changes its mind.
 */
#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	struct pollfd input = {.events = POLLIN};
	void *library = argc > 2 ? dlopen(argv[1], RTLD_LAZY) : NULL;
	int (*function)(int) = NULL;
	int first;

	if (library)
		*(void **)&function = dlsym(library, argv[2]);
	if (!function) {
		printf("%s\n", argc > 2 ? dlerror() : "no library");
		return 2;
	}
	first = function(3);
	puts("ready");
	fflush(stdout);
	while (poll(&input, 1, 5) == 0)
		if (function(3) != first)
			return 1;
	return 0;
}
