/* SPDX-License-Identifier: MIT */
/*
 * every_step_state.c - metrics with state of threads, inserted and removed while three threads stand each
 * before any instruction: of windows, trampolines, routines, of what a handler has interrupted, of the C
 * library's longjmp and unwinder, of their own birth and end. Meanwhile trampolines move together, threads
 * jump out of handlers, end and are born, mutators die with all that they have in the target.
 *
 * In the end all results must have been right, and with what is there still: counts exact, nothing
 * running in any thread's record, no timer going on, and when it is removed nothing left, on either side.
 * Environment as that of every_step.c.
 */
#include <sys/mman.h>
#include <time.h>

#include "inject/fault.h"
#include "mutator/variable.h"
#include "tests/live/every_step_check.h"
#include "tests/live/every_step_log.h"

enum { LEFT_MS = 50, CLEAN_MS = 30000 };

static const char mdl[] =
	"list s_leaf is procedure { items { \"st_leaf\" }; }\n"
	"metric s_process { name \"s_process\"; units ns; aggregateOperator sum;\n"
	"	style EventCounter; constraint thread;\n"
	"	constraint ofFunction inclusive /Code/*/* is replace processTimer {\n"
	"		append preInsn $constraint[0].entry (* startProcessTimer(s_process); *)\n"
	"		prepend preInsn $constraint[0].return (* stopProcessTimer(s_process); *) }\n"
	"	base is processTimer { foreach f in s_leaf {\n"
	"		append preInsn f.entry (* startProcessTimer(s_process); *)\n"
	"		prepend preInsn f.return (* stopProcessTimer(s_process); *) } } }\n"
	"metric s_leafs { name \"s_leafs\"; units calls; aggregateOperator sum;\n"
	"	style EventCounter; constraint procedure; constraint thread;\n"
	"	base is counter { foreach f in s_leaf append preInsn f.entry (* s_leafs++; *) } }\n"
	"metric s_depth { name \"s_depth\"; units calls; aggregateOperator sum;\n"
	"	style EventCounter; counter s_in; constraint thread;\n"
	"	constraint ofFunction /Code/*/* is replace counter {\n"
	"		append preInsn $constraint[0].entry (* s_in++; s_depth += s_in; *)\n"
	"		prepend preInsn $constraint[0].return (* s_in--; *) }\n"
	"	base is counter { foreach f in s_leaf append preInsn f.entry (* s_depth++; *) } }\n"
	"metric s_called { name \"s_called\"; units calls; aggregateOperator sum;\n"
	"	style EventCounter; constraint thread;\n"
	"	constraint ofFunction /Code/*/* is replace counter {\n"
	"		append preInsn $constraint[0].entry (* s_called += st_computed($arg[0] & 7); *) }\n"
	"	base is counter { foreach f in s_leaf append preInsn f.entry\n"
	"		(* s_called += st_computed($arg[0] & 7); *) } }\n";

static struct scene playing; /* where teardown() finds it */

/* ------------------------------------------------------------- operations */

static void load_metrics(struct session *s)
{
	struct dinst_error e = {0};

	if (session_load_mdl(s, "steps.mdl", mdl, strlen(mdl), &e) < 0)
		fail_msg("%s", e.text);
}

static int insert(struct scene *c, const struct measured *m, struct insert_result *result,
		  struct dinst_error *e)
{
	char focus[64], thread[32];
	const char *const words[] = {focus, thread};
	const struct insert_options options = {0};

	snprintf(focus, sizeof(focus), "/Code/step-state/%s", functions[m->function]);
	snprintf(thread, sizeof(thread), "/Process/%d", m->only >= 0 ? (int)c->p[m->only].tid : 0);
	return request_insert(c->s, metrics[m->metric].name, words, m->only >= 0 ? 2 : 1, &options,
			      result, e);
}

static struct measured draw_measured(struct scene *c)
{
	struct measured m = {
		.metric = draw(c, METRICS),
		.function = draw(c, 3) ? c->favourites[draw(c, FAVOURITES)] : draw(c, FOCI),
		.only = draw(c, 5) ? -1 : (int)draw(c, WORKERS),
	};

	if (m.only >= 0 && c->p[m.only].ended)
		m.only = -1;
	return m;
}

static bool is_answer(int status)
{
	return status >= 0 || status == DINST_REFUSED || status == DINST_BUSY;
}

static void do_insert(struct scene *c)
{
	struct insert_result result = {0};
	struct dinst_error e = {0};
	struct measured *free_one = NULL, m = draw_measured(c);
	int status;

	for (unsigned n = 0; n < INSTANCES && !free_one; n++)
		free_one = c->measured[n].id ? NULL : &c->measured[n];
	if (!free_one)
		return;
	note(c, "insert");
	fprintf(c->log, " %s %s %d", metrics[m.metric].name, functions[m.function], m.only);
	freeze_all(c);
	m.since_ns = now_ns();
	status = insert(c, &m, &result, &e);
	note_end(c, status, &e);
	if (!is_answer(status))
		fail_msg("%s of %s: %s", metrics[m.metric].name, functions[m.function], e.text);
	if (status < 0)
		return;
	m.id = result.instances[0]->id;
	/* It has said that what some thread was in is not known: that may be one off for good. */
	if (result.instances[0]->unwalked) {
		note(c, "not known of all\n");
		free(result.instances);
		session_remove(c->s, m.id);
		return;
	}
	m.jumped = true;
	*free_one = m;
	free(result.instances);
	note_places(c);
}

static void remove_one(struct scene *c, struct measured *m)
{
	struct flush_result result;
	struct dinst_error e = {0};
	int status = removal_remove(c->s, session_instance(c->s, m->id), &result, &e);

	if (status < 0 && status != DINST_BUSY)
		fail_msg("%s", e.text);
	m->id = 0;
}

static void do_remove(struct scene *c)
{
	const unsigned from = draw(c, INSTANCES), most = draw(c, 4) ? 1 : draw(c, 6);

	freeze_all(c);
	for (unsigned n = 0, done = 0; n < INSTANCES && done < most; n++) {
		struct measured *m = &c->measured[(from + n) % INSTANCES];

		if (!m->id)
			continue;
		note(c, "remove ");
		fprintf(c->log, "%s %s\n", metrics[m->metric].name, functions[m->function]);
		fflush(c->log);
		remove_one(c, m);
		done++;
	}
}

static void flush_now(struct scene *c)
{
	struct flush_result result = {0};
	struct dinst_error e = {0};
	int status = removal_flush(c->s, &result, &e);

	fprintf(c->log, " -> %zu freed, %zu left", result.freed, result.queued);
	note_end(c, status, &e);
	if (status < 0 && status != DINST_BUSY)
		fail_msg("%s", e.text);
}

static void do_flush(struct scene *c)
{
	note(c, "flush");
	freeze_all(c);
	flush_now(c);
}

/* What is left of much: all of it moves, with whoever is inside. */
static void do_compact(struct scene *c)
{
	freeze_all(c);
	if (!fillers_turn(&c->fillers, c->s, c->seed)) {
		note(c, "fill\n");
		return;
	}
	note(c, "thin, flush");
	for (const struct place *p = c->s->places; p; p = p->next)
		c->moved += heap_wants_compaction(p->heap);
	flush_now(c);
}

static void do_retry(struct scene *c)
{
	note(c, "retry\n");
	freeze_all(c);
	request_retry_pending(c->s);
	threads_poll(c->s);
}

static void do_signal(struct scene *c)
{
	const bool leap = c->leaps && draw(c, 2);
	const unsigned which = draw(c, WORKERS);

	note(c, leap ? "leap" : "signal");
	fprintf(c->log, " %u -> %s\n", which, say_to(c, "signal", which, leap));
}

static void do_throw(struct scene *c)
{
	note(c, "throw\n");
	say_to(c, "throw", draw(c, WORKERS), 2);
}

/* One ends, at once or much later. */
static void do_leave(struct scene *c)
{
	const unsigned which = draw(c, WORKERS);

	note(c, "leave");
	fprintf(c->log, " %u\n", which);
	c->p[which].may_end = true;
	say_to(c, "leave", which, 0);
}

static void do_birth(struct scene *c)
{
	note(c, "birth\n");
	say(c, "birth");
}

static void forget(struct scene *c)
{
	session_free(c->s);
	c->s = NULL;
	memset(c->measured, 0, sizeof(c->measured));
	fillers_forget(&c->fillers);
}

/* One operation of a mutator that will be killed, whatever it answers. */
static void be_about(struct scene *c)
{
	struct measured m = draw_measured(c);
	struct insert_result result = {0};
	struct flush_result flushed;
	struct dinst_error e = {0};
	struct instance *first = c->s->instances;

	switch (draw(c, 5)) {
	case 0:
		if (first)
			removal_remove(c->s, first, &flushed, &e);
		return;
	case 1:
		fillers_add(&c->fillers, c->s, FILLERS, c->seed);
		fillers_thin(&c->fillers, 30, c->seed);
		removal_flush(c->s, &flushed, &e);
		return;
	case 2:
		removal_flush(c->s, &flushed, &e);
		return;
	default:
		insert(c, &m, &result, &e);
		free(result.instances);
	}
}

/* What mutators have of arenas is not for their children, but this one is to be the mutator. */
static void share_arenas(const struct session *s)
{
	for (const struct place *p = s->places; p; p = p->next)
		if (madvise(p->arena->code_map, p->arena->code_size, MADV_DOFORK) ||
		    madvise(p->arena->data_map, p->arena->data_size, MADV_DOFORK))
			fail_msg("madvise: %s", strerror(errno));
}

/* In a copy of this process: the session with all that is there goes on in it, and dies at such a point. */
static void do_death(struct scene *c)
{
	enum { LIVES = 8, NEAR = 60, POINTS = 1500 };
	const unsigned long countdown = 1 + draw(c, draw(c, 2) ? NEAR : POINTS);
	int status = -1;
	pid_t child;

	/* Halves of a private arena that came just then stay (docs/safety.md). */
	if (c->private && !c->s->places)
		return;
	note(c, "death");
	freeze_all(c);
	share_arenas(c->s);
	fflush(NULL);
	child = fork();
	if (!child) {
		fault_countdown = countdown;
		for (unsigned i = 0; i < LIVES; i++)
			be_about(c);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		fail_msg("a mutator cannot be started: %s", strerror(errno));
	fprintf(c->log, " at %lu (%s)\n", countdown, status ? "before its end" : "after");
	fflush(c->log);
	if (status && (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL))
		fail_msg("a mutator has failed (status %x)", (unsigned)status);
	forget(c);
}

/* The next one comes, for so long; what cannot be had yet is left for later. */
static bool come_after(struct scene *c, unsigned milliseconds)
{
	struct dinst_error e = {0};
	struct leftovers left = {0};
	char text[1024];
	struct target *t;
	int status;

	assert_int_equal(target_open(c->h->pid, &t, &e), 0);
	status = leftovers_clean(t, milliseconds, &left, &e);
	if (status < 0 && status != DINST_BUSY)
		fail_msg("cleaning: %s", e.text);
	target_close(t);
	if (status < 0 || left.arenas_left)
		return false;
	if (harness_differences(c->h->before, HARNESS_TEXT | HARNESS_MAPS, text, sizeof(text)))
		fail_msg("left behind: %s", text);
	c->s = session_begin(c->h);
	c->s->private_arenas = c->private;
	load_metrics(c->s);
	note_places(c);
	return true;
}

static void do_repair(struct scene *c)
{
	note(c, "repair");
	freeze_all(c);
	fprintf(c->log, " -> %s\n", come_after(c, LEFT_MS) ? "session" : "left");
	fflush(c->log);
}

static const struct {
	void (*run)(struct scene *c);
	unsigned weight;
} operations[OPERATIONS] = {
	{do_insert, 8}, {do_remove, 5}, {do_flush, 2}, {do_compact, 3},
	{do_retry, 1},	{do_signal, 3}, {do_throw, 1}, {do_leave, 1},
	{do_birth, 1},	{do_death, 1},	{do_flush, 1},
};

static void operate(struct scene *c)
{
	unsigned at = draw(c, c->weight), which = 0;

	while (at >= c->weights[which])
		at -= c->weights[which++];
	if (c->s || (which > 4 && which < 9))
		operations[which].run(c);
	else if (!draw(c, 3))
		do_repair(c);
}

/* Each round has one of them often and others never, and few functions most often. */
static void choose(struct scene *c)
{
	enum { ALWAYS = 3, OFTEN = 5 };
	const unsigned theme = ALWAYS + draw(c, OPERATIONS - ALWAYS);

	c->weight = 0;
	for (unsigned i = 0; i < OPERATIONS; i++) {
		c->weights[i] = operations[i].weight;
		if (i == theme)
			c->weights[i] *= OFTEN;
		else if (i >= ALWAYS)
			c->weights[i] *= draw(c, 3) != 0;
		c->weight += c->weights[i];
	}
	for (unsigned i = 0; i < FAVOURITES; i++)
		c->favourites[i] = draw(c, FOCI);
}

/* ------------------------------------------------------------- one round */

static void begin(struct scene *c, unsigned long seed)
{
	pid_t tids[WORKERS];

	c->log = step_log_open(seed);
	memcpy(c->seed, &seed, sizeof(c->seed));
	/* To be drawn from as from any other. */
	for (unsigned i = 0; i < 10; i++)
		draw(c, 2);
	c->private = !draw(c, 5);
	c->alt = !draw(c, 4);
	c->leaps = draw(c, 2);
	/* Without them counters are others. */
	setenv("GLIBC_TUNABLES", draw(c, 2) ? "glibc.pthread.rseq=0" : "glibc.pthread.rseq=1", 1);
	harness_start(c->h, "step-state", c->alt ? "alt" : "same", NULL);
	assert_int_equal(harness_numbers(say(c, "where"), tids, WORKERS), WORKERS);
	for (unsigned i = 0; i < WORKERS; i++)
		c->p[i] = (struct stepper){.pid = c->h->pid, .tid = tids[i]};
	c->s = session_begin(c->h);
	c->s->private_arenas = c->private;
	load_metrics(c->s);
}

/* Those that have ended, or are to, are others from now on. */
static void renew(struct scene *c)
{
	for (unsigned i = 0; i < WORKERS; i++) {
		struct stepper *p = &c->p[i];

		if (!p->may_end)
			continue;
		*p = (struct stepper){.pid = c->h->pid};
		assert_int_equal(harness_numbers(say_to(c, "renew", i, 0), &p->tid, 1), 1);
		c->renewed = true;
		for (unsigned n = 0; n < INSTANCES; n++)
			c->measured[n].strangers |= c->measured[n].only == (int)i;
	}
}

static void settle(struct scene *c)
{
	release_all(c);
	assert_string_equal(say(c, "wait"), "done");
	renew(c);
	if (!c->s && !come_after(c, CLEAN_MS))
		fail_msg("a mutator's things are left");
}

static void end(struct scene *c)
{
	settle(c);
	check_values(c);
	for (unsigned n = 0; n < INSTANCES; n++)
		if (c->measured[n].id)
			remove_one(c, &c->measured[n]);
	fillers_thin(&c->fillers, 0, c->seed);
	session_flush_all(c->s);
	check_nothing_left(c);
	session_end(c->s);
	c->s = NULL;
	for (unsigned i = 0; i < WORKERS; i++)
		say_to(c, "plain", i, 1);
	assert_string_equal(say(c, "wait"), "done");
	harness_verify_what(c->h, HARNESS_ALL & ~(unsigned)(c->renewed ? HARNESS_THREADS : 0));
	harness_end(c->h, 0);
	step_log_close(c->log);
}

static void play(struct harness *h, unsigned long seed, struct scene *total)
{
	struct scene *c = &playing;
	unsigned count;

	*c = (struct scene){.h = h};
	begin(c, seed);
	choose(c);
	count = 10 + draw(c, 50);
	for (unsigned i = 0; i < count; i++) {
		hold_all(c);
		for (unsigned n = 0; n < WORKERS; n++)
			if (draw(c, 4) && !c->p[n].may_end)
				say_to(c, "start", n, 2);
		if (!draw(c, 20)) {
			/* All ends, and begins anew. */
			release_all(c);
			assert_string_equal(say(c, "wait"), "done");
			renew(c);
			continue;
		}
		for (unsigned n = 0; n < WORKERS; n++)
			if (draw(c, 2))
				wander(c, &c->p[n]);
		operate(c);
		check_bounds(c);
	}
	end(c);
	total->moved += c->moved;
	for (unsigned i = 0; i < WORKERS; i++)
		total->p[0].steps += c->p[i].steps;
}

/* ------------------------------------------------------------------ tests */

/* What a plain round is worth to each, of all threads, and of one. */
static void learn_reference(struct harness *h)
{
	struct scene *c = &playing;
	struct dinst_error e = {0};

	*c = (struct scene){.h = h};
	begin(c, 0);
	for (unsigned metric = 0; metric < METRICS; metric++) {
		unsigned ids[FOCI] = {0};

		for (unsigned k = 0; k < FOCI; k++) {
			const struct measured m = {.metric = metric, .function = k, .only = -1};
			struct insert_result result = {0};

			dinst_error_clear(&e);
			reference[metric][k] = -1;
			if (insert(c, &m, &result, &e) < 0)
				continue;
			ids[k] = result.instances[0]->id;
			free(result.instances);
		}
		for (unsigned i = 0; i < WORKERS; i++)
			say_to(c, "plain", i, 1);
		assert_string_equal(say(c, "wait"), "done");
		for (unsigned k = 0; k < FOCI; k++)
			if (ids[k]) {
				reference[metric][k] = (int64_t)session_value(c->s, ids[k]);
				session_remove(c->s, ids[k]);
			}
		session_flush_all(c->s);
	}
	end(c);
}

/*
 * fear D7, E3, E4: three threads stand before any instruction while metrics with timers, flags and values
 * of their own go in and come out, in hundreds of rounds: counts exact, no timer goes on, no flag stays,
 * nothing stands in a record that is not so
 */
/* fear J7, C1: the same while the heap is in fragments and all trampolines move, with the threads in them */
/* fear C2, E1: the same while handlers run what they have interrupted, jump out of it, and something throws */
/* fear A1, D7: the same while threads are born and end, before any instruction */
/* fear J2: the same while mutators die in the middle of that, with all they have in the target, and others come */
static void test_every_step_with_state(void **state)
{
	const unsigned long seed = harness_setting("STEPS_SEED", 1);
	const unsigned long rounds = harness_setting("STEPS_ROUNDS", 100000);
	const uint64_t ms = harness_setting("STEPS_MS", getenv("DINST_SHORT") ? 3000 : 10000);
	const uint64_t until = now_ns() + ms * 1000000;
	struct scene total = {0};
	unsigned long round = 0;

	harness_limit(HARNESS_SECONDS + (unsigned)(ms / 1000));
	learn_reference(*state);
	for (; round < rounds && (!round || now_ns() < until); round++)
		play(*state, seed + round, &total);
	print_message("%lu rounds, %lu instructions, %u compactions\n", round, total.p[0].steps,
		      total.moved);
}

static int teardown(void **state)
{
	step_log_tell(playing.log);
	return teardown_workers(&playing, state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_every_step_with_state, step_setup, teardown),
	};

	return cmocka_run_group_tests_name("live/every_step_state", tests, NULL, NULL);
}
