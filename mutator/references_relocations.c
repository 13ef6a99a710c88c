/* SPDX-License-Identifier: MIT */
/*
 * references_relocations.c - reads the relocations that the loader applies, and
 * what may be addresses where there are none.
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

enum { WORDS_PIECE = 1 << 20 }; /* bytes that are in our memory at once */

/* Bytes that a relocation table consists of, and its symbols where it has some. */
struct relocations {
	const uint8_t *bytes, *symbols;
	const char *names; /* ends with a zero */
	size_t size, symbols_size, names_size;
	bool packed; /* SHT_RELR */
};

/* Who is told what. One of the three is asked for. */
struct visitor {
	relocation_found found;
	relocation_found written;
	slot_found slot;
	void *arg;
};

static bool symbol_of(const struct relocations *t, uint64_t info, Elf64_Sym *symbol)
{
	uint64_t index = ELF64_R_SYM(info);

	if (!t->symbols || index >= t->symbols_size / sizeof(*symbol))
		return false;
	memcpy(symbol, t->symbols + index * sizeof(*symbol), sizeof(*symbol));
	return true;
}

static void run_rela(const struct relocations *t, relocation_found found, void *arg)
{
	for (size_t at = 0; at + sizeof(Elf64_Rela) <= t->size; at += sizeof(Elf64_Rela)) {
		Elf64_Rela r;
		Elf64_Sym symbol;

		memcpy(&r, t->bytes + at, sizeof(r));
		switch (ELF64_R_TYPE(r.r_info)) {
		case R_X86_64_RELATIVE:
		case R_X86_64_RELATIVE64:
		case R_X86_64_IRELATIVE:
			found(arg, r.r_offset, r.r_addend);
			break;
		case R_X86_64_64:
			if (symbol_of(t, r.r_info, &symbol) && symbol.st_shndx != SHN_UNDEF)
				found(arg, r.r_offset, symbol.st_value + r.r_addend);
			break;
		}
	}
}

static void run_written(const struct relocations *t, relocation_found found, void *arg)
{
	for (size_t at = 0; at + sizeof(Elf64_Rela) <= t->size; at += sizeof(Elf64_Rela)) {
		Elf64_Rela r;

		memcpy(&r, t->bytes + at, sizeof(r));
		if (ELF64_R_TYPE(r.r_info))
			found(arg, r.r_offset, 0);
	}
}

static void run_slots(const struct relocations *t, slot_found slot, void *arg)
{
	for (size_t at = 0; at + sizeof(Elf64_Rela) <= t->size; at += sizeof(Elf64_Rela)) {
		Elf64_Rela r;
		Elf64_Sym symbol;
		uint64_t type;

		memcpy(&r, t->bytes + at, sizeof(r));
		type = ELF64_R_TYPE(r.r_info);
		if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT &&
		    (type != R_X86_64_64 || r.r_addend))
			continue;
		if (symbol_of(t, r.r_info, &symbol) && t->names && symbol.st_name < t->names_size)
			slot(arg, r.r_offset, t->names + symbol.st_name,
			     symbol.st_shndx == SHN_UNDEF ? 0 : symbol.st_value);
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

static void run_table(const struct elf_file *f, const struct relocations *t,
		      const struct visitor *v)
{
	if (!t->bytes)
		return;
	if (v->slot && !t->packed)
		run_slots(t, v->slot, v->arg);
	else if (v->written && t->packed)
		run_relr(f, t, v->written, v->arg);
	else if (v->written)
		run_written(t, v->written, v->arg);
	else if (v->found && t->packed)
		run_relr(f, t, v->found, v->arg);
	else if (v->found)
		run_rela(t, v->found, v->arg);
}

/* Names, if they end where they say. */
static void set_names(struct relocations *t, const uint8_t *bytes, size_t size)
{
	if (!bytes || !size || bytes[size - 1])
		return;
	t->names = (const char *)bytes;
	t->names_size = size;
}

static void run_sections(const struct elf_file *f, const struct visitor *v)
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
			const struct elf_section *symbols = &f->sections[section->link];

			t.symbols = symbols->bytes;
			t.symbols_size = t.symbols ? symbols->size : 0;
			if (symbols->link < f->section_count)
				set_names(&t, f->sections[symbols->link].bytes,
					  f->sections[symbols->link].size);
		}
		run_table(f, &t, v);
	}
}

/* What the loader goes by; for files without section headers. */
static void run_dynamic(const struct elf_file *f, const struct visitor *v)
{
	struct relocations rela = {0}, jump = {0}, relr = {.packed = true};
	uint64_t value, rela_size = 0, jump_size = 0, relr_size = 0, names_size = 0;
	const uint8_t *names = NULL;
	size_t most = 0;

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
			case DT_STRTAB:
				names = elf_at(f, value, &most, NULL);
				break;
			case DT_STRSZ:
				names_size = value;
				break;
			}
		}
	}
	rela.size = rela_size < rela.size ? rela_size : rela.size;
	jump.size = jump_size < jump.size ? jump_size : jump.size;
	relr.size = relr_size < relr.size ? relr_size : relr.size;
	set_names(&rela, names, names_size < most ? names_size : most);
	jump.symbols = rela.symbols;
	jump.symbols_size = rela.symbols_size;
	set_names(&jump, names, names_size < most ? names_size : most);
	run_table(f, &rela, v);
	run_table(f, &jump, v);
	run_table(f, &relr, v);
}

static void run(const struct elf_file *f, const struct visitor *v)
{
	if (f->section_count)
		run_sections(f, v);
	else
		run_dynamic(f, v);
}

void relocations_each(const struct elf_file *f, relocation_found found, void *arg)
{
	run(f, &(struct visitor){.found = found, .arg = arg});
}

void written_each(const struct elf_file *f, relocation_found found, void *arg)
{
	run(f, &(struct visitor){.written = found, .arg = arg});
}

void slots_each(const struct elf_file *f, slot_found slot, void *arg)
{
	run(f, &(struct visitor){.slot = slot, .arg = arg});
}

/* ------------------------------------------------------------------- words */

static void words_of(const struct elf_file *f, const struct elf_segment *g, vaddr_t lo, vaddr_t hi,
		     relocation_found found, void *arg)
{
	/* Of the highest bytes of all that is looked for: one that is not zero rules out several. */
	const size_t zeros = (size_t)__builtin_clzll(hi | 1) / 8;
	size_t at = 0, forgotten = 0;

	while (at + sizeof(uint64_t) <= g->file_size) {
		uint64_t value = elf_u64(g->bytes + at);

		if (zeros && value >> 56) {
			at += zeros;
			continue;
		}
		if (value >= lo && value < hi)
			found(arg, g->address + at, value);
		at++;
		if (at - forgotten >= WORDS_PIECE) {
			elf_file_forget(f, g->bytes + forgotten, at - forgotten);
			forgotten = at;
		}
	}
}

void words_each(const struct elf_file *f, uint32_t without, vaddr_t lo, vaddr_t hi,
		relocation_found found, void *arg)
{
	for (size_t i = 0; i < f->load_count; i++)
		if (!(f->loads[i].flags & without))
			words_of(f, &f->loads[i], lo, hi, found, arg);
}
