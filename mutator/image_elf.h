/* SPDX-License-Identifier: MIT */
/*
 * image_elf.h - the structure of one 64-bit ELF file, every field checked.
 *
 * Private to the image_*.c files. A file is bytes, either mapped or in memory
 * that we own; headers are copied out and checked once, so that whoever holds
 * a struct elf_section may use its `bytes` without a further look. Fields are
 * read with memcpy: nothing is assumed to be aligned.
 *
 * A file that somebody cuts short while we have it mapped reads as zeros from
 * there on (image_map.c).
 *
 * Calling sequence: elf_file_map() or elf_file_memory(), look, elf_file_release().
 * Layouts: System V ABI, chapters 4 and 5, and elf(5).
 */
#ifndef DINST_MUTATOR_IMAGE_ELF_H
#define DINST_MUTATOR_IMAGE_ELF_H

#include <elf.h>
#include <string.h>

#include "inject/error.h"
#include "mutator/image.h"

enum { ELF_NAME_ROOM = 32 }; /* the longest name that anything here asks for has 22 bytes */

struct elf_section {
	char name[ELF_NAME_ROOM]; /* a longer one is cut; "" if there are no names */
	const uint8_t *bytes;	  /* NULL where the file has none (SHT_NOBITS) */
	uint64_t address, offset, size, entry_size;
	uint64_t flags;
	uint32_t type, link, info;
};

struct elf_segment {
	const uint8_t *bytes; /* file_size of them */
	vaddr_t address;
	uint64_t offset, file_size, memory_size;
	uint32_t type, flags;
};

/* Which file it was: what somebody else shows under the same build id is another one. Zero: memory. */
struct elf_version {
	uint64_t device, inode, change_s, change_ns;
};

struct elf_file {
	uint8_t *bytes;
	size_t size;
	bool mapped;   /* munmap() it, else free() */
	uint16_t type; /* ET_EXEC, ET_DYN */
	vaddr_t entry;
	struct elf_segment *segments; /* all that have contents */
	size_t segment_count;
	struct elf_segment *loads; /* PT_LOAD: sorted, disjoint in memory */
	size_t load_count;
	struct elf_section *sections;
	size_t section_count;
	struct elf_version version;
};

enum elf_kind {
	ELF_PROGRAM, /* has segments with contents */
	ELF_DEBUG,   /* a debug file: segments are not looked at */
};

/*
 * Maps the file behind `fd` read-only and checks it. On failure *f is empty.
 * The error is DINST_UNSUPPORTED for a file of another kind (not ELF, 32-bit,
 * another machine) and DINST_BAD_FILE for a damaged one.
 */
int elf_file_map(int fd, const char *name, enum elf_kind kind, struct elf_file *f,
		 struct dinst_error *e);

/* The same for `size` bytes of malloc'ed memory, which it takes over even on failure. */
int elf_file_memory(uint8_t *bytes, size_t size, const char *name, enum elf_kind kind,
		    struct elf_file *f, struct dinst_error *e);

void elf_file_release(struct elf_file *f);

/*
 * image_map.c: maps `size` bytes of a file for reading, with a page of zeros behind
 * them; what is cut off the file meanwhile is zeros from then on. NULL and errno
 * on failure. From the first call on SIGBUS in such a mapping is caught.
 */
uint8_t *file_map(int fd, size_t size);
void file_unmap(uint8_t *start, size_t size);

/* The pages of a mapped file need not stay in our memory: they are read again when used. */
void elf_file_forget(const struct elf_file *f, const uint8_t *bytes, size_t size);

/* The first section of that name that has contents; NULL if none. */
const struct elf_section *elf_section_named(const struct elf_file *f, const char *name);

/* `size` bytes of the file from `offset` on; NULL unless all are there. */
const uint8_t *elf_bytes(const struct elf_file *f, uint64_t offset, uint64_t size);

/* File bytes at a link-time address, in any loaded segment; *size: how many follow. */
const uint8_t *elf_at(const struct elf_file *f, vaddr_t address, size_t *size,
		      const struct elf_segment **segment);

/* The GNU build id of the file; NULL if none. */
const uint8_t *elf_build_id(const struct elf_file *f, size_t *size);

/*
 * Looks through `size` bytes of notes for the one of that owner and type.
 * Returns its description, NULL if there is none.
 */
const uint8_t *elf_note(const uint8_t *bytes, size_t size, size_t align, const char *owner,
			uint32_t type, size_t *found);

/* Reads a value of the machine's byte order from anywhere. */
static inline uint16_t elf_u16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline uint32_t elf_u32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline uint64_t elf_u64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

#endif
