/* SPDX-License-Identifier: MIT */
/* slower.h - how much slower our own processes are with sanitizers, or counting lines, about. */
#ifndef DINST_TESTS_SLOWER_H
#define DINST_TESTS_SLOWER_H

#if defined(__SANITIZE_ADDRESS__) || defined(DINST_SLOW)
enum { SLOWER = 5 };
#else
enum { SLOWER = 1 };
#endif

#endif
