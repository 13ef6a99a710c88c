/* SPDX-License-Identifier: MIT */
/* build: -no-pie -Wl,-z,noexecstack */
/*
 * points-fixed.S - corner cases of code that runs at its link-time address:
 * jump tables and labels are whole addresses without relocations. Expectations
 * in tests/unit/points_plan.c and points_tables.c; only main runs.
 */
#include "points-macros.inc"

	/* The table is the jump's operand. */
FN x_table
	cmp $2, %edi
	ja .Lxt9
	mov %edi, %edi
	jmp *.Lxtab(, %rdi, 8)
.Lxt0:	mov $1, %eax
	inc %eax
	inc %eax
	inc %eax
.Lxt1:	inc %eax
	ret
.Lxt9:	mov $6, %eax
	ret
END x_table

	/* The table is loaded from, and the register jumped to. */
FN x_load
	mov %edi, %edi
	mov .Lxltab(, %rdi, 8), %rax
	jmp *%rax
.Lxl0:	mov $1, %eax
	inc %eax
	inc %eax
.Lxl1:	inc %eax
	ret
END x_load

	/* Computed goto with its labels in writable data. */
FN x_goto
	mov %edi, %edi
	jmp *labels(, %rdi, 8)
.Lxg0:	mov $1, %eax
	inc %eax
	inc %eax
.Lxg1:	inc %eax
	ret
END x_goto

	/* Labels as immediate operands. */
FN x_immediate
	mov $.Lxi0, %eax
	test %edi, %edi
	je .Lxi
	mov $.Lxi1, %eax
.Lxi:	jmp *%rax
.Lxi0:	inc %eax
	inc %eax
	inc %eax
.Lxi1:	inc %eax
	ret
END x_immediate

	/* Another function has an address inside this one in a constant. */
.macro X_ENTERED name, inner
FN \name
	mov %rdi, %rax
	test %edi, %edi
	js 1f
	add $1, %rax
	ret
	.p2align 4
1:	dec %eax
\inner: sub $1, %eax
	ret
END \name
.endm
	X_ENTERED x_moved, .Lxe0
	X_ENTERED x_wide, .Lxe1
	X_ENTERED x_stored, .Lxe2
	X_ENTERED x_pushed, .Lxe3
	X_ENTERED x_added, .Lxe4
	X_ENTERED x_based, .Lxe5
	X_ENTERED x_signed, .Lxe6
	X_ENTERED x_not, .Lxe7
FN x_enters
	mov $.Lxe0, %r9d
	movabs $.Lxe1, %rax
	movq $.Lxe2, 8(%rsp, %rdi)
	push $.Lxe3
	add $.Lxe4, %rax
	lea .Lxe5(, %rdi, 8), %rax
	mov $.Lxe6, %rax
	ret
END x_enters

	/* Records without padding have addresses anywhere. */
	X_ENTERED x_record, .Lxp0
	X_ENTERED x_unlike, .Lxp1

	/* Tables of another function have it as four bytes. */
	X_ENTERED x_whole, .Lxw0
	X_ENTERED x_whole_moved, .Lxw1
	X_ENTERED x_whole_near, .Lxw2
FN x_wholes
	mov .Lxwtab0(, %rdi, 4), %eax
	test %esi, %esi
	je 1f
	mov $.Lxwtab1, %ecx
	js 2f
	lea .Lxwtab2(%rip), %rcx
2:	mov (%rcx, %rdi, 4), %eax
1:	jmp *%rax
END x_wholes

	/*
	 * Constants behind a call of which nobody knows that it never returns: what they
	 * look like is a branch that leaves, with instructions in front of it.
	 */
FN x_constants
	movsd .Lxc0(%rip), %xmm0
	addsd .Lxc1(%rip), %xmm0
	test %edi, %edi
	js 1f
	ret
1:	call *%rsi
.Lxc1:	.quad 0xbf000000f2bec328
.Lxc0:	.quad 0x3fe0000000000000
	.byte 0x98
END x_constants

	/* It only looks so: inside the instruction that this is, and of the one that it is in. */
FN x_number
	mov $5, %eax
	inc %eax
	ret
END x_number
FN x_numbers
	mov $x_number + 1, %eax
	ret
END x_numbers
FN x_operand
	.byte 0x48, 0xbe, 0xb8 /* movabs $..., %rsi */
	.long .Lxe7
	.byte 0, 4, 0
	ret
END x_operand

	.section .rodata
	.p2align 3
.Lxtab:	.quad .Lxt0, .Lxt1, .Lxt9, 0
.Lxltab: .quad .Lxl0, .Lxl1, 0

	.long 0
.Lxwtab0: .long .Lxw0, x_whole, 1
.Lxwtab1: .long .Lxw1, x_whole_moved, 1
.Lxwtab2: .long .Lxw2, x_whole_near, 1

	.p2align 3
	.byte 1
	.quad .Lxp0
	.byte 2
	.long .Lxp1 /* no address: what follows is not zero */
	.long 1

	.data
	.p2align 3
labels:	.quad .Lxg0, .Lxg1, 0

	.section .note.GNU-stack, "", @progbits
