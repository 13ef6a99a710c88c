/* SPDX-License-Identifier: MIT */
/* build: -no-pie -Wl,-z,noexecstack */
/*
 * points-fixed.S - corner cases of code that runs at its link-time address:
 * jump tables and labels are whole addresses without relocations. Expectations
 * in tests/unit/points_plan.c; only main runs.
 */
#include "points-macros.inc"

	/* The table is the jump's operand. */
FN x_table
	cmp $2, %edi
	ja .Lxt9
	mov %edi, %edi
	jmp *.Lxtab(, %rdi, 8)
.Lxt0:	mov $1, %eax
	inc %eax
	inc %eax
	inc %eax
.Lxt1:	inc %eax
	ret
.Lxt9:	mov $6, %eax
	ret
END x_table

	/* The table is loaded from, and the register jumped to. */
FN x_load
	mov %edi, %edi
	mov .Lxltab(, %rdi, 8), %rax
	jmp *%rax
.Lxl0:	mov $1, %eax
	inc %eax
	inc %eax
.Lxl1:	inc %eax
	ret
END x_load

	/* Computed goto with its labels in writable data. */
FN x_goto
	mov %edi, %edi
	jmp *labels(, %rdi, 8)
.Lxg0:	mov $1, %eax
	inc %eax
	inc %eax
.Lxg1:	inc %eax
	ret
END x_goto

	/* Labels as immediate operands. */
FN x_immediate
	mov $.Lxi0, %eax
	test %edi, %edi
	je .Lxi
	mov $.Lxi1, %eax
.Lxi:	jmp *%rax
.Lxi0:	inc %eax
	inc %eax
	inc %eax
.Lxi1:	inc %eax
	ret
END x_immediate

	.section .rodata
	.p2align 3
.Lxtab:	.quad .Lxt0, .Lxt1, .Lxt9, 0
.Lxltab: .quad .Lxl0, .Lxl1, 0

	.data
	.p2align 3
labels:	.quad .Lxg0, .Lxg1, 0

	.section .note.GNU-stack, "", @progbits
