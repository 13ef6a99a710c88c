/* SPDX-License-Identifier: MIT */
/* slower.h - how much slower our own processes are with sanitizers, about. */
#ifndef DINST_TESTS_SLOWER_H
#define DINST_TESTS_SLOWER_H

#ifdef __SANITIZE_ADDRESS__
enum { SLOWER = 5 };
#else
enum { SLOWER = 1 };
#endif

#endif
