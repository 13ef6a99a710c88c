/* SPDX-License-Identifier: MIT */
/*
 * removal.c - switching off at once, giving back when it is safe.
 *
 * Removing turns a switch by one store: nothing counts from then on, the
 * target does not notice. What was used goes to the queue. A flush restores
 * the windows of empty sites in the target and its family, lets go of the
 * descriptors of sequences, and copies registers and stacks, all in one stop;
 * after that the copies say what no thread can be in or come back to, and that
 * is freed. The rest waits for the next flush.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inject/remote.h"
#include "mutator/body.h"
#include "mutator/compact.h"
#include "mutator/removal.h"

enum {
	QUEUE_THRESHOLD = 512, /* items: beyond, a removal flushes */
};

/* ----------------------------------------------------------- the queue */

void removal_spend(struct session *s, struct body *body)
{
	body->next = s->spent;
	s->spent = body;
	body->site->spent++;
	s->queue_length++;
}

bool removal_spend_code(struct session *s, struct place *p, taddr_t code, size_t size,
			struct snippet_code **codes, size_t count)
{
	struct spent_code *c = malloc(sizeof(*c));

	if (!c)
		return false;
	*c = (struct spent_code){.place = p,
				 .code = code,
				 .size = size,
				 .codes = codes,
				 .count = count,
				 .next = s->spent_codes};
	s->spent_codes = c;
	s->queue_length++;
	return true;
}

const struct site *removal_spent_base(const struct session *s, taddr_t pc, taddr_t *base)
{
	for (const struct spent_code *c = s->spent_codes; c; c = c->next)
		if (c->site && pc - c->code < c->size) {
			*base = c->code;
			return c->site;
		}
	return NULL;
}

static void free_spent_code(struct spent_code *c)
{
	if (c->site)
		c->site->spent--;
	for (size_t n = 0; n < c->count; n++)
		snippet_code_unref(c->codes[n]);
	free(c->codes);
	free(c);
}

void removal_forget_spent(struct session *s)
{
	while (s->spent_codes) {
		struct spent_code *c = s->spent_codes;

		s->spent_codes = c->next;
		free_spent_code(c);
	}
}

void removal_retire(struct session *s, struct site *site)
{
	if (site->queued || (site->links && !site->gate))
		return;
	site->queued = true;
	site->next_queued = s->retired;
	s->retired = site;
	s->queue_length++;
}

static bool heap_above_mark(const struct session *s)
{
	for (const struct place *p = s->places; p; p = p->next) {
		struct heap_stats stats;

		heap_get_stats(p->heap, &stats);
		if (stats.above_mark)
			return true;
	}
	return false;
}

void removal_unlink_only(struct session *s, struct instance *i)
{
	while (i->links) {
		struct link *l = i->links;

		i->links = l->next_instance;
		i->link_count--;
		site_unlink(s, l);
	}
}

void removal_unlink(struct session *s, struct instance *i)
{
	removal_unlink_only(s, i);
	site_update_all(s);
}

void removal_release(struct session *s, struct instance *i)
{
	if (--i->references)
		return;
	removal_unlink(s, i);
	instance_drop(s, i);
}

/* Out of sight, but in use by others. */
static void hide(struct session *s, struct instance *i)
{
	instances_take_out(s, i);
	instances_unnumber(s, i);
	instances_push(&s->hidden, i);
}

int removal_switch_off(struct session *s, struct instance *i, struct dinst_error *e)
{
	(void)e;
	/* What is measured first; flags that only it tested go with it. */
	if (i->references > 1)
		hide(s, i);
	removal_release(s, i);
	return 0;
}

int removal_switch_off_all(struct session *s, struct instance *const *list, size_t count,
			   struct dinst_error *e)
{
	int status = 0;

	/* What others still use goes on. */
	for (size_t k = 0; k < count; k++)
		if (list[k]->references == 1)
			removal_unlink_only(s, list[k]);
	site_update_all(s);
	for (size_t k = 0; k < count && status >= 0; k++)
		status = removal_switch_off(s, list[k], e);
	return status;
}

void removal_settle(struct session *s, struct flush_result *result)
{
	struct dinst_error ignored = {0};

	*result = (struct flush_result){0};
	/*
	 * What cannot be freed now stays queued: not an error of the removal. Where nothing is queued a flush
	 * sends nothing either; where it failed, session_poll() tries again.
	 */
	if ((s->queue_length > QUEUE_THRESHOLD || heap_above_mark(s) || place_has_unsent(s)) &&
	    removal_flush(s, result, &ignored) >= 0)
		place_send(s, &result->stop_ns, &ignored);
	result->queued = s->queue_length;
}

int removal_remove(struct session *s, struct instance *i, struct flush_result *result,
		   struct dinst_error *e)
{
	int status = removal_switch_off(s, i, e);

	if (status >= 0)
		removal_settle(s, result);
	return status;
}

/* ----------------------------------------------- what can be given back */

static int by_lo(const void *a, const void *b)
{
	const struct stack_range *x = a, *y = b;

	return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static void add_range(struct stack_range *ranges, size_t *n, taddr_t at, size_t size)
{
	if (at && size)
		ranges[(*n)++] = (struct stack_range){.lo = at, .hi = at + size};
}

static void add_body(struct stack_range *ranges, size_t *n, const struct body *b)
{
	add_range(ranges, n, b->code, b->code_size);
	add_range(ranges, n, b->cold, b->cold_size);
}

/*
 * Code that waits on the queue, as sorted ranges: bodies, and everything of
 * restored sites. A gate is looked at as soon as its site is queued.
 */
static struct stack_range *queued_ranges(const struct session *s, size_t *count)
{
	struct stack_range *ranges = calloc(4 * s->queue_length + 1, sizeof(*ranges));
	size_t n = 0;

	if (!ranges)
		return NULL;
	for (const struct body *b = s->spent; b; b = b->next)
		add_body(ranges, &n, b);
	for (const struct spent_code *c = s->spent_codes; c; c = c->next)
		add_range(ranges, &n, c->code, c->size);
	for (const struct site *site = s->retired; site; site = site->next_queued) {
		add_range(ranges, &n, site->gate, ARCH_GATE_MAX);
		if (site->state != SITE_DRAINING)
			continue;
		add_range(ranges, &n, site->base, site->base_size);
		if (site->head)
			add_body(ranges, &n, site->head);
	}
	qsort(ranges, n, sizeof(*ranges), by_lo);
	*count = n;
	return ranges;
}

/* The cautious scan first; the walk only for what it hit. Leaves `hit` on what is in use. */
static void find_hits(const struct flush *f, struct stack_range *ranges, size_t count)
{
	size_t hits = 0, kept = 0;
	struct stack_range *doubtful;

	for (size_t i = 0; i < f->shot_count; i++)
		hits += snapshot_scan(f->shots[i], ranges, count);
	if (!hits || !count)
		return;
	doubtful = calloc(count, sizeof(*doubtful));
	if (!doubtful)
		return; /* everything that was hit waits */
	for (size_t i = 0; i < count; i++)
		if (ranges[i].hit)
			doubtful[kept++] =
				(struct stack_range){.lo = ranges[i].lo, .hi = ranges[i].hi};
	for (size_t i = 0; i < f->shot_count; i++)
		snapshot_walk(f->shots[i], site_home, f->session, doubtful, kept);
	kept = 0;
	for (size_t i = 0; i < count; i++)
		if (ranges[i].hit)
			ranges[i].hit = doubtful[kept++].hit;
	free(doubtful);
}

static bool range_hit(const struct stack_range *ranges, size_t count, taddr_t lo)
{
	struct stack_range key = {.lo = lo};
	const struct stack_range *r = bsearch(&key, ranges, count, sizeof(*ranges), by_lo);

	return !r || r->hit;
}

static bool body_hit(const struct stack_range *ranges, size_t count, const struct body *b)
{
	return !b->site->unreached && (range_hit(ranges, count, b->code) ||
				       (b->cold && range_hit(ranges, count, b->cold)));
}

/*
 * A thread inside of a site's head goes on to wherever the switch leads; one
 * in its gate to a body that may be old by now.
 */
static void mark_busy_sites(struct session *s, const struct stack_range *ranges, size_t count)
{
	for (struct site *site = s->retired; site; site = site->next_queued) {
		site->busy = site->gate && range_hit(ranges, count, site->gate);
		if (site->state == SITE_DRAINING && !site->unreached &&
		    (range_hit(ranges, count, site->base) ||
		     (site->head && body_hit(ranges, count, site->head))))
			site->busy = true;
	}
}

/* Frees bodies that no thread is in. Returns how many. */
static size_t give_back_bodies(struct session *s, const struct stack_range *ranges, size_t count)
{
	struct body **p = &s->spent, *b;
	size_t freed = 0;

	while ((b = *p)) {
		/* Whoever waits in a gate goes on in the body that there was when that was made. */
		if (b->site->gated || (b->site->queued && b->site->busy) ||
		    body_hit(ranges, count, b)) {
			p = &b->next;
			continue;
		}
		*p = b->next;
		b->site->spent--;
		body_free(b);
		freed++;
	}
	s->queue_length -= freed;
	return freed;
}

/* The same with routines. */
static size_t give_back_codes(struct session *s, const struct stack_range *ranges, size_t count)
{
	struct spent_code **p = &s->spent_codes, *c;
	size_t freed = 0;

	while ((c = *p)) {
		if (range_hit(ranges, count, c->code)) {
			p = &c->next;
			continue;
		}
		*p = c->next;
		heap_free_code(c->place->heap, c->code);
		free_spent_code(c);
		freed++;
	}
	s->queue_length -= freed;
	return freed;
}

/*
 * The same with sites, and takes those off the queue that are used again. One whose gate is yet to be
 * opened is still in the hands of who opens it, also where no thread has come.
 */
static size_t give_back_sites(struct session *s)
{
	struct site **p = &s->retired, *site;
	size_t done = 0;

	while ((site = *p)) {
		/* A thread in its gate may go on to a body that is spent by now. */
		bool used = site->links && !(site->gate && site->busy);

		if (!used && (site->state != SITE_DRAINING || site->busy || site->spent ||
			      site->guests || site->move || site->gated)) {
			p = &site->next_queued;
			continue;
		}
		*p = site->next_queued;
		site->queued = false;
		if (!used)
			site_free(s, site);
		done++;
	}
	s->queue_length -= done;
	return done;
}

/* Sites whose windows are the original again, and sites that never were patched, drain. */
static void begin_draining(struct flush *f)
{
	for (size_t i = 0; i < f->restore_count; i++)
		if (f->restored[i]) {
			f->restores[i]->state = SITE_DRAINING;
			site_forget(f->session, f->restores[i]);
		}
	for (struct site *site = f->session->retired; site; site = site->next_queued)
		if (site->state == SITE_PLANNED && !site->touched && !site->links &&
		    !site->guests) {
			site->state = SITE_DRAINING;
			site->unreached = !site->entered;
			site_forget(f->session, site);
		}
}

/* A library that has come since the modules were last looked at may switch between tasks. */
void removal_look_for_tasks(struct session *s)
{
	struct dinst_error ignored = {0};

	if (!target_parks(s->target))
		session_update_modules(s, &ignored);
}

int removal_flush(struct session *s, struct flush_result *result, struct dinst_error *e)
{
	struct flush f = {.session = s};
	struct stop_report report = {0};
	struct stack_range *ranges = NULL;
	size_t count = 0;
	int status;

	/* What there was no memory for may go now. */
	site_update_all(s);
	compact_begin(s);
	*result = (struct flush_result){.queued = s->queue_length};
	if (!s->queue_length) {
		compact_end(s);
		return 0;
	}
	status = restore_prepare(&f, e);
	if (status < 0)
		goto free_flush;
	status = family_stop(s, restore_and_copy, &f, &report, e);
	session_note_stop(s, &report, &result->stop_ns);
	if (status < 0)
		goto free_flush;
	compact_settle(s);
	begin_draining(&f);
	ranges = queued_ranges(s, &count);
	if (!ranges) {
		status = dinst_fail(e, DINST_NO_MEMORY, "out of memory for a flush");
		goto free_flush;
	}
	find_hits(&f, ranges, count);
	for (size_t i = 0; f.late && i < count; i++)
		ranges[i].hit = true;
	mark_busy_sites(s, ranges, count);
	result->freed = give_back_bodies(s, ranges, count);
	result->freed += give_back_codes(s, ranges, count);
	result->freed += give_back_sites(s);
	result->queued = s->queue_length;
	result->late = f.late;
	result->others = f.others;
	for (size_t i = 0; i < f.shot_count; i++)
		result->unsearched |= snapshot_is_unsearched(f.shots[i]);
	for (struct place *p = s->places; p && result->freed; p = p->next)
		p->full = false;

free_flush:
	compact_end(s);
	restore_release(&f);
	family_release(s);
	free(ranges);
	return status;
}
