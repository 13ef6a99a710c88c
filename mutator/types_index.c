/* SPDX-License-Identifier: MIT */
/*
 * types_index.c - which DIE describes which function or variable. Compilation
 * units are found by the ranges that they tell of themselves, and looked through
 * when the first function of theirs is asked for.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/types_private.h"

enum { SCOPES_MAX = 16 };

struct function_die {
	vaddr_t address;
	uint64_t die; /* offset */
};

struct types_unit {
	vaddr_t lo, hi;
	uint64_t die; /* of the unit */
	bool looked, has_types;
	const void *last;		/* DIE that was looked at */
	struct function_die *functions; /* by address */
	size_t count, room;
};

void types_release_units(struct types *t)
{
	for (size_t i = 0; i < t->unit_count; i++)
		free(t->units[i].functions);
	free(t->units);
	t->units = NULL;
	t->unit_count = 0;
}

static bool add_unit(struct types *t, size_t *room, vaddr_t lo, vaddr_t hi, uint64_t die)
{
	struct types_unit *grown;

	if (t->unit_count == *room) {
		*room = *room ? *room * 2 : 64;
		grown = realloc(t->units, *room * sizeof(*grown));
		if (!grown)
			return false;
		t->units = grown;
	}
	t->units[t->unit_count++] = (struct types_unit){.lo = lo, .hi = hi, .die = die};
	return true;
}

/* Every unit once, with the span of its code. */
static void read_units(struct types *t)
{
	Dwarf_CU *cu = NULL;
	Dwarf_Die die;
	size_t room = 0;
	uint8_t type;

	t->units_known = true;
	while (dwarf_get_units(t->dwarf, cu, &cu, NULL, &type, &die, NULL) == 0) {
		vaddr_t lo = UINT64_MAX, hi = 0;
		Dwarf_Addr base, from, to;
		ptrdiff_t at = 0;

		if (type != DW_UT_compile || dwarf_tag(&die) != DW_TAG_compile_unit)
			continue;
		while ((at = dwarf_ranges(&die, at, &base, &from, &to)) > 0) {
			lo = from < lo ? from : lo;
			hi = to > hi ? to : hi;
		}
		if (!add_unit(t, &room, lo, hi, dwarf_dieoffset(&die)))
			return;
	}
}

bool types_unit(struct types *t, size_t i, Dwarf_Die *die)
{
	if (!t->units_known)
		read_units(t);
	return i < t->unit_count && dwarf_offdie(t->dwarf, t->units[i].die, die);
}

static void add_function(struct types_unit *unit, Dwarf_Die *die)
{
	struct function_die *grown;
	vaddr_t entry;

	if (!types_entry(die, &entry) || entry == 0)
		return;
	if (unit->count == unit->room) {
		unit->room = unit->room ? unit->room * 2 : 64;
		grown = realloc(unit->functions, unit->room * sizeof(*grown));
		if (!grown) {
			unit->room = unit->count;
			return;
		}
		unit->functions = grown;
	}
	unit->functions[unit->count++] =
		(struct function_die){.address = entry, .die = dwarf_dieoffset(die)};
}

static bool is_type(int tag)
{
	switch (tag) {
	case DW_TAG_base_type:
	case DW_TAG_pointer_type:
	case DW_TAG_structure_type:
	case DW_TAG_class_type:
	case DW_TAG_enumeration_type:
	case DW_TAG_typedef:
	case DW_TAG_imported_unit: /* they may be in that */
		return true;
	default:
		return false;
	}
}

/* Functions in a unit, and in namespaces, classes and functions in it (lambdas). */
static void look_in_scope(struct types_unit *unit, Dwarf_Die *scope, unsigned depth)
{
	Dwarf_Die die;

	if (depth == SCOPES_MAX || dwarf_child(scope, &die) != 0)
		return;
	do {
		if (!types_is_new(&unit->last, &die))
			return;
		unit->has_types = unit->has_types || is_type(dwarf_tag(&die));
		switch (dwarf_tag(&die)) {
		case DW_TAG_subprogram:
			add_function(unit, &die);
			look_in_scope(unit, &die, depth + 1);
			break;
		case DW_TAG_lexical_block:
		case DW_TAG_namespace:
		case DW_TAG_module:
		case DW_TAG_class_type:
		case DW_TAG_structure_type:
		case DW_TAG_union_type:
			look_in_scope(unit, &die, depth + 1);
			break;
		default:
			break;
		}
	} while (types_sibling(&die));
}

static int by_address(const void *a, const void *b)
{
	const struct function_die *x = a, *y = b;

	return x->address < y->address ? -1 : x->address > y->address;
}

static void look(struct types *t, struct types_unit *unit)
{
	Dwarf_Die die;

	unit->looked = true;
	if (!dwarf_offdie(t->dwarf, unit->die, &die))
		return;
	look_in_scope(unit, &die, 0);
	if (unit->count)
		qsort(unit->functions, unit->count, sizeof(*unit->functions), by_address);
}

/*
 * A unit made with line numbers only (-g1) names its functions and nothing of what they take and give.
 * Of one that has a type, or that another unit says more about, something is told.
 */
static bool is_told(const struct types_unit *unit, Dwarf_Die *function)
{
	Dwarf_Die die;

	if (unit->has_types || dwarf_hasattr(function, DW_AT_type) ||
	    dwarf_hasattr(function, DW_AT_abstract_origin) ||
	    dwarf_hasattr(function, DW_AT_specification))
		return true;
	if (dwarf_child(function, &die) != 0)
		return false;
	do {
		if (dwarf_tag(&die) == DW_TAG_formal_parameter)
			return true;
	} while (types_sibling(&die));
	return false;
}

bool types_find_function(struct types *t, vaddr_t address, Dwarf_Die *die)
{
	const struct function_die wanted = {.address = address};

	if (!t->units_known)
		read_units(t);
	for (size_t i = 0; i < t->unit_count; i++) {
		struct types_unit *unit = &t->units[i];
		const struct function_die *found;

		if (address < unit->lo || address >= unit->hi)
			continue;
		if (!unit->looked)
			look(t, unit);
		found = unit->count ? bsearch(&wanted, unit->functions, unit->count, sizeof(wanted),
					      by_address)
				    : NULL;
		if (found)
			return dwarf_offdie(t->dwarf, found->die, die) && is_told(unit, die);
	}
	return false;
}

/* ------------------------------------------------------------- variables */

/* True if the DIE is of a variable at that address, which may stand in a table (clang, DWARF 5). */
static bool is_at(Dwarf_Die *die, vaddr_t address)
{
	Dwarf_Attribute attribute, entry;
	Dwarf_Addr there;
	Dwarf_Op *ops;
	size_t count;

	if (!dwarf_attr(die, DW_AT_location, &attribute) ||
	    dwarf_getlocation(&attribute, &ops, &count) != 0 || count != 1)
		return false;
	if (ops[0].atom == DW_OP_addr)
		return ops[0].number == address;
	return (ops[0].atom == DW_OP_addrx || ops[0].atom == DW_OP_GNU_addr_index) &&
	       dwarf_getlocation_attr(&attribute, ops, &entry) == 0 &&
	       dwarf_formaddr(&entry, &there) == 0 && there == address;
}

struct walk {
	vaddr_t address;
	Dwarf_Die *found;
	unsigned depth;
	const void *last;
};

static bool find_in_scope(struct walk *w, Dwarf_Die *scope)
{
	bool found = false;
	Dwarf_Die die;

	if (w->depth == SCOPES_MAX || dwarf_child(scope, &die) != 0)
		return false;
	w->depth++;
	do {
		if (!types_is_new(&w->last, &die))
			break;
		switch (dwarf_tag(&die)) {
		case DW_TAG_variable:
			if (is_at(&die, w->address)) {
				*w->found = die;
				found = true;
			}
			break;
		case DW_TAG_subprogram: /* static variables of functions */
		case DW_TAG_lexical_block:
		case DW_TAG_namespace:
		case DW_TAG_module:
		case DW_TAG_class_type:
		case DW_TAG_structure_type:
			found = find_in_scope(w, &die);
			break;
		default:
			break;
		}
	} while (!found && types_sibling(&die));
	w->depth--;
	return found;
}

static uint64_t walk_for_variable(struct types *t, vaddr_t address)
{
	Dwarf_Die unit, die;

	if (!t->units_known)
		read_units(t);
	for (size_t i = 0; i < t->unit_count; i++) {
		struct walk w = {.address = address, .found = &die};

		if (dwarf_offdie(t->dwarf, t->units[i].die, &unit) && find_in_scope(&w, &unit))
			return dwarf_dieoffset(&die);
	}
	return 0;
}

bool types_find_variable(struct types *t, vaddr_t address, Dwarf_Die *die)
{
	const unsigned known =
		t->variable_count < TYPES_REMEMBERED ? t->variable_count : TYPES_REMEMBERED;
	uint64_t found;

	for (unsigned i = 0; i < known; i++)
		if (t->variables[i].address == address)
			return t->variables[i].die &&
			       dwarf_offdie(t->dwarf, t->variables[i].die, die);
	found = walk_for_variable(t, address);
	t->variables[t->variable_count % TYPES_REMEMBERED].address = address;
	t->variables[t->variable_count++ % TYPES_REMEMBERED].die = found;
	return found && dwarf_offdie(t->dwarf, found, die);
}
