/* SPDX-License-Identifier: MIT */
/*
 * saved.c - contexts that the kernel saved for a signal handler, wherever they
 * are: struct sigcontext has rip, eflags, and cs in the lowest part of a word
 * (arch/x86/include/uapi/asm/sigcontext.h).
 */
#include "arch/thread.h"
#include "arch/x86_64/x86.h"

enum { FLAGS_ALWAYS = 0x2, FLAGS_MOST = 1 << 22 };

bool arch_may_be_saved_pc(const uint64_t word[ARCH_SAVED_WORDS])
{
	return word[1] < FLAGS_MOST && (word[1] & FLAGS_ALWAYS) && x86_is_user_cs(word[2] & 0xffff);
}
