/* SPDX-License-Identifier: MIT */
/*
 * daemon_ends.c - sessions whose target is not what it was: it ended and left
 * children, it executed another program, or nobody is left to let it go. And
 * requests whose parameters have the wrong type, with the real mutator.
 */
#include "tests/live/daemon_group.h"

/* The state letter of a process; 0 if there is none. */
static char state_of(pid_t pid)
{
	char path[40], state = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "r");
	if (f) {
		if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
			state = 0;
		fclose(f);
	}
	return state;
}

static char fifo[100];

/* A program with a child that lives on after it, with everything inserted into it: the child. */
static int start_background(const char *name)
{
	const char *text;
	int child = 0;

	snprintf(fifo, sizeof(fifo), "%s/%s", fixture_directory, name);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	run_dinst(
		o,
		"exec -q -n %s --wait -e 'insert calls' -- /bin/sh -c '(read x <%s; exit 0) & echo child $!'",
		name, fifo);
	text = strstr(o->out, "child ");
	assert_non_null(text);
	assert_int_equal(sscanf(text, "child %d", &child), 1);
	for (int i = 0; i < 6000 && !strstr(o->out, "exited"); i++) {
		nap_ms(10);
		run_dinst(o, "ls -p %s", name);
	}
	assert_non_null(strstr(o->out, "exited"));
	assert_true(has_arena(child));
	return child;
}

/* It still knows how to go on and end. */
static void end_background(int child)
{
	int writer;

	assert_false(has_arena(child));
	writer = open(fifo, O_WRONLY | O_CLOEXEC);
	assert_true(writer >= 0);
	assert_int_equal(write(writer, "x\n", 2), 2);
	close(writer);
	assert_true(wait_gone(child, ANSWER_MS));
}

static void wait_clean(int child)
{
	for (int i = 0; i < 6000 && has_arena(child); i++)
		nap_ms(10);
}

/* A program that goes to the background: what its child has inherited is taken out of it, too. */
static void child_outlives(void **state)
{
	const int child = start_background("background");

	(void)state;
	run_dinst(o, "detach background --json");
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "\"left\":0"));
	assert_null(strstr(o->out, "\"restored\":0"));
	end_background(child);
}

/* fear J1: the same where nobody detaches, but another program gets the session's name */
static void child_outlives_name(void **state)
{
	const int child = start_background("taken");

	(void)state;
	run_dinst(o, "attach %d -n taken", (int)fixture_target);
	assert_int_equal(o->status, 0);
	wait_clean(child);
	end_background(child);
	run_dinst(o, "detach taken");
	assert_int_equal(o->status, 0);
}

/*
 * fear J2: a mutator dies after its target has ended and left a child with what was inserted: nobody can name
 * the child, and all is taken out of it
 */
static void child_outlives_mutator(void **state)
{
	const int child = start_background("orphaned");

	(void)state;
	assert_int_equal(kill(mutator_pid(), SIGKILL), 0);
	wait_clean(child);
	end_background(child);
	run_dinst(o, "detach orphaned");
	assert_int_equal(o->status, 0);
}

/* Its values stay, and whoever asks is told why they do not change. */
static void target_executes(void **state)
{
	int told = 0;
	int in[2];
	pid_t pid;

	(void)state;
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], 0);
		execl("/bin/sh", "sh", "-c", "read x; exec sleep 1000", (char *)NULL);
		_exit(126);
	}
	close(in[0]);
	for (int i = 0; i < 6000 && state_of(pid) != 'S'; i++)
		nap_ms(10);
	run_dinst(o, "attach %d -n changing -e 'insert calls /Code/libc.so.6/read'", (int)pid);
	assert_int_equal(o->status, 0);
	assert_int_equal(write(in[1], "x\n", 2), 2);
	for (int i = 0; i < 6000 && !strstr(o->out, " exec "); i++) {
		nap_ms(10);
		run_dinst(o, "ls -p changing");
		told |= strstr(o->err, "executed another program") != NULL;
	}
	/* it may have been noticed after this client was answered: then the next one is told */
	run_dinst(o, "watch -i 0.05 -c 2 -p changing");
	assert_int_equal(o->status, 0);
	assert_true(told || strstr(o->err, "executed another program"));
	run_dinst(o, "insert calls /Code/libc.so.6/read -p changing --json");
	assert_int_equal(o->status, 1);
	assert_non_null(strstr(o->err, "\"code\":\"gone\""));
	run_dinst(o, "detach changing --json");
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "\"restored\":0,\"left\":0"));
	close(in[1]);
	end_target(pid);
}

static long long member(const char *line, const char *key)
{
	const char *at = strstr(line, key);

	return at ? strtoll(at + strlen(key), NULL, 10) : -1;
}

/* Mutator and client die while a program is held: the daemon lets it go. */
static void held_and_forsaken(void **state)
{
	char path[80], list[64] = "";
	pid_t client, daemon;
	long long pid = -1;
	FILE *f;

	(void)state;
	start_daemon_by_client();
	client = fork();
	if (client == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
			_exit(126);
		execl(fixture_dinst, "dinst", "exec", "-n", "kept", "-e",
		      "insert calls /Code/libc.so.6/read", "-e", "watch -i 1 -c 1000", "--",
		      "sleep", "1000", (char *)NULL);
		_exit(126);
	}
	for (int i = 0; i < 6000 && pid < 0; i++) {
		nap_ms(10);
		run_dinst(o, "ls --json");
		/* while it inserts, the client would give up */
		if (strstr(o->out, "\"held\"") && strstr(o->out, "\"active\":1"))
			pid = member(o->out, "\"pid\":");
	}
	assert_true(pid > 0);
	for (int i = 0; i < 6000 && state_of((pid_t)pid) != 'T'; i++)
		nap_ms(10);
	assert_int_equal(state_of((pid_t)pid), 'T');
	daemon = daemon_pid();
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)daemon, (int)daemon);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_non_null(fgets(list, sizeof(list), f));
	fclose(f);
	assert_int_equal(kill(atoi(list), SIGKILL), 0);
	for (int i = 0; i < 6000 && !strstr(o->err, "started again"); i++) {
		nap_ms(10);
		run_dinst(o, "ls");
		/* the client may have heard of it first */
		if (strstr(o->out, "held") && i > 20)
			break;
	}
	/* Letting go of it makes it look runnable until it has stopped again. */
	for (int i = 0; i < 6000 && state_of((pid_t)pid) != 'T'; i++)
		nap_ms(10);
	assert_int_equal(state_of((pid_t)pid), 'T');
	end_target(client);
	/* It runs, and then sleeps. */
	for (int i = 0; i < 6000 && state_of((pid_t)pid) != 'S'; i++)
		nap_ms(10);
	assert_int_equal(state_of((pid_t)pid), 'S');
	run_dinst(o, "detach kept");
	assert_int_equal(o->status, 0);
	kill((pid_t)pid, SIGKILL);
}

/*
 * It stops itself while it is let go, or right after: it stays so until its user lets it go on. Nothing that is sent
 * comes after exec has ended.
 */
static void expect_stopped(const char *program, const char *command, int status)
{
	char path[600];
	pid_t pid;

	target_path(program, path, sizeof(path));
	run_dinst(o, "exec -n stopping %s -- %s", command, path);
	assert_int_equal(o->status, status);
	assert_null(strstr(o->out, "went on"));
	run_dinst(o, "ls --json");
	pid = (pid_t)member(o->out, "\"pid\":");
	assert_true(pid > 0);
	for (int i = 0; i < 6000 && state_of(pid) != 'T'; i++) {
		if (!state_of(pid) || state_of(pid) == 'Z')
			fail_msg("%s went on by itself", program);
		nap_ms(10);
	}
	assert_int_equal(state_of(pid), 'T');
	run_dinst(o, "detach stopping");
	assert_int_equal(o->status, 0);
	assert_int_equal(state_of(pid), 'T');
	assert_int_equal(kill(pid, SIGCONT), 0);
	assert_true(wait_gone(pid, ANSWER_MS));
}

/* fear G3: a program that stops itself as it begins stays stopped where dinst has started it */
static void stops_itself(void **state)
{
	(void)state;
	for (int i = 0; i < 5; i++)
		expect_stopped("stopping-static", "", 0);
	/* what waits for a library is waited for, and it stops meanwhile */
	expect_stopped("stopping", "-q -e 'insert calls /Code/libc.so.6/write'", 3);
}

/* What is no list must not be taken for everything. */
static void wrong_types(void **state)
{
	char params[100];
	json_t *number;
	int id;

	(void)state;
	snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"typed\"}", (int)fixture_target);
	expect_word("attach", params, "");
	expect_word("insert", "{\"metric\":\"calls\",\"focus\":3}", "usage");
	expect_word("insert", "{\"metric\":\"calls\",\"focus\":[3]}", "usage");
	expect_word("insert", "{\"focus\":[]}", "usage");
	expect_word("read", "{\"ids\":\"x\"}", "usage");
	expect_word("remove", "{\"ids\":{}}", "usage");
	expect_word("points", "{\"pattern\":7}", "usage");
	/* an instance that is named twice is removed once, whatever stands beside it */
	expect_word("insert", "{\"metric\":\"calls\",\"focus\":[\"/Code/libc.so.6/malloc\"]}", "");
	run_dinst(o, "read --json");
	number = json_loads(o->out, JSON_DISABLE_EOF_CHECK, NULL);
	id = (int)json_integer_value(json_object_get(number, "id"));
	json_decref(number);
	assert_true(id > 0);
	snprintf(params, sizeof(params), "{\"ids\":[%d,%d],\"all\":true}", id, id);
	expect_word("remove", params, "");
	run_dinst(o, "read");
	assert_non_null(strstr(o->err, "nothing is inserted"));
	assert_null(strstr(o->err, "died"));
	run_dinst(o, "modules --json");
	assert_non_null(strstr(o->out, "\"function\":null,\"address\""));
	run_dinst(o, "insert calls /Code/libc.so.6/mlaloc");
	assert_int_equal(o->status, 1);
	assert_non_null(strstr(o->err, "did you mean 'malloc'"));
	expect_word("detach", "{}", "");
}

/* A daemon to which a listing of this directory does not come, nor to its mutators; there is no other one. */
static pid_t start_slow(const char *directory)
{
	char path[600];
	pid_t pid;

	run_dinst(o, "stop");
	assert_int_equal(access(fixture_socket, F_OK), -1);
	pid = fork();
	if (pid == 0) {
		target_path("libslow_proc.so", path, sizeof(path));
		setenv("LD_PRELOAD", path, 1);
		setenv("DINST_SLOW_PROC", directory, 1);
		execl(fixture_dinstd, "dinstd", "-s", fixture_socket, "-i", "0", (char *)NULL);
		_exit(126);
	}
	for (int i = 0; i < 12000 && access(fixture_socket, F_OK) != 0; i++)
		nap_ms(10);
	return pid;
}

/*
 * fear L3: a lookup of a name that the kernel does not answer, since somebody holds the memory of a process,
 * is answered in time, also where all who look are held; and what names its process by pid is served
 */
static void lookup_hangs(void **state)
{
	int fds[4], status;
	pid_t pid;

	(void)state;
#ifdef __SANITIZE_ADDRESS__
	skip(); /* its library wants to be the first one */
#endif
	pid = start_slow("/proc");
	for (size_t i = 0; i < 4; i++) {
		fds[i] = raw_connect();
		raw_say(fds[i], "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"attach\",\"params\":{"
				"\"target\":\"nobody-has-this-name\"}}\n");
	}
	run_dinst(o, "attach %d -n known", (int)fixture_target);
	assert_int_equal(o->status, 0);
	for (size_t i = 0; i < 4; i++) {
		json_t *answer = raw_hear(fds[i], ANSWER_MS);
		const json_t *error = json_object_get(answer, "error");

		assert_string_equal(
			json_string_value(json_object_get(json_object_get(error, "data"), "code")),
			"busy");
		json_decref(answer);
		close(fds[i]);
	}
	run_dinst(o, "detach known");
	assert_int_equal(o->status, 0);
	/* those who look are not waited for at the end, and it is an end in order */
	kill(pid, SIGTERM);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* fear L1, L3: an attach that the kernel lets nobody come to an end with can be left all the same */
static void attaching_hangs(void **state)
{
	char request[200], path[64];
	json_t *answer;
	pid_t pid;
	int fd;

	(void)state;
#ifdef __SANITIZE_ADDRESS__
	skip();
#endif
	snprintf(path, sizeof(path), "/proc/%d/task", (int)fixture_target);
	pid = start_slow(path);
	fd = raw_connect();
	snprintf(request, sizeof(request),
		 "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"attach\",\"params\":{"
		 "\"target\":%d,\"name\":\"stuck\"}}\n",
		 (int)fixture_target);
	raw_say(fd, request);
	run_dinst(o, "ls");
	for (int i = 0; i < 600 && !strstr(o->out, "attaching"); i++) {
		nap_ms(10);
		run_dinst(o, "ls");
	}
	assert_non_null(strstr(o->out, "attaching"));
	nap_ms(300);
	run_dinst(o, "detach stuck");
	assert_int_equal(o->status, 0);
	answer = raw_hear(fd, ANSWER_MS);
	assert_non_null(json_object_get(answer, "error"));
	json_decref(answer);
	close(fd);
	run_dinst(o, "ls");
	assert_null(strstr(o->out, "stuck"));
	/* Nor does it keep the daemon. */
	run_dinst(o, "stop");
	assert_int_equal(o->status, 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* fear L3: a target that provides the page of its own ELF header, and never does, keeps nobody waiting */
static void header_hangs(void **state)
{
	char path[600];
	int out[2];
	pid_t pid;
	FILE *f;

	(void)state;
	assert_int_equal(pipe(out), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out[1], STDOUT_FILENO);
		target_path("pages-header", path, sizeof(path));
		execl(path, path, (char *)NULL);
		_exit(126);
	}
	close(out[1]);
	f = fdopen(out[0], "r");
	assert_non_null(fgets(path, sizeof(path), f));
	fclose(f);
	if (strcmp(path, "ready\n") != 0) {
		end_target(pid);
		skip();
	}
	start_daemon_by_client();
	run_dinst(o, "attach %d -n headless", (int)pid);
	assert_int_equal(o->status, 0);
	run_dinst(o, "insert calls /Code/libc.so.6/read");
	assert_int_equal(o->status, 0);
	run_dinst(o, "detach headless");
	assert_int_equal(o->status, 0);
	run_dinst(o, "stop");
	end_target(pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(child_outlives),
		cmocka_unit_test(child_outlives_name),
		cmocka_unit_test(child_outlives_mutator),
		cmocka_unit_test(target_executes),
		cmocka_unit_test(held_and_forsaken),
		cmocka_unit_test(stops_itself),
		cmocka_unit_test(wrong_types),
		cmocka_unit_test(lookup_hangs),
		cmocka_unit_test(attaching_hangs),
		cmocka_unit_test(header_hangs),
	};

	return cmocka_run_group_tests_name("daemon_ends", tests, setup, teardown);
}
