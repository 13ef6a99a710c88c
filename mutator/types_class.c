/* SPDX-License-Identifier: MIT */
/*
 * types_class.c - is a class passed by value? One with a destructor, or a copy
 * or move constructor, that does something is passed by the address of a copy
 * (Itanium C++ ABI, 3.1.2.3, "non-trivial for the purposes of calls"). Some
 * compilers say which it is; else its declaration tells. When in doubt, in doubt.
 * And: may a struct have to lie at a multiple of more than a word?
 */
#include <string.h>

#include "mutator/types_private.h"

enum {
	DEPTH_MAX = 8,
	MEMBERS_MAX = 4096,
	ORIGINS_MAX = 8,
	ABBREVS_MAX = 4096,
	ATTRIBUTES_MAX = 256,
};

enum passing { PASSED_BY_VALUE, PASSED_BY_REFERENCE, PASSED_UNSURE };

/* Where a function's code is may be told in a unit of another language (-flto); shared units have none (dwz). */
int types_language(Dwarf_Die *die)
{
	Dwarf_Die origin = *die, unit;
	Dwarf_Attribute attribute;
	int language = -1, told;

	for (unsigned i = 0; i < ORIGINS_MAX; i++) {
		told = dwarf_diecu(&origin, &unit, NULL, NULL) ? dwarf_srclang(&unit) : -1;
		if (told != -1)
			language = told;
		if ((!dwarf_attr(&origin, DW_AT_abstract_origin, &attribute) &&
		     !dwarf_attr(&origin, DW_AT_specification, &attribute)) ||
		    !dwarf_formref_die(&attribute, &origin))
			break;
	}
	return language;
}

bool types_is_c(int language)
{
	return language == DW_LANG_C89 || language == DW_LANG_C || language == DW_LANG_C99 ||
	       language == DW_LANG_C11;
}

bool types_promotes(Dwarf_Die *function)
{
	return types_is_c(types_language(function)) &&
	       !dwarf_hasattr_integrate(function, DW_AT_prototyped);
}

bool types_is_told(int language)
{
	switch (language) {
	/* Only the name and the place are. */
	case DW_LANG_Mips_Assembler:
	/* An argument has the type of the value, and is its address; the lengths of texts follow them all. */
	case DW_LANG_Fortran77:
	case DW_LANG_Fortran90:
	case DW_LANG_Fortran95:
	case DW_LANG_Fortran03:
	case DW_LANG_Fortran08:
	case 0x2d: /* Fortran 2018, from the list that DWARF 6 will have */
		return false;
	default:
		return true;
	}
}

static bool is_cplusplus(int language)
{
	/* C++17 and C++20 have their numbers from the list that DWARF 6 will have. */
	return language == DW_LANG_C_plus_plus || language == DW_LANG_C_plus_plus_03 ||
	       language == DW_LANG_C_plus_plus_11 || language == DW_LANG_C_plus_plus_14 ||
	       language == 0x2a || language == 0x2b;
}

static uint64_t number_of(Dwarf_Die *die, unsigned name)
{
	Dwarf_Attribute attribute;
	Dwarf_Word word;

	if (!dwarf_attr(die, name, &attribute) || dwarf_formudata(&attribute, &word) != 0)
		return 0;
	return word;
}

static bool is_set(Dwarf_Die *die, unsigned name)
{
	Dwarf_Attribute attribute;
	bool flag;

	return dwarf_attr(die, name, &attribute) && dwarf_formflag(&attribute, &flag) == 0 && flag;
}

/* The first parameter besides `this`; how many there are, of which two are counted. */
static unsigned parameters_of(Dwarf_Die *function, Dwarf_Die *first)
{
	unsigned count = 0;
	Dwarf_Die die;

	if (dwarf_child(function, &die) != 0)
		return 0;
	do {
		if (dwarf_tag(&die) != DW_TAG_formal_parameter || is_set(&die, DW_AT_artificial))
			continue;
		if (count++ == 0)
			*first = die;
	} while (count < 2 && types_sibling(&die));
	return count;
}

/* N(const N &), N(N &&); or with more behind it, of which nobody tells whether it may be left out. */
static bool copies(Dwarf_Die *class, Dwarf_Die *function, bool *has_more)
{
	Dwarf_Die parameter, type, target, peeled;
	Dwarf_Attribute attribute;
	const unsigned count = parameters_of(function, &parameter);
	int tag;

	*has_more = count > 1;
	if (!count || !dwarf_attr_integrate(&parameter, DW_AT_type, &attribute) ||
	    !dwarf_formref_die(&attribute, &type) || !types_peel(&type, &peeled))
		return false;
	tag = dwarf_tag(&peeled);
	if (tag != DW_TAG_reference_type && tag != DW_TAG_rvalue_reference_type)
		return false;
	if (!dwarf_attr(&peeled, DW_AT_type, &attribute) ||
	    !dwarf_formref_die(&attribute, &target) || !types_peel(&target, &peeled))
		return false;
	return peeled.addr == class->addr;
}

/*
 * Would it say so if a function of the class were "= default"? From version 5 on, and where it says so of
 * any function of the unit; older compilers, and -gstrict-dwarf, do not.
 */
static bool tells_defaulted(Dwarf_Die *class)
{
	Dwarf_Abbrev *abbrev;
	Dwarf_Half version;
	Dwarf_Off at = 0;
	size_t length;

	if (dwarf_cu_info(class->cu, &version, NULL, NULL, NULL, NULL, NULL, NULL) != 0)
		return false;
	for (unsigned i = 0; version < 5 && i < ABBREVS_MAX; i++, at += length) {
		size_t count;
		unsigned name, form;

		abbrev = dwarf_getabbrev(class, at, &length);
		if (!abbrev || abbrev == DWARF_END_ABBREV || dwarf_getattrcnt(abbrev, &count) != 0)
			return false;
		for (size_t n = 0; n < count && n < ATTRIBUTES_MAX; n++)
			if (dwarf_getabbrevattr(abbrev, n, &name, &form, NULL) == 0 &&
			    name == DW_AT_defaulted)
				return true;
	}
	return version >= 5;
}

static enum passing by_function(Dwarf_Die *class, Dwarf_Die *function)
{
	const char *name = dwarf_diename(function), *own = dwarf_diename(class);
	bool has_more = false;

	if (number_of(function, DW_AT_virtuality))
		return PASSED_BY_REFERENCE;
	if (!name)
		return PASSED_BY_VALUE;
	/* A constructor of a template has its name without the arguments. */
	if (name[0] != '~' && !(own && !strncmp(own, name, strcspn(own, "<")) &&
				!name[strcspn(own, "<")] && copies(class, function, &has_more)))
		return PASSED_BY_VALUE;
	switch (number_of(function, DW_AT_defaulted)) {
	case DW_DEFAULTED_in_class:
		return PASSED_BY_VALUE;
	case DW_DEFAULTED_out_of_class:
		return PASSED_BY_REFERENCE;
	default:
		break;
	}
	if (has_more || is_set(function, DW_AT_deleted) || is_set(function, DW_AT_artificial))
		return PASSED_UNSURE;
	return tells_defaulted(class) ? PASSED_BY_REFERENCE : PASSED_UNSURE;
}

/* How deep it looks, and how many members it still may look at. */
struct search {
	struct image *img;
	unsigned depth, left;
};

static enum passing by_class(struct search *s, Dwarf_Die *class);

/* A member or a base: what it is passed by, the whole is. */
static enum passing by_part(struct search *s, Dwarf_Die *part)
{
	struct type type, element;
	Dwarf_Die die;

	if (is_set(part, DW_AT_external) || is_set(part, DW_AT_declaration))
		return PASSED_BY_VALUE;
	if (number_of(part, DW_AT_virtuality) || is_set(part, DW_AT_artificial))
		return PASSED_BY_REFERENCE;
	types_from_die(s->img, part, &type);
	for (unsigned i = 0; i < DEPTH_MAX && type.kind == TYPE_ARRAY; i++) {
		type_target(&type, &element);
		type = element;
	}
	if (type.kind == TYPE_UNKNOWN || type.kind == TYPE_ARRAY)
		return PASSED_UNSURE;
	if (type.kind != TYPE_STRUCT)
		return PASSED_BY_VALUE;
	return types_die(&type, &die) ? by_class(s, &die) : PASSED_UNSURE;
}

static enum passing by_members(struct search *s, Dwarf_Die *class, Dwarf_Die die)
{
	enum passing whole = PASSED_BY_VALUE;

	do {
		enum passing part = PASSED_BY_VALUE;

		if (!s->left)
			return PASSED_UNSURE;
		s->left--;
		switch (dwarf_tag(&die)) {
		case DW_TAG_subprogram:
			part = by_function(class, &die);
			break;
		case DW_TAG_member:
		case DW_TAG_inheritance:
			part = by_part(s, &die);
			break;
		default:
			break;
		}
		if (part == PASSED_BY_REFERENCE)
			return part;
		if (part == PASSED_UNSURE)
			whole = part;
	} while (types_sibling(&die));
	return whole;
}

static enum passing by_class(struct search *s, Dwarf_Die *class)
{
	enum passing how;
	Dwarf_Die die;

	if (s->depth == DEPTH_MAX || is_set(class, DW_AT_declaration))
		return PASSED_UNSURE;
	switch (number_of(class, DW_AT_calling_convention)) {
	case DW_CC_pass_by_reference:
		return PASSED_BY_REFERENCE;
	case DW_CC_pass_by_value:
		return PASSED_BY_VALUE;
	default:
		break;
	}
	if (dwarf_child(class, &die) != 0)
		return PASSED_BY_VALUE;
	s->depth++;
	how = by_members(s, class, die);
	s->depth--;
	return how;
}

/* The type is, or holds nothing but, a vector of that many bytes. */
static bool is_vector(struct search *s, const struct type *type, uint32_t size)
{
	Dwarf_Die whole, die;
	struct type part;
	bool found = false;

	if (type->size != size || s->depth == DEPTH_MAX || !types_die(type, &whole))
		return false;
	if (type->kind == TYPE_OTHER)
		return dwarf_tag(&whole) == DW_TAG_array_type;
	s->depth++;
	if (type->kind == TYPE_ARRAY) {
		type_target(type, &part);
		found = is_vector(s, &part, size);
	} else if (type->kind == TYPE_STRUCT && dwarf_child(&whole, &die) == 0) {
		do {
			const int tag = dwarf_tag(&die);

			if (!s->left || (tag != DW_TAG_member && tag != DW_TAG_inheritance) ||
			    is_set(&die, DW_AT_external) || is_set(&die, DW_AT_declaration))
				continue;
			s->left--;
			types_from_die(s->img, &die, &part);
			found = is_vector(s, &part, size);
		} while (!found && types_sibling(&die));
	}
	s->depth--;
	return found;
}

void types_by_value(struct type *type, int language)
{
	struct search s = {.img = type->image, .left = MEMBERS_MAX};
	enum passing how = PASSED_UNSURE;
	Dwarf_Die die;

	if (type->kind != TYPE_STRUCT)
		return;
	/* Large as it is, it goes into a vector register, where the code is made for such (psABI, 3.2.3). */
	if ((type->size == 32 || type->size == 64) && is_vector(&s, type, type->size)) {
		type->kind = TYPE_UNSURE;
		return;
	}
	if (types_is_c(language))
		return;
	if (is_cplusplus(language) && types_die(type, &die))
		how = by_class(&s, &die);
	if (how == PASSED_BY_REFERENCE)
		type->kind = TYPE_BY_REFERENCE;
	else if (how == PASSED_UNSURE)
		type->kind = TYPE_UNSURE;
}

/* ---------------------------------------------------------------- alignment */

static bool is_aligned(struct search *s, const struct type *type);

static bool is_wide(Dwarf_Die *die)
{
	return number_of(die, DW_AT_alignment) > sizeof(uint64_t);
}

static bool has_aligned_member(struct search *s, const struct type *type)
{
	Dwarf_Die class, die;
	struct type part;

	if (!types_die(type, &class) || is_wide(&class))
		return true;
	if (dwarf_child(&class, &die) != 0)
		return false;
	do {
		const int tag = dwarf_tag(&die);

		if (!s->left)
			return true;
		s->left--;
		if ((tag != DW_TAG_member && tag != DW_TAG_inheritance) ||
		    is_set(&die, DW_AT_external) || is_set(&die, DW_AT_declaration))
			continue;
		types_from_die(s->img, &die, &part);
		if (is_wide(&die) || is_aligned(s, &part))
			return true;
	} while (types_sibling(&die));
	return false;
}

/* No type is aligned to more than its size. */
static bool is_aligned(struct search *s, const struct type *type)
{
	struct type element;
	bool aligned = true;

	if (s->depth == DEPTH_MAX)
		return true;
	s->depth++;
	if (type->kind == TYPE_STRUCT) {
		aligned = has_aligned_member(s, type);
	} else if (type->kind == TYPE_ARRAY) {
		type_target(type, &element);
		aligned = is_aligned(s, &element);
	} else {
		aligned = !type->size || type->size > sizeof(uint64_t);
	}
	s->depth--;
	return aligned;
}

void types_align(struct type *type)
{
	struct search s = {.img = type->image, .left = MEMBERS_MAX};

	type->is_aligned =
		type->kind == TYPE_STRUCT && type->size % 16 == 0 && is_aligned(&s, type);
}
