/* SPDX-License-Identifier: MIT */
/*
 * daemon_metrics.c - values over HTTP while mutators are silent, slow, die, or talk nonsense.
 * The mutator is the fake one. A scrape is answered whatever they do.
 */
#include "tests/live/daemon_fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>

static uint16_t port;
static char token[128];

/* One request; the whole answer, "" if there is none within a hundred seconds. */
static const char *http(const char *method, const char *path, const char *headers, const char *body)
{
	static char answer[1 << 20];
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons(port),
				.sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct timeval limit = {100, 0};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char request[4096];
	size_t used = 0;
	ssize_t n;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	snprintf(request, sizeof(request),
		 "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s"
		 "Content-Length: %zu\r\n\r\n%s",
		 method, path, headers, strlen(body), body);
	raw_say(fd, request);
	while ((n = recv(fd, answer + used, sizeof(answer) - 1 - used, 0)) > 0)
		used += (size_t)n;
	answer[used] = '\0';
	close(fd);
	return answer;
}

static int status_of(const char *answer)
{
	return strlen(answer) > 12 ? atoi(answer + 9) : 0;
}

static void scrape_has(const char *text)
{
	const char *answer = http("GET", "/metrics", "", "");

	if (status_of(answer) != 200 || !strstr(answer, text))
		fail_msg("no '%s' in: %.3000s", text, answer);
}

/* Scrapes until that is told, or no more. */
static int comes_to_have(const char *text, int wanted)
{
	for (int ms = 0; ms < ANSWER_MS; ms += 50) {
		if ((strstr(http("GET", "/metrics", "", ""), text) != NULL) == wanted)
			return 1;
		nap_ms(50);
	}
	return 0;
}

/* `params` are those of insert; with the token. */
static int insert(const char *params)
{
	char headers[300];

	snprintf(headers, sizeof(headers),
		 "Content-Type: application/json\r\nAuthorization: Bearer %s\r\n", token);
	return status_of(http("POST", "/api/insert", headers, params));
}

static int setup(void **state)
{
	json_t *answer;
	char params[300];
	FILE *f;

	if (fixture_setup_base(state) != 0)
		return -1;
	snprintf(params, sizeof(params), "{\"address\":\"127.0.0.1:0\",\"token\":\"%s/token\"}",
		 fixture_directory);
	answer = ask("serve", params);
	if (!answer ||
	    sscanf(json_string_value(json_object_get(json_object_get(answer, "result"), "url")),
		   "http://127.0.0.1:%hu/", &port) != 1)
		return -1;
	json_decref(answer);
	snprintf(params, sizeof(params), "%s/token", fixture_directory);
	f = fopen(params, "r");
	if (!f || fscanf(f, "%127s", token) != 1)
		return -1;
	fclose(f);
	return 0;
}

/* The first number of that name in the answer, or -1. */
static long long answered(const char *path, const char *name)
{
	const char *at = strstr(http("GET", path, "", ""), name);

	return at ? strtoll(at + strlen(name), NULL, 10) : -1;
}

static void values_are_served(void **state)
{
	long long opened;

	(void)state;
	expect_word("insert", "{\"session\":\"base\",\"metric\":\"calls\",\"focus\":[]}", "");
	scrape_has("dinst_session_up{session=\"base\"");
	scrape_has("\ndinst_calls_total{session=\"base\"");
	assert_int_equal(insert("{\"session\":\"base\",\"metric\":\"calls\",\"focus\":[]}"), 200);
	assert_int_equal(insert("{\"session\":\"base\",\"metric\":\"none\",\"focus\":[]}"), 409);
	/* which session it is, both say alike */
	opened = answered("/api/state", "\"opened_ns\":");
	assert_true(opened > 0);
	assert_int_equal(answered("/api/values?session=base", "\"opened_ns\":"), opened);
	still_well();
}

/* 64 histories at once; who asks for more is told so, and does not miss some without a word. */
static void histories_of_too_many(void **state)
{
	char path[500], ids[200] = "1";

	(void)state;
	for (size_t n = 1; n < 64; n++)
		memcpy(ids + strlen(ids), ",1", sizeof(",1"));
	snprintf(path, sizeof(path), "/api/history?session=base&ids=%s", ids);
	assert_int_equal(status_of(http("GET", path, "", "")), 200);
	snprintf(path, sizeof(path), "/api/history?session=base&ids=%s,1", ids);
	assert_int_equal(status_of(http("GET", path, "", "")), 400);
	assert_non_null(strstr(http("GET", path, "", ""), "64 at most"));
}

/* One that is at work is not waited for, and what it said last stands. */
static void who_is_at_work_is_not_waited_for(void **state)
{
	enum { ASKED = 30 }; /* 0.4 s each */
	int fd = raw_connect();
	const char values[] = "/api/values?session=base";
	char line[300];
	long long taken;

	(void)state;
	scrape_has("\ndinst_calls_total{");
	request(line, sizeof(line), "funcs", "{\"session\":\"base\",\"pattern\":\"@slow\"}");
	for (int i = 0; i < ASKED; i++)
		raw_say(fd, line);
	nap_ms(600);
	for (int i = 0; i < 5; i++)
		scrape_has("\ndinst_calls_total{");
	assert_int_equal(status_of(http("GET", values, "", "")), 200);
	/* of the same moment, whenever it is asked for */
	taken = answered(values, "\"taken_ms\":");
	assert_true(taken > 0);
	nap_ms(600);
	assert_int_equal(answered(values, "\"taken_ms\":"), taken);
	scrape_has("dinst_session_age_seconds{session=\"base\"");
	assert_non_null(strstr(http("GET", "/api/state", "", ""), "\"busy\":\"funcs\""));
	for (int i = 0; i < ASKED; i++)
		assert_int_equal(raw_code(fd, ANSWER_MS), 0);
	close(fd);
}

/* What an answer says of the session `base`, or -1. */
static double of_base(const char *answer, const char *name)
{
	const char *at = strstr(answer, name);

	at = at ? strstr(at, "} ") : NULL;
	return at ? strtod(at + 2, NULL) : -1;
}

/*
 * fear L3: one whose answers come late once (it was stopped, or had no processor) is asked again as soon as any
 * other, for values and for histories, and not after a share of what that one took
 */
static void who_was_slow_once_is_asked_again(void **state)
{
	const char age[] = "dinst_session_age_seconds{session=\"base\"";
	json_t *answer, *row;
	json_int_t pause = 0;
	double seconds = -1;
	char path[100];
	FILE *held;

	(void)state;
	assert_true(comes_to_have(age, 1));
	snprintf(path, sizeof(path), "%s.held", fixture_log);
	held = fopen(path, "w");
	assert_non_null(held);
	fclose(held);
	nap_ms(500);
	scrape_has(age);
	nap_ms(1500);
	assert_int_equal(unlink(path), 0);
	nap_ms(5000);
	for (int i = 0; i < 60 && (seconds < 0 || seconds > 4); i++) {
		seconds = of_base(http("GET", "/metrics", "", ""), age);
		nap_ms(500);
	}
	assert_true(seconds >= 0 && seconds <= 4);
	for (int i = 0; i < 60 && (pause <= 0 || pause > 20000); i++) {
		answer = ask("sessions", "{}");
		row = json_array_get(json_object_get(json_object_get(answer, "result"), "rows"), 0);
		pause = json_integer_value(json_object_get(row, "sampled_ms"));
		json_decref(answer);
		nap_ms(500);
	}
	assert_in_range(pause, 1, 20000);
}

/* What was inserted is gone with the mutator, and so are its values; the next one has others. */
static void the_dead_take_their_values_along(void **state)
{
	static const char *const words[] = {"@crash", "@exit", "@garbage", "@wrong", "@truncated"};
	char params[200];

	(void)state;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		/* one word in each session: too many deaths in a minute end it */
		pid_t target = start_target("fleet-target");

		snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"s%zu\"}", (int)target,
			 i);
		expect_word("attach", params, "");
		snprintf(params, sizeof(params), "{\"session\":\"s%zu\",\"metric\":\"calls\"}", i);
		expect_word("insert", params, "");
		snprintf(params, sizeof(params), "dinst_calls_total{session=\"s%zu\"", i);
		assert_true(comes_to_have(params, 1));
		snprintf(params, sizeof(params),
			 "{\"session\":\"s%zu\",\"metric\":\"calls\",\"focus\":[\"%s\"]}", i,
			 words[i]);
		assert_int_equal(insert(params), 409);
		snprintf(params, sizeof(params), "dinst_calls_total{session=\"s%zu\"", i);
		assert_true(comes_to_have(params, 0));
		scrape_has("dinst_session_up{");
		snprintf(params, sizeof(params), "{\"session\":\"s%zu\"}", i);
		expect_word("detach", params, "");
		end_target(target);
	}
	assert_int_equal(status_of(http("GET", "/-/healthy", "", "")), 200);
}

/* A client that leaves while its request waits; a session that goes meanwhile. */
static void who_leaves_is_not_missed(void **state)
{
	pid_t target = start_target("fleet-leaver");
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons(port),
				.sin_addr = {htonl(INADDR_LOOPBACK)}};
	char params[200];

	(void)state;
	for (int i = 0; i < 40; i++) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
		raw_say(fd, "GET /api/state HTTP/1.1\r\nHost: localhost\r\n\r\n");
		if (i % 8 == 0) {
			snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"leaver\"}",
				 (int)target);
			expect_word("attach", params, "");
		} else if (i % 8 == 4) {
			expect_word("detach", "{\"session\":\"leaver\"}", "");
		}
		close(fd);
	}
	end_target(target);
	scrape_has("dinst_build_info");
}

/*
 * fear L3: what is inserted over HTTP stays, also where the session was attached to by a client for
 * the time of its connection only, which ends then
 */
static void what_is_inserted_stays(void **state)
{
	pid_t target = start_target("fleet-held");
	char params[200], line[400];
	int fd;

	(void)state;
	for (int inserts = 1; inserts >= 0; inserts--) {
		fd = raw_connect();
		snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"held\",\"hold\":true}",
			 (int)target);
		request(line, sizeof(line), "attach", params);
		raw_say(fd, line);
		assert_int_equal(raw_code(fd, ANSWER_MS), 0);
		if (inserts)
			assert_int_equal(insert("{\"session\":\"held\",\"metric\":\"calls\","
						"\"focus\":[]}"),
					 200);
		close(fd);
		nap_ms(1500);
		expect_word("read", "{\"session\":\"held\"}", inserts ? "" : "no-such-session");
		if (inserts)
			expect_word("detach", "{\"session\":\"held\"}", "");
	}
	end_target(target);
	still_well();
}

/* Processor time that the daemon has taken, in clock ticks. */
static unsigned long daemon_ticks(void)
{
	unsigned long user = 0, system = 0;
	char path[40];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)daemon_pid());
	f = fopen(path, "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f,
				"%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
				&user, &system),
			 2);
	fclose(f);
	return user + system;
}

/*
 * fear L3: the daemon has no descriptor for who connects, and nobody else is connected whose end would
 * bring one: it does not ask for one all the time, and who waits is answered as soon as there is one.
 */
static void without_descriptors_nothing_spins(void **state)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons(port),
				.sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const struct timeval limit = {ANSWER_MS / 1000, 0};
	unsigned long ticks, taken;
	struct rlimit before;
	char command[100], answer[16] = "";

	(void)state;
	snprintf(command, sizeof(command), "grep -qF 'a connection cannot be taken' %s/d.log",
		 fixture_directory);
	scrape_has("dinst_build_info");
	nap_ms(200);
	assert_int_equal(prlimit(daemon_pid(), RLIMIT_NOFILE, NULL, &before), 0);
	assert_int_equal(prlimit(daemon_pid(), RLIMIT_NOFILE, &(struct rlimit){0, before.rlim_max},
				 NULL),
			 0);
	ticks = daemon_ticks();
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	raw_say(fd, "GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
	nap_ms(2000);
	taken = daemon_ticks() - ticks;
	assert_int_equal(prlimit(daemon_pid(), RLIMIT_NOFILE, &before, NULL), 0);
	assert_true(recv(fd, answer, sizeof(answer) - 1, MSG_WAITALL) > 0);
	close(fd);
	assert_int_equal(status_of(answer), 200);
	assert_int_equal(system(command), 0);
	if (taken > (unsigned long)sysconf(_SC_CLK_TCK) / 4)
		fail_msg("the daemon took %lu ticks to wait", taken);
	scrape_has("dinst_build_info");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_are_served),
		cmocka_unit_test(histories_of_too_many),
		cmocka_unit_test(who_leaves_is_not_missed),
		cmocka_unit_test(what_is_inserted_stays),
		cmocka_unit_test(the_dead_take_their_values_along),
		cmocka_unit_test(who_is_at_work_is_not_waited_for),
		cmocka_unit_test(who_was_slow_once_is_asked_again),
		cmocka_unit_test(without_descriptors_nothing_spins),
	};

	return cmocka_run_group_tests(tests, setup, fixture_teardown);
}
