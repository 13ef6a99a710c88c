/* SPDX-License-Identifier: MIT */
/*
 * cpus.h - which CPUs there are.
 */
#ifndef DINST_INJECT_CPUS_H
#define DINST_INJECT_CPUS_H

#include <stdbool.h>

/*
 * Sets online[cpu] for each of `cpus` CPUs (/sys/devices/system/cpu/online, a list such as
 * "0-3,8"); none is where that cannot be read.
 */
void cpus_online(bool *online, unsigned cpus);

/*
 * CPUs that the kernel has room for in its masks: one more than the highest number that a thread can
 * ever be given, at least, whatever /sys says.
 */
unsigned cpus_most(void);

#endif
