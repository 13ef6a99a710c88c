/* SPDX-License-Identifier: MIT */
/*
 * death_tails.c - what a mutator that died has left is taken out where the last byte of a jump was
 * there before: neither the patch nor the journal has it, and it is a jump all the same.
 */
#include <stdio.h>
#include <unistd.h>

#include "mutator/leftovers.h"
#include "tests/live/death_help.h"
#include "tests/live/harness_thread.h"

static const char PROGRAM[] = "tests/live/targets/tails";

enum { RIGHT = 8, WRONG = 16, EXPECTED = 24, LEAPS = 32 }; /* in the worker's control */

static const struct site *site_of(const struct session *s, unsigned id)
{
	for (const struct link *l = session_instance(s, id)->links; l; l = l->next_instance)
		if (l->site->host)
			return l->site;
	fail_msg("there is no hole");
	return NULL;
}

/* A near jump in a hole of which four bytes are written. */
static const struct site *insert_trimmed(struct harness *h, struct session *s)
{
	const struct site *site = site_of(s, session_insert_kind(s, "thin_0", POINT_ENTRY));
	char focus[32];
	uint8_t jump[5];

	/* The next arena's code may be some MiB farther away. */
	for (int i = 0; i < 8 && site->patches[0].length == sizeof(jump); i++) {
		thread_peek(h->pid, site->patches[0].address, jump, sizeof(jump));
		snprintf(focus, sizeof(focus), "thin_%u", jump[4]);
		site = site_of(s, session_insert_kind(s, focus, POINT_ENTRY));
	}
	assert_int_equal(site->patches[0].length, sizeof(jump) - 1);
	return site;
}

static pid_t worker_of(const struct harness *h, taddr_t bias, struct user_regs_struct *r)
{
	char path[64];
	pid_t tid = h->pid + 1;

	snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)h->pid, (int)tid);
	while (access(path, F_OK)) {
		tid++;
		snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)h->pid, (int)tid);
	}
	thread_seize_at(tid, harness_symbol(PROGRAM, "park") + bias,
			harness_symbol(PROGRAM, "park_end") + bias, r);
	return tid;
}

static void push(struct harness *h, struct user_regs_struct *r, uint64_t value)
{
	r->rsp -= sizeof(value);
	thread_poke(h->pid, r->rsp, &value, sizeof(value));
}

static void wait_until_right(struct harness *h, taddr_t control)
{
	uint64_t right = 0, wrong = 0;

	for (int i = 0; i < 5000 && !right && !wrong; i++) {
		usleep(1000);
		thread_peek(h->pid, control + RIGHT, &right, sizeof(right));
		thread_peek(h->pid, control + WRONG, &wrong, sizeof(wrong));
	}
	assert_int_equal(wrong, 0);
	assert_int_equal(right, 1);
}

/*
 * fear J2, C1: a thread in front of a near jump, whose last byte was the host's, when that is taken
 * out after a mutator's death
 */
static void test_thread_at_the_jump(void **state)
{
	struct harness *h = *state;
	const uint64_t expected = 7;
	struct user_regs_struct r;
	struct session *s;
	const struct site *site;
	taddr_t bias;
	pid_t tid;

	harness_start(h, "tails", NULL);
	s = session_begin(h);
	bias = session_address(s, "thin_0") - harness_symbol(PROGRAM, "thin_0");
	site = insert_trimmed(h, s);
	tid = worker_of(h, bias, &r);
	push(h, &r, harness_symbol(PROGRAM, "back") + bias);
	thread_poke(h->pid, r.rbx + EXPECTED, &expected, sizeof(expected));
	r.rax = 0;
	r.rip = site->patches[0].address;
	thread_set(tid, &r);
	thread_freeze_all(h->pid, &tid, 1);
	/* As a mutator that dies. */
	session_free(s);
	assert_int_equal(clean_for(h, 300), 1);
	thread_thaw(h->pid);
	wait_until_right(h, r.rbx);
	clean_up(h, 0);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear J2, C2: a thread that will come back to a near jump which a short one leads to, whose last byte
 * was the window's: the near jump waits for it
 */
static void test_way_back_to_the_jump(void **state)
{
	struct harness *h = *state;
	struct user_regs_struct r;
	const uint64_t leaps = 1, nothing[2] = {0};
	uint64_t expected;
	struct session *s;
	const struct site *site;
	taddr_t bias, hole;
	pid_t tid;

	harness_start(h, "tails", NULL);
	s = session_begin(h);
	bias = session_address(s, "thin_short") - harness_symbol(PROGRAM, "thin_short");
	site = site_of(s, session_insert_kind(s, "thin_short", POINT_ENTRY));
	hole = site->patches[0].address;
	assert_int_equal(site->patches[1].length, 1);
	expected = (uint8_t)(hole - site->patches[1].address - 2);
	tid = worker_of(h, bias, &r);
	push(h, &r, harness_symbol(PROGRAM, "back") + bias);
	push(h, &r, hole);
	thread_poke(h->pid, r.rbx + EXPECTED, &expected, sizeof(expected));
	r.rax = 0;
	r.rip = harness_symbol(PROGRAM, "leap") + bias;
	thread_set(tid, &r);
	thread_let_go(tid);
	/* As a mutator that dies. */
	session_free(s);
	assert_int_equal(clean_for(h, 300), 1);
	thread_poke(h->pid, r.rbx + LEAPS, &leaps, sizeof(leaps));
	wait_until_right(h, r.rbx);
	/* Nobody comes back any more, but what is left of that lies just below the stack pointer. */
	thread_poke(h->pid, r.rsp, nothing, sizeof(nothing));
	clean_up(h, 0);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * The near jump is of another arena than its host's: one that who repairs finds before it, or behind
 * it. A thread comes to the host, and to the near jump when it is through.
 */
static void run_in_two_arenas(struct harness *h, bool second)
{
	const uint64_t leaps = 1, nothing[3] = {0}, expected = 4 + 2 + 7;
	struct user_regs_struct r;
	struct session *s;
	const struct site *site;
	taddr_t bias;
	pid_t tid;

	harness_start(h, "tails", NULL);
	s = session_begin(h);
	bias = session_address(s, "own") - harness_symbol(PROGRAM, "own");
	session_insert_kind(s, "even_1", POINT_ENTRY);
	use_arena(s, true);
	session_insert_kind(s, "even_2", POINT_ENTRY);
	use_arena(s, second);
	session_insert_kind(s, "own", POINT_ENTRY);
	use_arena(s, !second);
	site = site_of(s, session_insert_kind(s, "own", POINT_EXIT));
	assert_ptr_not_equal(site->place, site->host->place);
	tid = worker_of(h, bias, &r);
	push(h, &r, harness_symbol(PROGRAM, "back") + bias);
	push(h, &r, site->patches[0].address);
	push(h, &r, harness_symbol(PROGRAM, "own") + bias);
	thread_poke(h->pid, r.rbx + EXPECTED, &expected, sizeof(expected));
	r.rax = 0;
	r.rip = harness_symbol(PROGRAM, "leap") + bias;
	thread_set(tid, &r);
	thread_let_go(tid);
	/* As a mutator that dies. */
	session_free(s);
	assert_int_equal(clean_for(h, 300), 2);
	thread_poke(h->pid, r.rbx + LEAPS, &leaps, sizeof(leaps));
	wait_until_right(h, r.rbx);
	/* As above. */
	thread_poke(h->pid, r.rsp, nothing, sizeof(nothing));
	clean_up(h, 0);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear J2, C2: a thread that comes back to a near jump in the tail of a window of another arena, of a
 * mutator that died: the window waits for it, too
 */
static void test_way_back_in_two_arenas(void **state)
{
	run_in_two_arenas(*state, false);
	run_in_two_arenas(*state, true);
}

/* ---------------------------------------------------- the order of writes */

enum { THINS = 2, HALVES = 3, POINTS = 4 };

static const char *const thins[THINS] = {"thin_short", "thin_0"};

/* The first byte of ours of each of them, and which one must be there if it is. */
struct halves {
	taddr_t window, hole, host; /* host 0: the hole is in nobody's tail */
	uint8_t jump[HALVES];
};

/* Fault points before the stop that patches and behind it, and the same of that which restores. */
static unsigned long *points;

static void note_patching(void *arg, const char *text, size_t done, size_t total)
{
	(void)arg;
	(void)done;
	(void)total;
	if (!strcmp(text, "patching") && !points[0])
		points[0] = fault_passed;
}

/* In the child: both come, and both go again. Dies on its way, or exits with 0. */
static void come_and_go(pid_t pid, unsigned long countdown)
{
	struct instance *instances[THINS];
	struct flush_result flushed;
	struct dinst_error e = {0};
	struct session *s;
	int status;

	fault_passed = 0;
	fault_countdown = countdown;
	status = session_attach(pid, "doomed", &s, &e);
	if (status >= 0)
		s->progress = note_patching;
	points[0] = 0;
	for (unsigned i = 0; i < THINS && status >= 0; i++)
		status = insert_one(s, thins[i], POINT_ENTRY, &instances[i], &e);
	points[1] = fault_passed;
	for (unsigned i = 0; i < THINS && status >= 0; i++)
		status = removal_switch_off(s, instances[i], &e);
	points[2] = fault_passed;
	if (status >= 0)
		status = removal_flush(s, &flushed, &e);
	points[3] = fault_passed;
	_exit(status >= 0 ? 0 : FAILED);
}

static void run_to(struct harness *h, unsigned long countdown)
{
	int status = 0;
	pid_t child;

	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		come_and_go(h->pid, countdown);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFEXITED(status) && WEXITSTATUS(status))
		fail_msg("the mutator has failed");
}

static struct halves learn_halves(struct session *s, unsigned id, const char *thin)
{
	const taddr_t start = session_address(s, thin);

	for (const struct link *l = session_instance(s, id)->links; l; l = l->next_instance) {
		const struct site *site = l->site, *host = site->host;

		if (site->key.start != start || site->patch_count != 2)
			continue;
		return (struct halves){
			.window = site->patches[1].address,
			.hole = site->patches[0].address,
			.host = host ? host->patches[host->patch_count - 1].address : 0,
			.jump = {site->patches[1].after[0], site->patches[0].after[0],
				 host ? host->patches[host->patch_count - 1].after[0] : 0},
		};
	}
	fail_msg("%s has no short jump", thin);
	return (struct halves){0};
}

static bool is_ours(struct harness *h, taddr_t at, uint8_t jump)
{
	uint8_t now;

	thread_peek(h->pid, at, &now, 1);
	return now == jump;
}

/* A short jump leads to a near one, and that lies in the tail of what is patched. True if one is there. */
static bool check_halves(struct harness *h, const struct halves *v, const char *thin,
			 unsigned long countdown)
{
	const bool window = is_ours(h, v->window, v->jump[0]);
	const bool hole = is_ours(h, v->hole, v->jump[1]);

	if (window && !hole)
		fail_msg("death at %lu: the short jump of %s leads to nothing", countdown, thin);
	if (hole && v->host && !is_ours(h, v->host, v->jump[2]))
		fail_msg("death at %lu: the near jump of %s is in live code", countdown, thin);
	return window || hole;
}

/*
 * fear J2, C5: a mutator dies at each of its steps in which short jumps and the near ones behind them come and
 * go: at no moment a short one leads to what is not there
 */
static void test_nothing_leads_nowhere(void **state)
{
	struct harness *h = *state;
	struct halves halves[THINS];
	unsigned long seen = 0, known[POINTS];
	struct session *s;

	points = mmap(NULL, sizeof(known), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	assert_true(points != MAP_FAILED);
	harness_start(h, "tails", NULL);
	s = session_begin(h);
	for (unsigned i = 0; i < THINS; i++)
		halves[i] =
			learn_halves(s, session_insert_kind(s, thins[i], POINT_ENTRY), thins[i]);
	session_end(s);
	run_to(h, 0);
	clean_up(h, 0);
	memcpy(known, points, sizeof(known));
	for (unsigned stop = 0; stop < POINTS; stop += 2)
		for (unsigned long at = known[stop] + 1; at <= known[stop + 1]; at++) {
			run_to(h, at);
			for (unsigned i = 0; i < THINS; i++)
				seen += check_halves(h, &halves[i], thins[i], at);
			clean_up(h, at);
		}
	print_message("%lu and %lu steps, %lu times something was there\n", known[1] - known[0],
		      known[3] - known[2], seen);
	assert_true(seen > 4);
	harness_verify(h);
	harness_end(h, 0);
	munmap(points, sizeof(known));
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, death_setup, death_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_thread_at_the_jump),
		CASE(test_way_back_to_the_jump),
		CASE(test_way_back_in_two_arenas),
		CASE(test_nothing_leads_nowhere),
	};

	return cmocka_run_group_tests_name("live/death_tails", tests, NULL, NULL);
}
