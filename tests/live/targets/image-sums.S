/* SPDX-License-Identifier: MIT */
/* build: -nostdlib -shared */
/*
 * image-sums.S - functions that others lead into the middle of: by an address that they change before they jump
 * there, and by tables that lie in the code or have entries of eight bytes. In each the place is that of its second
 * instruction, 2 bytes from its start, to which no label is. Never run.
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
	LED s_lea
	LED s_add
	LED s_moved
	LED s_far
	LED s_called
	LED s_kept
	LED t_code
	LED t_long
	LED t_long_code

	/* From the padding in front of it. */
FN to_lea
	lea	s_lea - 2(%rip), %r11
	lea	4(%r11), %r11
	jmp	*%r11
END to_lea

FN to_add
	lea	s_add(%rip), %rax
	test	%edi, %edi
	js	.Lout
	nop
	add	$2, %rax
	jmp	*%rax
.Lout:	ret
END to_add

	/* By other registers, and where the jump is elsewhere. */
FN to_moved
	lea	s_moved + 100(%rip), %rcx
	mov	%rcx, %rdx
	xor	%ecx, %ecx
	jmp	.Lmoved
	ud2
.Lmoved:
	sub	$98, %rdx
	jmp	*%rdx
END to_moved

	/* What is named lies in front of all code. */
FN to_far
	lea	s_far + 2 - 0x200(%rip), %r8
	lea	0x1ff(%r8), %r9
	inc	%r9
	jmp	*%r9
END to_far

	/* Who looks at the bytes of what a compiler has made has the addresses of all of them. */
FN s_read
	.cfi_startproc
	lea	1(%rdi, %rdi, 2), %rax
	ret
	.cfi_endproc
END s_read

FN reads
	lea	s_read(%rip), %rax
	movzbl	(%rax), %ecx
	inc	%rax
	movzbl	(%rax), %edx
	inc	%rax
	mov	%rax, (%rdi)
	ret
END reads

	/* Its own third instruction, by an address of another function's. */
FN s_own
	mov	%edi, %eax
	inc	%eax
	inc	%eax
	lea	s_lea(%rip), %rdx
	add	$(s_own + 4 - s_lea), %rdx
	jmp	*%rdx
END s_own

FN to_called
	lea	s_called + 1(%rip), %rbx
	call	*%rdi
	inc	%rbx
	jmp	*%rbx
END to_called

	/* A call changes what it is in: what is added then is added to something else. */
FN to_kept
	lea	s_kept + 1(%rip), %rax
	call	*%rdi
	inc	%rax
	jmp	*%rax
END to_kept

FN by_code
	lea	.Lcode(%rip), %rdx
	movslq	(%rdx, %rdi, 4), %rax
	add	%rdx, %rax
	jmp	*%rax
	.p2align 2
.Lcode:	.long	by_code - .Lcode, t_code + 2 - .Lcode
END by_code

FN by_long
	lea	.Llong(%rip), %rdx
	mov	(%rdx, %rdi, 8), %rax
	add	%rdx, %rax
	jmp	*%rax
END by_long

FN by_long_code
	lea	.Llong_code(%rip), %rdx
	mov	(%rdx, %rdi, 8), %rax
	add	%rdx, %rax
	jmp	*%rax
	.p2align 3
.Llong_code:
	.quad	by_long_code - .Llong_code, t_long_code + 2 - .Llong_code
END by_long_code

	/* Behind it is what nobody has named, where a table leads to, and from there a short branch. */
FN by_gap
	lea	.Lgap(%rip), %rdx
	movslq	(%rdx, %rdi, 4), %rax
	add	%rdx, %rax
	jmp	*%rax
END by_gap
	ud2
.Lunnamed:
	add	$1, %edi
	jne	t_gap + 2
	ret
	LED t_gap

	/* Its table lies in it, 16 bytes from its start: the upper half of the entry, 0, may lead to the table itself. */
FN t_data
	lea	.Ldata(%rip), %rdx
	mov	(%rdx, %rdi, 8), %rax
	add	%rdx, %rax
	jmp	*%rax
	.p2align 3
.Ldata:	.quad	.Lbehind - .Ldata
.Lbehind:
	mov	%edi, %eax
	inc	%eax
	ret
END t_data

	/*
	 * A table that is found by its distance from a place in another function, from which its entries count, too;
	 * beside one as a compiler makes it.
	 */
FN b_foreign
	lea	s_add + 2(%rip), %rdx
	test	%esi, %esi
	js	.Lusual
	movslq	.Lforeign - (s_add + 2)(%rdx, %rdi, 4), %rax
	add	%rdx, %rax
	jmp	*%rax
.Lusual:
	lea	.Lswitch(%rip), %rcx
	movslq	(%rcx, %rdi, 4), %rax
	add	%rcx, %rax
	jmp	*%rax
.Lfirst:
	inc	%eax
	inc	%eax
.Lsecond:
	inc	%eax
	ret
END b_foreign

	/* The same from a place of its own. */
FN b_own
	lea	.Lfrom(%rip), %rdx
	test	%esi, %esi
	js	.Lusual_own
	movslq	.Lown - .Lfrom(%rdx, %rdi, 4), %rax
	add	%rdx, %rax
	jmp	*%rax
.Lusual_own:
	lea	.Lswitch_own(%rip), %rcx
	movslq	(%rcx, %rdi, 4), %rax
	add	%rcx, %rax
	jmp	*%rax
.Lfrom:
	inc	%eax
	inc	%eax
.Lthen:
	inc	%eax
	ret
END b_own

	/* And what is no doubt: the address of another function is handed over, and a switch is one. */
FN b_usual
	lea	s_add(%rip), %rsi
	lea	.Lonly(%rip), %rcx
	movslq	(%rcx, %rdi, 4), %rax
	add	%rcx, %rax
	jmp	*%rax
.Lone:
	inc	%eax
	ret
END b_usual

	/* A row of short instructions, for somebody to come in at any of them. */
	.macro	ROW name
FN \name
	.cfi_startproc
	mov	%esi, %eax
.Lrow_\name:
	.rept	8
	add	%edi, %eax
	.endr
	ret
	.cfi_endproc
END \name
	.endm

	ROW r_jumped
	ROW r_summed
	ROW r_unnamed
	ROW r_told

FN to_jumped
	lea	.Lrow_r_jumped(%rip), %rcx
	and	$7, %edx
	lea	(%rcx, %rdx, 2), %rcx
	jmp	*%rcx
END to_jumped

	/* The row's address is made in two steps, and what is added then is not known. */
FN to_summed
	lea	r_summed - 2(%rip), %rcx
	add	$(.Lrow_r_summed - r_summed + 2), %rcx
	lea	(%rcx, %rdx, 2), %rcx
	jmp	*%rcx
END to_summed

	/* From code that no function is known to have. */
	ud2
	lea	.Lrow_r_unnamed(%rip), %rcx
	lea	(%rcx, %rdx, 2), %rcx
	jmp	*%rcx

	/* Who jumps nowhere only looks at it. */
FN tells
	lea	.Lrow_r_told(%rip), %rax
	ret
END tells

	.section .rodata
	.p2align 3
.Lown:	.long	.Lthen - .Lfrom, .Lthen - .Lfrom
.Lswitch_own:
	.long	.Lfrom - .Lswitch_own, .Lfrom - .Lswitch_own
.Lonly:	.long	.Lone - .Lonly, .Lone - .Lonly
.Lforeign:
	.long	.Lsecond - (s_add + 2), .Lsecond - (s_add + 2)
.Lswitch:
	.long	.Lfirst - .Lswitch, .Lfirst - .Lswitch
.Llong:	.quad	by_long - .Llong, t_long + 2 - .Llong
.Lgap:	.long	by_gap - .Lgap, .Lunnamed - .Lgap

	.section .note.GNU-stack, "", @progbits
