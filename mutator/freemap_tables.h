/* SPDX-License-Identifier: MIT */
/*
 * freemap_tables.h - targets of all jump tables of an image, private to
 * planning: a sorted list, made once. The caller frees targets->items.
 */
#ifndef DINST_MUTATOR_FREEMAP_TABLES_H
#define DINST_MUTATOR_FREEMAP_TABLES_H

#include "mutator/image.h"

struct vaddr_list {
	vaddr_t *items;
	size_t count, room;
};

/* Fills *targets, which is empty. */
int image_table_targets(struct image *img, struct vaddr_list *targets, struct dinst_error *e);

#endif
