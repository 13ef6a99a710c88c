/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
/* standin_request.c - goes when the parts are there. */
#include "mutator/compile.h"
#include "mutator/request.h"

#define WEAK __attribute__((weak))
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
