/* SPDX-License-Identifier: MIT */
/*
 * text_json.c - values as JSON. Addresses are texts, since not every reader has integers of
 * 64 bits; numbers that JSON does not have are, too.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/report/text_private.h"

enum { ELEMENTS_MAX = 4096 };

static json_t *value(const struct value_type *type, const uint8_t *bytes, size_t size,
		     const struct pointee *p);

static json_t *address(uint64_t number)
{
	char text[32];

	if (!number)
		return json_null();
	snprintf(text, sizeof(text), "0x%" PRIx64, number);
	return json_string(text);
}

static json_t *characters(const uint8_t *bytes, size_t length)
{
	json_t *whole = json_stringn((const char *)bytes, length);
	struct text t = {0};

	if (whole)
		return whole;
	/* Not UTF-8: escaped as in C. */
	text_add_quoted(&t, bytes, length);
	whole = t.used > 1 ? json_stringn(t.data + 1, t.used - 2) : NULL;
	text_drop(&t);
	return whole;
}

static json_t *unsigned_number(uint64_t number)
{
	char text[32];

	if (number <= INT64_MAX)
		return json_integer((json_int_t)number);
	snprintf(text, sizeof(text), "%" PRIu64, number);
	return json_string(text);
}

static json_t *real(const struct value_type *type, const uint8_t *bytes)
{
	double number;

	if (!value_real(type, bytes, &number))
		return json_null();
	if (isnan(number))
		return json_string("nan");
	if (isinf(number))
		return json_string(number < 0 ? "-inf" : "inf");
	return json_real(number);
}

static json_t *array(const struct value_type *type, const uint8_t *bytes, size_t size)
{
	const size_t step = type->to ? type->to->size : 0;
	const size_t there = size < type->size ? size : type->size;
	json_t *list;

	if (type->to && type->to->form == VALUE_CHAR && step == 1)
		return characters(bytes, strnlen((const char *)bytes, there));
	list = json_array();
	for (size_t i = 0; step && i < ELEMENTS_MAX && (i + 1) * step <= there; i++)
		json_array_append_new(list, value(type->to, bytes + i * step, step, NULL));
	return list;
}

static json_t *structure(const struct value_type *type, const uint8_t *bytes, size_t size,
			 const struct pointee *p)
{
	json_t *object = json_object();

	for (size_t i = 0; i < type->member_count; i++) {
		const struct value_member *m = &type->members[i];
		struct pointee inner = pointee_inside(p, m->offset);
		const uint8_t *at, *string;
		size_t there, length;
		uint64_t bits;
		json_t *one;
		bool cut;

		if (!value_member_at(m, bytes, size, &bits, &at, &there))
			break;
		if (m->type->form == VALUE_STRING &&
		    pointee_string(p, m->offset, &string, &length, &cut) && length)
			one = characters(string, length);
		else
			one = value(m->type, at, there, &inner);
		if (m->name[0] || !json_is_object(one))
			json_object_set_new(object, m->name, one);
		else
			json_object_update_new(object, one);
	}
	return object;
}

static json_t *value(const struct value_type *type, const uint8_t *bytes, size_t size,
		     const struct pointee *p)
{
	int64_t number;
	const char *name;

	if (type && type->form == VALUE_STRUCT)
		return structure(type, bytes, size, p);
	if (type && type->form == VALUE_ARRAY)
		return array(type, bytes, size);
	if (size < (type && type->size && type->size < 8 ? type->size : 8))
		return json_null();
	if (!type) {
		memcpy(&number, bytes, sizeof(number));
		return json_integer(number);
	}
	if (type->form == VALUE_FLOAT)
		return real(type, bytes);
	number = value_widened(type, bytes);
	name = type->form == VALUE_ENUM ? value_name(type, number) : NULL;
	switch (type->form) {
	case VALUE_BOOL:
		return json_boolean(number);
	case VALUE_ENUM:
		return name		   ? rpc_text(name)
		       : type->is_unsigned ? unsigned_number((uint64_t)number)
					   : json_integer(number);
	case VALUE_POINTER:
	case VALUE_STRING:
		return address((uint64_t)number);
	case VALUE_UINT:
		return unsigned_number((uint64_t)number);
	default:
		return json_integer(number);
	}
}

json_t *value_json(const struct value_type *type, const uint8_t *bytes, size_t size)
{
	return value(type, bytes, size, NULL);
}

/* What a pointer leads to; NULL: there is nothing to show but the value. */
static json_t *target(const struct event *e, const struct event_field *f, uint64_t number,
		      const struct field_parts *parts)
{
	const struct event_field *to = parts->target;
	const uint8_t *bytes;
	size_t length;

	if (!to || !number || (f->type && !type_is_pointer(f->type)) ||
	    !event_bytes(e, to, &bytes, &length))
		return NULL;
	if (to->form == EVENT_STRING)
		return f->type || looks_like_text(bytes, length) ? characters(bytes, length) : NULL;
	if (!length || !to->type)
		return NULL;
	return json_pack("{s:o, s:o}", "address", address(number), "to",
			 value(to->type, bytes, length, &parts->pointee));
}

json_t *field_json(const struct event *e, size_t n, size_t *used)
{
	const struct event_field *f = &e->kind->fields[n];
	struct field_parts parts;
	const uint8_t *bytes;
	size_t length;
	uint64_t number;
	json_t *there;

	*used = field_parts(e, n, &parts);
	if (event_value(e, f, &number)) {
		there = target(e, f, number, &parts);
		return there ? there
			     : value(f->type, (const uint8_t *)&number, sizeof(number), NULL);
	}
	if (!event_bytes(e, f, &bytes, &length))
		return json_null();
	if (f->form == EVENT_STRING || !f->type)
		return characters(bytes, length);
	return value(f->type, bytes, length, &parts.pointee);
}
