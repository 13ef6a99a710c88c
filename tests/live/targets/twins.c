/* SPDX-License-Identifier: MIT */
/* build: -Wl,-z,lazy -x c tests/live/targets/twins.inc */
/*
 * twins.c - two functions of one name, one of each source file. "go N": N rounds, in each of
 * which the one of this file is called once and the other one twice. strfry() is the C library's
 * here, and is not bound before it is called.
 */
#include <stdio.h>
#include <string.h>

int call_other(int a);

__attribute__((noinline, noclone)) static int same_name(int a)
{
	__asm__ volatile("");
	return a * 3 + 1;
}

__attribute__((noinline, noclone)) static int parse(char *text)
{
	return strfry(text)[0] + 1;
}

int main(int argc, char **argv)
{
	char line[64];
	int rounds, sum = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	/* where the one of this file is */
	printf("%p\n", (void *)same_name);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "go %d", &rounds) != 1)
			return 1;
		for (int i = 0; i < rounds; i++)
			sum += same_name(i) ^ call_other(i);
		printf("done\n");
	}
	return argc > 9 ? parse(argv[9]) : sum == 12345;
}
