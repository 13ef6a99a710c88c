/* SPDX-License-Identifier: MIT */
/*
 * dwarf_fuzz.c - damaged debug information must be as if there were none, or
 * less of it: no crash, no hang, no value that its header does not allow.
 *
 * LLVMFuzzerTestOneInput() takes any bytes as an ELF file; built with
 * -DFUZZ_ENGINE it is for libFuzzer (clang -fsanitize=fuzzer). Else this is a
 * test that damages the debug sections of a target program in a row of fixed
 * pseudo-random ways. FUZZ_COUNT and FUZZ_SEED ask for more, or for others.
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

#include "tests/fuzz/fuzz.h"
#include "mutator/types_private.h"

/* A type and what it is made of. */
static void look_at(const struct type *type, unsigned depth)
{
	struct type_name names[6];
	struct type target;
	struct type_field field;
	bool is_float[2];
	size_t count;

	if (type->kind > TYPE_VOID)
		abort();
	if (depth == 3)
		return;
	type_target(type, &target);
	if (target.kind != TYPE_UNKNOWN)
		look_at(&target, depth + 1);
	if (type->kind != TYPE_STRUCT)
		return;
	type_words(type, is_float);
	count = type_field_names(type, names, 6);
	for (size_t i = 0; i < count; i++)
		if (type_field(type, names[i].text, &field)) {
			if (field.bit_size > 64 || field.bit_offset > 63)
				abort();
			look_at(&field.type, depth + 1);
		}
	type_field(type, "no such member", &field);
}

static void use_image(int fd, size_t size)
{
	static const char *const inlined[] = {"add", "made_of::parts::get", "no_such_function"};
	const struct image_function *functions;
	struct dinst_error e = {0};
	struct image *img;
	size_t count;

	if (image_open(fd, "fuzz", NULL, &img, &e))
		return;
	count = image_functions(img, &functions);
	for (size_t i = 0; i < count && i < 200; i++) {
		struct type_function f;

		types_of_function(img, (uint32_t)i, &f);
		if (f.argument_count > TYPE_ARGUMENTS)
			abort();
		look_at(&f.result, 0);
		for (size_t j = 0; j < f.argument_count; j++)
			look_at(&f.arguments[j], 0);
	}
	/* One that is in some files, and one that is nowhere: all of it is walked. */
	for (size_t i = 0; i < sizeof(inlined) / sizeof(*inlined); i++) {
		struct type_name callers[3];

		types_inlined(img, inlined[i], callers, 3, &count);
		for (size_t k = 0; k < count; k++)
			if (strlen(callers[k].text) > size)
				abort();
	}
	if (types_of(img)) {
		struct type type;
		Dwarf_Die die;

		if (types_find_variable(types_of(img), image_highest(img) - 64, &die) ||
		    types_find_variable(types_of(img), 1, &die)) {
			types_from_die(img, &die, &type);
			look_at(&type, 0);
		}
	}
	image_close(img);
}

/* fear L1: damaged debug information is less of it: no crash, and no value that its header does not allow */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
		abort();
	use_image(fd, size);
	close(fd);
	return 0;
}

#ifndef FUZZ_ENGINE

static uint64_t state;

/* Marsaglia's xorshift: the same row everywhere. */
static uint64_t below(uint64_t limit)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return limit ? state % limit : 0;
}

static uint8_t *read_target(const char *name, size_t *size)
{
	const char *build = getenv("DINST_BUILD");
	char path[512];
	struct stat st;
	uint8_t *bytes;
	int fd;

	snprintf(path, sizeof(path), "%s/tests/live/targets/%s", build ? build : "build", name);
	fd = open(path, O_RDONLY);
	if (fd < 0) /* not built: this program has debug information, too */
		fd = open("/proc/self/exe", O_RDONLY);
	if (fd < 0 || fstat(fd, &st) != 0)
		return NULL;
	*size = (size_t)st.st_size;
	bytes = malloc(*size);
	if (!bytes || read(fd, bytes, *size) != (ssize_t)*size)
		abort();
	close(fd);
	return bytes;
}

/* The debug sections, which are what is damaged. */
static size_t find_sections(const uint8_t *bytes, size_t size, Elf64_Shdr *out, size_t max)
{
	const char *names;
	size_t count = 0;
	Elf64_Shdr s;
	Elf64_Ehdr h;

	memcpy(&h, bytes, sizeof(h));
	memcpy(&s, bytes + h.e_shoff + h.e_shstrndx * sizeof(s), sizeof(s));
	names = (const char *)bytes + s.sh_offset;
	for (unsigned i = 0; i < h.e_shnum && count < max; i++) {
		memcpy(&s, bytes + h.e_shoff + i * sizeof(s), sizeof(s));
		if (!strncmp(names + s.sh_name, ".debug_", 7) && s.sh_offset + s.sh_size <= size)
			out[count++] = s;
	}
	return count;
}

static void damage(const char *name)
{
	const unsigned count = getenv("FUZZ_COUNT") ? (unsigned)atoi(getenv("FUZZ_COUNT")) : 400;
	const time_t end = time(NULL) + 30;
	Elf64_Shdr sections[16];
	size_t size = 0, section_count;
	uint8_t *whole = read_target(name, &size), *bytes;
	unsigned i;

	assert_non_null(whole);
	bytes = malloc(size);
	assert_non_null(bytes);
	section_count = find_sections(whole, size, sections, 16);
	assert_true(section_count >= 3);
	for (i = 0; i < count && time(NULL) < end; i++) {
		state = (getenv("FUZZ_SEED") ? strtoull(getenv("FUZZ_SEED"), NULL, 0) : 1) *
				0x9e3779b97f4a7c15ull +
			i + 1;
		for (unsigned j = 0; j < 8; j++)
			below(1);
		memcpy(bytes, whole, size);
		for (uint64_t changes = 1 + below(i % 2 ? 3 : 40); changes; changes--) {
			const Elf64_Shdr *s = &sections[below(section_count)];
			uint8_t *at = bytes + s->sh_offset + below(s->sh_size);

			switch (below(4)) {
			case 0:
				*at = (uint8_t)below(256);
				break;
			case 1:
				*at ^= (uint8_t)(1u << below(8));
				break;
			case 2:
				*at = below(2) ? 0xff : 0;
				break;
			default: {
				const uint64_t room =
					(uint64_t)(bytes + s->sh_offset + s->sh_size - at);

				memset(at, (int)below(256), room < 8 ? room : 8);
			}
			}
		}
		LLVMFuzzerTestOneInput(bytes, size);
	}
	print_message("%u damaged files\n", i);
	free(bytes);
	free(whole);
}

static void test_damage(void **unused)
{
	(void)unused;
	damage("typed");
	damage("classes");
}

/* Small programs in C and C++, as gcc and clang write of them. */
static void test_corpus(void **unused)
{
	(void)unused;
	fuzz_all("tests/fuzz/corpus/dwarf", 2000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_damage),
					   cmocka_unit_test(test_corpus)};

	alarm(280); /* a hang is a failure, too */
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
