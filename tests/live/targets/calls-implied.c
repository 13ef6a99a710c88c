/* SPDX-License-Identifier: MIT */
/* build: -fno-inline -fno-ipa-cp -fno-ipa-icf */
/*
 * The program "calls"; what it maps when it runs, and what is mapped for it, is executable wherever
 * it is readable, as for programs with executable stacks before Linux 5.8 (READ_IMPLIES_EXEC).
 */
#include <stdlib.h>
#include <sys/personality.h>

#include "calls.c"

__attribute__((constructor)) static void imply(void)
{
	/* What it has by now stays as it is. */
	free(malloc(65536));
	personality((unsigned long)personality(0xffffffff) | READ_IMPLIES_EXEC);
}
