/* SPDX-License-Identifier: MIT */
/*
 * types_inlined.c - functions that exist in the source only: the compiler has put their
 * code into their callers (DWARF 5, 3.3.8). Those callers are what can be measured.
 */
#include <string.h>

#include "mutator/types_private.h"
#include "mutator/types_reader.h"

enum {
	DEPTH_MAX = 64, /* blocks in blocks, and what is inlined in what is inlined */
	ROOTS_MAX = 64, /* one for each unit that has the function, from a header */
};

struct inlined_search {
	struct image *img;
	const char *name; /* as people write it */
	size_t length;	  /* without parameters */
	uint64_t roots[ROOTS_MAX];
	size_t root_count;
	const char **callers;
	size_t count, max;
	const void *last; /* DIE that was looked at */
};

/* The name of C++ with its scopes; of others the plain one. NULL where there is none. */
static const char *name_of(struct image *img, Dwarf_Die *die)
{
	Dwarf_Attribute attribute;
	const char *name = NULL;

	if (dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute) ||
	    dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &attribute))
		name = dwarf_formstring(&attribute);
	return name ? image_readable_name(img, name) : dwarf_diename(die);
}

/* "f", "scope::f" and "f(int)" are all the function scope::f(int). */
static bool is_wanted(const struct inlined_search *s, const char *name)
{
	size_t length = strcspn(name, "(");

	if (s->name[s->length] && strcmp(name, s->name) == 0)
		return true;
	if (s->name[s->length] || length < s->length ||
	    strncmp(name + length - s->length, s->name, s->length) != 0)
		return false;
	name += length - s->length;
	return length == s->length ||
	       (length >= s->length + 2 && name[-1] == ':' && name[-2] == ':');
}

static bool is_inlined(Dwarf_Die *die)
{
	uint64_t how;

	return types_number(die, DW_AT_inline, &how) &&
	       (how == DW_INL_inlined || how == DW_INL_declared_inlined);
}

/* Functions in a unit, and in namespaces and classes in it, that were inlined and have the name. */
static void find_roots(struct inlined_search *s, Dwarf_Die *scope, unsigned depth)
{
	const char *name;
	Dwarf_Die die;

	if (depth == DEPTH_MAX || dwarf_child(scope, &die) != 0)
		return;
	do {
		if (!types_is_new(&s->last, &die) || s->root_count == ROOTS_MAX)
			return;
		switch (dwarf_tag(&die)) {
		case DW_TAG_subprogram:
			if (is_inlined(&die) && (name = name_of(s->img, &die)) &&
			    is_wanted(s, name))
				s->roots[s->root_count++] = dwarf_dieoffset(&die);
			break;
		case DW_TAG_namespace:
		case DW_TAG_module:
		case DW_TAG_class_type:
		case DW_TAG_structure_type:
			find_roots(s, &die, depth + 1);
			break;
		default:
			break;
		}
	} while (types_sibling(&die));
}

static bool is_copy(const struct inlined_search *s, Dwarf_Die *die)
{
	Dwarf_Attribute attribute;
	Dwarf_Die origin;

	if (!dwarf_attr(die, DW_AT_abstract_origin, &attribute) ||
	    !dwarf_formref_die(&attribute, &origin))
		return false;
	for (size_t i = 0; i < s->root_count; i++)
		if (s->roots[i] == dwarf_dieoffset(&origin))
			return true;
	return false;
}

static void add_caller(struct inlined_search *s, Dwarf_Die *function)
{
	const char *name = function ? name_of(s->img, function) : NULL;

	for (size_t i = 0; name && i < s->count; i++)
		if (!strcmp(s->callers[i], name))
			return;
	if (name)
		s->callers[s->count++] = name;
}

/* `function` is the one whose code the scope is of, NULL outside of all. */
static void find_copies(struct inlined_search *s, Dwarf_Die *scope, Dwarf_Die *function,
			unsigned depth)
{
	vaddr_t entry;
	Dwarf_Die die;

	if (depth == DEPTH_MAX || dwarf_child(scope, &die) != 0)
		return;
	do {
		if (s->count == s->max || !types_is_new(&s->last, &die))
			return;
		switch (dwarf_tag(&die)) {
		case DW_TAG_inlined_subroutine:
			if (is_copy(s, &die))
				add_caller(s, function);
			find_copies(s, &die, function, depth + 1);
			break;
		case DW_TAG_subprogram: /* the abstract ones have no code */
			find_copies(s, &die, types_entry(&die, &entry) ? &die : NULL, depth + 1);
			break;
		case DW_TAG_lexical_block:
		case DW_TAG_namespace:
		case DW_TAG_class_type:
		case DW_TAG_structure_type:
			find_copies(s, &die, function, depth + 1);
			break;
		default:
			break;
		}
	} while (types_sibling(&die));
}

bool read_inlined(struct image *img, const char *name, const char **callers, size_t max,
		  size_t *count)
{
	struct inlined_search s = {.img = img,
				   .name = name,
				   .length = strcspn(name, "("),
				   .callers = callers,
				   .max = max};
	struct types *t = types_of(img);
	Dwarf_Die unit;

	*count = 0;
	if (!t)
		return false;
	for (size_t i = 0; types_unit(t, i, &unit); i++, s.last = NULL)
		find_roots(&s, &unit, 0);
	for (size_t i = 0; s.root_count && types_unit(t, i, &unit); i++, s.last = NULL)
		find_copies(&s, &unit, NULL, 0);
	*count = s.count;
	return s.root_count > 0;
}
