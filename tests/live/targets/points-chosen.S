/* SPDX-License-Identifier: MIT */
/* build: -Wl,-z,noexecstack */
/*
 * points-chosen.S - indirect jumps to what has been chosen on a condition, or changed in part; and
 * calls behind which registers change at once.
 * Planned by tests/unit/points_tables.c. Only main runs: it returns 0.
 */
	.text

/* Rows of 16 bytes; but the way into them may have been chosen, and then it may be any. */
	.p2align 4
	.globl row_chosen
	.type row_chosen, @function
row_chosen:
	lea 0f(%rip), %rax
	shl $4, %rdi
	test %rsi, %rsi
	cmovne %rdx, %rdi
	add %rdi, %rax
	jmp *%rax
	.p2align 4
0:
	.rept 8
	mov $1, %ecx
	mov $2, %edx
	lea (%rcx,%rdx), %esi
	mov %esi, %edi
	nop
	.endr
	mov $3, %ecx
	mov $4, %eax
	ret
	.size row_chosen, . - row_chosen

/* The same, of which the lowest byte has been changed. */
	.p2align 4
	.globl row_in_part
	.type row_in_part, @function
row_in_part:
	lea 0f(%rip), %rax
	shl $4, %rdi
	mov $8, %dil
	add %rdi, %rax
	jmp *%rax
	.p2align 4
0:
	.rept 8
	mov $1, %ecx
	mov $2, %edx
	lea (%rcx,%rdx), %esi
	mov %esi, %edi
	nop
	.endr
	mov $3, %ecx
	mov $4, %eax
	ret
	.size row_in_part, . - row_in_part

/* An address that was loaded whole, or one that a table of bytes leads to. */
	.p2align 4
	.globl sum_chosen
	.type sum_chosen, @function
sum_chosen:
	lea bytes(%rip), %rcx
	lea 0f(%rip), %rdx
	movzbl (%rcx,%rdi), %ecx
	add %rcx, %rdx
	mov (%rsi), %rax
	cmp $7, %rdi
	cmovbe %rdx, %rax
	jmp *%rax
0:
	mov $1, %ecx
	mov $2, %edx
	mov $3, %ecx
	mov $4, %eax
	ret
	.size sum_chosen, . - sum_chosen

	.globl main
	.type main, @function
main:
	xor %eax, %eax
	ret
	.size main, . - main

/* What the nops may become, one day, leads to where rdx is read. */
	.type keyed, @function
keyed:
	lea 1(%rdi), %rcx
	mov %rcx, %rax
1:	.nops 5
	mov $1, %edx
	mov $3, %eax
	ret
2:	mov %rdx, %rax
	ret
	.size keyed, . - keyed
	.section keys, "a", @progbits
	.long 1b - ., 2b - .
	.text

/* Somebody else's probe reads rdx at the nop (systemtap's notes, as sys/sdt.h makes them). */
	.type probed, @function
probed:
	lea 1(%rdi), %rcx
	mov %rcx, %rax
1:	nop
	mov $1, %edx
	mov $3, %eax
	ret
	.size probed, . - probed
	.section .note.stapsdt, "", @note
	.balign 4
	.long 8, 3f - 2f, 3
	.asciz "stapsdt"
2:	.quad 1b, _.stapsdt.base, 0
	.asciz "provider"
	.asciz "name"
	.asciz "8@%rdx"
3:	.balign 4
	.section .stapsdt.base, "a", @progbits
_.stapsdt.base:
	.space 1

/* What a call returns is gone right behind it, and there is no room for a jump to anything nearer. */
	.section .text.after, "ax", @progbits
	.macro filler name
	.type \name, @function
\name:
	.rept 40
	mov $1, %ecx
	.endr
	ret
	.size \name, . - \name
	.endm
	filler in_front
	.type after_number, @function
after_number:
	sub $8, %rsp
	call in_front
	xor %eax, %eax
	add $8, %rsp
	ret
	.size after_number, . - after_number
	.type after_float, @function
after_float:
	sub $8, %rsp
	call in_front
	movaps %xmm1, %xmm0
	add $8, %rsp
	ret
	.size after_float, . - after_float
	filler behind

	.section .rodata.bytes, "a", @progbits
bytes:
	.byte 0, 5, 10, 15, 0, 5, 10, 15
