/* SPDX-License-Identifier: MIT */
/*
 * decoder.S - H. Encodings on which decoders fail or disagree; what no
 * processor here can run is jumped over.
 */
#include "torture.inc"

CASE t_h_mask, ODD | AVX512
	kmovw %edi, %k1
	vpcmpeqd %zmm1, %zmm2, %k2{%k1}
	kortestw %k1, %k2
	setc %al
	vpternlogd $0x96, %zmm1, %zmm2, %zmm3{%k1}
	vptestmb %zmm4, %zmm5, %k3
	kmovq %k3, %rdx
	kunpckbw %k1, %k2, %k4
	kandnq %k1, %k3, %k5
	vpcmpub $1, SCRATCH_DATA(%rsi), %xmm1, %k6
	kmovd %k6, %ecx
	ret
END t_h_mask

CASE t_h_vaes, ODD | VAES
	vaesenc %zmm1, %zmm2, %zmm3
	vaesdeclast %ymm1, %ymm2, %ymm4
	vpclmulqdq $0x11, %zmm1, %zmm2, %zmm5
	ret
END t_h_vaes

CASE t_h_gfni, ODD | GFNI
	gf2p8affineqb $3, %xmm1, %xmm2
	vgf2p8mulb %ymm1, %ymm2, %ymm3
	gf2p8affineinvqb $7, SCRATCH_WORK(%rsi), %xmm4
	ret
END t_h_gfni

CASE t_h_ifma, ODD | AVX512
	vpmadd52luq %zmm1, %zmm2, %zmm3
	vpmadd52huq SCRATCH_DATA(%rsi){1to8}, %zmm1, %zmm4
	vpermb %zmm1, %zmm2, %zmm5
	ret
END t_h_ifma

	/* Does nothing where there is no shadow stack. */
CASE t_h_rdsspq, ODD
	mov %rdi, %rax
	rdsspq %rax
	lea 1(%rax), %rax
	ret
END t_h_rdsspq

CASE t_h_skipped, ODD
	lea 1(%rdi), %rax
	jmp 1f
	.byte 0xf3, 0x0f, 0xa6, 0xe0	/* rep xsha512 (padlock) */
	.byte 0x0f, 0xa7, 0xc0		/* xstore */
	.byte 0x0f, 0xb9, 0x40, 0x04	/* ud1 4(%rax), %eax */
	.byte 0x0f, 0xff, 0xc1		/* ud0 %ecx, %eax */
	.byte 0xd5, 0x08, 0x01, 0xc0	/* an extended prefix that processors refuse here */
	.byte 0x8f, 0xe9, 0x78, 0x01, 0xc8 /* XOP */
	.byte 0xf3, 0x0f, 0x01, 0xec	/* uiret, or nothing */
1:	lea 2(%rax), %rax
	ret
END t_h_skipped

	/* As gcc ends what cannot be reached. */
CASE t_h_ud1, ODD
	cmp $100, %edi
	jae 1f
	lea 2(%rdi), %rax
	ret
1:	.byte 0x67, 0x0f, 0xb9, 0x40, 0x02
END t_h_ud1
CASE_HERE t_h_ud2, ODD
	cmp $100, %edi
	jae 1f
	lea 2(%rdi), %rax
	ret
1:	ud2
END t_h_ud2

	/* As long as an instruction can be. */
CASE t_h_fifteen, ODD
	.byte 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0
	.byte 0x64, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x89, 0xc8
	/* lock addl $imm32, fs:disp32 with an index, 13 bytes of it; and movabs */
	cs lock addl $0x11223344, SCRATCH_WORK(%rsi, %rdi, 8)
	movabs $0x1122334455667788, %rdx
	ret
END t_h_fifteen

	/* One byte more is no instruction: jumped over. */
CASE t_h_sixteen, ODD
	lea 2(%rdi), %rax
	jmp 1f
	.byte 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0
1:	ret
END t_h_sixteen

CASE t_h_nops, ODD
	nop
	xchg %ax, %ax
	nopl (%rax)
	nopl 0(%rax)
	.byte 0x0f, 0x1f, 0x44, 0, 0
	.byte 0x66, 0x0f, 0x1f, 0x44, 0, 0
	.byte 0x0f, 0x1f, 0x80, 0, 0, 0, 0
	.byte 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0
	.byte 0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0
	.byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0
	.byte 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0
	pause
	ret
END t_h_nops

	/* 32-bit addresses that are no pc-relative ones; high halves must go. */
CASE t_h_addr32, ODD
	lea 5(%edi), %eax
	lea 5(%edi, %r8d, 2), %rcx
	lea (%r9d), %edx
	ret
END t_h_addr32

	/* Prefixes without a meaning, REX that is not last, opcodes with two encodings. */
CASE t_h_prefixes, ODD
	.byte 0x48, 0x66, 0x90		/* REX that does not count */
	.byte 0xf2, 0x01, 0xc8		/* repne add */
	.byte 0x3e, 0x01, 0xca		/* ds add */
	.byte 0x65, 0x89, 0xc2		/* gs mov register */
	.byte 0xf3, 0x0f, 0x1e, 0xc8	/* reserved nop */
	.byte 0x0f, 0x18, 0x06		/* prefetchnta (%rsi) */
	.byte 0x40, 0x8d, 0x46, 0x01	/* REX that changes nothing */
	.byte 0x48, 0x63, 0xc7		/* movslq */
	.byte 0x82 - 2, 0xc0, 0x01	/* add $1, %al */
	.byte 0xd1, 0xf0		/* sal by its other encoding */
	.byte 0xf6, 0xc8, 0x55		/* test by its other encoding */
	ret
END t_h_prefixes

CASE t_h_immediates, ODD
	enter $16, $0
	.cfi_def_cfa %rbp, 16
	.cfi_offset %rbp, -16
	leave
	.cfi_def_cfa %rsp, 8
	.cfi_restore %rbp
	testb $5, SCRATCH_DATA(%rsi)
	testl $0x12345678, SCRATCH_DATA(%rsi)
	testw $0x1234, SCRATCH_DATA(%rsi)
	notl SCRATCH_WORK(%rsi)
	imul $0x12345678, %rdi, %rdx
	shld $5, %rdx, %rcx
	push $0x1234
	.cfi_adjust_cfa_offset 8
	pop %rax
	.cfi_adjust_cfa_offset -8
	pushw $0x1234
	.cfi_adjust_cfa_offset 2
	popw %cx
	.cfi_adjust_cfa_offset -2
	movw $0x1234, SCRATCH_WORK+4(%rsi)
	ret
END t_h_immediates

	/* Behind the return the section ends within what might be an instruction. */
	.section torture_truncated, "ax", @progbits
	.p2align 4
CASE_HERE t_h_truncated, ODD
	lea 2(%rdi), %rax
	ret
END t_h_truncated
	.byte 0x48, 0x8b
