/* SPDX-License-Identifier: MIT */
/* build: -Wl,-z,noexecstack */
/*
 * points-layout.S - entries, branches and the layout of functions: one function
 * for each corner case of finding windows; the expectations are in
 * tests/unit/points_plan.c, which reads the built file. Only main runs: it
 * returns 0.
 */
#include "points-macros.inc"

/* ------------------------------------------------------------- A. layout */

FN a_ret
	ret
END a_ret

FN a_xor_ret
	xor %eax, %eax
	ret
END a_xor_ret

	/* No padding of its own, holes near. */
FN a_tight
	xor %eax, %eax
	ret
END a_tight
FN_HERE a_tight_next
	mov %rdi, %rax
	imul $5, %rax, %rax
	ret
END a_tight_next

	/* No padding, no hole in reach. */
	FILL fill_1
FN_HERE a_nothing
	xor %eax, %eax
	ret
END a_nothing
	FILL fill_2

FN a_ends_in_call
	sub $8, %rsp
	call noreturn
END a_ends_in_call
FN_HERE a_adjacent
	mov $1, %eax
	ret
END a_adjacent

FN a_endbr_ret
	endbr64
	ret
END a_endbr_ret

FN a_endbr
	endbr64
	push %rbx
	mov %rdi, %rbx
	lea 1(%rbx), %rax
	pop %rbx
	ret
END a_endbr

FN a_alias
	mov $7, %eax
	ret
END a_alias
	.set a_alias_too, a_alias
	.type a_alias_too, @function

	/* The name stands for what the code returns. */
	.p2align 4
	.globl a_ifunc
	.type a_ifunc, @gnu_indirect_function
a_ifunc:
	.cfi_startproc
	lea callee(%rip), %rax
	ret
END a_ifunc

	/* Another function's symbol in the middle: windows end before it. */
FN a_outer
	mov %edi, %eax
	inc %eax
	.type a_inner, @function
a_inner:
	add $3, %eax
	ret
	.size a_inner, . - a_inner
END a_outer

	/* Data behind the code, within the size. */
FN a_data
	mov $9, %eax
	ret
	.ascii "rc4(8x,int) is data"
END a_data

	.p2align 4
FN_HERE a_zeros
	ret
END a_zeros
	.p2align 4, 0
FN_HERE a_after_zeros
	mov $2, %eax
	ret
END a_after_zeros

	/* Zeros that end at no function: they may be a table. */
FN a_table_behind
	ret
END a_table_behind
	.zero 16
	.long 1, 2, 3, 4
	FILL fill_3

	/* Zeroes before a function that somebody takes the address of are a constant. */
	.p2align 4
FN_HERE a_zero_constant
	ret
END a_zero_constant
	.p2align 4, 0
zeroes:	.zero 16
FN_HERE a_zero_user
	lea zeroes(%rip), %rax
	ret
END a_zero_user

	/* Constants that look like padding, and that somebody reads where they are. */
	.p2align 4
FN_HERE a_zero_read
	ret
END a_zero_read
.Lzero_read:	.quad 0
	.p2align 4, 0
FN_HERE a_zero_reader
	mov .Lzero_read(%rip), %rax
	ret
END a_zero_reader
FN_HERE a_mask_read
	ret
.Lmask_read:	.quad 0xcccccccccccccccc
END a_mask_read
FN_HERE a_mask_reader
	testb $1, .Lmask_read(%rip)
	ret
END a_mask_reader
	FILL fill_4

	/* Control runs through the padding into the next function: no hole there. */
FN_HERE a_runs_on
	mov %rdi, %rax
	imul $3, %rax, %rax
END a_runs_on
	.skip 24, 0x90
FN_HERE a_run_into
	xor %eax, %eax
	ret
END a_run_into
	FILL fill_5

	/* Whether the call returns, nobody knows. */
FN_HERE a_calls_on
	mov %rdi, %rax
	call callee
END a_calls_on
	.skip 24, 0x90
FN_HERE a_called_into
	xor %eax, %eax
	ret
END a_called_into
	FILL fill_6

	/* int3 as padding. */
FN a_int3
	ret
END a_int3
	.p2align 5, 0xcc

/* ---------------------------------------------------------------- pages */

	.p2align 12, 0xcc
	.fill 4093, 1, 0xcc
FN_HERE p_entry
	push %rbp
	mov %rsp, %rbp
	mov $1, %eax
	pop %rbp
	ret
END p_entry

	.p2align 12, 0xcc
	.fill 4095, 1, 0xcc
FN_HERE p_padding
	ret
END p_padding
	.p2align 4

	.p2align 12, 0xcc
	.fill 4096 - 12, 1, 0xcc
FN_HERE p_call
	push %rbx
	mov %rdi, %rbx
	mov $5, %edi
	call callee
	lea (%rax, %rbx), %rax
	pop %rbx
	ret
END p_call

	/* The displacement of the call lies in two pages, and nothing is before it. */
	.p2align 12, 0xcc
	.fill 4096 - 8, 1, 0xcc
FN_HERE p_call_only
	call callee
	call callee
	xor %eax, %eax
	ret
END p_call_only

/* --------------------------------------------------------------- B. entry */

FN b_loop_1
	push %rax
.Lb1:	dec %edi
	jne .Lb1
	pop %rax
	ret
END b_loop_1

FN b_loop_4
	mov %rdi, %rax
	nop
.Lb4:	dec %rax
	jne .Lb4
	ret
END b_loop_4

	/* The jump back is to the byte behind the window. */
FN b_loop_5
	mov $3, %eax
.Lb5:	dec %eax
	jne .Lb5
	ret
END b_loop_5

FN b_loop_0
	dec %edi
	lea 1(%rdi), %eax
	jne b_loop_0
	ret
END b_loop_0

FN b_jcc_out
	test %edi, %edi
	je .Lbout
	mov $1, %eax
	ret
.Lbout:	mov $2, %eax
	ret
END b_jcc_out

	/* A branch out of the window over one byte of it is inside it. */
FN b_jcc_in
	test %edi, %edi
	je .Lbin
.Lbin:	nop
	mov $2, %eax
	ret
END b_jcc_in

FN b_call_last
	push %rbx
	call callee
	mov %rax, %rbx
	mov %rbx, %rax
	pop %rbx
	ret
END b_call_last

FN b_riprel
	lea message(%rip), %rax
	mov word(%rip), %ecx
	ret
END b_riprel

FN b_jmp_first
	jmp .Lbody
	.byte 0x06, 0x07
.Lbody:	mov $3, %eax
	ret
END b_jmp_first

FN b_recursion
	test %edi, %edi
	jne .Lrec
	ret
.Lrec:	dec %edi
	call b_recursion
	mov $1, %eax
	ret
END b_recursion

/* ------------------------------------------------------------ E. branches */

	/* The jump over the lock prefix goes into an instruction. */
FN e_lock_skip
	mov $1, %ecx
	xor %eax, %eax
	cmpl $0, %fs:0x18
	je .Lels + 1
.Lels:	lock cmpxchg %ecx, (%rdi)
	ret
END e_lock_skip

FN e_loops
	mov $1, %ecx
	jrcxz .Lelo
	xor %eax, %eax
	inc %ecx
	loop .Lelo
	lea 7(%rcx), %eax
.Lelo:	add $7, %eax
	lea 1(%rax), %eax
	ret
END e_loops

FN e_loop_entry_window
	dec %ecx
	jrcxz .Lelw
	xor %eax, %eax
	inc %eax
.Lelw:	add $7, %eax
	lea 1(%rax), %eax
	ret
END e_loop_entry_window

FN e_xbegin
	mov %edi, %eax
	xbegin .Lexb
	mov $1, %eax
	xend
.Lexb:	lea 1(%rax), %eax
	add $7, %eax
	ret
END e_xbegin

FN e_syscall
	mov $39, %eax
	syscall
	ret
END e_syscall

	/*
	 * A restartable sequence: the kernel compares the pc with its descriptor. With a signature of
	 * the program's own it is known by its section only, which older libraries call otherwise.
	 */
	.macro RSEQ name, signature, section
FN \name
	mov $1, %eax
.L\name\()_0:
	mov $2, %ecx
	mov %ecx, (%rdi)
.L\name\()_1:
	ret
	.long \signature
.L\name\()_2:
	mov $4, %eax
	lea 1(%rax), %eax
	ret
END \name
	.section \section, "aw", @progbits
	.p2align 5
	.long 0, 0
	.quad .L\name\()_0, .L\name\()_1 - .L\name\()_0, .L\name\()_2
	.text
	.endm
	RSEQ e_rseq, 0x53053053, __rseq_cs
	RSEQ e_rseq_other, 0x01020304, __rseq_cs
	RSEQ e_rseq_table, 0x01020304, __rseq_table

	/* A handler looks whether a pc is before the return point. */
FN e_cancel
	mov (%rdi), %eax
	test %eax, %eax
	jne .Lecc
	mov $39, %eax
	syscall
.Lece:	ret
.Lecc:	mov $5, %eax
	lea 1(%rax), %eax
	ret
END e_cancel
FN e_handler
	lea e_cancel(%rip), %rax
	lea .Lece(%rip), %rdx
	sub %rax, %rdi
	sub %rdx, %rdi
	mov %rdi, %rax
	ret
END e_handler

	/* Unwinders know the return from a signal by its bytes. */
FN e_sigreturn
	mov $15, %rax
	syscall
END e_sigreturn

	/* A short branch from the function next door. */
FN e_from_next
	mov %edi, %eax
	inc %eax
	inc %eax
.Lefn:	inc %eax
	pop %rdx
	ret
END e_from_next
FN_HERE e_next_door
	mov %edi, %eax
	test %eax, %eax
	je .Lefn
	lea 2(%rax), %eax
	ret
END e_next_door

	/* A short branch to the padding behind its own function, which runs on through it. */
	FILL fill_branched_1
	.p2align 4
FN_HERE e_into_padding
	test %edi, %edi
	jns .Leip
	ud2
END e_into_padding
.Leip:	.p2align 4
FN_HERE e_behind_padding
	mov %rdi, %rax
	imul $5, %rax, %rax
	ret
END e_behind_padding
	FILL fill_branched_2

	/* What is called never returns, by its name; whose it is nobody knows. */
	.p2align 4
FN_HERE e_may_return
	push %rbx
	test %edi, %edi
	jne .Lemr
	call abort@plt
	.byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0
.Lemr:	pop %rbx
	ret
END e_may_return
	FILL fill_may_return

	/* A jump table leads to padding behind its function. */
	.p2align 4
FN_HERE e_table_behind
	lea .Letb(%rip), %rcx
	movslq (%rcx,%rdi,4), %rax
	add %rcx, %rax
	jmp *%rax
.Letb0:	inc %eax
	ret
END e_table_behind
.Letb1:	.p2align 4
FN_HERE e_behind_table
	mov %rdi, %rax
	imul $5, %rax, %rax
	ret
END e_behind_table
	FILL fill_table_behind

	/* A neighbour's short branch to padding between blocks, which runs on through it. */
FN_HERE e_own_padding
	test %edi, %edi
	je .Leop1
.Leop0:	dec %edi
	jne .Leop0
.Leop1:	mov $7, %eax
	jmp .Leop2
.Leop:	.byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0
.Leop2:	inc %eax
	ret
END e_own_padding
FN_HERE e_to_own_padding
	mov $1, %eax
	test %edi, %edi
	jns .Leop
	mov $2, %eax
	ret
END e_to_own_padding
	FILL fill_own_padding

	/* The same of code without a name, to padding behind a function. */
FN_HERE e_calls_nameless
	mov $1, %eax
	call .Lecn
	nop
	mov $3, %edx
	ret
END e_calls_nameless
.Lecn:	test %edi, %edi
	jns .Lebn
	mov $1, %eax
	ret
FN_HERE e_by_nameless
	test %edi, %edi
	je .Lebn1
.Lebn0:	dec %edi
	jne .Lebn0
.Lebn1:	mov $7, %eax
	nop
	ret
END e_by_nameless
.Lebn:	.byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0
FN_HERE e_behind_nameless
	mov $7, %eax
	inc %eax
	ret
END e_behind_nameless
	FILL fill_nameless

	/* A branch from far away to padding at the end of a function, which runs on into what is behind. */
FN_HERE e_tail
	test %edi, %edi
	je .Letp1
.Letp0:	dec %edi
	jne .Letp0
.Letp1:	mov $7, %eax
	nop
	ret
.Letp:	.byte 0x66, 0x90
END e_tail
	.byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0
FN_HERE e_behind_tail
	mov $7, %eax
	inc %eax
	ret
END e_behind_tail
	FILL fill_tail
FN_HERE e_to_tail
	mov $1, %eax
	test %edi, %edi
	{disp32} jns .Letp
	ret
END e_to_tail
	FILL fill_to_tail

	/* A function in it ends within its own instruction, and that one goes on. */
FN_HERE e_cut
	mov %edi, %eax
	inc %r9d
	.type e_inside, @function
e_inside:
	.size e_inside, 1
	inc %eax
	imul $1000003, %r13, %rcx
	lea 1(%r11, %r10, 4), %rsi
	rol $17, %r13d
	ret
END e_cut
	FILL fill_cut

	/* The last byte of its section: nothing is behind it. */
	.section points_end, "ax", @progbits
FN_HERE a_section_end
	ret
END a_section_end

	.section .rodata
	.p2align 2
.Letb:	.long .Letb0 - .Letb, .Letb1 - .Letb
message: .asciz "hello"

	.data
word:	.long 1

	.section .note.GNU-stack, "", @progbits
