/* SPDX-License-Identifier: MIT */
/*
 * libreload.c - a shared object that is written anew while it is not loaded; see reloads.c,
 * which puts another instruction into the place of the nop: a branch to the second one. The
 * other function has that, so that only a short jump fits in front of it. A third one has two
 * instructions, of which a jump overwrites all but the last bytes of the second one.
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
	".size reload_work,.-reload_work\n"
	".p2align 5\n"
	".globl reload_tiny\n"
	".type reload_tiny,@function\n"
	"reload_tiny:\n"
	".cfi_startproc\n"
	"	mov %edi,%eax\n"
	"1:	add $1,%eax\n"
	"	test $3,%al\n"
	"	jne 1b\n"
	"	ret\n"
	".cfi_endproc\n"
	".size reload_tiny,.-reload_tiny\n"
	".p2align 5\n"
	".globl reload_wide\n"
	".type reload_wide,@function\n"
	"reload_wide:\n"
	".cfi_startproc\n"
	"	mov %edi,%eax\n"
	"	add $0x10001,%eax\n"
	"	ret\n"
	".cfi_endproc\n"
	".size reload_wide,.-reload_wide\n"
	".p2align 5\n");
