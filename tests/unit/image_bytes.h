/* SPDX-License-Identifier: MIT */
/*
 * image_bytes.h - files of programs that a test changes before they are opened.
 */
#ifndef DINST_TESTS_IMAGE_BYTES_H
#define DINST_TESTS_IMAGE_BYTES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above */
#include <cmocka.h>

#include <elf.h>
#include <fcntl.h>
#include <lzma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mutator/image_private.h"

struct bytes {
	uint8_t *p;
	size_t size;
};

static inline struct bytes target_bytes(const char *name)
{
	const char *build = getenv("DINST_BUILD");
	struct bytes b = {0};
	char path[4096];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/tests/live/targets/%s", build ? build : "build", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		fail_msg("there is no %s", path);
	b.p = malloc(st.st_size);
	b.size = st.st_size;
	assert_int_equal(read(fd, b.p, b.size), b.size);
	close(fd);
	return b;
}

static inline Elf64_Shdr *sections(struct bytes *b)
{
	return (Elf64_Shdr *)(b->p + ((Elf64_Ehdr *)b->p)->e_shoff);
}

static inline void hide_symbols(struct bytes *b)
{
	for (unsigned i = 0; i < ((Elf64_Ehdr *)b->p)->e_shnum; i++)
		if (sections(b)[i].sh_type == SHT_SYMTAB)
			sections(b)[i].sh_type = SHT_PROGBITS;
}

/* As if something were put in front of its code after the two were parted. */
static inline void move_code(struct bytes *b)
{
	for (unsigned i = 0; i < ((Elf64_Ehdr *)b->p)->e_shnum; i++)
		if (sections(b)[i].sh_flags & SHF_EXECINSTR)
			sections(b)[i].sh_addr += 16;
}

/* Appends a section: its contents, new section names, a new section table. */
static inline void add_section(struct bytes *b, const char *name, const void *contents, size_t size)
{
	Elf64_Ehdr *h = (Elf64_Ehdr *)b->p;
	unsigned count = h->e_shnum;
	Elf64_Shdr *names = &sections(b)[h->e_shstrndx], *added;
	size_t where = (b->size + 7) & ~(size_t)7, names_at = (where + size + 7) & ~(size_t)7;
	size_t names_size = names->sh_size + strlen(name) + 1;
	size_t table = (names_at + names_size + 7) & ~(size_t)7;
	size_t total = table + (count + 1) * sizeof(Elf64_Shdr);
	uint8_t *p = calloc(1, total);

	assert_non_null(p);
	memcpy(p, b->p, b->size);
	memcpy(p + where, contents, size);
	memcpy(p + names_at, b->p + names->sh_offset, names->sh_size);
	memcpy(p + names_at + names->sh_size, name, strlen(name) + 1);
	memcpy(p + table, b->p + h->e_shoff, count * sizeof(Elf64_Shdr));
	h = (Elf64_Ehdr *)p;
	h->e_shoff = table;
	h->e_shnum = count + 1;
	added = (Elf64_Shdr *)(p + table) + count;
	names = (Elf64_Shdr *)(p + table) + h->e_shstrndx;
	*added = (Elf64_Shdr){
		.sh_name = names->sh_size,
		.sh_type = SHT_PROGBITS,
		.sh_offset = where,
		.sh_size = size,
	};
	names->sh_offset = names_at;
	names->sh_size = names_size;
	free(b->p);
	b->p = p;
	b->size = total;
}

static inline struct image *open_bytes(const struct bytes *b, const char *name, const char *root,
				       struct dinst_error *e)
{
	int fd = memfd_create("image", MFD_CLOEXEC);
	struct image *img = NULL;

	assert_int_equal(write(fd, b->p, b->size), b->size);
	image_open(fd, name, root, &img, e);
	close(fd);
	return img;
}

/* As .gnu_debugdata has it. */
static inline struct bytes compress(const struct bytes *b)
{
	struct bytes out = {malloc(b->size + 65536), 0};

	assert_int_equal(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, NULL, b->p, b->size, out.p,
						 &out.size, b->size + 65536),
			 LZMA_OK);
	return out;
}

#endif
