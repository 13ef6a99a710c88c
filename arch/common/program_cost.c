/* SPDX-License-Identifier: MIT */
/*
 * program_cost.c - the predicted time of a program: what each operation was
 * measured to take (make bench), summed along the longest way. A prediction for
 * people who decide what to insert, not a promise; the frame around the
 * program is not part of it.
 */
#include "arch/common/program_common.h"

/* Picoseconds, on a machine of 3 GHz with what is used in the first cache. */
static const uint32_t costs[ARCH_OP_KINDS] = {
	[ARCH_OP_CONST] = 200,
	[ARCH_OP_COPY] = 150,
	[ARCH_OP_ADD] = 350,
	[ARCH_OP_SUB] = 350,
	[ARCH_OP_MUL] = 1000,
	[ARCH_OP_MUL_HIGH] = 1300,
	[ARCH_OP_DIV] = 6000,
	[ARCH_OP_DIV_UNSIGNED] = 6000,
	[ARCH_OP_REM] = 6000,
	[ARCH_OP_REM_UNSIGNED] = 6000,
	[ARCH_OP_AND] = 350,
	[ARCH_OP_OR] = 350,
	[ARCH_OP_XOR] = 350,
	[ARCH_OP_SHL] = 400,
	[ARCH_OP_SHR] = 400,
	[ARCH_OP_SAR] = 400,
	[ARCH_OP_NEG] = 350,
	[ARCH_OP_NOT] = 350,
	[ARCH_OP_LOG2] = 1000,
	[ARCH_OP_EXTEND] = 350,
	[ARCH_OP_TEST] = 700,
	[ARCH_OP_ARGUMENT] = 300,
	[ARCH_OP_FLOAT_ARGUMENT] = 700,
	[ARCH_OP_RESULT] = 300,
	[ARCH_OP_FLOAT_RESULT] = 700,
	[ARCH_OP_STACK] = 1300,
	[ARCH_OP_STACK_POINTER] = 300,
	[ARCH_OP_CALLER] = 1300,
	[ARCH_OP_PRESERVED] = 300,
	[ARCH_OP_LOAD] = 600,
	[ARCH_OP_STORE] = 400,
	[ARCH_OP_FETCH_ADD] = 1800,
	[ARCH_OP_ATOMIC_ADD] = 6500,
	[ARCH_OP_ATOMIC_MIN] = 9000,
	[ARCH_OP_ATOMIC_MAX] = 9000,
	[ARCH_OP_ATOMIC_STORE] = 6500,
	[ARCH_OP_READ] = 550000,
	[ARCH_OP_COUNT] = 1000,
	[ARCH_OP_RECORD] = 1300,
	[ARCH_OP_ENTER] = 3000,
	[ARCH_OP_LEAVE] = 1500,
	[ARCH_OP_LEFT] = 1500,
	[ARCH_OP_CPU] = 500,
	[ARCH_OP_THREAD] = 500,
	[ARCH_OP_PROCESS] = 100000,
	[ARCH_OP_FIND] = 4000,
	[ARCH_OP_RING_OPEN] = 18000, /* and the clock */
	[ARCH_OP_RING_BYTES] = 550000,
	[ARCH_OP_RING_CLOSE] = 800,
	[ARCH_OP_JUMP] = 300,
	[ARCH_OP_IF] = 250,
};

static const uint32_t clocks[] = {
	[ARCH_CLOCK_TICKS] = 8000,
	[ARCH_CLOCK_MONOTONIC] = 120000,
	[ARCH_CLOCK_THREAD] = 250000,
	[ARCH_CLOCK_PROCESS] = 300000,
};

enum { THREAD_CLOCK_BY_RSEQ = 6000, ORDERED = 4000, COUNT_LOCKED = 6500, LOOKS = 16 };

/*
 * What a look at the processor's clock takes here: on some machines, virtual ones
 * above all, several times what it takes on others. The least of a few, in ps.
 */
static uint64_t cost_of_ticks(const struct arch_environment *env)
{
	static uint64_t least;
	uint64_t before = arch_clock_ticks();

	if (!env || !env->ticks_multiplier)
		return clocks[ARCH_CLOCK_TICKS];
	for (unsigned i = 0; i < LOOKS && !least; i++) {
		uint64_t shortest = UINT64_MAX;

		for (unsigned j = 0; j < LOOKS; j++) {
			const uint64_t now = arch_clock_ticks();

			if (now - before < shortest)
				shortest = now - before;
			before = now;
		}
		least = shortest;
	}
	return (uint64_t)((unsigned __int128)(least * 1000) * env->ticks_multiplier >> 64)
	       << env->ticks_shift;
}

static bool has_op(const struct arch_program *p, unsigned kind)
{
	for (unsigned i = 0; i < p->count; i++)
		if (p->ops[i].kind == kind)
			return true;
	return false;
}

/*
 * A counter per CPU changes the word by which a thread knows that its clock still holds
 * (struct arch_environment). One behind the clock makes the next program that reads it pay.
 */
static bool knows_thread_clock(const struct arch_program *p, const struct arch_environment *env)
{
	return env && env->thread_clock_by_rseq &&
	       !(env->counter.mode == ARCH_COUNT_PER_CPU && has_op(p, ARCH_OP_COUNT));
}

/* `thread_clock`: what ARCH_CLOCK_THREAD takes in this program. */
static uint64_t cost_of(const struct arch_op *op, uint64_t thread_clock,
			const struct arch_environment *env)
{
	if (op->kind == ARCH_OP_COUNT && env && env->counter.mode == ARCH_COUNT_LOCKED)
		return COUNT_LOCKED;
	if (op->kind == ARCH_OP_RING_OPEN)
		return costs[op->kind] + cost_of_ticks(env);
	if (op->kind != ARCH_OP_CLOCK)
		return op->kind < ARCH_OP_KINDS ? costs[op->kind] : 0;
	if (op->number == ARCH_CLOCK_THREAD)
		return thread_clock;
	if (op->number == ARCH_CLOCK_TICKS)
		return cost_of_ticks(env);
	if (op->number == ARCH_CLOCK_TICKS_ORDERED)
		return ORDERED + cost_of_ticks(env);
	if (op->number == ARCH_CLOCK_MONOTONIC && op->immediate)
		return 0;
	if (op->number == ARCH_CLOCK_MONOTONIC && env && env->wall_clock)
		return arch_program_cost(env->wall_clock, env);
	return op->number < sizeof(clocks) / sizeof(clocks[0]) ? clocks[op->number] : 0;
}

uint64_t arch_program_cost(const struct arch_program *p, const struct arch_environment *env)
{
	const uint64_t thread_clock = knows_thread_clock(p, env)
					      ? THREAD_CLOCK_BY_RSEQ + cost_of_ticks(env)
					      : clocks[ARCH_CLOCK_THREAD];
	uint64_t at[ARCH_PROGRAM_LABELS + 1] = {0}, cost = 0;

	for (unsigned i = p->count; i-- > 0;) {
		const struct arch_op *op = &p->ops[i];
		const unsigned label = op->label <= ARCH_PROGRAM_LABELS ? op->label : 0;

		if (op->kind == ARCH_OP_LABEL)
			at[label] = cost;
		else if (op->kind == ARCH_OP_JUMP)
			cost = at[label];
		else if (op->kind == ARCH_OP_IF && at[label] > cost)
			cost = at[label];
		cost += cost_of(op, thread_clock, env);
	}
	return cost;
}

uint64_t arch_program_switch_cost(const struct arch_program *p, const struct arch_environment *env)
{
	for (unsigned i = 0; env && env->thread_clock_by_rseq && i < p->count; i++)
		if (p->ops[i].kind == ARCH_OP_CLOCK && p->ops[i].number == ARCH_CLOCK_THREAD)
			return clocks[ARCH_CLOCK_THREAD];
	return 0;
}
