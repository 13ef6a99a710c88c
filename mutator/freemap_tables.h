/* SPDX-License-Identifier: MIT */
/*
 * freemap_tables.h - targets of all jump tables of an image, private to
 * planning: sorted lists, made once. The caller frees what they hold.
 */
#ifndef DINST_MUTATOR_FREEMAP_TABLES_H
#define DINST_MUTATOR_FREEMAP_TABLES_H

#include "mutator/image.h"

struct vaddr_list {
	vaddr_t *items;
	size_t count, room;
};

/* -1 without memory. */
int vaddr_list_add(struct vaddr_list *list, vaddr_t v);
/* Sorts, and throws out doubles. */
void vaddr_list_sort(struct vaddr_list *list);

/*
 * Fills *targets and *bases (where tables may begin), which are empty. What
 * they hold on failure is the caller's, too.
 */
int image_table_targets(struct image *img, struct vaddr_list *targets, struct vaddr_list *bases,
			struct dinst_error *e);

/*
 * Fills *constants, which is empty: places in the code that an instruction may read or write,
 * as far as they look like padding.
 */
int image_constants(struct image *img, struct vaddr_list *constants);

#endif
