/* SPDX-License-Identifier: MIT */
/*
 * describe.c - what capstone calls x86-64. It knows no register: capstone's
 * names and ours are not for one file.
 */
#include <capstone/capstone.h>

#include "arch/common/common.h"

const struct arch_disassembler arch_disassembler = {CS_ARCH_X86, CS_MODE_64, CS_OPT_SYNTAX_ATT};
