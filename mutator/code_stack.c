/* SPDX-License-Identifier: MIT */
/*
 * code_stack.c - how much stack functions of Go and of OCaml leave for what is inserted. Their stacks are
 * pieces of memory with others behind them, and nothing tells of who writes below one.
 *
 * Go: a function that looks whether there is enough leaves what one needs that does not (StackLimit
 * of runtime/stack.go: StackGuard - StackSmall, 928 - 128; 512 in Go 1.5, which had least), when it is
 * entered as in its body; the linker sees to it that no row of those that do not look takes more. So
 * those may have nothing left at all (cmd/link, "nosplit stack overflow").
 *
 * OCaml from version 5 on: a function that calls others, or has a large frame, looks before it does anything
 * whether 256 bytes stay below its frame (Stack_threshold of runtime/caml/config.h; fundecl of asmcomp/ARCH/emit.mlp),
 * and so does who calls it from C (caml_maybe_expand_stack()): that is what every function finds, whether it looks
 * or not. One that does not look may take all but 16 of them for its own frame; and what it calls then, of the
 * runtime's in assembler, has the rest.
 */
#include "mutator/body.h"

#include <string.h>

enum {
	GO_STACK = 512 - 8,	/* what it calls for more has a return address there */
	OCAML_STACK = 256 - 16, /* here that, and a frame pointer */
	LOOK_INSNS =
		6, /* of a look: the sum, the comparison and the branch; a number, and the call */
};

static bool is_function(const struct image *img, vaddr_t v, const char *beginning)
{
	const struct image_function *functions;
	const long index = image_function_at(img, v);

	image_functions(img, &functions);
	return index >= 0 && !strncmp(functions[index].name, beginning, strlen(beginning));
}

static bool decode(const struct image *img, vaddr_t v, struct arch_insn *insn)
{
	size_t size = 0;
	const uint8_t *code = image_code(img, v, &size);

	return code && arch_decode(code, size, v, insn) == ARCH_OK;
}

/* ----------------------------------------------------------------- Go */

struct looking {
	const struct image *img;
	bool looks;
};

static void found_call(void *arg, taddr_t from, taddr_t target)
{
	struct looking *l = arg;
	struct arch_insn insn;

	if (!l->looks && is_function(l->img, target, "runtime.morestack"))
		l->looks = decode(l->img, from, &insn) && insn.flow == ARCH_FLOW_CALL &&
			   insn.target == target;
}

static bool go_looks(const struct image *img, const struct image_function *f)
{
	struct looking looking = {.img = img};
	const struct image_range *text;
	const size_t texts = image_text(img, &text);
	size_t size = 0;
	const uint8_t *code = image_code(img, f->address, &size);

	if (code)
		arch_scan_references(code, size < f->size ? size : f->size, f->address, text[0].lo,
				     text[texts - 1].hi, found_call, &looking);
	return looking.looks;
}

/* -------------------------------------------------------------- OCaml */

static bool changes_stack(const struct arch_insn *insn)
{
	return arch_changes(insn) & arch_always_live;
}

/* The first instruction from v on that does not just go on to the next one; false if it is far. */
static bool walk(const struct image *img, vaddr_t v, bool may_push, struct arch_insn *insn)
{
	for (unsigned i = 0; i < LOOK_INSNS && decode(img, v, insn); i++, v += insn->length) {
		if (insn->flow != ARCH_FLOW_NEXT)
			return true;
		if (!may_push && changes_stack(insn))
			return false;
	}
	return false;
}

/* It begins with a branch to where the stack grows: whoever comes to its body has looked. */
static bool ocaml_looks(const struct image *img, const struct image_function *f)
{
	struct arch_insn insn;

	return walk(img, f->address, false, &insn) && insn.flow == ARCH_FLOW_BRANCH &&
	       walk(img, insn.target, true, &insn) && insn.flow == ARCH_FLOW_CALL &&
	       is_function(img, insn.target, "caml_call_realloc_stack");
}

/* It has no frame: but for calls and returns, nothing in it changes the stack pointer. */
static bool keeps_stack(const struct image *img, const struct image_function *f)
{
	struct arch_insn insn;

	for (vaddr_t v = f->address; v < f->address + f->size; v += insn.length) {
		if (!decode(img, v, &insn))
			return false;
		if (!arch_is_call(&insn) && insn.flow != ARCH_FLOW_RETURN && changes_stack(&insn))
			return false;
	}
	return true;
}

size_t code_stack_left(const struct image *img, vaddr_t v)
{
	const struct image_function *functions, *f;
	const long index = image_function_at(img, v);
	const bool go = image_is_go(img);
	bool runtime;

	if (!go && !image_grows_stack(img, v, &runtime))
		return SIZE_MAX;
	if (index < 0)
		return 0;
	image_functions(img, &functions);
	f = &functions[index];
	if (go)
		return go_looks(img, f) ? GO_STACK : 0;
	return !runtime && (ocaml_looks(img, f) || keeps_stack(img, f)) ? OCAML_STACK : 0;
}
