/* SPDX-License-Identifier: MIT */
/*
 * references_relocations.h - where the loader, or the linker, stores which addresses.
 *
 * Private to the image.
 */
#ifndef DINST_MUTATOR_REFERENCES_RELOCATIONS_H
#define DINST_MUTATOR_REFERENCES_RELOCATIONS_H

#include "mutator/image_elf.h"

/* `value` is a link-time address, `place` where it is stored. */
typedef void (*relocation_found)(void *arg, vaddr_t place, vaddr_t value);

/*
 * Calls `found` for every relocation that stores an address of this file:
 * relative ones (packed or not), resolvers, and symbols that it defines.
 */
void relocations_each(const struct elf_file *f, relocation_found found, void *arg);

/*
 * Calls `found` for every place to which the loader writes anything, of whatever type; `value`
 * means nothing.
 */
void written_each(const struct elf_file *f, relocation_found found, void *arg);

/*
 * For files without relocations, where any eight bytes may be an address, aligned or not
 * (records without padding): calls `found` for all that are in [lo, hi), in segments that
 * have none of the flags `without` (PF_*).
 */
void words_each(const struct elf_file *f, uint32_t without, vaddr_t lo, vaddr_t hi,
		relocation_found found, void *arg);

/* `value` is 0 for a symbol of another file; `name` lives as long as the file. */
typedef void (*slot_found)(void *arg, vaddr_t place, const char *name, vaddr_t value);

/*
 * Calls `found` for every place in which the loader stores the whole address of
 * a named symbol: what linker stubs and indirect calls of other files go through.
 */
void slots_each(const struct elf_file *f, slot_found found, void *arg);

#endif
