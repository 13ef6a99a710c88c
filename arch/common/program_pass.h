/* SPDX-License-Identifier: MIT */
/*
 * program_pass.h - what is known on the way through a program while it is
 * optimised. For arch/common/program_*.c only; must never allocate.
 *
 * Every distinct thing that can be computed has a number (value numbering): two
 * values with one number are equal. What depends on the place, which value
 * holds which number, which words of memory are known and which comparisons have
 * been made, is a `way`. At a label ways meet, and what stays known is
 * what is known on all of them.
 */
#ifndef DINST_ARCH_COMMON_PROGRAM_PASS_H
#define DINST_ARCH_COMMON_PROGRAM_PASS_H

#include "arch/common/program_common.h"

enum { PASS_NUMBERS = 1024, PASS_BUCKETS = 256, PASS_FACTS = 16, PASS_KNOWN = 8 };

/* One operation takes at most so many numbers: it is not begun with fewer left. */
enum { PASS_STEP = 16 };

/* What makes a thing: operands are numbers, b 0 where the constant stands for it. */
struct pass_key {
	uint8_t kind, size, condition;
	bool is_signed;
	uint16_t a, b;
	int32_t immediate;
	uint64_t number;
};

struct pass_number {
	struct pass_key key; /* ARCH_OP_CONST: a constant; ARCH_OP_NONE: nothing is known */
	uint16_t holder;     /* the value that was last seen to hold it */
	uint16_t next;	     /* with the same hash */
};

/* What a word of memory, a clock or a search gave. */
struct pass_fact {
	struct pass_key key; /* a: of the base, 0: absolute */
	uint16_t number;
};

/* Of two numbers (the second may be a constant) only these outcomes are possible. */
struct pass_known {
	uint16_t a, b;
	int32_t immediate;
	uint8_t outcomes;
};

struct pass_way {
	bool open; /* control comes here */
	uint8_t fact_count, known_count;
	uint16_t holds[ARCH_PROGRAM_VALUES + 1]; /* number of each value, 0: a thing of its own */
	struct pass_fact facts[PASS_FACTS];
	struct pass_known known[PASS_KNOWN];
};

struct pass {
	struct arch_program *p;
	uint16_t count; /* of numbers, from 1 on */
	struct pass_way now;
	struct pass_number numbers[PASS_NUMBERS];
	uint16_t buckets[PASS_BUCKETS];
	struct pass_way
		at[ARCH_PROGRAM_LABELS + 1]; /* by label, `open` once something leads there */
	bool passed[ARCH_PROGRAM_LABELS + 1];
};

/* ---------------------------------------------------- numbers (program_pass.c) */

void pass_begin(struct pass *s, struct arch_program *p);
/* Number of what a value holds now, given one if it has none. */
uint16_t pass_number_of(struct pass *s, unsigned value);
/* The number of a key; there is always one: see PASS_STEP. */
uint16_t pass_number(struct pass *s, const struct pass_key *key);
/* A number that equals nothing else; `key` says how it came to be. */
uint16_t pass_fresh(struct pass *s, const struct pass_key *key);
uint16_t pass_constant(struct pass *s, uint64_t constant);
/* The value that holds the number here and now, 0 if none does. */
unsigned pass_holder(const struct pass *s, uint16_t number);
void pass_set(struct pass *s, unsigned value, uint16_t number);
bool pass_is_constant(const struct pass *s, uint16_t number, uint64_t *constant);
/* True if its highest bit is clear for certain. */
bool pass_is_small(const struct pass *s, uint16_t number);

/* Ways meet: `to` keeps what `from` knows, too. */
void pass_meet(struct pass_way *to, const struct pass_way *from, unsigned values);

/* ------------------------------------------------------ memory (program_facts.c) */

uint16_t pass_find_fact(const struct pass *s, const struct pass_key *key);
void pass_add_fact(struct pass *s, const struct pass_key *key, uint16_t number);
/* The operation may change what is known: forget it. */
void pass_forget(struct pass *s, const struct pass_key *key);

/* -------------------------------------------------- conditions (program_facts.c) */

/* 1 or 0 if it is known whether the condition holds of these operands, else -1. */
int pass_decide(const struct pass *s, unsigned condition, uint16_t a, uint16_t b,
		int32_t immediate);
/* From here on the condition holds. */
void pass_learn(struct pass *s, unsigned condition, uint16_t a, uint16_t b, int32_t immediate);
/* Outcomes of a comparison with which a condition holds. */
unsigned pass_outcomes(unsigned condition);
unsigned pass_inverse(unsigned condition);  /* holds where the condition does not */
unsigned pass_mirrored(unsigned condition); /* the same with operands exchanged */

/* ------------------------------------------------------ algebra (program_fold.c) */

/* Makes an operation without effects simpler; its operands have their holders already. */
void pass_fold(struct pass *s, struct arch_op *op);
/* The same for a branch or a test: its condition and operands. */
void pass_fold_condition(struct pass *s, struct arch_op *op);
/* Operand b becomes the constant where it is one that fits. */
void pass_fold_second(struct pass *s, struct arch_op *op);
/* Constants move from the base of an address into its distance. */
void pass_fold_address(struct pass *s, struct arch_op *op);

/* ----------------------------------------------------- control (program_jumps.c) */

/* Jumps that lead to a jump, or to a branch whose outcome they decide. True if any changed. */
bool program_thread_jumps(struct arch_program *p);
/* What has no effect and whose result nobody uses is gone; so are the gaps. */
void program_drop_dead(struct arch_program *p);

#endif
