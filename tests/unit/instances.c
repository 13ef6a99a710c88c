/* SPDX-License-Identifier: MIT */
/*
 * instances.c - how one instance is found among many: by number, by the hash of
 * its focus, oldest first; and that lists and index agree after random changes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "mutator/request.h"

enum { MANY = 3000, FOCI = 700, CHANGES = 20000 };

static struct instance *make(struct session *s, unsigned focus)
{
	struct dinst_error e = {0};
	char text[32];
	struct instance *i;

	snprintf(text, sizeof(text), "/Code/m/f%u", focus);
	i = instance_new(s, "calls", "calls", text, &e);
	assert_non_null(i);
	return i;
}

/* The session's list goes by number, and each is found by its own and by its focus. */
static void check(const struct session *s, size_t numbered)
{
	struct instance *const *at = &s->instances;
	unsigned last = 0;
	size_t count = 0;

	for (struct instance *i = s->instances; i; at = &i->next, i = i->next) {
		bool found = false;

		assert_true(i->id > last);
		assert_ptr_equal(i->link, at);
		assert_ptr_equal(session_instance(s, i->id), i);
		for (struct instance *k = instances_of_hash(s, i->hash); k;
		     k = instances_next_of_hash(k, i->hash))
			found |= k == i;
		assert_true(found);
		last = i->id;
		count++;
	}
	assert_int_equal(count, numbered);
	assert_ptr_equal(s->instances_end, at);
}

static void test_random(void **state)
{
	struct session s = {.next_id = 1};
	struct instance **all = calloc(MANY, sizeof(*all));
	size_t numbered = 0;

	(void)state;
	assert_non_null(all);
	srand(4711);
	for (unsigned n = 0; n < CHANGES; n++) {
		struct instance **one = &all[(unsigned)rand() % MANY];
		const unsigned id = *one ? (*one)->id : 0;

		if (!*one) {
			*one = make(&s, (unsigned)rand() % FOCI);
			instances_number(&s, *one);
			numbered++;
		} else if (id && rand() % 2) {
			instances_take_out(&s, *one);
			instances_unnumber(&s, *one);
			instances_push(&s.hidden, *one);
			assert_null(session_instance(&s, id));
			numbered--;
		} else {
			numbered -= id != 0;
			instances_take_out(&s, *one);
			instance_free(*one);
			*one = NULL;
			assert_true(!id || !session_instance(&s, id));
		}
		if (n % 500 == 0)
			check(&s, numbered);
	}
	check(&s, numbered);
	for (size_t n = 0; n < MANY; n++) {
		if (!all[n])
			continue;
		instances_take_out(&s, all[n]);
		instance_free(all[n]);
	}
	assert_null(s.instances);
	assert_null(s.hidden);
	assert_int_equal(s.index.count, 0);
	instances_release(&s);
	free(all);
}

static void test_order(void **state)
{
	struct session s = {.next_id = 1};
	struct instance *same[5], *list = NULL;
	size_t n = 0;

	(void)state;
	assert_null(session_instance(&s, 1));
	assert_null(instances_of_hash(&s, 1));
	for (n = 0; n < 5; n++)
		same[n] = make(&s, 7);
	/* Whether they have numbers, and in which list they are, says nothing about the order. */
	instances_number(&s, same[3]);
	instances_number(&s, same[1]);
	instances_push(&list, same[0]);
	instances_push(&list, same[2]);
	instances_adopt(&s, &list);
	assert_null(list);
	n = 0;
	for (struct instance *i = instances_of_hash(&s, same[0]->hash); i;
	     i = instances_next_of_hash(i, same[0]->hash))
		assert_ptr_equal(i, same[n++]);
	assert_int_equal(n, 5);
	assert_ptr_equal(session_instance(&s, 1), same[3]);
	assert_ptr_equal(session_instance(&s, 2), same[1]);
	assert_null(session_instance(&s, 0));
	assert_null(session_instance(&s, 3));
	for (n = 0; n < 5; n++) {
		instances_take_out(&s, same[n]);
		instance_free(same[n]);
	}
	instances_release(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
