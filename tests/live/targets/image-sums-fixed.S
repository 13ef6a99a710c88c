/* SPDX-License-Identifier: MIT */
/* build: -nostdlib -no-pie */
/*
 * image-sums-fixed.S - the same as image-sums.S, where addresses are fixed, and constants of instructions. Never run.
 */
	.macro	FN name
	.p2align 4
	.type	\name, @function
\name:
	.endm
	.macro	END name
	.size	\name, . - \name
	.endm
	.macro	LED name
FN \name
	mov	%edi, %eax
	inc	%eax
	inc	%eax
	ret
END \name
	.endm

	.text
	.globl	_start
_start:	hlt
	LED s_short
	LED s_wide
	LED t_whole

FN to_short
	mov	$s_short - 2, %r11d
	add	$4, %r11d
	jmp	*%r11
END to_short

FN to_wide
	movabs	$s_wide + 20, %rcx
	sub	$18, %rcx
	jmp	*%rcx
END to_wide

FN by_whole
	mov	%edi, %edi
	mov	.Lwhole(, %rdi, 4), %eax
	jmp	*%rax
	.p2align 2
.Lwhole:
	.long	by_whole, t_whole + 2
END by_whole

	.section .note.GNU-stack, "", @progbits
