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
	/* The cases of a function that has a table, and another one, which only a distance leads to. */
	.macro	cases_of name
\name\()_1:
	add	$1, %esi
	pop	%rbx
	ret
\name\()_2:
	add	$2, %esi
\name\()_3:
	inc	%esi
	inc	%esi
	nop
\name\()_4:
	inc	%esi
	pop	%rbx
	ret
	.size	\name, . - \name
	.section .rodata
	.p2align 4
\name\()_first:
	.long	\name\()_1 - \name\()_first, \name\()_2 - \name\()_first
	.quad	0x7fffffff7fffffff
\name\()_second:
	.long	\name\()_3 - \name\()_second, \name\()_4 - \name\()_second
	.quad	0x7fffffff7fffffff
	.text
	.endm
	.macro	jump_by base
	movslq	(\base,%rdi,4), %rcx
	add	\base, %rcx
	jmp	*%rcx
	.endm

	/* A row of a table, by its number. */
	function l_rows
	push	%rbx
	lea	l_rows_first(%rip), %r8
	mov	%edx, %eax
	shl	$4, %rax
	add	%rax, %r8
	jump_by	%r8
	cases_of l_rows

	/* A call between the first table's address and the distance. */
	function l_called
	push	%rbx
	lea	l_called_first(%rip), %rbx
	call	main
	add	$(l_called_second - l_called_first), %rbx
	jump_by	%rbx
	cases_of l_called

	/* Ways that meet between them. */
	function l_joined
	push	%rbx
	lea	l_joined_first(%rip), %r8
	test	%edi, %edi
	js	1f
	jmp	2f
1:	neg	%edi
2:	add	$(l_joined_second - l_joined_first), %r8
	jump_by	%r8
	cases_of l_joined

	/* One of the two, on a condition. */
	function l_chosen
	push	%rbx
	lea	l_chosen_first(%rip), %r8
	lea	(l_chosen_second - l_chosen_first)(%r8), %r9
	test	%edi, %edi
	cmovs	%r9, %r8
	jump_by	%r8
	cases_of l_chosen

	/* The distance is added on one of two ways. */
	function l_one_way
	push	%rbx
	lea	l_one_way_first(%rip), %r8
	test	%edi, %edi
	js	1f
	add	$(l_one_way_second - l_one_way_first), %r8
1:	jump_by	%r8
	cases_of l_one_way

	/* Kept in the frame meanwhile. */
	function l_kept
	push	%rbx
	lea	l_kept_first(%rip), %r8
	add	$(l_kept_second - l_kept_first), %r8
	mov	%r8, -16(%rsp)
	call	main
	mov	-16(%rsp), %r8
	jump_by	%r8
	cases_of l_kept

	/* In a register, and in another one. */
	function l_twice
	push	%rbx
	lea	l_twice_first(%rip), %r8
	add	$(l_twice_second - l_twice_first), %r8
	mov	%r8, %r9
	movslq	(%r8,%rdi,4), %rcx
	add	%r9, %rcx
	jmp	*%rcx
	cases_of l_twice

	/* Too far above the jump for a look at its line. */
	function l_far
	push	%rbx
	lea	l_far_first(%rip), %r8
	add	$(l_far_second - l_far_first), %r8
	.rept	60
	inc	%esi
	.endr
	jump_by	%r8
	cases_of l_far

	/* Only what is added is moved, after the load: the entries count from there. */
	function l_apart
	push	%rbx
	lea	l_apart_first(%rip), %r8
	movslq	(%r8,%rdi,4), %rcx
	add	$(l_apart_3 - l_apart_1), %r8
	add	%r8, %rcx
	jmp	*%rcx
	cases_of l_apart

	/* Handed over. */
	function l_given
	push	%rbx
	lea	l_given_first(%rip), %r9
	jump_by	%r8
	cases_of l_given

	/* An entry of the second table, whose offsets count from the first: a displacement leads there. */
	function l_beyond
	push	%rbx
	lea	l_beyond_first(%rip), %r8
	movslq	(beyond - l_beyond_first)(%r8,%rdi,4), %rcx
	add	%r8, %rcx
	jmp	*%rcx
	cases_of l_beyond
	.section .rodata
beyond:	.long	l_beyond_3 - l_beyond_first, l_beyond_4 - l_beyond_first
	.quad	0x7fffffff7fffffff
	.text

	/* ... in front of the first, at half of an entry, or from a register that has nothing but the first. */
	function l_in_front
	push	%rbx
	lea	l_in_front_second(%rip), %r8
	movslq	-16(%r8,%rdi,4), %rcx
	add	%r8, %rcx
	jmp	*%rcx
	cases_of l_in_front

	function l_half
	push	%rbx
	lea	l_half_first(%rip), %r8
	movslq	2(%r8,%rdi,4), %rcx
	add	%r8, %rcx
	jmp	*%rcx
	cases_of l_half

	function l_beyond_loop
	lea	l_beyond_loop_first(%rip), %r8
1:	dec	%esi
	jnz	1b
	movslq	(l_beyond_loop_second - l_beyond_loop_first)(%r8,%rdi,4), %rcx
	add	%r8, %rcx
	jmp	*%rcx
	cases_of l_beyond_loop

	/* Between the load and the sum comes a way that has loaded what nobody has read. */
	function l_other_way
	push	%rbx
	lea	l_other_way_first(%rip), %r8
	movslq	(%rdx,%rdi,4), %rcx
	test	%edi, %edi
	js	1f
	movslq	(%r8,%rdi,4), %rcx
1:	add	%r8, %rcx
	jmp	*%rcx
	cases_of l_other_way

	/* ... by a case of another switch, after which the sum is made. */
	function l_other_case
	push	%rbx
	lea	l_other_case_first(%rip), %r8
	lea	l_other_case_cases(%rip), %r9
	movslq	(%rdx,%rdi,4), %rcx
	movslq	(%r9,%rsi,4), %rax
	add	%r9, %rax
	jmp	*%rax
l_other_case_5:
	movslq	(%r8,%rdi,4), %rcx
l_other_case_6:
	add	%r8, %rcx
	jmp	*%rcx
	cases_of l_other_case
	.section .rodata
	.p2align 4
l_other_case_cases:
	.long	l_other_case_5 - l_other_case_cases, l_other_case_6 - l_other_case_cases
	.quad	0x7fffffff7fffffff
	.text

	/* By both ways it is an entry of the table. */
	function l_same_way
	push	%rbx
	lea	l_same_way_first(%rip), %r8
	movslq	4(%r8), %rcx
	test	%edi, %edi
	js	1f
	movslq	(%r8,%rdi,4), %rcx
1:	add	%r8, %rcx
	jmp	*%rcx
	cases_of l_same_way

	/* Before a switch, one of whose cases jumps by it: \how is done on one of two ways. */
	.macro	led_before name, how:vararg
	function \name
	push	%rbx
	lea	\name\()_first(%rip), %r8
	test	%edi, %edi
	js	1f
	\how
1:	lea	\name\()_cases(%rip), %rdx
	movslq	(%rdx,%rsi,4), %rax
	add	%rdx, %rax
	jmp	*%rax
\name\()_5:
	add	$1, %esi
	jump_by	%r8
	cases_of \name
	.section .rodata
	.p2align 4
\name\()_cases:
	.long	\name\()_1 - \name\()_cases, \name\()_5 - \name\()_cases
	.quad	0x7fffffff7fffffff
	.text
	.endm
	led_before l_before, add $(l_before_second - l_before_first), %r8
	led_before l_no_more, add $3, %edi

	/* A loop, above which the address is computed; one of the cases has another switch, and uses the register. */
	function l_hoisted
	push	%rbx
	lea	hoisted(%rip), %rbx
1:	call	main
	movslq	(%rbx,%rdi,4), %rcx
	add	%rbx, %rcx
	jmp	*%rcx
21:	sub	$5, %edi
	jmp	1b
22:	lea	inner(%rip), %rdx
	lea	1(%rdi), %rbx
	movslq	(%rdx,%rsi,4), %rax
	add	%rdx, %rax
	jmp	*%rax
23:	add	%ebx, %esi
24:	pop	%rbx
	ret
	.size	l_hoisted, . - l_hoisted

	/* The address of the jump is put aside; it counts from where another function begins, beside a switch. */
	function l_aside
	cmp	$1, %esi
	ja	3f
	lea	aside(%rip), %r8
	movslq	(%r8,%rsi,4), %rax
	add	%r8, %rax
	jmp	*%rax
25:	add	$1, %edi
	ret
3:	lea	main(%rip), %r9
	mov	%edi, %ecx
	shl	$4, %rcx
	lea	(4f - main)(%r9,%rcx), %rax
	mov	%rax, -16(%rsp)
	cmp	$8, %edi
	jae	4f
	jmp	*-16(%rsp)
	.p2align 4
4:	pieces
	add	$1, %esi
	ret
	.size	l_aside, . - l_aside

	/* The same, step by step. */
	function l_stepped
	lea	main(%rip), %rax
	lea	(2f - main)(%rax), %rax
1:	add	$16, %rax
	dec	%edi
	jnz	1b
	jmp	*%rax
	.p2align 4
2:	pieces
	pieces
	add	$1, %esi
	ret
	.size	l_stepped, . - l_stepped

	/* ... or from a table that a distance leads to. */
	function l_led_aside
	push	%rbx
	lea	l_led_aside_first(%rip), %r8
	add	$(l_led_aside_second - l_led_aside_first), %r8
	movslq	(%r8,%rdi,4), %rcx
	add	%r8, %rcx
	mov	%rcx, -16(%rsp)
	jmp	*-16(%rsp)
	cases_of l_led_aside

	/* One of two ways to a jump comes by such a table. */
	function l_led_way
	push	%rbx
	lea	l_led_way_first(%rip), %r8
	add	$(l_led_way_second - l_led_way_first), %r8
	movslq	(%r8,%rdi,4), %rcx
	add	%r8, %rcx
	test	%edx, %edx
	js	1f
	lea	l_led_way_first(%rip), %r9
	movslq	(%r9,%rdi,4), %rcx
	add	%r9, %rcx
1:	jmp	*%rcx
	cases_of l_led_way

	/* A table of its own, or that of whoever jumps into its middle. */
	.macro	shared_by name, distance
	function \name
	lea	\name\()_first(%rip), %r8
	test	%edi, %edi
	js	1f
	mov	$1, %eax
	ret
1:	nop
\name\()_middle:
	.rept	\distance
	nop
	.endr
	movslq	(%r8,%rsi,4), %rax
	add	%r8, %rax
	jmp	*%rax
	cases_of \name

	function \name\()_from
	lea	\name\()_first(%rip), %r8
	add	$(\name\()_second - \name\()_first), %r8
	.byte	0xe9
	.long	\name\()_middle - . - 4
	.size	\name\()_from, . - \name\()_from
	.endm

	shared_by l_shared, 0
	shared_by l_shared_below, 60

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
aside:	.long	25b - aside, 25b - aside
	.quad	0x7fffffff7fffffff
hoisted:
	.long	21b - hoisted, 22b - hoisted
	.quad	0x7fffffff7fffffff
inner:	.long	23b - inner, 24b - inner
	.quad	0x7fffffff7fffffff
handed:	.long	15b - handed, 16b - handed
	.quad	0x7fffffff7fffffff
	.section .note.GNU-stack, "", @progbits
