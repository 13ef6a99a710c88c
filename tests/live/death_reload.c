/* SPDX-License-Identifier: MIT */
/*
 * death_reload.c - a mutator that was killed has left windows of a plugin that is no more, and what was
 * built anew has been loaded to its place since. As death_repair.c, whose last tests are of the same kind.
 */
#include "mutator/leftovers.h"
#include "tests/live/death_help.h"
#include "tests/live/harness_thread.h"

static void ask_done(struct harness *h, const char *command)
{
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
}

/* A plugin with a short jump is unloaded, and built anew as `how` says, or (NULL) with our jump in its place. */
static taddr_t reload_over(struct harness *h, struct session *s, const char *how, uint8_t *ours)
{
	char become[32];
	taddr_t at;

	ask_done(h, "open\n");
	session_insert(s, "reload_tiny");
	ask_done(h, "call 10\n");
	at = session_address(s, "reload_tiny");
	thread_peek(h->pid, at, ours, 2);
	ask_done(h, "close\n");
	request_retry_pending(s);
	usleep(20000);
	snprintf(become, sizeof(become), "become %02x%02x\n", ours[0], ours[1]);
	ask_done(h, how ? how : become);
	ask_done(h, "open\n");
	request_retry_pending(s);
	session_insert(s, "reload_wide");
	ask_done(h, "wide 10\n");
	return at;
}

/*
 * fear J2, G4: a window of a plugin that is no more, and one beside it of what was built anew and loaded to
 * its place: what is there as in the file is nobody else's, and all is taken out
 */
static void test_built_anew_beside(void **state)
{
	struct harness *h = *state;
	uint8_t ours[2];
	struct session *s;

	harness_start(h, "reloads", NULL);
	s = session_begin(h);
	reload_over(h, s, "recode\n", ours);
	/* As a mutator that dies. */
	session_free(s);
	clean_up(h, 0);
	ask_done(h, "call 10\n");
	ask_done(h, "wide 10\n");
	ask_done(h, "close\n");
	verify(h, 0);
	harness_end(h, 0);
}

/* The new plugin's own bytes are as we wrote them into the old one: they stay. */
static void run_like_ours(struct harness *h, bool dies)
{
	uint8_t ours[2], now[2];
	struct session *s;
	taddr_t at;

	harness_start(h, "reloads", NULL);
	s = session_begin(h);
	at = reload_over(h, s, NULL, ours);
	if (dies) {
		session_free(s);
		clean_up(h, 0);
	} else {
		session_end(s);
	}
	thread_peek(h->pid, at, now, sizeof(now));
	assert_memory_equal(now, ours, sizeof(now));
	ask_done(h, "wide 10\n");
	ask_done(h, "close\n");
	verify(h, 0);
	harness_end(h, 0);
}

/* fear J2, G4: the same where the new plugin's own bytes are as we wrote them into the old one: they stay */
static void test_like_ours_after_death(void **state)
{
	run_like_ours(*state, true);
}

/* fear G4: the same at the end of a session */
static void test_like_ours_at_the_end(void **state)
{
	run_like_ours(*state, false);
}

/* The one that is made second is to be used, or the first one, which is the last of the list. */
static void use_arena(struct session *s, bool second)
{
	for (struct place *p = s->places; p; p = p->next)
		p->full = second == !p->next;
}

/*
 * The plugin is loaded again, and what is inserted then is in another arena than what was there before:
 * in the one that was made first, or second, so that who repairs finds one before the other or behind it.
 */
static void run_two_arenas(struct harness *h, const char *function, const char *between,
			   bool second)
{
	uint8_t file[8], now[8];
	struct session *s;
	taddr_t at;

	harness_start(h, "reloads", NULL);
	s = session_begin(h);
	ask_done(h, "open\n");
	session_insert(s, "reload_wide");
	use_arena(s, !second);
	session_insert(s, function);
	ask_done(h, "call 10\n");
	ask_done(h, "close\n");
	request_retry_pending(s);
	usleep(20000);
	ask_done(h, between);
	ask_done(h, "open\n");
	request_retry_pending(s);
	at = session_address(s, function);
	thread_peek(h->pid, at, file, sizeof(file));
	use_arena(s, second);
	session_insert(s, function);
	ask_done(h, "call 10\n");
	thread_peek(h->pid, at, now, sizeof(now));
	assert_memory_not_equal(now, file, sizeof(file));
	assert_non_null(s->places->next);
	/* As a mutator that dies. */
	session_free(s);
	clean_up(h, 0);
	thread_peek(h->pid, at, now, sizeof(now));
	assert_memory_equal(now, file, sizeof(file));
	ask_done(h, "call 10\n");
	ask_done(h, "close\n");
	verify(h, 0);
	harness_end(h, 0);
}

/* fear J2, J7, G4: one arena has a window of the old plugin, another one that of the new one at the same place */
static void test_same_in_two_arenas(void **state)
{
	run_two_arenas(*state, "reload_work", "touch\n", true);
	run_two_arenas(*state, "reload_work", "touch\n", false);
}

/* fear J2, J7, G4: the same where our bytes are the same in both, and the file's are not */
static void test_other_in_two_arenas(void **state)
{
	run_two_arenas(*state, "reload_tiny", "recode\n", true);
	run_two_arenas(*state, "reload_tiny", "recode\n", false);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, death_setup, death_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_built_anew_beside),	 TEST(test_like_ours_after_death),
		TEST(test_like_ours_at_the_end), TEST(test_same_in_two_arenas),
		TEST(test_other_in_two_arenas),
	};

	return cmocka_run_group_tests_name("live/death_reload", tests, NULL, NULL);
}
