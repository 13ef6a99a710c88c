/* SPDX-License-Identifier: MIT */
/*
 * catch_up_sites.c - of a thread that stands in our own code: which site that belongs to, and whether its
 * function's exits are seen from there.
 */
#include "mutator/body.h"
#include "mutator/catch_up.h"

static const struct site *site_in(const struct site *site, taddr_t pc)
{
	const bool inside = pc - site->base < site->base_size ||
			    (site->head && body_contains(site->head, pc)) ||
			    (site->body && body_contains(site->body, pc)) ||
			    (site->move && body_contains(site->move->old, pc));

	return inside ? site : NULL;
}

const struct site *late_site_of(const struct session *s, taddr_t pc)
{
	for (const struct body *b = s->spent; b; b = b->next)
		if (body_contains(b, pc))
			return b->site;
	for (const struct site *site = site_next(s, NULL); site; site = site_next(s, site))
		if (site_in(site, pc))
			return site;
	for (const struct site *site = s->retired; site; site = site->next_queued)
		if (site_in(site, pc))
			return site;
	return NULL;
}

bool late_is_at_switch(const struct session *s, const struct site *site, taddr_t pc)
{
	if ((site->head && pc == site->head->code) || (site->move && pc == site->move->old->code))
		return true;
	for (const struct body *b = s->spent; b; b = b->next)
		if (b->is_head && b->site == site && pc == b->code)
			return true;
	return false;
}

bool late_leaves_unseen(const struct site *site, uint32_t id, taddr_t first, taddr_t last)
{
	struct arch_insn insns[WINDOW_INSNS_MAX];
	const size_t count = site_instructions(site, insns);

	for (const struct link *l = site->first_link; l; l = l->next)
		if (l->kind == POINT_EXIT && l->snippet.pair == id && l->insn < count &&
		    insns[l->insn].address >= first && insns[l->insn].address <= last)
			return true;
	return false;
}

bool late_leaves_perhaps(const struct site *site, uint32_t id, taddr_t first)
{
	struct arch_insn insns[WINDOW_INSNS_MAX];
	const size_t count = site_instructions(site, insns);

	for (size_t i = 0; i < count; i++)
		if (insns[i].flow == ARCH_FLOW_BRANCH && insns[i].address >= first &&
		    late_leaves_unseen(site, id, insns[i].address, UINT64_MAX))
			return true;
	return false;
}

bool threads_leaves_perhaps(struct session *s, const struct threads_function *functions,
			    size_t count, taddr_t pc)
{
	const struct site *site;
	size_t pushed;
	taddr_t home;

	if (!site_home(s, pc, &home, &pushed))
		return false;
	site = late_site_of(s, pc);
	if (!site || !site->held || late_is_at_switch(s, site, pc))
		return false;
	for (size_t i = 0; i < count; i++)
		if (home >= functions[i].start && home < functions[i].end &&
		    late_leaves_perhaps(site, functions[i].id, home))
			return true;
	return false;
}
