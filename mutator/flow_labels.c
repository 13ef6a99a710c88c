/* SPDX-License-Identifier: MIT */
/*
 * flow_labels.c - addresses of the function that its instructions end with, where no operand
 * counts from the instruction itself. Decodes nothing.
 */
#include "mutator/flow_private.h"

#include <string.h>

void flow_label_search(const struct flow *f, struct label_search *s)
{
	s->fixed = image_is_fixed(f->img);
	s->count = image_offset_bases(f->img, s->bases);
}

/*
 * Position-dependent code has addresses as immediate operands, which are the
 * last bytes of their instructions: four, or eight where code may be anywhere
 * (-mcmodel=large). What looks like one is a target.
 */
static size_t whole_labels(const struct flow *f, const struct arch_insn *insn, vaddr_t *labels)
{
	uint64_t wide;
	uint32_t value;
	size_t n = 0;

	if (insn->length <= sizeof(value) || insn->target || insn->flags & ARCH_INSN_PC_RELATIVE)
		return 0;
	memcpy(&value, insn->bytes + insn->length - sizeof(value), sizeof(value));
	if (flow_contains(f, value))
		labels[n++] = value;
	if (insn->length <= sizeof(wide))
		return n;
	memcpy(&wide, insn->bytes + insn->length - sizeof(wide), sizeof(wide));
	if (flow_contains(f, wide))
		labels[n++] = wide;
	return n;
}

/*
 * Position-independent code of the large models has addresses of its own as offsets of 64 bits from
 * the global offset table (@GOTOFF), which end their instructions and are added to a register.
 *
 * The first *whole labels are there as they are, the others as such offsets.
 */
static size_t find_labels(const struct flow *f, const struct label_search *s,
			  const struct arch_insn *insn, vaddr_t labels[LABELS_MOST], size_t *whole)
{
	size_t n = s->fixed ? whole_labels(f, insn, labels) : 0;
	uint64_t value;

	*whole = n;
	if (insn->length <= sizeof(value) || insn->target)
		return n;
	memcpy(&value, insn->bytes + insn->length - sizeof(value), sizeof(value));
	for (size_t k = 0; k < s->count; k++)
		if (flow_contains(f, s->bases[k] + value))
			labels[n++] = s->bases[k] + value;
	return n;
}

/* Where other functions start is computed to hand it over; what lies inside of one nothing but code is computed from. */
static bool is_inside_other(const struct flow *f, vaddr_t v)
{
	size_t size;

	return !flow_contains(f, v) && freemap_starting_at(f->map, v) < 0 &&
	       image_code(f->img, v, &size);
}

void flow_count_base(struct flow *f, vaddr_t v)
{
	const bool other = is_inside_other(f, v);

	f->code_bases += other || flow_contains(f, v);
	f->inner_bases += other || (flow_contains(f, v) && !flow_starts_at(f, v));
}

size_t flow_mark_labels(struct flow *f, const struct label_search *s, const struct arch_insn *insn,
			vaddr_t labels[LABELS_MOST])
{
	size_t whole, n = find_labels(f, s, insn, labels, &whole);

	for (size_t i = 0; i < n; i++) {
		flow_mark(f, labels[i], MARK_TARGET);
		/* A number that looks like one is none if nothing begins there. */
		if (i < whole && flow_insn_at(f, labels[i]) < 0)
			continue;
		f->labels += flow_byte(f, labels[i]) != 0;
		flow_count_base(f, labels[i]);
		flow_mark(f, labels[i], MARK_REFERRED);
	}
	return n;
}

void flow_mark_all_labels(struct flow *f, const struct label_search *s,
			  const struct arch_insn *insn)
{
	vaddr_t labels[LABELS_MOST];
	size_t whole, n = find_labels(f, s, insn, labels, &whole);

	for (size_t i = 0; i < n; i++)
		flow_mark(f, labels[i], MARK_TARGET | MARK_REFERRED);
}
