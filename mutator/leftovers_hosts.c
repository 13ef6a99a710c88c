/* SPDX-License-Identifier: MIT */
/*
 * leftovers_hosts.c - near jumps that lie in the tails of windows. Where one arena was full when the short
 * jump was made that leads there, its near jump is of another arena than the window, its host: the
 * window's own bytes must not come back before what they run into has gone.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/leftovers.h"

enum { GUESTS_MOST = 1 << 22 }; /* what has more is an enemy's */

bool leftovers_jump_of(const struct target *t, taddr_t address, const uint8_t *patched,
		       size_t length, struct arch_insn *insn)
{
	uint8_t bytes[ARCH_PATCH_MAX] = {0};
	size_t rest;

	memcpy(bytes, patched, length);
	if (arch_decode(bytes, sizeof(bytes), address, insn) != ARCH_OK ||
	    insn->flow != ARCH_FLOW_JUMP)
		return false;
	if (insn->length <= length)
		return true;
	rest = insn->length - length;
	return target_read_some(t, address + length, bytes + length, rest) == rest &&
	       arch_decode(bytes, insn->length, address, insn) == ARCH_OK;
}

taddr_t leftovers_hole_of(const struct target *t, taddr_t address, const uint8_t *patched,
			  size_t length)
{
	struct arch_insn insn;

	return leftovers_jump_of(t, address, patched, length, &insn) &&
			       insn.length == arch_short_jump_size
		       ? insn.target
		       : 0;
}

static int by_number(const void *x, const void *y)
{
	const taddr_t a = *(const taddr_t *)x, b = *(const taddr_t *)y;

	return a < b ? -1 : a > b;
}

static int by_address(const void *x, const void *y)
{
	return by_number(&((const struct guest *)x)->address, &((const struct guest *)y)->address);
}

/* Adds those of arena `n`: `holes` has room for all entries. False without memory. */
static bool add_guests(struct process *p, size_t n, const struct journal_entry *entries,
		       size_t count, taddr_t *holes)
{
	size_t used = 0;
	struct guest *grown =
		p->guest_count > GUESTS_MOST
			? NULL
			: realloc(p->guests, (p->guest_count + count + 1) * sizeof(*grown));

	if (!grown)
		return false;
	p->guests = grown;
	for (size_t i = 0; i < count; i++) {
		holes[used] = leftovers_hole_of(p->target, entries[i].address, entries[i].patched,
						entries[i].length);
		used += holes[used] != 0;
	}
	if (used)
		qsort(holes, used, sizeof(*holes), by_number);
	for (size_t i = 0; used && i < count; i++) {
		struct guest *g = &p->guests[p->guest_count];

		if (!bsearch(&entries[i].address, holes, used, sizeof(*holes), by_number))
			continue;
		*g = (struct guest){
			.address = entries[i].address, .length = entries[i].length, .arena = n};
		memcpy(g->patched, entries[i].patched, entries[i].length);
		p->guest_count++;
	}
	return true;
}

int leftovers_find_guests(struct process *p, struct dinst_error *e)
{
	int status = 0;

	leftovers_forget_guests(p);
	for (size_t i = 0; i < p->count && status >= 0; i++) {
		struct journal_entry *entries = NULL;
		size_t count = 0;
		taddr_t *holes;

		if (!p->found[i].header_valid || p->found[i].strange)
			continue;
		status = journal_read(p->target, &p->found[i], &entries, &count, e);
		if (status < 0 && leftovers_have_gone(p->target, &p->found[i])) {
			dinst_error_clear(e);
			status = 0;
			continue;
		}
		holes = calloc(count + 1, sizeof(*holes));
		if (status >= 0 && (!holes || !add_guests(p, i, entries, count, holes)))
			status = dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		free(holes);
		free(entries);
	}
	if (p->guest_count)
		qsort(p->guests, p->guest_count, sizeof(*p->guests), by_address);
	return status;
}

void leftovers_forget_guests(struct process *p)
{
	free(p->guests);
	p->guests = NULL;
	p->guest_count = 0;
}

/* True if one of the numbers, in order, is less than `address`, and not by so much as a window is long. */
static bool has_window(const taddr_t *windows, size_t count, taddr_t address)
{
	size_t lo = 0, hi = count;

	while (lo < hi) {
		const size_t middle = lo + (hi - lo) / 2;

		if (windows[middle] < address)
			lo = middle + 1;
		else
			hi = middle;
	}
	return lo && address - windows[lo - 1] < WINDOW_BYTES_MAX;
}

bool leftovers_guests_of(const struct process *p, size_t n, const struct patch *patches,
			 size_t count, struct guest **out, size_t *out_count)
{
	taddr_t *windows = calloc(count + 1, sizeof(*windows));
	struct guest *guests = calloc(p->guest_count + 1, sizeof(*guests));
	size_t used = 0;

	if (!windows || !guests) {
		free(windows);
		free(guests);
		return false;
	}
	for (size_t i = 0; i < count; i++)
		windows[i] = patches[i].address;
	if (count)
		qsort(windows, count, sizeof(*windows), by_number);
	for (size_t i = 0; i < p->guest_count; i++)
		if (p->guests[i].arena != n && has_window(windows, count, p->guests[i].address))
			guests[used++] = p->guests[i];
	free(windows);
	*out = guests;
	*out_count = used;
	return true;
}

bool leftovers_is_guest_there(const struct target *t, const struct guest *guest)
{
	uint8_t now[ARCH_PATCH_MAX];

	return target_read_some(t, guest->address, now, guest->length) == guest->length &&
	       patch_is_there(guest->patched, guest->length, now);
}

bool leftovers_may_hold(const struct stack_range *ranges, size_t count, taddr_t window)
{
	size_t lo = 0, hi = count;

	while (lo < hi) {
		const size_t middle = lo + (hi - lo) / 2;

		if (ranges[middle].lo <= window)
			lo = middle + 1;
		else
			hi = middle;
	}
	for (; lo < count && ranges[lo].lo - window < WINDOW_BYTES_MAX; lo++)
		if (ranges[lo].hit)
			return true;
	return false;
}
