/* SPDX-License-Identifier: MIT */
/*
 * inject_heap_memory.c - when the memory of an arena comes to exist, and so who pays for it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "inject/cpus.h"
#include "inject/heap_private.h"
#include "inject/journal.h"
#include "inject/journal_format.h"
#include "tests/unit/heap_fixture.h"

static size_t exists(const struct fixture *f, unsigned block, size_t size)
{
	const uint8_t *at = f->arena.data_map + ((size_t)block << f->arena.cpu_shift);
	unsigned char pages[64];
	size_t count = 0;

	assert_true(size / 4096 <= sizeof(pages));
	assert_int_equal(mincore((void *)at, size, pages), 0);
	for (size_t i = 0; i < size / 4096; i++)
		count += pages[i] & 1;
	return count;
}

/*
 * fear I3: memory of counters and distributions exists when it is given out, for each CPU that there
 * is: the target's increment never has to be paid for by its own control group
 */
static void test_memory_is_made(void **state)
{
	enum { SHIFT = 18, BLOCK = 1 << SHIFT, DISTRIBUTION = 1921, HUGE = 10000 };
	struct dinst_error e = {0};
	struct fixture f;
	bool online[CPUS];
	size_t before[CPUS + 1];
	taddr_t at;

	(void)state;
	cpus_online(online, CPUS);
	assert_true(online[0]);
	start(&f, 1 << 20, SHIFT);
	for (unsigned b = 0; b <= CPUS; b++)
		before[b] = exists(&f, b, BLOCK);
	assert_int_equal(heap_alloc_counter(f.heap, &at, &e), 0);
	assert_int_equal(heap_alloc_counters(f.heap, DISTRIBUTION, &at, &e), 0);
	for (unsigned b = 0; b <= CPUS; b++) {
		const size_t more = exists(&f, b, BLOCK) - before[b];

		/* 1921 words lie in four or five pages; the counter's own may be that of the table. */
		if (b == CPUS || online[b])
			assert_in_range(more, 4, 6);
		else
			assert_int_equal(more, 0);
		before[b] += more;
	}
	assert_int_equal(heap_alloc_words(f.heap, 600, &at, &e), 0);
	for (unsigned b = 0; b < CPUS; b++)
		assert_int_equal(exists(&f, b, BLOCK), before[b]);
	assert_true(exists(&f, CPUS, BLOCK) > before[CPUS]);
	before[CPUS] = exists(&f, CPUS, BLOCK);
	/* What is that large is for the most part never used. */
	assert_int_equal(heap_alloc_counters(f.heap, HUGE, &at, &e), 0);
	for (unsigned b = 0; b <= CPUS; b++)
		assert_int_equal(exists(&f, b, BLOCK), before[b]);
	finish(&f);
}

/* KiB of the arena's file that exist. */
static size_t kib_of_file(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return (size_t)st.st_blocks / 2;
}

/*
 * fear I3: where the kernel promises no memory that it does not have (vm.overcommit_memory=2), all that
 * is given out exists, however large, for each CPU that can be: inserted code never meets SIGBUS
 */
static void test_memory_is_committed(void **state)
{
	enum { SHIFT = 18, HUGE = 10240 };
	const size_t size = (1 << 20) + ((CPUS + 1) << SHIFT);
	struct dinst_error e = {0};
	struct fixture f;
	taddr_t at, words, code;
	int fd = memfd_create("committed", MFD_CLOEXEC), reader;
	const struct journal_header *header;
	size_t before;
	char path[32];

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	start(&f, 1 << 20, SHIFT);
	header = (const struct journal_header *)(void *)f.arena.code_map;
	f.arena.fd = fd;
	f.arena.commits = true;
	assert_int_equal(heap_alloc_counters(f.heap, HUGE, &at, &e), 0);
	assert_int_equal(kib_of_file(fd), (CPUS + 1) * HUGE * 8 / 1024);
	before = kib_of_file(fd);
	assert_int_equal(heap_alloc_words(f.heap, HUGE, &words, &e), 0);
	assert_in_range(kib_of_file(fd) - before, HUGE * 8 / 1024, HUGE * 8 / 1024 + 4);
	before = kib_of_file(fd);
	assert_int_equal(heap_alloc_code(f.heap, 60000, &code, &e), 0);
	assert_in_range(kib_of_file(fd) - before, 56, 64);

	/* A descriptor that may not write: there is no more, and nothing is given out. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	reader = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(reader >= 0);
	f.arena.fd = reader;
	before = f.heap->counters_used;
	assert_int_equal(heap_alloc_counters(f.heap, 600, &at, &e), DINST_NO_MEMORY);
	assert_non_null(strstr(e.text, "vm.overcommit_memory"));
	assert_int_equal(f.heap->counters_used, before);
	dinst_error_clear(&e);
	before = f.heap->code.pages_taken;
	assert_int_equal(heap_alloc_code(f.heap, 60000, &code, &e), DINST_NO_MEMORY);
	assert_int_equal(f.heap->code.pages_taken, before);
	f.arena.fd = fd;
	dinst_error_clear(&e);
	assert_int_equal(heap_alloc_code(f.heap, 60000, &code, &e), 0);
	/* Whoever finds the arena later does not look below the floor. */
	assert_true((uint32_t)header->floor * (taddr_t)4096 <= code - f.arena.code);
	finish(&f);
	close(reader);
	close(fd);
}

/* fear I3: the same for the journal: its header, and each slot before it is written */
static void test_journal_is_committed(void **state)
{
	enum { SLOTS = 3000, KIB = SLOTS * 64 / 1024 };
	const size_t code = 16 << 20, size = code + ((CPUS + 1) << 18);
	struct journal_entry entry = {.address = 0x1000, .length = 5};
	struct dinst_error e = {0};
	struct fixture f;
	struct journal *j;
	unsigned index, more;
	int fd = memfd_create("committed", MFD_CLOEXEC), reader;
	char path[32];

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	start(&f, code, 18);
	f.arena.fd = fd;
	f.arena.commits = true;
	assert_int_equal(journal_create(&f.arena, "committed", &j, &e), 0);
	assert_int_equal(kib_of_file(fd), JOURNAL_HEADER_SIZE / 1024);
	for (unsigned i = 0; i < SLOTS; i++) {
		assert_int_equal(journal_add(j, &entry, &index, &e), 0);
		assert_int_equal(index, i);
		assert_true(kib_of_file(fd) * 1024 >= JOURNAL_HEADER_SIZE + (i + 1) * 64);
	}
	assert_in_range(kib_of_file(fd), JOURNAL_HEADER_SIZE / 1024 + KIB,
			JOURNAL_HEADER_SIZE / 1024 + KIB + 64);

	/* A descriptor that may not write: what exists is used up, no slot is given out behind it. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	reader = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(reader >= 0);
	f.arena.fd = reader;
	for (more = SLOTS; !journal_add(j, &entry, &index, &e); more++)
		assert_int_equal(index, more);
	assert_non_null(strstr(e.text, "vm.overcommit_memory"));
	assert_int_equal(kib_of_file(fd) * 1024, JOURNAL_HEADER_SIZE + (size_t)more * 64);
	f.arena.fd = fd;
	dinst_error_clear(&e);
	assert_int_equal(journal_add(j, &entry, &index, &e), 0);
	assert_int_equal(index, more);
	journal_destroy(j);
	f.arena.fd = -1;
	close(reader);
	close(fd);
	finish(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory_is_made),
		cmocka_unit_test(test_memory_is_committed),
		cmocka_unit_test(test_journal_is_committed),
	};

	return cmocka_run_group_tests_name("inject_heap_memory", tests, NULL, NULL);
}
