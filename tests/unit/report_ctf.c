/* SPDX-License-Identifier: MIT */
/*
 * report_ctf.c - recordings: what is written is read back as it was, by us and, where it is
 * there, by babeltrace2; cut short anywhere and damaged at random it is read as far as it goes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/report/ctf.h"
#include "tests/unit/report_help.h"

static const char kinds[] =
	"[{\"id\":9,\"focus\":\"x\",\"events\":["
	"{\"id\":1,\"function\":\"look\\\"up\",\"module\":\"server\",\"kind\":\"entry\",\"address\":\"0x10\",\"fields\":["
	"{\"text\":\"$stack\",\"role\":\"sp\",\"name\":\"\",\"form\":\"value\",\"offset\":24,\"size\":8,\"type\":null},"
	"{\"text\":\"$arg[0]\",\"name\":\"n\",\"role\":\"argument\",\"form\":\"value\",\"offset\":32,\"size\":8,"
	"\"type\":{\"form\":\"int\",\"size\":4}},"
	"{\"text\":\"string($arg[1], 8)\",\"name\":\"\",\"role\":\"pointee\",\"form\":\"string\",\"offset\":40,\"size\":16}]},"
	"{\"id\":2,\"function\":\"look\\\"up\",\"module\":\"server\",\"kind\":\"return\",\"address\":\"0x20\",\"fields\":["
	"{\"text\":\"$stack\",\"role\":\"sp\",\"name\":\"\",\"form\":\"value\",\"offset\":24,\"size\":8,\"type\":null},"
	"{\"text\":\"$return\",\"name\":\"\",\"role\":\"result\",\"form\":\"value\",\"offset\":32,\"size\":8,"
	"\"type\":{\"form\":\"enum\",\"size\":4,\"names\":{\"0\":\"OK\",\"-1\":\"ERROR\"}}}]},"
	"{\"id\":3,\"function\":\"f\",\"module\":\"server\",\"kind\":\"entry\",\"address\":\"0x30\",\"fields\":["
	"{\"text\":\"$stack\",\"role\":\"sp\",\"name\":\"\",\"form\":\"value\",\"offset\":24,\"size\":8,\"type\":null},"
	"{\"text\":\"$arg[0]\",\"name\":\"ratio\",\"role\":\"argument\",\"form\":\"value\",\"offset\":32,\"size\":8,"
	"\"type\":{\"form\":\"float\",\"size\":4}},"
	"{\"text\":\"bytes($arg[1], 8)\",\"name\":\"\",\"role\":\"pointee\",\"form\":\"bytes\",\"offset\":40,\"size\":16}]},"
	"{\"id\":4,\"function\":\"move\",\"module\":\"server\",\"kind\":\"return\",\"address\":\"0x40\",\"fields\":["
	"{\"text\":\"$stack\",\"role\":\"sp\",\"name\":\"\",\"form\":\"value\",\"offset\":24,\"size\":8,\"type\":null},"
	"{\"text\":\"$arg[0]\",\"name\":\"stack\",\"role\":\"argument\",\"form\":\"value\",\"offset\":32,\"size\":8},"
	"{\"text\":\"$return.x\",\"name\":\"x\",\"role\":\"result\",\"form\":\"value\",\"offset\":40,\"size\":8},"
	"{\"text\":\"$return.y\",\"name\":\"y\",\"role\":\"result\",\"form\":\"value\",\"offset\":48,\"size\":8}]}"
	"]}]";

static char directory[] = "/tmp/dinst-ctf-XXXXXX";
static char path[256];

static int setup(void **state)
{
	(void)state;
	setenv("TZ", "UTC", 1);
	tzset();
	return mkdtemp(directory) ? 0 : -1;
}

static void remove_recording(const char *name)
{
	static const char *const files[] = {"metadata", "stream", ".dinst"};
	char file[512];

	for (size_t i = 0; i < 3; i++) {
		snprintf(file, sizeof(file), "%s/%s", name, files[i]);
		unlink(file);
	}
	rmdir(name);
}

static int teardown(void **state)
{
	(void)state;
	return rmdir(directory);
}

static int remove_path(void **state)
{
	(void)state;
	remove_recording(path);
	return 0;
}

/* ------------------------------------------------------------------- writing */

struct writing {
	struct event_log log;
	struct ctf_writer writer;
	json_t *rows;
};

static int write_event(void *arg, const struct event *e)
{
	struct writing *w = arg;
	struct dinst_error error = {0};

	if (ctf_event(&w->writer, &w->log, e, &error))
		fail_msg("%s", error.text);
	return 0;
}

static void begin(struct writing *w, const char *name)
{
	const struct ctf_facts facts = {.process = "server", .pid = 70, .words = "lookup f"};
	struct dinst_error e = {0};

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	event_log_init(&w->log);
	w->rows = json_loads(kinds, 0, NULL);
	assert_int_equal(event_log_kinds(&w->log, w->rows, &e), 0);
	assert_int_equal(event_log_name(&w->log, 77, 70, "worker", &e), 0);
	w->log.epoch_ns = 1000000000000000000 - 1000;
	if (ctf_create(&w->writer, path, &facts, w->rows, &e))
		fail_msg("%s", e.text);
}

static void feed(struct writing *w, uint32_t id, uint64_t ns, uint64_t value, const char *string)
{
	uint8_t record[64];
	const size_t size = record_make(record, id, ns, 77, id == 3 ? 0x800 : 0x900, value, string);

	assert_int_equal(event_log_records(&w->log, record, size, write_event, w), 0);
}

static void end(struct writing *w)
{
	struct dinst_error e = {0};

	if (ctf_close(&w->writer, &w->log, &e))
		fail_msg("%s", e.text);
	event_log_release(&w->log);
	json_decref(w->rows);
}

static uint64_t bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static void write_some(const char *name)
{
	struct writing w;

	begin(&w, name);
	feed(&w, 1, 1000, 5, "abc");
	feed(&w, 3, 2000, bits_of(0.5f), "\001\002\003\0");
	w.log.dropped = 3;
	feed(&w, 2, 3234, (uint64_t)-1, NULL);
	end(&w);
}

/* ------------------------------------------------------------------- reading */

struct reading {
	struct event_log log;
	struct ctf_facts facts;
	struct trace trace;
	struct text out;
};

static int show(void *arg, const struct event *e)
{
	struct reading *r = arg;

	trace_event(&r->trace, e, &r->out);
	return 0;
}

static int read_path(struct reading *r, struct dinst_error *e)
{
	int status;

	*r = (struct reading){0};
	event_log_init(&r->log);
	trace_init(&r->trace, &r->log);
	status = ctf_read(path, &r->log, &r->facts, show, r, e);
	trace_flush(&r->trace, UINT64_MAX, &r->out);
	return status;
}

static void done(struct reading *r)
{
	trace_release(&r->trace);
	text_drop(&r->out);
	event_log_release(&r->log);
}

static void test_back(void **state)
{
	struct dinst_error e = {0};
	struct reading r;

	(void)state;
	write_some("back");
	if (read_path(&r, &e))
		fail_msg("%s", e.text);
	assert_string_equal(
		r.out.data,
		"01:46:40.000000  worker/77               look\"up(n=5) {\n"
		"01:46:40.000001  worker/77                 f(ratio=0.5) {\n"
		"01:46:40.000002  worker/77               } = ERROR [2.234 us]  look\"up\n");
	assert_string_equal(r.facts.process, "server");
	assert_string_equal(r.facts.words, "lookup f");
	assert_int_equal(r.facts.pid, 70);
	assert_int_equal(r.facts.first_ns, 1000);
	assert_int_equal(r.facts.last_ns, 3234);
	assert_false(r.facts.cut);
	assert_int_equal(r.log.dropped, 3);
	assert_int_equal(r.log.damaged, 0);
	done(&r);
}

struct compared {
	uint8_t record[64];
	size_t size;
	unsigned seen;
};

static int compare(void *arg, const struct event *e)
{
	struct compared *c = arg;

	assert_int_equal(e->size, c->size);
	assert_memory_equal(e->data, c->record, c->size);
	c->seen++;
	return 0;
}

/* Records come back byte for byte. */
static void test_records(void **state)
{
	struct compared c = {.seen = 0};
	struct dinst_error e = {0};
	struct ctf_facts facts;
	struct event_log log;
	struct writing w;

	(void)state;
	begin(&w, "records");
	feed(&w, 1, 1234567890123, 0xfffffffffffffffe, "abcdefgh");
	end(&w);
	c.size = record_make(c.record, 1, 1234567890123, 77, 0x900, 0xfffffffffffffffe, "abcdefgh");
	event_log_init(&log);
	assert_int_equal(ctf_read(path, &log, &facts, compare, &c, &e), 0);
	assert_int_equal(c.seen, 1);
	event_log_release(&log);
}

static int count(void *arg, const struct event *e)
{
	uint64_t *n = arg;

	*n += e->size > 0;
	return 0;
}

/* Many packets: none is larger than it may be, and all events are there. */
static void test_many(void **state)
{
	struct dinst_error e = {0};
	struct ctf_facts facts;
	struct event_log log;
	struct writing w;
	uint64_t n = 0;
	struct stat st;
	char file[512];

	(void)state;
	begin(&w, "many");
	for (uint64_t i = 0; i < 40000; i++)
		feed(&w, 1, 1000 + i, i, "abc");
	end(&w);
	event_log_init(&log);
	assert_int_equal(ctf_read(path, &log, &facts, count, &n, &e), 0);
	assert_int_equal(n, 40000);
	assert_false(facts.cut);
	event_log_release(&log);
	snprintf(file, sizeof(file), "%s/stream", path);
	assert_int_equal(stat(file, &st), 0);
	assert_true(st.st_size > 5 * 256 * 1024);
}

/* A directory that has something in it is left alone. */
static void test_taken(void **state)
{
	const struct ctf_facts facts = {.process = "x"};
	struct dinst_error e = {0};
	struct ctf_writer w;

	(void)state;
	write_some("taken");
	assert_int_equal(ctf_create(&w, path, &facts, NULL, &e), DINST_BAD_FILE);
	assert_non_null(strstr(e.text, "not empty"));
	dinst_error_clear(&e);
	assert_int_equal(ctf_create(&w, "/nowhere/at/all", &facts, NULL, &e), DINST_BAD_FILE);
}

/* -------------------------------------------------------------------- damage */

static size_t read_file(const char *name, uint8_t **bytes)
{
	char file[512];
	struct stat st;
	int fd;

	snprintf(file, sizeof(file), "%s/%s", path, name);
	fd = open(file, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	*bytes = malloc((size_t)st.st_size + 1);
	assert_int_equal(read(fd, *bytes, (size_t)st.st_size), st.st_size);
	close(fd);
	return (size_t)st.st_size;
}

static void write_file(const char *name, const uint8_t *bytes, size_t size)
{
	char file[512];
	int fd;

	snprintf(file, sizeof(file), "%s/%s", path, name);
	fd = open(file, O_WRONLY | O_TRUNC | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, size), size);
	close(fd);
}

/* Killed while it was written: what is whole is there, and it is said that the end is not. */
static void test_cut(void **state)
{
	struct dinst_error e = {0};
	struct reading r;
	uint8_t *bytes;
	size_t size, two;
	struct writing w;

	(void)state;
	begin(&w, "cut");
	feed(&w, 1, 1000, 5, "abc");
	assert_int_equal(ctf_flush(&w.writer, &w.log, &e), 0);
	feed(&w, 2, 2000, 0, NULL);
	end(&w);
	size = read_file("stream", &bytes);
	two = 64 + 4 + 8 + 8 + 7 + 8 + 8;
	for (size_t length = 0; length <= size; length++) {
		write_file("stream", bytes, length);
		dinst_error_clear(&e);
		assert_int_equal(read_path(&r, &e), 0);
		assert_int_equal(r.log.events, length == size ? 2 : length >= size - two ? 1 : 0);
		assert_int_equal(r.facts.cut, length && length != size && length != size - two);
		done(&r);
	}
	free(bytes);
}

static void damage(uint8_t *bytes, size_t size)
{
	for (int k = 1 + (int)(random() % 6); k > 0; k--)
		bytes[(size_t)random() % size] =
			(uint8_t)(random() % 4 ? random() : '0' + random() % 10);
}

/* Any bytes at all: an error or some events, and nothing else. */
static void test_damaged(void **state)
{
	static const char *const names[] = {"stream", ".dinst", "metadata"};
	uint8_t *whole[3], *copy;
	size_t sizes[3], errors = 0, good = 0;
	struct reading r;

	(void)state;
	write_some("damaged");
	srandom(7);
	for (int i = 0; i < 3; i++)
		sizes[i] = read_file(names[i], &whole[i]);
	for (int n = 0; n < 3000; n++) {
		const int i = n % 3;
		struct dinst_error e = {0};

		copy = malloc(sizes[i]);
		memcpy(copy, whole[i], sizes[i]);
		damage(copy, sizes[i]);
		write_file(names[i], copy, n % 5 ? sizes[i] : (size_t)random() % sizes[i]);
		errors += read_path(&r, &e) < 0;
		good += r.log.events > 0;
		done(&r);
		write_file(names[i], whole[i], sizes[i]);
		free(copy);
	}
	for (int i = 0; i < 3; i++)
		free(whole[i]);
	assert_true(errors > 50);
	assert_true(good > 500);
}

static void test_strange(void **state)
{
	struct dinst_error e = {0};
	struct reading r;
	char file[512];

	(void)state;
	write_some("strange");
	/* Devices and pipes are no files of ours, and reading them does not hang. */
	snprintf(file, sizeof(file), "%s/stream", path);
	unlink(file);
	assert_int_equal(mkfifo(file, 0600), 0);
	assert_int_equal(read_path(&r, &e), DINST_BAD_FILE);
	done(&r);
	unlink(file);
	assert_int_equal(symlink("/dev/zero", file), 0);
	dinst_error_clear(&e);
	assert_int_equal(read_path(&r, &e), DINST_BAD_FILE);
	done(&r);
	unlink(file);
	dinst_error_clear(&e);
	assert_int_equal(read_path(&r, &e), DINST_BAD_FILE);
	done(&r);
	remove_recording(path);
	dinst_error_clear(&e);
	assert_int_equal(read_path(&r, &e), DINST_BAD_FILE);
	done(&r);
}

/* What was asked for is cut where there is no more room for it, in the middle of a character or not. */
static void test_cut_words(void **state)
{
	const struct ctf_facts facts = {
		.process = "server\xc3", .pid = 70, .words = "lookup \xe4\xb8"};
	struct ctf_writer w;
	struct event_log log;
	struct dinst_error e = {0};
	json_t *rows = json_array();

	(void)state;
	snprintf(path, sizeof(path), "%s/words", directory);
	event_log_init(&log);
	if (ctf_create(&w, path, &facts, rows, &e) || ctf_close(&w, &log, &e))
		fail_msg("%s", e.text);
	event_log_release(&log);
	json_decref(rows);
}

/* ---------------------------------------------------------------- babeltrace2 */

static void test_babeltrace(void **state)
{
	static const char *const expected[] = {
		"[01:46:40.000000000]",
		"server:look?up:entry: { vtid = 77, vpid = 70, procname = \"worker\" }",
		"n = 5, to2 = \"abc\"",
		"server:f:entry: ",
		"ratio = 0.5,",
		"[0] = 0x1",
		"( \"ERROR\" : container = -1 )",
		"Tracer discarded 3 events between",
	};
	char command[600], *text = calloc(1, 65536);
	FILE *from;
	size_t used;

	(void)state;
	if (system("command -v babeltrace2 >/dev/null 2>&1") != 0) {
		free(text);
		write_some("babeltrace");
		print_message("babeltrace2 is not there\n");
		skip();
	}
	write_some("babeltrace");
	snprintf(command, sizeof(command), "babeltrace2 --clock-gmt %s 2>&1", path);
	from = popen(command, "r");
	used = fread(text, 1, 65535, from);
	assert_int_equal(pclose(from), 0);
	assert_true(used > 0);
	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
		if (!strstr(text, expected[i]))
			fail_msg("no '%s' in:\n%s", expected[i], text);
	free(text);
}

/* Arguments called as what we add ourselves, and the parts of a struct that is returned: no two names are alike. */
static void test_alike(void **state)
{
	char command[600], text[4096] = "";
	struct writing w;
	FILE *from;
	size_t used;

	(void)state;
	begin(&w, "alike");
	feed(&w, 4, 1000, 5, "abc");
	end(&w);
	if (system("command -v babeltrace2 >/dev/null 2>&1") != 0) {
		print_message("babeltrace2 is not there\n");
		skip();
	}
	snprintf(command, sizeof(command), "babeltrace2 --clock-gmt %s 2>&1", path);
	from = popen(command, "r");
	used = fread(text, 1, sizeof(text) - 1, from);
	assert_true(used > 0);
	if (pclose(from) != 0 || !strstr(text, "stack_1 = 5, return_x = 3, return_y = "))
		fail_msg("%s", text);
}

#define RECORDING_TEST(name) cmocka_unit_test_teardown(name, remove_path)

int main(void)
{
	const struct CMUnitTest tests[] = {
		RECORDING_TEST(test_back),	RECORDING_TEST(test_records),
		RECORDING_TEST(test_many),	RECORDING_TEST(test_taken),
		RECORDING_TEST(test_cut),	RECORDING_TEST(test_damaged),
		RECORDING_TEST(test_strange),	RECORDING_TEST(test_babeltrace),
		RECORDING_TEST(test_cut_words), RECORDING_TEST(test_alike),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
