/* SPDX-License-Identifier: MIT */
/*
 * harness_session.h - the mutator's core in the test's own process: no daemon,
 * no protocol. Every function fails the test itself when something goes wrong.
 *
 *   1. harness_start(h, ...) as ever;
 *   2. session_begin(h);
 *   3. session_insert(), session_value(), session_remove(), session_flush_all();
 *   4. session_end(h): detaches, expects nothing left, frees; then harness_verify().
 */
#ifndef DINST_TESTS_LIVE_HARNESS_SESSION_H
#define DINST_TESTS_LIVE_HARNESS_SESSION_H

#include "mutator/core.h"
#include "tests/live/harness.h"

struct session *session_begin(struct harness *h);
void session_end(struct session *s);

/* Inserts `calls` at one focus (a glob makes one instance); returns its id. */
unsigned session_insert(struct session *s, const char *focus);
/* The same; returns 0 or the error's code instead of failing, text in *e. */
int session_try_insert(struct session *s, const char *focus, bool each, size_t *count,
		       unsigned *first_id, struct dinst_error *e);
/* The same for one instance, asked again while the answer is busy, as a user would. */
int session_insert_patiently(struct session *s, const char *focus, unsigned *id,
			     struct dinst_error *e);
/* A metric by its name, or one of the test's own, at one focus; asked again while it is busy. */
const struct instance *session_insert_metric(struct session *s, const char *metric,
					     const char *focus,
					     const struct insert_options *options);
const struct instance *session_insert_raw(struct session *s, const struct raw_metric *metric,
					  const char *focus);
/* Counts another kind of point than the metrics that have a name. */
unsigned session_insert_kind(struct session *s, const char *focus, enum point_kind kind);
int session_try_insert_kind(struct session *s, const char *focus, enum point_kind kind,
			    unsigned *id, struct dinst_error *e);
uint64_t session_value(struct session *s, unsigned id);
size_t session_pending(struct session *s, unsigned id);
size_t session_refused(struct session *s, unsigned id);
void session_remove(struct session *s, unsigned id);
void session_flush_all(struct session *s);

/* Loads the metric deepN, whose code at the entry of a function needs so many values at a time. */
void session_load_deep(struct session *s, unsigned depth);

/* Address in the target of a function of its main module. */
taddr_t session_address(struct session *s, const char *function);

/* Tells the target to do a round of work ("go N") and waits for its line "done". */
void session_go(struct harness *h, unsigned long n);

/*
 * False, and says so, where the kernel does not trust the processor's clock: events cannot be
 * recorded there, and requests for them are refused. The `whole` program is left out then (it is
 * counted as one that was skipped), or the test, which calls skip().
 */
bool harness_has_clock(bool whole);

#endif
