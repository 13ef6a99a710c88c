/* SPDX-License-Identifier: MIT */
/*
 * event_types.c - descriptions of types as they come in answers, and the code in which bytes
 * come. Nothing is believed: depths and counts are bounded.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/report/event.h"

enum {
	TYPE_DEPTH = 8,
	TYPE_SIZE_MAX = 1 << 30, /* bytes; only ever compared */
	TYPE_NAMES_MAX = 1 << 16,
	TYPE_MEMBERS_MAX = 1 << 12,
};

void value_type_free(struct value_type *type)
{
	if (!type)
		return;
	for (size_t i = 0; i < type->name_count; i++)
		free(type->names[i].name);
	for (size_t i = 0; i < type->member_count; i++) {
		free(type->members[i].name);
		value_type_free(type->members[i].type);
	}
	value_type_free(type->to);
	free(type->names);
	free(type->members);
	free(type->name);
	free(type);
}

static uint32_t bounded(const json_t *object, const char *key, uint32_t max)
{
	json_int_t value = json_integer_value(json_object_get(object, key));

	return value < 0 ? 0 : value > max ? max : (uint32_t)value;
}

static bool names_read(struct value_type *type, const json_t *from)
{
	size_t count = json_object_size(from);
	const char *key;
	json_t *name;

	if (!count || count > TYPE_NAMES_MAX)
		return true;
	type->names = calloc(count, sizeof(*type->names));
	if (!type->names)
		return false;
	json_object_foreach((json_t *)from, key, name)
	{
		if (!json_is_string(name))
			continue;
		type->names[type->name_count].value = strtoll(key, NULL, 10);
		type->names[type->name_count].name = strdup(json_string_value(name));
		if (!type->names[type->name_count++].name)
			return false;
	}
	return true;
}

static struct value_type *type_read(const json_t *from, unsigned depth);

static bool members_read(struct value_type *type, const json_t *from, unsigned depth)
{
	size_t count = json_array_size(from), i;
	json_t *row;

	if (!count || count > TYPE_MEMBERS_MAX)
		return true;
	type->members = calloc(count, sizeof(*type->members));
	if (!type->members)
		return false;
	json_array_foreach((json_t *)from, i, row)
	{
		struct value_member *m = &type->members[type->member_count];
		const char *name = json_string_value(json_object_get(row, "name"));

		m->type = type_read(json_object_get(row, "type"), depth - 1);
		if (!m->type)
			continue; /* what is not known is not shown */
		type->member_count++;
		m->offset = bounded(row, "offset", TYPE_SIZE_MAX);
		m->bit_offset = bounded(row, "bit_offset", 63);
		m->bit_size = bounded(row, "bit_size", 64);
		m->name = strdup(name ? name : "");
		if (!m->name)
			return false;
	}
	return true;
}

static struct value_type *type_read(const json_t *from, unsigned depth)
{
	static const char *const forms[] = {"int",   "uint",	"bool",	  "char",   "enum",
					    "float", "pointer", "string", "struct", "array"};
	const char *form = json_string_value(json_object_get(from, "form"));
	const char *name = json_string_value(json_object_get(from, "name"));
	struct value_type *type;
	size_t i = 0;

	if (!form || !depth)
		return NULL;
	while (i < sizeof(forms) / sizeof(*forms) && strcmp(form, forms[i]) != 0)
		i++;
	type = i < sizeof(forms) / sizeof(*forms) ? calloc(1, sizeof(*type)) : NULL;
	if (!type)
		return NULL;
	type->form = i;
	type->name = strdup(name ? name : "");
	type->size = bounded(from, "size", TYPE_SIZE_MAX);
	type->is_unsigned = json_is_true(json_object_get(from, "unsigned"));
	type->to = type_read(json_object_get(from, "to"), depth - 1);
	if (type->name && names_read(type, json_object_get(from, "names")) &&
	    members_read(type, json_object_get(from, "members"), depth))
		return type;
	value_type_free(type);
	return NULL;
}

struct value_type *value_type_read(const json_t *description)
{
	return type_read(description, TYPE_DEPTH);
}

/* ------------------------------------------------------------------ base64 */

/* What each character is worth; 64 where it is no digit. */
static void digits_fill(uint8_t digits[256])
{
	static const char order[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	memset(digits, 64, 256);
	for (uint8_t i = 0; i < 64; i++)
		digits[(uint8_t)order[i]] = i;
}

size_t base64_decode(const char *text, size_t length, uint8_t *to, size_t room)
{
	size_t used = 0, padding = 0;
	uint8_t digits[256];

	digits_fill(digits);
	if (length % 4 || length / 4 > room / 3 + 1)
		return SIZE_MAX;
	while (padding < 2 && padding < length && text[length - 1 - padding] == '=')
		padding++;
	for (size_t i = 0; i < length; i += 4) {
		size_t count = i + 4 == length ? 3 - padding : 3;
		unsigned bits = 0;

		for (size_t j = 0; j < 4; j++) {
			unsigned value = j <= count ? digits[(uint8_t)text[i + j]] : 0;

			if (value > 63)
				return SIZE_MAX;
			bits = bits << 6 | value;
		}
		if (room - used < count)
			return SIZE_MAX;
		for (size_t j = 0; j < count; j++)
			to[used++] = bits >> (16 - 8 * j);
	}
	return used;
}
