/* SPDX-License-Identifier: MIT */
/* build: -no-pie -Wl,-z,noexecstack */
/*
 * cfg-hostile.S - functions whose graphs would take all memory, or hours. Read by
 * tests/unit/cfg_hostile.c. Only main runs: it returns 0.
 */
	.set JUMPS, 10000
	.set TARGETS, 65536
	.set SELF, 250000
	.set LADDER, 400000
	.set CATCHES, 20000

	.text
/*
 * Loops in loops: those inside are counted again in each around them, count * count blocks
 * together, of which more than 2^31 are more than 32 bits can count the room for.
 */
	.macro nest name, count
	.p2align 4
	.globl \name
	.type \name, @function
\name:
	.fill \count, 1, 0xf9 /* stc: the header of a loop each */
	.set n, \count
	.rept \count
	.set n, n - 1
	.byte 0x0f, 0x85 /* jne \name + n */
	.long \name + n - . - 4
	.endr
	ret
	.size \name, . - \name
	.endm

	nest deep, 60000
	nest nested, 12000

/* Each of many jumps may lead to each of many places, and to each of the jumps. */
	.p2align 4
	.globl tables
	.type tables, @function
tables:
	.rept JUMPS
	notrack jmp *table(,%rax,8)
	.endr
places:
	.fill TARGETS - JUMPS, 1, 0xf9
	ret
	.size tables, . - tables

/* As many loops as there can be, one behind the other. */
	.p2align 4
	.globl selves
	.type selves, @function
selves:
	.rept SELF
	dec %ecx
	jne . - 2
	.endr
	ret
	.size selves, . - selves

/* All branches lead to one exit: what dominates it is looked for along all of them. */
	.p2align 4
	.globl ladder
	.type ladder, @function
ladder:
	.rept LADDER
	.byte 0x0f, 0x85 /* jne 1f */
	.long 1f - . - 4
	.endr
1:
	ret
	.size ladder, . - ladder

/* A line of calls, each of which has a handler of its own, as constructors in a row do. */
	.p2align 4
	.globl catches
	.type catches, @function
catches:
	.cfi_startproc
	.cfi_personality 0x1b, main
	.cfi_lsda 0x1b, sites
	.rept CATCHES
	call main
	.endr
	ret
handlers:
	.fill CATCHES, 1, 0xf9
	ret
	.cfi_endproc
	.size catches, . - catches

	.globl main
	.type main, @function
main:
	xor %eax, %eax
	ret
	.size main, . - main

	.section .rodata
	.p2align 3
table:
	.set n, 0
	.rept JUMPS
	.quad tables + 8 * n
	.set n, n + 1
	.endr
	.set n, 0
	.rept TARGETS - JUMPS
	.quad places + n
	.set n, n + 1
	.endr

	.section .gcc_except_table, "a", @progbits
sites:
	.byte 0xff, 0xff, 3 /* fields of 4 bytes */
	.uleb128 CATCHES * 13
	.set n, 0
	.rept CATCHES
	.long 5 * n, 5, 5 * CATCHES + 1 + n
	.byte 0
	.set n, n + 1
	.endr
