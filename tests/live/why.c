/* SPDX-License-Identifier: MIT */
/*
 * why.c - `dinst why` names the culprit of programs that have one thing wrong with them
 * (targets/why.c), whichever of several it is, within 30 s; leaves nothing behind; finds
 * nothing where nothing is wrong; and keeps to its limit.
 */
#include "tests/live/mdl_help.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { SECONDS = 30 };

/* The only object that it prints; the caller frees. */
static json_t *ask(struct harness *h, bool grows)
{
	json_t *rows = NULL, *answer;
	int status = harness_dinst(h, &rows, "why", harness_number(h->pid), "-d",
				   harness_number(SECONDS));

	if (status != 0)
		fail_msg("why: status %d: %s", status, h->messages);
	assert_int_equal(json_array_size(rows), 1);
	answer = json_incref(json_array_get(rows, 0));
	json_decref(rows);
	/* A session that was made for the question is gone, and the target as it was; its own
	 * memory may have grown. */
	harness_verify_what(h, grows ? HARNESS_ALL & ~HARNESS_MAPS : HARNESS_ALL);
	return answer;
}

/* What was found of that kind; NULL if nothing was. */
static json_t *finding(json_t *answer, const char *why)
{
	json_t *list = json_object_get(answer, "findings"), *one;
	size_t index;

	json_array_foreach(list, index,
			   one) if (!strcmp(json_string_value(json_object_get(one, "why")),
					    why)) return one;
	return NULL;
}

static const char *state_of(json_t *answer, const char *why)
{
	json_t *list = json_object_get(answer, "tree"), *one;
	size_t index;

	json_array_foreach(
		list, index,
		one) if (!strcmp(json_string_value(json_object_get(one, "what")),
				 why)) return json_string_value(json_object_get(one, "state"));
	return "nothing";
}

static void show(json_t *answer)
{
	char *text = json_dumps(answer, JSON_INDENT(1));

	print_message("%s\n", text ? text : "?");
	free(text);
}

static void expect(json_t *answer, const char *why, const char *function, const char *in_text)
{
	json_t *one = finding(answer, why);
	const char *found = json_string_value(json_object_get(one, "function"));
	const char *text = json_string_value(json_object_get(one, "text"));

	if (!found || strcmp(found, function) != 0 || (in_text && !strstr(text, in_text)))
		show(answer);
	assert_non_null(found);
	assert_string_equal(found, function);
	if (in_text)
		assert_non_null(strstr(text, in_text));
	assert_true(json_number_value(json_object_get(answer, "seconds")) <= SECONDS + 5);
	assert_true(json_is_true(json_object_get(answer, "complete")));
}

static void run(struct harness *h, const char *what, int seed, const char *why,
		const char *function, const char *in_text)
{
	json_t *answer;

	harness_start(h, "why", what, harness_number(seed), NULL);
	answer = ask(h, !strcmp(what, "leak"));
	expect(answer, why, function, in_text);
	assert_true(json_number_value(
			    json_object_get(json_object_get(answer, "cost"), "highest")) <= 20);
	json_decref(answer);
	harness_end(h, 0);
}

static void test_cpu(void **state)
{
	run(*state, "cpu", 0, "CPU-bound", "hash_red", "called from pack_red() < handle_red()");
	run(*state, "cpu", 1, "CPU-bound", "hash_green", "called from pack_green()");
	run(*state, "cpu", 2, "CPU-bound", "hash_blue", "called from pack_blue()");
}

static void test_lock(void **state)
{
	run(*state, "lock", 0, "lock-bound", "update_totals", "in read_totals()");
	run(*state, "lock", 1, "lock-bound", "scan_table", "in read_totals()");
}

static void test_io(void **state)
{
	run(*state, "io", 0, "I/O-bound", "flush_journal", "pipe:");
	run(*state, "io", 1, "I/O-bound", "sync_journal", "/var/tmp/dinst-why-");
}

static void test_leak(void **state)
{
	run(*state, "leak", 0, "memory-bound", "keep_session", "called from answer_request()");
	run(*state, "leak", 1, "memory-bound", "keep_entry", "called from answer_request()");
}

/* Nothing is found where nothing is wrong, and what was tested is told. */
static void test_idle(void **state)
{
	struct harness *h = *state;
	json_t *answer;

	harness_start(h, "why", "idle", NULL);
	answer = ask(h, false);
	if (json_array_size(json_object_get(answer, "findings")))
		show(answer);
	assert_int_equal(json_array_size(json_object_get(answer, "findings")), 0);
	assert_string_equal(state_of(answer, "CPU-bound"), "fails");
	assert_string_equal(state_of(answer, "lock-bound"), "fails");
	assert_string_equal(state_of(answer, "I/O-bound"), "fails");
	assert_string_equal(state_of(answer, "memory-bound"), "fails");
	assert_non_null(
		strstr(json_string_value(json_object_get(answer, "verdict")), "nothing is wrong"));
	json_decref(answer);
	harness_end(h, 0);
}

/* A session that somebody else has, and what is inserted there, stay. */
static void test_guest(void **state)
{
	struct harness *h = *state;
	json_t *rows = NULL;
	unsigned id;

	harness_start(h, "why", "cpu", "0", NULL);
	mdl_attach(h, NULL);
	id = mdl_insert(h, "calls", "/Code/why/serve_request");
	assert_int_equal(harness_dinst(h, &rows, "why", "-p", harness_number(h->pid)), 0);
	expect(json_array_get(rows, 0), "CPU-bound", "hash_red", NULL);
	json_decref(rows);
	rows = NULL;
	assert_int_equal(harness_dinst(h, &rows, "read", "-p", harness_number(h->pid)), 0);
	assert_int_equal(json_array_size(rows), 1);
	assert_int_equal(harness_integer(rows, "id"), id);
	assert_true(harness_integer(rows, "value") > 0);
	json_decref(rows);
	mdl_end(h);
}

/* fear L3: what a program calls its files is no order to the terminal of whoever asks */
static void test_names(void **state)
{
	struct harness *h = *state;
	char socket[100], path[100], text[16384];
	int status, fd;
	ssize_t n;
	pid_t pid;

	harness_start(h, "why", "io", "1", NULL);
	snprintf(socket, sizeof(socket), "%s/dinstd.sock", h->directory);
	snprintf(path, sizeof(path), "%s/why", h->directory);
	h->daemon_used = true;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	pid = fork();
	if (pid == 0) {
		setenv("DINST_SOCKET", socket, 1);
		dup2(fd, 1);
		alarm(600);
		execl(harness_path("dinst"), "dinst", "why", harness_number(h->pid), NULL);
		_exit(126);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	n = pread(fd, text, sizeof(text) - 1, 0);
	assert_true(n > 0);
	text[n] = '\0';
	close(fd);
	if (!strstr(text, "/var/tmp/dinst-why-?[31m-") || strchr(text, '\033'))
		fail_msg("%s", text);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * A killed one has died of that and nothing else. An interrupted one ends in order, but where it had not even
 * begun to take signals, or to have a session, or somebody is in what it takes out: that it says.
 */
static void expect_cut_off(int status, int signal, const char *told)
{
	if (WIFSIGNALED(status) && WTERMSIG(status) == signal)
		return;
	if (signal != SIGINT || !WIFEXITED(status) ||
	    (WEXITSTATUS(status) != 0 && !strstr(told, "interrupted") &&
	     !strstr(told, "had to stay")))
		fail_msg("signal %d: status 0x%x: %s", signal, (unsigned)status, told);
}

/* dinst with its output going nowhere; killed at its `ms`, or ended by SIGINT. */
static void cut_off(struct harness *h, unsigned ms, int signal)
{
	const int messages = memfd_create("messages", MFD_CLOEXEC);
	char socket[100], pid_text[20], told[1000] = "";
	int status, null;
	pid_t pid;

	snprintf(socket, sizeof(socket), "%s/dinstd.sock", h->directory);
	snprintf(pid_text, sizeof(pid_text), "%d", (int)h->pid);
	h->daemon_used = true;
	pid = fork();
	if (pid == 0) {
		null = open("/dev/null", O_RDWR);
		setenv("DINST_SOCKET", socket, 1);
		dup2(null, 0);
		dup2(null, 1);
		dup2(messages, 2);
		alarm(600);
		execl(harness_path("dinst"), "dinst", "why", pid_text, NULL);
		_exit(126);
	}
	usleep(ms * 1000);
	kill(pid, signal);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (pread(messages, told, sizeof(told) - 1, 0) < 0)
		told[0] = '\0';
	close(messages);
	expect_cut_off(status, signal, told);
}

/* Nobody's session is left, sooner or later. */
static void wait_alone(struct harness *h)
{
	json_t *rows = NULL;
	bool alone = false;

	for (int i = 0; i < 1200 && !alone; i++) {
		usleep(100000);
		if (harness_dinst(h, &rows, "ls") == 0)
			alone = !json_array_size(rows);
		json_decref(rows);
		rows = NULL;
	}
	assert_true(alone);
}

/* Interrupted or killed in any of its phases it leaves the target as it was. */
static void test_cut_off(void **state)
{
	static const unsigned moments[] = {300, 2200, 3600, 4500, 6000};
	struct harness *h = *state;

	for (unsigned i = 0; i < sizeof(moments) / sizeof(moments[0]); i++) {
		harness_start(h, "why", "cpu", harness_number(i), NULL);
		cut_off(h, moments[i], i % 2 ? SIGINT : SIGKILL);
		wait_alone(h);
		harness_verify(h);
		harness_end(h, 0);
	}
}

static void test_usage(void **state)
{
	struct harness *h = *state;

	assert_int_equal(harness_dinst(h, NULL, "why", "1", "--limit", "0"), 2);
	assert_int_equal(harness_dinst(h, NULL, "why", "1", "--limit", "x"), 2);
	assert_int_equal(harness_dinst(h, NULL, "why", "1", "2"), 2);
	assert_int_equal(harness_dinst(h, NULL, "why", "1", "-d", "soon"), 2);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_cpu),	    CASE(test_lock),  CASE(test_io),
		CASE(test_leak),    CASE(test_idle),  CASE(test_guest),
		CASE(test_cut_off), CASE(test_usage), CASE(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
