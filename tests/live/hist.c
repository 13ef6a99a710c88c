/* SPDX-License-Identifier: MIT */
/*
 * hist.c - dinst hist: exact counts, in all and for each key; what it prints and refuses.
 */
#include "tests/live/daemon_calls.h"

#include <limits.h>

static struct output *o;
static struct program program;

static int setup(void **state)
{
	int err = fixture_setup(state);

	unsetenv("DINST_MUTATOR");
	setenv("LC_ALL", "C.UTF-8", 1);
	o = malloc(sizeof(*o));
	start_calls(&program);
	return err;
}

static int teardown(void **state)
{
	end_calls(&program);
	free(o);
	return fixture_teardown(state);
}

/* Runs `dinst hist ...` in the background, into a file. */
static pid_t begin(const char *path, const char *line)
{
	struct dinst_error e = {0, ""};
	char *argv[32] = {fixture_dinst}, text[300];
	struct words w;
	pid_t pid;

	snprintf(text, sizeof(text), "hist -p %d %s", (int)program.pid, line);
	assert_int_equal(words_split(text, &w, &e), 0);
	for (int n = 0; n < 30 && w.word[n]; n++)
		argv[n + 1] = w.word[n];
	pid = fork();
	if (pid == 0) {
		int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

		alarm(600);
		dup2(fd, 1);
		execv(fixture_dinst, argv);
		_exit(126);
	}
	words_release(&w);
	wait_active(o);
	return pid;
}

static void finish(pid_t pid, const char *path)
{
	int status, fd;

	kill(pid, SIGINT);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	read_all(fd, o->out);
	close(fd);
}

/* What it says of so many rounds of the program, as JSON. */
static json_t *answer_of(const char *line, int rounds)
{
	char path[200], text[300];
	json_t *answer;
	pid_t pid;

	snprintf(path, sizeof(path), "%s/hist", fixture_directory);
	snprintf(text, sizeof(text), "%s --json -d 100", line);
	pid = begin(path, text);
	go(&program, rounds);
	finish(pid, path);
	answer = json_loads(o->out, 0, NULL);
	if (!answer)
		fail_msg("%s: no JSON: %.300s", line, o->out);
	return answer;
}

static long long number(json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

/* Two threads call it twice in a round each: as a part of work(), and by itself. */
static void counts_are_exact(void **state)
{
	json_t *answer = answer_of("many", 500), *bucket;
	long long sum = 0, last = -1;
	size_t index;

	(void)state;
	assert_int_equal(number(answer, "count"), 1000);
	json_array_foreach(json_object_get(answer, "buckets"), index, bucket)
	{
		assert_true(json_integer_value(json_array_get(bucket, 0)) > last);
		last = json_integer_value(json_array_get(bucket, 0));
		sum += json_integer_value(json_array_get(bucket, 2));
	}
	assert_int_equal(sum, 1000);
	assert_true(number(answer, "p50") > 0 && number(answer, "max") >= last);
	assert_true(number(answer, "p50") <= number(answer, "p90"));
	assert_true(number(answer, "p90") <= number(answer, "p99"));
	assert_true(number(answer, "p99") <= number(answer, "p999"));
	assert_true(number(answer, "p999") <= number(answer, "max"));
	assert_string_equal(json_string_value(json_object_get(answer, "function")), "many");
	assert_non_null(json_object_get(answer, "cost_percent"));
	json_decref(answer);
}

static void by_key(const char *by, size_t keys_least, size_t keys_most)
{
	char line[100];
	json_t *answer, *elements, *element;
	long long sum = 0;
	size_t index;

	snprintf(line, sizeof(line), "many --by %s", by);
	answer = answer_of(line, 500);
	elements = json_object_get(answer, "elements");
	json_array_foreach(elements, index, element) sum += number(element, "count");
	if (sum != 1000 || number(answer, "count") != 1000)
		fail_msg("%s: %lld", by, sum);
	if (json_array_size(elements) < keys_least || json_array_size(elements) > keys_most)
		fail_msg("%s: %zu keys: %.500s", by, json_array_size(elements), o->out);
	json_decref(answer);
}

static void one_for_each_key(void **state)
{
	(void)state;
	by_key("thread", 2, 2);
	by_key("caller", 1, 8);
	by_key("arg0", 1, 600);
}

/* Bars for people, once, into a pipe; the whole into a file with -o. */
static void what_people_see(void **state)
{
	char path[200];
	pid_t pid;

	(void)state;
	snprintf(path, sizeof(path), "%s/hist", fixture_directory);
	pid = begin(path, "many --by thread");
	go(&program, 500);
	finish(pid, path);
	if (!strstr(o->out, "many in calls") || !strstr(o->out, "1000 calls") ||
	    !strstr(o->out, "p99.9") || !strstr(o->out, "█") || !strstr(o->out, "KEY") ||
	    !strstr(o->out, "% of a CPU") || strstr(o->out, "\033"))
		fail_msg("%s", o->out);
	run_dinst(o, "hist -p %d many -d 0.2 -o %s/file", (int)program.pid, fixture_directory);
	assert_int_equal(o->status, 0);
	assert_string_equal(o->out, "");
	snprintf(path, sizeof(path), "%s/file", fixture_directory);
	read_all(open(path, O_RDONLY), o->out);
	assert_non_null(strstr(o->out, "many in calls"));
}

static void write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

/* Where there is no result the file is as it was, and none is left; a shorter result is all of it. */
static void file_of_before(void **state)
{
	char path[200], text[6001];

	(void)state;
	memset(text, '#', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	snprintf(path, sizeof(path), "%s/before", fixture_directory);
	write_text(path, text);
	run_dinst(o, "hist -p nobody-has-this-name many -d 0.2 -o %s", path);
	assert_int_equal(o->status, 1);
	read_all(open(path, O_RDONLY), o->out);
	assert_string_equal(o->out, text);
	run_dinst(o, "hist -p %d many -d 0.2 -o %s", (int)program.pid, path);
	assert_int_equal(o->status, 0);
	read_all(open(path, O_RDONLY), o->out);
	assert_non_null(strstr(o->out, "many in calls"));
	assert_null(strchr(o->out, '#'));
	write_text(path, text);
	run_dinst(o, "hist -p %d no-such-function -d 0.2 -o %s", (int)program.pid, path);
	assert_int_equal(o->status, 1);
	read_all(open(path, O_RDONLY), o->out);
	assert_string_equal(o->out, text);
	snprintf(path, sizeof(path), "%s/none", fixture_directory);
	run_dinst(o, "hist -p %d no-such-function -d 0.2 -o %s", (int)program.pid, path);
	assert_int_equal(o->status, 1);
	assert_int_equal(access(path, F_OK), -1);
	run_dinst(o, "hist -p nobody-has-this-name many -d 0.2 -o %s", path);
	assert_int_equal(o->status, 1);
	assert_int_equal(access(path, F_OK), -1);
}

/* fear F3: of two functions of one name that is measured which was meant */
static void one_of_two_names(void **state)
{
	const struct program calls = program;
	char where[64];
	json_t *answer, *row;

	(void)state;
	start_program(&program, "twins");
	read_line(&program, where);
	answer = answer_of(where, 100);
	assert_int_equal(number(answer, "count"), 100);
	json_decref(answer);
	answer = answer_of("twins:same_name", 100);
	assert_int_equal(number(answer, "count"), 300);
	json_decref(answer);
	/* what a stub will be bound to is no other file's own function */
	run_dinst(o, "attach %d -n twins", (int)program.pid);
	assert_int_equal(o->status, 0);
	answer = ask("callees", "{\"session\":\"twins\",\"functions\":[\"twins:parse\"]}");
	row = json_array_get(json_object_get(json_object_get(answer, "result"), "rows"), 0);
	row = json_array_get(json_object_get(row, "callees"), 0);
	assert_string_equal(json_string_value(json_object_get(row, "function")), "strfry");
	assert_string_equal(json_string_value(json_object_get(row, "module")), "libc.so.6");
	json_decref(answer);
	run_dinst(o, "detach twins");
	end_calls(&program);
	program = calls;
}

/*
 * fear L3: two who ask one session at a time do not load what the other one has meant by
 * its names, and a session takes more questions than files of metrics
 */
static void many_who_ask(void **state)
{
	json_t *loaded, *answer;

	(void)state;
	run_dinst(o, "attach %d -n asked", (int)program.pid);
	assert_int_equal(o->status, 0);
	for (int i = 0; i < 63; i++) {
		char params[100];

		snprintf(params, sizeof(params),
			 "{\"session\":\"asked\",\"name\":\"%d.mdl\",\"text\":\"\"}", i);
		loaded = ask("load", params);
		assert_non_null(json_object_get(loaded, "result"));
		json_decref(loaded);
	}
	for (int i = 0; i < 3; i++) {
		answer = answer_of("many --by arg0", 10);
		assert_int_equal(number(answer, "count"), 20);
		json_decref(answer);
		/* a session that is at work says what it said last: that is to be none the next time */
		do
			run_dinst(o, "ls --json");
		while (!strstr(o->out, "\"active\":0,"));
	}
	run_dinst(o, "metrics --json -p asked");
	assert_non_null(strstr(o->out, "\"hist_"));
	assert_null(strstr(o->out, "\"hist_key\""));
	run_dinst(o, "detach asked");
	assert_int_equal(o->status, 0);
}

/* With the program the time ends that rates are of, whatever -d says. */
static void ends_with_the_program(void **state)
{
	char path[200];
	json_t *answer;
	int status, fd;
	pid_t pid;

	(void)state;
	snprintf(path, sizeof(path), "%s/ended", fixture_directory);
	pid = begin(path, "many -d 500 --json");
	go(&program, 10);
	end_calls(&program);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	start_calls(&program);
	assert_int_equal(status, 0);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	read_all(fd, o->out);
	close(fd);
	answer = json_loads(o->out, 0, NULL);
	assert_int_equal(number(answer, "count"), 20);
	assert_true(json_number_value(json_object_get(answer, "seconds")) < 400);
	json_decref(answer);
}

static void refused(const char *line, int status, const char *text)
{
	run_dinst(o, "hist %s", line);
	if (o->status != status || !strstr(o->err, text))
		fail_msg("hist %s: %d: %.300s", line, o->status, o->err);
}

static void what_is_refused(void **state)
{
	char line[100];

	(void)state;
	refused("many", 2, "say -p PID");
	refused("many --by colour", 2, "--by takes");
	refused("many -d never", 2, "--duration takes");
	refused("many -i 0", 2, "--interval takes");
	/* 2^32 ms */
	refused("many -i 4294967.296", 2, "--interval takes");
	snprintf(line, sizeof(line), "-p %d mani -d 1", (int)program.pid);
	refused(line, 1, "did you mean 'many'");
	snprintf(line, sizeof(line), "-p %d many -o /no/such/place", (int)program.pid);
	refused(line, 1, "cannot write");
	refused("-p no-such-program many", 1, "no-such-program");
	/* nothing of all that stays */
	run_dinst(o, "ls --json");
	assert_string_equal(o->out, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_are_exact), cmocka_unit_test(one_for_each_key),
		cmocka_unit_test(what_people_see),  cmocka_unit_test(file_of_before),
		cmocka_unit_test(one_of_two_names), cmocka_unit_test(many_who_ask),
		cmocka_unit_test(what_is_refused),  cmocka_unit_test(ends_with_the_program),
	};

	return cmocka_run_group_tests_name("live/hist", tests, setup, teardown);
}
