/* SPDX-License-Identifier: MIT */
/*
 * image_private.h - what an image is made of; for the files that build it:
 *
 *   image.c            opening, closing, plain questions
 *   image_elf.c        headers                     (image_elf.h)
 *   image_functions.c  symbols and FDEs become functions
 *   image_outer.c      which function a byte belongs to
 *   symbols.c          symbol tables, separate and embedded debug files
 *   cfi.c              .eh_frame                   (cfi.h)
 *   lookup.c           names and globs to functions
 *   demangle.c         readable names
 *   types.c            what DWARF says of functions and data   (types.h)
 *   references.c       who refers to what
 *   slots.c            what linker stubs lead to
 *   references_parts.c which functions are parts of others
 *   references_hits.c  who may branch into the middle of a function   (hits.h)
 *
 * Names point into the mapped files or into `strings`, and live as long as the
 * image. Nothing here is used by anybody else.
 */
#ifndef DINST_MUTATOR_IMAGE_PRIVATE_H
#define DINST_MUTATOR_IMAGE_PRIVATE_H

#include "mutator/cfi.h"
#include "mutator/hits.h"
#include "mutator/image_elf.h"

enum { NO_FUNCTION = UINT32_MAX };

/* Memory for small things that live as long as the image. */
struct image_strings {
	struct string_chunk *chunks; /* newest first */
};

/* NULL without memory. */
char *strings_copy(struct image_strings *s, const char *text, size_t length);
void strings_release(struct image_strings *s);

enum { NO_FILE }; /* everybody's, or its table does not tell */

/* A symbol that names a place in the executable ranges. */
struct symbol {
	vaddr_t address;
	uint64_t size;
	const char *name;
	uint64_t hash;	 /* of the name */
	uint32_t length; /* of the name */
	uint32_t key;	 /* name_key() of the name without its version */
	uint32_t order;	 /* place in its table: neighbours come from one source file */
	uint32_t file;	 /* of a local one: number of its source file, or NO_FILE */
	uint8_t type;	 /* STT_* */
	uint8_t bind;	 /* STB_* */
	uint8_t rank;	 /* lower is a better name for its address */
	uint8_t flags;	 /* enum image_function_flag: what the name alone says */
};

struct symbol_list {
	struct symbol *symbols;
	size_t count, capacity;
	uint64_t looked; /* bytes of names that were looked at */
	uint32_t files;	 /* source files that symbols came from */
};

/* image_ocaml.c: where code of OCaml begins and ends, sorted; nothing where there is none. */
struct image_ocaml {
	vaddr_t *begins, *ends;
	size_t begin_count, end_count;
	struct image_range runtime; /* what is written in assembler */
	bool everywhere;	    /* nothing says where */
	bool grows;		    /* from version 5 on */
};

/* image_outer.c: a function's way outwards, by functions that end behind it. */
struct image_outer {
	uint32_t
		next; /* the nearest around its start that goes on behind its end, NO_FUNCTION if none */
	uint32_t far; /* one further out, or the function itself */
};

struct image_alias {
	uint32_t function;
	uint32_t bind;
	const char *name;
};

/*
 * From the hash of a name to what carries it: rows, since any number of functions
 * may have the same name.
 */
struct name_table {
	uint32_t *slots; /* 0: empty; else 1 + index: a function, or function_count + an alias */
	uint32_t *next;	 /* by index: the next one of its row, as in slots */
	size_t size;	 /* of slots, a power of two */
};

struct readable_entry {
	const char *name, *readable;
};

struct readable_table {
	struct readable_entry *entries;
	size_t size, used;
};

struct reference_map; /* references.c */
struct slot_table;    /* slots.c */
struct plan_cache;    /* cache_plans.c */

struct hit_list {
	struct image_hit *items; /* sorted by target, then by source */
	uint32_t *by_from;	 /* indices into items */
	uint8_t *states;	 /* enum hit_state */
	size_t count, room;
};

struct image {
	char *name;
	struct elf_file file;  /* the program or shared object itself */
	struct elf_file debug; /* a separate debug file; empty if none */
	struct elf_file mini;  /* what .gnu_debugdata held; empty if none */
	struct elf_file
		shared; /* what `debug`, or else `file`, shares with others' (dwz); empty if none */
	int lack; /* -errno of proc_is_lack(), met while one of those was looked for; 0: none */
	const char *soname;
	vaddr_t lowest, highest;
	struct image_range *text, *stubs; /* sorted, disjoint; stubs are PLT sections */
	size_t text_count, stub_count;
	struct cfi_range *fdes; /* sorted */
	size_t fde_count;
	struct image_function *functions; /* sorted */
	struct image_outer *outer;	  /* of each: image_outer.c */
	size_t function_count;
	struct image_alias *aliases; /* sorted by function */
	size_t alias_count;
	vaddr_t *labels; /* sorted: symbols and FDEs that are no functions of their own */
	size_t label_count;
	struct image_strings strings;
	struct name_table names;
	struct readable_table readable;
	struct reference_map *references;
	struct hit_list hits;
	struct slot_table *slots;    /* slots.c, made on first use */
	struct plan_cache *plans;    /* cache_plans.c, made on first use */
	struct types *types;	     /* types.c, made on first use */
	struct types_reader *reader; /* types_reader.c, made on first use */
	uint64_t shape;		     /* which functions there are, as a hash */
	bool go;
	bool turns_faults;
	bool mono; /* compiled ahead of time by Mono */
	struct image_ocaml ocaml;
	void *extra; /* the planner's */
	void (*release_extra)(void *extra);
};

/* Sorts, and cuts what overlaps: the ranges are disjoint afterwards. Returns how many. */
size_t ranges_tidy(struct image_range *ranges, size_t count);

/* The range of `ranges` (sorted) that contains `vaddr`; NULL if none. */
const struct image_range *range_at(const struct image_range *ranges, size_t count, vaddr_t vaddr);

/* debug_files.c: fill img->debug and img->shared, if there are such. DINST_NO_MEMORY where nobody can open files now. */
int debug_file_open(struct image *img, const char *root, struct dinst_error *e);
int debug_shared_open(struct image *img, const char *root, struct dinst_error *e);
/*
 * False if the code of the program does not lie where that of the debug file does: who moves it (prelink, a rewriter
 * of binaries) leaves the build id, or the link, as it was, and every symbol would name something else.
 */
bool debug_file_fits(const struct elf_file *program, const struct elf_file *debug);

/* types.c: the file that has the types, NULL if none. */
const struct elf_file *types_file(const struct image *img);

/* symbols.c: all symbols that name a place in img->text; opens img->debug, img->mini and img->shared. */
int symbols_read(struct image *img, const char *debug_root, struct symbol_list *list,
		 struct dinst_error *e);
void symbols_release(struct symbol_list *list);
/* Gives back img->debug, img->mini and img->shared, which names of functions may point into. */
void symbols_close(struct image *img);

/* image_functions.c: fills functions, outer, aliases and labels. */
int functions_build(struct image *img, struct symbol_list *symbols, struct dinst_error *e);

/* image_called.c: parts that are called by their parents become functions of their own. */
int called_settle(struct image *img, struct dinst_error *e);

/* image_outer.c: fills outer, by the functions' sizes. */
int outer_find(struct image *img, struct dinst_error *e);

int ocaml_find(struct image *img, const struct symbol_list *list, struct dinst_error *e);
void ocaml_release(struct image *img);

/* lookup.c: calls `found` with every function that has exactly this name. */
int lookup_exact(struct image *img, const char *name, size_t length,
		 void (*found)(void *arg, uint32_t function), void *arg, struct dinst_error *e);

/* Length of a name without its symbol version. */
size_t name_plain_length(const char *name);

/* lookup.c: a short sum of a name, given its length. */
uint32_t name_key(const char *name, size_t length);

/* demangle.c: true if a name looks as if it had a readable form. */
bool name_is_mangled(const char *name);

/* FUNCTION_COLD and FUNCTION_STUB, as far as the name tells. image_functions.c */
uint8_t name_flags(const char *name, size_t length);

enum { KEY_INDEX_BITS = 24 };

/*
 * Sorts `count` keys by what is above their lowest KEY_INDEX_BITS, of which `bits`
 * in all count; equal ones keep their order. `other` is room for as many. Returns
 * the one of the two that has the result. image_keys.c
 */
uint64_t *keys_sort(uint64_t *keys, uint64_t *other, size_t count, unsigned bits);
/* As image_readable_name(), malloc'ed and not remembered; NULL if there is none. */
char *demangle(const char *name);
/* Length of a readable name without its parameter list. */
size_t readable_base_length(const char *readable);
void readable_release(struct readable_table *t);

/* cache_plans.c: shape() when nothing but opening has changed the functions. */
uint64_t plan_cache_shape(const struct image *img);
void plan_cache_release(struct plan_cache *c);

/* slots.c */
void slots_release(struct slot_table *t);

/* types.c: may be NULL */
void types_release(struct types *t);
/* The file, or a debug file of it, has debug information. */
bool types_are_told(const struct image *img);

/* references.c */
void references_release(struct reference_map *m);
/* Nothing branches to `vaddr` after all. */
void references_clear_branch(struct image *img, vaddr_t vaddr);

/*
 * references_parts.c: finds out which functions are parts of others, while the
 * code is scanned. begin() gives NULL if there is nothing to find out; settle()
 * needs img->references. The list may be NULL everywhere.
 */
struct parts;
int parts_begin(struct image *img, struct parts **out, struct dinst_error *e);
/* A byte sequence at `from` may be a branch, a call or a lea of `target`. */
void parts_note(struct parts *p, vaddr_t from, vaddr_t target);
void parts_settle(struct parts *p);
void parts_release(struct parts *p);

/* references_hits.c: false without memory. To be added by and by, then finished. */
bool hits_add(struct hit_list *list, vaddr_t from, vaddr_t target);
bool hits_finish(struct hit_list *list);
void hits_release(struct hit_list *list);

#endif
