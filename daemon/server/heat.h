/* SPDX-License-Identifier: MIT */
/*
 * heat.h - distributions over time, for a heat map: how many values came into which bucket
 * between one snapshot and the next, in constant memory.
 *
 * A column is what came between two snapshots, HEAT_COLUMN_MS apart at least; HEAT_COLUMNS
 * of them are kept of each distribution, HEAT_MAX distributions of a session. Rows are
 * the bounds of distribution_bounds(), and one for what is above them.
 */
#ifndef DINST_DAEMON_HEAT_H
#define DINST_DAEMON_HEAT_H

#include "daemon/server/server.h"

enum { HEAT_COLUMNS = 180, HEAT_COLUMN_MS = 900, HEAT_MAX = 32 };

/* Rows of `read`, as they are now. */
void heat_take(struct session *se, json_t *rows);
/*
 * {id, ns, bounds: [...], columns: [{time (ms since 1970, its end), ms, counts: [[row, count]...]}]};
 * NULL: there is no such distribution.
 */
json_t *heat_json(const struct session *se, json_int_t id);
/* With the session, or with its mutator. */
void heat_close(struct session *se);

#endif
