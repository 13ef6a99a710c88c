/* SPDX-License-Identifier: MIT */
/* build: -nostartfiles -static -Wl,--eh-frame-hdr */
/*
 * stack-hostile.S - a thread in a function whose unwind table never ends: the
 * expression for its frame address is a jump to itself.
 */
#include <asm/unistd.h>

	.globl _start
	.type _start, @function
_start:
	.cfi_startproc
	/* DW_CFA_def_cfa_expression, length 3, DW_OP_skip -3 */
	.cfi_escape 0x0f, 0x03, 0x2f, 0xfd, 0xff
	mov $__NR_write, %eax
	mov $1, %edi
	lea ready(%rip), %rsi
	mov $6, %edx
	syscall
1:	mov $__NR_read, %eax
	xor %edi, %edi
	lea -8(%rsp), %rsi
	mov $1, %edx
	syscall
	test %eax, %eax
	jg 1b
	mov $__NR_exit_group, %eax
	xor %edi, %edi
	syscall
	.cfi_endproc
	.size _start, . - _start

	.section .rodata
ready:	.ascii "ready\n"
	.section .note.GNU-stack, "", @progbits
