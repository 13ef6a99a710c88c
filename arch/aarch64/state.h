/* SPDX-License-Identifier: MIT */
/*
 * state.h - what the registers of a stopped thread are on AArch64, on whatever
 * host this is built: the host's own <sys/user.h> is of no use here.
 */
#ifndef DINST_ARCH_STATE_H
#define DINST_ARCH_STATE_H

#include <stdint.h>

struct arch_regs {
	/* NT_PRSTATUS: struct user_pt_regs (arch/arm64/include/uapi/asm/ptrace.h) */
	struct {
		uint64_t regs[31];
		uint64_t sp;
		uint64_t pc;
		uint64_t pstate;
	} user;
	uint64_t thread_pointer; /* NT_ARM_TLS: tpidr_el0 */
	int32_t system_call;	 /* NT_ARM_SYSTEM_CALL: -1 if none, or forgotten by the kernel */
};

#endif
