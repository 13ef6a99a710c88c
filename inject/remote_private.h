/* SPDX-License-Identifier: MIT */
/*
 * remote_private.h - what remote.c, remote_place.c and remote_victim.c share.
 */
#ifndef DINST_INJECT_REMOTE_PRIVATE_H
#define DINST_INJECT_REMOTE_PRIVATE_H

#include "inject/control.h"
#include "inject/remote.h"

/* Unused bytes behind a module's code, in executable memory. */
struct remote_tail {
	taddr_t address;
	size_t size;
	uint64_t offset; /* in the file */
};

/* The biggest tail that is zero, in a stop; DINST_REFUSED if there is none. */
int remote_find_tail(struct stop *s, struct remote_tail *best, struct dinst_error *e);

/* True if all of a tail, which was found in this stop, can be read and is zero. */
bool remote_tail_is_zero(const struct stop *s, taddr_t address, size_t size);

/*
 * The thread that may best be made to run system calls, ready to do so: out of
 * restartable sequences, seccomp suspended. Then *harmless is the call that its program has to make
 * instead of each (remote.c), else -1. DINST_REFUSED says why there is none;
 * DINST_BUSY that all dispatch their system calls to themselves just now.
 */
int remote_choose_victim(struct stop *s, struct held **victim, long *harmless,
			 struct dinst_error *e);

/* The words for that. */
int remote_is_dispatched(const struct stop *s, struct dinst_error *e);

#endif
