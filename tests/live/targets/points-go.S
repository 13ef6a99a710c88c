/* SPDX-License-Identifier: MIT */
/* build: -no-pie -Wl,-z,noexecstack */
/*
 * points-go.S - corner cases of images whose runtime may park and look up a
 * thread at any instruction. A section that only Go's linker makes says that
 * this is one. Expectations in tests/unit/points_plan.c; only main runs.
 */
#include "points-macros.inc"

	/* More than one instruction: a pc may be parked at the second. */
FN g_two
	mov %rdi, %rax
	inc %eax
	ret
END g_two

FN g_one
	mov $1, %eax
	ret
END g_one
	.p2align 5, 0xcc

	/* There is a hole in reach, but a pc in it would be looked up in vain. */
FN_HERE g_hole
	push %rax
	inc %eax
	pop %rdx
	ret
END g_hole
	.p2align 5, 0xcc
FN_HERE g_tight
	xor %eax, %eax
	ret
END g_tight
FN_HERE g_tight_next
	mov $2, %eax
	ret
END g_tight_next

	/* A fault there becomes an exception by its address. */
FN g_nil
	movsd 8(%rax), %xmm0
	ret
END g_nil
	.p2align 5, 0xcc

FN_HERE g_stack
	movsd 8(%rsp), %xmm0
	ret
END g_stack

	.section .gopclntab, "a", @progbits
	.quad 0

	.section .note.GNU-stack, "", @progbits
