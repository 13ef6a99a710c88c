/* SPDX-License-Identifier: MIT */
/*
 * catch_up.c - activations that were there before a request.
 *
 * In the stop in which a request goes in: whose frames are on the stacks of the
 * threads, by unwind tables, and what the request would have done at their
 * entries. A thread whose stack cannot be walked to its start is left as it is:
 * its exits find no entry, and change nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/body.h"
#include "mutator/catch_up.h"

enum { ACTIVATIONS_MAX = 4096 }; /* of one thread; its record has room for fewer */

struct catching {
	struct session *session;
	struct stop *stop;
	const struct threads_function **sorted; /* by start */
	size_t function_count;
	const struct threads_late *late;
	size_t late_count;
	bool by_frames; /* something may be alive that no record has, or it depends on calls */
	uint8_t *known; /* by number: paired before, and among the functions */
	struct stack_range *ranges;
	size_t range_count;
	struct snapshot *shot;
	struct stack_walk *walk;
	struct tables tables;
	struct late_past *past;

	/* Of the thread that is looked at. */
	struct activation *found;
	size_t count;
	long open;	   /* number of the one whose stack pointer the next frame tells; -1 */
	taddr_t outermost; /* the last frame's stack pointer; 0: it was not walked */
	bool in_use;
	bool seen;   /* all that is on its own stack: what was not seen there has ended */
	bool unsure; /* of an activation nobody can tell whether its exit will be seen */
};

/* ------------------------------------------------------------- functions */

static int by_start(const void *a, const void *b)
{
	const struct threads_function *x = *(const struct threads_function *const *)a;
	const struct threads_function *y = *(const struct threads_function *const *)b;

	return x->start < y->start ? -1 : x->start > y->start;
}

static int by_lo(const void *a, const void *b)
{
	const struct stack_range *x = a, *y = b;

	return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static const struct threads_function *function_at(const struct catching *c, taddr_t pc)
{
	size_t lo = 0, hi = c->function_count;

	while (lo < hi) {
		size_t middle = (lo + hi) / 2;

		if (c->sorted[middle]->start <= pc)
			lo = middle + 1;
		else
			hi = middle;
	}
	return lo && pc < c->sorted[lo - 1]->end ? c->sorted[lo - 1] : NULL;
}

/* ------------------------------------------------------- where a thread is */

/*
 * True if the frame is one of an activation whose entry was not seen and whose
 * exit will be. At its first instruction it has not entered, unless it stands in
 * code that leads past the entry.
 */
static bool is_alive(struct catching *c, const struct stack_frame *frame,
		     const struct threads_function *f)
{
	const struct site *site;

	if (frame->returns)
		return true;
	if (!frame->is_inside)
		return frame->home >= f->body;
	site = late_site_of(c->session, frame->pc);
	if (!site)
		return false;
	if (late_is_at_switch(c->session, site, frame->pc))
		return frame->home >= f->body;
	if (site->body && body_contains(site->body, frame->pc))
		return frame->home >= f->body;
	c->unsure |= late_leaves_perhaps(site, f->id, frame->home);
	return !late_leaves_unseen(site, f->id, frame->home, UINT64_MAX);
}

/* The site whose code as it was before the frame is in; NULL: from there on all that is new runs. */
static const struct site *old_site(const struct catching *c, const struct stack_frame *frame)
{
	const struct site *site;

	if (!frame->is_inside)
		return late_passed(c->session, frame->home);
	site = late_site_of(c->session, frame->pc);
	return !site || late_is_at_switch(c->session, site, frame->pc) ||
			       (site->body && body_contains(site->body, frame->pc))
		       ? NULL
		       : site;
}

/* The first of function `id`. */
static size_t first_late(const struct catching *c, uint32_t id)
{
	size_t lo = 0, hi = c->late_count;

	while (lo < hi) {
		const size_t middle = (lo + hi) / 2;

		if (c->late[middle].id < id)
			lo = middle + 1;
		else
			hi = middle;
	}
	return lo;
}

static taddr_t call_of(const struct catching *c, const struct stack_frame *frame, uint32_t id)
{
	const size_t first = first_late(c, id);

	return frame->returns ? frame->pc
			      : late_call_of(c->session, c->late + first, c->late_count - first, id,
					     old_site(c, frame), frame->home);
}

/* Frames come innermost first; where the caller's stack is says where the callee's began. */
static bool look_at_frame(void *arg, const struct stack_frame *there)
{
	struct catching *c = arg;
	struct stack_frame own = *there;
	const struct stack_frame *frame = &own;
	const struct threads_function *f;

	own.home = late_home(c->session, there);
	f = function_at(c, frame->returns ? frame->home - 1 : frame->home);
	if (c->open >= 0)
		c->found[c->open].sp = frame->sp - arch_call_pushes;
	c->open = -1;
	c->outermost = frame->sp;
	c->in_use |= frame->is_inside;
	if (!f || !is_alive(c, frame, f))
		return true;
	if (c->count == ACTIVATIONS_MAX)
		return false;
	c->open = (long)c->count;
	c->found[c->count++] = (struct activation){
		.call = call_of(c, frame, f->id),
		.id = f->id,
		.fresh = f->fresh,
		.entering = frame->is_inside && !f->fresh && frame->home < f->body,
	};
	return true;
}

/* -------------------------------------------------------------- one thread */

static int by_sp(const void *a, const void *b)
{
	const struct activation *x = a, *y = b;

	return x->sp > y->sp ? -1 : x->sp < y->sp;
}

static void turn_round(struct activation *a, size_t count)
{
	for (size_t i = 0; i < count / 2; i++) {
		const struct activation kept = a[i];

		a[i] = a[count - 1 - i];
		a[count - 1 - i] = kept;
	}
}

static bool has(const struct catching *c, uint64_t tag)
{
	for (size_t i = 0; i < c->count; i++)
		if (pair_tag(c->found[i].sp, c->found[i].id) == tag)
			return true;
	return false;
}

static void add_known(struct catching *c, const struct pair_entry *entry)
{
	const uint32_t id = entry->tag & PAIR_ID_MASK;

	if (!entry->tag || !c->known[id] || c->count == ACTIVATIONS_MAX || has(c, entry->tag))
		return;
	c->found[c->count++] = (struct activation){.sp = entry->tag >> PAIR_ID_BITS, .id = id};
}

/*
 * What the record has of functions that were paired before. What is below the
 * thread's stack pointer on its own stack has ended, and where all that is there
 * was seen, what was not.
 */
static void add_recorded(struct catching *c, taddr_t sp)
{
	const struct pair_record *record = c->tables.record;
	const uint64_t here = sp << PAIR_ID_BITS;
	const bool at_home = here - record->lo < record->size;
	const size_t walked = c->count;
	size_t elsewhere;

	for (size_t i = 0; !c->seen && i < record->depth / sizeof(struct pair_entry); i++)
		if (!at_home || record->home[i].tag >= here)
			add_known(c, &record->home[i]);
	/* What a coroutine's stack has has begun further in. */
	turn_round(c->found, walked);
	turn_round(c->found + walked, c->count - walked);
	turn_round(c->found, c->count);
	elsewhere = c->count;
	for (size_t i = 0; i < PAIR_OTHER; i++)
		add_known(c, &record->other[i]);
	qsort(c->found + elsewhere, c->count - elsewhere, sizeof(*c->found), by_sp);
}

/*
 * True if a program was run. `interrupted`: code of ours is, which may be about to do what the record says that
 * it did, or the other way round: then words are taken as they are.
 */
static bool run_late(const struct catching *c, const struct late_record *r, bool interrupted)
{
	struct late_past *past =
		c->late_count && !interrupted && late_past_begin(c->past, r) ? c->past : NULL;
	bool ran = false;

	for (size_t i = 0; i < c->count; i++) {
		const struct activation *a = &c->found[i];

		for (size_t n = first_late(c, a->id);
		     (a->entry || a->entering) && n < c->late_count && c->late[n].id == a->id;
		     n++) {
			const struct threads_late *late = &c->late[n];

			if (late->call && late->call != a->call)
				continue;
			if (past)
				late_past_seek(past, r, a);
			ran |= late_run(r, past, a, late->program);
		}
		ran |= a->entry && a->fresh;
	}
	return ran;
}

/*
 * What records have can be taken from there, unless a handler goes back to code of ours as it was: what was new
 * there then does not run.
 */
static bool is_to_be_walked(const struct catching *c, const struct stop_thread *t)
{
	return c->walk && (c->by_frames || snapshot_handles(c->shot, t->tid)) &&
	       snapshot_touches(c->shot, t->tid, c->ranges, c->range_count);
}

/* True if its stack was walked to its start, or need not be. */
static bool walk_thread(struct catching *c, const struct stop_thread *t)
{
	c->count = 0;
	c->open = -1;
	c->outermost = 0;
	c->in_use = c->unsure = false;
	c->seen = c->by_frames;
	if (!is_to_be_walked(c, t))
		return true;
	c->seen = stack_walk_thread(c->walk, t->tid, look_at_frame, c);
	if (!c->seen)
		c->count = 0;
	else if (c->open >= 0)
		c->count--; /* nobody called the outermost frame */
	return c->seen;
}

/*
 * The innermost activation of function `id` is as good as left. `at_exit`: at the instruction that leaves, where
 * the stack pointer `sp` says which one it is: the record may not have it any more.
 */
static void take_out(struct catching *c, uint32_t id, taddr_t sp, bool at_exit)
{
	size_t at = c->count;

	while (at && c->found[at - 1].id != id)
		at--;
	if (!at || (at_exit && pair_tag(c->found[at - 1].sp, id) != pair_tag(sp, id)))
		return;
	memmove(&c->found[at - 1], &c->found[at], (c->count - at) * sizeof(*c->found));
	c->count--;
}

/*
 * Where the stack was not walked: the thread itself may be in old code of a function that was paired before.
 * If it just leaves it there nothing new runs for that; if it just enters it, no record has it yet.
 */
static void add_own(struct catching *c, const struct stop_thread *t)
{
	const taddr_t pc = arch_pc(&t->regs);
	const struct threads_function *f;
	const struct site *site;
	taddr_t home, sp;
	size_t pushed = 0;

	if (!site_home(c->session, pc, &home, &pushed))
		return;
	f = function_at(c, home);
	site = f && !f->fresh ? late_site_of(c->session, pc) : NULL;
	if (!site || late_is_at_switch(c->session, site, pc) ||
	    (site->body && body_contains(site->body, pc)))
		return;
	sp = arch_sp(&t->regs) + pushed;
	c->unsure |= late_leaves_perhaps(site, f->id, home);
	if (late_leaves_unseen(site, f->id, home, UINT64_MAX))
		take_out(c, f->id, sp, late_leaves_unseen(site, f->id, home, home));
	else if (home < f->body && !has(c, pair_tag(sp, f->id)) && c->count < ACTIVATIONS_MAX)
		c->found[c->count++] = (struct activation){.sp = sp, .id = f->id, .entering = true};
}

static void catch_up_thread(struct catching *c, const struct stop_thread *t, size_t *threads,
			    size_t *unwalked)
{
	const bool interrupted = place_at(c->session, arch_pc(&t->regs)) != NULL;
	struct late_record r = {.stop = c->stop, .session = c->session, .tables = &c->tables};
	bool walked = walk_thread(c, t), has_record;

	/* The walk has told them the other way round. A signal's stack may lie anywhere. */
	turn_round(c->found, c->count);
	r.in_use = !walked || c->in_use || interrupted;
	/* Who has no record may be just making one, in the code that it comes in by. */
	has_record = late_record_find(&r, t, c->count != 0);
	/* Where a coroutine begins, its thread's own stack has not been looked at. */
	if (c->outermost && late_record_is_elsewhere(&r, c->outermost))
		walked = c->seen = false;
	if (!has_record) {
		*unwalked += !walked || c->count || c->unsure ||
			     threads_is_in_routine(c->session, arch_pc(&t->regs));
		return;
	}
	add_recorded(c, arch_sp(&t->regs));
	if (!c->seen)
		add_own(c, t);
	*unwalked += !walked || c->unsure || threads_is_in_routine(c->session, arch_pc(&t->regs));
	if (!c->count)
		return;
	if (late_record_enter(&r, c->found, c->count) && run_late(c, &r, interrupted))
		++*threads;
}

/* -------------------------------------------------------------------- all */

static size_t count_places(const struct session *s)
{
	size_t count = 0;

	for (const struct place *p = s->places; p; p = p->next)
		count++;
	return count;
}

/* Where a word on a stack says that the stack must be walked. */
static bool collect_ranges(struct catching *c)
{
	c->ranges = calloc(c->function_count + count_places(c->session) + 1, sizeof(*c->ranges));
	if (!c->ranges)
		return false;
	for (size_t i = 0; c->by_frames && i < c->function_count; i++)
		c->ranges[c->range_count++] =
			(struct stack_range){/* A call may be the last instruction. */
					     .lo = c->sorted[i]->start,
					     .hi = c->sorted[i]->end + 1};
	for (const struct place *p = c->session->places; p; p = p->next)
		c->ranges[c->range_count++] = (struct stack_range){
			.lo = p->arena->code, .hi = p->arena->code + p->arena->code_size};
	qsort(c->ranges, c->range_count, sizeof(*c->ranges), by_lo);
	/* They must not overlap. */
	for (size_t i = 1; i < c->range_count; i++)
		if (c->ranges[i - 1].hi > c->ranges[i].lo)
			c->ranges[i - 1].hi = c->ranges[i].lo;
	return true;
}

static bool is_call(const struct catching *c)
{
	for (size_t i = 0; i < c->late_count; i++)
		if (c->late[i].call)
			return true;
	return false;
}

static bool is_ordinary(const struct stop_thread *t)
{
	return !t->kernel_worker && !t->foreign && arch_is_native(&t->regs);
}

static int prepare(struct catching *c, const struct threads_function *functions,
		   struct dinst_error *e)
{
	int status = 0;

	c->sorted = calloc(c->function_count + 1, sizeof(const struct threads_function *));
	c->known = calloc(PAIR_ID_MASK + 1, 1);
	c->found = calloc(ACTIVATIONS_MAX, sizeof(*c->found));
	c->past = late_past_new();
	c->by_frames = is_call(c);
	if (!c->sorted || !c->known || !c->found || !c->past)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	for (size_t i = 0; i < c->function_count; i++) {
		c->sorted[i] = &functions[i];
		c->known[functions[i].id & PAIR_ID_MASK] |= !functions[i].fresh;
		c->by_frames |= functions[i].fresh;
	}
	qsort(c->sorted, c->function_count, sizeof(const struct threads_function *), by_start);
	if (!threads_tables_read(&c->tables, c->session->threads, stop_target(c->stop)))
		return dinst_fail(e, DINST_FAILED, "the per-thread state of %d cannot be read",
				  (int)target_pid(stop_target(c->stop)));
	if (!c->by_frames && !c->late_count)
		return 0;
	if (!collect_ranges(c))
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	status = snapshot_take_threads(c->stop, &c->shot, e);
	if (status >= 0)
		status = stack_walk_begin(c->shot, site_home, c->session, &c->walk, e);
	return status;
}

static void release(struct catching *c)
{
	stack_walk_end(c->walk);
	snapshot_free(c->shot);
	threads_tables_release(&c->tables);
	late_past_free(c->past);
	free(c->ranges);
	free(c->found);
	free(c->known);
	free(c->sorted);
}

int threads_catch_up(struct session *s, struct stop *stop, const struct threads_function *functions,
		     size_t function_count, const struct threads_late *late, size_t late_count,
		     size_t *threads, size_t *unwalked, struct dinst_error *e)
{
	struct catching c = {
		.session = s,
		.stop = stop,
		.function_count = function_count,
		.late = late,
		.late_count = late_count,
	};
	int status;

	*threads = *unwalked = 0;
	if (!function_count || !s->threads || !s->threads->area)
		return 0;
	status = prepare(&c, functions, e);
	for (size_t i = 0; status >= 0 && i < stop_thread_count(stop); i++) {
		const struct stop_thread *t = stop_thread(stop, i);

		if (is_ordinary(t))
			catch_up_thread(&c, t, threads, unwalked);
	}
	release(&c);
	return status;
}

/* ----------------------------------------------------------- bringing home */

static int bring_home(struct catching *c, const struct stop_thread *t, size_t *left,
		      struct dinst_error *e)
{
	struct late_record r = {.stop = c->stop, .session = c->session, .tables = &c->tables};
	int status = 0;

	if (!late_record_find(&r, t, false) || !late_record_has_strayed(&r))
		return 0;
	/* Mostly there is nobody: then no stack is copied. */
	if (!c->shot)
		status = snapshot_take_threads(c->stop, &c->shot, e);
	if (status >= 0 && !c->walk)
		status = stack_walk_begin(c->shot, site_home, c->session, &c->walk, e);
	if (status < 0)
		return status;
	c->in_use = place_at(c->session, arch_pc(&t->regs));
	if (stack_walk_thread(c->walk, t->tid, look_at_frame, c) && !c->in_use)
		late_record_bring_home(&r);
	else
		++*left;
	return 0;
}

int threads_bring_home_in(struct session *s, struct stop *stop, size_t *left, struct dinst_error *e)
{
	struct catching c = {.session = s, .stop = stop, .open = -1};
	int status = 0;

	*left = 0;
	if (!s->threads || !s->threads->area || s->threads->place->unmapped)
		return 0;
	if (!threads_tables_read(&c.tables, s->threads, stop_target(stop))) {
		/* A child may have none. */
		*left = stop_target(stop) == s->target;
		return 0;
	}
	for (size_t i = 0; status >= 0 && i < stop_thread_count(stop); i++) {
		const struct stop_thread *t = stop_thread(stop, i);

		if (is_ordinary(t))
			status = bring_home(&c, t, left, e);
	}
	release(&c);
	return status;
}
