/* SPDX-License-Identifier: MIT */
/*
 * threads_learn.c - where a program's C library keeps what it knows of a thread.
 *
 * Nothing is assumed about versions: a place counts only if it holds the right
 * value for every thread of the stopped process, and no other place does. The first
 * process of a container calls itself 1, as many a word is: of several places that one
 * counts which lies where glibc has it beside what the kernel knows, or musl beside the links
 * of the only thread with itself.
 */
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inject/maps.h"
#include "inject/tasks.h"
#include "mutator/threads_private.h"

enum {
	BLOCK_MAX = 8192,
	PAGE = 4096,
	BEHIND_STACK = 64 * 1024, /* most that lies between a thread pointer and its stack's end */
	STACK_LEAST = 2048,
	/* struct pthread (glibc, nptl/descr.h): the id, a word unused, robust_prev, robust_head. */
	BEFORE_ROBUST = 16,
};

static const size_t MAIN_MOST = (size_t)256 << 20;
static const uint64_t STACK_MOST = (uint64_t)64 << 30;

struct search {
	uint8_t tid[BLOCK_MAX / 4], stack[BLOCK_MAX / 8]; /* 1: may be there */
	size_t size;					  /* bytes that are looked at */
	taddr_t start_stack;
	bool is_linked; /* a thread with itself, as musl's only one is */
	taddr_t *pointers;
	size_t threads;
};

static bool is_ordinary(const struct stop_thread *t)
{
	return !t->kernel_worker && !t->foreign && arch_is_native(&t->regs);
}

/* The two words say where a stack is: the main thread's (glibc), or one with the block at its end. */
static bool is_stack(const struct search *find, taddr_t pointer, uint64_t start, uint64_t size)
{
	const uint64_t end = start + size;

	if (!start)
		return find->start_stack && size == find->start_stack;
	return size >= STACK_LEAST && size <= STACK_MOST && end > start && start < pointer &&
	       end >= pointer && end - pointer <= BEHIND_STACK;
}

/* What is not there is zeros: the block may begin, or end, where something is mapped. */
static void read_block(const struct search *find, struct stop *stop, taddr_t at, uint64_t *words)
{
	uint8_t *bytes = (uint8_t *)words;
	size_t got = target_read_some(stop_target(stop), at, bytes, find->size);
	const size_t skip = PAGE - at % PAGE;

	if (!got && skip < find->size)
		target_read_some(stop_target(stop), at + skip, bytes + skip, find->size - skip);
}

static bool is_linked(const uint64_t *block, taddr_t pointer)
{
	const uint64_t *links = block + (arch_musl_links - arch_thread_block_lo) / 8;

	return arch_musl_id && links[0] == pointer && links[1] == pointer;
}

static int look_at(struct search *find, struct stop *stop, const struct stop_thread *t,
		   struct dinst_error *e)
{
	const pid_t pid = target_pid(stop_target(stop));
	const taddr_t pointer = arch_thread_pointer(&t->regs);
	const pid_t own = task_own_id(pid, t->tid);
	uint64_t words[BLOCK_MAX / 8] = {0}, first = 0;

	if (!pointer || !own)
		return dinst_fail(e, DINST_BUSY,
				  "thread %d has no thread pointer (yet), so nothing can be kept "
				  "for it; try again later",
				  (int)t->tid);
	if (target_read_some(stop_target(stop), pointer, &first, sizeof(first)) != sizeof(first) ||
	    !arch_thread_pointer_is_sane(pointer, first))
		return dinst_fail(e, DINST_REFUSED,
				  "the thread pointer of thread %d is not one of a C library, so "
				  "nothing can be kept for a thread of this program",
				  (int)t->tid);
	for (size_t i = 0; i < find->threads; i++)
		if (find->pointers[i] == pointer)
			return dinst_fail(e, DINST_REFUSED,
					  "two threads of process %d have the same thread pointer: "
					  "they cannot be told apart",
					  (int)pid);
	find->pointers[find->threads++] = pointer;
	read_block(find, stop, pointer + (taddr_t)arch_thread_block_lo, words);
	find->is_linked = is_linked(words, pointer);
	for (size_t i = 0; i < find->size / 4; i++) {
		uint32_t id;

		memcpy(&id, (const uint8_t *)words + 4 * i, sizeof(id));
		if (id != (uint32_t)own)
			find->tid[i] = 0;
	}
	for (size_t i = 0; i + 1 < find->size / 8; i++)
		if (!is_stack(find, pointer, words[i], words[i + 1]))
			find->stack[i] = 0;
	return 0;
}

/* The only place that is left; -1 if there is none or several. */
static long only_one(const uint8_t *places, size_t count)
{
	long found = -1;

	for (size_t i = 0; i < count; i++)
		if (places[i] && found >= 0)
			return -1;
		else if (places[i])
			found = (long)i;
	return found;
}

/* Where glibc has the id, by the lists of robust mutexes; -1 if threads do not agree, or have none. */
static long beside_robust(struct stop *stop)
{
	taddr_t beside = 0;

	for (size_t i = 0; i < stop_thread_count(stop); i++) {
		const struct stop_thread *t = stop_thread(stop, i);
		const taddr_t block = arch_thread_pointer(&t->regs) + (taddr_t)arch_thread_block_lo;
		struct robust_list_head *head = NULL;
		size_t size = 0;
		taddr_t found;

		if (!is_ordinary(t) || syscall(SYS_get_robust_list, t->tid, &head, &size) || !head)
			continue;
		found = (taddr_t)(uintptr_t)head - BEFORE_ROBUST - block;
		if (!found || found % 4 || (beside && found != beside))
			return -1;
		beside = found;
	}
	return beside && beside < BLOCK_MAX ? (long)(beside / 4) : -1;
}

/* Index of the word that is the id, of those that may be. Only where it is doubtful more is looked at. */
static long id_place(const struct search *find, struct stop *stop)
{
	const long musl = (long)(arch_musl_id - arch_thread_block_lo) / 4;
	long place = only_one(find->tid, find->size / 4);

	if (place >= 0)
		return place;
	place = beside_robust(stop);
	if (place >= 0 && (size_t)place < find->size / 4 && find->tid[place])
		return place;
	return find->threads == 1 && find->is_linked && find->tid[musl] ? musl : -1;
}

/* The stack that the kernel made for the program: what it may grow into, as far as it is free. */
static void look_at_main(struct stop *stop, struct threads_lesson *lesson)
{
	const pid_t pid = target_pid(stop_target(stop));
	const struct maps_entry *stack;
	struct maps m;

	if (maps_read(pid, &m, NULL))
		return;
	stack = maps_named(&m, "[stack]");
	if (stack) {
		const size_t limit = task_stack_limit(pid, MAIN_MOST);
		const size_t index = (size_t)(stack - m.entries);
		taddr_t lo = stack->hi > limit ? stack->hi - limit : 0;

		if (lo > stack->lo)
			lo = stack->lo;
		if (index && m.entries[index - 1].hi > lo)
			lo = m.entries[index - 1].hi;
		lesson->main_lo = lo << PAIR_ID_BITS;
		lesson->main_size = (stack->hi - lo) << PAIR_ID_BITS;
		for (size_t i = 0; i < stop_thread_count(stop); i++) {
			const struct stop_thread *t = stop_thread(stop, i);

			if (is_ordinary(t) && t->leader && arch_sp(&t->regs) >= lo &&
			    arch_sp(&t->regs) < stack->hi)
				lesson->main_pointer = arch_thread_pointer(&t->regs);
		}
	}
	maps_release(&m);
}

int threads_learn(struct stop *stop, struct threads_lesson *lesson, struct dinst_error *e)
{
	struct search *find = calloc(1, sizeof(*find));
	long tid, stack;
	int status = 0;

	memset(lesson, 0, sizeof(*lesson));
	if (find)
		find->pointers = calloc(stop_thread_count(stop) + 1, sizeof(*find->pointers));
	if (!find || !find->pointers) {
		status = dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		goto out;
	}
	find->size = (size_t)(arch_thread_block_hi - arch_thread_block_lo);
	find->start_stack = task_start_stack(target_memory_tid(stop_target(stop)));
	memset(find->tid, 1, sizeof(find->tid));
	memset(find->stack, 1, sizeof(find->stack));
	for (size_t i = 0; i < stop_thread_count(stop) && status >= 0; i++)
		if (is_ordinary(stop_thread(stop, i)))
			status = look_at(find, stop, stop_thread(stop, i), e);
	if (status < 0)
		goto out;
	if (!find->threads) {
		status = dinst_fail(e, DINST_BUSY,
				    "no thread of process %d stands in the program's own code just "
				    "now, so where its C library keeps what it knows of a thread "
				    "cannot be found out; try again",
				    (int)target_pid(stop_target(stop)));
		goto out;
	}
	tid = id_place(find, stop);
	if (tid < 0) {
		status = dinst_fail(e, DINST_REFUSED,
				    "where this program's C library keeps the ids of its threads "
				    "cannot be found out, so nothing can be kept for a thread");
		goto out;
	}
	stack = only_one(find->stack, find->size / 8 - 1);
	lesson->tid_offset = (int32_t)(arch_thread_block_lo + 4 * tid);
	if (stack >= 0)
		lesson->stack_offset = (int32_t)(arch_thread_block_lo + 8 * stack);
	look_at_main(stop, lesson);
out:
	if (find)
		free(find->pointers);
	free(find);
	return status;
}
