/* SPDX-License-Identifier: MIT */
/* build: -Wl,--build-id */
/*
 * libevery-step.c - the functions of every-step.inc in a library that is loaded and unloaded.
 */
#define PREFIX "lib_"
#include "every-step.inc"

#define DECLARE(name, result)                                                              \
	__attribute__((visibility("hidden"))) extern long function_##name(long n) __asm__( \
		PREFIX #name);
#define POINTER(name, result) function_##name,

FUNCTIONS(DECLARE)

long (*const lib_functions[])(long) = {FUNCTIONS(POINTER)};
