/* SPDX-License-Identifier: MIT */
/*
 * types_private.h - for the files that read DWARF:
 *
 *   types.c          opening, types, members
 *   types_index.c    which DIE describes which function or variable
 *   types_die.c      steps from DIE to DIE that end, whatever a file says
 *   types_inlined.c  functions that are in others only
 *   types_class.c    classes that are passed by value, and those that are not
 *   types_calling.c  functions that are not called as the psABI says
 *   types_symbols.c  symbols of data
 *   types_describe.c types in words
 *   types_reader.c   the child that all of this runs in
 */
#ifndef DINST_MUTATOR_TYPES_PRIVATE_H
#define DINST_MUTATOR_TYPES_PRIVATE_H

#include <dwarf.h>
#include <elfutils/libdw.h>

#include "mutator/image_private.h"
#include "mutator/types.h"

struct types_unit; /* types_index.c */

enum { TYPES_REMEMBERED = 64 };

struct types {
	Dwarf *dwarf; /* NULL: there is none, or it is damaged */
	struct types_file {
		Elf *elf;
		Dwarf *dwarf;
		uint8_t *bytes; /* of one that had to be copied, else NULL */
	} own, shared;
	struct types_unit *units;
	size_t unit_count;
	bool units_known;
	/* Variables that were looked for: that takes a walk through all of it. */
	struct {
		vaddr_t address;
		uint64_t die; /* 0: there is none */
	} variables[TYPES_REMEMBERED];
	unsigned variable_count;
};

/* What is known of the image's types; NULL where nothing is. */
struct types *types_of(struct image *img);

/* A member lies in the struct that it is a member of. */
bool types_is_within(const struct type *type, const struct type_field *f);

/* types_index.c: false if there is none. The address is one of link time. */
bool types_find_function(struct types *t, vaddr_t address, Dwarf_Die *die);
bool types_find_variable(struct types *t, vaddr_t address, Dwarf_Die *die);
/* The unit number i; false behind the last one. */
bool types_unit(struct types *t, size_t i, Dwarf_Die *die);
void types_release_units(struct types *t);

/* types_calling.c: arguments are not where the psABI has them. */
bool types_has_own_convention(struct image *img, Dwarf_Die *function);
/* A parameter of a number's or pointer's type is passed by its address, as one location for the whole function says: `ref` of D. */
bool types_is_by_address(Dwarf_Die *function, Dwarf_Die *parameter);

/* The type that a DIE is, without its names and qualifiers. */
void types_from_type(struct image *img, Dwarf_Die *die, struct type *out);
/* Where a member is; its type is there already. False for members whose place is computed. */
bool types_place_of(Dwarf_Die *die, struct type_field *field);
/* The type that an attribute of the DIE names; TYPE_VOID where there is no attribute. */
void types_from_die(struct image *img, Dwarf_Die *die, struct type *out);
/*
 * types_die.c. The next sibling, in place: false at the end, and where a damaged
 * file leads back.
 */
bool types_sibling(Dwarf_Die *die);
/*
 * DIEs are walked through in the order of the file. What lies before *last, the one before,
 * has been seen: scopes of a damaged file overlap, and a walk would not end.
 */
bool types_is_new(const void **last, const Dwarf_Die *die);
/* An attribute that is an unsigned number. */
bool types_number(Dwarf_Die *die, unsigned name, uint64_t *number);
/* The type that the DIE's DW_AT_type names. */
bool types_named_type(Dwarf_Die *die, Dwarf_Die *type);
/* A type without typedefs and qualifiers; false where they do not end. */
bool types_peel(Dwarf_Die *die, Dwarf_Die *out);
/* Bytes of a type that was peeled; 0: not known. */
uint64_t types_size(Dwarf_Die *type);
/* Where the code of a function begins; false where it has none. */
bool types_entry(Dwarf_Die *function, vaddr_t *entry);
/*
 * Elements of an array in those of its dimensions that are left when `taken` of them have been
 * indexed; false if there is none left, or it is not told.
 */
bool types_elements(Dwarf_Die *array, unsigned taken, uint64_t *count);
/*
 * False for what is no row of elements as C has it: vectors, what has its elements elsewhere (Fortran's
 * allocatable ones), and arrays of several dimensions of which the first one is the innermost.
 */
bool types_is_array(Dwarf_Die *array);

/* What a type's `die` says of such a DIE; 0: there is no number for it. */
uint64_t types_number_of(const struct types *t, Dwarf_Die *die);
/* The DIE behind a type; false if there is none. */
bool types_die(const struct type *type, Dwarf_Die *die);

/* types_class.c: DW_LANG_* of the unit that the DIE, or what it is an instance of, is in. */
int types_language(Dwarf_Die *die);
bool types_is_c(int language);
/* A function of C without a prototype: it takes floats as doubles, and what else is its own business. */
bool types_promotes(Dwarf_Die *function);
/* False: of a language's functions nobody tells what is passed. */
bool types_is_told(int language);
/*
 * How a struct is passed depends on more than its members where it is a class:
 * the type becomes TYPE_BY_REFERENCE, or TYPE_UNSURE where that is not told.
 */
void types_by_value(struct type *type, int language);
/* Sets is_aligned. */
void types_align(struct type *type);

/* True if the DIE is in the file itself, or in the one that it says it shares with others (dwz). */
bool types_is_own(const struct types *t, const Dwarf_Die *die);

#endif
