/* SPDX-License-Identifier: MIT */
/* build: -g0 */
/* traced-plain.c - traced.c without debug information. */
#include "traced.c"
