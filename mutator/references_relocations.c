/* SPDX-License-Identifier: MIT */
/*
 * references_relocations.c - reads the relocations that the loader applies.
 *
 * Only those whose value is known when the file is linked. Types are those of
 * the psABI, by the names of elf.h. Bounded by the size of the tables.
 */
#include "mutator/references_relocations.h"

/* Older copies of elf.h lack relative relocations in their packed form (gABI). */
#ifndef SHT_RELR
#define SHT_RELR 19
#endif
#ifndef DT_RELR
#define DT_RELRSZ 35
#define DT_RELR	  36
#endif

/* Bytes that a relocation table consists of, and its symbols where it has some. */
struct relocations {
	const uint8_t *bytes, *symbols;
	size_t size, symbols_size;
	bool packed; /* SHT_RELR */
};

static void run_rela(const struct relocations *t, relocation_found found, void *arg)
{
	for (size_t at = 0; at + sizeof(Elf64_Rela) <= t->size; at += sizeof(Elf64_Rela)) {
		Elf64_Rela r;
		Elf64_Sym symbol;
		uint64_t index;

		memcpy(&r, t->bytes + at, sizeof(r));
		switch (ELF64_R_TYPE(r.r_info)) {
		case R_X86_64_RELATIVE:
		case R_X86_64_RELATIVE64:
		case R_X86_64_IRELATIVE:
			found(arg, r.r_offset, r.r_addend);
			break;
		case R_X86_64_64:
			index = ELF64_R_SYM(r.r_info);
			if (!t->symbols || index >= t->symbols_size / sizeof(symbol))
				break;
			memcpy(&symbol, t->symbols + index * sizeof(symbol), sizeof(symbol));
			if (symbol.st_shndx != SHN_UNDEF)
				found(arg, r.r_offset, symbol.st_value + r.r_addend);
			break;
		}
	}
}

/* Even: an address, relocated. Odd: which of the next 63 words are, too (gABI, SHT_RELR). */
static void run_relr(const struct elf_file *f, const struct relocations *t, relocation_found found,
		     void *arg)
{
	vaddr_t next = 0;

	for (size_t at = 0; at + 8 <= t->size; at += 8) {
		uint64_t entry = elf_u64(t->bytes + at);
		uint64_t bits = entry & 1 ? entry >> 1 : 1;
		const uint8_t *word;
		size_t size;

		if (!(entry & 1))
			next = entry;
		for (vaddr_t place = next; bits; bits >>= 1, place += 8) {
			if (!(bits & 1))
				continue;
			word = elf_at(f, place, &size, NULL);
			if (word && size >= 8)
				found(arg, place, elf_u64(word));
		}
		next += entry & 1 ? 63 * 8 : 8;
	}
}

static void run_table(const struct elf_file *f, const struct relocations *t, relocation_found found,
		      void *arg)
{
	if (!t->bytes)
		return;
	if (t->packed)
		run_relr(f, t, found, arg);
	else
		run_rela(t, found, arg);
}

static void run_sections(const struct elf_file *f, relocation_found found, void *arg)
{
	for (size_t i = 0; i < f->section_count; i++) {
		const struct elf_section *section = &f->sections[i];
		struct relocations t = {
			.bytes = section->bytes,
			.size = section->size,
			.packed = section->type == SHT_RELR,
		};

		/* Those that are not loaded are the linker's own (--emit-relocs). */
		if (!(section->flags & SHF_ALLOC) ||
		    (section->type != SHT_RELA && section->type != SHT_RELR))
			continue;
		if (section->link < f->section_count) {
			t.symbols = f->sections[section->link].bytes;
			t.symbols_size = t.symbols ? f->sections[section->link].size : 0;
		}
		run_table(f, &t, found, arg);
	}
}

/* What the loader goes by; for files without section headers. */
static void run_dynamic(const struct elf_file *f, relocation_found found, void *arg)
{
	struct relocations rela = {0}, jump = {0}, relr = {.packed = true};
	uint64_t value, rela_size = 0, jump_size = 0, relr_size = 0;

	for (size_t i = 0; i < f->segment_count; i++) {
		const struct elf_segment *g = &f->segments[i];

		if (g->type != PT_DYNAMIC || !g->bytes)
			continue;
		for (size_t at = 0; at + 16 <= g->file_size && elf_u64(g->bytes + at); at += 16) {
			value = elf_u64(g->bytes + at + 8);
			switch (elf_u64(g->bytes + at)) {
			case DT_RELA:
				rela.bytes = elf_at(f, value, &rela.size, NULL);
				break;
			case DT_RELASZ:
				rela_size = value;
				break;
			case DT_JMPREL:
				jump.bytes = elf_at(f, value, &jump.size, NULL);
				break;
			case DT_PLTRELSZ:
				jump_size = value;
				break;
			case DT_RELR:
				relr.bytes = elf_at(f, value, &relr.size, NULL);
				break;
			case DT_RELRSZ:
				relr_size = value;
				break;
			case DT_SYMTAB:
				rela.symbols = elf_at(f, value, &rela.symbols_size, NULL);
				break;
			}
		}
	}
	rela.size = rela_size < rela.size ? rela_size : rela.size;
	jump.size = jump_size < jump.size ? jump_size : jump.size;
	relr.size = relr_size < relr.size ? relr_size : relr.size;
	run_table(f, &rela, found, arg);
	run_table(f, &jump, found, arg);
	run_table(f, &relr, found, arg);
}

void relocations_each(const struct elf_file *f, relocation_found found, void *arg)
{
	if (f->section_count)
		run_sections(f, found, arg);
	else
		run_dynamic(f, found, arg);
}
