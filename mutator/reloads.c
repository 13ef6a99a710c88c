/* SPDX-License-Identifier: MIT */
/*
 * reloads.c - sees that a library was unloaded, or loaded anew to its place, and tells it.
 *
 * One window of each module stands for all of it. Reads the target, and marks sites and modules;
 * never writes there and never stops it.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "mutator/reloads.h"
#include "mutator/request.h"

static const uint64_t PERIOD_NS = UINT64_C(1000000000);
static const uint64_t TELL_AGAIN_NS = UINT64_C(60000000000);

/* ---------------------------------------------------------------- seeing it */

/*
 * The page of a window that is the original again is the file's: a mapping that is new. Else somebody has
 * written the original there, and would do so again. True where nobody can tell.
 */
static bool is_loaded_anew(const struct session *s, const struct site *site)
{
	const taddr_t page = (taddr_t)sysconf(_SC_PAGESIZE);
	const int pagemap = maps_open_pagemap(target_memory_tid(s->target));
	bool copy = false;

	if (pagemap < 0)
		return true;
	copy = maps_page_is_copy(pagemap, site->key.start / page * page) > 0;
	close(pagemap);
	return !copy;
}

void reloads_revert(struct session *s, struct module *m)
{
	for (size_t b = 0; b < s->site_buckets; b++)
		for (struct site *site = s->site_hash[b]; site; site = site->next_hash) {
			if (site->module != m || site_is_in_place(s, site))
				continue;
			if (site->links && m->news == MODULE_IS_OLD && is_loaded_anew(s, site))
				m->news = MODULE_IS_RELOADED;
			site_revert(s, site);
		}
}

/* False: no module has any. */
static bool pick_probes(struct session *s)
{
	bool any = false;

	for (size_t i = 0; i < module_count(s->modules); i++)
		module_get(s->modules, i)->probe = NULL;
	for (size_t b = 0; b < s->site_buckets; b++)
		for (struct site *site = s->site_hash[b]; site; site = site->next_hash) {
			/* A head that moves has two jumps that lead to it. */
			if (site->module->probe || site->state != SITE_PATCHED || !site->links ||
			    site->move)
				continue;
			site->module->probe = site;
			any = true;
		}
	return any;
}

/*
 * True if something else is where we have written. Where nothing is the library may be on its way back:
 * it is believed the second time.
 */
static bool has_changed(const struct session *s, struct module *m)
{
	const struct patch *p = &m->probe->patches[m->probe->patch_count - 1];
	const bool was_missing = m->missing;
	uint8_t now[ARCH_PATCH_MAX];

	m->missing = target_read_some(s->target, p->address, now, p->length) != p->length;
	return m->missing ? was_missing : memcmp(now, p->after, p->length) != 0;
}

/* The file may be another one, too: nothing is put into it before its maps have been looked at. */
static void look_at_modules(struct session *s)
{
	struct dinst_error ignored = {0};
	bool changed = false;

	for (size_t i = 0; i < module_count(s->modules); i++) {
		struct module *m = module_get(s->modules, i);

		if (m->probe && has_changed(s, m))
			changed = true;
	}
	if (!changed || !request_modules_due(s) || session_update_modules(s, &ignored) < 0)
		return;
	for (size_t i = 0; i < module_count(s->modules); i++) {
		struct module *m = module_get(s->modules, i);

		if (m->probe && !m->gone && !site_is_in_place(s, m->probe) &&
		    is_loaded_anew(s, m->probe))
			reloads_revert(s, m);
	}
}

/* -------------------------------------------------------------- telling it */

/* It has a point in a module with that news, or what says whether it counts has. */
static bool is_in(const struct instance *i, enum module_news news)
{
	for (const struct link *l = i->links; l; l = l->next_instance)
		if (l->site->module->news == news)
			return true;
	/* Hooks (hooks.c) are no part of that. */
	for (size_t n = 0; n < i->flag_count; n++)
		if (!i->flags[n]->raw && is_in(i->flags[n], news))
			return true;
	return false;
}

static size_t count_instances(const struct session *s, enum module_news news)
{
	size_t count = 0;

	for (const struct instance *i = s->instances; i; i = i->next)
		count += is_in(instance_source(i), news);
	return count;
}

static void describe(enum module_news news, const char *name, size_t modules, size_t instances,
		     char *text, size_t size)
{
	const bool one = modules == 1, alone = instances == 1;
	char others[32] = "";

	if (!one)
		snprintf(others, sizeof(others), " and %zu more", modules - 1);
	/* Windows are patched again in the target only (docs/safety.md). */
	if (news == MODULE_IS_RELOADED)
		snprintf(text, size,
			 "%s%s %s unloaded and loaded again while %zu %s in %s: what ran meanwhile "
			 "is not counted, nor what runs in children that were forked meanwhile; "
			 "else %s on",
			 name, others, one ? "was" : "were", instances,
			 alone ? "instance was" : "instances were", one ? "it" : "them",
			 alone ? "it counts" : "they count");
	else
		snprintf(
			text, size,
			"%s%s %s unloaded while %zu %s in %s: %s still; insert again what is to be "
			"counted when %s loaded again",
			name, others, one ? "was" : "were", instances,
			alone ? "instance was" : "instances were", one ? "it" : "them",
			alone ? "its value stands" : "their values stand",
			one ? "it is" : "they are");
}

/* Modules with that news have none any more. Removed meanwhile, instances want to know nothing. */
static bool tell_of(struct session *s, enum module_news news, reloads_tell tell, void *arg)
{
	const size_t instances = count_instances(s, news);
	const char *name = NULL;
	size_t modules = 0;
	char text[512];

	for (size_t i = 0; i < module_count(s->modules); i++) {
		struct module *m = module_get(s->modules, i);

		if (m->news != news)
			continue;
		m->news = MODULE_IS_OLD;
		if (!modules++)
			name = m->name;
	}
	if (!instances)
		return false;
	describe(news, name, modules, instances, text, sizeof(text));
	tell(arg, news == MODULE_IS_RELOADED ? "reloaded" : "unloaded", text);
	return true;
}

static bool has_news(const struct session *s, enum module_news news)
{
	for (size_t i = 0; i < module_count(s->modules); i++)
		if (module_get(s->modules, i)->news == news)
			return true;
	return false;
}

/* A process that ends has no memory any more before it is dead: that is no unloading. */
static bool is_ending(struct session *s)
{
	struct dinst_error ignored = {0};
	bool any = false;

	for (size_t i = 0; i < module_count(s->modules) && !any; i++)
		any = !module_get(s->modules, i)->gone;
	return !any || session_check(s, &ignored) < 0;
}

void reloads_look(struct reloads *r, struct session *s, reloads_tell tell, void *arg)
{
	struct dinst_error ignored = {0};
	const uint64_t now = clock_ns();

	if ((!s->site_count && !s->dropped) || now - r->looked_ns < PERIOD_NS ||
	    session_check(s, &ignored) < 0)
		return;
	r->looked_ns = now;
	if (pick_probes(s))
		look_at_modules(s);
	if (has_news(s, MODULE_IS_UNLOADED) && !is_ending(s))
		tell_of(s, MODULE_IS_UNLOADED, tell, arg);
	if ((!r->told_ns || now - r->told_ns >= TELL_AGAIN_NS) && has_news(s, MODULE_IS_RELOADED) &&
	    tell_of(s, MODULE_IS_RELOADED, tell, arg))
		r->told_ns = now;
}
