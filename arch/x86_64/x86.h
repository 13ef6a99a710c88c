/* SPDX-License-Identifier: MIT */
/*
 * x86.h - what the files of arch/x86_64 share: register and flag bits, the
 * layout of an encoded instruction, and byte emitters. Nothing outside
 * arch/x86_64 (and its unit tests) may include it.
 */
#ifndef DINST_ARCH_X86_64_X86_H
#define DINST_ARCH_X86_64_X86_H

#include "arch/thread.h"

/* Numbers as encoded in ModRM, SIB and REX (Intel SDM volume 2, table 2-2). */
enum x86_register {
	RAX,
	RCX,
	RDX,
	RBX,
	RSP,
	RBP,
	RSI,
	RDI,
	R8,
	R9,
	R10,
	R11,
	R12,
	R13,
	R14,
	R15,
};

/* Registers that calls preserve, in the order of arch_preserved(). */
enum { X86_PRESERVED = 6 };
extern const uint8_t x86_preserved[X86_PRESERVED];

/* What the kernel puts in rax of a call that was interrupted (include/linux/errno.h). */
enum x86_interrupted {
	EINTR_VALUE = 4,
	EAGAIN_VALUE = 11,
	ERESTARTSYS_VALUE = 512,
	ERESTARTNOINTR_VALUE = 513,
	ERESTARTNOHAND_VALUE = 514,
	ERESTART_RESTARTBLOCK_VALUE = 516,
};

enum { SYSCALL_SIZE = 2 }; /* of the instruction */

/*
 * What cs is where 64-bit code of a program runs (user_64bit_mode() in arch/x86/include/asm/ptrace.h); 32-bit code has
 * 0x23, or 0xe023.
 */
enum x86_user_cs {
	USER_CS = 0x33, /* arch/x86/include/asm/segment.h */
	XEN_USER_CS =
		0xe033, /* also, of a paravirtualised guest (asm/xen/interface_64.h: FLAT_RING3_CS64) */
};

static inline bool x86_is_user_cs(uint64_t cs)
{
	return cs == USER_CS || cs == XEN_USER_CS;
}

/*
 * arch_regset: bit n is general register n (all 64 bits of it), bits 16 to 22
 * are flags. Vector registers are not tracked: inserted code uses none.
 */
#define SET(reg)      (1ull << (reg))
#define FLAG_CF	      (1ull << 16)
#define FLAG_PF	      (1ull << 17)
#define FLAG_AF	      (1ull << 18)
#define FLAG_ZF	      (1ull << 19)
#define FLAG_SF	      (1ull << 20)
#define FLAG_OF	      (1ull << 21)
#define FLAG_DF	      (1ull << 22)
#define SET_REGISTERS 0xffffull
#define SET_FLAGS     (FLAG_CF | FLAG_PF | FLAG_AF | FLAG_ZF | FLAG_SF | FLAG_OF)
#define SET_ALL	      (SET_REGISTERS | SET_FLAGS | FLAG_DF)

#define X86_PRODUCT_FLAGS (FLAG_CF | FLAG_OF) /* which mul and imul overwrite */

/* ------------------------------------------------------ instruction layout */

enum x86_encoding { X86_LEGACY, X86_VEX, X86_EVEX };

enum x86_prefix {
	PREFIX_66 = 1 << 0,
	PREFIX_67 = 1 << 1,
	PREFIX_F2 = 1 << 2,
	PREFIX_F3 = 1 << 3,
	PREFIX_LOCK = 1 << 4,
	PREFIX_3E = 1 << 5, /* ds: notrack */
	PREFIX_FSGS = 1 << 6,
	PREFIX_OTHER = 1 << 7, /* es, cs, ss: no meaning in 64-bit mode */
};

enum { REX_B = 1, REX_X = 2, REX_R = 4, REX_W = 8, REX_PRESENT = 0x40 };

/*
 * What the opcode tables (opcodes.c) say about one opcode: a word, so that an
 * ordinary instruction is decoded with one look at one table.
 */
enum x86_attribute {
	OP_VALID = 1 << 0,
	OP_MODRM = 1 << 1,
	OP_IMM8 = 1 << 2,
	OP_IMM16 = 2 << 2,
	OP_IMM24 = 3 << 2, /* enter: 16 and 8 bits */
	OP_IMMZ = 4 << 2,  /* 16 or 32 bits by operand size */
	OP_IMMV = 5 << 2,  /* 16, 32 or 64 bits by operand size */
	OP_REL8 = 6 << 2,
	OP_REL32 = 7 << 2,
	OP_MOFFS = 8 << 2,  /* an address: 64 or 32 bits */
	OP_TEST8 = 9 << 2,  /* IMM8 where ModRM.reg is 0 or 1, else none */
	OP_TESTZ = 10 << 2, /* IMMZ, alike */
	OP_IMM_MASK = 15 << 2,
	OP_BYTE = 1 << 6,  /* 8-bit operands: nothing is wholly overwritten */
	OP_REG_R = 1 << 7, /* ModRM.reg is a general register, read */
	OP_REG_W = 1 << 8, /* ... written */
	OP_RM_R = 1 << 9,  /* ModRM.rm, where it is a register */
	OP_RM_W = 1 << 10,
	OP_MEMORY_ONLY = 1 << 11,
	OP_FLAGS = 1 << 12,	/* all six arithmetic flags are defined or undefined */
	OP_CARRY = 1 << 13,	/* reads CF */
	OP_RAX = 1 << 14,	/* reads rax, and ... */
	OP_RAX_W = 1 << 15,	/* ... writes it */
	OP_SPECIAL = 1 << 16,	/* effects.c has a case for it */
	OP_GROUP = 1 << 17,	/* ModRM.reg selects: effects.c has a case for it */
	OP_LOCKABLE = 1 << 18,	/* a lock prefix is allowed (for groups: see there) */
	OP_NO_ACCESS = 1 << 19, /* the memory operand is not accessed */
	OP_REGISTER_ONLY = 1 << 20,
	OP_NEAR = 1 << 21,     /* a near branch: 66 makes it doubtful */
	OP_LOOK = 1 << 22,     /* decode.c has a case for it */
	OP_FRAME = 1 << 23,    /* tears down a frame */
	OP_STACK = 1 << 24,    /* ... where it writes rsp (decode.c) */
	OP_IMPLICIT = 1 << 25, /* accesses memory that is no ModRM operand */
	OP_FLOW_SHIFT = 26,    /* four bits: enum arch_flow */
};

/*
 * No opcodes but: a prefix (its bit in the low byte; REX has none), 0f c4 c5
 * 62; 8f is either.
 */
#define OP_PREFIX (1u << 30)
#define OP_ESCAPE (1u << 31)

/* Where the parts of an encoded instruction lie. Offsets are 0 where there is none. */
struct x86_layout {
	uint32_t attributes; /* enum x86_attribute */
	uint8_t length;
	uint8_t encoding; /* enum x86_encoding */
	uint8_t prefixes; /* enum x86_prefix */
	uint8_t rex;	  /* bits as REX, whatever the encoding; 0x40 if there was one */
	uint8_t map;	  /* 0: one byte, 1: 0f, 2: 0f 38, 3: 0f 3a; 5, 6: EVEX; 8 to 10: XOP */
	uint8_t simd;	  /* VEX, EVEX: pp, else 0 */
	uint8_t vvvv;	  /* VEX, EVEX: register number */
	uint8_t vector;	  /* log2 of the vector's bytes - 4; 4 more: one element broadcast */
	uint8_t opcode;
	uint8_t opcode_offset; /* of the opcode byte itself */
	uint8_t modrm_offset, modrm, sib;
	uint8_t disp_offset, disp_size;
	uint8_t imm_offset, imm_size;
};

/* The parts of ModRM and SIB, extended by REX. */
static inline unsigned x86_mod(const struct x86_layout *l)
{
	return l->modrm >> 6;
}

static inline unsigned x86_reg(const struct x86_layout *l)
{
	return ((l->modrm >> 3) & 7) | (l->rex & REX_R ? 8 : 0);
}

/* ModRM.reg as an opcode extension. */
static inline unsigned x86_extension(const struct x86_layout *l)
{
	return (l->modrm >> 3) & 7;
}

static inline unsigned x86_rm(const struct x86_layout *l)
{
	return (l->modrm & 7) | (l->rex & REX_B ? 8 : 0);
}

static inline bool x86_has_sib(const struct x86_layout *l)
{
	return l->modrm_offset && x86_mod(l) != 3 && (l->modrm & 7) == 4;
}

static inline bool x86_is_memory(const struct x86_layout *l)
{
	return l->modrm_offset && x86_mod(l) != 3;
}

/* disp32 relative to the next instruction (Intel SDM volume 2, 2.2.1.6). */
static inline bool x86_is_pc_relative(const struct x86_layout *l)
{
	return l->modrm_offset && (l->modrm & 0xc7) == 5;
}

/* True where the memory operand's base is rsp (r12 is none). */
static inline bool x86_is_stack_based(const struct x86_layout *l)
{
	return x86_has_sib(l) && (l->sib & 7) == 4 && !(l->rex & REX_B);
}

/* The two maps that nearly all opcodes are in. */
extern const uint32_t x86_one_byte[256], x86_two_byte[256];

/* How the memory operand of a vector instruction is accessed; sizes.c. */
struct x86_vector_access {
	uint32_t size;	 /* bytes, 0 if not known or many places */
	uint32_t scale;	 /* of an 8-bit displacement (EVEX), 0 if not known */
	bool store;	 /* else a load */
	bool is_indexed; /* by a vector */
};
struct x86_vector_access x86_vector_access(const struct x86_layout *l);

/* The address that ModRM and SIB name; displacements of one byte count `scale` bytes. */
struct arch_memory x86_explicit_address(const struct arch_insn *insn, const struct x86_layout *l,
					unsigned scale);

/* arch_effects() of an instruction whose layout is known. */
void x86_effects(const struct arch_insn *insn, const struct x86_layout *l, arch_regset *reads,
		 arch_regset *writes);

/* Attributes of an opcode in a map; 0 if it is none that we know. */
uint32_t x86_attributes(enum x86_encoding encoding, unsigned map, unsigned opcode);

/*
 * Finds the parts of the instruction at `bytes`. ARCH_OK, ARCH_TRUNCATED or
 * ARCH_UNKNOWN; *l is only valid on ARCH_OK.
 */
int x86_layout_read(const uint8_t *bytes, size_t size, struct x86_layout *l);

/* ---------------------------------------------------------------- emission */

/* All of these set the sticky status instead of failing. */
void x86_fail(struct arch_buf *out, int status);
void x86_emit(struct arch_buf *out, const void *bytes, size_t count);
void x86_emit8(struct arch_buf *out, unsigned value);
void x86_emit32(struct arch_buf *out, uint32_t value);
void x86_emit64(struct arch_buf *out, uint64_t value);
/* The last four bytes of an instruction: a displacement relative to its end, to `target`. */
void x86_emit_relative(struct arch_buf *out, taddr_t target);
/* `count` bytes that do nothing. */
void x86_emit_nops(struct arch_buf *out, size_t count);

/*
 * lahf (SF, ZF, AF, PF and CF: `flags`) and seto %al (OF: `overflow`), and from what they have left in ax
 * the flags again. Not by pushf and popf: under a debugger that steps, pushf stores its trap flag, and
 * what popf loads the kernel takes for the program's own (arch/x86/kernel/step.c): it would stay on, in
 * a forked child as well, and end who has no debugger.
 */
void x86_emit_keep_flags(struct arch_buf *out, bool flags, bool overflow);
void x86_emit_restore_flags(struct arch_buf *out, bool flags, bool overflow);

/*
 * Where in an open frame the contents that register `reg` had at the place are:
 * true: in register *at, false: on the stack, *at bytes above the stack pointer.
 * For registers that the frame `reads`, or does not change.
 */
bool x86_frame_find(const struct arch_frame *frame, unsigned reg, unsigned *at);

static inline int64_t x86_read_signed(const uint8_t *bytes, size_t size)
{
	uint64_t value = 0;

	for (size_t i = 0; i < size; i++)
		value |= (uint64_t)bytes[i] << (8 * i);
	return size == 0 || size >= 8 ? (int64_t)value
				      : (int64_t)(value << (64 - 8 * size)) >> (64 - 8 * size);
}

static inline bool x86_fits32(int64_t value)
{
	return value == (int32_t)value;
}

/* The flags that condition 0 to 15 looks at (Intel SDM volume 1, appendix B). */
arch_regset x86_condition_flags(unsigned condition);
/* Those that an instruction overwrites which sets flags by its result (OP_FLAGS). */
arch_regset x86_result_flags(const struct x86_layout *l);

#endif
