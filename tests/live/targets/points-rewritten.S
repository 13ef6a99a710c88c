/* SPDX-License-Identifier: MIT */
/* build: -nostdlib -no-pie -Wl,-e,absent */
/*
 * points-rewritten.S - direct jumps, branches and calls that lead to where the file has no code. Planned, and never
 * run.
 */
	.macro	FN name
	.balign	16
	.globl	\name
	.type	\name, @function
\name:
	.cfi_startproc
	.endm
	.macro	END name
	.cfi_endproc
	.size	\name, . - \name
	.endm
	.macro	LEAD to opcode:vararg
	.byte	\opcode
	.long	\to - . - 4
	.endm

	.text
	/* What a static program has not is called at 0, behind a test. Compilers make that, and none of these is reached. */
FN absent
	mov	$0, %eax
	test	%rax, %rax
	je	1f
	LEAD	0, 0xe8
1:	mov	%edi, %eax
	add	$1, %eax
	jne	2f
	LEAD	0, 0xe9
2:	ret
END absent

	/* Nobody's compiler has made these. */
FN jumps
	mov	$7, %eax
	add	%edi, %eax
	LEAD	0x4000000, 0xe9
	ret
END jumps
FN branches
	mov	$7, %eax
	add	%edi, %eax
	LEAD	0x4000000, 0x0f, 0x84
	add	$1, %eax
	add	$2, %eax
	ret
END branches
FN calls
	mov	$7, %eax
	add	%edi, %eax
	LEAD	0x4000000, 0xe8
	add	$1, %eax
	add	$2, %eax
	ret
END calls

	/* That what does so is in the middle of an instruction, and nobody comes there, changes nothing. */
FN hidden
	mov	%edi, %eax
	add	$1, %eax
	movabs	$0x12345678e9, %rcx
	add	$2, %eax
	add	$3, %eax
	ret
END hidden
	.section .note.GNU-stack, "", @progbits
