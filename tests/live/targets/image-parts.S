/* SPDX-License-Identifier: MIT */
/* build: -s -rdynamic -Wl,-z,noexecstack */
/*
 * image-parts.S - pieces of code with unwind data of their own and no names, in
 * a stripped program, told apart by their sizes: which of them are parts of a
 * function is in tests/unit/image_flow.c. Only main runs: it returns 0.
 */
#include "points-macros.inc"

/* A piece of `size` bytes: nops and a return. */
.macro PIECE label, size
	.cfi_startproc
\label:
	.rept \size - 1
	nop
	.endr
	ret
	.cfi_endproc
.endm

	.globl p_one, p_two
FN p_one
	test %edi, %edi
	jne .Lp33
	je .Lp37
	test %esi, %esi
	jne .Lp39
	call .Lp35
	jmp .Lp34
END p_one
FN p_two
	test %edi, %edi
	jne .Lp37
	lea .Lp36(%rip), %rax
	jne .Lp36
	jne .Lp38
	ret
END p_two

/* A function that one branches to from afar, and the one in front of it with a short jump: it has only one reference. */
	.globl p_near, p_far
FN p_near
	nop
	.byte 0xeb, .Lp40 - . - 1
END p_near
	PIECE .Lp40, 40
	/* The same, but who is near only has bytes that look so: a part of the other one. */
FN p_apart
	mov $((.Lp41 - 1f + 2) << 8 | 0xeb), %eax
1:	ret
END p_apart
	PIECE .Lp41, 41
	.skip 256, 0xcc
FN p_far
	test %edi, %edi
	.byte 0x0f, 0x84
	.long .Lp40 - . - 4
	.byte 0x0f, 0x84
	.long .Lp41 - . - 4
	ret
END p_far

/* Parts with names: one that is called, as LLVM makes them, one that is jumped to, one whose frame is there. */
.macro PART name
	.globl \name
	.type \name, @function
\name:
	.cfi_startproc
.endm
	.globl p_split
FN p_split
	test %edi, %edi
	js 1f
	je p_split.cold.2
	push %rbx
	.cfi_def_cfa_offset 16
	jne p_split.cold.3
	pop %rbx
	.cfi_def_cfa_offset 8
	ret
1:	sub $8, %rsp
	call p_split.cold.1
	add $8, %rsp
	ret
END p_split
	PART p_split.cold.1
	push %rbx
	.cfi_def_cfa_offset 16
	call p_two
	pop %rbx
	.cfi_def_cfa_offset 8
	ret
END p_split.cold.1
	PART p_split.cold.2
	ret
END p_split.cold.2
	PART p_split.cold.3
	.cfi_def_cfa_offset 16
	pop %rbx
	.cfi_def_cfa_offset 8
	ret
END p_split.cold.3

	.section .text.unlikely, "ax", @progbits
	.skip 256, 0xcc
	PIECE .Lp33, 33 /* a branch of p_one: a part */
	PIECE .Lp34, 34 /* jumped to without a condition: as good as a tail call */
	PIECE .Lp35, 35 /* called */
	PIECE .Lp36, 36 /* its address is taken */
	PIECE .Lp37, 37 /* two functions go there */
	PIECE .Lp38, 38 /* its address is stored */
	/* A part that goes on in another part. */
	.cfi_startproc
.Lp39:	test %edi, %edi
	jne .Lp50
	.rept 30
	nop
	.endr
	ret
	.cfi_endproc
	.skip 256, 0xcc
	PIECE .Lp50, 50

	.section .data.rel.ro, "aw"
	.p2align 3
	.quad .Lp38

	.section .note.GNU-stack, "", @progbits
