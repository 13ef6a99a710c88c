/* SPDX-License-Identifier: MIT */
/*
 * arch_space.c - Zydis as the judge of our decoder over the space of encodings:
 * all opcodes of all maps with all ModRM bytes and many prefixes, in the old
 * encoding, VEX, XOP and EVEX, and random bytes behind prefixes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/arch_zydis.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

#define ADDRESS 0x7f0000000000ull

/* Behind the opcode: a SIB byte or immediate, displacement, immediate. */
static const uint8_t tails[][12] = {
	{0x24, 0x10, 0x32, 0x54, 0x76, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd},
	{0x8d, 0xf0, 0xde, 0xbc, 0x1a, 0x05, 0x80, 0, 0, 0, 0, 0},
};

/* The sanitizers make it ten times slower: every so many. */
#ifdef __SANITIZE_ADDRESS__
enum { EVERY = 16 };
#else
enum { EVERY = 1 };
#endif

static void try(const uint8_t *head, size_t size)
{
	static unsigned turn;
	uint8_t bytes[32] = {0};

	for (size_t i = 0; i < COUNT(tails); i++) {
		if (++turn % EVERY != 0)
			continue;
		memcpy(bytes, head, size);
		memcpy(bytes + size, tails[i], sizeof(tails[i]));
		judge_one(bytes, sizeof(bytes), ADDRESS);
	}
}

/* head[0 .. size) and all opcodes and ModRM bytes behind it. */
static void try_all(uint8_t *head, size_t size, unsigned modrm_step)
{
	for (unsigned opcode = 0; opcode < 256; opcode++) {
		head[size] = (uint8_t)opcode;
		for (unsigned modrm = 0; modrm < 256; modrm += modrm_step) {
			head[size + 1] = (uint8_t)modrm;
			try(head, size + 2);
		}
	}
}

static void finish(const char *what)
{
	print_message("%s: %ld encodings, %ld known to both, %ld to none\n", what, judge.total,
		      judge.both, judge.neither);
	judge_report(false);
	assert_true(judge.both > 20000 / EVERY);
	assert_int_equal(judge.unlisted, 0);
}

static void test_legacy(void **state)
{
	static const char *const prefixes[] = {
		"",	    "\x66",	"\xf2",	    "\xf3",	"\x48", "\x41",	    "\x44",
		"\x66\x48", "\xf2\x48", "\xf3\x48", "\x67",	"\xf0", "\x64",	    "\x65",
		"\x3e",	    "\x66\xf3", "\x4f\x66", "\xf0\x48", "\x36", "\x66\x45",
	};
	static const char *const maps[] = {"", "\x0f", "\x0f\x38", "\x0f\x3a"};

	(void)state;
	judge_begin();
	for (size_t i = 0; i < COUNT(prefixes); i++) {
		for (size_t map = 0; map < COUNT(maps); map++) {
			uint8_t head[32];
			size_t size = strlen(prefixes[i]), more = strlen(maps[map]);

			memcpy(head, prefixes[i], size);
			memcpy(head + size, maps[map], more);
			try_all(head, size + more, 1);
		}
	}
	finish("legacy");
}

static void test_vex(void **state)
{
	uint8_t head[32];

	(void)state;
	judge_begin();
	for (unsigned map = 0; map < 5; map++) {
		for (unsigned second = 0; second < 256; second++) {
			/* W, vvvv 0000 1111 1100, L, pp */
			unsigned vvvv = second >> 3 & 15;

			if (vvvv != 0 && vvvv != 15 && vvvv != 12)
				continue;
			head[0] = 0xc4;
			head[1] = (uint8_t)(0xe0 | map);
			head[2] = (uint8_t)second;
			try_all(head, 3, map == 0 || map == 4 ? 64 : 3);
			if (second & 0x80)
				continue;
			head[1] = (uint8_t)(0x40 | map); /* R and B */
			try_all(head, 3, 11);
		}
	}
	for (unsigned first = 0; first < 256; first += 3) {
		head[0] = 0xc5;
		head[1] = (uint8_t)first;
		try_all(head, 2, 7);
	}
	finish("VEX");
}

static void test_xop(void **state)
{
	uint8_t head[32];

	(void)state;
	judge_begin();
	for (unsigned map = 0; map < 16; map++) {
		/* W, vvvv, L, pp */
		static const uint8_t seconds[] = {0x78, 0x7c, 0xf8, 0x00, 0x60, 0xe4, 0x79, 0x7b};

		for (size_t i = 0; i < COUNT(seconds); i++) {
			head[0] = 0x8f;
			head[1] = (uint8_t)(0xe0 | map);
			head[2] = seconds[i];
			try_all(head, 3, map >= 8 && map <= 10 ? 1 : 32);
		}
	}
	finish("XOP");
}

static void test_evex(void **state)
{
	uint8_t head[32];

	(void)state;
	judge_begin();
	for (unsigned map = 0; map < 8; map++) {
		for (unsigned second = 0; second < 16; second++) {
			/* vvvv unused or register 3 */
			static const uint8_t thirds[] = {0x08, 0x28, 0x48, 0x18, 0x58, 0xc9, 0x40};

			for (size_t i = 0; i < COUNT(thirds); i++) {
				head[0] = 0x62;
				head[1] = (uint8_t)(0xf0 | map);
				head[2] = (uint8_t)((second & 8) << 4 | (second & 4 ? 0x78 : 0x60) |
						    4 | (second & 3));
				head[3] = thirds[i];
				try_all(head, 4, map == 0 || map == 4 || map == 7 ? 64 : 5);
			}
		}
	}
	finish("EVEX");
}

static void test_random(void **state)
{
	static const uint8_t prefixes[] = {0x66, 0x67, 0xf2, 0xf3, 0xf0, 0x3e, 0x64,
					   0x2e, 0x48, 0x4c, 0x41, 0x26, 0x65, 0x40};
	uint64_t seed = 88172645463325252ull;

	(void)state;
	judge_begin();
	for (long i = 0; i < 4000000 / EVERY; i++) {
		uint8_t bytes[32];
		unsigned count;

		for (size_t k = 0; k < sizeof(bytes); k += 8) {
			seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
			memcpy(bytes + k, &seed, 8);
		}
		count = bytes[31] % 16;
		count = count > 12 ? count : count / 3;
		for (unsigned k = 0; k < count; k++)
			bytes[k] = prefixes[bytes[k] % COUNT(prefixes)];
		judge_one(bytes, 1 + bytes[30] % 24, ADDRESS);
	}
	finish("random bytes");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_legacy), cmocka_unit_test(test_vex),
		cmocka_unit_test(test_xop),    cmocka_unit_test(test_evex),
		cmocka_unit_test(test_random),
	};

	alarm(250);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
