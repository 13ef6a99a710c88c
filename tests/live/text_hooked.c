/* SPDX-License-Identifier: MIT */
/*
 * text_hooked.c - a hook that somebody else has put over our jump, in text that the program has moved
 * to memory without a file, or that cannot be executed just then. What such a hook has kept of ours comes back:
 * so the hook stays, and with it what ours leads to. What is mapped where a library was unloaded is no such text.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/live/harness_session.h"
#include "tests/live/harness_thread.h"

enum { CLEAN_MS = 60000, CODE = 16, JUMP = 5 };

static const uint8_t breakpoints[JUMP] = {0xcc, 0xcc, 0xcc, 0xcc, 0xcc};

struct text {
	const char *program, *first, *function;
	const char *moved;   /* before anything is inserted; NULL: not then */
	const char *becomes; /* when the jump is there */
	const char *again;   /* before the function is called again; NULL: it can be */
	const char *beside;  /* another function that is counted */
	bool dies;	     /* the mutator does, and the next one takes out what is left */
};

static void ask(struct harness *h, const char *command, const char *argument, const char *answer)
{
	char text[64];

	if (!argument)
		return;
	snprintf(text, sizeof(text), "%s %s\n", command, argument);
	harness_send(h, text);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), answer);
}

static size_t clean(struct harness *h)
{
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;

	if (target_open(h->pid, &t, &e) < 0 || leftovers_clean(t, CLEAN_MS, &left, &e) < 0)
		fail_msg("%s", e.text);
	target_close(t);
	return left.arenas_left;
}

static void begin(struct harness *h, const struct text *x)
{
	const char *const argv[] = {harness_path(x->program), x->first, NULL};

	harness_start_argv(h, argv, false);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ready");
	ask(h, "map", x->moved, "mapped");
}

/* Returns where our jump is; *original gets what was there. */
static taddr_t insert(struct harness *h, struct session *s, const struct text *x, uint8_t *original)
{
	uint8_t now[CODE];
	taddr_t at;

	session_remove(s, session_insert(s, x->function));
	session_flush_all(s);
	session_insert(s, x->function);
	at = s->instances->links->site->key.start;
	session_remove(s, s->instances->id);
	session_flush_all(s);
	thread_peek(h->pid, at, original, CODE);
	session_insert(s, x->function);
	if (x->beside)
		session_insert(s, x->beside);
	ask(h, "go", "1000", "done");
	thread_peek(h->pid, at, now, CODE);
	assert_memory_not_equal(now, original, CODE);
	return at;
}

/* What detach, or a repair where the mutator has died, leaves. */
static size_t take_out(struct harness *h, struct session *s, const struct text *x)
{
	struct detach_result detached = {0};
	struct dinst_error e = {0};

	if (!x->dies) {
		assert_true(session_detach(s, 1, &detached, &e) >= 0);
		session_free(s);
		return detached.left;
	}
	session_free(s);
	return clean(h);
}

static void run_hook(struct harness *h, const struct text *x)
{
	uint8_t original[CODE], ours[CODE], now[CODE];
	struct session *s;
	taddr_t at;

	begin(h, x);
	s = session_begin(h);
	at = insert(h, s, x, original);
	thread_peek(h->pid, at, ours, CODE);
	ask(h, "map", x->becomes, "mapped");
	thread_poke(h->pid, at, breakpoints, JUMP);
	assert_true(take_out(h, s, x) > 0);
	thread_peek(h->pid, at, now, JUMP);
	assert_memory_equal(now, breakpoints, JUMP);
	/* It puts back what it has found. */
	thread_poke(h->pid, at, ours, JUMP);
	ask(h, "map", x->again, "mapped");
	ask(h, "go", "1000", "done");
	assert_int_equal(clean(h), 0);
	thread_peek(h->pid, at, now, CODE);
	assert_memory_equal(now, original, CODE);
	harness_end(h, 0);
}

/* One breakpoint stays, as in any text, and what is beside it becomes the original. */
static void run_breakpoint(struct harness *h, const struct text *x)
{
	uint8_t original[CODE], now[CODE];
	struct session *s;
	taddr_t at;

	begin(h, x);
	s = session_begin(h);
	at = insert(h, s, x, original);
	ask(h, "map", x->becomes, "mapped");
	thread_poke(h->pid, at, breakpoints, 1);
	assert_int_equal(take_out(h, s, x), 0);
	thread_peek(h->pid, at, now, CODE);
	assert_int_equal(now[0], breakpoints[0]);
	assert_memory_equal(now + 1, original + 1, CODE - 1);
	thread_poke(h->pid, at, original, 1);
	ask(h, "map", x->again, "mapped");
	ask(h, "go", "1000", "done");
	harness_end(h, 0);
}

static const char huge[] = "tests/live/targets/text-huge";
static const char kinds[] = "tests/live/targets/text-kinds";

static void run_both(struct harness *h, struct text x)
{
	for (int breakpoint = 0; breakpoint < 2; breakpoint++)
		for (int dies = 0; dies < 2; dies++) {
			x.dies = dies;
			(breakpoint ? run_breakpoint : run_hook)(h, &x);
		}
}

/* fear J4, B3: a hook over our jump in text that a program has moved to other pages by itself stays, and so does what ours leads to; a breakpoint stays, and the file's bytes beside it */
static void test_moved(void **state)
{
	run_both(*state, (struct text){huge, "later", "huge_first", .moved = "small"});
}

/* fear J4, B3: the same where the text moves when our jump is in it already */
static void test_moves(void **state)
{
	run_both(*state, (struct text){huge, "later", "huge_last", .becomes = "small"});
}

/* fear J4, B3: the same where all text of a library becomes anonymous, and nothing of its file can be executed any more */
static void test_becomes_anonymous(void **state)
{
	run_both(*state, (struct text){kinds, "plain", "plugin_work", .becomes = "anon"});
}

/* fear J4, B3: the same in text that cannot be executed just then */
static void test_becomes_data(void **state)
{
	run_both(*state,
		 (struct text){kinds, "plain", "plugin_work", .becomes = "data", .again = "text"});
}

/* fear J4: a part of a module's text is unmapped, with a point of ours in it; the rest is still there, and a hook over our jump in it stays, likewise */
static void test_part_unmapped(void **state)
{
	run_both(*state, (struct text){huge, "later", "behind_huge", .beside = "huge_first",
				       .becomes = "nothing"});
}

static void expect_said(struct harness *h, const char *text, const char *where)
{
	if (!strstr(h->messages, text) || !strstr(h->messages, where) ||
	    strstr(h->messages, "a thread is still inside"))
		fail_msg("it says: %s", h->messages);
}

/* fear J4: detach, repair and attach say that it is somebody else's, and where, and not that a thread is in the way */
static void test_told(void **state)
{
	static const char others[] = "somebody else has written over what";
	const struct text x = {.program = huge, .first = "later", .function = "huge_first"};
	uint8_t original[CODE], ours[CODE], now[CODE];
	struct harness *h = *state;
	const char *number;
	struct session *s;
	char where[32];
	taddr_t at;

	begin(h, &x);
	s = session_begin(h);
	at = insert(h, s, &x, original);
	session_end(s);
	snprintf(where, sizeof(where), "at %#llx", (unsigned long long)at);
	number = harness_number(h->pid);
	assert_int_equal(harness_dinst(h, NULL, "attach", number), 0);
	assert_int_equal(harness_dinst(h, NULL, "insert", "calls", "/Code/text-huge/huge_first",
				       "-p", number),
			 0);
	thread_peek(h->pid, at, ours, CODE);
	assert_memory_not_equal(ours, original, CODE);
	thread_poke(h->pid, at, breakpoints, JUMP);
	assert_int_equal(harness_dinst(h, NULL, "detach", number), 3);
	expect_said(h, others, where);
	expect_said(h, "takes them out when that has gone", where);
	assert_int_equal(harness_dinst(h, NULL, "repair", number), 3);
	expect_said(h, others, where);
	expect_said(h, "try again when it has gone", where);
	assert_int_not_equal(harness_dinst(h, NULL, "attach", number), 0);
	expect_said(h, others, where);
	thread_poke(h->pid, at, ours, CODE);
	ask(h, "go", "1000", "done");
	assert_int_equal(harness_dinst(h, NULL, "repair", number), 0);
	thread_peek(h->pid, at, now, CODE);
	assert_memory_equal(now, original, CODE);
	harness_end(h, 0);
}

/* fear G4: a library has gone, and the program makes code of its own where its text was: nothing of ours is there, and nothing stays for it */
static void test_made_anew(void **state)
{
	struct text x = {kinds, "plain", "plugin_work", .becomes = "gone"};
	struct harness *h = *state;

	for (int dies = 0; dies < 2; dies++) {
		uint8_t original[CODE], now[CODE];
		struct session *s;
		taddr_t at;

		x.dies = dies;
		begin(h, &x);
		s = session_begin(h);
		at = insert(h, s, &x, original);
		ask(h, "map", x.becomes, "mapped");
		assert_int_equal(take_out(h, s, &x), 0);
		thread_peek(h->pid, at, now, JUMP);
		assert_memory_equal(now, breakpoints, JUMP);
		harness_end(h, 0);
	}
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_moved),	 CASE(test_moves),	   CASE(test_becomes_anonymous),
		CASE(test_becomes_data), CASE(test_part_unmapped), CASE(test_made_anew),
		CASE(test_told),
	};

	return cmocka_run_group_tests_name("live/text_hooked", tests, NULL, NULL);
}
