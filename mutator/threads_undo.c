/* SPDX-License-Identifier: MIT */
/*
 * threads_undo.c - what runs for activations that end without an exit, and the
 * hooks that tell when they ended.
 *
 * A function's undo routine is code in the arena that the pairing routines find
 * by its number in a table of what the family shares. It is written before the
 * table leads to it, and given back by a flush after the table has changed.
 */
#include <stdlib.h>
#include <string.h>

#include "inject/fault.h"
#include "mutator/removal.h"
#include "mutator/threads_private.h"
#include "mutator/variable.h"

const char *const threads_hooks[] = {
	"longjmp",
	"_longjmp",
	"siglongjmp",
	"__longjmp_chk",
	"_Unwind_RaiseException",
	"_Unwind_Resume",
	"_Unwind_Resume_or_Rethrow",
	"_Unwind_ForcedUnwind",
	NULL,
};

const char *const threads_landings[] = {"__cxa_begin_catch", NULL};

enum { UNDO_COUNT = 1 << PAIR_UNDO_SHIFT, RESERVED = 64, COLD_ALIGN = ARCH_COUNT_ALIGN };

/* ------------------------------------------------------------ small programs */

/* Values of the programs here; the first two are those of activations. */
enum { RECORD = ARCH_VALUE_FIRST, DROPPED_AT, MARK, NOW, OUT_TICKS, OUT_CPU, VALUES = OUT_CPU };

/* A program that grows; what does not fit is noticed at the end. */
struct writer {
	struct arch_op *ops;
	size_t count, room;
	uint16_t values, labels;
};

static struct arch_op *put(struct writer *w, enum arch_op_kind kind, uint16_t result, uint16_t a,
			   uint64_t number)
{
	static struct arch_op nowhere;
	struct arch_op *op = w->count < w->room ? &w->ops[w->count] : &nowhere;

	w->count++;
	*op = (struct arch_op){
		.kind = (uint8_t)kind, .size = 8, .result = result, .a = a, .number = number};
	return op;
}

static void put_if(struct writer *w, uint16_t a, enum arch_test test, uint16_t b, uint16_t label)
{
	struct arch_op *op = put(w, ARCH_OP_IF, 0, a, 0);

	op->condition = (uint8_t)test;
	op->b = b;
	op->label = label;
}

static void put_label(struct writer *w, enum arch_op_kind kind, uint16_t label)
{
	put(w, kind, 0, 0, 0)->label = label;
}

static void put_store(struct writer *w, uint16_t record, size_t offset, uint16_t value)
{
	put(w, ARCH_OP_STORE, 0, record, offset)->b = value;
}

static bool finish(struct writer *w, struct arch_program *program)
{
	*program = (struct arch_program){
		.ops = w->ops,
		.count = (uint16_t)w->count,
		.room = (uint16_t)w->room,
		.values = w->values,
		.labels = w->labels,
	};
	return w->count <= w->room;
}

static size_t moment(enum arch_clock clock)
{
	return offsetof(struct pair_record, moments) + 8 * (size_t)clock;
}

/* Wall time of the moment: the mark's, or now. */
static void put_wall(struct writer *w, enum arch_clock clock)
{
	const uint16_t label = ++w->labels;

	put_store(w, RECORD, moment(clock), DROPPED_AT);
	put_if(w, DROPPED_AT, ARCH_TEST_NE, 0, label);
	put(w, ARCH_OP_CLOCK, NOW, RECORD, clock);
	put_store(w, RECORD, moment(clock), NOW);
	put_label(w, ARCH_OP_LABEL, label);
}

/* CPU time of the thread: what was noted with the mark, or now. */
static void put_cpu(struct writer *w)
{
	const uint16_t now = ++w->labels, end = ++w->labels;

	put_if(w, DROPPED_AT, ARCH_TEST_EQ, 0, now);
	put(w, ARCH_OP_LOAD, OUT_TICKS, RECORD, offsetof(struct pair_record, out_ticks));
	put_if(w, OUT_TICKS, ARCH_TEST_NE, DROPPED_AT, now);
	put(w, ARCH_OP_LOAD, OUT_CPU, RECORD, offsetof(struct pair_record, out_cpu));
	put_store(w, RECORD, moment(ARCH_CLOCK_THREAD), OUT_CPU);
	put_label(w, ARCH_OP_JUMP, end);
	put_label(w, ARCH_OP_LABEL, now);
	put(w, ARCH_OP_CLOCK, NOW, RECORD, ARCH_CLOCK_THREAD);
	put_store(w, RECORD, moment(ARCH_CLOCK_THREAD), NOW);
	put_label(w, ARCH_OP_LABEL, end);
}

/* Fills the record's moments, as far as `clocks` (bits by clock) says. */
static bool moments_program(unsigned clocks, struct arch_op *ops, size_t room,
			    struct arch_program *program)
{
	struct writer w = {.ops = ops, .room = room, .values = VALUES, .labels = 1};

	put(&w, ARCH_OP_RECORD, RECORD, 0, 0);
	put_if(&w, RECORD, ARCH_TEST_EQ, 0, 1);
	put(&w, ARCH_OP_LOAD, DROPPED_AT, RECORD, offsetof(struct pair_record, dropped_at));
	for (enum arch_clock c = ARCH_CLOCK_TICKS; c <= ARCH_CLOCK_MONOTONIC; c++)
		if (clocks & 1u << c)
			put_wall(&w, c);
	if (clocks & 1u << ARCH_CLOCK_THREAD)
		put_cpu(&w);
	if (clocks & 1u << ARCH_CLOCK_PROCESS) {
		put(&w, ARCH_OP_CLOCK, NOW, RECORD, ARCH_CLOCK_PROCESS);
		put_store(&w, RECORD, moment(ARCH_CLOCK_PROCESS), NOW);
	}
	put_label(&w, ARCH_OP_LABEL, 1);
	return finish(&w, program);
}

int threads_hook_program(struct session *s, struct arch_program *program, struct dinst_error *e)
{
	const bool cpu = s->threads && s->threads->cpu_timers;
	struct writer w = {.room = 16, .values = VALUES, .labels = 1};

	w.ops = calloc(w.room, sizeof(*w.ops));
	if (!w.ops)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	put(&w, ARCH_OP_RECORD, RECORD, 0, 0);
	put_if(&w, RECORD, ARCH_TEST_EQ, 0, 1);
	put(&w, ARCH_OP_ENTER, MARK, RECORD, 0);
	put_if(&w, MARK, ARCH_TEST_EQ, 0, 1);
	put(&w, ARCH_OP_CLOCK, NOW, RECORD, ticks_wall_clock());
	put_store(&w, MARK, offsetof(struct pair_entry, start), NOW);
	if (cpu) {
		put(&w, ARCH_OP_CLOCK, OUT_CPU, RECORD, ARCH_CLOCK_THREAD);
		put_store(&w, RECORD, offsetof(struct pair_record, out_cpu), OUT_CPU);
		put_store(&w, RECORD, offsetof(struct pair_record, out_ticks), NOW);
	}
	put_label(&w, ARCH_OP_LABEL, 1);
	finish(&w, program);
	return 0;
}

/* What is not dropped by it is alive: the mark says so. */
int threads_landing_program(struct arch_program *program, struct dinst_error *e)
{
	struct writer w = {.room = 8, .values = VALUES, .labels = 1};

	w.ops = calloc(w.room, sizeof(*w.ops));
	if (!w.ops)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	put(&w, ARCH_OP_RECORD, RECORD, 0, 0);
	put_if(&w, RECORD, ARCH_TEST_EQ, 0, 1);
	put(&w, ARCH_OP_ENTER, MARK, RECORD, 0);
	put_if(&w, MARK, ARCH_TEST_EQ, 0, 1);
	put_store(&w, MARK, offsetof(struct pair_entry, start), 0);
	put_label(&w, ARCH_OP_LABEL, 1);
	finish(&w, program);
	return 0;
}

bool threads_is_landing(const struct arch_program *program)
{
	for (size_t n = 0; n < program->count; n++)
		if (program->ops[n].kind == ARCH_OP_CLOCK)
			return false;
	return true;
}

/* -------------------------------------------------------------- the routine */

struct routine {
	struct snippet_code *const *codes;
	size_t count;
	struct arch_program
		*programs;   /* the codes' with what they expect in front, and the moments' */
	struct arch_op *ops; /* of all of them */
	size_t hot, cold;    /* bytes, at most */
};

/* Values 1 and 2 are set as an exit sets them. */
static bool with_activation(const struct arch_program *p, struct arch_op *ops,
			    struct arch_program *out)
{
	struct writer w = {.ops = ops,
			   .room = (size_t)p->count + 3,
			   .values = (uint16_t)(p->values < ARCH_VALUE_START ? ARCH_VALUE_START
									     : p->values),
			   .labels = p->labels};
	const uint16_t record = ++w.values;

	put(&w, ARCH_OP_RECORD, record, 0, 0);
	put(&w, ARCH_OP_CONST, ARCH_VALUE_ACTIVATION, 0, 1);
	put(&w, ARCH_OP_LOAD, ARCH_VALUE_START, record,
	    offsetof(struct pair_record, dropped_start));
	memcpy(&ops[w.count], p->ops, p->count * sizeof(*ops));
	w.count += p->count;
	return finish(&w, out) && w.count <= ARCH_PROGRAM_OPS && w.values <= ARCH_PROGRAM_VALUES;
}

enum { MOMENT_OPS = 40 };

static int routine_init(struct routine *r, struct dinst_error *e)
{
	size_t ops = MOMENT_OPS, hot, cold;
	unsigned clocks = 0;
	bool fits = true;

	for (size_t i = 0; i < r->count; i++)
		ops += (size_t)r->codes[i]->program.count + 3;
	r->ops = calloc(ops, sizeof(*r->ops));
	r->programs = calloc(r->count + 1, sizeof(*r->programs));
	if (!r->ops || !r->programs)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	ops = MOMENT_OPS;
	for (size_t i = 0; i < r->count; i++) {
		const struct arch_program *p = &r->codes[i]->program;

		fits &= with_activation(p, &r->ops[ops], &r->programs[i + 1]);
		ops += (size_t)p->count + 3;
		for (size_t n = 0; n < p->count; n++)
			if (p->ops[n].kind == ARCH_OP_CLOCK && p->ops[n].number < PAIR_CLOCKS)
				clocks |= 1u << p->ops[n].number;
	}
	fits &= moments_program(clocks, r->ops, MOMENT_OPS, &r->programs[0]);
	if (!fits)
		return dinst_fail(e, DINST_UNSUPPORTED,
				  "what is to be undone for one function is too much");
	r->hot = RESERVED;
	r->cold = COLD_ALIGN;
	for (size_t i = 0; i <= r->count; i++) {
		arch_program_sizes(&r->programs[i], &hot, &cold);
		r->hot += hot;
		r->cold += cold;
	}
	return 0;
}

static void routine_release(struct routine *r)
{
	free(r->programs);
	free(r->ops);
}

/* Emits all of it into the two buffers. */
static int routine_emit(const struct routine *r, struct session *s, struct place *p,
			struct arch_buf *out, struct arch_buf *cold, struct dinst_error *e)
{
	struct arch_frame frame = {.live = arch_undo_live};
	struct arch_environment plain, undo;

	snippet_look_around(s, p, &plain);
	undo = plain;
	undo.undo = true;
	for (size_t i = 0; i <= r->count; i++)
		arch_program_needs(&r->programs[i], i ? &undo : &plain, &frame);
	arch_frame_open(out, &frame);
	for (size_t i = 0; i <= r->count; i++)
		arch_emit_program(&r->programs[i], i ? &undo : &plain, &frame, out, cold);
	arch_frame_close(out, &frame);
	arch_emit_undo_return(out);
	if (out->status != ARCH_OK || cold->status != ARCH_OK)
		return dinst_fail(e, DINST_UNSUPPORTED,
				  "code that undoes what a function did cannot be made (%d, %d)",
				  out->status, cold->status);
	return 0;
}

static size_t rounded(size_t size)
{
	return (size + COLD_ALIGN - 1) / COLD_ALIGN * COLD_ALIGN;
}

/* Finds out how large it is, then writes it into the arena of place p. */
static int routine_write(struct routine *r, struct session *s, struct place *p, taddr_t *at,
			 size_t *size, struct dinst_error *e)
{
	const taddr_t somewhere = (p->arena->code + journal_size(p->arena) + 4095) & ~(taddr_t)4095;
	uint8_t *bytes = malloc(r->hot + r->cold);
	struct arch_buf out = {.bytes = bytes, .size = r->hot, .pc = somewhere};
	struct arch_buf cold = {.bytes = bytes + r->hot, .size = r->cold, .pc = somewhere};
	size_t hot_size;
	int status = bytes ? routine_emit(r, s, p, &out, &cold, e)
			   : dinst_fail(e, DINST_NO_MEMORY, "out of memory");

	if (status < 0)
		goto out;
	hot_size = rounded(out.used);
	*size = hot_size + rounded(cold.used);
	status = heap_alloc_cold(p->heap, *size, at, e);
	if (status < 0)
		goto out;
	out = (struct arch_buf){
		.bytes = heap_map(p->heap, *at, *size), .size = hot_size, .pc = *at};
	cold = (struct arch_buf){
		.bytes = out.bytes + hot_size, .size = *size - hot_size, .pc = *at + hot_size};
	status = routine_emit(r, s, p, &out, &cold, e);
	if (status < 0)
		heap_free_code(p->heap, *at);
out:
	free(bytes);
	return status;
}

/* ---------------------------------------------------------------- the table */

/* Where the word of function `id` is; its table is made if need be. 0: no memory. */
static taddr_t word_of(struct threads *t, uint32_t id, struct dinst_error *e)
{
	taddr_t *table = &t->tables[id >> PAIR_UNDO_SHIFT];
	const size_t size = UNDO_COUNT * sizeof(uint64_t);
	taddr_t at;

	if (!*table) {
		if (heap_alloc_cold(t->place->heap, size, &at, e) < 0)
			return 0;
		memset(heap_map(t->place->heap, at, size), 0, size);
		*table = at;
		place_store(t->place,
			    t->shared + offsetof(struct pair_shared, undo) +
				    (id >> PAIR_UNDO_SHIFT) * sizeof(uint64_t),
			    at);
	}
	return *table + id % UNDO_COUNT * sizeof(uint64_t);
}

/* What was there before goes on the queue; if there is no memory for that it stays for ever. */
static void spend(struct session *s, const struct paired *old)
{
	if (old->undo)
		removal_spend_code(s, old->place, old->undo, old->undo_size, old->codes,
				   old->code_count);
}

/* So that what comes can be held: turned at once, it would take back what no entry has done. */
static int make_room_to_hold(struct threads *t, struct dinst_error *e)
{
	const size_t room = t->held_undo_room * 2 + 16;
	struct held_undo *grown;

	if (!t->holding_undos || t->held_undo_count < t->held_undo_room)
		return 0;
	grown = realloc(t->held_undos, room * sizeof(*grown));
	if (!grown)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	t->held_undos = grown;
	t->held_undo_room = room;
	return 0;
}

/* False: nothing is held now. */
static bool hold(struct threads *t, uint32_t id, const struct paired *old)
{
	if (!t->holding_undos || t->turned_undos || t->held_undo_count == t->held_undo_room)
		return false;
	t->held_undos[t->held_undo_count++] = (struct held_undo){.id = id, .old = *old};
	if (!t->paired[id].held)
		t->paired[id].held = (uint32_t)t->held_undo_count;
	return true;
}

static void exchange(struct session *s, uint32_t id, const struct paired *new, taddr_t word)
{
	struct paired *p = &s->threads->paired[id];
	const struct paired old = *p;

	p->place = new->place;
	p->undo = new->undo;
	p->undo_size = new->undo_size;
	p->codes = new->codes;
	p->code_count = new->code_count;
	fault_point();
	if (word && hold(s->threads, id, &old))
		return;
	if (word)
		place_store(s->threads->place, word, new->undo);
	spend(s, &old);
}

void threads_hold_undos(struct session *s)
{
	if (s->threads)
		s->threads->holding_undos = true;
}

void threads_turn_undos(struct session *s)
{
	struct threads *t = s->threads;
	struct dinst_error ignored = {0};

	if (!t || t->turned_undos)
		return;
	for (size_t i = 0; i < t->held_undo_count; i++)
		/* its table was made before it was held */
		place_store(t->place, word_of(t, t->held_undos[i].id, &ignored),
			    t->paired[t->held_undos[i].id].undo);
	t->turned_undos = t->holding_undos;
}

void threads_let_undos_go(struct session *s)
{
	struct threads *t = s->threads;

	if (!t)
		return;
	threads_turn_undos(s);
	for (size_t i = 0; i < t->held_undo_count; i++) {
		t->paired[t->held_undos[i].id].held = 0;
		spend(s, &t->held_undos[i].old);
	}
	free(t->held_undos);
	t->held_undos = NULL;
	t->held_undo_count = t->held_undo_room = 0;
	t->holding_undos = t->turned_undos = false;
}

const struct paired *threads_undone_before(const struct threads *t, uint32_t id)
{
	const struct paired *p = t->paired ? &t->paired[id] : NULL;

	return p && p->held ? &t->held_undos[p->held - 1].old : p;
}

struct place *threads_undo_place(const struct session *s, uint32_t id)
{
	const struct paired *p = s->threads && s->threads->paired ? &s->threads->paired[id] : NULL;

	return p && p->undo ? p->place : NULL;
}

void threads_drop_undo(struct session *s, uint32_t id)
{
	const struct paired none = {0};
	struct dinst_error ignored = {0};

	if (s->threads->paired[id].undo)
		exchange(s, id, &none, word_of(s->threads, id, &ignored));
}

int threads_set_undo(struct session *s, struct place *p, uint32_t id,
		     struct snippet_code *const *codes, size_t count, struct dinst_error *e)
{
	struct routine r = {.codes = codes, .count = count};
	struct paired new = {.place = p, .code_count = count};
	taddr_t word;
	int status = make_room_to_hold(s->threads, e);

	if (status < 0)
		return status;
	if (!count) {
		threads_drop_undo(s, id);
		return 0;
	}
	word = word_of(s->threads, id, e);
	if (!word)
		return DINST_NO_MEMORY;
	status = routine_init(&r, e);
	if (status < 0)
		goto release;
	new.codes = calloc(count, sizeof(struct snippet_code *));
	status = new.codes ? routine_write(&r, s, p, &new.undo, &new.undo_size, e)
			   : dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	if (status < 0) {
		free(new.codes);
		goto release;
	}
	for (size_t i = 0; i < count; i++)
		new.codes[i] = snippet_code_ref(codes[i]);
	exchange(s, id, &new, word);
release:
	routine_release(&r);
	return status;
}
