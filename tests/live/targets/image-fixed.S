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

	/* A switch, and tail jumps where its cases end. */
FN x_tail
	push %rbx
	mov %rdi, %rbx
	cmp $2, %esi
	ja .Lxa2
	mov %esi, %esi
	jmp *.Lxatab(, %rsi, 8)
.Lxa0:	mov $1, %eax
	pop %rbx
	ret
.Lxa1:	pop %rbx
	jmp *(%rdi)
.Lxa2:	mov (%rbx), %rax
	pop %rbx
	jmp *%rax
END x_tail

	/* The same; what the table has is loaded first. */
FN x_tail_load
	cmp $2, %esi
	ja .Lxc2
	mov %esi, %esi
	mov .Lxctab(, %rsi, 8), %rax
	nop
	jmp *%rax
.Lxc0:	mov $1, %eax
	ret
.Lxc1:	inc %eax
.Lxc2:	jmp *(%rdi)
END x_tail_load

	/* An interpreter, whose table is not only jumped by: what is jumped to was taken from it. */
FN x_threaded
	mov .Lxdtab(, %rsi, 8), %rax
	mov %rax, (%rdi)
	jmp *.Lxdtab(, %rdx, 8)
.Lxd0:	jmp *(%rdi)
.Lxd1:	jmp *8(%rdi)
.Lxd2:	ret
END x_threaded

	/* The same; its address is in a register. */
FN x_threaded_base
	mov $.Lxetab, %ecx
	jmp *.Lxetab(, %rdx, 8)
.Lxe0:	jmp *(%rcx, %rsi, 8)
.Lxe1:	jmp *8(%rdi)
.Lxe2:	ret
END x_threaded_base

	/* The same; all jumps are one. */
FN x_threaded_once
	mov .Lxftab(, %rdx, 8), %rax
	jmp .Lxf
.Lxf0:	mov .Lxftab(, %rsi, 8), %rax
.Lxf:	jmp *%rax
.Lxf1:	jmp *8(%rdi)
.Lxf2:	ret
END x_threaded_once

	/* A switch, and an interpreter, whose labels a variable leads to: they are right behind the switch's cases. */
FN x_beside
	cmp $1, %edi
	ja .Lxg2
	mov %edi, %edi
	jmp *.Lxgtab(, %rdi, 8)
.Lxg0:	mov $1, %eax
	ret
.Lxg1:	mov $2, %eax
	ret
.Lxg2:	mov .Lxglabels, %rcx
	jmp *(%rcx, %rsi, 8)
.Lxg3:	mov $3, %eax
	ret
.Lxg4:	mov .Lxglabels, %rcx
	jmp *8(%rcx, %rsi, 8)
END x_beside

	/* The same; a label is loaded first, and all jumps but the switch's are one. */
FN x_beside_load
	cmp $1, %edi
	ja .Lxl2
	mov %edi, %edi
	jmp *.Lxltab(, %rdi, 8)
.Lxl0:	mov $1, %eax
	ret
.Lxl1:	mov $2, %eax
	ret
.Lxl2:	mov .Lxllabels, %rcx
	mov (%rcx, %rsi, 8), %rax
	inc %rsi
	jmp .Lxl
.Lxl3:	mov .Lxllabels, %rcx
	mov 8(%rcx, %rsi, 8), %rax
	jmp .Lxl
.Lxl4:	ret
.Lxl:	jmp *%rax
END x_beside_load

	/* Switches whose tables have ended behind the entries that were compared for, beside a tail call by a table: */
FN x_bound
	cmp $1, %edx
	ja .Lxm2
	mov %edx, %eax
	jmp *.Lxmtab(, %rax, 8)
.Lxm0:	mov $1, %eax
	ret
.Lxm1:	mov $2, %eax
	ret
.Lxm2:	mov 8(%rdi, %rsi, 8), %rax
	mov %edx, %edi
	jmp *%rax
END x_bound

	/* of a byte, and of a number in memory that is loaded once more; one table is right behind the other, */
FN x_bound_twice
	cmp $2, %dl
	jae .Lxn2
	movzbl %dl, %edx
	nop
	mov .Lxntab(, %rdx, 8), %rax
	jmp *%rax
.Lxn0:	mov $1, %eax
	ret
.Lxn1:	mov $2, %eax
	ret
.Lxn2:	cmpl $1, 4(%rdi)
	ja .Lxn5
	je .Lxn3
	mov 4(%rdi), %eax
	jmp *.Lxntab2(, %rax, 8)
.Lxn3:	mov $3, %eax
	ret
.Lxn4:	mov $4, %eax
	ret
.Lxn5:	jmp *8(%rdi, %rsi, 8)
END x_bound_twice

	/* And of those that have more behind them nobody knows where they end: what was compared is something else, */
.macro BESIDE name, label, compared, asked, made
FN \name
	\compared
	\asked
	ja .L\label\()2
	\made
	jmp *.L\label\()tab(, %rdi, 8)
.L\label\()0: ret
.L\label\()1: ret
.L\label\()3: ret
.L\label\()4: ret
.L\label\()2: jmp *(%rcx, %rsi, 8)
END \name
	.section .rodata
	.p2align 3
.L\label\()tab: .quad .L\label\()0, .L\label\()1, .L\label\()3, .L\label\()4, 0
	.text
.endm
	BESIDE x_beside_other, xo, <cmp $3, %esi>, nop, <mov %edi, %edi>
	/* has changed since, */
	BESIDE x_beside_changed, xp, <cmp $3, %edi>, nop, <shr %edi>
	/* may be another one since what was called has come back, */
	BESIDE x_beside_call, xt1, <cmp $3, %edi>, nop, <call callee>
	/* or is not what the branch asks for: it has fewer, perhaps. */
	BESIDE x_beside_flags, xq, <cmp $3, %edi>, <cmp $1, %esi>, <mov %edi, %edi>
	/* As many were compared for: those behind are not the switch's. */
	BESIDE x_beside_fewer, xr1, <cmp $1, %edi>, nop, <mov %edi, %edi>
	/* All were. */
	BESIDE x_bound_all, xs1, <cmp $3, %edi>, nop, <mov %edi, %edi>

	/* By a table of functions, of which it is one. */
FN x_handlers
	mov %esi, %esi
	jmp *.Lxhtab(, %rsi, 8)
END x_handlers

	/* A switch; that an entry is loaded once more is the last of so many instructions, of which no room is left. */
FN x_last
	cmp $1, %edi
	ja .Lxk1
	mov %edi, %edi
	jmp *.Lxktab(, %rdi, 8)
.Lxk0:	inc %eax
.Lxk1:	ret
	.rept 100
	nop
	.endr
	mov .Lxktab(, %rsi, 8), %rax
	nop
END x_last

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

	/* A switch whose table ends where it is bounded, and a tail call of an entry of somebody else's table. */
FN x_called
	cmp $2, %edx
	ja .Lxcm3
	mov %edx, %eax
	jmp *.Lxcmtab(, %rax, 8)
.Lxcm0:	mov $1, %eax
	ret
.Lxcm1:	mov $2, %eax
	ret
.Lxcm2:	mov $3, %eax
	ret
.Lxcm3:	mov %edx, %edi
	jmp *8(%rcx, %rsi, 8)
END x_called

	/* And of which nobody knows where the table ends: the index is another one than what is compared, */
FN x_called_other
	cmp $1, %edx
	ja .Lxcp2
	mov %edi, %eax
	jmp *.Lxcptab(, %rax, 8)
.Lxcp0:	mov $1, %eax
	ret
.Lxcp1:	mov $2, %eax
	ret
.Lxcp2:	jmp *8(%rcx, %rsi, 8)
END x_called_other

	/* changed after that, */
FN x_called_changed
	cmp $1, %edx
	ja .Lxcq2
	inc %edx
	jmp *.Lxcqtab(, %rdx, 8)
.Lxcq0:	mov $1, %eax
	ret
.Lxcq1:	mov $2, %eax
	ret
.Lxcq2:	jmp *8(%rcx, %rsi, 8)
END x_called_changed

	/* compared, but not asked about, */
FN x_called_unasked
	cmp $1, %edx
	test %edi, %edi
	ja .Lxcr2
	jmp *.Lxcrtab(, %rdx, 8)
.Lxcr0:	mov $1, %eax
	ret
.Lxcr1:	mov $2, %eax
	ret
.Lxcr2:	jmp *8(%rcx, %rsi, 8)
END x_called_unasked

	/* or compared on one of two ways only. */
FN x_beside_joined
	test %edi, %edi
	je .Lxcs0
	cmp $1, %edx
	ja .Lxcs3
.Lxcs0:	jmp *.Lxcstab(, %rdx, 8)
.Lxcs1:	mov $1, %eax
	ret
.Lxcs2:	mov $2, %eax
	ret
.Lxcs3:	jmp *8(%rcx, %rsi, 8)
END x_beside_joined

	.section .rodata
	.p2align 3
.Lxtab:	.quad .Lxt, .Lxu, 0
.Lxatab: .quad .Lxa0, .Lxa1, .Lxa2, 0
.Lxcmtab: .quad .Lxcm0, .Lxcm1, .Lxcm2, 0
.Lxcptab: .quad .Lxcp0, .Lxcp1, 0
.Lxcqtab: .quad .Lxcq0, .Lxcq0, .Lxcq1, 0
.Lxcrtab: .quad .Lxcr0, .Lxcr1, 0
.Lxctab: .quad .Lxc0, .Lxc1, .Lxc2, 0
.Lxdtab: .quad .Lxd0, .Lxd1, .Lxd2, 0
.Lxetab: .quad .Lxe0, .Lxe1, .Lxe2, 0
.Lxftab: .quad .Lxf0, .Lxf1, .Lxf2, 0
.Lxgtab: .quad .Lxg0, .Lxg1, .Lxg3, .Lxg4, 0
.Lxltab: .quad .Lxl0, .Lxl1, .Lxl3, .Lxl4, 0
.Lxktab: .quad .Lxk0, .Lxk1, 0
.Lxcstab: .quad .Lxcs1, .Lxcs2, 0
.Lxmtab: .quad .Lxm0, .Lxm1, 0
.Lxntab: .quad .Lxn0, .Lxn1
.Lxntab2: .quad .Lxn3, .Lxn4, 0
.Lxhtab: .quad x_handlers, callee, x_handlers

	.data
	.p2align 3
.Lxglabels: .quad .Lxgtab + 16
.Lxllabels: .quad .Lxltab + 16

	.section .note.GNU-stack, "", @progbits
