/* SPDX-License-Identifier: MIT */
/*
 * exceptions.h - which calls may throw into which handler.
 */
#ifndef DINST_MUTATOR_EXCEPTIONS_H
#define DINST_MUTATOR_EXCEPTIONS_H

#include "mutator/image.h"

/*
 * Reads the exception table of the code at v, if it has one: calls `found` with
 * every range of calls [lo, hi) and the handler `pad` that one of them may lead
 * to. A damaged table ends where it is damaged: image_references() has said so.
 * *code is the code that has the same table, empty where there is none. Returns how many bytes the
 * table has.
 */
size_t image_handlers(const struct image *img, vaddr_t v, struct image_range *code,
		      void (*found)(void *arg, vaddr_t lo, vaddr_t hi, vaddr_t pad), void *arg);

#endif
