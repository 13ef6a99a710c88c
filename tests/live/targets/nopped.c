/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -fno-ipa-cp -fno-ipa-icf -Wno-infinite-recursion */
/*
 * nopped.c - jumping.c, whose leaf() begins with a no-op of five bytes: Linux 6.18 and later make a call
 * of their own of that where a uprobe on it was hit.
 */
__asm__(".text\n"
	".p2align 4\n"
	".globl leaf\n"
	".type leaf, @function\n"
	"leaf:\n"
	".byte 0x0f, 0x1f, 0x44, 0, 0\n"
	"lea (%rdi, %rdi, 2), %rax\n"
	"add %rsi, %rax\n"
	"ret\n"
	".size leaf, . - leaf\n");

#define OWN_LEAF
#include "jumping.c"
