/* SPDX-License-Identifier: MIT */
/*
 * daemon_cli.c - the command line's promises: exit status, JSON keys and
 * messages of every command, one line a case, in the order of the table.
 * The mutator is the fake one; {T} stands for the pid of a target process.
 */
#include "tests/live/daemon_fixture.h"

struct cli_case {
	const char *line;
	int status;
	const char *keys; /* that every line of standard output has, as JSON; NULL: not JSON */
	int lines;	  /* on standard output; -1: any number but none */
	const char *err;  /* part of standard error; "" for nothing at all, NULL: do not look */
};

#define ATTACH_KEYS "session pid modules functions attach_ms stop_us"
#define LS_KEYS	    "session pid name state points active queued heap_bytes"
#define ROW_KEYS    "id metric focus points refused pending stop_us"
#define READ_KEYS   "id metric focus value unit"

static const struct cli_case cases[] = {
	/* without a daemon: none is started */
	{"ls", 0, NULL, 0, "no sessions"},
	{"ls -q", 0, NULL, 0, ""},
	{"--json ls", 0, NULL, 0, NULL},
	{"read", 1, NULL, 0, "dinst attach"},
	{"read --json", 1, NULL, 0, "\"code\":\"no-such-session\""},
	{"detach", 1, NULL, 0, "no session"},
	{"detach --all", 0, NULL, 0, ""},
	{"stop", 0, NULL, 0, "no daemon"},
	{"metrics --json", 0, "kind metric unit constraints file description", -1, ""},
	{"metrics --check /dev/null", 0, NULL, 1, ""},
	{"metrics --check /no/such/file", 1, NULL, 1, ""},
	{"metrics --check tests/fuzz/corpus/mdl/wrong.mdl", 1, NULL, -1, ""},
	{"metrics --check data/metrics/code.mdl examples/mdl/gil_wait.mdl --json", 0,
	 "file ok messages", 2, ""},
	{"metrics -v", 0, NULL, -1, ""},
	{"doctor --json", 0, "check ok why fix", -1, ""},
	{"doctor {T} --json", 0, "check ok why fix", -1, ""},
	{"doctor no-such-name", 1, NULL, 0, "no process named"},
	{"help", 0, NULL, -1, ""},
	{"--version", 0, NULL, 1, ""},

	/* usage */
	{"", 2, NULL, 0, "a command is missing"},
	{"inset calls", 2, NULL, 0, "did you mean 'insert'"},
	{"--json bogus", 2, NULL, 0, "{\"error\":{\"code\":\"usage\""},
	{"ls extra", 2, NULL, 0, "unexpected argument"},
	{"ls --bogus", 2, NULL, 0, "--bogus"},
	{"ls -x --json", 2, NULL, 0, "{\"error\":"},
	{"attach", 2, NULL, 0, "TARGET"},
	{"insert", 2, NULL, 0, "usage: dinst insert"},
	{"points", 2, NULL, 0, "--summary"},
	{"points --kinds", 2, NULL, 0, "--kinds needs"},
	{"cfg", 2, NULL, 0, "usage: dinst cfg"},
	{"cfg a b", 2, NULL, 0, "unexpected argument"},
	{"metrics x", 2, NULL, 0, "--check"},
	{"metrics --check", 2, NULL, 0, "needs a FILE"},
	{"remove", 2, NULL, 0, "--all"},
	{"remove 1 --all", 2, NULL, 0, "--all"},
	{"remove x", 2, NULL, 0, "an id is a number"},
	{"read 1 -2", 2, NULL, 0, "-2"},
	{"watch -i 0", 2, NULL, 0, "-i"},
	{"watch -i nan", 2, NULL, 0, "-i"},
	{"watch -c 0", 2, NULL, 0, "-c"},
	{"history x", 2, NULL, 0, "an id is a number"},
	{"insert calls --limit", 2, NULL, 0, "--limit needs"},
	{"insert calls --limit much", 2, NULL, 0, "percent of a CPU, not 'much'"},
	{"insert calls --limit -1", 2, NULL, 0, "percent of a CPU"},
	{"detach -t x", 2, NULL, 0, "-t"},
	{"detach --all -p x", 2, NULL, 0, "--all"},
	{"run", 2, NULL, 0, "usage: dinst run"},
	{"exec", 2, NULL, 0, "usage: dinst exec"},
	{"repair", 2, NULL, 0, "TARGET"},

	/* sessions */
	{"attach no-such-name", 1, NULL, 0, "no process named"},
	{"--json attach 0", 1, NULL, 0, "\"code\":\"no-such-process\""},
	{"attach 4194304", 1, NULL, 0, "no process has the pid"},
	{"attach {T} -M x.mdl", 1, NULL, 0, "cannot read x.mdl"},
	{"attach {T} -n 'a b'", 2, NULL, 0, "cannot be a session's name"},
	{"attach {T} -n 123", 2, NULL, 0, "cannot be a session's name"},
	{"attach {T} --json -n first", 0, ATTACH_KEYS, 1, ""},
	{"attach {T} --json", 0, ATTACH_KEYS, 1, ""},
	{"attach first --json", 0, ATTACH_KEYS " joined", 1, ""},
	{"attach -p first --json", 0, ATTACH_KEYS " joined", 1, ""},
	{"attach {T} -n other", 1, NULL, 0, "has a session already"},
	{"attach -n first {U}", 1, NULL, 0, "is taken"},
	{"attach first", 0, NULL, 1, ""},
	{"--json ls", 0, LS_KEYS, 1, ""},
	{"ls", 0, NULL, 2, ""},

	/* listings */
	{"modules --json", 0, "module address size", 1, ""},
	{"modules", 0, NULL, 2, ""},
	{"funcs --json", 0, "module function address size", 1, ""},
	{"funcs 'x:*' -p first", 0, NULL, 2, ""},
	{"-p first funcs", 0, NULL, 2, ""},
	{"funcs -p fixture-target", 0, NULL, 2, ""},
	{"funcs -p {T}", 0, NULL, 2, ""},
	{"funcs -p nobody", 1, NULL, 0, "there is no session 'nobody'"},
	{"funcs @error --json", 1, NULL, 0, "\"code\":\"no-such-function\""},
	{"funcs @huge --json", 0, "module function address size", -1, ""},
	{"points y --json", 0, "module function kind address tactic refused", 1, ""},
	{"points y --kinds block,loop -v", 0, NULL, 2, ""},
	{"cfg y --json", 0, "module function block address size instructions flags loops edges", 1,
	 ""},
	{"cfg y", 0, NULL, 3, ""},
	{"cfg y --dot", 0, NULL, 3, ""},
	{"cfg y --dot --json", 0, "module function dot", 1, ""},
	{"points --summary --json", 0, "module kind points tactics refused reasons", 1, ""},
	{"points --summary libc.so.6", 0, NULL, 2, ""},
	{"metrics --json", 0, "kind metric unit constraints file description", -1, ""},

	/* instrumentation */
	{"read", 0, NULL, 0, "nothing is inserted"},
	{"watch", 0, NULL, 0, "nothing is inserted"},
	{"insert calls /Code/x/y --json", 0, ROW_KEYS, 1, ""},
	{"insert calls '/Code/x/*' --each", 0, NULL, 2, ""},
	{"insert calls @partial --json", 3, ROW_KEYS, 1, "dinst: y+0x10: the window is too short"},
	{"insert calls @partial -q", 3, NULL, 2, "too short"},
	{"insert bogus --json", 1, NULL, 0, "\"code\":\"no-such-metric\""},
	{"read --json", 0, READ_KEYS, 4, ""},
	{"read 1 2 --json", 0, READ_KEYS, -1, ""},
	{"watch -c 2 -i 0.05 --json", 0, READ_KEYS " time rate", 8, ""},
	{"watch 1 -c 1", 0, NULL, -1, ""},
	{"history 1 --json", 0, "id metric focus unit style value start width_ns bins ended", 1,
	 ""},
	{"history", 0, NULL, -1, ""},
	{"history 77", 1, NULL, 0, "there is no history of id 77"},
	{"insert calls --limit 5% --cost --json", 0, ROW_KEYS, 1, ""},
	{"remove 5", 0, NULL, 2, ""},
	{"remove 1 --json", 0, "id freed queued", 1, ""},
	{"remove --all --json", 0, "id freed queued", 3, ""},
	{"flush --json", 0, "freed queued stop_us", 1, ""},
	{"flush", 0, NULL, 1, ""},

	/* scripts */
	{"run /nonexistent", 1, NULL, 0, "cannot open the script"},
	{"run {D}/good --json", 0, "id", 2, ""},
	{"run {D}/bad --json", 2, "id", 1, "bad:3: "},
	{"run {D}/bad-but --json", 0, "id", 2, "bad-but:2: "},
	{"run {D}/options --json", 0, "id", -1, ""},
	{"run {D}/loop", 2, NULL, 0, "deep"},
	{"run {D}/part --json", 3, "id", 2, "too short"},
	{"attach first --json -x {D}/good", 0, NULL, 3, ""},
	{"attach first --json -e 'insert calls a' -e bogus -e 'insert calls b'", 2, NULL, 2,
	 "bogus"},
	{"attach first -e '-bogus' -e 'ls -q'", 0, NULL, 3, "bogus"},

	/* names of the target's: what a terminal obeys is not for standard error either */
	{"trace -p first y -d 0.1 --json", 3, NULL, 0, "x:?[31my: the window"},

	/* several sessions */
	{"attach {U} --json", 0, ATTACH_KEYS, 1, ""},
	{"read", 2, NULL, 0, "several sessions"},
	{"read -p second-target", 0, NULL, 0, "nothing"},
	{"--json ls", 0, LS_KEYS, 2, ""},
	{"detach second-target --json", 0, "session restored left stop_us", 1, ""},
	{"detach nobody", 1, NULL, 0, "no session"},

	/* exec */
	{"exec --wait -n e1 -- /bin/sh -c 'exit 5'", 5, NULL, 1, ""},
	{"exec --wait -n e2 -- /bin/sh -c 'kill -9 $$'", 137, NULL, 1, ""},
	{"exec --wait -n e3 --json -e 'insert calls a' -- true", 0, "stop_us", 2, ""},
	{"exec --wait -n e5 -e 'funcs @crash' -- printf x\\n", 1, NULL, 2, "signal 6"},
	{"exec --wait -n e6 -q -e detach -- true", 0, NULL, 2, ""},
	{"exec -- /nonexistent", 1, NULL, 0, "cannot execute /nonexistent"},
	{"exec -n first -- true", 1, NULL, 0, "is taken"},
	{"exec sh -c 'exit 0' --json", 0, NULL, 1, ""},
	{"exec --wait -n e4 -q -- printf '%s|%s\\n' --json -q", 0, NULL, 2, ""},
	{"bogus --json", 2, NULL, 0, "{\"error\":"},

	/* the end */
	{"repair {T}", 1, NULL, 0, "live session"},
	{"detach -p first -t 77 --json", 3, "session restored left stop_us", 1,
	 "2 trampolines stay"},
	{"repair {T} --json", 0, "patches restored", 1, ""},
	{"detach --all --json", 0, "session restored left stop_us", -1, ""},
	{"ls", 0, NULL, 0, "no sessions"},
	{"attach {T} --json", 0, ATTACH_KEYS, 1, ""},
	{"stop --json", 0, "session restored left stop_us", 1, ""},
	{"ls", 0, NULL, 0, "no daemon"},
};

static pid_t second_target;

/* {T}, {U}: pids; {D}: the directory. */
static void expand(const char *line, char *text, size_t size)
{
	size_t used = 0;

	while (*line && used + 1 < size) {
		if (strncmp(line, "{T}", 3) == 0)
			used += (size_t)snprintf(text + used, size - used, "%d",
						 (int)fixture_target);
		else if (strncmp(line, "{U}", 3) == 0)
			used += (size_t)snprintf(text + used, size - used, "%d",
						 (int)second_target);
		else if (strncmp(line, "{D}", 3) == 0)
			used += (size_t)snprintf(text + used, size - used, "%s", fixture_directory);
		else {
			text[used++] = *line++;
			continue;
		}
		line += 3;
	}
	text[used] = '\0';
}

static int has_keys(const char *line, size_t length, const char *keys)
{
	json_t *object = json_loadb(line, length, 0, NULL);
	int good = json_is_object(object);
	char key[40];

	while (good && *keys) {
		size_t n = strcspn(keys, " ");

		snprintf(key, sizeof(key), "%.*s", (int)n, keys);
		good = json_object_get(object, key) != NULL;
		keys += n + (keys[n] == ' ');
	}
	json_decref(object);
	return good;
}

static void check_output(const struct cli_case *c, const struct output *o)
{
	const char *line = o->out;
	int lines = 0;

	while (*line) {
		size_t length = strcspn(line, "\n");

		if (c->keys && lines < 400 && strlen(o->out) < OUTPUT_MAX - 1 &&
		    !has_keys(line, length, c->keys))
			fail_msg("%s: line without %s: %.*s", c->line, c->keys, (int)length, line);
		lines++;
		line += length + (line[length] == '\n');
	}
	if (c->lines < 0 ? lines == 0 : lines != c->lines)
		fail_msg("%s: %d lines instead of %d: %.400s %.400s", c->line, lines, c->lines,
			 o->out, o->err);
	if (c->err && (*c->err ? strstr(o->err, c->err) == NULL : o->err[0] != '\0'))
		fail_msg("%s: standard error is '%.400s', not '%s'", c->line, o->err, c->err);
}

static void every_command(void **state)
{
	struct output *o = malloc(sizeof(*o));
	char line[512];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		expand(cases[i].line, line, sizeof(line));
		run_dinst(o, "%s", line);
		if (o->status != cases[i].status)
			fail_msg("%s: exit status %d instead of %d: %.400s %.400s", cases[i].line,
				 o->status, cases[i].status, o->out, o->err);
		check_output(&cases[i], o);
	}
	free(o);
}

/* Every command's --help fits a screen and says how it is used. */
static void every_help(void **state)
{
	static const char *const names[] = {"attach", "exec",	"ls",	  "modules", "funcs",
					    "points", "insert", "read",	  "watch",   "remove",
					    "cfg",    "flush",	"detach", "run",     "metrics",
					    "repair", "doctor", "stop",	  "help",    "history"};
	struct output *o = malloc(sizeof(*o));

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		int lines = 0;

		run_dinst(o, "%s --help", names[i]);
		assert_int_equal(o->status, 0);
		assert_non_null(strstr(o->out, "usage: dinst"));
		assert_non_null(strstr(o->out, "Example:"));
		for (const char *p = o->out; *p; p++)
			lines += *p == '\n';
		assert_true(lines <= 24);
	}
	run_dinst(o, "--help");
	assert_int_equal(o->status, 0);
	free(o);
}

static void write_file(const char *name, const char *text)
{
	char path[100];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", fixture_directory, name);
	f = fopen(path, "w");
	assert_non_null(f);
	if (strchr(text, '%'))
		fprintf(f, "run %s\n", path);
	else
		fputs(text, f);
	fclose(f);
}

static int setup(void **state)
{
	if (fixture_setup(state) != 0)
		return -1;
	second_target = start_target("second-target");
	write_file("good",
		   "# two instances\n\ninsert calls 'a b'\n  dinst insert calls \"c\" # d\n");
	write_file("bad", "# stops\ninsert calls a\nbogus\ninsert calls b\n");
	write_file("bad-but", "insert calls a\n-bogus\ninsert calls b\n");
	write_file("part", "insert calls @partial\ninsert calls b\n");
	write_file("options", "insert --each calls -p first a\nread -q --json 1 99\n"
			      "watch -c 1 -i 0.01 -p first 1 99\n");
	write_file("loop", "%");
	return 0;
}

static int teardown(void **state)
{
	end_target(second_target);
	return fixture_teardown(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_command),
		cmocka_unit_test(every_help),
	};

	return cmocka_run_group_tests_name("daemon_cli", tests, setup, teardown);
}
