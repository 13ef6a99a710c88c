/* SPDX-License-Identifier: MIT */
/* build: -nostdlib -shared */
/*
 * image-returns.S - functions of which each ends by jumping to the next one, and the last one does not return; and
 * some that go round (tests/unit/image_returns.c). Never run.
 */
	.altmacro
	.macro	LINK from, to
	.type	n_\from, @function
n_\from:
	.cfi_startproc
	inc	%edi
	jmp	n_\to
	.cfi_endproc
	.size	n_\from, . - n_\from
	.endm

	.text
	.set	number, 0
	.rept	3000
	LINK	%number, %(number + 1)
	.set	number, number + 1
	.endr
	.type	n_3000, @function
n_3000:	.cfi_startproc
	ud2
	.cfi_endproc
	.size	n_3000, . - n_3000

	/* Two that lead to each other, and to one that never returns. */
	.macro	ROUND from, to
	.type	\from, @function
\from:	.cfi_startproc
	test	%edi, %edi
	je	n_3000
	jmp	\to
	.cfi_endproc
	.size	\from, . - \from
	.endm
	ROUND	r_one, r_two
	ROUND	r_two, r_one

	.section .note.GNU-stack, "", @progbits
