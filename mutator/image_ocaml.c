/* SPDX-License-Identifier: MIT */
/*
 * image_ocaml.c - which code is OCaml's, and of which kind its stacks are.
 *
 * Before version 5 they end in a guard page, and Stack_overflow is made of a SIGSEGV, and only of one whose pc lies between two
 * symbols caml<Unit>__code_begin and caml<Unit>__code_end (runtime/signals_nat.c, segv_handler()):
 * any other ends the program. What touches the guard page first is whatever needs the most stack: a
 * call, a store to the frame, or what we push.
 *
 * From version 5 on they are pieces of malloc()'s, behind a struct of the runtime's and nothing else: functions
 * look whether there is enough, and grow them (code_stack.c).
 */
#include "mutator/image_private.h"

#include <stdlib.h>
#include <string.h>

static bool names_symbol(const struct elf_file *f, const char *wanted, size_t size)
{
	static const char *const names[] = {".dynstr", ".strtab"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const struct elf_section *s = elf_section_named(f, names[i]);

		if (s && s->bytes && memmem(s->bytes, s->size, wanted, size))
			return true;
	}
	return false;
}

/* What separates a unit's name from the ending depends on the version: "__", "." or "$". */
static bool ends_with(const struct symbol *s, const char *ending)
{
	size_t size = strlen(ending);

	return s->length > size && !memcmp(s->name, "caml", 4) &&
	       !memcmp(s->name + s->length - size, ending, size);
}

static bool is_named(const struct symbol *s, const char *name)
{
	return s->length == strlen(name) && !memcmp(s->name, name, s->length);
}

/* By the file's own names, or by those of its debug file: a static program that is stripped has none. */
static bool is_known(const struct elf_file *f, const struct symbol_list *list, const char *wanted,
		     size_t size)
{
	if (names_symbol(f, wanted, size))
		return true;
	for (size_t i = 0; i < list->count; i++)
		if (is_named(&list->symbols[i], wanted + 1))
			return true;
	return false;
}

/* The names are looked for with the zero before them, and that behind them. */
static bool is_ocaml(const struct elf_file *f, const struct symbol_list *list, bool *grows)
{
	static const char runtime[] = "\0caml_call_gc", growth[] = "\0caml_call_realloc_stack";

	*grows = is_known(f, list, growth, sizeof(growth));
	return *grows || is_known(f, list, runtime, sizeof(runtime));
}

static int by_address(const void *a, const void *b)
{
	const vaddr_t x = *(const vaddr_t *)a, y = *(const vaddr_t *)b;

	return x < y ? -1 : x > y;
}

int ocaml_find(struct image *img, const struct symbol_list *list, struct dinst_error *e)
{
	struct image_ocaml *o = &img->ocaml;

	if (!is_ocaml(&img->file, list, &o->grows))
		return 0;
	o->begins = calloc(list->count + 1, sizeof(*o->begins));
	o->ends = calloc(list->count + 1, sizeof(*o->ends));
	if (!o->begins || !o->ends)
		return dinst_fail(e, DINST_NO_MEMORY, "%s: no memory for symbols", img->name);
	for (size_t i = 0; i < list->count; i++) {
		const struct symbol *s = &list->symbols[i];

		if (ends_with(s, "code_begin"))
			o->begins[o->begin_count++] = s->address;
		else if (ends_with(s, "code_end"))
			o->ends[o->end_count++] = s->address;
		if (is_named(s, "caml_system__code_begin"))
			o->runtime.lo = s->address;
		else if (is_named(s, "caml_system__code_end"))
			o->runtime.hi = s->address;
	}
	qsort(o->begins, o->begin_count, sizeof(*o->begins), by_address);
	qsort(o->ends, o->end_count, sizeof(*o->ends), by_address);
	/* Without them it cannot be told from the rest. */
	o->everywhere = !o->begin_count || !o->end_count;
	return 0;
}

void ocaml_release(struct image *img)
{
	free(img->ocaml.begins);
	free(img->ocaml.ends);
}

/* How many of the sorted addresses are not above v. */
static size_t count_to(const vaddr_t *addresses, size_t count, vaddr_t v)
{
	size_t lo = 0, hi = count;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (addresses[mid] <= v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static bool is_in_code(const struct image_ocaml *o, vaddr_t v)
{
	size_t begun, ended;

	if (o->everywhere || !o->begin_count)
		return o->everywhere;
	begun = count_to(o->begins, o->begin_count, v);
	ended = count_to(o->ends, o->end_count, v);
	return begun && (!ended || o->begins[begun - 1] >= o->ends[ended - 1]);
}

bool image_overflows(const struct image *img, vaddr_t v)
{
	return !img->ocaml.grows && is_in_code(&img->ocaml, v);
}

bool image_grows_stack(const struct image *img, vaddr_t v, bool *runtime)
{
	const struct image_ocaml *o = &img->ocaml;

	*runtime = v >= o->runtime.lo && v < o->runtime.hi;
	return o->grows && (*runtime || is_in_code(o, v));
}
