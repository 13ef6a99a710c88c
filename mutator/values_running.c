/* SPDX-License-Identifier: MIT */
/*
 * values_running.c - what timers measure while they run, which is in no total
 * yet: whose it is, and what of it is nobody's any more.
 */
#include <stdlib.h>

#include "mutator/threads.h"
#include "mutator/values_private.h"

/* What tells whose it is: the word of a flag, which holds the place, or the key itself. */
enum whose { OF_FLAG, OF_THREAD, OF_PROCESS };

struct attribution {
	const struct instance *instance;
	struct vector *vector;
	const struct variable *timer;
	enum whose whose;
	struct dinst_error *e;
	int status;
};

static struct element *element_of(const struct attribution *a, uint64_t key, uint64_t word)
{
	for (size_t k = 0; k < a->vector->count; k++) {
		struct element *element = &a->vector->elements[k];

		if (a->whose != OF_FLAG ? !element->other && element->key == key
					: (word & INT32_MAX) == (uint64_t)element->number + 1)
			return element;
	}
	return NULL;
}

/* For a key that gets its place when the timer stops: as it will be then, if nobody comes before. */
static struct element *new_element(struct attribution *a, uint64_t key)
{
	struct vector *v = a->vector;
	struct element *other = NULL, *added;
	size_t taken = 0;

	for (size_t k = 0; k < v->count; k++)
		if (v->elements[k].other)
			other = &v->elements[k];
		else
			taken++;
	if (taken == v->places && other)
		return other;
	added = &v->elements[v->count];
	*added = (struct element){.number = ELEMENT_NO_NUMBER, .key = key};
	if (taken == v->places) {
		*added = (struct element){.number = (unsigned)v->places, .other = true};
		a->status = instance_read(a->instance, added->number, &added->value, a->e);
		if (a->status < 0)
			return NULL;
	}
	v->count++;
	return added;
}

/* Adds what runs in a thread to the element that will get it when it stops. */
static void attribute(void *arg, const struct threads_running *r)
{
	struct attribution *a = arg;
	const uint64_t key = (uint64_t)(a->whose == OF_PROCESS ? r->pid : r->tid);
	struct element *element = element_of(a, key, r->word);

	/* Where keys were given, what others do is none of its business. */
	if (!element && a->whose != OF_FLAG && key && !instance_source(a->instance)->table->keys &&
	    a->status >= 0)
		element = new_element(a, key);
	if (element)
		element->value.value +=
			(int64_t)(a->timer->clock == ARCH_CLOCK_TICKS ? ticks_to_ns(r->units)
								      : r->units);
}

static enum whose whose_of(const struct instance *i)
{
	if (values_is_of(i, "/Process"))
		return OF_THREAD;
	return values_is_of(i, "/Machine") ? OF_PROCESS : OF_FLAG;
}

static int read_totals(void *arg, struct dinst_error *e)
{
	const struct attribution *a = arg;

	return values_totals(a->instance, a->vector, e);
}

/* Totals have what timers measured until they stopped; what runs now is in the threads' records. */
int values_with_running(const struct instance *i, struct vector *out, struct dinst_error *e)
{
	const struct instance *source = instance_source(i);
	const struct variable *own = source->variable_count ? source->variables[0] : NULL;
	struct attribution a = {
		.instance = i, .vector = out, .timer = own, .whose = whose_of(i), .e = e};
	uint32_t beside = 0;
	int status;

	if (!a.timer || a.timer->form != VARIABLE_TIMER || !a.timer->record_offset ||
	    a.timer->still)
		return values_totals(i, out, e);
	for (size_t f = 0; f < source->flag_count; f++)
		if (source->flags[f]->table == source->table && source->flags[f]->variable_count)
			beside = source->flags[f]->variables[0]->record_offset;
	if (a.whose == OF_FLAG && !beside)
		return values_totals(i, out, e);
	status = threads_each_running(i->session,
				      &(struct threads_timer){own->record_offset, own->clock,
							      own->only_pid, own->only_tid},
				      beside, read_totals, attribute, &a, e);
	return status < 0 ? status : a.status;
}

/*
 * Which element goes on having what was read of this one: a key without a place is given the one in which what its
 * timer measures will be when it stops.
 */
static unsigned lasting_number(const struct instance *i, const struct vector *v,
			       const struct element *element)
{
	const struct variable *table = instance_source(i)->table;

	if (element->number == ELEMENT_NO_NUMBER)
		return variable_element_of(table, element->key);
	/* That of keys without a place is one as soon as one of them is counted. */
	if (element->other && !v->full)
		return variable_element_of(table, UINT64_MAX);
	return element->number;
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
	for (size_t k = 0; k < v.count; k++) {
		const unsigned number = lasting_number(i, &v, &v.elements[k]);

		if (number < i->base_count)
			i->bases[number].value += v.elements[k].value.value;
	}
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
	for (size_t k = 0; k < vector.count; k++) {
		const unsigned number = lasting_number(i, &vector, &vector.elements[k]);

		/* That of keys without a place may be there already. */
		if (number < v->elements)
			values[number] += vector.elements[k].value.value;
	}
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
