/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
/* standin_request.c - goes when the parts are there. */
#include "mutator/compile.h"
#include "mutator/request.h"

#define WEAK __attribute__((weak))
WEAK int compile(const struct compile_request *r, struct compiled *out, struct dinst_error *e)
{
	struct arch_op *op = calloc(2, sizeof(*op));
	(void)e;
	if (r->mode != COMPILE_POINT || !r->variable_count) {
		free(op);
		return 0;
	}
	op->kind = ARCH_OP_COUNT;
	op->number = variable_counter(r->variables[0], r->place);
	op->immediate = 1;
	out->program = (struct arch_program){.ops = op, .count = 1, .room = 2, .values = 2};
	out->shared = true;
	out->cost_ps = 1000;
	return 0;
}
WEAK int compile_choose_forms(const struct mdl_plan *plan, struct variable *const *v, size_t n,
			      struct dinst_error *e)
{
	(void)plan;
	(void)v;
	(void)n;
	(void)e;
	return 0;
}
WEAK int threads_catch_up(struct session *s, struct stop *stop,
			  const struct threads_function *functions, size_t function_count,
			  const struct threads_late *late, size_t late_count, size_t *threads,
			  size_t *unwalked, struct dinst_error *e)
{
	(void)s;
	(void)stop;
	(void)functions;
	(void)function_count;
	(void)late;
	(void)late_count;
	(void)threads;
	(void)unwalked;
	(void)e;
	return 0;
}
WEAK int threads_may_call(struct session *s, struct dinst_error *e)
{
	(void)s;
	(void)e;
	return 1;
}
