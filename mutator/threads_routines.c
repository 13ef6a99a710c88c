/* SPDX-License-Identifier: MIT */
/*
 * threads_routines.c - who is in a routine of the pairing, or in an undo routine. There may be one for
 * each function: they are listed while the target runs, and only looked up in a stop.
 */
#include <stdlib.h>

#include "mutator/removal.h"
#include "mutator/threads_private.h"

static bool add(struct threads *t, taddr_t start, size_t size)
{
	if (!start)
		return true;
	if (t->routine_count == t->routine_room) {
		const size_t room = t->routine_room ? t->routine_room * 2 : 64;
		struct stack_range *grown = realloc(t->routines, room * sizeof(*grown));

		if (!grown)
			return false;
		t->routines = grown;
		t->routine_room = room;
	}
	t->routines[t->routine_count++] = (struct stack_range){.lo = start, .hi = start + size};
	return true;
}

/* Those of one place stand one behind the other. */
static bool add_pairing(struct threads *t, const struct place *p)
{
	const taddr_t first = p->enter < p->leave ? p->enter : p->leave;

	return add(t, p->record < first ? p->record : first, ARCH_PAIRING_ROUTINES);
}

static int by_place(const void *a, const void *b)
{
	const struct stack_range *x = a, *y = b;

	return x->lo < y->lo ? -1 : x->lo > y->lo;
}

int threads_list_routines(struct session *s, struct dinst_error *e)
{
	struct threads *t = s->threads;
	bool whole = true;

	if (!t)
		return 0;
	t->routine_count = 0;
	for (const struct place *p = s->places; p && whole; p = p->next)
		whole = add_pairing(t, p);
	for (const struct spent_code *c = s->spent_codes; c && whole; c = c->next)
		whole = c->site || add(t, c->code, c->size);
	for (size_t i = 0; i < t->held_undo_count && whole; i++)
		whole = add(t, t->held_undos[i].old.undo, t->held_undos[i].old.undo_size);
	for (uint32_t id = 1; t->paired && id <= PAIR_ID_MASK && whole; id++)
		whole = add(t, t->paired[id].undo, t->paired[id].undo_size);
	if (!whole)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	if (t->routine_count)
		qsort(t->routines, t->routine_count, sizeof(*t->routines), by_place);
	return 0;
}

bool threads_is_in_routine(const struct session *s, taddr_t pc)
{
	const struct threads *t = s->threads;
	size_t lo = 0, hi = t ? t->routine_count : 0;

	while (lo < hi) {
		const size_t middle = (lo + hi) / 2;

		if (pc < t->routines[middle].lo)
			hi = middle;
		else if (pc >= t->routines[middle].hi)
			lo = middle + 1;
		else
			return true;
	}
	return false;
}
