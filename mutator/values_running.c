/* SPDX-License-Identifier: MIT */
/*
 * values_running.c - what timers measure while they run, which is in no total
 * yet: whose it is, and what of it is nobody's any more.
 */
#include <stdlib.h>

#include "mutator/threads.h"
#include "mutator/values_private.h"

struct attribution {
	struct vector *vector;
	const struct variable *timer;
	bool by_thread; /* the keys are ids of threads; else a flag holds the place */
};

/* Adds what runs in a thread to the element that will get it when it stops. */
static void attribute(void *arg, pid_t tid, uint64_t word, uint64_t units)
{
	const struct attribution *a = arg;
	const int64_t ns =
		(int64_t)(a->timer->clock == ARCH_CLOCK_TICKS ? ticks_to_ns(units) : units);

	for (size_t k = 0; k < a->vector->count; k++) {
		struct element *element = &a->vector->elements[k];

		if (a->by_thread ? !element->other && element->key == (uint64_t)tid
				 : (word & INT32_MAX) == (uint64_t)element->number + 1) {
			element->value.value += ns;
			return;
		}
	}
}

/* Totals have what timers measured until they stopped; what runs now is in the threads' records. */
int values_add_running(const struct instance *i, struct vector *out, struct dinst_error *e)
{
	const struct instance *source = instance_source(i);
	const struct variable *own = source->variable_count ? source->variables[0] : NULL;
	struct attribution a = {
		.vector = out, .timer = own, .by_thread = values_is_of(i, "/Process")};
	uint32_t beside = 0;

	if (!a.timer || a.timer->form != VARIABLE_TIMER || !a.timer->record_offset ||
	    a.timer->still)
		return 0;
	for (size_t f = 0; f < source->flag_count; f++)
		if (source->flags[f]->table == source->table && source->flags[f]->variable_count)
			beside = source->flags[f]->variables[0]->record_offset;
	if (!a.by_thread && !beside)
		return 0;
	return threads_each_running(i->session, a.timer->record_offset, a.timer->clock, beside,
				    attribute, &a, e);
}

int values_keep_running(struct instance *i, struct dinst_error *e)
{
	struct vector v;
	int status;

	if (!i->base_count || !values_is_vector(i) ||
	    instance_source(i)->variables[0]->form != VARIABLE_TIMER)
		return 0;
	status = values_vector(i, &v, e);
	if (status < 0)
		return status;
	for (size_t k = 0; k < v.count; k++)
		if (v.elements[k].number < i->base_count)
			i->bases[v.elements[k].number].value += v.elements[k].value.value;
	values_vector_release(&v);
	return 0;
}

/* What each element is worth now, or the timer itself. */
static int read_all(struct instance *i, struct variable *v, int64_t *values, struct dinst_error *e)
{
	struct vector vector;
	int status;

	if (!values_is_vector(i))
		return variable_read_row(i->session, v, 0, v->elements, values, e);
	status = values_vector(i, &vector, e);
	if (status < 0)
		return status;
	for (size_t k = 0; k < vector.count; k++)
		if (vector.elements[k].number < v->elements)
			values[vector.elements[k].number] = vector.elements[k].value.value;
	values_vector_release(&vector);
	return 0;
}

void values_stand_still(struct instance *i)
{
	struct variable *v = i->variable_count ? i->variables[0] : NULL;
	struct dinst_error ignored = {0};
	int64_t *values;

	if (!v || v->form != VARIABLE_TIMER || v->still)
		return;
	values = calloc(v->elements, sizeof(*values));
	if (values && read_all(i, v, values, &ignored) >= 0)
		v->still = values;
	else
		free(values);
}
