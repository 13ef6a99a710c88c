/* SPDX-License-Identifier: MIT */
/*
 * effects.c - which registers and flags an instruction reads and which it
 * wholly overwrites.
 *
 * The rule of caution: what might be read is read; overwritten is only what is
 * overwritten whatever the values are, in all 64 bits (32-bit results are zero
 * extended). Flags that the manual leaves undefined count as overwritten where
 * processors do overwrite them. What is not understood reads everything. The
 * differential test executes what is said here.
 */
#include "arch/x86_64/x86.h"

struct effect {
	const uint8_t *bytes;
	arch_regset reads, writes;
};

#define FLAGS_BUT_CARRY (SET_FLAGS & ~FLAG_CF)
#define FLAGS_AH	(FLAG_CF | FLAG_PF | FLAG_AF | FLAG_ZF | FLAG_SF)

/*
 * True if a write of the operand size replaces the whole register. (movmskps,
 * pextrw and pmovmskb have 66 as a part of the opcode.)
 */
static bool whole(const struct x86_layout *l)
{
	if (l->map == 1 && (l->attributes & OP_REGISTER_ONLY) && (l->attributes & OP_REG_W))
		return true;
	return !(l->attributes & OP_BYTE) && (!(l->prefixes & PREFIX_66) || (l->rex & REX_W));
}

/* The register of which a byte is meant: without REX, numbers 4 to 7 are ah, ch, dh, bh. */
static unsigned byte_register(const struct x86_layout *l, unsigned number)
{
	return !l->rex && number >= 4 ? number - 4 : number;
}

static unsigned register_of(const struct x86_layout *l, unsigned number)
{
	return l->attributes & OP_BYTE ? byte_register(l, number) : number;
}

/* Base and index. A vector index (gather) is taken for a general register: harmless. */
static arch_regset address_registers(const struct x86_layout *l)
{
	arch_regset set = 0;
	unsigned base, index;

	if (!x86_is_memory(l) || x86_is_pc_relative(l))
		return 0;
	if (!x86_has_sib(l))
		return SET(x86_rm(l));
	base = (l->sib & 7) | (l->rex & REX_B ? 8 : 0);
	index = (l->sib >> 3 & 7) | (l->rex & REX_X ? 8 : 0);
	if ((l->sib & 7) != 5 || x86_mod(l) != 0)
		set |= SET(base);
	if (index != RSP)
		set |= SET(index);
	return set;
}

static void operands(const struct x86_layout *l, struct effect *e)
{
	const uint32_t at = l->attributes;
	unsigned reg = register_of(l, x86_reg(l));
	unsigned rm = register_of(l, x86_rm(l));

	e->reads |= address_registers(l);
	if (at & OP_REG_R)
		e->reads |= SET(reg);
	if ((at & OP_REG_W) && whole(l))
		e->writes |= SET(reg);
	if (l->modrm_offset && x86_mod(l) == 3) {
		/* movzx and movsx read a byte where the destination is wider. */
		bool byte_source = l->encoding == X86_LEGACY && l->map == 1 &&
				   (l->opcode == 0xb6 || l->opcode == 0xbe);

		if (at & OP_RM_R)
			e->reads |= SET(byte_source ? byte_register(l, rm) : rm);
		if ((at & OP_RM_W) && whole(l))
			e->writes |= SET(rm);
	}
	if (at & OP_RAX)
		e->reads |= SET(RAX);
	if ((at & OP_RAX_W) && whole(l))
		e->writes |= SET(RAX);
	if (at & OP_FLAGS)
		e->writes |= x86_result_flags(l);
	if (at & OP_CARRY)
		e->reads |= FLAG_CF;
	/* vvvv is a general register in andn, bzhi, shlx and their kin only. */
	if (l->encoding == X86_VEX && l->map == 2 && l->opcode >= 0xf2)
		e->reads |= SET(l->vvvv);
}

static void shift_flags(const struct x86_layout *l, unsigned count, bool rotate, struct effect *e)
{
	count &= l->rex & REX_W ? 63 : 31;
	if (count && rotate) /* processors leave OF alone where it is undefined */
		e->writes |= count == 1 ? FLAG_CF | FLAG_OF : FLAG_CF;
	else if (count)
		e->writes |= SET_FLAGS;
}

/* c0, c1, d0 to d3: /0 rol ... /2 rcl /3 rcr /4 shl ... */
static void shift_group(const struct x86_layout *l, struct effect *e)
{
	unsigned ext = x86_extension(l);
	unsigned rm = register_of(l, x86_rm(l));

	if (x86_mod(l) == 3) {
		e->reads |= SET(rm);
		if (whole(l))
			e->writes |= SET(rm);
	}
	if (ext == 2 || ext == 3)
		e->reads |= FLAG_CF;
	if (l->opcode >= 0xd2)
		e->reads |= SET(RCX);
	else
		shift_flags(l, l->imm_size ? e->bytes[l->imm_offset] : 1, ext < 4, e);
}

/* 80, 81, 83: immediate arithmetic; fe, ff: inc, dec, call, jmp, push. */
static void arithmetic_group(const struct x86_layout *l, struct effect *e)
{
	unsigned ext = x86_extension(l);
	unsigned rm = register_of(l, x86_rm(l));
	bool grows = l->opcode >= 0xfe;

	if (x86_mod(l) == 3) {
		e->reads |= SET(rm);
		if (whole(l) && (grows ? ext < 2 : ext != 7))
			e->writes |= SET(rm);
	}
	if (grows) {
		if (ext < 2)
			e->writes |= FLAGS_BUT_CARRY;
		else
			e->reads |= SET(RSP);
		return;
	}
	e->writes |= SET_FLAGS;
	if (ext == 2 || ext == 3)
		e->reads |= FLAG_CF;
}

/* f6, f7: test test not neg mul imul div idiv */
static void unary_group(const struct x86_layout *l, struct effect *e)
{
	unsigned ext = x86_extension(l);
	unsigned rm = register_of(l, x86_rm(l));

	if (x86_mod(l) == 3) {
		e->reads |= SET(rm);
		if (whole(l) && (ext == 2 || ext == 3))
			e->writes |= SET(rm);
	}
	if (ext == 4 || ext == 5)
		e->writes |= X86_PRODUCT_FLAGS;
	else if (ext != 2 && ext < 6) /* div leaves the flags, undefined as they are, alone */
		e->writes |= SET_FLAGS;
	if (ext >= 4) {
		e->reads |= SET(RAX);
		if (ext >= 6 && l->opcode == 0xf7)
			e->reads |= SET(RDX);
		if (whole(l))
			e->writes |= SET(RAX) | SET(RDX);
	}
}

static void x87(const struct x86_layout *l, struct effect *e)
{
	unsigned ext = x86_extension(l);

	if (x86_is_memory(l))
		return;
	if ((l->opcode == 0xda || l->opcode == 0xdb) && ext < 4)
		e->reads |= FLAG_CF | FLAG_ZF | FLAG_PF; /* fcmovcc */
	if ((l->opcode == 0xdb || l->opcode == 0xdf) && (ext == 5 || ext == 6))
		e->writes |= FLAG_CF | FLAG_ZF | FLAG_PF; /* fcomi, fucomi */
}

static void one_byte_group(const struct x86_layout *l, struct effect *e)
{
	unsigned rm = register_of(l, x86_rm(l));

	switch (l->opcode) {
	case 0x80:
	case 0x81:
	case 0x83:
	case 0xfe:
	case 0xff:
		arithmetic_group(l, e);
		break;
	case 0x8f: /* pop */
		e->reads |= SET(RSP);
		if (x86_mod(l) == 3 && whole(l))
			e->writes |= SET(rm);
		break;
	case 0xc0:
	case 0xc1:
	case 0xd0 ... 0xd3:
		shift_group(l, e);
		break;
	case 0xc6:
	case 0xc7: /* mov; xabort and xbegin, after which nothing or everything is as before */
		if (x86_extension(l) != 0)
			e->reads |= SET_ALL;
		else if (x86_mod(l) == 3 && whole(l))
			e->writes |= SET(rm);
		break;
	case 0xd8 ... 0xdf:
		x87(l, e);
		break;
	default:
		unary_group(l, e);
	}
}

/* movs cmps stos lods scas ins outs, with or without rep. */
static void string_instruction(const struct x86_layout *l, struct effect *e)
{
	bool repeated = l->prefixes & (PREFIX_F2 | PREFIX_F3);
	unsigned op = l->opcode & 0xfe;

	e->reads |= FLAG_DF;
	if (op == 0xa4 || op == 0xa6 || op == 0xac || op == 0x6e)
		e->reads |= SET(RSI);
	if (op != 0xac && op != 0x6e)
		e->reads |= SET(RDI);
	if (op == 0xaa || op == 0xae)
		e->reads |= SET(RAX);
	if (op == 0x6c || op == 0x6e)
		e->reads |= SET(RDX);
	if (repeated)
		e->reads |= SET(RCX);
	if ((op == 0xa6 || op == 0xae) && !repeated)
		e->writes |= SET_FLAGS;
	if (l->opcode == 0xad && !repeated && whole(l))
		e->writes |= SET(RAX);
}

static void flag_instruction(const struct x86_layout *l, struct effect *e)
{
	switch (l->opcode) {
	case 0x9c: /* pushf */
		e->reads |= SET_FLAGS | FLAG_DF | SET(RSP);
		break;
	case 0x9d: /* popf */
		e->writes |= SET_FLAGS | FLAG_DF;
		e->reads |= SET(RSP);
		break;
	case 0x9e: /* sahf */
		e->reads |= SET(RAX);
		e->writes |= FLAGS_AH;
		break;
	case 0x9f: /* lahf */
		e->reads |= FLAGS_AH;
		break;
	case 0xf5: /* cmc */
		e->reads |= FLAG_CF;
		e->writes |= FLAG_CF;
		break;
	case 0xf8:
	case 0xf9: /* clc, stc */
		e->writes |= FLAG_CF;
		break;
	default: /* cld, std */
		e->writes |= FLAG_DF;
	}
}

/* The opcodes that carry a register number in their last three bits. */
static void short_register(const struct x86_layout *l, struct effect *e)
{
	unsigned reg = (l->opcode & 7) | (l->rex & REX_B ? 8 : 0);
	unsigned row = l->opcode & 0xf8;
	arch_regset written = whole(l) ? SET(reg) : 0;

	if (row == 0x50) {
		e->reads |= SET(reg) | SET(RSP);
	} else if (row == 0x58) {
		e->reads |= SET(RSP);
		e->writes |= written;
	} else if (row == 0x90) {
		if (reg != RAX)
			e->reads |= SET(reg) | SET(RAX);
	} else { /* mov */
		e->writes |= written;
	}
}

static void one_byte_special(const struct x86_layout *l, struct effect *e)
{
	switch (l->opcode) {
	case 0x30 ... 0x35: /* xor */
		/* The flags of x ^ x are known as well; 16 and 8 bits keep the rest. */
		if (x86_mod(l) == 3 && x86_reg(l) == x86_rm(l) && whole(l))
			e->reads &= ~SET(x86_reg(l));
		break;
	case 0x50 ... 0x5f:
	case 0x90 ... 0x97:
	case 0xb8 ... 0xbf:
		short_register(l, e);
		break;
	case 0x68:
	case 0x6a:
		e->reads |= SET(RSP);
		break;
	case 0x6c ... 0x6f:
	case 0xa4 ... 0xa7:
	case 0xaa ... 0xaf:
		string_instruction(l, e);
		break;
	case 0x70 ... 0x7f:
		e->reads |= x86_condition_flags(l->opcode);
		break;
	case 0x98: /* cbw, cwde, cdqe */
		e->reads |= SET(RAX);
		e->writes |= whole(l) ? SET(RAX) : 0;
		break;
	case 0x99: /* cwd, cdq, cqo */
		e->reads |= SET(RAX);
		e->writes |= whole(l) ? SET(RDX) : 0;
		break;
	case 0x9c ... 0x9f:
	case 0xf5:
	case 0xf8 ... 0xf9:
	case 0xfc ... 0xfd:
		flag_instruction(l, e);
		break;
	case 0xc8: /* enter */
	case 0xc9: /* leave */
		e->reads |= SET(RSP) | SET(RBP);
		break;
	case 0xd7: /* xlat */
		e->reads |= SET(RAX) | SET(RBX);
		break;
	case 0xe0 ... 0xe3: /* loopne, loope, loop, jrcxz */
		e->reads |= SET(RCX) | (l->opcode < 0xe2 ? FLAG_ZF : 0);
		break;
	case 0xe8:
		e->reads |= SET(RSP);
		break;
	case 0xe9:
	case 0xeb:
		break;
	default: /* in, out, returns, traps, system calls: not worth knowing */
		e->reads |= SET_ALL;
	}
}

/* 0f a3 ab b3 bb ba: CF is the bit, ZF stays; the rest is undefined, and left alone. */
static void bit_test(struct effect *e)
{
	e->writes |= FLAG_CF;
}

static void two_byte_group(const struct x86_layout *l, struct effect *e)
{
	unsigned ext = x86_extension(l);
	bool is_register = x86_mod(l) == 3;

	switch (l->opcode) {
	case 0xba:
		bit_test(e);
		if (is_register) {
			e->reads |= SET(x86_rm(l));
			if (ext != 4 && whole(l))
				e->writes |= SET(x86_rm(l));
		}
		break;
	case 0xc7:
		if (!is_register) {
			e->reads |= SET(RAX) | SET(RBX) | SET(RCX) | SET(RDX);
			if (ext != 1)
				e->reads |= SET_ALL;
		} else if (ext >= 6 && whole(l) && !(l->prefixes & PREFIX_F3)) {
			e->writes |= SET_FLAGS | SET(x86_rm(l)); /* rdrand, rdseed */
		} else {
			e->reads |= SET_ALL;
		}
		break;
	case 0xae: /* fences, fxsave and its kin; with f3 rdfsbase and others */
		e->reads |= is_register && ext >= 5 && !l->prefixes ? 0 : SET(RAX) | SET(RDX);
		if (is_register && l->prefixes)
			e->reads |= SET_ALL;
		break;
	case 0x01:
		if (l->modrm == 0xd0) { /* xgetbv */
			e->reads |= SET(RCX);
			e->writes |= SET(RAX) | SET(RDX);
			break;
		}
		if (l->modrm == 0xf9) { /* rdtscp */
			e->writes |= SET(RAX) | SET(RDX) | SET(RCX);
			break;
		}
		/* fall through */
	default:
		e->reads |= SET_ALL;
	}
}

static void two_byte_special(const struct x86_layout *l, struct effect *e)
{
	const bool scalar = l->prefixes & (PREFIX_F2 | PREFIX_F3);

	switch (l->opcode) {
	case 0x1e: /* hint, endbr64, rdssp, which leaves its register alone without shadow stack */
		if (scalar && x86_mod(l) == 3 && x86_extension(l) == 1)
			e->reads |= SET(x86_rm(l));
		break;
	case 0x2c:
	case 0x2d: /* cvt(t)ss2si and the like; without prefix to an mmx register */
		if (scalar)
			e->writes |= SET(x86_reg(l));
		break;
	case 0x31: /* rdtsc */
		e->writes |= SET(RAX) | SET(RDX);
		break;
	case 0x40 ... 0x4f:
	case 0x80 ... 0x8f:
	case 0x90 ... 0x9f:
		e->reads |= x86_condition_flags(l->opcode);
		break;
	case 0x7e: /* movd, movq to a register; with f3 between vector registers */
		if (!(l->prefixes & PREFIX_F3) && x86_mod(l) == 3)
			e->writes |= SET(x86_rm(l));
		break;
	case 0xa0:
	case 0xa1:
	case 0xa8:
	case 0xa9:
		e->reads |= SET(RSP);
		break;
	case 0xa2: /* cpuid */
		e->reads |= SET(RAX) | SET(RCX);
		e->writes |= SET(RAX) | SET(RBX) | SET(RCX) | SET(RDX);
		break;
	case 0xa3:
	case 0xab:
	case 0xb3:
	case 0xbb:
		bit_test(e);
		break;
	case 0xa4:
	case 0xac:
		shift_flags(l, e->bytes[l->imm_offset], false, e);
		break;
	case 0xa5:
	case 0xad:
		e->reads |= SET(RCX);
		break;
	case 0xb8: /* popcnt: decode.c has seen to the prefix */
		break;
	case 0xc8 ... 0xcf: /* bswap */
		e->reads |= SET((l->opcode & 7) | (l->rex & REX_B ? 8 : 0));
		break;
	case 0xf7: /* maskmovq */
		e->reads |= SET(RDI);
		break;
	default: /* system calls and undefined instructions */
		e->reads |= SET_ALL;
	}
}

static void map_38_special(const struct x86_layout *l, struct effect *e)
{
	unsigned reg = x86_reg(l);

	switch (l->opcode) {
	case 0xdc ... 0xdf: /* aes; with f3 key locker, whose registers are implicit */
		if (l->prefixes & PREFIX_F3)
			e->reads |= SET_ALL;
		break;
	case 0xf0: /* movbe load, crc32 */
		/* crc32 of a byte; harmless for a load */
		if (x86_mod(l) == 3)
			e->reads |= SET(byte_register(l, x86_rm(l)));
		if (!(l->prefixes & PREFIX_F2) && whole(l)) {
			e->reads = address_registers(l);
			e->writes |= SET(reg);
		}
		break;
	case 0xf6: /* adcx, adox */
		e->reads |= FLAG_CF | FLAG_OF;
		break;
	case 0xf8: /* movdir64b, enqcmd: the register holds an address */
	default:
		break;
	}
}

static void vex_special(const struct x86_layout *l, struct effect *e)
{
	if (l->map > 3) { /* XOP */
		e->reads |= SET_ALL;
		return;
	}
	if (l->map == 1) { /* vmaskmovdqu */
		e->reads |= SET(RDI);
		return;
	}
	switch (l->opcode) {
	case 0xf3: /* blsr, blsmsk, blsi: vvvv is the destination */
		e->reads &= ~SET(l->vvvv);
		if (x86_mod(l) == 3)
			e->reads |= SET(x86_rm(l));
		e->reads |= address_registers(l);
		e->writes |= SET(l->vvvv);
		break;
	case 0xf5: /* bzhi; pdep and pext leave the flags alone */
		if (l->simd == 0)
			e->writes |= SET_FLAGS;
		break;
	case 0xf6: /* mulx: vvvv is the second destination */
		e->reads = address_registers(l) | SET(RDX);
		if (x86_mod(l) == 3)
			e->reads |= SET(x86_rm(l));
		e->writes |= SET(l->vvvv);
		break;
	case 0xf7: /* bextr; shlx, shrx and sarx leave the flags alone */
		if (l->simd == 0)
			e->writes |= SET_FLAGS;
		break;
	default: /* andn */
		break;
	}
}

/* pcmpestri and its kin: lengths in rax and rdx, the result in rcx. */
static void string_compare(const struct x86_layout *l, struct effect *e)
{
	e->writes |= SET_FLAGS;
	if (l->opcode < 0x62)
		e->reads |= SET(RAX) | SET(RDX);
	if (l->opcode & 1)
		e->writes |= SET(RCX);
}

static void special(const struct x86_layout *l, struct effect *e)
{
	if (l->encoding == X86_EVEX)
		e->reads |= SET_ALL; /* general registers in new ways */
	else if (l->map == 3)
		string_compare(l, e);
	else if (l->encoding != X86_LEGACY)
		vex_special(l, e);
	else if (l->map == 2)
		map_38_special(l, e);
	else if (l->map == 1)
		(l->attributes & OP_GROUP ? two_byte_group : two_byte_special)(l, e);
	else
		(l->attributes & OP_GROUP ? one_byte_group : one_byte_special)(l, e);
}

void x86_effects(const struct arch_insn *insn, const struct x86_layout *l, arch_regset *reads,
		 arch_regset *writes)
{
	struct effect e = {.bytes = insn->bytes};

	operands(l, &e);
	if (l->attributes & (OP_SPECIAL | OP_GROUP))
		special(l, &e);
	*reads = e.reads;
	*writes = e.writes;
}

void arch_effects(const struct arch_insn *insn, arch_regset *reads, arch_regset *writes)
{
	struct x86_layout l;

	*reads = SET_ALL;
	*writes = 0;
	if (x86_layout_read(insn->bytes, insn->length, &l) == ARCH_OK)
		x86_effects(insn, &l, reads, writes);
}
