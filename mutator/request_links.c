/* SPDX-License-Identifier: MIT */
/*
 * request_links.c - snippets of one instance at the parts of points: sites are
 * found or made, links added and taken back. Nothing here stops the target or
 * writes code.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/reloads.h"
#include "mutator/request.h"

enum { SITE_LINKS_MAX = 500 };

/* Nothing leads to it, nothing ever did, and nobody wants anything of it. */
static bool site_is_fresh(const struct site *site)
{
	return site->state == SITE_PLANNED && !site->touched && !site->entered && !site->listed &&
	       !site->links && !site->queued && !site->spent && !site->guests;
}

void request_let_go(struct session *s, struct site *site)
{
	struct site *host = site->host;

	if (!site_is_fresh(site))
		return;
	site_free(s, site);
	if (host && site_is_fresh(host))
		site_free(s, host);
}

/* The host of a part's window is a further part of the point, without a snippet. */
static int link_host(struct session *s, struct instance *i, struct site *host,
		     const struct point *p, struct dinst_error *e)
{
	const struct snippet nothing = {.kind = SNIPPET_NONE};
	const struct point part = {
		.kind = p->kind, .part = UINT16_MAX, .place = PLACE_BEFORE, .live = arch_all_live};

	if (!site_is_in_place(s, host))
		reloads_revert(s, host->module);
	return site_link(s, host, &part, &nothing, i, e);
}

int request_site(struct request *r, struct module *m, struct place *place,
		 const struct function_plan *plan, const struct point *p, struct site **out,
		 struct dinst_error *e)
{
	struct session *s = r->session;
	int status = site_make(s, m, place, plan, (unsigned)p->window, out, e);

	if (status >= 0 && !site_is_in_place(s, *out))
		reloads_revert(s, m);
	return status;
}

int request_link(struct request *r, struct instance *i, struct site *site, const struct point *p,
		 const struct snippet *snippet, struct dinst_error *e)
{
	const struct snippet nothing = {.kind = SNIPPET_NONE};
	struct session *s = r->session;
	int status;

	if (p->place == PLACE_BYPASS)
		snippet = &nothing;
	if (site->links >= SITE_LINKS_MAX)
		return dinst_fail(e, DINST_UNSUPPORTED,
				  "%u pieces of code meet in %s at %#llx: ask for one instance for "
				  "all (without each), or for fewer",
				  site->links, site->module->name,
				  (unsigned long long)site->key.start);
	status = site_link(s, site, p, snippet, i, e);
	return status < 0 || !site->host ? status : link_host(s, i, site->host, p, e);
}

void request_unlink_only(struct session *s, struct instance *i, const struct link *mark)
{
	while (i->links != mark) {
		struct link *l = i->links;
		struct site *site = l->site;

		i->links = l->next_instance;
		i->link_count--;
		site_unlink(s, l);
		if (site_is_fresh(site))
			site_free(s, site);
	}
}

void request_unlink(struct session *s, struct instance *i, const struct link *mark)
{
	request_unlink_only(s, i, mark);
	site_update_all(s);
}

/* The end of the point whose links begin at l: behind its first part. */
static struct link *behind_point(struct link *l, bool *foreign, enum refusal *why)
{
	*foreign = false;
	for (bool last = false; l && !last; l = l->next_instance) {
		*foreign |= l->site->foreign;
		if (l->site->small_stack)
			*why = REFUSAL_STACK;
		if (l->site->unwritable)
			*why = REFUSAL_UNWRITABLE;
		last = !l->part;
	}
	return l;
}

void request_drop_points(struct session *s, struct instance *i, const struct function_ref *f,
			 enum refusal why)
{
	struct dinst_error ignored = {0};
	struct link **p = &i->links;

	while (*p) {
		bool foreign;
		enum refusal here = why;
		struct link *l = *p, *end = behind_point(l, &foreign, &here), *next;
		const struct function_ref own = {.module = l->site->module,
						 .index = l->site->function};

		if (!foreign) {
			while (*p != end)
				p = &(*p)->next_instance;
			continue;
		}
		*p = end;
		for (; l != end; l = next) {
			next = l->next_instance;
			i->link_count--;
			site_unlink(s, l);
		}
		request_refuse(i, f ? f : &own, here, NULL, &ignored);
	}
}

size_t request_parts(const struct function_plan *plan, size_t n)
{
	size_t count = 1;

	while (n + count < plan->point_count && plan->points[n + count].part)
		count++;
	return count;
}
