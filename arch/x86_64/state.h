/* SPDX-License-Identifier: MIT */
/*
 * state.h - what the registers of a stopped thread are on x86-64.
 */
#ifndef DINST_ARCH_STATE_H
#define DINST_ARCH_STATE_H

#include <sys/user.h>

struct arch_regs {
	struct user_regs_struct user;
};

#endif
