/* SPDX-License-Identifier: MIT */
/*
 * leftovers_arena.c - taking one arena that a dead mutator left out of a process.
 *
 * The journal in the arena says what may have been patched; the target's bytes
 * say what is. What is ours becomes the original, what is neither ours nor the
 * original is left alone, and the arena goes when no thread can be in it: in it
 * or, where arenas lead into each other, in any of the process.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inject/maps.h"
#include "inject/remote.h"
#include "mutator/leftovers.h"

struct one_arena {
	const struct arena_found *found;
	const struct process *process;
	bool stays;	       /* only restored */
	struct patch *patches; /* from ours to the original; later ones first */
	size_t count;
	size_t shorts;	  /* the first ones: short jumps */
	size_t holes;	  /* behind them: where those lead to */
	struct place_of { /* of all patches, by address */
		taddr_t address;
		size_t index;
	} * order;
	struct stack_range *ranges; /* of the holes */
	size_t range_count;
	struct guest
		*guests; /* of other arenas, which may lie in the tails of this one's windows */
	size_t guest_count;
	struct stack_range *hosted; /* of those that are there: they wait for their arenas' turn */
	size_t hosted_count;
	taddr_t *pages;		   /* where the patches are, whose copies are given back */
	struct patch_files *files; /* that are mapped there */
	size_t foreign;		   /* what is not the original, and stays */
	taddr_t others;		   /* where somebody else has written such; 0: nowhere */
	bool late;		   /* a thread is in a call of ours: where it goes on nobody sees */
	bool held;		   /* a thread may come back to a hole, or is late */
	bool unsearched;	   /* or nobody can tell: snapshot_is_unsearched() */
	bool never_searched;	   /* nor the next time */
	struct snapshot *shot;	   /* taken in the last stop, for a closer look */
	bool left;		   /* no thread is in it, and none can come in */
	bool unmapped;
};

static uint64_t now_us(void)
{
	return clock_ns() / 1000;
}

static int by_address(const void *x, const void *y)
{
	taddr_t a = ((const struct place_of *)x)->address,
		b = ((const struct place_of *)y)->address;

	return a < b ? -1 : a > b;
}

static int by_lo(const void *x, const void *y)
{
	taddr_t a = ((const struct stack_range *)x)->lo, b = ((const struct stack_range *)y)->lo;

	return a < b ? -1 : a > b;
}

/* Sets `order`, which is what finds a patch by its address. */
static void sort_patches(struct one_arena *a)
{
	for (size_t i = 0; i < a->count; i++)
		a->order[i] = (struct place_of){.address = a->patches[i].address, .index = i};
	qsort(a->order, a->count, sizeof(*a->order), by_address);
}

/*
 * The first of the patches at an address, NULL if there is none. A window that was
 * about to be led elsewhere has two entries; next_at() gives the other.
 */
static const struct place_of *patch_at(const struct one_arena *a, taddr_t address)
{
	const struct place_of key = {.address = address};
	const struct place_of *at = bsearch(&key, a->order, a->count, sizeof(key), by_address);

	while (at && at > a->order && at[-1].address == address)
		at--;
	return at;
}

static const struct place_of *next_at(const struct one_arena *a, const struct place_of *at)
{
	return at + 1 < a->order + a->count && at[1].address == at->address ? at + 1 : NULL;
}

static bool jump_of(const struct target *t, const struct patch *p, struct arch_insn *insn)
{
	return leftovers_jump_of(t, p->address, p->before, p->length, insn);
}

static taddr_t hole_of(const struct target *t, const struct patch *p)
{
	return leftovers_hole_of(t, p->address, p->before, p->length);
}

enum { IS_SHORT, IS_HOLE, IS_OTHER };

/*
 * Puts short jumps first, then the holes that they lead to, then all others: a
 * window must not lead to what has gone, not even for the time between two
 * writes, and a hole may lie in the tail of another window. Slots of the journal
 * are used again, so their order says nothing.
 */
static int holes_in_order(const struct target *t, struct one_arena *a, struct dinst_error *e)
{
	uint8_t *class = calloc(a->count + 1, sizeof(*class));
	struct patch *sorted = calloc(a->count + 1, sizeof(*sorted));
	size_t used = 0;

	if (!class || !sorted) {
		free(class);
		free(sorted);
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	}
	sort_patches(a);
	memset(class, IS_OTHER, a->count);
	for (size_t i = 0; i < a->count; i++) {
		taddr_t hole = hole_of(t, &a->patches[i]);
		const struct place_of *at = hole ? patch_at(a, hole) : NULL;

		if (hole)
			class[i] = IS_SHORT;
		for (; at; at = next_at(a, at))
			class[at->index] = IS_HOLE;
	}
	for (int round = IS_SHORT; round <= IS_OTHER; round++) {
		for (size_t i = 0; i < a->count; i++)
			if (class[i] == round)
				sorted[used++] = a->patches[i];
		if (round == IS_SHORT)
			a->shorts = used;
		else if (round == IS_HOLE)
			a->holes = used - a->shorts;
	}
	free(class);
	free(a->patches);
	a->patches = sorted;
	sort_patches(a);
	return 0;
}

static int find_guests(struct one_arena *a, struct dinst_error *e)
{
	const size_t own = (size_t)(a->found - a->process->found);
	struct guest *guests = NULL;
	size_t count = 0;

	if (leftovers_guests_of(a->process, own, a->patches, a->count, &guests, &count))
		a->hosted = calloc(count + 1, sizeof(*a->hosted));
	a->guests = guests;
	a->guest_count = count;
	return a->hosted ? 0 : dinst_fail(e, DINST_NO_MEMORY, "out of memory");
}

static int read_patches(const struct target *t, struct one_arena *a, uint64_t deadline,
			struct dinst_error *e)
{
	struct journal_entry *entries = NULL;
	size_t count = 0, near_count;
	int status = 0, pagemap;
	taddr_t *near;

	if (a->found->header_valid)
		status = journal_read(t, a->found, &entries, &count, e);
	if (status < 0)
		return status;
	if (count) {
		leftovers_drop_twins(t, entries, &count);
		leftovers_drop_clean(t, entries, &count);
		leftovers_ask_others(a->process, (size_t)(a->found - a->process->found), deadline,
				     entries, count);
	}
	a->patches = calloc(count + 1, sizeof(*a->patches));
	a->order = calloc(count + 1, sizeof(*a->order));
	a->pages = calloc(count + 1, sizeof(*a->pages));
	a->ranges = calloc(count + 1, sizeof(*a->ranges));
	near_count = count;
	near = leftovers_near(t, entries, &near_count);
	if (!a->patches || !a->order || !a->ranges || !a->pages || !near) {
		free(entries);
		free(near);
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	}
	pagemap = maps_open_pagemap(target_memory_tid(t));
	for (size_t i = 0; i < count; i++) {
		const struct journal_entry *j = &entries[i];
		struct patch *p = &a->patches[a->count];

		if (leftovers_is_chance(t, pagemap, j) && !leftovers_is_led(t, j, near, near_count))
			continue;
		a->pages[a->count++] = j->address;
		p->address = j->address;
		p->length = j->length;
		p->removal = true;
		memcpy(p->before, j->patched, j->length);
		memcpy(p->after, j->original, j->length);
	}
	if (pagemap >= 0)
		close(pagemap);
	a->files = patch_files_open(t, a->pages, a->count);
	free(near);
	free(entries);
	return find_guests(a, e) ? DINST_NO_MEMORY : holes_in_order(t, a, e);
}

/* Where in the arena the patch's bytes lead, if they are there and are a jump; else 0. */
static taddr_t leads_to(const struct one_arena *a, struct stop *stop, const struct patch *p)
{
	uint8_t now[ARCH_PATCH_MAX];
	struct arch_insn insn;

	if (target_read_some(stop_target(stop), p->address, now, p->length) != p->length ||
	    memcmp(now, p->before, p->length) != 0 || !jump_of(stop_target(stop), p, &insn) ||
	    insn.target < a->found->code || insn.target >= a->found->code + a->found->code_size)
		return 0;
	return insn.target;
}

/*
 * A thread that is about to execute one of our jumps goes where it leads: where
 * the jump lies in a hole, the padding that comes back is no code to run into.
 * One in a system call is not: the call may be made anew, from before the pc.
 */
static int follow_jumps(const struct one_arena *a, struct stop *stop, struct dinst_error *e)
{
	bool moved = false;

	for (size_t i = 0; i < stop_thread_count(stop); i++) {
		struct stop_thread *t = stop_thread(stop, i);
		const struct place_of *at = patch_at(a, arch_pc(&t->regs));
		taddr_t to = 0;

		if (t->kernel_worker || arch_in_syscall(&t->regs))
			continue;
		for (; at && !to; at = next_at(a, at))
			to = leads_to(a, stop, &a->patches[at->index]);
		if (!to)
			continue;
		arch_set_pc(&t->regs, to);
		t->changed = true;
		moved = true;
	}
	return moved ? stop_store_regs(stop, e) : 0;
}

static struct stack_range *range_of(const struct one_arena *a, taddr_t hole)
{
	const struct stack_range key = {.lo = hole};

	return bsearch(&key, a->ranges, a->range_count, sizeof(key), by_lo);
}

/* Holes that stay, and those that windows lead to which stay. */
static void hold_unsure(struct one_arena *a, const struct target *t)
{
	for (size_t i = 0; i < a->shorts + a->holes; i++) {
		const struct patch *p = &a->patches[i];
		struct stack_range *r;

		if (!leftovers_is_unsure(p))
			continue;
		r = range_of(a, i < a->shorts ? hole_of(t, p) : p->address);
		if (r)
			r->hit = a->held = true;
	}
}

/* Sets a->hosted. What is nobody's hole any more is in nobody's way. */
static void find_hosted(struct one_arena *a, const struct target *t)
{
	a->hosted_count = 0;
	for (size_t i = 0; i < a->guest_count; i++)
		if (leftovers_is_guest_there(t, &a->guests[i]))
			a->hosted[a->hosted_count++] =
				(struct stack_range){.lo = a->guests[i].address,
						     .hi = a->guests[i].address + 1,
						     .hit = true};
}

/* Sets hits of a->ranges for the holes that a signal frame leads to, and `held` if there are any. */
static int find_held(struct one_arena *a, struct stop *stop, struct dinst_error *e)
{
	const struct patch *holes = &a->patches[a->shorts];
	struct snapshot *shot;
	int status;

	a->held = a->late;
	if (!a->holes)
		return 0;
	for (size_t i = 0; i < a->holes; i++)
		a->ranges[i] = (struct stack_range){
			.lo = holes[i].address, .hi = holes[i].address + 1, .hit = a->late};
	qsort(a->ranges, a->holes, sizeof(*a->ranges), by_lo);
	/* A hole may have two entries. */
	a->range_count = 1;
	for (size_t i = 1; i < a->holes; i++)
		if (a->ranges[i].lo != a->ranges[a->range_count - 1].lo)
			a->ranges[a->range_count++] = a->ranges[i];
	if (a->late)
		return 0;
	status = snapshot_take(stop, &shot, e);
	if (status < 0)
		return status;
	a->held = snapshot_scan_stacks(shot, a->ranges, a->range_count) != 0;
	a->unsearched |= a->held && snapshot_is_unsearched(shot);
	a->never_searched |= a->held && snapshot_is_never_searched(shot);
	snapshot_free(shot);
	hold_unsure(a, stop_target(stop));
	return 0;
}

static bool is_held(const struct one_arena *a, const struct patch *p)
{
	const struct stack_range *r = range_of(a, p->address);

	return r && r->hit;
}

/* True if a hole that stays, or another arena's, may lie in the tail of the window whose first bytes these are. */
static bool may_hold(const struct one_arena *a, const struct patch *p)
{
	return leftovers_may_hold(a->ranges, a->range_count, p->address) ||
	       leftovers_may_hold(a->hosted, a->hosted_count, p->address);
}

/*
 * Applies those patches from number `first` on that are wanted, in their order. What
 * follows on each other goes together: an enemy's journal may have a million of them.
 */
static int apply_wanted(struct one_arena *a, struct stop *stop, size_t first,
			bool (*is_wanted)(const struct one_arena *a, const struct patch *p),
			struct dinst_error *e)
{
	size_t end;
	int status = 0;

	for (size_t i = first; i < a->count && status >= 0; i = end) {
		for (end = i; end < a->count && is_wanted(a, &a->patches[end]);)
			end++;
		if (end > i)
			status = patch_apply(stop, &a->patches[i], end - i, e);
		else
			end++;
	}
	return status;
}

static bool may_go(const struct one_arena *a, const struct patch *p)
{
	return p < a->patches + a->shorts + a->holes ? !is_held(a, p) : !may_hold(a, p);
}

static bool is_foreign(const struct one_arena *a, const struct patch *p)
{
	(void)a;
	return p->outcome == PATCH_FOREIGN;
}

/* Short jumps first, then the holes that nobody comes back to, then what they may lie in. */
static int restore(struct one_arena *a, struct stop *stop, struct dinst_error *e)
{
	int status = find_held(a, stop, e);

	find_hosted(a, stop_target(stop));
	if (status >= 0 && !a->held && !a->hosted_count)
		return a->count ? patch_apply(stop, a->patches, a->count, e) : 0;
	if (status >= 0 && a->shorts)
		status = patch_apply(stop, a->patches, a->shorts, e);
	for (size_t i = a->shorts; i < a->count; i++)
		a->patches[i].outcome = PATCH_ALREADY;
	return status < 0 ? status : apply_wanted(a, stop, a->shorts, may_go, e);
}

/*
 * One place may have two entries: of a trampoline that was being left, and of
 * the one that came after it. Whose bytes were not there finds the original
 * once the other one has been taken out.
 */
static int restore_twice(struct one_arena *a, struct stop *stop, struct dinst_error *e)
{
	int status = restore(a, stop, e);

	return status < 0 ? status : apply_wanted(a, stop, 0, is_foreign, e);
}

/*
 * Where code ever was. The halves are much larger: of the numbers below 2 GiB that a stack may hold one
 * in ten would look like an address.
 */
static struct stack_range code_of(const struct arena_found *found)
{
	return (struct stack_range){.lo = found->code + found->code_floor,
				    .hi = found->code + found->code_size};
}

/* The code that nobody may be in when the arena goes. Returns how many ranges. */
static size_t code_ranges(const struct one_arena *a, struct stack_range *ranges)
{
	const struct process *p = a->process;
	size_t count = 0;

	if (!p->linked) {
		ranges[0] = code_of(a->found);
		return 1;
	}
	for (size_t i = 0; i < p->count; i++)
		if (!p->found[i].strange)
			ranges[count++] = code_of(&p->found[i]);
	qsort(ranges, count, sizeof(*ranges), by_lo);
	return count;
}

/*
 * Restores the windows. The arena goes at once if nothing on any stack looks
 * like an address in it; else a copy of the stacks stays for a closer look
 * while the target runs, and a later stop unmaps: nobody can come in any more.
 * But a thread that makes a call of a dead mutator's, or one of ours that was
 * given up, may have been interrupted in the arena, and no stack tells.
 */
static int take_out(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct one_arena *a = arg;
	struct stack_range code[ARENAS_MOST];
	struct dinst_error ignored = {0};
	struct remote_tails tails;
	const struct maps *maps;
	int status = stop_maps(stop, &maps, e);

	if (status >= 0 && leftovers_are_replaced(maps, a->found)) {
		a->count = 0;
		a->unmapped = true;
		return 0;
	}
	if (status >= 0)
		status = remote_clean_tails(stop, &tails, e);
	if (status < 0)
		return status;
	a->late = tails.inside != 0;
	status = follow_jumps(a, stop, e);
	if (status >= 0)
		status = restore_twice(a, stop, e);
	if (status < 0)
		return status;
	a->foreign = leftovers_count_foreign(stop_target(stop), a->patches, a->count, &a->others);
	if (a->foreign || a->held || a->hosted_count || a->stays)
		return 0;
	if (!a->left) {
		status = snapshot_take(stop, &a->shot, e);
		if (status < 0 || snapshot_scan(a->shot, code, code_ranges(a, code)))
			return status;
	}
	/* Memory only: the bytes are right. But who does not come back from it still needs us. */
	if (patch_drop_private_pages(stop, a->pages, a->count, a->files, 0, NULL, &ignored) < 0 &&
	    target_left_program(stop_target(stop)))
		return dinst_fail(e, ignored.code, "%s", ignored.text);
	status = arena_unmap_found(stop, a->found, e);
	a->unmapped = status >= 0;
	return status;
}

/* True if no frame of any thread is in the arena; what only looks like an address does not count. */
static bool nobody_inside(struct one_arena *a)
{
	struct stack_range code[ARENAS_MOST];

	return a->shot && !snapshot_walk(a->shot, NULL, NULL, code, code_ranges(a, code));
}

/* Stops until the arena has gone, or its windows where it stays, or cannot. Its patches are read. */
static int take_out_in_stops(struct one_arena *a, bool *restored, uint64_t deadline,
			     struct leftovers *result, struct dinst_error *e)
{
	int status;

	for (unsigned pause = PAUSE_MIN_US;;
	     pause = 2 * pause < PAUSE_MAX_US ? 2 * pause : PAUSE_MAX_US) {
		struct stop_report report = {0};

		dinst_error_clear(e);
		status = target_stop(a->process->target, NULL, take_out, a, &report, e);
		if (report.stop_ns > result->stop_ns)
			result->stop_ns = report.stop_ns;
		for (size_t i = 0; i < a->count; i++)
			restored[i] = restored[i] || a->patches[i].outcome == PATCH_DONE;
		if (status >= 0 && !a->unmapped && !a->foreign && !a->held && !a->hosted_count)
			a->left = a->left || nobody_inside(a);
		a->unsearched |= a->shot && snapshot_is_unsearched(a->shot);
		a->never_searched |= a->shot && snapshot_is_never_searched(a->shot);
		result->unsearched += !a->unmapped && a->unsearched;
		snapshot_free(a->shot);
		a->shot = NULL;
		if (a->unmapped || a->foreign || now_us() >= deadline)
			break;
		/* Another arena's jump is not waited for here, nor that there is less to be searched. */
		if (status >= 0 &&
		    (a->never_searched || ((a->stays || a->hosted_count) && !a->held)))
			break;
		/* A thread is in a trampoline: it is out of it in a moment. */
		if (status < 0 && status != DINST_BUSY)
			break;
		if (!a->left)
			usleep(pause);
	}
	return status;
}

int leftovers_take_out(struct process *p, size_t n, bool stays, uint64_t deadline,
		       struct leftovers *result, struct dinst_error *e)
{
	struct one_arena a = {
		.found = &p->found[n], .process = p, .stays = stays || (p->linked && p->blocked)};
	bool *restored = NULL;
	int status;

	if (p->found[n].strange) {
		/* What leads there cannot be told: it is left to the dinst that made it. */
		result->arenas_left += !stays;
		return 0;
	}
	status = read_patches(p->target, &a, deadline, e);
	if (status >= 0) {
		restored = calloc(a.count + 1, sizeof(*restored));
		status = restored ? take_out_in_stops(&a, restored, deadline, result, e)
				  : dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	} else if (leftovers_have_gone(p->target, a.found)) {
		dinst_error_clear(e);
		a.unmapped = true;
		status = 0;
	}
	for (size_t i = 0; restored && i < a.count; i++)
		result->restored += restored[i];
	p->late = p->late || a.late;
	if (a.others && !a.unmapped)
		result->others = a.others;
	if (stays) {
		p->blocked = p->blocked || status < 0 || a.foreign || a.held || a.hosted_count;
	} else {
		result->patches += a.count;
		result->arenas_left += !a.unmapped;
	}
	free(restored);
	free(a.hosted);
	free(a.guests);
	free(a.ranges);
	free(a.order);
	free(a.pages);
	patch_files_close(a.files);
	free(a.patches);
	return status == DINST_BUSY ? 0 : status;
}
