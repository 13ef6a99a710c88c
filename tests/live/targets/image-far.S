/* SPDX-License-Identifier: MIT */
/* build: -nostdlib -shared */
/*
 * image-far.S - a library of more code than is scanned in one piece (1 MiB): a jump lies across two
 * pieces; and an address within a function that is stored by the function's name. Never run.
 */
	.set	PIECE, 1 << 20

	.text
	.globl	led_into
	.type	led_into, @function
led_into:
	push	%rbx
	mov	%rdi, %rbx
.Lfar:	add	$1, %rbx	/* 4 bytes from the start */
.Lnamed:
	add	$2, %rbx	/* 8 */
	pop	%rbx
	ret
	.size	led_into, . - led_into

	.org	PIECE - 16, 0x90
	.globl	across
	.type	across, @function
across:
	.rept	14
	nop
	.endr
	{disp32} jmp .Lfar
	.size	across, . - across

	.data
	.p2align 3
	.quad	led_into + 8

	.section .note.GNU-stack, "", @progbits
