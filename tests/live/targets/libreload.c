/* SPDX-License-Identifier: MIT */
/*
 * libreload.c - a shared object that is written anew while it is not loaded; see reloads.c,
 * which puts another instruction into the place of the nop: a branch to the second one.
 */
__asm__(".text\n"
	".globl reload_work\n"
	".type reload_work,@function\n"
	"reload_work:\n"
	".cfi_startproc\n"
	"	mov %edi,%eax\n"
	"	add $1,%eax\n"
	"	test $3,%al\n"
	"	xchg %ax,%ax\n"
	"	ret\n"
	".cfi_endproc\n"
	".size reload_work,.-reload_work\n");
