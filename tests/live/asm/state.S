/* SPDX-License-Identifier: MIT */
/*
 * state.S - What every instruction may depend on: flags, registers, the red
 * zone, the stack, vectors and control words, each used up at every step.
 */
#include "torture.inc"

	/* The flags of every instruction are read before the next. */
CASE t_s_flags, ODD
	MIXFLAGS
	add %rdi, %rcx
	MIXFLAGS
	adc %rdx, %rcx
	MIXFLAGS
	sbb %rcx, %rdx
	MIXFLAGS
	inc %edx
	MIXFLAGS
	dec %cl
	MIXFLAGS
	neg %rdx
	MIXFLAGS
	cmp %rdx, %rcx
	MIXFLAGS
	test %dl, %cl
	MIXFLAGS
	rcl $1, %rcx
	MIXFLAGS
	rcr $1, %edx
	MIXFLAGS
	bt $13, %rcx
	MIXFLAGS
	cmc
	MIXFLAGS
	sahf
	MIXFLAGS
	lahf
	mov %eax, %edx
	stc
	ret
END t_s_flags

	/* Only single flags are alive from one to the other. */
CASE t_s_chain, ODD | ADX
	.rept 6
	adc %rdi, %rcx
	inc %edx
	rcl $1, %r8
	lea 1(%rdx), %rdx
	seto %al
	cmovs %r8, %r9
	dec %r10
	adcx %rcx, %r11
	adox %rdx, %r12
	setp %bl
	sbb %r8, %rax
	.endr
	ret
END t_s_chain

	/* Carry through a loop whose count uses no flags. */
CASE t_s_bignum, ODD
	lea 3(%rdi), %ecx
	clc
1:	mov SCRATCH_DATA(%rsi, %rcx, 4), %rax
	adc %rax, SCRATCH_WORK(%rsi, %rcx, 8)
	lea -1(%rcx), %ecx
	jrcxz 2f
	jmp 1b
2:	setc %al
	ret
END t_s_bignum

	/* ah and al: where flags are parked by those who are in a hurry. */
CASE t_s_lahf, ODD
	lahf
	seto %al
	mov %ax, %dx
	add $0x7f, %al
	sahf
	rol $1, %rdx
	adc $0, %rdx
	mov %ah, %cl
	lahf
	xor %ah, %cl
	ret
END t_s_lahf

	/* All registers go around. */
CASE t_s_around, ODD
	SAVE %rbx
	SAVE %rbp
	mov %edi, %eax
	and $1, %eax
	inc %eax
1:	SAVE %rax
	xchg %rcx, %rdx
	xchg %rdx, %rbx
	xchg %rbx, %rbp
	xchg %rbp, %rdi
	xchg %rdi, %r8
	xchg %r8, %r9
	xchg %r9, %r10
	xchg %r10, %r11
	xchg %r11, %r12
	xchg %r12, %r13
	xchg %r13, %r14
	xchg %r14, %r15
	xchg %r15, %rsi
	xchg %rsi, %rcx
	BACK %rax
	dec %eax
	jne 1b
	add %rcx, %r9
	BACK %rbp
	BACK %rbx
	ret
END t_s_around

	/* The 128 bytes below the stack pointer, written, used and read back. */
CASE t_s_red_zone, ODD
	mov %rdi, %rax
	.irp at, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128
	lea 0x\at(%rax, %rax, 2), %rax
	mov %rax, -\at(%rsp)
	.endr
	xor %ecx, %ecx
	.irp at, 128, 8, 120, 16, 112, 24, 104, 32, 96, 40, 88, 48, 80, 56, 72, 64
	rol $3, %rcx
	add -\at(%rsp), %rcx
	.endr
	lea 4(%rcx), %rax
	ret
END t_s_red_zone

	/* The same around a loop and its branches. */
CASE t_s_red_loop, ODD
	mov $-16, %rcx
1:	lea (%rdi, %rcx, 8), %rax
	mov %rax, (%rsp, %rcx, 8)
	inc %rcx
	jne 1b
	xor %eax, %eax
	mov $-16, %rcx
2:	add (%rsp, %rcx, 8), %rax
	jc 3f
	rol $1, %rax
3:	inc %rcx
	jne 2b
	ret
END t_s_red_loop

	/* Pushes and pops over what is alive below and above. */
CASE t_s_stack, ODD
	mov %r8, -8(%rsp)
	mov -8(%rsp), %rax
	SAVE %rax
	mov %rdi, -8(%rsp)
	SAVE -8(%rsp)
	pushfq
	.cfi_adjust_cfa_offset 8
	andq $0x8d5, (%rsp)
	pop %rdx
	.cfi_adjust_cfa_offset -8
	BACK %rcx
	add %rcx, (%rsp)
	BACK %rbx
	mov -8(%rsp), %r9
	ret
END t_s_stack

	/* A frame that is anchored elsewhere, with the stack pointer moving freely. */
CASE t_s_frame, ODD
	SAVE %rbp
	.cfi_rel_offset %rbp, 0
	mov %rsp, %rbp
	.cfi_def_cfa_register %rbp
	lea -256(%rsp), %rsp
	and $-64, %rsp
	vmovd %edi, %xmm0
	movaps %xmm0, (%rsp)
	movaps %xmm1, 16(%rsp)
	mov 16(%rsp), %rax
	add (%rsp), %rax
	leave
	.cfi_def_cfa %rsp, 8
	.cfi_restore %rbp
	ret
END t_s_frame

	/* A stack of its own, below the scratch; back by what it has kept. */
CASE t_s_switch, ODD
	mov %rsp, %rax
	mov %rsi, %rsp
	.cfi_def_cfa_register %rax
	mov %rdi, -8(%rsp)
	push %r8
	push -8(%rsp)
	pop %rdx
	pop %rcx
	mov %rax, %rsp
	.cfi_def_cfa_register %rsp
	mov %rdx, %rax
	movq $0, SCRATCH_WORK(%rsi)
	ret
END t_s_switch

CASE t_s_vectors, ODD | AVX
	.rept 3
	vpaddq %ymm0, %ymm1, %ymm1
	vpxor %ymm2, %ymm3, %ymm3
	vpmuludq %ymm1, %ymm3, %ymm2
	vmovdqu %ymm2, SCRATCH_WORK(%rsi)
	vextracti128 $1, %ymm1, %xmm4
	vmovq %xmm4, %rax
	vpinsrq $1, %rax, %xmm5, %xmm5
	vpaddq %xmm15, %xmm14, %xmm13
	.endr
	ret
END t_s_vectors

CASE t_s_zmm, ODD | AVX512
	.rept 3
	vpaddq %zmm30, %zmm31, %zmm31
	kshiftlq $3, %k3, %k4
	kxorq %k4, %k5, %k5
	vpmullq %zmm16, %zmm17, %zmm16{%k5}
	vpcompressd %zmm16, %zmm18{%k4}{z}
	kmovq %k5, %rax
	.endr
	ret
END t_s_zmm

	/* The upper halves are clean and stay so. */
CASE t_s_upper, ODD | AVX
	vzeroupper
	movaps %xmm1, %xmm2
	addps %xmm1, %xmm2
	vzeroall
	ret
END t_s_upper

CASE t_s_x87, ODD
	fninit
	mov %edi, SCRATCH_WORK(%rsi)
	fildl SCRATCH_WORK(%rsi)
	fldpi
	fmul %st(1), %st
	fadd %st, %st(1)
	fld1
	fcomi %st(1), %st
	setb %al
	fnstsw %ax
	fstpl SCRATCH_WORK+8(%rsi)
	fstpl SCRATCH_WORK+16(%rsi)
	fchs
	ret
END t_s_x87

CASE t_s_mmx, ODD
	movq %rdi, %mm0
	paddd SCRATCH_DATA(%rsi), %mm0
	movq %mm0, %rax
	movq %mm0, %mm7
	ret
END t_s_mmx

	/* Rounding and the sticky bits. */
CASE t_s_mxcsr, ODD
	stmxcsr SCRATCH_WORK(%rsi)
	orl $0x6000, SCRATCH_WORK(%rsi)
	ldmxcsr SCRATCH_WORK(%rsi)
	lea 1(%rdi), %eax
	cvtsi2sd %eax, %xmm0
	mov $3, %eax
	cvtsi2sd %eax, %xmm1
	divsd %xmm1, %xmm0
	cvttsd2si %xmm0, %eax
	xorps %xmm2, %xmm2
	divsd %xmm2, %xmm0
	stmxcsr SCRATCH_WORK+4(%rsi)
	fnstcw SCRATCH_WORK+8(%rsi)
	orw $0x0c00, SCRATCH_WORK+8(%rsi)
	fldcw SCRATCH_WORK+8(%rsi)
	ret
END t_s_mxcsr

	/* Strings go backward for a while, and the flag goes out set. */
CASE t_s_direction, ODD
	mov %rdi, %rdx
	lea SCRATCH_DATA+16(%rsi), %rsi
	lea 256(%rsi), %rdi
	lea 1(%rdx), %ecx
	std
	rep movsb
	mov $9, %ecx
	repe cmpsb
	lodsb
	stosw
	mov $3, %ecx
	repne scasb
	xchg %rcx, %rdx
	jrcxz 1f
	cld
1:	ret
END t_s_direction

CASE t_s_strings, ODD
	mov %rdi, %rcx
	lea 256(%rsi), %rdi
	mov %rsi, %rdx
	rep stosb
	lea SCRATCH_DATA(%rdx), %rsi
	lea 300(%rdx), %rdi
	mov $5, %ecx
	rep movsl
	mov %rdx, %rsi
	ret
END t_s_strings

CASE t_s_atomics, ODD
	lea 1(%rdi), %rax
	lock xadd %rax, SCRATCH_WORK(%rsi)
	lock incl SCRATCH_WORK+8(%rsi)
	xchg %rdx, SCRATCH_WORK+16(%rsi)
	lock btsl $5, SCRATCH_WORK+24(%rsi)
	setc %cl
	xor %eax, %eax
	lock cmpxchg %r8, SCRATCH_WORK+32(%rsi)
	sete %dl
	mfence
	ret
END t_s_atomics

CASE t_s_cmpxchg16b, CX16
	SAVE %rbx
	.cfi_rel_offset %rbx, 0
	xor %eax, %eax
	xor %edx, %edx
	mov %rdi, %rbx
	mov %r8, %rcx
	lock cmpxchg16b SCRATCH_WORK(%rsi)
	sete %r9b
	lock cmpxchg16b SCRATCH_WORK(%rsi)
	sete %r10b
	BACK %rbx
	.cfi_restore %rbx
	ret
END t_s_cmpxchg16b

	/* Thread-local storage and what else is beside the general registers. */
CASE t_s_segments, ODD
	mov %fs:0, %rax
	mov %rdi, %fs:torture_slot@tpoff
	addq $5, %fs:torture_slot@tpoff
	mov %fs:torture_slot@tpoff, %rcx
	mov %ss, %edx
	mov %ds, %r9d
	mov %gs, %r10d
	ret
END t_s_segments

CASE t_s_misc, ODD
	mov %r8, %rdx
	bswap %rdx
	mov %dl, %al
	cbw
	cqo
	popcnt %r8, %rcx
	bsr %r9, %r10
	movbe %r10d, SCRATCH_WORK(%rsi)
	crc32q %r8, %r11
	ret
END t_s_misc
