/* SPDX-License-Identifier: MIT */
/*
 * compile_private.h - for the files that make programs of code trees:
 *
 *   compile.c            a request: what stands around the code; forms of variables
 *   compile_scan.c       what code does, found by looking at it
 *   compile_build.c      operations, one by one
 *   compile_code.c       statements, conditions
 *   compile_expr.c       expressions
 *   compile_arithmetic.c operators; divisions by constants
 *   compile_variable.c   variables: assignments, timers, distributions
 *   compile_event.c      events of streams
 *   compile_operand.c    typed operands: fields, pointers, bits, floating point
 *   compile_arguments.c  what the target's thread has at the point: $arg, $return
 *   compile_call.c       functions of the target that code may call
 *
 * A failure is sticky (compiler.failed): what is emitted afterwards goes nowhere.
 */
#ifndef DINST_MUTATOR_COMPILE_PRIVATE_H
#define DINST_MUTATOR_COMPILE_PRIVATE_H

#include "mutator/compile.h"
#include "mutator/types.h"

/* What code uses and does, itself and in its parts. */
struct compile_uses {
	bool thread_effects; /* changes flags, temporaries, timers */
	bool thread_reads;   /* looks at them */
	bool moment;	     /* reads what only the moment has: $arg, $return, $caller */
	bool functions;	     /* depends on the function: types of arguments and results */
};

struct compiler {
	const struct compile_request *q;
	struct dinst_error *e;
	int failed;		    /* enum dinst_code */
	const struct mdl_place *at; /* what is being compiled, for messages */
	struct arch_op *ops;	    /* ARCH_PROGRAM_OPS */
	struct arch_op nowhere;	    /* takes what comes after a failure */
	unsigned count, values, labels;
	unsigned record;	  /* value: the thread's record, not 0; 0: not asked for */
	unsigned place;		  /* value: place in the request's vector, from 1 on */
	bool place_known;	  /* it has been found out here */
	bool place_there;	  /* the same where the last branch leads to, if it is taken */
	unsigned places;	  /* of the vector, and one for those without a place */
	unsigned cpus, cpu_shift; /* blocks of counters, log2 of their bytes; 0: unknown */
	const struct mdl_binding *bindings; /* that are in scope */
	size_t binding_count;
	const char *local_name; /* flag of a guard that is evaluated here */
	unsigned local;		/* its value */
	bool depends, activation, start, system_calls;
	bool types_asked;
	struct type_function types; /* of the function whose arguments there are */
};

/* Something that an expression stands for, before it is made a number. */
enum operand_kind { OPERAND_CONSTANT, OPERAND_VALUE, OPERAND_MEMORY, OPERAND_WORDS };

struct operand {
	enum operand_kind kind;
	int64_t constant;
	unsigned value;	   /* VALUE; MEMORY: the base, 0: absolute */
	uint64_t offset;   /* MEMORY: to be added; WORDS: into the words */
	bool on_stack;	   /* MEMORY: offset is relative to the stack pointer at the point */
	unsigned words[2]; /* WORDS: a small struct that is in registers */
	struct type type;
	uint8_t bit_offset, bit_size; /* a bit field */
};

/* ------------------------------------------------------ compile_scan.c */

void uses_of_expr(const struct compiler *c, const struct mdl_expr *x, struct compile_uses *uses);
void uses_of_code(const struct compiler *c, const struct mdl_code *code, struct compile_uses *uses);
struct variable *compile_find_variable(const struct compiler *c, const char *name);
/* True for v++ and v-- of a metric that counts what is there now: see compile_request.sampled. */
bool compile_is_level_step(const struct compiler *c, const struct mdl_expr *x,
			   const struct variable *v);

/* ----------------------------------------------------- compile_build.c */

/* A message about what is being compiled; the first one stays. Returns 0, no value. */
unsigned compile_fail(struct compiler *c, const struct mdl_place *at, int code, const char *format,
		      ...) __attribute__((format(printf, 4, 5)));
struct arch_op *compile_op(struct compiler *c, unsigned kind);
unsigned compile_new_value(struct compiler *c);
unsigned compile_constant(struct compiler *c, int64_t number);
/* Sets a value that may have been set before. */
void compile_set(struct compiler *c, unsigned value, int64_t number);
void compile_copy(struct compiler *c, unsigned value, unsigned from);
unsigned compile_unary(struct compiler *c, unsigned kind, unsigned a);
unsigned compile_binary(struct compiler *c, unsigned kind, unsigned a, unsigned b);
unsigned compile_with(struct compiler *c, unsigned kind, unsigned a, int64_t constant);
unsigned compile_extend(struct compiler *c, unsigned a, unsigned size, bool is_signed);
unsigned compile_load(struct compiler *c, unsigned base, uint64_t number, unsigned size,
		      bool is_signed);
void compile_store(struct compiler *c, unsigned base, uint64_t number, unsigned value);
unsigned compile_get(struct compiler *c, unsigned kind, uint64_t number);
unsigned compile_clock(struct compiler *c, enum arch_clock clock);
unsigned compile_label(struct compiler *c);
void compile_put_label(struct compiler *c, unsigned label);
void compile_jump(struct compiler *c, unsigned label);
void compile_if(struct compiler *c, unsigned condition, unsigned a, unsigned b, unsigned label);
void compile_if_constant(struct compiler *c, unsigned condition, unsigned a, int64_t constant,
			 unsigned label);

/* ------------------------------------------------------ compile_code.c */

void compile_code(struct compiler *c, const struct mdl_code *code);
/* Goes to the label if the truth of x is `when`. */
void compile_branch(struct compiler *c, const struct mdl_expr *x, bool when, unsigned label);

/* ------------------------------------------------------ compile_expr.c */

void compile_operand(struct compiler *c, const struct mdl_expr *x, struct operand *out);
unsigned compile_number(struct compiler *c, const struct mdl_expr *x);
/* True if x is a comparison with all of a hierarchy's objects; *other is compared with them. */
bool compile_is_any(const struct compiler *c, const struct mdl_expr *x,
		    const struct mdl_expr **other);
/* The place of what is compared, which becomes the compiler's: 0 for none. */
unsigned compile_find_place(struct compiler *c, const struct mdl_expr *key);
/* As compile_number(), but a comparison with all objects gives the place: what a flag holds. */
unsigned compile_place(struct compiler *c, const struct mdl_expr *x);

/* What is known of the place in front of something that may find out another one. */
struct place_known {
	unsigned place;
	bool known;
};

/* What is found out from here on is forgotten at compile_leave_place(). */
struct place_known compile_enter_place(struct compiler *c);
void compile_leave_place(struct compiler *c, const struct place_known *before);

/* ------------------------------------------------ compile_arithmetic.c */

void compile_operator(struct compiler *c, const struct mdl_expr *x, struct operand *out);
/* enum arch_test of a comparison; false if the operator is none. */
bool compile_condition_of(int operator, unsigned * condition);
/* ns of a number of ticks */
unsigned compile_ticks_to_ns(struct compiler *c, unsigned ticks);

/* -------------------------------------------------- compile_variable.c */

void compile_assign(struct compiler *c, const struct mdl_expr *x, struct operand *out);
/* The flag of the guard that is evaluated here, as it is now: what follows may change it. */
unsigned compile_local(struct compiler *c);
void compile_variable_read(struct compiler *c, const struct mdl_expr *x, struct variable *v,
			   struct operand *out);
/* Address of the word of a variable: for functions that store into it. */
void compile_address(struct compiler *c, const struct mdl_expr *x, struct operand *out);
void compile_timer(struct compiler *c, const struct mdl_expr *x, struct operand *out);
void compile_record(struct compiler *c, const struct mdl_expr *x, struct operand *out);

/* Adds to the variable's element that is known here; nothing where it is not the point. */
void compile_count(struct compiler *c, const struct mdl_expr *x, const struct variable *v);
/* Adds to a counter beside which the clock of threads is read; nothing else may add to it in another way. */
void compile_add_to_cpu(struct compiler *c, unsigned element, uint64_t number, unsigned value);

/* ----------------------------------------------------- compile_event.c */

/* record(STREAM, ...) */
void compile_event(struct compiler *c, const struct mdl_expr *x, struct variable *v,
		   struct operand *out);

/* --------------------------------------------------- compile_operand.c */

struct operand operand_constant(int64_t number);
struct operand operand_value(unsigned value);
/* A number of it: what is loaded, widened by its type. */
unsigned compile_load_operand(struct compiler *c, const struct operand *o,
			      const struct mdl_expr *x);
/* The same, but of a float or double its bits: *size is how many bytes those are, else 0. */
unsigned compile_load_bits(struct compiler *c, const struct operand *o, const struct mdl_expr *x,
			   unsigned *size);
void compile_field(struct compiler *c, const struct mdl_expr *x, const char *name,
		   struct operand *o);
void compile_index(struct compiler *c, const struct mdl_expr *x, struct operand *o);
/* o[index] */
/* Of something on the stack that may be behind its end, or below it: it is read as memory that may not be there. */
void compile_read_with_care(struct compiler *c, struct operand *o);
void compile_element(struct compiler *c, const struct mdl_expr *x, int64_t index,
		     struct operand *o);
/* The integer in front of the point of a float (4 bytes) or double (8); beyond 64 bits the
 * largest there is, NaN included. */
unsigned compile_truncate(struct compiler *c, unsigned bits, unsigned size);

/* ------------------------------------------------- compile_arguments.c */

void compile_argument(struct compiler *c, const struct mdl_expr *x, struct operand *out);
void compile_return(struct compiler *c, const struct mdl_expr *x, struct operand *out);
/* Compilers that change how a function is called say so in its name. */
bool compile_is_changed(const struct function_ref *f);
/* Whether compile_argument() and compile_return() can tell where that is, for a function whose types are known. */
bool compile_knows_argument(const struct type_function *types, size_t n);
bool compile_knows_result(const struct type_function *types);

/* ------------------------------------------------------ compile_call.c */

void compile_call(struct compiler *c, const struct mdl_expr *x, struct operand *out);

#endif
