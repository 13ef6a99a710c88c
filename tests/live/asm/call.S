/* SPDX-License-Identifier: MIT */
/*
 * call.S - calls a case with every register set, on a stack of its own, and
 * writes down every register afterwards. Owns the functions that the cases call.
 */
#include "torture.inc"

	/* struct call, see driver.h */
#define C_SAVED 0
#define C_GPR 8
#define C_FLAGS 136
#define C_RSP 144
#define C_MASK 152
#define C_XIN 160
#define C_XOUT 168
#define C_OUT 176
#define C_OUT_FLAGS 304
#define C_TOP 312

	/* CFA = the saved rsp, found at the top of this stack of 65536 bytes, + 64. */
#define ON_TEST_STACK \
	.cfi_escape 0x0f, 15, 0x77, 0, 0x0d, 0, 0, 0xff, 0xff, 0x1a, 0x0a, 0xf8, 0xff, 0x22, 0x06, 0x23, 0x40

	/* void torture_call(struct call *) */
	.p2align 4
	.globl torture_call
	.type torture_call, @function
torture_call:
	.cfi_startproc
	SAVE %rbp
	.cfi_rel_offset %rbp, 0
	SAVE %rbx
	.cfi_rel_offset %rbx, 0
	SAVE %r12
	.cfi_rel_offset %r12, 0
	SAVE %r13
	.cfi_rel_offset %r13, 0
	SAVE %r14
	.cfi_rel_offset %r14, 0
	SAVE %r15
	.cfi_rel_offset %r15, 0
	DOWN 8
	stmxcsr (%rsp)
	fnstcw 4(%rsp)
	mov %rdi, %fs:torture_current@tpoff
	mov %rsp, C_SAVED(%rdi)
	mov C_TOP(%rdi), %rax
	mov %rsp, (%rax)
	mov C_MASK(%rdi), %eax
	mov C_MASK+4(%rdi), %edx
	mov C_XIN(%rdi), %rcx
	xrstor64 (%rcx)
	.cfi_remember_state
	mov C_RSP(%rdi), %rsp
	ON_TEST_STACK
	pushq C_FLAGS(%rdi)
	popfq
	mov C_GPR(%rdi), %rax
	mov C_GPR+8(%rdi), %rcx
	mov C_GPR+16(%rdi), %rdx
	mov C_GPR+24(%rdi), %rbx
	mov C_GPR+40(%rdi), %rbp
	mov C_GPR+48(%rdi), %rsi
	mov C_GPR+64(%rdi), %r8
	mov C_GPR+72(%rdi), %r9
	mov C_GPR+80(%rdi), %r10
	mov C_GPR+88(%rdi), %r11
	mov C_GPR+96(%rdi), %r12
	mov C_GPR+104(%rdi), %r13
	mov C_GPR+112(%rdi), %r14
	mov C_GPR+120(%rdi), %r15
	mov C_GPR+56(%rdi), %rdi
	call *%fs:torture_function@tpoff
	.globl torture_back
torture_back:
	mov %rsp, %fs:torture_rsp@tpoff
	mov %rax, %fs:torture_rax@tpoff
	mov %fs:torture_current@tpoff, %rax
	mov %rcx, C_OUT+8(%rax)
	mov %rdx, C_OUT+16(%rax)
	mov %rbx, C_OUT+24(%rax)
	mov %rbp, C_OUT+40(%rax)
	mov %rsi, C_OUT+48(%rax)
	mov %rdi, C_OUT+56(%rax)
	mov %r8, C_OUT+64(%rax)
	mov %r9, C_OUT+72(%rax)
	mov %r10, C_OUT+80(%rax)
	mov %r11, C_OUT+88(%rax)
	mov %r12, C_OUT+96(%rax)
	mov %r13, C_OUT+104(%rax)
	mov %r14, C_OUT+112(%rax)
	mov %r15, C_OUT+120(%rax)
	mov C_SAVED(%rax), %rsp
	.cfi_restore_state
	mov %rax, %rdi
	pushfq
	.cfi_adjust_cfa_offset 8
	mov (%rsp), %rax
	mov %rax, C_OUT_FLAGS(%rdi)
	/* Neither the trap flag nor the direction flag nor alignment checks go on. */
	andq $~0x40500, (%rsp)
	popfq
	.cfi_adjust_cfa_offset -8
	mov %fs:torture_rax@tpoff, %rax
	mov %rax, C_OUT(%rdi)
	mov %fs:torture_rsp@tpoff, %rax
	mov %rax, C_OUT+32(%rdi)
	mov C_MASK(%rdi), %eax
	mov C_MASK+4(%rdi), %edx
	mov C_XOUT(%rdi), %rcx
	xsave64 (%rcx)
	fninit
	fldcw 4(%rsp)
	vzeroupper
	ldmxcsr (%rsp)
	UP 8
	BACK %r15
	.cfi_restore %r15
	BACK %r14
	.cfi_restore %r14
	BACK %r13
	.cfi_restore %r13
	BACK %r12
	.cfi_restore %r12
	BACK %rbx
	.cfi_restore %rbx
	BACK %rbp
	.cfi_restore %rbp
	ret
	.cfi_endproc
	.size torture_call, . - torture_call

	/* Never returns: ends the case from any depth of its calls. */
	.p2align 4
	.globl torture_escape
	.type torture_escape, @function
torture_escape:
	.cfi_startproc
	jmp torture_back
	.cfi_endproc
	.size torture_escape, . - torture_escape

	/* void torture_settle(struct call *): the control words of C, after an exception. */
	.p2align 4
	.globl torture_settle
	.type torture_settle, @function
torture_settle:
	.cfi_startproc
	mov C_SAVED(%rdi), %rax
	fninit
	fldcw 4(%rax)
	vzeroupper
	ldmxcsr (%rax)
	pushfq
	.cfi_adjust_cfa_offset 8
	andq $~0x40500, (%rsp)
	popfq
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.size torture_settle, . - torture_settle

	.p2align 4
	.globl torture_untrace
	.type torture_untrace, @function
torture_untrace:
	.cfi_startproc
	pushfq
	.cfi_adjust_cfa_offset 8
	andq $~0x100, (%rsp)
	popfq
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.size torture_untrace, . - torture_untrace

/* ------------------------------------------------- what the cases call */

	/* Leaves its return address in r9: it must be the caller's own. */
CALLEE t_callee
	mov (%rsp), %r9
	MIX %rdi
	lea 0x1234(%r8), %rax
	ret
END t_callee

CALLEE t_callee_second
	mov (%rsp), %r10
	add %r10, %r8
	adc $5, %rax
	ret
END t_callee_second

CALLEE t_tail_target
	mov (%rsp), %r11
	MIX %r11
	MIXFLAGS
	ret
END t_tail_target

	/* Tail calls reach it with a short jump or not at all: far from everything else. */
CALLEE t_leaf
	lea 7(%r8, %rdi), %rax
	ret
END t_leaf
