/* SPDX-License-Identifier: MIT */
/*
 * decode.c - instructions a second of our decoder, capstone and Zydis over the
 * text of this machine's libc, each started anew at the same instruction heads.
 *
 * CPU time of one thread, the best of some rounds.
 */
#include <Zydis/Zydis.h>
#include <capstone/capstone.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arch/arch.h"

enum { ROUNDS = 7 };

static const uint8_t *text;
static size_t text_size;
static uint64_t sink;

static ZydisDecoder zydis_full, zydis_minimal;
static csh capstone;

static int find_text(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	(void)arg;
	if (!strstr(info->dlpi_name, "libc.so"))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD && (p->p_flags & PF_X)) {
			text = (const uint8_t *)(info->dlpi_addr + p->p_vaddr);
			text_size = p->p_filesz;
		}
	}
	return 1;
}

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Each returns the instructions that it decoded. */
static size_t run_ours(void)
{
	size_t count = 0;

	for (size_t at = 0; at < text_size; count++) {
		struct arch_insn insn;

		if (arch_decode(text + at, text_size - at, at, &insn) != ARCH_OK) {
			at++;
			continue;
		}
		sink += insn.flags + insn.target + insn.flow;
		at += insn.length;
	}
	return count;
}

static size_t run_ours_with_effects(void)
{
	size_t count = 0;

	for (size_t at = 0; at < text_size; count++) {
		struct arch_insn insn;
		arch_regset reads, writes;

		if (arch_decode(text + at, text_size - at, at, &insn) != ARCH_OK) {
			at++;
			continue;
		}
		arch_effects(&insn, &reads, &writes);
		sink += reads + writes;
		at += insn.length;
	}
	return count;
}

static size_t run_capstone(void)
{
	cs_insn *insn = cs_malloc(capstone);
	size_t count = 0, left = text_size;
	const uint8_t *p = text;
	uint64_t address = 0;

	for (; left > 0; count++) {
		if (cs_disasm_iter(capstone, &p, &left, &address, insn)) {
			sink += insn->id;
			continue;
		}
		p++, address++, left--;
	}
	cs_free(insn, 1);
	return count;
}

static size_t run_zydis(const ZydisDecoder *decoder)
{
	size_t count = 0;

	for (size_t at = 0; at < text_size; count++) {
		ZydisDecodedInstruction insn;

		if (ZYAN_FAILED(ZydisDecoderDecodeInstruction(decoder, NULL, text + at,
							      text_size - at, &insn))) {
			at++;
			continue;
		}
		sink += insn.opcode;
		at += insn.length;
	}
	return count;
}

static size_t run_zydis_minimal(void)
{
	return run_zydis(&zydis_minimal);
}

static size_t run_zydis_instruction(void)
{
	return run_zydis(&zydis_full);
}

static size_t run_zydis_full(void)
{
	size_t count = 0;

	for (size_t at = 0; at < text_size; count++) {
		ZydisDecodedInstruction insn;
		ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];

		if (ZYAN_FAILED(ZydisDecoderDecodeFull(&zydis_full, text + at, text_size - at,
						       &insn, operands))) {
			at++;
			continue;
		}
		sink += insn.opcode + (uint64_t)operands[0].type;
		at += insn.length;
	}
	return count;
}

static const struct {
	const char *name;
	size_t (*run)(void);
	int rounds;
} rows[] = {
	{"ours", run_ours, ROUNDS},
	{"ours, with registers and flags", run_ours_with_effects, ROUNDS},
	{"Zydis, minimal mode", run_zydis_minimal, 3},
	{"Zydis, without operands", run_zydis_instruction, 3},
	{"Zydis, in full", run_zydis_full, 3},
	{"capstone, without details", run_capstone, 2},
};

int main(void)
{
	size_t want = 0;

	if (dl_iterate_phdr(find_text, NULL) != 1 || !text)
		return 1;
	ZydisDecoderInit(&zydis_full, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	ZydisDecoderInit(&zydis_minimal, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	ZydisDecoderEnableMode(&zydis_minimal, ZYDIS_DECODER_MODE_MINIMAL, ZYAN_TRUE);
	if (cs_open(CS_ARCH_X86, CS_MODE_64, &capstone) != CS_ERR_OK)
		return 1;
	printf("%-32s %14s %10s %8s\n", "decoding libc's text", "instructions", "M insn/s", "MB/s");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		double best = 1e9;
		size_t count = 0;

		for (int round = 0; round < rows[i].rounds; round++) {
			double start = cpu_seconds(), took;

			count = rows[i].run();
			took = cpu_seconds() - start;
			if (took < best)
				best = took;
		}
		printf("%-32s %14zu %10.1f %8.1f\n", rows[i].name, count,
		       (double)count / best * 1e-6, (double)text_size / best * 1e-6);
		/*
		 * Nobody stops early: the counts differ by data among the code only, and
		 * by what one does not know and goes over byte by byte.
		 */
		if (want && (count < want - want / 50 || count > want + want / 50))
			return 1;
		want = count;
	}
	cs_close(&capstone);
	return sink == 0;
}
