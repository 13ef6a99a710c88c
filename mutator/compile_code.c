/* SPDX-License-Identifier: MIT */
/*
 * compile_code.c - statements and conditions. Control goes forward only: there
 * is no loop in the language.
 */
#include "mutator/compile_private.h"

/*
 * At another moment than the point's own (catch-up, undo) a piece of code is
 * left out where it needs what only that moment had, or does nothing to the thread.
 */
static bool is_left_out(struct compiler *c, const struct mdl_code *code)
{
	struct compile_uses uses = {0}, whole = {0};
	const struct mdl_code alone = {.kind = code->kind,
				       .expr = code->expr,
				       .then = code->then,
				       .otherwise = code->otherwise};

	if (c->q->mode == COMPILE_POINT || code->kind == MDL_CODE_BLOCK || c->local_name)
		return false;
	uses_of_expr(c, code->expr, &uses);
	uses_of_code(c, &alone, &whole);
	return uses.moment || !whole.thread_effects;
}

static void compile_choice(struct compiler *c, const struct mdl_code *code)
{
	const struct place_known before = compile_enter_place(c);
	const unsigned otherwise = compile_label(c);
	unsigned end;
	bool there;

	compile_branch(c, code->expr, false, otherwise);
	there = c->place_there;
	compile_code(c, code->then);
	if (!code->otherwise) {
		compile_put_label(c, otherwise);
		compile_leave_place(c, &before);
		return;
	}
	end = compile_label(c);
	compile_jump(c, end);
	compile_put_label(c, otherwise);
	c->place_known = there;
	compile_code(c, code->otherwise);
	compile_put_label(c, end);
	compile_leave_place(c, &before);
}

void compile_code(struct compiler *c, const struct mdl_code *code)
{
	struct operand ignored;

	for (; code && !c->failed; code = code->next) {
		c->at = &code->place;
		if (is_left_out(c, code))
			continue;
		switch (code->kind) {
		case MDL_CODE_EXPR:
			compile_operand(c, code->expr, &ignored);
			break;
		case MDL_CODE_IF:
			compile_choice(c, code);
			break;
		case MDL_CODE_BLOCK:
			compile_code(c, code->first);
			break;
		}
	}
}

/* ------------------------------------------------------------ conditions */

static void branch_both(struct compiler *c, const struct mdl_expr *x, bool when, unsigned label)
{
	/* a && b is false where one is; a || b is true where one is. */
	const bool decides = x->op == MDL_OP_EITHER;
	const unsigned skip = when == decides ? label : compile_label(c);
	bool left;

	compile_branch(c, x->left, decides, skip);
	left = c->place_there;
	compile_branch(c, x->right, when == decides ? decides : !decides, label);
	/* Which object it is, all ways to one place must say. */
	if (when == decides) {
		c->place_there &= left;
		return;
	}
	compile_put_label(c, skip);
	c->place_known &= left;
}

static void branch_compared(struct compiler *c, const struct mdl_expr *x, unsigned condition,
			    bool when, unsigned label)
{
	static const uint8_t inverse[] = {
		[ARCH_TEST_EQ] = ARCH_TEST_NE, [ARCH_TEST_NE] = ARCH_TEST_EQ,
		[ARCH_TEST_LT] = ARCH_TEST_GE, [ARCH_TEST_GE] = ARCH_TEST_LT,
		[ARCH_TEST_GT] = ARCH_TEST_LE, [ARCH_TEST_LE] = ARCH_TEST_GT,
	};
	struct operand right;
	unsigned a;

	a = compile_number(c, x->left);
	compile_operand(c, x->right, &right);
	if (!when)
		condition = inverse[condition];
	if (right.kind == OPERAND_CONSTANT)
		compile_if_constant(c, condition, a, right.constant, label);
	else
		compile_if(c, condition, a, compile_load_operand(c, &right, x->right), label);
}

void compile_branch(struct compiler *c, const struct mdl_expr *x, bool when, unsigned label)
{
	const struct mdl_expr *other;
	unsigned condition;

	if (c->failed)
		return;
	if (x->kind == MDL_UNARY && x->op == '!') {
		compile_branch(c, x->left, !when, label);
		return;
	} else if (x->kind == MDL_BINARY && (x->op == MDL_OP_BOTH || x->op == MDL_OP_EITHER)) {
		branch_both(c, x, when, label);
		return;
	} else if (compile_is_any(c, x, &other)) {
		const unsigned place = compile_find_place(c, other);
		const bool equal = x->op == MDL_OP_EQ;

		compile_if_constant(c, when == equal ? ARCH_TEST_NE : ARCH_TEST_EQ, place, 0,
				    label);
		/* Behind a branch that is taken where it is none, it is one; and the other way round. */
		c->place_known = when != equal;
		c->place_there = when == equal;
		return;
	} else if (x->kind == MDL_BINARY && compile_condition_of(x->op, &condition)) {
		branch_compared(c, x, condition, when, label);
	} else {
		compile_if_constant(c, when ? ARCH_TEST_NE : ARCH_TEST_EQ, compile_number(c, x), 0,
				    label);
	}
	c->place_there = c->place_known;
}
