/* SPDX-License-Identifier: MIT */
/*
 * daemon_attaching.c - a live dinstd with the fake mutator, and clients that come or go
 * while a session begins or gives way.
 */
#include "tests/live/daemon_fixture.h"

/* How many sessions the process has. */
static int sessions_of(pid_t pid)
{
	json_t *answer = ask("sessions", "{}"), *row;
	int count = 0;
	size_t n;

	json_array_foreach(json_object_get(json_object_get(answer, "result"), "rows"), n, row)
		count += json_integer_value(json_object_get(row, "pid")) == pid;
	json_decref(answer);
	return count;
}

/* As raw_code(), of the next answer: what is told in between is passed over. */
static int answer_code(int fd)
{
	json_t *answer, *error;
	int code = 1;

	do {
		answer = raw_hear(fd, ANSWER_MS);
	} while (answer && !json_object_get(answer, "id") && (json_decref(answer), 1));
	error = json_object_get(answer, "error");
	if (answer)
		code = error ? (int)json_integer_value(json_object_get(error, "code")) : 0;
	json_decref(answer);
	return code;
}

/*
 * One waits for the answer of a session's mutator, and meanwhile that session, whose target has
 * ended as its mutator says, gives way to another client's: all get the same new one.
 */
static void both_attach_anew(void **state)
{
	pid_t target = start_target("coveted");
	int first = raw_connect(), second = raw_connect();
	char line[200], params[100];

	(void)state;
	snprintf(params, sizeof(params), "{\"target\":%d}", (int)target);
	expect_word("attach", params, "");
	request(line, sizeof(line), "funcs", "{\"session\":\"coveted\",\"pattern\":\"@event\"}");
	raw_say(first, line);
	request(line, sizeof(line), "funcs", "{\"session\":\"coveted\",\"pattern\":\"@slow\"}");
	raw_say(first, line);
	request(line, sizeof(line), "attach", params);
	raw_say(first, line);
	/* the event came before this answer, and the slow one is at work */
	assert_int_equal(answer_code(first), 0);
	raw_say(second, line);
	assert_int_equal(answer_code(second), 0);
	assert_int_equal(answer_code(first), -32000);
	assert_int_equal(answer_code(first), 0);
	assert_int_equal(sessions_of(target), 1);
	close(first);
	close(second);
	expect_word("detach", "{\"session\":\"coveted\"}", "");
	end_target(target);
	still_well();
}

/* True once the fake mutators were asked that. */
static int was_asked(const char *text)
{
	char command[300];

	snprintf(command, sizeof(command), "grep -qF '%s' %s", text, fixture_log);
	for (int ms = 0; ms < ANSWER_MS; ms += 50) {
		if (system(command) == 0)
			return 1;
		nap_ms(50);
	}
	return 0;
}

/* What an earlier session left was being taken out: whoever detaches is told, and it goes on. */
static void detached_while_cleaning(void **state)
{
	pid_t target = start_target("unclean");
	struct output *o = malloc(sizeof(*o));
	int fd = raw_connect();
	char line[200], params[100];

	(void)state;
	snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"@leftovers\"}", (int)target);
	request(line, sizeof(line), "attach", params);
	raw_say(fd, line);
	snprintf(line, sizeof(line), "\"pid\":%d,\"session\":\"@leftovers\"", (int)target);
	assert_true(was_asked(line));
	nap_ms(300);
	run_dinst(o, "detach @leftovers --json");
	assert_int_equal(o->status, 3);
	assert_non_null(strstr(o->out, "\"left\":null"));
	snprintf(line, sizeof(line), "dinst repair %d", (int)target);
	assert_non_null(strstr(o->err, line));
	assert_int_equal(raw_code(fd, ANSWER_MS), -32000);
	close(fd);
	snprintf(line, sizeof(line), "\"method\":\"repair\",\"params\":{\"pid\":%d}", (int)target);
	assert_true(was_asked(line));
	free(o);
	end_target(target);
	still_well();
}

/* A session without a mutator cannot say how much is left, and no number is shown. */
static void lost_is_unknown(void **state)
{
	pid_t target = start_target("unknown");
	struct output *o = malloc(sizeof(*o));
	char params[100];

	(void)state;
	snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"unknown\"}", (int)target);
	expect_word("attach", params, "");
	for (int i = 0; i < 5; i++)
		expect_word("funcs", "{\"session\":\"unknown\",\"pattern\":\"@crash\"}", "daemon");
	run_dinst(o, "detach unknown");
	assert_int_equal(o->status, 3);
	assert_null(strstr(o->out, "0 left"));
	assert_non_null(strstr(o->out, "not known"));
	free(o);
	end_target(target);
	still_well();
}

/* Programs that come and go leave no more sessions, and mutators, than lived at once. */
static void names_are_taken_again(void **state)
{
	pid_t stays = start_target("recurring");
	char params[100];

	(void)state;
	snprintf(params, sizeof(params), "{\"target\":%d}", (int)stays);
	expect_word("attach", params, "");
	for (int n = 0; n < 5; n++) {
		pid_t passes = start_target("recurring");

		snprintf(params, sizeof(params), "{\"target\":%d}", (int)passes);
		expect_word("attach", params, "");
		expect_word("funcs", "{\"session\":\"recurring-2\"}", "");
		end_target(passes);
	}
	expect_word("funcs", "{\"session\":\"recurring-3\"}", "no-such-session");
	expect_word("detach", "{\"session\":\"recurring-2\"}", "");
	expect_word("detach", "{\"session\":\"recurring\"}", "");
	end_target(stays);
	still_well();
}

/* The directory of the socket goes, and who comes before that is noticed gets the daemon that was there */
static void directory_goes(void **state)
{
	struct output *o = malloc(sizeof(*o));
	const pid_t daemon = daemon_pid();
	char away[64], command[100];

	(void)state;
	snprintf(away, sizeof(away), "%s-away", fixture_directory);
	assert_int_equal(rename(fixture_directory, away), 0);
	assert_int_equal(mkdir(fixture_directory, 0700), 0);
	start_daemon_by_client();
	run_dinst(o, "ls --json");
	assert_non_null(strstr(o->out, "\"session\":\"base\""));
	assert_int_equal(daemon_pid(), daemon);
	snprintf(command, sizeof(command), "rm -rf %s", away);
	assert_int_equal(system(command), 0);
	free(o);
	still_well();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_attach_anew), cmocka_unit_test(detached_while_cleaning),
		cmocka_unit_test(lost_is_unknown),  cmocka_unit_test(names_are_taken_again),
		cmocka_unit_test(directory_goes),
	};

	return cmocka_run_group_tests_name("daemon_attaching", tests, fixture_setup_base,
					   fixture_teardown);
}
