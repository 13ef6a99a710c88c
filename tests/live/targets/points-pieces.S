/* SPDX-License-Identifier: MIT */
/* build: -Wl,-z,noexecstack */
/*
 * points-pieces.S - functions that lie in each other so that planning one of them takes hours.
 * Read by tests/unit/points_pieces.c. Only main runs: it returns 0.
 *
 * `outer` is one function, and in every second byte of it is another one: it has a hundred
 * thousand pieces, and as many gaps.
 *
 * Each of the `reaching` ones goes up to the end of the section, and lacks bytes that a
 * neighbour may have: so do all those before it.
 */
	.set INNER, 100000
	.set REACHING, 30000

	.macro inner
	nop
	.type inner.\@, @function
inner.\@:
	nop
	.size inner.\@, 1
	.endm

	.macro reaching
	.type reaching.\@, @function
reaching.\@:
	push %rax
	ret
	.size reaching.\@, end - reaching.\@
	.endm

	.text
	.p2align 4
	.globl main
	.type main, @function
main:
	xor %eax, %eax
	ret
	.size main, . - main

	.p2align 4
	.globl outer
	.type outer, @function
outer:
	lea main(%rip), %rax
	.rept INNER
	inner
	.endr
	ret
	.size outer, . - outer

	.section .text.reaching, "ax", @progbits
	.rept REACHING
	reaching
	.endr
end:
