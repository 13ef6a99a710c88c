/* SPDX-License-Identifier: MIT */
/*
 * program_run.c - runs a program on our side: for threads of a stopped target,
 * and as the judge of emitted code. Must never touch memory of its own accord:
 * what a program reads and writes goes through the caller's callbacks.
 */
#include "arch/common/program_common.h"

struct run {
	const struct arch_program *p;
	const struct arch_machine *m;
	uint64_t *values;
	size_t at;
};

static void set(struct run *r, unsigned value, uint64_t word)
{
	if (value)
		r->values[value] = word;
}

/* Goes to the label, which is further on. False if it is not there. */
static bool go_to(struct run *r, unsigned label)
{
	for (size_t i = r->at + 1; i < r->p->count; i++)
		if (r->p->ops[i].kind == ARCH_OP_LABEL && r->p->ops[i].label == label) {
			r->at = i;
			return true;
		}
	return false;
}

static bool load(struct run *r, taddr_t address, uint64_t *word, size_t size)
{
	*word = 0;
	return r->m->load && r->m->load(r->m->arg, address, word, size);
}

static bool store(struct run *r, taddr_t address, uint64_t word, size_t size)
{
	return r->m->store && r->m->store(r->m->arg, address, word, size);
}

static bool read_safely(struct run *r, const struct arch_op *op, taddr_t address)
{
	uint64_t word;
	const bool readable = load(r, address, &word, op->size);

	set(r, op->result, readable ? program_extend(word, op->size, op->is_signed) : 0);
	set(r, op->second, readable);
	return true;
}

static bool update(struct run *r, const struct arch_op *op, taddr_t address, uint64_t b)
{
	uint64_t old;

	if (op->kind == ARCH_OP_STORE)
		return store(r, address, b, op->size ? op->size : 8);
	if (op->kind == ARCH_OP_ATOMIC_STORE)
		return store(r, address, b, 8);
	if (!load(r, address, &old, 8))
		return false;
	if (op->kind == ARCH_OP_FETCH_ADD)
		set(r, op->result, old);
	if (op->kind == ARCH_OP_ATOMIC_MIN)
		return (int64_t)b >= (int64_t)old || store(r, address, b, 8);
	if (op->kind == ARCH_OP_ATOMIC_MAX)
		return (int64_t)b <= (int64_t)old || store(r, address, b, 8);
	return store(r, address, old + b, 8);
}

static bool ask(struct run *r, const struct arch_op *op, uint64_t a, uint64_t b)
{
	uint64_t result = 0, second = 0;

	if (!r->m->other || !r->m->other(r->m->arg, op, a, b, &result, &second))
		return false;
	set(r, op->result, result);
	set(r, op->second, second);
	return true;
}

static bool step(struct run *r, const struct arch_op *op)
{
	const unsigned class = program_class(op->kind);
	const uint64_t a = op->a ? r->values[op->a] : 0;
	const uint64_t b = op->b ? r->values[op->b] : (uint64_t)(int64_t)op->immediate;
	uint64_t word;

	if (class & PROGRAM_PURE) {
		set(r, op->result, program_evaluate(op, a, b));
		return true;
	}
	if (class & PROGRAM_WRITES)
		return update(r, op, a + op->number, b);
	switch (op->kind) {
	case ARCH_OP_NONE:
	case ARCH_OP_LABEL:
		return true;
	case ARCH_OP_JUMP:
		return go_to(r, op->label);
	case ARCH_OP_IF:
		return !program_holds(op->condition, a, b) || go_to(r, op->label);
	case ARCH_OP_READ:
		return read_safely(r, op, a + op->number);
	case ARCH_OP_LOAD:
		if (!load(r, a + op->number, &word, op->size))
			return false;
		set(r, op->result, program_extend(word, op->size, op->is_signed));
		return true;
	default:
		return ask(r, op, a, b);
	}
}

bool arch_program_run(const struct arch_program *p, const struct arch_machine *machine,
		      uint64_t *values)
{
	struct run r = {.p = p, .m = machine, .values = values};

	for (; r.at < p->count; r.at++)
		if (!step(&r, &p->ops[r.at]))
			return false;
	return true;
}
