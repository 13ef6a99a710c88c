/* SPDX-License-Identifier: MIT */
/* build: -Wl,-z,noexecstack */
/*
 * points-slow.S - functions that are made to take minutes or hours: each of their
 * instructions asks for a look at all others; and one that is small. Planned by tests/unit/points_slow.c. Only
 * main runs: it returns 0.
 */
	.text

/* A hundred and fifty thousand jumps, each come to by a branch behind the one before it. */
	.p2align 12
	.globl chained
	.type chained, @function
chained:
	.rept 150000
	je 1f
	jmp *%rax
1:
	.endr
	ret
	.size chained, . - chained

/* Nothing leads to the jumps, and nothing but addresses is ever in their register. */
	.p2align 12
	.globl lost
	.type lost, @function
lost:
	lea 1f(%rip), %rax
1:
	.rept 500000
	jmp *%rax
	.endr
	.size lost, . - lost

/* All may lead to all: rows of equal pieces. */
	.p2align 12
	.globl rows
	.type rows, @function
rows:
	push %rbp
	mov %rsp, %rbp
	pop %rbp
	.p2align 4
0:
	.rept 65536
	lea 0b(%rip), %rax
	shl $4, %rdi
	add %rdi, %rax
	jmp *%rax
	.endr
	.size rows, . - rows

/* Blocks behind what is no instruction: each is known from the one behind it, and only so. */
	.p2align 12
	.globl labels
	.type labels, @function
labels:
	lea 2f - 8(%rip), %rax
	ret
	.byte 6
	ret
	.fill 7, 1, 0x90
	.rept 400000
	.byte 6
1:	lea 1b - 9(%rip), %rax
	ret
	.endr
2:
	.size labels, . - labels

/* Exits that have no room, and a way that leads to each. */
	.p2align 12
	.globl crowded
	.type crowded, @function
crowded:
	.rept 350000
	je 1f
	ret
1:
	.endr
	.size crowded, . - crowded

/* What a label leads to, that may be no code, jumps back to anything. */
	.p2align 12
	.globl late
	.type late, @function
late:
	push %rbp
	mov %rsp, %rbp
	lea 1f(%rip), %rax
	pop %rbp
	ret
	.byte 6
1:
	lea late(%rip), %rdx
	add %rdi, %rdx
	jmp *%rdx
	.size late, . - late

/* A switch whose table goes on with what leads to each of more functions than are kept, in turn. */
	.p2align 12
	.globl swept
	.type swept, @function
swept:
	lea .Lsweeps(%rip), %rcx
	cmp $1, %edi
	ja 2f
	mov %edi, %edi
	movslq (%rcx, %rdi, 4), %rax
	add %rcx, %rax
	jmp *%rax
1:	mov $1, %eax
	ret
2:	mov $2, %eax
	ret
	.size swept, . - swept
	.pushsection .rodata
	.p2align 2
.Lsweeps:
	.long 1b - .Lsweeps, 2b - .Lsweeps
	.set n, 0
	.rept 60000
	.long sweeps + n % 40 * 0x8000 + n / 40 - .Lsweeps
	.set n, n + 1
	.endr
	.popsection

/* Branches of all those functions lead into it, of each in turn. */
	.p2align 12
	.globl entered
	.type entered, @function
entered:
	.fill 40 * 1200, 1, 0x90
	ret
	.size entered, . - entered

	.macro SWEEP n
	.type swept_\n, @function
swept_\n:
	.fill 0x8000 - 1200 * 5 - 1, 1, 0x90
	.set k, 0
	.rept 1200
	jmp entered + k * 40 + \n
	.set k, k + 1
	.endr
	ret
	.size swept_\n, . - swept_\n
	.endm
	.altmacro
	.p2align 12
sweeps:
	.set n, 0
	.rept 40
	SWEEP %n
	.set n, n + 1
	.endr

	.globl main
	.type main, @function
main:
	xor %eax, %eax
	ret
	.size main, . - main
