/* SPDX-License-Identifier: MIT */
/*
 * cpus.c - reads the kernel's list of CPUs. Must never fail: who asks can do without.
 */
#include "inject/cpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

unsigned cpus_most(void)
{
	unsigned long mask[1 << 14];
	/* It answers with the size of its own mask. */
	const long bytes = syscall(SYS_sched_getaffinity, 0, sizeof(mask), mask);

	return bytes > 0 ? (unsigned)bytes * 8 : 8192;
}

void cpus_online(bool *online, unsigned cpus)
{
	char text[4096] = "", *at = text, *end;
	FILE *f = fopen("/sys/devices/system/cpu/online", "re");

	memset(online, 0, cpus * sizeof(*online));
	if (f && !fgets(text, sizeof(text), f))
		text[0] = '\0';
	if (f)
		fclose(f);
	while (*at >= '0' && *at <= '9') {
		unsigned long first = strtoul(at, &end, 10), last = first;

		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		for (; first <= last && first < cpus; first++)
			online[first] = true;
		at = *end == ',' ? end + 1 : end;
	}
}
