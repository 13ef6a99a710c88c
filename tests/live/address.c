/* SPDX-License-Identifier: MIT */
/*
 * address.c - what a snippet at a load or a store learns about it: the address,
 * in all forms of operands, against a program that knows where its accesses go.
 * Beside it the same access is counted, by a snippet that shares its place.
 */
#include "tests/live/harness_session.h"

#include "mutator/access.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ACCESSES_MAX = 64 };

struct access {
	char name[32];
	enum point_kind kind;
	uint64_t address;
	unsigned id, count;
};

static const struct raw_metric metrics[2][2] = {
	{{"load", "", "/Code", POINT_LOAD, SNIPPET_ADDRESS},
	 {"store", "", "/Code", POINT_STORE, SNIPPET_ADDRESS}},
	{{"loads", "", "/Code", POINT_LOAD, SNIPPET_COUNT},
	 {"stores", "", "/Code", POINT_STORE, SNIPPET_COUNT}},
};

static unsigned insert(struct session *s, const char *function, const struct raw_metric *metric)
{
	const char *const foci[] = {function};
	struct dinst_error e = {0};
	struct insert_result result;
	unsigned tries = 0, id;
	int status;

	do {
		dinst_error_clear(&e);
		if (tries)
			usleep(20000);
		status = request_insert_raw(s, metric, foci, 1, false, &result, &e);
	} while (status == DINST_BUSY && ++tries < 50);
	if (status < 0)
		fail_msg("%s %s: %s", function, metric->name, e.text);
	id = result.instances[0]->id;
	free(result.instances);
	return id;
}

/* The program's own list: "NAME load|store ADDRESS" lines, then "end". */
static size_t ask(struct harness *h, struct access *accesses)
{
	size_t count = 0;

	harness_send(h, "list\n");
	for (;;) {
		const char *line = harness_line(h, HARNESS_ANSWER_MS);
		struct access *a = &accesses[count];
		char kind[16];

		if (!strcmp(line, "end"))
			return count;
		assert_true(count < ACCESSES_MAX);
		assert_int_equal(sscanf(line, "%31s %15s %lu", a->name, kind, &a->address), 3);
		a->kind = !strcmp(kind, "load") ? POINT_LOAD : POINT_STORE;
		count++;
	}
}

static void check(struct session *s, const struct access *a)
{
	if (session_value(s, a->id) != a->address)
		fail_msg("%s: address %#llx, not %#llx", a->name,
			 (unsigned long long)session_value(s, a->id),
			 (unsigned long long)a->address);
}

static void test_each_form(void **state)
{
	struct harness *h = *state;
	struct access accesses[ACCESSES_MAX];
	struct session *s;
	size_t count;

	harness_start(h, "address", NULL);
	session_go(h, 1);
	count = ask(h, accesses);
	assert_true(count > 20);
	s = session_begin(h);
	for (size_t i = 0; i < count; i++) {
		struct access *a = &accesses[i];

		a->id = insert(s, a->name, &metrics[0][a->kind == POINT_STORE]);
		assert_int_equal(session_refused(s, a->id), 0);
	}
	session_go(h, 3);
	for (size_t i = 0; i < count; i++)
		check(s, &accesses[i]);
	session_end(s);
	harness_verify(h);
	session_go(h, 1);
	harness_end(h, 0);
}

/* With a counter at the same place, before the address and behind it. */
static void test_beside_counters(void **state)
{
	struct harness *h = *state;
	struct access accesses[ACCESSES_MAX];
	struct session *s;
	size_t count;

	harness_start(h, "address", NULL);
	session_go(h, 1);
	count = ask(h, accesses);
	s = session_begin(h);
	for (size_t i = 0; i < count; i++) {
		struct access *a = &accesses[i];
		bool store = a->kind == POINT_STORE;

		a->count = insert(s, a->name, &metrics[1][store]);
		a->id = insert(s, a->name, &metrics[0][store]);
		insert(s, a->name, &metrics[1][store]);
	}
	session_go(h, 100);
	for (size_t i = 0; i < count; i++) {
		check(s, &accesses[i]);
		assert_true(session_value(s, accesses[i].count) >= 100);
		assert_int_equal(session_value(s, accesses[i].count) % 100, 0);
	}
	/* Removed while others stay: the values stop where they are. */
	for (size_t i = 0; i < count; i += 2)
		session_remove(s, accesses[i].id);
	session_flush_all(s);
	session_go(h, 100);
	for (size_t i = 1; i < count; i += 2)
		check(s, &accesses[i]);
	session_end(s);
	harness_verify(h);
	session_go(h, 1);
	harness_end(h, 0);
}

/* What goes into the word comes out of it. */
static void test_packed(void **state)
{
	static const int64_t offsets[] = {0, 1, -1, INT32_MAX, INT32_MIN, 0x7fffffffff};
	const uint8_t registers[] = {0, 4, 12, 31, ARCH_NO_REGISTER};

	(void)state;
	for (size_t o = 0; o < sizeof(offsets) / sizeof(offsets[0]); o++)
		for (size_t b = 0; b < sizeof(registers); b++)
			for (size_t i = 0; i < sizeof(registers); i++) {
				struct arch_memory in = {.computable = true,
							 .base = registers[b],
							 .index = registers[i],
							 .shift = 3,
							 .offset = offsets[o]},
						   out;
				bool absolute =
					in.base == ARCH_NO_REGISTER && in.index == ARCH_NO_REGISTER;
				uint64_t word;
				size_t pushed;
				bool fits =
					absolute ? in.offset >= 0 : in.offset < INT64_C(1) << 35;

				assert_int_equal(access_pack(&in, 8, &word), fits);
				if (!fits)
					continue;
				access_unpack(word, &out, &pushed);
				assert_int_equal(out.base, in.base);
				assert_int_equal(out.index, in.index);
				assert_true(out.offset == in.offset);
				assert_int_equal(pushed, absolute ? 0 : 8);
				assert_true(absolute || out.shift == in.shift);
			}
	assert_false(access_pack(&(struct arch_memory){.computable = false}, 0, &(uint64_t){0}));
}

/*
 * Of a register that is changed on a condition before the access nobody may ask too early: what has no
 * other place is refused.
 */
static void test_changed_perhaps(void **state)
{
	static const char *const foci[] = {"a_store_chosen"};
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct insert_result result;
	struct session *s;

	harness_start(h, "address", NULL);
	session_go(h, 1);
	s = session_begin(h);
	assert_int_equal(request_insert_raw(s, &metrics[0][1], foci, 1, false, &result, &e),
			 DINST_REFUSED);
	session_end(s);
	harness_verify(h);
	session_go(h, 1);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_packed),
		cmocka_unit_test_setup_teardown(test_each_form, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_beside_counters, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_changed_perhaps, harness_setup,
						harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
