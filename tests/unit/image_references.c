/* SPDX-License-Identifier: MIT */
/*
 * image_references.c (test) - nothing that leads into code is missed: every
 * near branch and computed address that a decoder finds, every handler in the
 * exception tables, every address that is stored.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <elf.h>

#include "mutator/cfi.h"
#include "mutator/image.h"

static struct image *open_path(const char *path)
{
	struct dinst_error e = {0};
	struct image *img = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		print_message("skipped: there is no %s\n", path);
		skip();
	}
	if (image_open(fd, path, NULL, &img, &e) || image_references(img, &e))
		fail_msg("%s: %s", path, e.text);
	close(fd);
	return img;
}

static const char *target_path(const char *name)
{
	static char path[4096];
	const char *build = getenv("DINST_BUILD");

	snprintf(path, sizeof(path), "%s/tests/live/targets/%s", build ? build : "build", name);
	return path;
}

static bool in_text(const struct image *img, vaddr_t v)
{
	size_t size;

	return image_code(img, v, &size) != NULL;
}

/* Decodes every function from its first byte to its last, and looks up all it leads to. */
static void check_branches(const char *path)
{
	struct image *img = open_path(path);
	const struct image_function *functions;
	size_t n = image_functions(img, &functions), checked = 0;

	for (size_t i = 0; i < n; i++) {
		const struct image_function *f = &functions[i];
		size_t size, at = 0;
		const uint8_t *code = image_code(img, f->address, &size);
		struct arch_insn insn;

		while (at < f->size &&
		       arch_decode(code + at, size - at, f->address + at, &insn) == ARCH_OK) {
			vaddr_t to = insn.target;

			/* What reaches further than a short branch, and leaves the function. */
			if (insn.flags & ARCH_INSN_ADDRESS_OF)
				to = insn.data_ref;
			if (insn.length >= 5 && to && in_text(img, to) &&
			    (to < f->address || to >= f->address + f->size)) {
				checked++;
				if (!(image_references_at(img, to) & REFERENCE_BRANCH))
					fail_msg("%s: 0x%llx leads to 0x%llx unmarked", path,
						 (unsigned long long)insn.address,
						 (unsigned long long)to);
			}
			at += insn.length;
		}
	}
	print_message("%s: %zu references from %zu functions\n", path, checked, n);
	assert_true(checked > n / 4);
	image_close(img);
}

/* fear C3: every near branch of real libraries is among what is taken for a target */
static void test_branches(void **unused)
{
	(void)unused;
	check_branches("/lib/x86_64-linux-gnu/libc.so.6");
	check_branches("/bin/bash");
}

static void test_branches_of_fixed_program(void **unused)
{
	(void)unused;
	check_branches(target_path("image-asm"));
}

static const struct image_function *named(struct image *img, const char *name)
{
	const struct image_function *functions;
	struct dinst_error e = {0};
	uint32_t *indices = NULL;
	size_t count = 0;

	image_functions(img, &functions);
	if (image_match(img, name, &indices, &count, &e) || !count)
		fail_msg("%s: %s", name, e.text);
	functions += indices[0];
	free(indices);
	return functions;
}

/*
 * True if what stands around the function's second system call may be cancelled, up to the calls that
 * lead into that and out again; the first one, of a program with one thread, may not.
 */
static bool is_cancelled(struct image *img, const char *name)
{
	const struct image_function *f = named(img, name);
	unsigned calls = 0, behind = 0, sequence = 0;
	struct arch_insn insn = {.length = 0};
	bool was_call = false;
	size_t size;

	for (vaddr_t v = f->address; v < f->address + f->size; v += insn.length) {
		const bool is = image_references_at(img, v) & REFERENCE_RSEQ;

		const uint8_t *code = image_code(img, v, &size);

		assert_int_equal(arch_decode(code, size, v, &insn), ARCH_OK);
		/* It begins behind one call, and ends with another. */
		if (is && !sequence++)
			assert_true(was_call);
		if (insn.flow == ARCH_FLOW_SYSCALL && ++calls == 1)
			assert_false(is);
		if (insn.flow == ARCH_FLOW_SYSCALL && calls == 2 && !is)
			return false;
		if (calls == 2 && insn.flow == ARCH_FLOW_CALL && !behind++)
			assert_true(is);
		was_call = insn.flow == ARCH_FLOW_CALL;
	}
	return calls == 2 && sequence > 5;
}

/*
 * fear E1: what a C library does between letting a thread be cancelled at any instruction and
 * forbidding that again; both functions themselves, where they have names
 */
static void test_cancelled(void **unused)
{
	static const char *const calls[] = {"read",  "write",  "poll",	 "open",
					    "wait4", "accept", "recvmsg"};
	static const char *const both[] = {"__pthread_enable_asynccancel",
					   "__pthread_disable_asynccancel"};
	struct image *img = open_path(target_path("calls-static"));

	(void)unused;
	for (size_t i = 0; i < sizeof(both) / sizeof(*both); i++) {
		const struct image_function *f;
		uint32_t flags;

		if (!image_name_flags(img, both[i], &flags)) {
			print_message("skipped: a C library of another kind\n");
			image_close(img);
			skip();
		}
		f = named(img, both[i]);
		for (vaddr_t v = f->address; v < f->address + f->size; v++)
			assert_true(image_references_at(img, v) & REFERENCE_RSEQ);
	}
	assert_true(is_cancelled(img, "read"));
	image_close(img);
	img = open_path("/lib/x86_64-linux-gnu/libc.so.6");
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		if (!is_cancelled(img, calls[i]))
			fail_msg("%s", calls[i]);
	image_close(img);
}

/* A superset is of no use if it is everything. */
static void test_not_everything(void **unused)
{
	struct image *img = open_path("/lib/x86_64-linux-gnu/libc.so.6");
	const struct image_function *functions;
	size_t n = image_functions(img, &functions), bytes = 0, marked = 0, starts = 0;

	(void)unused;
	for (size_t i = 0; i < n; i++) {
		assert_true(image_references_at(img, functions[i].address) & REFERENCE_SYMBOL);
		starts++;
		for (vaddr_t v = functions[i].address + 1;
		     v < functions[i].address + functions[i].size; v++) {
			bytes++;
			marked += image_references_at(img, v) != 0;
		}
	}
	print_message("%zu of %zu bytes inside %zu functions are referred to\n", marked, bytes,
		      starts);
	assert_true(marked * 20 < bytes);
	assert_int_equal(image_references_at(img, 0), 0);
	assert_int_equal(image_references_at(img, UINT64_MAX), 0);
	image_close(img);
}

/* ----------------------------------------------------------------- handlers */

/* Bytes of a table put together by hand (LSB, 10.5; the "LSDA" of the C++ ABI). */
static vaddr_t pads[8];
static size_t pad_count;

static void note_pad(void *arg, vaddr_t lo, vaddr_t hi, vaddr_t pad)
{
	(void)arg;
	(void)lo;
	(void)hi;
	assert_true(pad_count < 8);
	pads[pad_count++] = pad;
}

/* No start, no types, call sites in uleb: start, length, handler, action. */
static void test_exception_table(void **unused)
{
	static const uint8_t table[] = {0xff, 0xff, 0x01, 13,	0x00, 0x05, 0x20, 0x01, 0x05,
					0x03, 0x00, 0x00, 0x08, 0x10, 0xa0, 0x01, 0x00};
	size_t used;

	(void)unused;
	pad_count = 0;
	assert_true(cfi_call_sites(table, sizeof(table), 0x5000, 0x1000, note_pad, NULL, &used));
	assert_int_equal(pad_count, 2);
	assert_int_equal(pads[0], 0x1020);
	assert_int_equal(pads[1], 0x10a0);
	assert_int_equal(used, sizeof(table));
	/* It says that it is longer than what there is: nothing of it is believed. */
	pad_count = 0;
	for (size_t size = 0; size < sizeof(table); size++)
		assert_false(cfi_call_sites(table, size, 0x5000, 0x1000, note_pad, NULL, &used));
	assert_int_equal(pad_count, 0);
}

/* fear F2: each basic block in a section of its own: the first table says that it goes on over the second */
static void test_tables_of_sections(void **unused)
{
	static const uint8_t tables[] = {0x04, 0,    0x20, 0,	 0,    0,    0,
					 0,    0,    0xff, 0x01, 21, /* a record, a zero */
					 0x00, 0x05, 0x20, 0x01, 0x00, 0x04, 0,
					 0x20, 0,    0,	   0,	 0,    0,    0,
					 0xff, 0x01, 4,	   0x03, 0x05, 0x40, 0x01};
	size_t used;

	(void)unused;
	pad_count = 0;
	assert_true(cfi_call_sites(tables, sizeof(tables), 0x5000, 0x1000, note_pad, NULL, &used));
	assert_int_equal(pad_count, 1);
	assert_int_equal(pads[0], 0x2020);
	assert_int_equal(used, 16);
	pad_count = 0;
	assert_true(cfi_call_sites(tables + 17, sizeof(tables) - 17, 0x5000, 0x1000, note_pad, NULL,
				   &used));
	assert_int_equal(pad_count, 1);
	assert_int_equal(pads[0], 0x2040);
	assert_int_equal(used, 16);
}

static void test_damaged_exception_table(void **unused)
{
	/* The length ends the last record before its action. */
	static const uint8_t table[] = {0xff, 0xff, 0x01, 8,	0x00, 0x05, 0x20,
					0x01, 0x08, 0x10, 0xa0, 0x01, 0x00};
	/* An encoding that nobody has defined. */
	static const uint8_t unknown[] = {0xff, 0xff, 0x07, 4, 0, 5, 32, 1};
	size_t used;

	(void)unused;
	pad_count = 0;
	assert_false(cfi_call_sites(table, sizeof(table), 0, 0x1000, note_pad, NULL, &used));
	assert_int_equal(pad_count, 1);
	assert_false(cfi_call_sites(unknown, sizeof(unknown), 0, 0x1000, note_pad, NULL, &used));
	assert_int_equal(pad_count, 1);
}

/* The program that catches: its functions with handlers have marks, and only inside. */
/* fear C3, E1: handlers of exceptions are targets */
static void test_landing_pads(void **unused)
{
	struct image *img = open_path(target_path("image-cxx"));
	const struct image_function *functions;
	size_t n = image_functions(img, &functions), with = 0;
	bool catches = false;

	(void)unused;
	for (size_t i = 0; i < n; i++) {
		size_t marks = 0;

		for (vaddr_t v = functions[i].address; v < functions[i].address + functions[i].size;
		     v++)
			marks += !!(image_references_at(img, v) & REFERENCE_LANDING);
		with += marks != 0;
		/* GCC may put the handlers into the cold part: its parent has them. */
		if (marks && !strcmp(functions[functions[i].parent].name, "catches"))
			catches = true;
	}
	assert_true(with >= 2);
	assert_true(catches);
	image_close(img);
}

/* ------------------------------------------------------------------ stored */

/* Every address that the loader will store somewhere, asked from the file independently. */
static void test_relocations(void **unused)
{
	static const char path[] = "/lib/x86_64-linux-gnu/libc.so.6";
	struct image *img = open_path(path);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t checked = 0;
	const Elf64_Ehdr *h;
	const Elf64_Shdr *s;
	const uint8_t *p;
	struct stat st;

	(void)unused;
	assert_true(fd >= 0 && !fstat(fd, &st));
	p = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	close(fd);
	h = (const Elf64_Ehdr *)p;
	s = (const Elf64_Shdr *)(p + h->e_shoff);
	for (unsigned i = 0; i < h->e_shnum; i++) {
		if (s[i].sh_type != SHT_RELA || !(s[i].sh_flags & SHF_ALLOC))
			continue;
		for (uint64_t at = 0; at < s[i].sh_size; at += sizeof(Elf64_Rela)) {
			const Elf64_Rela *r = (const void *)(p + s[i].sh_offset + at);
			unsigned type = ELF64_R_TYPE(r->r_info);

			if (type != R_X86_64_RELATIVE && type != R_X86_64_IRELATIVE)
				continue;
			if (!in_text(img, r->r_addend))
				continue;
			checked++;
			assert_true(image_references_at(img, r->r_addend) & REFERENCE_ADDRESS);
		}
	}
	munmap((void *)p, st.st_size);
	print_message("%zu stored addresses\n", checked);
	assert_true(checked > 10);
	image_close(img);
}

static void test_stored_in_program(void **unused)
{
	struct image *img = open_path(target_path("image-cxx"));
	const struct image_function *functions;
	struct dinst_error e = {0};
	uint32_t *found;
	size_t count;

	(void)unused;
	image_functions(img, &functions);
	/* Both are in its table of functions. */
	assert_int_equal(image_match(img, "add_one", &found, &count, &e), 0);
	assert_int_equal(count, 1);
	assert_true(image_references_at(img, functions[found[0]].address) & REFERENCE_ADDRESS);
	free(found);
	image_close(img);
}

/* The functions whose addresses stand in a table only. */
static size_t count_stored(struct image *img)
{
	const struct image_function *functions;
	size_t n = image_functions(img, &functions), stored = 0;

	for (size_t i = 0; i < n; i++)
		stored += !!(image_references_at(img, functions[i].address) & REFERENCE_ADDRESS);
	return stored;
}

/*
 * fear C3: what leads into the middle of a function where few look: a jump that lies across two pieces
 * of what is scanned, and a word that the loader puts together of a name and a distance
 */
static void test_into_the_middle(void **unused)
{
	enum { JUMPED = 4, STORED = 8 };
	struct image *img = open_path(target_path("image-far"));
	const struct image_function *functions;
	struct dinst_error e = {0};
	uint32_t *found;
	vaddr_t at;
	size_t count;

	(void)unused;
	image_functions(img, &functions);
	assert_int_equal(image_match(img, "led_into", &found, &count, &e), 0);
	assert_int_equal(count, 1);
	at = functions[found[0]].address;
	assert_int_equal(image_references_at(img, at + JUMPED), REFERENCE_BRANCH);
	assert_int_equal(image_references_at(img, at + STORED), REFERENCE_ADDRESS);
	free(found);
	image_close(img);
}

static void test_packed_relocations(void **unused)
{
	struct image *img = open_path(target_path("image-relr"));
	size_t stored = count_stored(img);

	(void)unused;
	image_close(img);
	assert_true(stored >= 130);
}

/* The same, found as the loader finds it, in a file that has lost its section table. */
static void test_relocations_without_sections(void **unused)
{
	static const char *const names[] = {"image-relr", "image-cxx"};
	static const size_t least[] = {130, 4};

	(void)unused;
	for (size_t i = 0; i < 2; i++) {
		int from = open(target_path(names[i]), O_RDONLY | O_CLOEXEC);
		int to = memfd_create("file", MFD_CLOEXEC);
		struct dinst_error e = {0};
		struct image *img;
		struct stat st;
		Elf64_Ehdr *h;

		assert_true(from >= 0 && !fstat(from, &st));
		h = malloc(st.st_size);
		assert_int_equal(read(from, h, st.st_size), st.st_size);
		h->e_shoff = h->e_shnum = h->e_shstrndx = 0;
		assert_int_equal(write(to, h, st.st_size), st.st_size);
		if (image_open(to, names[i], NULL, &img, &e) || image_references(img, &e))
			fail_msg("%s", e.text);
		if (count_stored(img) < least[i])
			fail_msg("%s: %zu", names[i], count_stored(img));
		image_close(img);
		free(h);
		close(from);
		close(to);
	}
}

/* Of Mono's images, and of no others: what its runtime reads is not patched. */
static void test_mono(void **unused)
{
	struct image *img = open_path(target_path("image-mono"));

	(void)unused;
	assert_true(image_is_mono(img));
	image_close(img);
	img = open_path(target_path("image-relr"));
	assert_false(image_is_mono(img));
	image_close(img);
}

/* fear E1: a file that was compiled so that faults throw is known by its exception tables */
static void test_throwing_faults(void **unused)
{
	struct image *img = open_path(target_path("faulting"));

	(void)unused;
	assert_true(image_turns_faults(img));
	image_close(img);
	img = open_path(target_path("throws"));
	assert_false(image_turns_faults(img));
	image_close(img);
	/* It has thousands of them, and all are of calls. */
	img = open_path("/usr/lib/x86_64-linux-gnu/libstdc++.so.6");
	assert_false(image_turns_faults(img));
	image_close(img);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_branches),
		cmocka_unit_test(test_branches_of_fixed_program),
		cmocka_unit_test(test_cancelled),
		cmocka_unit_test(test_not_everything),
		cmocka_unit_test(test_exception_table),
		cmocka_unit_test(test_tables_of_sections),
		cmocka_unit_test(test_damaged_exception_table),
		cmocka_unit_test(test_landing_pads),
		cmocka_unit_test(test_throwing_faults),
		cmocka_unit_test(test_mono),
		cmocka_unit_test(test_relocations),
		cmocka_unit_test(test_stored_in_program),
		cmocka_unit_test(test_into_the_middle),
		cmocka_unit_test(test_packed_relocations),
		cmocka_unit_test(test_relocations_without_sections),
	};

	alarm(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
