/* SPDX-License-Identifier: MIT */
/*
 * parks.h - what is known of programs that switch between tasks of their own
 * (target_set_parks()), asked where stacks are copied. A library that came since
 * the modules were last looked at, or that only a child has loaded, may have the switch:
 * a snapshot with code of a file that nobody has looked at counts as unsearched, once.
 */
#ifndef DINST_MUTATOR_PARKS_H
#define DINST_MUTATOR_PARKS_H

#include "mutator/core.h"

/* True if the bytes hold the name of a function that switches between tasks. PARKS_NAME_MAX: no name is longer. */
enum { PARKS_NAME_MAX = 16 };
bool parks_are_named(const uint8_t *bytes, size_t size);

/* As snapshot_take(); in doubt everything is hit, and s->unknown_code says so. */
int parks_snapshot(struct session *s, struct stop *stop, struct snapshot **out,
		   struct dinst_error *e);

/*
 * Looks at the files of one process of the family that nobody has looked at; it runs. What
 * cannot be looked at for want of memory stays unknown.
 */
void parks_learn(struct session *s, const struct target *member);

#endif
