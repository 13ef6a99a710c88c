/* SPDX-License-Identifier: MIT */
/*
 * inject_maps.c - the parser of /proc/PID/maps, and finding room for an arena
 * in address spaces that are written down here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

#include "inject/arena_place.h"
#include "inject/maps.h"

#define MIB ((taddr_t)1 << 20)
#define GIB ((taddr_t)1 << 30)

static int parse(const char *text, struct maps *m)
{
	struct dinst_error e = {0};
	size_t size = strlen(text);
	char *copy = malloc(size + 1);
	int result;

	assert_non_null(copy);
	memcpy(copy, text, size);
	result = maps_parse(copy, size, m, &e);
	assert_int_equal(result, e.code);
	return result;
}

static void lines_are_understood(void **state)
{
	struct maps m;

	(void)state;
	assert_int_equal(
		parse("00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/dbus daemon\n"
		      "7f0000000000-7f0000001000 rw-s 00000000 00:01 2057 /memfd:dinst (deleted)\n"
		      "7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                [stack]\n"
		      "7ffc00022000-7ffc00023000 ---p 00000000 00:00 0 \n"
		      "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0   [vsyscall]\n",
		      &m),
		0);
	assert_int_equal(m.count, 5);
	assert_int_equal(m.entries[0].lo, 0x400000);
	assert_int_equal(m.entries[0].hi, 0x452000);
	assert_int_equal(m.entries[0].offset, 0x1000);
	assert_int_equal(m.entries[0].inode, 173521);
	assert_int_equal(m.entries[0].device, makedev(8, 2));
	assert_int_equal(m.entries[0].protection, PROT_READ | PROT_EXEC);
	assert_false(m.entries[0].shared);
	assert_string_equal(m.entries[0].name, "/usr/bin/dbus daemon");
	assert_true(m.entries[1].shared);
	assert_string_equal(m.entries[1].name, "/memfd:dinst (deleted)");
	assert_int_equal(m.entries[3].protection, 0);
	assert_string_equal(m.entries[3].name, "");
	assert_ptr_equal(maps_named(&m, "[stack]"), &m.entries[2]);
	assert_null(maps_named(&m, "[heap]"));
	assert_ptr_equal(maps_find(&m, 0x451fff), &m.entries[0]);
	assert_null(maps_find(&m, 0x452000));
	assert_null(maps_find(&m, 0x3fffff));
	assert_ptr_equal(maps_find(&m, 0xffffffffff600000), &m.entries[4]);
	assert_true(maps_is_free(&m, 0x452000, 0x7f0000000000));
	assert_false(maps_is_free(&m, 0x452000, 0x7f0000000001));
	assert_false(maps_is_free(&m, 0x451fff, 0x452000));
	assert_int_equal(maps_index(&m, UINT64_MAX), 5);
	maps_release(&m);
}

static void broken_lines_are_refused(void **state)
{
	static const char *const broken[] = {
		"garbage\n",
		"400000-452000\n",
		"400000-452000 r-xp 0 08:02\n",
		"452000-400000 r-xp 00000000 08:02 1 /x\n",
		"400000-400000 r-xp 00000000 08:02 1 /x\n",
		"400000-452000 rrxp 00000000 08:02 1 /x\n",
		"400000-452000 r-x 00000000 08:02 1 /x\n",
		"-400000-452000 r-xp 00000000 08:02 1 /x\n",
		"0x400000-452000 r-xp 00000000 08:02 1 /x\n",
		"400000-452000 r-xp 00000000 08:02 one /x\n",
		"10000000000000000-20000000000000000 r-xp 00000000 08:02 1 /x\n",
		"\n",
	};
	struct maps m;

	(void)state;
	for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
		assert_int_equal(parse(broken[i], &m), DINST_BAD_FILE);
		assert_null(m.entries);
		assert_int_equal(m.count, 0);
	}
	assert_int_equal(parse("", &m), 0);
	assert_int_equal(m.count, 0);
	maps_release(&m);
}

static void own_maps_are_read(void **state)
{
	struct dinst_error e = {0};
	const struct maps_entry *entry;
	struct maps m;
	int local = 0;

	(void)state;
	assert_int_equal(maps_read(getpid(), &m, &e), 0);
	entry = maps_find(&m, (taddr_t)(uintptr_t)&local);
	assert_non_null(entry);
	assert_string_equal(entry->name, "[stack]");
	entry = maps_find(&m, (taddr_t)(uintptr_t)&own_maps_are_read);
	assert_non_null(entry);
	assert_int_equal(entry->protection, PROT_READ | PROT_EXEC);
	for (size_t i = 1; i < m.count; i++)
		assert_true(m.entries[i].lo >= m.entries[i - 1].hi);
	maps_release(&m);
	assert_int_equal(maps_read(0x3fffffff, &m, &e), DINST_GONE);
}

/* fear C2: what is shared and may have stacks in it is told from files, under each name that the kernel has for it */
static void shared_memory_is_told(void **state)
{
	static const bool memory[] = {true, true, true, true, true, true, false, false, false};
	struct maps m;

	(void)state;
	assert_int_equal(parse("10000-11000 rw-s 00000000 00:01 7 /dev/zero (deleted)\n"
			       "12000-13000 rw-s 00000000 00:1a 7 /dev/shm/a\n"
			       "14000-15000 rw-s 00000000 00:01 7 /memfd:x (deleted)\n"
			       "16000-17000 rw-s 00000000 00:01 7 /SYSV00000000 (deleted)\n"
			       "18000-19000 rw-s 00000000 00:0f 7 /anon_hugepage (deleted)\n"
			       "1a000-1b000 rw-s 00000000 00:01 7 [anon_shmem:stacks]\n"
			       "1c000-1d000 rw-s 00000000 08:01 7 /var/lib/data\n"
			       "1e000-1f000 rw-p 00000000 00:00 0 [anon:stacks]\n"
			       "20000-21000 rw-p 00000000 00:00 0 \n",
			       &m),
			 0);
	assert_int_equal(m.count, sizeof(memory));
	for (size_t i = 0; i < m.count; i++)
		assert_int_equal(maps_shares_memory(&m.entries[i]), memory[i]);
	maps_release(&m);
}

/* ---------------------------------------------------------------- placing */

static const struct arena_limits ordinary = {0x10000, 0, 64 * MIB, false, 0, 0, false, 0};

#define PIE                                                                \
	"555555554000-555555560000 r-xp 00000000 08:02 1 /bin/x\n"         \
	"555555560000-555555564000 rw-p 00000000 08:02 1 /bin/x\n"         \
	"555555570000-555555591000 rw-p 00000000 00:00 0 [heap]\n"         \
	"7ffff7d00000-7ffff7f00000 r-xp 00000000 08:02 2 /lib/libc.so.6\n" \
	"7ffff7fc0000-7ffff7fff000 r-xp 00000000 08:02 3 /lib/ld.so\n"     \
	"7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0 [stack]\n"

#define FIXED                                                              \
	"00400000-00480000 r-xp 00000000 08:02 1 /bin/x\n"                 \
	"00680000-00684000 rw-p 00080000 08:02 1 /bin/x\n"                 \
	"00700000-00800000 rw-p 00000000 00:00 0 [heap]\n"                 \
	"7ffff7d00000-7ffff7f00000 r-xp 00000000 08:02 2 /lib/libc.so.6\n" \
	"7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0 [stack]\n"

static taddr_t distance(taddr_t a, taddr_t b)
{
	return a > b ? a - b : b - a;
}

/* What is true of every place, wherever it is. */
static void check_place(const struct maps *m, taddr_t lo, taddr_t hi, taddr_t at, size_t size)
{
	assert_int_equal(at % 4096, 0);
	assert_true(maps_is_free(m, at, at + size));
	assert_true(distance(at, hi) <= ARENA_REACH && distance(at + size, lo) <= ARENA_REACH);
	assert_true(distance(at, lo) <= ARENA_REACH && distance(at + size, hi) <= ARENA_REACH);
}

static void below_a_pie(void **state)
{
	taddr_t lo = 0x555555554000, hi = 0x555555560000, at;
	struct maps m;

	(void)state;
	assert_int_equal(parse(PIE, &m), 0);
	assert_true(arena_place_near(&m, &ordinary, lo, hi, 64 * MIB, 0, 0, &at));
	check_place(&m, lo, hi, at, 64 * MIB);
	assert_true(at < lo);
	assert_true(arena_place_low(&m, &ordinary, 3 * MIB, 0, 0, &at));
	assert_int_equal(at, 0x7ff00000 - 3 * MIB);
	maps_release(&m);
}

/*
 * fear B7: below 2 GiB there stays room for those who need addresses of 32 bits, and for a stack
 * that what lies above may be
 */
static void low_memory_is_shared(void **state)
{
	static const char stack[] = "7fe00000-7fe10000 rw-p 00000000 00:00 0 \n" PIE;
	taddr_t at;
	struct maps m;

	(void)state;
	assert_int_equal(parse(PIE, &m), 0);
	assert_true(arena_place_low(&m, &ordinary, 255 * MIB, 0, 0, &at));
	assert_false(arena_place_low(&m, &ordinary, 256 * MIB, 0, 0, &at));
	maps_release(&m);
	assert_int_equal(parse(stack, &m), 0);
	assert_true(arena_place_low(&m, &ordinary, 3 * MIB, 0, 0, &at));
	assert_int_equal(at, 0x7fe00000 - 64 * MIB - 3 * MIB);
	maps_release(&m);
}

/* fear I3: where the kernel promises no more memory than there is, what we map is a small part of what is left */
static void promised_memory(void **state)
{
	static const char meminfo[] =
		"MemTotal:       24676608 kB\nCommitLimit:    12342048 kB\n"
		"Committed_AS:    1856288 kB\nVmallocTotal:   34359738367 kB\n";
	static const char full[] = "MemTotal: 9 kB\nCommitLimit: 1000 kB\nCommitted_AS: 1001 kB\n";

	(void)state;
	assert_true(arena_commits("2\n"));
	assert_false(arena_commits("0\n"));
	assert_false(arena_commits(""));
	assert_true(arena_commit_room("0\n", meminfo) == UINT64_MAX);
	assert_true(arena_commit_room("1\n", full) == UINT64_MAX);
	assert_true(arena_commit_room("", "") == UINT64_MAX);
	assert_int_equal(arena_commit_room("2\n", meminfo), 10485760 / 64 * 1024);
	assert_int_equal(arena_commit_room("2\n", full), 0);
	assert_int_equal(arena_commit_room("2\n", ""), 0);
}

static void away_from_where_mmap_grows(void **state)
{
	taddr_t lo = 0x7ffff7d00000, hi = 0x7ffff7f00000, at;
	struct maps m;

	(void)state;
	assert_int_equal(parse(PIE, &m), 0);
	assert_true(arena_place_near(&m, &ordinary, lo, hi, 64 * MIB, 0, 0, &at));
	check_place(&m, lo, hi, at, 64 * MIB);
	assert_true(at + 64 * MIB + 256 * MIB <= lo);
	maps_release(&m);
}

/* fear B7: a place that was chosen for where jumps lead is taken only with room on both sides */
static void at_a_chosen_end(void **state)
{
	const taddr_t lo = 0x555555554000, end = lo - 368 * MIB, low = 256 * MIB;
	struct maps m;

	(void)state;
	assert_int_equal(parse(PIE, &m), 0);
	assert_true(arena_place_is_free(&m, &ordinary, end, 144 * MIB, 64 * MIB));
	assert_true(arena_place_is_free(&m, &ordinary, lo - 64 * MIB, 144 * MIB, 64 * MIB));
	assert_false(arena_place_is_free(&m, &ordinary, lo - 64 * MIB + 4096, MIB, 64 * MIB));
	assert_false(arena_place_is_free(&m, &ordinary, lo + 4096, MIB, 0));
	/* Behind the heap what it may grow into counts. */
	assert_false(arena_place_is_free(&m, &ordinary, 0x555555591000 + 64 * MIB, MIB, 0));
	assert_true(arena_place_is_free(&m, &ordinary, 0x555555591000 + 65 * MIB, MIB, 0));
	/* The bottom, and what is no address. */
	assert_true(arena_place_is_free(&m, &ordinary, low, low - 64 * MIB - 0x10000, 64 * MIB));
	assert_false(arena_place_is_free(&m, &ordinary, low, low - 64 * MIB, 64 * MIB));
	assert_false(arena_place_is_free(&m, &ordinary, low, low + MIB, 0));
	assert_false(arena_place_is_free(&m, &ordinary, UINT64_MAX - 4095, MIB, 64 * MIB));
	/* Nothing above the highest mapping. */
	assert_false(arena_place_is_free(&m, &ordinary, 0x7ffffffff000 + 8 * MIB, MIB, 0));
	maps_release(&m);
}

/* fear B7: clear of where the brk heap may grow to */
static void clear_of_heap_and_bottom(void **state)
{
	struct arena_limits limits = {0x10000, 0x700000, 64 * MIB, false, 0, 0, false, 0};
	taddr_t lo = 0x400000, hi = 0x480000, code, data;
	struct maps m;

	(void)state;
	assert_int_equal(parse(FIXED, &m), 0);
	assert_true(arena_place_near(&m, &limits, lo, hi, 64 * MIB, 0, 0, &code));
	check_place(&m, lo, hi, code, 64 * MIB);
	assert_true(code >= 0x800000 + 512 * MIB);
	assert_true(arena_place_low(&m, &limits, 3 * MIB, code, code + 64 * MIB, &data));
	assert_true(data + 3 * MIB <= 0x7ff00000);
	assert_true(data + 3 * MIB <= code || data >= code + 64 * MIB);
	/* Small enough for the hole between the bottom and the program, which is there. */
	assert_true(arena_place_near(&m, &limits, lo, hi, 1 * MIB, 0x800000, GIB * 4, &code));
	assert_true(code >= 0x10000 && code + MIB <= lo);
	/* The heap's room counts also where no heap is there yet. */
	maps_release(&m);
	assert_int_equal(parse("00400000-00480000 r-xp 00000000 08:02 1 /bin/x\n"
			       "04000000-7fffffff0000 rw-p 00000000 00:00 0 \n",
			       &m),
			 0);
	limits.brk_start = 0x500000;
	assert_false(arena_place_near(&m, &limits, lo, hi, 16 * MIB, 0, 0, &code));
	limits.brk_start = 0;
	assert_true(arena_place_near(&m, &limits, lo, hi, 16 * MIB, 0, 0, &code));
	maps_release(&m);
}

/* fear B7: a heap of which the program has protected, or locked, a part is several mappings, and its end is that of the last */
static void clear_of_a_heap_in_parts(void **state)
{
	const struct arena_limits limits = {0x10000, 0x500000, 64 * MIB, false, 0, 0, false, 0};
	taddr_t lo = 0x400000, hi = 0x480000, at;
	struct maps m;

	(void)state;
	/* Free are 80 MiB behind the heap, of which it may grow into 64. */
	assert_int_equal(parse("00010000-00480000 r-xp 00000000 08:02 1 /bin/x\n"
			       "00500000-00600000 rw-p 00000000 00:00 0 [heap]\n"
			       "00600000-00601000 ---p 00000000 00:00 0 [heap]\n"
			       "00601000-10000000 rw-p 00000000 00:00 0 [heap]\n"
			       "15000000-7fffffff0000 rw-p 00000000 00:00 0 \n",
			       &m),
			 0);
	assert_true(arena_place_near(&m, &limits, lo, hi, 16 * MIB, 0, 0, &at));
	assert_int_equal(at, 0x10000000 + 64 * MIB);
	assert_false(arena_place_near(&m, &limits, lo, hi, 17 * MIB, 0, 0, &at));
	maps_release(&m);
}

/*
 * fear B7, G1: of a family, too, a place is clear of where each one's heap and stack may grow to
 */
static void clear_of_a_familys_heap_and_stack(void **state)
{
	struct arena_limits limits = {0x10000, 0x700000, 512 * MIB, false, 0, 0, false, 0};
	taddr_t lo = 0x7fffe0000000, hi = 0x7fffe0100000, at;
	struct maps m, other;

	(void)state;
	assert_int_equal(parse("7ff000000000-7fffe0100000 r-xp 00000000 08:02 1 /bin/x\n"
			       "7fffffff0000-7ffffffff000 rw-p 00000000 00:00 0 [stack]\n",
			       &m),
			 0);
	assert_int_equal(parse("7ff000000000-7fffe0100000 r-xp 00000000 08:02 1 /bin/x\n"
			       "7ffffffe0000-7ffffffff000 rw-p 00000000 00:00 0 [stack]\n",
			       &other),
			 0);
	assert_true(arena_place_add(&m, &other));
	maps_release(&other);
	assert_false(arena_place_near(&m, &limits, lo, hi, 1 * MIB, 0, 0, &at));
	limits.stack_limit = 64 * MIB;
	assert_true(arena_place_near(&m, &limits, lo, hi, 1 * MIB, 0, 0, &at));
	maps_release(&m);
	assert_int_equal(parse(FIXED, &m), 0);
	assert_int_equal(parse("00700000-10000000 rw-p 00000000 00:00 0 [heap]\n"
			       "15000000-7fffffff0000 rw-p 00000000 00:00 0 \n",
			       &other),
			 0);
	assert_true(arena_place_add(&m, &other));
	maps_release(&other);
	assert_true(arena_place_near(&m, &limits, 0x400000, 0x480000, 16 * MIB, 0, 0, &at));
	assert_int_equal(at, 0x10000000 + 64 * MIB);
	assert_false(arena_place_near(&m, &limits, 0x400000, 0x480000, 17 * MIB, 0, 0, &at));
	maps_release(&m);
}

/* fear B7: clear of where a stack may grow to */
static void clear_of_a_growing_stack(void **state)
{
	struct arena_limits limits = {0x10000, 0, 512 * MIB, false, 0, 0, false, 0};
	taddr_t lo = 0x7fffe0000000, hi = 0x7fffe0100000, at;
	struct maps m;

	(void)state;
	/* All is used from below up to the text; the stack is 511 MiB above it. */
	assert_int_equal(parse("7ff000000000-7fffe0100000 r-xp 00000000 08:02 1 /bin/x\n"
			       "7fffffff0000-7ffffffff000 rw-p 00000000 00:00 0 [stack]\n",
			       &m),
			 0);
	assert_false(arena_place_near(&m, &limits, lo, hi, 1 * MIB, 0, 0, &at));
	limits.stack_limit = 64 * MIB;
	assert_true(arena_place_near(&m, &limits, lo, hi, 64 * MIB, 0, 0, &at));
	check_place(&m, lo, hi, at, 64 * MIB);
	assert_true(at + 64 * MIB + 65 * MIB <= 0x7ffffffff000);
	maps_release(&m);
}

/* fear B7: a limit of the stack that is no whole number of pages, or a heap that begins within one, leaves all places on pages */
static void limits_within_a_page(void **state)
{
	struct arena_limits limits = {0x10000, 0, 100000000, false, 0, 0, false, 0};
	taddr_t lo = 0x7fffe0000000, hi = 0x7fffe0100000, at;
	struct maps m;

	(void)state;
	assert_int_equal(parse("7ff000000000-7fffe0100000 r-xp 00000000 08:02 1 /bin/x\n"
			       "7fffffff0000-7ffffffff000 rw-p 00000000 00:00 0 [stack]\n",
			       &m),
			 0);
	assert_true(arena_place_near(&m, &limits, lo, hi, 64 * MIB, 0, 0, &at));
	check_place(&m, lo, hi, at, 64 * MIB);
	assert_true(at + 64 * MIB + 100000000 + MIB <= 0x7ffffffff000);
	maps_release(&m);
	/* All but what the heap is kept from, and 8 MiB above that. */
	limits.brk_start = 0x500123;
	assert_int_equal(parse("00010000-00500000 r-xp 00000000 08:02 1 /bin/x\n"
			       "04d01000-7fffffff0000 rw-p 00000000 00:00 0 \n",
			       &m),
			 0);
	assert_true(arena_place_near(&m, &limits, 0x400000, 0x500000, 8 * MIB, 0, 0, &at));
	check_place(&m, 0x400000, 0x500000, at, 8 * MIB);
	assert_true(at >= 0x500123 + 64 * MIB);
	maps_release(&m);
}

static void crowded(void **state)
{
	struct maps m = {0};
	taddr_t text = 0x555555554000, at;
	size_t used = 0;

	(void)state;
	/* 32 MiB mappings for 3 GiB either side, one page between each two. */
	m.entries = calloc(400, sizeof(*m.entries));
	assert_non_null(m.entries);
	for (taddr_t lo = text - 96 * 32 * MIB; lo < text + 96 * 32 * MIB; lo += 32 * MIB)
		m.entries[used++] =
			(struct maps_entry){.lo = lo, .hi = lo + 32 * MIB - 4096, .name = ""};
	m.count = used;
	assert_false(arena_place_near(&m, &ordinary, text, text + MIB, MIB, 0, 0, &at));
	assert_true(arena_place_near(&m, &ordinary, text, text + MIB, 4096, 0, 0, &at));
	check_place(&m, text, text + MIB, at, 4096);
	/* One hole of 4 MiB, within reach, and one that is not. */
	m.entries[150].hi -= 4 * MIB;
	m.entries[5].hi -= 8 * MIB;
	assert_true(arena_place_near(&m, &ordinary, text, text + MIB, 4 * MIB, 0, 0, &at));
	check_place(&m, text, text + MIB, at, 4 * MIB);
	assert_false(arena_place_near(&m, &ordinary, text, text + MIB, 8 * MIB, 0, 0, &at));
	/* What is asked to be avoided is no room. */
	assert_false(
		arena_place_near(&m, &ordinary, text, text + MIB, 4 * MIB, at, at + 8192, &at));
	free(m.entries);
}

/* Random address spaces: whatever is found keeps all promises. */
/* fear B7: room for an arena in random address spaces, never where something is or grows */
static void random_spaces(void **state)
{
	unsigned seed = 20240601;
	size_t found = 0;

	(void)state;
	for (int round = 0; round < 2000; round++) {
		struct maps_entry entries[64];
		struct maps m = {entries, 0, NULL};
		taddr_t at = 0x10000, lo, out;
		size_t size = MIB << rand_r(&seed) % 7;

		for (size_t i = 0; i < 64; i++) {
			at += (taddr_t)(rand_r(&seed) % 4096) * 4096 * (rand_r(&seed) % 16);
			lo = at;
			at += (taddr_t)(1 + rand_r(&seed) % 4096) * 4096;
			entries[i] = (struct maps_entry){
				.lo = lo, .hi = at, .name = i == 50 ? "[heap]" : ""};
			m.count++;
		}
		lo = entries[rand_r(&seed) % 64].lo;
		if (!arena_place_near(&m, &ordinary, lo, lo + MIB, size, 0, 0, &out))
			continue;
		found++;
		check_place(&m, lo, lo + MIB, out, size);
		assert_true(maps_is_free(&m, out, out + size));
		assert_true(out + size <= entries[50].lo || out >= entries[50].hi + 64 * MIB);
	}
	assert_true(found > 500);
}

static void cpu_lists(void **state)
{
	(void)state;
	assert_int_equal(arena_parse_cpus("0\n"), 1);
	assert_int_equal(arena_parse_cpus("0-3\n"), 4);
	assert_int_equal(arena_parse_cpus("0-3,8-11"), 12);
	assert_int_equal(arena_parse_cpus("0,64"), 65);
	assert_int_equal(arena_parse_cpus(""), 0);
	assert_int_equal(arena_parse_cpus("-3"), 0);
	assert_int_equal(arena_parse_cpus("0-"), 0);
	assert_int_equal(arena_parse_cpus("x"), 0);
	assert_int_equal(arena_parse_cpus("99999999999"), 0);
	assert_true(arena_possible_cpus() >= (unsigned)sysconf(_SC_NPROCESSORS_ONLN));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_are_understood),
		cmocka_unit_test(broken_lines_are_refused),
		cmocka_unit_test(own_maps_are_read),
		cmocka_unit_test(shared_memory_is_told),
		cmocka_unit_test(below_a_pie),
		cmocka_unit_test(low_memory_is_shared),
		cmocka_unit_test(promised_memory),
		cmocka_unit_test(away_from_where_mmap_grows),
		cmocka_unit_test(at_a_chosen_end),
		cmocka_unit_test(clear_of_heap_and_bottom),
		cmocka_unit_test(clear_of_a_heap_in_parts),
		cmocka_unit_test(clear_of_a_familys_heap_and_stack),
		cmocka_unit_test(clear_of_a_growing_stack),
		cmocka_unit_test(limits_within_a_page),
		cmocka_unit_test(crowded),
		cmocka_unit_test(random_spaces),
		cmocka_unit_test(cpu_lists),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
