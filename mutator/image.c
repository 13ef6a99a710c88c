/* SPDX-License-Identifier: MIT */
/*
 * image.c - opens an image, puts its parts together, answers plain questions.
 *
 * Owns the life of struct image. Knows no format: headers, symbols, unwind
 * data and names are read in their own files.
 */
#include "mutator/cache_plans.h"
#include "mutator/image_private.h"
#include "mutator/types_reader.h"

#include <stdlib.h>

struct string_chunk {
	struct string_chunk *next;
	size_t used, size;
	char bytes[];
};

enum { CHUNK_SIZE = 64 << 10 };

char *strings_copy(struct image_strings *s, const char *text, size_t length)
{
	struct string_chunk *c = s->chunks;
	char *to;

	if (!c || c->size - c->used <= length) {
		size_t size = length >= CHUNK_SIZE ? length + 1 : CHUNK_SIZE;

		c = malloc(sizeof(*c) + size);
		if (!c)
			return NULL;
		*c = (struct string_chunk){.next = s->chunks, .size = size};
		s->chunks = c;
	}
	to = c->bytes + c->used;
	memcpy(to, text, length);
	to[length] = 0;
	c->used += length + 1;
	return to;
}

void strings_release(struct image_strings *s)
{
	while (s->chunks) {
		struct string_chunk *next = s->chunks->next;

		free(s->chunks);
		s->chunks = next;
	}
}

const struct image_range *range_at(const struct image_range *ranges, size_t count, vaddr_t vaddr)
{
	size_t lo = 0, hi = count;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (vaddr < ranges[mid].lo)
			hi = mid;
		else if (vaddr >= ranges[mid].hi)
			lo = mid + 1;
		else
			return &ranges[mid];
	}
	return NULL;
}

/* ----------------------------------------------------------------- ranges */

static int by_lo(const void *a, const void *b)
{
	const struct image_range *x = a, *y = b;

	return x->lo < y->lo ? -1 : x->lo > y->lo;
}

size_t ranges_tidy(struct image_range *ranges, size_t count)
{
	size_t kept = 0;

	if (count)
		qsort(ranges, count, sizeof(*ranges), by_lo);
	for (size_t i = 0; i < count; i++) {
		struct image_range r = ranges[i];

		if (kept && r.lo < ranges[kept - 1].hi)
			r.lo = ranges[kept - 1].hi;
		if (r.lo < r.hi)
			ranges[kept++] = r;
	}
	return kept;
}

static bool is_stub_section(const char *name)
{
	return !strncmp(name, ".plt", 4) || !strcmp(name, ".iplt");
}

/* The section is where the segments say it is: its bytes are the mapped ones. */
static bool is_loaded(const struct elf_file *f, const struct elf_section *s)
{
	const struct elf_segment *segment;
	size_t size;

	return s->bytes && elf_at(f, s->address, &size, &segment) == s->bytes && size >= s->size &&
	       (segment->flags & PF_X);
}

/* Executable sections; false if there are none that can be believed. */
static bool text_from_sections(struct image *img)
{
	const struct elf_file *f = &img->file;

	for (size_t i = 0; i < f->section_count; i++) {
		const struct elf_section *s = &f->sections[i];
		struct image_range r = {s->address, s->address + s->size};

		if (!(s->flags & SHF_EXECINSTR) || !(s->flags & SHF_ALLOC) || !s->size)
			continue;
		if (!is_loaded(f, s)) {
			img->text_count = img->stub_count = 0;
			return false;
		}
		img->text[img->text_count++] = r;
		if (is_stub_section(s->name))
			img->stubs[img->stub_count++] = r;
	}
	return img->text_count > 0;
}

static int find_text(struct image *img, struct dinst_error *e)
{
	const struct elf_file *f = &img->file;
	size_t most = f->section_count + f->load_count;

	img->text = calloc(most, sizeof(*img->text));
	img->stubs = calloc(most, sizeof(*img->stubs));
	if (!img->text || !img->stubs)
		return dinst_fail(e, DINST_NO_MEMORY, "%s: no memory", img->name);
	if (!text_from_sections(img)) {
		for (size_t i = 0; i < f->load_count; i++) {
			const struct elf_segment *s = &f->loads[i];

			if ((s->flags & PF_X) && s->file_size)
				img->text[img->text_count++] =
					(struct image_range){s->address, s->address + s->file_size};
		}
	}
	img->text_count = ranges_tidy(img->text, img->text_count);
	img->stub_count = ranges_tidy(img->stubs, img->stub_count);
	return 0;
}

static void find_span(struct image *img)
{
	const struct elf_file *f = &img->file;

	img->lowest = f->loads[0].address;
	img->highest =
		f->loads[f->load_count - 1].address + f->loads[f->load_count - 1].memory_size;
	/* Pages of the architectures that we know are 4 KiB at least. */
	img->lowest &= ~UINT64_C(0xfff);
}

static const char *find_soname(const struct elf_file *f)
{
	vaddr_t strings = 0;
	uint64_t name = 0;
	const uint8_t *text;
	size_t size;

	for (size_t i = 0; i < f->segment_count; i++) {
		const struct elf_segment *s = &f->segments[i];

		if (s->type != PT_DYNAMIC)
			continue;
		for (size_t at = 0; at + 16 <= s->file_size && elf_u64(s->bytes + at); at += 16) {
			if (elf_u64(s->bytes + at) == DT_STRTAB)
				strings = elf_u64(s->bytes + at + 8);
			else if (elf_u64(s->bytes + at) == DT_SONAME)
				name = elf_u64(s->bytes + at + 8);
		}
	}
	text = name ? elf_at(f, strings, &size, NULL) : NULL;
	if (!text || name >= size || !memchr(text + name, 0, size - name))
		return NULL;
	return (const char *)text + name;
}

/* Go: its linker leaves a note and a section that is kept when stripped. */
static bool find_go(const struct elf_file *f)
{
	size_t size;

	for (size_t i = 0; i < f->section_count; i++)
		if (!strcmp(f->sections[i].name, ".gopclntab") ||
		    !strcmp(f->sections[i].name, ".data.rel.ro.gopclntab") ||
		    !strcmp(f->sections[i].name, ".go.buildinfo"))
			return true;
	for (size_t i = 0; i < f->segment_count; i++)
		if (f->segments[i].type == PT_NOTE && f->segments[i].bytes &&
		    elf_note(f->segments[i].bytes, f->segments[i].file_size, 4, "Go", 4, &size))
			return true;
	return false;
}

/* True if the file, or its debug file, names anything that begins with `wanted` behind its first byte, which is 0. */
static bool names_any(const struct elf_file *f, const struct symbol_list *list, const char *wanted,
		      size_t size)
{
	static const char *const names[] = {".dynstr", ".strtab"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const struct elf_section *s = elf_section_named(f, names[i]);

		if (s && s->bytes && memmem(s->bytes, s->size, wanted, size))
			return true;
	}
	for (size_t i = 0; i < list->count; i++)
		if (!strncmp(list->symbols[i].name, wanted + 1, size - 1))
			return true;
	return false;
}

/*
 * Ada: whatever GNAT compiles asks its runtime to raise, or is that runtime. A static program that is
 * stripped has the names in its debug file.
 */
static bool find_gnat(const struct elf_file *f, const struct symbol_list *list)
{
	static const char wanted[] = "\0__gnat_";

	return names_any(f, list, wanted, sizeof(wanted) - 1);
}

/*
 * Go as gccgo compiles it: its runtime unwinds from the instruction that has faulted, whether or not
 * the function has an exception table. A package has its exports in a section, which strip
 * leaves; a program, and the runtime, have names.
 */
static bool find_gccgo(const struct elf_file *f, const struct symbol_list *list)
{
	static const char wanted[] = "\0__go_";

	return elf_section_named(f, ".go_export") || names_any(f, list, wanted, sizeof(wanted) - 1);
}

/* C# and its like, compiled ahead of time: the runtime finds a null reference by the fault's address. */
static bool find_managed(const struct elf_file *f)
{
	return elf_section_named(f, "__managedcode") != NULL;
}

/* The one symbol that an image of Mono's has for others. */
static bool find_mono(const struct elf_file *f)
{
	static const char wanted[] = "\0mono_aot_file_info";
	const struct elf_section *s = elf_section_named(f, ".dynstr");

	return s && s->bytes && memmem(s->bytes, s->size, wanted, sizeof(wanted));
}

/* ------------------------------------------------------------ unwind data */

/* Where .eh_frame is if there are no sections: .eh_frame_hdr points to it (LSB 10.6.2). */
static bool frames_from_header(const struct image *img, struct cfi_input *in)
{
	const struct elf_file *f = &img->file;

	for (size_t i = 0; i < f->segment_count; i++) {
		const struct elf_segment *s = &f->segments[i];
		vaddr_t frame;

		if (s->type != PT_GNU_EH_FRAME || s->file_size < 8 || s->bytes[0] != 1)
			continue;
		/* pc-relative, 4 bytes, signed: what every linker writes */
		if (s->bytes[1] != 0x1b)
			continue;
		frame = s->address + 4 + (int32_t)elf_u32(s->bytes + 4);
		in->bytes = elf_at(f, frame, &in->size, NULL);
		in->address = frame;
		in->terminated = true;
		return in->bytes != NULL;
	}
	return false;
}

static int read_frames(struct image *img, struct dinst_error *e)
{
	const struct elf_section *s = elf_section_named(&img->file, ".eh_frame");
	struct cfi_input in = {.name = img->name, .text = img->text_count ? img->text[0].lo : 0};

	if (s && (s->flags & SHF_ALLOC)) {
		in.bytes = s->bytes;
		in.size = s->size;
		in.address = s->address;
	} else if (!frames_from_header(img, &in)) {
		return 0;
	}
	return cfi_read(&in, &img->fdes, &img->fde_count, e);
}

/* -------------------------------------------------------- opening, closing */

int image_open(int fd, const char *name, const char *debug_root, struct image **out,
	       struct dinst_error *e)
{
	struct symbol_list symbols = {0};
	struct image *img = calloc(1, sizeof(*img));
	int result;

	if (!img)
		return dinst_fail(e, DINST_NO_MEMORY, "%s: no memory", name);
	img->name = strdup(name);
	if (!img->name) {
		free(img);
		return dinst_fail(e, DINST_NO_MEMORY, "%s: no memory", name);
	}
	result = elf_file_map(fd, name, ELF_PROGRAM, &img->file, e);
	if (result)
		goto close;
	find_span(img);
	img->go = find_go(&img->file);
	img->mono = find_mono(&img->file);
	img->soname = find_soname(&img->file);
	result = find_text(img, e);
	if (!result)
		result = read_frames(img, e);
	if (!result)
		result = symbols_read(img, debug_root, &symbols, e);
	img->turns_faults = img->go || find_gnat(&img->file, &symbols) ||
			    find_gccgo(&img->file, &symbols) || find_managed(&img->file);
	if (!result)
		result = ocaml_find(img, &symbols, e);
	if (!result)
		result = functions_build(img, &symbols, e);
	symbols_release(&symbols);
	if (result)
		goto close;
	img->shape = plan_cache_shape(img);
	elf_file_forget(&img->file, img->file.bytes, img->file.size);
	elf_file_forget(&img->debug, img->debug.bytes, img->debug.size);
	*out = img;
	return 0;
close:
	image_close(img);
	return result;
}

void image_close(struct image *img)
{
	if (!img)
		return;
	plan_cache_flush(img);
	plan_cache_release(img->plans);
	types_reader_release(img->reader);
	types_release(img->types);
	if (img->release_extra)
		img->release_extra(img->extra);
	references_release(img->references);
	hits_release(&img->hits);
	slots_release(img->slots);
	readable_release(&img->readable);
	free(img->names.slots);
	strings_release(&img->strings);
	free(img->labels);
	free(img->aliases);
	free(img->outer);
	free(img->functions);
	free(img->fdes);
	free(img->text);
	free(img->stubs);
	ocaml_release(img);
	symbols_close(img);
	elf_file_release(&img->file);
	free(img->name);
	free(img);
}

/* -------------------------------------------------------------- questions */

void *image_extra(const struct image *img)
{
	return img->extra;
}

void image_set_extra(struct image *img, void *extra, void (*release)(void *extra))
{
	img->extra = extra;
	img->release_extra = release;
}

const uint8_t *image_build_id(const struct image *img, size_t *size)
{
	return elf_build_id(&img->file, size);
}

const char *image_soname(const struct image *img)
{
	return img->soname;
}

vaddr_t image_lowest(const struct image *img)
{
	return img->lowest;
}

vaddr_t image_highest(const struct image *img)
{
	return img->highest;
}

vaddr_t image_entry(const struct image *img)
{
	return img->file.entry;
}

static size_t add_base(vaddr_t bases[OFFSET_BASES], size_t count, vaddr_t base)
{
	for (size_t i = 0; i < count; i++)
		if (bases[i] == base)
			return count;
	if (count < OFFSET_BASES)
		bases[count++] = base;
	return count;
}

/* _GLOBAL_OFFSET_TABLE_ is the start of .got.plt, or of .got where linkers make no other. */
size_t image_offset_bases(const struct image *img, vaddr_t bases[OFFSET_BASES])
{
	const struct elf_section *sections[] = {elf_section_named(&img->file, ".got.plt"),
						elf_section_named(&img->file, ".got")};
	size_t count = 0;

	for (size_t i = 0; i < img->file.segment_count; i++) {
		const struct elf_segment *s = &img->file.segments[i];

		if (s->type != PT_DYNAMIC || !s->bytes)
			continue;
		for (size_t at = 0; at + 16 <= s->file_size && elf_u64(s->bytes + at); at += 16)
			if (elf_u64(s->bytes + at) == DT_PLTGOT)
				count = add_base(bases, count, elf_u64(s->bytes + at + 8));
	}
	for (size_t i = 0; i < sizeof(sections) / sizeof(*sections); i++)
		if (sections[i])
			count = add_base(bases, count, sections[i]->address);
	return count;
}

bool image_is_fixed(const struct image *img)
{
	return img->file.type == ET_EXEC;
}

bool image_is_go(const struct image *img)
{
	return img->go;
}

bool image_turns_faults(const struct image *img)
{
	return img->turns_faults;
}

bool image_is_mono(const struct image *img)
{
	return img->mono;
}

const uint8_t *image_code(const struct image *img, vaddr_t vaddr, size_t *size)
{
	const struct image_range *r = range_at(img->text, img->text_count, vaddr);
	const uint8_t *bytes;

	if (!r)
		return NULL;
	bytes = elf_at(&img->file, vaddr, size, NULL);
	if (bytes && *size > r->hi - vaddr)
		*size = r->hi - vaddr;
	return bytes;
}

const uint8_t *image_data(const struct image *img, vaddr_t vaddr, size_t *size)
{
	const struct elf_segment *segment;
	const uint8_t *bytes = elf_at(&img->file, vaddr, size, &segment);

	if (!bytes || (segment->flags & PF_W))
		return NULL;
	return bytes;
}

size_t image_text(const struct image *img, const struct image_range **ranges)
{
	*ranges = img->text;
	return img->text_count;
}

vaddr_t image_readable_end(const struct image *img, vaddr_t vaddr)
{
	for (size_t i = 0; i < img->file.load_count; i++) {
		const struct elf_segment *s = &img->file.loads[i];

		if ((s->flags & PF_R) && vaddr - s->address < s->memory_size)
			return s->address + s->memory_size;
	}
	return 0;
}

bool image_file_offset(const struct image *img, vaddr_t vaddr, uint64_t *offset)
{
	const struct elf_segment *segment;
	size_t size;

	if (!elf_at(&img->file, vaddr, &size, &segment) || !(segment->flags & PF_X))
		return false;
	*offset = segment->offset + (vaddr - segment->address);
	return true;
}

size_t image_functions(const struct image *img, const struct image_function **functions)
{
	*functions = img->functions;
	return img->function_count;
}

size_t image_aliases(const struct image *img, size_t index, const char **names, size_t max)
{
	size_t lo = 0, hi = img->alias_count, count = 0;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (img->aliases[mid].function < index)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < img->alias_count && img->aliases[lo].function == index; lo++, count++)
		if (count < max)
			names[count] = img->aliases[lo].name;
	return count;
}
