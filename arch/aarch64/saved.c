/* SPDX-License-Identifier: MIT */
/*
 * saved.c - contexts that the kernel saved for a signal handler, wherever they
 * are: struct sigcontext has the program counter and pstate, whose mode is zero
 * for programs (arch/arm64/include/uapi/asm/sigcontext.h).
 */
#include "arch/thread.h"

enum { MODE = 0x1f };

bool arch_may_be_saved_pc(const uint64_t word[ARCH_SAVED_WORDS])
{
	return word[1] <= UINT32_MAX && !(word[1] & MODE);
}
