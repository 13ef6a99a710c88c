/* SPDX-License-Identifier: MIT */
/*
 * metrics.h - the library of metrics as rows of a listing, for both ends of the
 * socket: the mutator lists a session's library, the client what would be there.
 */
#ifndef DINST_DAEMON_METRICS_H
#define DINST_DAEMON_METRICS_H

#include <jansson.h>

#include "mutator/mdl/mdl.h"

/*
 * An array, metrics first, then the constraints that belong to no metric, by name:
 *
 *   kind         "metric" or "constraint"
 *   metric       the name to insert it by; null for a constraint
 *   constraint   its name, for a constraint
 *   unit         text or null
 *   constraints  the paths of foci that it can be restricted to, or that it matches
 *   file         as it was given
 *   description, type, aggregate, style
 *
 * New reference; NULL if there is no memory.
 */
json_t *metric_rows(const struct mdl_library *l);

#endif
