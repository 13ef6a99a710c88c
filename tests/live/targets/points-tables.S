/* SPDX-License-Identifier: MIT */
/* build: -Wl,-z,noexecstack */
/*
 * points-tables.S - a function that is made to take hours: twenty thousand jump tables, each
 * inside of all those before it, all of whose entries lead into the function. Read by
 * tests/unit/points_tables.c. Only main runs: it returns 0.
 */
	.set BASES, 20000
	.set ENTRIES, 60000

	.text
	.p2align 4
	.globl endless
	.type endless, @function
endless:
	.set n, 0
	.rept BASES
	lea table + 4 * n(%rip), %rax
	.set n, n + 1
	.endr
	movslq (%rax,%rdi,4), %rdx
	add %rax, %rdx
	jmp *%rdx
	.fill 4 * BASES + 64, 1, 0x90
	ret
	.size endless, . - endless

	.globl main
	.type main, @function
main:
	xor %eax, %eax
	ret
	.size main, . - main

	.section .rodata
	.p2align 2
table:
	.rept BASES + ENTRIES
	.long endless + 7 * BASES + 32 - table
	.endr
