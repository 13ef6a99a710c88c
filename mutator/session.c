/* SPDX-License-Identifier: MIT */
/*
 * session.c - attaching to a target and the state of one session.
 *
 * Attaching reads: maps, symbol tables, frame ranges. The target is touched
 * only if an earlier mutator died and left something, which is taken out.
 */
#include <stdlib.h>
#include <string.h>

#include "inject/shadow.h"
#include "mutator/core.h"
#include "mutator/detail.h"
#include "mutator/mdl/mdl.h"
#include "mutator/stream.h"
#include "mutator/threads.h"
#include "mutator/variable.h"
#include "mutator/wall_clock.h"

/* ----------------------------------------------------------- plan cache */

struct cached_plan {
	struct image *image;
	uint32_t function;
	struct function_plan *plan;
	struct cached_plan *next;
};

enum {
	PLAN_BUCKETS = 4096,
	CLAIM_MS = 10 * 1000, /* for a mutator that is about to end */
};

struct plan_cache {
	struct cached_plan *buckets[PLAN_BUCKETS];
};

static void plans_free(struct plan_cache *cache)
{
	for (size_t b = 0; cache && b < PLAN_BUCKETS; b++) {
		struct cached_plan *next;

		for (struct cached_plan *c = cache->buckets[b]; c; c = next) {
			next = c->next;
			plan_free(c->image, c->plan);
			free(c);
		}
	}
	free(cache);
}

static size_t plan_bucket(const struct module *m, uint32_t function)
{
	return ((uintptr_t)m->image / 64 + function) % PLAN_BUCKETS;
}

const struct function_plan *session_known_plan(const struct session *s, const struct module *m,
					       uint32_t function)
{
	for (struct cached_plan *c = s->plans->buckets[plan_bucket(m, function)]; c; c = c->next)
		if (c->image == m->image && c->function == function)
			return c->plan;
	return NULL;
}

int session_plan(struct session *s, struct module *m, uint32_t function,
		 const struct function_plan **plan, struct dinst_error *e)
{
	size_t b = plan_bucket(m, function);
	struct cached_plan *c;
	int status;

	*plan = session_known_plan(s, m, function);
	if (*plan)
		return 0;
	c = calloc(1, sizeof(*c));
	if (!c)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	status = plan_function(m->image, function, &c->plan, e);
	if (status < 0) {
		free(c);
		return status;
	}
	if (s->shadow_stacks)
		shadow_refuse(m->image, c->plan);
	c->image = m->image;
	c->function = function;
	c->next = s->plans->buckets[b];
	s->plans->buckets[b] = c;
	*plan = c->plan;
	return 0;
}

int session_plan_for(struct session *s, struct module *m, uint32_t function, enum point_kind kind,
		     const struct function_plan **plan, struct dinst_error *e)
{
	int status = session_plan(s, m, function, plan, e);

	if (status < 0 || (*plan)->level >= point_kind_level(kind))
		return status;
	for (struct cached_plan *c = s->plans->buckets[plan_bucket(m, function)]; c; c = c->next) {
		if (c->plan != *plan)
			continue;
		status = plan_add_detail(m->image, c->plan, e);
		if (status >= 0 && s->shadow_stacks)
			shadow_refuse(m->image, c->plan);
		return status;
	}
	return 0;
}

void session_look_at_shadows(struct session *s)
{
	if (s->shadow_stacks || !s->shadow_offered)
		return;
	/* Before the loader has run nobody knows whether it will turn them on. */
	s->shadow_stacks = s->state == SESSION_HELD || shadow_is_on("/proc", s->pid);
	for (size_t b = 0; s->shadow_stacks && b < PLAN_BUCKETS; b++)
		for (struct cached_plan *c = s->plans->buckets[b]; c; c = c->next)
			shadow_refuse(c->image, c->plan);
}

/* ------------------------------------------------------------- sessions */

static int load_library(struct session *s, struct dinst_error *e)
{
	int status = mdl_library_create(&s->library, e);

	return status < 0 ? status
			  : mdl_library_load_installed(s->library, &s->library_warnings, e);
}

int session_load_mdl(struct session *s, const char *name, const char *text, size_t size,
		     struct dinst_error *e)
{
	const int status = mdl_load_text(s->library, name, text, size, e);

	mdl_library_sweep(s->library);
	return status;
}

int session_attach(pid_t pid, const char *name, struct session **out, struct dinst_error *e)
{
	struct session *s = calloc(1, sizeof(*s));
	int status;

	if (!s)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	s->pid = pid;
	s->next_id = 1;
	s->plans = calloc(1, sizeof(*s->plans));
	if (!s->plans) {
		status = dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		goto fail;
	}
	status = target_open(pid, &s->target, e);
	if (status < 0)
		goto fail;
	status = target_claim(s->target, CLAIM_MS, e);
	if (status < 0)
		goto fail;
	s->incarnation = target_incarnation(s->target);
	s->shadow_offered = shadow_offered("/proc");
	session_look_at_shadows(s);
	if (name && *name)
		strncpy(s->name, name, sizeof(s->name) - 1);
	else
		strncpy(s->name, target_name(s->target), sizeof(s->name) - 1);
	session_progress(s, "reading the target's modules", 0, 0);
	status = module_list_read(s->target, &s->modules, e);
	/* In the middle of an exec nothing is mapped, or what was looked at is gone already. */
	if (status >= 0 &&
	    (!module_count(s->modules) || target_incarnation(s->target) != s->incarnation))
		status = dinst_fail(e, target_alive(s->target) ? DINST_BUSY : DINST_GONE,
				    "process %d is executing another program, or ends; try again",
				    (int)pid);
	if (status < 0)
		goto fail;
	if (!ticks_may_do())
		s->wall_clock = wall_clock_make(s->target, NULL);
	modules_tell_parks(s->modules, s->target);
	status = load_library(s, e);
	if (status < 0)
		goto fail;
	*out = s;
	return 0;

fail:
	session_free(s);
	return status;
}

/* Counters go with the places; code is ours. */
static void body_release(struct body *b)
{
	for (unsigned i = 0; b && i < b->count; i++)
		snippet_code_unref(b->pieces[i].snippet.code);
	free(b);
}

static void site_release(struct site *site)
{
	struct link *next;

	for (struct link *l = site->first_link; l; l = next) {
		next = l->next;
		snippet_code_unref(l->snippet.code);
		free(l);
	}
	body_release(site->held);
	if (site->body != site->head)
		body_release(site->body);
	body_release(site->head);
	if (site->move)
		body_release(site->move->old);
	free(site->move);
	free(site);
}

static void sites_free(struct session *s)
{
	struct site *next;

	/* Those that are still in the table are freed with it, and dropped ones with theirs. */
	for (struct site *site = s->retired; site; site = next) {
		next = site->next_queued;
		if (site->state == SITE_DRAINING && !site->dropped)
			site_release(site);
	}
	for (struct site *site = s->dropped; site; site = next) {
		next = site->next_hash;
		site_release(site);
	}
	for (size_t b = 0; b < s->site_buckets; b++)
		for (struct site *site = s->site_hash[b]; site; site = next) {
			next = site->next_hash;
			site_release(site);
		}
	free(s->site_hash);
}

static void instances_free(struct instance *list)
{
	struct instance *next;

	for (struct instance *i = list; i; i = next) {
		next = i->next;
		instance_let_go(i);
		instance_free(i);
	}
}

void session_free(struct session *s)
{
	struct body *next_body;
	struct place *next_place;

	if (!s)
		return;
	for (struct body *b = s->spent; b; b = next_body) {
		next_body = b->next;
		body_release(b);
	}
	removal_forget_spent(s);
	sites_free(s);
	threads_release(s->threads);
	instances_free(s->instances);
	instances_free(s->hidden);
	instances_release(s);
	for (struct place *p = s->places; p; p = next_place) {
		next_place = p->next;
		place_free(p, true);
	}
	family_release(s);
	while (s->late_count)
		target_close(s->late[--s->late_count]);
	free(s->late);
	hidden_free(s->unseen);
	plans_free(s->plans);
	mdl_library_free(s->library);
	threads_free(s->threads);
	stream_free(s->stream);
	wall_clock_free(s->wall_clock);
	free(s->pages);
	free(s->library_warnings);
	if (s->modules)
		module_list_free(s->modules);
	if (s->target)
		target_close(s->target);
	free(s);
}

int session_check(struct session *s, struct dinst_error *e)
{
	uint64_t incarnation;
	int status;

	if (s->state == SESSION_DETACHED)
		return dinst_fail(e, DINST_GONE, "session %s is detached", s->name);
	if (s->state == SESSION_EXITED || !target_alive(s->target)) {
		s->state = SESSION_EXITED;
		return dinst_fail(e, DINST_GONE,
				  "process %d (%s) has ended; its last values can be read",
				  (int)s->pid, s->name);
	}
	incarnation = target_incarnation(s->target);
	if (s->state != SESSION_EXECED && incarnation == s->incarnation)
		return place_check(s, e);
	if (s->state != SESSION_EXECED &&
	    !target_incarnations_compare(incarnation, s->incarnation)) {
		status = target_may_be_read(s->target, e);
		return status ? status
			      : dinst_fail(
					e, DINST_GONE,
					"process %d (%s) is ending, or is executing another program just now",
					(int)s->pid, s->name);
	}
	s->state = SESSION_EXECED;
	return dinst_fail(e, DINST_GONE,
			  "process %d has executed another program; detach and attach again",
			  (int)s->pid);
}

int session_update_modules(struct session *s, struct dinst_error *e)
{
	const uint64_t began = clock_ns();
	bool changed = false;
	int status = module_list_update(s->modules, s->target, &changed, e);

	s->modules_ns = clock_ns();
	s->modules_cost_ns = s->modules_ns - began;
	if (status < 0)
		return status;
	if (changed) {
		s->module_changes++;
		s->retry_pause_ns = 0;
		site_drop_gone(s);
		modules_tell_parks(s->modules, s->target);
	}
	return 0;
}

void session_note_stop(struct session *s, const struct stop_report *report, uint64_t *stop_ns)
{
	s->last_stop_ns = report->stop_ns;
	s->stop_count++;
	s->stops_ns += report->stop_ns;
	if (report->stop_ns > s->longest_stop_ns)
		s->longest_stop_ns = report->stop_ns;
	if (stop_ns && report->stop_ns > *stop_ns)
		*stop_ns = report->stop_ns;
}

void session_progress(struct session *s, const char *text, size_t done, size_t total)
{
	if (s->progress)
		s->progress(s->progress_arg, text, done, total);
}

int session_wanted(const struct session *s, struct dinst_error *e)
{
	if (!s->deserted || !s->deserted(s->progress_arg))
		return 0;
	return dinst_fail(e, DINST_DAEMON, "the daemon that asked for it has ended");
}

size_t session_points(const struct session *s)
{
	size_t points = 0;

	for (const struct instance *i = s->instances; i; i = i->next) {
		size_t counting, pending;

		/* What several share is there once. */
		if (i->source)
			continue;
		instance_points(i, &counting, &pending);
		points += counting;
	}
	return points;
}

void session_heap(const struct session *s, struct heap_stats *sum)
{
	memset(sum, 0, sizeof(*sum));
	for (const struct place *p = s->places; p; p = p->next) {
		struct heap_stats stats;

		heap_get_stats(p->heap, &stats);
		sum->used += stats.used;
		sum->code_bytes += stats.code_bytes;
		sum->counter_bytes += stats.counter_bytes;
		sum->resident += stats.resident;
		sum->capacity += stats.capacity;
	}
	sum->counter_most = s->heaps.counter_most;
	sum->high_water = s->heaps.used_most;
}

size_t session_heap_bytes(const struct session *s)
{
	struct heap_stats sum;

	session_heap(s, &sum);
	return sum.used;
}
