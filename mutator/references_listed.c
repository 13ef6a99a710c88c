/* SPDX-License-Identifier: MIT */
/*
 * references_listed.c - places in functions whose distances from where they stand are listed in
 * a section that somebody made for that: the instructions that a program overwrites with
 * jumps, and where those lead (static keys, as the kernel's __jump_table), those that may fault,
 * and where a handler goes on then (__ex_table). No instruction and no relocation
 * tells of them. Such sections have names without a dot, by which linkers give their bounds
 * (__start_NAME); what compilers make has others.
 */
#include "mutator/references_listed.h"

enum {
	DISTANCE = 4,	       /* bytes */
	LISTED_MOST = 1 << 20, /* a file that has more is hostile */
};

static bool is_list(const struct elf_section *s)
{
	return s->bytes && s->type == SHT_PROGBITS && (s->flags & SHF_ALLOC) &&
	       !(s->flags & SHF_EXECINSTR) && s->name[0] && !strchr(s->name, '.');
}

/* A distance in the list, and what it leads to. */
struct place {
	vaddr_t v;
	long function; /* -1: to none */
	bool inside;   /* not to its start */
};

static struct place place_at(const struct image *img, const struct elf_section *s, uint64_t at)
{
	struct place p = {.function = -1};

	if (at > s->size || s->size - at < DISTANCE)
		return p;
	p.v = s->address + at + (vaddr_t)(int64_t)(int32_t)elf_u32(s->bytes + at);
	if (range_at(img->text, img->text_count, p.v))
		p.function = image_function_at(img, p.v);
	p.inside = p.function >= 0 && img->functions[p.function].address != p.v;
	return p;
}

/* Where a function starts may be told for any reason, but not beside a place in it. */
static bool is_listed(const struct image *img, const struct elf_section *s, uint64_t at,
		      const struct place *p)
{
	struct place next, before;

	if (p->function < 0 || p->inside)
		return p->inside;
	next = place_at(img, s, at + DISTANCE);
	before = place_at(img, s, at - DISTANCE);
	return (next.inside && next.function == p->function) ||
	       (before.inside && before.function == p->function);
}

size_t listed_find(const struct image *img, struct image_range *out, size_t room)
{
	size_t count = 0;

	for (size_t i = 0; i < img->file.section_count; i++) {
		const struct elf_section *s = &img->file.sections[i];

		if (!is_list(s))
			continue;
		for (uint64_t at = 0; at + DISTANCE <= s->size && count < LISTED_MOST;
		     at += DISTANCE) {
			const struct place p = place_at(img, s, at);

			if (!is_listed(img, s, at, &p))
				continue;
			if (out && count < room)
				out[count] = (struct image_range){p.v, p.v + 1};
			count++;
		}
	}
	return count;
}
