/* SPDX-License-Identifier: MIT */
/*
 * sampler.h - histories of a session's values: asking the mutator now and then,
 * and keeping what it says in constant memory.
 *
 * A session makes one with its first insert; it asks as often as its finest
 * history has bins, never more than 1 % of the time, and not at all while nothing
 * is inserted. Histories outlive the target and the mutator; they end with the
 * session.
 */
#ifndef DINST_DAEMON_SAMPLER_H
#define DINST_DAEMON_SAMPLER_H

#include "daemon/server/server.h"

enum { SAMPLER_RECORDS = 4096 }; /* values of a session that are kept, 8 KiB each at most */

/* Something was inserted: values come from now on. */
void sampler_arm(struct session *se);
/* The mutator died: what was inserted is gone. */
void sampler_lost(struct session *se);
/* With the session. */
void sampler_close(struct session *se);
/* Answers `history` {ids, since}, after a last look where the mutator is idle. */
void sampler_answer(struct session *se, struct request *r, json_t *params);
/* Rows of `history` as they are, without asking; unknown ids are left out. */
json_t *sampler_rows(const struct session *se, json_t *ids, json_int_t since);
/* How long it has waited for answers of the mutator, all together. */
uint64_t sampler_asked_ns(const struct session *se);
/* Adds to a row of `ls`: sampled_ms, how often; sample_us, what one takes. */
void sampler_tell(const struct session *se, json_t *row);

#endif
