/* SPDX-License-Identifier: MIT */
/*
 * image_outer.c - which function a byte belongs to, where functions lie in each other.
 *
 * Of any number that begin in front of it, the one that begins last of those that have not ended. From each a
 * chain leads outwards, to ever later ends; so that nobody walks all of a long one, `far` leads over many of
 * its links at once (the jump pointers of Myers, "An applicative random-access stack", 1983).
 */
#include "mutator/image_private.h"

#include <stdlib.h>

static vaddr_t end_of(const struct image *img, uint32_t function)
{
	return img->functions[function].address + img->functions[function].size;
}

/* Its chain has depth[i] links. */
static void link_outer(struct image *img, uint32_t *depth, uint32_t i, uint32_t next)
{
	struct image_outer *o = img->outer;
	uint32_t far, further;

	o[i] = (struct image_outer){next, i};
	if (next == NO_FUNCTION)
		return;
	far = o[next].far;
	further = o[far].far;
	depth[i] = depth[next] + 1;
	o[i].far = depth[next] - depth[far] == depth[far] - depth[further] ? further : next;
}

int outer_find(struct image *img, struct dinst_error *e)
{
	uint32_t *depth = calloc(img->function_count + 1, sizeof(*depth));

	img->outer = malloc((img->function_count + 1) * sizeof(*img->outer));
	if (!img->outer || !depth) {
		free(depth);
		return dinst_fail(e, DINST_NO_MEMORY, "%s: no memory for functions", img->name);
	}
	for (uint32_t i = 0; i < img->function_count; i++) {
		uint32_t at = i ? i - 1 : NO_FUNCTION;

		/* Whoever ends before it, or where it does, is not asked about again. */
		while (at != NO_FUNCTION && end_of(img, at) <= end_of(img, i))
			at = img->outer[at].next;
		link_outer(img, depth, i, at);
	}
	free(depth);
	return 0;
}

long image_function_at(const struct image *img, vaddr_t vaddr)
{
	size_t lo = 0, hi = img->function_count;
	uint32_t at;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (img->functions[mid].address <= vaddr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return -1;
	for (at = (uint32_t)lo - 1; at != NO_FUNCTION && end_of(img, at) <= vaddr;) {
		const struct image_outer *o = &img->outer[at];

		at = o->far != at && end_of(img, o->far) <= vaddr ? o->far : o->next;
	}
	return at == NO_FUNCTION ? -1 : (long)at;
}

long image_function_around(const struct image *img, long index)
{
	const uint32_t next = img->outer[index].next;

	return next == NO_FUNCTION ? -1 : (long)next;
}
