/* SPDX-License-Identifier: MIT */
/*
 * slots.c - what is behind a linker stub or an indirect call through the
 * global offset table, as far as the name of the symbol tells. Knows the names
 * of functions of common libraries that never come back.
 */
#include "mutator/image_private.h"
#include "mutator/references_relocations.h"

#include <stdlib.h>

/* Sorted. Names that nobody else may have for something else: of ISO C, POSIX, the Itanium C++ ABI, LSB and gcc's run-time support. */
static const char *const never[] = {
	"_Exit",
	"_Unwind_Resume",
	"_ZSt10unexpectedv",
	"_ZSt16__throw_bad_castv",
	"_ZSt17__throw_bad_allocv",
	"_ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE",
	"_ZSt18__throw_bad_typeidv",
	"_ZSt19__throw_logic_errorPKc",
	"_ZSt19__throw_range_errorPKc",
	"_ZSt19__throw_regex_errorNSt15regex_constants10error_typeE",
	"_ZSt20__throw_domain_errorPKc",
	"_ZSt20__throw_future_errori",
	"_ZSt20__throw_length_errorPKc",
	"_ZSt20__throw_out_of_rangePKc",
	"_ZSt20__throw_system_errori",
	"_ZSt21__glibcxx_assert_failPKciS0_S0_",
	"_ZSt21__throw_bad_exceptionv",
	"_ZSt21__throw_runtime_errorPKc",
	"_ZSt22__throw_overflow_errorPKc",
	"_ZSt23__throw_underflow_errorPKc",
	"_ZSt24__throw_invalid_argumentPKc",
	"_ZSt24__throw_out_of_range_fmtPKcz",
	"_ZSt25__throw_bad_function_callv",
	"_ZSt28__throw_bad_array_new_lengthv",
	"_ZSt9terminatev",
	"__assert_fail",
	"__assert_perror_fail",
	"__chk_fail",
	"__cxa_bad_cast",
	"__cxa_bad_typeid",
	"__cxa_call_terminate",
	"__cxa_call_unexpected",
	"__cxa_deleted_virtual",
	"__cxa_pure_virtual",
	"__cxa_rethrow",
	"__cxa_throw",
	"__cxa_throw_bad_array_length",
	"__cxa_throw_bad_array_new_length",
	"__fortify_fail",
	"__libc_fatal",
	"__longjmp_chk",
	"__pthread_unwind_next",
	"__stack_chk_fail",
	"_exit",
	"_longjmp",
	"abort",
	"exit",
	"longjmp",
	"pthread_exit",
	"quick_exit",
	"siglongjmp",
	"thrd_exit",
};

struct slot {
	vaddr_t place, value;
	const char *name; /* in the file */
	bool never;
};

struct slot_table {
	struct slot *slots; /* sorted by place */
	size_t count, room;
	bool is_program; /* no other file's symbols come before its own */
	bool failed;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(a, *(const char *const *)b);
}

static int by_place(const void *a, const void *b)
{
	const struct slot *x = a, *y = b;

	return x->place < y->place ? -1 : x->place > y->place;
}

/*
 * Linkers put DT_DEBUG into programs only, and the newer ones say so. Of a library each symbol may be
 * the program's that has one of its name, as it is meant where the library's is but a default.
 */
static bool is_program(const struct elf_file *f)
{
	for (size_t i = 0; i < f->segment_count; i++) {
		const struct elf_segment *s = &f->segments[i];

		if (s->type != PT_DYNAMIC || !s->bytes)
			continue;
		for (size_t at = 0; at + 16 <= s->file_size && elf_u64(s->bytes + at); at += 16)
			if (elf_u64(s->bytes + at) == DT_DEBUG ||
			    (elf_u64(s->bytes + at) == DT_FLAGS_1 &&
			     elf_u64(s->bytes + at + 8) & DF_1_PIE))
				return true;
	}
	return f->type == ET_EXEC;
}

static void found(void *arg, vaddr_t place, const char *name, vaddr_t value)
{
	struct slot_table *t = arg;
	bool is_never;

	if (!t->is_program)
		value = 0;
	is_never = !value &&
		   bsearch(name, never, sizeof(never) / sizeof(*never), sizeof(*never), by_name);
	if (t->count == t->room) {
		size_t room = t->room ? t->room * 2 : 64;
		void *more = reallocarray(t->slots, room, sizeof(*t->slots));

		if (!more) {
			t->failed = true;
			return;
		}
		t->slots = more;
		t->room = room;
	}
	t->slots[t->count++] = (struct slot){place, value, name, is_never};
}

void slots_release(struct slot_table *t)
{
	if (t)
		free(t->slots);
	free(t);
}

/* Without memory the table is empty: nothing is known then, which is safe. */
static const struct slot_table *slots_of(struct image *img)
{
	struct slot_table *t = img->slots;

	if (t)
		return t;
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->is_program = is_program(&img->file);
	slots_each(&img->file, found, t);
	if (t->failed)
		t->count = 0;
	if (t->count)
		qsort(t->slots, t->count, sizeof(*t->slots), by_place);
	img->slots = t;
	return t;
}

static const struct slot *slot_at(struct image *img, vaddr_t place)
{
	const struct slot_table *t = slots_of(img);
	struct slot key = {.place = place};

	return t && t->count ? bsearch(&key, t->slots, t->count, sizeof(key), by_place) : NULL;
}

enum image_slot image_slot(struct image *img, vaddr_t place, vaddr_t *value)
{
	const struct slot *s = slot_at(img, place);

	if (s && s->never)
		return SLOT_NEVER_RETURNS;
	if (!s || !s->value)
		return SLOT_UNKNOWN;
	*value = s->value;
	return SLOT_DEFINED;
}

const char *image_slot_name(struct image *img, vaddr_t place)
{
	const struct slot *s = slot_at(img, place);

	return s ? s->name : NULL;
}

bool image_is_stub(const struct image *img, vaddr_t vaddr)
{
	return range_at(img->stubs, img->stub_count, vaddr) != NULL;
}
