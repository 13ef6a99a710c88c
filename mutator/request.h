/* SPDX-License-Identifier: MIT */
/*
 * request.h - a request in the making; for request.c and pending.c only.
 *
 *   1. request_find(), request_prepare() for each function: everything is
 *      written, nothing leads to it;
 *   2. request_apply(): one stop.
 */
#ifndef DINST_MUTATOR_REQUEST_H
#define DINST_MUTATOR_REQUEST_H

#include "mutator/core.h"

struct request {
	struct session *session;
	const struct raw_metric *metric;
	struct instance **instances;
	size_t count, room;
	struct site **sites; /* to be patched in this batch */
	size_t site_count, site_room;
	size_t queue_left; /* a longer queue than this is worth a flush where there is no room */
	uint64_t stop_ns;
};

/* The functions that a focus names. */
int request_find(const struct session *s, const char *focus, struct function_ref **functions,
		 size_t *count, struct dinst_error *e);

/* Writes what one function needs for instance i; the window stays untouched for now. */
int request_prepare(struct request *r, struct instance *i, const struct function_ref *f,
		    struct dinst_error *e);

/* Patches what was prepared; windows that must wait stay planned. */
int request_apply(struct request *r, struct dinst_error *e);

/*
 * Somebody else changed the bytes of those sites that are foreign[]: their
 * points, of these instances and all of the session's, are refused after all.
 * Their sites go through the queue, since a thread may have been moved into
 * the base before the bytes were compared.
 */
void request_drop_foreign(struct session *s, struct instance **instances, size_t count,
			  struct site **sites, const bool *foreign, size_t site_count);

#endif
