/* SPDX-License-Identifier: MIT */
/*
 * reloads.h - libraries that the target unloads, or unloads and loads again, while instances are in
 * them: what was put in is gone with their text, and the values would stand still unseen.
 *
 *   1. reloads_look() in front of whatever shows values, and where the mutator is awake anyway;
 *   2. what is to be put in again waits then, as windows of new requests do (request_has_pending()).
 *
 * Runs while the target runs, and fails silently: what cannot be seen now is looked at again.
 */
#ifndef DINST_MUTATOR_RELOADS_H
#define DINST_MUTATOR_RELOADS_H

#include "mutator/core.h"

/* Of one session, by CLOCK_MONOTONIC. All zeros at first. */
struct reloads {
	uint64_t looked_ns, told_ns;
};

/* `kind` of an event, "reloaded" or "unloaded", and what it says. */
typedef void (*reloads_tell)(void *arg, const char *kind, const char *text);

/*
 * Compares one window of each module that something is in with what was written there, once a second at
 * most, and tells what has become of modules since, whoever has seen it. That a library was loaded again is
 * told once a minute at most: some do so all the time.
 */
void reloads_look(struct reloads *r, struct session *s, reloads_tell tell, void *arg);

/* A window of the module is the original again: so are others; all of those wait for being patched. */
void reloads_revert(struct session *s, struct module *m);

#endif
