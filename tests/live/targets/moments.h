/* SPDX-License-Identifier: MIT */
/*
 * moments.h - the page that targets/moments.c shares with its test, in a file that the test names.
 */
#ifndef DINST_TESTS_TARGETS_MOMENTS_H
#define DINST_TESTS_TARGETS_MOMENTS_H

#include <sys/types.h>

enum { MOMENTS_CHILDREN = 16, MOMENTS_ECHO = 17 };

struct moments {
	int pause;	       /* set: whoever works rests */
	int busy;	       /* threads of all processes that do not rest */
	int done;	       /* commands that were carried out */
	int wrong;	       /* results */
	int programs;	       /* executed in the same process */
	unsigned long leaves;  /* calls of leaf(), of all processes */
	unsigned long handled; /* SIGUSR1 */
	unsigned long queued;  /* SIGRTMIN */
	pid_t threads[64];     /* those that live, but for who has the commands */
	pid_t children[MOMENTS_CHILDREN];
	int child_count;
};

#endif
