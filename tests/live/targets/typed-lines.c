/* SPDX-License-Identifier: MIT */
/* build: -g1 -Wno-psabi */
/*
 * typed-lines.c - typed.c with line numbers only: functions are described, and what they take is not.
 */
#include "typed.c"
