/* SPDX-License-Identifier: MIT */
/*
 * calls.S - D. Calls: direct, prefixed, through every kind of operand, to the
 * next instruction, to what returns twice. The callees leave their return
 * addresses in r9 and r10.
 */
#include "torture.inc"

CASE t_d_direct
	DOWN 8
	call t_callee
	lea 1(%rdi), %rdi
	call t_callee
	call t_callee_second
	UP 8
	ret
END t_d_direct

	/* The form in which compilers call __tls_get_addr. */
CASE t_d_prefixed
	DOWN 8
	lea 1(%rdi), %rdi
	.byte 0x66, 0x66, 0x48
	call t_callee
	lea 1(%rdi), %rdi
	UP 8
	ret
END t_d_prefixed

CASE t_d_rex
	DOWN 8
	.byte 0x48
	call t_callee
	.byte 0xf2
	call t_callee_second
	UP 8
	ret
END t_d_rex

CASE t_d_get_pc, ODD
	call 1f
1:	.cfi_adjust_cfa_offset 8
	BACK %rdx
	lea 2(%rdx), %rax
	ret
END t_d_get_pc

	/* The same at a distance, as code that shares it has it. */
CASE t_d_get_pc_far, ODD
	call 2f
1:	.cfi_adjust_cfa_offset 8
	BACK %rdx
	lea 2(%rdx), %rax
	ret
2:	lea 1(%rcx), %rcx
	jmp 1b
END t_d_get_pc_far

	/* Calls the function that begins behind the call, which returns to its own beginning. */
CASE t_d_next
	lea 1(%rdi), %rdi
	call t_d_next_to
END t_d_next
CASE_HERE t_d_next_to
	lea 3(%rdi), %rax
	MIX %rax
	ret
END t_d_next_to

CASE t_d_rip
	DOWN 8
	call *t_d_pointer(%rip)
	lea 1(%rdi), %rdi
	call *t_d_pointer(%rip)
	UP 8
	ret
END t_d_rip

	/* What the linker makes of such a call. */
CASE t_d_addr32
	DOWN 8
	.byte 0x67
	call t_callee
	UP 8
	ret
END t_d_addr32

CASE t_d_rax
	DOWN 8
	mov (%rsi), %rax
	call *%rax
	mov (%rsi), %rax
	lea 1(%rdi), %rdi
	call *%rax
	UP 8
	ret
END t_d_rax

CASE t_d_r12
	DOWN 8
	mov SCRATCH_SECOND(%rsi), %r12
	lea 2(%rdi), %rdi
	call *%r12
	call *%r12
	notrack call *%r12
	UP 8
	ret
END t_d_r12

CASE t_d_field
	DOWN 8
	mov %rsi, %rax
	call *SCRATCH_SECOND(%rax)
	lea 1(%rdi), %rdi
	mov %rsi, %r13
	call *(%r13)
	mov %rsi, %r12
	call *(%r12)
	lea -0x200(%rsi), %r11
	call *0x200(%r11)
	UP 8
	ret
END t_d_field

CASE t_d_indexed
	DOWN 8
	mov %edi, %eax
	and $1, %eax
	call *(%rsi, %rax, 8)
	mov %edi, %ecx
	and $1, %ecx
	lea t_d_table(%rip), %rdx
	call *(%rdx, %rcx, 8)
	UP 8
	ret
END t_d_indexed

	/* Operands on the stack: relative to rsp as it is before the push. */
CASE t_d_stack
	DOWN 24
	mov (%rsi), %rax
	mov %rax, (%rsp)
	lea 2(%rdi), %rdi
	call *(%rsp)
	UP 24
	ret
END t_d_stack

CASE t_d_stack_indexed
	DOWN 40
	mov SCRATCH_SECOND(%rsi), %rax
	mov %edi, %ecx
	and $1, %ecx
	mov %rax, 16(%rsp, %rcx, 8)
	mov %rcx, %rax
	call *16(%rsp, %rax, 8)
	mov SCRATCH_CALLEE(%rsi), %rax
	mov %rax, 8(%rsp)
	call *8(%rsp)
	UP 40
	ret
END t_d_stack_indexed

CASE t_d_stack_far
	DOWN 280
	mov SCRATCH_SECOND(%rsi), %rax
	mov %rax, 120(%rsp)
	mov %rax, 124+12(%rsp)
	mov %rax, 264(%rsp)
	call *120(%rsp)
	call *124+12(%rsp)
	call *264(%rsp)
	UP 280
	ret
END t_d_stack_far

	/* Behind the stack pointer, in the red zone: what the call itself is about to overwrite. */
CASE t_d_stack_below
	mov (%rsi), %rax
	mov %rax, -8(%rsp)
	lea 2(%rdi), %rdi
	call *-8(%rsp)
	ret
END t_d_stack_below

	/* Relative to fs, as in thread-local storage. */
CASE t_d_segment
	DOWN 8
	mov (%rsi), %rax
	mov %rax, %fs:torture_slot@tpoff
	lea 1(%rdi), %rdi
	call *%fs:torture_slot@tpoff
	UP 8
	ret
END t_d_segment

	/* What is behind the call is jumped to as well. */
CASE t_d_joined
	DOWN 8
	mov (%rsi), %rbx
	xor %r12d, %r12d
	call *%rbx
1:	inc %r12d
	cmp $10, %r12d
	jne 1b
	UP 8
	ret
END t_d_joined

CASE t_d_landing
	DOWN 8
	test $1, %edi
	jne 1f
	call t_callee
1:	lea 1(%rdi), %rdi
	test $2, %edi
	je 2f
	call *(%rsi)
2:	UP 8
	ret
END t_d_landing

	/* The call is itself a target. */
CASE t_d_target
	DOWN 8
	xor %ebx, %ebx
1:	call t_callee
	inc %ebx
	cmp $3, %ebx
	jb 1b
2:	call *(%rsi)
	inc %ebx
	cmp $7, %ebx
	jb 2b
	UP 8
	ret
END t_d_target

	/* Call behind call: there is nothing before the second. */
CASE t_d_row
	DOWN 8
	mov (%rsi), %rbx
	mov SCRATCH_SECOND(%rsi), %r12
	call *%rbx
	call *%rbx
	call *%r12
	call *%rbx
	UP 8
	ret
END t_d_row

	/* Registers that the ABI gives to the callee are kept by these. */
CASE t_d_own_rules
	DOWN 8
	lea 1(%rdi), %r11
	lea 2(%rdi), %rcx
	call t_d_own
	lea (%r11, %rcx), %rax
	sbb %rdx, %rdx
	UP 8
	ret
END t_d_own_rules
	CALLEE t_d_own
	stc
	ret
	END t_d_own

	/* Returns twice. */
CASE t_d_setjmp
	SAVE %rbx
	.cfi_rel_offset %rbx, 0
	SAVE %rsi
	SAVE %rdi
	lea SCRATCH_WORK(%rsi), %rdi
	xor %ebx, %ebx
	call _setjmp
	lea 1(%rax, %rbx), %rbx
	cmp $4, %eax
	ja 1f
	mov 8(%rsp), %rdi
	lea SCRATCH_WORK(%rdi), %rdi
	lea 1(%rax), %esi
	call longjmp
1:	BACK %rdi
	BACK %rsi
	BACK %rbx
	.cfi_restore %rbx
	xor %ecx, %ecx
	xor %edx, %edx
	mov %ecx, %r8d
	mov %ecx, %r9d
	mov %ecx, %r10d
	mov %ecx, %r11d
	ret
END t_d_setjmp

	/* The child comes out of it first, on the same stack. */
CASE t_d_vfork, SLOW
	SAVE %rbx
	.cfi_rel_offset %rbx, 0
	SAVE %rsi
	SAVE %rdi
	call vfork
	test %eax, %eax
	jne 1f
	xor %edi, %edi
	call _exit
	.byte 0x0f, 0x0b
1:	BACK %rdi
	BACK %rsi
	BACK %rbx
	.cfi_restore %rbx
	jmp t_d_reap
END t_d_vfork

	/* The child comes out of it with another stack. */
CASE t_d_clone, SLOW
	SAVE %rsi
	SAVE %rdi
	mov $56, %eax
	lea -4096(%rsi), %rsi
	mov $0x4100 | 17, %edi
	xor %edx, %edx
	xor %r10d, %r10d
	xor %r8d, %r8d
	syscall
	test %eax, %eax
	jne 1f
	mov $60, %eax
	xor %edi, %edi
	syscall
	.byte 0x0f, 0x0b
1:	BACK %rdi
	BACK %rsi
	jmp t_d_reap
END t_d_clone

	/* Waits for the child in eax; leaves nothing of it. */
	CALLEE t_d_reap
	SAVE %rsi
	SAVE %rdi
	mov %eax, %edi
	mov $61, %eax
	lea SCRATCH_WORK(%rsi), %rsi
	mov $0x40000000, %edx
	xor %r10d, %r10d
	syscall
	cmp %edi, %eax
	sete %al
	movzbl %al, %eax
	BACK %rdi
	BACK %rsi
	xor %ecx, %ecx
	xor %edx, %edx
	mov %ecx, %r8d
	mov %ecx, %r9d
	mov %ecx, %r10d
	mov %ecx, %r11d
	ret
	END t_d_reap

	.section .data.rel.ro, "aw", @progbits
	.p2align 3
t_d_pointer:
	.quad t_callee
t_d_table:
	.quad t_callee, t_callee_second
