/* SPDX-License-Identifier: MIT */
/*
 * shadow.c - guarded control stacks of AArch64 (Documentation/arch/arm64/gcs.rst).
 * /proc does not tell which threads have one: where there could be some, all do.
 */
#include "arch/thread.h"
#include "arch/common/common.h"

bool arch_shadow_offered(const char *cpuinfo)
{
	return arch_text_has(cpuinfo, "Features", "gcs");
}

bool arch_shadow_is_on(const char *status)
{
	(void)status;
	return true;
}
