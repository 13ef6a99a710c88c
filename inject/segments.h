/* SPDX-License-Identifier: MIT */
/*
 * segments.h - the program headers of a file, read where it is mapped in the target.
 *
 * They are outside input: what does not look like a header is none.
 */
#ifndef DINST_INJECT_SEGMENTS_H
#define DINST_INJECT_SEGMENTS_H

#include <elf.h>

#include "inject/maps.h"
#include "inject/target.h"

enum { SEGMENTS_MAX = 32 };

struct segments {
	Elf64_Ehdr file;
	Elf64_Phdr entries[SEGMENTS_MAX];
	size_t count;
};

/* Reads the header at `address`, where the file's first byte is. False if there is none that we know. */
bool segments_read(const struct target *t, taddr_t address, struct segments *s);

/* address in the target = p_vaddr + *bias, where the file begins at `start`. False if nothing of it is loaded. */
bool segments_bias(const struct segments *s, taddr_t start, taddr_t *bias);

/*
 * True if `entry`, one of m's, lies where an executable segment is of the file that is mapped there, or
 * next below it: the program has put other memory in the place of its text, or has taken rights from it.
 */
bool segments_are_code(const struct target *t, const struct maps *m,
		       const struct maps_entry *entry);

#endif
