/* SPDX-License-Identifier: MIT */
/* build: -Wl,-z,noexecstack */
/*
 * points-flow.S - exits, calls and jump tables: one function
 * for each corner case of finding windows; the expectations are in
 * tests/unit/points_plan.c, which reads the built file. Only main runs: it
 * returns 0.
 */
#include "points-macros.inc"

/* ---------------------------------------------------------------- C. exit */

	/* The ret is jumped to and has padding behind. */
FN c_target_ret
	mov %edi, %eax
	xor %edx, %edx
	test %edi, %edi
	je .Lctr
	imul %edi, %eax
.Lctr:	ret
END c_target_ret

	/* The same without padding. */
FN c_target_tight
	mov %edi, %eax
	xor %edx, %edx
	test %edi, %edi
	je .Lctt
	imul %edi, %eax
.Lctt:	ret
END c_target_tight
FN_HERE c_target_next
	mov %edi, %eax
	xor %edx, %edx
	ret
END c_target_next

FN c_pop_ret
	push %rbx
	mov %rdi, %rbx
	call callee
	pop %rbx
	ret
END c_pop_ret

	/* pop; ret right behind a call, the next function right behind that. */
FN c_pop_tight
	push %rbx
	mov %rdi, %rbx
	call callee
	pop %rbx
	ret
END c_pop_tight
FN_HERE c_pop_next
	mov %rdi, %rax
	imul $5, %rax, %rax
	ret
END c_pop_next

FN c_previous
	push %rbx
	mov %edi, %eax
	lea 3(%rax), %ebx
	mov %ebx, %eax
	add $8, %eax
	pop %rbx
	ret
END c_previous

	/* Only across the branch that is not taken is there room. */
FN c_across
	mov %edi, %eax
	add $7, %eax
	test %esi, %esi
	jne .Lcac
	pop %rdx
	ret
.Lcac:	mov $1, %eax
	push %rdx
	add $8, %rsp
	ret
END c_across

FN c_two_rets
	mov %edi, %eax
	cmp $7, %edi
	je .Lc2
	lea 4(%rax), %eax
	ret
.Lc2:	lea 5(%rax), %eax
	ret
END c_two_rets

FN c_ret_ret
	mov %edi, %eax
	cmp $7, %edi
	je .Lcrr
	lea 4(%rax), %eax
	inc %eax
	ret
.Lcrr:	ret
END c_ret_ret

FN c_rep_ret
	mov %edi, %eax
	lea 9(%rax), %eax
	rep ret
END c_rep_ret

FN c_bnd_ret
	mov %edi, %eax
	lea 9(%rax), %eax
	.byte 0xf2 /* bnd */
	ret
END c_bnd_ret

FN c_ret_8
	mov %edi, %eax
	lea 9(%rax), %eax
	ret $8
END c_ret_8

FN c_jcc_tail
	mov %edi, %eax
	lea 9(%rax), %esi
	test %esi, %esi
	jne callee_far
	mov %esi, %eax
	lea 2(%rax), %eax
	ret
END c_jcc_tail

	/* The tail jump's branch is in the way of the entry: a short jump. */
FN c_jcc_entry
	test %edi, %edi
	jne callee_far
	mov %edi, %eax
	lea 2(%rax), %eax
	ret
END c_jcc_entry

	/* A conditional tail jump of two bytes has no place for its slot. */
FN c_jcc_short
	mov %edi, %eax
	lea 9(%rax), %esi
	test %esi, %esi
	jne c_jcc_short_to
	lea 2(%rsi), %eax
	ret
END c_jcc_short
FN c_jcc_short_to
	lea 3(%rdi), %eax
	lea 4(%rax), %eax
	ret
END c_jcc_short_to

FN c_tail
	lea 9(%rdi), %rdi
	mov $1, %esi
	jmp callee_far
END c_tail

	/* A wrapper: entry and exit are one instruction. */
FN c_wrapper
	jmp callee_far
END c_wrapper

FN c_tail_short
	lea 9(%rdi), %rdi
	mov $1, %esi
	jmp c_tail_short_to
END c_tail_short
FN c_tail_short_to
	lea 3(%rdi), %eax
	lea 4(%rax), %eax
	ret
END c_tail_short_to

FN c_tail_memory
	lea 9(%rdi), %rdi
	mov $1, %esi
	jmp *pointer(%rip)
END c_tail_memory

FN c_tail_register
	mov 8(%rdi), %rax
	lea 9(%rdi), %rdi
	jmp *%rax
END c_tail_register

FN c_tail_field
	mov (%rdi), %rdi
	lea 9(%rsi), %rsi
	jmp *8(%rdi)
END c_tail_field

	/* Hot and cold parts: neither jump is an exit, the cold ret is one. */
FN c_split
	mov %edi, %eax
	lea 1(%rax), %eax
	push %rbx
	.cfi_def_cfa_offset 16
	.cfi_offset 3, -16
	test %eax, %eax
	js c_split.cold
.Lcsp:	pop %rbx
	.cfi_def_cfa_offset 8
	.cfi_restore 3
	lea 5(%rax), %eax
	ret
END c_split

	.section .text.unlikely, "ax", @progbits
	.type c_split.cold, @function
c_split.cold:
	.cfi_startproc
	.cfi_def_cfa_offset 16
	.cfi_offset 3, -16
	neg %eax
	cmp $9, %eax
	jne .Lcsp
	mov $4, %eax
	pop %rbx
	ret
	.cfi_endproc
	.size c_split.cold, . - c_split.cold
	.text

FN c_noreturn
	mov %edi, %eax
	lea 1(%rax), %eax
.Lcno:	pause
	jmp .Lcno
END c_noreturn

/* --------------------------------------------------------------- D. calls */

FN d_direct
	sub $8, %rsp
	mov $1, %edi
	call callee
	mov $2, %edi
	call callee
	add $8, %rsp
	ret
END d_direct

	/* The form in which the compiler calls __tls_get_addr. */
FN d_prefixed
	sub $8, %rsp
	mov $1, %edi
	.byte 0x66, 0x66, 0x48
	call callee
	add $8, %rsp
	ret
END d_prefixed

FN d_get_pc
	mov $1, %eax
	call .Ldgp
.Ldgp:	pop %rdx
	mov $2, %eax
	ret
END d_get_pc

FN d_next
	sub $8, %rsp
	mov $1, %edi
	call d_next_to
END d_next
FN_HERE d_next_to
	mov $3, %eax
	add $8, %rsp
	ret
END d_next_to

FN d_memory
	sub $8, %rsp
	mov $1, %edi
	call *pointer(%rip)
	add $8, %rsp
	ret
END d_memory

FN d_register
	sub $8, %rsp
	mov %rdi, %rax
	xor %edi, %edi
	call *%rax
	mov %rax, %r12
	xor %edi, %edi
	lea 2(%rdi), %esi
	call *%r12
	add $8, %rsp
	ret
END d_register

	/* Two calls in a row: there is nothing before the second. */
FN d_row
	sub $8, %rsp
	mov %rdi, %rbx
	xor %edi, %edi
	call *%rbx
	call *%rbx
	add $8, %rsp
	ret
END d_row

FN d_field
	sub $8, %rsp
	mov (%rdi), %rax
	xor %edi, %edi
	call *8(%rax)
	add $8, %rsp
	ret
END d_field

FN d_stack
	sub $24, %rsp
	mov %rdi, (%rsp)
	xor %edi, %edi
	call *(%rsp)
	mov %rax, 16(%rsp, %rcx, 8)
	call *16(%rsp, %rcx, 8)
	add $24, %rsp
	ret
END d_stack

FN d_segment
	sub $8, %rsp
	mov $1, %edi
	call *%fs:0x10
	add $8, %rsp
	ret
END d_segment

	/* The instruction behind the call is jumped to as well. */
FN d_joined
	sub $8, %rsp
	mov %rdi, %rbx
	xor %eax, %eax
	call *%rbx
.Ldj:	inc %eax
	cmp $10, %eax
	jne .Ldj
	add $8, %rsp
	ret
END d_joined

/* --------------------------------------------------------- F. jump tables */

FN f_table
	mov $8, %eax
	cmp $3, %edi
	ja .Lft9
	lea .Lftab(%rip), %rdx
	mov %edi, %edi
	movslq (%rdx, %rdi, 4), %rcx
	add %rdx, %rcx
	notrack jmp *%rcx
.Lft0:	mov $1, %eax
	inc %eax
	inc %eax
.Lft1:	inc %eax
	ret
.Lft2:	mov $5, %eax
	ret
.Lft9:	mov $6, %eax
	ret
END f_table

	/* Without notrack, the base hoisted far above. */
FN f_hoisted
	lea .Lfhtab(%rip), %rdx
	mov %edi, %edi
	.rept 24
	imul $3, %rsi, %rsi
	xchg %esi, %ecx
	.endr
	movslq (%rdx, %rdi, 4), %rcx
	add %rdx, %rcx
	jmp *%rcx
.Lfh0:	mov $1, %eax
	inc %eax
	inc %eax
.Lfh1:	inc %eax
	ret
END f_hoisted

	/* The table in the code, right behind the jump. */
FN f_in_text
	lea .Lfxtab(%rip), %rdx
	movslq (%rdx, %rdi, 4), %rcx
	add %rdx, %rcx
	jmp *%rcx
.Lfxtab:
	.long .Lfx0 - .Lfxtab, .Lfx1 - .Lfxtab
.Lfx0:	mov $1, %eax
	inc %eax
	inc %eax
.Lfx1:	inc %eax
	ret
END f_in_text

	/* The table's offsets count from a label in the code, as in printf. */
FN f_label_base
	lea .Lfltab(%rip), %rcx
	lea .Lfl0(%rip), %rsi
	movzbl (%rdi), %eax
	movslq (%rcx, %rax, 4), %rax
	add %rsi, %rax
	jmp *%rax
.Lfl0:	mov $1, %eax
	inc %eax
	inc %eax
.Lfl1:	inc %eax
	ret
END f_label_base

	/* Into an unrolled loop by arithmetic: where to, nobody knows. */
FN f_computed
	lea .Lfc(%rip), %rdx
	neg %rdi
	lea (%rdx, %rdi, 2), %rcx
	jmp *%rcx
	inc %eax
	inc %eax
	inc %eax
.Lfc:	xchg %eax, %ecx
	inc %eax
	lea 3(%rax), %eax
	ret
END f_computed

	/* Into it by a constant, which a register alone shows to be no address of a label. */
FN f_shifted
	lea .Lfs(%rip), %rdx
	add $4, %rdx
	jmp *%rdx
	inc %eax
.Lfs:	inc %eax
	inc %eax
	xchg %eax, %ecx
	inc %eax
	lea 3(%rax), %eax
	ret
END f_shifted

	/* Out of more places in the frame than anybody looks at; one has a label plus something. */
	.macro STORE n
	mov %rbx, \n * 8 + 8(%rsp)
	.endm
	.macro CHOOSE n
	cmp $\n, %edi
	je .Lfmp\n
	.endm
	.macro LOAD n
.Lfmp\n:	mov \n * 8 + 8(%rsp), %rax
	.if \n < 30
	jmp .Lfmp_0
	.elseif \n < 60
	jmp .Lfmp_1
	.else
	jmp .Lfmp_2
	.endif
	.endm
FN f_many_places
	sub $1400, %rsp
	lea callee(%rip), %rbx
	.set place, 0
	.rept 65
	STORE %place
	.set place, place + 1
	.endr
	lea .Lfmp(%rip), %rcx
	lea (%rcx, %rdx, 4), %rcx
	mov %rcx, 65 * 8 + 8(%rsp)
	.set place, 0
	.rept 66
	CHOOSE %place
	.set place, place + 1
	.endr
	add $1400, %rsp
	ret
	.set place, 0
	.rept 66
	LOAD %place
	.set place, place + 1
	.endr
	.irp n, 0, 1, 2
.Lfmp_\n:
	nop
	jmp .Lfmp_all
	.endr
.Lfmp_all:
	jmp *%rax
.Lfmp:	inc %eax
	inc %eax
	inc %eax
	inc %eax
	inc %eax
	add $1400, %rsp
	ret
END f_many_places

	/* Labels as values: the addresses are in relocations. */
FN f_goto
	lea labels(%rip), %rdx
	jmp *(%rdx, %rdi, 8)
.Lfg0:	mov $1, %eax
	inc %eax
	inc %eax
.Lfg1:	inc %eax
	ret
END f_goto

	/* A handler table is a tail call. */
FN f_handlers
	lea handlers(%rip), %rdx
	lea 4(%rsi), %rsi
	jmp *(%rdx, %rdi, 8)
END f_handlers

	/* The table's labels are in the cold part and in the middle of an exit window. */
FN f_cold
	mov $8, %eax
	push %rbx
	.cfi_def_cfa_offset 16
	.cfi_offset 3, -16
	test %edi, %edi
	js f_cold.cold
.Lfco:	inc %eax
	inc %eax
.Lfc1:	inc %eax
	pop %rbx
	.cfi_def_cfa_offset 8
	.cfi_restore 3
	ret
END f_cold

	.section .text.unlikely, "ax", @progbits
	.type f_cold.cold, @function
f_cold.cold:
	.cfi_startproc
	.cfi_def_cfa_offset 16
	.cfi_offset 3, -16
	lea .Lfctab(%rip), %rdx
	movslq (%rdx, %rsi, 4), %rcx
	add %rdx, %rcx
	jmp *%rcx
	.cfi_endproc
	.size f_cold.cold, . - f_cold.cold
	.text

	/* An instruction that no decoder knows: what comes before is still fine. */
FN f_unknown
	mov $8, %eax
	lea 3(%rax), %eax
	.byte 0x06, 0x07, 0x16, 0x17
	lea 3(%rax), %eax
	lea 4(%rax), %eax
	ret
END f_unknown

	.p2align 4
	.skip 256, 0x90
	.globl callee_far
FN callee_far
	mov %rdi, %rax
	imul $3, %rax, %rax
	ret
END callee_far

	.section .rodata
	.p2align 2
.Lftab:	.long .Lft0 - .Lftab, .Lft1 - .Lftab, .Lft2 - .Lftab, .Lft9 - .Lftab
	.long 0
.Lfhtab:
	.long .Lfh0 - .Lfhtab, .Lfh1 - .Lfhtab
	.long 0
.Lfltab:
	.long .Lfl0 - .Lfl0, .Lfl1 - .Lfl0
	.long 0x7fffffff
.Lfctab:
	.long .Lfco - .Lfctab, .Lfc1 - .Lfctab
	.long 0

	.section .data.rel.ro, "aw", @progbits
	.p2align 3
labels:	.quad .Lfg0, .Lfg1
handlers:
	.quad callee, callee_far
pointer: .quad callee

	.section .note.GNU-stack, "", @progbits
