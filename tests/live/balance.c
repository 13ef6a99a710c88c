/* SPDX-License-Identifier: MIT */
/*
 * balance.c - for each function with all exits patched, entries minus exits
 * equal the activations that are alive: in programs that nobody here wrote, and
 * in one of ours that leaves functions in every other way than by returning.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/live/harness_balance.h"
#include "tests/live/harness_thread.h"

/* Runs into the function behind it, which is no exit that could be instrumented. */
static const char *const run_into_next[] = {"__mem*_chk_*", "__str*casecmp*", NULL};

static bool is_installed(const char *path)
{
	if (access(path, X_OK) == 0)
		return true;
	print_message("SKIP %s is not installed\n", path);
	return false;
}

/* Main module and libc; the program waits on its standard input. */
static struct balance *begin(struct harness *h, const char *const *argv, const char *module,
			     struct session **s)
{
	const char *const modules[] = {module, "libc.so.6"};

	harness_start_argv(h, argv, false);
	thread_wait_input(h->pid);
	*s = session_begin(h);
	return balance_begin(*s, modules, 2);
}

/* The script's last line is "done"; then the program waits for more. */
static void finish(struct harness *h, struct session *s, struct balance *b, size_t active)
{
	struct balance_result r;

	while (strcmp(harness_line(h, HARNESS_ANSWER_MS), "done") != 0)
		continue;
	balance_look(b);
	r = balance_check(b, run_into_next);
	print_message("%zu functions, %zu whole (%zu shared), %zu of them active, %zu unequal\n",
		      r.functions, r.whole, r.shared, r.active, r.unequal);
	assert_true(r.active >= active);
	assert_true((double)r.whole >= 0.9 * (double)r.functions);
	assert_int_equal(r.unequal, 0);
	balance_free(b);
	session_end(s);
	harness_end(h, 0);
}

/*
 * fear E5, F2: of every function of sqlite3 with all its exits: entries minus exits are its live
 * activations
 */
static void test_sqlite(void **state)
{
	static const char *const argv[] = {"/usr/bin/sqlite3", ":memory:", NULL};
	struct harness *h = *state;
	struct balance *b;
	struct session *s;

	if (!is_installed(argv[0]))
		skip();
	b = begin(h, argv, "libsqlite3.so.0", &s);
	harness_send(h,
		     "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT); CREATE INDEX i ON t(b);\n"
		     "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<2000)"
		     " INSERT INTO t SELECT x, hex(x*7919) FROM n;\n"
		     "SELECT count(*), sum(length(b)) FROM t WHERE b LIKE '%3%';\n"
		     "UPDATE t SET b=b||a WHERE a%3=0; DELETE FROM t WHERE a%7=0;\n"
		     "SELECT sum(r) FROM (SELECT row_number() OVER (PARTITION BY a%10 ORDER BY b)"
		     " r FROM t); PRAGMA integrity_check; VACUUM;\n"
		     "SELECT 'done';\n");
	finish(h, s, b, 500);
}

/* fear E5, F2: the same of Lua, which leaves by longjmp */
static void test_lua(void **state)
{
	static const char *const argv[] = {"/usr/bin/lua5.4", "-e",
					   "for l in io.lines() do load(l)() end", NULL};
	struct harness *h = *state;
	struct balance *b;
	struct session *s;

	if (!is_installed(argv[0]))
		skip();
	b = begin(h, argv, "lua5.4", &s);
	harness_send(
		h,
		"t = {} for i = 1, 5000 do t[i] = tostring(i * 7 % 1000) .. 'x' end\n"
		"table.sort(t) s = table.concat(t, ',') print(#s, s:byte(1, 100))\n"
		"for w in s:gmatch('%d+') do n = (n or 0) + tonumber(w) end print(n)\n"
		"function f(k) if k == 0 then return 0 end return 1 + f(k - 1) end print(f(150))\n"
		"print(pcall(string.format, '%5.2f', 3.14159)) collectgarbage()\n"
		"io.write('\\ndone\\n') io.flush()\n");
	finish(h, s, b, 200);
}

/* fear E5, F2: the same of Perl */
static void test_perl(void **state)
{
	static const char *const argv[] = {
		"/usr/bin/perl", "-e",
		"$| = 1; while (<STDIN>) { my %h; $h{$_ % 977} .= chr(65 + $_ % 26) for 1 .. $_;"
		" my @k = sort { $h{$a} cmp $h{$b} || $a <=> $b } keys %h;"
		" sub f { my $n = shift; $n ? 1 + f($n - 1) : 0 } my $d = f(50);"
		" my $s = join ',', map { s/(A+)/<$1>/gr } @h{@k}; print length($s), qq(\\n);"
		" printf qq(%s %d\\n), substr($d / 7, 0, 5), eval '1 + 2'; print qq(done\\n) }",
		NULL};
	struct harness *h = *state;
	struct balance *b;
	struct session *s;

	if (!is_installed(argv[0]))
		skip();
	b = begin(h, argv, "perl", &s);
	harness_send(h, "5000\n");
	finish(h, s, b, 200);
}

/* A server is idle again after a load, with threads of its own. */
/* fear E5, F2: the same of redis-server under load */
static void test_redis(void **state)
{
	static const char *const commands =
		"set,get,incr,lpush,rpop,sadd,hset,zadd,lrange_100,mset";
	static const char *const modules[] = {"redis-server", "libc.so.6"};
	struct harness *h = *state;
	char socket[128], command[512];
	const char *const argv[] = {
		"/usr/bin/redis-server", "--port", "0", "--unixsocket", socket, "--save", "", NULL};
	struct balance_result r;
	struct balance *b;
	struct session *s;

	if (!is_installed(argv[0]) || !is_installed("/usr/bin/redis-benchmark"))
		skip();
	/* With sanitizers adding all up takes longer than redis is quiet between two of its timers. */
	if (SLOWER > 1)
		skip();
	harness_limit(600);
	snprintf(socket, sizeof(socket), "%s/redis", h->directory);
	harness_start_argv(h, argv, false);
	harness_until(access(socket, W_OK) == 0);
	s = session_begin(h);
	b = balance_begin(s, modules, 2);
	snprintf(command, sizeof(command),
		 "timeout 500 redis-benchmark -s '%s' -q -n 2000 -c 10 -P 4 -t %s >/dev/null && "
		 "timeout 100 redis-cli -s '%s' eval 'return redis.call(\"DBSIZE\")' 0 >/dev/null",
		 socket, commands, socket);
	assert_int_equal(system(command), 0);
	balance_look(b);
	r = balance_check(b, run_into_next);
	print_message("%zu functions, %zu whole (%zu shared), %zu of them active, %zu unequal\n",
		      r.functions, r.whole, r.shared, r.active, r.unequal);
	assert_true(r.active >= 400);
	assert_int_equal(r.unequal, 0);
	balance_free(b);
	session_end(s);
	assert_int_equal(kill(h->pid, SIGTERM), 0);
	harness_end(h, 0);
}

/* ------------------------------------------------------- one of our own */

enum { RECORDS_MAX = 32 };

struct record {
	char name[64];
	long count;
};

/* What the target says was not left, up to its "done". */
static size_t read_records(struct harness *h, struct record *records)
{
	size_t count = 0;

	for (;;) {
		const char *line = harness_line(h, HARNESS_ANSWER_MS);

		if (strcmp(line, "done") == 0)
			return count;
		assert_true(count < RECORDS_MAX);
		assert_int_equal(sscanf(line, "thrown %63s %ld", records[count].name,
					&records[count].count),
				 2);
		count++;
	}
}

static struct balance *begin_own(struct harness *h, struct session **s)
{
	static const char *const modules[] = {"balance"};

	harness_start(h, "balance", NULL);
	*s = session_begin(h);
	return balance_begin(*s, modules, 1);
}

static void end_own(struct harness *h, struct session *s, struct balance *b)
{
	balance_free(b);
	session_end(s);
	harness_verify_what(h, HARNESS_TEXT | HARNESS_FDS | HARNESS_THREADS);
	harness_end(h, 0);
}

/* Exactly the frames that the target knows to have thrown over, and not one of any other. */
/* fear E3: exactly the frames that longjmp, exceptions and cancellation threw over are missing */
static void test_thrown_over(void **state)
{
	struct record records[RECORDS_MAX];
	const char *names[RECORDS_MAX + 1] = {NULL};
	struct harness *h = *state;
	struct balance_result r;
	struct balance *b;
	struct session *s;
	size_t count;

	b = begin_own(h, &s);
	harness_send(h, "go 200\n");
	count = read_records(h, records);
	assert_true(count > 10);
	balance_look(b);
	for (size_t i = 0; i < count; i++) {
		struct balance_row row = balance_of(b, records[i].name);

		names[i] = records[i].name;
		assert_true(records[i].count > 0);
		if ((long)(row.entries - row.exits) - row.alive != records[i].count)
			fail_msg("%s: entered %llu times, left %llu times, alive %+ld, not %ld",
				 row.function, (unsigned long long)row.entries,
				 (unsigned long long)row.exits, row.alive, records[i].count);
	}
	assert_true(balance_of(b, "recurses").entries > 1000);
	assert_true(balance_of(b, "odd").entries > 1000);
	r = balance_check(b, names);
	assert_true(r.active >= 20);
	assert_int_equal(r.unequal, 0);
	end_own(h, s, b);
}

/* Activations that are alive are those of the stack. */
static void test_alive(void **state)
{
	struct harness *h = *state;
	struct balance *b;
	struct session *s;

	b = begin_own(h, &s);
	for (int depth = 0; depth < 200; depth += 66) {
		char text[32];

		snprintf(text, sizeof(text), "sit %d\n", depth);
		harness_send(h, text);
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "sitting");
		balance_look(b);
		assert_int_equal(balance_of(b, "sits").alive, depth + 1);
		assert_int_equal(balance_check(b, NULL).unequal, 0);
		harness_send(h, "stand\n");
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
		balance_look(b);
		assert_int_equal(balance_of(b, "sits").alive, 0);
		assert_int_equal(balance_check(b, NULL).unequal, 0);
	}
	end_own(h, s, b);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_thrown_over), CASE(test_alive), CASE(test_sqlite),
		CASE(test_lua),		CASE(test_perl),  CASE(test_redis),
	};

	return cmocka_run_group_tests_name("live/balance", tests, NULL, NULL);
}
