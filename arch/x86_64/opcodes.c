/* SPDX-License-Identifier: MIT */
/*
 * opcodes.c - the opcode maps as tables (Intel SDM volume 2, appendix A).
 *
 * An opcode that is not listed is unknown. Tables say only what is true for
 * every form of the opcode; what depends on a prefix, on ModRM.reg or on the
 * instruction is OP_SPECIAL or OP_GROUP and stands in effects.c. A register
 * that might be read is marked as read.
 */
#include "arch/x86_64/x86.h"

#define V	 OP_VALID
#define M	 (OP_VALID | OP_MODRM)
#define B	 OP_BYTE
#define GR	 OP_REG_R
#define GW	 OP_REG_W
#define ER	 OP_RM_R
#define EW	 OP_RM_W
#define F6	 OP_FLAGS
#define SP	 OP_SPECIAL
#define GRP	 OP_GROUP
#define LK	 OP_LOCKABLE
#define MEM	 OP_MEMORY_ONLY
#define RGO	 OP_REGISTER_ONLY
#define I8	 OP_IMM8
#define IZ	 OP_IMMZ
#define LOOK	 OP_LOOK
#define FRM	 OP_FRAME
#define IMP	 OP_IMPLICIT
#define STK	 OP_STACK
#define NB	 OP_NEAR
#define PRE(bit) (OP_PREFIX | (bit))
#define ESC	 OP_ESCAPE
#define GO(flow) ((uint32_t)ARCH_FLOW_##flow << OP_FLOW_SHIFT)

/* The eight arithmetic rows: Eb,Gb  Ev,Gv  Gb,Eb  Gv,Ev  al,Ib  rax,Iz */
#define ALU(base, extra)                                                        \
	[(base) + 0] = M | B | GR | ER | EW | F6 | LK | (extra),                \
		  [(base) + 1] = M | GR | ER | EW | F6 | LK | (extra),          \
		  [(base) + 2] = M | B | GR | GW | ER | F6 | (extra),           \
		  [(base) + 3] = M | GR | GW | ER | F6 | (extra),               \
		  [(base) + 4] = V | B | I8 | OP_RAX | OP_RAX_W | F6 | (extra), \
		  [(base) + 5] = V | IZ | OP_RAX | OP_RAX_W | F6 | (extra)

const uint32_t x86_one_byte[256] = {
	ALU(0x00, 0),
	ALU(0x08, 0),
	[0x0f] = ESC,
	ALU(0x10, OP_CARRY),
	ALU(0x18, OP_CARRY),
	ALU(0x20, 0),
	[0x26] = PRE(PREFIX_OTHER),
	ALU(0x28, 0),
	[0x2e] = PRE(PREFIX_OTHER),
	ALU(0x30, SP), /* xor of a register with itself reads nothing */
	[0x36] = PRE(PREFIX_OTHER),
	[0x38] = M | B | GR | ER | F6,
	[0x39] = M | GR | ER | F6,
	[0x3a] = M | B | GR | ER | F6,
	[0x3b] = M | GR | ER | F6,
	[0x3c] = V | B | I8 | OP_RAX | F6,
	[0x3d] = V | IZ | OP_RAX | F6,
	[0x3e] = PRE(PREFIX_3E),
	[0x40 ... 0x4f] = OP_PREFIX, /* REX: layout.c */
	[0x50 ... 0x57] = V | SP | IMP,
	[0x58 ... 0x5f] = V | SP | IMP | FRM,
	[0x62] = ESC,
	[0x63] = M | GW | ER,
	[0x64 ... 0x65] = PRE(PREFIX_FSGS),
	[0x66] = PRE(PREFIX_66),
	[0x67] = PRE(PREFIX_67),
	[0x68] = V | IZ | SP | IMP,
	[0x69] = M | IZ | GW | ER | F6,
	[0x6a] = V | I8 | SP | IMP,
	[0x6b] = M | I8 | GW | ER | F6,
	[0x6c ... 0x6f] = V | SP | IMP,
	[0x70 ... 0x7f] = V | OP_REL8 | SP | NB | GO(BRANCH),
	[0x80] = M | B | I8 | GRP | LK,
	[0x81] = M | IZ | GRP | LK | STK,
	[0x83] = M | I8 | GRP | LK | STK,
	[0x84] = M | B | GR | ER | F6,
	[0x85] = M | GR | ER | F6,
	[0x86] = M | B | GR | GW | ER | EW | LK,
	[0x87] = M | GR | GW | ER | EW | LK,
	[0x88] = M | B | GR | EW,
	[0x89] = M | GR | EW | STK,
	[0x8a] = M | B | GW | ER,
	[0x8b] = M | GW | ER | STK,
	[0x8c] = M | EW | LOOK,
	[0x8d] = M | GW | MEM | OP_NO_ACCESS | STK,
	[0x8e] = M | ER | LOOK,
	[0x8f] = M | GRP | LOOK | IMP | FRM | ESC,
	[0x90] = V | SP | LOOK,
	[0x91 ... 0x97] = V | SP,
	[0x98 ... 0x99] = V | SP,
	[0x9b] = V,
	[0x9c ... 0x9d] = V | SP | IMP,
	[0x9e ... 0x9f] = V | SP,
	[0xa0] = V | OP_MOFFS | OP_RAX | B | IMP,
	[0xa1] = V | OP_MOFFS | OP_RAX_W | IMP,
	[0xa2] = V | OP_MOFFS | OP_RAX | B | IMP,
	[0xa3] = V | OP_MOFFS | OP_RAX | IMP,
	[0xa4 ... 0xa7] = V | SP | IMP,
	[0xa8] = V | B | I8 | OP_RAX | F6,
	[0xa9] = V | IZ | OP_RAX | F6,
	[0xaa ... 0xaf] = V | SP | IMP,
	[0xb0 ... 0xb7] = V | I8, /* a byte of a register: neither read nor wholly written */
	[0xb8 ... 0xbf] = V | OP_IMMV | SP,
	[0xc0] = M | B | I8 | GRP | LOOK,
	[0xc1] = M | I8 | GRP | LOOK,
	[0xc2] = V | OP_IMM16 | SP | NB | IMP | GO(RETURN),
	[0xc3] = V | SP | NB | IMP | GO(RETURN),
	[0xc4 ... 0xc5] = ESC,
	[0xc6] = M | B | I8 | GRP | LOOK,
	[0xc7] = M | IZ | GRP | LOOK,
	[0xc8] = V | OP_IMM24 | SP | IMP,
	[0xc9] = V | SP | IMP | FRM,
	[0xca] = V | OP_IMM16 | SP | IMP | LOOK | GO(RETURN),
	[0xcb] = V | SP | IMP | LOOK | GO(RETURN),
	[0xcc] = V | SP | LOOK | GO(STOP),
	[0xcd] = V | I8 | SP | LOOK | GO(SYSCALL),
	[0xcf] = V | SP | IMP | LOOK | GO(RETURN),
	[0xd0] = M | B | GRP | LOOK,
	[0xd1] = M | GRP | LOOK,
	[0xd2] = M | B | GRP | LOOK,
	[0xd3] = M | GRP | LOOK,
	[0xd7] = V | SP | IMP,
	[0xd8 ... 0xdf] = M | GRP,
	[0xe0 ... 0xe3] = V | OP_REL8 | SP | NB | GO(BRANCH),
	[0xe4 ... 0xe7] = V | I8 | SP,
	[0xe8] = V | OP_REL32 | SP | NB | IMP | GO(CALL),
	[0xe9] = V | OP_REL32 | SP | NB | GO(JUMP),
	[0xeb] = V | OP_REL8 | SP | NB | GO(JUMP),
	[0xec ... 0xef] = V | SP,
	[0xf0] = PRE(PREFIX_LOCK),
	[0xf1] = V | SP | LOOK | GO(STOP),
	[0xf2] = PRE(PREFIX_F2),
	[0xf3] = PRE(PREFIX_F3),
	[0xf4] = V | SP | LOOK | GO(STOP),
	[0xf5] = V | SP,
	[0xf6] = M | B | OP_TEST8 | GRP | LK | LOOK,
	[0xf7] = M | OP_TESTZ | GRP | LK | LOOK,
	[0xf8 ... 0xfd] = V | SP,
	[0xfe] = M | B | GRP | LK | LOOK,
	[0xff] = M | GRP | LK | LOOK,
};

const uint32_t x86_two_byte[256] = {
	[0x00] = M | GRP | LOOK,
	[0x01] = M | GRP | LOOK,
	[0x02 ... 0x03] = M | GR | ER,
	[0x05] = V | SP | LOOK | GO(SYSCALL),
	[0x0b] = V | SP | LOOK | GO(STOP),
	[0x0d] = M | OP_NO_ACCESS | MEM,
	[0x10 ... 0x12] = M,
	[0x13] = M | MEM,
	[0x14 ... 0x16] = M,
	[0x17] = M | MEM,
	[0x18] = M | OP_NO_ACCESS,
	[0x19] = M | OP_NO_ACCESS,
	[0x1a ... 0x1b] = M | ER, /* bounds; nothing on processors without */
	[0x1c ... 0x1d] = M | OP_NO_ACCESS,
	[0x1e] = M | SP | OP_NO_ACCESS | LOOK,
	[0x1f] = M | OP_NO_ACCESS | LOOK,
	[0x28 ... 0x29] = M,
	[0x2a] = M | ER,
	[0x2b] = M | MEM,
	[0x2c ... 0x2d] = M | SP,
	[0x2e ... 0x2f] = M | F6,
	[0x31] = V | SP,
	[0x34] = V | SP | LOOK | GO(SYSCALL),
	[0x40 ... 0x4f] = M | ER | SP, /* keeps what it does not overwrite: not read */
	[0x50] = M | GW | RGO,
	[0x51 ... 0x6d] = M,
	[0x6e] = M | ER,
	[0x6f] = M,
	[0x70] = M | I8,
	[0x71 ... 0x73] = M | I8 | RGO | LOOK,
	[0x74 ... 0x76] = M,
	[0x77] = V,
	[0x7c ... 0x7d] = M,
	[0x7e] = M | SP,
	[0x7f] = M,
	[0x80 ... 0x8f] = V | OP_REL32 | SP | NB | GO(BRANCH),
	[0x90 ... 0x9f] = M | B | SP,
	[0xa0 ... 0xa1] = V | SP | IMP,
	[0xa2] = V | SP,
	[0xa3] = M | GR | ER | SP,
	[0xa4] = M | I8 | GR | ER | EW | SP,
	[0xa5] = M | GR | ER | EW | SP,
	[0xa6 ... 0xa7] = M | RGO | SP | IMP, /* VIA */
	[0xa8 ... 0xa9] = V | SP | IMP,
	[0xab] = M | GR | ER | EW | LK | SP,
	[0xac] = M | I8 | GR | ER | EW | SP,
	[0xad] = M | GR | ER | EW | SP,
	[0xae] = M | GRP,
	[0xaf] = M | GR | GW | ER | F6,
	[0xb0] = M | B | GR | ER | EW | OP_RAX | F6 | LK,
	[0xb1] = M | GR | ER | EW | OP_RAX | F6 | LK,
	[0xb3] = M | GR | ER | EW | LK | SP,
	[0xb6 ... 0xb7] = M | GW | ER,
	[0xb8] = M | SP | GW | ER | F6 | LOOK,
	[0xb9] = M | SP | LOOK | GO(STOP),
	[0xba] = M | I8 | GRP | LK | LOOK,
	[0xbb] = M | GR | ER | EW | LK | SP,
	[0xbc ... 0xbd] = M | ER | F6,
	[0xbe ... 0xbf] = M | GW | ER,
	[0xc0] = M | B | GR | GW | ER | EW | F6 | LK,
	[0xc1] = M | GR | GW | ER | EW | F6 | LK,
	[0xc2] = M | I8,
	[0xc3] = M | GR | MEM,
	[0xc4] = M | I8 | ER,
	[0xc5] = M | I8 | GW | RGO,
	[0xc6] = M | I8,
	[0xc7] = M | GRP | LK | LOOK,
	[0xc8 ... 0xcf] = V | SP,
	[0xd0 ... 0xd6] = M,
	[0xd7] = M | GW | RGO,
	[0xd8 ... 0xe6] = M,
	[0xe7] = M | MEM,
	[0xe8 ... 0xef] = M,
	[0xf0] = M | MEM,
	[0xf1 ... 0xf6] = M,
	[0xf7] = M | RGO | SP | IMP,
	[0xf8 ... 0xfe] = M,
	[0xff] = M | SP | LOOK | GO(STOP),
};

static const uint32_t map_38[256] = {
	[0x00 ... 0x0b] = M,
	[0x10] = M,
	[0x14 ... 0x15] = M,
	[0x17] = M | F6,
	[0x1c ... 0x1e] = M,
	[0x20 ... 0x25] = M,
	[0x28 ... 0x29] = M,
	[0x2a] = M | MEM,
	[0x2b] = M,
	[0x30 ... 0x35] = M,
	[0x37 ... 0x41] = M,
	[0xc8 ... 0xcd] = M,
	[0xcf] = M,
	[0xdb] = M,
	[0xdc ... 0xdf] = M | SP,
	[0xf0 ... 0xf1] = M | GR | ER | SP,
	[0xf5] = M | GR | MEM | SP | LOOK,
	[0xf6] = M | GR | ER | EW | SP,
	[0xf8] = M | GR | MEM | SP,
	[0xf9] = M | GR | MEM,
};

static const uint32_t map_3a[256] = {
	[0x08 ... 0x0f] = M | I8, [0x14 ... 0x17] = M | I8 | ER,
	[0x20] = M | I8 | ER,	  [0x21] = M | I8,
	[0x22] = M | I8 | ER,	  [0x40 ... 0x42] = M | I8,
	[0x44] = M | I8,	  [0x60 ... 0x63] = M | I8 | SP,
	[0xcc] = M | I8,	  [0xce ... 0xcf] = M | I8,
	[0xdf] = M | I8,
};

/* VEX map 0f. Mask register and AMX instructions have no immediate either. */
static const uint32_t vex_0f[256] = {
	[0x10 ... 0x12] = M,
	[0x13] = M | MEM,
	[0x14 ... 0x16] = M,
	[0x17] = M | MEM,
	[0x28 ... 0x29] = M,
	[0x2a] = M | ER,
	[0x2b] = M | MEM,
	[0x2c ... 0x2d] = M | GW,
	[0x2e ... 0x2f] = M | F6,
	[0x41 ... 0x42] = M | RGO,
	[0x44 ... 0x47] = M | RGO,
	[0x4a ... 0x4b] = M | RGO,
	[0x50] = M | GW | RGO,
	[0x51 ... 0x6d] = M,
	[0x6e] = M | ER,
	[0x6f] = M,
	[0x70] = M | I8,
	[0x71 ... 0x73] = M | I8,
	[0x74 ... 0x76] = M,
	[0x77] = V,
	[0x7c ... 0x7d] = M,
	[0x7e] = M | ER,
	[0x7f] = M,
	[0x90 ... 0x91] = M,
	[0x92] = M | ER | RGO,
	[0x93] = M | GW | RGO,
	[0x98 ... 0x99] = M | RGO | F6,
	[0xae] = M | MEM,
	[0xc2] = M | I8,
	[0xc4] = M | I8 | ER,
	[0xc5] = M | I8 | GW | RGO,
	[0xc6] = M | I8,
	[0xd0 ... 0xd6] = M,
	[0xd7] = M | GW | RGO,
	[0xd8 ... 0xe6] = M,
	[0xe7] = M | MEM,
	[0xe8 ... 0xef] = M,
	[0xf0] = M | MEM,
	[0xf1 ... 0xf6] = M,
	[0xf7] = M | RGO | SP | IMP,
	[0xf8 ... 0xfe] = M,
};

static const uint32_t vex_38[256] = {
	[0x00 ... 0x0d] = M,
	[0x0e ... 0x0f] = M | F6,
	[0x13] = M,
	[0x16] = M,
	[0x17] = M | F6,
	[0x18 ... 0x1a] = M,
	[0x1c ... 0x1e] = M,
	[0x20 ... 0x25] = M,
	[0x28 ... 0x41] = M,
	[0x45 ... 0x47] = M,
	[0x49] = M,
	[0x4b] = M | MEM,
	[0x50 ... 0x53] = M,
	[0x58 ... 0x5a] = M,
	[0x5c] = M,
	[0x5e] = M,
	[0x78 ... 0x79] = M,
	[0x8c] = M | MEM,
	[0x8e] = M | MEM,
	[0x90 ... 0x93] = M | MEM,
	[0x96 ... 0x9f] = M,
	[0xa6 ... 0xaf] = M,
	[0xb0 ... 0xb1] = M,
	[0xb4 ... 0xbf] = M,
	[0xcf] = M,
	[0xdb ... 0xdf] = M,
	[0xf2] = M | GW | ER | F6 | SP,
	[0xf3] = M | ER | F6 | SP,
	[0xf5] = M | GW | ER | SP,
	[0xf6] = M | GW | ER | SP,
	[0xf7] = M | GW | ER | SP,
};

static const uint32_t vex_3a[256] = {
	[0x00 ... 0x02] = M | I8,  [0x04 ... 0x06] = M | I8,
	[0x08 ... 0x0f] = M | I8,  [0x14 ... 0x17] = M | I8 | ER,
	[0x18 ... 0x19] = M | I8,  [0x1d] = M | I8,
	[0x20] = M | I8 | ER,	   [0x21] = M | I8,
	[0x22] = M | I8 | ER,	   [0x30 ... 0x33] = M | I8 | RGO,
	[0x38 ... 0x39] = M | I8,  [0x40 ... 0x42] = M | I8,
	[0x44] = M | I8,	   [0x46] = M | I8,
	[0x48 ... 0x49] = M | I8,  [0x4a ... 0x4c] = M | I8,
	[0x5c ... 0x5f] = M | I8,  [0x60 ... 0x63] = M | I8 | SP,
	[0x68 ... 0x6f] = M | I8,  [0x78 ... 0x7f] = M | I8, /* AMD: four operands */
	[0xce ... 0xcf] = M | I8,  [0xdf] = M | I8,
	[0xf0] = M | I8 | GW | ER,
};

/*
 * EVEX: lengths follow one rule per map, and which opcodes exist grows with
 * every processor. Where general registers take part they are marked as read
 * (cvtsi2ss and its like, movd, pinsr, pextr, broadcasts); of what may have
 * them in new ways, and of the maps of half precision, effects.c says the most.
 */
static uint32_t evex_attributes(unsigned map, unsigned opcode)
{
	const uint32_t general = M | OP_REG_R | OP_RM_R;

	switch (map) {
	case 1:
		if (opcode < 0x10 || (opcode >= 0x80 && opcode < 0xc2) || opcode == 0x77)
			return 0;
		if ((opcode >= 0x70 && opcode <= 0x73) || opcode == 0xc2 || opcode == 0xc6)
			return M | I8;
		if (opcode == 0xc4 || opcode == 0xc5)
			return general | I8;
		if (opcode == 0x2e || opcode == 0x2f)
			return M | F6;
		if (opcode == 0x2a || opcode == 0x2c || opcode == 0x2d || opcode == 0x6e ||
		    (opcode >= 0x78 && opcode <= 0x7b) || opcode == 0x7e)
			return general;
		return M;
	case 2:
		if (opcode >= 0xf0 || (opcode >= 0x48 && opcode <= 0x4b))
			return M | SP;
		return opcode >= 0x7a && opcode <= 0x7c ? general : M;
	case 3:
		if (opcode >= 0xf0)
			return M | I8 | SP;
		return ((opcode >= 0x14 && opcode <= 0x17) || opcode == 0x20 || opcode == 0x22
				? general
				: M) |
		       I8;
	default:
		return M | SP;
	}
}

uint32_t x86_attributes(enum x86_encoding encoding, unsigned map, unsigned opcode)
{
	static const uint32_t *const legacy[4] = {x86_one_byte, x86_two_byte, map_38, map_3a};
	static const uint32_t *const vex[4] = {NULL, vex_0f, vex_38, vex_3a};

	opcode &= 0xff;
	/* XOP: nothing is known but lengths. */
	if (encoding == X86_VEX && map >= 8 && map <= 10)
		return M | SP | (map == 8 ? I8 : map == 10 ? IZ : 0);
	if (encoding == X86_EVEX)
		return map == 1 || map == 2 || map == 3 || map == 5 || map == 6
			       ? evex_attributes(map, opcode)
			       : 0;
	if (map > 3)
		return 0;
	if (encoding == X86_VEX)
		return vex[map] ? vex[map][opcode] : 0;
	return legacy[map][opcode];
}
