/* SPDX-License-Identifier: MIT */
/* build: -Wl,-z,noexecstack */
/*
 * image-jumps.S - indirect jumps that do not look like those of a switch, or not
 * like jumps. Each function is a case of tests/unit/image_flow.c, which reads the
 * built file. Only main runs: it returns 0.
 */
#include "points-macros.inc"

	/* A switch of the large code model: offsets of 64 bits from the table, which is in the
	 * register that the sum replaces. */
FN t_large
	lea .Lttab7(%rip), %rdx
	and $1, %edi
	add (%rdx, %rdi, 8), %rdx
	jmp *%rdx
.Lt7a:	mov $1, %eax
	ret
.Lt7b:	mov $2, %eax
	ret
END t_large

	/* The same without optimisation. */
FN t_large_plain
	and $1, %edi
	lea 0(, %rdi, 8), %rdx
	lea .Lttab8(%rip), %rax
	mov (%rdx, %rax), %rax
	lea .Lttab8(%rip), %rdx
	add %rdx, %rax
	jmp *%rax
.Lt8a:	mov $1, %eax
	ret
.Lt8b:	mov $2, %eax
	ret
END t_large_plain

	/* Differences of labels, counted from the first of them. The second jump's table is
	 * in a register that was set long ago. */
FN t_labels
	and $1, %edi
	lea .Lttab9(%rip), %rcx
	movslq (%rcx, %rdi, 4), %rax
	lea .Lt9a(%rip), %rdx
	add %rdx, %rax
	jmp *%rax
.Lt9a:	mov $1, %eax
	and $1, %esi
	movslq (%rcx, %rsi, 4), %rax
	add %rdx, %rax
	jmp *%rax
.Lt9b:	mov $2, %eax
	ret
END t_labels

	/* Differences of labels: as a compiler jumps by them that keeps every value on the
	 * stack; and over a call. */
.macro T_KEPT name, load, keep:vararg
FN \name
	push %rbp
	mov %rsp, %rbp
	push %rbx
	and $1, %edi
	lea .Ltk\@(%rip), %rcx
	\load
	lea .Ltka\@(%rip), %rdx
	add %rdx, %rax
	\keep
	jmp *%rax
.Ltka\@:	mov $1, %eax
	mov $1, %ebx
.Ltkb\@:	mov $2, %eax
	pop %rbx
	pop %rbp
	ret
	.pushsection .rodata
	.p2align 2
.Ltk\@: .long 0, .Ltkb\@ - .Ltka\@, 0x7fffffff
	.popsection
END \name
.endm
.macro SPILL by
	mov %rax, \by
	jmp 1f
	nop
1:	mov \by, %rax
.endm
.macro PUSH_POP
	push %rax
	jmp 1f
	nop
1:	pop %rax
.endm
.macro OVER_CALL
	mov %rax, %rbx
	call callee
	mov %rbx, %rax
.endm
	/* The sum is one of two ways to the jump. */
.macro JOIN
	jmp 1f
	nop
2:	mov (%rsi), %rax
1:	test %rax, %rax
	je 2b
.endm
	T_KEPT t_spilled, <movswq (%rcx, %rdi, 2), %rax>, SPILL -16(%rbp)
	T_KEPT t_popped, <movswq (%rcx, %rdi, 2), %rax>, PUSH_POP
	T_KEPT t_called, <movswq (%rcx, %rdi, 2), %rax>, OVER_CALL
	T_KEPT t_joined, <movswq (%rcx, %rdi, 2), %rax>, JOIN
	T_KEPT t_spilled_known, <movslq (%rcx, %rdi, 4), %rax>, SPILL -16(%rbp)

	/* A switch, whose table is read; and offsets of labels that were written elsewhere. */
FN t_translated
	cmp $1, %edi
	ja .Lttb
	lea .Lttab10(%rip), %rcx
	movslq (%rcx, %rdi, 4), %rax
	add %rcx, %rax
	jmp *%rax
.Ltta:	mov $1, %eax
	ret
.Lttb:	movslq (%rsi), %rax
	lea .Lttc(%rip), %rsi
	add %rsi, %rax
	jmp *%rax
.Lttc:	mov $1, %eax
	mov $2, %eax
	ret
END t_translated

	/* Jumps without a jump: what is built against speculation. */
.macro T_GUISE name, load, jump:vararg
FN \name
	and $1, %edi
	lea .Ltg\@(%rip), %rcx
	\load
	lea .Ltga\@(%rip), %rdx
	add %rdx, %rax
	\jump
.Ltga\@:	mov $1, %eax
	ret
.Ltgb\@:	mov $2, %eax
	ret
	.pushsection .rodata
	.p2align 2
.Ltg\@: .long 0, .Ltgb\@ - .Ltga\@, 0x7fffffff
	.popsection
END \name
.endm
.macro THUNK
	call 2f
1:	pause
	lfence
	jmp 1b
2:	mov %rax, (%rsp)
	ret
.endm
.macro PUSH_RET
	push %rax
	ret
.endm
FN t_thunk
	THUNK
END t_thunk
	T_GUISE t_by_thunk, <movslq (%rcx, %rdi, 4), %rax>, jmp t_thunk
	T_GUISE t_by_return, <movslq (%rcx, %rdi, 4), %rax>, THUNK
	T_GUISE t_by_push, <movslq (%rcx, %rdi, 4), %rax>, PUSH_RET
	T_GUISE t_by_thunk_odd, <movzwl (%rcx, %rdi, 2), %eax>, jmp t_thunk
	T_GUISE t_by_return_odd, <movzwl (%rcx, %rdi, 2), %eax>, THUNK
	T_GUISE t_by_push_odd, <movzwl (%rcx, %rdi, 2), %eax>, PUSH_RET
FN t_tail_by_thunk
	mov (%rdi), %rax
	test %rsi, %rsi
	jne 1f
	ret
1:	jmp t_thunk
END t_tail_by_thunk

	.section .rodata
	.p2align 3
.Lttab9: .long 0, .Lt9b - .Lt9a
	.long 0x7fffffff
.Lttab10: .long .Ltta - .Lttab10, .Lttb - .Lttab10
	.long 0x7fffffff
	.p2align 3
.Lttab7: .quad .Lt7a - .Lttab7, .Lt7b - .Lttab7, -1
.Lttab8: .quad .Lt8a - .Lttab8, .Lt8b - .Lttab8, -1

	.section .note.GNU-stack, "", @progbits
