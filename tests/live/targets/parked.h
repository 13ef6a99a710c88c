/* SPDX-License-Identifier: MIT */
/*
 * parked.h - the function in which the targets of live/parked are switched away from,
 * between two of its instructions, and what wipes the traces of that. Never keeps state.
 */
#ifndef DINST_TESTS_TARGETS_PARKED_H
#define DINST_TESTS_TARGETS_PARKED_H

#include <stddef.h>

long parked_function(volatile int *p);
__asm__(".text\n"
	".globl parked_function\n"
	".type parked_function,@function\n"
	"parked_function:\n"
	".cfi_startproc\n"
	"	push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbx,0\n"
	"	mov (%rdi),%eax\n"
	"	mov %eax,%ebx\n"
	"	lea 1(%rbx),%eax\n"
	"	pop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbx\n"
	"	ret\n"
	".cfi_endproc\n"
	".size parked_function,.-parked_function\n");

/* What is below the stack pointer is dead, but looks as if something were parked there. */
__attribute__((noinline)) static void wipe(void)
{
	volatile char dead[20000];

	for (size_t i = 0; i < sizeof(dead); i++)
		dead[i] = 0;
}

#endif
