/* SPDX-License-Identifier: MIT */
/*
 * elf_fuzz.c - damaged ELF files must be errors, not crashes and not hangs.
 *
 * LLVMFuzzerTestOneInput() takes any bytes; built with -DFUZZ_ENGINE it is for
 * libFuzzer (clang -fsanitize=fuzzer). Else this is a test that damages a few
 * real files in a row of fixed pseudo-random ways: single fields of headers,
 * sections, symbols, unwind data, and truncation at many places.
 *
 * FUZZ_COUNT and FUZZ_SEED in the environment ask for more, or for others.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <elf.h>

#include "mutator/points.h"

enum { PLANS_MAX = 32 }; /* functions of each file that are planned, from the last on */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Everything that reads the file, once. Returns what image_open() returned. */
static int use_image(int fd)
{
	struct dinst_error e = {0};
	const struct image_function *functions;
	const char *names[3];
	uint32_t *found;
	struct image *img;
	size_t count, matched, size;
	uint64_t offset, sum = 0;
	int r = image_open(fd, "fuzz", NULL, &img, &e);

	if (r) {
		/* An error says so in words, and with a code that is an error. */
		if (r != e.code || r >= 0 || !e.text[0])
			abort();
		return r;
	}
	count = image_functions(img, &functions);
	for (size_t i = 0; i < count; i++) {
		const struct image_function *f = &functions[i];
		const uint8_t *code = image_code(img, f->address, &size);

		if (!code || size < f->size || !f->name || f->parent >= count ||
		    (i && functions[i - 1].address >= f->address) || !f->size)
			abort();
		sum += code[0] + code[f->size - 1] + image_aliases(img, i, names, 3);
		if (i < 64 && (image_function_at(img, f->address) != (long)i ||
			       !image_file_offset(img, f->address, &offset)))
			abort();
	}
	if (!image_match(img, "*o*", &found, &matched, &e))
		free(found);
	if (!image_match(img, "main", &found, &matched, &e))
		free(found);
	sum += image_nearest(img, "mian", names, 3);
	if (!image_references(img, &e))
		for (size_t i = 0; i < count && i < 64; i++)
			sum += image_references_at(img, functions[i].address);
	for (size_t i = 0; i < count && i < PLANS_MAX; i++) {
		struct function_plan *plan;

		if (plan_function(img, (uint32_t)(count - 1 - i), &plan, &e))
			continue;
		for (size_t k = 0; k < plan->window_count; k++)
			sum += plan->windows[k].start;
		plan_free(img, plan);
	}
	image_build_id(img, &size);
	image_soname(img);
	image_close(img);
	return sum == UINT64_MAX; /* nothing may be optimised away */
}

/* fear L1: damaged ELF files, in headers, tables, symbols and unwind data, are errors or less, and plans stay inside */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
		abort();
	use_image(fd);
	close(fd);
	return 0;
}

#ifndef FUZZ_ENGINE

#include "tests/fuzz/fuzz.h"

static uint64_t state;

/* Marsaglia's xorshift: the same row everywhere. */
static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static uint64_t below(uint64_t limit)
{
	return limit ? next_random() % limit : 0;
}

struct corpus {
	uint8_t *bytes;
	size_t size;
};

/* Some value that has broken readers before. */
static uint64_t nasty(size_t size)
{
	static const uint64_t values[] = {0,	      1,	   7,
					  0xff,	      0xffff,	   0x7fffffff,
					  0xffffffff, 0x100000000, 0x7fffffffffff,
					  1ull << 63, UINT64_MAX,  UINT64_MAX - 7};

	switch (below(4)) {
	case 0:
		return below(size + 64);
	case 1:
		return next_random();
	default:
		return values[below(sizeof(values) / sizeof(*values))];
	}
}

static void store(uint8_t *bytes, size_t size, uint64_t at, uint64_t value, unsigned width)
{
	if (at <= size && size - at >= width)
		memcpy(bytes + at, &value, width);
}

/* A place worth damaging: in a header, in a table entry, in the contents of a section. */
static uint64_t pick_place(const uint8_t *bytes, size_t size)
{
	Elf64_Ehdr h;
	Elf64_Shdr s;
	uint64_t at;

	memcpy(&h, bytes, sizeof(h));
	switch (below(5)) {
	case 0:
		return below(sizeof(h));
	case 1:
		return h.e_phoff + below((uint64_t)h.e_phnum * sizeof(Elf64_Phdr));
	case 2:
		return h.e_shoff + below((uint64_t)h.e_shnum * sizeof(Elf64_Shdr));
	case 3:
		return below(size);
	}
	at = h.e_shoff + below(h.e_shnum) * sizeof(s);
	if (at > size || size - at < sizeof(s))
		return below(size);
	memcpy(&s, bytes + at, sizeof(s));
	/* Code is just code; tables are what is parsed. */
	if (s.sh_flags & SHF_EXECINSTR)
		return below(size);
	return s.sh_offset + below(s.sh_size);
}

static void damage(uint8_t *bytes, size_t size)
{
	unsigned times = 1 + below(4);

	for (unsigned i = 0; i < times; i++) {
		static const unsigned widths[] = {1, 2, 4, 8};
		uint64_t at = pick_place(bytes, size);
		unsigned width = widths[below(4)];

		if (below(2))
			at &= ~(uint64_t)(width - 1);
		store(bytes, size, at, nasty(size), width);
	}
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

static struct corpus read_corpus(const char *path)
{
	struct corpus c = {0};
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) || st.st_size < (off_t)sizeof(Elf64_Ehdr)) {
		if (fd >= 0)
			close(fd);
		return c;
	}
	c.bytes = malloc(st.st_size);
	assert_non_null(c.bytes);
	assert_int_equal(read(fd, c.bytes, st.st_size), st.st_size);
	c.size = st.st_size;
	close(fd);
	return c;
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* Files are small: whatever is wrong with one, looking at it takes a moment. */
static void run_one(const uint8_t *bytes, size_t size, uint64_t round)
{
	double before = seconds();
	struct timespec cpu, then;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &then);
	LLVMFuzzerTestOneInput(bytes, size);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
	if (cpu.tv_sec - then.tv_sec > 4)
		fail_msg("round %llu took %.1f s", (unsigned long long)round, seconds() - before);
}

static void damage_many(const char *path, uint64_t rounds)
{
	struct corpus c = read_corpus(path);
	uint8_t *copy;

	if (!c.bytes) {
		print_message("skipped: there is no %s\n", path);
		skip();
	}
	copy = malloc(c.size);
	assert_non_null(copy);
	run_one(c.bytes, c.size, 0);
	for (uint64_t i = 1; i <= rounds; i++) {
		size_t size = c.size;

		memcpy(copy, c.bytes, c.size);
		damage(copy, c.size);
		if (!below(8))
			size = below(c.size);
		run_one(copy, size, i);
	}
	free(copy);
	free(c.bytes);
}

static const char *target_path(const char *name)
{
	static char path[4096];
	const char *build = getenv("DINST_BUILD");

	snprintf(path, sizeof(path), "%s/tests/live/targets/%s", build ? build : "build", name);
	return path;
}

static void test_damaged_program(void **unused)
{
	(void)unused;
	state = number_from("FUZZ_SEED", 0x2545f4914f6cdd1d);
	damage_many(target_path("image-cxx"), number_from("FUZZ_COUNT", 3000));
}

static void test_damaged_stripped(void **unused)
{
	(void)unused;
	state = number_from("FUZZ_SEED", 0x9e3779b97f4a7c15);
	damage_many(target_path("image-stripped"), number_from("FUZZ_COUNT", 2000));
}

static void test_damaged_assembler(void **unused)
{
	(void)unused;
	state = number_from("FUZZ_SEED", 0xd1b54a32d192ed03);
	damage_many(target_path("image-asm"), number_from("FUZZ_COUNT", 2000));
}

/* A small real library: other linker, .gnu_debuglink, RELR or versions. */
static void test_damaged_library(void **unused)
{
	(void)unused;
	state = number_from("FUZZ_SEED", 0xa0761d6478bd642f);
	damage_many("/lib64/ld-linux-x86-64.so.2", number_from("FUZZ_COUNT", 300));
}

static void test_truncated(void **unused)
{
	struct corpus c = read_corpus(target_path("image-cxx"));

	(void)unused;
	assert_non_null(c.bytes);
	for (size_t size = 0; size < c.size; size += 1 + c.size / 500)
		LLVMFuzzerTestOneInput(c.bytes, size);
	free(c.bytes);
}

static void test_no_elf(void **unused)
{
	static const char *const texts[] = {"", "#!/bin/sh\n", "\177ELF", "\177ELF\2\1\1"};

	(void)unused;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		LLVMFuzzerTestOneInput((const uint8_t *)texts[i], strlen(texts[i]));
}

/* What an engine has found. */
static void test_corpus(void **unused)
{
	(void)unused;
	fuzz_all("tests/fuzz/corpus/elf", 200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_damaged_program),
		cmocka_unit_test(test_damaged_stripped),
		cmocka_unit_test(test_damaged_assembler),
		cmocka_unit_test(test_damaged_library),
		cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_no_elf),
		cmocka_unit_test(test_corpus),
	};

	/* A hang is a failure, too. */
	alarm(300);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
