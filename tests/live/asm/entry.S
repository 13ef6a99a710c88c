/* SPDX-License-Identifier: MIT */
/*
 * entry.S - B. What a function may begin with: jumps back to its first bytes,
 * branches, calls, operands relative to the program counter.
 */
#include "torture.inc"

	/* Loops back to the Nth byte. */
CASE t_b_back_1, ODD
	xchg %eax, %ecx
1:	inc %edi
	cmp $12, %edi
	jl 1b
	ret
END t_b_back_1

CASE t_b_back_2, ODD
	mov %edi, %eax
1:	add $3, %eax
	cmp $40, %eax
	jl 1b
	ret
END t_b_back_2

CASE t_b_back_3, ODD
	mov %rdi, %rax
1:	add $3, %eax
	cmp $40, %eax
	jl 1b
	ret
END t_b_back_3

CASE t_b_back_4, ODD
	lea 4(%rdi), %rax
1:	add $3, %eax
	cmp $40, %eax
	jl 1b
	ret
END t_b_back_4

	/* The whole function is the loop, and so are the others together. */
CASE t_b_back_0, ODD
	add $3, %edi
	cmp $40, %edi
	jl t_b_back_0
	lea 1(%rdi), %rax
	ret
END t_b_back_0

CASE t_b_back_0_wide, ODD
	lea 0x300(%rdi), %rdi
	cmp $0x1000, %edi
	jl t_b_back_0_wide
	ret
END t_b_back_0_wide

CASE t_b_back_each, ODD
	xchg %eax, %r8d
1:	cmc
2:	inc %edi
3:	rcl $1, %rax
	inc %edi
	cmp $9, %edi
	jl 1b
	cmp $12, %edi
	jl 2b
	cmp $15, %edi
	jl 3b
	ret
END t_b_back_each

	/* A branch within the window, into it and out of it. */
CASE t_b_jcc_inside, ODD
	je 1f
	cwde
1:	cltd
	lea 3(%rax), %rax
	ret
END t_b_jcc_inside

CASE t_b_jcc_outside, ODD
	jb 1f
	cwde
	cltd
	lea 3(%rax), %rax
	ret
1:	lea 4(%rax), %rax
	ret
END t_b_jcc_outside

CASE t_b_jcc_first_far, ODD
	test %edi, %edi
	je t_leaf
	lea 4(%rax), %rax
	ret
END t_b_jcc_first_far

CASE t_b_jcc_skip_ret, ODD
	jne 1f
	ret
1:	inc %eax
	ret
END t_b_jcc_skip_ret

	/* Calls in the first bytes. */
CASE t_b_call_first
	call t_callee
	lea (%rax, %r9), %rax
	ret
END t_b_call_first

CASE t_b_call_first_pointer
	call *(%rsi)
	call *SCRATCH_SECOND(%rsi)
	ret
END t_b_call_first_pointer

CASE t_b_call_last
	SAVE %rbx
	mov %rdi, %rbx
	call *(%rsi)
	mov %rbx, %rdx
	BACK %rbx
	ret
END t_b_call_last

CASE t_b_call_behind_window
	SAVE %rdx
	lea 2(%rdi), %rdi
	call t_callee
	BACK %rdx
	ret
END t_b_call_behind_window

	/* Operands relative to the program counter. */
CASE t_b_lea, ODD
	lea t_b_words(%rip), %rax
	mov (%rax, %rdi, 8), %rax
	ret
END t_b_lea

CASE t_b_lea_code, ODD
	lea t_b_lea_code(%rip), %rax
	lea 1f(%rip), %rcx
1:	ret
END t_b_lea_code

CASE t_b_mov, ODD
	mov t_b_words(%rip), %rax
	ret
END t_b_mov

CASE t_b_mov_byte, ODD
	mov t_b_words+5(%rip), %al
	movzbl t_b_words+6(%rip), %ecx
	ret
END t_b_mov_byte

CASE t_b_cmp_imm8, ODD
	cmpl $0x44, t_b_words+8(%rip)
	setb %al
	sbb %rdx, %rdx
	ret
END t_b_cmp_imm8

CASE t_b_cmp_imm32, ODD
	cmpl $0x44556677, t_b_words+8(%rip)
	setg %al
	sbb %rdx, %rdx
	ret
END t_b_cmp_imm32

CASE t_b_cmp_imm16, ODD
	cmpw $0x4455, t_b_words+8(%rip)
	setg %al
	ret
END t_b_cmp_imm16

CASE t_b_mov_imm32, ODD
	movl $0x44556677, 1f(%rip)
	mov 1f(%rip), %eax
	ret
END t_b_mov_imm32
	.pushsection .data
1:	.long 0
	.popsection

CASE t_b_vmovdqu, ODD | AVX
	vmovdqu t_b_words(%rip), %ymm3
	vpaddq t_b_words(%rip), %ymm3, %ymm3
	ret
END t_b_vmovdqu

CASE t_b_evex, ODD | AVX512
	vmovdqu64 t_b_words(%rip), %zmm17
	vpaddq t_b_words(%rip){1to8}, %zmm17, %zmm18
	ret
END t_b_evex

CASE t_b_movups, ODD
	movups t_b_words(%rip), %xmm2
	pxor t_b_aligned(%rip), %xmm2
	pshufd $0x1b, t_b_aligned(%rip), %xmm3
	ret
END t_b_movups

	/* A jump at once, forward and backward. */
CASE t_b_jmp_forward, ODD
	jmp 1f
	.byte 0x0f, 0x0b
1:	lea 5(%rdi), %rax
	ret
END t_b_jmp_forward

	.p2align 4
	CALLEE_HERE t_b_jmp_body
	lea 6(%rdi, %r8), %rax
	ret
	END t_b_jmp_body
CASE_HERE t_b_jmp_backward, ODD
	jmp t_b_jmp_body
END t_b_jmp_backward

CASE t_b_jmp_backward_own, ODD
	jmp 2f
1:	lea 5(%rdi), %rax
	ret
2:	inc %rdi
	jmp 1b
END t_b_jmp_backward_own

CASE t_b_recursion
	test %edi, %edi
	je 1f
	SAVE %rdi
	dec %edi
	call t_b_recursion
	BACK %rdi
	lea (%rdi, %rax, 2), %rax
	ret
1:	.cfi_def_cfa_offset 8
	mov %r8, %rax
	ret
END t_b_recursion

	/* Two that call each other. */
CASE t_b_even
	DOWN 8
	sub $1, %edi
	jb 1f
	call t_b_odd
1:	rcl $1, %r8
	UP 8
	ret
END t_b_even
CASE_HERE t_b_odd
	DOWN 8
	sub $1, %edi
	jb 1f
	call t_b_even
1:	rcr $1, %r8
	UP 8
	ret
END t_b_odd

	/* Everything in the window uses the stack pointer or what is below it. */
CASE t_b_stack, ODD
	push %rsp
	.cfi_adjust_cfa_offset 8
	pop %rax
	.cfi_adjust_cfa_offset -8
	sub %rsp, %rax
	push (%rsp)
	.cfi_adjust_cfa_offset 8
	pop %rcx
	.cfi_adjust_cfa_offset -8
	ret
END t_b_stack

CASE t_b_enter, ODD
	enter $32, $0
	.cfi_def_cfa %rbp, 16
	.cfi_offset %rbp, -16
	mov %r8, -8(%rbp)
	mov -8(%rbp), %rax
	leave
	.cfi_def_cfa %rsp, 8
	.cfi_restore %rbp
	ret
END t_b_enter

	/* Entered from outside behind its first instruction, as memmove is. */
CASE t_b_fall_in, ODD
	mov %rdi, %rax
t_b_fall_in_inner:
	lea 5(%rax), %rdx
	xor %rdx, %rax
	ret
END t_b_fall_in
CASE t_b_fall_in_from, ODD
	lea 0x55(%rdi), %rax
	jmp t_b_fall_in_inner
END t_b_fall_in_from
CASE t_b_fall_in_call
	lea 0x56(%rdi), %rax
	call t_b_fall_in_inner
	inc %rax
	ret
END t_b_fall_in_call

	.section .rodata
	.p2align 6
t_b_aligned:
t_b_words:
	.quad 0x1122334455667788, 0x2233445566778899, 0x33445566778899aa, 0x445566778899aabb
	.quad 0x5566778899aabbcc, 0x66778899aabbccdd, 0x778899aabbccddee, 0x8899aabbccddeeff
