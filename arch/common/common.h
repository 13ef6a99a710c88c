/* SPDX-License-Identifier: MIT */
/*
 * common.h - what an architecture tells the files of arch/common, which are
 * compiled into every one of them. Nothing outside arch/ may include it.
 */
#ifndef DINST_ARCH_COMMON_COMMON_H
#define DINST_ARCH_COMMON_COMMON_H

#include "arch/arch.h"

/* What is needed at every place: the stack pointer. A signal may come at any moment. */
extern const arch_regset arch_always_live;

/* How capstone is opened: cs_arch, cs_mode, and the syntax (0: its own). */
struct arch_disassembler {
	int arch;
	int mode;
	int syntax;
};
extern const struct arch_disassembler arch_disassembler;

/* True if the text has a line "key : word word ..." with that word. */
bool arch_text_has(const char *text, const char *key, const char *word);

#endif
