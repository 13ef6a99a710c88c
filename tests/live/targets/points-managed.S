/* SPDX-License-Identifier: MIT */
/* build: -no-pie -Wl,-z,noexecstack */
/*
 * points-managed.S - an image whose runtime makes exceptions of faults, by the address of the
 * instruction: a section that only compilers of such languages make says so.
 * Expectations in tests/unit/points_plan.c; only main runs.
 */
#include "points-macros.inc"

	/* A fault there becomes an exception by its address. */
FN n_null
	movsd 8(%rax), %xmm0
	ret
END n_null
	.p2align 5, 0xcc

FN_HERE n_stack
	movsd 8(%rsp), %xmm0
	ret
END n_stack

	.p2align 5, 0xcc

	/* Nor is a division moved. */
FN_HERE n_divides
	mov %rdi, %rax
	cqto
	idiv %rsi
	ret
END n_divides
	.p2align 5, 0xcc

	/* Where the second leads is behind a pointer, which may be null. */
FN_HERE n_calls
	push %rbx
	mov %rdi, %rbx
	lea 16(%rsi), %rdi
	call *%rax
	lea 24(%rsi), %rdi
	call *8(%rbx)
	pop %rbx
	ret
END n_calls

	.section __managedcode, "ax", @progbits
	ret

	.section .note.GNU-stack, "", @progbits
