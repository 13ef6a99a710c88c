/* SPDX-License-Identifier: MIT */
/*
 * nearest.h - which names were meant.
 */
#ifndef DINST_DAEMON_NEAREST_H
#define DINST_DAEMON_NEAREST_H

/* How many letters have to be inserted, removed, replaced or swapped; large for long names. */
unsigned name_distance(const char *a, const char *b);

#endif
