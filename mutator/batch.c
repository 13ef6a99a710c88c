/* SPDX-License-Identifier: MIT */
/*
 * batch.c - one stop that makes planned windows lead to their trampolines.
 *
 * Before the stop everything is written: journal, trampolines, minis. In the
 * stop, per window: is a thread inside, or might one come back into it? Those
 * inside are moved to the relocated instruction first (right even if the patch
 * never happens), those that might come back make the window wait. Then the
 * bytes are compared and written.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/core.h"

struct batch {
	struct session *session;
	struct site **sites;
	size_t count;
	bool *waits;                /* the window must wait for a better moment */
	bool *foreign;
	bool patching;              /* the first byte may have been written */
	struct stack_range *insides;/* bytes of a window that no pc may come back to */
	size_t *inside_site;        /* insides[i] belongs to sites[inside_site[i]] */
	size_t inside_count;
	struct patch *patches;      /* room for one patch a site */
	size_t *patch_site;
};

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

/* The site whose overwritten bytes contain pc strictly inside, or -1. */
static long inside_of(const struct batch *b, taddr_t pc)
{
	size_t lo = 0, hi = b->inside_count;

	while (lo < hi) {
		size_t middle = (lo + hi) / 2;

		if (pc < b->insides[middle].lo)
			hi = middle;
		else if (pc >= b->insides[middle].hi)
			lo = middle + 1;
		else
			return (long)b->inside_site[middle];
	}
	return -1;
}

static void collect_insides(struct batch *b)
{
	for (size_t i = 0; i < b->count; i++) {
		const struct site *site = b->sites[i];

		if (site->window.insn_count < 2)
			continue;
		b->insides[b->inside_count] = (struct stack_range){ .lo = site->key.start + 1,
								    .hi = patched_end(site) };
		b->inside_site[b->inside_count++] = i;
	}
}

static int move_threads(struct batch *b, struct stop *stop, struct dinst_error *e)
{
	bool moved = false;

	for (size_t i = 0; i < stop_thread_count(stop); i++) {
		struct stop_thread *t = stop_thread(stop, i);
		taddr_t pc = arch_pc(&t->regs), to;
		long site;

		if (t->kernel_worker)
			continue;
		site = inside_of(b, pc);
		if (site < 0)
			continue;
		if (arch_in_syscall(&t->regs) || !site_copy_of(b->sites[site], pc, &to)) {
			b->waits[site] = true;
			continue;
		}
		arch_set_pc(&t->regs, to);
		t->changed = true;
		moved = true;
	}
	return moved ? stop_store_regs(stop, e) : 0;
}

static int look_at_stacks(struct batch *b, struct stop *stop, struct dinst_error *e)
{
	struct snapshot *shot;
	int status;

	if (!b->inside_count)
		return 0;
	status = snapshot_take(stop, &shot, e);
	if (status < 0)
		return status;
	if (snapshot_scan_stacks(shot, b->insides, b->inside_count))
		for (size_t i = 0; i < b->inside_count; i++)
			if (b->insides[i].hit)
				b->waits[b->inside_site[i]] = true;
	snapshot_free(shot);
	return 0;
}

static bool is_as_expected(struct stop *stop, const struct patch *p)
{
	uint8_t now[ARCH_PATCH_MAX];

	return target_read_some(stop_target(stop), p->address, now, p->length) == p->length &&
	       !memcmp(now, p->before, p->length);
}

/* Applies patch number `which` of every site that has it and neither waits nor is foreign. */
static int apply_round(struct batch *b, struct stop *stop, unsigned which, struct dinst_error *e)
{
	size_t count = 0;
	int status;

	for (size_t i = 0; i < b->count; i++) {
		const struct site *site = b->sites[i];
		/* Sites with a hole have two patches: the hole in round 0, the window in round 1. */
		unsigned index = site->patch_count == 2 ? which : which - 1;

		if (b->waits[i] || b->foreign[i] || (site->patch_count == 1 && !which))
			continue;
		/* A hole is written only for a window that can be patched behind it. */
		if (!which && !is_as_expected(stop, &site->patches[1])) {
			b->foreign[i] = true;
			continue;
		}
		b->patches[count] = site->patches[index];
		b->patch_site[count++] = i;
	}
	if (!count)
		return 0;
	status = patch_apply(stop, b->patches, count, e);
	for (size_t i = 0; status >= 0 && i < count; i++)
		if (b->patches[i].outcome != PATCH_DONE && b->patches[i].outcome != PATCH_ALREADY)
			b->foreign[b->patch_site[i]] = true;
	return status;
}

static int apply_in_stop(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct batch *b = arg;
	int status = 0;

	if (target_incarnation(stop_target(stop)) != b->session->incarnation)
		return dinst_fail(e, DINST_GONE, "process %d has executed another program",
				  (int)b->session->pid);
	for (struct place *p = b->session->places; p && status >= 0; p = p->next)
		status = arena_sync(stop, p->arena, e);
	if (status >= 0)
		status = look_at_stacks(b, stop, e);
	if (status >= 0)
		status = move_threads(b, stop, e);
	b->patching = status >= 0;
	if (status >= 0)
		status = apply_round(b, stop, 0, e);
	if (status >= 0)
		status = apply_round(b, stop, 1, e);
	return status;
}

/* Remembers the pages of a site's patches; duplicates of the last one only are left out. */
static void note_pages(struct session *s, const struct site *site)
{
	for (unsigned k = 0; k < site->patch_count; k++) {
		taddr_t page = site->patches[k].address & ~(taddr_t)4095;

		if (s->page_count && s->pages[s->page_count - 1] == page)
			continue;
		if (s->page_count == s->page_room) {
			size_t room = s->page_room ? s->page_room * 2 : 256;
			taddr_t *pages = realloc(s->pages, room * sizeof(*pages));

			if (!pages)
				return; /* costs the target a private page, nothing else */
			s->pages = pages;
			s->page_room = room;
		}
		s->pages[s->page_count++] = page;
	}
}

/*
 * Records what became of each site. If the machinery failed after the first
 * write a window may or may not be patched: it counts as patched, since taking
 * it out compares the bytes first.
 */
static void settle(struct batch *b, struct batch_result *result)
{
	for (size_t i = 0; i < b->count; i++) {
		struct site *site = b->sites[i];

		if (b->patching && !b->waits[i] && !b->foreign[i]) {
			site->state = SITE_PATCHED;
			note_pages(b->session, site);
			result->patched++;
			continue;
		}
		if (b->waits[i])
			result->pending++;
	}
}

int batch_apply(struct session *s, struct site **sites, size_t count, bool *foreign,
		struct batch_result *result, struct dinst_error *e)
{
	struct batch b = { .session = s, .sites = sites, .count = count, .foreign = foreign };
	struct stop_report report = { 0 };
	int status;

	*result = (struct batch_result){ 0 };
	if (!count)
		return 0;
	qsort(sites, count, sizeof(*sites), by_address);
	b.waits = calloc(count, sizeof(*b.waits));
	b.insides = calloc(count, sizeof(*b.insides));
	b.inside_site = calloc(count, sizeof(*b.inside_site));
	b.patches = calloc(count, sizeof(*b.patches));
	b.patch_site = calloc(count, sizeof(*b.patch_site));
	if (!b.waits || !b.insides || !b.inside_site || !b.patches || !b.patch_site) {
		status = dinst_fail(e, DINST_NO_MEMORY, "out of memory for a batch of %zu", count);
		goto free_batch;
	}
	collect_insides(&b);
	status = target_stop(s->target, NULL, apply_in_stop, &b, &report, e);
	session_note_stop(s, &report, &result->stop_ns);
	settle(&b, result);

free_batch:
	free(b.patch_site);
	free(b.patches);
	free(b.inside_site);
	free(b.insides);
	free(b.waits);
	return status;
}
