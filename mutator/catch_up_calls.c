/* SPDX-License-Identifier: MIT */
/*
 * catch_up_calls.c - who is on the way to a call, or from it.
 *
 * What leaves calls out runs before each of them and behind it. A thread that stands in the function itself
 * may be past the one and not past the other: in code as it was before the request, on its way to the call at
 * the end of that, or back from a call, in front of where the other runs. It is as good as in the call.
 */
#include "mutator/body.h"
#include "mutator/catch_up.h"

enum {
	WORK = 200,	   /* instructions between a call and what runs behind it, at most */
	SHORT_REACH = 130, /* bytes between a short jump and the near one that it leads to */
};

/* The site in whose window the address is, or NULL. */
static const struct site *site_around(const struct session *s, taddr_t at)
{
	for (taddr_t back = 0; back < WINDOW_BYTES_MAX; back++) {
		const struct site *site = site_find(s, at - back);

		if (site)
			return back < site->window.length ? site : NULL;
	}
	return NULL;
}

/* Where the call returns to that ends the site's window, if that is at `at` or behind; else 0. */
static taddr_t call_ahead(const struct session *s, const struct site *site, taddr_t at)
{
	struct arch_insn insns[WINDOW_INSNS_MAX];
	const size_t count = site_instructions(site, insns);
	const struct arch_insn *last = &insns[count ? count - 1 : 0];

	if (!count || last->address < at || !arch_is_call(last))
		return 0;
	/* One that stays where it is may have a window of its own by now. */
	if (site->keeps_call && site_find(s, last->address))
		return 0;
	return last->address + last->length;
}

/* True if something of the site runs behind a call at that place of an instruction from `at` to `last`. */
static bool runs_in(const struct site *site, taddr_t at, taddr_t last, unsigned places)
{
	struct arch_insn insns[WINDOW_INSNS_MAX];
	const size_t count = site_instructions(site, insns);

	for (const struct link *l = site->first_link; l; l = l->next)
		if (l->kind == POINT_AFTER && places & 1u << l->place && l->insn < count &&
		    insns[l->insn].address >= at && insns[l->insn].address <= last)
			return true;
	return false;
}

static bool runs_at(const struct session *s, taddr_t at, enum point_place place)
{
	const struct site *site = site_around(s, at);

	return site && runs_in(site, at, at, 1u << place);
}

static bool decode(const struct module *m, taddr_t at, struct arch_insn *insn)
{
	size_t size = 0;
	const uint8_t *bytes = m ? image_code(m->image, at - m->bias, &size) : NULL;

	return bytes && arch_decode(bytes, size, at, insn) == ARCH_OK;
}

/* True if control comes from one to the other before anything has run that runs behind a call. */
static bool leads_to(const struct session *s, taddr_t from, taddr_t at, unsigned *work)
{
	struct arch_insn insn;

	while (from != at) {
		if (!*work || runs_at(s, from, PLACE_BEFORE) ||
		    !decode(module_at(s->modules, from), from, &insn))
			return false;
		--*work;
		if (insn.flow == ARCH_FLOW_BRANCH && !runs_at(s, from, PLACE_TAKEN) &&
		    leads_to(s, insn.target, at, work))
			return true;
		if (insn.flow == ARCH_FLOW_JUMP && !runs_at(s, from, PLACE_TAKEN)) {
			from = insn.target;
			continue;
		}
		if ((insn.flow != ARCH_FLOW_NEXT && insn.flow != ARCH_FLOW_BRANCH) ||
		    runs_at(s, from, PLACE_FALLS))
			return false;
		from += insn.length;
	}
	return true;
}

static bool is_about(const struct threads_late *late, taddr_t call)
{
	return late->call && late->call == call;
}

taddr_t late_call_of(const struct session *s, const struct threads_late *late, size_t count,
		     uint32_t id, const struct site *old, taddr_t at)
{
	const taddr_t ahead = old ? call_ahead(s, old, at) : 0;
	unsigned work;

	for (size_t n = 0; n < count && late[n].id == id; n++)
		if (is_about(&late[n], ahead))
			return ahead;
	if (old && runs_in(old, at, UINT64_MAX, ~0u))
		return 0;
	for (size_t n = 0; n < count && late[n].id == id; n++) {
		work = WORK;
		if (late[n].behind && is_about(&late[n], late[n].call) &&
		    leads_to(s, late[n].call, at, &work))
			return late[n].call;
	}
	return 0;
}

const struct site *late_passed(const struct session *s, taddr_t at)
{
	const struct site *site = site_around(s, at);

	return site && site->key.start != at ? site : NULL;
}

static bool is_at_near_jump(const struct site *site, taddr_t pc)
{
	return site->patch_count == 2 && site->state == SITE_PATCHED &&
	       site->patches[0].address == pc;
}

taddr_t late_home(const struct session *s, const struct stack_frame *frame)
{
	if (frame->returns || frame->is_inside)
		return frame->home;
	for (taddr_t at = frame->pc - SHORT_REACH; at != frame->pc + SHORT_REACH; at++) {
		const struct site *site = site_find(s, at);

		if (site && is_at_near_jump(site, frame->pc))
			return at;
	}
	return frame->home;
}
