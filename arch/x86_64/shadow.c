/* SPDX-License-Identifier: MIT */
/*
 * shadow.c - user shadow stacks of x86-64, as the kernel tells of them
 * (Documentation/arch/x86/shstk.rst): a word in /proc/cpuinfo, and one in the
 * status of each thread that has one.
 */
#include "arch/thread.h"
#include "arch/common/common.h"

bool arch_shadow_offered(const char *cpuinfo)
{
	return arch_text_has(cpuinfo, "flags", "user_shstk");
}

bool arch_shadow_is_on(const char *status)
{
	return arch_text_has(status, "x86_Thread_features", "shstk");
}
