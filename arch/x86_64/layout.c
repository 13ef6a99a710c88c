/* SPDX-License-Identifier: MIT */
/*
 * layout.c - where the parts of an encoded instruction lie: prefixes, opcode,
 * ModRM, displacement, immediate. Knows lengths, not meanings; everything the
 * decoder and the relocator do starts here. Encodings on which processors or
 * decoders disagree, and those that always fault, are ARCH_UNKNOWN.
 *
 * Whole modules go through here: what most instructions have in common is done
 * without a branch that a processor could guess wrong, from tables that fit a
 * few cache lines (an ordinary instruction needs one line of the opcode map,
 * one of modrm_shape and one of immediate_sizes); everything else is aside.
 */
#include <string.h>

#include "arch/x86_64/x86.h"

enum {
	X86_LENGTH_MAX = 15,
	/* Bytes that may be looked at: 15 prefixes, 3 of opcode, ModRM, SIB; VEX has fewer. */
	READABLE = 24,
};

/*
 * By ModRM byte: size of the displacement, whether a SIB byte follows, and
 * whether a base of 5 in it means a displacement instead (Intel SDM volume 2,
 * tables 2-2 and 2-3).
 */
enum { DISP_MASK = 7, HAS_SIB = 8, MAY_LACK_BASE = 16 };

#define FOUR(x) x, x, x, x
#define MOD_0	FOUR(0), HAS_SIB | MAY_LACK_BASE, 4, 0, 0
#define MOD_1	FOUR(1), HAS_SIB | 1, 1, 1, 1
#define MOD_2	FOUR(4), HAS_SIB | 4, 4, 4, 4
#define ROWS(x) x, x, x, x, x, x, x, x

static const uint8_t modrm_shape[256] = {ROWS(MOD_0), ROWS(MOD_1), ROWS(MOD_2)};

/* By kind of immediate: plain, with 66, with REX.W. */
static const uint8_t immediate_sizes[16][4] = {
	[OP_IMM8 >> 2] = {1, 1, 1},  [OP_IMM16 >> 2] = {2, 2, 2}, [OP_IMM24 >> 2] = {3, 3, 3},
	[OP_IMMZ >> 2] = {4, 2, 4},  [OP_IMMV >> 2] = {4, 2, 8},  [OP_REL8 >> 2] = {1, 1, 1},
	[OP_REL32 >> 2] = {4, 4, 4}, [OP_MOFFS >> 2] = {8, 8, 8}, [OP_TEST8 >> 2] = {1, 1, 1},
	[OP_TESTZ >> 2] = {4, 2, 4},
};

/* Returns the offset of the first byte that is no prefix. REX counts only right before the opcode.
 */
static unsigned read_prefixes(const uint8_t *p, struct x86_layout *l)
{
	unsigned at;

	l->rex = 0;
	for (at = 0; at < X86_LENGTH_MAX; at++) {
		uint32_t attributes = x86_one_byte[p[at]];

		if (!(attributes & OP_PREFIX))
			break;
		l->rex = (p[at] & 0xf0) == 0x40 ? p[at] : 0;
		l->prefixes |= (uint8_t)attributes;
	}
	return at;
}

/*
 * c5, c4: Intel SDM volume 2, 2.3.5. 8f is shaped like c4, with maps 8 to 10
 * (AMD manual volume 3, 1.2.5); with a smaller number it is no prefix but pop.
 */
static bool read_vex(const uint8_t *p, struct x86_layout *l)
{
	bool three_bytes = p[0] != 0xc5;
	uint8_t a = p[1], b = three_bytes ? p[2] : a;

	l->encoding = X86_VEX;
	l->map = three_bytes ? a & 31 : 1;
	l->rex = a & 0x80 ? 0 : REX_R;
	if (three_bytes) {
		l->rex |= a & 0x40 ? 0 : REX_X;
		l->rex |= a & 0x20 ? 0 : REX_B;
		l->rex |= b & 0x80 ? REX_W : 0;
	}
	l->vvvv = ~(b >> 3) & 15;
	l->simd = b & 3;
	l->vector = b >> 2 & 1;
	return p[0] == 0x8f ? l->map >= 8 && l->map <= 10 && l->simd == 0
			    : l->map >= 1 && l->map <= 3;
}

/* 62: Intel SDM volume 2, 2.7.1; the reserved bits are fixed before APX. */
static bool read_evex(const uint8_t *p, struct x86_layout *l)
{
	uint8_t a = p[1], b = p[2], c = p[3];

	l->encoding = X86_EVEX;
	l->map = a & 7;
	l->rex = (a & 0x80 ? 0 : REX_R) | (a & 0x40 ? 0 : REX_X) | (a & 0x20 ? 0 : REX_B) |
		 (b & 0x80 ? REX_W : 0);
	l->vvvv = ~(b >> 3) & 15;
	l->simd = b & 3;
	l->vector = (c >> 5 & 3) | (c & 16 ? 4 : 0);
	return !(a & 8) && (b & 4) && (l->map >= 1 && l->map <= 6 && l->map != 4);
}

/*
 * p[at] is 0f, or what is a prefix of new encodings in 64-bit mode, with which
 * most prefixes before it fault. Returns the offset of the opcode.
 */
static unsigned read_escape(const uint8_t *p, unsigned at, struct x86_layout *l,
			    uint32_t *attributes)
{
	const unsigned never = PREFIX_66 | PREFIX_F2 | PREFIX_F3 | PREFIX_LOCK;
	uint8_t byte = p[at];
	bool ok = !(l->prefixes & never) && !l->rex;

	if (byte == 0x0f) {
		byte = p[++at];
		l->map = 1;
		*attributes = x86_two_byte[byte];
		if (byte == 0x38 || byte == 0x3a) {
			l->map = byte == 0x38 ? 2 : 3;
			*attributes = x86_attributes(X86_LEGACY, l->map, p[++at]);
		}
		return at;
	}
	if (byte == 0x8f && (p[at + 1] & 31) < 8)
		return at;
	if (byte == 0x62) {
		ok = read_evex(p + at, l) && ok;
		at += 4;
	} else {
		ok = read_vex(p + at, l) && ok;
		at += byte == 0xc5 ? 2 : 3;
	}
	*attributes = ok ? x86_attributes(l->encoding, l->map, p[at]) : 0;
	return at;
}

/* The instructions to which a lock prefix may be put; elsewhere it faults. */
static bool lock_allowed(const struct x86_layout *l)
{
	unsigned ext = x86_extension(l);

	if (!(l->attributes & OP_LOCKABLE) || !x86_is_memory(l))
		return false;
	if (!(l->attributes & OP_GROUP))
		return true;
	if (l->map == 1)
		return l->opcode == 0xba ? ext >= 5 : ext == 1;
	if (l->opcode <= 0x83)
		return ext != 7;
	return l->opcode <= 0xf7 ? ext == 2 || ext == 3 : ext < 2;
}

static bool is_near_branch(const struct x86_layout *l)
{
	if (l->attributes & OP_NEAR)
		return true;
	if (l->encoding != X86_LEGACY || l->map != 0)
		return false;
	if (l->opcode == 0xff)
		return x86_extension(l) >= 2 && x86_extension(l) <= 5;
	return l->opcode == 0xc7 && l->modrm == 0xf8;
}

static bool form_exists(const struct x86_layout *l)
{
	uint32_t wrong = x86_is_memory(l) ? OP_REGISTER_ONLY : OP_MEMORY_ONLY;

	if (l->attributes & wrong)
		return false;
	if (!(l->prefixes & (PREFIX_LOCK | PREFIX_66)))
		return true;
	if ((l->prefixes & PREFIX_LOCK) && !lock_allowed(l))
		return false;
	/* Intel ignores 66 before a near branch, AMD takes 16 bits of the target. */
	return !(l->prefixes & PREFIX_66) || (l->rex & REX_W) || !is_near_branch(l);
}

/* ModRM, SIB, displacement and immediate, from `at` on. Returns the length. */
static unsigned read_operands(const uint8_t *p, unsigned at, struct x86_layout *l)
{
	const uint32_t attributes = l->attributes;
	unsigned kind = (attributes & OP_IMM_MASK) >> 2;
	unsigned wide = l->rex >> 3 & 1, narrow = l->prefixes & PREFIX_66 & ~wide;
	unsigned has_modrm = attributes / OP_MODRM & 1;
	unsigned shape = modrm_shape[p[at]] & -has_modrm, has_sib = shape / HAS_SIB & 1;
	unsigned lacks_base = shape / MAY_LACK_BASE & ((p[at + 1] & 7) == 5);
	unsigned disp_size = (shape & DISP_MASK) | lacks_base << 2;
	unsigned imm_size = immediate_sizes[kind][wide << 1 | narrow];

	l->modrm = p[at] & -has_modrm;
	l->modrm_offset = at & -has_modrm;
	l->sib = p[at + 1] & -has_sib;
	at += has_modrm + has_sib;
	l->disp_size = disp_size;
	l->disp_offset = disp_size ? at : 0;
	at += disp_size;
	if (kind >= OP_MOFFS >> 2) {
		if (kind == OP_MOFFS >> 2)
			imm_size = l->prefixes & PREFIX_67 ? 4 : 8;
		else if (x86_extension(l) >= 2)
			imm_size = 0;
	}
	l->imm_size = imm_size;
	l->imm_offset = imm_size ? at : 0;
	return at + imm_size;
}

/* READABLE bytes can be read at p. */
static int read_layout(const uint8_t *p, struct x86_layout *l)
{
	unsigned at = (p[0] & 0xf0) == 0x40;
	uint32_t attributes = x86_one_byte[p[at]];

	memset(l, 0, sizeof(*l));
	l->rex = at ? p[0] : 0;
	if (attributes & (OP_PREFIX | OP_ESCAPE)) {
		if (attributes & OP_PREFIX) {
			at = read_prefixes(p, l);
			attributes = x86_one_byte[p[at]];
		}
		if (attributes & OP_ESCAPE)
			at = read_escape(p, at, l, &attributes);
	}
	l->attributes = attributes;
	l->opcode_offset = at;
	l->opcode = p[at];
	if (!(attributes & OP_VALID))
		return ARCH_UNKNOWN;
	at = read_operands(p, at + 1, l);
	if (at > X86_LENGTH_MAX)
		return ARCH_UNKNOWN;
	l->length = at;
	return form_exists(l) ? ARCH_OK : ARCH_UNKNOWN;
}

/* Near the end of what can be read: zeros stand for what is missing. */
static int read_short(const uint8_t *bytes, size_t size, struct x86_layout *l)
{
	uint8_t padded[READABLE] = {0};
	unsigned looked_at;
	int status;

	if (size)
		memcpy(padded, bytes, size);
	status = read_layout(padded, l);
	if (l->opcode_offset >= X86_LENGTH_MAX)
		return ARCH_UNKNOWN;
	/* Whatever was found out from missing bytes is not known. */
	looked_at = l->opcode_offset + 1u;
	if (l->modrm_offset)
		looked_at = l->modrm_offset + 1u + x86_has_sib(l);
	if (looked_at > size || (status == ARCH_OK && l->length > size))
		return ARCH_TRUNCATED;
	return status;
}

int x86_layout_read(const uint8_t *bytes, size_t size, struct x86_layout *l)
{
	return size >= READABLE ? read_layout(bytes, l) : read_short(bytes, size, l);
}
