/* SPDX-License-Identifier: MIT */
/*
 * daemon_protocol.c - a live dinstd against clients that do not keep to the
 * rules. After every case it must still answer `ping` and serve the session
 * that was there before.
 */
#include "tests/live/daemon_fixture.h"

/* fear L3: lines that are no requests are answered with what is wrong, and the connection goes on */
static void garbage_lines(void **state)
{
	static const struct {
		const char *text;
		int code; /* 0: a result; 1: no answer */
	} lines[] = {
		{PING, 0},
		{"\n", 1},
		{"   \n", 1},
		{"x\n", -32700},
		{"{\n", -32700},
		{"\x01\x02\xff\xfe\n", -32700},
		{"GET / HTTP/1.1\n", -32700},
		{"[]\n", -32600},
		{"["
		 "{}"
		 "]\n",
		 -32600},
		{"{}\n", -32600},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"bogus\"}\n", -32601},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\"}\n", -32601},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"attach\"}\n", -32602},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"attach\",\"params\":{\"target\":[]}}\n",
		 -32602},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"attach\",\"params\":[]}\n", -32602},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"catch_exec\",\"params\":{\"pid\":-1}}\n",
		 -32602},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"repair\",\"params\":{}}\n", -32602},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"read\",\"params\":{\"session\":[]}}\n",
		 -32000},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"read\",\"params\":{\"session\":-7}}\n",
		 -32000},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"read\",\"params\":{\"session\":99999999999}}\n",
		 -32000},
		{"{\"jsonrpc\":\"2.0\",\"method\":\"ping\"}\n", 1},
		{"{\"jsonrpc\":\"2.0\",\"method\":\"bogus\"}\n", 1},
		{"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}\n", 0},
		{"{\"jsonrpc\":\"2.0\",\"id\":\"\\\"\\\\\",\"method\":\"ping\"}\n", 0},
	};
	int fd = raw_connect();

	(void)state;
	/* one connection for all: an error does not end it */
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		int code;

		raw_say(fd, lines[i].text);
		if (lines[i].code == 1) {
			/* nothing comes; the next answer is that of the ping behind it */
			raw_say(fd, PING);
			code = raw_code(fd, ANSWER_MS) == 0 ? 1 : 2;
		} else {
			code = raw_code(fd, ANSWER_MS);
		}
		if (code != lines[i].code)
			fail_msg("%s: %d instead of %d", lines[i].text, code, lines[i].code);
	}
	close(fd);
	still_well();
}

/* fear L3: a line of 3 MiB, and one of a million brackets, are refused, and the connection goes on */
static void huge_line(void **state)
{
	enum { BYTES = 3 << 20 };
	char *text = malloc(BYTES);
	int fd = raw_connect();

	(void)state;
	memset(text, 'x', BYTES);
	text[BYTES - 1] = '\n';
	raw_send(fd, text, BYTES);
	assert_int_equal(raw_code(fd, ANSWER_MS), -32600);
	raw_say(fd, PING);
	assert_int_equal(raw_code(fd, ANSWER_MS), 0);
	/* brackets only, below the limit of length */
	memset(text, '[', BYTES);
	text[1000000] = '\n';
	raw_send(fd, text, 1000001);
	assert_int_equal(raw_code(fd, ANSWER_MS), -32700);
	raw_say(fd, PING);
	assert_int_equal(raw_code(fd, ANSWER_MS), 0);
	close(fd);
	free(text);
	still_well();
}

/* fear L3: bytes of good requests flipped, cut and doubled, by a generator with a fixed seed */
static void flipped_bytes(void **state)
{
	static const char *const good[] = {
		"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"read\",\"params\":{\"ids\":[1,2],\"session\":\"base\"}}\n",
		"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"sessions\",\"params\":{}}\n",
		"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"attach\",\"params\":{\"target\":\"base\",\"name\":null}}\n",
		("{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"insert\",\"params\":{\"metric\":\"calls\",\"focus\":"
		 "[\"/Code/x/y\"],\"each\":true,\"session\":\"base\"}}\n"),
		"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"complete\",\"params\":{\"prefix\":\"y\",\"max\":3}}\n",
	};
	uint32_t seed = 2026;
	char line[400];

	(void)state;
	for (int round = 0; round < 300; round++) {
		int fd = raw_connect();

		for (int n = 0; n < 20; n++) {
			size_t length;

			seed = seed * 1664525 + 1013904223;
			snprintf(line, sizeof(line), "%s", good[(seed >> 16) % 5]);
			length = strlen(line);
			for (unsigned flips = (seed >> 20) % 5; flips > 0; flips--) {
				seed = seed * 1664525 + 1013904223;
				line[(seed >> 8) % length] ^= (char)(1 << (seed >> 29));
			}
			if (seed % 7 == 0)
				length = (seed >> 8) % length;
			raw_send(fd, line, length);
		}
		close(fd);
		if (round % 60 == 0)
			still_well();
	}
	still_well();
}

/* fear L3: a client that only shuts down its output still gets its answers */
static void half_closed(void **state)
{
	int fd = raw_connect();
	char line[200];

	(void)state;
	request(line, sizeof(line), "funcs", "{\"session\":\"base\",\"pattern\":\"@slow\"}");
	raw_say(fd, line);
	shutdown(fd, SHUT_WR);
	assert_int_equal(raw_code(fd, ANSWER_MS), 0);
	assert_null(raw_hear(fd, ANSWER_MS)); /* and then the end, not the time limit */
	close(fd);
	still_well();
}

/* fear L3: clients that are killed with a request under way and half of another leave nothing behind */
static void killed_in_mid_request(void **state)
{
	char line[200];

	(void)state;
	request(line, sizeof(line), "funcs", "{\"session\":\"base\",\"pattern\":\"@slow\"}");
	for (int i = 0; i < 5; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			int fd = raw_connect();

			raw_say(fd, line);
			raw_send(fd, line, 20); /* and the beginning of another one */
			pause();
		}
		nap_ms(30);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	still_well();
}

/* fear L3: clients that ask for a process by its name and go before it is found: nobody is joined */
static void gone_before_it_is_found(void **state)
{
	struct output *o = malloc(sizeof(*o));
	char name[16], params[64], line[200];
	pid_t target;

	(void)state;
	/* one process has it, and its session another name */
	snprintf(name, sizeof(name), "look-%d", (int)getpid());
	target = start_target(name);
	run_dinst(o, "attach %d -n found", (int)target);
	assert_int_equal(o->status, 0);
	snprintf(params, sizeof(params), "{\"target\":\"%s\"}", name);
	request(line, sizeof(line), "attach", params);
	for (int i = 0; i < 100; i++) {
		int fd = raw_connect();

		raw_say(fd, line);
		close(fd);
	}
	still_well();
	/* who waits is joined */
	expect_word("attach", params, "");
	run_dinst(o, "detach -p found");
	assert_int_equal(o->status, 0);
	end_target(target);
	free(o);
}

/* fear L3: a hundred clients that send nothing or half a line, and one that does not read, harm nobody */
static void silent_and_slow(void **state)
{
	int silent[100], slow = raw_connect(), size = 4096;
	char line[200];

	(void)state;
	for (size_t i = 0; i < 100; i++) {
		silent[i] = raw_connect();
		if (i % 2)
			raw_say(silent[i], "{\"jsonrpc\":");
	}
	setsockopt(slow, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	request(line, sizeof(line), "funcs", "{\"session\":\"base\",\"pattern\":\"@huge\"}");
	for (int i = 0; i < 10; i++)
		raw_say(slow, line);
	still_well();
	for (int i = 0; i < 10; i++)
		assert_int_equal(raw_code(slow, ANSWER_MS), 0);
	for (size_t i = 0; i < 100; i++)
		close(silent[i]);
	close(slow);
	still_well();
}

/* fear L3: 500 requests at once on one connection are all answered, in order */
static void pipelined(void **state)
{
	int fd = raw_connect();
	char line[200];

	(void)state;
	for (int i = 0; i < 500; i++) {
		snprintf(
			line, sizeof(line),
			"{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"funcs\",\"params\":{\"session\":\"base\"}}\n",
			i);
		raw_say(fd, line);
	}
	for (int i = 0; i < 500; i++) {
		json_t *answer = raw_hear(fd, ANSWER_MS);

		assert_int_equal(json_integer_value(json_object_get(answer, "id")), i);
		json_decref(answer);
	}
	close(fd);
}

/* fear L3: the 257th client is turned away, and the others are served */
static void too_many_clients(void **state)
{
	int fds[300], served = 0, served_again = 0;

	(void)state;
	for (int i = 0; i < 300; i++) {
		fds[i] = raw_connect();
		raw_say(fds[i], PING);
		served += raw_code(fds[i], ANSWER_MS) == 0;
	}
	assert_in_range(served, 200, 256);
	for (int i = 0; i < 300; i++)
		close(fds[i]);
	/* Until the daemon has heard of it. */
	for (int ms = 0; ms < ANSWER_MS && !served_again; ms += 20) {
		int fd = raw_connect();

		raw_say(fd, PING);
		served_again = raw_code(fd, ANSWER_MS) == 0;
		close(fd);
		nap_ms(20);
	}
	still_well();
}

/* Of the daemon, in KiB. */
static long daemon_resident(void)
{
	char path[40], line[200];
	long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)daemon_pid());
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "VmRSS: %ld", &kib) == 1)
			break;
	fclose(f);
	return kib;
}

/*
 * fear L3: a mutator is at work for long, and clients come, ask, give up and go, again and again: what
 * they have asked is not kept for nobody, and the memory of the daemon does not grow with it
 */
static void what_the_gone_have_asked(void **state)
{
	enum { BUSY = 20, CLIENTS = 60, ASKED = 60, LENGTH = 30000 };
	char *line = malloc(LENGTH + 200), *params = malloc(LENGTH + 100);
	const int busy = raw_connect();
	long before;

	(void)state;
	request(line, 300, "funcs", "{\"session\":\"base\",\"pattern\":\"@slow\"}");
	for (int i = 0; i < BUSY; i++)
		raw_say(busy, line);
	snprintf(params, LENGTH + 100, "{\"session\":\"base\",\"pattern\":\"%0*d\"}", LENGTH, 1);
	request(line, LENGTH + 200, "funcs", params);
	before = daemon_resident();
	for (int i = 0; i < CLIENTS; i++) {
		const int fd = raw_connect();

		for (int j = 0; j < ASKED; j++)
			raw_say(fd, line);
		close(fd);
	}
	/* who comes after them is told that they are gone */
	json_decref(ask("ping", "{}"));
	assert_true(daemon_resident() - before < 40 * 1024);
	for (int i = 0; i < BUSY; i++)
		assert_int_equal(raw_code(busy, ANSWER_MS), 0);
	close(busy);
	free(params);
	free(line);
	still_well();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(garbage_lines),	 cmocka_unit_test(huge_line),
		cmocka_unit_test(flipped_bytes),	 cmocka_unit_test(half_closed),
		cmocka_unit_test(killed_in_mid_request), cmocka_unit_test(gone_before_it_is_found),
		cmocka_unit_test(silent_and_slow),	 cmocka_unit_test(pipelined),
		cmocka_unit_test(too_many_clients),	 cmocka_unit_test(what_the_gone_have_asked),
	};

	/* The address sanitizer is not to keep 256 MiB of what was freed. */
	setenv("ASAN_OPTIONS", "quarantine_size_mb=1", 0);
	return cmocka_run_group_tests_name("daemon_protocol", tests, fixture_setup_base,
					   fixture_teardown);
}
