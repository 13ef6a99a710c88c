/* SPDX-License-Identifier: MIT */
/*
 * points-tactics.S - points that need more than the bytes around them: holes in
 * other windows, ways that lead to a point, loops back to an entry. Planned, and
 * never run.
 */
#include "points-macros.inc"

/* ------------------------------------------------------------ evicted (d') */

	/* The entry's window is long enough to have a hole in its tail. */
FN t_there
	movabs $0x1122334455667788, %rax
	mov %rdi, %rcx
	call callee
	pop %rdx
	ret
END t_there
FN_HERE t_there_next
	mov $1, %eax
	ret
END t_there_next

	/* It is made longer, since nothing jumps behind it. */
FN t_longer
	push %rbx
	mov %rdi, %rbx
	mov $5, %edi
	lea (%rdi, %rbx), %rdi
	call callee
	pop %rbx
	ret
END t_longer
FN_HERE t_longer_next
	mov $1, %eax
	ret
END t_longer_next

	/* Two near jumps in one tail. */
FN t_two_holes
	push %rbx
	mov %rdi, %rbx
	mov $5, %edi
	lea (%rdi, %rbx), %rdi
	mov $6, %esi
	mov $7, %edx
	call callee
	call *%rax
	call *%rax
	pop %rbx
	ret
END t_two_holes
FN_HERE t_two_holes_next
	mov $1, %eax
	ret
END t_two_holes_next

	/* A window that nobody wants anything of but its tail. */
FN t_fresh
	call callee
	call *%rax
	imul $3, %eax, %eax
	lea 7(%rax), %eax
	imul $5, %eax, %eax
	lea 9(%rax), %eax
	call callee
	call *%rax
	mov $1, %eax
	pop %rbx
	ret
END t_fresh
FN_HERE t_fresh_next
	mov $1, %eax
	ret
END t_fresh_next

	/* Not even that, but next door. */
FN t_next_door
	xor %eax, %eax
	ret
END t_next_door
FN_HERE t_door
	push %rbx
	mov %rdi, %rbx
	mov $5, %edi
.Ltd:	lea (%rdi, %rbx), %rdi
	imul $3, %edi, %edi
	imul $5, %edi, %edi
	dec %ecx
	jne .Ltd
	pop %rbx
	mov %edi, %eax
	ret
END t_door
	/* The same for one behind it: what is left is shared out in order. */
FN_HERE t_behind_door
	xor %eax, %eax
	ret
END t_behind_door
FN_HERE t_behind_next
	mov $1, %eax
	ret
END t_behind_next

	/* Between two that have no padding at all. */
FILL t_fill_1
FN_HERE t_alone
	xor %eax, %eax
	ret
END t_alone
FILL t_fill_2

/* ------------------------------------------------------------------- edges */

	/* Long branches to a return that nothing is before. */
FN t_ways_long
	mov %edi, %eax
	xor %edx, %edx
	test %edi, %edi
	{disp32} je .Lwl
	imul %edi, %eax
	{disp32} jmp .Lwl
	ud2
.Lwl:	ret
END t_ways_long
FN_HERE t_ways_long_next
	mov $1, %eax
	ret
END t_ways_long_next

	/* One of the ways comes from a table. */
FN t_ways_table
	mov %edi, %eax
	cmp $2, %edi
	ja .Lwt
	lea t_table(%rip), %rdx
	movslq (%rdx, %rdi, 4), %rcx
	add %rdx, %rcx
	jmp *%rcx
.Lwt1:	imul $3, %eax, %eax
	lea 7(%rax), %eax
.Lwt:	ret
END t_ways_table
FN_HERE t_ways_table_next
	mov $1, %eax
	ret
END t_ways_table_next

	/* One comes from next door. */
FN t_ways_foreign
	mov %edi, %eax
	xor %edx, %edx
	test %edi, %edi
	je .Lwf
	imul %edi, %eax
.Lwf:	ret
END t_ways_foreign
FN_HERE t_ways_door
	mov %edi, %eax
	test %eax, %eax
	je .Lwf
	lea 2(%rax), %eax
	ret
END t_ways_door

	/* Its address is stored. */
FN t_ways_stored
	mov %edi, %eax
	xor %edx, %edx
	test %edi, %edi
	je .Lws
	imul %edi, %eax
.Lws:	ret
END t_ways_stored
FN_HERE t_ways_stored_next
	mov $1, %eax
	ret
END t_ways_stored_next

	/* A call comes back to it. */
FN t_ways_return
	mov %edi, %eax
	xor %edx, %edx
	test %edi, %edi
	je .Lwr
	call callee
.Lwr:	ret
END t_ways_return
FN_HERE t_ways_return_next
	mov $1, %eax
	ret
END t_ways_return_next

/* ------------------------------------------------------------------ bypass */

	/* Back to the first instruction by a long jump, and from a part elsewhere. */
FN t_loop_far
	dec %edi
	mov %edi, %eax
	imul $3, %eax, %eax
	je .Llf_cold
	test %eax, %eax
	jne .Llf
	ret
.Llf:	{disp32} jmp t_loop_far
END t_loop_far
	.section .text.unlikely, "ax", @progbits
	.type t_loop_far.cold, @function
t_loop_far.cold:
	.cfi_startproc
.Llf_cold:
	mov $5, %edi
	jmp t_loop_far
END t_loop_far.cold
	.text

	/* It also calls itself: that is an entry. */
FN t_loop_call
	push %rbx
	mov %rdi, %rbx
	dec %edi
	mov %edi, %eax
	je .Llc
	call t_loop_call
	{disp32} jmp t_loop_call
.Llc:	pop %rbx
	ret
END t_loop_call

	/* Behind a landing pad, which the loop leaves out. */
FN t_loop_endbr
	endbr64
.Lle:	dec %edi
	mov %edi, %eax
	imul $3, %eax, %eax
	jne .Lle
	ret
END t_loop_endbr

	/* A table leads back to it. */
FN t_loop_table
	mov %edi, %eax
	dec %edi
	cmp $2, %edi
	ja .Llt
	lea t_loop_targets(%rip), %rdx
	movslq (%rdx, %rdi, 4), %rcx
	add %rdx, %rcx
	jmp *%rcx
.Llt:	imul $3, %eax, %eax
	cmp %eax, %edi
	jne t_loop_table
	ret
END t_loop_table

/* ------------------------------------------ what is free where others go on */

	/* Overwrites the flags, rax, r10 and an argument, and looks at r11. */
FN l_callee
	xor %edi, %edi
	mov $1, %eax
	mov $2, %r10d
	lea (%rdi, %r11), %rax
	ret
END l_callee

FN l_tail
	mov $7, %ecx
	jmp l_callee
END l_tail

FN l_taken
	mov $7, %ecx
	test %esi, %esi
	{disp32} je l_callee
	mov %esi, %eax
	ret
END l_taken

FN l_call
	push %rbx
	mov %rax, %rbx
	mov $1, %eax
	call l_callee
	pop %rbx
	ret
END l_call

	/* rbx is overwritten; where the load raises an exception its caller's handler finds it as it is. */
FN l_raise
	mov (%rsi), %eax
	pop %rbx
	mov $7, %ecx
	jmp l_callee
END l_raise

	/* Nobody knows where this goes. */
FN l_unknown
	push %rbx
	mov %rax, %rbx
	mov $1, %eax
	call *%rdx
	pop %rbx
	ret
END l_unknown

	.section .rodata
	.p2align 2
t_table:
	.long .Lwt1 - t_table, .Lwt - t_table, .Lwt1 - t_table
t_loop_targets:
	.long .Llt - t_loop_targets, t_loop_table - t_loop_targets, .Llt - t_loop_targets

	.data
	.p2align 3
	.quad .Lws

	.section .note.GNU-stack, "", @progbits
