/* SPDX-License-Identifier: MIT */
/*
 * seccomp.c - an interpreter for the classic BPF of seccomp filters.
 *
 * Knows the instructions that the kernel accepts in a filter
 * (kernel/seccomp.c, seccomp_check_filter). Jumps only lead forward, so every
 * program ends. Anything else denies.
 */
#include "inject/seccomp.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct machine {
	uint32_t a, x, memory[BPF_MEMWORDS];
	const struct seccomp_data *call;
};

/* Loads a word of the call's description; false outside of it. */
static bool load_call(struct machine *m, uint32_t offset)
{
	const size_t place = offsetof(struct seccomp_data, instruction_pointer);

	if (offset % sizeof(uint32_t) || offset >= sizeof(*m->call))
		return false;
	if (offset - place < sizeof(m->call->instruction_pointer) && !m->call->instruction_pointer)
		return false;
	memcpy(&m->a, (const char *)m->call + offset, sizeof(m->a));
	return true;
}

static bool load(struct machine *m, const struct sock_filter *f)
{
	uint32_t *to = BPF_CLASS(f->code) == BPF_LDX ? &m->x : &m->a;

	switch (BPF_MODE(f->code)) {
	case BPF_ABS:
		return to == &m->a && BPF_SIZE(f->code) == BPF_W && load_call(m, f->k);
	case BPF_IMM:
		*to = f->k;
		return true;
	case BPF_LEN:
		*to = sizeof(*m->call);
		return true;
	case BPF_MEM:
		if (f->k >= BPF_MEMWORDS)
			return false;
		*to = m->memory[f->k];
		return true;
	default:
		return false;
	}
}

static bool compute(struct machine *m, const struct sock_filter *f)
{
	uint32_t operand = BPF_SRC(f->code) == BPF_X ? m->x : f->k;

	switch (BPF_OP(f->code)) {
	case BPF_ADD:
		m->a += operand;
		return true;
	case BPF_SUB:
		m->a -= operand;
		return true;
	case BPF_MUL:
		m->a *= operand;
		return true;
	case BPF_DIV:
		m->a = operand ? m->a / operand : 0;
		return operand != 0;
	case BPF_AND:
		m->a &= operand;
		return true;
	case BPF_OR:
		m->a |= operand;
		return true;
	case BPF_XOR:
		m->a ^= operand;
		return true;
	/* By more than there are bits: only a register can say so, and what comes of it depends on the machine. */
	case BPF_LSH:
		m->a <<= operand & 31;
		return operand < 32;
	case BPF_RSH:
		m->a >>= operand & 31;
		return operand < 32;
	case BPF_NEG:
		m->a = 0 - m->a;
		return true;
	default:
		return false;
	}
}

/* How many instructions are skipped by a jump, or -1 for one that is none. */
static int64_t jump(const struct machine *m, const struct sock_filter *f)
{
	uint32_t operand = BPF_SRC(f->code) == BPF_X ? m->x : f->k;
	bool yes;

	switch (BPF_OP(f->code)) {
	case BPF_JA:
		return f->k;
	case BPF_JEQ:
		yes = m->a == operand;
		break;
	case BPF_JGT:
		yes = m->a > operand;
		break;
	case BPF_JGE:
		yes = m->a >= operand;
		break;
	case BPF_JSET:
		yes = m->a & operand;
		break;
	default:
		return -1;
	}
	return yes ? f->jt : f->jf;
}

static bool store(struct machine *m, const struct sock_filter *f)
{
	if (f->k >= BPF_MEMWORDS)
		return false;
	m->memory[f->k] = BPF_CLASS(f->code) == BPF_ST ? m->a : m->x;
	return true;
}

static bool is_pass(uint32_t verdict)
{
	verdict &= SECCOMP_RET_ACTION_FULL;
	return verdict == SECCOMP_RET_ALLOW || verdict == SECCOMP_RET_LOG;
}

bool seccomp_allows(const struct sock_filter *filter, size_t count, const struct seccomp_data *call)
{
	struct machine m = {.call = call};
	const struct sock_filter *f;
	int64_t skip;
	bool good = true;

	for (size_t at = 0; good && at < count; at++) {
		f = &filter[at];
		switch (BPF_CLASS(f->code)) {
		case BPF_LD:
		case BPF_LDX:
			good = load(&m, f);
			break;
		case BPF_ST:
		case BPF_STX:
			good = store(&m, f);
			break;
		case BPF_ALU:
			good = compute(&m, f);
			break;
		case BPF_JMP:
			skip = jump(&m, f);
			good = skip >= 0;
			at += good ? (size_t)skip : 0;
			break;
		case BPF_RET:
			return is_pass(BPF_RVAL(f->code) == BPF_A ? m.a : f->k);
		default: /* BPF_MISC */
			if (BPF_MISCOP(f->code) == BPF_TAX)
				m.x = m.a;
			else
				m.a = m.x;
			break;
		}
	}
	return false;
}
