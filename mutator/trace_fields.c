/* SPDX-License-Identifier: MIT */
/*
 * trace_fields.c - what is recorded of a function: its arguments and results by their types,
 * and what pointers lead to as far as people want to see it. What cannot be read where it
 * is passed is left out, as the compiler of MDL would refuse it.
 */
#include "mutator/trace_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/compile_private.h"
#include "mutator/types.h"

enum { PARTS_MOST = 8, FIELD_BYTES = 8, RAW_STRING_BYTES = 48 };

struct making {
	const struct trace_request *q;
	struct trace_record *record;
	bool needs_result;
	struct dinst_error *e;
	int status;
};

/* A field with its text; NULL where there is no more room for it, or no memory. */
static struct trace_field *add(struct making *m, size_t bytes, const char *role, const char *name,
			       const char *format, ...) __attribute__((format(printf, 5, 6)));

static struct trace_field *add(struct making *m, size_t bytes, const char *role, const char *name,
			       const char *format, ...)
{
	struct trace_record *r = m->record;
	struct trace_field *f;
	va_list args;
	int n;

	if (m->status < 0 || r->count == TRACE_FIELDS_MOST || r->bytes + bytes > TRACE_RECORD_BYTES)
		return NULL;
	f = &r->fields[r->count];
	*f = (struct trace_field){.role = role, .needs_result = m->needs_result};
	va_start(args, format);
	n = vasprintf(&f->text, format, args);
	va_end(args);
	if (n < 0)
		f->text = NULL;
	f->name = strdup(name);
	if (!f->text || !f->name) {
		free(f->text);
		free(f->name);
		*f = (struct trace_field){0};
		m->status = dinst_fail(m->e, DINST_NO_MEMORY, "out of memory");
		return NULL;
	}
	r->count++;
	r->bytes += bytes;
	return f;
}

static unsigned string_bytes(const struct making *m)
{
	const unsigned n = m->q->string_bytes ? m->q->string_bytes : TRACE_STRING_USUAL;

	/* A field's room is whole words; what fills all of it was cut. */
	return n < TRACE_STRING_MOST ? (n + 7) / 8 * 8 : TRACE_STRING_MOST;
}

static const char *form_of(const json_t *type)
{
	const char *form = json_string_value(json_object_get(type, "form"));

	return form ? form : "";
}

/*
 * The strings that members of a struct point to, of structs in it too. `value` is the struct's
 * address; `base`: where the struct at hand begins in it.
 */
static void add_member_strings(struct making *m, const char *value, json_t *structure, size_t base,
			       size_t there, unsigned *left)
{
	size_t i;
	json_t *member;

	json_array_foreach(json_object_get(structure, "members"), i, member)
	{
		const char *name = json_string_value(json_object_get(member, "name"));
		json_t *type = json_object_get(member, "type");
		const json_int_t offset = json_integer_value(json_object_get(member, "offset"));
		struct trace_field *f;

		/* What was recorded of the struct ends before this. */
		if (!name || offset < 0 || base + (size_t)offset + 8 > there)
			continue;
		if (!strcmp(form_of(type), "struct"))
			add_member_strings(m, value, type, base + (size_t)offset, there, left);
		if (strcmp(form_of(type), "string") != 0 || !*left)
			continue;
		f = add(m, FIELD_BYTES + string_bytes(m), "member", name,
			"string(readMemory(%s + %zu, 8), %u)", value, base + (size_t)offset,
			string_bytes(m));
		if (!f)
			return;
		f->at = (unsigned)(base + (size_t)offset);
		--*left;
	}
}

/* What a value that was just recorded leads to. */
static void add_target(struct making *m, const char *value, json_t *type)
{
	json_t *to = json_object_get(type, "to");
	const json_int_t size = json_integer_value(json_object_get(to, "size"));
	const size_t there = size < TRACE_STRUCT_BYTES ? (size_t)size : TRACE_STRUCT_BYTES;
	unsigned left = TRACE_STRINGS_OF_STRUCT;
	struct trace_field *f;

	if (!strcmp(form_of(type), "string")) {
		add(m, FIELD_BYTES + string_bytes(m), "pointee", "", "string(%s, %u)", value,
		    string_bytes(m));
	} else if (!strcmp(form_of(type), "pointer") && !strcmp(form_of(to), "struct") &&
		   size > 0) {
		f = add(m, FIELD_BYTES + there, "pointee", "", "bytes(%s, %zu)", value, there);
		if (!f)
			return;
		f->type = json_incref(to);
		add_member_strings(m, value, to, 0, there, &left);
	}
}

/* True if it can be written in MDL: not so Rust's "r#type", nor what is not ASCII. */
static bool is_plain(const char *name)
{
	return !(*name >= '0' && *name <= '9') &&
	       !name[strspn(name,
			    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789")];
}

/* A struct that is passed or returned itself: its members, as far as they are numbers. */
static void add_parts(struct making *m, const char *role, const char *name, const char *value,
		      json_t *type)
{
	unsigned left = PARTS_MOST;
	size_t i;
	json_t *member;

	json_array_foreach(json_object_get(type, "members"), i, member)
	{
		const char *part = json_string_value(json_object_get(member, "name"));
		json_t *part_type = json_object_get(member, "type");
		const char *form = form_of(part_type);
		struct trace_field *f;
		char whole[256];

		if (!part || !*part || !is_plain(part) || !left || !strcmp(form, "struct") ||
		    !strcmp(form, "array"))
			continue;
		snprintf(whole, sizeof(whole), "%.120s%s%.120s", name, *name ? "." : "", part);
		f = add(m, FIELD_BYTES, role, whole, "%s.%s", value, part);
		if (!f)
			return;
		/* As a number of 64 bits: what a bit field or a narrow member is was seen to already. */
		f->type = json_incref(part_type);
		left--;
	}
}

static bool is_number(const struct type *t)
{
	return t->kind == TYPE_UNKNOWN || t->kind == TYPE_POINTER || t->kind == TYPE_FLOAT ||
	       (t->kind == TYPE_INTEGER && t->size && t->size <= 8);
}

/* False: where the next argument is, nobody knows. */
static bool add_argument(struct making *m, size_t n, const struct type *t, json_t *told,
			 const char *kept)
{
	const char *name = json_string_value(json_object_get(told, "name"));
	json_t *type = json_object_get(told, "type");
	struct trace_field *f;
	char value[64], path[64];

	snprintf(path, sizeof(path), "$arg[%zu]", n);
	if (kept)
		snprintf(value, sizeof(value), "%s_%zu", kept, n);
	else
		snprintf(value, sizeof(value), "%s", path);
	if (is_number(t)) {
		f = add(m, FIELD_BYTES, "argument", name ? name : "", "%s", value);
		/* What is kept for the return is an integer. */
		if (f && json_is_object(type) && !(kept && t->kind == TYPE_FLOAT))
			f->type = json_incref(type);
		if (f)
			add_target(m, value, type);
		return true;
	}
	if (t->kind == TYPE_BY_REFERENCE || t->kind == TYPE_STRUCT) {
		if (!kept)
			add_parts(m, "argument", name ? name : "", path, type);
		return true;
	}
	return false;
}

/* Nothing is known: numbers, and text where they happen to lead to some. */
static void add_raw_arguments(struct making *m, const char *kept)
{
	const unsigned bytes = m->q->string_bytes ? string_bytes(m) : RAW_STRING_BYTES;

	for (size_t n = 0; n < TRACE_RAW_ARGUMENTS; n++) {
		char value[64];

		if (kept)
			snprintf(value, sizeof(value), "%s_%zu", kept, n);
		else
			snprintf(value, sizeof(value), "$arg[%zu]", n);
		if (add(m, FIELD_BYTES, "argument", "", "%s", value))
			add(m, FIELD_BYTES + bytes, "pointee", "", "string(%s, %u)", value, bytes);
	}
}

static void add_arguments(struct making *m, const struct type_function *types, json_t *told,
			  const char *kept)
{
	const json_t *arguments = json_object_get(told, "arguments");

	if (!types->known) {
		add_raw_arguments(m, kept);
		return;
	}
	for (size_t n = 0; n < types->argument_count && n < json_array_size(arguments); n++)
		if (!compile_knows_argument(types, n) ||
		    !add_argument(m, n, &types->arguments[n], json_array_get(arguments, n), kept))
			return;
}

static void add_result(struct making *m, const struct type_function *types, json_t *told)
{
	json_t *type = json_object_get(told, "result");
	struct trace_field *f;

	m->needs_result = true;
	if (types->is_changed || (types->known && types->result.kind == TYPE_VOID))
		return;
	if (types->known && !is_number(&types->result)) {
		if (compile_knows_result(types))
			add_parts(m, "result", "", "$return", type);
		return;
	}
	f = add(m, FIELD_BYTES, "result", "", "$return");
	if (!f)
		return;
	if (json_is_object(type))
		f->type = json_incref(type);
	add_target(m, "$return", type);
}

/* Arguments of such functions are not where they should be. */
static bool is_strange(const struct trace_function *f)
{
	return image_is_go(f->function.module->image) || compile_is_changed(&f->function);
}

/* Of what is called from there the lines tell it. */
static void add_stack(struct making *m, const struct trace_function *f)
{
	if (m->q->stack && f->level == 0)
		add(m, 0, "backtrace", "", "stack(%u)", m->q->stack);
}

int trace_fields_make(const struct trace_request *q, struct trace_function *f, bool at_return,
		      json_t *described, struct dinst_error *e)
{
	struct making m = {.q = q, .record = &f->entry, .e = e};
	struct type_function types = {0};
	const bool arguments = q->arguments && !is_strange(f);

	if (described)
		types_of_function(f->function.module->image, f->function.index, &types);
	if (!at_return) {
		add(&m, FIELD_BYTES, "sp", "", "$stack");
		if (q->caller)
			add(&m, FIELD_BYTES, "caller", "", "$caller");
		add_stack(&m, f);
		if (arguments)
			add_arguments(&m, &types, described, NULL);
		m.record = &f->result;
	} else {
		m.record = &f->result;
		add(&m, FIELD_BYTES, "elapsed", "", "$elapsed");
		if (q->caller)
			add(&m, FIELD_BYTES, "caller", "", "$caller");
		add_stack(&m, f);
		if (arguments && f->level == 0)
			add_arguments(&m, &types, described, f->kept);
	}
	add(&m, FIELD_BYTES, "sp", "", "$stack");
	if (q->result && !is_strange(f))
		add_result(&m, &types, described);
	return m.status;
}
