/* SPDX-License-Identifier: MIT */
/*
 * insert_answer.c - an answer to `insert` that would be too long for a message: what was done is told all the
 * same, its numbers in any case, and how much of the rest is left off. The room is made small for that.
 */
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "inject/proc.h"
#include "tests/live/harness_session.h"
#include "tests/live/serve_calls.h"

enum { ROOM = 1000 };

static json_t *ask(int fd, const char *method, json_t *params)
{
	json_t *answer = serve_ask(fd, method, params, NULL);

	if (!json_object_get(answer, "result"))
		fail_msg("%s: %s", method, json_dumps(answer, 0));
	return answer;
}

static json_int_t number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

/* One instance for each function of the program, some of which are refused. Returns the answer, of `*bytes`. */
static json_t *insert_each(int fd, size_t *bytes)
{
	json_t *answer = ask(fd, "insert",
			     json_pack("{s:s,s:[s],s:b}", "metric", "calls", "focus",
				       "/Code/partly/*", "each", 1));

	*bytes = json_dumpb(answer, NULL, 0, JSON_COMPACT | JSON_ENSURE_ASCII);
	return answer;
}

/* One for all code there is: the list of what is refused is long. */
static json_t *insert_all(int fd, size_t *bytes)
{
	json_t *answer =
		ask(fd, "insert", json_pack("{s:s,s:[s]}", "metric", "calls", "focus", "/Code"));

	*bytes = json_dumpb(answer, NULL, 0, JSON_COMPACT | JSON_ENSURE_ASCII);
	return answer;
}

static bool is_told(const json_t *result, const char *text)
{
	json_t *note;
	bool told = false;
	size_t n;

	json_array_foreach(json_object_get(result, "notes"), n, note) told |=
		strstr(json_string_value(note), text) != NULL;
	return told;
}

static void check_rows(int fd)
{
	json_t *answer, *result, *rows, *row, *others;
	size_t bytes, n, shown = 0;
	json_int_t before = 0;

	serve_insert_room = 1000;
	answer = insert_each(fd, &bytes);
	result = json_object_get(answer, "result");
	rows = json_object_get(result, "rows");
	assert_true(json_array_size(rows) > 5);
	json_array_foreach(rows, n, row)
	{
		assert_true(number(row, "id") > before);
		before = number(row, "id");
		assert_non_null(json_object_get(row, "points"));
		assert_non_null(json_object_get(row, "pending"));
		assert_non_null(json_object_get(row, "refused"));
		shown += json_object_get(row, "metric") != NULL;
	}
	assert_true(shown > 0);
	assert_int_equal(number(result, "short_rows"), json_array_size(rows) - shown);
	assert_true(number(result, "short_rows") > 0);
	assert_true(json_is_true(json_object_get(result, "partial")));
	assert_true(is_told(result, " rows have numbers only"));
	/* All of them are there. */
	others = ask(fd, "read", json_pack("{s:[]}", "ids"));
	assert_int_equal(
		json_array_size(json_object_get(json_object_get(others, "result"), "rows")),
		json_array_size(rows));
	json_decref(others);
	json_decref(answer);
	json_decref(ask(fd, "remove", json_pack("{s:b}", "all", 1)));
}

static void check_lists(int fd)
{
	json_t *answer, *result, *row;
	size_t bytes, whole, entries;

	serve_insert_room = 40 << 20;
	answer = insert_all(fd, &whole);
	assert_null(json_object_get(json_object_get(answer, "result"), "short_rows"));
	json_decref(answer);
	json_decref(ask(fd, "remove", json_pack("{s:b}", "all", 1)));
	assert_true(whole > ROOM);
	serve_insert_room = ROOM;
	answer = insert_all(fd, &bytes);
	result = json_object_get(answer, "result");
	row = json_array_get(json_object_get(result, "rows"), 0);
	entries = json_array_size(json_object_get(row, "reasons")) +
		  json_array_size(json_object_get(row, "left_out"));
	assert_true(bytes < ROOM + 1000);
	assert_true(entries > 0);
	assert_true(number(row, "left_off") > 0);
	assert_true((size_t)number(row, "refused") >
		    json_array_size(json_object_get(row, "reasons")));
	assert_true(is_told(result, "the answer would be too long: "));
	json_decref(answer);
}

/* What does not fit is left off, and nothing that was done is told as failed. */
static void test_long(void **state)
{
	struct harness *h = *state;
	struct proc_stat stat;
	pthread_t thread;
	int fds[2];

	harness_start(h, "partly", NULL);
	assert_int_equal(proc_stat_read(h->pid, &stat), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	assert_int_equal(pthread_create(&thread, NULL, serve_thread, &fds[1]), 0);
	json_decref(ask(fds[0], "attach",
			json_pack("{s:i,s:s,s:I}", "pid", (int)h->pid, "session", "long", "start",
				  (json_int_t)stat.start_time)));
	check_rows(fds[0]);
	check_lists(fds[0]);
	json_decref(ask(fds[0], "detach", json_object()));
	close(fds[0]);
	pthread_join(thread, NULL);
	harness_verify(h);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_long, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests_name("live/insert_answer", tests, NULL, NULL);
}
