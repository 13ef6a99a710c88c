/* SPDX-License-Identifier: MIT */
/*
 * runtime.S - G. What happens around the code: system calls at the edges of
 * windows, restartable sequences.
 */
#include "torture.inc"

CASE t_g_syscall, ODD
	mov $39, %eax
	syscall
	lea 1(%rcx), %rdx
	and $~0x100, %r11
	ret
END t_g_syscall

	/* In the first bytes, and right before the return. */
CASE t_g_syscall_first, ODD
	xchg %eax, %edi
	mov $39, %al
	movzbl %al, %eax
	syscall
	and $~0x100, %r11
	ret
END t_g_syscall_first

CASE t_g_syscall_tail
	call t_g_syscall_bare
	and $~0x100, %r11
	ret
END t_g_syscall_tail
	CALLEE t_g_syscall_bare
	mov $39, %eax
	syscall
	ret
	END t_g_syscall_bare

	/* Two in a row; the second one fails. */
CASE t_g_syscall_row, ODD
	mov $39, %eax
	syscall
	syscall
	and $~0x100, %r11
	ret
END t_g_syscall_row

	/* A system call that waits: the storm of signals interrupts and restarts it. */
CASE t_g_nanosleep, SLOW | NOCOUNT
	SAVE %rdi
	SAVE %rsi
	movq $0, SCRATCH_WORK(%rsi)
	movq $2000000, SCRATCH_WORK+8(%rsi)
	lea SCRATCH_WORK(%rsi), %rdi
	mov %rdi, %rsi
1:	mov $35, %eax
	syscall
	cmp $-4, %eax
	je 1b
	BACK %rsi
	BACK %rdi
	movq $0, SCRATCH_WORK+8(%rsi)
	xor %r11d, %r11d
	ret
END t_g_nanosleep

	/*
	 * A restartable sequence as glibc's rseq area allows it: adds to a cell, once. What it
	 * leaves is the same however often it was restarted.
	 */
CASE t_g_rseq, NOCOUNT
	mov torture_rseq_offset(%rip), %rax
	lea 1f(%rip), %rcx
5:	mov %rcx, %fs:8(%rax)
2:	mov SCRATCH_WORK(%rsi), %rdx
	lea 5(%rdx, %rdi), %rdx
	mov %rdx, SCRATCH_WORK(%rsi)
3:	movq $0, %fs:8(%rax)
	ret
	.byte 0x0f, 0xb9, 0x3d
	.long 0x53053053
4:	movq $0, SCRATCH_WORK(%rsi)
	jmp 5b
	.pushsection __rseq_cs, "aw", @progbits
	.p2align 5
1:	.long 0, 0
	.quad 2b, 3b - 2b, 4b
	.popsection
END t_g_rseq
