/* SPDX-License-Identifier: MIT */
/*
 * reloads.c - a library is unloaded and loaded again, or is gone for good, while instances are in it, and
 * nobody asks for anything new: they count on, or it is told that they do not.
 */
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "inject/proc.h"
#include "mutator/request.h"
#include "tests/live/harness_session.h"
#include "tests/live/harness_thread.h"
#include "tests/live/serve_calls.h"

/* What was told last, and how often anything was. */
static struct told {
	char kind[32], text[512];
	unsigned count;
} told;

static void hear(void *arg, const char *kind, const char *text)
{
	(void)arg;
	snprintf(told.kind, sizeof(told.kind), "%s", kind);
	snprintf(told.text, sizeof(told.text), "%s", text);
	told.count++;
}

/* As the mutator between two requests, but that no time has to pass between the looks. */
static void look(struct session *s, struct reloads *r, unsigned times)
{
	while (times--) {
		r->looked_ns = 0;
		s->modules_cost_ns = 0;
		reloads_look(r, s, hear, NULL);
	}
}

static void poll_until_active(struct session *s, unsigned id)
{
	for (int i = 0; i < 500 && request_has_pending(s); i++) {
		request_poll(s);
		usleep(20000);
	}
	assert_int_equal(session_pending(s, id), 0);
}

static void ask(struct harness *h, const char *command)
{
	char text[64];

	snprintf(text, sizeof(text), "%s\n", command);
	harness_send(h, text);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
}

static struct session *begin(struct harness *h, const char *program)
{
	struct session *s;

	memset(&told, 0, sizeof(told));
	harness_start(h, program, NULL);
	s = session_begin(h);
	ask(h, "open");
	return s;
}

static void load_again(struct harness *h)
{
	ask(h, "close");
	ask(h, "open");
}

static void expect_told(unsigned count, const char *kind, const char *text)
{
	assert_int_equal(told.count, count);
	assert_string_equal(told.kind, kind);
	if (!strstr(told.text, text))
		fail_msg("not told: '%s' in '%s'", text, told.text);
}

/*
 * fear G4: a library is unloaded and loaded again under instances, without anything new being asked for: they
 * count on, that is told, and the same again later
 */
static void test_loaded_again(void **state)
{
	struct harness *h = *state;
	struct reloads r = {0};
	struct session *s = begin(h, "reloads");
	const unsigned work = session_insert(s, "reload_work");
	const unsigned tiny = session_insert_kind(s, "reload_tiny", POINT_EXIT);

	ask(h, "call 100");
	look(s, &r, 3);
	assert_int_equal(told.count, 0);
	for (unsigned n = 1; n <= 3; n++) {
		load_again(h);
		ask(h, "call 10");
		look(s, &r, 3);
		poll_until_active(s, work);
		poll_until_active(s, tiny);
		ask(h, "call 100");
		assert_int_equal(session_value(s, work), 100 + n * 100);
		assert_int_equal(session_value(s, tiny), 100 + n * 100);
		look(s, &r, 3);
		/* Once a minute. */
		expect_told(n < 3 ? 1 : 2, "reloaded",
			    " was unloaded and loaded again while 2 instances were in it: what ran "
			    "meanwhile is not counted, nor what runs in children that were forked "
			    "meanwhile; else they count on");
		if (n == 2)
			r.told_ns -= UINT64_C(60000000000);
	}
	session_end(s);
	ask(h, "call 100");
	harness_end(h, 0);
}

/*
 * fear G4, G1: a child that was forked between the loading and the look does not count, as it is told, and
 * nothing is put into it; one that is forked afterwards does
 */
static void test_forked_meanwhile(void **state)
{
	struct harness *h = *state;
	struct reloads r = {0};
	struct session *s = begin(h, "reloads");
	const unsigned work = session_insert(s, "reload_work");

	ask(h, "call 100");
	load_again(h);
	for (unsigned n = 0; n < 2; n++) {
		harness_send(h, "keep\n");
		harness_line(h, HARNESS_ANSWER_MS);
		look(s, &r, 1);
		poll_until_active(s, work);
		ask(h, "kept 1000");
		ask(h, "call 10");
		assert_int_equal(session_value(s, work), n ? 1120 : 110);
		ask(h, "leave");
	}
	assert_int_equal(told.count, 1);
	session_end(s);
	ask(h, "call 100");
	harness_end(h, 0);
}

/* fear G4: the same where the library has only what says whether an instance counts */
static void test_constraint_loaded_again(void **state)
{
	struct harness *h = *state;
	struct reloads r = {0};
	struct session *s = begin(h, "reloads");
	const struct instance *i;
	char focus[128];

	request_retry_pending(s);
	snprintf(focus, sizeof(focus), "/Code/%s/reload_call",
		 module_at(s->modules, session_address(s, "reload_call"))->name);
	i = session_insert_metric(s, "io_ops", focus, NULL);
	ask(h, "through 10");
	assert_int_equal(instance_value(i), 10);
	load_again(h);
	look(s, &r, 3);
	poll_until_active(s, i->id);
	ask(h, "through 10");
	assert_int_equal(instance_value(i), 20);
	expect_told(1, "reloaded", "while 1 instance was in it: ");
	session_end(s);
	ask(h, "through 10");
	harness_end(h, 0);
}

/* fear G4: a library is gone for good: that is told once, not while it may be on its way back, and values stay */
static void test_gone(void **state)
{
	struct harness *h = *state;
	struct reloads r = {0};
	struct session *s = begin(h, "loads");
	const unsigned work = session_insert(s, "plugin_work");

	ask(h, "call 100");
	ask(h, "close");
	look(s, &r, 1);
	assert_int_equal(told.count, 0);
	/* It comes back in time. */
	ask(h, "open");
	look(s, &r, 1);
	poll_until_active(s, work);
	ask(h, "call 100");
	assert_int_equal(session_value(s, work), 200);
	expect_told(1, "reloaded", "libplugin.so was unloaded and loaded again");
	ask(h, "close");
	look(s, &r, 4);
	expect_told(2, "unloaded",
		    "libplugin.so was unloaded while 1 instance was in it: its value stands still; "
		    "insert again what is to be counted when it is loaded again");
	ask(h, "open");
	ask(h, "call 100");
	look(s, &r, 4);
	assert_int_equal(told.count, 2);
	assert_int_equal(session_value(s, work), 200);
	ask(h, "close");
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear G4, F6: what was loaded to its place was built anew: nothing is put into that, though most bytes are the same */
static void test_another_in_its_place(void **state)
{
	struct harness *h = *state;
	struct reloads r = {0};
	struct session *s = begin(h, "reloads");
	const unsigned tiny = session_insert(s, "reload_tiny");

	ask(h, "call 100");
	ask(h, "close");
	/* Times of files may be as coarse as the clock's ticks. */
	usleep(20000);
	ask(h, "write");
	ask(h, "open");
	look(s, &r, 3);
	request_poll(s);
	ask(h, "call 100");
	assert_int_equal(session_value(s, tiny), 100);
	expect_told(1, "unloaded", "its value stands still");
	session_end(s);
	ask(h, "call 100");
	harness_end(h, 0);
}

/* fear F7: who has written the original over a window of ours without loading it anew is not fought with */
static void test_written_over(void **state)
{
	struct harness *h = *state;
	struct reloads r = {0};
	struct session *s = begin(h, "reloads");
	const unsigned work = session_insert(s, "reload_work");
	const struct patch *p = session_instance(s, work)->links->site->patches;
	const uint64_t stops = s->stop_count;

	thread_poke(h->pid, p->address, p->before, p->length);
	look(s, &r, 5);
	request_poll(s);
	ask(h, "call 100");
	assert_int_equal(session_value(s, work), 0);
	assert_int_equal(told.count, 0);
	assert_int_equal(s->stop_count, stops);
	thread_poke(h->pid, p->address, p->after, p->length);
	session_end(s);
	ask(h, "call 100");
	harness_end(h, 0);
}

/* fear G4: a library comes and goes as fast as it can, and is looked after all the time */
static void test_churn(void **state)
{
	struct harness *h = *state;
	struct reloads r = {0};
	struct session *s = begin(h, "loads");
	bool any = false;

	ask(h, "close");
	harness_send(h, "loop 2000\n");
	for (int turn = 0; turn < 60; turn++) {
		struct dinst_error e = {0};
		size_t count;
		unsigned id;

		if (session_try_insert(s, "/Code/libplugin.so/*", false, &count, &id, &e) >= 0)
			any |= session_instance(s, id)->link_count > 0;
		for (int n = 0; n < 20; n++) {
			look(s, &r, 1);
			s->retry_ns = 0;
			request_poll(s);
		}
	}
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	look(s, &r, 2);
	print_message("told %u times\n", told.count);
	assert_true(!any || told.count > 0);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear G4: nobody is looked at oftener than once a second, and nothing at all where nothing is inserted */
static void test_seldom(void **state)
{
	struct harness *h = *state;
	struct reloads r = {0};
	struct session *s = begin(h, "reloads");
	uint64_t first;

	reloads_look(&r, s, hear, NULL);
	assert_int_equal(r.looked_ns, 0);
	session_insert(s, "reload_work");
	reloads_look(&r, s, hear, NULL);
	first = r.looked_ns;
	assert_int_not_equal(first, 0);
	load_again(h);
	reloads_look(&r, s, hear, NULL);
	if (clock_ns() - first < 900000000) {
		assert_int_equal(r.looked_ns, first);
		assert_int_equal(told.count, 0);
	}
	session_end(s);
	harness_end(h, 0);
}

/* -------------------------------------------------- as the daemon speaks to it */

static void hear_event(const json_t *event)
{
	const char *kind = json_string_value(json_object_get(event, "kind"));

	if (kind)
		hear(NULL, kind, json_string_value(json_object_get(event, "text")));
}

/* The result of a request, which the caller frees; events before it are counted, by `told`, too. */
static json_t *call(int fd, const char *method, json_t *params)
{
	json_t *answer = serve_ask(fd, method, params, hear_event);
	json_t *result = json_incref(json_object_get(answer, "result")), *error;

	if (!result) {
		error = json_object_get(answer, "error");
		fail_msg("%s: %s", method, json_string_value(json_object_get(error, "message")));
	}
	json_decref(answer);
	return result;
}

static json_int_t read_value(int fd)
{
	json_t *result = call(fd, "read", json_object());
	json_t *row = json_array_get(json_object_get(result, "rows"), 0);
	const json_int_t value = json_integer_value(json_object_get(row, "value"));

	json_decref(result);
	return value;
}

/* Values are read, nothing else is asked for. */
static void count_on(struct harness *h, int fd)
{
	json_int_t before, after;

	load_again(h);
	for (int i = 0; i < 100 && !told.count; i++) {
		usleep(100000);
		read_value(fd);
	}
	expect_told(1, "reloaded", "else it counts on");
	before = after = read_value(fd);
	for (int i = 0; i < 100 && after == before; i++) {
		usleep(100000);
		ask(h, "call 10");
		after = read_value(fd);
	}
	before = after;
	ask(h, "call 1000");
	assert_int_equal(read_value(fd), before + 1000);
	for (int i = 0; i < 25; i++) {
		usleep(100000);
		read_value(fd);
	}
	assert_int_equal(told.count, 1);
}

/* fear G4: whoever does nothing but read has values that go on, and hears once why some are missing */
static void test_by_reading(void **state)
{
	struct harness *h = *state;
	pthread_t thread;
	int fds[2];

	memset(&told, 0, sizeof(told));
	harness_start(h, "reloads", NULL);
	ask(h, "open");
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	assert_int_equal(pthread_create(&thread, NULL, serve_thread, &fds[1]), 0);
	json_decref(call(fds[0], "attach",
			 json_pack("{s:i,s:s}", "pid", (int)h->pid, "session", "reloads")));
	json_decref(call(fds[0], "insert",
			 json_pack("{s:s,s:[s]}", "metric", "calls", "focus", "reload_work")));
	ask(h, "call 100");
	assert_int_equal(read_value(fds[0]), 100);
	count_on(h, fds[0]);
	json_decref(call(fds[0], "detach", json_object()));
	close(fds[0]);
	pthread_join(thread, NULL);
	ask(h, "call 10");
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_loaded_again),
		CASE(test_forked_meanwhile),
		CASE(test_constraint_loaded_again),
		CASE(test_gone),
		CASE(test_another_in_its_place),
		CASE(test_written_over),
		CASE(test_churn),
		CASE(test_seldom),
		CASE(test_by_reading),
	};

	return cmocka_run_group_tests_name("live/reloads", tests, NULL, NULL);
}
