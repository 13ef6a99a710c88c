/* SPDX-License-Identifier: MIT */
/*
 * types_describe.c - types in words, from DWARF. Outside input: what a file says is
 * walked through to bounded depth and length only.
 */
#include "mutator/types_describe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/types_private.h"

enum { NAME_ROOM = 160, NAME_STEPS = 12, CHILDREN_MOST = 4096 };

/* How much may still be said. */
struct description {
	struct image *img;
	unsigned nodes;
};

/* -------------------------------------------------------------------- names */

static const char *tag_word(int tag, bool c)
{
	if (!c)
		return "";
	switch (tag) {
	case DW_TAG_structure_type:
		return "struct ";
	case DW_TAG_union_type:
		return "union ";
	case DW_TAG_enumeration_type:
		return "enum ";
	default:
		return "";
	}
}

/* Appends as much as there is room for. */
static void append(char text[NAME_ROOM], const char *word)
{
	const size_t used = strlen(text);

	snprintf(text + used, NAME_ROOM - used, "%s", word);
}

/* One step from a type to what it is made of; false at the end, when its name is complete. */
static bool name_step(Dwarf_Die *die, bool c, char text[NAME_ROOM], char stars[NAME_STEPS + 1])
{
	const int tag = dwarf_tag(die);
	const char *name = dwarf_diename(die);
	Dwarf_Die next;

	switch (tag) {
	case DW_TAG_pointer_type:
	case DW_TAG_reference_type:
	case DW_TAG_rvalue_reference_type:
	case DW_TAG_array_type:
		memmove(stars + 1, stars, strlen(stars) + 1);
		stars[0] = tag == DW_TAG_pointer_type ? '*' : tag == DW_TAG_array_type ? '[' : '&';
		break;
	case DW_TAG_const_type:
		/* That the value itself is constant says nothing about it. */
		if (stars[0] && !text[0])
			append(text, "const ");
		break;
	case DW_TAG_volatile_type:
	case DW_TAG_restrict_type:
	case DW_TAG_atomic_type:
		break;
	case DW_TAG_subroutine_type:
		append(text, "function");
		return false;
	default:
		append(text, tag_word(tag, c));
		append(text, name ? name : "{...}");
		return false;
	}
	if (!types_named_type(die, &next)) {
		append(text, "void");
		return false;
	}
	*die = next;
	return true;
}

/* As C would write it: "const struct client *". */
static void name_of(Dwarf_Die *type, char text[NAME_ROOM])
{
	const bool c = types_is_c(types_language(type));
	char stars[NAME_STEPS + 1] = "";
	Dwarf_Die die = *type;

	text[0] = '\0';
	for (unsigned i = 0; i < NAME_STEPS && name_step(&die, c, text, stars); i++)
		;
	if (stars[0])
		append(text, " ");
	for (const char *star = stars; *star; star++)
		append(text, *star == '*' ? "*" : *star == '&' ? "&" : "[]");
}

/* -------------------------------------------------------------------- types */

static json_t *describe(struct description *d, Dwarf_Die *die, unsigned levels);

/* A string of it that is valid UTF-8 and no longer than there is room for, whatever the file has. */
static json_t *text_json(const char *text)
{
	const size_t length = strnlen(text, NAME_ROOM);
	json_t *whole = length < NAME_ROOM ? json_stringn(text, length) : NULL;
	char plain[NAME_ROOM];
	size_t i;

	if (whole)
		return whole;
	for (i = 0; i < length && i + 1 < sizeof(plain); i++)
		plain[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
	plain[i] = '\0';
	return json_string(plain);
}

static const char *base_form(Dwarf_Die *die, uint64_t size)
{
	const char *name = dwarf_diename(die);
	uint64_t encoding;

	if (!types_number(die, DW_AT_encoding, &encoding) || !size || size > 8)
		return NULL;
	switch (encoding) {
	case DW_ATE_boolean:
		return "bool";
	case DW_ATE_float:
		return size == 4 || size == 8 ? "float" : NULL;
	case DW_ATE_signed:
		return "int";
	case DW_ATE_signed_char:
	case DW_ATE_unsigned_char:
		if (name && !strcmp(name, "char"))
			return "char";
		return encoding == DW_ATE_signed_char ? "int" : "uint";
	case DW_ATE_unsigned:
	case DW_ATE_UTF:
	case DW_ATE_address:
		return "uint";
	default:
		return NULL;
	}
}

/*
 * The value of an enumerator as the enumeration has it. Only forms of signed numbers say that they are signed; what
 * is in as many bytes as it takes (200 in one) is the number itself.
 */
static bool enum_value(Dwarf_Attribute *attribute, const struct type *of, Dwarf_Sword *value)
{
	const unsigned form = dwarf_whatform(attribute);
	const unsigned shift = of->size && of->size < 8 ? 64 - 8 * of->size : 0;
	Dwarf_Word bits;

	if (form == DW_FORM_sdata || form == DW_FORM_implicit_const)
		return dwarf_formsdata(attribute, value) == 0;
	if (dwarf_formudata(attribute, &bits) != 0)
		return false;
	*value = of->is_signed ? (Dwarf_Sword)(bits << shift) >> shift : (Dwarf_Sword)bits;
	return true;
}

static json_t *enum_names(const struct type *of, Dwarf_Die *enumeration)
{
	json_t *names = json_object();
	unsigned left = CHILDREN_MOST;
	Dwarf_Attribute attribute;
	Dwarf_Die die;

	if (dwarf_child(enumeration, &die) != 0)
		return names;
	do {
		const char *name = dwarf_diename(&die);
		Dwarf_Sword value;
		char key[32];

		if (!name || dwarf_tag(&die) != DW_TAG_enumerator ||
		    !dwarf_attr(&die, DW_AT_const_value, &attribute) ||
		    !enum_value(&attribute, of, &value))
			continue;
		snprintf(key, sizeof(key), "%lld", (long long)value);
		/* Of two names the first one counts. */
		if (!json_object_get(names, key))
			json_object_set_new(names, key, text_json(name));
	} while (--left && json_object_size(names) < DESCRIBED_NAMES && types_sibling(&die));
	return names;
}

/* A member and its place; NULL where that is computed, or is not inside. */
static json_t *member_json(struct description *d, const struct type *parent, Dwarf_Die *die,
			   unsigned levels)
{
	const char *name = dwarf_tag(die) == DW_TAG_member ? dwarf_diename(die) : NULL;
	struct type_field field = {0};
	Dwarf_Die named;
	json_t *type, *member;

	types_from_die(d->img, die, &field.type);
	if (!types_place_of(die, &field) || !types_is_within(parent, &field) ||
	    !types_named_type(die, &named))
		return NULL;
	type = describe(d, &named, levels);
	if (!type)
		return NULL;
	member = json_pack("{s:o, s:I, s:o}", "name", text_json(name ? name : ""), "offset",
			   (json_int_t)field.offset, "type", type);
	if (member && field.bit_size) {
		json_object_set_new(member, "bit_offset", json_integer(field.bit_offset));
		json_object_set_new(member, "bit_size", json_integer(field.bit_size));
	}
	return member;
}

static json_t *members_json(struct description *d, Dwarf_Die *structure, unsigned levels)
{
	json_t *members = json_array();
	unsigned left = CHILDREN_MOST;
	struct type parent;
	Dwarf_Die die;

	types_from_type(d->img, structure, &parent);
	if (dwarf_child(structure, &die) != 0)
		return members;
	do {
		const int tag = dwarf_tag(&die);
		json_t *member;

		if ((tag != DW_TAG_member && tag != DW_TAG_inheritance) ||
		    dwarf_hasattr(&die, DW_AT_external) == 1 ||
		    dwarf_hasattr(&die, DW_AT_declaration) == 1)
			continue;
		member = member_json(d, &parent, &die, levels);
		if (member)
			json_array_append_new(members, member);
	} while (--left && json_array_size(members) < DESCRIBED_MEMBERS && types_sibling(&die));
	return members;
}

/* What a pointer leads to: characters, a struct while there are levels left, or nothing to show. */
static const char *target_of(struct description *d, Dwarf_Die *pointer, unsigned levels,
			     json_t **to)
{
	const char *name;
	Dwarf_Die named, target;

	*to = NULL;
	if (!types_named_type(pointer, &named) || !types_peel(&named, &target) ||
	    !types_is_own(d->img->types, &target))
		return "pointer";
	name = dwarf_diename(&target);
	if (dwarf_tag(&target) == DW_TAG_base_type && name && !strcmp(name, "char") &&
	    dwarf_tag(pointer) == DW_TAG_pointer_type)
		return "string";
	if (levels > DESCRIBED_LEVELS - 1 && (dwarf_tag(&target) == DW_TAG_structure_type ||
					      dwarf_tag(&target) == DW_TAG_class_type))
		*to = describe(d, &named, levels);
	return "pointer";
}

static json_t *element_json(struct description *d, Dwarf_Die *array, unsigned levels)
{
	Dwarf_Die named;

	return types_named_type(array, &named) ? describe(d, &named, levels) : NULL;
}

/* Sets what there is; takes it over. */
static void set_part(json_t *object, const char *key, json_t *part)
{
	if (part)
		json_object_set_new(object, key, part);
}

static json_t *described(const char *form, const char *name, uint64_t size)
{
	return json_pack("{s:o, s:s, s:I}", "name", text_json(name), "form", form, "size",
			 (json_int_t)size);
}

/* Unsigned ones say so: of 200 in a byte nobody else knows that it is not -56. */
static json_t *enum_json(struct description *d, Dwarf_Die *die, const char *name, uint64_t size)
{
	json_t *described_enum = described("enum", name, size ? size : 4);
	struct type type;

	types_from_type(d->img, die, &type);
	if (!type.size)
		type.size = 4;
	if (!type.is_signed)
		set_part(described_enum, "unsigned", json_true());
	set_part(described_enum, "names", enum_names(&type, die));
	return described_enum;
}

/* A type as it is named there; `levels` of structs are shown inside. NULL: nothing can be shown. */
static json_t *describe(struct description *d, Dwarf_Die *named, unsigned levels)
{
	const char *form = NULL;
	json_t *type, *to = NULL;
	char name[NAME_ROOM];
	Dwarf_Die die;
	uint64_t size;
	int tag;

	if (!d->nodes || !types_peel(named, &die) || !types_is_own(d->img->types, &die))
		return NULL;
	d->nodes--;
	name_of(named, name);
	tag = dwarf_tag(&die);
	size = types_size(&die);
	if (size > INT32_MAX)
		return NULL;
	switch (tag) {
	case DW_TAG_base_type:
		form = base_form(&die, size);
		return form ? described(form, name, size) : NULL;
	case DW_TAG_enumeration_type:
		return enum_json(d, &die, name, size);
	case DW_TAG_pointer_type:
	case DW_TAG_reference_type:
	case DW_TAG_rvalue_reference_type:
		form = target_of(d, &die, levels, &to);
		type = described(form, name, 8);
		set_part(type, "to", to);
		return type;
	case DW_TAG_structure_type:
	case DW_TAG_class_type:
	case DW_TAG_union_type:
		if (!levels || !size)
			return NULL;
		type = described("struct", name, size);
		set_part(type, "members", members_json(d, &die, levels - 1));
		return type;
	case DW_TAG_array_type:
		to = size ? element_json(d, &die, levels) : NULL;
		if (!to)
			return NULL;
		type = described("array", name, size);
		set_part(type, "to", to);
		return type;
	default:
		return NULL;
	}
}

/* ---------------------------------------------------------------- functions */

static json_t *of_die(struct description *d, Dwarf_Die *die)
{
	Dwarf_Die named;
	json_t *type = types_named_type(die, &named) ? describe(d, &named, DESCRIBED_LEVELS) : NULL;

	return type ? type : json_null();
}

static json_t *argument_json(struct description *d, Dwarf_Die *argument, bool promotes)
{
	const char *name = dwarf_diename(argument);
	json_t *type = of_die(d, argument);
	const char *form = json_string_value(json_object_get(type, "form"));

	if (promotes && form && !strcmp(form, "float"))
		json_object_set_new(type, "size", json_integer(sizeof(double)));
	return json_pack("{s:o, s:o}", "name", text_json(name ? name : ""), "type", type);
}

char *read_description(struct image *img, uint32_t function)
{
	struct description d = {img, DESCRIBED_NODES};
	const struct image_function *functions;
	struct types *t = types_of(img);
	json_t *arguments, *whole;
	unsigned left = CHILDREN_MOST;
	Dwarf_Die die, child;
	bool promotes;
	char *text;

	if (function >= image_functions(img, &functions) || !t ||
	    !types_find_function(t, functions[function].address, &die) ||
	    !types_is_told(types_language(&die)))
		return NULL;
	promotes = types_promotes(&die);
	arguments = json_array();
	whole = json_pack("{s:o, s:o}", "result", of_die(&d, &die), "arguments", arguments);
	if (dwarf_child(&die, &child) != 0)
		left = 0;
	while (left--) {
		if (dwarf_tag(&child) == DW_TAG_formal_parameter)
			json_array_append_new(arguments, argument_json(&d, &child, promotes));
		if (json_array_size(arguments) == DESCRIBED_ARGUMENTS || !types_sibling(&child))
			break;
	}
	text = json_dumps(whole, JSON_COMPACT);
	json_decref(whole);
	if (text && strlen(text) > DESCRIBED_BYTES) {
		free(text);
		text = NULL;
	}
	return text;
}
