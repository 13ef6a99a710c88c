/* SPDX-License-Identifier: MIT */
/*
 * compile_event.c - record() of a stream: an event with its fields.
 *
 * Whatever takes time is computed first; the ring is held only while the record
 * is written. All fields have the size that they can have at most, so that each
 * of them is at one place, and a record's size is known. A stack is the last one,
 * since what is handed out of it is shorter (stream.h).
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/compile_private.h"
#include "mutator/stream.h"

enum { WORD = 8, TEXT_MOST = 160 };

struct event {
	struct stream_field fields[MDL_FIELDS_MOST];
	unsigned values[MDL_FIELDS_MOST]; /* what is stored, or the address of what is */
	uint32_t bytes[MDL_FIELDS_MOST];  /* of memory, at most */
	size_t count;
	uint32_t size;
};

static uint32_t rounded(uint64_t bytes)
{
	return (uint32_t)((bytes + WORD - 1) / WORD * WORD);
}

/* The number of bytes that an argument says, or `usual` where there is none. */
static uint32_t bytes_of(struct compiler *c, const struct mdl_expr *x, size_t arg, int64_t usual)
{
	int64_t n = usual;

	if (arg < x->arg_count && !mdl_constant(x->args[arg], &n))
		compile_fail(c, &x->place, DINST_USAGE, "how many bytes must be a number");
	return n > 0 && n <= MDL_BYTES_MOST ? (uint32_t)n : 1;
}

static void compile_value(struct compiler *c, const struct mdl_expr *x, struct event *e)
{
	struct operand o;
	unsigned size;

	compile_operand(c, x, &o);
	e->values[e->count] = compile_load_bits(c, &o, x, &size);
	e->fields[e->count].float_size = (uint8_t)size;
}

static void compile_memory(struct compiler *c, const struct mdl_expr *x, struct event *e,
			   enum stream_form form, uint32_t bytes)
{
	struct stream_field *f = &e->fields[e->count];

	f->form = form;
	f->size = WORD + rounded(bytes);
	e->bytes[e->count] = bytes;
	e->values[e->count] = compile_number(c, x->args[0]);
	c->system_calls = true;
}

static bool is_stack(const struct mdl_expr *x)
{
	return x->kind == MDL_CALL && x->function == MDL_DO_STACK;
}

/* As much of the stack as that many calls may need; usually they are smaller. */
static uint32_t stack_bytes(int64_t frames)
{
	const int64_t bytes = frames * STREAM_FRAME_BYTES;

	return bytes < STREAM_STACK_LEAST  ? STREAM_STACK_LEAST
	       : bytes > STREAM_STACK_MOST ? STREAM_STACK_MOST
					   : (uint32_t)bytes;
}

static void compile_stack(struct compiler *c, const struct mdl_expr *x, struct event *e)
{
	struct stream_field *f = &e->fields[e->count];
	int64_t frames = MDL_STACK_FRAMES;

	if ((x->arg_count && !mdl_constant(x->args[0], &frames)) ||
	    (c->q->placement->kind != POINT_ENTRY && c->q->placement->kind != POINT_EXIT))
		compile_fail(c, &x->place, DINST_USAGE,
			     "a stack is known at a function's entry and where it returns");
	for (size_t i = 0; i < e->count; i++)
		if (e->fields[i].form == STREAM_STACK)
			compile_fail(c, &x->place, DINST_USAGE, "an event has one stack");
	f->form = STREAM_STACK;
	f->frames = (uint16_t)frames;
	e->bytes[e->count] = stack_bytes(frames);
	f->size = (uint32_t)sizeof(struct stream_stack) + e->bytes[e->count];
	e->values[e->count] = compile_get(c, ARCH_OP_STACK_POINTER, 0);
	c->system_calls = true;
}

static void compile_field_of(struct compiler *c, const struct mdl_expr *x, struct event *e)
{
	struct stream_field *f = &e->fields[e->count];
	char text[TEXT_MOST];

	mdl_expr_text(x, text, sizeof(text));
	*f = (struct stream_field){
		.form = STREAM_VALUE, .size = WORD, .is_address = x->kind == MDL_CALLER};
	f->text = strdup(text);
	if (!f->text)
		compile_fail(c, &x->place, DINST_NO_MEMORY, "out of memory");
	if (x->kind == MDL_CALL && x->function == MDL_DO_STRING)
		compile_memory(c, x, e, STREAM_STRING, bytes_of(c, x, 1, MDL_STRING_BYTES));
	else if (x->kind == MDL_CALL && x->function == MDL_DO_BYTES)
		compile_memory(c, x, e, STREAM_BYTES, bytes_of(c, x, 1, 0));
	else if (is_stack(x))
		compile_stack(c, x, e);
	else
		compile_value(c, x, e);
	e->count++;
}

/* Where the fields are: one behind the other, the stack behind all. */
static void place_fields(struct event *e)
{
	for (unsigned stacks = 0; stacks < 2; stacks++)
		for (size_t i = 0; i < e->count; i++) {
			if ((e->fields[i].form == STREAM_STACK) != stacks)
				continue;
			e->fields[i].offset = e->size;
			e->size += e->fields[i].size;
		}
}

static void store(struct compiler *c, unsigned record, size_t offset, unsigned value)
{
	struct arch_op *op = compile_op(c, ARCH_OP_STORE);

	op->a = (uint16_t)record;
	op->b = (uint16_t)value;
	op->number = offset;
	op->size = WORD;
}

/* What a walk begins with, besides the stack. */
static void store_registers(struct compiler *c, const struct stream_field *f, unsigned sp,
			    unsigned record)
{
	const size_t preserved = f->offset + offsetof(struct stream_stack, preserved);
	unsigned number;

	store(c, record, f->offset + offsetof(struct stream_stack, sp), sp);
	store(c, record, f->offset + offsetof(struct stream_stack, caller),
	      compile_get(c, ARCH_OP_CALLER, 0));
	for (unsigned n = 0; n < ARCH_PRESERVED_MOST && arch_preserved(n, &number); n++)
		store(c, record, preserved + (size_t)n * WORD,
		      compile_get(c, ARCH_OP_PRESERVED, n));
}

static void store_fields(struct compiler *c, const struct event *e, unsigned record)
{
	for (size_t i = 0; i < e->count; i++) {
		const struct stream_field *f = &e->fields[i];
		size_t at = f->offset;
		struct arch_op *op;

		if (f->form == STREAM_VALUE) {
			store(c, record, at, e->values[i]);
			continue;
		}
		if (f->form == STREAM_STACK) {
			store_registers(c, f, e->values[i], record);
			at += offsetof(struct stream_stack, length);
		}
		op = compile_op(c, ARCH_OP_RING_BYTES);
		op->a = (uint16_t)record;
		op->b = (uint16_t)e->values[i];
		op->number = at;
		op->immediate = (int32_t)e->bytes[i];
	}
}

static void write_record(struct compiler *c, const struct event *e, uint32_t id)
{
	const unsigned record = compile_new_value(c), ring = compile_new_value(c);
	const unsigned dropped = compile_label(c);
	struct arch_op *op = compile_op(c, ARCH_OP_RING_OPEN);

	op->result = (uint16_t)record;
	op->second = (uint16_t)ring;
	op->number = id;
	op->immediate = (int32_t)e->size;
	compile_if_constant(c, ARCH_TEST_EQ, record, 0, dropped);
	store_fields(c, e, record);
	op = compile_op(c, ARCH_OP_RING_CLOSE);
	op->a = (uint16_t)ring;
	op->immediate = (int32_t)e->size;
	compile_put_label(c, dropped);
}

static taddr_t address_of(const struct mdl_placement *p)
{
	const struct image_function *functions;
	const taddr_t bias = p->function.module->bias;

	if (p->address_count == 1)
		return p->addresses[0] + bias;
	image_functions(p->function.module->image, &functions);
	return functions[p->function.index].address + bias;
}

/* The id of such events; takes over the fields. 0: it has failed. */
static uint32_t describe(struct compiler *c, const struct mdl_expr *x, const struct variable *v,
			 struct event *e)
{
	const struct mdl_placement *p = c->q->placement;
	struct stream_event kind = {
		.size = e->size,
		.key = x,
		.function = p->function,
		.address = address_of(p),
		.kind = p->kind,
		.tail = c->q->tail_exit,
		.field_count = e->count,
		.queue = v->queue,
	};
	uint32_t id;

	kind.fields = calloc(e->count + 1, sizeof(*kind.fields));
	if (!kind.fields)
		return compile_fail(c, &x->place, DINST_NO_MEMORY, "out of memory");
	memcpy(kind.fields, e->fields, e->count * sizeof(*kind.fields));
	id = stream_describe(c->q->session, &kind);
	if (!id) {
		free(kind.fields);
		return compile_fail(c, &x->place, DINST_NO_MEMORY, "out of memory");
	}
	e->count = 0;
	return id;
}

static bool needs_result(const struct mdl_expr *x)
{
	if (!x)
		return false;
	for (size_t i = 0; i < x->arg_count; i++)
		if (needs_result(x->args[i]))
			return true;
	return x->kind == MDL_RETURN || needs_result(x->left) || needs_result(x->right) ||
	       needs_result(x->condition);
}

void compile_event(struct compiler *c, const struct mdl_expr *x, struct variable *v,
		   struct operand *out)
{
	const uint32_t most = c->q->session ? stream_record_most(c->q->session) : ARCH_RECORD_MAX;
	struct event e = {.size = sizeof(struct arch_record)};
	size_t stored;
	uint32_t id;

	*out = operand_constant(0);
	if (c->q->mode != COMPILE_POINT || c->failed)
		return;
	if (x->arg_count > MDL_FIELDS_MOST + 1) {
		compile_fail(c, &x->place, DINST_USAGE, "an event has %d fields at most",
			     MDL_FIELDS_MOST);
		return;
	}
	/* Its id is about one function. */
	c->depends = true;
	/* Where a function ends by a jump to another one there is no result yet: an event without. */
	for (size_t i = 1; i < x->arg_count && !c->failed; i++)
		if (!c->q->tail_exit || !needs_result(x->args[i]))
			compile_field_of(c, x->args[i], &e);
	place_fields(&e);
	if (!c->failed && e.size > most)
		compile_fail(c, &x->place, DINST_USAGE,
			     "this event has %u bytes; there is room for %u", e.size, most);
	if (!c->failed && (!c->q->session || !v->queue))
		compile_fail(c, &x->place, DINST_FAILED, "a stream without rings");
	stored = e.count;
	id = c->failed ? 0 : describe(c, x, v, &e);
	for (size_t i = 0; i < e.count && !id; i++)
		free(e.fields[i].text);
	if (!id)
		return;
	compile_count(c, x, v);
	/* describe() took the fields over; their places are as they were. */
	e.count = stored;
	write_record(c, &e, id);
	/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the texts are the stream's, in a copy */
}
