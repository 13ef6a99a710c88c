/* SPDX-License-Identifier: MIT */
/*
 * describe.c - what capstone calls AArch64. It knows no register: capstone's
 * names and ours are not for one file.
 */
#include <capstone/capstone.h>

#include "arch/common/common.h"

const struct arch_disassembler arch_disassembler = {CS_ARCH_ARM64, CS_MODE_ARM, 0};
