/* SPDX-License-Identifier: MIT */
/*
 * image_elf.c - headers of an ELF file.
 *
 * Outside input: every offset, size and index is checked against the file
 * before it is used, sums are never formed where they could wrap, and nothing
 * here loops more often than the file has bytes. No symbols, no unwind data:
 * those have their own files.
 */
#include "mutator/image_elf.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inject/files.h"

enum {
	SECTIONS_MAX = 1 << 20, /* what one string of linkers makes at most, and then some */
	SEGMENTS_MAX = 4096,
};

/* Smaller ones are read in seconds, whatever is in them. */
static const off_t HOLES_FROM = (off_t)4 << 30;

const uint8_t *elf_bytes(const struct elf_file *f, uint64_t offset, uint64_t size)
{
	if (offset > f->size || size > f->size - offset)
		return NULL;
	return f->bytes + offset;
}

static int bad(struct dinst_error *e, const char *name, const char *what, uint64_t where)
{
	return dinst_fail(e, DINST_BAD_FILE, "%s: damaged ELF file: %s (at offset 0x%llx)", name,
			  what, (unsigned long long)where);
}

static int check_header(const struct elf_file *f, const char *name, Elf64_Ehdr *h,
			struct dinst_error *e)
{
	if (f->size < SELFMAG || memcmp(f->bytes, ELFMAG, SELFMAG))
		return dinst_fail(e, DINST_UNSUPPORTED, "%s: not an ELF file", name);
	if (f->size < sizeof(*h))
		return bad(e, name, "it ends inside the ELF header", f->size);
	memcpy(h, f->bytes, sizeof(*h));
	if (h->e_ident[EI_CLASS] != ELFCLASS64)
		return dinst_fail(e, DINST_UNSUPPORTED,
				  "%s: not a 64-bit ELF file (class %u); only 64-bit code can be "
				  "instrumented",
				  name, h->e_ident[EI_CLASS]);
	if (h->e_ident[EI_DATA] != ELFDATA2LSB || h->e_machine != EM_X86_64)
		return dinst_fail(e, DINST_UNSUPPORTED, "%s: built for another machine (%u)", name,
				  h->e_machine);
	if (h->e_type != ET_EXEC && h->e_type != ET_DYN)
		return dinst_fail(e, DINST_UNSUPPORTED,
				  "%s: neither a program nor a shared object (type %u)", name,
				  h->e_type);
	return 0;
}

/* Extended numbering: counts that do not fit are in section 0 (System V ABI). */
static int section_zero(const struct elf_file *f, const Elf64_Ehdr *h, Elf64_Shdr *zero)
{
	const uint8_t *p = h->e_shoff ? elf_bytes(f, h->e_shoff, sizeof(*zero)) : NULL;

	memset(zero, 0, sizeof(*zero));
	if (!p || h->e_shentsize != sizeof(*zero))
		return -1;
	memcpy(zero, p, sizeof(*zero));
	return 0;
}

static int check_load(const struct elf_file *f, const struct elf_segment *s, const char *name,
		      uint64_t where, struct dinst_error *e)
{
	const struct elf_segment *before = f->load_count ? &f->loads[f->load_count - 1] : NULL;

	if (s->memory_size < s->file_size)
		return bad(e, name, "a segment is smaller in memory than in the file", where);
	if (s->address + s->memory_size < s->address || (s->address + s->memory_size) >> 47)
		return bad(e, name, "a segment does not fit into the address space", where);
	if (before && s->address < before->address + before->memory_size)
		return bad(e, name, "segments overlap or are not in order", where);
	if (!elf_bytes(f, s->offset, s->file_size))
		return bad(e, name, "a segment lies outside the file", where);
	return 0;
}

static int read_segments(struct elf_file *f, const char *name, const Elf64_Ehdr *h,
			 struct dinst_error *e)
{
	uint64_t count = h->e_phnum, loaded = 0;
	const uint8_t *table;
	Elf64_Shdr zero;

	if (count == PN_XNUM && section_zero(f, h, &zero) == 0)
		count = zero.sh_info;
	if (!count || h->e_phentsize != sizeof(Elf64_Phdr) || count > SEGMENTS_MAX)
		return bad(e, name, "no usable program headers", h->e_phoff);
	table = elf_bytes(f, h->e_phoff, count * sizeof(Elf64_Phdr));
	if (!table)
		return bad(e, name, "the program headers lie outside the file", h->e_phoff);
	f->segments = calloc(count, sizeof(*f->segments));
	f->loads = calloc(count, sizeof(*f->loads));
	if (!f->segments || !f->loads)
		return dinst_fail(e, DINST_NO_MEMORY, "%s: no memory", name);
	for (uint64_t i = 0; i < count; i++) {
		struct elf_segment *s = &f->segments[f->segment_count];
		Elf64_Phdr p;

		memcpy(&p, table + i * sizeof(p), sizeof(p));
		*s = (struct elf_segment){
			.type = p.p_type,
			.flags = p.p_flags,
			.address = p.p_vaddr,
			.offset = p.p_offset,
			.file_size = p.p_filesz,
			.memory_size = p.p_memsz,
			.bytes = elf_bytes(f, p.p_offset, p.p_filesz),
		};
		if (p.p_type == PT_LOAD && p.p_memsz) {
			if (check_load(f, s, name, h->e_phoff + i * sizeof(p), e))
				return DINST_BAD_FILE;
			loaded += p.p_filesz;
			f->loads[f->load_count++] = *s;
		}
		/* Without contents it is of no use to us, and of none to the kernel. */
		if (s->bytes)
			f->segment_count++;
	}
	if (!f->load_count)
		return bad(e, name, "nothing in it is loaded", h->e_phoff);
	/* Segments may share a page of the file, but not all of it a thousand times. */
	if (loaded / 4 > f->size)
		return bad(e, name, "its segments name the same bytes many times", h->e_phoff);
	return 0;
}

/*
 * The names of sections, copied: by them it is decided what a section is, and whoever may write to
 * the file could change them between two looks. Not all of the table: some linkers put all other
 * names there, too, and a file may have a large hole for one.
 */
static void name_sections(struct elf_file *f, const struct elf_section *strings,
			  const uint8_t *table)
{
	for (size_t i = 0; i < f->section_count; i++) {
		char *to = f->sections[i].name;
		Elf64_Shdr s;
		size_t left;

		memcpy(&s, table + i * sizeof(s), sizeof(s));
		if (f->sections[i].type == SHT_NULL || s.sh_name >= strings->size)
			continue;
		left = strings->size - s.sh_name;
		strncpy(to, (const char *)strings->bytes + s.sh_name,
			left < ELF_NAME_ROOM ? left : ELF_NAME_ROOM - 1);
		to[ELF_NAME_ROOM - 1] = 0;
	}
}

/* A string table is usable if it ends with a zero byte. */
static bool is_strings(const struct elf_section *s)
{
	return s->type == SHT_STRTAB && s->bytes && s->size && !s->bytes[s->size - 1];
}

static int read_sections(struct elf_file *f, const char *name, const Elf64_Ehdr *h,
			 struct dinst_error *e)
{
	uint64_t count = h->e_shnum, names = h->e_shstrndx, named = 0;
	const uint8_t *table;
	Elf64_Shdr s;

	if (!h->e_shoff)
		return 0;
	if (section_zero(f, h, &s))
		return bad(e, name, "the section headers lie outside the file", h->e_shoff);
	if (!count)
		count = s.sh_size;
	if (names == SHN_XINDEX)
		names = s.sh_link;
	if (count > SECTIONS_MAX)
		return bad(e, name, "too many sections", h->e_shoff);
	table = elf_bytes(f, h->e_shoff, count * sizeof(s));
	if (!table)
		return bad(e, name, "the section headers lie outside the file", h->e_shoff);
	f->sections = calloc(count ? count : 1, sizeof(*f->sections));
	if (!f->sections)
		return dinst_fail(e, DINST_NO_MEMORY, "%s: no memory", name);
	f->section_count = count;
	for (uint64_t i = 0; i < count; i++) {
		struct elf_section *to = &f->sections[i];

		memcpy(&s, table + i * sizeof(s), sizeof(s));
		/* Not written to: headers that are a hole of the file take no memory here either. */
		if (s.sh_type == SHT_NULL)
			continue;
		*to = (struct elf_section){
			.address = s.sh_addr,
			.offset = s.sh_offset,
			.size = s.sh_size,
			.entry_size = s.sh_entsize,
			.flags = s.sh_flags,
			.type = s.sh_type,
			.link = s.sh_link,
			.info = s.sh_info,
		};
		if (s.sh_type == SHT_NOBITS || !s.sh_size)
			continue;
		to->bytes = elf_bytes(f, s.sh_offset, s.sh_size);
		if (!to->bytes)
			return bad(e, name, "a section lies outside the file",
				   h->e_shoff + i * sizeof(s));
		named += s.sh_size;
		/* As with segments: else a small file takes as long as a thousand large ones. */
		if (named / 4 > f->size)
			return bad(e, name, "its sections name the same bytes many times",
				   h->e_shoff + i * sizeof(s));
	}
	if (names < count && is_strings(&f->sections[names]))
		name_sections(f, &f->sections[names], table);
	return 0;
}

static int parse(struct elf_file *f, const char *name, enum elf_kind kind, struct dinst_error *e)
{
	Elf64_Ehdr h;
	int r = check_header(f, name, &h, e);

	if (r)
		return r;
	f->type = h.e_type;
	f->entry = h.e_entry;
	if (kind == ELF_PROGRAM)
		r = read_segments(f, name, &h, e);
	if (!r)
		r = read_sections(f, name, &h, e);
	return r;
}

int elf_file_map(int fd, const char *name, enum elf_kind kind, struct elf_file *f,
		 struct dinst_error *e)
{
	struct stat st;
	uint8_t *p;
	int r;

	*f = (struct elf_file){.mapped = true};
	if (fstat(fd, &st))
		return dinst_fail_errno(e, DINST_FAILED, errno, "%s: fstat", name);
	if (!S_ISREG(st.st_mode) || st.st_size <= 0)
		return dinst_fail(e, DINST_UNSUPPORTED, "%s: not an ELF file", name);
	if (st.st_size > HOLES_FROM && !file_is_stored(fd))
		return dinst_fail(
			e, DINST_UNSUPPORTED,
			"%s: %lld bytes, most of which are holes that take for ever to read", name,
			(long long)st.st_size);
	p = file_map(fd, (size_t)st.st_size);
	if (!p)
		return dinst_fail_errno(e, errno == ENOMEM ? DINST_NO_MEMORY : DINST_FAILED, errno,
					"%s: mmap", name);
	f->bytes = p;
	f->size = st.st_size;
	f->version = (struct elf_version){st.st_dev, st.st_ino, (uint64_t)st.st_ctim.tv_sec,
					  (uint64_t)st.st_ctim.tv_nsec};
	r = parse(f, name, kind, e);
	if (r)
		elf_file_release(f);
	return r;
}

int elf_file_memory(uint8_t *bytes, size_t size, const char *name, enum elf_kind kind,
		    struct elf_file *f, struct dinst_error *e)
{
	int r;

	*f = (struct elf_file){.bytes = bytes, .size = size};
	r = parse(f, name, kind, e);
	if (r)
		elf_file_release(f);
	return r;
}

void elf_file_release(struct elf_file *f)
{
	free(f->segments);
	free(f->loads);
	free(f->sections);
	if (f->mapped && f->bytes)
		file_unmap(f->bytes, f->size);
	else
		free(f->bytes);
	*f = (struct elf_file){0};
}

void elf_file_forget(const struct elf_file *f, const uint8_t *bytes, size_t size)
{
	uintptr_t lo = ((uintptr_t)bytes + 4095) & ~(uintptr_t)4095;
	uintptr_t hi = ((uintptr_t)bytes + size) & ~(uintptr_t)4095;

	/* A hint: where the kernel does not take it nothing is lost. */
	if (f->mapped && lo < hi)
		madvise((void *)lo, hi - lo, MADV_DONTNEED);
}

const struct elf_section *elf_section_named(const struct elf_file *f, const char *name)
{
	for (size_t i = 0; i < f->section_count; i++)
		if (f->sections[i].bytes && !strcmp(f->sections[i].name, name))
			return &f->sections[i];
	return NULL;
}

const uint8_t *elf_at(const struct elf_file *f, vaddr_t address, size_t *size,
		      const struct elf_segment **segment)
{
	size_t lo = 0, hi = f->load_count;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct elf_segment *s = &f->loads[mid];

		if (address < s->address) {
			hi = mid;
		} else if (address - s->address >= s->memory_size) {
			lo = mid + 1;
		} else {
			uint64_t at = address - s->address;

			if (at >= s->file_size)
				return NULL;
			*size = s->file_size - at;
			if (segment)
				*segment = s;
			return s->bytes + at;
		}
	}
	return NULL;
}

const uint8_t *elf_note(const uint8_t *bytes, size_t size, size_t align, const char *owner,
			uint32_t type, size_t *found)
{
	size_t length = strlen(owner) + 1;
	size_t at = 0;

	/* The gABI says 8 for 64-bit files; everybody but .note.gnu.property uses 4. */
	align = align == 8 ? 8 : 4;
	while (size - at >= sizeof(Elf64_Nhdr)) {
		Elf64_Nhdr n;
		uint64_t name, description, next;

		memcpy(&n, bytes + at, sizeof(n));
		name = at + sizeof(n);
		description = (name + n.n_namesz + align - 1) & ~(uint64_t)(align - 1);
		next = (description + n.n_descsz + align - 1) & ~(uint64_t)(align - 1);
		if (description > size || n.n_descsz > size - description)
			return NULL;
		/* Go's linker counts what pads its name, too. */
		if (n.n_type == type && n.n_namesz >= length &&
		    n.n_namesz <= ((length + 3) & ~(size_t)3) &&
		    !memcmp(bytes + name, owner, length)) {
			*found = n.n_descsz;
			return bytes + description;
		}
		if (next >= size)
			return NULL;
		at = next;
	}
	return NULL;
}

const uint8_t *elf_build_id(const struct elf_file *f, size_t *size)
{
	const uint8_t *id = NULL;

	for (size_t i = 0; i < f->segment_count && !id; i++)
		if (f->segments[i].type == PT_NOTE && f->segments[i].bytes)
			id = elf_note(f->segments[i].bytes, f->segments[i].file_size, 4, "GNU",
				      NT_GNU_BUILD_ID, size);
	for (size_t i = 0; i < f->section_count && !id; i++)
		if (f->sections[i].type == SHT_NOTE && f->sections[i].bytes)
			id = elf_note(f->sections[i].bytes, f->sections[i].size, 4, "GNU",
				      NT_GNU_BUILD_ID, size);
	return id && *size ? id : NULL;
}
