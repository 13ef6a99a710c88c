/* SPDX-License-Identifier: MIT */
/* build: -nostartfiles -static -Wl,--eh-frame-hdr -Wa,--gdwarf-cie-version=3 */
/*
 * stack-lies.S - a thread blocked in a function whose unwind table does not say where it returns to,
 * which is on top of its stack. stack-lies MODE:
 *
 *   zero      the table leads to a local of the caller's, which is zero
 *   pointer   the caller's frame pointer is said to be lost
 *   register  a register is said to be in one that no processor has
 *   column    where it returns to is said to be in such a one
 *   signal    a signal's handler, whose caller is said to be that of the code that it interrupted
 */
#include <asm/unistd.h>

#define BLOCK                                                                                      \
	xor %eax, %eax /* read */;                                                                 \
	xor %edi, %edi;                                                                            \
	lea -8(%rsp), %rsi;                                                                        \
	mov $1, %edx;                                                                              \
	syscall

	.macro lies name
	.type \name, @function
\name:
	.endm

lies zero
	.cfi_startproc
	.cfi_def_cfa_offset 24
	BLOCK
	ret
	.cfi_endproc

lies pointer
	.cfi_startproc
	.cfi_undefined %rbp
	BLOCK
	ret
	.cfi_endproc

lies register
	.cfi_startproc
	/* DW_CFA_register: the third is in number 0x7fffffff */
	.cfi_escape 0x09, 0x03, 0xff, 0xff, 0xff, 0xff, 0x07
	BLOCK
	ret
	.cfi_endproc

lies column
	.cfi_startproc
	.cfi_return_column 0x0fffffff
	BLOCK
	ret
	.cfi_endproc

/* %rbp is still that of whoever was interrupted: what tables say that know of no epilogues. */
lies handler
	.cfi_startproc
	.cfi_def_cfa %rbp, 16
	.cfi_offset %rbp, -16
	BLOCK
	ret
	.cfi_endproc

	.type restore, @function
restore:
	mov $__NR_rt_sigreturn, %eax
	syscall

	.type signal, @function
signal:
	.cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	mov %rsp, %rbp
	.cfi_def_cfa_register %rbp
	mov $__NR_rt_sigaction, %eax
	mov $10, %edi /* SIGUSR1 */
	lea action(%rip), %rsi
	xor %edx, %edx
	mov $8, %r10d
	syscall
	mov $__NR_getpid, %eax
	syscall
	mov %eax, %edi
	mov $10, %esi
	mov $__NR_kill, %eax
	syscall
	pop %rbp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc

	.globl _start
	.type _start, @function
_start:
	.cfi_startproc
	.cfi_undefined %rip
	mov 16(%rsp), %rbx
	mov $__NR_write, %eax
	mov $1, %edi
	lea ready(%rip), %rsi
	mov $6, %edx
	syscall
	lea zero(%rip), %rax
	lea pointer(%rip), %rcx
	cmpb $'p', (%rbx)
	cmove %rcx, %rax
	lea register(%rip), %rcx
	cmpb $'r', (%rbx)
	cmove %rcx, %rax
	lea column(%rip), %rcx
	cmpb $'c', (%rbx)
	cmove %rcx, %rax
	lea signal(%rip), %rcx
	cmpb $'s', (%rbx)
	cmove %rcx, %rax
	sub $64, %rsp
	.cfi_def_cfa_offset 72
	movq $0, (%rsp)
	movq $0, 8(%rsp)
	call *%rax
	mov $__NR_exit_group, %eax
	xor %edi, %edi
	syscall
	.cfi_endproc
	.size _start, . - _start

	.section .rodata
ready:	.ascii "ready\n"
	.balign 8
action:	.quad handler, 0x04000000 /* SA_RESTORER */, restore, 0
	.section .note.GNU-stack, "", @progbits
