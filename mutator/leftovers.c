/* SPDX-License-Identifier: MIT */
/*
 * leftovers.c - taking out what a mutator that died left in a target.
 *
 * The journal in the arena says what may have been patched; the target's bytes
 * say what is. What is ours becomes the original, what is neither ours nor the
 * original is left alone, and the arena goes when no thread can be in it.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "inject/remote.h"
#include "mutator/core.h"

enum { FOUND_MAX = 32, PAUSE_MIN_US = 500, PAUSE_MAX_US = 50 * 1000 };

struct one_arena {
	const struct arena_found *found;
	struct patch *patches; /* from ours to the original; later ones first */
	size_t count;
	size_t foreign;
	bool unmapped;
};

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
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
	if (!a->patches) {
		free(entries);
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	}
	a->count = count;
	for (size_t i = 0; i < count; i++) {
		/* A window was written down after the hole that it leads to: it goes first. */
		const struct journal_entry *j = &entries[count - 1 - i];
		struct patch *p = &a->patches[i];

		p->address = j->address;
		p->length = j->length;
		memcpy(p->before, j->patched, j->length);
		memcpy(p->after, j->original, j->length);
	}
	free(entries);
	return 0;
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

		for (size_t k = 0; k < a->count && !t->kernel_worker; k++) {
			uint8_t now[ARCH_PATCH_MAX];
			struct arch_insn insn;
			const struct patch *p = &a->patches[k];

			if (p->address != pc ||
			    target_read_some(stop_target(stop), pc, now, p->length) != p->length ||
			    memcmp(now, p->before, p->length) != 0 ||
			    arch_decode(now, p->length, pc, &insn) != ARCH_OK ||
			    insn.flow != ARCH_FLOW_JUMP || insn.target < a->found->code ||
			    insn.target >= a->found->code + a->found->code_size)
				continue;
			arch_set_pc(&t->regs, insn.target);
			t->changed = true;
			moved = true;
		}
	}
	return moved ? stop_store_regs(stop, e) : 0;
}

static int take_out(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct one_arena *a = arg;
	struct stack_range code = { .lo = a->found->code,
				    .hi = a->found->code + a->found->code_size };
	struct snapshot *shot;
	size_t cleaned;
	int status = follow_jumps(a, stop, e);

	if (status >= 0 && a->count)
		status = patch_apply(stop, a->patches, a->count, e);
	if (status >= 0)
		status = remote_clean_tails(stop, &cleaned, e);
	if (status >= 0)
		status = snapshot_take(stop, &shot, e);
	if (status < 0)
		return status;
	a->foreign = 0;
	for (size_t i = 0; i < a->count; i++)
		a->foreign += a->patches[i].outcome == PATCH_FOREIGN ||
			      a->patches[i].outcome == PATCH_FAILED;
	snapshot_scan(shot, &code, 1);
	snapshot_free(shot);
	if (a->foreign || code.hit)
		return 0;
	status = arena_unmap_found(stop, a->found, e);
	a->unmapped = status >= 0;
	return status;
}

static int clean_one(struct target *t, const struct arena_found *found, uint64_t deadline,
		     struct leftovers *result, struct dinst_error *e)
{
	struct one_arena a = { .found = found };
	unsigned pause = PAUSE_MIN_US;
	bool *restored = NULL;
	int status = read_patches(t, &a, e);

	if (status >= 0)
		restored = calloc(a.count + 1, sizeof(*restored));
	if (status >= 0 && !restored)
		status = dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	result->patches += a.count;
	while (status >= 0) {
		struct stop_report report = { 0 };

		dinst_error_clear(e);
		status = target_stop(t, NULL, take_out, &a, &report, e);
		if (report.stop_ns > result->stop_ns)
			result->stop_ns = report.stop_ns;
		for (size_t i = 0; i < a.count; i++)
			restored[i] = restored[i] || a.patches[i].outcome == PATCH_DONE;
		if (a.unmapped || a.foreign || now_us() >= deadline)
			break;
		/* A thread is in a trampoline: it is out of it in a moment. */
		if (status == DINST_BUSY)
			status = 0;
		usleep(pause);
		pause = pause * 2 > PAUSE_MAX_US ? PAUSE_MAX_US : pause * 2;
	}
	for (size_t i = 0; restored && i < a.count; i++)
		result->restored += restored[i];
	result->arenas_left += !a.unmapped;
	free(restored);
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
		struct stop_report report = { 0 };
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

int leftovers_clean(struct target *t, unsigned milliseconds, struct leftovers *result,
		    struct dinst_error *e)
{
	uint64_t deadline = now_us() + (uint64_t)milliseconds * 1000;
	struct arena_found found[FOUND_MAX];
	int status, count = 0;

	*result = (struct leftovers){ 0 };
	status = wait_for_programs(t, deadline, result, e);
	if (status >= 0)
		status = count = arena_find(t, found, FOUND_MAX, e);
	for (int i = 0; status >= 0 && i < count; i++) {
		result->arenas++;
		status = clean_one(t, &found[i], deadline, result, e);
	}
	return status < 0 ? status : 0;
}
