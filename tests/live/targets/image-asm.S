/* SPDX-License-Identifier: MIT */
/* build: -nostdlib -static -no-pie -fcf-protection=none */
/*
 * image-asm.S - what assembler files do to symbol tables and unwind data: a
 * static program at fixed addresses, with labels in functions, functions in
 * functions, code without either, a table in the text, a restartable sequence.
 */
	.text

	.globl	_start
	.type	_start, @function
_start:
	.cfi_startproc
	.cfi_undefined rip
	call	outer
	movl	$60, %eax
	xorl	%edi, %edi
	syscall
	hlt
	.cfi_endproc
	.size	_start, . - _start

/* One FDE, a label in it, a global without type, a local function with a size. */
	.globl	outer
	.type	outer, @function
outer:
	.cfi_startproc
	nop
	nop
	.globl	inner_label
inner_label:
	nop
	nop
	.type	inner_function, @function
inner_function:
	nop
	ret
	.size	inner_function, . - inner_function
	nop
	ret
	.cfi_endproc
	.size	outer, . - outer

/* As clang names basic block sections: labels with unwind data of their own, and no type. */
	.globl	parted
	.type	parted, @function
parted:
	.cfi_startproc
	testl	%edi, %edi
	js.d32	parted.__part.1
	jmp.d32	parted.__part.2
	.cfi_endproc
	.size	parted, . - parted
parted.__part.1:
	.cfi_startproc
	negl	%edi
	jmp.d32	parted.__part.2
	.cfi_endproc
	.size	parted.__part.1, . - parted.__part.1
parted.__part.2:
	.cfi_startproc
	leal	1(%rdi), %eax
	ret
	.cfi_endproc
	.size	parted.__part.2, . - parted.__part.2

/* No FDE, no size: ends where the next begins. */
	.p2align 4
	.globl	bare
	.type	bare, @function
bare:
	nop
	nop
	ret

	.p2align 4
	.globl	sized
	.type	sized, @function
sized:
	call	bare
	ret
	.size	sized, . - sized

/* An FDE without a symbol. */
	.p2align 4
	.cfi_startproc
	xorl	%eax, %eax
	ret
	.cfi_endproc

/* A fragment: comes with a frame, is jumped to, has no name. */
	.p2align 4
	.globl	with_fragment
	.type	with_fragment, @function
with_fragment:
	.cfi_startproc
	pushq	%rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbx, 0
	testl	%edi, %edi
	js	.Lfragment
	popq	%rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbx
	ret
	.cfi_endproc
	.size	with_fragment, . - with_fragment

/* A table in the text. */
	.type	table, @object
table:
	.quad	0x1122334455667788
	.size	table, . - table

	.section .text.unlikely, "ax", @progbits
.Lfragment:
	.cfi_startproc
	.cfi_def_cfa_offset 16
	.cfi_offset rbx, -16
	movl	$1, %eax
	popq	%rbx
	.cfi_def_cfa_offset 8
	.cfi_restore rbx
	ret
	.cfi_endproc

/* A restartable sequence (include/uapi/linux/rseq.h). */
	.text
	.p2align 4
	.globl	sequence
	.type	sequence, @function
sequence:
	.cfi_startproc
.Lsequence_start:
	movl	$1, %eax
	movl	%eax, -8(%rsp)
.Lsequence_end:
	ret
	.long	0x53053053
.Lsequence_abort:
	jmp	.Lsequence_start
	.cfi_endproc
	.size	sequence, . - sequence

	.section __rseq_cs, "aw", @progbits
	.p2align 5
	.long	0, 0
	.quad	.Lsequence_start, .Lsequence_end - .Lsequence_start, .Lsequence_abort

/* Two names and an address in data. */
	.data
	.p2align 3
	.globl	pointers
pointers:
	.quad	inner_label + 1

	.globl	sized_too
	.set	sized_too, sized
	.section .note.GNU-stack, "", @progbits
