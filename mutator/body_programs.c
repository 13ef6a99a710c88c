/* SPDX-License-Identifier: MIT */
/*
 * body_programs.c - the programs of one place put together into one.
 *
 * What runs at one place in one frame is one program: the record of the thread
 * is looked for once, a flag that several pieces test is loaded once, entries
 * and exits are noted once for each function. Values and labels of the pieces
 * are numbered anew, one piece behind the other. The same pieces give the same
 * program: a program counter in a body is explained by making it again.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/body.h"
#include "mutator/variable.h"
#include "mutator/wall_clock.h"

/* A function whose activation begins or ends here. */
struct pairing {
	uint32_t id;
	bool ends;
	uint16_t activation, start; /* values */
};

enum { PAIRINGS_MAX = 16 };

struct merging {
	const struct body *body;
	struct arch_program *out;
	struct pairing pairings[PAIRINGS_MAX];
	unsigned pairing_count;
	uint16_t record; /* value, 0: none yet */
	/* For what comes behind all pieces. */
	unsigned kept_ops, kept_labels;
	bool full;
};

enum { LEFT_OPS = 3, LEFT_LABELS = 1 }; /* of add_left() */

static struct arch_op *add_op(struct merging *m, enum arch_op_kind kind)
{
	static struct arch_op nowhere;
	struct arch_program *p = m->out;

	if (p->count + m->kept_ops >= ARCH_PROGRAM_OPS) {
		m->full = true;
		return &nowhere;
	}
	p->ops[p->count] = (struct arch_op){.kind = (uint8_t)kind};
	return &p->ops[p->count++];
}

static uint16_t new_value(struct merging *m)
{
	if (m->out->values >= ARCH_PROGRAM_VALUES)
		m->full = true;
	return ++m->out->values;
}

static uint16_t new_label(struct merging *m)
{
	if (m->out->labels + m->kept_labels >= ARCH_PROGRAM_LABELS)
		m->full = true;
	return ++m->out->labels;
}

/* ------------------------------------------------------------- entries */

static bool marks_activation(const struct body_piece *p)
{
	return p->snippet.kind == SNIPPET_PROGRAM && p->snippet.pair &&
	       (p->kind == POINT_ENTRY || p->kind == POINT_EXIT);
}

/* Somebody wants to know when the activation began. */
static bool wants_start(const struct body *b, unsigned first, unsigned end, uint32_t id)
{
	for (unsigned i = first; i < end; i++)
		if (b->pieces[i].snippet.start && b->pieces[i].snippet.pair == id &&
		    b->pieces[i].kind == POINT_ENTRY)
			return true;
	return false;
}

/* The entry's time goes into its pair_entry, behind the tag, where it was kept. */
static void add_start(struct merging *m, uint16_t activation)
{
	const uint16_t label = new_label(m), now = new_value(m);
	struct arch_op *op = add_op(m, ARCH_OP_IF);

	op->condition = ARCH_TEST_EQ;
	op->a = activation;
	op->label = label;
	op = add_op(m, ARCH_OP_CLOCK);
	op->result = now;
	op->number = ticks_wall_clock();
	op = add_op(m, ARCH_OP_STORE);
	op->a = activation;
	op->number = offsetof(struct pair_entry, start);
	op->b = now;
	op->size = sizeof(uint64_t);
	add_op(m, ARCH_OP_LABEL)->label = label;
}

/* The values of the piece's function; its entry or exit is noted the first time. */
static const struct pairing *pairing_of(struct merging *m, const struct body_piece *piece,
					unsigned first, unsigned end)
{
	const bool is_entry = piece->kind == POINT_ENTRY;
	struct pairing *p;
	struct arch_op *op;

	for (unsigned n = 0; n < m->pairing_count; n++)
		if (m->pairings[n].id == piece->snippet.pair)
			return &m->pairings[n];
	if (m->pairing_count == PAIRINGS_MAX) {
		m->full = true;
		return &m->pairings[0];
	}
	if (!m->record) {
		m->record = new_value(m);
		add_op(m, ARCH_OP_RECORD)->result = m->record;
	}
	p = &m->pairings[m->pairing_count++];
	*p = (struct pairing){
		.id = piece->snippet.pair, .ends = !is_entry, .activation = new_value(m)};
	if (p->ends) {
		p->start = new_value(m);
		m->kept_ops += LEFT_OPS;
		m->kept_labels += LEFT_LABELS;
	}
	op = add_op(m, is_entry ? ARCH_OP_ENTER : ARCH_OP_LEAVE);
	op->number = p->id;
	op->a = m->record;
	op->result = p->activation;
	op->second = p->start;
	if (is_entry && wants_start(m->body, first, end, p->id))
		add_start(m, p->activation);
	return p;
}

/* ------------------------------------------------------------- pieces */

static uint16_t moved_value(uint16_t value, uint16_t by, const struct pairing *pairing)
{
	if (value == ARCH_VALUE_ACTIVATION)
		return pairing ? pairing->activation : 0;
	if (value == ARCH_VALUE_START)
		return pairing ? pairing->start : 0;
	return value ? (uint16_t)(value + by) : 0;
}

static void add_piece(struct merging *m, unsigned index, unsigned first, unsigned end)
{
	const struct body_piece *piece = &m->body->pieces[index];
	const struct snippet_code *code = piece->snippet.code;
	const struct pairing *pairing = NULL;
	uint16_t values, labels;

	if (marks_activation(piece))
		pairing = pairing_of(m, piece, first, end);
	if (!code)
		return;
	values = m->out->values;
	labels = m->out->labels;
	if (m->out->count + code->program.count + m->kept_ops > ARCH_PROGRAM_OPS ||
	    values + code->program.values > ARCH_PROGRAM_VALUES ||
	    labels + code->program.labels + m->kept_labels > ARCH_PROGRAM_LABELS) {
		m->full = true;
		return;
	}
	for (unsigned n = 0; n < code->program.count; n++) {
		struct arch_op *op = &m->out->ops[m->out->count++];

		*op = code->program.ops[n];
		op->result = moved_value(op->result, values, pairing);
		op->second = moved_value(op->second, values, pairing);
		op->a = moved_value(op->a, values, pairing);
		op->b = moved_value(op->b, values, pairing);
		if (op->label)
			op->label = (uint16_t)(op->label + labels);
	}
	m->out->values = (uint16_t)(values + code->program.values);
	m->out->labels = (uint16_t)(labels + code->program.labels);
}

/*
 * Behind all pieces: activations that were found end now. Until then a handler that jumps out of
 * here has left them without an exit, and what is undone for that is not less than what their
 * exits had not done yet.
 */
static void add_left(struct merging *m)
{
	m->kept_ops = m->kept_labels = 0;
	for (unsigned n = 0; n < m->pairing_count; n++) {
		const struct pairing *p = &m->pairings[n];
		struct arch_op *op;

		if (!p->ends)
			continue;
		op = add_op(m, ARCH_OP_IF);
		op->condition = ARCH_TEST_EQ;
		op->a = p->activation;
		op->label = new_label(m);
		op = add_op(m, ARCH_OP_LEFT);
		op->number = p->id;
		op->a = m->record;
		add_op(m, ARCH_OP_LABEL)->label = m->out->labels;
	}
}

/* As many of [first, end) as fit, as one program in `out`; returns the end of those. */
static unsigned merge(const struct body *b, unsigned first, unsigned end, struct arch_program *out)
{
	struct merging m = {.body = b, .out = out};

	out->count = out->labels = 0;
	out->values = ARCH_VALUE_FIRST - 1;
	for (unsigned i = first; i < end; i++) {
		const struct arch_program before = *out;
		const unsigned paired = m.pairing_count;

		add_piece(&m, i, first, end);
		if (m.full) {
			/* What it has added is forgotten, and what it has paired. */
			*out = before;
			m.pairing_count = paired;
			end = i;
		}
	}
	m.full = false;
	add_left(&m);
	return m.full ? first : end;
}

/* ---------------------------------------------------------------- runs */

/* One piece that is nothing but its program needs no copy. */
static bool stands_alone(const struct body *b, unsigned first, unsigned end)
{
	return end - first == 1 && !marks_activation(&b->pieces[first]);
}

/* An activation is known to one program only: those that ask for it cannot be in two. */
static bool splits_activation(const struct body *b, unsigned first, unsigned middle, unsigned end)
{
	for (unsigned i = first; i < middle; i++)
		for (unsigned k = middle; k < end && marks_activation(&b->pieces[i]); k++)
			if (marks_activation(&b->pieces[k]) &&
			    b->pieces[i].snippet.pair == b->pieces[k].snippet.pair)
				return true;
	return false;
}

static int add_run(struct code *c, unsigned first, unsigned end, struct arch_op *ops,
		   struct dinst_error *e)
{
	struct code_run *run = &c->runs[c->run_count];
	const struct wall_clock *clock = c->session->wall_clock;
	const struct snippet_code *code = c->body->pieces[first].snippet.code;
	const bool alone = stands_alone(c->body, first, end);
	unsigned stop = end;

	*run = (struct code_run){.first = first};
	if (alone && (!code || !clock || !wall_clock_is_wanted(&code->program))) {
		run->end = end;
		if (code)
			run->program = code->program;
		c->run_count++;
		return 0;
	}
	run->program = (struct arch_program){.ops = ops, .room = ARCH_PROGRAM_OPS};
	if (alone) {
		run->program = code->program;
		memcpy(ops, code->program.ops, code->program.count * sizeof(*ops));
		run->program.ops = ops;
	} else {
		stop = merge(c->body, first, end, &run->program);
	}
	if (stop == first || splits_activation(c->body, first, stop, end))
		return dinst_fail(
			e, DINST_REFUSED,
			"more is inserted at %#llx than one program can hold: remove some of it first",
			(unsigned long long)c->site->key.start);
	run->end = stop;
	if (!alone)
		arch_program_optimise(&run->program);
	if (clock)
		wall_clock_expand(clock, &run->program);
	run->program.ops = malloc((run->program.count + 1u) * sizeof(*ops));
	if (!run->program.ops)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory for the code of a site");
	memcpy(run->program.ops, ops, run->program.count * sizeof(*ops));
	run->owned = true;
	c->run_count++;
	return 0;
}

/* The end of the pieces that one frame may have in one row, from `first` on. */
static unsigned row_end(const struct code *c, unsigned first)
{
	const struct body_piece *p = c->body->pieces, *a = &p[first];
	unsigned end = first;

	while (end < c->body->count && p[end].snippet.kind == SNIPPET_PROGRAM &&
	       p[end].insn == a->insn && p[end].place == a->place &&
	       /* Entries may be passed by, where a branch leads back to the window. */
	       (p[end].kind == POINT_ENTRY) == (a->kind == POINT_ENTRY))
		end++;
	return end;
}

int code_make_runs(struct code *c, struct dinst_error *e)
{
	struct arch_op ops[ARCH_PROGRAM_OPS];
	unsigned first = 0;
	int status = 0;

	if (!c->body || !c->body->count)
		return 0;
	c->runs = calloc(c->body->count, sizeof(*c->runs));
	if (!c->runs)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory for the code of a site");
	while (first < c->body->count && status >= 0) {
		if (c->body->pieces[first].snippet.kind != SNIPPET_PROGRAM) {
			first++;
			continue;
		}
		status = add_run(c, first, row_end(c, first), ops, e);
		first = status < 0 ? first : c->runs[c->run_count - 1].end;
	}
	return status;
}

void code_free_runs(struct code *c)
{
	for (unsigned n = 0; n < c->run_count; n++)
		if (c->runs[n].owned)
			free(c->runs[n].program.ops);
	free(c->runs);
	c->runs = NULL;
	c->run_count = 0;
}

const struct code_run *code_run_at(const struct code *c, unsigned piece)
{
	unsigned lo = 0, hi = c->run_count;

	while (lo < hi) {
		const unsigned middle = (lo + hi) / 2;

		if (piece < c->runs[middle].first)
			hi = middle;
		else if (piece >= c->runs[middle].end)
			lo = middle + 1;
		else
			return &c->runs[middle];
	}
	return NULL;
}
