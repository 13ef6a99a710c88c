/* SPDX-License-Identifier: MIT */
/* build: -O2 -shared -fPIC */
/*
 * libhooks.c - a library that calls a function of its own that never returns, and that the program may
 * have one of its own in the place of: then that may return. Read by tests/unit/image_flow.c.
 */
#include <stdlib.h>

void h_hook(void);

__attribute__((weak)) void h_hook(void)
{
	abort();
}

/* After each of the first two calls there is padding, behind which a loop begins. */
__asm__(".text\n.p2align 4\n.globl h_calls\n.type h_calls, @function\n"
	"h_calls:\n.cfi_startproc\n"
	"	push %rbx\n.cfi_def_cfa_offset 16\n"
	"	mov %edi, %ebx\n"
	"	test %ebx, %ebx\n"
	"	je 1f\n"
	"	call h_hook@PLT\n"
	"	.nops 8\n"
	"1:	dec %ebx\n"
	"	jns 1b\n"
	"	call *h_hook@GOTPCREL(%rip)\n"
	"	.nops 8\n"
	"2:	inc %ebx\n"
	"	js 2b\n"
	"	call abort@PLT\n"
	".cfi_endproc\n.size h_calls, . - h_calls\n");
