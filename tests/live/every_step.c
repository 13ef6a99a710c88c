/* SPDX-License-Identifier: MIT */
/*
 * every_step.c - what is inserted and removed while a thread stands before any instruction: in
 * windows, in front of near jumps, in trampolines, in bodies, under a signal's handler. A machine
 * tries the places, and the orders in which things are done: instruction by instruction it goes on,
 * stands still, and one of the operations below is done to it; so a few dozen times, and then all
 * results must have been right, the counts of what is still there exact, and nothing left at the end.
 *
 * All is drawn from a seed: a round that fails tells what it did. Environment: STEPS_SEED, STEPS_MS
 * (it begins no round later), STEPS_ROUNDS.
 */
#include <time.h>

#include "inject/fault.h"
#include "mutator/leftovers.h"
#include "tests/live/every_step_log.h"
#include "tests/live/every_step_scene.h"

enum { LEFT_MS = 50, CLEAN_MS = 20000 };

/* How often a point of that kind in one function counts in a round; -1: refused. */
static int64_t reference[PARTS][ALL][POINT_KINDS];

/* A short jump leads to one of its points, and a near one in a hole from there. */
static bool has_hole[ALL];

static struct scene playing; /* where teardown() finds it */

/* ------------------------------------------------------------- operations */

/* One of a function of a library that has been loaded anew since, or NULL. */
static const struct inserted *old_one(struct scene *c)
{
	const unsigned from = draw(c, INSTANCES);

	for (unsigned n = 0; n < INSTANCES && draw(c, 40); n++) {
		const struct inserted *i = &c->inserted[(from + n) % INSTANCES];

		if (i->id && i->gone && strcspn(i->focus, "*?") == strlen(i->focus))
			return i;
	}
	return NULL;
}

/* One function's points, often of that which the thread is in, or those of several at once. */
static void do_insert(struct scene *c)
{
	static const char *const several[] = {"*", "t*", "l*", "?a*", "*ed", "*e*"};
	const unsigned part = c->open && draw(c, c->much ? 4 : 2);
	enum point_kind kind = draw(c, 4) ? draw(c, POINT_CALL) : draw(c, POINT_KINDS);
	unsigned function = draw(c, 2)	 ? c->favourites[draw(c, FAVOURITES)]
			    : draw(c, 2) ? c->last
					 : draw(c, ALL);
	struct insert_result result = {0};
	struct dinst_error e = {0};
	struct inserted *i = NULL;
	int status;

	for (unsigned n = 0; n < INSTANCES && !i; n++)
		i = c->inserted[n].id ? NULL : &c->inserted[n];
	if (!i)
		return;
	const struct inserted *old = old_one(c);

	/* What was there before its library was loaded anew comes again. */
	if (part && old) {
		function = old->function;
		kind = old->kind;
	}
	if (reference[part][function][kind] <= 0)
		kind = draw(c, POINT_CALL);
	snprintf(i->focus, sizeof(i->focus), "%s%s", c->parts[part].prefix,
		 draw(c, 6) ? names[function]
			    : several[draw(c, sizeof(several) / sizeof(several[0]))]);
	note(c, "insert ");
	fprintf(c->log, "%s %s", point_kind_name(kind), i->focus);
	step_freeze(&c->p);
	status = insert(c->s, i->focus, kind, false, &result, &e);
	note_end(c, status, &e);
	if (status < 0 && status != DINST_REFUSED && status != DINST_BUSY &&
	    status != DINST_NO_FUNCTION)
		fail_msg("%s: %s", i->focus, e.text);
	if (status < 0)
		return;
	assert_int_equal(result.count, 1);
	i->id = result.instances[0]->id;
	i->part = part;
	i->function = function;
	i->gone = false;
	i->kind = kind;
	free(result.instances);
}

static void remove_one(struct scene *c, struct inserted *i)
{
	struct flush_result result;
	struct dinst_error e = {0};
	int status = removal_remove(c->s, session_instance(c->s, i->id), &result, &e);

	if (status < 0 && status != DINST_BUSY)
		fail_msg("%s", e.text);
	i->id = 0;
}

static void do_remove(struct scene *c)
{
	const unsigned from = draw(c, INSTANCES), most = draw(c, 4) ? 1 : draw(c, 6);

	step_freeze(&c->p);
	for (unsigned n = 0, done = 0; n < INSTANCES && done < most; n++) {
		struct inserted *i = &c->inserted[(from + n) % INSTANCES];

		if (!i->id)
			continue;
		note(c, "remove ");
		fprintf(c->log, "%s %s\n", point_kind_name(i->kind), i->focus);
		fflush(c->log);
		remove_one(c, i);
		done++;
	}
}

static void do_flush(struct scene *c)
{
	struct flush_result result;
	struct dinst_error e = {0};
	int status;

	note(c, "flush");
	step_freeze(&c->p);
	status = removal_flush(c->s, &result, &e);
	note_end(c, status, &e);
	if (status < 0 && status != DINST_BUSY)
		fail_msg("%s", e.text);
}

/* All goes, and the thread is where much of that was when it does. */
static void do_clear(struct scene *c)
{
	struct inserted *i = c->inserted;

	note(c, "remove all\n");
	say(c, "start 2");
	step_freeze(&c->p);
	for (unsigned n = 0; n < INSTANCES; n++)
		if (i[n].id)
			remove_one(c, &i[n]);
	step_hold(&c->p);
	wander(c, draw(c, 3) ? HOLE : BEHIND);
	do_flush(c);
}

static void do_compact(struct scene *c)
{
	step_freeze(&c->p);
	if (fillers_turn(&c->fillers, c->s, c->seed))
		do_flush(c);
}

static void do_retry(struct scene *c)
{
	note(c, "retry\n");
	step_freeze(&c->p);
	request_retry_pending(c->s);
}

static void do_signal(struct scene *c)
{
	note(c, "signal\n");
	say(c, "signal");
}

/* Opens or closes it; false if the thread may be inside. */
static bool turn_library(struct scene *c)
{
	const char *line;

	note(c, c->open ? "close" : "open");
	line = say(c, c->open ? "close" : "open");
	fprintf(c->log, " -> %.20s\n", line);
	if (!strcmp(line, "busy"))
		return false;
	if (!c->open)
		learn_part(c, LIBRARY, line);
	else
		c->parts[LIBRARY].end = c->parts[LIBRARY].start[0] = 0;
	c->open = !c->open;
	for (unsigned n = 0; n < INSTANCES; n++)
		c->inserted[n].gone |= c->inserted[n].part == LIBRARY;
	return true;
}

static void do_library(struct scene *c)
{
	const bool again = c->open && draw(c, 4);

	if (!turn_library(c))
		return;
	/* As the daemon looks now and then. */
	if (c->s && draw(c, 3))
		do_retry(c);
	step_hold(&c->p);
	if (again)
		turn_library(c);
}

/* The child goes on by itself, beside what is done here. */
static void do_family(struct scene *c)
{
	const char *answer;

	note(c, c->child ? "reap" : "fork");
	answer = say(c, c->child ? "reap" : "fork");
	fprintf(c->log, " -> %s\n", answer);
	if (strcmp(answer, "busy") != 0) {
		assert_string_equal(answer, c->child ? "reaped" : "asked");
		c->child = !c->child;
	}
}

/* As a mutator that dies: nobody knows any more what is where. */
static void do_death(struct scene *c)
{
	note(c, "death\n");
	step_freeze(&c->p);
	session_free(c->s);
	c->s = NULL;
	memset(c->inserted, 0, sizeof(c->inserted));
	fillers_forget(&c->fillers);
}

/* The next one comes, for so long; what cannot be had yet is left for later. */
static bool come_after(struct scene *c, unsigned milliseconds)
{
	struct dinst_error e = {0};
	struct leftovers left = {0};
	struct target *t;
	int status;

	assert_int_equal(target_open(c->h->pid, &t, &e), 0);
	status = leftovers_clean(t, milliseconds, &left, &e);
	if (status < 0 && status != DINST_BUSY)
		fail_msg("cleaning: %s", e.text);
	target_close(t);
	if (status < 0 || left.arenas_left)
		return false;
	c->s = session_begin(c->h);
	c->s->private_arenas = c->private;
	return true;
}

/* In a process of its own: one that is killed at the Nth step of what changes the target. */
static void live_and_die(struct scene *c, unsigned long countdown)
{
	enum { LIVES = 4 };
	struct insert_result result;
	struct flush_result flushed;
	struct dinst_error e = {0};
	char focus[32];

	fault_countdown = countdown;
	if (session_attach(c->h->pid, "doomed", &c->s, &e) < 0)
		_exit(0);
	for (unsigned i = 0; i < LIVES; i++) {
		snprintf(focus, sizeof(focus), "own_%s", i ? names[draw(c, ALL)] : "*");
		dinst_error_clear(&e);
		if (insert(c->s, focus, draw(c, POINT_CALL), false, &result, &e) < 0)
			continue;
		if (draw(c, 2))
			removal_remove(c->s, result.instances[0], &flushed, &e);
		free(result.instances);
	}
	dinst_error_clear(&e);
	removal_flush(c->s, &flushed, &e);
	_exit(0);
}

/* Such a one comes, and leaves what it has got to. */
static void be_killed(struct scene *c)
{
	enum { POINTS = 250 };
	const unsigned countdown = 1 + draw(c, POINTS);
	int status = -1;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (!child)
		live_and_die(c, countdown);
	if (child < 0 || waitpid(child, &status, 0) != child)
		fail_msg("a mutator cannot be started: %s", strerror(errno));
	fprintf(c->log, " -> killed at %u (%s)", countdown, status ? "before its end" : "after");
	if (status && (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL))
		fail_msg("a mutator has failed (status %x)", (unsigned)status);
}

static void do_repair(struct scene *c)
{
	bool came;

	note(c, "repair");
	step_freeze(&c->p);
	came = come_after(c, LEFT_MS);
	fprintf(c->log, " -> %s", came ? "session" : "left");
	if (came && !draw(c, 3)) {
		/* It gives way to the other one. */
		session_free(c->s);
		c->s = NULL;
		be_killed(c);
	}
	fprintf(c->log, "\n");
}

static const struct {
	void (*run)(struct scene *c);
	unsigned weight;
} operations[OPERATIONS] = {
	{do_insert, 6}, {do_remove, 4},	 {do_flush, 2},	 {do_clear, 1}, {do_retry, 1},
	{do_signal, 1}, {do_library, 1}, {do_family, 1}, {do_death, 1}, {do_compact, 1},
};

/* Each round has one of them often and others never, and few functions most often. */
static void choose(struct scene *c)
{
	enum { ALWAYS = 4, OFTEN = 6 };
	const unsigned theme = ALWAYS + draw(c, OPERATIONS - ALWAYS);

	for (unsigned i = 0; i < OPERATIONS; i++) {
		c->weights[i] = operations[i].weight;
		if (i == theme)
			c->weights[i] *= OFTEN;
		else if (i >= ALWAYS)
			c->weights[i] *= draw(c, 2);
		c->weight += c->weights[i];
	}
	c->much = operations[theme].run == do_library;
	for (unsigned i = 0; i < FAVOURITES; i++)
		do
			c->favourites[i] = draw(c, ALL);
		while (i && !has_hole[c->favourites[i]]);
}

static void operate(struct scene *c)
{
	unsigned at = draw(c, c->weight), which = 0;

	while (at >= c->weights[which])
		at -= c->weights[which++];
	if (c->s)
		operations[which].run(c);
	else if (draw(c, 3))
		do_repair(c);
}

/* ------------------------------------------------------------- one round */

static void begin(struct scene *c, unsigned long seed)
{
	const char *line;
	pid_t tid;

	c->log = step_log_open(seed);
	memcpy(c->seed, &seed, sizeof(c->seed));
	/* To be drawn from as from any other. */
	for (unsigned i = 0; i < 10; i++)
		draw(c, 2);
	c->parts[OWN].prefix = "own_";
	c->parts[LIBRARY].prefix = "lib_";
	c->private = !draw(c, 4);
	/* Without them counters are others. */
	setenv("GLIBC_TUNABLES", draw(c, 2) ? "glibc.pthread.rseq=0" : "glibc.pthread.rseq=1", 1);
	harness_start(c->h, "every-step", NULL);
	line = say(c, "where");
	assert_int_equal(harness_numbers(line, &tid, 1), 1);
	learn_part(c, OWN, line);
	c->p.pid = c->h->pid;
	c->p.tid = tid;
	c->s = session_begin(c->h);
	c->s->private_arenas = c->private;
}

static void settle(struct scene *c)
{
	const char *answer;

	step_release(&c->p);
	assert_string_equal(say(c, "wait"), "done");
	while (!strcmp(answer = say(c, "reap"), "busy"))
		usleep(1000);
	assert_string_equal(answer, "reaped");
	if (!c->s && !come_after(c, CLEAN_MS))
		fail_msg("a mutator's things are left");
}

/* What it counts in a round of those that nobody has disturbed; false if not all of it could be had. */
static bool expect_of(const struct scene *c, const struct inserted *i, int64_t *expected)
{
	struct dinst_error e = {0};
	struct function_ref *found;
	const struct image_function *functions;
	size_t count;

	*expected = 0;
	if (find_functions(c->s->modules, i->focus, &found, &count, &e) < 0)
		fail_msg("%s: %s", i->focus, e.text);
	for (size_t n = 0; n < count; n++) {
		int64_t one = -1;

		image_functions(found[n].module->image, &functions);
		for (unsigned k = 0; k < ALL; k++)
			if (!strcmp(functions[found[n].index].name + 4, names[k]))
				one = reference[i->part][k][i->kind];
		*expected += one > 0 ? one : 0;
	}
	free(found);
	return !session_refused(c->s, i->id);
}

/* Nobody is held any more: all counts. */
static void check_counts(struct scene *c)
{
	enum { ROUNDS = 3 };
	int64_t before[INSTANCES], expected;

	request_retry_pending(c->s);
	for (unsigned n = 0; n < INSTANCES; n++)
		if (c->inserted[n].id) {
			assert_int_equal(session_pending(c->s, c->inserted[n].id), 0);
			before[n] = (int64_t)session_value(c->s, c->inserted[n].id);
		}
	say(c, "start 3");
	assert_string_equal(say(c, "wait"), "done");
	for (unsigned n = 0; n < INSTANCES; n++) {
		const struct inserted *i = &c->inserted[n];
		const int64_t now = i->id ? (int64_t)session_value(c->s, i->id) : 0;

		if (!i->id || i->gone || !expect_of(c, i, &expected))
			continue;
		if (now - before[n] != ROUNDS * expected)
			fail_msg("%s of %s: %lld instead of %lld", point_kind_name(i->kind),
				 i->focus, (long long)(now - before[n]),
				 (long long)(ROUNDS * expected));
	}
}

static void end(struct scene *c)
{
	settle(c);
	check_counts(c);
	fillers_thin(&c->fillers, 0, c->seed);
	session_end(c->s);
	c->s = NULL;
	if (c->open)
		assert_string_equal(say(c, "close"), "closed");
	say(c, "start 1");
	assert_string_equal(say(c, "wait"), "done");
	harness_verify(c->h);
	harness_end(c->h, 0);
	step_log_close(c->log);
}

static void play(struct harness *h, unsigned long seed, unsigned long *steps)
{
	struct scene *c = &playing;
	unsigned count;

	*c = (struct scene){.h = h};
	begin(c, seed);
	choose(c);
	count = 10 + draw(c, 50);
	step_hold(&c->p);
	say(c, "start 2");
	/* However long it has slept. */
	for (unsigned i = 0; i < 10000 && c->p.regs.rip != c->parts[OWN].start[0]; i++)
		step_once(&c->p);
	for (unsigned i = 0; i < count; i++) {
		step_hold(&c->p);
		if (draw(c, 4))
			say(c, "start 2");
		wander(c, draw(c, 8) ? 1 + draw(c, SPOTS - 1) : ANYWHERE);
		operate(c);
	}
	end(c);
	*steps += c->p.steps;
}

/* ------------------------------------------------------------------ tests */

/* Each kind at each function by itself. */
static void learn_reference(struct harness *h)
{
	struct scene *c = &playing;
	struct insert_result result;
	struct dinst_error e = {0};

	*c = (struct scene){.h = h};
	begin(c, 0);
	for (unsigned kind = 0; kind < POINT_KINDS; kind++)
		for (unsigned k = 0; k < ALL; k++) {
			struct inserted i = {.kind = kind};

			snprintf(i.focus, sizeof(i.focus), "own_%s", names[k]);
			reference[OWN][k][kind] = reference[LIBRARY][k][kind] = -1;
			if (insert(c->s, i.focus, kind, false, &result, &e) < 0) {
				dinst_error_clear(&e);
				continue;
			}
			say(c, "start 1");
			assert_string_equal(say(c, "wait"), "done");
			i.id = result.instances[0]->id;
			for (struct link *l = result.instances[0]->links; l; l = l->next_instance)
				has_hole[k] |= l->site->patch_count == 2;
			free(result.instances);
			reference[OWN][k][kind] = reference[LIBRARY][k][kind] =
				(int64_t)session_value(c->s, i.id);
			remove_one(c, &i);
		}
	end(c);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/*
 * fear C1, J1: a thread stands before any instruction, of windows, near jumps, trampolines, bodies
 * and what is between, while points go in and come out in any order, in hundreds of rounds of one to
 * sixty changes each: no wrong result, no signal, counts exact in the end, nothing left
 */
/* fear C5: the same at functions too short for a jump, and at those whose room lies next door */
/* fear G4: the same while a library is unloaded, and loaded again to the same place */
/* fear G1: the same while a child that the thread has forked goes on alone */
/* fear C2: the same under a signal's handler, which returns much later */
/* fear J7: the same while the heap is in fragments, and what is left of it moves with the thread inside */
/* fear J2: the same after a mutator's death, at any step of its own too, and while the next one takes out what was left */
static void test_every_step(void **state)
{
	const unsigned long seed = harness_setting("STEPS_SEED", 1);
	const unsigned long rounds = harness_setting("STEPS_ROUNDS", 100000);
	const uint64_t ms = harness_setting("STEPS_MS", getenv("DINST_SHORT") ? 3000 : 10000);
	const uint64_t until = now_ms() + ms;
	unsigned long round = 0, steps = 0;

	harness_limit(HARNESS_SECONDS + (unsigned)(ms / 1000));
	learn_reference(*state);
	for (; round < rounds && (!round || now_ms() < until); round++)
		play(*state, seed + round, &steps);
	print_message("%lu rounds, %lu instructions\n", round, steps);
}

static int teardown(void **state)
{
	step_log_tell(playing.log);
	step_kill(&playing.p);
	return harness_teardown(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_every_step, step_setup, teardown),
	};

	return cmocka_run_group_tests_name("live/every_step", tests, NULL, NULL);
}
