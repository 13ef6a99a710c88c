/* SPDX-License-Identifier: MIT */
/*
 * exit.S - C. How a function may end: returns with little before them, shared
 * epilogues, parts far away, tail calls of all forms, and not at all.
 */
#include "torture.inc"

	/* The ret is the target of a branch just before it. */
CASE t_c_target_ret, ODD
	mov %edi, %eax
	xor %edx, %edx
	test $1, %edi
	je 1f
	imul %edi, %eax
1:	ret
END t_c_target_ret
CASE_HERE t_c_target_tight, ODD
	mov %edi, %eax
	xor %edx, %edx
	test $1, %edi
	je 1f
	imul %edi, %eax
1:	ret
END t_c_target_tight
CASE_HERE t_c_target_next, ODD
	mov %edi, %eax
	jo 1f
1:	ret
END t_c_target_next

	/* pop; ret right behind a call. */
CASE t_c_pop_ret
	SAVE %rbx
	mov %rdi, %rbx
	call t_callee
	BACK %rbx
	ret
END t_c_pop_ret
CASE_HERE t_c_ret_behind_call
	DOWN 8
	call t_callee
	UP 8
	call t_callee_second
	ret
END t_c_ret_behind_call
CASE_HERE t_c_behind_tight, ODD
	ret
END t_c_behind_tight

	/* Two returns one byte apart. */
CASE t_c_ret_ret, ODD
	mov %edi, %eax
	test $1, %edi
	je 1f
	inc %eax
	ret
1:	ret
END t_c_ret_ret
CASE_HERE t_c_ret_ret_ret, ODD
	test $2, %edi
	jne 1f
	test $1, %edi
	jne 2f
	ret
1:	ret
2:	ret
END t_c_ret_ret_ret
CASE_HERE t_c_after_rets, ODD
	lea 1(%rdi), %rax
	ret
END t_c_after_rets

	/* One epilogue, jumped to from everywhere. */
CASE t_c_shared, ODD
	SAVE %rbx
	mov %rdi, %rbx
	cmp $1, %edi
	je 1f
	inc %rbx
	cmp $3, %edi
	je 1f
	inc %rbx
	cmp $5, %edi
	je 2f
	inc %rbx
	cmp $6, %edi
	jne 3f
1:	inc %rbx
2:	mov %rbx, %rax
3:	BACK %rbx
	ret
END t_c_shared

	/* Returns in the cold part, and back from it; with a frame and without. */
CASE t_c_cold, ODD
	SAVE %rbx
	.cfi_rel_offset %rbx, 0
	mov %edi, %ebx
	test $1, %edi
	jne t_c_cold.cold
1:	lea 5(%rbx), %rax
	BACK %rbx
	.cfi_restore %rbx
	ret
END t_c_cold
	.pushsection .text.unlikely, "ax", @progbits
	.type t_c_cold.cold, @function
t_c_cold.cold:
	.cfi_startproc
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx, -16
	neg %ebx
	test $2, %edi
	je 1b
	lea 9(%rbx), %rax
	BACK %rbx
	.cfi_restore %rbx
	ret
	.cfi_endproc
	.size t_c_cold.cold, . - t_c_cold.cold
	.popsection

CASE t_c_cold_leaf, ODD
	test $1, %edi
	jne t_c_cold_leaf.cold
1:	lea 5(%rdi), %rax
	ret
END t_c_cold_leaf
	.pushsection .text.unlikely, "ax", @progbits
	.type t_c_cold_leaf.cold, @function
t_c_cold_leaf.cold:
	.cfi_startproc
	neg %edi
	test $2, %edi
	je 1b
	ret
	.cfi_endproc
	.size t_c_cold_leaf.cold, . - t_c_cold_leaf.cold
	.popsection

CASE t_c_rep_ret, ODD
	test $1, %edi
	je 1f
	inc %rax
1:	rep ret
END t_c_rep_ret

CASE t_c_bnd_ret, ODD
	inc %rax
	.byte 0xf2
	ret
END t_c_bnd_ret

CASE t_c_ret_8
	inc %rax
	ret $8
END t_c_ret_8

CASE t_c_ret_8_target
	test $1, %edi
	je 1f
	inc %rax
1:	ret $8
END t_c_ret_8_target
CASE_HERE t_c_ret_40
	ret $40
END t_c_ret_40

	/* Jumps to a ret in another block, forward and backward. */
CASE t_c_jcc_ret, ODD
	test $1, %edi
	je 2f
	test $2, %edi
	jne 1f
	inc %rax
1:	ret
2:	test $4, %edi
	je 1b
	lea 3(%rax), %rax
	jmp 1b
END t_c_jcc_ret

	/* A block of one instruction before the ret. */
CASE t_c_block_ret, ODD
	test $1, %edi
	je 1f
	test $2, %edi
	je 2f
	ret
1:	inc %eax
	ret
2:	cwde
	ret
END t_c_block_ret

	/* Tail calls. */
CASE t_c_tail_rel32
	lea 1(%rdi), %rdi
	jmp t_tail_target
END t_c_tail_rel32

CASE t_c_tail_only
	jmp t_tail_target
END t_c_tail_only

CASE t_c_tail_rel8
	lea 1(%rdi), %rdi
	jmp t_c_tail_near
END t_c_tail_rel8
CASE t_c_tail_rel8_only
	jmp t_c_tail_near
END t_c_tail_rel8_only
	CALLEE t_c_tail_near
	mov (%rsp), %r11
	lea (%r11, %rdi), %rax
	ret
	END t_c_tail_near
CASE_HERE t_c_tail_rel8_back
	jmp t_c_tail_near
END t_c_tail_rel8_back

CASE t_c_jcc_rel32
	lea 1(%rdi), %rdi
	test $1, %edi
	jne t_tail_target
	lea 4(%rdi), %rax
	ret
END t_c_jcc_rel32

	/* Two in a row, and one that is also a target. */
CASE t_c_jcc_row
	test $2, %edi
1:	jne t_tail_target
	jc t_leaf
	lea 4(%rdi), %rdi
	cmp $6, %edi
	jb 1b
	ret
END t_c_jcc_row

CASE t_c_jcc_rel8
	lea 1(%rdi), %rdi
	test $1, %edi
	jne t_c_jcc_near
	lea 4(%rdi), %rax
	ret
END t_c_jcc_rel8
	CALLEE t_c_jcc_near
	mov (%rsp), %r11
	lea (%r11, %rdi), %rax
	ret
	END t_c_jcc_near

CASE t_c_tail_rip
	lea 1(%rdi), %rdi
	jmp *t_c_pointer(%rip)
END t_c_tail_rip

CASE t_c_tail_rip_only
	jmp *t_c_pointer(%rip)
END t_c_tail_rip_only

CASE t_c_tail_rax
	mov SCRATCH_TARGET(%rsi), %rax
	lea 1(%rdi), %rdi
	jmp *%rax
END t_c_tail_rax

CASE t_c_tail_rax_popped
	SAVE %rbx
	mov SCRATCH_TARGET(%rsi), %rax
	lea 1(%rdi), %rbx
	BACK %rbx
	jmp *%rax
END t_c_tail_rax_popped

CASE t_c_tail_field
	mov SCRATCH_SELF(%rsi), %rdi
	jmp *SCRATCH_TARGET(%rdi)
END t_c_tail_field

CASE t_c_tail_notrack
	mov SCRATCH_TARGET(%rsi), %rax
	lea 1(%rdi), %rdi
	notrack jmp *%rax
END t_c_tail_notrack

CASE t_c_tail_indexed
	lea t_c_handlers(%rip), %rdx
	and $1, %edi
	jmp *(%rdx, %rdi, 8)
END t_c_tail_indexed

CASE t_c_tail_stack
	pushq SCRATCH_TARGET(%rsi)
	.cfi_adjust_cfa_offset 8
	lea 8(%rsp), %rsp
	.cfi_adjust_cfa_offset -8
	jmp *-8(%rsp)
END t_c_tail_stack

	/* A jump by a return: what is returned to is another function. */
CASE t_c_push_ret
	lea 3(%rdi), %rdi
	pushq SCRATCH_TARGET(%rsi)
	.cfi_adjust_cfa_offset 8
	ret
END t_c_push_ret

	/* No way out but away. */
CASE t_c_noreturn
	lea 1(%rdi), %rax
	test $1, %edi
	jne 1f
	lea 1(%rax), %rax
1:	jmp 2f
	.byte 0x0f, 0x0b
2:	DOWN 8
	call torture_escape
	.byte 0x0f, 0x0b
END t_c_noreturn

CASE t_c_jmp_away
	lea 1(%rdi), %rax
	jmp torture_escape
END t_c_jmp_away

	/* Left by longjmp, from one frame and from three. */
CASE t_c_longjmp
	SAVE %rbx
	.cfi_rel_offset %rbx, 0
	SAVE %rsi
	SAVE %rdi
	lea SCRATCH_WORK(%rsi), %rdi
	call _setjmp
	test %eax, %eax
	jne 1f
	mov (%rsp), %rdi
	mov 8(%rsp), %rsi
	call t_c_longjmp_one
	.byte 0x0f, 0x0b
1:	BACK %rdi
	BACK %rsi
	BACK %rbx
	.cfi_restore %rbx
	lea 3(%rax), %rax
	xor %ecx, %ecx
	xor %edx, %edx
	mov %ecx, %r8d
	mov %ecx, %r9d
	mov %ecx, %r10d
	mov %ecx, %r11d
	ret
END t_c_longjmp
	CALLEE t_c_longjmp_one
	DOWN 24
	cmp $4, %edi
	jae 1f
	lea SCRATCH_WORK(%rsi), %rdi
	mov $5, %esi
	call longjmp
1:	call t_c_longjmp_two
	END t_c_longjmp_one
	CALLEE_HERE t_c_longjmp_two
	DOWN 24
	lea SCRATCH_WORK(%rsi), %rdi
	mov $6, %esi
	call longjmp
	UP 24
	ret
	END t_c_longjmp_two

	/* Left by an exception that the callee throws; caught in throws.cc. */
CASE t_c_throw, THROWS
	SAVE %rbx
	.cfi_rel_offset %rbx, 0
	mov %rdi, %rbx
	call torture_throw
	BACK %rbx
	.cfi_restore %rbx
	ret
END t_c_throw

CASE t_c_throw_deep, THROWS
	DOWN 8
	test %edi, %edi
	je 1f
	dec %edi
	call t_c_throw_deep
	UP 8
	ret
1:	.cfi_adjust_cfa_offset 8
	call torture_throw
	UP 8
	ret
END t_c_throw_deep

	/* Through a tail call and an indirect call. */
CASE t_c_throw_tail, THROWS
	DOWN 8
	call *t_c_thrower(%rip)
	UP 8
	ret
END t_c_throw_tail
	CALLEE t_c_throw_jump
	lea 1(%rdi), %rdi
	jmp torture_throw
	END t_c_throw_jump

	/* Called by threads and processes that end in it; see driver.c. */
	.p2align 4
	.globl x_ending
	.type x_ending, @function
x_ending:
	.cfi_startproc
	SAVE %rbx
	.cfi_rel_offset %rbx, 0
	mov %rdi, %rbx
	mov %rsi, %rdi
	call *%rbx
	BACK %rbx
	.cfi_restore %rbx
	ret
	.cfi_endproc
	.size x_ending, . - x_ending

	.section .data.rel.ro, "aw", @progbits
	.p2align 3
t_c_pointer:
	.quad t_tail_target
t_c_thrower:
	.quad t_c_throw_jump
t_c_handlers:
	.quad t_tail_target, t_leaf
