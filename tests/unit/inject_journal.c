/* SPDX-License-Identifier: MIT */
/*
 * inject_journal.c - what is written can be read, what is torn or hostile is
 * not believed.
 *
 * The "target" is a child that shares its arena with this process and sleeps;
 * this process plays the mutator that wrote the journal, the one that reads
 * it, and the enemy who changes it in between.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "inject/journal.h"
#include "inject/journal_format.h"

enum { MUTATIONS = 20000 };

struct fixture {
	struct arena arena;
	struct journal *journal;
	struct target *target;
	struct arena_found found;
	pid_t child;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct dinst_error e = {0};
	struct arena *a = &f->arena;
	size_t size = (size_t)1 << 20;
	void *map;

	assert_non_null(f);
	a->cpus = 2;
	a->cpu_shift = 16;
	a->code_size = size;
	a->data_size = (size_t)3 << 16;
	a->fd = -1;
	map = mmap(NULL, a->code_size + a->data_size, PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	a->code_map = map;
	a->data_map = a->code_map + size;
	a->code = (taddr_t)(uintptr_t)map;
	a->data = a->code + size;
	f->child = fork();
	assert_true(f->child >= 0);
	if (!f->child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(60);
		for (;;)
			pause();
	}
	assert_int_equal(target_open(f->child, &f->target, &e), 0);
	assert_int_equal(journal_create(a, "redis-1", &f->journal, &e), 0);
	f->found = (struct arena_found){.code = a->code, .code_size = a->code_size};
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	journal_destroy(f->journal);
	target_close(f->target);
	kill(f->child, SIGKILL);
	waitpid(f->child, NULL, 0);
	munmap(f->arena.code_map, f->arena.code_size + f->arena.data_size);
	free(f);
	return 0;
}

/* An address in the child's text, which is ours too. */
static taddr_t text(size_t offset)
{
	return (taddr_t)(uintptr_t)&setup + offset;
}

static struct journal_entry entry_at(taddr_t address, uint8_t length)
{
	struct journal_entry entry = {.address = address, .length = length};

	for (uint8_t i = 0; i < length; i++) {
		entry.original[i] = (uint8_t)(i + 1);
		entry.patched[i] = (uint8_t)(0xe0 + i);
	}
	return entry;
}

static size_t read_all(struct fixture *f, struct journal_entry **entries)
{
	struct dinst_error e = {0};
	size_t count = 0;

	assert_int_equal(journal_read(f->target, &f->found, entries, &count, &e), 0);
	assert_non_null(*entries);
	return count;
}

static void expect(struct fixture *f, const struct journal_entry *want, size_t count)
{
	struct journal_entry *got;

	assert_int_equal(read_all(f, &got), count);
	assert_memory_equal(got, want, count * sizeof(*want));
	free(got);
}

static void what_is_written_is_read(void **state)
{
	struct fixture *f = *state;
	struct dinst_error e = {0};
	struct journal_entry want[3];
	unsigned index[3];

	expect(f, NULL, 0);
	for (unsigned i = 0; i < 3; i++) {
		want[i] = entry_at(text(i * 20), (uint8_t)(i ? i * 8 : 1));
		assert_int_equal(journal_add(f->journal, &want[i], &index[i], &e), 0);
		expect(f, want, i + 1);
	}
	journal_remove(f->journal, index[1]);
	want[1] = want[2];
	expect(f, want, 2);
	/* The free slot is used again, so the order is that of the slots. */
	want[1] = entry_at(text(100), 5);
	assert_int_equal(journal_add(f->journal, &want[1], &index[1], &e), 0);
	want[2] = entry_at(text(40), 16);
	expect(f, want, 3);
	for (unsigned i = 0; i < 3; i++)
		journal_remove(f->journal, index[i]);
	expect(f, NULL, 0);
}

static void wrong_entries_are_not_written(void **state)
{
	struct fixture *f = *state;
	struct journal_entry entry = entry_at(text(0), 5);
	struct dinst_error e = {0};
	unsigned index;

	entry.length = 0;
	assert_int_equal(journal_add(f->journal, &entry, &index, &e), DINST_FAILED);
	dinst_error_clear(&e);
	entry.length = ARCH_PATCH_MAX + 1;
	assert_int_equal(journal_add(f->journal, &entry, &index, &e), DINST_FAILED);
	expect(f, NULL, 0);
}

static void runs_full_and_goes_on(void **state)
{
	struct fixture *f = *state;
	size_t capacity = journal_capacity(f->arena.code_size);
	struct journal_entry entry = entry_at(text(0), 5), *got;
	struct dinst_error e = {0};
	unsigned index = 0;

	assert_true(journal_size(&f->arena) <= f->arena.code_size / 4);
	assert_int_equal(journal_capacity((size_t)64 << 20), 128 * 1024);
	for (size_t i = 0; i < capacity; i++) {
		entry.address = text(i / 2);
		assert_int_equal(journal_add(f->journal, &entry, &index, &e), 0);
	}
	assert_int_equal(journal_add(f->journal, &entry, &index, &e), DINST_NO_MEMORY);
	dinst_error_clear(&e);
	assert_int_equal(read_all(f, &got), capacity);
	free(got);
	for (unsigned i = 0; i < capacity; i += 2)
		journal_remove(f->journal, i);
	assert_int_equal(read_all(f, &got), capacity / 2);
	free(got);
	for (size_t i = 0; i < capacity; i += 2)
		assert_int_equal(journal_add(f->journal, &entry, &index, &e), 0);
	assert_int_equal(journal_add(f->journal, &entry, &index, &e), DINST_NO_MEMORY);
}

/*
 * fear J5: a journal full of entries for one address is cut down to a few of them, the first
 * ones: who goes through all that share an address comes to an end
 */
static void repetition_is_bounded(void **state)
{
	struct fixture *f = *state;
	struct journal_entry entry = entry_at(text(40), 5), *got;
	struct dinst_error e = {0};
	unsigned index;
	size_t count;

	for (size_t i = 0; i < journal_capacity(f->arena.code_size) - 1; i++) {
		entry.patched[4] = (uint8_t)i;
		assert_int_equal(journal_add(f->journal, &entry, &index, &e), 0);
	}
	entry = entry_at(text(41), 5);
	assert_int_equal(journal_add(f->journal, &entry, &index, &e), 0);
	count = read_all(f, &got);
	assert_in_range(count, 3, 16);
	for (size_t i = 0; i + 1 < count; i++) {
		assert_int_equal(got[i].address, text(40));
		assert_int_equal(got[i].patched[4], i);
	}
	assert_int_equal(got[count - 1].address, text(41));
	free(got);
}

/* Places that are no text of a file: entries that name them are left out. */
static void addresses_are_checked(void **state)
{
	struct fixture *f = *state;
	taddr_t code = f->arena.code;
	const taddr_t wrong[] = {0,
				 5,
				 code,
				 code + 0x1000,
				 f->arena.data,
				 UINT64_MAX - 2,
				 (taddr_t)(uintptr_t)&code, /* a stack */
				 (taddr_t)(uintptr_t)f,	    /* a heap */
				 (taddr_t)(uintptr_t)stdin /* data of a file */};
	struct journal_entry entry = entry_at(text(0), 5), *got;
	struct dinst_error e = {0};
	unsigned index;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		entry.address = wrong[i];
		assert_int_equal(journal_add(f->journal, &entry, &index, &e), 0);
	}
	assert_int_equal(read_all(f, &got), 0);
	free(got);
	entry = entry_at(text(0), 5);
	memcpy(entry.patched, entry.original, 5);
	assert_int_equal(journal_add(f->journal, &entry, &index, &e), 0);
	assert_int_equal(read_all(f, &got), 0);
	free(got);
}

/* A mutator that dies between any two stores of an entry: what a reader sees then. */
static void torn_entries_are_left_out(void **state)
{
	struct fixture *f = *state;
	struct journal_slot *slot = (void *)(f->arena.code_map + JOURNAL_HEADER_SIZE), whole;
	struct journal_entry first = entry_at(text(0), 16), second = entry_at(text(32), 7), *got;
	struct dinst_error e = {0};
	struct journal_slot before;
	unsigned index;

	assert_int_equal(journal_add(f->journal, &first, &index, &e), 0);
	before = *slot;
	journal_remove(f->journal, index);
	assert_int_equal(journal_add(f->journal, &second, &index, &e), 0);
	whole = *slot;
	for (size_t bytes = 0; bytes <= offsetof(struct journal_slot, state); bytes++) {
		/* In order, as the code does: the state is zero all the while. */
		*slot = before;
		slot->state = 0;
		memcpy(slot, &whole, bytes);
		assert_int_equal(read_all(f, &got), 0);
		free(got);
		/* Out of order, as a copy of a running one might be: one of the two or nothing. */
		*slot = before;
		memcpy(slot, &whole, bytes);
		if (read_all(f, &got))
			assert_true(!memcmp(got, &first, sizeof(first)) ||
				    !memcmp(got, &second, sizeof(second)));
		free(got);
	}
	*slot = whole;
	expect(f, &second, 1);
}

static void header_fields_are_checked(void **state)
{
	struct fixture *f = *state;
	struct journal_header *h = (void *)f->arena.code_map;
	struct journal_header good = *h;
	struct arena_found found;
	size_t size = f->arena.code_size;

	assert_true(journal_check_header(h, good.code, size, &found));
	assert_string_equal(found.session, "redis-1");
	assert_int_equal(found.data, f->arena.data);
	assert_int_equal(found.cpus, 2);
	assert_false(journal_check_header(h, good.code + 4096, size, &found));
	assert_false(journal_check_header(h, good.code, size - 4096, &found));
	/* Any other byte is noticed, whatever the checksum would say. */
	for (size_t at = 0; at < offsetof(struct journal_header, unused); at++) {
		((uint8_t *)h)[at] ^= 0x40;
		assert_false(journal_check_header(h, good.code, size, &found));
		*h = good;
	}
#define REFUSED(field, value)                                                   \
	do {                                                                    \
		h->field = (value);                                             \
		h->checksum = journal_header_checksum(h);                       \
		assert_false(journal_check_header(h, good.code, size, &found)); \
		*h = good;                                                      \
	} while (0)
	REFUSED(version, 2);
	REFUSED(header_size, 0);
	REFUSED(slot_size, 32);
	REFUSED(capacity, good.capacity + 1);
	REFUSED(capacity, UINT32_MAX);
	REFUSED(code_size, UINT64_MAX - 4095);
	REFUSED(data, good.code);
	REFUSED(data, UINT64_MAX - 4095);
	REFUSED(data_size, 0);
	REFUSED(data_size, UINT64_MAX - 4095);
	REFUSED(mode, 7);
	REFUSED(cpus, 0);
	REFUSED(cpus, UINT32_MAX);
	REFUSED(cpus, 3);
	REFUSED(cpu_shift, 0);
	REFUSED(cpu_shift, 64);
	REFUSED(cpu_shift, 31);
	REFUSED(low_data, 2);
	REFUSED(session[2], '\033');
#undef REFUSED
	memset(h->session, 'x', sizeof(h->session));
	h->checksum = journal_header_checksum(h);
	assert_false(journal_check_header(h, good.code, size, &found));
	*h = good;
	/* The hint how many slots were used may be anything. */
	h->high = UINT64_MAX;
	assert_int_equal(journal_high(h), good.capacity);
	h->high = 5;
	assert_int_equal(journal_high(h), good.capacity);
	h->high = 5 | (uint64_t)~5u << 32;
	assert_int_equal(journal_high(h), 5);
	/* And where code begins: not told, told, damaged, behind the end. */
	assert_int_equal(journal_floor(h), 0);
	journal_note_floor(&f->arena, size - 4096);
	assert_int_equal(journal_floor(h), size - 4096);
	assert_true(journal_check_header(h, good.code, size, &found));
	assert_int_equal(found.code_floor, size - 4096);
	h->floor ^= 1;
	assert_int_equal(journal_floor(h), 0);
	journal_note_floor(&f->arena, size + 4096);
	assert_int_equal(journal_floor(h), 0);
}

/* Makes both checksums right again, so that the other checks have to do the work. */
static void forge(uint8_t *bytes, unsigned slots)
{
	struct journal_header *h = (void *)bytes;
	struct journal_slot *slot = (void *)(bytes + JOURNAL_HEADER_SIZE);

	h->checksum = journal_header_checksum(h);
	for (unsigned i = 0; i < slots; i++)
		slot[i].checksum = journal_slot_checksum(&slot[i], h->checksum);
}

static void mutate(uint8_t *bytes, size_t size, unsigned *seed)
{
	static const uint64_t special[] = {
		0,	    1,	       0x7f,	   0xff, 0x7fffffff,
		0xffffffff, INT64_MAX, UINT64_MAX, 4096, (uint64_t)1 << 47};

	for (int changes = 1 + rand_r(seed) % 4; changes; changes--) {
		size_t at = (size_t)rand_r(seed) % (size - 8);

		switch (rand_r(seed) % 3) {
		case 0:
			bytes[at] ^= (uint8_t)(1u << rand_r(seed) % 8);
			break;
		case 1:
			bytes[at] = (uint8_t)rand_r(seed);
			break;
		default:
			memcpy(bytes + at / 8 * 8, &special[rand_r(seed) % 10], 8);
		}
	}
}

static void fuzz(void **state)
{
	enum { SLOTS = 4 };
	struct fixture *f = *state;
	const size_t header = offsetof(struct journal_header, floor) + 8;
	const size_t slots = SLOTS * sizeof(struct journal_slot);
	uint8_t *map = f->arena.code_map, *good;
	unsigned seed = 99, index, readable = 0, entries = 0;
	struct dinst_error e = {0};

	for (unsigned i = 0; i < SLOTS; i++) {
		struct journal_entry entry = entry_at(text(i * 32), (uint8_t)(5 + i));

		assert_int_equal(journal_add(f->journal, &entry, &index, &e), 0);
	}
	good = malloc(JOURNAL_HEADER_SIZE + slots);
	assert_non_null(good);
	memcpy(good, map, JOURNAL_HEADER_SIZE + slots);
	for (unsigned round = 0; round < MUTATIONS; round++) {
		struct journal_entry *got = NULL;
		size_t count = 0;

		if (round % 4 == 0)
			mutate(map, header, &seed);
		else
			mutate(map + JOURNAL_HEADER_SIZE, slots, &seed);
		if (round % 2)
			forge(map, SLOTS);
		if (!journal_read(f->target, &f->found, &got, &count, &e)) {
			readable++;
			entries += (unsigned)count;
		} else {
			assert_int_equal(e.code, DINST_BAD_FILE);
		}
		dinst_error_clear(&e);
		for (size_t i = 0; i < count; i++) {
			assert_in_range(got[i].length, 1, ARCH_PATCH_MAX);
			assert_memory_not_equal(got[i].original, got[i].patched, got[i].length);
			assert_true(got[i].address < f->arena.code ||
				    got[i].address >= f->arena.code + f->arena.code_size);
		}
		free(got);
		memcpy(map, good, JOURNAL_HEADER_SIZE + slots);
	}
	/* Neither was all believed nor all refused. */
	assert_true(readable > MUTATIONS / 4 && readable < MUTATIONS);
	assert_true(entries > readable && entries < readable * SLOTS);
	free(good);
}

static void gone(void **state)
{
	struct fixture *f = *state;
	struct journal_entry *got = NULL;
	struct dinst_error e = {0};
	size_t count = 0;

	kill(f->child, SIGKILL);
	waitpid(f->child, NULL, 0);
	assert_int_not_equal(journal_read(f->target, &f->found, &got, &count, &e), 0);
	assert_int_not_equal(e.code, 0);
	assert_null(got);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_is_written_is_read, setup, teardown),
		cmocka_unit_test_setup_teardown(wrong_entries_are_not_written, setup, teardown),
		cmocka_unit_test_setup_teardown(runs_full_and_goes_on, setup, teardown),
		cmocka_unit_test_setup_teardown(repetition_is_bounded, setup, teardown),
		cmocka_unit_test_setup_teardown(addresses_are_checked, setup, teardown),
		cmocka_unit_test_setup_teardown(torn_entries_are_left_out, setup, teardown),
		cmocka_unit_test_setup_teardown(header_fields_are_checked, setup, teardown),
		cmocka_unit_test_setup_teardown(fuzz, setup, teardown),
		cmocka_unit_test_setup_teardown(gone, setup, teardown),
	};

	alarm(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
