/* SPDX-License-Identifier: MIT */
/*
 * image_called.c - parts of functions that are functions themselves, although their names say that
 * they are none: LLVM's hot-cold splitting moves cold code into a function of its own, foo.cold.1, with
 * frame and return, and calls it. Other parts are jumped to.
 *
 * Of those that may be such their parents alone are decoded, once each.
 */
#include "mutator/image_private.h"

#include "arch/arch.h"

#include <stdlib.h>

struct split {
	uint32_t parent, index;
};

/* The unwind data says that a frame is set up before its first byte. */
static bool begins_with_frame(const struct image *img, vaddr_t v)
{
	size_t lo = 0, hi = img->fde_count;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (img->fdes[mid].lo < v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < img->fde_count && img->fdes[lo].lo == v && img->fdes[lo].flags & CFI_FRAGMENT;
}

static bool may_be_called(const struct image *img, size_t i)
{
	const struct image_function *fn = &img->functions[i];
	size_t length;

	if ((fn->flags & (FUNCTION_COLD | FUNCTION_NO_SYMBOL)) != FUNCTION_COLD || fn->parent == i)
		return false;
	length = strlen(fn->name);
	return fn->name[length - 1] >= '0' && fn->name[length - 1] <= '9' &&
	       !begins_with_frame(img, fn->address);
}

static int by_parent(const void *a, const void *b)
{
	const struct split *x = a, *y = b;

	if (x->parent != y->parent)
		return x->parent < y->parent ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

/* The call leads to the start of one of the parts, which are sorted: that is a function. */
static void note_call(struct image *img, const struct split *parts, size_t count, vaddr_t target)
{
	size_t lo = 0, hi = count;
	struct image_function *fn;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (img->functions[parts[mid].index].address < target)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == count)
		return;
	fn = &img->functions[parts[lo].index];
	if (fn->address != target)
		return;
	fn->flags &= ~(uint32_t)FUNCTION_COLD;
	fn->parent = parts[lo].index;
}

/* Decodes the parent of `count` parts, up to where the next function begins. */
static void look_at_parent(struct image *img, const struct split *parts, size_t count)
{
	const struct image_function *fn = &img->functions[parts[0].parent];
	size_t size = 0, at = 0;
	const uint8_t *bytes = image_code(img, fn->address, &size);
	struct arch_insn insn;

	if (!bytes)
		return;
	if (size > fn->size)
		size = fn->size;
	if (parts[0].parent + 1 < img->function_count && size > fn[1].address - fn->address)
		size = fn[1].address - fn->address;
	while (at < size &&
	       arch_decode(bytes + at, size - at, fn->address + at, &insn) == ARCH_OK) {
		if (insn.flow == ARCH_FLOW_CALL)
			note_call(img, parts, count, insn.target);
		at += insn.length;
	}
}

int called_settle(struct image *img, struct dinst_error *e)
{
	struct split *parts;
	size_t count = 0;

	for (size_t i = 0; i < img->function_count; i++)
		count += may_be_called(img, i);
	if (!count)
		return 0;
	parts = calloc(count, sizeof(*parts));
	if (!parts)
		return dinst_fail(e, DINST_NO_MEMORY, "%s: no memory for parts of functions",
				  img->name);
	count = 0;
	for (size_t i = 0; i < img->function_count; i++)
		if (may_be_called(img, i))
			parts[count++] = (struct split){img->functions[i].parent, (uint32_t)i};
	qsort(parts, count, sizeof(*parts), by_parent);
	for (size_t i = 0, end; i < count; i = end) {
		for (end = i + 1; end < count && parts[end].parent == parts[i].parent; end++)
			;
		look_at_parent(img, &parts[i], end - i);
	}
	free(parts);
	return 0;
}
