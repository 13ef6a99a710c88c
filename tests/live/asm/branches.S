/* SPDX-License-Identifier: MIT */
/*
 * branches.S - E. Every form of a branch, taken and not, near and far; the
 * inputs' flags differ.
 */
#include "torture.inc"

	/* One function a condition: short, then near, then as a jump back. */
.macro CONDITION cc
CASE t_e_short_\cc, ODD
	j\cc 1f
	lea 3(%r8), %r8
1:	lea (%r8, %r8, 2), %rax
	j\cc 2f
	lea 5(%rax), %rax
2:	ret
END t_e_short_\cc
CASE t_e_near_\cc, ODD
	.byte 0x2e
	j\cc t_e_far_\cc
	lea 3(%r8), %rax
	ret
	.skip 130, 0xcc
t_e_far_\cc:
	lea 7(%r8), %rax
	{disp32} j\cc 1f
	lea 7(%rcx), %rcx
1:	ret
END t_e_near_\cc
.endm
	.irp cc, o, no, b, ae, e, ne, be, a, s, ns, p, np, l, ge, le, g
	CONDITION \cc
	.endr

CASE t_e_hints, ODD
	.byte 0x3e
	jb 1f
	lea 1(%rax), %rax
1:	.byte 0x2e
	jo 2f
	lea 2(%rax), %rax
2:	.byte 0x3e
	jmp 3f
	.byte 0x0f, 0x0b
3:	.byte 0xf2
	js 4f
	lea 4(%rax), %rax
4:	ret
END t_e_hints

CASE t_e_loop, ODD
	lea 3(%rdi), %rcx
1:	lea 1(%rax, %rcx), %rax
	loop 1b
	ret
END t_e_loop

	/* As the first instruction, with its target in the same window. */
CASE t_e_loop_first, ODD
	loop 1f
	cwde
1:	cltd
	lea 1(%rax), %rax
	ret
END t_e_loop_first

CASE t_e_loop_self, ODD
	lea 3(%rdi), %rcx
1:	loop 1b
	ret
END t_e_loop_self

CASE t_e_loope, ODD
	lea 3(%rdi), %rcx
	xor %edx, %edx
1:	inc %edx
	cmp %edi, %edx
	loope 1b
	lea 3(%rdi), %rcx
2:	inc %edx
	test $16, %edx
	loope 2b
	ret
END t_e_loope

CASE t_e_loopne, ODD
	lea 5(%rdi), %rcx
	xor %edx, %edx
1:	inc %edx
	cmp %edi, %edx
	loopne 1b
	ret
END t_e_loopne

CASE t_e_loop_32, ODD
	lea 3(%rdi), %rcx
	bts $40, %rcx
1:	lea 1(%rax), %rax
	addr32 loop 1b
	bts $41, %rcx
	mov $2, %cl
2:	lea 2(%rax), %rax
	addr32 loopne 2b
	ret
END t_e_loop_32

	/* Zero in rcx counts down from there: once around is not affordable, so only its test. */
CASE t_e_jrcxz, ODD
	mov %rdi, %rcx
	jrcxz 1f
	lea 3(%rax), %rax
1:	bts $45, %rcx
	jrcxz 2f
	lea 4(%rax), %rax
2:	jecxz 3f
	lea 5(%rax), %rax
3:	ret
END t_e_jrcxz

CASE t_e_jrcxz_first, ODD
	jrcxz 1f
	cwde
1:	jecxz 2f
	cltd
2:	ret
END t_e_jrcxz_first

CASE t_e_jrcxz_out
	mov %edi, %ecx
	jrcxz t_e_jrcxz_near
	lea 3(%rcx), %rax
	ret
END t_e_jrcxz_out
	CALLEE t_e_jrcxz_near
	lea 9(%rcx), %rax
	ret
	END t_e_jrcxz_near

CASE t_e_jmp_back, ODD
	jmp 3f
1:	lea 1(%rax), %rax
	ret
2:	lea 2(%rax), %rax
	jmp 1b
3:	lea 3(%rax), %rax
	jmp 2b
END t_e_jmp_back

CASE t_e_jmp_next, ODD
	jmp 1f
1:	{disp32} jmp 2f
2:	je 3f
3:	lea 3(%rax), %rax
	ret
END t_e_jmp_next

CASE t_e_chain, ODD
	mov %edi, %ecx
1:	test $1, %ecx
	je 2f
	lea 1(%rax), %rax
2:	test $2, %ecx
	je 3f
	lea 2(%rax), %rax
3:	add $3, %ecx
	cmp $30, %ecx
	jb 1b
	ret
END t_e_chain

	/* Transactions: those that abort come out at the target, all others at the end. */
CASE t_e_xbegin_next, RTM
	mov $-1, %eax
	xbegin 1f
1:	cmp $-1, %eax
	jne 2f
	xend
2:	xor %eax, %eax
	ret
END t_e_xbegin_next

CASE t_e_xbegin_away, RTM
	mov $-1, %eax
	xbegin 1f
	xabort $7
	.byte 0x0f, 0x0b
1:	xor %eax, %eax
	ret
END t_e_xbegin_away

	/* Never run on processors without transactions. */
CASE t_e_xbegin_skipped, ODD
	jmp 2f
	xbegin 1f
	xabort $7
1:	xend
2:	lea 1(%rdi), %rax
	ret
END t_e_xbegin_skipped

	/* Prefix 66 before a near branch: Intel ignores it, AMD does not. */
CASE t_e_call_66, INTEL
	DOWN 8
	lea 1(%rdi), %rdi
	.byte 0x66, 0xe8
	.long t_callee - . - 4
	lea 1(%rdi), %rdi
	UP 8
	ret
END t_e_call_66

CASE t_e_jmp_66, INTEL
	lea 1(%rdi), %rdi
	.byte 0x66, 0xe9
	.long 1f - . - 4
	.byte 0x0f, 0x0b
1:	lea 1(%rdi), %rdi
	.byte 0x66, 0x0f, 0x84
	.long 2f - . - 4
	lea 2(%rdi), %rdi
2:	lea 1(%rdi), %rax
	ret
END t_e_jmp_66

	/* Over the lock prefix, into the middle of the instruction. */
CASE t_e_lock_skip, ODD
	xor %eax, %eax
	lea 5(%rdi), %edx
	test $1, %edi
	je 1f + 1
1:	lock cmpxchg %edx, SCRATCH_WORK(%rsi)
	sete %cl
	je 2f + 1
2:	lock xadd %edx, SCRATCH_WORK(%rsi)
	ret
END t_e_lock_skip

	/* A symbol within an instruction, called and jumped to. */
CASE t_e_inside, ODD
	mov %rdi, %rax
	.byte 0xb8 /* mov imm32, eax, whose immediate is: */
	REGISTER t_e_middle, ODD
	.globl t_e_middle
	.type t_e_middle, @function
t_e_middle:
	lea 5(%rdi), %eax
	nop
	lea 3(%rdi), %rdx
	ret
END t_e_inside
	.size t_e_middle, . - t_e_middle
CASE t_e_inside_from, ODD
	mov %rdi, %rcx
	jmp t_e_middle
END t_e_inside_from
