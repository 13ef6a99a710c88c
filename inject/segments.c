/* SPDX-License-Identifier: MIT */
/*
 * segments.c - where a file's segments are in the target, as its program headers say (ELF specification,
 * "Program Loading"). Never writes, and opens no file.
 */
#include "inject/segments.h"

#include <string.h>
#include <unistd.h>

static taddr_t page_size(void)
{
	return (taddr_t)sysconf(_SC_PAGESIZE);
}

bool segments_read(const struct target *t, taddr_t address, struct segments *s)
{
	const Elf64_Ehdr *file = &s->file;

	if (target_read(t, address, &s->file, sizeof(s->file), NULL) ||
	    memcmp(file->e_ident, ELFMAG, SELFMAG) || file->e_ident[EI_CLASS] != ELFCLASS64 ||
	    file->e_phentsize != sizeof(Elf64_Phdr) || file->e_phnum > SEGMENTS_MAX ||
	    file->e_phoff > page_size() - sizeof(s->entries))
		return false;
	s->count = file->e_phnum;
	return !target_read(t, address + file->e_phoff, s->entries,
			    s->count * sizeof(s->entries[0]), NULL);
}

bool segments_bias(const struct segments *s, taddr_t start, taddr_t *bias)
{
	for (size_t i = 0; i < s->count; i++) {
		const Elf64_Phdr *p = &s->entries[i];

		if (p->p_type != PT_LOAD)
			continue;
		*bias = start - ((p->p_vaddr - p->p_offset) & ~(page_size() - 1));
		return true;
	}
	return false;
}

bool segments_are_code(const struct target *t, const struct maps *m, const struct maps_entry *entry)
{
	const struct maps_entry *file = entry, *start;
	const taddr_t mask = page_size() - 1;
	struct segments s;
	taddr_t bias;

	while (file > m->entries && !file->inode)
		file--;
	start = maps_file_start(m, file);
	if (!start || !segments_read(t, start->lo, &s) || !segments_bias(&s, start->lo, &bias))
		return false;
	for (size_t i = 0; i < s.count; i++) {
		const Elf64_Phdr *p = &s.entries[i];
		const taddr_t lo = (bias + p->p_vaddr) & ~mask;
		const taddr_t hi = (bias + p->p_vaddr + p->p_memsz + mask) & ~mask;

		if (p->p_type == PT_LOAD && (p->p_flags & PF_X) && entry->lo < hi && lo < entry->hi)
			return true;
	}
	return false;
}
