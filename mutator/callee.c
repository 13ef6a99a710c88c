/* SPDX-License-Identifier: MIT */
/*
 * callee.c - follows control through a function that is called, and has each
 * instruction lifted after all that lead to it. Knows no instruction, only where
 * control goes. When in doubt it refuses, or goes where it was told to go then.
 */
#include "mutator/callee.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Instead of a node: there is none; callee_request.otherwise. */
enum { NONE = -1, OTHERWISE = -2 };

enum visit { VISIT_OPEN = 1, VISIT_DONE };

struct node {
	struct arch_insn insn;
	taddr_t back;	 /* where the call returns that it belongs to; 0: the function itself */
	int next, taken; /* nodes */
	uint16_t label;	 /* 0: nothing jumps here */
	uint8_t visit;
	struct lift_state *state; /* what is known on all ways to it that have been gone */
};

struct callee {
	const struct callee_request *q;
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
			  (unsigned long long)(insn->address - c->q->start), text, why);
}

/* ------------------------------------------------------------------ control */

static int find(const struct callee *c, taddr_t address, taddr_t back)
{
	for (unsigned i = 0; i < c->count; i++)
		if (c->nodes[i].insn.address == address && c->nodes[i].back == back)
			return (int)i;
	return NONE;
}

static bool is_inside(const struct callee *c, taddr_t address)
{
	return address - c->q->start < c->q->size;
}

/* Decodes the instruction at an address into a node of its own. */
static int add(struct callee *c, taddr_t address, taddr_t back, int *index)
{
	const size_t at = address - c->q->start;
	struct node *n = &c->nodes[c->count];

	if (c->count == CALLEE_INSNS)
		return dinst_fail(c->e, DINST_REFUSED, "it has more than %d instructions",
				  CALLEE_INSNS);
	if (!c->q->code || arch_decode(c->q->code + at, c->q->size - at, address, &n->insn))
		return dinst_fail(c->e, DINST_REFUSED, "at +0x%llx: no instruction that is known",
				  (unsigned long long)at);
	n->back = back;
	n->next = n->taken = NONE;
	*index = (int)c->count++;
	return 0;
}

static int visit(struct callee *c, const struct arch_insn *from, taddr_t address, taddr_t back,
		 int *index);

static int visit_taken(struct callee *c, struct node *n)
{
	if (!is_inside(c, n->insn.target) && !c->q->otherwise)
		return refuse(c, &n->insn, "it goes on in another function, or another part");
	return visit(c, &n->insn, n->insn.target, n->back, &n->taken);
}

/* Into a function, and on behind its return. */
static int visit_call(struct callee *c, struct node *n)
{
	if (n->insn.flow != ARCH_FLOW_CALL || !c->q->otherwise || n->back)
		return refuse(c, &n->insn, "it calls another function");
	return visit(c, &n->insn, n->insn.target, n->insn.address + n->insn.length, &n->taken);
}

/* What control may do next. What is taken comes first, so that what follows stays next to it. */
static int visit_successors(struct callee *c, struct node *n)
{
	int status = 0;

	switch (n->insn.flow) {
	case ARCH_FLOW_RETURN:
		return n->back ? visit(c, &n->insn, n->back, 0, &n->taken) : 0;
	case ARCH_FLOW_JUMP:
		return visit_taken(c, n);
	case ARCH_FLOW_BRANCH:
		status = visit_taken(c, n);
		break;
	case ARCH_FLOW_NEXT:
		break;
	case ARCH_FLOW_CALL:
	case ARCH_FLOW_CALL_INDIRECT:
		return visit_call(c, n);
	case ARCH_FLOW_JUMP_INDIRECT:
		return refuse(c, &n->insn, "where it goes is not known");
	case ARCH_FLOW_SYSCALL:
		return refuse(c, &n->insn, "it makes a system call");
	default:
		return refuse(c, &n->insn, "it traps");
	}
	return status ? status
		      : visit(c, &n->insn, n->insn.address + n->insn.length, n->back, &n->next);
}

/* Depth first; at most CALLEE_INSNS deep. */
static int visit_node(struct callee *c, const struct arch_insn *from, taddr_t address, taddr_t back,
		      int *index)
{
	struct node *n;
	int status;

	if (!is_inside(c, address))
		return from ? refuse(c, from, "it runs over the function's end")
			    : dinst_fail(c->e, DINST_REFUSED, "its size is not known");
	*index = find(c, address, back);
	if (*index != NONE && c->nodes[*index].visit == VISIT_OPEN)
		return refuse(c, from, "it has a loop");
	if (*index != NONE)
		return 0;
	status = add(c, address, back, index);
	if (status)
		return status;
	n = &c->nodes[*index];
	n->visit = VISIT_OPEN;
	status = visit_successors(c, n);
	n->visit = VISIT_DONE;
	/* Nothing behind it: what it does itself leads there, too. */
	if (status == DINST_REFUSED && c->q->otherwise) {
		dinst_error_clear(c->e);
		status = 0;
	}
	c->order[c->ordered++] = *index;
	return status;
}

static int visit(struct callee *c, const struct arch_insn *from, taddr_t address, taddr_t back,
		 int *index)
{
	int status = visit_node(c, from, address, back, index);

	if (status != DINST_REFUSED || !c->q->otherwise)
		return status;
	dinst_error_clear(c->e);
	*index = OTHERWISE;
	return 0;
}

/* --------------------------------------------------------------- operations */

static unsigned label_of(struct callee *c, int node)
{
	struct node *n;

	if (node == OTHERWISE)
		return c->q->otherwise;
	n = &c->nodes[node];
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
	struct node *n;

	if (node < 0)
		return 0;
	n = &c->nodes[node];
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

/* An arch_status; *on: where control goes behind it, NONE: it has returned. */
static int lift(struct callee *c, const struct node *n, int *on)
{
	struct lift *l = c->q->lift;
	int status = ARCH_OK;

	*on = n->next;
	switch (n->insn.flow) {
	case ARCH_FLOW_NEXT:
		return arch_lift(l, &c->now, &n->insn);
	case ARCH_FLOW_BRANCH:
		status = arch_lift_branch(l, &c->now, &n->insn, label_of(c, n->taken));
		if (status == ARCH_OK && l->decided == 1)
			*on = n->taken;
		return status;
	case ARCH_FLOW_RETURN:
		*on = n->back ? n->taken : NONE;
		return n->back ? arch_lift_call_return(l, &c->now, &n->insn, n->back)
			       : arch_lift_return(l, &c->now, &n->insn, c->q->result);
	case ARCH_FLOW_CALL:
		status = arch_lift_call(l, &c->now, &n->insn);
		break;
	default:
		break;
	}
	/* What leads nowhere that is known has been refused, or goes elsewhere. */
	*on = n->taken == NONE ? OTHERWISE : n->taken;
	return status;
}

/* One node, behind all that lead to it. `following` is emitted behind it; NONE: it is the last. */
static int emit(struct callee *c, struct node *n, int following)
{
	int status, on;

	if (n->label)
		put(c, ARCH_OP_LABEL, n->label);
	if (!n->state) /* no way leads here */
		return 0;
	c->now = *n->state;
	free(n->state);
	n->state = NULL;
	status = lift(c, n, &on);
	if (status != ARCH_OK && !c->q->otherwise)
		return refuse(c, &n->insn, c->q->lift->why);
	if (status != ARCH_OK)
		on = OTHERWISE;
	else if (n->insn.flow == ARCH_FLOW_BRANCH && c->q->lift->decided < 0 &&
		 lead_to(c, n->taken))
		return DINST_NO_MEMORY;
	if (lead_to(c, on))
		return DINST_NO_MEMORY;
	if (on == NONE && following != NONE)
		put(c, ARCH_OP_JUMP, c->end);
	else if (on != NONE && on != following)
		put(c, ARCH_OP_JUMP, label_of(c, on));
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
	int status, first = NONE;

	if (!c)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for a function's instructions");
	c->q = q;
	c->e = e;
	status = visit_node(c, NULL, q->entry, 0, &first);
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
