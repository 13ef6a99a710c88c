/* SPDX-License-Identifier: MIT */
/*
 * tables.S - F. Jumps through tables of all forms. rdi is at most 7.
 */
#include "torture.inc"

	/* As compilers write it: bounded, offsets from the table. */
CASE t_f_bounded, ODD
	mov $8, %eax
	cmp $3, %edi
	ja 9f
	lea 5f(%rip), %rdx
	mov %edi, %edi
	movslq (%rdx, %rdi, 4), %rcx
	add %rdx, %rcx
	notrack jmp *%rcx
1:	mov $1, %eax
	inc %eax
	inc %eax
2:	inc %eax
	ret
3:	mov $5, %eax
	ret
4:	mov $7, %eax
	ret
9:	mov $6, %eax
	ret
	.pushsection .rodata
	.p2align 2
5:	.long 1b - 5b, 2b - 5b, 3b - 5b, 4b - 5b
	.long 0x11111111
	.popsection
END t_f_bounded

	/* Without a bound, as __builtin_unreachable() leaves it. */
CASE t_f_unbounded, ODD
	lea 5f(%rip), %rdx
	and $3, %rdi
	movslq (%rdx, %rdi, 4), %rcx
	add %rdx, %rcx
	jmp *%rcx
1:	mov $1, %eax
	inc %eax
	inc %eax
2:	inc %eax
	ret
3:	mov $5, %eax
	ret
4:	mov $7, %eax
	ret
	.pushsection .rodata
	.p2align 2
5:	.long 1b - 5b, 2b - 5b, 3b - 5b, 4b - 5b
	.long 0x22222222
	.popsection
END t_f_unbounded

	/* The base far above, and in the loop only the jump: a byte code interpreter. */
CASE t_f_hoisted, ODD
	lea 5f(%rip), %rdx
	lea 6f(%rip), %rbx
	mov %edi, %ebp
	and $3, %ebp
	xor %eax, %eax
	.rept 12
	imul $3, %r8, %r8
	rol $5, %r8
	.endr
0:	movzbl (%rbx, %rbp), %ecx
	inc %ebp
	movslq (%rdx, %rcx, 4), %rcx
	add %rdx, %rcx
	jmp *%rcx
1:	inc %eax
	jmp 0b
2:	lea (%rax, %rax), %eax
	jmp 0b
3:	dec %eax
	jmp 0b
4:	ret
	.pushsection .rodata
	.p2align 2
5:	.long 1b - 5b, 2b - 5b, 3b - 5b, 4b - 5b
	.long 0x33333333
6:	.byte 0, 1, 0, 1, 1, 2, 0, 3
	.popsection
END t_f_hoisted

	/* Switch on a byte. */
CASE t_f_byte, ODD
	movzbl %dil, %edi
	lea 5f(%rip), %rdx
	movzbl (%rdx, %rdi), %ecx
	lea 1f(%rip), %rdx
	add %rdx, %rcx
	jmp *%rcx
1:	mov $1, %eax
	inc %eax
	inc %eax
2:	inc %eax
	ret
3:	mov $5, %eax
	ret
	.pushsection .rodata
5:	.byte 1b - 1b, 2b - 1b, 3b - 1b, 1b - 1b, 2b - 1b, 3b - 1b, 2b - 1b, 1b - 1b
	.popsection
END t_f_byte

	/* The table in the code, right behind the jump. */
CASE t_f_in_text, ODD
	lea 5f(%rip), %rdx
	and $1, %edi
	movslq (%rdx, %rdi, 4), %rcx
	add %rdx, %rcx
	jmp *%rcx
5:	.long 1f - 5b, 2f - 5b
1:	mov $1, %eax
	inc %eax
	inc %eax
2:	inc %eax
	ret
END t_f_in_text

	/* The offsets count from a label in the code. */
CASE t_f_label_base, ODD
	lea 5f(%rip), %rcx
	lea 1f(%rip), %rdx
	and $1, %edi
	movslq (%rcx, %rdi, 4), %rax
	add %rdx, %rax
	jmp *%rax
1:	mov $1, %eax
	inc %eax
	inc %eax
2:	inc %eax
	ret
	.pushsection .rodata
	.p2align 2
5:	.long 1b - 1b, 2b - 1b
	.long 0x7fffffff
	.popsection
END t_f_label_base

	/* Into an unrolled row by arithmetic: where to, only the processor knows. */
CASE t_f_computed, ODD
	lea 1f(%rip), %rdx
	neg %rdi
	lea (%rdx, %rdi, 2), %rcx
	jmp *%rcx
	inc %eax
	inc %eax
	inc %eax
	inc %eax
	inc %eax
	inc %eax
	inc %eax
1:	xchg %eax, %ecx
	inc %eax
	lea 3(%rax), %eax
	ret
END t_f_computed

	/* Labels as values: their addresses are in relocations. */
CASE t_f_goto, ODD
	lea t_f_labels(%rip), %rdx
	and $3, %edi
	jmp *(%rdx, %rdi, 8)
1:	mov $1, %eax
	inc %eax
	inc %eax
2:	inc %eax
	ret
3:	lea 1(%rdi), %edi
	jmp *(%rdx, %rdi, 8)
4:	mov $7, %eax
	ret
	.pushsection .data.rel.ro, "aw", @progbits
	.p2align 3
t_f_labels:
	.quad 1b, 2b, 3b, 4b
	.popsection
END t_f_goto

	/* A target is the second instruction of what would be the exit's window. */
CASE t_f_window, ODD
	lea 5f(%rip), %rdx
	and $3, %edi
	movslq (%rdx, %rdi, 4), %rcx
	add %rdx, %rcx
	jmp *%rcx
1:	xchg %eax, %r8d
2:	cwde
3:	cltd
4:	ret
	.pushsection .rodata
	.p2align 2
5:	.long 1b - 5b, 2b - 5b, 3b - 5b, 4b - 5b
	.long 0x44444444
	.popsection
END t_f_window

	/* The table is used from the cold part, its targets are in the hot one. */
CASE t_f_cold, ODD
	mov $8, %eax
	test $1, %edi
	jne t_f_cold.cold
1:	inc %eax
	inc %eax
2:	inc %eax
	ret
	.pushsection .text.unlikely, "ax", @progbits
	.type t_f_cold.cold, @function
t_f_cold.cold:
	.cfi_startproc
	lea 5f(%rip), %rdx
	shr $1, %edi
	and $1, %edi
	movslq (%rdx, %rdi, 4), %rcx
	add %rdx, %rcx
	jmp *%rcx
	.cfi_endproc
	.size t_f_cold.cold, . - t_f_cold.cold
	.section .rodata
	.p2align 2
5:	.long 1b - 5b, 2b - 5b
	.long 0x55555555
	.popsection
END t_f_cold

	/* A table of calls. */
CASE t_f_calls
	DOWN 8
	lea 5f(%rip), %rbx
	and $1, %edi
	call *(%rbx, %rdi, 8)
	lea 1(%rdi), %rdi
	call *(%rbx)
	UP 8
	ret
	.pushsection .data.rel.ro, "aw", @progbits
	.p2align 3
5:	.quad t_callee, t_callee_second
	.popsection
END t_f_calls

#ifdef FIXED
	/* Absolute addresses, as programs have that run where they were linked. */
CASE t_f_absolute, ODD
	cmp $3, %edi
	ja 9f
	jmp *5f(, %rdi, 8)
1:	mov $1, %eax
	inc %eax
	inc %eax
2:	inc %eax
	ret
3:	mov $5, %eax
	ret
4:	mov $7, %eax
	ret
9:	mov $6, %eax
	ret
	.pushsection .rodata
	.p2align 3
5:	.quad 1b, 2b, 3b, 4b
	.quad 0x1111111111111111
	.popsection
END t_f_absolute

CASE t_f_absolute_operand, ODD
	mov 5f(, %rdi, 8), %rax
	add $5f, %rcx
	movabs 5f, %rax
	cmpl $5, 5f
	ret
	.pushsection .rodata
	.p2align 3
5:	.quad 1, 2, 3, 4, 5, 6, 7, 8
	.popsection
END t_f_absolute_operand
#endif
