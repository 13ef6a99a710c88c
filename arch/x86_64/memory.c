/* SPDX-License-Identifier: MIT */
/*
 * memory.c - what an instruction loads and stores: explicit operands, and what
 * push, pop, call, return and string instructions do by themselves. How the
 * address is computed from it is in address.c.
 */
#include "arch/x86_64/x86.h"

/* VECTOR: sizes.c knows. */
enum { LOAD = 1, STORE = 2, BOTH = 3, VECTOR = 4 };

struct list {
	struct arch_memory *items;
	unsigned count;
};

static void add(struct list *list, const struct arch_memory *where, unsigned access, uint32_t size)
{
	struct arch_memory *m;

	if (list->count == ARCH_MEMORY_MAX)
		return;
	m = &list->items[list->count++];
	*m = *where;
	m->load = access & LOAD;
	m->store = access & STORE;
	m->size = size;
}

static struct arch_memory at_register(unsigned reg, int64_t offset)
{
	return (struct arch_memory){
		.base = reg, .index = ARCH_NO_REGISTER, .offset = offset, .computable = true};
}

/*
 * Segment prefixes: fs adds the thread pointer, the base of gs cannot be read.
 * Where another one stands beside them nobody needs to know which counts.
 */
static void apply_segment(const struct arch_insn *insn, const struct x86_layout *l,
			  struct arch_memory *m)
{
	bool fs = false, gs = false;

	for (unsigned i = 0; i < l->opcode_offset && (l->prefixes & PREFIX_FSGS); i++) {
		fs |= insn->bytes[i] == 0x64;
		gs |= insn->bytes[i] == 0x65;
	}
	m->thread_relative = fs;
	if (gs || (fs && (l->prefixes & (PREFIX_3E | PREFIX_OTHER))))
		m->computable = false;
}

struct arch_memory x86_explicit_address(const struct arch_insn *insn, const struct x86_layout *l,
					unsigned scale)
{
	struct arch_memory m = at_register(x86_rm(l), 0);

	m.offset = x86_read_signed(insn->bytes + l->disp_offset, l->disp_size);
	if (l->disp_size == 1)
		m.offset *= scale;
	if (x86_is_pc_relative(l)) {
		m.base = ARCH_NO_REGISTER;
		m.offset = (int64_t)insn->data_ref;
	} else if (x86_has_sib(l)) {
		m.base = (l->sib & 7) | (l->rex & REX_B ? 8 : 0);
		m.index = (l->sib >> 3 & 7) | (l->rex & REX_X ? 8 : 0);
		m.shift = l->sib >> 6;
		if ((l->sib & 7) == 5 && x86_mod(l) == 0)
			m.base = ARCH_NO_REGISTER;
		if (m.index == RSP) {
			m.index = ARCH_NO_REGISTER;
			m.shift = 0;
		}
	}
	/* 32-bit addresses; a displacement whose unit is not known. */
	if ((l->prefixes & PREFIX_67) || (l->disp_size == 1 && scale == 0))
		m.computable = false;
	apply_segment(insn, l, &m);
	return m;
}

static unsigned operand_size(const struct x86_layout *l)
{
	if (l->attributes & OP_BYTE)
		return 1;
	return l->rex & REX_W ? 8 : l->prefixes & PREFIX_66 ? 2 : 4;
}

/* push, pop and their kin have 64 bits by nature, or 16. */
static unsigned stack_size(const struct x86_layout *l)
{
	return (l->prefixes & PREFIX_66) && !(l->rex & REX_W) ? 2 : 8;
}

/* d8 to df (Intel SDM volume 2, tables ). */
static unsigned x87_access(const struct x86_layout *l, uint32_t *size)
{
	static const uint8_t sizes[8][8] = {
		{4, 4, 4, 4, 4, 4, 4, 4}, {4, 0, 4, 4, 28, 2, 28, 2},
		{4, 4, 4, 4, 4, 4, 4, 4}, {4, 4, 4, 4, 0, 10, 0, 10},
		{8, 8, 8, 8, 8, 8, 8, 8}, {8, 8, 8, 8, 108, 0, 108, 2},
		{2, 2, 2, 2, 2, 2, 2, 2}, {2, 2, 2, 2, 10, 8, 10, 8},
	};
	unsigned row = l->opcode & 7, ext = x86_extension(l);

	*size = sizes[row][ext];
	if ((l->prefixes & PREFIX_66) && !(l->rex & REX_W) && *size >= 28)
		*size -= 14; /* environments of 16 bits */
	if (!(row & 1))
		return LOAD;
	if (row == 1 || row == 5)
		return ext == 0 || ext == 4 || (row == 1 && ext == 5) ? LOAD : STORE;
	return ext == 0 || (ext == 5) || (row == 7 && ext == 4) ? LOAD : STORE;
}

static unsigned group_access(const struct x86_layout *l, uint32_t *size)
{
	unsigned ext = x86_extension(l);

	switch (l->opcode) {
	case 0x80 ... 0x83:
		return ext == 7 ? LOAD : BOTH;
	case 0x8f:
		*size = stack_size(l);
		return STORE;
	case 0xc6:
	case 0xc7:
		return STORE;
	case 0xd8 ... 0xdf:
		return x87_access(l, size);
	case 0xf6:
	case 0xf7:
		return ext == 2 || ext == 3 ? BOTH : LOAD;
	case 0xff:
		if (ext < 2)
			return BOTH;
		/* A far pointer has 4, 6 or 10 bytes: processors differ. */
		*size = ext == 3 || ext == 5 ? 0 : ext == 6 ? stack_size(l) : 8;
		return LOAD;
	default: /* shifts; inc and dec of a byte */
		return BOTH;
	}
}

static unsigned one_byte_access(const struct x86_layout *l, uint32_t *size)
{
	*size = operand_size(l);
	if (l->attributes & OP_GROUP)
		return group_access(l, size);
	switch (l->opcode) {
	case 0x00 ... 0x37:
		return l->opcode & 2 ? LOAD : BOTH;
	case 0x63:
		*size = *size == 8 ? 4 : *size;
		return LOAD;
	case 0x86:
	case 0x87:
		return BOTH;
	case 0x88:
	case 0x89:
		return STORE;
	case 0x8c:
		*size = 2;
		return STORE;
	case 0x8e:
		*size = 2;
		return LOAD;
	default: /* cmp, test, mov, imul */
		return LOAD;
	}
}

/* 0f 00, 0f 01, 0f ae, 0f c7: system instructions and saved state. */
static unsigned system_access(const struct x86_layout *l, uint32_t *size)
{
	unsigned ext = x86_extension(l);
	static const uint32_t saves[8] = {512, 512, 4, 4, 0, 0, 0, 0};

	switch (l->opcode) {
	case 0x00:
		*size = 2;
		return ext < 2 ? STORE : LOAD;
	case 0x01:
		*size = ext < 4 ? 10 : 2;
		if (ext == 5) { /* rstorssp */
			*size = 8;
			return BOTH;
		}
		return ext < 2 || ext == 4 ? STORE : ext == 7 ? 0 : LOAD;
	case 0xae:
		*size = saves[ext];
		if (ext == 6 && (l->prefixes & PREFIX_F3)) { /* clrssbsy */
			*size = 8;
			return BOTH;
		}
		if (ext == 7 || (ext == 6 && (l->prefixes & PREFIX_66)))
			return 0; /* cache lines: clflush, clflushopt, clwb */
		if (ext == 4 && (l->prefixes & PREFIX_F3)) { /* ptwrite */
			*size = l->rex & REX_W ? 8 : 4;
			return LOAD;
		}
		return ext == 1 || ext == 2 || ext == 5 ? LOAD : STORE;
	default:
		*size = ext == 1 ? (l->rex & REX_W ? 16 : 8) : ext >= 6 ? 8 : 0;
		return ext == 1 ? BOTH : ext == 3 || ext == 6 ? LOAD : STORE;
	}
}

/* General registers with 0f. */
static unsigned two_byte_access(const struct x86_layout *l, uint32_t *size)
{
	*size = operand_size(l);
	switch (l->opcode) {
	case 0x00:
	case 0x01:
	case 0xae:
	case 0xc7:
		return system_access(l, size);
	case 0x02:
	case 0x03:
		*size = 2;
		return LOAD;
	case 0x40 ... 0x4f:
	case 0xa3:
	case 0xaf:
	case 0xb8:
	case 0xbc:
	case 0xbd:
		return LOAD;
	case 0x90 ... 0x9f:
		return STORE;
	case 0xa4 ... 0xa5:
	case 0xab ... 0xad:
	case 0xb0 ... 0xb1:
	case 0xb3:
	case 0xbb:
	case 0xc0 ... 0xc1:
		return BOTH;
	case 0xb6:
	case 0xbe:
		*size = 1;
		return LOAD;
	case 0xb7:
	case 0xbf:
		*size = 2;
		return LOAD;
	case 0xba:
		return x86_extension(l) == 4 ? LOAD : BOTH;
	case 0xb9: /* undefined: touches nothing */
	case 0xff:
		return 0;
	case 0xc3:
		return STORE;
	default:
		return VECTOR;
	}
}

/* 0f 38 f0 to f9: movbe, crc32, shadow stacks, adcx, direct stores. */
static unsigned map_38_access(const struct x86_layout *l, uint32_t *size)
{
	bool is_crc = l->prefixes & PREFIX_F2;

	*size = l->rex & REX_W ? 8 : 4;
	switch (l->opcode) {
	case 0xf0:
	case 0xf1:
		*size = operand_size(l);
		if (is_crc && l->opcode == 0xf0)
			*size = 1;
		return is_crc || l->opcode == 0xf0 ? LOAD : STORE;
	case 0xf5:
		return STORE;
	case 0xf6: /* wrss without prefix; adcx, adox */
		return l->prefixes & (PREFIX_66 | PREFIX_F3) ? LOAD : STORE;
	case 0xf9:
		return STORE;
	default: /* movdir64b, enqcmd */
		*size = 64;
		return LOAD;
	}
}

static bool is_vector(const struct x86_layout *l)
{
	if (l->encoding != X86_LEGACY)
		return !(l->map == 1 && l->opcode == 0xae);
	return l->map == 3 || (l->map == 2 && l->opcode < 0xf0);
}

/* The operand that ModRM names. */
static void add_explicit(const struct arch_insn *insn, const struct x86_layout *l,
			 struct list *list)
{
	struct x86_vector_access vector = {.scale = 1};
	struct arch_memory m;
	uint32_t size = 0;
	unsigned access = VECTOR;
	bool is_bit_string = l->encoding == X86_LEGACY && l->map == 1 && (l->opcode & 0xe7) == 0xa3;

	if (!x86_is_memory(l) || (l->attributes & OP_NO_ACCESS))
		return;
	if (l->encoding == X86_LEGACY && l->map == 0)
		access = one_byte_access(l, &size);
	else if (l->map == 1 && !is_vector(l))
		access = two_byte_access(l, &size);
	else if (l->map == 2 && !is_vector(l))
		access = map_38_access(l, &size);
	if (access == VECTOR) {
		vector = x86_vector_access(l);
		access = vector.store ? STORE : LOAD;
		size = vector.size;
	}
	if (access == 0)
		return;
	m = x86_explicit_address(insn, l, l->encoding == X86_EVEX ? vector.scale : 1);
	/* The bit's number adds to the address; a vector of addresses; rows of a tile. */
	if (is_bit_string || vector.is_indexed ||
	    (l->encoding == X86_VEX && l->map == 2 && l->opcode == 0x4b && l->simd != 0))
		m.computable = false;
	/* pop moves the stack pointer first. */
	if (l->encoding == X86_LEGACY && l->map == 0 && l->opcode == 0x8f && m.base == RSP)
		m.offset += size;
	add(list, &m, access, size);
}

/* movs cmps stos lods scas ins outs */
static void add_string(const struct arch_insn *insn, const struct x86_layout *l, struct list *list)
{
	bool repeated = l->prefixes & (PREFIX_F2 | PREFIX_F3);
	struct arch_memory source = at_register(RSI, 0), destination = at_register(RDI, 0);
	uint32_t size = l->opcode & 1 ? operand_size(l) : 1;
	unsigned op = l->opcode & 0xfe;

	if (op == 0x6c || op == 0x6e)
		size = size == 8 ? 4 : size;
	if (repeated)
		size = 0;
	apply_segment(insn, l, &source);
	if (l->prefixes & PREFIX_67)
		source.computable = destination.computable = false;
	if (op == 0xa4 || op == 0xa6 || op == 0xac || op == 0x6e)
		add(list, &source, LOAD, size);
	if (op == 0xa6 || op == 0xae)
		add(list, &destination, LOAD, size);
	else if (op != 0xac && op != 0x6e)
		add(list, &destination, STORE, size);
}

static void add_absolute(const struct arch_insn *insn, const struct x86_layout *l,
			 struct list *list)
{
	struct arch_memory m = at_register(ARCH_NO_REGISTER, 0);

	m.offset = x86_read_signed(insn->bytes + l->imm_offset, l->imm_size);
	if (l->prefixes & PREFIX_67)
		m.computable = false;
	apply_segment(insn, l, &m);
	add(list, &m, l->opcode < 0xa2 ? LOAD : STORE, l->opcode & 1 ? operand_size(l) : 1);
}

static void add_one_byte(const struct arch_insn *insn, const struct x86_layout *l,
			 struct list *list)
{
	uint32_t size = stack_size(l);
	struct arch_memory above = at_register(RSP, 0), below = at_register(RSP, -(int64_t)size);
	struct arch_memory other = at_register(RBP, 0);

	switch (l->opcode) {
	case 0x50 ... 0x57:
	case 0x68:
	case 0x6a:
	case 0x9c:
	case 0xe8:
		add(list, &below, STORE, size);
		break;
	case 0x58 ... 0x5f:
	case 0x8f:
	case 0x9d:
	case 0xc2:
	case 0xc3:
		add(list, &above, LOAD, size);
		break;
	case 0xca ... 0xcb:
	case 0xcf:
		add(list, &above, LOAD, 0);
		break;
	case 0x6c ... 0x6f:
	case 0xa4 ... 0xa7:
	case 0xaa ... 0xaf:
		add_string(insn, l, list);
		break;
	case 0xa0 ... 0xa3:
		add_absolute(insn, l, list);
		break;
	case 0xc8: /* enter: one push, or several */
		add(list, &below, STORE, insn->bytes[l->imm_offset + 2] & 31 ? 0 : size);
		break;
	case 0xc9:
		add(list, &other, LOAD, size);
		break;
	case 0xd7: /* rbx + al */
		other.computable = false;
		add(list, &other, LOAD, 1);
		break;
	default:
		break;
	}
}

static void add_implicit(const struct arch_insn *insn, const struct x86_layout *l,
			 struct list *list)
{
	uint32_t size = stack_size(l);
	struct arch_memory above = at_register(RSP, 0), below = at_register(RSP, -(int64_t)size);
	struct arch_memory named = at_register(RDI, 0);
	bool legacy = l->encoding == X86_LEGACY;

	if (legacy && l->map == 0) {
		add_one_byte(insn, l, list);
	} else if (legacy && l->map == 1 && (l->opcode & 0xf7) == 0xa0) {
		add(list, &below, STORE, size); /* push fs, gs */
	} else if (legacy && l->map == 1 && (l->opcode & 0xf7) == 0xa1) {
		add(list, &above, LOAD, size);
	} else if (l->map == 1 && l->opcode == 0xf7 && l->encoding != X86_EVEX) {
		apply_segment(insn, l, &named); /* maskmovq, maskmovdqu */
		if (l->prefixes & PREFIX_67)
			named.computable = false;
		add(list, &named, STORE, legacy && !(l->prefixes & PREFIX_66) ? 8 : 16);
	} else if (legacy && l->map == 2 && l->opcode == 0xf8) {
		named = at_register(x86_reg(l), 0); /* movdir64b, enqcmd */
		named.computable = !(l->prefixes & PREFIX_67);
		add(list, &named, STORE, 64);
	}
}

/* call, jmp and push through memory store behind what they load; pop loads before it stores. */
unsigned arch_memory_operands(const struct arch_insn *insn,
			      struct arch_memory memory[ARCH_MEMORY_MAX])
{
	struct list list = {.items = memory};
	struct arch_memory below = at_register(RSP, -8);
	struct x86_layout l;

	if (!(insn->flags & ARCH_INSN_MEMORY) ||
	    x86_layout_read(insn->bytes, insn->length, &l) != ARCH_OK)
		return 0;
	add_implicit(insn, &l, &list);
	add_explicit(insn, &l, &list);
	if (l.encoding == X86_LEGACY && l.map == 0 && l.opcode == 0xff) {
		if (x86_extension(&l) == 2)
			add(&list, &below, STORE, 8);
		if (x86_extension(&l) == 6) {
			below.offset = -(int64_t)stack_size(&l);
			add(&list, &below, STORE, stack_size(&l));
		}
	}
	/* Loads first. */
	if (list.count == 2 && !memory[0].load && memory[1].load) {
		below = memory[0];
		memory[0] = memory[1];
		memory[1] = below;
	}
	return list.count;
}
