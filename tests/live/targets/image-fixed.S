/* SPDX-License-Identifier: MIT */
/* build: -no-pie -Wl,-z,noexecstack */
/*
 * image-fixed.S - indirect jumps of code that runs at its link-time address. Each
 * function is a case of tests/unit/image_flow.c, which reads the built file. Only
 * main runs: it returns 0.
 */
#include "points-macros.inc"

	/* Into a row of equal instructions: its address is a part of one that computes. */
FN x_row
	and $7, %edi
	lea .Lxr(, %rdi, 2), %rdx
	jmp *%rdx
.Lxr:	inc %eax
	inc %eax
	ret
END x_row
FN x_row_added
	and $7, %edi
	add %edi, %edi
	add $.Lxs, %rdi
	jmp *%rdi
.Lxs:	inc %eax
	inc %eax
	ret
END x_row_added

	/* The same as two registers, beside a switch whose table is read. */
FN x_row_beside
	cmp $1, %esi
	ja .Lxu
	mov %esi, %esi
	jmp *.Lxtab(, %rsi, 8)
.Lxt:	inc %eax
	ret
.Lxu:	mov $.Lxv, %edx
	and $7, %edi
	add %rdi, %rdx
	jmp *%rdx
.Lxv:	inc %eax
	inc %eax
	ret
END x_row_beside

	/* A label that is loaded whole. */
FN x_label
	mov $.Lxi0, %eax
	test %edi, %edi
	je .Lxi
	mov $.Lxi1, %eax
.Lxi:	jmp *%rax
.Lxi0:	inc %eax
.Lxi1:	inc %eax
	ret
END x_label

	.section .rodata
	.p2align 3
.Lxtab:	.quad .Lxt, .Lxu, 0

	.section .note.GNU-stack, "", @progbits
