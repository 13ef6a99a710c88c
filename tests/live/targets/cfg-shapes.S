/* SPDX-License-Identifier: MIT */
/* build: -Wl,-z,noexecstack */
/*
 * cfg-shapes.S - functions of which tests/unit/cfg_shapes.c knows the blocks,
 * edges and loops. Only main runs: it returns 0.
 */
#include "points-macros.inc"

FN s_line
	mov %edi, %eax
	imul $3, %eax, %eax
	ret
END s_line

FN s_if
	mov %edi, %eax
	test %edi, %edi
	je 1f
	inc %eax
1:	ret
END s_if

	/* A call does not end a block; one that does not return does. */
FN s_calls
	call callee
	call callee
	test %eax, %eax
	jne 1f
	call noreturn
1:	call callee
	ret
END s_calls

FN s_self
1:	dec %rdi
	jne 1b
	ret
END s_self

FN s_while
	jmp 2f
1:	add %rdi, %rax
2:	dec %rdi
	jne 1b
	ret
END s_while

FN s_nested
	xor %eax, %eax
1:	mov %rsi, %rcx
2:	inc %rax
	dec %rcx
	jne 2b
	dec %rdi
	jne 1b
	ret
END s_nested

	/* Two back edges to one header are one loop. */
FN s_continue
	nop
1:	dec %rdi
	je 3f
	test $1, %dil
	je 1b
	inc %rax
	jmp 1b
3:	ret
END s_continue

	/* Entered at two places. */
FN s_irreducible
	test %rdi, %rdi
	je 2f
1:	inc %rax
2:	dec %rdi
	jne 1b
	ret
END s_irreducible

	/* A branch to the next instruction is two edges to one block. */
FN s_next
	test %edi, %edi
	je 1f
1:	mov %edi, %eax
	ret
END s_next

FN s_tail
	test %edi, %edi
	je callee
	jmp callee
END s_tail

FN s_table
	cmp $2, %edi
	ja 9f
	lea s_table_of(%rip), %rdx
	movslq (%rdx,%rdi,4), %rax
	add %rdx, %rax
	jmp *%rax
.Ls0:	mov $1, %eax
	ret
.Ls1:	mov $2, %eax
	ret
.Ls2:	mov $3, %eax
	ret
9:	xor %eax, %eax
	ret
END s_table
	.section .rodata
	.p2align 2
s_table_of:
	.long .Ls0 - s_table_of, .Ls1 - s_table_of, .Ls2 - s_table_of
	.text

	/* The cold part comes back into the loop: it is no second way into it. */
FN s_hot
	mov %rdi, %rax
1:	test $7, %dil
	je s_hot.cold
2:	dec %rdi
	jne 1b
	ret
END s_hot
	.section .text.unlikely, "ax", @progbits
FN s_hot.cold
	inc %rax
	jmp 2b
END s_hot.cold
	.text

	/* Over a lock prefix: the instruction behind is reached in two ways. */
FN s_lock
	test %edi, %edi
	je 1f
	lock
1:	incl (%rsi)
	mov %edi, %eax
	ret
END s_lock

	/* The first call may throw into the handler, the second may not. */
	.p2align 4
	.type s_throws, @function
s_throws:
	.cfi_startproc
	.cfi_personality 0x9b, s_personality_at
	.cfi_lsda 0x1b, s_exceptions
.Lt0:	call callee
.Lt1:	test %eax, %eax
	je 1f
	call callee
1:	ret
.Lpad:	inc %eax
	jmp 1b
	.cfi_endproc
	.size s_throws, . - s_throws
	.section .gcc_except_table, "a", @progbits
s_exceptions:
	.byte 0xff, 0xff, 1
	.uleb128 .Lsites_end - .Lsites
.Lsites:
	.uleb128 .Lt0 - s_throws, .Lt1 - .Lt0, .Lpad - s_throws
	.uleb128 0
	.uleb128 .Lt1 - s_throws, .Lpad - .Lt1, 0
	.uleb128 0
.Lsites_end:
	.section .data.rel.local, "aw", @progbits
	.p2align 3
s_personality_at:
	.quad callee
	.text
