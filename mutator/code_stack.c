/* SPDX-License-Identifier: MIT */
/*
 * code_stack.c - how much stack functions of Go leave for what is inserted. A goroutine's stack is a
 * piece of memory with others behind it, and nothing tells of who writes below it.
 *
 * A function that looks whether there is enough leaves what one needs that does not (StackLimit
 * of runtime/stack.go: StackGuard - StackSmall, 928 - 128; 512 in Go 1.5, which had least), when it is
 * entered as in its body; the linker sees to it that no row of those that do not look takes more. So
 * those may have nothing left at all (cmd/link, "nosplit stack overflow").
 */
#include "mutator/body.h"

#include <string.h>

enum { GO_STACK = 512 - 8 }; /* what it calls for more has a return address there */

struct looking {
	const struct image *img;
	bool looks;
};

static void found_call(void *arg, taddr_t from, taddr_t target)
{
	static const char more[] = "runtime.morestack";
	struct looking *l = arg;
	const struct image_function *functions;
	const long index = image_function_at(l->img, target);
	struct arch_insn insn;
	const uint8_t *code;
	size_t size = 0;

	image_functions(l->img, &functions);
	if (l->looks || index < 0 || strncmp(functions[index].name, more, sizeof(more) - 1) != 0)
		return;
	code = image_code(l->img, from, &size);
	l->looks = code && arch_decode(code, size, from, &insn) == ARCH_OK &&
		   insn.flow == ARCH_FLOW_CALL && insn.target == target;
}

size_t code_stack_left(const struct image *img, vaddr_t v)
{
	const struct image_function *functions, *f;
	const long index = image_function_at(img, v);
	struct looking looking = {.img = img};
	const struct image_range *text;
	const size_t texts = image_text(img, &text);
	size_t size = 0;
	const uint8_t *code;

	if (index < 0)
		return 0;
	image_functions(img, &functions);
	f = &functions[index];
	code = image_code(img, f->address, &size);
	if (code)
		arch_scan_references(code, size < f->size ? size : f->size, f->address, text[0].lo,
				     text[texts - 1].hi, found_call, &looking);
	return looking.looks ? GO_STACK : 0;
}
