/* SPDX-License-Identifier: MIT */
/*
 * exceptions.c - looks up the exception table of a piece of code. Never decodes
 * the code itself.
 */
#include "mutator/exceptions.h"

#include "mutator/image_private.h"

/* The last range that starts at or before v, if v is in it. */
static const struct cfi_range *range_of(const struct image *img, vaddr_t v)
{
	size_t lo = 0, hi = img->fde_count;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (img->fdes[mid].lo <= v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && v - img->fdes[lo - 1].lo < img->fdes[lo - 1].size ? &img->fdes[lo - 1] : NULL;
}

size_t image_handlers(const struct image *img, vaddr_t v, struct image_range *code,
		      void (*found)(void *arg, vaddr_t lo, vaddr_t hi, vaddr_t pad), void *arg)
{
	const struct cfi_range *fde = range_of(img, v);
	const uint8_t *bytes;
	size_t size, used = 0;

	*code = (struct image_range){v, v};
	if (!fde)
		return 0;
	*code = (struct image_range){fde->lo, fde->lo + fde->size};
	/* What lies in there and has a record of its own is its own. */
	if (fde + 1 < img->fdes + img->fde_count && fde[1].lo < code->hi)
		code->hi = fde[1].lo;
	if (!fde->lsda)
		return 0;
	bytes = elf_at(&img->file, fde->lsda, &size, NULL);
	if (bytes)
		cfi_call_sites(bytes, size, fde->lsda, fde->lo, found, arg, &used);
	return used;
}
