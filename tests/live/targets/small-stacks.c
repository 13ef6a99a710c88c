/* SPDX-License-Identifier: MIT */
/* build: -O2 -no-pie */
/*
 * small-stacks.c - functions as OCaml 5 makes them, on a stack as small as it can be when they are entered: 256 bytes,
 * and below those what is the runtime's. Prints "ready"; "go N": each of them N times, then "done", or "wrong" once
 * something has been written below a stack.
 */
#include <stdio.h>
#include <string.h>

enum { BELOW = 1024, LEAST = 256, CANARY = 0x5a };

static unsigned char stack[BELOW + LEAST + 64] __attribute__((aligned(64)));
static long domain[8]; /* the sixth word is the lowest address of the stack */

/* Calls the function with its return address at `top` - 8. */
long on_stack(long (*function)(void), void *top, long *its_domain);

__asm__(".text\n"
	".globl on_stack\n"
	".type on_stack, @function\n"
	"on_stack:\n"
	"	push %rbx\n"
	"	push %r14\n"
	"	mov %rdx, %r14\n"
	"	mov %rsp, %rbx\n"
	"	mov %rsi, %rsp\n"
	"	call *%rdi\n"
	"	mov %rbx, %rsp\n"
	"	pop %r14\n"
	"	pop %rbx\n"
	"	ret\n"
	".size on_stack, . - on_stack\n"

	".globl camlUnit.code_begin\n"
	"camlUnit.code_begin:\n"
	".globl camlUnit.leaf_1\n"
	".type camlUnit.leaf_1, @function\n"
	"camlUnit.leaf_1:\n"
	"	mov $3, %eax\n"
	"	lea 2(%rax), %rax\n"
	"	ret\n"
	".size camlUnit.leaf_1, . - camlUnit.leaf_1\n"
	".p2align 5, 0xcc\n"

	".globl camlUnit.spills_2\n"
	".type camlUnit.spills_2, @function\n"
	"camlUnit.spills_2:\n"
	"	sub $232, %rsp\n"
	"	movq $5, (%rsp)\n"
	"	mov (%rsp), %rax\n"
	"	add $232, %rsp\n"
	"	ret\n"
	".size camlUnit.spills_2, . - camlUnit.spills_2\n"
	".p2align 5, 0xcc\n"

	".globl camlUnit.looks_3\n"
	".type camlUnit.looks_3, @function\n"
	"camlUnit.looks_3:\n"
	"	lea -328(%rsp), %r10\n"
	"	cmp 40(%r14), %r10\n"
	"	jb 2f\n"
	"1:	sub $8, %rsp\n"
	"	call camlUnit.leaf_1\n"
	"	add $8, %rsp\n"
	"	ret\n"
	"2:	push $34\n"
	"	call caml_call_realloc_stack\n"
	"	pop %r10\n"
	"	jmp 1b\n"
	".size camlUnit.looks_3, . - camlUnit.looks_3\n"
	".globl camlUnit.code_end\n"
	"camlUnit.code_end:\n"

	".globl caml_system__code_begin\n"
	"caml_system__code_begin:\n"
	".globl caml_call_realloc_stack\n"
	".type caml_call_realloc_stack, @function\n"
	"caml_call_realloc_stack:\n"
	"	ud2\n"
	".size caml_call_realloc_stack, . - caml_call_realloc_stack\n"
	".globl caml_system__code_end\n"
	"caml_system__code_end:\n");

long camlUnit_leaf(void) __asm__("camlUnit.leaf_1");
long camlUnit_spills(void) __asm__("camlUnit.spills_2");
long camlUnit_looks(void) __asm__("camlUnit.looks_3");

/* True if the result is 5, with so many bytes below its return address, and nobody has written below those. */
static int is_right(long (*function)(void), size_t room)
{
	const long result = on_stack(function, stack + BELOW + room + 8, domain);
	int right = result == 5;

	for (size_t i = 0; i < BELOW; i++)
		right &= stack[i] == CANARY;
	return right;
}

int main(void)
{
	char line[64];
	int right = 1;
	long n;

	memset(stack, CANARY, sizeof(stack));
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "go %ld", &n) != 1)
			continue;
		for (long i = 0; i < n; i++) {
			right &= is_right(camlUnit_leaf, LEAST);
			right &= is_right(camlUnit_spills, LEAST);
			/* It has found that there is enough below its frame. */
			right &= is_right(camlUnit_looks, LEAST + 16);
		}
		puts(right ? "done" : "wrong");
	}
	return !right;
}
