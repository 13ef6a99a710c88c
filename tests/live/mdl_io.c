/* SPDX-License-Identifier: MIT */
/*
 * mdl_io.c - io_ops, io_bytes, io_wait against the program's own books and
 * against /proc/PID/io.
 */
#include "tests/live/harness_thread.h"
#include "tests/live/mdl_help.h"

enum { MANY = 17000 };

/* rchar + wchar */
static int64_t characters(pid_t pid)
{
	char path[64];
	long long r = -1, w = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/io", pid);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "rchar: %lld wchar: %lld", &r, &w), 2);
	fclose(f);
	return r + w;
}

static void begin(struct harness *h)
{
	harness_start(h, "mdl_io", NULL);
	mdl_attach(h, NULL);
}

/* Everything that goes through read and write, its own input and output included. */
static void test_bytes(void **state)
{
	struct harness *h = *state;
	int64_t from, kernel, sent;
	unsigned id;
	const char *line;

	begin(h);
	id = mdl_insert(h, "io_bytes");
	/* the one and only command in flight is counted by both or by none */
	mdl_ask(h, "files 1");
	thread_wait_input(h->pid);
	from = characters(h->pid) - mdl_value(h, id);
	line = mdl_ask(h, "files 2000");
	thread_wait_input(h->pid);
	kernel = characters(h->pid) - from;
	/* sendfile reads and writes: twice for the kernel, once for us, 64 bytes a round */
	sent = 2000 * 64;
	assert_true(mdl_number(line, "bytes") > 1000000);
	assert_int_equal(mdl_value(h, id), kernel - sent);
	mdl_end(h);
}

static void test_operations(void **state)
{
	struct harness *h = *state;
	unsigned ops, bytes;
	int64_t ops_before, bytes_before;
	const char *line;
	size_t length;

	begin(h);
	ops = mdl_insert(h, "io_ops");
	bytes = mdl_insert(h, "io_bytes");
	mdl_ask(h, "fail 1");
	thread_wait_input(h->pid);
	ops_before = mdl_value(h, ops);
	bytes_before = mdl_value(h, bytes);
	line = mdl_ask(h, "sockets 700");
	length = strlen(line) + 1 + strlen("sockets 700\n");
	thread_wait_input(h->pid);
	/* and the command and its answer */
	assert_int_equal(mdl_value(h, ops) - ops_before, mdl_number(line, "ops") + 2);
	assert_int_equal(mdl_value(h, bytes) - bytes_before,
			 mdl_number(line, "bytes") + (int64_t)length);
	ops_before = mdl_value(h, ops);
	mdl_ask(h, "fail 100");
	thread_wait_input(h->pid);
	assert_int_equal(mdl_value(h, ops) - ops_before, 2);
	mdl_end(h);
}

/* Of one descriptor, and of each in a vector. */
static void test_descriptors(void **state)
{
	struct harness *h = *state;
	unsigned one, each, socket, ops, pipe;
	char focus[40];
	json_t *rows, *elements, *element;
	const char *line;
	size_t i, found = 0;
	int64_t fd_bytes, fd_ops;
	int fd;

	begin(h);
	fd = (int)mdl_number(mdl_ask(h, "files 1"), "fd");
	snprintf(focus, sizeof(focus), "/File/%d", fd);
	one = mdl_insert(h, "io_bytes", focus);
	ops = mdl_insert(h, "io_ops", focus);
	each = mdl_insert(h, "io_bytes", "/File/*");
	snprintf(focus, sizeof(focus), "/File/%d", (int)mdl_number(h->line, "pipe"));
	pipe = mdl_insert(h, "io_bytes", focus);
	line = mdl_ask(h, "files 300");
	fd_bytes = mdl_number(line, "fd_bytes");
	fd_ops = mdl_number(line, "fd_ops");
	assert_int_equal(mdl_value(h, one), fd_bytes);
	assert_int_equal(mdl_value(h, ops), fd_ops);
	/* sendfile, too, whose code in the C library is written in assembler */
	assert_int_equal(mdl_value(h, pipe), mdl_number(line, "pipe_bytes"));
	rows = mdl_rows(h, each);
	elements = json_object_get(json_array_get(rows, 0), "elements");
	json_array_foreach(elements, i, element)
	{
		const json_t *name = json_object_get(element, "key");
		const char *text = json_string_value(name);

		if (text ? atoi(text) == fd : json_integer_value(name) == fd) {
			assert_int_equal(json_integer_value(json_object_get(element, "value")),
					 fd_bytes);
			found++;
		}
	}
	assert_int_equal(found, 1);
	json_decref(rows);
	fd = (int)mdl_number(mdl_ask(h, "sockets 1"), "fd");
	snprintf(focus, sizeof(focus), "/File/Socket/%d", fd);
	socket = mdl_insert(h, "io_ops", focus);
	line = mdl_ask(h, "sockets 100");
	/* three of its four are functions for sockets only */
	assert_int_equal(mdl_value(h, socket), mdl_number(line, "fd_ops") * 3 / 4);
	mdl_end(h);
}

static void test_wait(void **state)
{
	struct harness *h = *state;
	unsigned id;
	int64_t waited, before;

	begin(h);
	id = mdl_insert(h, "io_wait", "/File/3");
	mdl_remove(h, id);
	id = mdl_insert(h, "io_wait", "/Code/mdl_io/read_pipe");
	before = mdl_value(h, id);
	waited = mdl_number(mdl_ask(h, "wait 200"), "waited");
	mdl_near("io_wait", mdl_value(h, id) - before, waited, 5, 0);
	mdl_end(h);
}

/* The value of the vector's element of that descriptor. */
static int64_t element_of(struct harness *h, unsigned id, int fd)
{
	json_t *rows = mdl_rows(h, id), *element;
	int64_t value = 0;
	size_t i;

	json_array_foreach(json_object_get(json_array_get(rows, 0), "elements"), i, element)
	{
		const json_t *key = json_object_get(element, "key");
		const char *text = json_string_value(key);

		if (text ? atoi(text) == fd : json_integer_value(key) == fd)
			value = json_integer_value(json_object_get(element, "value"));
	}
	json_decref(rows);
	return value;
}

/*
 * fear E4: a signal's handler writes while its thread reads: the reader's timer stops where it
 * has read, and what it has read counts
 */
static void test_handler(void **state)
{
	struct harness *h = *state;
	unsigned one, each, ops, why;
	int64_t waited, value;
	char focus[40];
	int fd;

	begin(h);
	fd = (int)mdl_number(mdl_ask(h, "wait 1"), "from");
	snprintf(focus, sizeof(focus), "/File/%d", fd);
	one = mdl_insert(h, "io_wait", focus);
	each = mdl_insert(h, "io_wait", "/File/*");
	why = mdl_insert(h, "read_wait", focus);
	ops = mdl_insert(h, "io_ops", focus);
	waited = mdl_number(mdl_ask(h, "signal 200"), "waited");
	value = mdl_value(h, one);
	mdl_near("io_wait", value, waited, 5, 5000000);
	mdl_near("its element", element_of(h, each, fd), waited, 5, 5000000);
	mdl_near("read_wait", mdl_value(h, why), waited, 5, 5000000);
	/* the handler's write is in it */
	assert_int_equal(mdl_value(h, ops), 2);
	usleep(300000);
	assert_int_equal(mdl_value(h, one), value);
	mdl_ask(h, "wait 100");
	assert_int_equal(mdl_value(h, ops), 3);
	mdl_end(h);
}

/* What was running when the same is asked for once more is not the second one's. */
static void test_second(void **state)
{
	struct harness *h = *state;
	unsigned first, second;
	int64_t before, waited, sum;
	int fd;

	begin(h);
	fd = (int)mdl_number(mdl_ask(h, "wait 1"), "from");
	first = mdl_insert(h, "io_wait", "/File/*");
	harness_send(h, "wait 1500\n");
	usleep(500000);
	before = element_of(h, first, fd);
	second = mdl_insert(h, "io_wait", "/File/*");
	sum = before + element_of(h, second, fd);
	assert_true(before > 300000000);
	if (sum > element_of(h, first, fd) + 1000000)
		fail_msg("the second one began %ld ns too early",
			 (long)(sum - element_of(h, first, fd)));
	waited = mdl_number(harness_line(h, HARNESS_ANSWER_MS), "waited");
	mdl_near("the first", element_of(h, first, fd), waited, 5, 5000000);
	assert_true(element_of(h, second, fd) <= waited - before);
	mdl_end(h);
}

/*
 * What is done with no descriptor, -1, has no place among the keys: it is in what all such have
 * together, and -2 has its own.
 */
static void test_no_descriptor(void **state)
{
	static const char text[] =
		"metric failures {\n"
		"	units operations; aggregateOperator sum; style EventCounter;\n"
		"	constraint file;\n"
		"	base is counter {\n"
		"		prepend preInsn byte_functions.return\n"
		"			(* if ($return < 0) failures++; *)\n"
		"	}\n"
		"}\n";
	struct harness *h = *state;
	int64_t none = 0, two = 0;
	json_t *rows, *element;
	unsigned id;
	size_t i;

	harness_start(h, "mdl_io", NULL);
	mdl_attach(h, text);
	id = mdl_insert(h, "failures", "/File/*");
	mdl_ask(h, "fail 100");
	rows = mdl_rows(h, id);
	json_array_foreach(json_object_get(json_array_get(rows, 0), "elements"), i, element)
	{
		const char *key = json_string_value(json_object_get(element, "key"));

		if (!key)
			none += json_integer_value(json_object_get(element, "value"));
		else if (!strcmp(key, "18446744073709551614"))
			two += json_integer_value(json_object_get(element, "value"));
	}
	json_decref(rows);
	assert_int_equal(none, 300);
	assert_int_equal(two, 100);
	assert_int_equal(mdl_value(h, id), 500);
	mdl_end(h);
}

/* A path names all descriptors that are open on it, however many others there are; of too many it is said. */
static void test_many_descriptors(void **state)
{
	struct harness *h = *state;
	const char *late;
	int64_t before;
	unsigned id;

	begin(h);
	late = mdl_ask(h, "many %d", MANY);
	if (mdl_number(late, "late") < 0) {
		mdl_ask(h, "few 0");
		print_message("skipped: a process may not have %d descriptors here\n", MANY);
		skip();
	}
	id = mdl_insert(h, "io_ops", "/File/*mdl_io*");
	mdl_ask(h, "late 5");
	assert_int_equal(mdl_value(h, id), 5);
	before = mdl_number(mdl_ask(h, "files 1"), "fd_ops");
	assert_int_equal(mdl_value(h, id), 5 + before);
	assert_int_not_equal(harness_dinst(h, NULL, "insert", "io_ops", "/File/dev/null", "-p",
					   harness_number(h->pid)),
			     0);
	if (!strstr(h->messages, "16384"))
		fail_msg("it says: %s", h->messages);
	mdl_ask(h, "few 0");
	mdl_end(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_bytes, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_operations, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_descriptors, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_wait, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_handler, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_second, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_no_descriptor, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_many_descriptors, harness_setup,
						harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
