/* SPDX-License-Identifier: MIT */
/*
 * references_sequences.c - the descriptors of restartable sequences, struct
 * rseq_cs of the kernel (include/uapi/linux/rseq.h), found in two ways: by the
 * sections that libraries put them into, and by what each must have, wherever
 * it is: the address of a handler before which the signature stands. A window in
 * a sequence that is not known would be left by the thread while the kernel
 * believes it inside, and its data would be lost.
 *
 * A descriptor that is put together while the program runs is not found.
 */
#include "mutator/references_sequences.h"

#include <stdlib.h>

#include "arch/pairing.h"
#include "mutator/references_cancelled.h"
#include "mutator/references_listed.h"
#include "mutator/references_probes.h"
#include "mutator/references_relocations.h"
#include "mutator/references_sleds.h"

struct rseq_descriptor {
	uint32_t version, flags;
	uint64_t start, length, abort;
};

enum {
	START_AT = 8,
	LENGTH_AT = 16,
	ABORT_AT = 24,
	SIGNATURE = 4,		   /* bytes */
	LENGTH_MOST = 1 << 20,	   /* what is longer is none: kernels accept any */
	DESCRIPTORS_MOST = 100000, /* a file that has more is hostile */
};

struct found {
	vaddr_t address; /* of the descriptor */
	struct rseq_descriptor d;
};

struct finding {
	struct image *img;
	struct found *list;
	size_t count, room;
	bool failed; /* no memory */
};

static bool is_code(const struct image *img, vaddr_t v)
{
	return range_at(img->text, img->text_count, v) != NULL;
}

static bool is_handler(const struct image *img, vaddr_t v)
{
	size_t size = 0;
	const uint8_t *bytes = v >= SIGNATURE ? image_code(img, v - SIGNATURE, &size) : NULL;

	return bytes && size >= SIGNATURE && elf_u32(bytes) == arch_rseq_signature;
}

/* What the file has there; relocations come on top. Each address once. */
static void add(struct finding *f, vaddr_t address)
{
	struct found *more;
	const uint8_t *bytes;
	size_t size = 0;

	bytes = elf_at(&f->img->file, address, &size, NULL);
	if (!bytes || size < sizeof(f->list->d) || f->count >= DESCRIPTORS_MOST || f->failed)
		return;
	if (f->count == f->room) {
		f->room = f->room ? f->room * 2 : 16;
		more = realloc(f->list, f->room * sizeof(*more));
		if (!more) {
			f->failed = true;
			return;
		}
		f->list = more;
	}
	f->list[f->count].address = address;
	memcpy(&f->list[f->count++].d, bytes, sizeof(f->list->d));
}

/* ------------------------------------------------------------- two ways */

static void by_sections(struct finding *f)
{
	const struct elf_file *file = &f->img->file;

	for (size_t i = 0; i < file->section_count; i++) {
		const struct elf_section *s = &file->sections[i];

		if (!s->bytes || !(s->flags & SHF_ALLOC) ||
		    (strcmp(s->name, "__rseq_cs") && strcmp(s->name, "__rseq_table")))
			continue;
		for (uint64_t at = 0; at + sizeof(f->list->d) <= s->size; at += sizeof(f->list->d))
			add(f, s->address + at);
	}
}

static void look_at_stored(void *arg, vaddr_t place, vaddr_t value)
{
	struct finding *f = arg;

	if (place >= ABORT_AT && is_code(f->img, value) && is_handler(f->img, value))
		add(f, place - ABORT_AT);
}

/* ------------------------------------------------------------ relocating */

static int by_address(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	return x->address < y->address ? -1 : x->address > y->address;
}

/* The last one that begins at or before the place, and the same again where it was found twice. */
static void relocate(void *arg, vaddr_t place, vaddr_t value)
{
	struct finding *f = arg;
	size_t lo = 0, hi = f->count;

	while (lo < hi) {
		size_t middle = lo + (hi - lo) / 2;

		if (f->list[middle].address <= place)
			lo = middle + 1;
		else
			hi = middle;
	}
	while (lo-- > 0 && place - f->list[lo].address <= ABORT_AT) {
		if (place - f->list[lo].address == START_AT)
			f->list[lo].d.start = value;
		else if (place - f->list[lo].address == ABORT_AT)
			f->list[lo].d.abort = value;
	}
}

/* -------------------------------------------------- what the loader writes */

enum { RELOCATED = 8 }; /* bytes, at most */

struct written {
	const struct image *img;
	struct image_range *out; /* NULL: they are only counted */
	size_t count, room;	 /* the file may have more by the second look */
};

/*
 * Code with relocations in it (DT_TEXTREL). The loader writes there after we have, where a program is
 * instrumented before its first instruction, and would add to our bytes; and what is moved before
 * that is moved as the file has it.
 */
static void look_at_written(void *arg, vaddr_t place, vaddr_t value)
{
	struct written *w = arg;

	(void)value;
	if (!is_code(w->img, place) && !is_code(w->img, place + RELOCATED - 1))
		return;
	if (w->out && w->count == w->room)
		return;
	if (w->out)
		w->out[w->count] = (struct image_range){place, place + RELOCATED};
	w->count++;
}

static size_t make_ranges(const struct finding *f, struct image_range *ranges)
{
	size_t count = 0;

	for (size_t i = 0; i < f->count; i++) {
		const struct rseq_descriptor *d = &f->list[i].d;

		if (!is_code(f->img, d->start) || !d->length || d->length > LENGTH_MOST)
			continue;
		/*
		 * The instruction in front, too: it stores where the descriptor is, as a rule, and
		 * nothing of ours may come between, for that has a descriptor of its own.
		 */
		ranges[count++] = (struct image_range){d->start - is_code(f->img, d->start - 1),
						       d->start + d->length};
		/* The kernel looks for the signature before the handler. */
		if (is_code(f->img, d->abort) && d->abort >= SIGNATURE)
			ranges[count++] = (struct image_range){d->abort - SIGNATURE, d->abort + 1};
	}
	return count;
}

int sequences_find(struct image *img, struct image_range **out, size_t *count,
		   struct dinst_error *e)
{
	const struct elf_section *map = sleds_map(img);
	const size_t sleds = sleds_most(map);
	struct finding f = {.img = img};
	struct image_range *ranges = NULL;
	struct written written = {.img = img};
	struct cancelled calls;
	size_t listed, probes, cancelled, again;

	*out = NULL;
	*count = 0;
	f.failed = cancelled_learn(img, &calls, e) != 0;
	by_sections(&f);
	relocations_each(&img->file, look_at_stored, &f);
	/* In a program with a fixed address nothing tells what is an address. */
	if (image_is_fixed(img) && img->text_count)
		words_each(&img->file, PF_X, img->text[0].lo, img->text[img->text_count - 1].hi,
			   look_at_stored, &f);
	if (f.count && !f.failed) {
		qsort(f.list, f.count, sizeof(*f.list), by_address);
		relocations_each(&img->file, relocate, &f);
	}
	written_each(&img->file, look_at_written, &written);
	listed = listed_find(img, NULL, 0);
	probes = probes_find(img, NULL, 0);
	cancelled = cancelled_find(img, &calls, NULL, 0);
	if (f.count + sleds + written.count + listed + probes + cancelled && !f.failed) {
		ranges = calloc(f.count * 2 + sleds + written.count + listed + probes + cancelled,
				sizeof(*ranges));
		f.failed = !ranges;
	}
	if (ranges) {
		*count = make_ranges(&f, ranges);
		*count += sleds_find(img, map, ranges + *count);
		again = listed_find(img, ranges + *count, listed);
		*count += again < listed ? again : listed;
		again = probes_find(img, ranges + *count, probes);
		*count += again < probes ? again : probes;
		again = cancelled_find(img, &calls, ranges + *count, cancelled);
		*count += again < cancelled ? again : cancelled;
		written =
			(struct written){.img = img, .out = ranges + *count, .room = written.count};
		written_each(&img->file, look_at_written, &written);
		*count = ranges_tidy(ranges, *count + written.count);
		*out = ranges;
	}
	free(f.list);
	return f.failed ? dinst_fail(e, DINST_NO_MEMORY, "%s: no memory for sequences", img->name)
			: 0;
}
