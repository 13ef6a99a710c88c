/* SPDX-License-Identifier: MIT */
/*
 * references_probes.c - the nops that sys/sdt.h (systemtap) leaves in a program for probes, which
 * are the kernel's: a breakpoint is written there whenever somebody asks for it, and what stands in
 * registers then is read. Notes tell of them; nothing else does.
 */
#include "mutator/references_probes.h"

enum {
	HEAD = 12,	       /* bytes: sizes of the name and of what follows, type */
	TYPE = 3,	       /* of a probe */
	ADDRESSES = 24,	       /* where it is, the base that the linker knew, a semaphore */
	PROBES_MOST = 1 << 20, /* a file that has more is hostile */
};

static const char owner[] = "stapsdt";

/* How far the code is from where it was when the notes were made (prelink). */
static vaddr_t moved(const struct image *img, const uint8_t *addresses)
{
	const struct elf_section *base = elf_section_named(&img->file, ".stapsdt.base");

	return base ? base->address - elf_u64(addresses + 8) : 0;
}

size_t probes_find(const struct image *img, struct image_range *out, size_t room)
{
	const struct elf_section *s = elf_section_named(&img->file, ".note.stapsdt");
	size_t count = 0;
	uint64_t at = 0;

	if (!s || !s->bytes)
		return 0;
	while (at <= s->size && s->size - at >= HEAD && count < PROBES_MOST) {
		const uint8_t *note = s->bytes + at;
		const uint64_t name = ((uint64_t)elf_u32(note) + 3) & ~3ull;
		const uint64_t size = ((uint64_t)elf_u32(note + 4) + 3) & ~3ull;
		vaddr_t v;

		if (HEAD + name + size > s->size - at)
			break;
		at += HEAD + name + size;
		if (elf_u32(note + 8) != TYPE || elf_u32(note) != sizeof(owner) ||
		    memcmp(note + HEAD, owner, sizeof(owner)) != 0 || size < ADDRESSES)
			continue;
		v = elf_u64(note + HEAD + name) + moved(img, note + HEAD + name);
		if (!range_at(img->text, img->text_count, v))
			continue;
		if (out && count < room)
			out[count] = (struct image_range){v, v + 1};
		count++;
	}
	return count;
}
