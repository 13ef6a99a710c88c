/* SPDX-License-Identifier: MIT */
/*
 * restore.c - the part of a flush that happens while everybody stands still.
 *
 * Owns the order: threads leave descriptors and holes, registers and stacks are copied,
 * windows are restored, and holes last. A hole becomes padding again, so none
 * is restored while a thread may come back to it. A window with holes in its
 * tail is not restored before a flush that finds them gone. Never frees anything.
 */
#include <linux/rseq.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inject/maps.h"
#include "mutator/parks.h"
#include "mutator/removal.h"
#include "mutator/threads.h"

static int by_window(const void *a, const void *b)
{
	const struct site *x = *(struct site *const *)a, *y = *(struct site *const *)b;

	return x->key.start < y->key.start ? -1 : x->key.start > y->key.start;
}

static int by_hole(const void *a, const void *b)
{
	const struct hole *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

static int by_patch(const void *a, const void *b)
{
	const struct site_move *x = *(struct site_move *const *)a,
			       *y = *(struct site_move *const *)b;

	return x->patch.address < y->patch.address ? -1 : x->patch.address > y->patch.address;
}

/* Its window leads to our code in some process of the family, or may. */
static bool is_to_be_restored(const struct site *site)
{
	return !site->links && !site->guests &&
	       (site->state == SITE_PATCHED || (site->state == SITE_PLANNED && site->touched));
}

/* What has come to the places of modules that are no more may have a byte or two as we wrote them. */
static void open_files(struct flush *f)
{
	taddr_t *places = calloc(2 * f->restore_count + 1, sizeof(*places));
	size_t count = 0;

	for (size_t i = 0; places && i < f->restore_count; i++) {
		const struct site *site = f->restores[i];

		for (unsigned k = 0; k < site->patch_count; k++)
			if ((site->dropped || site->module->gone) &&
			    site->patches[k].length < JOURNAL_NO_CHANCE)
				places[count++] = site->patches[k].address;
	}
	if (count)
		f->files = patch_files_open(f->session->target, places, count);
	free(places);
}

int restore_prepare(struct flush *f, struct dinst_error *e)
{
	size_t n = f->session->queue_length + 1;

	f->restores = calloc(n, sizeof(*f->restores));
	f->restored = calloc(n, sizeof(*f->restored));
	f->patches = calloc(n, sizeof(*f->patches));
	f->patch_site = calloc(n, sizeof(*f->patch_site));
	f->holes = calloc(n, sizeof(*f->holes));
	f->hole_ranges = calloc(n, sizeof(*f->hole_ranges));
	f->moves = calloc(n, sizeof(*f->moves));
	if (!f->moves || !f->restores || !f->restored || !f->patches || !f->patch_site ||
	    !f->holes || !f->hole_ranges)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory for a flush");
	for (struct site_move *m = f->session->moves; m; m = m->next) {
		m->failed = false;
		f->moves[f->move_count++] = m;
	}
	if (f->move_count)
		qsort(f->moves, f->move_count, sizeof(*f->moves), by_patch);
	for (struct site *site = f->session->retired; site; site = site->next_queued)
		if (is_to_be_restored(site))
			f->restores[f->restore_count++] = site;
	qsort(f->restores, f->restore_count, sizeof(*f->restores), by_window);
	for (size_t i = 0; i < f->restore_count; i++) {
		const struct site *site = f->restores[i];

		f->restored[i] = true;
		if (site->patch_count == 2)
			f->holes[f->hole_count++] =
				(struct hole){.at = site->patches[0].address, .restore = i};
	}
	qsort(f->holes, f->hole_count, sizeof(*f->holes), by_hole);
	open_files(f);
	return 0;
}

void restore_release(struct flush *f)
{
	patch_files_close(f->files);
	for (size_t i = 0; i < f->shot_count; i++)
		snapshot_free(f->shots[i]);
	free(f->shots);
	free(f->moves);
	free(f->hole_ranges);
	free(f->holes);
	free(f->patch_site);
	free(f->patches);
	free(f->restored);
	free(f->restores);
}

/* ---------------------------------------------------------------- holes */

/*
 * True if the hole has the near jump in this process: in one that was forked before it was written, or
 * whose module was loaded anew, its bytes are live code, of the host's tail or of whatever is there.
 */
static bool is_written(struct stop *stop, const struct site *site)
{
	const struct patch *p = &site->patches[0];
	uint8_t now[ARCH_PATCH_MAX];

	return target_read_some(stop_target(stop), p->address, now, p->length) == p->length &&
	       (patch_is_there(p->after, p->length, now) ||
		(site->move && patch_is_there(site->move->patch.before, p->length, now)));
}

/* The site whose near jump is at `at` in this process; two have one place where a module came back to it. */
static const struct site *find_written(const struct flush *f, struct stop *stop, taddr_t at)
{
	const struct hole key = {.at = at}, *end = f->holes + f->hole_count;
	const struct hole *hole = bsearch(&key, f->holes, f->hole_count, sizeof(key), by_hole);

	while (hole && hole > f->holes && hole[-1].at == at)
		hole--;
	for (; hole && hole < end && hole->at == at; hole++)
		if (is_written(stop, f->restores[hole->restore]))
			return f->restores[hole->restore];
	return NULL;
}

/* Threads that are about to execute the near jump in a hole go where it leads. */
static int leave_holes(const struct flush *f, struct stop *stop, struct dinst_error *e)
{
	bool moved = false;

	for (size_t i = 0; f->hole_count && i < stop_thread_count(stop); i++) {
		struct stop_thread *t = stop_thread(stop, i);
		const struct site *site;

		if (t->kernel_worker || arch_in_syscall(&t->regs))
			continue;
		site = find_written(f, stop, arch_pc(&t->regs));
		if (!site)
			continue;
		arch_set_pc(&t->regs, site->base);
		t->changed = true;
		moved = true;
	}
	return moved ? stop_store_regs(stop, e) : 0;
}

/*
 * A signal handler may run on top of a thread that had got as far as the near
 * jump: its way back leads there. Such a hole waits for the next flush. So do all while a
 * thread is late with a call of ours: it may have been taken from a hole, and nothing shows it.
 */
static void keep_holes_in_use(struct flush *f, const struct snapshot *shot)
{
	size_t count = 0;

	if (!f->hole_count)
		return;
	for (size_t i = 0; f->late && i < f->hole_count; i++)
		f->restored[f->holes[i].restore] = false;
	if (f->late)
		return;
	/* Two sites may have one hole, of a module that came to the same place again. */
	for (size_t i = 0; i < f->hole_count; i++)
		if (!count || f->hole_ranges[count - 1].lo != f->holes[i].at)
			f->hole_ranges[count++] = (struct stack_range){.lo = f->holes[i].at,
								       .hi = f->holes[i].at + 1};
	if (!snapshot_scan_stacks(shot, f->hole_ranges, count))
		return;
	for (size_t i = 0, at = 0; i < f->hole_count; i++) {
		at += f->hole_ranges[at].lo != f->holes[i].at;
		if (f->hole_ranges[at].hit)
			f->restored[f->holes[i].restore] = false;
	}
}

/* ------------------------------------------------- restartable sequences */

/*
 * A thread's rseq_cs points to the descriptor of the last sequence that it ran,
 * until the kernel next looks at it; if something else is there by then, it
 * kills the thread. Descriptors lie in bodies, which are freed, so in this stop
 * every rseq_cs that leads into an arena is cleared: the kernel then sees no
 * sequence, which is the truth. The exception is a thread that stands in the
 * sequence itself: its pc is in the body, which keeps it from being freed, and
 * the kernel aborts the sequence as soon as it goes on.
 */
static bool stands_in(const struct session *s, taddr_t descriptor, taddr_t pc)
{
	const struct place *p = place_at(s, descriptor);
	struct rseq_cs cs;
	const void *ours = heap_map(p->heap, descriptor, sizeof(cs));

	if (!ours)
		return false;
	memcpy(&cs, ours, sizeof(cs));
	return pc - cs.start_ip < cs.post_commit_offset;
}

static bool is_left(const struct stop_thread *thread, taddr_t descriptor, const void *arg)
{
	const struct session *s = arg;

	return place_at(s, descriptor) && !stands_in(s, descriptor, arch_pc(&thread->regs));
}

/* ------------------------------------------------------------ restoring */

/*
 * Bytes that are neither ours nor the original count as somebody's only where
 * the module is: after a dlclose() they may be of anything. Likewise what cannot
 * be read where the module is comes to light again (PROT_NONE for a while).
 */
static bool is_unloaded_in(struct stop *stop, const struct site *site, taddr_t address)
{
	const struct maps *maps;

	return !stop_maps(stop, &maps, NULL) && !module_is_mapped(site->module, maps, address);
}

/*
 * Its module was unloaded, loaded again to the same place, and instrumented anew: what is there is of
 * the newer site, and what it has in common with ours (a short jump) is not ours.
 */
static bool is_of_newer(const struct flush *f, struct stop *stop, const struct site *site)
{
	const struct site *newer = site->dropped ? site_find(f->session, site->key.start) : NULL;
	const struct patch *jump = newer ? &newer->patches[0] : NULL;
	uint8_t now[ARCH_PATCH_MAX];

	return newer && newer->patch_count &&
	       target_read_some(stop_target(stop), jump->address, now, jump->length) ==
		       jump->length &&
	       !memcmp(now, jump->after, jump->length);
}

/* Another module has been where this one is, or is there now: what was put into both may differ in little. */
static bool shares_place(const struct session *s, const struct module *m)
{
	for (size_t i = 0; i < module_count(s->modules) && !m->gone; i++) {
		const struct module *other = module_get(s->modules, i);

		if (other->gone && other->lo < m->hi && m->lo < other->hi)
			return true;
	}
	return m->gone;
}

/*
 * In this process there is what the site shares its place with: two have the same short jump, and what it
 * leads to says whose it is. A child has what was loaded when it was forked.
 */
static bool is_of_other_site(const struct flush *f, struct stop *stop, const struct site *site)
{
	const struct window *w = &site->window;
	const taddr_t at = (w->hole_length ? w->hole : w->start) + site->module->bias;
	uint8_t now[ARCH_INSN_MAX];
	const size_t size = target_read_some(stop_target(stop), at, now, sizeof(now));
	struct arch_insn insn;

	return !is_written(stop, site) && arch_decode(now, size, at, &insn) == ARCH_OK &&
	       (insn.flow == ARCH_FLOW_JUMP || insn.flow == ARCH_FLOW_BRANCH ||
		insn.flow == ARCH_FLOW_CALL) &&
	       place_at(f->session, insn.target);
}

static bool is_there(const struct target *t, const struct patch *p)
{
	uint8_t now[ARCH_PATCH_MAX];

	return target_read_some(t, p->address, now, p->length) == p->length &&
	       !memcmp(now, p->after, p->length);
}

/*
 * Where the module is not what is mapped, another one may be, whose bytes may be ours or the file's by
 * chance: only all of ours together are taken for ours, and few of them only where the near jump that they
 * lead to is there (the program may have copied its code), or where somebody has written, and not what
 * the file has.
 */
static bool is_of_another(const struct flush *f, struct stop *stop, const struct site *site,
			  unsigned which)
{
	const struct patch *p = &site->patches[which];
	const struct target *t = stop_target(stop);
	uint8_t file[ARCH_PATCH_MAX];
	const struct maps *maps;
	bool untouched;
	int pagemap;

	if (!is_there(t, p))
		return true;
	if (p->length >= JOURNAL_NO_CHANCE || (which && is_there(t, &site->patches[0])))
		return false;
	pagemap = maps_open_pagemap(target_memory_tid(t));
	untouched = maps_is_untouched(pagemap, p->address, p->length);
	if (pagemap >= 0)
		close(pagemap);
	if (!untouched && f->files && !stop_maps(stop, &maps, NULL) &&
	    patch_files_read(f->files, maps, p->address, file, p->length))
		return !memcmp(p->after, file, p->length);
	return untouched;
}

/* Restores patch number `which` (1: windows, 0: holes) in one process. */
static int restore_round(struct flush *f, struct stop *stop, unsigned which, struct dinst_error *e)
{
	const struct module *looked_at = NULL;
	bool shared = false;
	size_t count = 0;
	int status;

	for (size_t i = 0; i < f->restore_count; i++) {
		const struct site *site = f->restores[i];
		const struct patch *p;

		/* A window is restored also where its hole has to wait. */
		if ((!which && !f->restored[i]) || (site->patch_count == 1 && !which) ||
		    is_of_newer(f, stop, site))
			continue;
		if (site->module != looked_at) {
			looked_at = site->module;
			shared = shares_place(f->session, site->module);
		}
		if (shared && is_of_other_site(f, stop, site))
			continue;
		p = &site->patches[site->patch_count == 1 ? 0 : which];
		/* A part of it may be unmapped, and the rest not. */
		if (is_unloaded_in(stop, site, p->address) &&
		    is_of_another(f, stop, site, (unsigned)(p - site->patches)))
			continue;
		f->patches[count] = *p;
		f->patches[count].removal = true;
		memcpy(f->patches[count].before, p->after, p->length);
		memcpy(f->patches[count].after, p->before, p->length);
		f->patch_site[count++] = i;
	}
	if (!count)
		return 0;
	status = patch_apply(stop, f->patches, count, e);
	for (size_t i = 0; i < count; i++) {
		const struct patch *p = &f->patches[i];

		if (status >= 0 && p->outcome != PATCH_FAILED &&
		    ((p->outcome != PATCH_FOREIGN && p->outcome != PATCH_UNMAPPED) ||
		     is_unloaded_in(stop, f->restores[f->patch_site[i]], p->address)))
			continue;
		f->restored[f->patch_site[i]] = false;
		if (status >= 0 && p->outcome == PATCH_FOREIGN)
			f->others = p->address;
	}
	return status;
}

/* A process that was forked before the window was patched has never led there. */
static bool is_original(struct stop *stop, const struct site_move *m)
{
	const struct patch *p = &m->site->patches[0];
	uint8_t now[ARCH_PATCH_MAX];

	return target_read_some(stop_target(stop), p->address, now, p->length) == p->length &&
	       !memcmp(now, p->before, p->length);
}

/*
 * Leads windows to heads that have moved, in one process; before anything is
 * restored, so that there is one jump only to be known by. The bytes are those of one
 * jump, which a thread is in front of or not at all.
 */
static int repatch(struct flush *f, struct stop *stop, struct dinst_error *e)
{
	bool stays;
	int status;

	if (!f->move_count)
		return 0;
	for (size_t i = 0; i < f->move_count; i++)
		f->patches[i] = f->moves[i]->patch;
	status = place_check(f->session, e);
	stays = status < 0;
	if (!stays)
		status = patch_apply(stop, f->patches, f->move_count, e);
	/* There is no memory for it, or nowhere to lead to. What moves may stay where it is. */
	stays = stays || status == DINST_REFUSED;
	for (size_t i = 0; i < f->move_count && stays; i++)
		f->moves[i]->failed = true;
	if (stays) {
		dinst_error_clear(e);
		return 0;
	}
	for (size_t i = 0; i < f->move_count && status >= 0; i++) {
		struct site_move *m = f->moves[i];
		const struct patch *p = &f->patches[i];

		if (p->outcome == PATCH_FAILED ||
		    ((p->outcome == PATCH_FOREIGN || p->outcome == PATCH_UNMAPPED) &&
		     !is_original(stop, m) && !is_unloaded_in(stop, m->site, p->address)))
			m->failed = true;
	}
	return status;
}

static int copy_stacks(struct flush *f, struct stop *stop, struct dinst_error *e)
{
	struct target *t = stop_target(stop);
	int status;

	target_spend_parks(t, f->searched);
	status = parks_snapshot(f->session, stop, &f->shots[f->shot_count], e);
	target_spend_parks(t, 0);
	if (status >= 0)
		f->searched += snapshot_searched(f->shots[f->shot_count]);
	return status;
}

int restore_and_copy(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct flush *f = arg;
	struct snapshot **shots =
		realloc(f->shots, (f->shot_count + 1) * sizeof(struct snapshot *));
	int status = 0;

	if (!shots)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	f->shots = shots;
	place_check_threads(f->session, stop);
	/* What is switched off must be so in a private arena, too, before anything is freed. */
	if (stop_target(stop) == f->session->target)
		status = place_sync(stop, f->session, e);
	if (status >= 0)
		status = stop_clear_descriptors(stop, is_left, f->session, e);
	if (status >= 0)
		status = leave_holes(f, stop, e);
	if (status >= 0)
		status = copy_stacks(f, stop, e);
	if (status < 0)
		return status;
	if (!f->late)
		f->late = late_calls_last(f->session, stop);
	keep_holes_in_use(f, f->shots[f->shot_count++]);
	status = repatch(f, stop, e);
	if (status >= 0)
		status = restore_round(f, stop, 1, e);
	if (status >= 0)
		status = restore_round(f, stop, 0, e);
	threads_tidy(f->session, stop);
	return status;
}
