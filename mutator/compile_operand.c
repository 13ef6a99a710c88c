/* SPDX-License-Identifier: MIT */
/*
 * compile_operand.c - typed operands: where a value is, until it is made a
 * number of 64 bits. Only integer operations, floating point included.
 */
#include "mutator/compile_private.h"

/* Another function may have another type: what is wrong with one is no reason to fail a request. */
static int type_error(const struct compiler *c)
{
	return c->depends ? DINST_REFUSED : DINST_USAGE;
}

struct operand operand_constant(int64_t number)
{
	return (struct operand){.kind = OPERAND_CONSTANT, .constant = number};
}

struct operand operand_value(unsigned value)
{
	return (struct operand){.kind = OPERAND_VALUE, .value = value};
}

/* -------------------------------------------------------- floating point */

struct layout {
	unsigned bits, fraction; /* of the whole, and behind the point */
	int64_t bias, exponents; /* IEEE 754 binary32 and binary64 */
};

unsigned compile_truncate(struct compiler *c, unsigned bits, unsigned size)
{
	static const struct layout single = {32, 23, 127, 0xff}, twice = {64, 52, 1023, 0x7ff};
	const struct layout *f = size == 4 ? &single : &twice;
	const unsigned result = compile_constant(c, 0), end = compile_label(c),
		       sign = compile_label(c), left = compile_label(c), fits = compile_label(c);
	unsigned exponent, whole, negative;

	exponent = compile_with(c, ARCH_OP_SHR, bits, f->fraction);
	exponent = compile_with(c, ARCH_OP_AND, exponent, f->exponents);
	exponent = compile_with(c, ARCH_OP_SUB, exponent, f->bias);
	compile_if_constant(c, ARCH_TEST_LT, exponent, 0, end);
	negative = compile_with(c, ARCH_OP_AND, compile_with(c, ARCH_OP_SHR, bits, f->bits - 1), 1);
	compile_if_constant(c, ARCH_TEST_LT, exponent, 63, fits);
	/* The least number, or what no number is: as far as it goes, to either side. */
	compile_copy(c, result, compile_with(c, ARCH_OP_ADD, negative, INT64_MAX));
	compile_jump(c, end);
	compile_put_label(c, fits);
	whole = compile_with(c, ARCH_OP_AND, bits, (int64_t)((1ull << f->fraction) - 1));
	whole = compile_with(c, ARCH_OP_OR, whole, (int64_t)(1ull << f->fraction));
	compile_if_constant(c, ARCH_TEST_GE, exponent, f->fraction, left);
	compile_copy(c, result,
		     compile_binary(c, ARCH_OP_SHR, whole,
				    compile_binary(c, ARCH_OP_SUB, compile_constant(c, f->fraction),
						   exponent)));
	compile_jump(c, sign);
	compile_put_label(c, left);
	compile_copy(c, result,
		     compile_binary(c, ARCH_OP_SHL, whole,
				    compile_with(c, ARCH_OP_SUB, exponent, f->fraction)));
	compile_put_label(c, sign);
	compile_if_constant(c, ARCH_TEST_EQ, negative, 0, end);
	compile_copy(c, result, compile_unary(c, ARCH_OP_NEG, result));
	compile_put_label(c, end);
	return result;
}

/* ---------------------------------------------------------------- loading */

static unsigned load_bytes(struct compiler *c, const struct operand *o, uint64_t offset,
			   unsigned size, bool is_signed)
{
	struct arch_op *op;
	unsigned word;

	if (o->kind == OPERAND_MEMORY && !o->on_stack) {
		/* Also of a variable: the program may protect or unmap any page of its own. */
		op = compile_op(c, ARCH_OP_READ);
		op->a = (uint16_t)o->value;
		op->number = offset;
		op->size = (uint8_t)size;
		op->is_signed = is_signed;
		op->result = (uint16_t)compile_new_value(c);
		c->system_calls = true;
		return op->result;
	}
	if (o->kind == OPERAND_MEMORY)
		word = compile_get(c, ARCH_OP_STACK, offset & ~7ull);
	else
		word = o->words[offset / 8 & 1];
	if (offset % 8)
		word = compile_with(c, ARCH_OP_SHR, word, (int64_t)(offset % 8 * 8));
	/* Of a packed struct: its upper part is in the next word. */
	if (o->kind == OPERAND_MEMORY && offset % 8 + size > 8)
		word = compile_binary(c, ARCH_OP_OR, word,
				      compile_with(c, ARCH_OP_SHL,
						   compile_get(c, ARCH_OP_STACK, (offset | 7) + 1),
						   (int64_t)(64 - offset % 8 * 8)));
	return compile_extend(c, word, size, is_signed);
}

static unsigned load_bits(struct compiler *c, const struct operand *o, const struct mdl_expr *x)
{
	const unsigned unit = o->type.size && o->type.size <= 8 ? o->type.size : 8;
	const uint64_t bit = o->offset * 8 + o->bit_offset;
	const uint64_t start = bit / (8 * (uint64_t)unit) * unit;
	const unsigned first = (unsigned)(bit - start * 8);
	unsigned word;

	if (first + o->bit_size > 8 * unit)
		return compile_fail(c, &x->place, type_error(c),
				    "this bit field lies across two words and cannot be read");
	word = load_bytes(c, o, start, unit, false);
	word = compile_with(c, ARCH_OP_SHL, word, 64 - (int64_t)first - o->bit_size);
	return compile_with(c, o->type.is_signed ? ARCH_OP_SAR : ARCH_OP_SHR, word,
			    64 - (int64_t)o->bit_size);
}

unsigned compile_load_operand(struct compiler *c, const struct operand *o, const struct mdl_expr *x)
{
	const unsigned size = o->type.size;

	if (c->failed)
		return 0;
	if (o->kind == OPERAND_CONSTANT)
		return compile_constant(c, o->constant);
	if (o->kind == OPERAND_VALUE)
		return o->value;
	if (o->bit_size)
		return load_bits(c, o, x);
	switch (o->type.kind) {
	case TYPE_UNKNOWN:
		return load_bytes(c, o, o->offset, 8, false);
	case TYPE_INTEGER:
	case TYPE_POINTER:
		if (size == 1 || size == 2 || size == 4 || size == 8 ||
		    (o->kind == OPERAND_MEMORY && !o->on_stack && size && size < 8))
			return load_bytes(c, o, o->offset, size, o->type.is_signed);
		break;
	case TYPE_FLOAT:
		if (size == 4 || size == 8)
			return compile_truncate(c, load_bytes(c, o, o->offset, size, false), size);
		break;
	case TYPE_ARRAY:
		if (o->kind == OPERAND_MEMORY && !o->on_stack)
			return o->value ? compile_with(c, ARCH_OP_ADD, o->value, (int64_t)o->offset)
					: compile_constant(c, (int64_t)o->offset);
		break;
	case TYPE_STRUCT:
	case TYPE_BY_REFERENCE:
		return compile_fail(
			c, &x->place, type_error(c),
			"this is a struct, not a number: say which member, as in x.member");
	default:
		break;
	}
	return compile_fail(c, &x->place, type_error(c),
			    "this is of a type that cannot be made a number (long double, vectors, "
			    "and what has more than 8 bytes)");
}

unsigned compile_load_bits(struct compiler *c, const struct operand *o, const struct mdl_expr *x,
			   unsigned *size)
{
	*size = 0;
	if (c->failed || o->type.kind != TYPE_FLOAT || o->bit_size ||
	    (o->kind != OPERAND_MEMORY && o->kind != OPERAND_WORDS) ||
	    (o->type.size != 4 && o->type.size != 8))
		return compile_load_operand(c, o, x);
	*size = o->type.size;
	return load_bytes(c, o, o->offset, o->type.size, false);
}

void compile_read_with_care(struct compiler *c, struct operand *o)
{
	if (o->kind != OPERAND_MEMORY || !o->on_stack)
		return;
	o->value = compile_get(c, ARCH_OP_STACK_POINTER, 0);
	o->on_stack = false;
}

/* ----------------------------------------------------------------- members */

/* What a pointer leads to, in memory that may not be there. */
static void follow(struct compiler *c, const struct mdl_expr *x, struct operand *o)
{
	struct type target;

	type_target(&o->type, &target);
	*o = (struct operand){
		.kind = OPERAND_MEMORY, .value = compile_load_operand(c, o, x), .type = target};
}

static void no_member(struct compiler *c, const struct mdl_expr *x, const char *name,
		      const struct operand *o)
{
	struct type_name members[TYPE_NAMES_MAX];
	const char *names[TYPE_NAMES_MAX], *nearest;
	const size_t count = type_field_names(&o->type, members, TYPE_NAMES_MAX);

	for (size_t i = 0; i < count; i++)
		names[i] = members[i].text;
	nearest = mdl_nearest(name, names, count);
	if (nearest)
		compile_fail(c, &x->place, type_error(c),
			     "there is no member '%s'; did you mean '%s'?", name, nearest);
	else
		compile_fail(c, &x->place, type_error(c), "there is no member '%s'", name);
}

void compile_field(struct compiler *c, const struct mdl_expr *x, const char *name,
		   struct operand *o)
{
	struct type_field field;

	if (o->type.kind == TYPE_POINTER || o->type.kind == TYPE_BY_REFERENCE)
		follow(c, x, o);
	if (c->failed)
		return;
	if (o->type.kind == TYPE_UNKNOWN || o->kind == OPERAND_VALUE ||
	    o->kind == OPERAND_CONSTANT) {
		compile_fail(
			c, &x->place, type_error(c),
			"'.%s' needs a type, and there is no debug information that tells one; "
			"readMemory(address, bytes) does without",
			name);
		return;
	}
	if (o->type.kind != TYPE_STRUCT) {
		compile_fail(c, &x->place, type_error(c), "'.%s': this is no struct", name);
		return;
	}
	if (!type_field(&o->type, name, &field)) {
		no_member(c, x, name, o);
		return;
	}
	o->type = field.type;
	o->offset += field.offset;
	o->bit_offset = field.bit_offset;
	o->bit_size = field.bit_size;
}

/* What [] of it is: in memory, of a type whose size is known. */
static bool to_element(struct compiler *c, const struct mdl_expr *x, struct operand *o)
{
	if (o->type.kind == TYPE_POINTER)
		follow(c, x, o);
	else if (o->type.kind == TYPE_ARRAY)
		type_target(&o->type, &o->type);
	else
		o->type = (struct type){0};
	if (!c->failed &&
	    (!o->type.size || o->type.kind == TYPE_UNKNOWN || o->kind != OPERAND_MEMORY))
		compile_fail(c, &x->place, type_error(c),
			     "[] needs an array or a pointer of a type that is known");
	return !c->failed;
}

void compile_element(struct compiler *c, const struct mdl_expr *x, int64_t index, struct operand *o)
{
	const uint64_t size = o->type.kind == TYPE_ARRAY ? o->type.size : 0;

	if (!to_element(c, x, o))
		return;
	o->offset += (uint64_t)index * o->type.size;
	/* What is beyond an array may not be there. */
	if (index < 0 || !o->type.size || (uint64_t)index >= size / o->type.size)
		compile_read_with_care(c, o);
}

void compile_index(struct compiler *c, const struct mdl_expr *x, struct operand *o)
{
	struct operand index;
	unsigned distance;

	compile_operand(c, x->left, o);
	compile_operand(c, x->right, &index);
	if (index.kind == OPERAND_CONSTANT) {
		compile_element(c, x, index.constant, o);
		return;
	}
	if (!to_element(c, x, o))
		return;
	if (o->on_stack) {
		compile_fail(c, &x->place, type_error(c), "this index must be a number");
		return;
	}
	distance = compile_with(c, ARCH_OP_MUL, compile_load_operand(c, &index, x->right),
				o->type.size);
	o->value = o->value ? compile_binary(c, ARCH_OP_ADD, o->value, distance) : distance;
}
