/* SPDX-License-Identifier: MIT */
/*
 * stack_signals.c - finding signal frames in copies of stacks: a program counter
 * in code, a stack pointer into a stack, and a return address at which sigreturn
 * is called. What was code or a stack when it was interrupted may not be one just now (a guard that a handler
 * is about to open, memory under a write barrier): then flags and segments say what it is.
 * Reads the target for the return address, and never changes it.
 */
#include "inject/stack_signals.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
	WORD = 8,
	LOOKS_MOST = 1 << 16,  /* into the target, for all copies: 50 ms or so */
	FRAMES_MOST = 1 << 16, /* that are kept, of all copies */
};

void signal_search_begin(struct signal_search *s, struct snapshot *shot)
{
	memset(s, 0, sizeof(*s));
	s->shot = shot;
	s->text_lo = UINT64_MAX;
	for (size_t i = 0; i < shot->maps.count; i++) {
		const struct maps_entry *entry = &shot->maps.entries[i];

		if (!(entry->protection & PROT_EXEC))
			continue;
		if (entry->lo < s->text_lo)
			s->text_lo = entry->lo;
		if (entry->hi > s->text_hi)
			s->text_hi = entry->hi;
	}
}

static bool is_text(const struct signal_search *s, taddr_t address)
{
	const struct maps_entry *entry;

	if (address < s->text_lo || address >= s->text_hi)
		return false;
	entry = maps_find(&s->shot->maps, address);
	return entry && (entry->protection & PROT_EXEC);
}

/*
 * True if the code at `address` calls sigreturn, or cannot be read (execute only; no descriptor left); looks once
 * at each address.
 */
static bool is_sigreturn(struct signal_search *s, taddr_t address)
{
	size_t slot = (size_t)(address ^ address >> 8 ^ address >> 16) % SIGRETURN_CACHE;
	uint8_t code[ARCH_SIGRETURN_CODE];
	size_t got;

	if (s->cached[slot] == address)
		return s->is_sigreturn[slot];
	s->looks++;
	got = target_read_some(s->shot->target, address, code, sizeof(code));
	s->cached[slot] = address;
	s->is_sigreturn[slot] = !got || arch_is_sigreturn(code, got);
	return s->is_sigreturn[slot];
}

/*
 * True if a signal frame begins at `frame`. The contents are judged before the
 * return address is, because that costs no look into the target: nearly every
 * return address on a stack is followed by something else.
 */
static bool read_frame(struct signal_search *s, const uint8_t *frame, size_t size, taddr_t *sp)
{
	taddr_t code, pc;

	memcpy(&code, frame, sizeof(code));
	if (code < s->text_lo || code >= s->text_hi)
		return false;
	if (size > ARCH_SIGNAL_FRAME)
		size = ARCH_SIGNAL_FRAME;
	if (arch_signal_frame(frame, size, &pc, sp) != ARCH_OK)
		return false;
	if (!(is_text(s, pc) && is_stack_memory(maps_find(&s->shot->maps, *sp))) &&
	    !arch_signal_frame_is_saved(frame, size))
		return false;
	return is_text(s, code) && is_sigreturn(s, code);
}

static bool make_room(struct region_signals **found, size_t room)
{
	struct region_signals *grown =
		realloc(*found, sizeof(*grown) + room * sizeof(grown->frames[0]));

	if (!grown)
		return false;
	if (!*found)
		memset(grown, 0, sizeof(*grown));
	grown->room = room;
	*found = grown;
	return true;
}

static bool keep(struct region_signals **found, const struct signal_frame *frame)
{
	if ((*found)->count == (*found)->room && !make_room(found, 2 * (*found)->room + 4))
		return false;
	(*found)->frames[(*found)->count++] = *frame;
	return true;
}

int signal_frames_find(struct signal_search *s, struct stack_region *r, struct dinst_error *e)
{
	struct signal_frame frame;
	bool done;

	if (r->signals)
		return DINST_OK;
	done = make_room(&r->signals, 0);
	for (frame.at = r->lo; done && frame.at + WORD <= r->hi; frame.at += WORD) {
		/* No program has so many, or so many different addresses where those of sigreturn belong. */
		r->signals->incomplete = s->looks > LOOKS_MOST || s->frames > FRAMES_MOST;
		if (r->signals->incomplete)
			break;
		if (!read_frame(s, r->bytes + (frame.at - r->lo), r->hi - frame.at, &frame.sp))
			continue;
		s->frames++;
		done = keep(&r->signals, &frame);
	}
	return done ? DINST_OK : dinst_fail(e, DINST_NO_MEMORY, "no memory for signal frames");
}

bool signal_frames_from(const struct stack_region *r, taddr_t address, struct signal_frame *frame)
{
	size_t lo = 0, hi = r->signals->count;

	while (lo < hi) {
		size_t middle = lo + (hi - lo) / 2;

		if (r->signals->frames[middle].at < address)
			lo = middle + 1;
		else
			hi = middle;
	}
	if (lo == r->signals->count)
		return false;
	*frame = r->signals->frames[lo];
	return true;
}
