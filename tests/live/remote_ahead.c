/* SPDX-License-Identifier: MIT */
/*
 * remote_ahead.c - which thread makes our calls where the kernel forgets a call that a stop interrupts,
 * as on AArch64: made up, for here it does not. The Makefile wraps what tells.
 */
#include "tests/live/inject_help.h"

#include <sys/syscall.h>

#include "inject/remote.h"

enum { THREADS = 3 }; /* that compute, besides the first one, which reads */

#define CODE  ARCH_AHEAD_CODE
#define CALL  ARCH_AHEAD_CALL
#define SLEEP ARCH_AHEAD_SLEEP

/* What is made up of those that compute, in a stop. */
static struct {
	bool forgets;
	taddr_t reader, computing[THREADS]; /* stack pointers: whose registers they are */
	enum arch_ahead ahead[THREADS];
	pid_t tids[THREADS];
	struct stop *stop;
	unsigned asked, wrong_bytes;
} made_up;

bool __wrap_arch_forgets_calls(void);
enum arch_ahead __wrap_arch_ahead(const struct arch_regs *r, const uint8_t next[ARCH_SYSCALL_MAX]);
bool __real_arch_is_native(const struct arch_regs *r);
bool __wrap_arch_is_native(const struct arch_regs *r);

bool __wrap_arch_forgets_calls(void)
{
	return made_up.forgets;
}

enum arch_ahead __wrap_arch_ahead(const struct arch_regs *r, const uint8_t next[ARCH_SYSCALL_MAX])
{
	uint8_t there[ARCH_SYSCALL_MAX];

	made_up.asked++;
	made_up.wrong_bytes +=
		target_read(stop_target(made_up.stop), arch_pc(r), there, sizeof(there), NULL) ||
		memcmp(next, there, sizeof(there)) != 0;
	for (size_t i = 0; i < THREADS; i++)
		if (arch_sp(r) == made_up.computing[i])
			return made_up.ahead[i];
	return ARCH_AHEAD_CODE;
}

/* The one that reads makes no call of ours: it is in one of its own in any case. */
bool __wrap_arch_is_native(const struct arch_regs *r)
{
	return __real_arch_is_native(r) && !(made_up.reader && arch_sp(r) == made_up.reader);
}

static int note_victim(struct stop *s, size_t next, const long *results, void *arg,
		       struct dinst_error *e)
{
	(void)next;
	(void)results;
	(void)e;
	*(pid_t *)arg = remote_victim(s);
	return 0;
}

static int make_call(struct stop *s, void *arg, struct dinst_error *e)
{
	struct arch_remote_call call = {.number = SYS_getpid};
	const struct arch_remote_program program = {.calls = &call, .count = 1};
	size_t count = 0;
	long result;
	int code;

	made_up.stop = s;
	for (size_t i = 0; i < stop_thread_count(s); i++) {
		const struct stop_thread *t = stop_thread(s, i);

		if (t->leader) {
			made_up.reader = arch_sp(&t->regs);
		} else if (count < THREADS) {
			made_up.tids[count] = t->tid;
			made_up.computing[count++] = arch_sp(&t->regs);
		}
	}
	code = remote_run(s, &program, 0, NULL, note_victim, arg, &result, e);
	made_up.reader = 0;
	return code;
}

/*
 * fear A7: who runs its own code makes our calls; else who is about to make a call; and who may have been in a
 * sleep, which would begin anew, only where there is no other
 */
static void test_order(void **state)
{
	static const struct {
		enum arch_ahead ahead[THREADS];
		size_t victim;
	} cases[] = {
		{{SLEEP, CALL, CODE}, 2},  {{CODE, SLEEP, CALL}, 0},  {{SLEEP, CODE, SLEEP}, 1},
		{{SLEEP, SLEEP, CALL}, 2}, {{SLEEP, CALL, SLEEP}, 1}, {{SLEEP, SLEEP, SLEEP}, 0},
	};
	struct harness *h = *state;
	struct target *t;
	pid_t victim = 0;

	harness_start(h, "stop-busy", "3", NULL);
	t = help_open(h->pid);
	made_up.forgets = true;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		memcpy(made_up.ahead, cases[i].ahead, sizeof(made_up.ahead));
		help_stop_well(t, make_call, &victim);
		if (victim != made_up.tids[cases[i].victim])
			fail_msg("case %zu: thread %d of %d, %d, %d", i, (int)victim,
				 (int)made_up.tids[0], (int)made_up.tids[1], (int)made_up.tids[2]);
	}
	assert_true(made_up.asked > 0);
	assert_int_equal(made_up.wrong_bytes, 0);
	/* Where it forgets none nobody is asked. */
	made_up.forgets = false;
	made_up.asked = 0;
	help_stop_well(t, make_call, &victim);
	assert_int_equal(victim, made_up.tids[0]);
	assert_int_equal(made_up.asked, 0);
	target_close(t);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_order, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
