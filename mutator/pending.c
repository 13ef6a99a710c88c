/* SPDX-License-Identifier: MIT */
/*
 * pending.c - what could not be done at once is tried again.
 *
 * Two things wait: foci for their module, which costs a look at the maps, and
 * windows for their threads to leave, which costs a stop of the target. So
 * modules are looked for often, and windows after growing pauses.
 */
#include <stdlib.h>

#include "mutator/request.h"
#include "mutator/threads.h"

static const uint64_t PAUSE_MIN_NS = UINT64_C(50000000);
static const uint64_t PAUSE_MAX_NS = UINT64_C(5000000000);

/*
 * What nobody asked for just now costs the target one part in so many of its
 * time, at most: with tens of thousands of mappings a look at the maps, which
 * holds up whoever maps memory, and a stop take tens of milliseconds each.
 */
static const uint64_t SHARE = 20;

static bool site_waits(const struct site *site)
{
	return site->state == SITE_PLANNED && site->links;
}

bool request_has_pending(struct session *s)
{
	if (!s->maybe_pending)
		return false;
	for (const struct instance *i = s->instances; i; i = i->next)
		if (i->waiting)
			return true;
	for (size_t b = 0; b < s->site_buckets; b++)
		for (const struct site *site = s->site_hash[b]; site; site = site->next_hash)
			if (site_waits(site))
				return true;
	s->maybe_pending = false;
	return false;
}

bool request_modules_due(const struct session *s)
{
	return clock_ns() - s->modules_ns >= s->modules_cost_ns * SHARE;
}

/* A failure leaves the rest for the next time: changes_seen says that there is something. */
static size_t begin_waiting(struct session *s)
{
	struct dinst_error e = {0};
	unsigned changes;
	size_t began = 0;
	bool failed = false;

	if (session_update_modules(s, &e) < 0 || s->changes_seen == s->module_changes)
		return 0;
	changes = s->module_changes;
	for (struct instance *i = s->instances; i; i = i->next) {
		int status = 0;

		dinst_error_clear(&e);
		if (i->waiting)
			status = request_begin(s, i, &began, &e);
		failed |= status < 0 && status != DINST_NO_MODULE && status != DINST_NO_FUNCTION;
	}
	if (!failed)
		s->changes_seen = changes;
	return began;
}

/* A window may wait for who is in code that was removed, and comes back to a call in it (batch.c). */
static bool is_come_back_to(const struct session *s)
{
	for (const struct site *site = s->retired; site; site = site->next_queued)
		if (site_is_come_back_to(site))
			return true;
	return false;
}

static size_t retry_windows(struct session *s)
{
	struct dinst_error ignored = {0};
	struct batch_result result = {0};
	struct flush_result flushed;
	struct site **sites = calloc(s->site_count + 1, sizeof(struct site *));
	bool *foreign = calloc(s->site_count + 1, sizeof(*foreign));
	size_t count = 0;

	for (size_t b = 0; sites && foreign && b < s->site_buckets; b++)
		for (struct site *site = s->site_hash[b]; site; site = site->next_hash)
			if (site_waits(site))
				sites[count++] = site;
	/* Those that wait have links: a flush leaves them. */
	if (count && is_come_back_to(s))
		removal_flush(s, &flushed, &ignored);
	dinst_error_clear(&ignored);
	if (count && batch_apply(s, sites, count, foreign, &result, &ignored) >= 0)
		request_drop_foreign(NULL, s, sites, foreign, count);
	free(foreign);
	free(sites);
	return result.patched;
}

size_t request_retry_pending(struct session *s)
{
	struct dinst_error ignored = {0};
	size_t began;

	if (session_check(s, &ignored) < 0)
		return 0;
	began = begin_waiting(s);
	return began + retry_windows(s);
}

void request_poll(struct session *s)
{
	struct dinst_error ignored = {0};
	const uint64_t stopped = s->stops_ns;
	uint64_t now = clock_ns(), taken, pause;
	bool due = s->retry_pause_ns && now >= s->retry_ns;

	if (session_check(s, &ignored) < 0)
		return;
	threads_poll(s);
	/* A failure is not repeated more often than windows are. */
	if ((s->changes_seen == s->module_changes || due || !s->retry_pause_ns) &&
	    request_modules_due(s))
		begin_waiting(s);
	if (s->retry_pause_ns && !due)
		return;
	/* The first time something waits: soon, then ever later while nothing comes of it. */
	if (!s->retry_pause_ns || retry_windows(s))
		s->retry_pause_ns = PAUSE_MIN_NS;
	else
		s->retry_pause_ns *= 2;
	if (s->retry_pause_ns > PAUSE_MAX_NS)
		s->retry_pause_ns = PAUSE_MAX_NS;
	/* Of what has waited each may have been tried in a stop of its own. */
	taken = s->stops_ns - stopped;
	pause = (taken > s->last_stop_ns ? taken : s->last_stop_ns) * SHARE;
	s->retry_ns = clock_ns() + (pause > s->retry_pause_ns ? pause : s->retry_pause_ns);
}
