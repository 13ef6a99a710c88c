/* SPDX-License-Identifier: MIT */
/* build: -Wl,-z,noexecstack -Wl,-z,lazy */
/*
 * image-flow.S - what leads where, and what only looks as if it did. Each
 * function is a case of tests/unit/image_flow.c, which reads the built file. Only
 * main runs: it returns 0.
 */
#include "points-macros.inc"

/* Five bytes in the middle of an instruction that would be a jump to `to`. */
.macro LOOKS_LIKE_JUMP to
	.byte 0x48, 0xb8, 0xe9 /* movabs $..., %rax */
	.long \to - (. + 4)
	.byte 0, 0, 0
.endm

	/* ---------------------------------------------- chance and truth */

	/* Nothing but the middle of an operand seems to lead to +2. */
FN h_victim
	mov %edi, %eax
	inc %eax
	inc %eax
	ret
END h_victim
FN h_chance
	LOOKS_LIKE_JUMP (h_victim + 2)
	ret
END h_chance

	/* A jump of another function does. */
FN h_target
	mov %edi, %eax
	inc %eax
	inc %eax
	ret
END h_target
FN h_jumps
	mov %edi, %eax
	.byte 0xe9
	.long h_target + 2 - (. + 4)
END h_jumps

	/* The middle of an operand, and somebody jumps there. */
FN h_entered
	mov %edi, %eax
	inc %eax
	inc %eax
	ret
END h_entered
FN h_overlaps
	LOOKS_LIKE_JUMP (h_entered + 2)
	ret
END h_overlaps
FN h_enters
	mov %edi, %eax
	.byte 0xe9
	.long h_overlaps + 2 - (. + 4)
END h_enters

	/* The middle of an operand of a function that jumps nobody knows where. */
FN h_doubted
	mov %edi, %eax
	inc %eax
	inc %eax
	ret
END h_doubted
FN h_doubts
	lea .Lhd(%rip), %rax
	imul $2, %rdi, %rdi
	add %rdi, %rax
	jmp *%rax
.Lhd:	LOOKS_LIKE_JUMP (h_doubted + 2)
	ret
END h_doubts

	/* ------------------------------------------------------- tables */

	/* Two functions with neighbouring tables; read on into the second, the first
	 * would lead to the middle of its blocks. */
FN t_first
	cmp $1, %edi
	ja .Lt1d
	lea .Lttab1(%rip), %rdx
	movslq (%rdx, %rdi, 4), %rax
	add %rdx, %rax
	jmp *%rax
.Lt1a:	mov $1, %eax
	ret
.Lt1b:	mov $2, %eax
	ret
.Lt1d:	xor %eax, %eax
	ret
END t_first
FN t_second
	cmp $1, %edi
	ja .Lt2d
	lea .Lttab2(%rip), %rdx
	movslq (%rdx, %rdi, 4), %rax
	add %rdx, %rax
	jmp *%rax
.Lt2a:	mov $1, %eax
	ret
.Lt2b:	mov $2, %eax
	ret
.Lt2d:	xor %eax, %eax
	ret
END t_second

	/* Two jumps, one base computed far above, in a register that is saved. */
FN t_hoisted
	push %rbx
	lea .Lttab3(%rip), %rbx
	call h_victim
	and $1, %eax
	movslq (%rbx, %rax, 4), %rax
	add %rbx, %rax
	jmp *%rax
.Lt3a:	mov $1, %eax
	pop %rbx
	ret
.Lt3b:	lea .Lttab4(%rip), %rdx
	and $1, %edi
	movslq (%rdx, %rdi, 4), %rax
	add %rdx, %rax
	jmp *%rax
.Lt3c:	mov $2, %eax
	pop %rbx
	ret
.Lt3d:	mov $3, %eax
	pop %rbx
	ret
END t_hoisted

	/* Somebody computes an address inside a table for his own purpose: what is
	 * behind it belongs to the table all the same. */
FN t_cut
	and $3, %edi
	lea .Lttab5(%rip), %rdx
	movslq (%rdx, %rdi, 4), %rax
	add %rdx, %rax
	jmp *%rax
.Lt5a:	mov $1, %eax
	ret
.Lt5b:	mov $2, %eax
	ret
.Lt5c:	mov $3, %eax
	ret
.Lt5d:	mov $4, %eax
	ret
END t_cut
FN t_cuts
	lea .Lttab5+8(%rip), %rax
	mov -8(%rax, %rdi, 4), %eax
	ret
END t_cuts

	/* Through whole addresses, which the loader relocates. */
FN t_whole
	lea .Lttab6(%rip), %rdx
	and $1, %edi
	notrack jmp *(%rdx, %rdi, 8)
.Lt6a:	mov $1, %eax
	ret
.Lt6b:	mov $2, %eax
	ret
END t_whole

	/* Indirect tail calls: whatever stands in front of the block, it is not how
	 * the address was made. */
FN t_tail
	mov (%rdi), %rax
	mov 8(%rax), %rax
	test %rsi, %rsi
	jne .Ltt
	lea (%rsi, %rdx), %rax
	sub %rdx, %rax
	ret
.Ltt:	jmp *%rax
END t_tail
FN t_tail_notrack
	mov (%rdi), %rax
	notrack jmp *%rax
END t_tail_notrack

	/* Into a row of pieces of 16 bytes, by multiplying. */
FN t_row
	mov %edi, %ecx
	and $1, %ecx
	shl $4, %ecx
	lea .Ltr(%rip), %rdx
	mov %esi, %eax
	add %rdx, %rcx
	jmp *%rcx
	.p2align 4
.Ltr:	inc %eax
	inc %eax
	ret
	.p2align 4
	inc %eax
	inc %eax
	ret
END t_row

	/* The number may not fit: of forty-eight only sixteen is left. */
FN t_row_of_threes
	imul $48, %edi, %ecx
	lea .Ltr3(%rip), %rdx
	add %rdx, %rcx
	jmp *%rcx
	.p2align 4
.Ltr3:	.rept 3
	inc %eax
	inc %eax
	ret
	.p2align 4
	.endr
END t_row_of_threes

	/* The same, but who knows by how much. */
FN t_row_of_any
	mov %edi, %ecx
	lea .Lta(%rip), %rdx
	add %rdx, %rcx
	jmp *%rcx
.Lta:	inc %eax
	inc %eax
	ret
END t_row_of_any

	/* Offsets of a width that no compiler uses for switches, but people do for labels. A
	 * switch stands beside them. */
.macro T_ODD name, adds, load:vararg
FN \name
	lea .Lts\@(%rip), %rdx
	and $1, %edi
	movslq (%rdx, %rdi, 4), %rcx
	add %rdx, %rcx
	jmp *%rcx
.Lta\@:	mov $1, %eax
.Ltb\@:	lea .Lto\@(%rip), %rdx
	lea .Lte\@(%rip), %rsi
	.if \adds > 1
	mov (%rsi, %r8, 8), %rsi
	.endif
	\load
	.if \adds
	add %rcx, %rdx
	.endif
	jmp *%rdx
.Lto\@:	inc %eax
	inc %eax
	inc %eax
	ret
	.pushsection .rodata
	.p2align 3
.Lts\@:	.long .Lta\@ - .Lts\@, .Ltb\@ - .Lts\@
.Lte\@:	.quad 2, 4
	.popsection
END \name
.endm
	T_ODD t_bytes, 1, movzbl (%rsi, %rdi), %ecx
	T_ODD t_words, 1, movzwl (%rsi, %rdi, 2), %ecx
	T_ODD t_quads, 1, mov (%rsi, %rdi, 8), %rcx
	T_ODD t_chosen, 2, movslq (%rsi, %rdi, 4), %rcx
	T_ODD t_added, 0, add (%rsi, %rdi, 8), %rdx

	/* --------------------------------------------------------- traps */

	/* What is behind a trap may be executed: its handler says where to go on. */
FN p_breakpoint
	test %edi, %edi
	jne 1f
	int3
	.nops 10
1:	lea 1(%rdi), %eax
	ret
	int3
	.nops 10
END p_breakpoint
FN p_undefined
	test %edi, %edi
	jne 1f
	ud2
	.nops 10
1:	lea 1(%rdi), %eax
	ret
	.nops 10
END p_undefined

	/* What is called may come back behind the return, as __morestack does. */
FN p_split
	cmp %fs:0x70, %rsp
	jae 1f
	mov $8, %r10d
	mov $0, %r11d
	call n_returns
	ret
	.nops 10
1:	lea 1(%rdi), %eax
	ret
END p_split
FN p_not_split
	test %edi, %edi
	jae 1f
	call n_returns
	inc %eax
	ret
	.nops 10
1:	lea 1(%rdi), %eax
	ret
END p_not_split

	/* --------------------------------------------------------- data */

	/* A string that is read, with the bytes of jumps and returns in it. */
FN d_string
	lea .Lds(%rip), %rax
	add (%rax, %rdi, 8), %rcx
	jmp .Lde
.Lds:	.ascii "\xe8\x01\x02\x03\x04text\x0f\xe9\xc3\xff\x25 and more of it"
.Lde:	lea 5(%rcx), %rax
	ret
END d_string

	/* A table of its own right behind the jump. */
FN d_table
	lea .Ldt(%rip), %rdx
	and $1, %edi
	movslq (%rdx, %rdi, 4), %rcx
	add %rdx, %rcx
	jmp *%rcx
.Ldt:	.long .Ldta - .Ldt, .Ldtb - .Ldt
.Ldta:	mov $1, %eax
.Ldtb:	inc %eax
	ret
END d_table

	/* Nobody can decode what is behind the return, nor knows where in it an instruction begins. */
FN d_unknown
	mov $1, %eax
	mov $2, %ecx
	ret
	.byte 0x06
	.byte 0xeb, d_unknown + 5 - . - 1 /* jmp */
END d_unknown

	/* Text between two functions: nothing leads there, so nothing there jumps. */
FN d_before
	mov %edi, %eax
	ret
END d_before
	.byte 0x75, 0x0a /* jne d_behind+2 */
	.ascii "xxxxxxxxx"
	.byte 0
FN_HERE d_behind
	mov %edi, %eax
	inc %eax
	ret
END d_behind

	/* The same, and it is called: it is code. */
FN d_called_before
	mov %edi, %eax
	ret
END d_called_before
.Ldc:	test %edi, %edi
	.byte 0x75
	.byte d_called_behind + 2 - (. + 1)
	ret
	.byte 1, 2, 3
FN_HERE d_called_behind
	mov %edi, %eax
	inc %eax
	ret
END d_called_behind
FN d_calls
	.byte 0xe8
	.long .Ldc - (. + 4)
	ret
END d_calls

	/* What is behind the function leads to what nobody knows of it, that to what is in front of it. */
	.p2align 4
.Lgfront:
	.byte 0xeb, g_again + 5 - . - 1 /* jmp */
FN_HERE g_again
	mov $1, %eax
	mov $2, %ecx
	test %edi, %edi
	jne .Lgagain
	ret
	.byte 0xb8 /* mov, in which there is something else */
.Lghidden:
	jmp .Lgfront
	nop
	nop
END g_again
.Lgagain:
	jmp .Lghidden

	/* It runs on into what is behind its end. */
FN g_falls
	mov $1, %eax
	mov $2, %ecx
	inc %eax
END g_falls
	dec %ecx
	jne g_falls + 5
	ret

	/* The same in the function next door. */
FN g_known
	mov $1, %eax
	mov $2, %ecx
	ret
END g_known
FN g_next_door
	ret
	.byte 0x06
	.byte 0xeb, g_known + 5 - . - 1 /* jmp */
END g_next_door

	/* The same behind its end, to where it jumps: what is there is code, of some kind. */
FN g_unknown
	mov $1, %eax
	mov $2, %ecx
	test %edi, %edi
	jne .Lgunknown
	ret
END g_unknown
.Lgunknown:
	.byte 0x06
	.byte 0xeb, g_unknown + 5 - . - 1 /* jmp */

	/* Its slow path stands behind its end, and only short jumps lead there and back. */
FN g_work
	test %rdi, %rdi
	je .Lgslow
	mov %edi, %eax
.Lgback:
	sub $2, %eax
	ret
END g_work
	.p2align 4
.Lgslow:
	mov $77, %eax
	cmp $5, %esi
	jne .Lgslower
	jmp .Lgback
	.p2align 4
.Lgslower:
	inc %esi
	js g_behind + 2
	jmp .Lgback
	.p2align 4
FN_HERE g_behind
	mov %edi, %eax
	inc %eax
	ret
END g_behind

	/* A function in another one, whose far end jumps into it, and into the next one. */
FN g_outer
	test %rdi, %rdi
	jne .Lgtail
	xor %eax, %eax
	jmp g_inner
	.p2align 4
	.type g_inner, @function
g_inner:
	mov %edi, %eax
.Lgmid:	sub $2, %eax
	add $1, %eax
	ret
	.size g_inner, . - g_inner
	.p2align 4
.Lgtail:
	mov %edi, %eax
	cmp $5, %edi
	jg .Lgmid
	add $9, %eax
	ret
	cmp $6, %edi
	jg g_next + 2
	ret
END g_outer
FN_HERE g_next
	mov %edi, %eax
	inc %eax
	ret
END g_next

	/* ------------------------------------------------ calls that end it */

FN n_loops
	nop
.Lnl:	jmp .Lnl
END n_loops
FN n_aborts
	sub $8, %rsp
	call abort@PLT
END n_aborts
FN n_exits
	mov $1, %edi
	call *exit@GOTPCREL(%rip)
END n_exits
FN n_tail
	test %edi, %edi
	je n_loops
	jmp n_aborts
END n_tail
FN n_mutual
	test %edi, %edi
	je n_returns
	jmp n_loops
END n_mutual
FN n_returns
	mov %edi, %eax
	ret
END n_returns
FN n_jumps
	jmp *(%rdi)
END n_jumps
	/* Calls in this order: the first six never come back. */
FN n_calls
	call n_loops
	nop
	call n_aborts
	nop
	call n_exits
	nop
	call n_tail
	nop
	call abort@PLT
	nop
	call *exit@GOTPCREL(%rip)
	nop
	call n_mutual
	nop
	call n_returns
	nop
	call n_jumps
	nop
	call puts@PLT
	nop
	call *puts@GOTPCREL(%rip)
	nop
	call f_runs_on
	ret
END n_calls

	/* Of libraries: the first three never come back. Any library may have an err() that does. */
FN n_library
	call __stack_chk_fail@PLT
	call _exit@PLT
	call __assert_fail@PLT
	call err@PLT
	call errx@PLT
	call verr@PLT
	ret
END n_library

	/* Its end runs into the next function. */
FN f_runs_on
	mov %edi, %eax
	inc %eax
END f_runs_on
FN_HERE f_next
	inc %eax
	ret
END f_next
	/* Its end does not: that call never returns. */
FN f_ends
	sub $8, %rsp
	call n_aborts
END f_ends
	/* It jumps into the middle of another function. */
FN f_into
	mov %edi, %eax
	jmp f_next + 2
END f_into

	.section .rodata
	.p2align 2
.Lttab1: .long .Lt1a - .Lttab1, .Lt1b - .Lttab1
	/* From the wrong base these would be .Lt1b + 1 and beyond. */
.Lttab2: .long .Lt2a - .Lttab2, .Lt2b - .Lttab2
	.long 0x7fffffff
.Lttab3: .long .Lt3a - .Lttab3, .Lt3b - .Lttab3
.Lttab4: .long .Lt3c - .Lttab4, .Lt3d - .Lttab4
	.long 0x7fffffff
.Lttab5: .long .Lt5a - .Lttab5, .Lt5b - .Lttab5, .Lt5c - .Lttab5, .Lt5d - .Lttab5
	.long 0x7fffffff

	.section .data.rel.ro, "aw"
	.p2align 3
.Lttab6: .quad .Lt6a, .Lt6b, 0

	.section .note.GNU-stack, "", @progbits
