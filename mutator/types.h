/* SPDX-License-Identifier: MIT */
/*
 * types.h - what DWARF says of a target's data: where globals are, what types
 * arguments, results and fields have. Read through libdw on first use, in a child
 * (types_reader.h), and kept with the image; a file without DWARF, or with a damaged
 * one, is as if nothing were known.
 *
 * Types are plain values. Everything is
 * about files: link-time addresses, never a target's memory.
 */
#ifndef DINST_MUTATOR_TYPES_H
#define DINST_MUTATOR_TYPES_H

#include "mutator/module.h"

enum type_kind {
	TYPE_UNKNOWN, /* no DWARF, or what is not understood: taken as a 64-bit integer */
	TYPE_INTEGER, /* also char, bool and enums */
	TYPE_POINTER, /* also references and arrays that decayed */
	TYPE_FLOAT,   /* float, double: by size */
	TYPE_STRUCT,  /* struct, union, class */
	TYPE_ARRAY,
	TYPE_OTHER,	   /* long double, vectors, complex numbers: nothing can be done with it */
	TYPE_UNSURE,	   /* of which nobody says whether it, or its address, is passed */
	TYPE_BY_REFERENCE, /* a class that is passed by the address of a copy */
	TYPE_VOID,
};

struct type {
	enum type_kind kind;
	bool is_signed;
	bool is_aligned; /* of arguments: a struct that may have to lie at a multiple of 16 or more */
	uint8_t taken;	 /* of an array: how many of its dimensions have been indexed */
	uint32_t size;	 /* bytes; 0: not known */
	/* What it is made of: the image and the offset of its DIE, 0 where there is none. */
	struct image *image;
	uint64_t die;
};

/* A member of a struct, or a part of what a path leads to. */
struct type_field {
	struct type type;
	uint64_t offset;    /* bytes */
	uint8_t bit_offset; /* of a bit field, from the lowest bit at `offset` */
	uint8_t bit_size;   /* 0: no bit field */
};

/* How often a path may go through pointers, and how many arguments are looked at. */
enum { TYPE_ARGUMENTS = 32, TYPE_NAMES_MAX = 64 };

struct type_function {
	bool known; /* there is DWARF of it */
	bool variadic;
	bool is_changed; /* the compiler says that it is called in a way of its own */
	struct type result;
	struct type arguments[TYPE_ARGUMENTS];
	size_t argument_count;
};

/* A name for messages, cut where it is longer. */
struct type_name {
	char text[128];
};

/* Argument and result types of a function; `known` is false where there is no DWARF. */
void types_of_function(struct image *img, uint32_t function, struct type_function *out);

/*
 * Whether the source has a function of that name which the compiler has inlined: "f",
 * "scope::f" or "f(int)". At most `max` of the functions that have its code, and
 * TYPE_NAMES_MAX, go to `callers`; they may be none. Looks through all of the file's DWARF: seconds for a large one.
 */
bool types_inlined(struct image *img, const char *name, struct type_name *callers, size_t max,
		   size_t *count);

/* The type of the variable at an address of link time; *out stays where it is not known. */
void types_of_variable(struct image *img, vaddr_t address, struct type *out);

/* What a pointer or array leads to; TYPE_UNKNOWN where that is not known. */
void type_target(const struct type *type, struct type *out);
/* A member by name, those of unnamed members and of base classes included. False if there is none. */
bool type_field(const struct type *type, const char *name, struct type_field *out);
/*
 * A struct of at most two words: is_float[n] is true where word n holds nothing
 * but floating point. False if that cannot be told, or something in it is not
 * at a multiple of its size.
 */
bool type_words(const struct type *type, bool is_float[2]);
/* Up to `max` names of members, TYPE_NAMES_MAX at most. Returns how many. */
size_t type_field_names(const struct type *type, struct type_name *names, size_t max);

/* A global of the target. */
struct data_symbol {
	struct module *module;
	taddr_t address; /* in the target */
	uint64_t size;	 /* bytes, 0: not known */
	struct type type;
};

/*
 * "name" (in all modules, the executable first, and what is exported before what is static) or "module:name"
 * is a variable in one of the modules; of what the linker copied to the executable it is the copy. DINST_NO_FUNCTION, with the nearest names, or DINST_NO_MODULE;
 * DINST_REFUSED for what has no fixed address (thread-local variables), and where several are equally good.
 */
int data_symbol_find(const struct module_list *modules, const char *name, struct data_symbol *out,
		     struct dinst_error *e);

/*
 * "name.field[2].field" or "module:name.field": cuts the text behind the name of the
 * variable; `path` (size bytes) receives what follows it: "field[2].field", or nothing.
 * Names may have dots in them: the longest that is a variable is it. Returns path.
 */
char *data_symbol_path(const struct module_list *modules, char *text, char *path, size_t size);

#endif
