/* SPDX-License-Identifier: MIT */
/*
 * compact.h - moving code of sites out of pages that are nearly empty; for
 * removal.c and session.c. A part of a flush:
 *
 *   1. compact_begin() while the target runs: what stands in such pages is
 *      written anew elsewhere, and switches are turned to it;
 *   2. the flush's stop leads windows to heads that moved (restore.c);
 *   3. compact_settle(): old heads that no window leads to are queued like
 *      everything else that is old, and freed when no thread is in them;
 *   4. compact_end().
 *
 * Nothing is moved under a thread: old and new code do the same, and the old one
 * stays until a flush has proved that nobody is in it.
 */
#ifndef DINST_MUTATOR_COMPACT_H
#define DINST_MUTATOR_COMPACT_H

#include "mutator/core.h"

/* Does nothing where no heap wants it (heap_wants_compaction()). */
void compact_begin(struct session *s);
/* When every process of the family was stopped and worked on without an error. */
void compact_settle(struct session *s);
void compact_end(struct session *s);

#endif
