/* SPDX-License-Identifier: MIT */
/*
 * compact.c - a heap in fragments: bodies, heads and bases move together while
 * threads run through them, and what they leave is used again. All that is freed
 * is poisoned (harness_setup()): a thread that comes into it is found there.
 */
#include "tests/live/harness_session.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/fault.h"
#include "tests/live/every_step.h"

enum { PARTS = 2048, SITES = PARTS + 8, THREADS = 4, SEED = 20 };

static size_t used_bytes(const struct session *s, struct heap_stats *stats)
{
	assert_non_null(s->places);
	assert_null(s->places->next);
	heap_get_stats(s->places->heap, stats);
	return stats->used;
}

/* An instance for each part, by number. */
static void insert_parts(struct session *s, unsigned *ids)
{
	struct dinst_error e = {0};
	unsigned first;
	size_t count;

	if (session_try_insert(s, "part_*", true, &count, &first, &e) < 0)
		fail_msg("insert: %s", e.text);
	assert_int_equal(count, PARTS);
	for (unsigned i = 0; i < PARTS; i++)
		ids[i] = first + i;
}

static void ask(struct harness *h, const char *command, const char *answer)
{
	harness_send(h, command);
	assert_non_null(strstr(harness_line(h, HARNESS_ANSWER_MS), answer));
}

/* Rounds and ticks since "run". */
static void rest(struct harness *h, unsigned long *rounds, unsigned long *ticks)
{
	const char *line;
	char *end;

	harness_send(h, "stop\n");
	line = harness_line(h, HARNESS_ANSWER_MS);
	assert_memory_equal(line, "done ", 5);
	*rounds = strtoul(line + 5, &end, 10);
	*ticks = strtoul(end, NULL, 10);
}

/* Removes all but every `nth` in a random order of removal. */
static void thin_out(struct session *s, unsigned *ids, unsigned short *seed, unsigned one_in)
{
	for (unsigned i = 0; i < PARTS; i++)
		if (ids[i] && nrand48(seed) % one_in) {
			session_remove(s, ids[i]);
			ids[i] = 0;
		}
}

static size_t count_moved(const struct session *s, taddr_t (*heads)[2], bool remember)
{
	size_t moved = 0, n = 0;

	for (size_t b = 0; b < s->site_buckets; b++)
		for (const struct site *site = s->site_hash[b]; site; site = site->next_hash) {
			if (!site->links)
				continue;
			if (remember) {
				heads[n][0] = site->key.start;
				heads[n++][1] = site->head->code;
				continue;
			}
			for (size_t i = 0; i < SITES; i++)
				moved += heads[i][0] == site->key.start &&
					 heads[i][1] != site->head->code;
		}
	return moved;
}

/*
 * fear J7: of 2,048 trampolines a random few are left, spread over all pages; they move
 * together under running threads, pages become free, counts stay exact, no thread is
 * ever in what was freed
 */
static void test_moves_under_threads(void **state)
{
	static unsigned ids[PARTS];
	static taddr_t heads[SITES][2];
	struct harness *h = *state;
	unsigned short seed[3] = {SEED, 0, 0};
	struct heap_stats full, thin;
	unsigned long rounds, ticks, before[PARTS] = {0};
	struct session *s;
	size_t left = 0;
	unsigned kept;

	harness_start(h, "fragments", harness_number(THREADS), NULL);
	s = session_begin(h);
	kept = session_insert(s, "ticked");
	ask(h, "run\n", "running");
	insert_parts(s, ids);
	used_bytes(s, &full);
	count_moved(s, heads, true);
	thin_out(s, ids, seed, 40);
	session_flush_all(s);
	session_flush_all(s);
	used_bytes(s, &thin);
	for (unsigned i = 0; i < PARTS; i++)
		left += ids[i] != 0;
	print_message("%zu KiB for %d functions; %zu KiB for the %zu that are left, %zu heads "
		      "moved; %zu KiB exist\n",
		      full.used >> 10, PARTS, thin.used >> 10, left, count_moved(s, heads, false),
		      thin.resident >> 10);
	assert_true(left > 20 && left < 100);
	assert_true(count_moved(s, heads, false) > left / 2);
	assert_true(thin.used * 3 < full.used);
	assert_int_equal(thin.high_water, full.high_water);
	assert_true(thin.resident >= thin.used);
	rest(h, &rounds, &ticks);
	assert_int_equal(session_value(s, kept), ticks);
	for (unsigned i = 0; i < PARTS; i++)
		before[i] = ids[i] ? session_value(s, ids[i]) : 0;
	session_go(h, 50);
	for (unsigned i = 0; i < PARTS; i++)
		if (ids[i])
			assert_int_equal(session_value(s, ids[i]) - before[i], 50 * THREADS);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* ------------------------------------------------- in front of an old switch */

/* One of those that work: it stands where a function begins, with its whole process. */
static void freeze_at(struct harness *h, struct stepper *p, taddr_t function)
{
	static const char held[] = "held ";
	const char *line;

	harness_send(h, "hold\n");
	line = harness_line(h, HARNESS_ANSWER_MS);
	assert_memory_equal(line, held, strlen(held));
	*p = (struct stepper){.pid = h->pid, .tid = (pid_t)strtol(line + strlen(held), NULL, 10)};
	ask(h, "unhold\n", "unheld");
	step_hold(p);
	harness_send(h, "go 10\n");
	step_to(p, function);
}

/* Not until nothing is queued: something will be. */
static void flush_once(struct session *s)
{
	enum { TRIES = 100 };
	struct flush_result result;
	struct dinst_error e = {0};
	int status = removal_flush(s, &result, &e);

	for (unsigned n = 1; status == DINST_BUSY && n < TRIES; n++) {
		dinst_error_clear(&e);
		status = removal_flush(s, &result, &e);
	}
	if (status < 0)
		fail_msg("flush: %s", e.text);
}

/* Others come and go around it until the site's head has moved, and what it was is free, if it may be. */
static void move_head(struct session *s, const struct site *site, unsigned short *seed)
{
	enum { TURNS = 20, NONE = 1 << 30 };
	static unsigned ids[PARTS];
	const taddr_t was = site->head->code;

	for (unsigned turn = 0; site->head->code == was; turn++) {
		assert_true(turn < TURNS);
		insert_parts(s, ids);
		thin_out(s, ids, seed, 40);
		flush_once(s);
		flush_once(s);
		thin_out(s, ids, seed, NONE);
	}
	flush_once(s);
}

/* Where the switches of heads that the site had before lead to is there. Returns how many there are. */
static unsigned count_old_switches(const struct session *s, const struct site *site)
{
	struct heap *heap = site->place->heap;
	unsigned count = 0;

	for (const struct body *b = s->spent; b; b = b->next) {
		struct arch_insn insn;

		if (!b->is_head || b->site != site)
			continue;
		assert_int_equal(arch_decode(heap_map(heap, b->code, ARCH_SWITCH_SIZE),
					     ARCH_SWITCH_SIZE, b->code, &insn),
				 ARCH_OK);
		assert_int_equal(insn.flow, ARCH_FLOW_JUMP);
		assert_false(heap_is_poison(heap, insn.target));
		assert_int_equal(insn.target, site->head->code);
		count++;
	}
	return count;
}

/*
 * fear J7: a thread stays in front of the switch of a head that has moved while that moves again, and
 * what it was in between is freed: the switch leads to where it is now
 */
static void test_moves_twice(void **state)
{
	enum { ROUNDS = 50 };
	struct harness *h = *state;
	unsigned short seed[3] = {SEED, 2, 0};
	const struct site *site;
	struct session *s;
	struct stepper p;
	uint64_t before;
	taddr_t part;
	unsigned kept;

	harness_start(h, "fragments", harness_number(THREADS), NULL);
	s = session_begin(h);
	part = session_address(s, "part_400");
	freeze_at(h, &p, part);
	kept = session_insert(s, "part_400");
	site = site_find(s, part);
	assert_non_null(site);
	assert_int_equal(site->state, SITE_PATCHED);
	step_to(&p, site->head->code);
	move_head(s, site, seed);
	assert_int_equal(count_old_switches(s, site), 1);
	move_head(s, site, seed);
	assert_int_equal(count_old_switches(s, site), 1);
	step_release(&p);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	before = session_value(s, kept);
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, kept) - before, ROUNDS * THREADS);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* ---------------------------------------------------------------- death */

enum { DEATHS = 16, CLEAN_MS = 60000 };

/* Shared with the mutator that is to die. */
static struct account {
	unsigned long passed; /* fault points of the flush */
	size_t moved;
	char text[DINST_ERROR_TEXT];
} * account;

/* Few are left of many, so that the flush moves them: it is killed at one of its fault points. */
static void live_and_die(pid_t pid, unsigned long countdown)
{
	const struct insert_options options = {.each = true};
	/* Enough that pages become free which are worth it: of fewer functions nothing moves. */
	const char *const foci[] = {"part_0*", "part_1*", "part_2*"};
	struct flush_result flushed;
	struct insert_result result;
	struct dinst_error e = {0};
	struct detach_result detached;
	static taddr_t heads[SITES][2];
	struct session *s;
	int status = session_attach(pid, "doomed", &s, &e);

	if (status >= 0)
		status = request_insert(s, "calls", foci, 3, &options, &result, &e);
	/* Those that go are many at once: no flush comes before ours. */
	for (size_t i = 0; status >= 0 && i < result.count; i++)
		if (i % 16)
			status = removal_switch_off(s, result.instances[i], &e);
	if (status >= 0)
		count_moved(s, heads, true);
	fault_passed = 0;
	fault_countdown = countdown;
	if (status >= 0)
		status = removal_flush(s, &flushed, &e);
	if (status >= 0)
		status = removal_flush(s, &flushed, &e);
	account->passed = fault_passed;
	fault_countdown = 0;
	if (status >= 0)
		account->moved = count_moved(s, heads, false);
	if (status >= 0)
		status = session_detach(s, 100, &detached, &e);
	memcpy(account->text, e.text, sizeof(e.text));
	_exit(status >= 0 ? 0 : status == DINST_BUSY ? 0 : 3);
}

/* True if it was killed. */
static bool run_mutator(struct harness *h, unsigned long countdown)
{
	int status = 0;
	pid_t child;

	memset(account, 0, sizeof(*account));
	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		live_and_die(h->pid, countdown);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && countdown)
		return true;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail_msg("the mutator failed (status %x): %s", (unsigned)status, account->text);
	return false;
}

static void clean(struct harness *h)
{
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;

	if (target_open(h->pid, &t, &e) < 0 || leftovers_clean(t, CLEAN_MS, &left, &e) < 0)
		fail_msg("%s", e.text);
	target_close(t);
	assert_int_equal(left.arenas_left, 0);
}

/*
 * fear J2, J7: the mutator is killed while it moves trampolines that threads run through: the
 * journal has both ways, and the next one takes everything out
 */
static void test_dies_while_moving(void **state)
{
	struct harness *h = *state;
	unsigned short seed[3] = {SEED, 1, 0};
	unsigned long rounds, ticks, points, deaths = 0;

	account = mmap(NULL, sizeof(*account), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	assert_true(account != MAP_FAILED);
	harness_start(h, "fragments", "3", NULL);
	ask(h, "run\n", "running");
	assert_false(run_mutator(h, 0));
	points = account->passed;
	assert_true(points > 20);
	print_message("%zu heads moved, %lu points\n", account->moved, points);
	/* Those deaths are in the middle of moves only where something moves. */
	assert_true(account->moved > 0);
	clean(h);
	for (unsigned turn = 0; deaths < DEATHS && turn < 3 * DEATHS; turn++) {
		deaths += run_mutator(h, 1 + (unsigned long)nrand48(seed) % points);
		clean(h);
		harness_verify(h);
	}
	assert_int_equal(deaths, DEATHS);
	rest(h, &rounds, &ticks);
	assert_true(rounds > 0);
	session_go(h, 10);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_moves_under_threads),
		CASE(test_moves_twice),
		CASE(test_dies_while_moving),
	};

	return cmocka_run_group_tests_name("live/compact", tests, NULL, NULL);
}
