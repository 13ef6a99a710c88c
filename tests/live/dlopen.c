/* SPDX-License-Identifier: MIT */
/*
 * dlopen.c - modules that are loaded and unloaded while they are instrumented,
 * or waited for.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/remote_private.h"
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

static struct session *begin(struct harness *h)
{
	harness_start(h, "loads", NULL);
	return session_begin(h);
}

static void end(struct harness *h, struct session *s)
{
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

static void wait_active(struct session *s, unsigned id)
{
	for (int i = 0; i < 50000 && session_pending(s, id); i++) {
		request_retry_pending(s);
		usleep(2000);
	}
	assert_int_equal(session_pending(s, id), 0);
}

/* Unloaded with everything in it; what was counted stays; loaded again it is as new. */
/* fear G4: a library is unloaded with patches in it */
static void test_unloaded_while_instrumented(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned work, leaf, again, own;

	ask(h, "open");
	own = session_insert(s, "do_call");
	work = session_insert(s, "plugin_work");
	leaf = session_insert_kind(s, "/Code/libplugin.so/plugin_leaf", POINT_EXIT);
	ask(h, "call 1000");
	assert_int_equal(session_value(s, work), 1000);
	assert_int_equal(session_value(s, leaf), 1000);
	ask(h, "close");
	assert_int_equal(session_value(s, work), 1000);
	session_remove(s, leaf);
	session_flush_all(s);
	ask(h, "open");
	ask(h, "call 10");
	/* The old one counts again or not at all; the new one counts all of it. */
	again = session_insert(s, "plugin_work");
	ask(h, "call 1000");
	assert_int_equal(session_value(s, again), 1000);
	assert_int_equal(session_value(s, own), 3);
	session_remove(s, work);
	session_flush_all(s);
	ask(h, "close");
	end(h, s);
}

/* fear G4: detach after the library with all its points is gone */
static void test_detached_after_unloading(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);

	ask(h, "open");
	for (int kind = POINT_ENTRY; kind <= POINT_CALL; kind++)
		session_insert_kind(s, "/Code/libplugin.so/*", (enum point_kind)kind);
	ask(h, "call 1000");
	ask(h, "close");
	end(h, s);
}

static void test_waited_for(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id = session_insert(s, "/Code/libplugin.so/plugin_work");

	assert_int_equal(session_pending(s, id), 1);
	ask(h, "open");
	wait_active(s, id);
	ask(h, "call 1234");
	assert_int_equal(session_value(s, id), 1234);
	session_remove(s, id);
	session_flush_all(s);
	ask(h, "close");
	end(h, s);
}

static void test_removed_while_waiting(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id = session_insert(s, "/Code/libplugin.so/plugin_work");

	session_remove(s, id);
	ask(h, "open");
	assert_false(request_has_pending(s));
	assert_int_equal(request_retry_pending(s), 0);
	ask(h, "call 10");
	ask(h, "close");
	end(h, s);
}

/* Requests of all kinds, in and out, while the plugin comes and goes as fast as it can. */
/* fear G4: requests of all kinds while a library comes and goes 3,000 times */
static void test_churn(void **state)
{
	static const char *const foci[] = {"/Code/libplugin.so/*", "plugin_leaf", "do_call",
					   "/Code/libplugin.so/plugin_work"};
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned kept = session_insert(s, "do_call"), done = 0;

	harness_send(h, "loop 3000\n");
	for (int turn = 0; turn < 150; turn++) {
		struct dinst_error e = {0};
		struct flush_result flushed;
		unsigned id;
		int status = session_try_insert_kind(s, foci[turn % 4],
						     turn % 3 ? POINT_ENTRY : POINT_EXIT, &id, &e);

		if (status < 0 && e.code != DINST_NO_FUNCTION && e.code != DINST_NO_MODULE &&
		    e.code != DINST_REFUSED && e.code != DINST_BUSY)
			fail_msg("%s: %s (%s)", foci[turn % 4], e.text, dinst_code_name(e.code));
		request_retry_pending(s);
		if (status >= 0) {
			done += session_instance(s, id)->link_count > 0;
			session_remove(s, id);
		}
		dinst_error_clear(&e);
		if (removal_flush(s, &flushed, &e) < 0 && e.code != DINST_BUSY)
			fail_msg("flush: %s", e.text);
	}
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	print_message("%u of 150 requests found their functions there\n", done);
	/* do_call() is there always. */
	assert_true(done > 0);
	assert_int_equal(session_value(s, kept), 3000);
	end(h, s);
}

/* The parent unloads what its child still runs through. */
/* fear G4, G1: the parent unloads what its child still runs through */
static void test_child_keeps_the_plugin(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned work, own;

	ask(h, "open");
	work = session_insert(s, "plugin_work");
	own = session_insert(s, "do_open");
	ask(h, "linger");
	ask(h, "close");
	usleep(10000);
	/* Modules are looked at again by this. */
	session_remove(s, session_insert(s, "do_close"));
	for (int i = 0; i < 50; i++) {
		session_remove(s, session_insert(s, "command"));
		session_flush_all(s);
	}
	session_remove(s, work);
	for (int i = 0; i < 50; i++) {
		session_remove(s, session_insert(s, "do_call"));
		session_flush_all(s);
	}
	assert_int_equal(session_value(s, own), 0);
	session_end(s);
	harness_send(h, "unlinger\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ended 7");
	harness_verify(h);
	harness_end(h, 0);
}

/* Built anew between two looks, or under the eyes of dinst; points of the old one are in it or not. */
static void run_reload(struct harness *h, const char *how, bool looks, bool stays)
{
	struct session *s;
	struct dinst_error e = {0};
	size_t count = 0;
	unsigned id, again;

	harness_start(h, "reloads", NULL);
	s = session_begin(h);
	ask(h, "open");
	id = session_insert(s, "reload_work");
	ask(h, "call 100");
	assert_int_equal(session_value(s, id), 100);
	if (!stays)
		session_remove(s, id);
	ask(h, "close");
	if (looks)
		request_retry_pending(s);
	/* Times of files may be as coarse as the clock's ticks. */
	usleep(20000);
	ask(h, how);
	ask(h, "open");
	ask(h, "call 100");
	/* What is in the new one is not where it was in the old one. */
	if (session_try_insert(s, "reload_work", false, &count, &again, &e) >= 0) {
		ask(h, "call 100");
		assert_int_equal(session_value(s, again), 100);
	}
	ask(h, "call 100");
	session_end(s);
	ask(h, "call 100");
	harness_end(h, 0);
}

/* fear G4: a plugin is built anew in place and loaded again to where it was: it is another one */
static void test_built_anew(void **state)
{
	for (int n = 0; n < 4; n++)
		run_reload(*state, "write", n & 1, n & 2);
}

static bool no_pagemap;

int __real_maps_open_pagemap(pid_t tid);
int __wrap_maps_open_pagemap(pid_t tid);

int __wrap_maps_open_pagemap(pid_t tid)
{
	if (!no_pagemap)
		return __real_maps_open_pagemap(tid);
	errno = ENOENT;
	return -1;
}

/* fear G4: the same where the kernel has no /proc/PID/pagemap: what is in memory is compared with the file */
static void test_built_anew_unaccounted(void **state)
{
	no_pagemap = true;
	for (int n = 0; n < 4; n++)
		run_reload(*state, "write", n & 1, n & 2);
	no_pagemap = false;
}

/* fear G4: the same where its times are set back, as by who copies files with them */
static void test_built_anew_of_old(void **state)
{
	for (int n = 0; n < 4; n++)
		run_reload(*state, "disguise", n & 1, n & 2);
}

/* A file that cannot be read as it is (a terabyte of nothing) can be when it has been written: it is tried again. */
static void test_readable_later(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct insert_result r;
	const char *focus = "reload_work";
	struct session *s;
	unsigned id;

	harness_start(h, "reloads", NULL);
	ask(h, "swell");
	ask(h, "open");
	s = session_begin(h);
	assert_int_equal(request_insert(s, "calls", &focus, 1, NULL, &r, &e), DINST_NO_FUNCTION);
	ask(h, "shrink");
	id = session_insert(s, "reload_work");
	ask(h, "call 100");
	assert_int_equal(session_value(s, id), 100);
	session_end(s);
	ask(h, "call 100");
	harness_end(h, 0);
}

/* fear G4: the same with a new file of its name */
static void test_new_file(void **state)
{
	for (int n = 0; n < 4; n++)
		run_reload(*state, "renew", n & 1, n & 2);
}

/* fear G4: a plugin's file seems to have been written while the plugin is loaded: it is what it was */
static void test_touched(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned entry, exit;

	harness_start(h, "reloads", NULL);
	s = session_begin(h);
	ask(h, "open");
	entry = session_insert(s, "reload_work");
	ask(h, "call 100");
	usleep(20000);
	ask(h, "touch");
	exit = session_insert_kind(s, "reload_work", POINT_EXIT);
	ask(h, "call 100");
	assert_int_equal(session_value(s, entry), 200);
	assert_int_equal(session_value(s, exit), 100);
	session_remove(s, entry);
	session_remove(s, exit);
	/* Nothing of ours is in it: it is looked at anew. */
	entry = session_insert(s, "reload_work");
	ask(h, "call 100");
	assert_int_equal(session_value(s, entry), 100);
	/* With it goes the memory that a jump of ours would lead to. */
	session_end(s);
	ask(h, "call 100");
	harness_end(h, 0);
}

/*
 * fear F6, G4: code is written anew in place, where nothing tells that, behind what a jump overwrites: a
 * point that was prepared for what was there before, and has waited, does not go in
 */
static void test_edited_while_waiting(void **state)
{
	struct harness *h = *state;
	struct session *s;
	char held[64];
	unsigned id;

	harness_start(h, "reloads", NULL);
	s = session_begin(h);
	ask(h, "open");
	request_retry_pending(s);
	snprintf(held, sizeof(held), "hold %llx",
		 (unsigned long long)session_address(s, "reload_wide") + 2);
	ask(h, held);
	id = session_insert(s, "reload_wide");
	assert_int_equal(session_pending(s, id), 1);
	ask(h, "edit");
	ask(h, "wide 10");
	ask(h, "hold 0");
	for (int i = 0; i < 100 && session_pending(s, id); i++) {
		request_retry_pending(s);
		usleep(2000);
	}
	ask(h, "wide 10");
	session_end(s);
	ask(h, "wide 10");
	harness_end(h, 0);
}

/* fear G4: what is removed of a library that was loaded anew takes nothing from what is new in it */
static void test_old_ones_removed(void **state)
{
	static const char *const functions[] = {"reload_tiny", "reload_work"};
	struct harness *h = *state;
	unsigned old[2], new[2];
	struct session *s;

	harness_start(h, "reloads", NULL);
	s = session_begin(h);
	ask(h, "open");
	for (int n = 0; n < 2; n++)
		old[n] = session_insert(s, functions[n]);
	ask(h, "call 10");
	ask(h, "close");
	request_retry_pending(s);
	ask(h, "open");
	for (int n = 0; n < 2; n++)
		new[n] = session_insert(s, functions[n]);
	ask(h, "call 10");
	for (int n = 0; n < 2; n++)
		session_remove(s, old[n]);
	session_flush_all(s);
	ask(h, "call 10");
	for (int n = 0; n < 2; n++)
		assert_int_equal(session_value(s, new[n]), 20);
	session_end(s);
	ask(h, "call 10");
	harness_end(h, 0);
}

/*
 * fear G4, C1: a library was loaded anew, and what was put into it before and after is taken out
 * at once: a thread in front of the newer near jump, where both had one, is led away from it
 */
static void test_old_and_new_hole(void **state)
{
	struct harness *h = *state;
	struct stepper p = {0};
	struct session *s;
	struct flush_result result;
	struct dinst_error e = {0};
	unsigned old, new;
	taddr_t hole;

	harness_start(h, "reloads", NULL);
	s = session_begin(h);
	ask(h, "open");
	old = session_insert(s, "reload_tiny");
	hole = session_instance(s, old)->links->site->patches[0].address;
	assert_int_equal(session_instance(s, old)->links->site->patch_count, 2);
	ask(h, "call 10");
	ask(h, "close");
	request_retry_pending(s);
	ask(h, "open");
	new = session_insert(s, "reload_tiny");
	assert_int_equal(session_instance(s, new)->links->site->patch_count, 2);
	assert_int_equal(session_instance(s, new)->links->site->patches[0].address, hole);
	p.pid = p.tid = h->pid;
	step_hold(&p);
	harness_send(h, "call 10\n");
	step_to(&p, hole);
	session_remove(s, old);
	session_remove(s, new);
	if (removal_flush(s, &result, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_not_equal(result.queued, 0);
	step_release(&p);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	session_flush_all(s);
	session_end(s);
	ask(h, "call 10");
	harness_end(h, 0);
}

/*
 * fear G4: a library is loaded anew to its place between two looks, and what it does elsewhere is asked for,
 * again and otherwise: what says that it is in a function there is put into it anew, too
 */
static void test_constraint_loaded_anew(void **state)
{
	struct harness *h = *state;
	const struct instance *old, *same, *other;
	struct session *s;
	char focus[128];

	harness_start(h, "reloads", NULL);
	s = session_begin(h);
	ask(h, "open");
	request_retry_pending(s);
	snprintf(focus, sizeof(focus), "/Code/%s/reload_call",
		 module_at(s->modules, session_address(s, "reload_call"))->name);
	old = session_insert_metric(s, "io_ops", focus, NULL);
	ask(h, "through 10");
	assert_int_equal(instance_value(old), 10);
	for (int n = 0; n < 2; n++) {
		ask(h, "close");
		ask(h, "open");
		other = session_insert_metric(s, "io_bytes", focus, NULL);
		same = session_insert_metric(s, "io_ops", focus, NULL);
		ask(h, "through 10");
		assert_int_equal(instance_value(same), 10);
		assert_int_equal(other->refused_count, 0);
		session_remove(s, other->id);
		session_remove(s, n ? old->id : same->id);
	}
	session_end(s);
	ask(h, "through 10");
	harness_end(h, 0);
}

/*
 * fear G4, J2: a mutator dies, and where its points were is another module: nobody leads to what it
 * has left, and that is taken out
 */
static void test_left_in_another(void **state)
{
	struct harness *h = *state;
	struct leftovers left;
	struct dinst_error e = {0};
	struct target *t;
	int status;
	pid_t child;

	harness_start(h, "reloads", NULL);
	ask(h, "open");
	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		session_insert_kind(session_begin(h), "reload_work", POINT_EXIT);
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	ask(h, "call 100");
	ask(h, "close");
	ask(h, "write");
	ask(h, "open");
	if (target_open(h->pid, &t, &e) < 0 || leftovers_clean(t, 5000, &left, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(left.arenas, 1);
	assert_int_equal(left.arenas_left, 0);
	assert_int_equal(left.restored, 0);
	target_close(t);
	ask(h, "call 100");
	harness_end(h, 0);
}

static int look_for_tail(struct stop *stop, void *arg, struct dinst_error *e)
{
	const struct maps *maps;
	struct remote_tail tail;
	int status = remote_find_tail(stop, &tail, e);

	if (status >= 0)
		status = stop_maps(stop, &maps, e);
	if (status >= 0)
		snprintf(arg, 256, "%s", maps_find(maps, tail.address)->name);
	return status;
}

/*
 * fear G4, J2: a thread makes system calls of ours behind the code of a module for a while after a mutator's death,
 * or where it is late: not behind that of a plugin, which may be unloaded under it
 */
static void test_calls_not_in_a_plugin(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	char name[256] = "";
	struct target *t;

	harness_start(h, "loads", "full", NULL);
	ask(h, "open");
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	if (target_stop(t, NULL, look_for_tail, name, NULL, &e) < 0)
		fail_msg("%s", e.text);
	target_close(t);
	assert_true(name[0] == '/' && !strstr(name, "libplugin.so") && !strstr(name, "/loads"));
	ask(h, "close");
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_unloaded_while_instrumented),
		CASE(test_detached_after_unloading),
		CASE(test_waited_for),
		CASE(test_removed_while_waiting),
		CASE(test_churn),
		CASE(test_child_keeps_the_plugin),
		CASE(test_built_anew),
		CASE(test_built_anew_of_old),
		CASE(test_readable_later),
		CASE(test_built_anew_unaccounted),
		CASE(test_new_file),
		CASE(test_touched),
		CASE(test_edited_while_waiting),
		CASE(test_old_ones_removed),
		CASE(test_old_and_new_hole),
		CASE(test_constraint_loaded_anew),
		CASE(test_left_in_another),
		CASE(test_calls_not_in_a_plugin),
	};

	return cmocka_run_group_tests_name("live/dlopen", tests, NULL, NULL);
}
