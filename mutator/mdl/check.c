/* SPDX-License-Identifier: MIT */
/*
 * check.c - declarations: duplicates and what is missing.
 */
#include "mutator/mdl/check.h"

void check_unit(struct parser *p)
{
	for (struct mdl_metric *m = p->unit.metrics; m; m = m->next)
		if (!m->base)
			parser_error(p, &m->place, "metric '%s' has no base", m->id);
}
