/* SPDX-License-Identifier: MIT */
/*
 * lift.c - words and memory of functions that are lifted (lift.h): what is known
 * of a register or a word of the frame, and what an address leads to. Errs on one
 * side only: what is not known for sure is refused, or read so that it cannot fault.
 * Of the program's memory nothing is sure: it may protect or unmap any page of its own.
 */
#include <stdio.h>
#include <string.h>

#include "arch/common/lift_common.h"
#include "arch/common/program_common.h"

/* The buffer is above the return address, where a function has no business of its own. */
enum { ALL_BYTES = 0xff, BUFFER_AT = 8, BUFFER_BYTES = 8 * LIFT_BUFFER };

int lift_refuse(struct lift *l, const char *why)
{
	if (!*l->why)
		snprintf(l->why, sizeof(l->why), "%s", why);
	return ARCH_REFUSED;
}

/* -------------------------------------------------------------- operations */

bool lift_is_constant(const struct lift *l, unsigned value, uint64_t *number)
{
	if (!value || value > LIFT_VALUES || !l->constants[value].known)
		return false;
	*number = l->constants[value].number;
	return true;
}

/* The operation of numbers that are known is one. */
static bool fold(struct lift *l, const struct arch_op *op, unsigned a, unsigned b, uint64_t *number)
{
	uint64_t x, y = (uint64_t)(int64_t)op->immediate;

	if (!lift_is_constant(l, a, &x) || (b && !lift_is_constant(l, b, &y)))
		return false;
	*number = program_evaluate(op, x, y);
	return true;
}

unsigned lift_op(struct lift *l, unsigned kind, unsigned a, unsigned b)
{
	const struct arch_op pure = {.kind = (uint8_t)kind};
	struct arch_op *op;
	uint64_t number;

	if (fold(l, &pure, a, b, &number))
		return lift_constant(l, number);
	op = l->op(l->arg, kind);
	op->a = (uint16_t)a;
	op->b = (uint16_t)b;
	op->result = (uint16_t)l->value(l->arg);
	return op->result;
}

unsigned lift_constant(struct lift *l, uint64_t number)
{
	struct arch_op *op = l->op(l->arg, ARCH_OP_CONST);

	op->number = number;
	op->result = (uint16_t)l->value(l->arg);
	if (op->result <= LIFT_VALUES)
		l->constants[op->result] = (struct lift_constant){true, number};
	return op->result;
}

unsigned lift_op_number(struct lift *l, unsigned kind, unsigned a, uint64_t number)
{
	const struct arch_op pure = {.kind = (uint8_t)kind, .immediate = (int32_t)number};
	struct arch_op *op;
	uint64_t folded;

	if ((int64_t)number != (int32_t)number)
		return lift_op(l, kind, a, lift_constant(l, number));
	if (fold(l, &pure, a, 0, &folded))
		return lift_constant(l, folded);
	op = l->op(l->arg, kind);
	op->a = (uint16_t)a;
	op->immediate = (int32_t)number;
	op->result = (uint16_t)l->value(l->arg);
	return op->result;
}

unsigned lift_extend(struct lift *l, unsigned a, unsigned size, bool is_signed)
{
	const struct arch_op pure = {
		.kind = ARCH_OP_EXTEND, .size = (uint8_t)size, .is_signed = is_signed};
	struct arch_op *op;
	uint64_t number;

	if (size >= 8)
		return a;
	if (fold(l, &pure, a, 0, &number))
		return lift_constant(l, number);
	op = l->op(l->arg, ARCH_OP_EXTEND);
	op->a = (uint16_t)a;
	op->size = (uint8_t)size;
	op->is_signed = is_signed;
	op->result = (uint16_t)l->value(l->arg);
	return op->result;
}

unsigned lift_keep(struct lift *l, unsigned a)
{
	uint64_t number;

	return lift_is_constant(l, a, &number) ? a : lift_op(l, ARCH_OP_COPY, a, 0);
}

static void copy_value(struct lift *l, unsigned to, unsigned from)
{
	struct arch_op *op = l->op(l->arg, ARCH_OP_COPY);

	op->a = (uint16_t)from;
	op->result = (uint16_t)to;
}

uint64_t lift_most(unsigned size)
{
	return size >= 8 ? UINT64_MAX : (1ull << 8 * size) - 1;
}

static uint64_t add_up(uint64_t a, uint64_t b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

/* ------------------------------------------------------------------- words */

struct lift_place lift_register(struct lift *l, struct lift_state *s, unsigned n)
{
	return (struct lift_place){&s->registers[n], &l->registers[n]};
}

static unsigned value_of(struct lift *l, struct lift_place p)
{
	if (!*p.value)
		*p.value = (uint16_t)l->value(l->arg);
	return *p.value;
}

static uint8_t byte_mask(unsigned at, unsigned size)
{
	return (uint8_t)(((1u << size) - 1) << at);
}

static bool is_number(const struct lift_word *w)
{
	return w->kind == LIFT_NUMBER || w->kind == LIFT_VARIABLE;
}

bool lift_is_known(const struct lift_word *w)
{
	return w->known && w->bytes == ALL_BYTES;
}

unsigned lift_get(struct lift *l, struct lift_place p, unsigned at, unsigned size)
{
	const uint8_t wanted = byte_mask(at, size);

	if (p.word->kind == LIFT_STACK && p.word->bytes)
		lift_refuse(l, "it uses the address of its own frame as a number");
	else if ((p.word->bytes & wanted) != wanted || !is_number(p.word))
		lift_refuse(l, "it uses what was not set before, or an argument that is not given");
	else if (p.word->known)
		return lift_constant(l, p.word->number >> 8 * at);
	else if (at)
		return lift_op_number(l, ARCH_OP_SHR, *p.value, 8UL * at);
	else
		return *p.value;
	return 0;
}

void lift_set(struct lift *l, struct lift_place p, unsigned at, unsigned size, unsigned value,
	      uint64_t most)
{
	const uint8_t changed = byte_mask(at, size);
	const uint64_t bits = lift_most(size) << 8 * at;
	const bool merges = size < 8 && is_number(p.word) && (p.word->bytes & ~changed);
	/* What was set on some ways only stays on those, as it does in the register. */
	const bool keeps =
		size < 8 && is_number(p.word) && p.word->held && (p.word->touched & ~changed);
	const uint8_t lost = keeps ? p.word->lost : p.word->touched;
	uint64_t number = 0;
	const bool constant = lift_is_constant(l, value, &number);
	const bool known = constant && (!merges || p.word->known);
	unsigned kept;

	if (size == 8 && constant) {
		lift_set_number(l, p, number);
		return;
	}
	if (size < 8) {
		value = lift_extend(l, value, size, false);
		if (at)
			value = lift_op_number(l, ARCH_OP_SHL, value, 8UL * at);
	}
	if (keeps) {
		kept = lift_op_number(l, ARCH_OP_AND, *p.value, ~bits);
		value = lift_op(l, ARCH_OP_OR, kept, value);
	}
	copy_value(l, value_of(l, p), value);
	*p.word = (struct lift_word){
		.kind = LIFT_NUMBER,
		.bytes = (uint8_t)(merges ? p.word->bytes | changed : changed),
		.touched = (uint8_t)(p.word->touched | changed),
		.lost = (uint8_t)(lost & ~changed),
		.held = true,
		.known = known,
		.number = known ? (merges ? p.word->number & ~bits : 0) | (number << 8 * at & bits)
				: 0,
		.most = size == 8 ? most
			: keeps	  ? UINT64_MAX
				  : bits,
	};
}

void lift_set_number(struct lift *l, struct lift_place p, uint64_t number)
{
	copy_value(l, value_of(l, p), lift_constant(l, number));
	*p.word = (struct lift_word){.kind = LIFT_NUMBER,
				     .bytes = ALL_BYTES,
				     .touched = ALL_BYTES,
				     .held = true,
				     .known = true,
				     .number = number,
				     .most = number};
}

void lift_copy(struct lift *l, struct lift_place to, struct lift_place from)
{
	const bool copies = is_number(from.word) && from.word->held;
	const bool held = copies || to.word->held;

	if (copies)
		copy_value(l, value_of(l, to), *from.value);
	*to.word = *from.word;
	to.word->held = held;
	if (!copies)
		to.word->lost = to.word->touched;
}

void lift_lose(struct lift_place p)
{
	*p.word = (struct lift_word){
		.kind = LIFT_NUMBER, .touched = ALL_BYTES, .lost = ALL_BYTES, .held = p.word->held};
}

void lift_hold(struct lift *l, struct lift_place p)
{
	copy_value(l, value_of(l, p), lift_constant(l, 0));
	p.word->held = true;
}

/* The value, if there is one, is what it was. */
static void set_stack(struct lift_place p, uint64_t number)
{
	*p.word = (struct lift_word){.kind = LIFT_STACK,
				     .bytes = ALL_BYTES,
				     .touched = ALL_BYTES,
				     .lost = ALL_BYTES,
				     .held = p.word->held,
				     .number = number};
}

bool lift_move(struct lift *l, struct lift_place p, int64_t distance)
{
	if (p.word->bytes != ALL_BYTES ||
	    (p.word->kind != LIFT_STACK && p.word->kind != LIFT_VARIABLE))
		return false;
	if (p.word->kind == LIFT_VARIABLE)
		copy_value(l, *p.value,
			   lift_op_number(l, ARCH_OP_ADD, *p.value, (uint64_t)distance));
	p.word->number += (uint64_t)distance;
	return true;
}

bool lift_align(struct lift_place p, int64_t mask)
{
	enum { OFF = 8, ALIGNED = 16 };

	if (p.word->kind != LIFT_STACK || p.word->bytes != ALL_BYTES || mask < -ALIGNED ||
	    mask >= 0 || (mask & -mask) != -mask)
		return false;
	p.word->number = ((p.word->number + OFF) & (uint64_t)mask) - OFF;
	return true;
}

static void join_word(struct lift_word *w, const struct lift_word *other)
{
	bool same = w->kind == other->kind && w->which == other->which;

	w->touched |= other->touched;
	w->lost |= other->lost;
	w->held &= other->held;
	if (w->kind == LIFT_STACK || w->kind == LIFT_VARIABLE)
		same = same && w->number == other->number;
	if (!same && is_number(w) && is_number(other)) {
		w->kind = LIFT_NUMBER;
		w->which = 0;
		w->most = UINT64_MAX;
		w->known = false;
		w->number = 0;
	} else if (!same) {
		*w = (struct lift_word){.kind = LIFT_NUMBER,
					.touched = w->touched,
					.lost = w->lost,
					.held = w->held};
		return;
	}
	w->bytes &= other->bytes;
	if (w->known && (!other->known || w->number != other->number)) {
		w->known = false;
		w->number = 0;
	}
	if (other->most > w->most)
		w->most = other->most;
}

void arch_lift_join(struct lift_state *s, const struct lift_state *other)
{
	for (unsigned i = 0; i < ARCH_LIFT_REGISTERS; i++)
		join_word(&s->registers[i], &other->registers[i]);
	for (unsigned i = 0; i < ARCH_LIFT_WORDS; i++)
		join_word(&s->words[i], &other->words[i]);
	if (memcmp(&s->flags, &other->flags, sizeof(s->flags)) != 0)
		s->flags = (struct lift_flags){0};
}

void lift_begin(struct lift *l, struct lift_state *s, unsigned registers, unsigned stack)
{
	memset(s, 0, sizeof(*s));
	memset(l->registers, 0, sizeof(l->registers));
	memset(l->words, 0, sizeof(l->words));
	l->buffer = false;
	for (unsigned i = 0; i < registers; i++)
		s->registers[i] = (struct lift_word){
			.kind = LIFT_ENTRY, .bytes = ALL_BYTES, .which = (uint8_t)i};
	set_stack(lift_register(l, s, stack), 0);
}

void lift_pass(struct lift *l, struct lift_place p, const struct lift_argument *argument,
	       unsigned which)
{
	if (argument->known) {
		lift_set_number(l, p, argument->number);
		return;
	}
	if (argument->buffer) {
		l->buffer = true;
		set_stack(p, BUFFER_AT);
		return;
	}
	copy_value(l, value_of(l, p), argument->value);
	*p.word = (struct lift_word){.kind = LIFT_NUMBER,
				     .bytes = ALL_BYTES,
				     .touched = ALL_BYTES,
				     .held = true,
				     .most = UINT64_MAX};
	if (argument->variable) {
		p.word->kind = LIFT_VARIABLE;
		p.word->which = (uint8_t)which;
	}
}

/* ------------------------------------------------------------------ memory */

/* Adds register n, times 2^shift, to an address. */
static bool add_part(struct lift *l, struct lift_state *s, unsigned n, unsigned shift,
		     struct lift_where *out)
{
	const struct lift_place p = lift_register(l, s, n);
	unsigned value;

	if (lift_is_known(p.word)) {
		out->number += p.word->number << shift;
		return true;
	}
	value = lift_get(l, p, 0, 8);
	if (!value)
		return false;
	if (p.word->most << shift >> shift != p.word->most)
		out->span = UINT64_MAX;
	else
		out->span = add_up(out->span, p.word->most << shift);
	if (shift)
		value = lift_op_number(l, ARCH_OP_SHL, value, shift);
	out->value = out->value ? lift_op(l, ARCH_OP_ADD, out->value, value) : value;
	return true;
}

bool lift_where(struct lift *l, struct lift_state *s, const struct arch_memory *m,
		struct lift_where *out)
{
	const bool based = m->base != ARCH_NO_REGISTER, indexed = m->index != ARCH_NO_REGISTER;
	const struct lift_word *base = &s->registers[based ? m->base : 0];

	*out = (struct lift_where){.kind = WHERE_MEMORY, .number = (uint64_t)m->offset};
	if (m->thread_relative || !m->computable) {
		lift_refuse(l, m->thread_relative ? "it uses what belongs to its thread"
						  : "its address cannot be told");
		return false;
	}
	if (based && base->bytes == ALL_BYTES &&
	    (base->kind == LIFT_STACK || base->kind == LIFT_VARIABLE) &&
	    (!indexed || lift_is_known(&s->registers[m->index]))) {
		out->kind = base->kind == LIFT_STACK ? WHERE_FRAME : WHERE_VARIABLE;
		out->which = base->which;
		out->number += base->number;
		if (indexed)
			out->number += s->registers[m->index].number << m->shift;
		out->value = base->kind == LIFT_STACK ? 0 : l->registers[m->base];
		/* A variable's value has the distance so far in it. */
		out->span = base->number;
		return true;
	}
	return (!based || add_part(l, s, m->base, 0, out)) &&
	       (!indexed || add_part(l, s, m->index, m->shift, out));
}

void lift_address(struct lift *l, struct lift_place to, const struct lift_where *w)
{
	unsigned value;

	if (w->kind == WHERE_MEMORY && !w->value) {
		lift_set_number(l, to, w->number);
		return;
	}
	if (w->kind == WHERE_FRAME) {
		set_stack(to, w->number);
		return;
	}
	value = lift_op_number(l, ARCH_OP_ADD, w->value,
			       w->kind == WHERE_VARIABLE ? w->number - w->span : w->number);
	copy_value(l, value_of(l, to), value);
	*to.word = (struct lift_word){.kind = LIFT_NUMBER,
				      .bytes = ALL_BYTES,
				      .touched = ALL_BYTES,
				      .held = true,
				      .most = add_up(w->span, w->number)};
	if (w->kind == WHERE_VARIABLE) {
		to.word->kind = LIFT_VARIABLE;
		to.word->which = w->which;
		to.word->number = w->number;
		to.word->most = UINT64_MAX; /* it is an address, and may be any */
	}
}

static unsigned buffer_word(unsigned n)
{
	return ARCH_LIFT_WORDS - LIFT_BUFFER + n;
}

unsigned arch_lift_buffer(const struct lift *l, unsigned n)
{
	return l->words[buffer_word(n)];
}

bool lift_buffer_is_set(const struct lift *l, const struct lift_state *s)
{
	for (unsigned n = 0; l->buffer && n < LIFT_BUFFER; n++) {
		const struct lift_word *w = &s->words[buffer_word(n)];

		if (w->kind != LIFT_NUMBER || w->bytes != ALL_BYTES)
			return false;
	}
	return true;
}

/* The word of the frame that holds these bytes; *at is where they begin in it. */
static bool frame_place(struct lift *l, struct lift_state *s, const struct lift_where *w,
			unsigned size, struct lift_place *out, unsigned *at)
{
	const int64_t offset = (int64_t)w->number;
	const bool buffer = l->buffer && offset >= BUFFER_AT && offset < BUFFER_AT + BUFFER_BYTES;
	const int64_t index = buffer ? buffer_word((unsigned)(offset - BUFFER_AT) / 8)
				     : -((offset & ~INT64_C(7)) / 8) - 1;

	*at = (unsigned)(offset & 7);
	if (offset >= 0 && !buffer) {
		lift_refuse(l, "it uses its caller's frame");
		return false;
	}
	if (!buffer && index >= ARCH_LIFT_WORDS - (l->buffer ? LIFT_BUFFER : 0)) {
		lift_refuse(l, "its frame is too large");
		return false;
	}
	if (*at + size > 8) {
		lift_refuse(l, "it uses parts of two words of its frame");
		return false;
	}
	*out = (struct lift_place){&s->words[index], &l->words[index]};
	return true;
}

bool lift_frame_word(struct lift *l, struct lift_state *s, const struct lift_where *w,
		     struct lift_place *out)
{
	unsigned at;

	return w->kind == WHERE_FRAME && !(w->number & 7) && frame_place(l, s, w, 8, out, &at);
}

/*
 * Bytes of a variable, which is ours, where their size wants them: the program may have the
 * processor check that (EFLAGS.AC).
 */
static bool is_in_variable(const struct lift_where *w, unsigned size)
{
	return w->kind == WHERE_VARIABLE && w->number <= 8 - size && w->number % size == 0;
}

static bool is_of_clock(const struct lift *l, const struct lift_where *w, unsigned size)
{
	return w->kind == WHERE_MEMORY && w->span < UINT64_MAX - size && l->is_mapped &&
	       l->is_mapped(l->arg, w->number, w->span + size);
}

unsigned lift_load(struct lift *l, struct lift_state *s, const struct lift_where *w, unsigned size)
{
	const uint64_t distance = w->kind == WHERE_VARIABLE ? w->number - w->span : w->number;
	struct lift_place p;
	struct arch_op *op;
	unsigned at;

	if (w->kind == WHERE_FRAME)
		return frame_place(l, s, w, size, &p, &at) ? lift_get(l, p, at, size) : 0;
	if (l->clock && !is_of_clock(l, w, size)) {
		lift_refuse(l, "it reads what may not be there");
		return 0;
	}
	op = l->op(l->arg, l->clock || is_in_variable(w, size) ? ARCH_OP_LOAD : ARCH_OP_READ);
	op->fresh = l->clock;
	op->a = (uint16_t)w->value;
	op->number = distance;
	op->size = (uint8_t)size;
	op->result = (uint16_t)l->value(l->arg);
	return op->result;
}

bool lift_store(struct lift *l, struct lift_state *s, const struct lift_where *w, unsigned size,
		unsigned value)
{
	struct lift_place p;
	struct arch_op *op;
	unsigned at;

	if (w->kind == WHERE_FRAME) {
		if (frame_place(l, s, w, size, &p, &at))
			lift_set(l, p, at, size, value, UINT64_MAX);
		return !*l->why;
	}
	if (w->kind != WHERE_VARIABLE || w->number > 8 - size) {
		lift_refuse(l, "it writes memory that is not its own");
		return false;
	}
	if (!is_in_variable(w, size)) {
		lift_refuse(l, "it writes into a variable, but not at a multiple of the size");
		return false;
	}
	op = l->op(l->arg, ARCH_OP_STORE);
	op->a = (uint16_t)w->value;
	op->b = (uint16_t)value;
	op->number = w->number - w->span;
	op->size = (uint8_t)size;
	return true;
}
