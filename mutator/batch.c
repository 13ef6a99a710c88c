/* SPDX-License-Identifier: MIT */
/*
 * batch.c - one stop that makes planned windows lead to their trampolines.
 *
 * Before the stop everything is written: journal, bases and heads. In the stop, per window: is a thread
 * inside, or might one come back into it? Those inside are moved to the relocated instruction first (right even if
 * the patch never happens), those that might come back make it wait. Then the bytes are compared and written.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/batch_private.h"
#include "mutator/body.h"
#include "mutator/parks.h"

enum { TEXT_SPAN = 4096 }; /* most bytes of text that are read together */

static int by_lo(const void *a, const void *b)
{
	const struct inside *x = a, *y = b;

	if (x->range.lo != y->range.lo)
		return x->range.lo < y->range.lo ? -1 : 1;
	return x->range.hi < y->range.hi ? -1 : x->range.hi > y->range.hi;
}

static int by_address(const void *a, const void *b)
{
	const struct site *x = *(struct site *const *)a, *y = *(struct site *const *)b;

	return x->key.start < y->key.start ? -1 : x->key.start > y->key.start;
}

static taddr_t patched_end(const struct site *site)
{
	const struct patch *window = &site->patches[site->patch_count - 1];

	return window->address + window->length;
}

/* The bytes that pc is in, or NULL. */
static const struct inside *inside_of(const struct batch *b, taddr_t pc)
{
	size_t lo = 0, hi = b->inside_count;

	while (lo < hi) {
		size_t middle = (lo + hi) / 2;

		if (pc < b->insides[middle].range.lo)
			hi = middle;
		else if (pc >= b->insides[middle].range.hi)
			lo = middle + 1;
		else
			return &b->insides[middle];
	}
	return NULL;
}

/*
 * Two functions may share code, and their windows overlap: the first one has
 * the bytes, to the other one they are somebody else's.
 */
static void refuse_overlaps(struct batch *b)
{
	taddr_t end = 0;

	for (size_t i = 0; i < b->count; i++) {
		const struct site *site = b->sites[i];

		b->foreign[i] = site->key.start < end;
		if (!b->foreign[i] && patched_end(site) > end)
			end = patched_end(site);
		if (!b->foreign[i] && site->key.start + site->window.length > end)
			end = site->key.start + site->window.length;
	}
}

static void add_inside(struct batch *b, size_t site, struct site *home, taddr_t lo, taddr_t hi)
{
	b->insides[b->inside_count++] =
		(struct inside){.range = {.lo = lo, .hi = hi}, .site = site, .home = home};
}

/*
 * A hole in a host. Threads that were behind its jump when that was written run on there, and into the hole:
 * none may be in front of it either, from where none is known to be.
 */
static void add_hole(struct batch *b, size_t number, const struct site *site)
{
	struct site *host = site->host;
	const taddr_t hole = site->patches[0].address, end = patched_end(host);
	const taddr_t from = host->left_to > end ? host->left_to : end;

	add_inside(b, number, host, from < hole ? from : hole, hole + site->patches[0].length);
}

/* Several holes in one host: each range begins where the one before it ends. */
static void part_insides(struct batch *b)
{
	qsort(b->insides, b->inside_count, sizeof(*b->insides), by_lo);
	for (size_t i = 1; i < b->inside_count; i++) {
		const struct inside *before = &b->insides[i - 1];
		struct inside *next = &b->insides[i];

		if (next->range.lo < before->range.hi && next->home == before->home)
			next->range.lo = before->range.hi;
	}
}

/* Who waits in front of one hole would run into those behind it, too. */
static void wait_for_all_holes(struct batch *b)
{
	for (size_t i = 0; i < b->inside_count; i++)
		for (size_t k = i + 1; k < b->inside_count && b->waits[b->insides[i].site] &&
				       b->insides[k].home == b->insides[i].home;
		     k++)
			b->waits[b->insides[k].site] = true;
}

/*
 * The first byte of a window may be under a thread: it executes the jump then.
 * The first byte of a hole in a host may not: it is an instruction of the host,
 * not of the window that jumps there.
 */
static void collect_insides(struct batch *b)
{
	for (size_t i = 0; i < b->count; i++) {
		struct site *site = b->sites[i];

		if (b->foreign[i])
			continue;
		if (site->window.insn_count > 1)
			add_inside(b, i, site, site->key.start + 1, patched_end(site));
		if (site->host)
			add_hole(b, i, site);
	}
	if (b->inside_count)
		part_insides(b);
	for (size_t i = 0; i < b->inside_count; i++)
		b->ranges[i] = b->insides[i].range;
}

/* Which of the sites has the window at `start`, or -1. */
static long number_at(const struct batch *b, taddr_t start)
{
	size_t lo = 0, hi = b->count;

	while (lo < hi) {
		size_t middle = (lo + hi) / 2;

		if (b->sites[middle]->key.start < start)
			lo = middle + 1;
		else
			hi = middle;
	}
	return lo < b->count && b->sites[lo]->key.start == start ? (long)lo : -1;
}

static long number_of(const struct batch *b, const struct site *site)
{
	const long n = number_at(b, site->key.start);

	return n >= 0 && b->sites[n] == site ? n : -1;
}

/*
 * Who is in the code of a site that was removed comes back to the call that it had left in its place:
 * what would be written over that call now waits until nobody is.
 */
static void wait_for_kept_calls(struct batch *b)
{
	for (const struct site *old = b->session->retired; old; old = old->next_queued) {
		long n;

		if (!site_is_come_back_to(old))
			continue;
		n = number_at(b, old->key.start);
		if (n >= 0 && !b->sites[n]->keeps_call)
			b->waits[n] = true;
	}
}

static bool is_in_place(struct stop *stop, const struct patch *p)
{
	uint8_t now[ARCH_PATCH_MAX];

	return target_read_some(stop_target(stop), p->address, now, p->length) == p->length &&
	       !memcmp(now, p->after, p->length);
}

/*
 * False where the bytes are not those that the site's code was made of: what it has of an instruction
 * is not what a thread there would execute.
 */
static bool is_ours(const struct batch *b, struct stop *stop, const struct site *home)
{
	const long n = number_of(b, home);

	if (n >= 0)
		return !b->foreign[n];
	return home->patch_count && is_in_place(stop, &home->patches[home->patch_count - 1]);
}

/*
 * True in front of a near jump that is in its hole already, since that waited to be taken out when its
 * window came back: what the host had there is not what the thread is about to execute.
 */
static bool is_at_near_jump(const struct batch *b, struct stop *stop, const struct inside *inside,
			    taddr_t pc)
{
	const struct site *site = b->sites[inside->site];

	return inside->home != site && pc == site->patches[0].address &&
	       is_in_place(stop, &site->patches[0]);
}

int batch_move_threads(struct batch *b, struct stop *stop, struct dinst_error *e)
{
	bool moved = false;

	for (size_t i = 0; i < stop_thread_count(stop); i++) {
		struct stop_thread *t = stop_thread(stop, i);
		taddr_t pc = arch_pc(&t->regs), to;
		const struct inside *inside;

		if (t->kernel_worker)
			continue;
		inside = inside_of(b, pc);
		if (!inside || !is_ours(b, stop, inside->home) ||
		    is_at_near_jump(b, stop, inside, pc))
			continue;
		if (arch_in_syscall(&t->regs) || !site_copy_of(b->session, inside->home, pc, &to)) {
			b->waits[inside->site] = true;
			continue;
		}
		inside->home->entered = true;
		count_place_passed(inside->home, pc);
		arch_set_pc(&t->regs, to);
		t->changed = true;
		moved = true;
	}
	return moved ? stop_store_regs(stop, e) : 0;
}

int batch_look_at_stacks(struct batch *b, struct stop *stop, struct dinst_error *e)
{
	struct snapshot *shot;
	int status;

	b->session->unsearched = false;
	if (!b->inside_count)
		return 0;
	status = parks_snapshot(b->session, stop, &shot, e);
	if (status < 0)
		return status;
	b->session->unsearched = snapshot_is_unsearched(shot);
	snapshot_free(b->shot);
	b->shot = shot;
	/* Where that one goes on is in no register and on no stack: inside any of them, perhaps. */
	b->late = late_calls_last(b->session, stop);
	for (size_t i = 0; b->late && i < b->inside_count; i++)
		b->waits[b->insides[i].site] = true;
	if (!snapshot_scan_stacks(shot, b->ranges, b->inside_count))
		return 0;
	for (size_t i = 0; i < b->inside_count; i++)
		if (b->ranges[i].hit)
			b->waits[b->insides[i].site] = true;
	return 0;
}

static bool is_as_expected(struct stop *stop, const struct patch *p)
{
	uint8_t now[ARCH_PATCH_MAX];

	return target_read_some(stop_target(stop), p->address, now, p->length) == p->length &&
	       !memcmp(now, p->before, p->length);
}

/* Groups the windows, which are sorted, by nearness: one range to read for each group. */
static bool plan_texts(struct batch *b)
{
	size_t size = 0;

	for (size_t i = 0; i < b->count; i++) {
		const struct site *site = b->sites[i];
		struct target_range *last = b->text_count ? &b->texts[b->text_count - 1] : NULL;
		taddr_t end = site->key.start + site->window.length;

		if (!last || end > last->address + TEXT_SPAN)
			b->texts[b->text_count++] = (struct target_range){
				.address = site->key.start, .size = end - site->key.start};
		else if (end > last->address + last->size)
			last->size = end - last->address;
	}
	for (size_t i = 0; i < b->text_count; i++)
		size += b->texts[i].size;
	b->text_bytes = malloc(size + 1);
	for (size_t i = 0, at = 0; b->text_bytes && i < b->text_count; i++) {
		b->texts[i].to = b->text_bytes + at;
		at += b->texts[i].size;
	}
	return b->text_bytes != NULL;
}

/*
 * All instructions that have moved must be what they were when the trampoline
 * was made, not only those that the patch overwrites: the module may have been
 * replaced by another one, or another tool may have been there.
 */
void batch_check_windows(struct batch *b, struct stop *stop)
{
	const struct target *t = stop_target(stop);
	struct dinst_error ignored = {0};
	bool all = !target_read_many(t, b->texts, b->text_count, &ignored);
	uint8_t alone[WINDOW_BYTES_MAX];
	size_t text = 0;

	for (size_t i = 0; i < b->count; i++) {
		const struct site *site = b->sites[i];
		const uint8_t *now = alone;
		size_t length = site->window.length;

		while (b->texts[text].address + b->texts[text].size < site->key.start + length)
			text++;
		if (all)
			now = (const uint8_t *)b->texts[text].to +
			      (site->key.start - b->texts[text].address);
		else if (target_read_some(t, site->key.start, alone, length) != length)
			now = NULL;
		if (!now || memcmp(now, site->original, length) != 0)
			b->foreign[i] = true;
	}
}

/* What is written together, and in which order: nothing leads to what is not there yet. */
enum round { ROUND_HOSTS, ROUND_HOLES, ROUND_WINDOWS };

/* The patch of the site that the round is about, or NULL. */
static const struct patch *patch_in(const struct site *site, enum round round)
{
	switch (round) {
	case ROUND_HOSTS:
		return site->guests ? &site->patches[site->patch_count - 1] : NULL;
	case ROUND_HOLES:
		return site->patch_count == 2 ? &site->patches[0] : NULL;
	default:
		return site->guests ? NULL : &site->patches[site->patch_count - 1];
	}
}

/*
 * A guest has the fate of its host. One that is patched must be so in truth: the
 * hole is live code otherwise.
 */
void batch_share_fate(struct batch *b, struct stop *stop)
{
	wait_for_all_holes(b);
	for (size_t i = 0; i < b->count; i++) {
		const struct site *host = b->sites[i]->host;
		long n = host ? number_of(b, host) : -1;

		if (!host)
			continue;
		if (n < 0 && host->state == SITE_PATCHED) {
			if (!is_in_place(stop, &host->patches[host->patch_count - 1]))
				b->foreign[i] = true;
			continue;
		}
		if (n < 0 || b->waits[n])
			b->waits[i] = true;
		if (n >= 0 && b->foreign[n]) {
			b->foreign[i] = true;
			b->sites[i]->unwritable |= host->unwritable;
		}
	}
}

/* Nothing can be written into a program that was killed just then. */
static bool is_killed(struct stop *stop, const struct patch *patches, size_t count)
{
	bool failed = false;

	for (size_t i = 0; i < count; i++)
		failed |= patches[i].outcome == PATCH_FAILED;
	return failed && target_has_to_end(stop_target(stop));
}

static int apply_round(struct batch *b, struct stop *stop, enum round round, struct dinst_error *e)
{
	size_t count = 0;
	int status;

	for (size_t i = 0; i < b->count; i++) {
		const struct site *site = b->sites[i];
		const struct patch *p = patch_in(site, round);

		if (!p || b->waits[i] || b->foreign[i])
			continue;
		/* A hole is written only for a window that can be patched behind it. */
		if (round == ROUND_HOLES && !is_as_expected(stop, &site->patches[1])) {
			b->foreign[i] = true;
			continue;
		}
		b->patches[count] = *p;
		b->patch_site[count++] = i;
	}
	if (!count)
		return 0;
	status = patch_apply(stop, b->patches, count, e);
	if (status >= 0 && is_killed(stop, b->patches, count))
		status = dinst_fail(e, DINST_GONE, "process %d was killed while it was stopped",
				    (int)target_pid(stop_target(stop)));
	for (size_t i = 0; status >= 0 && i < count; i++) {
		const enum patch_outcome outcome = b->patches[i].outcome;

		b->sites[b->patch_site[i]]->unwritable |= outcome == PATCH_FAILED;
		if (outcome != PATCH_DONE && outcome != PATCH_ALREADY)
			b->foreign[b->patch_site[i]] = true;
		else if (round == ROUND_HOLES)
			b->hole_written[b->patch_site[i]] = true;
	}
	return status;
}

/* A hole whose window could not be written after all is padding again. */
static int undo_holes(struct batch *b, struct stop *stop, struct dinst_error *e)
{
	size_t count = 0;

	for (size_t i = 0; i < b->count; i++) {
		const struct patch *p = &b->sites[i]->patches[0];

		if (!b->hole_written[i] || !b->foreign[i])
			continue;
		b->patches[count] = *p;
		memcpy(b->patches[count].before, p->after, p->length);
		memcpy(b->patches[count++].after, p->before, p->length);
	}
	return count ? patch_apply(stop, b->patches, count, e) : 0;
}

pid_t batch_stuck_thread(const struct batch *b, struct stop *stop, const struct site **in)
{
	for (size_t i = 0; i < stop_thread_count(stop); i++) {
		const struct stop_thread *t = stop_thread(stop, i);
		taddr_t pc = arch_pc(&t->regs), to;
		const struct inside *inside = t->kernel_worker ? NULL : inside_of(b, pc);

		if (inside && !is_at_near_jump(b, stop, inside, pc) &&
		    (arch_in_syscall(&t->regs) ||
		     !site_copy_of(b->session, inside->home, pc, &to))) {
			*in = inside->home;
			return t->tid;
		}
	}
	return 0;
}

int batch_patch(struct batch *b, struct stop *stop, struct dinst_error *e)
{
	int status;

	b->patching = true;
	for (size_t i = 0; i < b->count; i++)
		b->sites[i]->unwritable = false;
	batch_share_fate(b, stop);
	status = apply_round(b, stop, ROUND_HOSTS, e);
	batch_share_fate(b, stop);
	if (status >= 0)
		status = apply_round(b, stop, ROUND_HOLES, e);
	if (status >= 0)
		status = apply_round(b, stop, ROUND_WINDOWS, e);
	if (status >= 0)
		status = undo_holes(b, stop, e);
	return status;
}

static int apply_in_stop(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct batch *b = arg;
	int status;

	if (target_incarnation(stop_target(stop)) != b->session->incarnation)
		return dinst_fail(e, DINST_GONE, "process %d has executed another program",
				  (int)b->session->pid);
	place_check_threads(b->session, stop);
	status = place_check(b->session, e);
	if (status >= 0)
		status = place_sync(stop, b->session, e);
	batch_check_windows(b, stop);
	if (status >= 0)
		status = batch_look_at_stacks(b, stop, e);
	if (status >= 0)
		status = batch_move_threads(b, stop, e);
	if (status < 0)
		return status;
	batch_share_pairs(b, stop);
	return batch_patch(b, stop, e);
}

/* In all processes by now. */
static void note_hole(const struct site *site)
{
	const taddr_t end = site->patches[0].address + site->patches[0].length;

	if (site->host->left_to < end)
		site->host->left_to = end;
}

/*
 * Records what became of each site. If the machinery `failed` after the first write a window may or may not be
 * patched, here or in a child: it counts as patched, since taking it out compares the bytes first. One that is
 * the original here is to be patched again.
 */
void batch_settle(struct batch *b, bool failed, struct batch_result *result)
{
	for (size_t i = 0; i < b->count; i++) {
		struct site *site = b->sites[i];

		result->pending += b->waits[i];
		if (!b->patching || b->waits[i] || b->foreign[i])
			continue;
		site->state = SITE_PATCHED;
		if (site->host)
			note_hole(site);
	}
	/* A host that is not in place has no holes: it comes after what its guests say. */
	for (size_t i = 0; i < b->count && b->patching; i++) {
		struct site *site = b->sites[i];

		if (b->waits[i] || b->foreign[i])
			continue;
		if (failed && !site_is_in_place(b->session, site)) {
			site_revert(b->session, site);
			continue;
		}
		batch_note_pages(b->session, site);
		result->patched++;
	}
}

int batch_begin(struct batch *b, struct session *s, struct site **sites, size_t count,
		bool *foreign, struct dinst_error *e)
{
	const size_t room = count + 1;

	*b = (struct batch){.session = s, .sites = sites, .count = count, .foreign = foreign};
	if (count)
		qsort(sites, count, sizeof(*sites), by_address);
	b->waits = calloc(room, sizeof(*b->waits));
	b->insides = calloc(2 * room, sizeof(*b->insides));
	b->ranges = calloc(2 * room, sizeof(*b->ranges));
	b->patches = calloc(room, sizeof(*b->patches));
	b->patch_site = calloc(room, sizeof(*b->patch_site));
	b->hole_written = calloc(room, sizeof(*b->hole_written));
	b->texts = calloc(room, sizeof(*b->texts));
	b->lost = calloc(PAIR_ID_MASK + 1, sizeof(*b->lost));
	if (!b->lost || !b->waits || !b->insides || !b->ranges || !b->patches || !b->patch_site ||
	    !b->hole_written || !b->texts || !plan_texts(b))
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory for a batch of %zu", count);
	refuse_overlaps(b);
	wait_for_kept_calls(b);
	batch_find_strangers(b);
	collect_insides(b);
	return batch_check_room(s, sites, count, e);
}

void batch_end(struct batch *b)
{
	snapshot_free(b->shot);
	free(b->lost);
	free(b->text_bytes);
	free(b->texts);
	free(b->hole_written);
	free(b->patch_site);
	free(b->patches);
	free(b->ranges);
	free(b->insides);
	free(b->waits);
}

int batch_apply(struct session *s, struct site **sites, size_t count, bool *foreign,
		struct batch_result *result, struct dinst_error *e)
{
	struct stop_report report = {0};
	struct batch b;
	int status;

	*result = (struct batch_result){0};
	if (!count)
		return 0;
	status = batch_begin(&b, s, sites, count, foreign, e);
	if (status >= 0) {
		status = target_stop(s->target, NULL, apply_in_stop, &b, &report, e);
		session_note_stop(s, &report, &result->stop_ns);
		batch_settle(&b, status < 0, result);
	}
	batch_end(&b);
	return status;
}
