/* SPDX-License-Identifier: MIT */
/*
 * leftovers.c - taking out what a mutator that died left in a target.
 *
 * The journal in the arena says what may have been patched; the target's bytes
 * say what is. What is ours becomes the original, what is neither ours nor the
 * original is left alone, and the arena goes when no thread can be in it. The
 * same is done for the processes that were forked with it. An arena that a
 * living mutator has mapped is its own, and not touched.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inject/remote.h"
#include "mutator/owners.h"

enum { FOUND_MAX = 32, PAUSE_MIN_US = 500, PAUSE_MAX_US = 50 * 1000 };

struct one_arena {
	const struct arena_found *found;
	struct patch *patches; /* from ours to the original; later ones first */
	size_t count;
	size_t shorts;	  /* the first ones: short jumps */
	size_t holes;	  /* behind them: where those lead to */
	struct place_of { /* of all patches, by address */
		taddr_t address;
		size_t index;
	} * order;
	struct stack_range *ranges; /* of the holes */
	size_t foreign;
	bool held;	       /* a thread may come back to a hole */
	struct snapshot *shot; /* taken in the last stop, for a closer look */
	bool left;	       /* no thread is in it, and none can come in */
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

static const struct place_of *patch_at(const struct one_arena *a, taddr_t address)
{
	const struct place_of key = {.address = address};

	return bsearch(&key, a->order, a->count, sizeof(key), by_address);
}

/* Where the patch made a short jump lead, or 0. */
static taddr_t hole_of(const struct patch *p)
{
	struct arch_insn insn;

	if (arch_decode(p->before, p->length, p->address, &insn) != ARCH_OK ||
	    insn.flow != ARCH_FLOW_JUMP || insn.length != arch_short_jump_size)
		return 0;
	return insn.target;
}

enum { IS_SHORT, IS_HOLE, IS_OTHER };

/*
 * Puts short jumps first, then the holes that they lead to, then all others: a
 * window must not lead to what has gone, not even for the time between two
 * writes, and a hole may lie in the tail of another window. Slots of the journal
 * are used again, so their order says nothing.
 */
static int holes_in_order(struct one_arena *a, struct dinst_error *e)
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
		taddr_t hole = hole_of(&a->patches[i]);
		const struct place_of *at = hole ? patch_at(a, hole) : NULL;

		if (hole)
			class[i] = IS_SHORT;
		if (at)
			class[at->index] = IS_HOLE;
	}
	for (uint8_t round = IS_SHORT; round <= IS_OTHER; round++) {
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

static int read_patches(const struct target *t, struct one_arena *a, struct dinst_error *e)
{
	struct journal_entry *entries = NULL;
	size_t count = 0;
	int status = 0;

	if (a->found->header_valid)
		status = journal_read(t, a->found, &entries, &count, e);
	if (status < 0)
		return status;
	a->patches = calloc(count + 1, sizeof(*a->patches));
	a->order = calloc(count + 1, sizeof(*a->order));
	a->ranges = calloc(count + 1, sizeof(*a->ranges));
	if (!a->patches || !a->order || !a->ranges) {
		free(entries);
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	}
	a->count = count;
	for (size_t i = 0; i < count; i++) {
		const struct journal_entry *j = &entries[i];
		struct patch *p = &a->patches[i];

		p->address = j->address;
		p->length = j->length;
		memcpy(p->before, j->patched, j->length);
		memcpy(p->after, j->original, j->length);
	}
	free(entries);
	return holes_in_order(a, e);
}

/*
 * A thread that is about to execute one of our jumps goes where it leads: where
 * the jump lies in a hole, the padding that comes back is no code to run into.
 */
static int follow_jumps(const struct one_arena *a, struct stop *stop, struct dinst_error *e)
{
	bool moved = false;

	for (size_t i = 0; i < stop_thread_count(stop); i++) {
		struct stop_thread *t = stop_thread(stop, i);
		taddr_t pc = arch_pc(&t->regs);
		const struct place_of *at = patch_at(a, pc);
		uint8_t now[ARCH_PATCH_MAX];
		struct arch_insn insn;
		const struct patch *p;

		if (t->kernel_worker || !at)
			continue;
		p = &a->patches[at->index];
		if (target_read_some(stop_target(stop), pc, now, p->length) != p->length ||
		    memcmp(now, p->before, p->length) != 0 ||
		    arch_decode(now, p->length, pc, &insn) != ARCH_OK ||
		    insn.flow != ARCH_FLOW_JUMP || insn.target < a->found->code ||
		    insn.target >= a->found->code + a->found->code_size)
			continue;
		arch_set_pc(&t->regs, insn.target);
		t->changed = true;
		moved = true;
	}
	return moved ? stop_store_regs(stop, e) : 0;
}

/* Sets hits of a->ranges for the holes that a signal frame leads to, and `held` if there are any. */
static int find_held(struct one_arena *a, struct stop *stop, struct dinst_error *e)
{
	const struct patch *holes = &a->patches[a->shorts];
	struct snapshot *shot;
	int status;

	a->held = false;
	if (!a->holes)
		return 0;
	status = snapshot_take(stop, &shot, e);
	if (status < 0)
		return status;
	for (size_t i = 0; i < a->holes; i++)
		a->ranges[i] =
			(struct stack_range){.lo = holes[i].address, .hi = holes[i].address + 1};
	qsort(a->ranges, a->holes, sizeof(*a->ranges), by_lo);
	a->held = snapshot_scan_stacks(shot, a->ranges, a->holes) != 0;
	snapshot_free(shot);
	return 0;
}

static bool is_held(const struct one_arena *a, const struct patch *p)
{
	const struct stack_range key = {.lo = p->address};
	const struct stack_range *r = bsearch(&key, a->ranges, a->holes, sizeof(key), by_lo);

	return r && r->hit;
}

/* True if a hole that stays may lie in the tail of the window whose first bytes these are. */
static bool may_hold(const struct one_arena *a, const struct patch *p)
{
	for (size_t i = 0; a->held && i < a->holes; i++)
		if (a->ranges[i].hit && a->ranges[i].lo > p->address &&
		    a->ranges[i].lo - p->address < WINDOW_BYTES_MAX)
			return true;
	return false;
}

/* Short jumps first, then the holes that nobody comes back to, then what they may lie in. */
static int restore(struct one_arena *a, struct stop *stop, struct dinst_error *e)
{
	size_t others = a->shorts + a->holes;
	int status = find_held(a, stop, e);

	if (status >= 0 && !a->held)
		return a->count ? patch_apply(stop, a->patches, a->count, e) : 0;
	if (status >= 0 && a->shorts)
		status = patch_apply(stop, a->patches, a->shorts, e);
	for (size_t i = a->shorts; status >= 0 && i < a->count; i++) {
		a->patches[i].outcome = PATCH_ALREADY;
		if (i < others ? !is_held(a, &a->patches[i]) : !may_hold(a, &a->patches[i]))
			status = patch_apply(stop, &a->patches[i], 1, e);
	}
	return status;
}

/*
 * One place may have two entries: of a trampoline that was being left, and of
 * the one that came after it. Whose bytes were not there finds the original
 * once the other one has been taken out.
 */
static int restore_twice(struct one_arena *a, struct stop *stop, struct dinst_error *e)
{
	int status = restore(a, stop, e);

	for (size_t i = 0; i < a->count && status >= 0; i++)
		if (a->patches[i].outcome == PATCH_FOREIGN)
			status = patch_apply(stop, &a->patches[i], 1, e);
	return status;
}

/*
 * Restores the windows. The arena goes at once if nothing on any stack looks
 * like an address in it; else a copy of the stacks stays for a closer look
 * while the target runs, and a later stop unmaps: nobody can come in any more.
 */
static int take_out(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct one_arena *a = arg;
	struct stack_range code = {.lo = a->found->code,
				   .hi = a->found->code + a->found->code_size};
	size_t cleaned;
	int status = follow_jumps(a, stop, e);

	if (status >= 0)
		status = restore_twice(a, stop, e);
	if (status >= 0)
		status = remote_clean_tails(stop, &cleaned, e);
	if (status < 0)
		return status;
	a->foreign = 0;
	for (size_t i = 0; i < a->count; i++)
		a->foreign += a->patches[i].outcome == PATCH_FOREIGN ||
			      a->patches[i].outcome == PATCH_FAILED;
	if (a->foreign || a->held)
		return 0;
	if (!a->left) {
		status = snapshot_take(stop, &a->shot, e);
		if (status < 0 || snapshot_scan(a->shot, &code, 1))
			return status;
	}
	status = arena_unmap_found(stop, a->found, e);
	a->unmapped = status >= 0;
	return status;
}

/* True if no frame of any thread is in the arena; what only looks like an address does not count. */
static bool nobody_inside(struct one_arena *a)
{
	struct stack_range code = {.lo = a->found->code,
				   .hi = a->found->code + a->found->code_size};

	return a->shot && !snapshot_walk(a->shot, NULL, NULL, &code, 1);
}

static int clean_one(struct target *t, const struct arena_found *found, uint64_t deadline,
		     struct leftovers *result, struct dinst_error *e)
{
	struct one_arena a = {.found = found};
	unsigned pause = PAUSE_MIN_US;
	bool *restored = NULL;
	int status;

	if (found->strange) {
		/* What leads there cannot be told: it is left to the dinst that made it. */
		result->arenas_left++;
		return 0;
	}
	status = read_patches(t, &a, e);
	if (status >= 0)
		restored = calloc(a.count + 1, sizeof(*restored));
	if (status >= 0 && !restored)
		status = dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	result->patches += a.count;
	while (status >= 0) {
		struct stop_report report = {0};

		dinst_error_clear(e);
		status = target_stop(t, NULL, take_out, &a, &report, e);
		if (report.stop_ns > result->stop_ns)
			result->stop_ns = report.stop_ns;
		for (size_t i = 0; i < a.count; i++)
			restored[i] = restored[i] || a.patches[i].outcome == PATCH_DONE;
		if (status >= 0 && !a.unmapped && !a.foreign && !a.held)
			a.left = a.left || nobody_inside(&a);
		if (a.shot)
			snapshot_free(a.shot);
		a.shot = NULL;
		if (a.unmapped || a.foreign || now_us() >= deadline)
			break;
		/* A thread is in a trampoline: it is out of it in a moment. */
		if (status == DINST_BUSY)
			status = 0;
		if (!a.left)
			usleep(pause);
		pause = pause * 2 > PAUSE_MAX_US ? PAUSE_MAX_US : pause * 2;
	}
	for (size_t i = 0; restored && i < a.count; i++)
		result->restored += restored[i];
	result->arenas_left += !a.unmapped;
	free(restored);
	free(a.ranges);
	free(a.order);
	free(a.patches);
	return status == DINST_BUSY ? 0 : status;
}

static int clean_tails(struct stop *stop, void *arg, struct dinst_error *e)
{
	return remote_clean_tails(stop, arg, e);
}

/*
 * A thread that was running system calls for the dead mutator finishes them by
 * itself, later: an arena may appear, or go, after we looked. So the program is
 * waited for and wiped out first.
 */
static int wait_for_programs(struct target *t, uint64_t deadline, struct leftovers *result,
			     struct dinst_error *e)
{
	unsigned pause = PAUSE_MIN_US;
	int status = 0;

	while (remote_tails_dirty(t)) {
		struct stop_report report = {0};
		size_t cleaned;

		dinst_error_clear(e);
		status = target_stop(t, NULL, clean_tails, &cleaned, &report, e);
		if (report.stop_ns > result->stop_ns)
			result->stop_ns = report.stop_ns;
		if ((status < 0 && status != DINST_BUSY) || now_us() >= deadline)
			break;
		if (status < 0 || !cleaned)
			usleep(pause);
		pause = pause * 2 > PAUSE_MAX_US ? PAUSE_MAX_US : pause * 2;
	}
	return status;
}

/* ----------------------------------------------------------- descriptors */

/* The lowest descriptor of the target that is an arena's, -1 if none is. */
static int find_descriptor(pid_t pid)
{
	char path[64], link[64];
	struct dirent *entry;
	int lowest = -1;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		ssize_t size;
		int fd;

		if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
			continue;
		size = readlinkat(dirfd(dir), entry->d_name, link, sizeof(link) - 1);
		if (size <= 0)
			continue;
		link[size] = '\0';
		fd = (int)strtol(entry->d_name, NULL, 10);
		if (!strcmp(link, "/memfd:dinst (deleted)") && (lowest < 0 || fd < lowest))
			lowest = fd;
	}
	if (dir)
		closedir(dir);
	return lowest;
}

static int close_in_target(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct arch_remote_call call = {.number = SYS_close};
	struct arch_remote_program program = {.calls = &call, .count = 1};
	int fd = find_descriptor(target_pid(stop_target(stop)));
	long result;

	(void)arg;
	if (fd < 0)
		return 0;
	call.args[0] = (struct arch_remote_arg){.kind = ARCH_ARG_CONST, .value = (uint64_t)fd};
	return remote_run(stop, &program, 0, NULL, NULL, NULL, &result, e);
}

/*
 * Setting up an arena makes four system calls; a signal that comes in between
 * goes first, and a mutator that dies then leaves its descriptor open.
 */
static int close_descriptors(struct target *t, uint64_t deadline, struct leftovers *result,
			     struct dinst_error *e)
{
	int status = 0;

	while (status >= 0 && find_descriptor(target_pid(t)) >= 0) {
		struct stop_report report = {0};

		dinst_error_clear(e);
		status = target_stop(t, NULL, close_in_target, NULL, &report, e);
		if (report.stop_ns > result->stop_ns)
			result->stop_ns = report.stop_ns;
		if (now_us() >= deadline)
			break;
		if (status == DINST_BUSY) {
			usleep(PAUSE_MIN_US);
			status = 0;
		}
	}
	return status;
}

/* The same arena, out of a process that was forked with it. */
static int clean_sharer(pid_t pid, const struct arena_found *of, uint64_t deadline,
			struct leftovers *result, struct dinst_error *e)
{
	struct arena_found found[FOUND_MAX];
	size_t left = result->arenas_left;
	struct target *t;
	int status = target_open(pid, &t, e);
	int count;

	if (status == DINST_NO_PROCESS || status == DINST_GONE) {
		dinst_error_clear(e);
		return 0;
	}
	if (status < 0)
		return status;
	status = count = arena_find(t, found, FOUND_MAX, e);
	for (int i = 0; status >= 0 && i < count; i++)
		if (found[i].inode == of->inode && found[i].device == of->device)
			status = clean_one(t, &found[i], deadline, result, e);
	/* What has ended meanwhile, or executed another program, has nothing left in it. */
	if (!target_alive(t)) {
		dinst_error_clear(e);
		result->arenas_left = left;
		status = 0;
	}
	target_close(t);
	return status;
}

/*
 * Takes the arena out of everybody who has it, the target last: then those born
 * meanwhile are found in the next round.
 */
static int clean_family(struct target *t, const struct arena_found *found, uint64_t deadline,
			struct leftovers *result, struct dinst_error *e)
{
	struct owners o = {.found = found};
	size_t left;
	int status;

	do {
		left = result->arenas_left;
		status = find_owners(&o, target_pid(t), e);
		if (status >= 0 && o.mutator)
			status = dinst_fail(
				e, DINST_BUSY,
				"process %d is being instrumented by process %d%s%s; detach "
				"that session first",
				(int)target_pid(t), (int)o.mutator,
				found->session[0] ? ", session " : "", found->session);
		for (size_t i = 0; status >= 0 && i < o.count; i++)
			status = clean_sharer(o.sharers[i], found, deadline, result, e);
	} while (status >= 0 && o.count && result->arenas_left == left && now_us() < deadline);
	free(o.sharers);
	return status < 0 ? status : clean_one(t, found, deadline, result, e);
}

int leftovers_clean(struct target *t, unsigned milliseconds, struct leftovers *result,
		    struct dinst_error *e)
{
	uint64_t deadline = now_us() + (uint64_t)milliseconds * 1000;
	struct arena_found found[FOUND_MAX];
	int status, count = 0;

	*result = (struct leftovers){0};
	status = wait_for_programs(t, deadline, result, e);
	if (status >= 0)
		status = close_descriptors(t, deadline, result, e);
	if (status >= 0)
		status = count = arena_find(t, found, FOUND_MAX, e);
	for (int i = 0; status >= 0 && i < count; i++) {
		result->arenas++;
		status = clean_family(t, &found[i], deadline, result, e);
	}
	return status < 0 ? status : 0;
}
