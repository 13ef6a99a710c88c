/* SPDX-License-Identifier: MIT */
/*
 * types_die.c - steps from one DIE to another that come to an end whatever a
 * damaged file says: siblings lie behind each other, names of types are
 * followed only so far.
 */
#include "mutator/types_private.h"

enum { NAMES_MAX = 32, ARRAYS_MAX = 8, DIMENSIONS_MAX = 16 };

/* Offsets in .debug_types (DWARF 4), and in the file that several share (dwz), are marked. */
#define IN_TYPES  (1ull << 63)
#define IN_SHARED (1ull << 62)

bool types_is_own(const struct types *t, const Dwarf_Die *die)
{
	const Dwarf *of = die->cu ? dwarf_cu_getdwarf(die->cu) : NULL;

	return of && (of == t->dwarf || of == t->shared.dwarf);
}

uint64_t types_number_of(const struct types *t, Dwarf_Die *die)
{
	const Dwarf_Off offset = dwarf_dieoffset(die);
	Dwarf *of = dwarf_cu_getdwarf(die->cu);
	Dwarf_Die found;

	if (dwarf_offdie(of, offset, &found) && found.addr == die->addr)
		return of == t->dwarf ? offset : offset | IN_SHARED;
	if (of == t->dwarf && dwarf_offdie_types(of, offset, &found) && found.addr == die->addr)
		return offset | IN_TYPES;
	return 0;
}

bool types_die(const struct type *type, Dwarf_Die *die)
{
	const Dwarf_Off offset = type->die & ~(IN_TYPES | IN_SHARED);
	struct types *t = type->image ? types_of(type->image) : NULL;
	Dwarf *of;

	if (!t || !type->die)
		return false;
	if (type->die & IN_TYPES)
		return dwarf_offdie_types(t->dwarf, offset, die);
	of = type->die & IN_SHARED ? t->shared.dwarf : t->dwarf;
	return of && dwarf_offdie(of, offset, die);
}

bool types_sibling(Dwarf_Die *die)
{
	Dwarf_Die next;

	if (dwarf_siblingof(die, &next) != 0 || (const char *)next.addr <= (const char *)die->addr)
		return false;
	*die = next;
	return true;
}

bool types_is_new(const void **last, const Dwarf_Die *die)
{
	if ((const char *)die->addr <= (const char *)*last)
		return false;
	*last = die->addr;
	return true;
}

bool types_number(Dwarf_Die *die, unsigned name, uint64_t *number)
{
	Dwarf_Attribute attribute;
	Dwarf_Word word;

	if (!dwarf_attr(die, name, &attribute) || dwarf_formudata(&attribute, &word) != 0)
		return false;
	*number = word;
	return true;
}

bool types_named_type(Dwarf_Die *die, Dwarf_Die *type)
{
	Dwarf_Attribute attribute;

	return dwarf_attr_integrate(die, DW_AT_type, &attribute) &&
	       dwarf_formref_die(&attribute, type);
}

bool types_peel(Dwarf_Die *die, Dwarf_Die *out)
{
	Dwarf_Die next;

	*out = *die;
	for (unsigned i = 0; i < NAMES_MAX; i++) {
		switch (dwarf_tag(out)) {
		case DW_TAG_typedef:
		case DW_TAG_const_type:
		case DW_TAG_volatile_type:
		case DW_TAG_restrict_type:
		case DW_TAG_atomic_type:
			break;
		default:
			return true;
		}
		/* const void, and the like */
		if (!types_named_type(out, &next))
			return true;
		*out = next;
	}
	return false;
}

/* One whose cold code lies elsewhere has no low_pc but ranges, that with its entry first. */
bool types_entry(Dwarf_Die *function, vaddr_t *entry)
{
	Dwarf_Addr base, from, to;

	if (dwarf_lowpc(function, &from) != 0 && dwarf_ranges(function, 0, &base, &from, &to) <= 0)
		return false;
	*entry = from;
	return true;
}

/* How many elements; the first one's number is told only where it is not the one that is usual in the language. */
static bool extent_of(Dwarf_Die *dimension, uint64_t *count)
{
	Dwarf_Sword usual = 0;
	uint64_t first, last;

	if (types_number(dimension, DW_AT_count, count))
		return true;
	if (!types_number(dimension, DW_AT_upper_bound, &last))
		return false;
	if (!dwarf_hasattr(dimension, DW_AT_lower_bound)) {
		dwarf_default_lower_bound(types_language(dimension), &usual);
		first = (uint64_t)usual;
	} else if (!types_number(dimension, DW_AT_lower_bound, &first)) {
		return false;
	}
	*count = last + 1 - first;
	if ((int64_t)*count < 0)
		*count = 0;
	return true;
}

bool types_elements(Dwarf_Die *array, unsigned taken, uint64_t *count)
{
	unsigned left = DIMENSIONS_MAX, dimension = 0;
	Dwarf_Die die;

	*count = 1;
	if (dwarf_child(array, &die) != 0)
		return false;
	do {
		uint64_t n;

		if (dwarf_tag(&die) != DW_TAG_subrange_type || dimension++ < taken)
			continue;
		if (!extent_of(&die, &n) || __builtin_mul_overflow(*count, n, count))
			return false;
	} while (--left && types_sibling(&die));
	return dimension > taken;
}

bool types_is_array(Dwarf_Die *array)
{
	unsigned left = DIMENSIONS_MAX, dimensions = 0;
	uint64_t ordering;
	Dwarf_Die die;

	if (dwarf_hasattr(array, DW_AT_GNU_vector) || dwarf_hasattr(array, DW_AT_data_location))
		return false;
	if (!types_number(array, DW_AT_ordering, &ordering) || ordering != DW_ORD_col_major ||
	    dwarf_child(array, &die) != 0)
		return true;
	do {
		dimensions += dwarf_tag(&die) == DW_TAG_subrange_type;
	} while (--left && types_sibling(&die));
	return dimensions <= 1;
}

uint64_t types_size(Dwarf_Die *type)
{
	uint64_t size, count, product = 1;
	Dwarf_Die die = *type, element;

	for (unsigned i = 0; i < ARRAYS_MAX; i++) {
		if (types_number(&die, DW_AT_byte_size, &size))
			return __builtin_mul_overflow(product, size, &product) ? 0 : product;
		if (dwarf_tag(&die) != DW_TAG_array_type || !types_elements(&die, 0, &count) ||
		    __builtin_mul_overflow(product, count, &product) ||
		    !types_named_type(&die, &element) || !types_peel(&element, &die))
			return 0;
		if (dwarf_tag(&die) == DW_TAG_pointer_type)
			return __builtin_mul_overflow(product, 8, &product) ? 0 : product;
	}
	return 0;
}
