/* SPDX-License-Identifier: MIT */
/*
 * tables_image.c - the jump tables of a whole image, found without decoding.
 *
 * A function's own tables are read when it is planned (tables.c), generously.
 * But a table can lead into code that is not its function's: a part that the
 * compiler has split off and nobody knows to belong to it, or a function that
 * overlaps another. For those, every constant that some code seems to compute
 * the address of is read here as a table of offsets of 32 bits, and as one of 64, up to
 * the next such address or to the first offset that leaves the text; where addresses
 * are fixed also as one of whole addresses of 32 bits (those of 64 are references).
 * Hand-written code has its tables among its instructions.
 */
#include "mutator/freemap_tables.h"

#include "arch/scan.h"

#include <stdlib.h>
#include <string.h>

enum { HALF = 4, WHOLE = 8 }; /* bytes of an entry */

struct scan {
	struct image *img;
	struct vaddr_list *bases;
	struct vaddr_list *code; /* bases that lie in the code */
	bool failed;
};

int vaddr_list_add(struct vaddr_list *list, vaddr_t v)
{
	if (list->count == list->room) {
		size_t room = list->room ? list->room * 2 : 256;
		void *more = reallocarray(list->items, room, sizeof(*list->items));

		if (!more)
			return -1;
		list->items = more;
		list->room = room;
	}
	list->items[list->count++] = v;
	return 0;
}

static bool in_text(const struct image *img, vaddr_t v)
{
	const struct image_range *text;
	size_t n = image_text(img, &text);

	for (size_t i = 0; i < n; i++)
		if (v >= text[i].lo && v < text[i].hi)
			return true;
	return false;
}

/* Where the entry at `at`, of `width` bytes, of a table at `base` leads to; false if there is none. */
static bool entry(const struct image *img, vaddr_t base, vaddr_t at, size_t width, vaddr_t *target)
{
	size_t size = 0;
	const uint8_t *bytes = image_data(img, at, &size);
	uint64_t whole;
	int32_t half;

	if (!bytes || size < width)
		return false;
	memcpy(&half, bytes, sizeof(half));
	whole = (uint64_t)(int64_t)half;
	if (width == sizeof(whole))
		memcpy(&whole, bytes, sizeof(whole));
	*target = base + whole;
	return in_text(img, *target);
}

static bool starts_function(const struct image *img, vaddr_t v)
{
	const struct image_function *functions;
	const long at = image_function_at(img, v);

	image_functions(img, &functions);
	return at >= 0 && functions[at].address == v;
}

/* It is an address that is found at `from`, and not where something branches to. */
static bool is_computed(const struct image *img, vaddr_t from)
{
	size_t size = 0;
	const uint8_t *bytes = image_code(img, from, &size);
	struct arch_insn insn;

	return bytes && arch_decode(bytes, size, from, &insn) == ARCH_OK &&
	       insn.flags & ARCH_INSN_ADDRESS_OF;
}

/* The first bytes of a function may be one number that looks like an offset; two in a row are none by chance. */
static bool is_table(const struct image *img, vaddr_t base)
{
	vaddr_t target;

	return entry(img, base, base, HALF, &target) &&
	       (!in_text(img, base) || !starts_function(img, base) ||
		entry(img, base, base + HALF, HALF, &target));
}

static void found(void *arg, taddr_t from, taddr_t base)
{
	struct scan *s = arg;

	if (is_table(s->img, base) && (!in_text(s->img, base) || is_computed(s->img, from)) &&
	    vaddr_list_add(in_text(s->img, base) ? s->code : s->bases, base) < 0)
		s->failed = true;
}

/* Where the entry at `at` of a table of whole addresses leads to; false if there is none. */
static bool whole_entry(const struct image *img, vaddr_t at, vaddr_t *target)
{
	size_t size = 0;
	const uint8_t *bytes = image_data(img, at, &size);
	uint32_t address;

	if (!bytes || size < sizeof(address))
		return false;
	memcpy(&address, bytes, sizeof(address));
	*target = address;
	return in_text(img, *target);
}

/* One number that looks like an address of code is chance; two in a row may be a table. */
static void found_whole(void *arg, taddr_t from, taddr_t base)
{
	struct scan *s = arg;
	vaddr_t target;

	(void)from;
	if (!whole_entry(s->img, base, &target) ||
	    !whole_entry(s->img, base + sizeof(uint32_t), &target))
		return;
	if (vaddr_list_add(s->bases, base) < 0)
		s->failed = true;
}

static void found_whole_reference(void *arg, taddr_t from, taddr_t base)
{
	struct scan *s = arg;

	if (!in_text(s->img, base) || is_computed(s->img, from))
		found_whole(arg, from, base);
}

/* True if an instruction that ends behind `from` names the target: by one reading at least. */
static bool is_operand(const struct image *img, vaddr_t from, vaddr_t target)
{
	struct arch_insn insn;

	for (vaddr_t back = 0; back < ARCH_INSN_MAX; back++) {
		size_t size = 0;
		const uint8_t *bytes = image_code(img, from - back, &size);

		if (bytes && arch_decode(bytes, size, from - back, &insn) == ARCH_OK &&
		    insn.flags & ARCH_INSN_PC_RELATIVE && insn.data_ref == target)
			return true;
	}
	return false;
}

/* What looks like padding, and could be a number: one byte, again and again. */
static bool is_like_padding(const struct image *img, vaddr_t v)
{
	size_t size = 0;
	const uint8_t *bytes = in_text(img, v) ? image_code(img, v, &size) : NULL;

	return bytes && size >= sizeof(uint32_t) && !memcmp(bytes, bytes + 1, sizeof(uint32_t) - 1);
}

static void found_constant(void *arg, taddr_t from, taddr_t target)
{
	struct scan *s = arg;

	if (is_like_padding(s->img, target) && is_operand(s->img, from, target) &&
	    vaddr_list_add(s->bases, target) < 0)
		s->failed = true;
}

/* Four bytes that name what looks like padding are seldom chance: they are believed. */
static void found_absolute(void *arg, taddr_t from, taddr_t target)
{
	struct scan *s = arg;

	(void)from;
	if (is_like_padding(s->img, target) && vaddr_list_add(s->bases, target) < 0)
		s->failed = true;
}

static int order(const void *a, const void *b)
{
	vaddr_t x = *(const vaddr_t *)a, y = *(const vaddr_t *)b;

	return x < y ? -1 : x > y;
}

void vaddr_list_sort(struct vaddr_list *list)
{
	size_t n = 0;

	if (!list->count)
		return;
	qsort(list->items, list->count, sizeof(*list->items), order);
	for (size_t i = 0; i < list->count; i++)
		if (n == 0 || list->items[n - 1] != list->items[i])
			list->items[n++] = list->items[i];
	list->count = n;
}

static int read_all(struct image *img, const struct vaddr_list *bases, size_t width,
		    struct vaddr_list *targets)
{
	for (size_t i = 0; i < bases->count; i++) {
		vaddr_t base = bases->items[i], at = base, target;
		vaddr_t end = i + 1 < bases->count ? bases->items[i + 1] : UINT64_MAX;

		for (; at < end && entry(img, base, at, width, &target); at += width)
			if (vaddr_list_add(targets, target) < 0)
				return -1;
	}
	return 0;
}

/* Of both widths. */
static int read_both(struct image *img, struct vaddr_list *bases, struct vaddr_list *targets)
{
	vaddr_list_sort(bases);
	return read_all(img, bases, HALF, targets) < 0 || read_all(img, bases, WHOLE, targets) < 0
		       ? -1
		       : 0;
}

/* arch_scan_references() and its like. */
typedef void (*scan_code)(const uint8_t *bytes, size_t size, taddr_t address, taddr_t lo,
			  taddr_t hi, void (*found)(void *arg, taddr_t from, taddr_t target),
			  void *arg);

/* All code of the image, for what lies in [lo, hi). */
static void scan_text(struct scan *s, scan_code scan, vaddr_t lo, vaddr_t hi,
		      void (*found)(void *arg, taddr_t from, taddr_t target))
{
	const struct image_range *text;
	size_t n = image_text(s->img, &text);

	for (size_t i = 0; i < n; i++) {
		size_t size = 0;
		const uint8_t *bytes = image_code(s->img, text[i].lo, &size);

		if (size > text[i].hi - text[i].lo)
			size = text[i].hi - text[i].lo;
		if (bytes)
			scan(bytes, size, text[i].lo, lo, hi, found, s);
	}
}

/* Adds what tables of whole addresses lead to: those that an operand or a constant names. */
static int read_whole(struct image *img, struct vaddr_list *targets)
{
	const vaddr_t lo = image_lowest(img), hi = image_highest(img);
	struct vaddr_list bases = {0};
	struct scan scan = {.img = img, .bases = &bases};

	scan_text(&scan, arch_scan_references, lo, hi, found_whole_reference);
	scan_text(&scan, arch_scan_absolute, lo, hi, found_whole);
	scan_text(&scan, arch_scan_constants, lo, hi, found_whole);
	vaddr_list_sort(&bases);
	for (size_t i = 0; i < bases.count && !scan.failed; i++) {
		vaddr_t at = bases.items[i], target;
		vaddr_t end = i + 1 < bases.count ? bases.items[i + 1] : UINT64_MAX;

		for (; at < end && whole_entry(img, at, &target); at += sizeof(uint32_t))
			scan.failed |= vaddr_list_add(targets, target) < 0;
	}
	free(bases.items);
	return scan.failed ? -1 : 0;
}

int image_table_targets(struct image *img, struct vaddr_list *targets, struct vaddr_list *bases,
			struct dinst_error *e)
{
	struct vaddr_list code = {0};
	struct scan scan = {.img = img, .bases = bases, .code = &code};
	int r = 0;

	scan_text(&scan, arch_scan_references, image_lowest(img), image_highest(img), found);
	if (scan.failed || read_both(img, bases, targets) < 0 ||
	    read_both(img, &code, targets) < 0 ||
	    (image_is_fixed(img) && read_whole(img, targets) < 0))
		r = dinst_fail(e, DINST_NO_MEMORY, "no memory for the jump tables of the image");
	free(code.items);
	vaddr_list_sort(targets);
	return r;
}

int image_constants(struct image *img, struct vaddr_list *constants)
{
	struct scan scan = {.img = img, .bases = constants};
	const struct image_range *text;
	size_t n = image_text(img, &text);

	if (n)
		scan_text(&scan, arch_scan_operands, text[0].lo, text[n - 1].hi, found_constant);
	if (n && image_is_fixed(img))
		scan_text(&scan, arch_scan_absolute, text[0].lo, text[n - 1].hi, found_absolute);
	vaddr_list_sort(constants);
	return scan.failed ? -1 : 0;
}
