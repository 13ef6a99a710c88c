/* SPDX-License-Identifier: MIT */
/*
 * mdl_text.h - trees of MDL as text, so that tests can compare them, and texts
 * that are to load or not.
 */
#ifndef DINST_TESTS_MDL_TEXT_H
#define DINST_TESTS_MDL_TEXT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "mutator/mdl/mdl.h"

enum { SHOWN_MAX = 8192 };

struct shown {
	char text[SHOWN_MAX];
	size_t used;
};

static inline void show(struct shown *s, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static inline void show(struct shown *s, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(s->text + s->used, sizeof(s->text) - s->used, format, args);
	va_end(args);
	assert_true(n >= 0 && s->used + (size_t)n < sizeof(s->text));
	s->used += (size_t)n;
}

static const char *const mdl_test_operators[] = {"*",  "/", "%",  "+", "-",  "<<",
						 ">>", "<", "<=", ">", ">=", "==",
						 "!=", "&", "^",  "|", "&&", "||"};

/* Prefix notation: (+ a (* b c)). */
static inline void show_expr(struct shown *s, const struct mdl_expr *e)
{
	switch (e->kind) {
	case MDL_INTEGER:
		show(s, "%lld", (long long)e->number);
		return;
	case MDL_STRING:
		show(s, "\"");
		for (size_t i = 0; i < e->text_size; i++) {
			if (e->text[i] > ' ' && e->text[i] < 0x7f)
				show(s, "%c", e->text[i]);
			else
				show(s, "<%02x>", (unsigned char)e->text[i]);
		}
		show(s, "\"");
		return;
	case MDL_ATTRIBUTE:
		show(s, "(. ");
		show_expr(s, e->left);
		show(s, " %s)", e->text);
		return;
	case MDL_INDEX:
		show(s, "([] ");
		break;
	case MDL_CONSTRAINT:
		show(s, "$constraint[%lld]", (long long)e->number);
		return;
	case MDL_ARGUMENT:
		show(s, "$arg[%lld]", (long long)e->number);
		return;
	case MDL_CALL:
		show(s, "(call:%d %s", e->function, e->text);
		for (size_t i = 0; i < e->arg_count; i++) {
			show(s, " ");
			show_expr(s, e->args[i]);
		}
		show(s, ")");
		return;
	case MDL_ASSIGN:
		show(s, e->op ? "(%c= " : "(= ", e->op);
		break;
	case MDL_STEP:
		show(s, "(%s ", e->number > 0 ? "++" : "--");
		break;
	case MDL_ADDRESS:
		show(s, "(& ");
		break;
	case MDL_UNARY:
		show(s, "(%c ", e->op);
		break;
	case MDL_BINARY:
		show(s, "(%s ", mdl_test_operators[e->op]);
		break;
	case MDL_CHOICE:
		show(s, "(? ");
		show_expr(s, e->condition);
		show(s, " ");
		break;
	default:
		show(s, "%s", e->text);
		return;
	}
	show_expr(s, e->left);
	if (e->right) {
		show(s, " ");
		show_expr(s, e->right);
	}
	show(s, ")");
}

static inline void show_code(struct shown *s, const struct mdl_code *c)
{
	switch (c->kind) {
	case MDL_CODE_EXPR:
		show_expr(s, c->expr);
		return;
	case MDL_CODE_IF:
		show(s, "(if ");
		show_expr(s, c->expr);
		show(s, " ");
		show_code(s, c->then);
		if (c->otherwise) {
			show(s, " else ");
			show_code(s, c->otherwise);
		}
		show(s, ")");
		return;
	case MDL_CODE_BLOCK:
		show(s, "{");
		for (const struct mdl_code *each = c->first; each; each = each->next) {
			show(s, each == c->first ? "" : " ");
			show_code(s, each);
		}
		show(s, "}");
		return;
	}
}

static inline void show_statement(struct shown *s, const struct mdl_statement *st)
{
	switch (st->kind) {
	case MDL_BLOCK:
		show(s, "[");
		for (const struct mdl_statement *each = st->first; each; each = each->next) {
			show(s, each == st->first ? "" : " ");
			show_statement(s, each);
		}
		show(s, "]");
		return;
	case MDL_FOREACH:
		show(s, "(foreach %s ", st->variable);
		show_expr(s, st->expr);
		show(s, " ");
		show_statement(s, st->then);
		show(s, ")");
		return;
	case MDL_IF:
		show(s, "(if ");
		show_expr(s, st->expr);
		show(s, " ");
		show_statement(s, st->then);
		if (st->otherwise) {
			show(s, " else ");
			show_statement(s, st->otherwise);
		}
		show(s, ")");
		return;
	case MDL_INSERT:
		show(s, "(%s %s%s ", st->prepend ? "prepend" : "append",
		     st->post_insn ? "post" : "pre", st->unconstrained ? " unconstrained" : "");
		show_expr(s, st->expr);
		show(s, " ");
		show_code(s, st->code);
		show(s, ")");
		return;
	case MDL_GUARD:
		show(s, "(guard ");
		show_code(s, st->code);
		show(s, ")");
		return;
	}
}

static inline struct mdl_library *test_library(void)
{
	struct mdl_library *l = NULL;
	struct dinst_error e = {0};

	assert_int_equal(mdl_library_create(&l, &e), 0);
	return l;
}

static inline void test_load(struct mdl_library *l, const char *text)
{
	struct dinst_error e = {0};

	if (mdl_load_text(l, "test.mdl", text, strlen(text), &e))
		fail_msg("%s\n%s", text, e.text);
}

#endif
