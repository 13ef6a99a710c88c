/* SPDX-License-Identifier: MIT */
/*
 * flow_ways.c - an index of a flow's branches by where they lead: a list for
 * each byte, in the order of the instructions. It is made when somebody asks,
 * since most functions have nothing that is worth it.
 */
#include "mutator/flow_ways.h"

#include <stdlib.h>

static void forget(struct flow_ways *w)
{
	free(w->first);
	free(w->next);
	free(w->switches);
	free(w->stores);
	free(w->asked);
	free(w->todo);
	w->first = NULL;
	w->next = NULL;
	w->switches = NULL;
	w->stores = NULL;
	w->asked = NULL;
	w->todo = NULL;
	w->store_count = 0;
	w->insns = 0;
	w->judged = false;
}

static int make(const struct flow *f, struct flow_ways *w, struct dinst_error *e)
{
	w->first = calloc(f->byte_count + 1, sizeof(*w->first));
	w->next = calloc(f->insns.count + 1, sizeof(*w->next));
	w->switches = calloc(f->insns.count + 1, sizeof(*w->switches));
	w->asked = calloc(f->insns.count + 1, sizeof(*w->asked));
	w->todo = calloc(f->insns.count + 1, sizeof(*w->todo));
	if (!w->first || !w->next || !w->switches || !w->asked || !w->todo) {
		forget(w);
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for the branches of a function");
	}
	for (size_t i = f->insns.count; i-- > 0;) {
		long at = flow_byte(f, f->insns.items[i].target);

		if (at < 0)
			continue;
		w->next[i] = w->first[at];
		w->first[at] = (uint32_t)i + 1;
	}
	w->insns = f->insns.count;
	return 0;
}

int flow_ways_find(struct flow *f, struct dinst_error *e)
{
	if (!f->ways)
		f->ways = calloc(1, sizeof(*f->ways));
	if (!f->ways)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for the branches of a function");
	/* Instructions are only ever added. */
	if (f->ways->first && f->ways->insns == f->insns.count)
		return 0;
	forget(f->ways);
	return make(f, f->ways, e);
}

void flow_ways_forget(struct flow *f)
{
	if (f->ways)
		forget(f->ways);
}

void flow_ways_release(struct flow *f)
{
	flow_ways_forget(f);
	free(f->ways);
	f->ways = NULL;
}
