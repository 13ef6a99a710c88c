/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -ldl */
/* The program "loads"; what it maps is executable wherever it is readable, as of calls-implied.c. */
#include <sys/personality.h>

#include "loads.c"

__attribute__((constructor)) static void imply(void)
{
	personality((unsigned long)personality(0xffffffff) | READ_IMPLIES_EXEC);
}
