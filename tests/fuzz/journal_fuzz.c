/* SPDX-License-Identifier: MIT */
/*
 * journal_fuzz.c - any bytes as the first pages of an arena in a target: what is
 * believed of them lies where it may, and everything else is left out.
 *
 * The first byte of the input says which checksums are made right first, since
 * nobody guesses those: 1 that of the header, 2 those of the slots, 4 magic and
 * sizes as well. Then come a header and slots.
 */
#include <string.h>

#include "inject/journal_format.h"
#include "tests/fuzz/fuzz.h"

enum { RIGHT_HEADER = 1, RIGHT_SLOTS = 2, RIGHT_FORM = 4, SLOTS_MAX = 512 };

static void check_found(const struct journal_header *h, const struct arena_found *found,
			size_t mapped)
{
	require(found->header_valid && !found->strange);
	require(found->code % 4096 == 0 && found->code_size == mapped);
	require(found->code + found->code_size > found->code);
	require(found->data + found->data_size > found->data && found->data_size);
	require(found->code + found->code_size <= found->data ||
		found->data + found->data_size <= found->code);
	require(found->cpus && (found->cpus + 1ull) << found->cpu_shift <= found->data_size);
	require(memchr(found->session, 0, sizeof(found->session)));
	for (const char *p = found->session; *p; p++)
		require(*p > 0x20 && *p < 0x7f);
	require(found->owner >= 0);
	require(h->capacity == journal_capacity(mapped) && journal_high(h) <= h->capacity);
	require(JOURNAL_HEADER_SIZE + journal_high(h) * sizeof(struct journal_slot) <= mapped);
}

static void check_slot(const struct journal_slot *slot, uint32_t header)
{
	struct journal_entry entry;

	if (!journal_check_slot(slot, header, &entry))
		return;
	require(entry.length >= 1 && entry.length <= ARCH_PATCH_MAX);
	require(entry.address + entry.length > entry.address);
	require(memcmp(entry.original, entry.patched, entry.length) != 0);
	/* Nothing of the slot comes along that is not a part of the patch. */
	for (size_t i = entry.length; i < ARCH_PATCH_MAX; i++)
		require(!entry.original[i] && !entry.patched[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	const uint8_t how = size ? bytes[0] : 0;
	struct arena_found found;
	struct journal_header h;
	size_t mapped;

	if (size < 1 + sizeof(h))
		return 0;
	memcpy(&h, bytes + 1, sizeof(h));
	bytes += 1 + sizeof(h);
	size -= 1 + sizeof(h);
	mapped = h.code_size;
	if (how & RIGHT_FORM) {
		memcpy(h.magic, JOURNAL_MAGIC, sizeof(h.magic));
		h.version = JOURNAL_VERSION;
		h.header_size = JOURNAL_HEADER_SIZE;
		h.slot_size = sizeof(struct journal_slot);
		h.capacity = (uint32_t)journal_capacity(mapped);
	}
	if (how & RIGHT_HEADER)
		h.checksum = journal_header_checksum(&h);
	memset(&found, 0x5a, sizeof(found));
	if (journal_check_header(&h, h.code, mapped, &found))
		check_found(&h, &found, mapped);
	else
		require(((const uint8_t *)&found)[0] == 0x5a);
	for (size_t i = 0; i < SLOTS_MAX && size >= sizeof(struct journal_slot); i++) {
		struct journal_slot slot;

		memcpy(&slot, bytes, sizeof(slot));
		bytes += sizeof(slot);
		size -= sizeof(slot);
		if (how & RIGHT_SLOTS)
			slot.checksum = journal_slot_checksum(&slot, h.checksum);
		check_slot(&slot, h.checksum);
	}
	return 0;
}

/* fear J5, L1: any bytes in the place of a journal */
FUZZ_MAIN(journal, 200000);
