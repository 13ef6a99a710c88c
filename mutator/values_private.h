/* SPDX-License-Identifier: MIT */
/*
 * values_private.h - vectors as they are read; for values*.c only.
 */
#ifndef DINST_MUTATOR_VALUES_PRIVATE_H
#define DINST_MUTATOR_VALUES_PRIVATE_H

#include <limits.h>

#include "mutator/values.h"
#include "mutator/variable.h"

enum { ELEMENT_NO_NUMBER = INT_MAX };

struct element {
	unsigned number; /* ELEMENT_NO_NUMBER: its key has no place yet */
	bool other;	 /* of keys without a place */
	uint64_t key;
	struct variable_value value;
};

struct vector {
	struct element *elements; /* room for places + 1 */
	size_t count;
	size_t places; /* that keys have or may have */
	uint64_t full;
	bool unseen; /* what runs now is not in it: the target may not be looked at any more */
};

/* values.c */
bool values_is_vector(const struct instance *i);
/* True if the instance is one of all objects of that hierarchy. */
bool values_is_of(const struct instance *i, const char *hierarchy);
/* Elements that have a key, with their values, and the one of keys without a place if it is used. */
int values_vector(const struct instance *i, struct vector *out, struct dinst_error *e);
void values_vector_release(struct vector *v);

/* Likewise without what runs now; what *out has is read anew. */
int values_totals(const struct instance *i, struct vector *out, struct dinst_error *e);

/*
 * values_running.c: values_totals(), and to each element what it has from timers that run, as both were at one
 * moment. Where a key has none, since it gets its place when a timer stops, it is appended, or goes to that of keys
 * without a place. Reading gives no key a place: many a forked child never stops what it inherits.
 */
int values_with_running(const struct instance *i, struct vector *out, struct dinst_error *e);

#endif
