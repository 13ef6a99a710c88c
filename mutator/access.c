/* SPDX-License-Identifier: MIT */
/*
 * access.c - memory accesses of points, and how they are packed into a word.
 * Knows no register by name: their numbers are the architecture's.
 *
 *	bit 0          1: absolute, the rest is the address
 *	bits 1 .. 7    base    (127: none)
 *	bits 8 .. 14   index   (127: none)
 *	bits 15 .. 18  shift
 *	bits 19 .. 22  extend
 *	bit 23         relative to the thread pointer
 *	bits 24 .. 27  bytes pushed, in eights
 *	bits 28 .. 63  offset, signed
 */
#include "mutator/access.h"

enum { NONE = 127, OFFSET_AT = 28 };

static bool decode(const struct image *img, vaddr_t v, taddr_t bias, struct arch_insn *insn)
{
	size_t size = 0;
	const uint8_t *bytes = image_code(img, v, &size);

	return bytes && arch_decode(bytes, size, v + bias, insn) == ARCH_OK;
}

bool access_of(const struct image *img, const struct point *p, taddr_t bias,
	       struct arch_memory *access)
{
	struct arch_memory all[ARCH_MEMORY_MAX];
	struct arch_insn insn;
	unsigned n;

	if (!decode(img, p->address, bias, &insn))
		return false;
	n = arch_memory_operands(&insn, all);
	for (unsigned i = 0; i < n; i++) {
		if (p->kind == POINT_STORE ? !all[i].store : !all[i].load)
			continue;
		*access = all[i];
		return true;
	}
	return false;
}

static uint64_t register_bits(uint8_t reg)
{
	return reg == ARCH_NO_REGISTER ? NONE : reg;
}

static uint8_t register_of(uint64_t bits)
{
	return (bits & NONE) == NONE ? ARCH_NO_REGISTER : (uint8_t)(bits & NONE);
}

bool access_pack(const struct arch_memory *a, size_t pushed, uint64_t *word)
{
	bool absolute =
		a->base == ARCH_NO_REGISTER && a->index == ARCH_NO_REGISTER && !a->thread_relative;

	if (!a->computable)
		return false;
	if (absolute) {
		*word = (uint64_t)a->offset << 1 | 1;
		return a->offset >= 0;
	}
	if (register_bits(a->base) > NONE || register_bits(a->index) > NONE || a->shift > 15 ||
	    a->extend > 15 || pushed % 8 || pushed / 8 > 15 ||
	    a->offset >= INT64_C(1) << (63 - OFFSET_AT) ||
	    a->offset < -(INT64_C(1) << (63 - OFFSET_AT)))
		return false;
	*word = register_bits(a->base) << 1 | register_bits(a->index) << 8 |
		(uint64_t)a->shift << 15 | (uint64_t)a->extend << 19 |
		(uint64_t)a->thread_relative << 23 | (uint64_t)(pushed / 8) << 24 |
		(uint64_t)a->offset << OFFSET_AT;
	return true;
}

bool access_word(const struct image *img, const struct window *w, const struct point *p,
		 taddr_t bias, uint64_t *word)
{
	struct arch_memory access;
	struct arch_insn insn;
	size_t pushed = 0;

	if ((w->kind == ARCH_PATCH_RETARGET || w->kind == ARCH_PATCH_CALL) &&
	    p->address == w->start && decode(img, w->start, bias, &insn) && arch_is_call(&insn))
		pushed = arch_call_pushes;
	return access_of(img, p, bias, &access) && access_pack(&access, pushed, word);
}

void access_unpack(uint64_t word, struct arch_memory *a, size_t *pushed)
{
	*a = (struct arch_memory){
		.computable = true, .base = ARCH_NO_REGISTER, .index = ARCH_NO_REGISTER};
	*pushed = 0;
	if (word & 1) {
		a->offset = (int64_t)(word >> 1);
		return;
	}
	a->base = register_of(word >> 1);
	a->index = register_of(word >> 8);
	a->shift = word >> 15 & 15;
	a->extend = word >> 19 & 15;
	a->thread_relative = word >> 23 & 1;
	*pushed = (word >> 24 & 15) * 8;
	a->offset = (int64_t)word >> OFFSET_AT;
}
