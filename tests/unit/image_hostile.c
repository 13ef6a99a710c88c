/* SPDX-License-Identifier: MIT */
/*
 * image_hostile.c - files that are made to be read for ever, and one that wants to be
 * taken for another: each is read soon, or refused, and nothing that was found out
 * about one file is believed of another.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "mutator/cache_plans.h"
#include "mutator/cfi.h"
#include "mutator/image_private.h"
#include "tests/slower.h"

enum { TEXT_OFFSET = 4096, STEP = 16, SECONDS = 10 };

#define TEXT_ADDRESS UINT64_C(0x401000)

/* valgrind takes thirty times as long. */
static double most_seconds(void)
{
	const char *preloaded = getenv("LD_PRELOAD");

	return preloaded && strstr(preloaded, "vgpreload") ? 10 * SECONDS : SLOWER * SECONDS;
}

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ------------------------------------------------------------------- making files */

/* A program of `count` functions; name_of() gives the offsets of their names in `names`. */
struct made {
	size_t count;
	uint32_t (*name_of)(size_t i);
	const char *names;
	size_t names_size;
	size_t tables; /* section headers of its one symbol table */
	bool nested; /* those of the first half end behind it, in turn, and the very first with the file */
};

static size_t put(uint8_t *bytes, size_t at, const void *from, size_t size)
{
	memcpy(bytes + at, from, size);
	return (at + size + 7) & ~(size_t)7;
}

static int make_file(const struct made *m)
{
	const size_t text = m->count * STEP, sections = 4 + m->tables;
	const size_t size = TEXT_OFFSET + text + (m->count + 1) * sizeof(Elf64_Sym) +
			    m->names_size + (sections + 1) * sizeof(Elf64_Shdr) + 256;
	static const char section_names[] = "\0.text\0.symtab\0.strtab\0.shstrtab";
	Elf64_Ehdr h = {
		.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
		.e_type = ET_EXEC,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_entry = TEXT_ADDRESS,
		.e_phoff = sizeof(h),
		.e_ehsize = sizeof(h),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = 1,
		.e_shentsize = sizeof(Elf64_Shdr),
	};
	Elf64_Phdr load = {
		.p_type = PT_LOAD,
		.p_flags = PF_R | PF_X,
		.p_offset = TEXT_OFFSET,
		.p_vaddr = TEXT_ADDRESS,
		.p_filesz = text,
		.p_memsz = text,
	};
	Elf64_Shdr *s = calloc(sections, sizeof(*s));
	uint8_t *bytes = calloc(1, size);
	int fd = memfd_create("made", MFD_CLOEXEC);
	size_t at = TEXT_OFFSET + text, table = at;

	assert_true(s && bytes && fd >= 0);
	memset(bytes + TEXT_OFFSET, 0xc3, text);
	at += sizeof(Elf64_Sym);
	for (size_t i = 0; i < m->count; i++) {
		Elf64_Sym symbol = {
			.st_name = m->name_of(i),
			.st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC),
			.st_shndx = 1,
			.st_value = TEXT_ADDRESS + i * STEP,
			.st_size = !m->nested ? STEP
				   : i	      ? (m->count / 2 - i) * (STEP + 1)
					      : m->count * STEP,
		};

		if (m->nested && i >= m->count / 2)
			symbol.st_size = 0;

		at = put(bytes, at, &symbol, sizeof(symbol));
	}
	s[1] = (Elf64_Shdr){.sh_name = 1,
			    .sh_type = SHT_PROGBITS,
			    .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
			    .sh_addr = TEXT_ADDRESS,
			    .sh_offset = TEXT_OFFSET,
			    .sh_size = text};
	s[2] = (Elf64_Shdr){
		.sh_name = 15, .sh_type = SHT_STRTAB, .sh_offset = at, .sh_size = m->names_size};
	at = put(bytes, at, m->names, m->names_size);
	s[3] = (Elf64_Shdr){.sh_name = 23,
			    .sh_type = SHT_STRTAB,
			    .sh_offset = at,
			    .sh_size = sizeof(section_names)};
	at = put(bytes, at, section_names, sizeof(section_names));
	for (size_t i = 0; i < m->tables; i++)
		s[4 + i] = (Elf64_Shdr){.sh_name = 7,
					.sh_type = SHT_SYMTAB,
					.sh_offset = table,
					.sh_size = (m->count + 1) * sizeof(Elf64_Sym),
					.sh_link = 2,
					.sh_entsize = sizeof(Elf64_Sym)};
	h.e_shoff = at;
	h.e_shnum = (uint16_t)sections;
	h.e_shstrndx = 3;
	at = put(bytes, at, s, sections * sizeof(*s));
	put(bytes, put(bytes, 0, &h, sizeof(h)), &load, sizeof(load));
	assert_int_equal(write(fd, bytes, at), at);
	free(s);
	free(bytes);
	return fd;
}

/* Opens it and looks names up; what opening says. */
static int look(const struct made *m, const char *name, size_t expected)
{
	double before = cpu_seconds();
	struct dinst_error e = {0};
	int fd = make_file(m), r;
	struct image *img;
	uint32_t *found;
	size_t count;

	r = image_open(fd, "made", NULL, &img, &e);
	close(fd);
	if (!r) {
		assert_int_equal(image_match(img, name, &found, &count, &e), 0);
		assert_int_equal(count, expected);
		free(found);
		assert_int_equal(image_match(img, "no such name", &found, &count, &e), 0);
		assert_int_equal(count, 0);
		free(found);
		image_close(img);
	} else {
		print_message("%s\n", e.text);
	}
	print_message("%.1f s\n", cpu_seconds() - before);
	assert_true(cpu_seconds() - before < most_seconds());
	return r;
}

static uint32_t same_name(size_t i)
{
	(void)i;
	return 1;
}

static uint32_t cold_name(size_t i)
{
	return i % 2 ? 1 : 3;
}

static uint32_t next_name(size_t i)
{
	return (uint32_t)i + 1;
}

/* fear L1: a file in which everything has the same name is read soon, and all of it is found */
static void test_same_name(void **state)
{
	static const char names[] = "\0a";
	struct made m = {200000, same_name, names, sizeof(names), 1, false};

	(void)state;
	assert_int_equal(look(&m, "a", m.count), 0);
}

/* fear L1: a hundred thousand cold parts that all want the same parent are read soon */
static void test_cold(void **state)
{
	static const char names[] = "\0a\0a.cold";
	struct made m = {200000, cold_name, names, sizeof(names), 1, false};

	(void)state;
	assert_int_equal(look(&m, "a", m.count / 2), 0);
}

/* fear L1: names that lie in each other, half a megabyte each, are refused */
static void test_names_in_names(void **state)
{
	enum { SIZE = 1 << 20 };
	char *names = malloc(SIZE);
	struct made m = {100000, next_name, names, SIZE, 1, false};

	(void)state;
	assert_non_null(names);
	memset(names, 'x', SIZE);
	names[0] = names[SIZE - 1] = '\0';
	assert_int_equal(look(&m, "x", 0), DINST_BAD_FILE);
	free(names);
}

/* fear L1: names whose last has no end, as patchelf leaves them: the others are found, the last is nobody's */
static void test_names_without_end(void **state)
{
	static const char names[] = "\0a\0lastlast";
	struct made m = {2000, cold_name, names, sizeof(names) - 1, 1, false};

	(void)state;
	assert_int_equal(look(&m, "a", m.count / 2), 0);
	assert_int_equal(look(&m, "last*", 0), 0);
}

/* fear L1: one table of symbols that a thousand section headers tell of is refused */
static void test_tables(void **state)
{
	static const char names[] = "\0a";
	struct made m = {50000, same_name, names, sizeof(names), 2000, false};

	(void)state;
	assert_int_equal(look(&m, "a", 0), DINST_BAD_FILE);
}

/* fear L1: fifty thousand functions that lie in each other: whose a byte behind them is is found soon */
static void test_nested(void **state)
{
	static const char names[] = "\0a";
	struct made m = {.count = 100000,
			 .name_of = same_name,
			 .names = names,
			 .names_size = sizeof(names),
			 .tables = 1,
			 .nested = true};
	const size_t half = m.count / 2;
	const double before = cpu_seconds();
	struct dinst_error e = {0};
	struct image *img;
	int fd = make_file(&m);

	(void)state;
	assert_int_equal(image_open(fd, "made", NULL, &img, &e), 0);
	close(fd);
	for (size_t i = 0; i < m.count * STEP; i++)
		assert_true(image_function_at(img, TEXT_ADDRESS + i) ==
			    (long)(i < half * STEP	   ? i / STEP
				   : i < half * (STEP + 1) ? half * (STEP + 1) - i - 1
							   : 0));
	image_close(img);
	assert_true(cpu_seconds() - before < most_seconds());
}

/* --------------------------------------------------------------------- unwind data */

/* A record, padded; returns where it ends. */
static size_t put_record(uint8_t *bytes, size_t at, uint32_t id, const void *body, size_t size)
{
	uint32_t length = (uint32_t)(4 + size);

	memcpy(bytes + at, &length, 4);
	memcpy(bytes + at + 4, &id, 4);
	memcpy(bytes + at + 8, body, size);
	return at + 8 + size;
}

/* fear L1: records that all refer to one with a number of half a megabyte are read soon */
static void test_long_numbers(void **state)
{
	enum { NUMBER = 512 << 10, RECORDS = 30000, FDE = 16 };
	/* the two begin a multiple of 256 apart, and so share a place in the cache */
	const size_t cie = 64 + NUMBER + 64, size = 2 * cie + RECORDS * (8 + FDE) + 4096;
	uint8_t *bytes = calloc(1, size), *body = calloc(1, cie);
	struct cfi_input in = {.bytes = bytes, .address = 0x1000, .name = "made"};
	double before = cpu_seconds();
	struct dinst_error e = {0};
	struct cfi_range *ranges;
	size_t at = 0, starts[2], count;

	(void)state;
	assert_true(bytes && body);
	/* version 1, no augmentation, then the code alignment factor: a very long one */
	body[0] = 1;
	memset(body + 2, 0x80, NUMBER);
	for (int i = 0; i < 2; i++) {
		at = (at + 255) & ~(size_t)255;
		starts[i] = at;
		at = put_record(bytes, at, 0, body, 2 + NUMBER + 62);
		if (i == 0) {
			uint32_t fill = (uint32_t)(((at + 255) & ~(size_t)255) - at - 4);

			/* what lies in between is a record that nobody refers to */
			memcpy(bytes + at, &fill, 4);
			if (fill >= 4)
				memset(bytes + at + 4, 0, fill);
		}
	}
	for (int i = 0; i < RECORDS; i++)
		at = put_record(bytes, at, (uint32_t)(at + 4 - starts[i % 2]),
				&(uint64_t[2]){0x1000u * (unsigned)i, 16}, FDE);
	in.size = at;
	cfi_read(&in, &ranges, &count, &e);
	free(ranges);
	print_message("%.2f s\n", cpu_seconds() - before);
	assert_true(cpu_seconds() - before < most_seconds());
	free(bytes);
	free(body);
}

/* ------------------------------------------------------------------- readable names */

/* fear L1: a name that says "twice what came before" sixty times stays as it is */
static void test_doubling(void **state)
{
	char name[2048] = "_Z1fSt4pairI1aS0_E", before[8] = "S1_";
	double start = cpu_seconds();
	size_t used = strlen(name);
	char *readable;

	(void)state;
	for (unsigned n = 2; n < 34; n++) {
		used += (size_t)snprintf(name + used, sizeof(name) - used, "St4pairI%s%sE", before,
					 before);
		snprintf(before, sizeof(before), "S%c_", n < 10 ? '0' + (int)n : 'A' + (int)n - 10);
	}
	readable = demangle(name);
	assert_true(!readable || strlen(readable) <= 32 * strlen(name) + 1024);
	free(readable);
	assert_true(cpu_seconds() - start < most_seconds());
	readable = demangle("_ZNSt6vectorIiSaIiEE9push_backEOi");
	assert_string_equal(readable, "std::vector<int, std::allocator<int> >::push_back(int&&)");
	free(readable);
	readable = demangle("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE");
	assert_string_equal(readable, "core::fmt::Formatter::pad");
	free(readable);
}

static _Atomic bool flipping;

/* A name that is short and long in turns. */
static void *flip(void *arg)
{
	volatile char *end = arg;

	while (flipping)
		*end = (char)(*end ? 0 : 'x');
	return NULL;
}

/* fear L1: names in a file that somebody writes to while they are read */
static void test_flipping_names(void **state)
{
	enum { NAME = 1 << 16, TRIES = 200000 };
	char *name, *readable;
	unsigned whole = 0;
	pthread_t thread;

	(void)state;
	/* There one of them runs at a time. */
	if (getenv("DINST_MEMCHECK"))
		skip();
	name = malloc(NAME);
	assert_non_null(name);
	memset(name, 'x', NAME);
	memcpy(name, "_Z3foov", 8);
	memcpy(name + NAME - 2, "@", 2);
	flipping = true;
	assert_int_equal(pthread_create(&thread, NULL, flip, name + 7), 0);
	for (unsigned i = 0; i < TRIES; i++) {
		readable = demangle(name);
		whole += readable && !strcmp(readable, "foo()");
		free(readable);
	}
	flipping = false;
	pthread_join(thread, NULL);
	free(name);
	assert_true(whole > 0 && whole < TRIES);
}

/* ---------------------------------------------------------------------------- cache */

/* As if it were the same file each time. */
static struct image *open_copy(const uint8_t *bytes, size_t size)
{
	int fd = memfd_create("copy", MFD_CLOEXEC);
	struct dinst_error e = {0};
	struct image *img = NULL;

	assert_true(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
	if (image_open(fd, "copy", NULL, &img, &e))
		img = NULL;
	else
		img->file.version = (struct elf_version){1, 2, 3, 4};
	close(fd);
	return img;
}

static size_t count_cached(struct image *img)
{
	const struct image_function *functions;
	size_t count = image_functions(img, &functions), found = 0;

	for (uint32_t i = 0; i < count; i++) {
		struct function_plan *plan;

		if (!plan_cache_get(img, i, &plan))
			continue;
		plan_free(img, plan);
		found++;
	}
	return found;
}

/*
 * fear L1: plans that were made for one file are not believed of another, nor of the same with the same
 * build id that differs anywhere in what is loaded: tables of jumps, unwind data, relocations
 */
static void test_twins(void **state)
{
	const char *build = getenv("DINST_BUILD");
	char path[4096], home[] = "/tmp/dinst-twins-XXXXXX", command[64];
	const struct image_function *functions;
	struct dinst_error e = {0};
	size_t count, tried = 0;
	struct image *img;
	struct stat st;
	uint8_t *bytes;
	int fd;

	(void)state;
	assert_non_null(mkdtemp(home));
	setenv("XDG_CACHE_HOME", home, 1);
	unsetenv("DINST_CACHE");
	plan_cache_enable(true);
	snprintf(path, sizeof(path), "%s/tests/live/targets/points-flow", build ? build : "build");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	bytes = malloc((size_t)st.st_size);
	assert_true(bytes && read(fd, bytes, (size_t)st.st_size) == st.st_size);
	close(fd);
	img = open_copy(bytes, (size_t)st.st_size);
	assert_non_null(img);
	count = image_functions(img, &functions);
	for (uint32_t i = 0; i < count; i++) {
		struct function_plan *plan;

		assert_int_equal(plan_function(img, i, &plan, &e), 0);
		plan_free(img, plan);
	}
	image_close(img);
	img = open_copy(bytes, (size_t)st.st_size);
	assert_int_equal(count_cached(img), count);
	image_close(img);
	/* Another file with the same bytes: who may write to that one shows what he likes in between. */
	for (size_t i = 0; i < sizeof(img->file.version) / sizeof(uint64_t); i++) {
		img = open_copy(bytes, (size_t)st.st_size);
		((uint64_t *)&img->file.version)[i]++;
		assert_int_equal(count_cached(img), 0);
		image_close(img);
	}
	for (unsigned n = 0; n < 400; n++) {
		/* the headers and what is loaded; what is behind them is names for debuggers */
		size_t at = (size_t)n * 2654435761u % ((size_t)st.st_size * 3 / 4);

		bytes[at] ^= 1;
		img = open_copy(bytes, (size_t)st.st_size);
		bytes[at] ^= 1;
		if (!img)
			continue;
		for (size_t i = 0; i < img->file.load_count; i++) {
			const struct elf_segment *s = &img->file.loads[i];

			if (at < s->offset || at - s->offset >= s->file_size)
				continue;
			tried++;
			if (count_cached(img) != 0)
				fail_msg("byte %zu may be anything", at);
			break;
		}
		image_close(img);
		/* a file that does not fit is removed: there again for the next one */
		img = open_copy(bytes, (size_t)st.st_size);
		for (uint32_t i = 0; i < count; i++) {
			struct function_plan *plan;

			assert_int_equal(plan_function(img, i, &plan, &e), 0);
			plan_free(img, plan);
		}
		image_close(img);
	}
	print_message("%zu twins\n", tried);
	assert_true(tried > 50);
	free(bytes);
	plan_cache_enable(false);
	snprintf(command, sizeof(command), "rm -rf %s", home);
	assert_int_equal(system(command), 0);
}

/* ------------------------------------------------------------------- holes */

static long own_memory_kb(void)
{
	FILE *status = fopen("/proc/self/status", "re");
	char line[256];
	long kb = -1;

	assert_non_null(status);
	while (kb < 0 && fgets(line, sizeof(line), status))
		if (sscanf(line, "RssAnon: %ld", &kb) != 1)
			kb = -1;
	fclose(status);
	assert_true(kb >= 0);
	return kb;
}

/* fear L1: a million section headers and their names, both holes of the file, take no memory of ours */
static void test_holes(void **state)
{
	enum { MB = 1 << 20, HEADERS = 1000000, NAMES_MB = 512, MOST_KB = 32 << 10 };
	const struct made m = {16, same_name, "\0same", 6, 1, false};
	const int fd = make_file(&m);
	struct dinst_error e = {0};
	struct image *img;
	Elf64_Shdr s[5];
	Elf64_Ehdr h;
	long before;

	(void)state;
	assert_int_equal(pread(fd, &h, sizeof(h), 0), sizeof(h));
	assert_int_equal(pread(fd, s, sizeof(s), (off_t)h.e_shoff), sizeof(s));
	s[0].sh_size = HEADERS;
	s[3].sh_offset = MB;
	s[3].sh_size = (uint64_t)NAMES_MB * MB;
	h.e_shnum = 0;
	h.e_shoff = (uint64_t)(1 + NAMES_MB) * MB;
	assert_int_equal(ftruncate(fd, (off_t)(h.e_shoff + HEADERS * sizeof(*s))), 0);
	assert_int_equal(pwrite(fd, s, sizeof(s), (off_t)h.e_shoff), sizeof(s));
	assert_int_equal(pwrite(fd, &h, sizeof(h), 0), sizeof(h));
	before = own_memory_kb();
	if (image_open(fd, "holes", NULL, &img, &e) < 0)
		fail_msg("%s", e.text);
	if (!getenv("DINST_MEMCHECK"))
		assert_in_range(own_memory_kb(), 0, before + MOST_KB);
	image_close(img);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_name),      cmocka_unit_test(test_cold),
		cmocka_unit_test(test_names_in_names), cmocka_unit_test(test_names_without_end),
		cmocka_unit_test(test_tables),	       cmocka_unit_test(test_long_numbers),
		cmocka_unit_test(test_doubling),       cmocka_unit_test(test_flipping_names),
		cmocka_unit_test(test_twins),	       cmocka_unit_test(test_holes),
		cmocka_unit_test(test_nested),
	};

	alarm(200);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
