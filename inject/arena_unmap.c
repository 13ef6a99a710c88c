/* SPDX-License-Identifier: MIT */
/*
 * arena_unmap.c - taking arenas out of a target, and finding them.
 *
 * Owns the checks that come before a munmap. Never unmaps a range that the
 * maps do not show to be ours.
 */
#include "inject/arena_unmap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "inject/maps.h"
#include "inject/proc_open.h"
#include "inject/remote.h"

/* ------------------------------------------------------------------ munmap */

int arena_munmap(struct stop *s, taddr_t code, size_t code_size, taddr_t data, size_t data_size,
		 struct dinst_error *e)
{
	struct arch_remote_program program = {0};
	struct arch_remote_call calls[2];
	long results[2] = {-ECANCELED, -ECANCELED};
	int result;

	memset(calls, 0, sizeof(calls));
	for (size_t i = 0; i < 2; i++) {
		taddr_t address = i ? data : code;
		struct arch_remote_call *call = &calls[program.count];

		if (!address)
			continue;
		call->number = SYS_munmap;
		call->args[0].value = address;
		call->args[1].value = i ? data_size : code_size;
		call->always = true;
		program.count++;
	}
	if (!program.count)
		return DINST_OK;
	program.calls = calls;
	result = remote_run(s, &program, 0, NULL, NULL, NULL, results, e);
	/* Who goes on without it leaves it. */
	if (result)
		target_note_left(stop_target(s));
	for (size_t i = 0; !result && i < program.count; i++)
		/* mseal(2). No filter has said so: who is under one that would makes no call of ours. */
		if (results[i] == -EPERM)
			target_note_sealed(stop_target(s));
		else if (results[i])
			result = dinst_fail_errno(e, DINST_FAILED, (int)-results[i],
						  "munmap of our %llu KiB at %#llx in the target",
						  (unsigned long long)calls[i].args[1].value >> 10,
						  (unsigned long long)calls[i].args[0].value);
	return result;
}

static bool is_inside(const struct stop_thread *thread, taddr_t descriptor, const void *arg)
{
	const taddr_t *range = arg;

	(void)thread;
	return descriptor >= range[0] && descriptor < range[1];
}

int arena_evict(struct stop *s, taddr_t lo, taddr_t hi, struct dinst_error *e)
{
	const taddr_t range[2] = {lo, hi};
	size_t count = stop_thread_count(s);

	for (size_t i = 0; i < count; i++) {
		const struct stop_thread *t = stop_thread(s, i);
		taddr_t pc = arch_pc(&t->regs);

		if (!t->kernel_worker && pc >= lo && pc < hi)
			return dinst_fail(
				e, DINST_BUSY,
				"thread %d is inside the arena (at %#llx); try again later",
				(int)t->tid, (unsigned long long)pc);
	}
	return stop_clear_descriptors(s, is_inside, range, e);
}

/* ------------------------------------------------------------ what is ours */

/* Where one half is, or was, and how to know it. */
struct half {
	taddr_t address;
	size_t size;
	dev_t device; /* 0 and 0: anonymous */
	uint64_t inode;
	int protection;
};

enum presence { HALF_ABSENT, HALF_OURS, HALF_FOREIGN };

/* Everything that is mapped in the half's range is ours, nothing is mapped, or something else is. */
static enum presence find_half(const struct maps *m, const struct half *h)
{
	taddr_t end = h->address + h->size;
	enum presence found = HALF_ABSENT;

	for (size_t i = maps_index(m, h->address); i < m->count && m->entries[i].lo < end; i++) {
		const struct maps_entry *entry = &m->entries[i];

		if (entry->inode != h->inode || (h->inode && entry->device != h->device))
			return HALF_FOREIGN;
		/* Anonymous memory has no name tag; it must at least be as we made it, whole. */
		if (!h->inode && (arena_rights(entry) != h->protection || entry->shared ||
				  entry->name[0] || entry->lo > h->address || entry->hi < end))
			return HALF_FOREIGN;
		found = HALF_OURS;
	}
	return found;
}

/*
 * Without our number in it, it must have what arena_threads.c asked the kernel for,
 * and hardly anybody else does: all of it is left out of core dumps (dd in the line
 * VmFlags, proc_pid_smaps(5)), and a part is cleared in a forked child (wf). A
 * program that made it has come to its end when anybody looks.
 */
static bool is_marked_as_ours(const struct target *t, taddr_t lo, taddr_t end)
{
	taddr_t at = lo, from = 0, to = 0;
	bool marked = true, wiped = false;
	char path[64], line[512], *end_of_first;
	FILE *smaps;

	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)target_memory_tid(t));
	smaps = proc_fopen(path);
	if (!smaps)
		return false;
	while (marked && at < end && fgets(line, sizeof(line), smaps)) {
		const taddr_t first = strtoull(line, &end_of_first, 16);

		/* "5ed0-5ee0 rw-p ..." begins a mapping; all other lines begin with a word. */
		if (*end_of_first == '-') {
			from = first;
			to = strtoull(end_of_first + 1, NULL, 16);
			continue;
		}
		if (strncmp(line, "VmFlags:", 8) != 0 || to <= lo)
			continue;
		marked = from <= at && strstr(line, " dd");
		wiped = wiped || strstr(line, " wf");
		at = to;
	}
	fclose(smaps);
	return marked && wiped && at >= end;
}

bool arena_is_threads(const struct target *t, const struct maps *m, taddr_t threads, size_t size,
		      bool unfinished)
{
	taddr_t at = threads, end = threads + size;
	uint64_t first = 0;

	if (!threads || !size || end < threads)
		return false;
	/* The kernel splits it where the range begins and ends that it clears in a child. */
	for (size_t i = maps_index(m, threads); i < m->count && at < end; i++) {
		const struct maps_entry *entry = &m->entries[i];

		if (entry->lo > at || entry->inode || entry->shared || entry->name[0] ||
		    arena_rights(entry) != (PROT_READ | PROT_WRITE))
			return false;
		at = entry->hi;
	}
	if (at < end || target_read_some(t, threads, &first, sizeof(first)) != sizeof(first))
		return false;
	return first == (ARENA_THREADS_MAGIC ^ threads) ||
	       (unfinished && !first && is_marked_as_ours(t, threads, end));
}

/*
 * Before the halves: then the journal still says where it is if we die in
 * between. Where it is not as we left it, it is not ours any more.
 */
static int unmap_threads(struct stop *s, const struct maps *m, taddr_t threads, size_t size,
			 struct dinst_error *e)
{
	if (!arena_is_threads(stop_target(s), m, threads, size, true))
		return DINST_OK;
	return arena_munmap(s, 0, 0, threads, size, e);
}

static int unmap_halves(struct stop *s, const struct half *code, const struct half *data,
			taddr_t threads, size_t threads_size, struct dinst_error *e)
{
	enum presence has_code = HALF_ABSENT, has_data = HALF_ABSENT;
	const struct maps *m;
	int result;

	result = stop_maps(s, &m, e);
	if (result)
		return result;
	if (code->size)
		has_code = find_half(m, code);
	if (data->size)
		has_data = find_half(m, data);
	if (has_code == HALF_FOREIGN || has_data == HALF_FOREIGN)
		result = dinst_fail(
			e, DINST_REFUSED,
			"the target has mapped something else where our arena was (%#llx)",
			(unsigned long long)(has_code == HALF_FOREIGN ? code->address
								      : data->address));
	/* Also where the code half has gone: a rseq_cs may still point to it. */
	if (!result && code->size)
		result = arena_evict(s, code->address, code->address + code->size, e);
	if (!result)
		result = unmap_threads(s, m, threads, threads_size, e);
	if (result)
		return result;
	return arena_munmap(s, has_code == HALF_OURS ? code->address : 0, code->size,
			    has_data == HALF_OURS ? data->address : 0, data->size, e);
}

int arena_unmap(struct stop *s, const struct arena *a, struct dinst_error *e)
{
	const struct half code = {a->code, a->code_size, a->device, a->inode,
				  PROT_READ | PROT_EXEC};
	const struct half data = {a->data, a->data_size, a->device, a->inode,
				  PROT_READ | PROT_WRITE};

	return unmap_halves(s, &code, &data, a->threads, a->threads_size, e);
}

int arena_unmap_found(struct stop *s, const struct arena_found *found, struct dinst_error *e)
{
	const struct half code = {found->code, found->code_size, found->device, found->inode,
				  PROT_READ | PROT_EXEC};
	const struct half data = {found->data, found->data_size, found->device, found->inode,
				  PROT_READ | PROT_WRITE};

	if (found->strange)
		return dinst_fail(e, DINST_REFUSED,
				  "the arena at %#llx is of another version of dinst, or damaged",
				  (unsigned long long)found->code);
	return unmap_halves(s, &code, &data, found->threads, found->threads_size, e);
}
