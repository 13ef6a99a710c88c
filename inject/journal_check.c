/* SPDX-License-Identifier: MIT */
/*
 * journal_check.c - what of a journal's bytes can be believed.
 *
 * The bytes come from a process that may have done anything with them. Pure:
 * bytes in, verdicts out; nothing is read beyond the structs that are given.
 */
#include <limits.h>
#include <string.h>

#include "inject/journal_format.h"

enum {
	CPU_SHIFT_MIN = 12,
	CPU_SHIFT_MAX = 30,
	PAGE = 4096,
};

size_t journal_capacity(size_t code_size)
{
	/* 128 Ki entries in 64 MiB: an eighth of the half, whatever its size. */
	size_t capacity = code_size / 512;

	return capacity < JOURNAL_CAPACITY_MAX ? capacity : JOURNAL_CAPACITY_MAX;
}

/* FNV-1a, 64 bits, folded: it has to find torn and stray bytes, not an adversary's. */
static uint64_t mix(uint64_t hash, const void *bytes, size_t size)
{
	const uint8_t *p = bytes;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ p[i]) * 0x100000001b3u;
	return hash;
}

static uint32_t fold(uint64_t hash)
{
	return (uint32_t)(hash ^ hash >> 32);
}

uint32_t journal_header_checksum(const struct journal_header *h)
{
	return fold(mix(0xcbf29ce484222325u, h, offsetof(struct journal_header, checksum)));
}

uint32_t journal_slot_checksum(const struct journal_slot *slot, uint32_t header_checksum)
{
	uint64_t hash = mix(0xcbf29ce484222325u, &header_checksum, sizeof(header_checksum));

	return fold(mix(hash, slot, offsetof(struct journal_slot, checksum)));
}

static bool session_is_clean(const char *session)
{
	size_t length = strnlen(session, JOURNAL_SESSION_MAX);

	if (length == JOURNAL_SESSION_MAX)
		return false;
	for (size_t i = 0; i < length; i++)
		if (session[i] <= 0x20 || session[i] >= 0x7f)
			return false;
	return true;
}

/* The halves are page-aligned, do not wrap round, and do not overlap. */
static bool halves_are_sane(const struct journal_header *h)
{
	if (h->code % PAGE || h->code_size % PAGE || h->data % PAGE || h->data_size % PAGE)
		return false;
	if (!h->code_size || h->code + h->code_size < h->code)
		return false;
	if (!h->data_size || h->data + h->data_size < h->data)
		return false;
	return h->code + h->code_size <= h->data || h->data + h->data_size <= h->code;
}

static bool blocks_are_sane(const struct journal_header *h)
{
	if (h->cpu_shift < CPU_SHIFT_MIN || h->cpu_shift > CPU_SHIFT_MAX || !h->cpus)
		return false;
	return (uint64_t)h->cpus + 1 <= h->data_size >> h->cpu_shift;
}

bool journal_check_header(const struct journal_header *h, taddr_t code, size_t mapped,
			  struct arena_found *found)
{
	if (memcmp(h->magic, JOURNAL_MAGIC, sizeof(h->magic)) || h->version != JOURNAL_VERSION ||
	    h->header_size != JOURNAL_HEADER_SIZE || h->slot_size != sizeof(struct journal_slot))
		return false;
	if (h->checksum != journal_header_checksum(h) || !session_is_clean(h->session))
		return false;
	if (!halves_are_sane(h) || !blocks_are_sane(h))
		return false;
	if (h->code != code || h->code_size != mapped)
		return false;
	/* One of a single page would have its slots behind it. */
	if (h->capacity != journal_capacity(mapped) ||
	    JOURNAL_HEADER_SIZE + h->capacity * sizeof(struct journal_slot) > mapped ||
	    (h->mode != ARENA_SHARED && h->mode != ARENA_PRIVATE) || h->low_data > 1)
		return false;
	*found = (struct arena_found){
		.code = h->code,
		.code_size = h->code_size,
		.data = h->data,
		.data_size = h->data_size,
		.header_valid = true,
		.cpus = h->cpus,
		.cpu_shift = h->cpu_shift,
		.mode = h->mode == ARENA_SHARED ? ARENA_SHARED : ARENA_PRIVATE,
		.owner = h->owner <= INT_MAX ? (pid_t)h->owner : 0,
		.owner_start = h->owner_start,
		.owner_space = h->owner_space,
		.code_floor = journal_floor(h),
	};
	memcpy(found->session, h->session, sizeof(found->session));
	return true;
}

/* A number with its complement above it; `otherwise` if it is none, or more than `most`. */
static size_t decode_hint(uint64_t hint, size_t most, size_t otherwise)
{
	const uint32_t number = (uint32_t)hint;

	return (uint32_t)(hint >> 32) == (uint32_t)~number && number <= most ? number : otherwise;
}

size_t journal_high(const struct journal_header *h)
{
	/* If the hint is broken every slot may be an entry. */
	return decode_hint(h->high, h->capacity, h->capacity);
}

size_t journal_floor(const struct journal_header *h)
{
	return decode_hint(h->floor, h->code_size / PAGE, 0) * PAGE;
}

bool journal_check_slot(const struct journal_slot *slot, uint32_t header_checksum,
			struct journal_entry *entry)
{
	if (slot->state != JOURNAL_LIVE || !slot->length || slot->length > ARCH_PATCH_MAX)
		return false;
	if (slot->checksum != journal_slot_checksum(slot, header_checksum))
		return false;
	if (slot->address + slot->length < slot->address ||
	    !memcmp(slot->original, slot->patched, slot->length))
		return false;
	memset(entry, 0, sizeof(*entry));
	entry->address = slot->address;
	entry->length = slot->length;
	memcpy(entry->original, slot->original, slot->length);
	memcpy(entry->patched, slot->patched, slot->length);
	return true;
}
