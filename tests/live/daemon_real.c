/* SPDX-License-Identifier: MIT */
/*
 * daemon_real.c - the whole way from dinst to a target and back, with the real
 * mutator: exact counts, a mutator that is killed in between, exec, stop.
 */
#include <stdbool.h>

#include "tests/live/daemon_group.h"

/* The value of the instance whose focus ends in `function`, as `read --json` tells it; -1 if none. */
static long long value_of(const char *function)
{
	long long value = -1;
	char *line = o->out;

	run_dinst(o, "read --json");
	assert_int_equal(o->status, 0);
	while (*line) {
		size_t length = strcspn(line, "\n");
		json_t *row = json_loadb(line, length, 0, NULL);
		json_t *focus = json_object_get(row, "focus");
		const char *name =
			json_string_value(json_is_array(focus) ? json_array_get(focus, 0) : focus);
		const char *slash = name ? strrchr(name, '/') : NULL;

		if (slash && strcmp(slash + 1, function) == 0)
			value = json_integer_value(json_object_get(row, "value"));
		json_decref(row);
		line += length + (line[length] == '\n');
	}
	return value;
}

static void counts_are_exact(void **state)
{
	struct program p;

	(void)state;
	start_calls(&p);
	run_dinst(o, "attach %d --json", (int)p.pid);
	assert_int_equal(o->status, 0);
	run_dinst(o, "insert calls '/Code/calls/*' --each --json");
	if (o->status != 0 && o->status != 3)
		fail_msg("%d: %.500s", o->status, o->err);
	go(&p, 1000);
	assert_int_equal(value_of("many"), 2000);
	assert_int_equal(value_of("work"), 2);
	run_dinst(o, "remove --all");
	assert_int_equal(o->status, 0);
	go(&p, 10);
	run_dinst(o, "detach --json");
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "\"left\":0"));
	go(&p, 10);
	end_calls(&p);
}

/* The mutator is killed: the target does not notice, and the session goes on. */
static void mutator_is_killed(void **state)
{
	struct program p;
	pid_t first, second;

	(void)state;
	start_calls(&p);
	run_dinst(o, "attach %d -n victim", (int)p.pid);
	assert_int_equal(o->status, 0);
	run_dinst(o, "insert calls '/Code/calls/*' --each");
	go(&p, 100);
	first = mutator_pid();
	assert_true(first > 0);
	kill(first, SIGKILL);
	go(&p, 100);
	for (int i = 0; i < 12000 && ((second = mutator_pid()) == 0 || second == first); i++)
		nap_ms(10);
	run_dinst(o, "ls");
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->err, "started again"));
	assert_int_equal(value_of("many"), -1);
	run_dinst(o, "insert calls /Code/calls/many");
	assert_int_equal(o->status, 0);
	go(&p, 100);
	assert_int_equal(value_of("many"), 200);
	/* Old numbers are nobody's: who has one neither reads nor removes what came since. */
	run_dinst(o, "read 1");
	assert_int_equal(o->status, 1);
	run_dinst(o, "remove 1");
	assert_int_equal(o->status, 1);
	assert_int_equal(value_of("many"), 200);
	run_dinst(o, "detach");
	assert_int_equal(o->status, 0);
	go(&p, 10);
	end_calls(&p);
}

/* A daemon that is killed leaves its patches to the next attach. */
static void daemon_is_killed(void **state)
{
	struct program p;
	pid_t daemon;

	(void)state;
	start_calls(&p);
	run_dinst(o, "attach %d", (int)p.pid);
	assert_int_equal(o->status, 0);
	run_dinst(o, "insert calls /Code/calls/many");
	assert_int_equal(o->status, 0);
	daemon = daemon_pid();
	kill(daemon, SIGKILL);
	assert_true(wait_gone(daemon, ANSWER_MS));
	go(&p, 100);
	run_dinst(o, "attach %d --json", (int)p.pid);
	assert_int_equal(o->status, 0);
	assert_null(strstr(o->out, "joined"));
	go(&p, 100);
	run_dinst(o, "insert calls /Code/calls/many");
	assert_int_equal(o->status, 0);
	go(&p, 100);
	assert_int_equal(value_of("many"), 200);
	run_dinst(o, "stop --json");
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "\"left\":0"));
	go(&p, 100);
	end_calls(&p);
}

/*
 * fear J3: what ends the daemon's whole process group, as timeout(1), a shell's kill and service managers
 * do, some of them twice, ends no mutator before it has detached; and a terminal that goes ends nothing
 */
static void group_is_ended(void **state)
{
	struct program p;
	pid_t daemon, group;

	(void)state;
	start_calls(&p);
	run_dinst(o, "attach %d", (int)p.pid);
	assert_int_equal(o->status, 0);
	run_dinst(o, "insert calls /Code/calls/many");
	assert_int_equal(o->status, 0);
	go(&p, 100);
	daemon = daemon_pid();
	group = getpgid(daemon);
	assert_true(group > 1 && group != getpgrp() && getpgid(mutator_pid()) == group);
	assert_int_equal(kill(-group, SIGHUP), 0);
	nap_ms(100);
	go(&p, 100);
	assert_int_equal(value_of("many"), 400);
	assert_true(has_arena(p.pid));
	assert_int_equal(kill(-group, SIGTERM), 0);
	nap_ms(10);
	kill(-group, SIGTERM);
	assert_true(wait_gone(daemon, ANSWER_MS));
	assert_false(has_arena(p.pid));
	go(&p, 100);
	end_calls(&p);
}

/* main() is counted, so it was there before the first instruction. */
static void exec_from_the_start(void **state)
{
	char path[600];

	(void)state;
	target_path("calls", path, sizeof(path));
	run_dinst(o, "exec --wait -n begun -e 'insert calls /Code/calls/main' -- %s 1", path);
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "ready"));
	assert_int_equal(value_of("main"), 1);
	run_dinst(o, "detach");
	assert_int_equal(o->status, 0);
	run_dinst(o, "exec --wait -- /bin/sh -c 'exit 7'");
	assert_int_equal(o->status, 7);
	run_dinst(o, "detach --all");
	assert_int_equal(o->status, 0);
}

/* KiB that the mutator has of its own. */
static long own_memory(void)
{
	char path[64], line[256];
	long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)mutator_pid());
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "RssAnon: %ld", &kib) == 1)
			break;
	fclose(f);
	return kib;
}

/*
 * fear K1: what a large request has needed goes back to the system when its instances are removed,
 * but for the plans of functions
 */
static void memory_goes_back(void **state)
{
	struct program p;
	long before, with, after = 0;

	(void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	skip(); /* keeps what was freed, or as much for itself */
#endif
	start_calls(&p);
	run_dinst(o, "attach %d", (int)p.pid);
	assert_int_equal(o->status, 0);
	before = own_memory();
	run_dinst(o, "insert wall '/Code/libc.so.6/*'");
	assert_true(o->status == 0 || o->status == 3);
	with = own_memory();
	run_dinst(o, "remove --all");
	assert_int_equal(o->status, 0);
	run_dinst(o, "flush");
	/* It is given back after the answer. */
	for (int i = 0; i < 500 && (!after || after - before > (with - before) * 3 / 4); i++) {
		nap_ms(20);
		after = own_memory();
	}
	print_message("%ld KiB, with all of libc %ld, afterwards %ld\n", before, with, after);
	assert_true(with - before > 10000);
	assert_true(after - before < (with - before) * 3 / 4);
	run_dinst(o, "detach");
	assert_int_equal(o->status, 0);
	end_calls(&p);
}

/* The child of the mutator that reads debug information. */
static pid_t reader_pid(void)
{
	char path[80];
	pid_t mutator = mutator_pid(), reader = 0, pid;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)mutator, (int)mutator);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fscanf(f, "%d", &pid) == 1)
		if (has_name(pid, "dinst-reader"))
			reader = pid;
	fclose(f);
	return reader;
}

static void attach_with_metrics(pid_t pid, const char *text)
{
	char path[100];
	FILE *f;

	snprintf(path, sizeof(path), "%s/types.mdl", fixture_directory);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
	run_dinst(o, "attach %d -M %s", (int)pid, path);
	assert_int_equal(o->status, 0);
}

/*
 * fear L1: whoever asks for types that are not known any more, since what read them has died, is told so,
 * what to do, and not only that there are none; who attaches anew has them again
 */
static void types_are_lost(void **state)
{
	static const char metrics[] =
		"list node is procedure { items { \"takes_node\" }; }\n"
		"metric member { base is counter { foreach f in node append preInsn f.entry (* member = $arg[0].value; *) } }\n"
		"metric low { base is counter { foreach f in node append preInsn f.entry (* low = $arg[0].low; *) } }\n"
		"metric whole { base is counter { foreach f in node append preInsn f.entry (* whole = $arg[1]; *) } }\n";
	static const char *const told[] = {
		"typed are not known: the process that reads its debug information has died",
		"detach and attach again"};
	struct program p;
	pid_t reader;

	(void)state;
	start_program(&p, "typed");
	hear_line(&p, "ready");
	attach_with_metrics(p.pid, metrics);
	run_dinst(o, "insert member");
	if (o->status != 0)
		fail_msg("%d: %.500s", o->status, o->err);
	assert_null(strstr(o->err, told[0]));
	reader = reader_pid();
	assert_true(reader > 0);
	assert_int_equal(kill(reader, SIGKILL), 0);
	for (int i = 0; i < 2; i++) {
		run_dinst(o, "insert low");
		assert_int_equal(o->status, 1);
		for (int k = 0; k < 2; k++)
			if (!strstr(o->err, told[k]))
				fail_msg("'%s' is not said: %.500s", told[k], o->err);
	}
	/* What is done without types, and is not the same, is said as well; what needs none is not. */
	run_dinst(o, "insert whole");
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->err, told[0]));
	run_dinst(o, "insert calls /Code/typed/takes_node");
	assert_int_equal(o->status, 0);
	assert_null(strstr(o->err, told[0]));
	run_dinst(o, "detach");
	assert_int_equal(o->status, 0);
	attach_with_metrics(p.pid, metrics);
	run_dinst(o, "insert low");
	assert_int_equal(o->status, 0);
	assert_null(strstr(o->err, told[0]));
	run_dinst(o, "detach");
	assert_int_equal(o->status, 0);
	end_calls(&p);
}

/* Inserts it; returns how many points are said to be refused, of `function` among them. */
static json_int_t insert_partly(const char *metric, const char *function)
{
	json_t *row, *reason;
	json_int_t count;
	bool told = false;
	size_t n;

	run_dinst(o, "insert %s /Code/partly --json", metric);
	if (o->status != 3)
		fail_msg("%s: %d: %.500s%.500s", metric, o->status, o->out, o->err);
	row = json_loads(o->out, JSON_DISABLE_EOF_CHECK, NULL);
	assert_non_null(row);
	count = json_integer_value(json_object_get(row, "refused"));
	assert_int_equal(json_array_size(json_object_get(row, "reasons")), count);
	json_array_foreach(json_object_get(row, "reasons"), n, reason) told |=
		strstr(json_string_value(json_object_get(reason, "where")), function) != NULL;
	assert_true(told);
	json_decref(row);
	return count;
}

/*
 * What could not be instrumented for a constraint is told of whatever it guards, also where another one has
 * it already: the values lack it.
 */
static void constraints_are_partly_kept(void **state)
{
	struct program p;
	json_int_t refused;

	(void)state;
	start_program(&p, "partly");
	hear_line(&p, "ready");
	run_dinst(o, "attach %d", (int)p.pid);
	assert_int_equal(o->status, 0);
	refused = insert_partly("active", "odd");
	assert_true(refused > 0);
	assert_null(strstr(o->err, "for a constraint"));
	assert_int_equal(insert_partly("alloc_calls", "odd"), refused);
	assert_non_null(strstr(o->err, "refused for a constraint: "));
	assert_int_equal(insert_partly("alloc_bytes", "odd"), refused);
	assert_non_null(strstr(o->err, "refused for a constraint: "));
	go(&p, 10);
	run_dinst(o, "remove --all");
	assert_int_equal(o->status, 0);
	run_dinst(o, "insert alloc_calls /Code/partly/even --json");
	assert_int_equal(o->status, 0);
	run_dinst(o, "detach");
	assert_int_equal(o->status, 0);
	end_calls(&p);
}

/* How often `text` is in `in`. */
static unsigned times(const char *in, const char *text)
{
	unsigned n = 0;

	for (const char *at = strstr(in, text); at; at = strstr(at + 1, text))
		n++;
	return n;
}

/* A trace says as other commands do what is lacking: also with -q, and once where entry and exits lack the same. */
static void trace_is_partial(void **state)
{
	static const char *const ways[] = {"", " -q"};
	struct program p;

	(void)state;
	start_program(&p, "partly");
	hear_line(&p, "ready");
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		run_dinst(o, "trace -p %d%s neither even -r -d 1", (int)p.pid, ways[i]);
		if (o->status != 3 || times(o->err, "refused: partly:neither: ") != 1)
			fail_msg("'%s': %d: %.500s", ways[i], o->status, o->err);
		assert_int_equal(times(o->err, " dropped"), i == 0);
	}
	end_calls(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(types_are_lost),
		cmocka_unit_test(counts_are_exact),
		cmocka_unit_test(mutator_is_killed),
		cmocka_unit_test(daemon_is_killed),
		cmocka_unit_test(exec_from_the_start),
		cmocka_unit_test(memory_goes_back),
		cmocka_unit_test(group_is_ended),
		cmocka_unit_test(constraints_are_partly_kept),
		cmocka_unit_test(trace_is_partial),
	};

	return cmocka_run_group_tests_name("daemon_real", tests, setup, teardown);
}
