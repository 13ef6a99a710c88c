/* SPDX-License-Identifier: MIT */
/*
 * image-tails.S - tail calls of pointers that something was done with (tests/unit/image_tails.c). Never run but for
 * main().
 */
	.macro	function name
	.p2align 4
	.globl	\name
	.type	\name, @function
\name:
	.endm

	.text
	function main
	xor	%eax, %eax
	ret
	.size	main, . - main

	/* Tail calls: of a pointer with a tag, */
	function l_tagged
	mov	(%rdi), %rax
	cmpq	$0, 8(%rdi)
	js	1f
	and	$-8, %rax
	jmp	*%rax
1:	mov	$-1, %rax
	ret
	.size	l_tagged, . - l_tagged

	/* to somewhere behind where one leads, */
	function l_offset
	mov	(%rdi), %rax
	add	$16, %rax
	jmp	*%rax
	.size	l_offset, . - l_offset

	/* of one that is hidden, */
	function l_inverted
	mov	(%rdi), %rax
	cmp	$3, %rsi
	je	1f
	not	%rax
	jmp	*%rax
1:	mov	$7, %eax
	ret
	.size	l_inverted, . - l_inverted

	/* of one that was put aside where a sum was before, */
	function l_slot
	sub	$24, %rsp
	mov	(%rdi), %rax
	lea	8(%rsi), %rcx
	mov	%rcx, 8(%rsp)
	call	main
	mov	8(%rsp), %rsi
	mov	(%rbx), %rax
	mov	%rax, 8(%rsp)
	call	main
	mov	8(%rsp), %rax
	add	$24, %rsp
	jmp	*%rax
	.size	l_slot, . - l_slot

	/* of those that a stack of the program's own has, whose pointer is in a register that is kept, */
	function l_stack
	lea	-16(%rbp), %rax
	cmp	%r15, %rax
	jb	1f
	lea	-7(%r12), %rax
	mov	%rax, (%rbp)
	mov	%rbx, -8(%rbp)
	add	$-16, %rbp
	jmp	*(%rbx)
1:	jmp	*(%rbp)
	.size	l_stack, . - l_stack

	/* and where a module lies, or 0, and how far in it something is: so the loader calls what the vDSO has. */
	function l_summed
	push	%rbx
	mov	%rdi, %rbx
	cmpw	$-15, 6(%rsi)
	je	2f
	mov	(%rbx), %rdx
1:	add	8(%rsi), %rdx
	pop	%rbx
	jmp	*%rdx
2:	xor	%edx, %edx
	jmp	1b
	.size	l_summed, . - l_summed

	/* the same by a move, where flags are kept. */
	function l_summed_moved
	push	%rbx
	mov	%rdi, %rbx
	cmpw	$-15, 6(%rsi)
	mov	$0, %edx
	je	1f
	mov	(%rbx), %rdx
1:	add	8(%rsi), %rdx
	pop	%rbx
	jmp	*%rdx
	.size	l_summed_moved, . - l_summed_moved

	/* And switches, of which one jump is that of a pointer, too, */
	function s_joined
	cmp	$1, %edi
	ja	2f
	lea	joined(%rip), %rdx
	movslq	(%rdx,%rdi,4), %rax
	add	%rdx, %rax
	jmp	1f
2:	mov	8(%rsi), %rax
1:	jmp	*%rax
3:	mov	$1, %eax
	ret
4:	mov	$2, %eax
	ret
	.size	s_joined, . - s_joined

	/* and one puts the address aside. */
	function s_spilled
	sub	$24, %rsp
	lea	spilled(%rip), %rdx
	movslq	(%rdx,%rdi,4), %rax
	add	%rdx, %rax
	mov	%rax, 8(%rsp)
	call	main
	mov	8(%rsp), %rax
	add	$24, %rsp
	jmp	*%rax
5:	mov	$1, %eax
	ret
6:	mov	$2, %eax
	ret
	.size	s_spilled, . - s_spilled

	/* What is in memory is added to a base that is computed after the same register was loaded for something else, */
	function s_summed_base
	mov	(%rdi), %rax
	add	%rax, %rcx
	lea	7f(%rip), %rax
	add	(%rsi), %rax
	jmp	*%rax
7:	inc	%ecx
	inc	%ecx
	ret
	.size	s_summed_base, . - s_summed_base

	/* to an entry of a table, or to what is loaded whole, */
	function s_summed_entry
	cmpw	$-15, 6(%rsi)
	je	8f
	mov	(%rdi), %rdx
	jmp	9f
8:	movslq	(%rdi,%rcx,4), %rdx
9:	add	8(%rsi), %rdx
	jmp	*%rdx
	.size	s_summed_entry, . - s_summed_entry

	/* and to a number of pieces. */
	function s_summed_pieces
	mov	(%rdi), %rdx
	shl	$2, %rdx
	add	8(%rsi), %rdx
	jmp	*%rdx
	.size	s_summed_pieces, . - s_summed_pieces

	/* What is added to something elsewhere is a word by one way, but by the other one is an entry of a table, */
	function r_entry
	test	%edi, %edi
	js	1f
	movslq	(%rcx,%rdi,4), %rdx
2:	add	8(%rsi), %rdx
	jmp	*%rdx
1:	mov	(%rbx), %rdx
	jmp	2b
	.size	r_entry, . - r_entry

	/* also of one byte, and counted from a place that the function has put there; */
	function r_byte
	lea	bytes(%rip), %rcx
	lea	from(%rip), %rax
	mov	%rax, 8(%rsi)
	test	%edi, %edi
	js	1f
	movzbl	(%rcx,%rdi), %edx
2:	add	8(%rsi), %rdx
	jmp	*%rdx
1:	mov	(%rbx), %rdx
	jmp	2b
from:	inc	%eax
	inc	%eax
	ret
	.size	r_byte, . - r_byte

	/* or the word is multiplied. */
	function r_row
	lea	row(%rip), %rax
	mov	%rax, 8(%rsi)
	mov	(%rbx), %rdx
	add	%rdx, %rdx
	add	8(%rsi), %rdx
	jmp	*%rdx
row:	inc	%eax
	inc	%eax
	ret
	.size	r_row, . - r_row

	.section .rodata
bytes:	.byte	0, 2, 0, 2
	.p2align 4
joined:	.long	3b - joined, 4b - joined
	.quad	0x7fffffff7fffffff
spilled:
	.long	5b - spilled, 6b - spilled
	.quad	0x7fffffff7fffffff
	.section .note.GNU-stack, "", @progbits
