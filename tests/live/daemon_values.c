/* SPDX-License-Identifier: MIT */
/*
 * daemon_values.c - files of metrics and histories in the daemon, with mutators
 * that die, do not answer or are slow. The mutator is the fake one: its n-th
 * sample says n * 100.
 */
#include "tests/live/daemon_fixture.h"

static struct output *o;

static void write_file(const char *name, const char *contents, size_t repeat, char *path,
		       size_t size)
{
	FILE *f;

	snprintf(path, size, "%s/%s", fixture_directory, name);
	f = fopen(path, "w");
	assert_non_null(f);
	while (repeat--)
		assert_true(fputs(contents, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

/* How often `part` stands in what the mutators were asked, since `from`. */
static unsigned asked(const char *part, long from)
{
	FILE *log = fopen(fixture_log, "r");
	static char line[1 << 21];
	unsigned count = 0;

	assert_non_null(log);
	fseek(log, from, SEEK_SET);
	while (fgets(line, sizeof(line), log))
		count += strstr(line, part) != NULL;
	fclose(log);
	return count;
}

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static long log_end(void)
{
	struct stat st;

	assert_int_equal(stat(fixture_log, &st), 0);
	return (long)st.st_size;
}

/* ------------------------------------------------------- files of metrics */

static void loads_files(void **state)
{
	pid_t target = start_target("loading");
	char good[120], wrong[120], large[120];
	long from;

	(void)state;
	write_file("good.mdl", "metric \xc3\xa4 {}\n", 3, good, sizeof(good));
	write_file("wrong.mdl", "wrong\n", 1, wrong, sizeof(wrong));
	write_file("large.mdl", "// sixteen bytes\n", (128 << 10) / 17 + 2, large, sizeof(large));
	/* Nothing is started for a file that cannot be read. */
	run_dinst(o, "attach %d -n loading -M /no/such/file.mdl", (int)target);
	assert_int_equal(o->status, 1);
	assert_non_null(strstr(o->err, "cannot read /no/such/file.mdl"));
	run_dinst(o, "attach %d -n loading -M %s", (int)target, large);
	assert_int_equal(o->status, 1);
	assert_non_null(strstr(o->err, "more than 128 KiB"));
	run_dinst(o, "read -p loading");
	assert_non_null(strstr(o->err, "no session 'loading'"));
	/* Errors come with all of their lines; what follows is not run. */
	from = log_end();
	run_dinst(o, "attach %d -n loading -M %s -M %s -e 'insert calls'", (int)target, good,
		  wrong);
	assert_int_equal(o->status, 2);
	assert_non_null(
		strstr(o->err, "x.mdl:1:1: what is 'wrong'?\n  wrong\n  ^\nx.mdl:2:1: and"));
	assert_int_equal(asked("\"method\":\"load\"", from), 2);
	assert_int_equal(asked("good.mdl", from), 1);
	assert_int_equal(asked("\"method\":\"insert\"", from), 0);
	run_dinst(o, "attach %d -M %s --json", (int)target, wrong);
	assert_int_equal(o->status, 2);
	assert_non_null(strstr(o->err, "{\"error\":{\"code\":\"usage\""));
	/* The next mutator gets what was loaded, once, and not what was refused. */
	run_dinst(o, "attach %d -M %s", (int)target, good);
	assert_int_equal(o->status, 0);
	from = log_end();
	run_dinst(o, "funcs @crash -p loading");
	assert_int_equal(o->status, 1);
	run_dinst(o, "funcs -p loading");
	assert_int_equal(o->status, 0);
	assert_int_equal(asked("good.mdl", from), 1);
	assert_int_equal(asked("wrong.mdl", from), 0);
	run_dinst(o, "detach loading");
	end_target(target);
	still_well();
}

static void exec_with_files(void **state)
{
	char good[120];

	(void)state;
	write_file("exec.mdl", "metric a {}\n", 1, good, sizeof(good));
	run_dinst(o, "exec -n ran -M %s -e 'insert calls' --wait -- /bin/echo it ran", good);
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "it ran"));
	run_dinst(o, "exec -n not -M /no/such.mdl --wait -- /bin/echo it ran");
	assert_int_equal(o->status, 1);
	assert_null(strstr(o->out, "it ran"));
	run_dinst(o, "detach ran");
	still_well();
}

/* What is ignored or blocked by whoever starts dinst (nohup) is so for the program that it starts */
static void exec_with_signals(void **state)
{
	static const char program[] = "kill -HUP $$; kill -USR1 $$; echo it runs";
	sigset_t blocked, before;

	(void)state;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	signal(SIGHUP, SIG_IGN);
	sigprocmask(SIG_BLOCK, &blocked, &before);
	run_dinst(o, "exec -n nohup --wait -- /bin/sh -c '%s'", program);
	sigprocmask(SIG_SETMASK, &before, NULL);
	signal(SIGHUP, SIG_DFL);
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "it runs"));
	run_dinst(o, "exec -n not --wait -- /bin/sh -c '%s'", program);
	assert_int_equal(o->status, 128 + SIGHUP);
	still_well();
}

/* How `dinst exec --wait` ends of a caller who does not want to hear of his children. */
static int end_without_children(const char *program, const char *option, const char *what,
				const char *file)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		signal(SIGCHLD, SIG_IGN);
		execl(fixture_dinst, "dinst", "exec", "-q", "--wait", "--", program, option, what,
		      file, (char *)NULL);
		_exit(126);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* The program's end is told all the same, and the program ignores its own children. */
static void exec_without_children(void **state)
{
	(void)state;
	assert_int_equal(end_without_children("/bin/sh", "-c", "exit 7", NULL), 7);
	assert_int_equal(
		end_without_children("grep", "-q", "^SigIgn:.*1....$", "/proc/self/status"), 0);
	assert_int_equal(end_without_children("grep", "-q", "^nothing$", "/proc/self/status"), 1);
	still_well();
}

static void load_limits(void **state)
{
	pid_t target = start_target("limits");
	const size_t size = (128 << 10) + 1;
	char params[120], *text = malloc(size + 120);
	size_t used;

	(void)state;
	assert_non_null(text);
	snprintf(params, sizeof(params), "{\"target\":%d,\"name\":\"limits\"}", (int)target);
	expect_word("attach", params, "");
	expect_word("load", "{\"session\":\"limits\"}", "usage");
	expect_word("load", "{\"session\":\"limits\",\"name\":1,\"text\":\"\"}", "usage");
	used = (size_t)snprintf(text, size, "{\"session\":\"limits\",\"name\":\"a\",\"text\":\"");
	memset(text + used, 'x', size);
	snprintf(text + used + size, 8, "\"}");
	expect_word("load", text, "refused");
	for (int n = 0; n < 64; n++) {
		snprintf(params, sizeof(params),
			 "{\"session\":\"limits\",\"name\":\"%d\",\"text\":\"\"}", n);
		expect_word("load", params, "");
	}
	expect_word("load", "{\"session\":\"limits\",\"name\":\"more\",\"text\":\"\"}", "refused");
	expect_word("detach", "{\"session\":\"limits\"}", "");
	end_target(target);
	free(text);
	still_well();
}

/* -------------------------------------------------------------- histories */

/* The sum of all bins of the only row of `history --json`. */
static double sum_of_bins(void)
{
	json_error_t why;
	json_t *row = json_loads(o->out, JSON_DISABLE_EOF_CHECK, &why), *bin;
	double sum = 0;
	size_t index;

	json_array_foreach(json_object_get(row, "bins"), index, bin) sum += json_number_value(bin);
	assert_true(json_is_object(row));
	assert_true(sum == json_number_value(json_object_get(row, "value")));
	json_decref(row);
	return sum;
}

static void samples_are_kept(void **state)
{
	pid_t target = start_target("sampled");
	unsigned long count;
	double sum;
	long from, begin;

	(void)state;
	run_dinst(o, "attach %d -n sampled", (int)target);
	from = log_end();
	nap_ms(500);
	assert_int_equal(asked("\"method\":\"sample\"", from), 0);
	run_dinst(o, "history -p sampled");
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->err, "nothing was inserted"));
	run_dinst(o, "history 1 -p sampled");
	assert_int_equal(o->status, 1);
	assert_non_null(strstr(o->err, "no history of id 1"));
	begin = now_ms();
	run_dinst(o, "insert calls -p sampled");
	for (int i = 0; i < 1200 && asked("\"method\":\"sample\"", from) < 3; i++)
		nap_ms(100);
	/* Not more often than bins are wide, and one more at the insert. */
	count = asked("\"method\":\"sample\"", from);
	assert_in_range(count, 3, (now_ms() - begin) / 200 + 2);
	run_dinst(o, "history 1 -p sampled --json");
	assert_int_equal(o->status, 0);
	sum = sum_of_bins();
	assert_true(sum >= 300);
	run_dinst(o, "history -p sampled");
	assert_non_null(strstr(o->out, "calls in all"));
	run_dinst(o, "history x -p sampled");
	assert_int_equal(o->status, 2);
	run_dinst(o, "history 1 7 -p sampled");
	assert_int_equal(o->status, 1);
	/* A mutator that dies takes nothing of it along. */
	run_dinst(o, "funcs @crash -p sampled");
	run_dinst(o, "history 1 -p sampled --json");
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "\"ended\":true"));
	assert_true(sum_of_bins() >= sum);
	from = log_end();
	nap_ms(500);
	assert_int_equal(asked("\"method\":\"sample\"", from), 0);
	/* What is inserted then has the number of the lost one. */
	run_dinst(o, "insert calls -p sampled");
	for (int ms = 0; ms < ANSWER_MS; ms += 50) {
		run_dinst(o, "history 1 -p sampled --json");
		if (strstr(o->out, "\"ended\":false"))
			break;
		nap_ms(50);
	}
	assert_non_null(strstr(o->out, "\"ended\":false"));
	run_dinst(o, "detach sampled");
	end_target(target);
	still_well();
}

/* Questions go to an idle mutator only; who asks for a history does not wait for one at work. */
static void busy_mutators(void **state)
{
	enum { ASKED = 25 }; /* 0.4 s each */
	pid_t target = start_target("occupied");
	int fd = raw_connect();
	char line[200];
	long from;

	(void)state;
	run_dinst(o, "attach %d -n occupied", (int)target);
	run_dinst(o, "insert calls -p occupied");
	nap_ms(300);
	/* Ten seconds of work. */
	request(line, sizeof(line), "funcs", "{\"session\":\"occupied\",\"pattern\":\"@slow\"}");
	from = log_end();
	for (int n = 0; n < ASKED; n++)
		raw_say(fd, line);
	for (int ms = 0; ms < ANSWER_MS && !asked("@slow", from); ms += 10)
		nap_ms(10);
	from = log_end();
	run_dinst(o, "history 1 -p occupied --json");
	assert_int_equal(o->status, 0);
	sum_of_bins();
	nap_ms(500);
	assert_int_equal(asked("\"method\":\"sample\"", from), 0);
	run_dinst(o, "--json ls");
	assert_non_null(strstr(o->out, "\"busy\":\"funcs\""));
	for (int n = 0; n < ASKED; n++)
		assert_int_equal(raw_code(fd, ANSWER_MS), 0);
	close(fd);
	for (int i = 0; i < 2400 && !asked("\"method\":\"sample\"", from); i++)
		nap_ms(50);
	assert_true(asked("\"method\":\"sample\"", from) > 0);
	/* Sessions that end while questions are out. */
	for (int n = 0; n < 5; n++) {
		pid_t other = start_target("brief");

		run_dinst(o, "attach %d -n brief", (int)other);
		run_dinst(o, "insert calls -p brief");
		if (n % 2)
			end_target(other);
		run_dinst(o, "detach brief");
		if (n % 2 == 0)
			end_target(other);
	}
	end_target(target);
	still_well();
}

static int setup(void **state)
{
	o = malloc(sizeof(*o));
	return o ? fixture_setup_base(state) : -1;
}

static int teardown(void **state)
{
	free(o);
	return fixture_teardown(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(loads_files),	     cmocka_unit_test(exec_with_files),
		cmocka_unit_test(exec_with_signals), cmocka_unit_test(exec_without_children),
		cmocka_unit_test(load_limits),	     cmocka_unit_test(samples_are_kept),
		cmocka_unit_test(busy_mutators),
	};

	return cmocka_run_group_tests_name("daemon_values", tests, setup, teardown);
}
