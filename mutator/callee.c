/* SPDX-License-Identifier: MIT */
/*
 * callee.c - follows control through a function that is called, and has each
 * instruction lifted after all that lead to it. Knows no instruction, only where
 * control goes. Refuses when in doubt.
 */
#include "mutator/callee.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = -1 };

enum visit { VISIT_OPEN = 1, VISIT_DONE };

struct node {
	struct arch_insn insn;
	int next, taken; /* nodes; NONE */
	uint16_t label;	 /* 0: nothing jumps here */
	uint8_t visit;
	struct lift_state *state; /* what is known on all ways to it that have been gone */
};

struct callee {
	const struct callee_request *q;
	const struct image_function *function;
	struct dinst_error *e;
	struct node nodes[CALLEE_INSNS];
	int order[CALLEE_INSNS]; /* nodes, the last one first */
	unsigned count, ordered;
	unsigned end; /* label */
	struct lift_state now;
};

static int refuse(struct callee *c, const struct arch_insn *insn, const char *why)
{
	char text[128];

	arch_format(insn, text, sizeof(text));
	return dinst_fail(c->e, DINST_REFUSED, "at +0x%llx, '%s': %s",
			  (unsigned long long)(insn->address - c->q->bias - c->function->address),
			  text, why);
}

/* ------------------------------------------------------------------ control */

static int find(const struct callee *c, taddr_t address)
{
	for (unsigned i = 0; i < c->count; i++)
		if (c->nodes[i].insn.address == address)
			return (int)i;
	return NONE;
}

static bool is_inside(const struct callee *c, taddr_t address)
{
	return address - c->q->bias - c->function->address < c->function->size;
}

/* Decodes the instruction at an address into a node of its own. */
static int add(struct callee *c, taddr_t address, int *index)
{
	const vaddr_t at = address - c->q->bias;
	struct node *n = &c->nodes[c->count];
	const uint8_t *bytes;
	size_t size = 0;

	if (c->count == CALLEE_INSNS)
		return dinst_fail(c->e, DINST_REFUSED, "it has more than %d instructions",
				  CALLEE_INSNS);
	bytes = image_code(c->q->image, at, &size);
	if (!bytes || arch_decode(bytes, size, address, &n->insn) != ARCH_OK)
		return dinst_fail(c->e, DINST_REFUSED, "at +0x%llx: no instruction that is known",
				  (unsigned long long)(at - c->function->address));
	n->next = n->taken = NONE;
	*index = (int)c->count++;
	return 0;
}

static int visit(struct callee *c, const struct arch_insn *from, taddr_t address, int *index);

static int visit_taken(struct callee *c, struct node *n)
{
	if (!is_inside(c, n->insn.target))
		return refuse(c, &n->insn, "it goes on in another function, or another part");
	return visit(c, &n->insn, n->insn.target, &n->taken);
}

/* What control may do next. What is taken comes first, so that what follows stays next to it. */
static int visit_successors(struct callee *c, struct node *n)
{
	int status = 0;

	switch (n->insn.flow) {
	case ARCH_FLOW_RETURN:
		return 0;
	case ARCH_FLOW_JUMP:
		return visit_taken(c, n);
	case ARCH_FLOW_BRANCH:
		status = visit_taken(c, n);
		break;
	case ARCH_FLOW_NEXT:
		break;
	case ARCH_FLOW_CALL:
	case ARCH_FLOW_CALL_INDIRECT:
		return refuse(c, &n->insn, "it calls another function");
	case ARCH_FLOW_JUMP_INDIRECT:
		return refuse(c, &n->insn, "where it goes is not known");
	case ARCH_FLOW_SYSCALL:
		return refuse(c, &n->insn, "it makes a system call");
	default:
		return refuse(c, &n->insn, "it traps");
	}
	return status ? status : visit(c, &n->insn, n->insn.address + n->insn.length, &n->next);
}

/* Depth first; at most CALLEE_INSNS deep. */
static int visit(struct callee *c, const struct arch_insn *from, taddr_t address, int *index)
{
	struct node *n;
	int status;

	if (!is_inside(c, address))
		return from ? refuse(c, from, "it runs over the function's end")
			    : dinst_fail(c->e, DINST_REFUSED, "its size is not known");
	*index = find(c, address);
	if (*index != NONE && c->nodes[*index].visit == VISIT_OPEN)
		return refuse(c, from, "it has a loop");
	if (*index != NONE)
		return 0;
	status = add(c, address, index);
	if (status)
		return status;
	n = &c->nodes[*index];
	n->visit = VISIT_OPEN;
	status = visit_successors(c, n);
	n->visit = VISIT_DONE;
	c->order[c->ordered++] = *index;
	return status;
}

/* --------------------------------------------------------------- operations */

static unsigned label_of(struct callee *c, int node)
{
	struct node *n = &c->nodes[node];

	if (!n->label)
		n->label = (uint16_t)c->q->label(c->q->lift->arg);
	return n->label;
}

static void put(struct callee *c, enum arch_op_kind kind, unsigned label)
{
	c->q->lift->op(c->q->lift->arg, kind)->label = (uint16_t)label;
}

/* Control goes on at a node with what is known now. */
static int lead_to(struct callee *c, int node)
{
	struct node *n = &c->nodes[node];

	if (n->state) {
		arch_lift_join(n->state, &c->now);
		return 0;
	}
	n->state = malloc(sizeof(*n->state));
	if (!n->state)
		return dinst_fail(c->e, DINST_NO_MEMORY, "no memory for a function's state");
	*n->state = c->now;
	return 0;
}

static int lift(struct callee *c, const struct node *n)
{
	struct lift *l = c->q->lift;
	int status = ARCH_OK;

	switch (n->insn.flow) {
	case ARCH_FLOW_RETURN:
		status = arch_lift_return(l, &c->now, &n->insn, c->q->result);
		break;
	case ARCH_FLOW_BRANCH:
		status = arch_lift_branch(l, &c->now, &n->insn, label_of(c, n->taken));
		break;
	case ARCH_FLOW_NEXT:
		status = arch_lift(l, &c->now, &n->insn);
		break;
	default:
		break;
	}
	return status == ARCH_OK ? 0 : refuse(c, &n->insn, l->why);
}

/* One node, behind all that lead to it. `following` is emitted behind it; NONE: it is the last. */
static int emit(struct callee *c, struct node *n, int following)
{
	const int on = n->insn.flow == ARCH_FLOW_JUMP ? n->taken : n->next;
	int status;

	c->now = *n->state;
	free(n->state);
	n->state = NULL;
	if (n->label)
		put(c, ARCH_OP_LABEL, n->label);
	status = lift(c, n);
	if (!status && n->insn.flow == ARCH_FLOW_BRANCH)
		status = lead_to(c, n->taken);
	if (!status && on != NONE)
		status = lead_to(c, on);
	if (status || (on != NONE && on == following))
		return status;
	if (on != NONE)
		put(c, ARCH_OP_JUMP, label_of(c, on));
	else if (following != NONE)
		put(c, ARCH_OP_JUMP, c->end);
	return 0;
}

static int emit_all(struct callee *c)
{
	int status = 0;

	c->end = c->q->label(c->q->lift->arg);
	for (unsigned i = c->ordered; i-- > 0 && !status;)
		status = emit(c, &c->nodes[c->order[i]], i ? c->order[i - 1] : NONE);
	put(c, ARCH_OP_LABEL, c->end);
	return status;
}

int callee_lift(const struct callee_request *q, struct dinst_error *e)
{
	struct callee *c = calloc(1, sizeof(*c));
	const struct image_function *functions;
	int status, first = NONE;

	if (!c)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for a function's instructions");
	image_functions(q->image, &functions);
	c->q = q;
	c->e = e;
	c->function = &functions[q->function];
	status = visit(c, NULL, c->function->address + q->bias, &first);
	if (!status && arch_lift_begin(q->lift, &c->now, q->arguments, q->argument_count))
		status = dinst_fail(e, DINST_REFUSED, "%s", q->lift->why);
	if (!status)
		status = lead_to(c, first);
	if (!status)
		status = emit_all(c);
	for (unsigned i = 0; i < c->count; i++)
		free(c->nodes[i].state);
	free(c);
	return status;
}
