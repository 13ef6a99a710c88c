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
	/* Entries that are not the offsets themselves. */
.macro SCALED
	movslq (%rcx, %rdi, 4), %rax
	shl $2, %rax
.endm
.macro NEGATED
	movslq (%rcx, %rdi, 4), %rax
	neg %rax
.endm
.macro SHIFTED
	movslq (%rcx, %rdi, 4), %rax
	add $5, %rax
.endm
.macro MOVED_ON
	movslq (%rcx, %rdi, 4), %rax
	lea 5(%rax), %rax
.endm
.macro INVERTED
	movslq (%rcx, %rdi, 4), %rax
	not %rax
.endm
	/* The offset itself, or not, by one of the ways to the sum. */
.macro CHANGED_BY_A_WAY
	movslq (%rcx, %rdi, 4), %rax
	jmp 3f
	nop
3:	test %esi, %esi
	jne 4f
	not %rax
	jmp 1f
	nop
4:	mov %rax, %rax
	jmp 1f
	nop
1:	nop
.endm
.macro EXTENDED
	mov (%rcx, %rdi, 4), %eax
	cltq
.endm
	T_KEPT t_scaled, SCALED, nop
	T_KEPT t_negated, NEGATED, nop
	T_KEPT t_shifted, SHIFTED, nop
	T_KEPT t_moved_on, MOVED_ON, nop
	T_KEPT t_inverted, INVERTED, nop
	T_KEPT t_changed_by_a_way, CHANGED_BY_A_WAY, nop
	T_KEPT t_extended, EXTENDED, nop

	/* The offset is subtracted. */
FN t_subtracted
	and $1, %edi
	lea .Lttab14(%rip), %rcx
	movslq (%rcx, %rdi, 4), %rax
	lea .Ltsa(%rip), %rdx
	sub %rax, %rdx
	jmp *%rdx
.Ltsb:	mov $1, %eax
	mov $2, %ebx
.Ltsa:	mov $2, %eax
	ret
END t_subtracted

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

	/* A call without a call: what is called comes back behind the outer one. */
.macro CALL_THUNK
	jmp 4f
3:	THUNK
4:	call 3b
.endm
FN t_call_by_thunk
	push %rbx
	mov %edi, %ebx
	mov (%rsi), %rax
	CALL_THUNK
	add %ebx, %eax
	pop %rbx
	ret
END t_call_by_thunk

	/* The same, and a tail jump by the same piece of code. */
FN t_call_and_jump
	mov (%rsi), %rax
	test %edi, %edi
	js 3f
	sub $8, %rsp
	CALL_THUNK
	add $8, %rsp
	ret
END t_call_and_jump

	/* A switch, and a jump to where a call says that the function is, plus what somebody hands over. */
FN t_own_address
	cmp $1, %edi
	ja .Ltown
	lea .Lttab11(%rip), %rcx
	movslq (%rcx, %rdi, 4), %rax
	add %rcx, %rax
	jmp *%rax
.Lt11a:	mov $1, %eax
	ret
.Ltown:	call 1f
1:	pop %rax
	add %rsi, %rax
	jmp *%rax
.Lt11b:	mov $2, %eax
	ret
END t_own_address

	/* A return address that is changed where it is, and taken off the stack; once a whole address was there. */
FN t_own_changed
	sub $8, %rsp
	mov %rsi, (%rsp)
	call callee
	add $8, %rsp
	call 1f
1:	addq $.Ltch - 1b, (%rsp)
	pop %rax
	jmp *%rax
	mov $1, %eax
.Ltch:	mov $2, %eax
	ret
END t_own_changed

	/* The table is one of several, and its offsets count from something that is no code. */
FN t_chosen_apart
	cmp $1, %edi
	ja .Ltca
	lea .Lttab12(%rip), %rcx
	movslq (%rcx, %rdi, 4), %rax
	add %rcx, %rax
	jmp *%rax
.Lt12a:	mov $1, %eax
	ret
.Ltca:	lea .Lttab13(%rip), %rsi
	mov (%rsi, %r8, 8), %rsi
	movslq (%rsi, %rdi, 4), %rax
	lea .Lttab12(%rip), %rcx
	add %rcx, %rax
	jmp *%rax
.Lt12b:	mov $2, %eax
	ret
END t_chosen_apart

	/* An instruction inside another one, whose address is taken, is an indirect jump. */
FN t_odd
	lea .Ltodd(%rip), %rax
	mov %rax, (%rdi)
	ret
	.byte 0xb8
.Ltodd:	jmp *%rdx
	nop
	nop
	mov $2, %eax
	ret
END t_odd

	.section .rodata
	.p2align 3
.Lttab9: .long 0, .Lt9b - .Lt9a
	.long 0x7fffffff
.Lttab10: .long .Ltta - .Lttab10, .Lttb - .Lttab10
	.long 0x7fffffff
.Lttab11: .long .Lt11a - .Lttab11, .Lt11b - .Lttab11
	.long 0x7fffffff
.Lttab14: .long 0, .Ltsa - .Ltsb
	.long 0x7fffffff
.Lttab12: .long .Lt12a - .Lttab12, .Lt12b - .Lttab12
	.long 0x7fffffff
	.p2align 3
.Lttab13: .quad 0, 0
.Lttab7: .quad .Lt7a - .Lttab7, .Lt7b - .Lttab7, -1
.Lttab8: .quad .Lt8a - .Lttab8, .Lt8b - .Lttab8, -1

	.section .note.GNU-stack, "", @progbits
