/* SPDX-License-Identifier: MIT */
/*
 * names.c - functions behind several names, behind a resolver, behind a table
 * instead of a stub, in the vdso, and without any name.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutator/evaluate_private.h"
#include "tests/live/harness_session.h"

enum { ROUNDS = 3000 };

static struct session *begin(struct harness *h)
{
	harness_start(h, "names", NULL);
	return session_begin(h);
}

static void finish(struct harness *h, struct session *s)
{
	session_end(s);
	session_go(h, 10);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear F3: three names of one function: found by each, hit once however it is asked for */
static void test_aliases(void **state)
{
	static const char *const foci[] = {"names_real", "names_weak", "names_other"};
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned ids[3], all;

	for (int i = 0; i < 3; i++)
		ids[i] = session_insert_kind(s, foci[i], POINT_ENTRY);
	all = session_insert_kind(s, "/Code/names/names_[row]*", POINT_ENTRY);
	session_go(h, ROUNDS);
	for (int i = 0; i < 3; i++)
		assert_int_equal(session_value(s, ids[i]), ROUNDS);
	assert_int_equal(session_value(s, all), ROUNDS);
	finish(h, s);
}

static unsigned insert_of_list(struct session *s, const char *name, const char *item)
{
	struct dinst_error e = {0};
	char text[512];

	snprintf(text, sizeof(text),
		 "list %s_func is procedure { items { \"%s\" }; }\n"
		 "metric %s { base is counter { foreach f in %s_func\n"
		 "	append preInsn f.entry (* %s++; *) } }\n",
		 name, item, name, name, name);
	if (mdl_load_text(s->library, "test", text, strlen(text), &e) < 0)
		fail_msg("%s", e.text);
	return session_insert_metric(s, name, "/Code", NULL)->id;
}

/*
 * fear F3: names of Go, which look like patterns: each means that one function, in whatever way it is
 * given and whichever modules are looked through; what is no such name is a pattern
 */
static void test_names_like_patterns(void **state)
{
	static const struct {
		const char *name;
		unsigned a_round;
	} cases[] = {
		{"sync.(*Mutex).Lock", 1},
		{"/Code/patterns/sync.(*Mutex).Lock", 1},
		{"/Code/*/sync.(*Mutex).Lock", 1},
		{"patterns:sync.(*Mutex).Lock", 1},
		{"*patterns*:sync.(*Mutex).Lock", 1},
		{"libpatterns.so:sync.(*Mutex).Lock", 16}, /* a glob: it is not there */
		{"sync.(*RWMutex).Lock", 2},
		{"main.Sum[go.shape.int]", 4},
		{"/Code/patterns/main.Sum[go.shape.int]", 4},
		{"main.Sum[opq]", 8},
		{"sync.(*Mutex).Loc*", 19},
		{"main.Sum*", 12},
	};
	enum { CASES = sizeof(cases) / sizeof(cases[0]) };
	struct harness *h = *state;
	unsigned foci[CASES], items[CASES];
	struct session *s;

	harness_start(h, "patterns", NULL);
	s = session_begin(h);
	for (size_t i = 0; i < CASES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "named_%zu", i);
		foci[i] = session_insert_kind(s, cases[i].name, POINT_ENTRY);
		items[i] =
			cases[i].name[0] == '/' ? foci[i] : insert_of_list(s, name, cases[i].name);
	}
	session_go(h, ROUNDS);
	for (size_t i = 0; i < CASES; i++) {
		const uint64_t want = (uint64_t)ROUNDS * cases[i].a_round;

		if (session_value(s, foci[i]) != want || session_value(s, items[i]) != want)
			fail_msg("%s: %llu, in a list %llu, not %llu", cases[i].name,
				 (unsigned long long)session_value(s, foci[i]),
				 (unsigned long long)session_value(s, items[i]),
				 (unsigned long long)want);
	}
	finish(h, s);
}

static size_t refused_as_resolver(const struct session *s, unsigned id)
{
	const struct instance *i = session_instance(s, id);
	size_t count = 0;

	for (size_t n = 0; n < i->refused_count; n++)
		count += i->refused[n].refusal == REFUSAL_IFUNC;
	return count;
}

/*
 * fear F3: memset is chosen by a resolver: its name is refused and says why. Of memcpy there is an
 * older version, too, which nobody calls: that counts nothing, and the refusal is listed. What the
 * resolvers chose counts
 */
static void test_resolver(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	struct dinst_error e = {0};
	unsigned id = 0, old;
	uint64_t value;

	if (session_try_insert_kind(s, "/Code/libc.so.6/memset", POINT_ENTRY, &id, &e) !=
	    DINST_REFUSED)
		fail_msg("memset is not refused: %s", e.text);
	print_message("%s\n", e.text);
	assert_non_null(strstr(e.text, "ifunc"));
	assert_non_null(strstr(e.text, "resolver"));
	old = session_insert_kind(s, "/Code/libc.so.6/memcpy", POINT_ENTRY);
	assert_int_equal(refused_as_resolver(s, old), 1);
	id = session_insert_kind(s, "/Code/libc.so.6/__mem*", POINT_ENTRY);
	session_go(h, ROUNDS);
	value = session_value(s, id);
	/* Reading and writing the line needs some, too. */
	assert_in_range(value, ROUNDS, ROUNDS + 100);
	assert_int_equal(session_value(s, old), 0);
	finish(h, s);
}

/* Where a jump through the table leads is known as that of a call is. */
static void expect_callee(struct session *s, const char *name, const char *callee)
{
	struct dinst_error e = {0};
	struct evaluation v = {.s = s, .e = &e};
	const struct image_function *functions;
	struct function_set callees = {0};
	struct function_ref *found = NULL;
	size_t count = 0, unknown = 0;

	assert_int_equal(find_functions(s->modules, name, &found, &count, &e), 0);
	assert_int_equal(count, 1);
	assert_int_equal(callees_add(&v, found, &callees, &unknown), 0);
	assert_int_equal(unknown, 0);
	assert_int_equal(callees.count, 1);
	image_functions(callees.items[0].module->image, &functions);
	assert_non_null(strstr(functions[callees.items[0].index].name, callee));
	set_release(&callees);
	callees_free(&v);
	free(found);
}

/* fear F3: -fno-plt: calls through the table, counted where they are and where they lead */
static void test_no_plt(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	/* The last call of a function is a jump, which is its exit. */
	unsigned calls = session_insert_kind(s, "names_through_table", POINT_EXIT);
	unsigned copies = session_insert_kind(s, "names_copy", POINT_CALL);
	unsigned entries = session_insert_kind(s, "/Code/libc.so.6/strtol", POINT_ENTRY);

	expect_callee(s, "names_through_table", "strtol");
	expect_callee(s, "names_copy", "mem");
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, calls), ROUNDS);
	assert_int_equal(session_value(s, copies), ROUNDS);
	/* The program itself reads its number with it. */
	assert_in_range(session_value(s, entries), ROUNDS, ROUNDS + 2);
	finish(h, s);
}

/* fear F4: functions of the vdso are refused with the reason; where they are called can be counted */
static void test_vdso(void **state)
{
	static const char *const foci[] = {"/Code/[[]vdso]/*", "[vdso]:__vdso_clock_gettime"};
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id;

	for (int i = 0; i < 2; i++) {
		struct dinst_error e = {0};

		if (session_try_insert_kind(s, foci[i], POINT_ENTRY, &id, &e) >= 0)
			fail_msg("%s was instrumented", foci[i]);
		print_message("%s\n", e.text);
		assert_non_null(strstr(e.text, "vdso"));
	}
	id = session_insert_kind(s, "main", POINT_CALL);
	session_go(h, ROUNDS);
	assert_true(session_value(s, id) > 2 * ROUNDS);
	finish(h, s);
}

/*
 * fear F8: what is inlined everywhere is no function: nothing is inserted, and it is told that
 * the program has it, and what it is part of
 */
static void test_inlined(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	struct dinst_error e = {0};
	unsigned id;

	assert_int_equal(session_try_insert_kind(s, "names_inlined", POINT_ENTRY, &id, &e),
			 DINST_NO_FUNCTION);
	print_message("%s\n", e.text);
	assert_non_null(strstr(e.text,
			       "'names_inlined' has no code of its own in names: the compiler "
			       "has inlined it wherever it is called; measure what it is "
			       "part of: 'main'"));
	e = (struct dinst_error){0};
	assert_int_equal(session_try_insert_kind(s, "names_inlines", POINT_ENTRY, &id, &e),
			 DINST_NO_FUNCTION);
	print_message("%s\n", e.text);
	assert_null(strstr(e.text, "inlined"));
	finish(h, s);
}

/*
 * fear C11: every function of libc and of the loader at entry and exit, memcpy, malloc and
 * clock_gettime among them: what works on the target uses none of it
 */
static void test_all_of_libc(void **state)
{
	static const char *const foci[] = {"/Code/libc.so.6/*", "/Code/ld-linux-x86-64.so.2/*"};
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id = 0;

	for (int i = 0; i < 2; i++)
		for (int kind = POINT_ENTRY; kind <= POINT_EXIT; kind++)
			id = session_insert_kind(s, foci[i], (enum point_kind)kind);
	id = session_insert_kind(s, "/Code/libc.so.6/clock_gettime", POINT_ENTRY);
	session_go(h, ROUNDS);
	assert_in_range(session_value(s, id), ROUNDS, ROUNDS + 10);
	finish(h, s);
}

/* -------------------------------------------------------------- stripped */

static struct image *open_image(const char *path)
{
	struct dinst_error e = {0};
	struct image *img = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	if (image_open(fd, path, "/", &img, &e))
		fail_msg("%s: %s", path, e.text);
	close(fd);
	return img;
}

/* How many functions of `whole` begin where one of `part` does. */
static void compare(const struct image *whole, const struct image *part, size_t *found,
		    size_t *count)
{
	const struct image_function *a, *b;
	size_t n = image_functions(whole, &a), m = image_functions(part, &b), at = 0;

	for (size_t i = 0; i < n; i++) {
		if (a[i].flags & (FUNCTION_COLD | FUNCTION_STUB))
			continue;
		while (at < m && b[at].address < a[i].address)
			at++;
		++*count;
		*found += at < m && b[at].address == a[i].address;
	}
}

/* fear F5: strip -s of our own programs: 99 of 100 functions are found by their frames */
static void test_stripped(void **state)
{
	static const char *const programs[] = {"dinst-mutator", "dinstd", "tests/live/names",
					       "tests/live/targets/throws",
					       "tests/live/targets/classes"};
	struct harness *h = *state;
	size_t found = 0, count = 0;

	for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++) {
		char path[512], copy[128], command[1024];
		struct image *whole, *part;

		snprintf(path, sizeof(path), "%s", harness_path(programs[i]));
		snprintf(copy, sizeof(copy), "%s/stripped", h->directory);
		snprintf(command, sizeof(command), "strip -s -o '%s' '%s'", copy, path);
		assert_int_equal(system(command), 0);
		whole = open_image(path);
		part = open_image(copy);
		compare(whole, part, &found, &count);
		image_close(whole);
		image_close(part);
		unlink(copy);
	}
	print_message("%zu of %zu functions\n", found, count);
	assert_true(count > 1000);
	assert_true(found * 100 >= count * 99);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_aliases),	CASE(test_resolver),
		CASE(test_no_plt),	CASE(test_vdso),
		CASE(test_all_of_libc), CASE(test_inlined),
		CASE(test_stripped),	CASE(test_names_like_patterns),
	};

	return cmocka_run_group_tests_name("live/names", tests, NULL, NULL);
}
