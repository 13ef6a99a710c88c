/* SPDX-License-Identifier: MIT */
/*
 * daemon_reloads.c - a library is unloaded, and loaded again or not, while somebody reads by the command
 * line: the whole way from the mutator to whoever asks next.
 */
#include "tests/live/daemon_group.h"

static void tell(struct program *p, const char *command)
{
	assert_int_equal(dprintf(p->in, "%s\n", command), strlen(command) + 1);
	hear_line(p, "done");
}

/* The only instance there is; *told grows where `text` is told. */
static long long value_now(const char *text, int *told)
{
	const char *at;

	run_dinst(o, "read --json");
	assert_int_equal(o->status, 0);
	*told += strstr(o->err, text) != NULL;
	at = strstr(o->out, "\"value\":");
	assert_non_null(at);
	return atoll(at + strlen("\"value\":"));
}

/* Returns the value when it has been told; it is told no more in the seconds that follow. */
static long long wait_told(const char *text)
{
	int told = 0;

	for (int ms = 0; ms < ANSWER_MS && !told; ms += 100) {
		nap_ms(100);
		value_now(text, &told);
	}
	assert_int_equal(told, 1);
	for (int i = 0; i < 30; i++) {
		nap_ms(100);
		value_now(text, &told);
	}
	assert_int_equal(told, 1);
	return value_now(text, &told);
}

/* fear G4: loaded again it counts on, and gone for good it does not: each is told to whoever asks, once */
static void told_once(void **state)
{
	struct program p;
	long long before;
	int told = 0;

	(void)state;
	start_program(&p, "reloads");
	hear_line(&p, "ready");
	tell(&p, "open");
	run_dinst(o, "attach %d", (int)p.pid);
	assert_int_equal(o->status, 0);
	run_dinst(o, "insert calls reload_work");
	assert_int_equal(o->status, 0);
	tell(&p, "call 100");
	assert_int_equal(value_now("loaded", &told), 100);
	assert_int_equal(told, 0);
	tell(&p, "close");
	tell(&p, "open");
	before = wait_told("was unloaded and loaded again while 1 instance was in it");
	tell(&p, "call 1000");
	assert_int_equal(value_now("loaded", &told), before + 1000);
	tell(&p, "close");
	assert_int_equal(wait_told("was unloaded while 1 instance was in it"), before + 1000);
	run_dinst(o, "detach --json");
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "\"left\":0"));
	assert_false(has_arena(p.pid));
	tell(&p, "open");
	tell(&p, "call 10");
	end_calls(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(told_once),
	};

	return cmocka_run_group_tests_name("daemon_reloads", tests, setup, teardown);
}
