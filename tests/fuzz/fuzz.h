/* SPDX-License-Identifier: MIT */
/*
 * fuzz.h - what the fuzzers have in common: a corpus, damage, and a test that
 * needs no engine.
 *
 * A fuzzer defines LLVMFuzzerTestOneInput() and ends with FUZZ_MAIN("name"),
 * where tests/fuzz/corpus/name has some inputs. Built with -DFUZZ_ENGINE it is
 * for libFuzzer (make fuzz). Else it is a test: every file of the corpus as it
 * is, cut short at many places, and damaged in a row of fixed pseudo-random
 * ways. FUZZ_COUNT and FUZZ_SEED in the environment ask for more, or for others.
 */
#ifndef DINST_TESTS_FUZZ_H
#define DINST_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* What must be true whatever the input is: abort() is what an engine understands. */
#define require(what) ((what) ? (void)0 : __builtin_trap())

#ifdef FUZZ_ENGINE
#define FUZZ_MAIN(name, count) struct fuzz_engine_has_its_own_main
#else

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { FUZZ_ROOM = 64 * 1024, FUZZ_FILES = 256, FUZZ_CPU_SECONDS = 10 };

static struct fuzz_file {
	char name[300];
	uint8_t *bytes;
	size_t size;
} fuzz_files[FUZZ_FILES];
static size_t fuzz_count;
static uint64_t fuzz_state;

/* Marsaglia's xorshift: the same row everywhere. */
static inline uint64_t fuzz_random(void)
{
	fuzz_state ^= fuzz_state << 13;
	fuzz_state ^= fuzz_state >> 7;
	fuzz_state ^= fuzz_state << 17;
	return fuzz_state;
}

static inline size_t fuzz_below(size_t limit)
{
	return limit ? (size_t)(fuzz_random() % limit) : 0;
}

static inline int fuzz_by_name(const void *a, const void *b)
{
	const struct fuzz_file *x = a, *y = b;

	return strcmp(x->name, y->name);
}

/* In the order of names: that of a directory is another one in each copy of the tree. */
static inline void fuzz_read(const char *directory)
{
	DIR *d = opendir(directory);
	struct dirent *entry;

	if (!d)
		fail_msg("there is no %s: tests run at the top of the tree", directory);
	while ((entry = readdir(d)) && fuzz_count < FUZZ_FILES) {
		struct fuzz_file *f = &fuzz_files[fuzz_count];
		int fd;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(f->name, sizeof(f->name), "%s/%.200s", directory, entry->d_name);
		fd = open(f->name, O_RDONLY | O_CLOEXEC);
		assert_true(fd >= 0);
		f->bytes = malloc(FUZZ_ROOM);
		assert_non_null(f->bytes);
		f->size = (size_t)read(fd, f->bytes, FUZZ_ROOM);
		close(fd);
		fuzz_count++;
	}
	closedir(d);
	assert_true(fuzz_count > 0);
	qsort(fuzz_files, fuzz_count, sizeof(*fuzz_files), fuzz_by_name);
}

static inline double fuzz_cpu(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* In memory of exactly its size, so that sanitizers see a step beyond it. */
static inline void fuzz_one(const uint8_t *bytes, size_t size, const char *what)
{
	uint8_t *exact = malloc(size + !size);
	double before = fuzz_cpu();

	assert_non_null(exact);
	memcpy(exact, bytes, size);
	LLVMFuzzerTestOneInput(exact, size);
	free(exact);
	if (fuzz_cpu() - before > FUZZ_CPU_SECONDS)
		fail_msg("%s: took %.1f s", what, fuzz_cpu() - before);
}

/* A piece of one file in the place of a piece of another. */
static inline size_t fuzz_exchange(uint8_t *to, size_t size)
{
	const struct fuzz_file *other = &fuzz_files[fuzz_below(fuzz_count)];
	size_t from = fuzz_below(other->size), length = fuzz_below(other->size - from) % 200;
	size_t at = fuzz_below(size), cut = fuzz_below(size - at) % 200;

	if (size - cut + length > FUZZ_ROOM)
		return size;
	memmove(to + at + length, to + at + cut, size - at - cut);
	memcpy(to + at, other->bytes + from, length);
	return size - cut + length;
}

static inline size_t fuzz_damage(uint8_t *to, size_t size)
{
	static const uint8_t nasty[] = {0, 1, 0x7f, 0x80, 0xff, '"', '\\', '{', '[', '\n', '0'};
	unsigned times = 1 + (unsigned)fuzz_below(4);

	for (unsigned i = 0; i < times && size > 1; i++) {
		switch (fuzz_below(6)) {
		case 0:
			to[fuzz_below(size)] = nasty[fuzz_below(sizeof(nasty))];
			break;
		case 1:
			to[fuzz_below(size)] = (uint8_t)fuzz_random();
			break;
		case 2:
			to[fuzz_below(size)] ^= (uint8_t)(1u << fuzz_below(8));
			break;
		case 3:
			memset(to + fuzz_below(size), to[fuzz_below(size)], 1);
			break;
		case 4:
			size = fuzz_below(8) ? size : fuzz_below(size);
			break;
		default:
			size = fuzz_exchange(to, size);
			break;
		}
	}
	return size;
}

static inline void fuzz_all(const char *directory, uint64_t rounds)
{
	const char *count = getenv("FUZZ_COUNT"), *seed = getenv("FUZZ_SEED");
	uint8_t *copy = malloc(FUZZ_ROOM);

	assert_non_null(copy);
	fuzz_read(directory);
	fuzz_state = seed ? strtoull(seed, NULL, 0) | 1 : 0x2545f4914f6cdd1d;
	for (size_t i = 0; i < fuzz_count; i++) {
		const struct fuzz_file *f = &fuzz_files[i];

		fuzz_one(f->bytes, f->size, f->name);
		for (size_t size = 0; size < f->size; size += 1 + f->size / 20)
			fuzz_one(f->bytes, size, f->name);
	}
	rounds = count ? strtoull(count, NULL, 0) : rounds;
	for (uint64_t i = 0; i < rounds; i++) {
		const struct fuzz_file *f = &fuzz_files[fuzz_below(fuzz_count)];
		size_t size = f->size;

		memcpy(copy, f->bytes, size);
		fuzz_one(copy, fuzz_damage(copy, size), f->name);
	}
	print_message("%zu files, %llu damaged ones\n", fuzz_count, (unsigned long long)rounds);
	free(copy);
	for (size_t i = 0; i < fuzz_count; i++)
		free(fuzz_files[i].bytes);
}

/* `count`: how many damaged inputs the test makes, some seconds' worth. */
#define FUZZ_MAIN(name, count)                                                     \
	static void test_##name(void **unused)                                     \
	{                                                                          \
		(void)unused;                                                      \
		fuzz_all("tests/fuzz/corpus/" #name, count);                       \
	}                                                                          \
                                                                                   \
	int main(void)                                                             \
	{                                                                          \
		const struct CMUnitTest tests[] = {cmocka_unit_test(test_##name)}; \
                                                                                   \
		alarm(280); /* a hang is a failure, too */                         \
		return cmocka_run_group_tests(tests, NULL, NULL);                  \
	}                                                                          \
	struct fuzz_engine_is_not_here

#endif
#endif
