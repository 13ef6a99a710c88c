/* SPDX-License-Identifier: MIT */
/*
 * compile_world.h - for tests of compiled code: a thread with its record,
 * registers and memory in which the interpreter runs it, and a way from text to
 * programs.
 */
#ifndef DINST_TESTS_UNIT_COMPILE_WORLD_H
#define DINST_TESTS_UNIT_COMPILE_WORLD_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "mutator/compile.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

enum {
	RECORD = 0x700000, /* the thread's record */
	RECORD_SIZE = 0x400,
	ARENA = 0x100000, /* counters, words */
	ARENA_SIZE = 0x20000,
	PLAIN = 0x900000, /* the target's own memory */
	PLAIN_SIZE = 0x100,
	STACK = 0xa00000, /* where the stack pointer is */
	FLAG_AT = 0x80,	  /* in the record */
	TEMPORARY_AT = 0x88,
	TIMER_AT = 0x90,
	TOTAL_AT = ARENA,
	OTHER_AT = ARENA + 0x8000,
	LEVEL_AT = ARENA + 0x10000,
	TABLE_AT = ARENA + 0x18000,
};

/* ---------------------------------------------------------------- a world */

struct world {
	uint8_t record[RECORD_SIZE], arena[ARENA_SIZE], plain[PLAIN_SIZE];
	bool no_record;
	uint64_t arguments[6], floats[8], results[2], stack[16];
	uint64_t clock, step; /* each look at the clock moves it */
	uint64_t keys[4];     /* of the table */
	unsigned key_count, asked_clock;
};

static inline uint8_t *at(struct world *w, taddr_t address, size_t size)
{
	if (address >= RECORD && address + size <= RECORD + RECORD_SIZE)
		return w->record + (address - RECORD);
	if (address >= ARENA && address + size <= ARENA + ARENA_SIZE)
		return w->arena + (address - ARENA);
	if (address >= PLAIN && address + size <= PLAIN + PLAIN_SIZE)
		return w->plain + (address - PLAIN);
	if (address >= STACK && address + size <= STACK + sizeof(w->stack))
		return (uint8_t *)w->stack + (address - STACK);
	return NULL;
}

static inline bool load(void *arg, taddr_t address, uint64_t *word, size_t size)
{
	const uint8_t *from = at(arg, address, size);

	if (from)
		memcpy(word, from, size);
	return from != NULL;
}

static inline bool store(void *arg, taddr_t address, uint64_t word, size_t size)
{
	uint8_t *to = at(arg, address, size);

	if (to)
		memcpy(to, &word, size);
	return to != NULL;
}

static inline uint64_t find(struct world *w, uint64_t key)
{
	for (unsigned i = 0; i < w->key_count; i++)
		if (w->keys[i] == key)
			return i + 1;
	if (w->key_count == COUNT(w->keys))
		return 0;
	w->keys[w->key_count++] = key;
	return w->key_count;
}

static inline bool other(void *arg, const struct arch_op *op, uint64_t a, uint64_t b,
			 uint64_t *result, uint64_t *second)
{
	struct world *w = arg;
	uint64_t word = 0;

	*second = 0;
	switch (op->kind) {
	case ARCH_OP_COUNT:
		return load(w, a + op->number, &word, 8) && store(w, a + op->number, word + b, 8);
	case ARCH_OP_RECORD:
		*result = w->no_record ? 0 : RECORD;
		return true;
	case ARCH_OP_ARGUMENT:
		*result = w->arguments[op->number];
		return true;
	case ARCH_OP_FLOAT_ARGUMENT:
		*result = w->floats[op->number];
		return true;
	case ARCH_OP_RESULT:
		*result = w->results[op->number];
		return true;
	case ARCH_OP_FLOAT_RESULT:
		*result = w->floats[op->number];
		return true;
	case ARCH_OP_STACK:
		*result = w->stack[op->number / 8];
		return op->number % 8 == 0;
	case ARCH_OP_STACK_POINTER:
		*result = STACK;
		return true;
	case ARCH_OP_CALLER:
		*result = 0x4242;
		return true;
	case ARCH_OP_CLOCK:
		*result = w->clock;
		w->clock += w->step;
		w->asked_clock++;
		return true;
	case ARCH_OP_CPU:
		*result = 3;
		return true;
	case ARCH_OP_THREAD:
		*result = 1234;
		return true;
	case ARCH_OP_PROCESS:
		*result = 1200;
		return true;
	case ARCH_OP_FIND:
		*result = find(w, a);
		return true;
	default:
		return false;
	}
}

static inline uint64_t word_at(struct world *w, taddr_t address)
{
	uint64_t word = 0;

	assert_true(load(w, address, &word, 8));
	return word;
}

/* -------------------------------------------------------------- compiling */

static struct mdl_library *library;
static struct place place;
static __attribute__((unused)) struct variable
	total = {.name = "m"},
	other_total = {.name = "other"},
	temporary = {.name = "t", .form = VARIABLE_FLAG, .record_offset = TEMPORARY_AT},
	timer = {.name = "w",
		 .type = MDL_WALL_TIMER,
		 .form = VARIABLE_TIMER,
		 .elements = 1,
		 .record_offset = TIMER_AT},
	distribution = {.name = "d",
			.type = MDL_DISTRIBUTION,
			.form = VARIABLE_DISTRIBUTION,
			.elements = 1,
			.word = LEVEL_AT + 0x100},
	flag = {.name = "f", .form = VARIABLE_FLAG, .record_offset = FLAG_AT},
	table = {.name = "table", .form = VARIABLE_TABLE, .elements = 4, .word = TABLE_AT};

static inline void counter_of(struct variable *v, taddr_t counter)
{
	v->in[0].place = &place;
	v->in[0].counter = counter;
	v->place_count = 1;
}

static inline int set_up(void **state)
{
	struct dinst_error e = {0};

	(void)state;
	assert_int_equal(mdl_library_create(&library, &e), 0);
	total.elements = other_total.elements = temporary.elements = flag.elements = 1;
	counter_of(&total, TOTAL_AT);
	counter_of(&other_total, TOTAL_AT + 0x1000);
	counter_of(&timer, TOTAL_AT + 0x2000);
	counter_of(&distribution, OTHER_AT);
	total.word = LEVEL_AT;
	timer.clock = ARCH_CLOCK_MONOTONIC;
	return 0;
}

static inline int tear_down(void **state)
{
	(void)state;
	mdl_library_free(library);
	return 0;
}

/* The code between (* and *) of the only insert of a metric. */
static inline const struct mdl_code *parse(const char *code)
{
	const struct mdl_metric *m;
	struct dinst_error e = {0};
	char text[2048];
	int size;

	/* Only a constraint knows $constraint: then it is one of the metric's own. */
	size = snprintf(
		text, sizeof(text),
		"metric m { name \"m\"; counter t; wallTimer w; distribution d; counter other; "
		"%s { foreach p in $procedures append preInsn p.return (* %s *) } %s }",
		strstr(code, "$constraint") ? "constraint c /SyncObject/Mutex/* is replace counter"
					    : "base is counter",
		code, strstr(code, "$constraint") ? "base is counter { }" : "");
	if (mdl_load_text(library, "test.mdl", text, (size_t)size, &e))
		fail_msg("%s", e.text);
	m = mdl_find_metric(library, "m");
	return (m->uses ? m->uses->constraint->body : m->base)->first->then->code;
}

struct job {
	const char *code;
	enum point_kind kind;
	enum mdl_role role;
	enum compile_mode mode;
	bool tail, sampled;
	const struct compile_guard *guards;
	size_t guard_count;
	const struct mdl_binding *bindings;
	size_t binding_count;
	const struct variable *vector, *hits;
};

static inline int build(const struct job *job, struct compiled *out, struct dinst_error *e)
{
	struct variable *const variables[] = {&total, &other_total, &temporary, &timer,
					      &distribution};
	const struct mdl_placement placement = {.kind = job->kind,
						.rank.role = job->role,
						.code = parse(job->code),
						.bindings = job->bindings,
						.binding_count = job->binding_count};
	const struct compile_request request = {.texts = library,
						.place = &place,
						.placement = &placement,
						.guards = job->guards,
						.guard_count = job->guard_count,
						.variables = variables,
						.variable_count = COUNT(variables),
						.vector = job->vector,
						.hits = job->hits,
						.tail_exit = job->tail,
						.sampled = job->sampled,
						.mode = job->mode};

	return compile(&request, out, e);
}

/* Compiles and runs; `values` 1 and 2 are given. */
static inline void run_as(const struct job *job, struct world *w, uint64_t activation,
			  uint64_t start)
{
	const struct arch_machine machine = {w, load, store, other};
	uint64_t values[ARCH_PROGRAM_VALUES + 1] = {0};
	struct dinst_error e = {0};
	struct compiled c;

	if (build(job, &c, &e))
		fail_msg("%s: %s", job->code, e.text);
	values[ARCH_VALUE_ACTIVATION] = activation;
	values[ARCH_VALUE_START] = start;
	assert_true(c.program.count == 0 || arch_program_run(&c.program, &machine, values));
	free(c.program.ops);
}

static inline void run(const char *code, struct world *w)
{
	run_as(&(struct job){.code = code, .kind = POINT_EXIT, .role = MDL_MEASURES}, w, 1, 0);
}

/* What an expression gives, by way of the total. */
static inline int64_t evaluate(const char *expression, struct world *w)
{
	char code[512];

	memset(w->arena, 0, sizeof(w->arena));
	snprintf(code, sizeof(code), "m += %s;", expression);
	run(code, w);
	return (int64_t)word_at(w, TOTAL_AT);
}

#endif
