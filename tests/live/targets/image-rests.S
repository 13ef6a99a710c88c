/* SPDX-License-Identifier: MIT */
/* build: -nostdlib -shared */
/*
 * image-rests.S - functions in functions in functions, some with sizes that end within an instruction of what
 * goes on behind them, where a short jump looks like the rest of another instruction. Never run.
 */
	.macro	FN name
	.type	\name, @function
\name:
	.endm

	.text
	/* The second one in it is one byte long, it says; where the first one ends, by its size, is no instruction. */
FN a_outer
	mov	%edi, %eax
	add	$1, %eax
	ret
FN a_inner
	.size	a_inner, 18
	nopl	0(%rax, %rax, 1)
	nopl	0(%rax, %rax, 1)
FN a_short
	.size	a_short, 1
	sub	$1, %edi
	jg	a_near + 2	/* from the second byte of the sub: add %edi, disp8(%rdi) */
	lea	a_outer(%rip), %r11
	call	*%r11
	ret
	.size	a_outer, . - a_outer
FN a_near
	mov	%edi, %eax
	inc	%eax
	ret
	.size	a_near, . - a_near

	/* What is behind the innermost one is read right, up to the middle of an instruction. */
FN b_outer
	mov	%edi, %eax
	add	$1, %eax
	ret
FN b_middle
	mov	%edi, %eax
	ret
FN b_inner
	inc	%edi
	ret
	.size	b_inner, . - b_inner
	add	$0x01000000, %eax
	.size	b_middle, . - 1 - b_middle
	jg	b_near + 2	/* from the last byte of the add: add %edi, disp8(%rdi) */
	ret
	.size	b_outer, . - b_outer
FN b_near
	mov	%edi, %eax
	inc	%eax
	ret
	.size	b_near, . - b_near

	/* One alone whose size is wrong, with data in it, and the jump leads to the beginning of the function itself. */
FN c_outer
	mov	%edi, %eax
	add	$1, %eax
	ret
FN c_inner
	inc	%edi
	ret
	.byte	6		/* no instruction */
	add	$0x01000000, %eax
	.size	c_inner, . - 1 - c_inner
	jg	c_outer + 2
	ret
	.size	c_outer, . - c_outer

	/* Sizes that are right: of two functions the outer one goes on as it should. */
FN d_outer
	mov	%edi, %eax
	add	$1, %eax
	ret
FN d_inner
	inc	%edi
	ret
	.size	d_inner, . - d_inner
	add	$0x01000000, %eax
	ret
	.size	d_outer, . - d_outer

	.section .note.GNU-stack, "", @progbits
