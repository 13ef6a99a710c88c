/* SPDX-License-Identifier: MIT */
/*
 * text_value.c - values as C would write them, by their types. What the bytes do not
 * reach to is never read.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/report/text_private.h"

enum {
	ELEMENTS_SHOWN = 8,
	PLAIN_MAX = 1 << 20, /* integers of no type up to here are shown as decimals */
};

/* -------------------------------------------------------------------- values */

static uint64_t number_at(const uint8_t *bytes, size_t size)
{
	uint64_t value = 0;

	memcpy(&value, bytes, size < 8 ? size : 8);
	return value;
}

/* The value of a number of 1 to 8 bytes, made as wide as 64 bits. */
int64_t value_widened(const struct value_type *type, const uint8_t *bytes)
{
	const size_t size = type->size && type->size < 8 ? type->size : 8;
	const uint64_t value = number_at(bytes, size);
	const unsigned shift = 64 - 8 * (unsigned)size;

	if (type->form == VALUE_UINT || type->form == VALUE_BOOL || type->form == VALUE_POINTER ||
	    (type->form == VALUE_ENUM && type->is_unsigned))
		return (int64_t)value;
	return (int64_t)(value << shift) >> shift;
}

const char *value_name(const struct value_type *type, int64_t value)
{
	for (size_t i = 0; i < type->name_count; i++)
		if (type->names[i].value == value)
			return type->names[i].name;
	return NULL;
}

/* The names of single bits, where the value is made of such: "READ|WRITE". */
static bool add_bits(struct text *t, const struct value_type *type, int64_t value)
{
	int64_t left = value;
	const char *between = "";

	for (size_t i = 0; i < type->name_count; i++) {
		const int64_t bit = type->names[i].value;

		if (bit > 0 && !(bit & (bit - 1)))
			left &= ~bit;
	}
	if (left || !value)
		return false;
	for (size_t i = 0; i < type->name_count; i++) {
		const int64_t bit = type->names[i].value;

		if (bit <= 0 || bit & (bit - 1) || !(value & bit))
			continue;
		value &= ~bit;
		text_addf(t, "%s", between);
		text_add_clean(t, type->names[i].name);
		between = "|";
	}
	return true;
}

static void add_enum(struct text *t, const struct value_type *type, int64_t value)
{
	const char *name = value_name(type, value);

	if (name)
		text_add_clean(t, name);
	else if (!add_bits(t, type, value))
		text_addf(t, type->is_unsigned ? "%" PRIu64 : "%" PRId64, value);
}

/* An argument's, a field's or a member's, before its value. */
static void add_name(struct text *t, const char *name)
{
	text_add_clean(t, name);
	text_add_bytes(t, "=", 1);
}

bool value_real(const struct value_type *type, const uint8_t *bytes, double *number)
{
	float small;

	if (type->size == sizeof(small)) {
		memcpy(&small, bytes, sizeof(small));
		*number = (double)small;
	} else if (type->size == sizeof(*number)) {
		memcpy(number, bytes, sizeof(*number));
	}
	return type->size == sizeof(small) || type->size == sizeof(*number);
}

/* With the fewest digits that mean the same number. */
static void add_float(struct text *t, const struct value_type *type, const uint8_t *bytes)
{
	char digits[64];
	double value;
	int precision;

	if (!value_real(type, bytes, &value)) {
		text_addf(t, "...");
		return;
	}
	for (precision = 6; precision < 17; precision++) {
		snprintf(digits, sizeof(digits), "%.*g", precision, value);
		if (type->size == 4 ? strtof(digits, NULL) == (float)value
				    : strtod(digits, NULL) == value)
			break;
	}
	text_addf(t, "%.*g", precision, value);
}

static void add_value(struct text *t, const struct value_type *type, const uint8_t *bytes,
		      size_t size, const struct pointee *p);

static void add_array(struct text *t, const struct value_type *type, const uint8_t *bytes,
		      size_t size)
{
	const size_t step = type->to ? type->to->size : 0;
	const size_t count = step ? type->size / step : 0;
	const size_t there = size < type->size ? size : type->size;

	if (type->to && type->to->form == VALUE_CHAR && step == 1) {
		const size_t length = strnlen((const char *)bytes, there);

		text_add_quoted(t, bytes, length);
		if (length == there && there < type->size)
			text_addf(t, "...");
		return;
	}
	text_add_bytes(t, "[", 1);
	for (size_t i = 0; i < count; i++) {
		if (i == ELEMENTS_SHOWN || (i + 1) * step > there) {
			text_addf(t, i ? ", ..." : "...");
			break;
		}
		text_addf(t, "%s", i ? ", " : "");
		add_value(t, type->to, bytes + i * step, step, NULL);
	}
	text_add_bytes(t, "]", 1);
}

/* The bits of a bit field, as the bytes of a number of its type. */
static bool bit_field(const struct value_member *m, const uint8_t *bytes, size_t size,
		      uint64_t *value)
{
	const size_t needed = ((size_t)m->bit_offset + m->bit_size + 7) / 8;

	if (m->offset > size || size - m->offset < needed || m->bit_offset + m->bit_size > 64)
		return false;
	*value = number_at(bytes + m->offset, needed) >> m->bit_offset;
	if (m->bit_size < 64) {
		*value &= (UINT64_C(1) << m->bit_size) - 1;
		if ((m->type->form == VALUE_INT ||
		     (m->type->form == VALUE_ENUM && !m->type->is_unsigned)) &&
		    *value >> (m->bit_size - 1))
			*value |= ~UINT64_C(0) << m->bit_size;
	}
	return true;
}

bool value_member_at(const struct value_member *m, const uint8_t *bytes, size_t size,
		     uint64_t *bits, const uint8_t **at, size_t *there)
{
	if (m->bit_size) {
		if (!bit_field(m, bytes, size, bits))
			return false;
		*at = (const uint8_t *)bits;
		*there = sizeof(*bits);
		return true;
	}
	if (m->offset >= size)
		return false;
	*at = bytes + m->offset;
	*there = size - m->offset;
	return *there >= m->type->size || m->type->form == VALUE_STRUCT ||
	       m->type->form == VALUE_ARRAY;
}

/* A pointer to characters that were recorded, too. */
static bool add_member_string(struct text *t, const struct value_member *m, const struct pointee *p)
{
	const uint8_t *bytes;
	size_t length;
	bool cut;

	if (m->type->form != VALUE_STRING || !pointee_string(p, m->offset, &bytes, &length, &cut) ||
	    !length)
		return false;
	text_add_quoted(t, bytes, length);
	if (cut)
		text_addf(t, "...");
	return true;
}

static void add_struct(struct text *t, const struct value_type *type, const uint8_t *bytes,
		       size_t size, const struct pointee *p)
{
	text_add_bytes(t, "{", 1);
	for (size_t i = 0; i < type->member_count; i++) {
		const struct value_member *m = &type->members[i];
		const uint8_t *at;
		uint64_t bits;
		size_t there;

		text_addf(t, "%s", i ? ", " : "");
		if (!value_member_at(m, bytes, size, &bits, &at, &there)) {
			text_addf(t, "...");
			break;
		}
		if (m->name[0])
			add_name(t, m->name);
		if (!add_member_string(t, m, p)) {
			struct pointee inner = pointee_inside(p, m->offset);

			add_value(t, m->type, at, there, &inner);
		}
	}
	text_add_bytes(t, "}", 1);
}

/* A number of which nothing is known. */
static void add_plain(struct text *t, uint64_t value)
{
	const int64_t as_signed = (int64_t)value;

	if (as_signed > -PLAIN_MAX && as_signed < PLAIN_MAX)
		text_addf(t, "%" PRId64, as_signed);
	else
		text_addf(t, "0x%" PRIx64, value);
}

static void add_value(struct text *t, const struct value_type *type, const uint8_t *bytes,
		      size_t size, const struct pointee *p)
{
	int64_t value;

	if (!type && size >= 8) {
		add_plain(t, number_at(bytes, 8));
		return;
	}
	if (type && type->form == VALUE_STRUCT) {
		add_struct(t, type, bytes, size, p);
		return;
	}
	if (type && type->form == VALUE_ARRAY) {
		add_array(t, type, bytes, size);
		return;
	}
	if (!type || size < (type->size && type->size < 8 ? type->size : 8)) {
		text_addf(t, "...");
		return;
	}
	value = value_widened(type, bytes);
	switch (type->form) {
	case VALUE_BOOL:
		text_addf(t, "%s", value ? "true" : "false");
		break;
	case VALUE_CHAR:
		text_add_char(t, (uint8_t)value);
		break;
	case VALUE_ENUM:
		add_enum(t, type, value);
		break;
	case VALUE_FLOAT:
		add_float(t, type, bytes);
		break;
	case VALUE_POINTER:
	case VALUE_STRING:
		text_addf(t, value ? "0x%" PRIx64 : "NULL", (uint64_t)value);
		break;
	case VALUE_UINT:
		text_addf(t, "%" PRIu64, (uint64_t)value);
		break;
	default:
		text_addf(t, "%" PRId64, value);
		break;
	}
}

void text_add_value(struct text *t, const struct value_type *type, const uint8_t *bytes,
		    size_t size)
{
	add_value(t, type, bytes, size, NULL);
}

/* -------------------------------------------------------------------- fields */

bool pointee_string(const struct pointee *p, size_t at, const uint8_t **bytes, size_t *length,
		    bool *cut)
{
	for (size_t i = 0; p && i < p->count; i++) {
		const struct event_field *f = &p->members[i];

		if (f->at != p->base + at || !event_bytes(p->e, f, bytes, length))
			continue;
		*cut = *length == f->size - 8;
		return true;
	}
	return false;
}

struct pointee pointee_inside(const struct pointee *p, size_t at)
{
	struct pointee inner = {0};

	if (p) {
		inner = *p;
		inner.base += at;
	}
	return inner;
}

size_t field_parts(const struct event *e, size_t n, struct field_parts *out)
{
	const struct event_kind *k = e->kind;
	size_t used = 1;

	*out = (struct field_parts){.pointee.e = e};
	if (n + used < k->field_count && k->fields[n + used].role == EVENT_POINTEE)
		out->target = &k->fields[n + used++];
	out->pointee.members = &k->fields[n] + used;
	while (n + used < k->field_count && k->fields[n + used].role == EVENT_MEMBER) {
		out->pointee.count++;
		used++;
	}
	return used;
}

bool type_is_pointer(const struct value_type *type)
{
	return type->form == VALUE_POINTER || type->form == VALUE_STRING;
}

/* What a pointer leads to, where that was recorded. False: there is nothing to show but the value. */
static bool add_target(struct text *t, const struct event *e, const struct event_field *f,
		       uint64_t value, const struct field_parts *parts)
{
	const struct event_field *target = parts->target;
	const uint8_t *bytes;
	size_t length;

	/* Numbers lead nowhere; of what has no type it may be guessed. */
	if (!target || !value || (f->type && !type_is_pointer(f->type)) ||
	    !event_bytes(e, target, &bytes, &length))
		return false;
	if (target->form == EVENT_STRING) {
		/* Without debug information it is only a guess that it is text. */
		if (!f->type && !looks_like_text(bytes, length))
			return false;
		text_add_quoted(t, bytes, length);
		if (length == target->size - 8)
			text_addf(t, "...");
		return true;
	}
	if (!length || !target->type)
		return false;
	text_addf(t, "0x%" PRIx64 " ", value);
	add_value(t, target->type, bytes, length, &parts->pointee);
	return true;
}

size_t text_add_field(struct text *t, const struct event *e, size_t n)
{
	const struct event_field *f = &e->kind->fields[n];
	struct field_parts parts;
	const size_t used = field_parts(e, n, &parts);
	const uint8_t *bytes;
	size_t length;
	uint64_t value;

	if (f->role != EVENT_RESULT && f->name[0])
		add_name(t, f->name);
	if (event_value(e, f, &value)) {
		if (!add_target(t, e, f, value, &parts))
			add_value(t, f->type, (const uint8_t *)&value, sizeof(value), NULL);
	} else if (event_bytes(e, f, &bytes, &length)) {
		if (f->form == EVENT_STRING || !f->type)
			text_add_quoted(t, bytes, length);
		else
			add_value(t, f->type, bytes, length, &parts.pointee);
	} else {
		text_addf(t, "?");
	}
	return used;
}
