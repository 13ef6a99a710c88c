/* SPDX-License-Identifier: MIT */
/*
 * symbols.c - reads symbol tables: .symtab and .dynsym of the file itself, of
 * the compressed file in .gnu_debugdata, and of a separate debug file.
 *
 * Keeps what names a place in the executable ranges, as the file says it;
 * what becomes a function is decided elsewhere.
 */
#include "mutator/confine.h"
#include "mutator/image_private.h"
#include "mutator/siphash.h"

#include <lzma.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
	/* A mini debug file holds a symbol table and nothing else. */
	MINI_MAX = 64 << 20,
	MINI_ALL_MAX = 256 << 20,    /* of all files together */
	MINI_MEMORY_MAX = 128 << 20, /* what the decompressor may use */
	NAMES_SHARED = 16,	     /* how often a byte of a file is looked at as a name */
};

void symbols_release(struct symbol_list *list)
{
	free(list->symbols);
	*list = (struct symbol_list){0};
}

static int reserve(struct symbol_list *list, size_t more, const char *name, struct dinst_error *e)
{
	struct symbol *grown;
	size_t capacity = list->count + more;

	if (capacity <= list->capacity)
		return 0;
	if (capacity < list->capacity * 2)
		capacity = list->capacity * 2;
	grown = realloc(list->symbols, capacity * sizeof(*grown));
	if (!grown)
		return dinst_fail(e, DINST_NO_MEMORY, "%s: no memory for symbols", name);
	list->symbols = grown;
	list->capacity = capacity;
	return 0;
}

/* Which of several names is the one people know? Lower is better. */
static uint8_t rank(const struct symbol *s, size_t plain)
{
	bool mangled = name_is_mangled(s->name);
	uint8_t r = 0;

	if (s->type != STT_FUNC && s->type != STT_GNU_IFUNC)
		r += 64;
	if (s->bind == STB_LOCAL)
		r += 16;
	if (plain != s->length)
		r += 8;
	if (s->name[0] == '_' && !mangled)
		r += 4;
	if (s->bind == STB_WEAK)
		r += 1;
	return r;
}

/* Symbols of the kinds that name code: objects in text are tables. */
static bool is_place(const struct image *img, const Elf64_Sym *s)
{
	unsigned type = ELF64_ST_TYPE(s->st_info);

	if (s->st_shndx == SHN_UNDEF || s->st_shndx == SHN_ABS || s->st_shndx == SHN_COMMON)
		return false;
	if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE && type != STT_OBJECT)
		return false;
	return range_at(img->text, img->text_count, s->st_value) != NULL;
}

/* Reads `count` symbols at `table`, names in the `size` bytes at `strings`. */
static int read_table(const struct image *img, const uint8_t *table, size_t count,
		      const char *strings, size_t size, struct symbol_list *list,
		      struct dinst_error *e)
{
	/* Names share their ends, and several symbols one name; but not all of them all bytes. */
	const uint64_t most =
		NAMES_SHARED * (img->file.size + img->mini.size + (uint64_t)img->debug.size);
	uint32_t file = NO_FILE;

	for (size_t i = 1; i < count; i++) {
		struct symbol *to;
		const char *version;
		size_t plain;
		Elf64_Sym s;

		memcpy(&s, table + i * sizeof(s), sizeof(s));
		/* Behind one without a name come those that the linker has made local: they were everybody's. */
		if (ELF64_ST_TYPE(s.st_info) == STT_FILE)
			file = s.st_name ? ++list->files : NO_FILE;
		if (s.st_name >= size || !strings[s.st_name] || !is_place(img, &s))
			continue;
		if (reserve(list, 1, img->name, e))
			return DINST_NO_MEMORY;
		to = &list->symbols[list->count++];
		*to = (struct symbol){
			.address = s.st_value,
			.size = s.st_size,
			.name = strings + s.st_name,
			.order = i < UINT32_MAX ? i : UINT32_MAX,
			.file = ELF64_ST_BIND(s.st_info) == STB_LOCAL ? file : NO_FILE,
			.type = ELF64_ST_TYPE(s.st_info),
			.bind = ELF64_ST_BIND(s.st_info),
		};
		/* All that takes looking at the name is done here, where they follow each other. */
		to->length = (uint32_t)strlen(to->name);
		list->looked += to->length;
		if (list->looked > most)
			return dinst_fail(e, DINST_BAD_FILE,
					  "%s: damaged symbol table: its names lie in each other",
					  img->name);
		version = memchr(to->name, '@', to->length);
		plain = version && version != to->name ? (size_t)(version - to->name) : to->length;
		to->key = name_key(to->name, plain);
		to->flags = name_flags(to->name, to->length);
		to->hash = name_hash(to->name, to->length);
		to->rank = rank(to, plain);
	}
	return 0;
}

/*
 * How many of the `size` bytes of names at `names` belong to one that ends. patchelf may leave the last
 * without its zero in the table: that one is nobody's name, and the others are as good as any.
 */
static size_t ended(const uint8_t *names, size_t size)
{
	while (size && names[size - 1])
		size--;
	return size;
}

/* All symbol tables that the section headers of `f` tell of. */
static int read_sections(const struct image *img, const struct elf_file *f, const char *what,
			 struct symbol_list *list, bool *symtab, struct dinst_error *e)
{
	for (size_t i = 0; i < f->section_count; i++) {
		const struct elf_section *s = &f->sections[i], *names;
		int r;

		if ((s->type != SHT_SYMTAB && s->type != SHT_DYNSYM) || !s->bytes)
			continue;
		if (s->entry_size != sizeof(Elf64_Sym) || s->link >= f->section_count)
			return dinst_fail(e, DINST_BAD_FILE,
					  "%s: damaged symbol table %s in %s (section %zu)",
					  img->name, s->name, what, i);
		names = &f->sections[s->link];
		if (!names->bytes)
			return dinst_fail(e, DINST_BAD_FILE,
					  "%s: symbol table %s in %s has no names (section %u)",
					  img->name, s->name, what, s->link);
		r = read_table(img, s->bytes, s->size / sizeof(Elf64_Sym),
			       (const char *)names->bytes, ended(names->bytes, names->size), list,
			       e);
		if (r)
			return r;
		if (s->type == SHT_SYMTAB)
			*symtab = true;
	}
	return 0;
}

/* ----------------------------------------------- without section headers */

struct dynamic {
	vaddr_t symbols, strings, hash, gnu_hash;
	uint64_t strings_size;
};

static bool read_dynamic(const struct elf_file *f, struct dynamic *d)
{
	*d = (struct dynamic){0};
	for (size_t i = 0; i < f->segment_count; i++) {
		const struct elf_segment *s = &f->segments[i];

		if (s->type != PT_DYNAMIC || !s->bytes)
			continue;
		for (size_t at = 0; at + sizeof(Elf64_Dyn) <= s->file_size;
		     at += sizeof(Elf64_Dyn)) {
			uint64_t value = elf_u64(s->bytes + at + 8);

			switch (elf_u64(s->bytes + at)) {
			case DT_NULL:
				return d->symbols && d->strings;
			case DT_SYMTAB:
				d->symbols = value;
				break;
			case DT_STRTAB:
				d->strings = value;
				break;
			case DT_STRSZ:
				d->strings_size = value;
				break;
			case DT_HASH:
				d->hash = value;
				break;
			case DT_GNU_HASH:
				d->gnu_hash = value;
				break;
			}
		}
	}
	return d->symbols && d->strings;
}

/* How many dynamic symbols there are: only the hash tables know (gABI; GNU hash: glibc). */
static size_t dynamic_count(const struct elf_file *f, const struct dynamic *d)
{
	const uint8_t *p;
	size_t size, last = 0, at;
	uint32_t buckets, offset, bloom;

	p = d->hash ? elf_at(f, d->hash, &size, NULL) : NULL;
	if (p && size >= 8)
		return elf_u32(p + 4);
	p = d->gnu_hash ? elf_at(f, d->gnu_hash, &size, NULL) : NULL;
	if (!p || size < 16)
		return 0;
	buckets = elf_u32(p);
	offset = elf_u32(p + 4);
	bloom = elf_u32(p + 8);
	at = 16 + (size_t)bloom * 8;
	if (at > size || (size - at) / 4 < buckets)
		return 0;
	for (uint32_t i = 0; i < buckets; i++) {
		uint32_t first = elf_u32(p + at + (size_t)i * 4);

		if (first > last)
			last = first;
	}
	if (last < offset)
		return last;
	at += (size_t)buckets * 4;
	/* The chain of the highest bucket ends with an odd hash. */
	for (at += (last - offset) * 4; at + 4 <= size; at += 4, last++)
		if (elf_u32(p + at) & 1)
			return last + 1;
	return 0;
}

static int read_by_dynamic(const struct image *img, struct symbol_list *list, struct dinst_error *e)
{
	const struct elf_file *f = &img->file;
	const uint8_t *table, *strings;
	size_t size, names, count;
	struct dynamic d;

	if (!read_dynamic(f, &d))
		return 0;
	table = elf_at(f, d.symbols, &size, NULL);
	strings = elf_at(f, d.strings, &names, NULL);
	count = dynamic_count(f, &d);
	if (!table || !strings || !d.strings_size || d.strings_size > names ||
	    strings[d.strings_size - 1] || count > size / sizeof(Elf64_Sym))
		return dinst_fail(e, DINST_BAD_FILE, "%s: damaged dynamic symbol table", img->name);
	return read_table(img, table, count, (const char *)strings, d.strings_size, list, e);
}

/* ------------------------------------------------------------ .gnu_debugdata */

/* Decompresses an xz stream piece by piece; what it is worth is seen at the other end. */
static void decompress_to(const void *arg, int fd)
{
	static uint8_t piece[1 << 16];
	const struct elf_section *s = arg;
	lzma_stream stream = LZMA_STREAM_INIT;
	lzma_ret r = LZMA_OK;

	if (lzma_stream_decoder(&stream, MINI_MEMORY_MAX, 0) != LZMA_OK)
		_exit(1);
	stream.next_in = s->bytes;
	stream.avail_in = s->size;
	while (r == LZMA_OK) {
		stream.next_out = piece;
		stream.avail_out = sizeof(piece);
		r = lzma_code(&stream, LZMA_FINISH);
		if (!confine_write(fd, piece, sizeof(piece) - stream.avail_out) ||
		    stream.total_out > MINI_MAX)
			_exit(1);
	}
	_exit(r == LZMA_STREAM_END ? 0 : 1);
}

/* Bytes of all that are open: a program may map any number of files, and little becomes a lot. */
static size_t mini_held;

static int read_mini(struct image *img, struct symbol_list *list, struct dinst_error *e)
{
	const struct elf_section *s = elf_section_named(&img->file, ".gnu_debugdata");
	const struct confined_work work = {.what = "names in .gnu_debugdata are decompressed",
					   .work = decompress_to,
					   .arg = s,
					   .most = MINI_MAX,
					   .patience_ns = CONFINE_PATIENCE_NS};
	uint8_t *bytes;
	size_t size;
	bool symtab;
	int r, forked;

	/* Where there are too many already the names are done without. */
	if (!s || mini_held > MINI_ALL_MAX - MINI_MAX)
		return 0;
	bytes = confine_run(&work, &size, &forked);
	/* No room for another process, or not for long: these names are done without. */
	if (!bytes && forked != CONFINED_ENDED)
		return 0;
	if (!bytes)
		return dinst_fail(e, DINST_BAD_FILE, "%s: .gnu_debugdata cannot be decompressed",
				  img->name);
	r = elf_file_memory(bytes, size, img->name, ELF_DEBUG, &img->mini, e);
	/* Of other code: neither functions nor variables are taken from it. */
	if (!r && !debug_file_fits(&img->file, &img->mini)) {
		elf_file_release(&img->mini);
		return 0;
	}
	mini_held += img->mini.size;
	return r ? r : read_sections(img, &img->mini, ".gnu_debugdata", list, &symtab, e);
}

void symbols_close(struct image *img)
{
	mini_held -= img->mini.size;
	elf_file_release(&img->mini);
	elf_file_release(&img->debug);
	elf_file_release(&img->shared);
}

/*
 * A debug file that is damaged after all leaves things as they were without it. Where the names
 * are in the file itself (strip -g) it is opened for the types.
 */
static int read_debug(struct image *img, const char *root, struct symbol_list *list, bool *symtab,
		      struct dinst_error *e)
{
	struct dinst_error ignored = {0};
	size_t before = list->count;
	int r = debug_file_open(img, root, e);

	if (r || !img->debug.bytes || *symtab)
		return r;
	if (read_sections(img, &img->debug, "its debug file", list, symtab, &ignored)) {
		list->count = before;
		*symtab = false;
		elf_file_release(&img->debug);
	}
	return 0;
}

int symbols_read(struct image *img, const char *debug_root, struct symbol_list *list,
		 struct dinst_error *e)
{
	bool symtab = false;
	int r = read_sections(img, &img->file, "the file", list, &symtab, e);

	if (!r && !img->file.section_count)
		r = read_by_dynamic(img, list, e);
	if (!r && debug_root && (!symtab || !types_are_told(img)))
		r = read_debug(img, debug_root, list, &symtab, e);
	if (!r && !symtab)
		r = read_mini(img, list, e);
	if (!r && debug_root)
		r = debug_shared_open(img, debug_root, e);
	return r;
}
