/* SPDX-License-Identifier: MIT */
/*
 * stack_unwind.c - finding .eh_frame_hdr in a process's memory.
 *
 * Reads ELF headers as the loader left them in memory, and checks each field
 * before it is used. Never opens a file, never reads memory that could be a stack.
 */
#include "inject/stack_unwind.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
	PAGE = 4096,
	HEADERS_MAX = 64, /* program headers of one file */
	HEADER_VERSION = 1,
	/* DW_EH_PE encodings (LSB, "DWARF Extensions"). */
	ENCODED_OMIT = 0xff,
	ENCODED_SDATA4 = 0x0b,
	ENCODED_UDATA4 = 0x03,
	ENCODED_DATAREL_SDATA4 = 0x3b,
};

bool unwind_memory_init(struct unwind_memory *u, const struct target *t, const struct maps *maps)
{
	memset(u, 0, sizeof(*u));
	u->target = t;
	u->maps = maps;
	u->bytes = malloc((size_t)UNWIND_PAGES * PAGE);
	return u->bytes != NULL;
}

void unwind_memory_release(struct unwind_memory *u)
{
	free(u->bytes);
	u->bytes = NULL;
}

/* The page that contains `address`, from the cache or the target; NULL if it cannot be read. */
static const uint8_t *find_page(struct unwind_memory *u, taddr_t address)
{
	taddr_t page = address / PAGE * PAGE;
	size_t slot = (size_t)(page / PAGE % UNWIND_PAGES);
	uint8_t *bytes = u->bytes + slot * PAGE;
	const struct maps_entry *entry;

	if (u->pages[slot] == page + 1)
		return bytes;
	entry = maps_find(u->maps, page);
	if (!entry || !(entry->protection & PROT_READ) ||
	    ((entry->protection & PROT_WRITE) &&
	     (!entry->inode || (u->no_shared && entry->shared))))
		return NULL;
	u->pages[slot] = 0;
	if (target_read_some(u->target, page, bytes, PAGE) != PAGE)
		return NULL;
	u->pages[slot] = page + 1;
	return bytes;
}

bool unwind_read(struct unwind_memory *u, taddr_t address, void *to, size_t size)
{
	uint8_t *out = to;

	while (size) {
		size_t within = address % PAGE;
		size_t part = PAGE - within < size ? PAGE - within : size;
		const uint8_t *page = find_page(u, address);

		if (!page)
			return false;
		memcpy(out, page + within, part);
		out += part;
		address += part;
		size -= part;
	}
	return true;
}

/* Where the file of `entry` begins in memory. */
static bool find_file_start(const struct unwind_memory *u, const struct maps_entry *entry,
			    taddr_t *start)
{
	const struct maps_entry *first = entry;

	/* The vdso has no file, and is one mapping that begins with its header. */
	if (entry->inode)
		first = maps_file_start(u->maps, entry);
	else if (strcmp(entry->name, "[vdso]"))
		first = NULL;
	if (first)
		*start = first->lo;
	return first != NULL;
}

/* Finds the address of .eh_frame_hdr by the program headers of the file at `start`. */
static bool find_header(struct unwind_memory *u, taddr_t start, taddr_t *header)
{
	taddr_t bias = 0, found = 0;
	bool has_bias = false, has_header = false;
	Elf64_Phdr ph[HEADERS_MAX] = {0};
	Elf64_Ehdr eh;

	if (!unwind_read(u, start, &eh, sizeof(eh)) || memcmp(eh.e_ident, ELFMAG, SELFMAG) ||
	    eh.e_ident[EI_CLASS] != ELFCLASS64 || eh.e_machine != arch_elf_machine ||
	    eh.e_phentsize != sizeof(Elf64_Phdr) || eh.e_phnum > HEADERS_MAX ||
	    !unwind_read(u, start + eh.e_phoff, ph, eh.e_phnum * sizeof(*ph)))
		return false;
	for (unsigned i = 0; i < eh.e_phnum; i++) {
		if (ph[i].p_type == PT_LOAD && !has_bias && ph[i].p_offset < PAGE) {
			bias = start - (ph[i].p_vaddr - ph[i].p_offset);
			has_bias = true;
		}
		if (ph[i].p_type == PT_GNU_EH_FRAME) {
			found = ph[i].p_vaddr;
			has_header = true;
		}
	}
	*header = bias + found;
	return has_bias && has_header;
}

/* The layout that every linker writes; another one counts as none. */
static bool read_header(struct unwind_memory *u, struct unwind_table *table)
{
	struct {
		uint8_t version, frame_encoding, count_encoding, table_encoding;
		uint32_t frame, count;
	} h;

	if (!unwind_read(u, table->header, &h, sizeof(h)) || h.version != HEADER_VERSION)
		return false;
	if ((h.frame_encoding & 0x0f) != ENCODED_SDATA4 &&
	    (h.frame_encoding & 0x0f) != ENCODED_UDATA4)
		return false;
	if (h.frame_encoding == ENCODED_OMIT || h.count_encoding != ENCODED_UDATA4 ||
	    h.table_encoding != ENCODED_DATAREL_SDATA4 || !h.count)
		return false;
	table->table = table->header + sizeof(h);
	table->entries = h.count;
	return true;
}

const struct unwind_table *unwind_find(struct unwind_memory *u, taddr_t pc)
{
	const struct maps_entry *entry;
	struct unwind_table *table;
	taddr_t start;

	for (size_t i = 0; i < u->table_count; i++)
		if (pc >= u->tables[i].lo && pc < u->tables[i].hi)
			return u->tables[i].valid ? &u->tables[i] : NULL;
	entry = maps_find(u->maps, pc);
	if (!entry || !(entry->protection & PROT_EXEC))
		return NULL;
	if (u->table_count == UNWIND_TABLES)
		u->table_count = 0;
	table = &u->tables[u->table_count++];
	*table = (struct unwind_table){.lo = entry->lo, .hi = entry->hi};
	table->valid = find_file_start(u, entry, &start) && find_header(u, start, &table->header) &&
		       read_header(u, table);
	return table->valid ? table : NULL;
}
