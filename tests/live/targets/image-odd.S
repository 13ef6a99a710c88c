/* SPDX-License-Identifier: MIT */
/* build: -nostdlib -shared */
/*
 * image-odd.S - functions with data in them, behind which others jump to code that is read wrongly from
 * their first byte on; from there a short jump leads into the function next door, to its second instruction, 2 bytes
 * from its start. Never run.
 */
	.macro	FN name
	.type	\name, @function
\name:
	.endm
	.macro	END name
	.size	\name, . - \name
	.endm
	/* cmp $0xd8, %al; jg with a prefix, over the jump's first byte; push %rdx or what its distance is. */
	.macro	PAIR odd, near, place
FN \odd
	xor	%eax, %eax
	ret
	.long	0x7f47d83c
\place:
	jmp	\near + 2
	nop
	ret
END \odd
FN \near
	mov	%edi, %eax
	inc	%eax
	ret
END \near
	.endm

	.text
	PAIR o_odd, o_near, .Lodd
	.fill	300, 1, 0x90
FN o_jumps
	{disp32} jmp .Lodd
END o_jumps
	.fill	300, 1, 0x90

	/* What looks like a jump there is a constant. */
	PAIR c_odd, c_near, .Lchance
	.fill	300, 1, 0x90
FN c_looks
	.byte	0x48, 0xb8, 0xe9
	.long	.Lchance - . - 4
	.byte	0, 0, 0
	ret
END c_looks
	.fill	300, 1, 0x90

	/* The last instruction ends within the function behind: mov $imm32, %eax; read from its second byte, a nop. */
FN r_odd
	xor	%eax, %eax
	ret
	.long	0x7f47d83c
.Lover:	.byte	0xb8, 0x90
END r_odd
FN r_near
	lea	1(%rdi), %eax
	inc	%eax
	ret
END r_near
	.fill	300, 1, 0x90
FN r_jumps
	{disp32} jmp .Lover
END r_jumps
	.fill	300, 1, 0x90

	/* Nobody does. */
	PAIR n_odd, n_near, .Lnobody

	.section .note.GNU-stack, "", @progbits
