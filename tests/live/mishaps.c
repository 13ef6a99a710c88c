/* SPDX-License-Identifier: MIT */
/*
 * mishaps.c - a call that the mutator makes fails, and it goes on.
 *
 * A child process attaches, inserts, reads values, removes, flushes and detaches
 * with the libraries. Their calls go through this program (--wrap), which lets
 * the Nth of one kind fail, alone or with all that follow, in a way in which the
 * kernel or the C library can let it fail. Whatever fails: the target goes on
 * computing rightly; what was said to be in counts exactly; what was said
 * to be out is out, byte for byte; and what could not be taken out is taken out
 * by the next one.
 *
 * mishaps [CASES]: those whose names it fits. MISHAPS=n of each kind, 0: each one.
 */
#include "inject/tasks.h"
#include "tests/live/mishaps_lives.h"

enum { THREADS = 4, ROUNDS = 50 };
enum { MANY, STRANGE, LATENCY, WATCHED };

static void count_rounds(struct counted *watched)
{
	char command[32];

	snprintf(command, sizeof(command), "go %d\n", ROUNDS);
	expect_counts(watched, WATCHED, command, (uint64_t)ROUNDS * THREADS);
}

static void work(struct session *s)
{
	struct counted watched[WATCHED] = {0}, exits = {0}, calls = {0};

	say("go 3000\n");
	stage(1);
	insert(s, "calls", "many", &watched[MANY]);
	insert_kind(s, all, POINT_EXIT, &exits);
	stage(2);
	insert(s, "latency", "many", &watched[LATENCY]);
	insert_kind(s, caller, POINT_CALL, &calls);
	stage(3);
	take_away(s, &exits);
	stage(4);
	flush(s);
	expect_done();
	count_rounds(watched);
	stage(5);
	insert(s, "calls", "strange", &watched[STRANGE]);
	take_away(s, &watched[MANY]);
	say("go 1000\n");
	flush(s);
	expect_done();
	count_rounds(watched);
}

static void sweep_kinds(struct harness *h, const enum mishap_kind *kinds, size_t count,
			unsigned long turns)
{
	static const struct scene usual_scene = {.work = work};

	harness_start(h, "calls", harness_number(THREADS), NULL);
	sweep_scene(h, &usual_scene, kinds, count, turns);
	harness_end(h, 0);
}

#define SWEEP(turns, ...)                                                              \
	do {                                                                           \
		const enum mishap_kind kinds[] = {__VA_ARGS__};                        \
		sweep_kinds(*state, kinds, sizeof(kinds) / sizeof(kinds[0]), (turns)); \
	} while (0)

/*
 * fear I2, J3: no descriptor is left (EMFILE, ENFILE), a file cannot be read or written (ENOMEM, EIO, ENOSPC),
 * once or from then on, at any moment from attach to detach: told, never a wrong number, nothing left
 */
static void test_files(void **state)
{
	SWEEP(3, MISHAP_OPEN, MISHAP_READ, MISHAP_STORE);
}

/* fear I3, J3: the same of our own memory and of threads, processes and timers of ours */
static void test_memory(void **state)
{
	SWEEP(3, MISHAP_MEMORY, MISHAP_MAP, MISHAP_TASK);
}

/*
 * fear C7, J3: the same of reading and writing the target's memory, a part of what was asked for included, of
 * what interrupts us, of descriptors of processes and of ptrace requests: also in the middle of a stop
 */
static void test_target(void **state)
{
	SWEEP(3, MISHAP_READ_MEMORY, MISHAP_WRITE_MEMORY, MISHAP_WAIT, MISHAP_CALL, MISHAP_TRACE);
}

/* ---------------------------------------------- what must not be taken for "no" */

/* From the Nth of these calls on all fail. */
static void fail_from(enum mishap_kind kind, unsigned long at, int error)
{
	const struct mishap m = {.kind = kind, .at = at, .count = ~0ul / 2, .error = error};

	mishap_set(&m);
	mishap_begin();
}

static struct target *open_target(struct harness *h)
{
	struct dinst_error e = {0};
	struct target *t;

	harness_start(h, "calls", "1", NULL);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	return t;
}

/*
 * fear A8: whether a thread is in the strict mode of seccomp, where the processor's clock cannot be read,
 * cannot be seen for want of a descriptor: nothing that reads it goes in
 */
static void test_strict_unseen(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct request r = {0};
	bool may;

	harness_start(h, "calls", "2", NULL);
	r.session = session_begin(h);
	for (unsigned long at = 1; at <= 3; at++) {
		dinst_error_clear(&e);
		fail_from(MISHAP_OPEN, at, EMFILE);
		may = request_may_read_clock(&r, &e);
		mishap_end();
		assert_false(may);
		assert_int_equal(e.code, DINST_BUSY);
	}
	assert_true(request_may_read_clock(&r, &e));
	session_end((struct session *)r.session);
	harness_end(h, 0);
}

/*
 * fear G2: who is in the target's memory cannot be seen (kcmp refused, no descriptor left): it is taken to be, and
 * stands still along with it
 */
static void test_memory_unseen(void **state)
{
	struct harness *h = *state;
	bool same[5];

	harness_start(h, "calls", "1", NULL);
	mishap_no_compare = true;
	for (unsigned long at = 1; at <= 4; at++) {
		fail_from(MISHAP_OPEN, at, ENFILE);
		same[at] = task_same_memory(h->pid, h->pid);
		mishap_end();
	}
	same[0] = task_same_memory(h->pid, getpid());
	mishap_no_compare = false;
	assert_false(same[0]);
	for (unsigned long at = 1; at <= 4; at++)
		assert_true(same[at]);
	harness_end(h, 0);
}

/* fear J2: what a mutator has left cannot be looked for: that is said, and not that there is nothing */
static void test_leftovers_unseen(void **state)
{
	struct harness *h = *state;
	struct target *t = open_target(h);
	struct dinst_error e = {0};
	struct leftovers left;
	unsigned long reached = 0;
	int status;

	/* One that there has never been. */
	fail_from(MISHAP_OPEN, 2, EMFILE);
	status = leftovers_clean_heirs(getpid(), 1, 100, &left, &e);
	mishap_end();
	assert_int_equal(status, DINST_BUSY);
	assert_int_equal(e.code, DINST_BUSY);
	dinst_error_clear(&e);
	assert_int_equal(leftovers_clean(t, 1000, &left, &e), 0);
	for (unsigned long at = 1; at == reached + 1; at++) {
		dinst_error_clear(&e);
		fail_from(MISHAP_OPEN, at, EMFILE);
		status = leftovers_clean(t, 1000, &left, &e);
		mishap_end();
		reached += mishap_calls(MISHAP_OPEN) >= at;
		if (reached == at && status >= 0)
			fail_msg("nothing is left, was said at %lu", at);
		assert_true(status >= 0 || e.text[0]);
	}
	assert_true(reached > 5);
	target_close(t);
	verify(h, 0);
	harness_end(h, 0);
}

/* fear J2: a process has what a mutator made, and there is no descriptor to look at it: that passes, and is no end of it */
static void test_heir_unseen(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct leftovers left;
	struct proc_stat own;
	struct session *s;
	int status;

	harness_start(h, "calls", "1", NULL);
	s = session_begin(h);
	session_insert(s, "tiny");
	/* Our side only: as if we had died. */
	session_free(s);
	assert_int_equal(proc_stat_read(getpid(), &own), 0);
	fail_from(MISHAP_CALL, 1, EMFILE);
	status = leftovers_clean_heirs(getpid(), own.start_time, 100, &left, &e);
	mishap_end();
	assert_int_equal(status, DINST_BUSY);
	assert_non_null(strstr(e.text, "cannot look at process"));
	assert_int_equal(left.arenas, 0);
	dinst_error_clear(&e);
	assert_int_equal(leftovers_clean_heirs(getpid(), own.start_time, 1000, &left, &e), 0);
	assert_int_equal(left.arenas, 1);
	assert_int_equal(left.arenas_left, 0);
	verify(h, 0);
	harness_end(h, 0);
}

static size_t count_images(const struct module_list *l)
{
	size_t images = 0;

	for (size_t i = 0; i < module_count(l); i++)
		images += module_get(l, i)->image != NULL;
	return images;
}

/*
 * fear C2, F5: files of modules cannot be opened or read for want of descriptors or memory: that is the
 * answer, and not that they have no functions, or switch between no stacks
 */
static void test_modules_unseen(void **state)
{
	static const enum mishap_kind kinds[] = {MISHAP_OPEN, MISHAP_MAP};
	struct harness *h = *state;
	struct target *t = open_target(h);
	struct module_list *l;
	struct dinst_error e = {0};
	size_t images;

	assert_int_equal(module_list_read(t, &l, &e), 0);
	images = count_images(l);
	module_list_free(l);
	for (size_t k = 0; k < 2; k++)
		for (unsigned long at = 1, calls = at; at <= calls; at++) {
			struct mishap m = {kinds[k], at, 1, mishap_error(kinds[k], at)};
			int status;

			dinst_error_clear(&e);
			mishap_set(&m);
			mishap_begin();
			status = module_list_read(t, &l, &e);
			mishap_end();
			calls = mishap_calls(kinds[k]);
			if (status < 0)
				continue;
			if (count_images(l) != images)
				fail_msg("%s %lu: %zu of %zu modules", mishap_name(kinds[k]), at,
					 count_images(l), images);
			module_list_free(l);
		}
	target_close(t);
	harness_end(h, 0);
}

/* fear G2, H1: a target that cannot be asked is not taken for one that has ended, or provides no pages itself */
static void test_target_unseen(void **state)
{
	struct harness *h = *state;
	struct target *t = open_target(h), *again;
	struct dinst_error e = {0};
	bool alive, provides;
	int status;

	fail_from(MISHAP_WAIT, 1, ENOMEM);
	alive = target_alive(t);
	mishap_end();
	assert_true(alive);
	fail_from(MISHAP_OPEN, 1, EMFILE);
	provides = proc_provides_pages(h->pid);
	mishap_end();
	assert_true(provides);
	assert_false(proc_provides_pages(h->pid));
	for (unsigned long at = 1; at <= 3; at++) {
		dinst_error_clear(&e);
		fail_from(MISHAP_OPEN, at, EMFILE);
		status = target_open(h->pid, &again, &e);
		mishap_end();
		assert_int_equal(status, DINST_BUSY);
		assert_non_null(strstr(e.text, strerror(EMFILE)));
	}
	target_close(t);
	harness_end(h, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, death_setup, death_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_strict_unseen), TEST(test_memory_unseen),  TEST(test_leftovers_unseen),
		TEST(test_heir_unseen),	  TEST(test_modules_unseen), TEST(test_target_unseen),
		TEST(test_files),	  TEST(test_memory),	     TEST(test_target),
	};
	int status;

	lives_open();
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	status = cmocka_run_group_tests_name("live/mishaps", tests, NULL, NULL);
	return status;
}
