/* SPDX-License-Identifier: MIT */
/*
 * print.c - expressions as text again, for people: as they would be written,
 * with the blanks that one would leave. Must never be parsed by anything of ours.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "mutator/mdl/mdl.h"

enum { DEPTH_MOST = 64 };

struct print {
	char *text;
	size_t size, used;
	unsigned depth;
};

__attribute__((format(printf, 2, 3))) static void add(struct print *p, const char *format, ...)
{
	va_list args;
	int n;

	if (p->used + 1 >= p->size)
		return;
	va_start(args, format);
	n = vsnprintf(p->text + p->used, p->size - p->used, format, args);
	va_end(args);
	if (n > 0)
		p->used += (size_t)n;
	if (p->used >= p->size)
		p->used = p->size - 1;
}

static const char *const operators[] = {
	[MDL_OP_MUL] = "*",   [MDL_OP_DIV] = "/",     [MDL_OP_REM] = "%",  [MDL_OP_ADD] = "+",
	[MDL_OP_SUB] = "-",   [MDL_OP_SHL] = "<<",    [MDL_OP_SHR] = ">>", [MDL_OP_LT] = "<",
	[MDL_OP_LE] = "<=",   [MDL_OP_GT] = ">",      [MDL_OP_GE] = ">=",  [MDL_OP_EQ] = "==",
	[MDL_OP_NE] = "!=",   [MDL_OP_AND] = "&",     [MDL_OP_XOR] = "^",  [MDL_OP_OR] = "|",
	[MDL_OP_BOTH] = "&&", [MDL_OP_EITHER] = "||",
};

static void print(struct print *p, const struct mdl_expr *x);

/* An operand: in parentheses where it has operators of its own. */
static void operand(struct print *p, const struct mdl_expr *x)
{
	const bool wrap =
		x && (x->kind == MDL_BINARY || x->kind == MDL_CHOICE || x->kind == MDL_ASSIGN);

	add(p, "%s", wrap ? "(" : "");
	print(p, x);
	add(p, "%s", wrap ? ")" : "");
}

static void call(struct print *p, const struct mdl_expr *x)
{
	add(p, "%s(", x->text ? x->text : "");
	for (size_t i = 0; i < x->arg_count; i++) {
		add(p, "%s", i ? ", " : "");
		print(p, x->args[i]);
	}
	add(p, ")");
}

static void two(struct print *p, const struct mdl_expr *x)
{
	operand(p, x->left);
	if (x->kind == MDL_BINARY)
		add(p, " %s ",
		    (size_t)x->op < sizeof(operators) / sizeof(*operators) ? operators[x->op]
									   : "?");
	else if (x->op)
		add(p, " %c= ", x->op);
	else
		add(p, " = ");
	operand(p, x->right);
}

static bool is_negative(const struct mdl_expr *x)
{
	return x && x->kind == MDL_UNARY && x->op == '-';
}

static void one(struct print *p, const struct mdl_expr *x)
{
	switch (x->kind) {
	case MDL_INTEGER:
		add(p, "%" PRId64, x->number);
		break;
	case MDL_STRING:
		add(p, "\"%s\"", x->text ? x->text : "");
		break;
	case MDL_ARGUMENT:
		add(p, "$arg[%" PRId64 "]", x->number);
		break;
	case MDL_CONSTRAINT:
		add(p, "$constraint[");
		print(p, x->left);
		add(p, "]");
		break;
	case MDL_ATTRIBUTE:
		operand(p, x->left);
		add(p, ".%s", x->text ? x->text : "");
		break;
	case MDL_INDEX:
		operand(p, x->left);
		add(p, "[");
		print(p, x->right);
		add(p, "]");
		break;
	case MDL_CALL:
		call(p, x);
		break;
	case MDL_STEP:
		operand(p, x->left);
		add(p, "%s", x->number < 0 ? "--" : "++");
		break;
	case MDL_ADDRESS:
		add(p, "&");
		operand(p, x->left);
		break;
	case MDL_UNARY:
		/* two signs side by side are a step: - -x is not --x */
		add(p, "%c%s", x->op, is_negative(x) && is_negative(x->left) ? " " : "");
		operand(p, x->left);
		break;
	case MDL_BINARY:
	case MDL_ASSIGN:
		two(p, x);
		break;
	case MDL_CHOICE:
		operand(p, x->condition);
		add(p, " ? ");
		operand(p, x->left);
		add(p, " : ");
		operand(p, x->right);
		break;
	default:
		add(p, "%s", x->text ? x->text : "?");
		break;
	}
}

static void print(struct print *p, const struct mdl_expr *x)
{
	if (!x || p->depth == DEPTH_MOST) {
		add(p, "...");
		return;
	}
	p->depth++;
	one(p, x);
	p->depth--;
}

void mdl_expr_text(const struct mdl_expr *x, char *text, size_t size)
{
	struct print p = {.text = text, .size = size};

	if (size)
		text[0] = '\0';
	print(&p, x);
}
