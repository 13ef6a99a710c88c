/* SPDX-License-Identifier: MIT */
/*
 * dlopen_builds.c - a library is unloaded, and it or another build of it comes to its place, while a child
 * has what was there before: two windows of two modules are at one place, and each process has one.
 */
#include <stdio.h>
#include <string.h>

#include "tests/live/every_step.h"
#include "tests/live/harness_session.h"
#include "tests/live/harness_thread.h"

static void ask(struct harness *h, const char *command)
{
	char text[64];

	snprintf(text, sizeof(text), "%s\n", command);
	harness_send(h, text);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
}

/* A library is loaded and something inserted; a child keeps it, and another one comes to its place. */
struct two_builds {
	unsigned old, new;
	taddr_t at, hole;
	pid_t child;
	uint8_t file[2], ours[2];
};

static void begin_two_builds(struct harness *h, struct session *s, struct two_builds *b)
{
	ask(h, "open");
	request_retry_pending(s);
	b->at = session_address(s, "reload_tiny");
	thread_peek(h->pid, b->at, b->file, 2);
	b->old = session_insert(s, "reload_tiny");
	b->hole = session_instance(s, b->old)->links->site->patches[0].address;
	assert_int_equal(session_instance(s, b->old)->links->site->patch_count, 2);
	ask(h, "call 10");
	harness_send(h, "keep\n");
	assert_int_equal(harness_numbers(harness_line(h, HARNESS_ANSWER_MS), &b->child, 1), 1);
	thread_peek(b->child, b->at, b->ours, 2);
	assert_memory_not_equal(b->ours, b->file, 2);
	ask(h, "close");
	request_retry_pending(s);
	ask(h, "replace");
	ask(h, "open");
	b->new = session_insert(s, "reload_tiny");
	assert_int_equal(session_instance(s, b->new)->links->site->patch_count, 2);
	assert_int_equal(session_instance(s, b->new)->links->site->patches[0].address, b->hole);
}

static void end_two_builds(struct harness *h, struct session *s, const struct two_builds *b)
{
	uint8_t now[2];

	session_flush_all(s);
	thread_peek(b->child, b->at, now, 2);
	assert_memory_equal(now, b->file, 2);
	ask(h, "kept 10");
	ask(h, "leave");
	session_end(s);
	ask(h, "call 10");
	harness_end(h, 0);
}

/*
 * fear G4, G1: another build of a library has come to its place, and what is put into it is taken out: a
 * child that has the older one, with the same short jump to what was put into that, keeps it
 */
static void test_newer_build_removed(void **state)
{
	struct harness *h = *state;
	struct two_builds b;
	struct session *s;
	uint8_t now[2];

	harness_start(h, "reloads", NULL);
	s = session_begin(h);
	begin_two_builds(h, s, &b);
	session_remove(s, b.new);
	session_flush_all(s);
	thread_peek(b.child, b.at, now, 2);
	assert_memory_equal(now, b.ours, 2);
	ask(h, "kept 10");
	assert_int_equal(session_value(s, b.old), 20);
	session_remove(s, b.old);
	end_two_builds(h, s, &b);
}

/*
 * fear G4, G1, C1: the same where both are taken out at once, in either order, while the child is in front of
 * its near jump: each process gets its own file's bytes back
 */
static void test_both_builds_removed(void **state)
{
	struct harness *h = *state;

	for (int n = 0; n < 2; n++) {
		struct stepper p = {0};
		struct flush_result result;
		struct dinst_error e = {0};
		struct two_builds b;
		struct session *s;

		harness_start(h, "reloads", NULL);
		s = session_begin(h);
		begin_two_builds(h, s, &b);
		ask(h, "spin");
		p.pid = p.tid = b.child;
		step_to(&p, b.hole);
		session_remove(s, n ? b.old : b.new);
		session_remove(s, n ? b.new : b.old);
		if (removal_flush(s, &result, &e) < 0)
			fail_msg("%s", e.text);
		assert_int_not_equal(result.queued, 0);
		step_release(&p);
		end_two_builds(h, s, &b);
	}
}

/*
 * fear G4, G1: code of an older build, which a child has, is written anew when a newer one has come to its
 * place: what a branch goes round there is the older one's
 */
static void test_older_build_written_anew(void **state)
{
	struct harness *h = *state;
	unsigned first, second, new;
	struct session *s;
	pid_t child;

	harness_start(h, "reloads", NULL);
	s = session_begin(h);
	ask(h, "open");
	first = session_insert_kind(s, "reload_round", POINT_ENTRY);
	second = session_insert_kind(s, "reload_round", POINT_ENTRY);
	assert_int_equal(session_instance(s, first)->link_count, 2);
	ask(h, "round 10");
	harness_send(h, "keep\n");
	assert_int_equal(harness_numbers(harness_line(h, HARNESS_ANSWER_MS), &child, 1), 1);
	ask(h, "close");
	request_retry_pending(s);
	ask(h, "replace");
	ask(h, "open");
	new = session_insert(s, "reload_round");
	ask(h, "round 10");
	assert_int_equal(session_value(s, new), 10);
	session_remove(s, first);
	ask(h, "kept 10");
	assert_int_equal(session_value(s, second), 20);
	session_flush_all(s);
	ask(h, "kept 10");
	session_remove(s, second);
	session_flush_all(s);
	ask(h, "kept 10");
	ask(h, "leave");
	session_end(s);
	ask(h, "round 10");
	harness_end(h, 0);
}

/*
 * fear G4, G1: a timer is put into the newer one of two builds that share a short jump while a child is in
 * the middle of the older one: that is no call of the newer one, and its end would not be seen
 */
static void test_timer_beside_older_build(void **state)
{
	struct harness *h = *state;
	struct user_regs_struct regs;
	const struct instance *timer;
	struct session *s;
	unsigned calls;
	taddr_t at;
	pid_t child;

	harness_start(h, "reloads", NULL);
	s = session_begin(h);
	ask(h, "open");
	request_retry_pending(s);
	at = session_address(s, "reload_tiny");
	calls = session_insert(s, "reload_tiny");
	harness_send(h, "keep\n");
	assert_int_equal(harness_numbers(harness_line(h, HARNESS_ANSWER_MS), &child, 1), 1);
	ask(h, "close");
	request_retry_pending(s);
	ask(h, "open");
	ask(h, "spin");
	thread_seize_at(child, at + 2, at + 9, &regs);
	thread_freeze(child, child);
	timer = session_insert_metric(s, "wall_inclusive", "reload_tiny", NULL);
	assert_int_equal(timer->refused_count, 0);
	thread_thaw(child);
	ask(h, "kept 1000");
	assert_int_equal(instance_value(timer), 0);
	session_remove(s, timer->id);
	session_remove(s, calls);
	session_flush_all(s);
	ask(h, "leave");
	session_end(s);
	ask(h, "call 10");
	harness_end(h, 0);
}

/*
 * fear G4, D7: a child is in our code of a library that is gone in the program itself: its stack is walked all
 * the same, and what it is inside of is timed from then on
 */
static void test_timer_around_dropped_site(void **state)
{
	struct harness *h = *state;
	struct user_regs_struct regs;
	const struct instance *timer;
	const struct body *head;
	unsigned calls, entries, exits, other;
	struct session *s;
	pid_t child;

	harness_start(h, "reloads", NULL);
	s = session_begin(h);
	ask(h, "open");
	calls = session_insert(s, "reload_work");
	entries = session_insert_kind(s, "do_call", POINT_ENTRY);
	exits = session_insert_kind(s, "do_call", POINT_EXIT);
	other = session_insert_metric(s, "wall_inclusive", "do_round", NULL)->id;
	head = session_instance(s, calls)->links->site->head;
	harness_send(h, "keep\n");
	assert_int_equal(harness_numbers(harness_line(h, HARNESS_ANSWER_MS), &child, 1), 1);
	ask(h, "close");
	request_retry_pending(s);
	assert_true(session_instance(s, calls)->links->site->dropped);
	ask(h, "spin");
	thread_seize_at(child, head->code, head->code + head->code_size, &regs);
	thread_freeze(child, child);
	timer = session_insert_metric(s, "wall_inclusive", "do_call", NULL);
	assert_int_equal(timer->refused_count, 0);
	assert_int_equal(timer->unwalked, 0);
	thread_thaw(child);
	ask(h, "kept 10");
	assert_int_not_equal(instance_value(timer), 0);
	session_remove(s, timer->id);
	session_remove(s, entries);
	session_remove(s, exits);
	session_remove(s, other);
	session_remove(s, calls);
	session_flush_all(s);
	ask(h, "leave");
	session_end(s);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_newer_build_removed),	      CASE(test_both_builds_removed),
		CASE(test_older_build_written_anew),  CASE(test_timer_beside_older_build),
		CASE(test_timer_around_dropped_site),
	};

	return cmocka_run_group_tests_name("live/dlopen_builds", tests, NULL, NULL);
}
