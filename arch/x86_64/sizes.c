/* SPDX-License-Identifier: MIT */
/*
 * sizes.c - how many bytes the memory operands of vector instructions have, and
 * which of them are stores (Intel SDM volume 2, chapters 3 to 5, and the tuple
 * types of 2.7.5). For arch_memory_operands() only: nothing that relocates or
 * patches depends on it.
 */
#include "arch/x86_64/x86.h"

/* Sizes by name; the low bits of a rule. */
enum {
	NONE, /* no such instruction, or not known */
	FULL, /* the whole vector */
	HALF,
	QUARTER,
	EIGHTH,
	HALF_W0, /* half with W 0, the whole with W 1 */
	LOW,	 /* at most 16 bytes */
	DUP,	 /* 8 of 16 bytes, else the whole */
	WORD_W,	 /* 8 with W 1, else 4 */
	MASK_2,	 /* mask register: 8 with W 1, else 2 */
	MASK_1,	 /* 4 with W 1, else 1 */
	B1,
	B2,
	B4,
	B8,
	B16,
	B32,
	B64,
	EXPAND, /* the whole, one element being the unit of displacements */
	SPREAD, /* addresses from a vector */
	STORE = 32,
};

#define ALL(rule)   rule, rule, rule, rule
#define PLAIN(rule) rule, NONE, NONE, NONE
#define P66(rule)   NONE, rule, NONE, NONE
#define FLOAT	    FULL, FULL, B4, B8

struct rule {
	uint8_t first, last; /* opcodes */
	uint8_t by_prefix[4];
};

/* By prefix: none, 66, f3, f2. Ordered by opcode. */
static const struct rule map_0f[] = {
	{0x10, 0x10, {FLOAT}},
	{0x11, 0x11, {STORE | FULL, STORE | FULL, STORE | B4, STORE | B8}},
	{0x12, 0x12, {B8, B8, FULL, DUP}},
	{0x13, 0x13, {ALL(STORE | B8)}},
	{0x14, 0x15, {ALL(FULL)}},
	{0x16, 0x16, {B8, B8, FULL, NONE}},
	{0x17, 0x17, {ALL(STORE | B8)}},
	{0x28, 0x28, {ALL(FULL)}},
	{0x29, 0x29, {ALL(STORE | FULL)}},
	{0x2a, 0x2a, {B8, B8, WORD_W, WORD_W}},
	{0x2b, 0x2b, {STORE | FULL, STORE | FULL, STORE | B4, STORE | B8}},
	{0x2c, 0x2d, {B8, B16, B4, B8}},
	{0x2e, 0x2f, {B4, B8, NONE, NONE}},
	{0x51, 0x53, {FLOAT}},
	{0x54, 0x57, {ALL(FULL)}},
	{0x58, 0x59, {FLOAT}},
	{0x5a, 0x5a, {HALF, FULL, B4, B8}},
	{0x5b, 0x5b, {ALL(FULL)}},
	{0x5c, 0x5f, {FLOAT}},
	{0x60, 0x6d, {ALL(FULL)}},
	{0x6e, 0x6e, {ALL(WORD_W)}},
	{0x6f, 0x76, {ALL(FULL)}},
	{0x78, 0x79, {FULL, HALF_W0, B4, B8}},
	{0x7a, 0x7a, {NONE, HALF_W0, HALF_W0, FULL}},
	{0x7b, 0x7b, {NONE, HALF_W0, WORD_W, WORD_W}},
	{0x7c, 0x7d, {ALL(FULL)}},
	{0x7e, 0x7e, {STORE | WORD_W, STORE | WORD_W, B8, NONE}},
	{0x7f, 0x7f, {ALL(STORE | FULL)}},
	{0x90, 0x90, {MASK_2, MASK_1, NONE, NONE}},
	{0x91, 0x91, {STORE | MASK_2, STORE | MASK_1, NONE, NONE}},
	{0xc2, 0xc2, {FLOAT}},
	{0xc4, 0xc4, {ALL(B2)}},
	{0xc6, 0xc6, {ALL(FULL)}},
	{0xd0, 0xd0, {ALL(FULL)}},
	{0xd1, 0xd3, {ALL(LOW)}},
	{0xd4, 0xd5, {ALL(FULL)}},
	{0xd6, 0xd6, {P66(STORE | B8)}},
	{0xd8, 0xe0, {ALL(FULL)}},
	{0xe1, 0xe2, {ALL(LOW)}},
	{0xe3, 0xe5, {ALL(FULL)}},
	{0xe6, 0xe6, {NONE, FULL, HALF_W0, FULL}},
	{0xe7, 0xe7, {ALL(STORE | FULL)}},
	{0xe8, 0xf0, {ALL(FULL)}},
	{0xf1, 0xf3, {ALL(LOW)}},
	{0xf4, 0xf6, {ALL(FULL)}},
	{0xf8, 0xfe, {ALL(FULL)}},
};

static const struct rule map_38[] = {
	{0x00, 0x0f, {ALL(FULL)}},
	{0x10, 0x10, {FULL, FULL, STORE | HALF, NONE}},
	{0x11, 0x11, {FULL, FULL, STORE | QUARTER, NONE}},
	{0x12, 0x12, {FULL, FULL, STORE | EIGHTH, NONE}},
	{0x13, 0x13, {NONE, HALF, STORE | HALF, NONE}},
	{0x14, 0x14, {FULL, FULL, STORE | QUARTER, NONE}},
	{0x15, 0x15, {FULL, FULL, STORE | HALF, NONE}},
	{0x16, 0x17, {ALL(FULL)}},
	{0x18, 0x18, {ALL(B4)}},
	{0x19, 0x19, {ALL(B8)}},
	{0x1a, 0x1a, {ALL(B16)}},
	{0x1b, 0x1b, {ALL(B32)}},
	{0x1c, 0x1f, {ALL(FULL)}},
	{0x20, 0x20, {NONE, HALF, STORE | HALF, NONE}},
	{0x21, 0x21, {NONE, QUARTER, STORE | QUARTER, NONE}},
	{0x22, 0x22, {NONE, EIGHTH, STORE | EIGHTH, NONE}},
	{0x23, 0x23, {NONE, HALF, STORE | HALF, NONE}},
	{0x24, 0x24, {NONE, QUARTER, STORE | QUARTER, NONE}},
	{0x25, 0x25, {NONE, HALF, STORE | HALF, NONE}},
	{0x26, 0x2c, {ALL(FULL)}},
	{0x2d, 0x2d, {P66(FULL)}}, /* EVEX: one element, see below */
	{0x2e, 0x2f, {ALL(STORE | FULL)}},
	{0x30, 0x30, {NONE, HALF, STORE | HALF, NONE}},
	{0x31, 0x31, {NONE, QUARTER, STORE | QUARTER, NONE}},
	{0x32, 0x32, {NONE, EIGHTH, STORE | EIGHTH, NONE}},
	{0x33, 0x33, {NONE, HALF, STORE | HALF, NONE}},
	{0x34, 0x34, {NONE, QUARTER, STORE | QUARTER, NONE}},
	{0x35, 0x35, {NONE, HALF, STORE | HALF, NONE}},
	{0x36, 0x42, {ALL(FULL)}},
	{0x43, 0x43, {P66(WORD_W)}},
	{0x44, 0x47, {ALL(FULL)}},
	{0x49, 0x49, {B64, STORE | B64, NONE, NONE}},
	{0x4b, 0x4b, {NONE, NONE, STORE | NONE, NONE}}, /* tiles: rows of any length */
	{0x4c, 0x4c, {P66(FULL)}},
	{0x4d, 0x4d, {P66(WORD_W)}},
	{0x4e, 0x4e, {P66(FULL)}},
	{0x4f, 0x4f, {P66(WORD_W)}},
	{0x50, 0x51, {ALL(FULL)}},
	{0x52, 0x53, {FULL, FULL, FULL, B16}},
	{0x54, 0x55, {ALL(FULL)}},
	{0x58, 0x58, {ALL(B4)}},
	{0x59, 0x59, {ALL(B8)}},
	{0x5a, 0x5a, {ALL(B16)}},
	{0x5b, 0x5b, {ALL(B32)}},
	{0x62, 0x62, {P66(EXPAND)}},
	{0x63, 0x63, {P66(STORE | EXPAND)}},
	{0x64, 0x77, {ALL(FULL)}},
	{0x78, 0x78, {ALL(B1)}},
	{0x79, 0x79, {ALL(B2)}},
	{0x7d, 0x83, {ALL(FULL)}},
	{0x88, 0x89, {P66(EXPAND)}},
	{0x8a, 0x8b, {P66(STORE | EXPAND)}},
	{0x8c, 0x8d, {ALL(FULL)}},
	{0x8e, 0x8e, {P66(STORE | FULL)}},
	{0x8f, 0x8f, {P66(FULL)}},
	{0x90, 0x93, {ALL(SPREAD)}},
	{0x96, 0x98, {ALL(FULL)}},
	{0x99, 0x99, {P66(WORD_W)}},
	{0x9a, 0x9a, {NONE, FULL, NONE, B16}},
	{0x9b, 0x9b, {NONE, WORD_W, NONE, B16}},
	{0x9c, 0x9c, {ALL(FULL)}},
	{0x9d, 0x9d, {P66(WORD_W)}},
	{0x9e, 0x9e, {ALL(FULL)}},
	{0x9f, 0x9f, {P66(WORD_W)}},
	{0xa0, 0xa3, {ALL(STORE | SPREAD)}},
	{0xa6, 0xa8, {ALL(FULL)}},
	{0xa9, 0xa9, {P66(WORD_W)}},
	{0xaa, 0xaa, {NONE, FULL, NONE, B16}},
	{0xab, 0xab, {NONE, WORD_W, NONE, B16}},
	{0xac, 0xac, {ALL(FULL)}},
	{0xad, 0xad, {P66(WORD_W)}},
	{0xae, 0xae, {ALL(FULL)}},
	{0xaf, 0xaf, {P66(WORD_W)}},
	{0xb0, 0xb0, {ALL(FULL)}},
	{0xb1, 0xb1, {ALL(B2)}},
	{0xb4, 0xb8, {ALL(FULL)}},
	{0xb9, 0xb9, {P66(WORD_W)}},
	{0xba, 0xba, {ALL(FULL)}},
	{0xbb, 0xbb, {P66(WORD_W)}},
	{0xbc, 0xbc, {ALL(FULL)}},
	{0xbd, 0xbd, {P66(WORD_W)}},
	{0xbe, 0xbe, {ALL(FULL)}},
	{0xbf, 0xbf, {P66(WORD_W)}},
	{0xc4, 0xc4, {ALL(FULL)}},
	{0xc6, 0xc7, {ALL(SPREAD)}},
	{0xc8, 0xca, {FULL, FULL, NONE, NONE}},
	{0xcb, 0xcb, {FULL, WORD_W, NONE, NONE}},
	{0xcc, 0xcc, {FULL, FULL, NONE, NONE}},
	{0xcd, 0xcd, {FULL, WORD_W, NONE, NONE}},
	{0xcf, 0xcf, {ALL(FULL)}},
	{0xdb, 0xdf, {P66(FULL)}},
	{0xf2, 0xf7, {ALL(WORD_W)}},
};

static const struct rule map_3a[] = {
	{0x00, 0x06, {ALL(FULL)}},
	{0x08, 0x09, {ALL(FULL)}},
	{0x0a, 0x0a, {B2, B4, NONE, NONE}},
	{0x0b, 0x0b, {P66(B8)}},
	{0x0c, 0x0f, {ALL(FULL)}},
	{0x14, 0x14, {P66(STORE | B1)}},
	{0x15, 0x15, {P66(STORE | B2)}},
	{0x16, 0x16, {P66(STORE | WORD_W)}},
	{0x17, 0x17, {P66(STORE | B4)}},
	{0x18, 0x18, {P66(B16)}},
	{0x19, 0x19, {P66(STORE | B16)}},
	{0x1a, 0x1a, {P66(B32)}},
	{0x1b, 0x1b, {P66(STORE | B32)}},
	{0x1d, 0x1d, {P66(STORE | HALF)}},
	{0x1e, 0x1f, {P66(FULL)}},
	{0x20, 0x20, {P66(B1)}},
	{0x21, 0x21, {P66(B4)}},
	{0x22, 0x22, {P66(WORD_W)}},
	{0x23, 0x26, {ALL(FULL)}},
	{0x27, 0x27, {B2, WORD_W, NONE, NONE}},
	{0x38, 0x38, {P66(B16)}},
	{0x39, 0x39, {P66(STORE | B16)}},
	{0x3a, 0x3a, {P66(B32)}},
	{0x3b, 0x3b, {P66(STORE | B32)}},
	{0x3e, 0x50, {ALL(FULL)}},
	{0x51, 0x51, {P66(WORD_W)}},
	{0x54, 0x54, {P66(FULL)}},
	{0x55, 0x55, {P66(WORD_W)}},
	{0x56, 0x56, {ALL(FULL)}},
	{0x57, 0x57, {B2, WORD_W, NONE, NONE}},
	{0x60, 0x63, {ALL(FULL)}},
	{0x66, 0x66, {ALL(FULL)}},
	{0x67, 0x67, {B2, WORD_W, NONE, NONE}},
	{0x70, 0x73, {P66(FULL)}},
	{0xc2, 0xc2, {FULL, NONE, B2, NONE}},
	{0xcc, 0xcf, {ALL(FULL)}},
	{0xdf, 0xdf, {ALL(FULL)}},
	{0xf0, 0xf0, {ALL(WORD_W)}},
};

static unsigned rule_of(const struct rule *rules, size_t count, unsigned opcode, unsigned prefix)
{
	for (size_t i = 0; i < count && rules[i].first <= opcode; i++)
		if (opcode <= rules[i].last)
			return rules[i].by_prefix[prefix];
	return NONE;
}

/* The mandatory prefix, numbered as in VEX. */
static unsigned prefix_of(const struct x86_layout *l)
{
	if (l->encoding != X86_LEGACY)
		return l->simd;
	if (l->prefixes & PREFIX_F3)
		return 2;
	return l->prefixes & PREFIX_F2 ? 3 : l->prefixes & PREFIX_66 ? 1 : 0;
}

/* Without prefix these work on MMX registers. */
static bool is_mmx(const struct x86_layout *l)
{
	if (l->encoding != X86_LEGACY || prefix_of(l) != 0)
		return false;
	if (l->map == 1)
		return (l->opcode >= 0x60 && l->opcode <= 0x7f) || l->opcode >= 0xd1;
	return l->map == 2 ? l->opcode < 0x20 : l->opcode == 0x0f;
}

static uint32_t size_of(const struct x86_layout *l, unsigned rule)
{
	unsigned vector = is_mmx(l) ? 8 : 16u << (l->vector & 3);
	bool w = l->rex & REX_W;

	switch (rule) {
	case FULL:
		/* punpckl reads half of an MMX register. */
		return vector == 8 && l->map == 1 && l->opcode <= 0x62 ? 4 : vector;
	case EXPAND:
		return vector;
	case HALF:
		return vector / 2;
	case QUARTER:
		return vector / 4;
	case EIGHTH:
		return vector / 8;
	case HALF_W0:
		return w && l->encoding == X86_EVEX ? vector : vector / 2;
	case LOW:
		return vector < 16 ? vector : 16;
	case DUP:
		return vector == 16 ? 8 : vector;
	case WORD_W:
		return w ? 8 : 4;
	case MASK_2:
		return w ? 8 : 2;
	case MASK_1:
		return w ? 4 : 1;
	default:
		return rule >= B1 && rule <= B64 ? 1u << (rule - B1) : 0;
	}
}

/* The unit of EVEX's 8-bit displacements (Intel SDM volume 2, 2.7.5). */
static uint32_t scale_of(const struct x86_layout *l, unsigned rule, uint32_t size)
{
	bool w = l->rex & REX_W;

	if (rule != EXPAND)
		return size;
	return l->opcode < 0x80 ? (w ? 2 : 1) : (w ? 8 : 4);
}

struct x86_vector_access x86_vector_access(const struct x86_layout *l)
{
	struct x86_vector_access access = {0};
	unsigned prefix = prefix_of(l), rule = NONE;
	bool is_half = l->encoding == X86_EVEX && l->map > 3;

	/* Half precision: all but two are loads, of sizes that are not listed here. */
	if (is_half) {
		access.store = l->map == 5 && (l->opcode == 0x11 || l->opcode == 0x7e);
		return access;
	}

	if (l->map == 1)
		rule = rule_of(map_0f, sizeof(map_0f) / sizeof(map_0f[0]), l->opcode, prefix);
	else if (l->map == 2)
		rule = rule_of(map_38, sizeof(map_38) / sizeof(map_38[0]), l->opcode, prefix);
	else if (l->map == 3)
		rule = rule_of(map_3a, sizeof(map_3a) / sizeof(map_3a[0]), l->opcode, prefix);
	if (l->encoding == X86_EVEX && l->map == 2 && l->opcode == 0x2d)
		rule = WORD_W;
	access.store = rule & STORE;
	rule &= STORE - 1;
	/* Of f2 and f3 together nobody is sure. */
	if (l->encoding == X86_LEGACY && (l->prefixes & PREFIX_F2) && (l->prefixes & PREFIX_F3))
		rule = NONE;
	access.is_indexed = rule == SPREAD;
	access.size = size_of(l, rule);
	/* One element of a vector of them; half precision is in maps of its own, and in 3a. */
	if (l->encoding == X86_EVEX && (l->vector & 4))
		access.size = l->map == 3 && prefix == 0 ? 2 : l->rex & REX_W ? 8 : 4;
	access.scale = scale_of(l, rule, access.size);
	return access;
}
