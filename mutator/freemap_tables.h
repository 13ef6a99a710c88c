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

/*
 * Fills *targets and *bases (where tables may begin), which are empty. What
 * they hold on failure is the caller's, too.
 */
int image_table_targets(struct image *img, struct vaddr_list *targets, struct vaddr_list *bases,
			struct dinst_error *e);

#endif
