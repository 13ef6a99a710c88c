/* SPDX-License-Identifier: MIT */
/* build: -nostdlib -shared */
/*
 * points-nested.S - a function that goes on behind a hundred others that begin in it, and needs for its exit
 * what one of these needs, too: the tail of the only window around with room for near jumps. Planned, and never
 * run.
 */
	.macro	FN name
	.type	\name, @function
\name:
	.endm
	.macro	END name
	.size	\name, . - \name
	.endm

	.text
FN outer
	mov	%edi, %eax
	add	$7, %eax
	push	%rbx
	.byte	0xe9
	.long	.Lrest - . - 4
	.altmacro
	.macro	INNER n
FN inner_\n
	mov	$\n, %eax
	lea	0x100(%rax, %rdi, 4), %rax
	add	$0x10000, %eax
	ret
END inner_\n
	.endm
	.set	i, 0
	.rept	100
	INNER	%i
	.set	i, i + 1
	.endr
FN roomy
	mov	$1, %eax
	.rept	23
	add	$0x12345, %eax
	.endr
	ret
END roomy
	/* It is looped back to, and takes the tail of a window of roomy's for its entry or exit. */
FN needy
	mov	$1, %eax
1:	dec	%edi
	jg	1b
	jz	2f
	add	$1, %eax
2:	xor	%edx, %edx
	ret
END needy
.Lrest:
	xor	%ecx, %ecx
	pop	%rbx
	ret
END outer
FN behind
	mov	$5, %eax
	ret
END behind
	.section .note.GNU-stack, "", @progbits
