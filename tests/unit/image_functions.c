/* SPDX-License-Identifier: MIT */
/*
 * image_functions.c (test) - which functions are found in a file, with and
 * without symbols, and by which names.
 *
 * Files are the test targets, this program itself, and what the system has;
 * where something is not there the case is skipped and says so.
 */
#include <fcntl.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <elf.h>

#include "mutator/image.h"

static const char libc_path[] = "/lib/x86_64-linux-gnu/libc.so.6";

static const char *target_path(const char *name)
{
	static char path[4096];
	const char *build = getenv("DINST_BUILD");

	snprintf(path, sizeof(path), "%s/tests/live/targets/%s", build ? build : "build", name);
	return path;
}

static struct image *open_fd(int fd, const char *name)
{
	struct dinst_error e = {0};
	struct image *img = NULL;

	if (image_open(fd, name, "/", &img, &e))
		fail_msg("%s: %s", name, e.text);
	close(fd);
	return img;
}

static struct image *open_path(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		print_message("skipped: there is no %s\n", path);
		skip();
	}
	return open_fd(fd, path);
}

/* A copy of the file whose .symtab is of no type that anybody knows: stripped. */
static struct image *open_without_symbols(const char *path)
{
	int from = open(path, O_RDONLY | O_CLOEXEC), to = memfd_create("twin", MFD_CLOEXEC);
	struct stat st;
	Elf64_Ehdr *h;
	Elf64_Shdr *s;
	uint8_t *p;

	assert_true(from >= 0 && to >= 0 && !fstat(from, &st) && !ftruncate(to, st.st_size));
	p = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, to, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	for (off_t at = 0; at < st.st_size;) {
		ssize_t n = pread(from, p + at, st.st_size - at, at);

		assert_true(n > 0);
		at += n;
	}
	h = (Elf64_Ehdr *)p;
	s = (Elf64_Shdr *)(p + h->e_shoff);
	for (unsigned i = 0; i < h->e_shnum; i++)
		if (s[i].sh_type == SHT_SYMTAB || s[i].sh_type == SHT_DYNSYM)
			s[i].sh_type = SHT_PROGBITS;
	munmap(p, st.st_size);
	close(from);
	/* The build id would lead to a debug file with all the names. */
	return open_fd(to, "twin");
}

static uint32_t *match(struct image *img, const char *pattern, size_t *count)
{
	struct dinst_error e = {0};
	uint32_t *found = NULL;

	if (image_match(img, pattern, &found, count, &e))
		fail_msg("%s: %s", pattern, e.text);
	return found;
}

static size_t match_count(struct image *img, const char *pattern)
{
	size_t count;

	free(match(img, pattern, &count));
	return count;
}

/* The one function of that name. */
static const struct image_function *the(struct image *img, const char *name)
{
	const struct image_function *functions;
	size_t count, all = image_functions(img, &functions);
	uint32_t *found = match(img, name, &count), index = found[0];

	if (count != 1)
		fail_msg("%s: %zu functions", name, count);
	assert_true(index < all);
	free(found);
	return &functions[index];
}

static double milliseconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

/* --------------------------------------------------------- without symbols */

static void compare_twins(const char *path)
{
	struct image *full = open_path(path), *bare = open_without_symbols(path);
	const struct image_function *a, *b;
	size_t n = image_functions(full, &a), m = image_functions(bare, &b);
	size_t framed = 0, found = 0, cold = 0, cold_found = 0, false_cold = 0;

	assert_true(n > 10 && m > 10);
	for (size_t i = 0; i < n; i++) {
		long at = image_function_at(bare, a[i].address);
		bool same = at >= 0 && b[at].address == a[i].address;

		if (a[i].flags & (FUNCTION_NO_FRAME | FUNCTION_STUB))
			continue;
		framed++;
		found += same;
		if (a[i].flags & FUNCTION_COLD) {
			cold++;
			cold_found += same && (b[at].flags & FUNCTION_COLD);
		} else if (same && (b[at].flags & FUNCTION_COLD)) {
			false_cold++;
		}
	}
	print_message("%s: %zu of %zu functions without symbols, %zu of %zu fragments, %zu wrong\n",
		      path, found, framed, cold_found, cold, false_cold);
	assert_true(found * 100 >= framed * 99);
	/* A fragment without a frame cannot be told; there are few (1 to 2 % in large programs,
	 * more in small ones). */
	assert_true(cold_found * 2 >= cold);
	assert_true(false_cold * 1000 <= framed);
	for (size_t i = 0; i < m; i++) {
		char name[32];

		snprintf(name, sizeof(name), "fn_%llx",
			 (unsigned long long)(b[i].address - image_lowest(bare)));
		assert_true(b[i].flags & FUNCTION_NO_SYMBOL);
		assert_string_equal(b[i].name, name);
	}
	image_close(full);
	image_close(bare);
}

/* fear F3: several names at one address */
static void test_twins(void **unused)
{
	(void)unused;
	compare_twins(target_path("image-cxx"));
	compare_twins("/proc/self/exe");
}

/* Where node's code is: Debian's is a small program with a library. */
static const char *large_path(void)
{
	static const char library[] = "/usr/lib/x86_64-linux-gnu/libnode.so.108";

	return access(library, R_OK) ? "/usr/bin/node" : library;
}

/* fear F5: a stripped program: functions by their frames */
static void test_stripped_parents(void **unused)
{
	struct image *full = open_path(target_path("image-cxx"));
	struct image *bare = open_path(target_path("image-stripped"));
	struct dinst_error e = {0};
	const struct image_function *a, *b;
	size_t n = image_functions(full, &a), checked = 0;

	(void)unused;
	image_functions(bare, &b);
	assert_int_equal(image_references(bare, &e), 0);
	for (size_t i = 0; i < n; i++) {
		long at = image_function_at(bare, a[i].address);

		if (!(a[i].flags & FUNCTION_COLD) || at < 0 || !(b[at].flags & FUNCTION_COLD))
			continue;
		/* By name in one, by who jumps there in the other: the same function. */
		assert_int_not_equal(a[i].parent, i);
		assert_true(b[b[at].parent].address == a[a[i].parent].address);
		checked++;
	}
	assert_true(checked > 0);
	image_close(full);
	image_close(bare);
}

/* ------------------------------------------------------------ assembler code */

/* fear F3, F5, F7: assembler code that no frame covers, and the names of basic block sections */
static void test_assembler(void **unused)
{
	struct image *img = open_path(target_path("image-asm"));
	const struct image_function *functions, *outer, *inner, *f;
	const char *names[4];
	struct dinst_error e = {0};
	size_t n = image_functions(img, &functions), all = 0, cold = 0, parts = 0, unnamed = 0;

	(void)unused;
	assert_true(image_is_fixed(img));
	outer = the(img, "outer");
	inner = the(img, "inner_function");
	assert_int_equal(outer->size, 8);
	assert_int_equal(inner->size, 2);
	assert_int_equal(inner->address, outer->address + 4);
	/* The innermost answers; behind it the outer one goes on. */
	assert_ptr_equal(&functions[image_function_at(img, inner->address + 1)], inner);
	assert_ptr_equal(&functions[image_function_at(img, inner->address + 2)], outer);
	assert_ptr_equal(&functions[image_function_at(img, outer->address + 3)], outer);
	/* A label is no function, but nothing may be patched across it. */
	assert_int_equal(match_count(img, "inner_label"), 0);
	assert_int_equal(image_references(img, &e), 0);
	assert_true(image_references_at(img, outer->address + 2) & REFERENCE_SYMBOL);
	assert_true(image_references_at(img, outer->address + 3) & REFERENCE_ADDRESS);
	assert_int_equal(image_references_at(img, outer->address + 1), 0);
	f = the(img, "bare");
	assert_int_equal(f->size, 16);
	assert_true((f->flags & FUNCTION_NO_SIZE) && (f->flags & FUNCTION_NO_FRAME));
	assert_true(image_references_at(img, f->address) & REFERENCE_BRANCH);
	/* Two names, one function. */
	f = the(img, "sized");
	assert_ptr_equal(the(img, "sized_too"), f);
	assert_int_equal(image_aliases(img, f - functions, names, 4), 1);
	assert_string_equal(names[0], "sized_too");
	assert_true(f->flags & FUNCTION_NO_FRAME);
	assert_int_equal(match_count(img, "table"), 0);
	for (size_t i = 0; i < n; i++) {
		unnamed += !!(functions[i].flags & FUNCTION_NO_SYMBOL);
		f = &functions[functions[i].parent];
		cold += functions[i].flags & FUNCTION_COLD && f == the(img, "with_fragment");
		parts += functions[i].flags & FUNCTION_COLD && f == the(img, "parted");
		all += !!(functions[i].flags & FUNCTION_COLD);
	}
	assert_int_equal(cold, 1);
	assert_true(parts == 2 && all == 3);
	assert_int_equal(unnamed, 2);
	image_close(img);
}

static void test_sequence(void **unused)
{
	struct image *img = open_path(target_path("image-asm"));
	const struct image_function *f = the(img, "sequence");
	struct dinst_error e = {0};
	/* mov (5), mov (4), ret, signature (4), jmp */
	static const bool inside[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0};

	(void)unused;
	assert_int_equal(image_references(img, &e), 0);
	for (size_t i = 0; i < sizeof(inside); i++)
		if (!!(image_references_at(img, f->address + i) & REFERENCE_RSEQ) != inside[i])
			fail_msg("byte %zu", i);
	image_close(img);
}

/* -------------------------------------------------------------------- names */

static void test_readable_names(void **unused)
{
	struct image *img = open_path(target_path("image-cxx"));
	const struct image_function *f, *functions;
	const char *names[4];

	(void)unused;
	image_functions(img, &functions);
	f = the(img, "shapes::Circle::area");
	assert_string_equal(image_readable_name(img, f->name), "shapes::Circle::area() const");
	assert_ptr_equal(the(img, "shapes::Circle::area() const"), f);
	assert_ptr_equal(the(img, f->name), f);
	assert_ptr_equal(the(img, "*Circle::area*"), f);
	assert_ptr_equal(the(img, "shapes::Circle::a?ea"), f);
	assert_int_equal(match_count(img, "area"), 0);
	/* What a template returns is no part of how people name it. */
	f = the(img, "shapes::largest<int>");
	assert_ptr_equal(the(img, "shapes::largest*"), f);
	assert_ptr_equal(the(img, "int shapes::largest<int>"), f);
	/* circle: constructor, two destructors, area, scale */
	assert_int_equal(match_count(img, "shapes::Circle::*"), 5);
	/* Parameters need not be given, but may. */
	f = the(img, "shapes::Circle::scale");
	assert_ptr_equal(the(img, "shapes::Circle::scale(int, *"), f);
	/* One address, two names; an alias is as good. */
	f = the(img, "doubled");
	assert_ptr_equal(the(img, "twice"), f);
	assert_string_equal(f->name, "twice");
	assert_int_equal(image_aliases(img, f - functions, names, 4), 1);
	assert_string_equal(names[0], "doubled");
	/* A name without a readable form stands for itself, and so does nonsense. */
	assert_string_equal(image_readable_name(img, "doubled"), "doubled");
	assert_string_equal(image_readable_name(img, "_Zq9x"), "_Zq9x");
	image_close(img);
}

/* fear F2, F3: cold parts and resolvers */
static void test_fragments_and_resolvers(void **unused)
{
	struct image *img = open_path(target_path("image-cxx"));
	const struct image_function *functions, *f = the(img, "mostly_warm");
	size_t n = image_functions(img, &functions), fragments = 0;
	uint32_t flags;

	(void)unused;
	for (size_t i = 0; i < n; i++) {
		if (functions[i].parent != (uint32_t)(f - functions) || &functions[i] == f)
			continue;
		fragments++;
		assert_string_equal(functions[i].name, "mostly_warm.cold");
		assert_true(functions[i].flags & FUNCTION_COLD);
	}
	assert_int_equal(fragments, 1);
	/* Fragments are no answer, not even to their name. */
	assert_int_equal(match_count(img, "mostly_warm*"), 1);
	assert_int_equal(match_count(img, "mostly_warm.cold"), 0);
	assert_true(image_name_flags(img, "mostly_warm.cold", &flags) && (flags & FUNCTION_COLD));
	assert_false(image_name_flags(img, "mostly_war", &flags));
	/* A resolver is found by its exact name only, and says what it is. */
	assert_int_equal(match_count(img, "chose*"), 0);
	assert_true(the(img, "chosen")->flags & FUNCTION_IFUNC);
	assert_int_equal(match_count(img, "_init"), 0);
	assert_true(image_name_flags(img, "_init", &flags) && (flags & FUNCTION_STUB));
	image_close(img);
}

static void test_nearest(void **unused)
{
	struct image *img = open_path(target_path("image-cxx"));
	const char *names[3];
	size_t count;

	(void)unused;
	count = image_nearest(img, "mosty_warm", names, 3);
	assert_true(count >= 1);
	assert_string_equal(names[0], "mostly_warm");
	count = image_nearest(img, "shapes::Circle::aera", names, 3);
	assert_true(count >= 1);
	assert_string_equal(names[0], "shapes::Circle::area() const");
	/* Case is forgiven, and a part of the name is enough. */
	count = image_nearest(img, "DOUBLED", names, 3);
	assert_true(count >= 1);
	assert_string_equal(names[0], "doubled");
	count = image_nearest(img, "largest", names, 3);
	assert_true(count >= 1);
	assert_non_null(strstr(names[0], "largest<int>"));
	assert_int_equal(image_nearest(img, "xyzzy_plugh_qwert", names, 3), 0);
	assert_int_equal(image_nearest(img, "", names, 3), 0);
	image_close(img);
}

/* fear F3, F5: libc: versions, aliases, resolvers */
static void test_libc(void **unused)
{
	struct image *img = open_path(libc_path);
	const struct image_function *functions, *f = the(img, "malloc");
	size_t n = image_functions(img, &functions), resolvers = 0;
	const char *names[16];
	bool seen = false;

	(void)unused;
	assert_string_equal(image_soname(img), "libc.so.6");
	assert_false(image_is_fixed(img));
	assert_false(image_is_go(img));
	/* The public name comes first, the others are aliases, each address stands once. */
	assert_string_equal(f->name, "malloc");
	n = image_aliases(img, f - functions, names, 16);
	for (size_t i = 0; i < n && i < 16; i++)
		seen |= !strcmp(names[i], "__libc_malloc");
	assert_true(seen);
	assert_string_equal(the(img, "write")->name, "write");
	n = image_functions(img, &functions);
	for (size_t i = 1; i < n; i++)
		assert_true(functions[i - 1].address < functions[i].address);
	for (size_t i = 0; i < n; i++)
		resolvers += !!(functions[i].flags & FUNCTION_IFUNC);
	assert_true(resolvers > 10);
	image_close(img);
}

/* fear F3: what is the whole name of a function means that one, whatever else it would match as a pattern */
static void test_names_like_patterns(void **unused)
{
	static const struct {
		const char *pattern;
		size_t count;
	} cases[] = {
		{"named::pick(char*)", 1},
		{"named::pick(char const*)", 1},
		{"named::pick(char, int)", 1},
		{"named::sum(int (&) [4])", 1},
		{"named::pair::operator*(int)", 1},
		{"named::pick(char*", 3}, /* a glob */
		{"named::pick*", 3},
		{"named::pick", 3},
		{"named::*", 5},
	};
	struct image *img = open_path(target_path("named"));

	(void)unused;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (match_count(img, cases[i].pattern) != cases[i].count)
			fail_msg("%s: %zu, not %zu", cases[i].pattern,
				 match_count(img, cases[i].pattern), cases[i].count);
	image_close(img);
}

/* fear F3: a name with its version is that of one function, without it of all versions */
static void test_versions(void **unused)
{
	struct image *img = open_path(target_path("libversions.so"));

	(void)unused;
	assert_int_equal(match_count(img, "pick"), 2);
	assert_int_equal(match_count(img, "pick@FIRST"), 1);
	assert_int_equal(match_count(img, "pick@@SECOND"), 1);
	assert_int_equal(match_count(img, "pick@SECOND"), 0);
	assert_int_equal(match_count(img, "pick@*"), 2);
	assert_ptr_equal(the(img, "pick@FIRST"), the(img, "first_pick"));
	image_close(img);
}

static void test_questions(void **unused)
{
	struct image *img = open_path(libc_path);
	const struct image_function *f = the(img, "malloc");
	const struct image_range *text;
	size_t size, ranges = image_text(img, &text);
	const uint8_t *code = image_code(img, f->address, &size);
	uint64_t offset;
	uint8_t byte[8];
	int fd = open(libc_path, O_RDONLY | O_CLOEXEC);

	(void)unused;
	assert_true(ranges > 0 && size >= f->size);
	assert_true(image_file_offset(img, f->address, &offset));
	assert_int_equal(pread(fd, byte, sizeof(byte), offset), sizeof(byte));
	assert_memory_equal(byte, code, sizeof(byte));
	close(fd);
	assert_null(image_code(img, image_highest(img), &size));
	assert_null(image_code(img, image_lowest(img), &size));
	assert_non_null(image_data(img, image_lowest(img), &size));
	assert_false(image_file_offset(img, image_lowest(img), &offset));
	assert_int_equal(image_function_at(img, 0), -1);
	assert_int_equal(image_function_at(img, UINT64_MAX), -1);
	assert_true(image_lowest(img) % 4096 == 0 && image_lowest(img) < image_highest(img));
	image_close(img);
}

/* The build id of this very program, as the loader has mapped it. */
static int find_note(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		const ElfW(Nhdr) *n = (const void *)(info->dlpi_addr + p->p_vaddr);

		if (p->p_type == PT_NOTE && n->n_type == NT_GNU_BUILD_ID && p->p_align == 4) {
			*(const ElfW(Nhdr) **)arg = n;
			return 1;
		}
	}
	return 1;
}

static void test_build_id(void **unused)
{
	struct image *img = open_path("/proc/self/exe");
	const ElfW(Nhdr) *note = NULL;
	const uint8_t *id;
	size_t size = 0;

	(void)unused;
	dl_iterate_phdr(find_note, &note);
	id = image_build_id(img, &size);
	if (!note) {
		assert_null(id);
		image_close(img);
		print_message("skipped: the linker writes no build id\n");
		skip();
	}
	assert_non_null(id);
	assert_int_equal(size, note->n_descsz);
	assert_memory_equal(id, (const uint8_t *)(note + 1) + 4, size);
	image_close(img);
}

/* ------------------------------------------------------------------- errors */

static void expect_error(const void *bytes, size_t size, int code, const char *words)
{
	struct dinst_error e = {0};
	struct image *img;
	int fd = memfd_create("broken", MFD_CLOEXEC);

	assert_int_equal(write(fd, bytes, size), size);
	assert_int_equal(image_open(fd, "broken", NULL, &img, &e), code);
	assert_int_equal(e.code, code);
	if (!strstr(e.text, words) || !strstr(e.text, "broken"))
		fail_msg("'%s' does not say '%s'", e.text, words);
	close(fd);
}

static void test_errors(void **unused)
{
	uint8_t bytes[1 << 16];
	Elf64_Ehdr *h = (Elf64_Ehdr *)bytes, whole;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	(void)unused;
	assert_int_equal(read(fd, bytes, sizeof(bytes)), sizeof(bytes));
	close(fd);
	whole = *h;
	expect_error("#!/bin/sh\n", 10, DINST_UNSUPPORTED, "not an ELF file");
	expect_error(bytes, 40, DINST_BAD_FILE, "ends inside the ELF header");
	expect_error(bytes, sizeof(bytes), DINST_BAD_FILE, "outside the file");
	h->e_ident[EI_CLASS] = ELFCLASS32;
	expect_error(bytes, sizeof(bytes), DINST_UNSUPPORTED, "64-bit");
	*h = whole;
	h->e_machine = EM_AARCH64;
	expect_error(bytes, sizeof(bytes), DINST_UNSUPPORTED, "another machine");
	*h = whole;
	h->e_type = ET_REL;
	expect_error(bytes, sizeof(bytes), DINST_UNSUPPORTED, "neither a program nor");
	*h = whole;
	h->e_phnum = 0;
	expect_error(bytes, sizeof(bytes), DINST_BAD_FILE, "program headers");
}

/* -------------------------------------------------------- speed, and twins */

static void test_large_file(void **unused)
{
	double before = milliseconds(), opened, matched;
	struct image *img = open_path(large_path());
	size_t all;

	(void)unused;
	opened = milliseconds();
	all = match_count(img, "*");
	matched = milliseconds();
	print_message("node: opened in %.0f ms of CPU time, %zu functions matched in %.1f ms\n",
		      opened - before, all, matched - opened);
	assert_true(all > 50000);
	/* Sanitizers and a busy machine are allowed for; the aim is 300 and 100. */
	assert_true(opened - before < 3000);
	assert_true(matched - opened < 1000);
	assert_int_equal(match_count(img, "node::Environment::RunTimers(uv_timer_s*)"), 1);
	assert_true(match_count(img, "v8::internal::Heap::*") > 100);
	image_close(img);
	compare_twins(large_path());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_twins),
		cmocka_unit_test(test_stripped_parents),
		cmocka_unit_test(test_assembler),
		cmocka_unit_test(test_sequence),
		cmocka_unit_test(test_readable_names),
		cmocka_unit_test(test_fragments_and_resolvers),
		cmocka_unit_test(test_nearest),
		cmocka_unit_test(test_libc),
		cmocka_unit_test(test_names_like_patterns),
		cmocka_unit_test(test_versions),
		cmocka_unit_test(test_questions),
		cmocka_unit_test(test_build_id),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_large_file),
	};

	alarm(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
