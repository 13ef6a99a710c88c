/* SPDX-License-Identifier: MIT */
/*
 * site_links.c - what runs at a site: the list of its links, and turning its
 * switch to a body that does what the list says.
 *
 * All of it while the target runs: a body is whole before the switch leads to
 * it, and the switch is turned by one aligned store. What the switch led to
 * before is never freed here where a thread may be inside: it is queued.
 */
#include <assert.h>
#include <stdlib.h>

#include "mutator/body.h"

/* --------------------------------------------------------------- switch */

void site_turn_head(struct site *site, const struct body *head, taddr_t target)
{
	const taddr_t at = head->code;
	uint64_t value;
	int status = arch_switch_value(at, target, &value);

	/* Both lie in one arena: it always reaches. */
	assert(status == ARCH_OK && !(at & (ARCH_SWITCH_SIZE - 1)));
	place_store(site->place, at, value);
}

void site_turn(struct site *site)
{
	taddr_t target = 0;

	if (!site->head)
		return;
	if (site->gated)
		target = site->gate;
	else if (!site->body)
		target = site->base;
	else if (site->body != site->head)
		target = site->body->code;
	site_turn_head(site, site->head, target);
}

/* ---------------------------------------------------------------- links */

/* In which order the kinds of points run where they are at one place. */
static unsigned rank_of(enum point_kind kind)
{
	static const uint8_t ranks[POINT_KINDS] = {
		[POINT_ENTRY] = 0,	[POINT_BLOCK] = 1,	 [POINT_EDGE] = 2,
		[POINT_LOOP_ENTRY] = 2, [POINT_LOOP_ROUND] = 2,	 [POINT_LOOP_EXIT] = 2,
		[POINT_AFTER] = 3,	[POINT_INSTRUCTION] = 4, [POINT_LOAD] = 5,
		[POINT_STORE] = 5,	[POINT_CALL] = 6,	 [POINT_EXIT] = 7,
	};

	return ranks[kind];
}

/* Flags are set before anything is measured, and cleared behind that (enum mdl_role). */
static uint32_t order_of(const struct link *l)
{
	return (uint32_t)l->insn << 24 | (uint32_t)l->place << 16 | rank_of(l->kind) << 8 |
	       l->snippet.rank.role;
}

/* True if `l`, which is there already, stays in front of the new one. */
static bool goes_first(const struct link *l, const struct link *new)
{
	return new->snippet.rank.prepend ? order_of(l) < order_of(new)
					 : order_of(l) <= order_of(new);
}

static void note_change(struct session *s, struct site *site)
{
	if (site->changed)
		return;
	site->changed = true;
	site->next_changed = s->changed;
	site->changed_at = &s->changed;
	if (s->changed)
		s->changed->changed_at = &site->next_changed;
	s->changed = site;
}

void site_forget_change(struct site *site)
{
	if (!site->changed)
		return;
	*site->changed_at = site->next_changed;
	if (site->next_changed)
		site->next_changed->changed_at = site->changed_at;
	site->changed = false;
}

/* Into the site's list, at its place. */
static void enter(struct link *link)
{
	struct link **at = &link->site->first_link;

	count_place_choose(link);
	while (*at && goes_first(*at, link))
		at = &(*at)->next;
	link->next = *at;
	*at = link;
}

static void leave(struct link *link)
{
	struct link **at = &link->site->first_link;

	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
}

int site_link(struct session *s, struct site *site, const struct point *p,
	      const struct snippet *snippet, struct instance *instance, struct dinst_error *e)
{
	struct link *link = calloc(1, sizeof(*link));

	if (!link)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	*link = (struct link){
		.site = site,
		.instance = instance,
		.snippet = *snippet,
		.point_live = p->live,
		.point_insn = p->insn,
		.place = (uint8_t)p->place,
		.kind = (uint8_t)p->kind,
		.part = p->part != 0,
	};
	enter(link);
	site->links++;
	snippet_hold(snippet, site->place);
	link->next_instance = instance->links;
	instance->links = link;
	instance->link_count++;
	note_change(s, site);
	return 0;
}

void site_replace_code(struct session *s, struct link *link, struct snippet_code *code)
{
	snippet_code_ref(code);
	snippet_code_unref(link->snippet.code);
	link->snippet.code = code;
	/* What it does may be more than to count. */
	if (link->insn != link->point_insn) {
		leave(link);
		enter(link);
	}
	note_change(s, link->site);
}

void site_unlink(struct session *s, struct link *link)
{
	struct site *site = link->site;

	leave(link);
	site->links--;
	snippet_release(&link->snippet, site->place);
	free(link);
	note_change(s, site);
}

/* --------------------------------------------------------------- bodies */

/* Nothing leads to the site's code, and nothing ever did. */
static bool is_unreached(const struct site *site)
{
	return site->state == SITE_PLANNED && !site->touched && !site->entered;
}

/* A head with what is linked now, and the patches that lead to it. */
static int lead_to_head(struct session *s, struct site *site, struct body **head,
			struct dinst_error *e)
{
	int status = body_write(s, site, true, head, e);

	if (status < 0)
		return status;
	status = site_lead_to(site, (*head)->code, e);
	if (status < 0)
		body_free(*head);
	return status;
}

/* The head does not lie where a jump would have the call's first byte in it: the call moves. */
static int lead_over_call(struct session *s, struct site *site, struct body **head,
			  struct dinst_error *e)
{
	const taddr_t base = site->base;
	const size_t size = site->base_size;
	int status;

	if (s->shadow_stacks)
		return dinst_fail(e, DINST_REFUSED, "the call at the end of %#llx must not move",
				  (unsigned long long)site->key.start);
	site->shares_call = site->keeps_call = false;
	status = base_write(s, site, e);
	if (status >= 0) {
		status = lead_to_head(s, site, head, e);
		heap_free_code(site->place->heap, status < 0 ? site->base : base);
	}
	if (status < 0) {
		site->shares_call = site->keeps_call = true;
		site->base = base;
		site->base_size = size;
	}
	return status;
}

/* The window will lead to a new head. */
static int remake_head(struct session *s, struct site *site, struct dinst_error *e)
{
	struct body *head;
	int status = lead_to_head(s, site, &head, e);

	if (status == DINST_REFUSED && site->shares_call) {
		dinst_error_clear(e);
		status = lead_over_call(s, site, &head, e);
	}
	if (status < 0)
		return status;
	if (site->head)
		body_free(site->head);
	site->head = site->body = head;
	return 0;
}

/* ---------------------------------------------------------- held bodies */

static void hold(struct session *s, struct site *site, struct body *body)
{
	site->held = body;
	site->next_held = s->held;
	site->held_at = &s->held;
	if (s->held)
		s->held->held_at = &site->next_held;
	s->held = site;
}

/* Off the list; what was held. */
static struct body *let_go(struct site *site)
{
	struct body *body = site->held;

	*site->held_at = site->next_held;
	if (site->next_held)
		site->next_held->held_at = site->held_at;
	site->held = NULL;
	return body;
}

/* Nothing leads to it yet: it may be freed at once. */
void site_forget_held(struct site *site)
{
	if (site->held)
		body_free(let_go(site));
}

void site_lead_to_body(struct session *s, struct site *site, struct body *body)
{
	struct body *old = site->body;

	site->body = body;
	site_turn(site);
	if (old && old != site->head)
		removal_spend(s, old);
}

void site_turn_held(struct session *s)
{
	while (s->held) {
		struct site *site = s->held;

		site_lead_to_body(s, site, let_go(site));
	}
}

/* True if what runs is what the links say. */
static bool is_up_to_date(const struct site *site)
{
	const struct body *b = site->body;
	const struct link *l = site->first_link;

	if (!b)
		return !l;
	if (b->count != site->links)
		return false;
	for (unsigned i = 0; i < b->count; i++, l = l->next) {
		const struct body_piece *p = &b->pieces[i];
		const struct snippet *x = &p->snippet, *y = &l->snippet;

		if (p->insn != l->insn || p->place != l->place || p->kind != l->kind ||
		    x->kind != y->kind || x->counter != y->counter || x->code != y->code ||
		    x->pair != y->pair || x->start != y->start || x->argument != y->argument)
			return false;
	}
	return true;
}

int site_update(struct session *s, struct site *site, struct dinst_error *e)
{
	struct body *body = NULL;
	int status = 0;

	site_forget_held(site);
	if (!site->head || is_unreached(site)) {
		status = remake_head(s, site, e);
		if (status < 0)
			note_change(s, site);
		else
			site_forget_change(site);
		return status;
	}
	if (is_up_to_date(site)) {
		site_forget_change(site);
		return 0;
	}
	if (site->links)
		status = body_write(s, site, false, &body, e);
	if (status < 0) {
		note_change(s, site);
		return status;
	}
	if (s->holding && body)
		hold(s, site, body);
	else
		site_lead_to_body(s, site, body);
	site_forget_change(site);
	return 0;
}

void site_update_all(struct session *s)
{
	struct dinst_error ignored = {0};
	struct site *list = s->changed;

	/* Those that fail put themselves on the session's list again. */
	s->changed = NULL;
	if (list)
		list->changed_at = &list;
	while (list) {
		struct site *site = list;

		site_forget_change(site);
		/* One that was never reached and has nothing is only to be freed. */
		if (site->links || !is_unreached(site))
			site_update(s, site, &ignored);
		if (!site->links)
			removal_retire(s, site);
	}
}

/* ----------------------------------------------------- program counters */

static bool home_in_site(const struct session *s, const struct site *site, taddr_t pc,
			 taddr_t *original, size_t *pushed, bool *known)
{
	*known = true;
	if (pc - site->base < site->base_size)
		*known = base_home(s, site, site->base, pc, original, pushed);
	else if (site->head && body_contains(site->head, pc))
		*known = body_home(s, site->head, pc, original, pushed);
	else if (site->body && body_contains(site->body, pc))
		*known = body_home(s, site->body, pc, original, pushed);
	else if (site->move && body_contains(site->move->old, pc))
		*known = body_home(s, site->move->old, pc, original, pushed);
	else
		return false;
	return true;
}

bool site_home(void *session, taddr_t pc, taddr_t *original, size_t *pushed)
{
	const struct session *s = session;
	const struct site *of;
	taddr_t base;
	bool known;

	if (!place_at(s, pc))
		return false;
	of = removal_spent_base(s, pc, &base);
	if (of)
		return base_home(s, of, base, pc, original, pushed);
	for (const struct body *b = s->spent; b; b = b->next)
		if (body_contains(b, pc))
			return body_home(s, b, pc, original, pushed);
	for (const struct site *site = site_next(s, NULL); site; site = site_next(s, site))
		if (home_in_site(s, site, pc, original, pushed, &known))
			return known;
	for (const struct site *site = s->retired; site; site = site->next_queued)
		if (home_in_site(s, site, pc, original, pushed, &known))
			return known;
	return false;
}
