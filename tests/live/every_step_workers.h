/* SPDX-License-Identifier: MIT */
/*
 * every_step_workers.h - what every_step_state.c plays with: a target whose threads stand each before
 * another instruction, the metrics that are measured there, and the list of all that was done.
 */
#ifndef DINST_TESTS_LIVE_EVERY_STEP_WORKERS_H
#define DINST_TESTS_LIVE_EVERY_STEP_WORKERS_H

#include <stdio.h>
#include <time.h>

#include "tests/live/every_step.h"
#include "tests/live/every_step_fillers.h"
#include "tests/live/harness_session.h"

enum { WORKERS = 3, INSTANCES = 16, OPERATIONS = 11, OUR_PLACES = 8, FAVOURITES = 4 };

enum measure {
	EXACT,	/* counts: so many a round */
	RECORD, /* a distribution, of which the count is exact */
	LEVEL,	/* of what is running: nothing in the end */
	TIMER
};

static const struct {
	const char *name;
	enum measure measure;
	bool jumps; /* what a jump has left just then is not known of: docs/mdl.md, limits */
} metrics[] = {
	{"calls", EXACT, false},	  {"active", LEVEL, true},
	{"latency", RECORD, false},	  {"wall", TIMER, false},
	{"wall_inclusive", TIMER, false}, {"cpu", TIMER, false},
	{"cpu_inclusive", TIMER, false},  {"s_process", TIMER, false},
	{"s_leafs", EXACT, false},	  {"s_depth", EXACT, true},
	{"s_called", EXACT, false},
};

static const char *const functions[] = {
	"st_leaf",    "st_middle", "st_outer", "st_recurse", "st_tail",	      "st_jump",
	"st_jumping", "st_lander", "st_throw", "st_catch",   "st_burn",	      "st_handled",
	"st_round",   "own_wide",  "own_tiny", "own_caller", "own_recursing", "own_looped",
	"own_guest",  "own_woven", "st_*",     "own_*",
};

enum {
	METRICS = sizeof(metrics) / sizeof(metrics[0]),
	FOCI = sizeof(functions) / sizeof(functions[0])
};

struct measured {
	unsigned id, metric, function; /* id 0: none */
	int only;		       /* the worker that it is restricted to; -1: all */
	bool strangers;		       /* that one has ended */
	bool jumped;		       /* something may have just been left when it came */
	uint64_t since_ns;
	int64_t last; /* as read */
};

struct scene {
	struct harness *h;
	struct session *s; /* NULL: nobody is there */
	struct stepper p[WORKERS];
	struct fillers fillers;
	bool alt, private, frozen;
	bool leaps, renewed;
	unsigned short seed[3];
	unsigned weights[OPERATIONS], weight, favourites[FAVOURITES];
	struct measured measured[INSTANCES];
	struct {
		taddr_t lo, hi;
	} ours[OUR_PLACES]; /* arenas of the last session */
	unsigned moved;	    /* things that compaction wanted */
	FILE *log;
};

static inline unsigned draw(struct scene *c, unsigned below)
{
	return (unsigned)nrand48(c->seed) % below;
}

static inline const char *say(struct scene *c, const char *command)
{
	char text[96];

	snprintf(text, sizeof(text), "%s\n", command);
	harness_send(c->h, text);
	return harness_line(c->h, HARNESS_ANSWER_MS);
}

static inline const char *say_to(struct scene *c, const char *command, unsigned worker, long number)
{
	char text[64];

	snprintf(text, sizeof(text), "%s %u %ld", command, worker, number);
	return say(c, text);
}

/* ------------------------------------------------------------ the threads */

static inline void note_places(struct scene *c)
{
	unsigned n = 0;

	memset(c->ours, 0, sizeof(c->ours));
	for (const struct place *p = c->s->places; p && n < OUR_PLACES; p = p->next, n++) {
		c->ours[n].lo = p->arena->code;
		c->ours[n].hi = p->arena->code + p->arena->code_size;
	}
}

static inline bool is_ours(const struct scene *c, taddr_t pc)
{
	for (unsigned n = 0; n < OUR_PLACES; n++)
		if (pc >= c->ours[n].lo && pc < c->ours[n].hi)
			return true;
	return false;
}

static inline void step_checked(struct scene *c, struct stepper *p)
{
	const struct place *place;

	step_once(p);
	if (p->ended || !c->s || !is_ours(c, p->regs.rip))
		return;
	place = place_at(c->s, p->regs.rip);
	if (place && heap_is_poison(place->heap, p->regs.rip))
		fail_msg("thread %d has come to freed code at %llx", (int)p->tid, p->regs.rip);
}

static inline void hold_all(struct scene *c)
{
	for (unsigned i = 0; i < WORKERS; i++)
		if (!c->p[i].held && !c->p[i].ended) {
			thread_seize(c->p[i].tid);
			c->p[i].held = true;
		}
	if (c->frozen)
		thread_thaw(c->h->pid);
	c->frozen = false;
	for (unsigned i = 0; i < WORKERS; i++)
		if (!c->p[i].ended) {
			thread_get(c->p[i].tid, &c->p[i].regs);
			step_find_sequences(&c->p[i]);
		}
}

/* All stand there, with their whole process, and nobody holds them. */
static inline void freeze_all(struct scene *c)
{
	pid_t tids[WORKERS];
	size_t count = 0;

	if (c->frozen)
		return;
	for (unsigned i = 0; i < WORKERS; i++) {
		if (!c->p[i].ended && c->p[i].signal)
			step_checked(c, &c->p[i]);
		if (!c->p[i].ended)
			tids[count++] = c->p[i].tid;
		c->p[i].held = false;
	}
	if (count) {
		thread_freeze_all(c->h->pid, tids, count);
		c->frozen = true;
	}
}

static inline void release_all(struct scene *c)
{
	for (unsigned i = 0; i < WORKERS; i++) {
		struct stepper *p = &c->p[i];

		if (p->held && p->signal)
			step_checked(c, p);
		if (p->held && !p->ended)
			thread_let_go(p->tid);
		p->held = false;
	}
	if (c->frozen)
		thread_thaw(c->h->pid);
	c->frozen = false;
}

/* Some instructions on; then most often to where something of ours is, in any of its instructions. */
static inline void wander(struct scene *c, struct stepper *p)
{
	enum { FAR = 600, LOOK = 1500, WITHIN = 120 };
	const unsigned some = draw(c, 3) ? draw(c, 30) : draw(c, FAR);
	unsigned skip = draw(c, WITHIN);

	for (unsigned i = 0; i < some && !p->ended; i++)
		step_checked(c, p);
	if (!draw(c, 6))
		return;
	for (unsigned i = 0; i < LOOK && !p->ended; i++) {
		if (is_ours(c, p->regs.rip) && !skip--)
			return;
		step_checked(c, p);
	}
}

/* -------------------------------------------------------------- the list */

static inline void note(struct scene *c, const char *what)
{
	for (unsigned i = 0; i < WORKERS; i++)
		fprintf(c->log, "%llx%s ", c->p[i].ended ? 0ull : c->p[i].regs.rip,
			is_ours(c, c->p[i].regs.rip) ? "*" : "");
	fprintf(c->log, ": %s", what);
	fflush(c->log);
}

static inline void note_end(struct scene *c, int status, const struct dinst_error *e)
{
	if (status < 0)
		fprintf(c->log, " -> %s: %.100s", dinst_code_name(e->code), e->text);
	fprintf(c->log, "\n");
	fflush(c->log);
}

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* However far it has come. */
static inline int teardown_workers(struct scene *c, void **state)
{
	for (unsigned i = 0; i < WORKERS; i++)
		step_kill(&c->p[i]);
	return harness_teardown(state);
}

#endif
