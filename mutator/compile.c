/* SPDX-License-Identifier: MIT */
/*
 * compile.c - a request to compile one piece of code: what stands in front of
 * it, and what is told about the program that it became.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/compile_private.h"

static bool is_at_activation(const struct compiler *c)
{
	return c->q->placement->kind == POINT_ENTRY || c->q->placement->kind == POINT_EXIT;
}

static bool times_threads(const struct compile_request *q)
{
	for (size_t i = 0; i < q->variable_count; i++)
		if (q->variables[i] && q->variables[i]->form == VARIABLE_TIMER &&
		    q->variables[i]->clock == ARCH_CLOCK_THREAD)
			return true;
	return false;
}

/* In the same way in all pieces of an instance, whichever of them reads the clock: see compile_add_to_cpu(). */
static void count_hits(struct compiler *c)
{
	struct arch_op *op;
	uint64_t number;

	if (!c->q->hits || c->q->mode != COMPILE_POINT)
		return;
	number = variable_counter(c->q->hits, c->q->place);
	if (times_threads(c->q)) {
		compile_add_to_cpu(c, 0, number, compile_constant(c, 1));
		return;
	}
	op = compile_op(c, ARCH_OP_COUNT);
	op->number = number;
	op->immediate = 1;
}

/* A guard whose flag is in the thread's record. */
static void test_flag(struct compiler *c, const struct compile_guard *g, unsigned end)
{
	const unsigned word = compile_load(c, c->record, g->flag->record_offset, 8, false);

	compile_if_constant(c, ARCH_TEST_EQ, word, 0, end);
	if (g->many) {
		/* Of its upper half constraints may make a count. */
		compile_copy(c, c->place, compile_with(c, ARCH_OP_AND, word, INT32_MAX));
		c->place_known = true;
	}
}

/* A guard that is evaluated here and now. */
static void test_code(struct compiler *c, const struct compile_guard *g, unsigned end)
{
	c->bindings = g->bindings;
	c->binding_count = g->binding_count;
	c->local_name = g->name;
	c->local = compile_constant(c, 0);
	compile_code(c, g->code);
	compile_if_constant(c, ARCH_TEST_EQ, c->local, 0, end);
	c->local_name = NULL;
	c->bindings = c->q->placement->bindings;
	c->binding_count = c->q->placement->binding_count;
	if (g->many)
		c->place_known = true;
}

static void take_record(struct compiler *c, bool gated, unsigned end)
{
	c->record = compile_get(c, ARCH_OP_RECORD, 0);
	/* A thread whose entry is kept has a record. */
	if (!gated)
		compile_if_constant(c, ARCH_TEST_EQ, c->record, 0, end);
}

/*
 * Before a call and behind it nobody knows whether the entry of the function that
 * calls was kept. It may not have been where there is no room for more; then what
 * is undone before the call would come back behind it, once too often.
 */
static void test_room(struct compiler *c, unsigned end)
{
	const unsigned depth = compile_load(c, c->record, offsetof(struct pair_record, depth),
					    sizeof(((struct pair_record *)0)->depth), false);

	compile_if_constant(c, ARCH_TEST_GE, depth, PAIR_HOME * sizeof(struct pair_entry), end);
}

static bool uses_timers(const struct compile_request *q)
{
	for (size_t i = 0; i < q->variable_count; i++)
		if (q->variables[i] && q->variables[i]->form == VARIABLE_TIMER)
			return true;
	return false;
}

static void compile_all(struct compiler *c, const struct compile_uses *uses)
{
	const unsigned end = compile_label(c);
	const bool gated = uses->thread_effects && is_at_activation(c);
	bool record = uses->thread_effects || uses->thread_reads;

	for (size_t i = 0; i < c->q->guard_count; i++)
		record |= c->q->guards[i].flag != NULL;
	if (c->q->vector) {
		c->place = compile_constant(c, 0);
		c->places = c->q->vector->elements;
	}
	count_hits(c);
	if (gated) {
		c->activation = true;
		compile_if_constant(c, ARCH_TEST_EQ, ARCH_VALUE_ACTIVATION, 0, end);
		/* A level counts what a forked child has inherited in its parent, once. What just enters is none. */
		if (c->q->sampled &&
		    (c->q->placement->kind == POINT_EXIT || c->q->mode == COMPILE_CATCH_UP))
			compile_if_constant(c, ARCH_TEST_EQ, ARCH_VALUE_START,
					    (int64_t)PAIR_INHERITED, end);
	}
	if (record)
		take_record(c, gated, end);
	if (uses->thread_effects &&
	    (c->q->placement->kind == POINT_CALL || c->q->placement->kind == POINT_AFTER))
		test_room(c, end);
	for (size_t i = 0; i < c->q->guard_count && !c->failed; i++)
		if (c->q->guards[i].flag)
			test_flag(c, &c->q->guards[i], end);
		else
			test_code(c, &c->q->guards[i], end);
	compile_code(c, c->q->placement->code);
	compile_put_label(c, end);
}

static bool has_effect(const struct arch_program *p)
{
	for (unsigned i = 0; i < p->count; i++)
		switch (p->ops[i].kind) {
		case ARCH_OP_LABEL:
		case ARCH_OP_JUMP:
		case ARCH_OP_IF:
		case ARCH_OP_FIND:
			break;
		default:
			if (arch_op_has_effect(&p->ops[i]))
				return true;
		}
	return false;
}

/* What the finished program needs, read off it: what was optimised away is not needed. */
static void look_back(const struct compiler *c, struct compiled *out)
{
	const struct arch_program *p = &out->program;

	for (unsigned i = 0; i < p->count; i++) {
		const struct arch_op *op = &p->ops[i];

		out->per_thread |= op->kind == ARCH_OP_RECORD;
		out->needs_threads |= op->kind == ARCH_OP_THREAD || op->kind == ARCH_OP_READ ||
				      op->kind == ARCH_OP_RING_OPEN;
		out->clock |= op->kind == ARCH_OP_CLOCK || op->kind == ARCH_OP_RING_OPEN;
		out->reads |= op->kind == ARCH_OP_READ || op->kind == ARCH_OP_RING_BYTES;
		out->system_calls |= op->kind == ARCH_OP_READ || op->kind == ARCH_OP_PROCESS ||
				     op->kind == ARCH_OP_RING_BYTES ||
				     (op->kind == ARCH_OP_CLOCK && op->number != ARCH_CLOCK_TICKS);
	}
	out->activation = c->activation;
	out->start = c->start;
	out->clock |= c->start;
	out->per_thread |= c->activation;
	out->needs_threads |= out->per_thread;
}

static int finish(struct compiler *c, struct compiled *out)
{
	struct arch_environment env = {0};
	struct arch_op *ops;

	out->program = (struct arch_program){.ops = c->ops,
					     .count = (uint16_t)c->count,
					     .room = ARCH_PROGRAM_OPS,
					     .values = (uint16_t)c->values,
					     .labels = (uint16_t)c->labels};
	arch_program_optimise(&out->program);
	if (!has_effect(&out->program)) {
		*out = (struct compiled){.shared = true};
		free(c->ops);
		return 0;
	}
	look_back(c, out);
	out->shared = !c->depends;
	if (c->q->session && c->q->place)
		snippet_look_around(c->q->session, c->q->place, &env);
	out->cost_ps = arch_program_cost(&out->program, &env);
	out->switch_ps = arch_program_switch_cost(&out->program, &env);
	ops = realloc(c->ops, out->program.count * sizeof(*ops));
	if (ops) {
		out->program.ops = ops;
		out->program.room = out->program.count;
	}
	return 0;
}

static void uses_of_guards(struct compiler *c, struct compile_uses *uses)
{
	for (size_t i = 0; i < c->q->guard_count; i++) {
		c->local_name = c->q->guards[i].name;
		if (!c->q->guards[i].flag)
			uses_of_code(c, c->q->guards[i].code, uses);
	}
	c->local_name = NULL;
}

/* Where the slots of a counter are. */
static void look_at_counters(struct compiler *c)
{
	struct arch_environment env = {0};

	if (!c->q->session || !c->q->place || !uses_timers(c->q))
		return;
	snippet_look_around(c->q->session, c->q->place, &env);
	c->cpus = env.counter.cpus;
	c->cpu_shift = env.counter.cpu_shift;
}

int compile(const struct compile_request *request, struct compiled *out, struct dinst_error *e)
{
	struct compiler c = {.q = request, .e = e, .values = ARCH_VALUE_FIRST - 1};
	struct compile_uses uses = {0}, guards = {0};
	int result;

	*out = (struct compiled){.shared = true};
	c.bindings = request->placement->bindings;
	c.binding_count = request->placement->binding_count;
	uses_of_code(&c, request->placement->code, &uses);
	uses_of_guards(&c, &guards);
	if (request->mode != COMPILE_POINT && (!uses.thread_effects || guards.moment))
		return 0;
	uses.thread_reads |= guards.thread_reads;
	c.depends = uses.functions || guards.functions;
	look_at_counters(&c);
	c.ops = malloc(ARCH_PROGRAM_OPS * sizeof(*c.ops));
	if (!c.ops)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for a program");
	compile_all(&c, &uses);
	if (!c.failed)
		return finish(&c, out);
	result = c.failed;
	free(c.ops);
	return result;
}
