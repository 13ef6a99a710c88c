/* SPDX-License-Identifier: MIT */
/*
 * batch_pairs.c - windows that wait, or are somebody else's: entries are not patched
 * without the exits of their functions, whatever else is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "mutator/batch_private.h"

enum { SITES = 6, LINKS = 2 };

struct scene {
	struct site sites[SITES], *all[SITES];
	struct link links[SITES][LINKS];
	bool waits[SITES], foreign[SITES];
	struct batch batch;
};

static void put(struct scene *s, size_t site, size_t n, enum point_kind kind, uint32_t pair)
{
	struct link *l = &s->links[site][n];

	*l = (struct link){.site = &s->sites[site], .kind = (uint8_t)kind};
	l->snippet.pair = pair;
	l->next = s->sites[site].first_link;
	s->sites[site].first_link = l;
}

/*
 * Function 1 has an entry and two exits, the second of which is the entry of function 2,
 * whose exit is apart; function 3 has an entry and an exit; and something counts.
 */
static struct scene *begin(void)
{
	struct scene *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	for (size_t n = 0; n < SITES; n++) {
		s->all[n] = &s->sites[n];
		s->sites[n].key.start = 16 * (n + 1);
	}
	put(s, 0, 0, POINT_ENTRY, 1);
	put(s, 1, 0, POINT_EXIT, 1);
	put(s, 2, 0, POINT_EXIT, 1);
	put(s, 2, 1, POINT_ENTRY, 2);
	put(s, 3, 0, POINT_EXIT, 2);
	put(s, 4, 0, POINT_ENTRY, 3);
	put(s, 5, 0, POINT_EXIT, 3);
	put(s, 5, 1, POINT_ENTRY, 0);
	s->batch = (struct batch){.sites = s->all,
				  .count = SITES,
				  .waits = s->waits,
				  .foreign = s->foreign,
				  .lost = calloc(PAIR_ID_MASK + 1, 1)};
	assert_non_null(s->batch.lost);
	return s;
}

static void end(struct scene *s)
{
	free(s->batch.lost);
	free(s);
}

static void are(const bool *got, const char *wanted)
{
	for (size_t n = 0; n < SITES; n++)
		assert_int_equal(got[n], wanted[n] == '1');
}

static void test_nothing(void **state)
{
	struct scene *s = begin();

	(void)state;
	batch_share_pairs(&s->batch, NULL);
	are(s->waits, "000000");
	are(s->foreign, "000000");
	end(s);
}

/* An exit that waits keeps its entry, and so what ends there; others go on. */
static void test_waits(void **state)
{
	struct scene *s = begin();

	(void)state;
	s->waits[3] = true;
	batch_share_pairs(&s->batch, NULL);
	are(s->waits, "101100");
	are(s->foreign, "000000");
	end(s);
}

/* An exit without its entry changes nothing. */
static void test_entry(void **state)
{
	struct scene *s = begin();

	(void)state;
	s->waits[0] = s->waits[4] = true;
	batch_share_pairs(&s->batch, NULL);
	are(s->waits, "100010");
	end(s);
}

static void test_foreign(void **state)
{
	struct scene *s = begin();

	(void)state;
	s->foreign[5] = true;
	s->waits[1] = true;
	batch_share_pairs(&s->batch, NULL);
	are(s->foreign, "000011");
	are(s->waits, "110000");
	end(s);
}

/* What is in the tail of a window is told to be unwritable where that is why the window is refused. */
static void test_unwritable(void **state)
{
	struct scene *s = begin();

	(void)state;
	s->foreign[3] = s->sites[3].unwritable = true;
	s->sites[1].host = &s->sites[3];
	batch_share_fate(&s->batch, NULL);
	assert_true(s->foreign[1]);
	for (size_t n = 0; n < SITES; n++)
		assert_int_equal(s->sites[n].unwritable, n == 1 || n == 3);
	end(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing),	   cmocka_unit_test(test_waits),
		cmocka_unit_test(test_entry),	   cmocka_unit_test(test_foreign),
		cmocka_unit_test(test_unwritable),
	};

	return cmocka_run_group_tests_name("unit/batch_pairs", tests, NULL, NULL);
}
