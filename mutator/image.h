/* SPDX-License-Identifier: MIT */
/*
 * image.h - one ELF file as the mutator sees it: code, functions, references.
 *
 * Everything here is about the file: addresses are link-time virtual addresses
 * (`vaddr`), never addresses of the target. An image is shared by all modules
 * with the same file. It is outside input: every field is checked, nothing is
 * asserted on, and a damaged file is an error that says where.
 *
 * Calling sequence: image_open(); then ask. Opening reads headers, symbol
 * tables (.symtab, .dynsym, .gnu_debugdata, a separate debug file found by
 * build id) and .eh_frame ranges; nothing is decoded. image_references() is
 * computed on first use, for the whole file.
 */
#ifndef DINST_MUTATOR_IMAGE_H
#define DINST_MUTATOR_IMAGE_H

#include "arch/arch.h"
#include "inject/error.h"

typedef uint64_t vaddr_t;

struct image; /* opaque */

/*
 * Opens the ELF file behind `fd` (borrowed; mapped read-only). `name` is for
 * messages, `debug_root` the directory below which usr/lib/debug is looked for
 * ("/" or /proc/PID/root), NULL for none.
 */
int image_open(int fd, const char *name, const char *debug_root, struct image **out,
	       struct dinst_error *e);
void image_close(struct image *img);

const uint8_t *image_build_id(const struct image *img, size_t *size); /* NULL if none */
const char *image_soname(const struct image *img);		      /* DT_SONAME; NULL if none */
vaddr_t image_lowest(const struct image *img);	/* lowest PT_LOAD, page aligned down */
vaddr_t image_highest(const struct image *img); /* end of the highest PT_LOAD */
vaddr_t image_entry(const struct image *img);	/* e_entry */
/* What offsets of the code to its own addresses may count from (@GOTOFF): at most OFFSET_BASES. */
enum { OFFSET_BASES = 3 };
size_t image_offset_bases(const struct image *img, vaddr_t bases[OFFSET_BASES]);
bool image_is_fixed(const struct image *img); /* ET_EXEC: runs at its link-time addresses */
bool image_is_go(const struct image *img);    /* Go code: pcs are parked off the stacks */
/*
 * Code that makes exceptions of faults, and finds them by where they happened: of Go, Ada, C#, or
 * compiled so (-fnon-call-exceptions), which image_references() finds out.
 */
bool image_turns_faults(const struct image *img);
/*
 * Code at v whose runtime makes an exception of a stack overflow, and finds it by the pc: whatever
 * touches the end of the stack has to be in it (OCaml before version 5).
 */
bool image_overflows(const struct image *img, vaddr_t v);
/*
 * Code at v that runs on a small stack with others' memory around it, and looks itself whether that has to grow (OCaml from
 * version 5 on). *runtime: it is of the runtime's, which looks nowhere and lives on what others have left.
 */
bool image_grows_stack(const struct image *img, vaddr_t v, bool *runtime);
/* Compiled ahead of time by Mono, whose runtime reads the calls that lead to it. */
bool image_is_mono(const struct image *img);

/*
 * The file's bytes at `vaddr` in an executable, readable, file-backed part;
 * *size receives how many follow there. NULL if it is none.
 */
const uint8_t *image_code(const struct image *img, vaddr_t vaddr, size_t *size);

/* As image_code(), for read-only data (jump tables); also finds code. */
const uint8_t *image_data(const struct image *img, vaddr_t vaddr, size_t *size);

/* End of the readable segment that contains the address: up to there memory is mapped; 0 if none does. */
vaddr_t image_readable_end(const struct image *img, vaddr_t vaddr);

struct image_range {
	vaddr_t lo, hi;
};
/* Executable ranges (sections, else segments), sorted. */
size_t image_text(const struct image *img, const struct image_range **ranges);
/* Link-time address and file offset of the PT_LOAD segments that are executable. */
bool image_file_offset(const struct image *img, vaddr_t vaddr, uint64_t *offset);

enum image_function_flag {
	FUNCTION_COLD = 1 << 0,	     /* a .cold fragment: no function of its own, see parent */
	FUNCTION_NO_SYMBOL = 1 << 1, /* the name is made up from the address */
	FUNCTION_NO_FRAME = 1 << 2,  /* no FDE covers it */
	FUNCTION_IFUNC = 1 << 3,     /* the symbol names a resolver */
	FUNCTION_NO_SIZE = 1 << 4,   /* the size was inferred from what follows */
	FUNCTION_STUB = 1 << 5,	     /* PLT, _init, signal return and the like: not patched */
	FUNCTION_LOCAL = 1 << 6,     /* the symbol is local to the file */
};

struct image_function {
	vaddr_t address;
	uint64_t size;	  /* bytes */
	const char *name; /* as in the file (mangled); never NULL; owned by the image */
	uint32_t flags;
	uint32_t parent;   /* of a cold fragment: index of its function, else own index */
	uint32_t alias_of; /* index of the function that other names at this address stand for */
};

/* All functions, sorted by address, one per address (further names: image_aliases). */
size_t image_functions(const struct image *img, const struct image_function **functions);

/* The function whose [address, address + size) contains vaddr; -1 if none. */
long image_function_at(const struct image *img, vaddr_t vaddr);

/* The nearest function that begins in front of function `index` and goes on behind its end; -1 if none. */
long image_function_around(const struct image *img, long index);

/* Further names of function `index`: fills at most `max`, returns how many there are. */
size_t image_aliases(const struct image *img, size_t index, const char **names, size_t max);

/* The readable form of a name (C++, Rust), or the name itself; valid until image_close(). */
const char *image_readable_name(struct image *img, const char *name);

/*
 * Indices of the functions whose mangled, readable or alias name matches the
 * glob (or exact name). Fragments and stubs are left out, and resolvers (IFUNC)
 * unless their exact name is given. *out is malloc'ed.
 * A readable name also matches without its parameter list.
 */
int image_match(struct image *img, const char *pattern, uint32_t **out, size_t *count,
		struct dinst_error *e);

/* False if it is a glob here: it looks like one and is not itself the whole name of a function. */
bool image_is_name(struct image *img, const char *pattern);

/* image_match() where somebody knows what it is, for instance from another image. */
int image_match_as(struct image *img, const char *pattern, bool glob, uint32_t **out, size_t *count,
		   struct dinst_error *e);

/*
 * True if some function, offered by image_match() or not, has exactly this name
 * in the file; *flags are its enum image_function_flag (why it is not offered).
 */
bool image_name_flags(struct image *img, const char *name, uint32_t *flags);

/* Up to `max` names that resemble `name`, best first; owned by the image. */
size_t image_nearest(struct image *img, const char *name, const char **out, size_t max);

/*
 * Who refers to what, for every byte of the executable ranges: the target sets
 * that no window may contain strictly inside. A superset.
 */
enum image_reference {
	/* A byte sequence outside the function that may be a jump, a call, or a lea of it.
	 * (What is in the function itself is found by decoding it.) See hits.h. */
	REFERENCE_BRANCH = 1 << 0,
	REFERENCE_ADDRESS = 1 << 1, /* its address is stored (relocation, table) */
	REFERENCE_LANDING = 1 << 2, /* an exception handler (LSDA) */
	REFERENCE_SYMBOL = 1 << 3,  /* a symbol or an FDE starts here */
	REFERENCE_RSEQ = 1 << 4,    /* inside a restartable sequence or its abort signature */
};

/* Computes the references if need be; then image_references_at() may be used. */
int image_references(struct image *img, struct dinst_error *e);
/* enum image_reference bits of one byte of code. */
unsigned image_references_at(const struct image *img, vaddr_t vaddr);
/*
 * The first byte in [*vaddr, hi) with any bits: *vaddr becomes its address and
 * *bits what image_references_at() says. False if there is none. Quick.
 */
bool image_references_next(const struct image *img, vaddr_t *vaddr, vaddr_t hi, unsigned *bits);

/* True inside the linker's stubs (.plt and the like). */
bool image_is_stub(const struct image *img, vaddr_t vaddr);

/* What is known of a place in which the loader stores the address of a function. */
enum image_slot {
	SLOT_UNKNOWN,	    /* nothing */
	SLOT_NEVER_RETURNS, /* a function that never comes back, by its name: exit, abort, ... */
	SLOT_DEFINED,	    /* a symbol of this file, the program: none of that name comes first */
};
/* *value: address of the symbol, on SLOT_DEFINED only. */
enum image_slot image_slot(struct image *img, vaddr_t place, vaddr_t *value);
/* The name of the symbol whose address belongs there, without a version; NULL: not known. */
const char *image_slot_name(struct image *img, vaddr_t place);

/*
 * One pointer that another part of the mutator hangs on the image (planning:
 * its map of padding). image_close() calls release(extra) before anything else.
 */
void *image_extra(const struct image *img);
void image_set_extra(struct image *img, void *extra, void (*release)(void *extra));

#endif
