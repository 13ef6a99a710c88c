/* SPDX-License-Identifier: MIT */
/*
 * values_private.h - vectors as they are read; for values*.c only.
 */
#ifndef DINST_MUTATOR_VALUES_PRIVATE_H
#define DINST_MUTATOR_VALUES_PRIVATE_H

#include "mutator/values.h"
#include "mutator/variable.h"

struct element {
	unsigned number;
	bool other; /* of keys without a place */
	uint64_t key;
	struct variable_value value;
};

struct vector {
	struct element *elements;
	size_t count;
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

/* values_running.c: to each element what it has from timers that run now. */
int values_add_running(const struct instance *i, struct vector *out, struct dinst_error *e);

#endif
