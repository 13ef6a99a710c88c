/* SPDX-License-Identifier: MIT */
/*
 * image-led.S - indirect jumps that lead to more, or elsewhere, than a look at what is next to them says
 * (tests/unit/image_led.c). Never run but for main().
 */
	.macro	function name
	.p2align 4
	.globl	\name
	.type	\name, @function
\name:
	.endm

	/* Sixteen bytes each. */
	.macro	pieces
	.rept	3
	add	$1, %rsi
	add	$1, %rdx
	add	$2, %rsi
	add	$3, %rdx
	.endr
	.endm

	.text
	function main
	xor	%eax, %eax
	ret
	.size	main, . - main

	/* As compilers jump without speculation. */
	function thunk
	call	2f
1:	pause
	lfence
	jmp	1b
2:	mov	%rax, (%rsp)
	ret
	.size	thunk, . - thunk

	function fenced_thunk
	lfence
	jmp	*%rax
	.size	fenced_thunk, . - fenced_thunk

	/* Pieces that are entered in their middle. */
	function l_row
	lea	1f(%rip), %r10
	mov	%edi, %ecx
	shl	$4, %rcx
	lea	8(%r10,%rcx), %rax
	jmp	*%rax
	.p2align 4
1:	pieces
	add	$1, %rsi
	add	$1, %esi
	nop
	add	$1, %esi
	ret
	.size	l_row, . - l_row

	/* A switch, and a jump into pieces whose address counts from where another function begins. */
	function l_besides
	lea	besides(%rip), %r8
	cmp	$1, %esi
	ja	3f
	movslq	(%r8,%rsi,4), %rax
	add	%r8, %rax
	jmp	*%rax
2:	add	$1, %edi
	ret
3:	cmp	$8, %edi
	jae	4f
	lea	main(%rip), %r9
	mov	%edi, %ecx
	shl	$4, %rcx
	lea	(4f - main)(%r9,%rcx), %rax
	jmp	*%rax
	.p2align 4
4:	pieces
	add	$1, %esi
	ret
	.size	l_besides, . - l_besides

	/* The second table is found by its distance from the first, before the jump by the first. */
	function l_led_on
	lea	first(%rip), %r8
	movslq	(%r8,%rsi,4), %rax
	add	%r8, %rax
	add	$(second - first), %r8
	movslq	(%r8,%rdi,4), %rcx
	add	%r8, %rcx
	test	%edi, %edi
	js	7f
	jmp	*%rax
5:	movdqu	(%rdx), %xmm0
	jmp	6f
56:	movdqu	16(%rdx), %xmm0
6:	paddb	%xmm0, %xmm0
	jmp	*%rcx
7:	movdqu	%xmm0, 16(%rdx)
	add	$1, %edi
	inc	%edx
	inc	%edx
8:	add	$2, %edi
	ret
	.size	l_led_on, . - l_led_on

	/* Two entries of one table, both loaded before the first jump: neither jump leaves the function. */
	function l_both
	lea	both(%rip), %r9
	movslq	(%r9,%rsi,4), %r10
	movslq	8(%r9,%rcx,4), %rcx
	add	%r9, %r10
	add	%r9, %rcx
	jmp	*%r10
11:	movdqu	(%rdx), %xmm0
	jmp	*%rcx
12:	movdqu	16(%rdx), %xmm0
	jmp	*%rcx
13:	movdqu	%xmm0, 16(%rdx)
	ret
14:	movdqu	%xmm0, (%rdx)
	ret
	.size	l_both, . - l_both

	/* A function that somebody hands over, called at the end of a case: that leaves it. */
	function l_handed
	lea	handed(%rip), %r9
	movslq	(%r9,%rsi,4), %r10
	add	%r9, %r10
	jmp	*%r10
15:	add	$1, %edi
	jmp	*%rdx
16:	add	$2, %edi
	ret
	.size	l_handed, . - l_handed

	/* A case jumps into pieces, by what was computed before its switch: that jumps as \how says. */
	.macro	computed_before name, how:vararg
	function \name
	lea	1f(%rip), %r10
	mov	%edi, %ecx
	shl	$4, %rcx
	lea	8(%r10,%rcx), %rbx
	lea	\name\()_cases(%rip), %rdx
	movslq	(%rdx,%rsi,4), %rax
	add	%rdx, %rax
	\how
\name\()_1:
	add	$1, %edi
	jmp	*%rbx
\name\()_2:
	add	$2, %edi
	ret
	.p2align 4
1:	pieces
	add	$1, %rsi
	add	$1, %esi
	nop
	add	$1, %esi
	ret
	.size	\name, . - \name
	.section .rodata
	.p2align 4
\name\()_cases:
	.long	\name\()_1 - \name\()_cases, \name\()_2 - \name\()_cases
	.quad	0x7fffffff7fffffff
	.text
	.endm
	computed_before l_plain, jmp *%rax
	computed_before l_thunk, jmp thunk
	computed_before l_push, push %rax; ret
	computed_before l_replaced, push %rdi; mov %rax, (%rsp); ret
	computed_before l_fenced, jmp fenced_thunk

	.section .rodata
	.p2align 4
besides:
	.long	2b - besides, 3b - besides
	.quad	0x7fffffff7fffffff
first:	.long	5b - first, 56b - first
	.quad	0x7fffffff7fffffff
second:	.long	8b - second, 7b - second
	.quad	0x7fffffff7fffffff
both:	.long	11b - both, 12b - both, 13b - both, 14b - both
	.quad	0x7fffffff7fffffff
handed:	.long	15b - handed, 16b - handed
	.quad	0x7fffffff7fffffff
	.section .note.GNU-stack, "", @progbits
