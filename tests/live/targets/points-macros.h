/* SPDX-License-Identifier: MIT */
/*
 * points-macros.h - what the programs of corner cases for planning share: how
 * a function is written, and the few that the others call.
 */
#ifndef DINST_POINTS_MACROS_H
#define DINST_POINTS_MACROS_H

	.altmacro

/* A function on a fresh 16-byte line, the gap before it filled with nops. */
.macro FN name
	.p2align 4
	FN_HERE \name
.endm

/* The same right behind what came before. */
.macro FN_HERE name
	.type \name, @function
\name:
	.cfi_startproc
.endm

.macro END name
	.cfi_endproc
	.size \name, . - \name
.endm

/* A function that fills more than a short jump's reach and leaves no hole. */
.macro FILL name
	FN_HERE \name
	.rept 80
	xchg %eax, %ecx
	inc %eax
	.endr
	ret
	END \name
.endm

	.text
	.globl main
FN main
	xor %eax, %eax
	ret
END main

FN callee
	mov %rdi, %rax
	imul $3, %rax, %rax
	ret
END callee

FN noreturn
	ud2
END noreturn

#endif
