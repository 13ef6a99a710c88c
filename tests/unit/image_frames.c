/* SPDX-License-Identifier: MIT */
/*
 * image_frames.c (test) - .eh_frame put together by hand: what is a function,
 * what a fragment of one, what is damaged.
 *
 * Layout: LSB 5.0, Core, 10.6; instructions: DWARF 5, 6.4.2. Registers are
 * those of the psABI: 3 is kept by the callee, 7 the stack, 16 the return
 * address.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mutator/cfi.h"

enum { ADDRESS = 0x10000 };

static struct {
	uint8_t bytes[4096];
	size_t size;
	struct cfi_range *ranges;
	size_t count;
	struct dinst_error e;
} t;

static int start(void **unused)
{
	(void)unused;
	memset(&t, 0, sizeof(t));
	return 0;
}

static int finish(void **unused)
{
	(void)unused;
	free(t.ranges);
	return 0;
}

static void put(uint64_t value, size_t size)
{
	memcpy(t.bytes + t.size, &value, size);
	t.size += size;
}

static void put_bytes(const char *bytes, size_t size)
{
	memcpy(t.bytes + t.size, bytes, size);
	t.size += size;
}

/* Completes the record that begins at `at` with zeros (no operation) and its length. */
static void close_record(size_t at)
{
	uint32_t length;

	while (t.size % 8)
		t.size++;
	length = t.size - at - 4;
	memcpy(t.bytes + at, &length, 4);
}

#define PROGRAM(text) (text), (sizeof(text) - 1)

/* What compilers begin with: CFA = r7 + 8, r16 saved at CFA - 8. */
#define ENTRY "\x0c\x07\x08\x90\x01"

static size_t put_cie(const char *augmentation, const char *data, size_t data_size,
		      const char *program, size_t program_size)
{
	size_t at = t.size;

	put(0, 4); /* length */
	put(0, 4); /* a CIE */
	put(1, 1); /* version */
	put_bytes(augmentation, strlen(augmentation) + 1);
	put(1, 1);    /* code alignment */
	put(0x78, 1); /* data alignment: -8 */
	put(16, 1);   /* return address */
	if (*augmentation == 'z')
		put(data_size, 1);
	put_bytes(data, data_size);
	put_bytes(program, program_size);
	close_record(at);
	return at;
}

/* Pointers are pc-relative in 4 bytes, as everywhere. */
static size_t put_fde(size_t cie, uint64_t lo, uint32_t size, uint64_t lsda, const char *program,
		      size_t program_size)
{
	size_t at = t.size;

	put(0, 4);
	put(t.size - cie, 4);
	put(lo - (ADDRESS + t.size), 4);
	put(size, 4);
	if (lsda) {
		put(4, 1);
		put(lsda - (ADDRESS + t.size), 4);
	} else {
		put(0, 1);
	}
	put_bytes(program, program_size);
	close_record(at);
	return at;
}

static int run(void)
{
	struct cfi_input in = {
		.bytes = t.bytes,
		.size = t.size,
		.address = ADDRESS,
		.name = "test",
	};

	free(t.ranges);
	t.ranges = NULL;
	t.e = (struct dinst_error){0};
	return cfi_read(&in, &t.ranges, &t.count, &t.e);
}

static void expect(size_t index, uint64_t lo, uint32_t size, uint32_t flags, uint64_t lsda)
{
	assert_true(index < t.count);
	assert_int_equal(t.ranges[index].lo, lo);
	assert_int_equal(t.ranges[index].size, size);
	assert_int_equal(t.ranges[index].flags, flags);
	assert_int_equal(t.ranges[index].lsda, lsda);
}

static void test_functions(void **unused)
{
	size_t cie = put_cie("zR", "\x1b", 1, PROGRAM(ENTRY));

	(void)unused;
	/* Out of order; the second pushes after its first byte, as functions do. */
	put_fde(cie, 0x3000, 50, 0, PROGRAM(""));
	put_fde(cie, 0x2000, 20, 0, PROGRAM("\x41\x0e\x10\x83\x02"));
	put(0, 4); /* what some linkers leave between two files' pieces */
	put_fde(cie, 0x1000, 10, 0, PROGRAM(""));
	/* The same start again, and an empty one. */
	put_fde(cie, 0x3000, 60, 0, PROGRAM(""));
	put_fde(cie, 0x4000, 0, 0, PROGRAM(""));
	assert_int_equal(run(), 0);
	assert_int_equal(t.count, 3);
	expect(0, 0x1000, 10, 0, 0);
	expect(1, 0x2000, 20, 0, 0);
	expect(2, 0x3000, 60, 0, 0);
}

/* fear F2: fragments of a function by their frames */
static void test_fragments(void **unused)
{
	size_t plain = put_cie("zR", "\x1b", 1, PROGRAM(ENTRY)), set_up, framed, no_row;

	(void)unused;
	/* A frame from the first byte on: told by the FDE, ... */
	put_fde(plain, 0x1000, 1, 0, PROGRAM("\x0e\x20"));
	/* ... by a saved register, ... */
	put_fde(plain, 0x2000, 1, 0, PROGRAM("\x83\x02"));
	/* ... or by another register than the stack's. */
	put_fde(plain, 0x3000, 1, 0, PROGRAM("\x0d\x06"));
	/* Where the assembler moved it: into the CIE. */
	set_up = put_cie("zR", "\x1b", 1, PROGRAM(ENTRY "\x0e\x20\x83\x02"));
	put_fde(set_up, 0x4000, 1, 0, PROGRAM(""));
	framed = put_cie("zR", "\x1b", 1, PROGRAM("\x0c\x06\x10\x90\x01\x86\x02"));
	put_fde(framed, 0x5000, 1, 0, PROGRAM(""));
	/* Not fragments: the first function of all, which nothing called, ... */
	put_fde(plain, 0x6000, 1, 0, PROGRAM("\x07\x10"));
	/* ... and one whose row is the same after all. */
	put_fde(plain, 0x7000, 1, 0, PROGRAM("\x0e\x10\x0e\x08"));
	/* A CFA that is computed is no entry. */
	no_row = put_cie("zR", "\x1b", 1, PROGRAM("\x0f\x02\x77\x08"));
	put_fde(no_row, 0x8000, 1, 0, PROGRAM(""));
	assert_int_equal(run(), 0);
	assert_int_equal(t.count, 8);
	for (size_t i = 0; i < 8; i++)
		expect(i, 0x1000 * (i + 1), 1, i == 5 || i == 6 ? 0 : CFI_FRAGMENT, 0);
}

static void test_augmentations(void **unused)
{
	size_t cie;

	(void)unused;
	/* Personality (8 bytes, indirect), exception table, pointers. */
	cie = put_cie("zPLR", "\x9b\1\2\3\4\x1b\x1b", 7, PROGRAM(ENTRY));
	put_fde(cie, 0x1000, 1, 0x9000, PROGRAM(""));
	put_fde(cie, 0x1800, 1, 0, PROGRAM(""));
	cie = put_cie("zRS", "\x1b", 1, PROGRAM(ENTRY));
	put_fde(cie, 0x2000, 1, 0, PROGRAM(""));
	/* One that nobody has heard of is passed over with all that is of its kind. */
	cie = put_cie("zRQ", "\x1b", 1, PROGRAM(ENTRY));
	put_fde(cie, 0x3000, 1, 0, PROGRAM(""));
	cie = put_cie("eh", "", 0, PROGRAM(ENTRY));
	put_fde(cie, 0x4000, 1, 0, PROGRAM(""));
	assert_int_equal(run(), 0);
	assert_int_equal(t.count, 3);
	expect(0, 0x1000, 1, 0, 0x9000);
	expect(1, 0x1800, 1, 0, 0);
	expect(2, 0x2000, 1, CFI_SIGNAL_FRAME, 0);
}

/* What assemblers write that are told to (--gdwarf-cie-version=4): the sizes of addresses are said. */
static void test_version_4(void **unused)
{
	size_t at = t.size;

	(void)unused;
	put(0, 4);
	put(0, 4);
	put(4, 1);
	put_bytes("zLR", 4);
	put(8, 1);
	put(0, 1);
	put(1, 1);
	put(0x78, 1);
	put(16, 1);
	put(2, 1);
	put_bytes("\x1b\x1b", 2);
	put_bytes(PROGRAM(ENTRY));
	close_record(at);
	put_fde(at, 0x1000, 10, 0x9000, PROGRAM(""));
	assert_int_equal(run(), 0);
	assert_int_equal(t.count, 1);
	expect(0, 0x1000, 10, 0, 0x9000);
	/* Of another machine. */
	t.bytes[at + 13] = 4;
	assert_int_equal(run(), 0);
	assert_int_equal(t.count, 0);
}

/* Plain addresses, and a length of 64 bits. */
static void test_other_encodings(void **unused)
{
	size_t cie = put_cie("", "", 0, PROGRAM(ENTRY)), at = t.size;

	(void)unused;
	put(UINT32_MAX, 4);
	put(28, 8);
	put(t.size - cie, 4);
	put(0x7000, 8);
	put(77, 8);
	t.size = at + 12 + 28;
	assert_int_equal(run(), 0);
	assert_int_equal(t.count, 1);
	expect(0, 0x7000, 77, 0, 0);
}

static void test_damaged(void **unused)
{
	size_t cie = put_cie("zR", "\x1b", 1, PROGRAM(ENTRY)), fde, whole;
	uint32_t length = 0x1000;

	(void)unused;
	fde = put_fde(cie, 0x1000, 10, 0, PROGRAM(""));
	whole = t.size;
	assert_int_equal(run(), 0);
	/* Cut anywhere it is an error or simply less, never more. */
	for (t.size = 0; t.size < whole; t.size++)
		if (run() == 0)
			assert_int_equal(t.count, 0);
		else
			assert_int_equal(t.e.code, DINST_BAD_FILE);
	memcpy(t.bytes + fde, &length, 4);
	assert_int_equal(run(), DINST_BAD_FILE);
	assert_non_null(strstr(t.e.text, "longer than the section"));
	length = 2;
	memcpy(t.bytes + fde, &length, 4);
	assert_int_equal(run(), DINST_BAD_FILE);
	length = 20;
	memcpy(t.bytes + fde, &length, 4);
	/* Its CIE lies before the section, then is none. */
	length = 0x500;
	memcpy(t.bytes + fde + 4, &length, 4);
	assert_int_equal(run(), DINST_BAD_FILE);
	assert_non_null(strstr(t.e.text, "before the section"));
	length = 4;
	memcpy(t.bytes + fde + 4, &length, 4);
	assert_int_equal(run(), DINST_BAD_FILE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_functions, start, finish),
		cmocka_unit_test_setup_teardown(test_fragments, start, finish),
		cmocka_unit_test_setup_teardown(test_augmentations, start, finish),
		cmocka_unit_test_setup_teardown(test_other_encodings, start, finish),
		cmocka_unit_test_setup_teardown(test_version_4, start, finish),
		cmocka_unit_test_setup_teardown(test_damaged, start, finish),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
