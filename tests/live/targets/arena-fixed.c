/* SPDX-License-Identifier: MIT */
/* build: -no-pie -fno-pie */
/*
 * arena-fixed.c - a program at a fixed low address, whose brk heap grows on.
 *
 * Commands: "text" (an address in its text), "grow MIB" (the heap grows by so
 * much, is written to, and "grown" is printed).
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(void)
{
	unsigned long mib, total = 0;
	char line[256];
	char *p;

	setvbuf(stdin, NULL, _IONBF, 0);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "grow %lu", &mib) == 1) {
			p = sbrk((intptr_t)(mib << 20));
			if (p == (void *)-1) {
				printf("no room after %lu MiB\n", total);
			} else {
				for (size_t i = 0; i < mib << 20; i += 65536)
					p[i] = 1;
				total += mib;
				printf("grown\n");
			}
		} else {
			printf("%lx\n", (unsigned long)(uintptr_t)&main);
		}
		fflush(stdout);
	}
	return 0;
}
