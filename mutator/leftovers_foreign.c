/* SPDX-License-Identifier: MIT */
/*
 * leftovers_foreign.c - what is in the places of patches, and is neither ours nor the original. Changes nothing.
 */
#include <string.h>
#include <unistd.h>

#include "inject/maps.h"
#include "mutator/leftovers.h"

bool leftovers_is_unsure(const struct patch *p)
{
	return !memcmp(p->before, p->after, p->length);
}

size_t leftovers_count_foreign(const struct target *t, const struct patch *patches, size_t count,
			       taddr_t *others)
{
	const int pagemap = maps_open_pagemap(target_memory_tid(t));
	size_t foreign = 0;
	bool unread = false;
	struct maps maps;

	*others = 0;
	for (size_t i = 0; i < count; i++) {
		const struct patch *p = &patches[i];

		foreign += p->outcome == PATCH_FAILED ||
			   (p->outcome == PATCH_ALREADY && leftovers_is_unsure(p));
		unread |= p->outcome == PATCH_UNMAPPED;
		if (p->outcome != PATCH_FOREIGN ||
		    maps_is_untouched(pagemap, p->address, p->length))
			continue;
		foreign++;
		*others = p->address;
	}
	if (pagemap >= 0)
		close(pagemap);
	/* What cannot be read, and is mapped all the same, may lead to us when it is code again. */
	if (!unread)
		return foreign;
	if (maps_read(target_pid(t), &maps, NULL))
		return foreign + 1;
	for (size_t i = 0; i < count; i++)
		foreign += patches[i].outcome == PATCH_UNMAPPED &&
			   maps_find(&maps, patches[i].address);
	maps_release(&maps);
	return foreign;
}
