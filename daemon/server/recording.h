/* SPDX-License-Identifier: MIT */
/*
 * recording.h - the last recording of a session, as folded stacks, for the page to draw.
 *
 * Whoever recorded leaves it by the method `recording`; one is kept of each session,
 * RECORDING_MAX bytes of stacks at most.
 */
#ifndef DINST_DAEMON_RECORDING_H
#define DINST_DAEMON_RECORDING_H

#include "daemon/server/server.h"

enum { RECORDING_MAX = 1 << 20 };

/* params {title, unit, folded}; DINST_USAGE, DINST_REFUSED if it is too long. */
int recording_keep(struct session *se, json_t *params, struct dinst_error *e);
/* {title, unit, time (ms since 1970)} */
json_t *recording_about(const struct session *se);
/* The same with `folded`. */
json_t *recording_json(const struct session *se);

#endif
