/* SPDX-License-Identifier: MIT */
/*
 * decode_fuzz.c - any bytes given to the decoder and to everything that works
 * on what it decoded: nothing is read beyond the end, nothing written beyond a
 * buffer, and the answers agree with each other.
 *
 * LLVMFuzzerTestOneInput() takes any bytes; built with -DFUZZ_ENGINE it is for
 * libFuzzer (clang -fsanitize=fuzzer). Else this is a test that makes them in a
 * row of fixed pseudo-random ways: noise, noise behind prefixes, and damaged
 * instructions of this machine's libc.
 *
 * FUZZ_COUNT and FUZZ_SEED in the environment ask for more, or for others.
 */
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "arch/arch.h"
#include "arch/scan.h"
#include "tests/fuzz/fuzz.h"

enum { PAGE = 4096, LONGEST = 15, ROOM = 64, INSNS = 64 };

#define ADDRESS 0x7f0000000000ull

/* A page that ends where nothing is mapped; the same in all runs of a process. */
static uint8_t *guarded_page(void)
{
	static uint8_t *page;

	if (!page) {
		page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);
		require(page != MAP_FAILED && mprotect(page + PAGE, PAGE, PROT_NONE) == 0);
	}
	return page;
}

/* A buffer of `size` bytes with a wall behind. */
struct room {
	uint8_t bytes[ROOM + 8];
	struct arch_buf out;
};

static struct room *clear_room(struct room *room, size_t size, taddr_t pc)
{
	memset(room->bytes, 0xa5, sizeof(room->bytes));
	room->out = (struct arch_buf){.bytes = room->bytes, .size = size, .pc = pc};
	return room;
}

static void check_room(const struct room *room)
{
	require(room->out.used <= room->out.size);
	for (size_t i = room->out.size; i < sizeof(room->bytes); i++)
		require(room->bytes[i] == 0xa5);
	require(room->out.status <= 0 && room->out.status >= ARCH_REFUSED);
}

/* What has been emitted is instructions, from its beginning to its end. */
static void check_code(const struct room *room)
{
	for (size_t at = 0; room->out.status == ARCH_OK && at < room->out.used;) {
		struct arch_insn insn;

		require(arch_decode(room->bytes + at, room->out.used - at, room->out.pc + at,
				    &insn) == ARCH_OK);
		at += insn.length;
	}
}

static void check_relocation(const struct arch_insn *insn, size_t size, taddr_t pc)
{
	struct room room;

	arch_relocate(insn, &clear_room(&room, size, pc)->out);
	check_room(&room);
	check_code(&room);
	if (insn->flags & ARCH_INSN_NO_MOVE)
		require(room.out.status == ARCH_REFUSED && room.out.used == 0);
	else if (size == ARCH_RELOCATED_MAX)
		require(room.out.status == ARCH_OK || room.out.status == ARCH_OUT_OF_RANGE);
	arch_relocate_branch(insn, pc + 4711, &clear_room(&room, size, pc)->out);
	check_room(&room);
	check_code(&room);
	if (insn->flow != ARCH_FLOW_BRANCH && insn->flow != ARCH_FLOW_JUMP)
		require(room.out.status == ARCH_REFUSED && room.out.used == 0);
	arch_emit_call_tail(insn, &clear_room(&room, size, pc)->out);
	check_room(&room);
	check_code(&room);
}

static void check_memory(const struct arch_insn *insn, size_t size, taddr_t pc)
{
	struct arch_memory memory[ARCH_MEMORY_MAX];
	unsigned count = arch_memory_operands(insn, memory);

	require(count <= ARCH_MEMORY_MAX && (count == 0 || insn->flags & ARCH_INSN_MEMORY));
	for (unsigned i = 0; i < count; i++) {
		require(memory[i].load || memory[i].store);
		require(memory[i].size <= 512);
		for (unsigned bit = 0; bit < 64; bit += 1 + bit / 16) {
			struct room room;

			arch_emit_effective_address(&clear_room(&room, size, pc)->out, &memory[i],
						    1ull << bit, bit * 8);
			check_room(&room);
			check_code(&room);
			if (!memory[i].computable || !(arch_all_live >> bit & 1))
				require(room.out.status == ARCH_REFUSED && room.out.used == 0);
			else if (size == ARCH_ADDRESS_MAX)
				require(room.out.status != ARCH_NO_ROOM);
		}
	}
}

/* Whatever can be patched leads there afterwards. */
static void check_patches(const struct arch_insn *insn)
{
	for (int kind = ARCH_PATCH_RETARGET; kind <= ARCH_PATCH_CALL; kind++) {
		const taddr_t to = insn->address + 0x12345;
		uint8_t bytes[ARCH_PATCH_MAX];
		struct arch_insn after;
		size_t first, count;

		if (!arch_patchable(insn, kind))
			continue;
		memcpy(bytes, insn->bytes, sizeof(bytes));
		require(arch_patch(kind, insn, insn->address, to, bytes, insn->length, &first,
				   &count) == ARCH_OK);
		require(first + count <= insn->length);
		require(arch_decode(bytes, insn->length, insn->address, &after) == ARCH_OK);
		require(after.length == insn->length && after.target == to);
	}
}

static void check_insn(const uint8_t *bytes, size_t size, const struct arch_insn *insn)
{
	static uint8_t end[2 * LONGEST];
	struct arch_insn again;
	arch_regset reads, writes, reg = 0;
	uint64_t limit;

	require(insn->length >= 1 && insn->length <= LONGEST && insn->length <= size);
	require(memcmp(insn->bytes, bytes, insn->length) == 0);
	require(insn->flow <= ARCH_FLOW_STOP && insn->address == ADDRESS);
	/* Its bytes are enough, one less is not, and what follows does not matter. */
	memset(end, 0x5a, sizeof(end));
	memcpy(end, bytes, insn->length);
	require(arch_decode(end, sizeof(end), ADDRESS, &again) == ARCH_OK);
	require(memcmp(insn, &again, offsetof(struct arch_insn, bytes) + ARCH_INSN_MAX) == 0);
	require(arch_decode(insn->bytes, insn->length, ADDRESS, &again) == ARCH_OK);
	require(memcmp(insn, &again, offsetof(struct arch_insn, bytes) + ARCH_INSN_MAX) == 0);
	require(arch_decode(insn->bytes, insn->length - 1u, ADDRESS, &again) == ARCH_TRUNCATED);
	arch_effects(insn, &reads, &writes);
	require(!((reads | writes) & ~arch_all_live));
	if (arch_compares(insn, &reg, &limit))
		require(!(reg & ~reads) && insn->flow == ARCH_FLOW_NEXT);
	if (arch_condition(insn) != ARCH_CONDITION_OTHER)
		require(insn->flow == ARCH_FLOW_BRANCH);
	if (arch_multiplies(insn, &limit))
		require(limit > 0 && !(insn->flags & ARCH_INSN_MEMORY) &&
			__builtin_popcountll(reads) == 1);
	check_relocation(insn, ARCH_RELOCATED_MAX, ADDRESS + 0x1000000);
	check_relocation(insn, insn->bytes[0] % 16, ADDRESS - 0x7fff0000);
	check_memory(insn, ARCH_ADDRESS_MAX, ADDRESS + 0x1000000);
	check_memory(insn, insn->bytes[0] % 16, ADDRESS);
	check_patches(insn);
}

static void count_reference(void *arg, taddr_t from, taddr_t target)
{
	(void)target;
	require(from >= ADDRESS && from < ADDRESS + PAGE);
	++*(size_t *)arg;
}

static void check_row(const uint8_t *bytes, size_t size)
{
	static struct arch_insn insns[INSNS];
	size_t count = 0, references = 0;

	for (size_t at = 0; at < size && count < INSNS; at += insns[count++].length)
		if (arch_decode(bytes + at, size - at, ADDRESS + at, &insns[count]) != ARCH_OK)
			break;
	for (size_t i = 0; i <= count; i++)
		require(!(arch_live_before(insns, count, i) & ~arch_all_live));
	arch_scan_references(bytes, size, ADDRESS, 0, UINT64_MAX, count_reference, &references);
	require(references <= size);
	references = 0;
	arch_scan_sums(bytes, size, ADDRESS, ADDRESS, ADDRESS + size, true, count_reference,
		       &references);
	require(references <= size * SUM_STEPS * 2);
}

/* fear L1: any bytes as code are decoded, described and moved within their bounds, and what is made of them is instructions */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct arch_insn insn;
	uint8_t *at;

	if (size > PAGE)
		size = PAGE;
	at = guarded_page() + PAGE - size;
	if (size)
		memcpy(at, bytes, size);
	if (arch_decode(at, size, ADDRESS, &insn) == ARCH_OK)
		check_insn(at, size, &insn);
	if (size > 0 && at[size - 1] % 8 == 0)
		check_row(at, size);
	return 0;
}

#ifndef FUZZ_ENGINE

static uint64_t seed = 88172645463325252ull;

static uint64_t noise(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static long wanted(long usual)
{
	const char *count = getenv("FUZZ_COUNT"), *start = getenv("FUZZ_SEED");

	if (start && *start)
		seed ^= strtoull(start, NULL, 0);
	return count && *count ? atol(count) : usual;
}

static size_t fill(uint8_t *bytes, size_t most)
{
	size_t size = noise() % (most + 1);

	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)(noise() >> 16);
	return size;
}

static void test_noise(void **state)
{
	(void)state;
	for (long i = wanted(500000); i > 0; i--) {
		uint8_t bytes[48];

		LLVMFuzzerTestOneInput(bytes, fill(bytes, sizeof(bytes)));
	}
}

static void test_prefixes(void **state)
{
	static const uint8_t prefixes[] = {0x66, 0x67, 0xf2, 0xf3, 0xf0, 0x3e, 0x64, 0x65, 0x2e,
					   0x48, 0x41, 0x4f, 0x0f, 0xc4, 0xc5, 0x62, 0x8f, 0xd5};

	(void)state;
	for (long i = wanted(500000); i > 0; i--) {
		uint8_t bytes[48];
		size_t size = fill(bytes, 32), count = noise() % 16;

		for (size_t k = 0; k < count && k < size; k++)
			bytes[k] = prefixes[noise() % sizeof(prefixes)];
		LLVMFuzzerTestOneInput(bytes, size);
	}
}

static int find_text(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	if (!strstr(info->dlpi_name, "libc.so"))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X)
			*(struct iovec *)arg = (struct iovec){
				.iov_base = (void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr),
				.iov_len = info->dlpi_phdr[i].p_filesz};
	return 1;
}

static void test_damaged_code(void **state)
{
	struct iovec text = {0};

	(void)state;
	assert_int_equal(dl_iterate_phdr(find_text, &text), 1);
	assert_true(text.iov_len > PAGE);
	for (long i = wanted(500000); i > 0; i--) {
		uint8_t bytes[96];
		size_t size = noise() % sizeof(bytes) + 1, damage = noise() % 4;

		memcpy(bytes, (uint8_t *)text.iov_base + noise() % (text.iov_len - size), size);
		for (size_t k = 0; k < damage; k++)
			bytes[noise() % size] ^= (uint8_t)(1u << noise() % 8);
		LLVMFuzzerTestOneInput(bytes, size);
	}
}

/* Code of many kinds, some of it found by an engine. */
static void test_corpus(void **state)
{
	(void)state;
	fuzz_all("tests/fuzz/corpus/decode", 100000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_noise),
		cmocka_unit_test(test_prefixes),
		cmocka_unit_test(test_damaged_code),
		cmocka_unit_test(test_corpus),
	};

	if (!getenv("FUZZ_COUNT"))
		alarm(250);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
