/* SPDX-License-Identifier: MIT */
/*
 * instances.c - the instances of a session as lists, and how one of them is
 * found among many: by its number, and by the hash of its focus or key.
 *
 * An instance is in the index from instance_new() to instance_free(), and in one
 * list at most: the session's by number, its hidden ones, or a request's. Owns
 * the buckets, never an instance.
 */
#include <stdlib.h>

#include "mutator/request.h"

enum { BUCKETS_MIN = 64 };

/* ------------------------------------------------------------------ lists */

void instances_push(struct instance **list, struct instance *i)
{
	i->next = *list;
	i->link = list;
	if (i->next)
		i->next->link = &i->next;
	*list = i;
}

void instances_take_out(struct session *s, struct instance *i)
{
	if (!i->link)
		return;
	*i->link = i->next;
	if (i->next)
		i->next->link = i->link;
	if (s->instances_end == &i->next)
		s->instances_end = i->link;
	i->link = NULL;
	i->next = NULL;
}

void instances_adopt(struct session *s, struct instance **list)
{
	struct instance **end = list;

	if (!*list)
		return;
	while (*end)
		end = &(*end)->next;
	*end = s->hidden;
	if (s->hidden)
		s->hidden->link = end;
	s->hidden = *list;
	s->hidden->link = &s->hidden;
	*list = NULL;
}

/* --------------------------------------------------------------- the index */

static struct instance **number_bucket(const struct instance_index *x, unsigned id)
{
	return &x->by_number[id & (x->buckets - 1)];
}

static void enter_number(struct instance_index *x, struct instance *i)
{
	struct instance **bucket = number_bucket(x, i->id);

	i->next_number = *bucket;
	*bucket = i;
}

/* Those of one hash stand in the order in which they were made. */
static void enter_focus(struct instance_index *x, struct instance *i)
{
	struct instance **at = &x->by_focus[i->hash & (x->buckets - 1)];

	while (*at)
		at = &(*at)->next_focus;
	i->next_focus = NULL;
	*at = i;
}

/* Without memory the old buckets stay, and are longer. */
static void grow(struct instance_index *x)
{
	const struct instance_index old = *x;
	const size_t buckets = old.buckets ? old.buckets * 2 : BUCKETS_MIN;
	struct instance **both = calloc(buckets, 2 * sizeof(*both));

	if (!both)
		return;
	*x = (struct instance_index){both, both + buckets, buckets, old.count};
	for (size_t b = 0; b < old.buckets; b++) {
		for (struct instance *i = old.by_focus[b], *next; i; i = next) {
			next = i->next_focus;
			enter_focus(x, i);
		}
		for (struct instance *i = old.by_number[b], *next; i; i = next) {
			next = i->next_number;
			enter_number(x, i);
		}
	}
	free(old.by_focus);
}

bool instances_enter(struct session *s, struct instance *i)
{
	struct instance_index *x = &s->index;

	if (x->count >= x->buckets)
		grow(x);
	if (!x->buckets)
		return false;
	enter_focus(x, i);
	x->count++;
	i->entered = true;
	return true;
}

void instances_leave(struct session *s, struct instance *i)
{
	struct instance_index *x = &s->index;
	struct instance **at;

	if (!i->entered)
		return;
	instances_unnumber(s, i);
	at = &x->by_focus[i->hash & (x->buckets - 1)];
	while (*at != i)
		at = &(*at)->next_focus;
	*at = i->next_focus;
	i->entered = false;
	x->count--;
}

void instances_number(struct session *s, struct instance *i)
{
	if (!s->instances_end)
		s->instances_end = &s->instances;
	i->id = s->next_id++;
	enter_number(&s->index, i);
	instances_push(s->instances_end, i);
	s->instances_end = &i->next;
}

void instances_unnumber(struct session *s, struct instance *i)
{
	struct instance **at;

	if (!i->id)
		return;
	at = number_bucket(&s->index, i->id);
	while (*at != i)
		at = &(*at)->next_number;
	*at = i->next_number;
	i->id = 0;
}

struct instance *session_instance(const struct session *s, unsigned id)
{
	struct instance *i = id && s->index.buckets ? *number_bucket(&s->index, id) : NULL;

	while (i && i->id != id)
		i = i->next_number;
	return i;
}

struct instance *instances_of_hash(const struct session *s, uint32_t hash)
{
	struct instance *i =
		s->index.buckets ? s->index.by_focus[hash & (s->index.buckets - 1)] : NULL;

	return !i || i->hash == hash ? i : instances_next_of_hash(i, hash);
}

struct instance *instances_next_of_hash(const struct instance *i, uint32_t hash)
{
	struct instance *next = i->next_focus;

	while (next && next->hash != hash)
		next = next->next_focus;
	return next;
}

void instances_release(struct session *s)
{
	free(s->index.by_focus);
	s->index = (struct instance_index){0};
}
