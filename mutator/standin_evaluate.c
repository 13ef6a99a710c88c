/* SPDX-License-Identifier: MIT */
/* standin_evaluate.c - goes when types.c is there. */
#include "mutator/types.h"

__attribute__((weak)) int data_symbol_find(const struct module_list *modules, const char *name,
					   struct data_symbol *out, struct dinst_error *e)
{
	(void)modules;
	(void)out;
	return dinst_fail(e, DINST_NO_FUNCTION, "no variable '%s'", name);
}
