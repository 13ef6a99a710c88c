/* SPDX-License-Identifier: MIT */
/*
 * patch.c - compare, then write.
 *
 * Owns the grouping of patches by page. Never writes a byte next to a patch
 * that it has not read just before, and never one whose old value is not
 * what the caller expected.
 *
 *     patches    a  b   c        d d        e
 *     pages    |-----------|------------|------------|
 *     groups     [a..b..c]  (d: alone)    [e]
 *
 * A group is written by one call from its first to its last changed byte, or by a few where
 * breakpoints lie between: the kernel copies within one page without looking at signals, so
 * that not even SIGKILL to us leaves half of a patch.
 */
#include "inject/patch.h"
#include "inject/control.h"

#include <stdlib.h>
#include <string.h>

static const taddr_t PAGE = 4096;

/* Patches [first, first + count) of the array, and the bytes that they span. */
struct group {
	size_t first, count;
	taddr_t lo, hi;
	uint8_t *bytes; /* hi - lo of them, as they are in the target, later as they shall be */
	uint8_t *was;	/* as many, as they are */
};

static taddr_t page_of(taddr_t address)
{
	return address & ~(PAGE - 1);
}

static taddr_t end_of(const struct patch *p)
{
	return p->address + p->length;
}

static bool is_sane(const struct patch *p)
{
	return p->length && p->length <= ARCH_PATCH_MAX && end_of(p) > p->address;
}

/* True if the patch joins the group: both lie in one and the same page. */
static bool joins(const struct group *g, const struct patch *p)
{
	return page_of(g->lo) == page_of(g->hi - 1) && page_of(p->address) == page_of(g->lo) &&
	       page_of(end_of(p) - 1) == page_of(g->lo);
}

/* Fills `groups` (room for `count`) and returns how many there are; *largest: bytes of one, at most. */
static size_t make_groups(struct patch *patches, size_t count, struct group *groups,
			  size_t *largest)
{
	size_t used = 0;

	*largest = 0;
	for (size_t i = 0; i < count; i++) {
		const struct patch *p = &patches[i];

		if (used && joins(&groups[used - 1], p)) {
			struct group *g = &groups[used - 1];

			g->count++;
			if (p->address < g->lo)
				g->lo = p->address;
			if (end_of(p) > g->hi)
				g->hi = end_of(p);
			continue;
		}
		groups[used++] =
			(struct group){.first = i, .count = 1, .lo = p->address, .hi = end_of(p)};
	}
	for (size_t i = 0; i < used; i++)
		if (*largest < groups[i].hi - groups[i].lo)
			*largest = groups[i].hi - groups[i].lo;
	return used;
}

bool patch_is_shared(const struct patch *p, const uint8_t *now, uint8_t *wanted)
{
	bool found = false;
	size_t size;

	for (size_t i = 0; i < p->length; i += size) {
		size = 1;
		wanted[i] = p->after[i];
		if (now[i] == p->before[i] || now[i] == p->after[i])
			continue;
		size = found ? 0 : arch_breakpoint(now + i, p->length - i);
		if (!size)
			return false;
		found = true;
		memcpy(wanted + i, now + i, size);
	}
	return true;
}

bool patch_is_there(const uint8_t *bytes, size_t length, const uint8_t *now)
{
	struct patch only = {.length = length};
	uint8_t wanted[ARCH_PATCH_MAX];

	memcpy(only.before, bytes, length);
	memcpy(only.after, bytes, length);
	return patch_is_shared(&only, now, wanted);
}

/*
 * Decides one patch on the group's bytes and changes them. The outcome is
 * PATCH_DONE where something has to be written, until that has failed.
 */
static void decide(const struct group *g, struct patch *p)
{
	uint8_t *now = g->bytes + (p->address - g->lo), wanted[ARCH_PATCH_MAX];

	if (!memcmp(now, p->after, p->length)) {
		p->outcome = PATCH_ALREADY;
	} else if (p->removal && patch_is_shared(p, now, wanted)) {
		p->outcome = memcmp(now, wanted, p->length) ? PATCH_DONE : PATCH_ALREADY;
		memcpy(now, wanted, p->length);
	} else if (memcmp(now, p->before, p->length)) {
		p->outcome = PATCH_FOREIGN;
	} else {
		p->outcome = PATCH_DONE;
		memcpy(now, p->after, p->length);
	}
}

/* Marks those of patches [first, end) that were to be written as failed. */
static void fail(struct patch *patches, size_t first, size_t end)
{
	for (size_t i = first; i < end; i++)
		if (patches[i].outcome == PATCH_DONE)
			patches[i].outcome = PATCH_FAILED;
}

static bool has_breakpoint(const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (arch_breakpoint(bytes + i, size - i))
			return true;
	return false;
}

/* The size of somebody else's breakpoint that bytes begin with, which stays; else 0. */
static size_t staying_breakpoint(const uint8_t *was, const uint8_t *now, size_t size)
{
	const size_t breakpoint = arch_breakpoint(now, size);

	return breakpoint && !memcmp(was, now, breakpoint) ? breakpoint : 0;
}

/* Where what is to be written of a patch begins. */
static taddr_t begin_of(const struct group *g, const struct patch *p)
{
	const size_t at = p->address - g->lo;

	return p->address + staying_breakpoint(g->was + at, g->bytes + at, p->length);
}

/*
 * All in one page, in as few writes as there may be: what lies between two is written along with
 * them. But a breakpoint there, or at the beginning of one, is left alone: where it is a uprobe's the kernel may take it
 * away in this moment, also while the target stands still, and nobody would expect it afterwards. And only
 * after one write has shown that writes are whole, *whole: of words some might be missing if we died.
 */
static void write_page(struct stop *s, struct patch *patches, const struct group *g, bool *whole)
{
	const size_t end = g->first + g->count;
	taddr_t lo = 0, hi = 0;
	size_t first = g->first;

	for (size_t i = g->first; i <= end; i++) {
		const struct patch *p = i < end ? &patches[i] : NULL;

		if (p && p->outcome != PATCH_DONE)
			continue;
		if (p && hi && *whole && p->address >= hi &&
		    !has_breakpoint(g->bytes + (hi - g->lo), begin_of(g, p) - hi)) {
			hi = end_of(p);
			continue;
		}
		if (hi && stop_write(s, lo, g->bytes + (lo - g->lo), hi - lo, NULL))
			fail(patches, first, i);
		else if (hi)
			*whole = !stop_wrote_words(s);
		first = i;
		lo = p ? begin_of(g, p) : 0;
		hi = p ? end_of(p) : 0;
	}
}

/*
 * True if the first instruction of the bytes reaches beyond `head` of them. A jump's end may not be
 * among them (arch_patch()): how long it is its beginning says.
 */
static bool lies_across(const struct patch *p, const uint8_t *bytes, size_t head)
{
	uint8_t whole[ARCH_PATCH_MAX] = {0};
	struct arch_insn insn;

	memcpy(whole, bytes, p->length);
	return arch_decode(whole, sizeof(whole), p->address, &insn) == ARCH_OK &&
	       insn.length > head;
}

/* A part of a patch, as write_page() does. False: it could not be written. */
static bool write_part(struct stop *s, taddr_t at, const uint8_t *was, const uint8_t *now,
		       size_t size)
{
	const size_t stays = staying_breakpoint(was, now, size);

	return stays == size || !stop_write(s, at + stays, now + stays, size - stays, NULL);
}

/*
 * One patch in two pages. What is live is in the first page; the second one has
 * padding, or the end of the jump that is put over both or taken away. So the
 * jump is made with its end first and unmade with its beginning first: in
 * between there is a whole instruction, and something behind it that is dead.
 * `was`: what there is now; `now`: what shall be there, another's breakpoint included.
 */
static bool write_across(struct stop *s, const struct patch *p, const uint8_t *was,
			 const uint8_t *now)
{
	taddr_t border = page_of(end_of(p) - 1);
	size_t head = border - p->address, tail = p->length - head;
	bool unmade = lies_across(p, p->before, head);
	taddr_t first = unmade ? p->address : border, second = unmade ? border : p->address;
	size_t first_at = unmade ? 0 : head, first_size = unmade ? head : tail;
	size_t second_at = unmade ? head : 0, second_size = unmade ? tail : head;

	if (p->outcome != PATCH_DONE)
		return true;
	if (!write_part(s, first, was + first_at, now + first_at, first_size))
		return false;
	if (write_part(s, second, was + second_at, now + second_at, second_size))
		return true;
	write_part(s, first, now + first_at, was + first_at, first_size);
	return false;
}

/*
 * Read just before it is written: others (the kernel, for uprobes) may write to the page, too. A page
 * is mapped as a whole, so what cannot be read is wholly there or, across two, half.
 */
static void apply_group(struct stop *s, struct patch *patches, const struct group *g, bool *whole)
{
	const bool across = page_of(g->lo) != page_of(g->hi - 1);
	const size_t size = g->hi - g->lo, end = g->first + g->count;

	if (target_read_some(stop_target(s), g->lo, g->bytes, size) != size) {
		for (size_t i = g->first; i < end; i++)
			patches[i].outcome = PATCH_UNMAPPED;
		return;
	}
	memcpy(g->was, g->bytes, size);
	for (size_t i = g->first; i < end; i++)
		decide(g, &patches[i]);
	/* Where it lies across two it is the only one of its group. */
	if (!across)
		write_page(s, patches, g, whole);
	else if (!write_across(s, &patches[g->first], g->was, g->bytes))
		fail(patches, g->first, end);
}

int patch_apply(struct stop *s, struct patch *patches, size_t count, struct dinst_error *e)
{
	struct group *groups = NULL;
	uint8_t *bytes = NULL;
	size_t group_count = 0, largest = 0;
	int result = DINST_OK;
	bool whole = false;

	for (size_t i = 0; i < count; i++) {
		patches[i].outcome = PATCH_FAILED;
		if (!is_sane(&patches[i]))
			return dinst_fail(e, DINST_FAILED,
					  "a patch of %u bytes at %#llx is malformed",
					  (unsigned)patches[i].length,
					  (unsigned long long)patches[i].address);
	}
	if (!count)
		return DINST_OK;
	result = patch_check_room(s, patches, count, e);
	if (result)
		return result;
	groups = calloc(count, sizeof(*groups));
	if (groups) {
		group_count = make_groups(patches, count, groups, &largest);
		bytes = malloc(2 * largest + 1);
	}
	if (!groups || !bytes) {
		result = dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu patches", count);
		goto out;
	}
	for (size_t i = 0; i < group_count; i++) {
		groups[i].bytes = bytes;
		groups[i].was = bytes + largest;
		apply_group(s, patches, &groups[i], &whole);
	}
	target_look_again(stop_target(s));
	if (!target_alive(stop_target(s)))
		result = dinst_fail(e, DINST_GONE, "the target has ended");
out:
	free(bytes);
	free(groups);
	return result;
}
