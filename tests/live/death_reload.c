/* SPDX-License-Identifier: MIT */
/*
 * death_reload.c - a mutator that was killed has left windows of a plugin that is no more, and what was
 * built anew has been loaded to its place since.
 */
#include <linux/capability.h>
#include <sys/syscall.h>

#include "mutator/leftovers.h"
#include "tests/live/death_help.h"
#include "tests/live/harness_thread.h"

static void ask_done(struct harness *h, const char *command)
{
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
}

/*
 * fear J2, G4: a plugin was loaded to one place many times, and something was inserted each time: of all that
 * the journal has for that place, what is there is taken out after a mutator's death
 */
static void test_many_at_one_place(void **state)
{
	enum { LOADS = 12 };
	struct harness *h = *state;
	struct session *s;

	harness_start(h, "reloads", NULL);
	s = session_begin(h);
	for (unsigned n = 0; n < LOADS; n++) {
		if (n) {
			ask_done(h, "close\n");
			request_retry_pending(s);
		}
		ask_done(h, "open\n");
		session_insert(s, "reload_work");
		ask_done(h, "call 10\n");
	}
	/* As a mutator that dies. */
	session_free(s);
	clean_up(h, 0);
	ask_done(h, "call 10\n");
	ask_done(h, "close\n");
	verify(h, 0);
	harness_end(h, 0);
}

/* `loads`: how often it was loaded before it was built anew. */
static void run_built_anew(struct harness *h, unsigned loads)
{
	uint8_t now[2], file[2];
	struct session *s;
	taddr_t at;

	harness_start(h, "reloads", NULL);
	s = session_begin(h);
	for (unsigned n = 0; n < loads; n++) {
		ask_done(h, "open\n");
		session_insert(s, "reload_tiny");
		ask_done(h, "call 10\n");
		ask_done(h, "close\n");
		request_retry_pending(s);
	}
	usleep(20000);
	ask_done(h, "recode\n");
	ask_done(h, "open\n");
	request_retry_pending(s);
	at = session_address(s, "reload_tiny");
	thread_peek(h->pid, at, file, sizeof(file));
	session_insert(s, "reload_tiny");
	ask_done(h, "call 10\n");
	thread_peek(h->pid, at, now, sizeof(now));
	assert_memory_not_equal(now, file, sizeof(file));
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

/*
 * fear J2, G4: the same short jump was put over a plugin and over what was built anew and loaded to its
 * place: a mutator's death leaves both in the journal, and what comes back is the file's
 */
static void test_built_anew(void **state)
{
	run_built_anew(*state, 1);
}

/* fear J2, G4: the same where it was loaded so often before that the journal has more for that place than is looked at */
static void test_built_anew_after_many(void **state)
{
	run_built_anew(*state, 12);
}

/*
 * fear J2, G1, G4: another build of a plugin has come to its place, with the same short jump, and a child has
 * the older one: after a mutator's death each process gets its own file's bytes back
 */
static void test_child_of_the_older_build(void **state)
{
	struct harness *h = *state;
	uint8_t old[2], new[2], now[2];
	struct session *s;
	pid_t child = 0;
	taddr_t at;

	harness_start(h, "reloads", NULL);
	s = session_begin(h);
	ask_done(h, "open\n");
	request_retry_pending(s);
	at = session_address(s, "reload_tiny");
	thread_peek(h->pid, at, old, sizeof(old));
	session_insert(s, "reload_tiny");
	harness_send(h, "keep\n");
	assert_int_equal(harness_numbers(harness_line(h, HARNESS_ANSWER_MS), &child, 1), 1);
	ask_done(h, "close\n");
	request_retry_pending(s);
	ask_done(h, "replace\n");
	ask_done(h, "open\n");
	thread_peek(h->pid, at, new, sizeof(new));
	assert_memory_not_equal(old, new, sizeof(new));
	session_insert(s, "reload_tiny");
	ask_done(h, "call 10\n");
	/* As a mutator that dies. */
	session_free(s);
	clean_up(h, 0);
	thread_peek(h->pid, at, now, sizeof(now));
	assert_memory_equal(now, new, sizeof(now));
	thread_peek(child, at, now, sizeof(now));
	assert_memory_equal(now, old, sizeof(now));
	ask_done(h, "call 10\n");
	ask_done(h, "kept 10\n");
	ask_done(h, "leave\n");
	ask_done(h, "close\n");
	verify(h, 0);
	harness_end(h, 0);
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

/* The program has mapped a copy of its code over it, with all that we have written: that is ours. */
static void run_copied(struct harness *h, bool dies)
{
	uint8_t tiny[2][16], wide[2][16];
	taddr_t tiny_at, wide_at;
	struct session *s;

	harness_start(h, "reloads", NULL);
	s = session_begin(h);
	ask_done(h, "open\n");
	request_retry_pending(s);
	tiny_at = session_address(s, "reload_tiny");
	wide_at = session_address(s, "reload_wide");
	thread_peek(h->pid, tiny_at, tiny[0], 16);
	thread_peek(h->pid, wide_at, wide[0], 16);
	session_insert(s, "reload_tiny");
	session_insert(s, "reload_wide");
	thread_peek(h->pid, tiny_at, tiny[1], 16);
	assert_memory_not_equal(tiny[0], tiny[1], 16);
	ask_done(h, "copy\n");
	ask_done(h, "call 10\n");
	ask_done(h, "wide 10\n");
	request_retry_pending(s);
	if (dies) {
		session_free(s);
		clean_up(h, 0);
	} else {
		session_end(s);
	}
	ask_done(h, "call 10\n");
	ask_done(h, "wide 10\n");
	thread_peek(h->pid, tiny_at, tiny[1], 16);
	thread_peek(h->pid, wide_at, wide[1], 16);
	assert_memory_equal(tiny[0], tiny[1], 16);
	assert_memory_equal(wide[0], wide[1], 16);
	harness_end(h, 0);
}

/* fear G4, J2: code that the program has copied, with our jumps in it, is restored as its own */
static void test_copied(void **state)
{
	run_copied(*state, false);
}

/* fear G4, J2: the same after a mutator's death */
static void test_copied_after_death(void **state)
{
	run_copied(*state, true);
}

/* Files that were deleted may not be looked at, or (`may`) may again. */
static void look_at_deleted(bool may)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2];

	assert_int_equal(syscall(SYS_capget, &header, data), 0);
	for (unsigned i = 0; i < 2; i++)
		data[i].effective = data[i].permitted;
	if (!may) {
		data[CAP_SYS_ADMIN / 32].effective &= ~(1u << CAP_SYS_ADMIN % 32);
		data[CAP_CHECKPOINT_RESTORE / 32].effective &= ~(1u << CAP_CHECKPOINT_RESTORE % 32);
	}
	assert_int_equal(syscall(SYS_capset, &header, data), 0);
}

/* Which of two builds was there nobody can tell, and our code stays, with what it leads to. */
static void clean_without_file(struct harness *h, taddr_t at)
{
	struct dinst_error e = {0};
	struct leftovers left;
	uint8_t ours[2], now[2];
	struct target *t;

	thread_peek(h->pid, at, ours, sizeof(ours));
	ask_done(h, "remove\n");
	look_at_deleted(false);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	if (leftovers_clean(t, 300, &left, &e) < 0)
		fail_msg("%s", e.text);
	look_at_deleted(true);
	target_close(t);
	thread_peek(h->pid, at, now, sizeof(now));
	assert_memory_equal(now, ours, sizeof(now));
	assert_int_not_equal(left.arenas_left, 0);
	ask_done(h, "call 10\n");
}

/*
 * The plugin is loaded again, and what is inserted then is in another arena than what was there before:
 * in the one that was made first, or second, so that who repairs finds one before the other or behind it.
 */
static void run_two_arenas(struct harness *h, const char *function, const char *between,
			   bool second, bool unseen)
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
	if (unseen)
		clean_without_file(h, at);
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
	run_two_arenas(*state, "reload_work", "touch\n", true, false);
	run_two_arenas(*state, "reload_work", "touch\n", false, false);
}

/* fear J2, J7, G4: the same where our bytes are the same in both, and the file's are not */
static void test_other_in_two_arenas(void **state)
{
	run_two_arenas(*state, "reload_tiny", "recode\n", true, false);
	run_two_arenas(*state, "reload_tiny", "recode\n", false, false);
}

/* A mutator has died that has in its journal `builds` others of a plugin, under the same short jump. */
static taddr_t leave_builds(struct harness *h, unsigned builds)
{
	struct journal_entry other = {0};
	struct dinst_error e = {0};
	struct session *s;
	unsigned index;
	uint8_t now[2];

	harness_start(h, "reloads", NULL);
	ask_done(h, "open\n");
	s = session_begin(h);
	other.address = session_address(s, "reload_tiny");
	other.length = sizeof(now);
	thread_peek(h->pid, other.address, other.original, other.length);
	index = session_insert(s, "reload_tiny");
	thread_peek(h->pid, other.address, other.patched, other.length);
	session_remove(s, index);
	session_flush_all(s);
	/* As those of earlier builds, in the slots before that of this one. */
	for (unsigned n = 0; n < builds; n++) {
		other.original[1]++;
		assert_int_equal(journal_add(s->places->journal, &other, &index, &e), 0);
	}
	session_insert(s, "reload_tiny");
	thread_peek(h->pid, other.address, now, sizeof(now));
	assert_memory_equal(now, other.patched, sizeof(now));
	/* As a mutator that dies. */
	session_free(s);
	return other.address;
}

/*
 * fear J2, G4: a plugin was built anew more often than the journal is looked at for one place, each time under
 * the same short jump: what comes back after a mutator's death is the file's all the same
 */
static void test_many_builds_at_one_place(void **state)
{
	struct harness *h = *state;

	leave_builds(h, 12);
	clean_up(h, 0);
	ask_done(h, "call 10\n");
	ask_done(h, "close\n");
	verify(h, 0);
	harness_end(h, 0);
}

/*
 * fear J2, G4: the file of such a plugin cannot be looked at: which of two builds was there nobody can tell, and
 * our code stays, with what it leads to, until the file can be
 */
static void test_builds_without_a_file(void **state)
{
	struct harness *h = *state;

	clean_without_file(h, leave_builds(h, 1));
	clean_up(h, 0);
	ask_done(h, "call 10\n");
	ask_done(h, "close\n");
	verify(h, 0);
	harness_end(h, 0);
}

/* fear J2, G4: the same where the two are in two arenas */
static void test_arenas_without_a_file(void **state)
{
	run_two_arenas(*state, "reload_tiny", "recode\n", true, true);
	run_two_arenas(*state, "reload_tiny", "recode\n", false, true);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, death_setup, death_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_many_at_one_place),	     TEST(test_built_anew),
		TEST(test_built_anew_after_many),    TEST(test_built_anew_beside),
		TEST(test_like_ours_after_death),    TEST(test_like_ours_at_the_end),
		TEST(test_same_in_two_arenas),	     TEST(test_other_in_two_arenas),
		TEST(test_many_builds_at_one_place), TEST(test_builds_without_a_file),
		TEST(test_arenas_without_a_file),    TEST(test_copied),
		TEST(test_copied_after_death),	     TEST(test_child_of_the_older_build),
	};

	return cmocka_run_group_tests_name("live/death_reload", tests, NULL, NULL);
}
