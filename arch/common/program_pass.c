/* SPDX-License-Identifier: MIT */
/*
 * program_pass.c - numbers for things that can be computed, and who holds them.
 * Must never look at operations: only at keys.
 */
#include <string.h>

#include "arch/common/program_pass.h"

void pass_begin(struct pass *s, struct arch_program *p)
{
	s->p = p;
	s->count = 0;
	s->numbers[0] = (struct pass_number){0};
	s->now.open = true;
	s->now.fact_count = s->now.known_count = 0;
	memset(s->now.holds, 0, (p->values + 1) * sizeof(s->now.holds[0]));
	memset(s->buckets, 0, sizeof(s->buckets));
	memset(s->passed, 0, sizeof(s->passed));
	for (unsigned i = 0; i <= p->labels; i++)
		s->at[i].open = false;
}

uint16_t pass_fresh(struct pass *s, const struct pass_key *key)
{
	struct pass_number *n = &s->numbers[++s->count];

	n->key = *key;
	n->holder = n->next = 0;
	return s->count;
}

static unsigned hash(const struct pass_key *k)
{
	uint64_t h = k->number ^ (uint64_t)(uint32_t)k->immediate << 20;

	h ^= (uint64_t)k->kind << 56 ^ (uint64_t)k->condition << 50 ^ (uint64_t)k->size << 45;
	h ^= (uint64_t)k->a << 32 ^ (uint64_t)k->b << 12;
	return (unsigned)(h * 0x9e3779b97f4a7c15ull >> 56);
}

static bool same(const struct pass_key *x, const struct pass_key *y)
{
	return x->kind == y->kind && x->size == y->size && x->condition == y->condition &&
	       x->is_signed == y->is_signed && x->a == y->a && x->b == y->b &&
	       x->immediate == y->immediate && x->number == y->number;
}

uint16_t pass_number(struct pass *s, const struct pass_key *key)
{
	uint16_t *bucket = &s->buckets[hash(key)];
	uint16_t number;

	for (number = *bucket; number; number = s->numbers[number].next)
		if (same(&s->numbers[number].key, key))
			return number;
	number = pass_fresh(s, key);
	s->numbers[number].next = *bucket;
	*bucket = number;
	return number;
}

uint16_t pass_constant(struct pass *s, uint64_t constant)
{
	return pass_number(s, &(struct pass_key){.kind = ARCH_OP_CONST, .number = constant});
}

uint16_t pass_number_of(struct pass *s, unsigned value)
{
	if (!value)
		return pass_constant(s, 0);
	if (!s->now.holds[value])
		pass_set(s, value, pass_fresh(s, &(struct pass_key){0}));
	return s->now.holds[value];
}

unsigned pass_holder(const struct pass *s, uint16_t number)
{
	const unsigned holder = s->numbers[number].holder;

	return holder && s->now.holds[holder] == number ? holder : 0;
}

void pass_set(struct pass *s, unsigned value, uint16_t number)
{
	if (!value)
		return;
	s->now.holds[value] = number;
	if (number && !pass_holder(s, number))
		s->numbers[number].holder = (uint16_t)value;
}

bool pass_is_constant(const struct pass *s, uint16_t number, uint64_t *constant)
{
	if (!number || s->numbers[number].key.kind != ARCH_OP_CONST)
		return false;
	*constant = s->numbers[number].key.number;
	return true;
}

bool pass_is_small(const struct pass *s, uint16_t number)
{
	const struct pass_key *k = &s->numbers[number].key;

	switch (k->kind) {
	case ARCH_OP_CONST:
		return !(k->number >> 63);
	case ARCH_OP_TEST:
	case ARCH_OP_LOG2:
		return true;
	case ARCH_OP_LOAD:
	case ARCH_OP_EXTEND:
	case ARCH_OP_READ:
		return k->size && k->size < 8 && !k->is_signed;
	case ARCH_OP_SHR:
		return !k->b && (k->immediate & 63);
	case ARCH_OP_AND:
		return !k->b && k->immediate >= 0;
	default:
		return false;
	}
}

static void meet_facts(struct pass_way *to, const struct pass_way *from)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < to->fact_count; i++)
		for (unsigned j = 0; j < from->fact_count; j++)
			if (from->facts[j].number == to->facts[i].number &&
			    same(&from->facts[j].key, &to->facts[i].key)) {
				to->facts[kept++] = to->facts[i];
				break;
			}
	to->fact_count = (uint8_t)kept;
}

static void meet_known(struct pass_way *to, const struct pass_way *from)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < to->known_count; i++)
		for (unsigned j = 0; j < from->known_count; j++) {
			struct pass_known k = to->known[i];
			const struct pass_known *other = &from->known[j];

			if (other->a != k.a || other->b != k.b || other->immediate != k.immediate)
				continue;
			k.outcomes |= other->outcomes;
			to->known[kept++] = k;
			break;
		}
	to->known_count = (uint8_t)kept;
}

void pass_meet(struct pass_way *to, const struct pass_way *from, unsigned values)
{
	for (unsigned i = 1; i <= values; i++)
		if (to->holds[i] != from->holds[i])
			to->holds[i] = 0;
	meet_facts(to, from);
	meet_known(to, from);
}
