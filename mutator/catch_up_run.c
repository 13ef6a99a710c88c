/* SPDX-License-Identifier: MIT */
/*
 * catch_up_run.c - running programs for threads of a stopped process.
 *
 * The interpreter is arch_program_run(); here is what it cannot know: the
 * thread's record, its clocks, counters and tables in our arenas. What a thread
 * had at its function's entry is gone: a program that asks for it ends there.
 */
#include <string.h>
#include <time.h>

#include "inject/proc.h"
#include "inject/tasks.h"
#include "mutator/catch_up.h"
#include "mutator/variable.h"

struct run {
	const struct late_record *record;
	struct late_past *past; /* NULL: words are what they are */
	bool undoing;		/* in the past only */
};

/* Our view of memory in an arena of the session; NULL: it is somewhere else. */
static void *view(const struct run *run, taddr_t at, size_t size)
{
	for (const struct place *p = run->record->session->places; p; p = p->next) {
		const struct arena *a = p->arena;

		if (a->mode == ARENA_SHARED && !p->unmapped &&
		    (at - a->data < a->data_size || at - a->code < a->code_size))
			return heap_map(p->heap, at, size);
	}
	return NULL;
}

static bool load(void *arg, taddr_t address, uint64_t *word, size_t size)
{
	const struct run *run = arg;

	*word = 0;
	if (run->past && late_past_load(run->past, run->record, address, word, size))
		return true;
	return size <= sizeof(*word) &&
	       target_read_some(run->record->tables->target, address, word, size) == size;
}

static bool store(void *arg, taddr_t address, uint64_t word, size_t size)
{
	const struct run *run = arg;
	struct dinst_error ignored = {0};

	if (run->undoing)
		return late_past_take_back(run->past, run->record, address, word, size);
	if (run->past)
		late_past_store(run->past, run->record, address, word, size);
	return size <= sizeof(word) &&
	       stop_write(run->record->stop, address, &word, size, &ignored) >= 0;
}

/* ----------------------------------------------------------------- clocks */

static uint64_t time_of(clockid_t clock)
{
	struct timespec now = {0};

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool thread_time(const struct run *run, uint64_t *ns)
{
	struct proc_usage usage;

	proc_usage_read(run->record->tid, &usage);
	*ns = usage.run_ns;
	return usage.known;
}

static bool clock_says(const struct run *run, uint64_t number, uint64_t *value)
{
	clockid_t clock;

	switch (number) {
	case ARCH_CLOCK_TICKS:
		*value = arch_clock_ticks();
		return true;
	case ARCH_CLOCK_MONOTONIC:
		*value = time_of(CLOCK_MONOTONIC) +
			 (uint64_t)target_clock_offset(run->record->tables->target);
		return true;
	case ARCH_CLOCK_THREAD:
		return thread_time(run, value);
	default:
		if (clock_getcpuclockid(target_pid(run->record->tables->target), &clock))
			return false;
		*value = time_of(clock);
		return true;
	}
}

/* ------------------------------------------------------ counters and tables */

/* The locked slot, which emitted code adds to by locked instructions. */
static bool count(const struct run *run, taddr_t counter, uint64_t amount)
{
	for (const struct place *p = run->record->session->places; p; p = p->next) {
		const struct arena *a = p->arena;
		taddr_t slot = threads_locked_word(p, counter);
		uint64_t word, *ours = view(run, slot, sizeof(*ours));

		if (counter - a->data >= a->data_size)
			continue;
		if (ours) {
			__atomic_fetch_add(ours, amount, __ATOMIC_RELAXED);
			return true;
		}
		return load((void *)run, slot, &word, sizeof(word)) &&
		       store((void *)run, slot, word + amount, sizeof(word));
	}
	return false;
}

static bool find(const struct run *run, const struct arch_op *op, uint64_t key, uint64_t *place)
{
	const size_t places = (size_t)1 << op->immediate;
	struct arch_table *table =
		view(run, op->number, sizeof(*table) + places * sizeof(table->keys[0]));

	*place = table && op->immediate > 0
			 ? variable_take_place(table, (unsigned)op->immediate, key)
			 : 0;
	return table != NULL;
}

/* Looked up once: others stand still. */
static uint64_t own_process(struct tables *tables)
{
	const pid_t pid = target_pid(tables->target);

	if (!tables->process)
		tables->process = (uint64_t)task_own_id(pid, pid);
	return tables->process;
}

static bool other(void *arg, const struct arch_op *op, uint64_t a, uint64_t b, uint64_t *result,
		  uint64_t *second)
{
	const struct run *run = arg;

	*second = 0;
	*result = 0;
	/* What is counted, and when, is nobody's here. */
	if (run->undoing &&
	    (op->kind == ARCH_OP_CLOCK || op->kind == ARCH_OP_COUNT || op->kind == ARCH_OP_FIND))
		return true;
	switch (op->kind) {
	case ARCH_OP_RECORD:
		*result = run->record->at;
		return true;
	case ARCH_OP_CLOCK:
		return clock_says(run, op->number, result);
	case ARCH_OP_COUNT:
		return count(run, a + op->number, b);
	case ARCH_OP_FIND:
		return find(run, op, a, result);
	case ARCH_OP_CPU:
		*result = UINT64_MAX;
		return true;
	case ARCH_OP_THREAD:
		*result = run->record->own;
		return true;
	case ARCH_OP_PROCESS:
		*result = own_process(run->record->tables);
		return true;
	default:
		return false; /* what is not there */
	}
}

/* As in the record; `a` may be none that has an entry there. */
static uint64_t start_of(const struct late_record *r, const struct activation *a)
{
	const uint8_t *record = (const uint8_t *)r->tables->record;
	struct pair_entry entry = {0};

	if (a->entry)
		memcpy(&entry, record + (a->entry - r->at), sizeof(entry));
	return entry.start;
}

bool late_run(const struct late_record *r, struct late_past *past, const struct activation *a,
	      const struct arch_program *program)
{
	uint64_t values[ARCH_PROGRAM_VALUES + 1] = {0};
	struct run run = {.record = r, .past = past};
	const struct arch_machine machine = {
		.arg = &run, .load = load, .store = store, .other = other};

	if (program->values > ARCH_PROGRAM_VALUES)
		return false;
	/* It is only asked whether there is one. */
	values[ARCH_VALUE_ACTIVATION] = a->entry ? a->entry : a->entering;
	values[ARCH_VALUE_START] = start_of(r, a);
	return arch_program_run(program, &machine, values);
}

void late_undo(const struct late_record *r, struct late_past *past,
	       const struct arch_program *program, uint64_t start)
{
	uint64_t values[ARCH_PROGRAM_VALUES + 1] = {0};
	struct run run = {.record = r, .past = past, .undoing = true};
	const struct arch_machine machine = {
		.arg = &run, .load = load, .store = store, .other = other};

	values[ARCH_VALUE_ACTIVATION] = 1;
	values[ARCH_VALUE_START] = start;
	if (program->values <= ARCH_PROGRAM_VALUES)
		arch_program_run(program, &machine, values);
}
