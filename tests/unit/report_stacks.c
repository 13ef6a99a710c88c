/* SPDX-License-Identifier: MIT */
/*
 * report_stacks.c - the calls around an event, made by hand: as lines and as JSON, what is not known,
 * what is damaged; and that a recording has them and their names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/report/ctf.h"
#include "tests/unit/report_help.h"

enum { FRAMES = 6, RECORD = 24 + 8 + 16 + 8 * FRAMES };

static struct event_log events;
static struct text out;
static json_t *rows;

static int setup(void **state)
{
	(void)state;
	setenv("TZ", "UTC", 1);
	tzset();
	event_log_init(&events);
	rows = json_loads(
		"[{\"events\":[{\"id\":1,\"kind\":\"entry\",\"function\":\"leaf\",\"module\":\"m\","
		"\"address\":\"0x10\",\"fields\":["
		"{\"text\":\"$stack\",\"form\":\"value\",\"offset\":24,\"size\":8,\"role\":\"sp\"},"
		"{\"text\":\"stack(6)\",\"form\":\"stack\",\"offset\":32,\"size\":64,"
		"\"role\":\"backtrace\"}]}]}]",
		0, NULL);
	assert_int_equal(event_log_kinds(&events, rows, NULL), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	event_log_release(&events);
	json_decref(rows);
	text_drop(&out);
	return 0;
}

static void make(uint8_t *to, uint64_t sp, uint64_t length, uint64_t complete,
		 const uint64_t *frames)
{
	const uint32_t id = 1, size = RECORD, tid = 7;
	const uint64_t ns = 1000;

	memset(to, 0, RECORD);
	memcpy(to, &id, 4);
	memcpy(to + 4, &size, 4);
	memcpy(to + 8, &ns, 8);
	memcpy(to + 16, &tid, 4);
	memcpy(to + 24, &sp, 8);
	memcpy(to + 32, &length, 8);
	memcpy(to + 40, &complete, 8);
	memcpy(to + 48, frames, 8 * FRAMES);
}

static void learn(const char *text)
{
	json_t *places = json_loads(text, 0, NULL);

	assert_int_equal(event_log_places(&events, places, NULL), 0);
	json_decref(places);
}

static const char places[] =
	"[{\"address\":\"0x1010\",\"function\":\"outer\",\"module\":\"m\",\"offset\":16},"
	"{\"address\":\"0x8000000000002020\",\"function\":\"loop\",\"module\":\"lib.so\","
	"\"offset\":null},"
	"{\"address\":\"0x4000000000003030\",\"function\":null,\"module\":\"lib.so\","
	"\"offset\":48},"
	"{\"address\":\"0x4040\",\"function\":null,\"module\":null,\"offset\":null}]";

static const uint64_t frames[FRAMES] = {
	0x1010, 0x8000000000002020, 0x4000000000003030, 0x4040, 0x5050, 0};

static int show(void *arg, const struct event *e)
{
	trace_event(arg, e, &out);
	return 0;
}

/* The lines of one record, behind its time and thread. */
static const char *shown(const uint8_t *record, bool json)
{
	struct trace t;

	trace_init(&t, &events);
	t.json = json;
	text_clear(&out);
	assert_int_equal(event_log_records(&events, record, RECORD, show, &t), 0);
	trace_flush(&t, UINT64_MAX, &out);
	assert_int_equal(t.lines, 1);
	trace_release(&t);
	return json ? out.data : strstr(out.data, "leaf");
}

#define INDENT "                                             "

static void test_lines(void **state)
{
	uint8_t record[RECORD];

	(void)state;
	learn(places);
	make(record, 100, 8 + 8 * 5, 1, frames);
	assert_string_equal(shown(record, false),
			    "leaf() {\n" INDENT "<- outer+0x10\n" INDENT
			    "<- loop (lib.so) interrupted\n" INDENT "<- lib.so+0x30 ?\n" INDENT
			    "<- 0x4040\n" INDENT "<- 0x5050\n");
	/* Not all of it is there. */
	make(record, 100, 8 + 8, 0, frames);
	assert_string_equal(shown(record, false),
			    "leaf() {\n" INDENT "<- outer+0x10\n" INDENT "<- ...\n");
	/* Another module came to lie there. */
	learn("[{\"address\":\"0x1010\",\"function\":\"\\u001b[2J\",\"module\":\"m2\","
	      "\"offset\":0}]");
	assert_string_equal(shown(record, false),
			    "leaf() {\n" INDENT "<- ?[2J+0x0 (m2)\n" INDENT "<- ...\n");
}

static void test_json(void **state)
{
	uint8_t record[RECORD];
	json_t *event, *stack;

	(void)state;
	learn(places);
	make(record, 100, 8 + 8 * 5, 1, frames);
	event = json_loads(shown(record, true), 0, NULL);
	stack = json_object_get(event, "stack");
	assert_int_equal(json_array_size(stack), 5);
	assert_true(json_is_true(json_object_get(event, "stack_complete")));
	assert_string_equal(json_string_value(json_object_get(json_array_get(stack, 1), "address")),
			    "0x2020");
	assert_true(json_is_true(json_object_get(json_array_get(stack, 1), "interrupted")));
	assert_true(json_is_true(json_object_get(json_array_get(stack, 2), "guessed")));
	assert_null(json_object_get(json_array_get(stack, 0), "interrupted"));
	assert_true(json_is_null(json_object_get(json_array_get(stack, 4), "function")));
	json_decref(event);
}

/* Lengths that cannot be, addresses that are none, rows that are none. */
static void test_damaged(void **state)
{
	static const uint64_t lengths[] = {0, 7, 8, 9, 56, 57, 1 << 20, UINT64_MAX};
	uint8_t record[RECORD];

	(void)state;
	learn("[null, 5, {}, {\"address\":7}, {\"address\":\"0x0\"}, {\"address\":\"0x1010\"},"
	      "{\"address\":\"0x5050\",\"function\":[],\"module\":{},\"offset\":-9}]");
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		make(record, 100, lengths[i], 1, frames);
		assert_non_null(shown(record, false));
		assert_non_null(shown(record, true));
	}
	assert_null(event_log_place(&events, 0x1011));
	assert_non_null(event_log_place(&events, 0x1010));
}

/* As many as there may be, from the last to the first; the rest has no names. */
static void test_many(void **state)
{
	enum { MANY = 3000 };
	char text[128];

	(void)state;
	for (unsigned n = MANY; n > 0; n--) {
		snprintf(
			text, sizeof(text),
			"[{\"address\":\"0x%x\",\"function\":\"f%u\",\"module\":\"m\",\"offset\":%u}]",
			16 * n, n, n);
		learn(text);
	}
	for (unsigned n = 1; n <= MANY; n++) {
		const struct event_place *p = event_log_place(&events, 16 * n);

		snprintf(text, sizeof(text), "f%u", n);
		assert_string_equal(p->function, text);
		assert_int_equal(p->offset, n);
		assert_int_equal(events.place_order[MANY - n]->word, 16 * n);
	}
}

static int write_event(void *arg, const struct event *e)
{
	return ctf_event(arg, &events, e, NULL);
}

static void test_recording(void **state)
{
	char path[] = "/tmp/dinst-stacks-XXXXXX", command[128];
	const struct ctf_facts facts = {.process = "m", .pid = 7};
	struct ctf_facts read;
	struct ctf_writer w;
	struct event_log log;
	struct trace t;
	uint8_t record[RECORD];

	(void)state;
	learn(places);
	make(record, 100, 8 + 8 * 5, 1, frames);
	assert_non_null(mkdtemp(path));
	assert_int_equal(ctf_create(&w, path, &facts, rows, NULL), 0);
	assert_int_equal(event_log_records(&events, record, RECORD, write_event, &w), 0);
	assert_int_equal(ctf_close(&w, &events, NULL), 0);
	event_log_init(&log);
	trace_init(&t, &log);
	text_clear(&out);
	assert_int_equal(ctf_read(path, &log, &read, show, &t, NULL), 0);
	trace_flush(&t, UINT64_MAX, &out);
	assert_string_equal(strstr(out.data, "leaf"),
			    "leaf() {\n" INDENT "<- outer+0x10\n" INDENT
			    "<- loop (lib.so) interrupted\n" INDENT "<- lib.so+0x30 ?\n" INDENT
			    "<- 0x4040\n" INDENT "<- 0x5050\n");
	trace_release(&t);
	event_log_release(&log);
	snprintf(command, sizeof(command), "rm -r %s", path);
	assert_int_equal(system(command), 0);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_lines), CASE(test_json),	CASE(test_damaged),
		CASE(test_many),  CASE(test_recording),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
