/* SPDX-License-Identifier: MIT */
/*
 * types.c - types as DWARF has them, through libdw. Outside input: whatever it
 * says, nothing here runs for long or fails; what is not understood is
 * TYPE_UNKNOWN or TYPE_OTHER. (DWARF 5, chapters 4 and 5.)
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/types_private.h"
#include "mutator/types_reader.h"

enum { NESTED_MAX = 8, LEAVES_MAX = 64, CHILDREN_MAX = 4096, MEMBERS_MAX = 8192 };

/* -------------------------------------------------------------- opening */

static bool is_compressed(const struct elf_file *f)
{
	for (size_t i = 0; i < f->section_count; i++)
		if ((f->sections[i].flags & SHF_COMPRESSED) ||
		    !strncmp(f->sections[i].name, ".zdebug", 7))
			return true;
	return false;
}

const struct elf_file *types_file(const struct image *img)
{
	static const char *const names[] = {".debug_info", ".zdebug_info"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (img->debug.bytes && elf_section_named(&img->debug, names[i]))
			return &img->debug;
		if (elf_section_named(&img->file, names[i]))
			return &img->file;
	}
	return NULL;
}

bool types_are_told(const struct image *img)
{
	return types_file(img) != NULL;
}

static Dwarf *open_file(struct types_file *t, const struct elf_file *f)
{
	uint8_t *bytes = f->bytes;

	if (is_compressed(f)) {
		/* libelf changes headers of what it decompresses, and the file is mapped to be read. */
		t->bytes = malloc(f->size);
		if (!t->bytes)
			return NULL;
		memcpy(t->bytes, f->bytes, f->size);
		bytes = t->bytes;
	}
	t->elf = elf_memory((char *)bytes, f->size);
	if (t->elf)
		t->dwarf = dwarf_begin_elf(t->elf, DWARF_C_READ, NULL);
	return t->dwarf;
}

static void close_file(struct types_file *t)
{
	if (t->dwarf)
		dwarf_end(t->dwarf);
	if (t->elf)
		elf_end(t->elf);
	free(t->bytes);
}

/*
 * Asked for the file that several share, libdw would open whatever the program's file names. It gets what
 * debug_files.c has found; without it nothing is known of where anything is.
 */
static void open_dwarf(struct types *t, const struct image *img)
{
	const struct elf_file *f = types_file(img);

	if (!f || elf_version(EV_CURRENT) == EV_NONE)
		return;
	if (elf_section_named(f, ".gnu_debugaltlink") &&
	    (!img->shared.bytes || !open_file(&t->shared, &img->shared)))
		return;
	t->dwarf = open_file(&t->own, f);
	if (t->dwarf && t->shared.dwarf)
		dwarf_setalt(t->dwarf, t->shared.dwarf);
}

struct types *types_of(struct image *img)
{
	if (!img->types) {
		img->types = calloc(1, sizeof(*img->types));
		if (img->types)
			open_dwarf(img->types, img);
	}
	return img->types && img->types->dwarf ? img->types : NULL;
}

void types_release(struct types *t)
{
	if (!t)
		return;
	types_release_units(t);
	close_file(&t->own);
	close_file(&t->shared);
	free(t);
}

/* ---------------------------------------------------------------- types */

static void base_type(Dwarf_Die *die, struct type *out)
{
	Dwarf_Attribute attribute;
	Dwarf_Word encoding = 0;

	out->kind = TYPE_OTHER;
	if (!dwarf_attr(die, DW_AT_encoding, &attribute) ||
	    dwarf_formudata(&attribute, &encoding) != 0)
		return;
	switch (encoding) {
	case DW_ATE_signed:
	case DW_ATE_signed_char:
		out->is_signed = true;
		out->kind = TYPE_INTEGER;
		break;
	case DW_ATE_unsigned:
	case DW_ATE_unsigned_char:
	case DW_ATE_boolean:
	case DW_ATE_UTF:
	case DW_ATE_address:
		out->kind = TYPE_INTEGER;
		break;
	case DW_ATE_float:
		if (out->size == 4 || out->size == 8)
			out->kind = TYPE_FLOAT;
		break;
	default:
		break;
	}
}

static bool has_negative(Dwarf_Die *enumeration)
{
	unsigned left = CHILDREN_MAX;
	Dwarf_Attribute attribute;
	Dwarf_Sword value;
	Dwarf_Die die;

	if (dwarf_child(enumeration, &die) != 0)
		return false;
	do {
		if (dwarf_attr(&die, DW_AT_const_value, &attribute) &&
		    dwarf_whatform(&attribute) == DW_FORM_sdata &&
		    dwarf_formsdata(&attribute, &value) == 0 && value < 0)
			return true;
	} while (--left && types_sibling(&die));
	return false;
}

/* What it is made of may be anything in a damaged file, itself too: only a base type tells its sign. */
static void enumeration(struct image *img, Dwarf_Die *die, struct type *out)
{
	struct type base = {0};
	Dwarf_Die named, peeled;

	if (types_named_type(die, &named) && types_peel(&named, &peeled) &&
	    types_is_own(img->types, &peeled) && dwarf_tag(&peeled) == DW_TAG_base_type)
		base_type(&peeled, &base);
	out->kind = TYPE_INTEGER;
	/* Before DWARF 3 nothing but the values tells. */
	out->is_signed = base.kind == TYPE_INTEGER ? base.is_signed : has_negative(die);
}

static bool has(Dwarf_Die *die, unsigned attribute)
{
	return dwarf_hasattr(die, attribute) == 1;
}

/* A type without its names and qualifiers. */
void types_from_type(struct image *img, Dwarf_Die *die, struct type *out)
{
	Dwarf_Attribute signature;
	Dwarf_Die peeled, described;
	uint64_t size;

	*out = (struct type){0};
	if (!types_peel(die, &peeled))
		return;
	/* Declared here, and described in a unit of its own (DWARF 4, -fdebug-types-section). */
	if (dwarf_attr(&peeled, DW_AT_signature, &signature) &&
	    dwarf_formref_die(&signature, &described))
		peeled = described;
	if (!types_is_own(img->types, &peeled))
		return;
	size = types_size(&peeled);
	if (size <= UINT32_MAX)
		out->size = (uint32_t)size;
	out->image = img;
	out->die = types_number_of(img->types, &peeled);
	switch (dwarf_tag(&peeled)) {
	case DW_TAG_base_type:
		base_type(&peeled, out);
		break;
	case DW_TAG_enumeration_type:
		enumeration(img, &peeled, out);
		break;
	case DW_TAG_pointer_type:
	case DW_TAG_reference_type:
	case DW_TAG_rvalue_reference_type:
	case DW_TAG_unspecified_type:
		out->kind = TYPE_POINTER;
		out->size = 8;
		break;
	case DW_TAG_structure_type:
	case DW_TAG_class_type:
	case DW_TAG_union_type:
		out->kind = TYPE_STRUCT;
		break;
	case DW_TAG_array_type:
		out->kind = types_is_array(&peeled) ? TYPE_ARRAY : TYPE_OTHER;
		break;
	default:
		out->kind = TYPE_OTHER;
		break;
	}
}

void types_from_die(struct image *img, Dwarf_Die *die, struct type *out)
{
	Dwarf_Attribute attribute;
	Dwarf_Die type;

	*out = (struct type){.kind = TYPE_VOID};
	if (!dwarf_attr_integrate(die, DW_AT_type, &attribute))
		return;
	*out = (struct type){0};
	if (dwarf_formref_die(&attribute, &type))
		types_from_type(img, &type, out);
}

/* An element of an array of several dimensions is an array of one less. */
static void make_row(const struct type *array, Dwarf_Die *die, struct type *element)
{
	const unsigned taken = array->taken + 1u;
	uint64_t count, size;

	if (array->kind != TYPE_ARRAY || !types_elements(die, taken, &count))
		return;
	if (__builtin_mul_overflow(count, element->size, &size) || size > UINT32_MAX)
		size = 0;
	*element = *array;
	element->size = (uint32_t)size;
	element->taken = (uint8_t)taken;
}

void read_target(const struct type *type, struct type *out)
{
	const struct type from = *type; /* which may be *out */
	Dwarf_Die die;

	*out = (struct type){0};
	if ((from.kind == TYPE_POINTER || from.kind == TYPE_ARRAY) && types_die(&from, &die)) {
		types_from_die(from.image, &die, out);
		make_row(&from, &die, out);
	} else if (from.kind == TYPE_BY_REFERENCE) {
		*out = from;
		out->kind = TYPE_STRUCT;
	}
	if (out->kind == TYPE_VOID)
		*out = (struct type){0};
}

/* -------------------------------------------------------------- members */

/* DWARF 2: a distance as an expression. No attribute, in a union: 0. */
static bool offset_of(Dwarf_Die *die, uint64_t *offset)
{
	Dwarf_Attribute attribute;
	Dwarf_Op *ops;
	size_t count;

	*offset = 0;
	if (!dwarf_attr(die, DW_AT_data_member_location, &attribute))
		return true;
	if (dwarf_getlocation(&attribute, &ops, &count) != 0 || count != 1 ||
	    ops[0].atom != DW_OP_plus_uconst)
		return false;
	*offset = ops[0].number;
	return true;
}

/* Where a member is. Members whose place is computed (virtual bases) are not known. */
bool types_place_of(Dwarf_Die *die, struct type_field *field)
{
	uint64_t bits, size, offset;

	if (!types_number(die, DW_AT_data_member_location, &field->offset) &&
	    !offset_of(die, &field->offset))
		return false;
	if (!types_number(die, DW_AT_bit_size, &size))
		return true;
	if (size == 0 || size > 64)
		return false;
	field->bit_size = (uint8_t)size;
	if (types_number(die, DW_AT_data_bit_offset, &bits)) {
		field->offset += bits / 8;
		field->bit_offset = (uint8_t)(bits % 8);
		return true;
	}
	/* DWARF 2: from the highest bit of a unit of the type's size. */
	if (!types_number(die, DW_AT_bit_offset, &offset) || !field->type.size ||
	    offset + size > field->type.size * 8ull)
		return false;
	bits = field->type.size * 8ull - offset - size;
	field->offset += bits / 8;
	field->bit_offset = (uint8_t)(bits % 8);
	return true;
}

/*
 * A member lies in its struct. What it is taken for decides what the target's code
 * reads without asking, so a file that says otherwise is not believed.
 */
bool types_is_within(const struct type *type, const struct type_field *f)
{
	const uint64_t bits = f->bit_size ? f->bit_offset + f->bit_size : f->type.size * 8ull;

	return f->offset <= type->size && (bits + 7) / 8 <= type->size - f->offset;
}

/* Calls each() for every member; unnamed ones and base classes too. Stops where it returns true. */
static bool walk_members(const struct type *type,
			 bool (*each)(void *arg, const char *name, const struct type_field *f),
			 void *arg)
{
	Dwarf_Die parent, die;
	unsigned left = CHILDREN_MAX;

	if (type->kind != TYPE_STRUCT || !types_die(type, &parent) ||
	    dwarf_child(&parent, &die) != 0)
		return false;
	do {
		const int tag = dwarf_tag(&die);
		struct type_field field = {0};
		const char *name;

		if (tag != DW_TAG_member && tag != DW_TAG_inheritance)
			continue;
		/* Static members have no place here. */
		if (has(&die, DW_AT_external) || has(&die, DW_AT_declaration))
			continue;
		types_from_die(type->image, &die, &field.type);
		name = tag == DW_TAG_member ? dwarf_diename(&die) : NULL;
		if (!types_place_of(&die, &field) || !types_is_within(type, &field))
			field = (struct type_field){.type = {.kind = TYPE_OTHER}};
		if (each(arg, name, &field))
			return true;
	} while (--left && types_sibling(&die));
	return false;
}

struct member_search {
	const char *name;
	struct type_field *out;
	unsigned depth, left; /* members to be looked at, in all */
	bool found;
};

static bool find_member(const struct type *type, struct member_search *s);

static bool is_member(void *arg, const char *name, const struct type_field *field)
{
	struct member_search *s = arg;

	if (!s->left)
		return true;
	s->left--;
	if (name && !strcmp(name, s->name)) {
		*s->out = *field;
		s->found = true;
		return true;
	}
	if (name || field->type.kind != TYPE_STRUCT || !find_member(&field->type, s))
		return false;
	s->out->offset += field->offset;
	return true;
}

static bool find_member(const struct type *type, struct member_search *s)
{
	if (s->depth == NESTED_MAX)
		return false;
	s->depth++;
	walk_members(type, is_member, s);
	s->depth--;
	return s->found;
}

bool read_field(const struct type *type, const char *name, struct type_field *out)
{
	struct member_search s = {.name = name, .out = out, .left = MEMBERS_MAX};

	return find_member(type, &s);
}

struct name_list {
	const char **names;
	size_t count, max;
};

static bool add_name(void *arg, const char *name, const struct type_field *field)
{
	struct name_list *l = arg;

	(void)field;
	if (name && l->count < l->max)
		l->names[l->count++] = name;
	return l->count == l->max;
}

size_t read_field_names(const struct type *type, const char **names, size_t max)
{
	struct name_list l = {.names = names, .max = max};

	if (max)
		walk_members(type, add_name, &l);
	return l.count;
}

/* ------------------------------------------------- words of small structs */

struct word_search {
	bool floats[2], others[2];
	uint64_t base;
	unsigned depth, leaves;
	bool bad;
};

static void look_at(struct word_search *s, const struct type *type, uint64_t offset);

static bool look_at_member(void *arg, const char *name, const struct type_field *field)
{
	struct word_search *s = arg;

	(void)name;
	if (field->bit_size) {
		const uint64_t bit = (s->base + field->offset) * 8 + field->bit_offset;

		for (uint64_t word = bit / 64; word <= (bit + field->bit_size - 1) / 64; word++)
			s->others[word & 1] = true;
		return false;
	}
	look_at(s, &field->type, s->base + field->offset);
	return s->bad;
}

static void look_at_elements(struct word_search *s, const struct type *type, uint64_t offset)
{
	struct type element;

	type_target(type, &element);
	if (!element.size || !type->size) {
		s->bad = true;
		return;
	}
	for (uint64_t i = 0; i < type->size / element.size && !s->bad; i++)
		look_at(s, &element, offset + i * element.size);
}

static void look_at(struct word_search *s, const struct type *type, uint64_t offset)
{
	const uint64_t base = s->base;

	if (++s->leaves > LEAVES_MAX || s->depth == NESTED_MAX || offset > 16 ||
	    type->size > 16 - offset) {
		s->bad = true;
		return;
	}
	s->depth++;
	switch (type->kind) {
	case TYPE_INTEGER:
	case TYPE_POINTER:
	case TYPE_FLOAT:
		if (!type->size || type->size > 8 || offset % type->size) {
			s->bad = true;
			break;
		}
		*(type->kind == TYPE_FLOAT ? &s->floats[offset / 8] : &s->others[offset / 8]) =
			true;
		break;
	case TYPE_STRUCT:
		s->base = offset;
		walk_members(type, look_at_member, s);
		s->base = base;
		break;
	case TYPE_ARRAY:
		look_at_elements(s, type, offset);
		break;
	default:
		s->bad = true;
		break;
	}
	s->depth--;
}

bool read_words(const struct type *type, bool is_float[2])
{
	struct word_search s = {0};

	look_at(&s, type, 0);
	for (unsigned i = 0; i < 2; i++)
		is_float[i] = s.floats[i] && !s.others[i];
	return !s.bad && (s.floats[0] || s.others[0]) &&
	       (type->size <= 8 || s.floats[1] || s.others[1]);
}

/* ---------------------------------------------------- functions, variables */

void read_variable(struct image *img, vaddr_t address, struct type *out)
{
	struct types *t = types_of(img);
	Dwarf_Die die;

	if (t && types_find_variable(t, address, &die))
		types_from_die(img, &die, out);
}

void read_function(struct image *img, uint32_t function, struct type_function *out)
{
	const struct image_function *functions;
	struct types *t = types_of(img);
	Dwarf_Die die, child;
	bool promotes, is_told;
	int language;

	memset(out, 0, sizeof(*out));
	if (function >= image_functions(img, &functions) || !t ||
	    !types_find_function(t, functions[function].address, &die))
		return;
	language = types_language(&die);
	if (!types_is_told(language))
		return;
	out->known = true;
	out->is_changed = types_has_own_convention(img, &die);
	promotes = types_promotes(&die);
	out->variadic = promotes;
	types_from_die(img, &die, &out->result);
	types_by_value(&out->result, language);
	is_told = out->result.kind != TYPE_UNKNOWN;
	if (dwarf_child(&die, &child) != 0) {
		out->known = is_told;
		return;
	}
	do {
		struct type *type = &out->arguments[out->argument_count];

		if (dwarf_tag(&child) == DW_TAG_unspecified_parameters)
			out->variadic = true;
		if (dwarf_tag(&child) != DW_TAG_formal_parameter)
			continue;
		if (out->argument_count == TYPE_ARGUMENTS) {
			out->variadic = true;
			break;
		}
		types_from_die(img, &child, type);
		types_by_value(type, language);
		if ((type->kind == TYPE_INTEGER || type->kind == TYPE_POINTER ||
		     type->kind == TYPE_FLOAT) &&
		    types_is_by_address(&die, &child))
			type->kind = TYPE_UNSURE;
		types_align(type);
		if (promotes && type->kind == TYPE_FLOAT)
			type->size = sizeof(double);
		out->argument_count++;
		is_told = is_told && type->kind != TYPE_UNKNOWN;
	} while (types_sibling(&child));
	/* What is told elsewhere, and that is not there: nothing is known of where anything is. */
	if (!is_told)
		memset(out, 0, sizeof(*out));
}
