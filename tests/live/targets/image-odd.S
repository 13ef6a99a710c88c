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

	/* The last instruction is a branch whose distance is the function behind's first byte, 3. */
FN x_odd
	xor	%eax, %eax
	ret
	.long	0x7f47d83c
.Lboth:	.byte	0x74
END x_odd
FN x_near
	.byte	3, 0xc7 /* add %edi, %eax */
	inc	%eax
	inc	%eax
	ret
END x_near
	.fill	300, 1, 0x90
FN x_jumps
	{disp32} jmp .Lboth
END x_jumps
	.fill	300, 1, 0x90

	/* Into the padding behind it, to its third byte. */
	.macro	PAD odd, place
FN \odd
	xor	%eax, %eax
	ret
	.long	0x7f47d83c
\place:
	jmp	.L\odd\()_in
	nop
	ret
END \odd
	.byte	0x90, 0x90
.L\odd\()_in:
	.fill	14, 1, 0x90
	.endm

	/* What is a return from its first byte on is mov $imm32, %eax from there, over the end into the padding. */
	.macro	OVER odd, place
FN \odd
	xor	%eax, %eax
	ret
	.long	0x7f47d83c
\place:	.byte	0xb8, 0xc3
END \odd
	.fill	16, 1, 0x90
	.endm

	/* Into code that nobody has named, and from there into the next function. */
	.macro	GAP odd, near, place
FN \odd
	xor	%eax, %eax
	ret
	.long	0x7f47d83c
\place:
	jmp	.L\odd\()_gap
	nop
	ret
END \odd
	.byte	6, 6
.L\odd\()_gap:
	jmp	\near + 2
FN \near
	mov	%edi, %eax
	inc	%eax
	ret
END \near
	.endm

	PAD p_odd, .Lpad
	.fill	300, 1, 0x90
	PAD pn_odd, .Lpad_nobody
	.fill	300, 1, 0x90
	OVER q_odd, .Lend
	.fill	300, 1, 0x90
	OVER qn_odd, .Lend_nobody
	.fill	300, 1, 0x90
	GAP g_odd, g_near, .Lgap
	.fill	300, 1, 0x90
	GAP gn_odd, gn_near, .Lgap_nobody
	.fill	300, 1, 0x90
FN p_jumps
	test	%edi, %edi
	{disp32} jz .Lpad
	{disp32} js .Lend
	{disp32} jmp .Lgap
END p_jumps
	.fill	300, 1, 0x90

	/* Its own jump, from further away than a short one reaches. */
FN w_odd
	test	%edi, %edi
	{disp32} jz .Lown
	.fill	300, 1, 0x90
	ret
	.long	0x7f47d83c
.Lown:
	jmp	w_near + 2
	nop
	ret
END w_odd
FN w_near
	mov	%edi, %eax
	inc	%eax
	ret
END w_near
	.fill	300, 1, 0x90

	/* What looks like a jump, in an operand, to what looks like one: movabs $..., %rax. */
	.macro	LOOKS name, to
FN \name
	.byte	0x48, 0xb8, 0xe9
	.long	\to + 2 - (. + 4)
	.byte	0, 0, 0
	ret
END \name
	.endm
	.macro	CHANCES last, middle, first
FN \last
	mov	%edi, %eax
	inc	%eax
	ret
END \last
	.fill	300, 1, 0x90
	LOOKS	\middle, \last
	.fill	300, 1, 0x90
	LOOKS	\first, \middle
	.fill	300, 1, 0x90
	.endm
	CHANCES	f_last, f_middle, f_first
	CHANCES	b_last, b_middle, b_first

	/* Nobody jumps there. */
	PAIR n_odd, n_near, .Lnobody

	.section .note.GNU-stack, "", @progbits
