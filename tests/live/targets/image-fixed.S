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

	/* Its table is among the code, and what is behind it is found by that alone; it has a label of its own. */
FN x_behind
	and $1, %edi
	jmp *.Lxbtab(, %rdi, 8)
	.p2align 3, 0x06
.Lxbtab: .quad .Lxb0, .Lxb1
.Lxb0:	mov $.Lxb2, %eax
	test %esi, %esi
	jne .Lxb3
	inc %ecx
.Lxb2:	inc %ecx
.Lxb1:	ret
.Lxb3:	jmp *%rax
END x_behind

	/* A table among the code that nobody is seen to read. */
FN x_tabled
	inc %ecx
	inc %ecx
	ret
END x_tabled
	.p2align 3
	.quad x_tabled + 2

	/* Behind what nobody can decode a label is pushed for somebody who returns there. */
FN x_pushed
	inc %ecx
	inc %ecx
	ret
	.byte 0x06
	push $x_pushed + 2
	jmp callee
END x_pushed

	.section .rodata
	.p2align 3
.Lxtab:	.quad .Lxt, .Lxu, 0

	.section .note.GNU-stack, "", @progbits
