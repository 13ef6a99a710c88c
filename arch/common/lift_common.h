/* SPDX-License-Identifier: MIT */
/*
 * lift_common.h - what the architectures' lifters share: words of registers and
 * of the frame, and memory. Must never know an instruction.
 *
 * All of these may fail: then 0 or false, and lift.why says what is wrong.
 */
#ifndef DINST_ARCH_COMMON_LIFT_COMMON_H
#define DINST_ARCH_COMMON_LIFT_COMMON_H

#include "arch/lift.h"

/* Returns ARCH_REFUSED. The first reason of an instruction stays. */
int lift_refuse(struct lift *l, const char *why);

/* Operations with a new value as their result. */
unsigned lift_op(struct lift *l, unsigned kind, unsigned a, unsigned b);
/* The second operand is a number. */
unsigned lift_op_number(struct lift *l, unsigned kind, unsigned a, uint64_t number);
unsigned lift_constant(struct lift *l, uint64_t number);
/* The low `size` bytes; the value itself where that is all of it. */
unsigned lift_extend(struct lift *l, unsigned a, unsigned size, bool is_signed);
/* A value of its own that stays what `a` is now. */
unsigned lift_keep(struct lift *l, unsigned a);
/* True if the value is a number that is known and stays. */
bool lift_is_constant(const struct lift *l, unsigned value, uint64_t *number);
/* The greatest number of `size` bytes. */
uint64_t lift_most(unsigned size);

/* A register, or a word of the frame: where what is known of it stands, and its value. */
struct lift_place {
	struct lift_word *word;
	uint16_t *value;
};

/* True if all of it is a number that is known. */
bool lift_is_known(const struct lift_word *w);
struct lift_place lift_register(struct lift *l, struct lift_state *s, unsigned n);
/* `size` bytes from byte `at` of it; what is above them in the result means nothing. */
unsigned lift_get(struct lift *l, struct lift_place p, unsigned at, unsigned size);
/* Changes these bytes; `most` where all eight are. */
void lift_set(struct lift *l, struct lift_place p, unsigned at, unsigned size, unsigned value,
	      uint64_t most);
void lift_set_number(struct lift *l, struct lift_place p, uint64_t number);
void lift_copy(struct lift *l, struct lift_place to, struct lift_place from);
/* It has been set to something that is not known. */
void lift_lose(struct lift_place p);
/*
 * At the beginning: gives it a value, 0, that stands for what it held. So bytes that are set on
 * some ways only are exact on those, and 0 elsewhere: for where results are returned.
 */
void lift_hold(struct lift *l, struct lift_place p);
/* Adds to a place that is not a mere number; false if it is one, or the register's at entry. */
bool lift_move(struct lift *l, struct lift_place p, int64_t distance);

/* As `and` does it: of the stack pointer, which is 8 above a multiple of 16 where it is passed on. */
bool lift_align(struct lift_place p, int64_t mask);

enum lift_where_kind { WHERE_FRAME, WHERE_VARIABLE, WHERE_MEMORY };

/* An address that has been looked at. */
struct lift_where {
	uint8_t kind;
	uint8_t which;	 /* VARIABLE */
	unsigned value;	 /* MEMORY, VARIABLE: to be added; 0: none */
	uint64_t number; /* FRAME, VARIABLE: from where those begin */
	uint64_t span;	 /* MEMORY: the value is not greater */
};

bool lift_where(struct lift *l, struct lift_state *s, const struct arch_memory *m,
		struct lift_where *out);
/* The address itself goes to a register. */
void lift_address(struct lift *l, struct lift_place to, const struct lift_where *w);
/* The word of the frame that these eight bytes are. */
bool lift_frame_word(struct lift *l, struct lift_state *s, const struct lift_where *w,
		     struct lift_place *out);
/* Widened without sign, but for what comes from the frame: as lift_get(). */
unsigned lift_load(struct lift *l, struct lift_state *s, const struct lift_where *w, unsigned size);
bool lift_store(struct lift *l, struct lift_state *s, const struct lift_where *w, unsigned size,
		unsigned value);

/* True if the buffer is filled, or there is none. */
bool lift_buffer_is_set(const struct lift *l, const struct lift_state *s);

/* Everything unknown but the arguments; `stack` is the stack pointer's register. */
void lift_begin(struct lift *l, struct lift_state *s, unsigned registers, unsigned stack);
void lift_pass(struct lift *l, struct lift_place p, const struct lift_argument *argument,
	       unsigned which);

#endif
