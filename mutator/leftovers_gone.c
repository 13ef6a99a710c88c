/* SPDX-License-Identifier: MIT */
/*
 * leftovers_gone.c - what was found in a process may not be there any more when it is to be taken out.
 */
#include "inject/maps.h"
#include "mutator/leftovers.h"

bool leftovers_have_gone(const struct target *t, const struct arena_found *found)
{
	struct arena_found now[ARENAS_MOST];
	struct dinst_error ignored = {0};
	const int count = arena_find(t, now, ARENAS_MOST, &ignored);

	for (int i = 0; i < count; i++)
		if (now[i].inode == found->inode && now[i].device == found->device &&
		    (found->inode || now[i].code == found->code))
			return false;
	return count >= 0;
}

bool leftovers_are_replaced(const struct maps *m, const struct arena_found *found)
{
	const struct maps_entry *now = found->inode ? maps_find(m, found->code) : NULL;

	return now && (now->inode != found->inode || now->device != found->device) &&
	       arena_is_named(now);
}
