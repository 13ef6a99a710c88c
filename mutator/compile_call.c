/* SPDX-License-Identifier: MIT */
/*
 * compile_call.c - functions of the target that inserted code may call: only
 * those of which it is proved that nothing can happen (no loop, no call, no
 * system call, nothing written but below the stack pointer).
 */
#include "mutator/compile_private.h"

void compile_call(struct compiler *c, const struct mdl_expr *x, struct operand *out)
{
	*out = operand_constant(0);
	compile_fail(
		c, &x->place, DINST_USAGE,
		"'%s': functions of the program cannot be called from inserted code, since it is "
		"not proved to be safe",
		x->text ? x->text : "");
}
