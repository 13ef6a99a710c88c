/* SPDX-License-Identifier: MIT */
/*
 * threads_state.c - reading the records of a target's threads, and tidying up.
 *
 * What is read comes from memory that the target may do anything with: every
 * number is checked before it is used. Records of living threads are theirs;
 * what is written to them here is right at any instruction of theirs.
 */
#include <stdlib.h>
#include <string.h>

#include "inject/proc.h"
#include "inject/tasks.h"
#include "mutator/threads_private.h"

void threads_tables_release(struct tables *b)
{
	free(b->keys);
	free(b->owners);
	free(b->record);
	/* Also where they could not be read: who owns them releases them once more. */
	b->keys = NULL;
	b->owners = NULL;
	b->record = NULL;
}

bool threads_tables_read(struct tables *b, const struct threads *t, const struct target *target)
{
	const size_t keys = (size_t)8 << t->shift, owners = (size_t)4 << t->shift;
	uint64_t magic;

	*b = (struct tables){.threads = t, .target = target};
	b->keys = malloc(keys);
	b->owners = malloc(owners);
	b->record = calloc(1, sizeof(*b->record));
	/* A child without it may have memory of its own there. */
	if (b->keys && b->owners && b->record &&
	    target_read_some(target, t->area, &magic, sizeof(magic)) == sizeof(magic) &&
	    magic == (ARENA_THREADS_MAGIC ^ t->area) &&
	    target_read_some(target, t->area + pair_keys(), b->keys, keys) == keys &&
	    target_read_some(target, t->area + pair_owners(t->shift), b->owners, owners) == owners)
		return true;
	threads_tables_release(b);
	return false;
}

taddr_t threads_record_address(const struct threads *t, size_t number)
{
	return t->area + pair_records(t->shift) + (number << PAIR_RECORD_SHIFT);
}

bool threads_record_read(struct tables *b, size_t number)
{
	const size_t size = b->threads->used;

	/* What was never given out is not touched, not even by reading. */
	if (target_read_some(b->target, threads_record_address(b->threads, number), b->record,
			     size) != size)
		return false;
	return b->record->depth <= sizeof(b->record->home) &&
	       b->record->depth % sizeof(struct pair_entry) == 0;
}

/* --------------------------------------------------------------- counting */

struct task {
	pid_t tid, own; /* own: 0 of one that is on its way out and runs no code any more */
};

struct count {
	const uint8_t *wanted; /* by function number */
	uint64_t alive;
};

static const struct task *task_of(const struct task *tasks, size_t count, uint32_t own)
{
	for (size_t i = 0; i < count; i++)
		if ((uint32_t)tasks[i].own == own)
			return &tasks[i];
	return NULL;
}

static bool is_wanted(const struct count *c, const struct pair_entry *entry)
{
	return entry->start != PAIR_INHERITED && c->wanted[entry->tag & PAIR_ID_MASK];
}

/* `sp`: of the thread, 0 if it runs. What is below it on its own stack has been left. */
static void count_record(struct count *c, const struct pair_record *r, taddr_t sp)
{
	const uint64_t here = sp << PAIR_ID_BITS;
	const bool at_home = sp && here - r->lo < r->size;

	for (size_t i = 0; i < r->depth / sizeof(struct pair_entry); i++)
		if (is_wanted(c, &r->home[i]) && (!at_home || r->home[i].tag >= here))
			c->alive++;
	for (size_t i = 0; i < PAIR_OTHER; i++)
		if (is_wanted(c, &r->other[i]))
			c->alive++;
}

static struct task *read_tasks(pid_t pid, size_t *count)
{
	pid_t *tids = task_list(pid, count);
	struct task *tasks = calloc(*count + 1, sizeof(*tasks));
	struct proc_stat stat;

	for (size_t i = 0; tasks && i < *count; i++) {
		tasks[i].tid = tids[i];
		/* Who joins a thread is woken before the thread has left the list. */
		if (!proc_thread_stat_read(pid, tids[i], &stat) && !(stat.flags & PROC_EXITING))
			tasks[i].own = task_own_id(pid, tids[i]);
	}
	free(tids);
	return tasks;
}

static void count_process(const struct threads *t, const struct target *target, struct count *c)
{
	struct task *tasks = NULL;
	struct tables tables;
	size_t count = 0;

	if (!threads_tables_read(&tables, t, target))
		return;
	tasks = read_tasks(target_pid(target), &count);
	for (size_t i = 0; tasks && i < (size_t)1 << t->shift; i++) {
		const struct task *task;
		taddr_t sp = 0;

		if (!tables.keys[i] || !tables.owners[i])
			continue;
		task = task_of(tasks, count, tables.owners[i]);
		if (!task || !threads_record_read(&tables, i))
			continue;
		task_waits_at(target_pid(target), task->tid, &sp);
		count_record(c, tables.record, sp);
	}
	free(tasks);
	threads_tables_release(&tables);
}

/*
 * Whose memory is the target's or its creator's (CLONE_VM, a child of vfork) shows the same records once
 * more. A creator that has it has the arena as well.
 */
static bool has_own_memory(const struct session *s, pid_t pid)
{
	const pid_t own = target_own_pid(s->target);
	struct proc_stat stat;

	/* A main thread that has ended has no memory to be compared with. */
	return !(own && task_same_memory(target_memory_tid(s->target), pid)) &&
	       (proc_stat_read(pid, &stat) || stat.parent <= 0 || stat.parent == own ||
		!task_same_memory(stat.parent, pid));
}

bool threads_find_family(const struct session *s, pid_t **pids, size_t *count)
{
	size_t kept = 0;

	if (arena_sharers(s->threads->place->arena, target_own_pid(s->target), pids, count))
		return false;
	for (size_t i = 0; i < *count; i++)
		if (has_own_memory(s, (*pids)[i]))
			(*pids)[kept++] = (*pids)[i];
	*count = kept;
	return true;
}

/* The same for the processes that were forked from the target. */
static void count_family(struct session *s, struct count *c)
{
	pid_t *pids = NULL;
	size_t count = 0;

	if (!threads_find_family(s, &pids, &count))
		return;
	for (size_t i = 0; i < count; i++) {
		struct dinst_error ignored = {0};
		struct target *child;

		/* Of who is frozen, or traced by somebody else, memory can be read all the same. */
		if (target_open_known(pids[i], TARGET_BORN, &child, &ignored) < 0)
			continue;
		count_process(s->threads, child, c);
		target_close(child);
	}
	free(pids);
}

uint64_t threads_alive(struct session *s, const struct instance *i)
{
	struct count c = {0};
	uint8_t *wanted;

	if (!s->threads || !s->threads->area || !i->pair_id_count)
		return 0;
	wanted = calloc(PAIR_ID_MASK + 1, 1);
	if (!wanted)
		return 0;
	for (size_t n = 0; n < i->pair_id_count; n++)
		wanted[i->pair_ids[n]] = 1;
	c.wanted = wanted;
	count_process(s->threads, s->target, &c);
	count_family(s, &c);
	free(wanted);
	return c.alive;
}

void threads_statistics(const struct session *s, struct threads_statistics *statistics)
{
	const struct threads *t = s->threads;
	struct tables tables;

	memset(statistics, 0, sizeof(*statistics));
	if (!t || !t->area)
		return;
	statistics->lost = heap_read_counter(t->place->heap, t->lost);
	statistics->overflow = heap_read_counter(t->place->heap, t->overflow);
	statistics->orphans = heap_read_counter(t->place->heap, t->orphans);
	statistics->records = 1u << t->shift;
	if (!threads_tables_read(&tables, t, s->target))
		return;
	for (size_t i = 0; i < (size_t)1 << t->shift; i++)
		statistics->used += tables.keys[i] != 0;
	threads_tables_release(&tables);
}

/* ---------------------------------------------------------------- tidying */

static int by_number(const void *a, const void *b)
{
	const taddr_t x = *(const taddr_t *)a, y = *(const taddr_t *)b;

	return x < y ? -1 : x > y;
}

/* The thread pointers of all that is stopped, sorted; NULL if there is no memory for them. */
static taddr_t *pointers_of(struct stop *stop, size_t *count)
{
	taddr_t *pointers = calloc(stop_thread_count(stop) + 1, sizeof(*pointers));

	*count = 0;
	for (size_t i = 0; pointers && i < stop_thread_count(stop); i++)
		if (!stop_thread(stop, i)->kernel_worker)
			pointers[(*count)++] = arch_thread_pointer(&stop_thread(stop, i)->regs);
	if (pointers)
		qsort(pointers, *count, sizeof(*pointers), by_number);
	return pointers;
}

static bool put(struct stop *stop, taddr_t at, const void *bytes, size_t size)
{
	struct dinst_error ignored = {0};

	return stop_write(stop, at, bytes, size, &ignored) >= 0;
}

/* Nobody has that thread pointer any more. The key last: then nobody has claimed it in between. */
static void free_record(struct stop *stop, const struct threads *t, size_t number)
{
	const taddr_t record = threads_record_address(t, number);
	const uint64_t none = 0;

	if (put(stop, record + offsetof(struct pair_record, tid), &none, 4) &&
	    put(stop, t->area + pair_owners(t->shift) + 4 * number, &none, 4))
		put(stop, t->area + pair_keys() + 8 * number, &none, 8);
}

/*
 * Takes the numbers that nobody has any more out of a record. On the thread's
 * own stack a gap is left, which its code knows.
 */
static void purge_record(struct stop *stop, struct tables *b, size_t number)
{
	const struct threads *t = b->threads;
	const struct pair_record *r = b->record;
	const taddr_t at = threads_record_address(t, number);

	if (!threads_record_read(b, number))
		return;
	for (size_t i = 0; i < r->depth / sizeof(struct pair_entry); i++) {
		const struct pair_entry gap = {.tag = r->home[i].tag & ~PAIR_ID_MASK};

		if (t->ids[r->home[i].tag & PAIR_ID_MASK] == ID_RETIRED)
			put(stop, at + offsetof(struct pair_record, home[i]), &gap, sizeof(gap));
	}
	for (size_t i = 0; i < PAIR_OTHER; i++) {
		const uint64_t none = 0;

		if (t->ids[r->other[i].tag & PAIR_ID_MASK] == ID_RETIRED)
			put(stop, at + offsetof(struct pair_record, other[i].tag), &none, 8);
	}
}

/*
 * The stack of a thread that began when nobody knew where stacks are. Its code
 * looks at the size last; entries that are elsewhere now must stay findable.
 */
static void tell_stack(struct stop *stop, struct tables *b, size_t number, taddr_t pointer)
{
	const struct threads *t = b->threads;
	const taddr_t at = threads_record_address(t, number);
	uint64_t words[2];

	if (!threads_record_read(b, number) || b->record->size || !b->record->tid)
		return;
	for (size_t i = 0; i < PAIR_OTHER; i++)
		if (b->record->other[i].tag)
			return;
	if (target_read_some(b->target, pointer + (taddr_t)(int64_t)t->stack_offset, words,
			     sizeof(words)) != sizeof(words) ||
	    !words[0])
		return;
	words[0] <<= PAIR_ID_BITS;
	words[1] <<= PAIR_ID_BITS;
	put(stop, at + offsetof(struct pair_record, lo), words, sizeof(words));
}

/* What could not be known when there was no thread to learn it from. */
static bool learn_more(struct threads *t, struct stop *stop)
{
	struct dinst_error ignored = {0};
	struct threads_lesson lesson;
	struct pair_config config;

	if (t->stack_offset || threads_learn(stop, &lesson, &ignored) < 0 || !lesson.stack_offset ||
	    lesson.tid_offset != t->tid_offset)
		return false;
	config.stack_offset = t->stack_offset = lesson.stack_offset;
	return put(stop, t->area + offsetof(struct pair_config, stack_offset), &config.stack_offset,
		   sizeof(config.stack_offset));
}

/* What was cleared everywhere may be given out again. */
static void settle_dropped(struct threads *t)
{
	for (size_t i = 0; !t->keep_dropped && i < sizeof(t->words); i++)
		if (t->words[i] == WORD_DROPPED)
			t->words[i] = WORD_FREE;
	if (!t->keep_dropped)
		t->dropped = 0;
	t->keep_dropped = false;
}

void threads_tidy(struct session *s, struct stop *stop)
{
	struct threads *t = s->threads;
	struct target *target = stop_target(stop);
	taddr_t *pointers;
	struct tables tables;
	bool learned;
	size_t count;

	if (!t || !t->area || t->place->unmapped)
		return;
	learned = target == s->target && learn_more(t, stop);
	if (!threads_tables_read(&tables, t, target)) {
		/* A child that has another arena only, and never ran what uses the state, has none. */
		t->keep_dropped = t->keep_dropped || target == s->target ||
				  arena_look_for(target_pid(target), t->place->arena, NULL) != 0;
		return;
	}
	pointers = pointers_of(stop, &count);
	for (size_t i = 0; pointers && i < (size_t)1 << t->shift; i++) {
		if (!tables.keys[i])
			continue;
		if (!bsearch(&tables.keys[i], pointers, count, sizeof(*pointers), by_number)) {
			free_record(stop, t, i);
			t->useful = true;
			continue;
		}
		if (learned)
			tell_stack(stop, &tables, i, tables.keys[i]);
		if (t->purging)
			purge_record(stop, &tables, i);
	}
	/* The target is the last one of its family. */
	threads_clear_words(t, stop, &tables);
	if (target == s->target)
		settle_dropped(t);
	free(pointers);
	threads_tables_release(&tables);
}
