/* SPDX-License-Identifier: MIT */
/*
 * layout.c - where the parts of an encoded instruction lie: prefixes, opcode,
 * ModRM, displacement, immediate. Knows lengths, not meanings; everything the
 * decoder and the relocator do starts here. Encodings on which processors or
 * decoders disagree, and those that always fault, are ARCH_UNKNOWN.
 */
#include <string.h>

#include "arch/x86_64/x86.h"

enum { X86_LENGTH_MAX = 15 };

struct reader {
	const uint8_t *bytes;
	size_t size;
	size_t at;
	bool truncated;
};

static uint8_t next(struct reader *r)
{
	if (r->at >= r->size) {
		r->truncated = true;
		return 0;
	}
	return r->bytes[r->at++];
}

static uint8_t peek(struct reader *r)
{
	uint8_t byte = next(r);

	if (!r->truncated)
		r->at--;
	return byte;
}

static unsigned prefix_bit(uint8_t byte)
{
	switch (byte) {
	case 0x66:
		return PREFIX_66;
	case 0x67:
		return PREFIX_67;
	case 0xf2:
		return PREFIX_F2;
	case 0xf3:
		return PREFIX_F3;
	case 0xf0:
		return PREFIX_LOCK;
	case 0x3e:
		return PREFIX_3E;
	case 0x64:
	case 0x65:
		return PREFIX_FSGS;
	case 0x26:
	case 0x2e:
	case 0x36:
		return PREFIX_OTHER;
	default:
		return 0;
	}
}

/* A REX prefix counts only right before the opcode. */
static void read_prefixes(struct reader *r, struct x86_layout *l)
{
	while (!r->truncated && r->at < X86_LENGTH_MAX) {
		uint8_t byte = peek(r);
		unsigned bit = prefix_bit(byte);

		if (bit) {
			l->prefixes |= bit;
			l->rex = 0;
		} else if ((byte & 0xf0) == 0x40) {
			l->rex = byte;
		} else {
			break;
		}
		next(r);
	}
}

/* c5, c4: Intel SDM volume 2, 2.3.5. */
static bool read_vex(struct reader *r, struct x86_layout *l, bool three_bytes)
{
	uint8_t a = next(r);
	uint8_t b = three_bytes ? next(r) : a;

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
	return l->map >= 1 && l->map <= 3;
}

/* 62: Intel SDM volume 2, 2.7.1; the reserved bits are fixed before APX. */
static bool read_evex(struct reader *r, struct x86_layout *l)
{
	uint8_t a = next(r), b = next(r), c = next(r);

	(void)c;
	l->encoding = X86_EVEX;
	l->map = a & 7;
	l->rex = (a & 0x80 ? 0 : REX_R) | (a & 0x40 ? 0 : REX_X) | (a & 0x20 ? 0 : REX_B) |
		 (b & 0x80 ? REX_W : 0);
	l->vvvv = ~(b >> 3) & 15;
	l->simd = b & 3;
	return !(a & 8) && (b & 4) && (l->map >= 1 && l->map <= 6 && l->map != 4);
}

static bool read_opcode(struct reader *r, struct x86_layout *l)
{
	const unsigned never = PREFIX_66 | PREFIX_F2 | PREFIX_F3 | PREFIX_LOCK;
	uint8_t byte = next(r);
	bool ok = true;

	if (byte == 0xc4 || byte == 0xc5 || byte == 0x62) {
		/* In 64-bit mode these are prefixes always; others before them fault. */
		if ((l->prefixes & never) || l->rex)
			return false;
		ok = byte == 0x62 ? read_evex(r, l) : read_vex(r, l, byte == 0xc4);
		byte = next(r);
	} else if (byte == 0x0f) {
		byte = next(r);
		l->map = 1;
		if (byte == 0x38 || byte == 0x3a) {
			l->map = byte == 0x38 ? 2 : 3;
			byte = next(r);
		}
	}
	l->opcode = byte;
	l->opcode_offset = r->at - 1;
	return ok || r->truncated;
}

/* ModRM, SIB and displacement: Intel SDM volume 2, tables 2-2 and 2-3. */
static void read_modrm(struct reader *r, struct x86_layout *l)
{
	unsigned mod, rm;

	l->modrm_offset = r->at;
	l->modrm = next(r);
	mod = l->modrm >> 6;
	rm = l->modrm & 7;
	if (mod == 3)
		return;
	if (rm == 4)
		l->sib = next(r);
	if (mod == 1)
		l->disp_size = 1;
	else if (mod == 2 || rm == 5 || (rm == 4 && (l->sib & 7) == 5))
		l->disp_size = 4;
	if (mod == 0 && rm == 4 && (l->sib & 7) != 5)
		l->disp_size = 0;
	if (l->disp_size)
		l->disp_offset = r->at;
	r->at += l->disp_size;
}

static unsigned immediate_size(const struct x86_layout *l)
{
	bool wide = l->rex & REX_W;
	bool narrow = (l->prefixes & PREFIX_66) && !wide;

	/* test Eb,Ib and test Ev,Iz share their opcode with forms without. */
	if (l->encoding == X86_LEGACY && l->map == 0 && (l->opcode & 0xfe) == 0xf6 &&
	    x86_extension(l) < 2)
		return l->opcode == 0xf6 ? 1 : narrow ? 2 : 4;
	if (l->encoding == X86_LEGACY && l->map == 0 && l->opcode == 0xc7 && l->modrm == 0xf8)
		return 4; /* xbegin */
	switch (l->attributes & OP_IMM_MASK) {
	case OP_IMM8:
	case OP_REL8:
		return 1;
	case OP_IMM16:
		return 2;
	case OP_IMM24:
		return 3;
	case OP_IMMZ:
		return narrow ? 2 : 4;
	case OP_IMMV:
		return wide ? 8 : narrow ? 2 : 4;
	case OP_MOFFS:
		return l->prefixes & PREFIX_67 ? 4 : 8;
	case OP_REL32:
		return 4;
	default:
		return 0;
	}
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
	unsigned kind = l->attributes & OP_IMM_MASK;

	if (l->encoding != X86_LEGACY)
		return false;
	if (kind == OP_REL8 || kind == OP_REL32)
		return true;
	if (l->map != 0)
		return false;
	if (l->opcode == 0xff)
		return x86_extension(l) >= 2 && x86_extension(l) <= 5;
	return l->opcode == 0xc2 || l->opcode == 0xc3 || (l->opcode == 0xc7 && l->modrm == 0xf8);
}

static bool form_exists(const struct x86_layout *l)
{
	if ((l->attributes & OP_MEMORY_ONLY) && !x86_is_memory(l))
		return false;
	if ((l->attributes & OP_REGISTER_ONLY) && x86_is_memory(l))
		return false;
	if ((l->prefixes & PREFIX_LOCK) && !lock_allowed(l))
		return false;
	/* Intel ignores 66 before a near branch, AMD takes 16 bits of the target. */
	return !is_near_branch(l) || !(l->prefixes & PREFIX_66) || (l->rex & REX_W);
}

int x86_layout_read(const uint8_t *bytes, size_t size, struct x86_layout *l)
{
	struct reader r = {.bytes = bytes, .size = size};
	bool ok;

	memset(l, 0, sizeof(*l));
	read_prefixes(&r, l);
	ok = read_opcode(&r, l);
	if (ok && !r.truncated) {
		l->attributes = x86_attributes(l->encoding, l->map, l->opcode);
		ok = l->attributes & OP_VALID;
		if (ok && (l->attributes & OP_MODRM))
			read_modrm(&r, l);
	}
	if (ok && !r.truncated) {
		l->imm_size = immediate_size(l);
		l->imm_offset = l->imm_size ? r.at : 0;
		r.at += l->imm_size;
	}
	if (r.at > X86_LENGTH_MAX || !ok)
		return ARCH_UNKNOWN;
	if (r.truncated || r.at > size)
		return ARCH_TRUNCATED;
	l->length = r.at;
	return form_exists(l) ? ARCH_OK : ARCH_UNKNOWN;
}
