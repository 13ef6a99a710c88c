/* SPDX-License-Identifier: MIT */
/*
 * references_hits.c - the list of hits of an image: see hits.h. Says nothing
 * about what is true; keeps what it is told.
 */
#include "mutator/image_private.h"

#include <stdlib.h>

void hits_release(struct hit_list *list)
{
	free(list->items);
	free(list->by_from);
	free(list->states);
	*list = (struct hit_list){0};
}

bool hits_add(struct hit_list *list, vaddr_t from, vaddr_t target)
{
	if (list->count == list->room) {
		size_t room = list->room ? list->room * 2 : 1024;
		void *more = reallocarray(list->items, room, sizeof(*list->items));

		if (!more)
			return false;
		list->items = more;
		list->room = room;
	}
	list->items[list->count++] = (struct image_hit){from, target};
	return true;
}

static int by_target(const void *a, const void *b)
{
	const struct image_hit *x = a, *y = b;

	if (x->target != y->target)
		return x->target < y->target ? -1 : 1;
	return x->from < y->from ? -1 : x->from > y->from;
}

static int by_from(const void *a, const void *b, void *arg)
{
	const struct image_hit *items = arg;
	vaddr_t x = items[*(const uint32_t *)a].from, y = items[*(const uint32_t *)b].from;

	return x < y ? -1 : x > y;
}

/* Keys of which no two differ by more than `span`, in front of the index. */
static uint64_t *sort_by(uint64_t *keys, uint64_t *other, size_t n, vaddr_t span)
{
	return keys_sort(keys, other, n,
			 64 - (unsigned)__builtin_clzll(span << KEY_INDEX_BITS | 1));
}

struct span {
	vaddr_t lo, hi;
};

static void widen(struct span *s, vaddr_t v)
{
	s->lo = v < s->lo ? v : s->lo;
	s->hi = v > s->hi ? v : s->hi;
}

/*
 * By digits, since there may be a million: by `from`, and then by target, so that
 * those of one target stay by `from`. False: not possible; nothing has changed.
 */
static bool sort_fast(struct hit_list *list)
{
	const uint64_t place = (UINT64_C(1) << KEY_INDEX_BITS) - 1;
	struct span from = {UINT64_MAX, 0}, to = {UINT64_MAX, 0};
	struct image_hit *items;
	uint64_t *keys, *sorted;
	size_t n = list->count;

	for (size_t i = 0; i < n; i++) {
		widen(&from, list->items[i].from);
		widen(&to, list->items[i].target);
	}
	if (!n || n > place || (from.hi - from.lo) >> (64 - KEY_INDEX_BITS) ||
	    (to.hi - to.lo) >> (64 - KEY_INDEX_BITS))
		return false;
	keys = malloc(n * 2 * sizeof(*keys));
	items = malloc(n * sizeof(*items));
	if (!keys || !items) {
		free(keys);
		free(items);
		return false;
	}
	for (size_t i = 0; i < n; i++)
		keys[i] = (list->items[i].from - from.lo) << KEY_INDEX_BITS | i;
	sorted = sort_by(keys, keys + n, n, from.hi - from.lo);
	for (size_t i = 0; i < n; i++)
		sorted[i] = (list->items[sorted[i] & place].target - to.lo) << KEY_INDEX_BITS |
			    (sorted[i] & place);
	sorted = sort_by(sorted, sorted == keys ? keys + n : keys, n, to.hi - to.lo);
	for (size_t i = 0; i < n; i++)
		items[i] = list->items[sorted[i] & place];
	free(list->items);
	list->items = items;
	list->room = n;
	/* The second list, by the same means. */
	for (size_t i = 0; i < n; i++)
		keys[i] = (items[i].from - from.lo) << KEY_INDEX_BITS | i;
	sorted = sort_by(keys, keys + n, n, from.hi - from.lo);
	for (size_t i = 0; i < n; i++)
		list->by_from[i] = (uint32_t)(sorted[i] & place);
	free(keys);
	return true;
}

bool hits_finish(struct hit_list *list)
{
	size_t n = list->count;

	if (n >= UINT32_MAX)
		return false;
	list->by_from = calloc(n + 1, sizeof(*list->by_from));
	list->states = calloc(n + 1, sizeof(*list->states));
	if (!list->by_from || !list->states)
		return false;
	if (sort_fast(list))
		return true;
	if (n)
		qsort(list->items, n, sizeof(*list->items), by_target);
	for (size_t i = 0; i < n; i++)
		list->by_from[i] = (uint32_t)i;
	qsort_r(list->by_from, n, sizeof(*list->by_from), by_from, list->items);
	return true;
}

/* Index of the first hit to `v` or behind it. */
static size_t into(const struct hit_list *list, vaddr_t v)
{
	size_t lo = 0, hi = list->count;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (list->items[mid].target < v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Place in by_from of the first hit from `v` or behind it. */
static size_t from(const struct hit_list *list, vaddr_t v)
{
	size_t lo = 0, hi = list->count;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (list->items[list->by_from[mid]].from < v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

size_t image_hits_into(const struct image *img, vaddr_t lo, vaddr_t hi, size_t *first)
{
	*first = into(&img->hits, lo);
	return into(&img->hits, hi) - *first;
}

size_t image_hits_from(const struct image *img, vaddr_t lo, vaddr_t hi, const uint32_t **indices)
{
	size_t first = from(&img->hits, lo);

	*indices = img->hits.by_from ? img->hits.by_from + first : NULL;
	return from(&img->hits, hi) - first;
}

const struct image_hit *image_hit(const struct image *img, size_t index)
{
	return &img->hits.items[index];
}

enum hit_state image_hit_state(const struct image *img, size_t index)
{
	return img->hits.states[index];
}

void image_hit_settle(struct image *img, size_t index, enum hit_state state)
{
	const struct hit_list *list = &img->hits;
	vaddr_t target = list->items[index].target;
	size_t i;

	list->states[index] = (uint8_t)state;
	if (state != HIT_CHANCE)
		return;
	for (i = into(list, target); i < list->count && list->items[i].target == target; i++)
		if (list->states[i] != HIT_CHANCE)
			return;
	references_clear_branch(img, target);
}
