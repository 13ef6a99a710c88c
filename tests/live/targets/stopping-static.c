/* SPDX-License-Identifier: MIT */
/* build: -static */
/* The program "stopping" with libc in it: it stops behind its entry point. */
#include "stopping.c"
