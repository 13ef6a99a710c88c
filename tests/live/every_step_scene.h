/* SPDX-License-Identifier: MIT */
/*
 * every_step_scene.h - what every_step.c plays with: the target and its functions, the thread and
 * where it is to stand, what is inserted, and the list of all that was done.
 */
#ifndef DINST_TESTS_LIVE_EVERY_STEP_SCENE_H
#define DINST_TESTS_LIVE_EVERY_STEP_SCENE_H

#include <stdio.h>

#include "tests/live/every_step.h"
#include "tests/live/every_step_fillers.h"
#include "tests/live/harness_session.h"

#define FUNCTIONS_ONLY
#include "tests/live/targets/every-step.inc"

#define INDEX(name, result) INDEX_##name,
#define NAME(name, result)  #name,

enum { FUNCTIONS(INDEX) CALLED, ALL = CALLED + 4, INSTANCES = 24, TEXT = 1024 };

static const char *const names[ALL] = {FUNCTIONS(NAME) MORE(NAME)};

/* The functions of the program, or of the library. */
struct part {
	const char *prefix;
	taddr_t start[CALLED + 1], end; /* of those that are called */
	uint8_t text[TEXT];		/* as the file has it */
};

enum { OWN, LIBRARY, PARTS };
enum { OPERATIONS = 10, FAVOURITES = 3 };

struct inserted {
	unsigned id, part, function; /* id 0: none */
	bool gone;		     /* its library is another one by now */
	enum point_kind kind;
	char focus[32];
};

struct scene {
	struct harness *h;
	struct session *s; /* NULL: nobody is there */
	struct stepper p;
	struct part parts[PARTS];
	bool open, child, private;
	bool much;     /* is about the library */
	unsigned last; /* the function that the thread was in */
	unsigned short seed[3];
	unsigned weights[OPERATIONS], weight, favourites[FAVOURITES];
	struct inserted inserted[INSTANCES];
	struct fillers fillers;
	FILE *log;
};

static inline unsigned draw(struct scene *c, unsigned below)
{
	return (unsigned)nrand48(c->seed) % below;
}

static inline const char *say(struct scene *c, const char *command)
{
	char text[64];

	snprintf(text, sizeof(text), "%s\n", command);
	harness_send(c->h, text);
	return harness_line(c->h, HARNESS_ANSWER_MS);
}

/* ------------------------------------------------------------- the thread */

static inline struct part *part_at(struct scene *c, taddr_t pc)
{
	for (unsigned i = 0; i < PARTS; i++)
		if (pc >= c->parts[i].start[0] && pc < c->parts[i].end)
			return &c->parts[i];
	return NULL;
}

/* Of that part, the last one that begins before. */
static inline unsigned function_at(const struct part *part, taddr_t pc)
{
	unsigned found = 0;

	for (unsigned i = 0; i < CALLED; i++)
		if (part->start[i] <= pc && part->start[i] >= part->start[found])
			found = i;
	return found;
}

/* Where a thread is to stand. */
enum spot {
	ANYWHERE,
	TEXT_OR_OURS,
	OURS,	 /* in code of ours, or in front of bytes of ours */
	PATCHED, /* in front of bytes of ours */
	BEHIND,	 /* the same, where no function begins */
	HOLE,	 /* in front of a near jump that a short one leads to */
	SPOTS
};

/* A near jump is there, or (pc 0) anywhere; also of what was removed, and is not taken out yet. */
static inline bool is_hole(const struct session *s, taddr_t pc)
{
	for (size_t b = 0; b < s->site_buckets; b++)
		for (const struct site *site = s->site_hash[b]; site; site = site->next_hash)
			if (site->patch_count == 2 && (!pc || site->patches[0].address == pc))
				return true;
	for (const struct site *site = s->retired; site; site = site->next_queued)
		if (site->patch_count == 2 && (!pc || site->patches[0].address == pc))
			return true;
	return false;
}

static inline bool is_at(struct scene *c, enum spot spot)
{
	const taddr_t pc = c->p.regs.rip;
	const struct part *part = part_at(c, pc);

	if (!part)
		return spot == ANYWHERE || (spot <= OURS && c->s && place_at(c->s, pc));
	c->last = function_at(part, pc);
	if (spot <= TEXT_OR_OURS)
		return true;
	if (spot >= BEHIND && c->much && c->open && part != &c->parts[LIBRARY])
		return false;
	if (spot == HOLE && c->s)
		return is_hole(c->s, pc);
	if (spot == BEHIND && pc == part->start[c->last])
		return false;
	return step_byte(&c->p, pc) != part->text[pc - part->start[0]];
}

static inline bool is_anything_in(const struct scene *c)
{
	for (unsigned n = 0; n < INSTANCES; n++)
		if (c->inserted[n].id)
			return true;
	return !c->s || c->s->queue_length > 0;
}

/* Some instructions on, and then most often to where something of ours is, or may come. */
static inline void wander(struct scene *c, enum spot drawn)
{
	enum { FAR = 400, LOOK = 800 };
	const unsigned some = draw(c, 4) ? draw(c, 24) : draw(c, FAR);
	const enum spot spot = drawn >= OURS && !is_anything_in(c)	    ? TEXT_OR_OURS
			       : drawn == HOLE && c->s && !is_hole(c->s, 0) ? BEHIND
									    : drawn;
	unsigned skip = draw(c, 4) ? draw(c, 3) : draw(c, spot < PATCHED ? 40 : 10);

	for (unsigned i = 0; i < some; i++) {
		step_once(&c->p);
		is_at(c, TEXT_OR_OURS);
	}
	for (unsigned i = 0; i < LOOK && spot != ANYWHERE; i++) {
		if (is_at(c, spot) && !skip--)
			return;
		step_once(&c->p);
	}
}

static inline void note(struct scene *c, const char *what)
{
	const taddr_t pc = c->p.regs.rip;
	struct part *part = part_at(c, pc);

	if (part)
		fprintf(c->log, "%s%s+%d", part->prefix, names[function_at(part, pc)],
			(int)(pc - part->start[function_at(part, pc)]));
	else
		fprintf(c->log, "%llx%s", (unsigned long long)pc,
			c->s && place_at(c->s, pc) ? " (ours)" : "");
	fprintf(c->log, ": %s", what);
	fflush(c->log);
}

static inline void note_end(struct scene *c, int status, const struct dinst_error *e)
{
	fprintf(c->log, status < 0 ? " -> %s: %s\n" : "\n", dinst_code_name(e->code), e->text);
	fflush(c->log);
}

/* What the target has said of it. */
static inline void learn_part(struct scene *c, unsigned which, const char *line)
{
	struct part *part = &c->parts[which];
	char *rest = strchr(line, ' ');

	for (unsigned i = 0; i < CALLED; i++)
		part->start[i] = strtoull(rest, &rest, 16);
	part->end = part->start[INDEX_thin] + 5;
	assert_in_range(part->end - part->start[0], 1, TEXT);
	if (part->text[0])
		return;
	thread_peek(c->h->pid, part->start[0], part->text, part->end - part->start[0]);
}

static inline int insert(struct session *s, const char *focus, enum point_kind kind, bool each,
			 struct insert_result *result, struct dinst_error *e)
{
	/* Instances keep a pointer to their metric. */
	static struct raw_metric metrics[POINT_KINDS];

	metrics[kind] = (struct raw_metric){
		.name = point_kind_name(kind), .unit = "", .constraints = "/Code", .kind = kind};
	return request_insert_raw(s, &metrics[kind], &focus, 1, each, result, e);
}

#endif
