/* SPDX-License-Identifier: MIT */
/* build: -no-pie -Wl,-z,noexecstack -Itests/live/targets */
/*
 * points-ocaml-5.S - the same of OCaml's version 5, and of a unit as its compiler makes them.
 * Expectations in tests/unit/points_ocaml.c.
 */
#include "points-ocaml.S"

	.text
	.globl camlThree.code_begin
camlThree.code_begin:

/* Calls others, and so looks first. */
FN camlThree.looks_1
	lea -328(%rsp), %r10
	cmp 40(%r14), %r10
	jb 2f
1:	sub $8, %rsp
	call camlThree.leaf_2
	add $8, %rsp
	ret
2:	push $34
	call caml_call_realloc_stack
	pop %r10
	jmp 1b
END camlThree.looks_1

/* Has no frame. */
FN camlThree.leaf_2
	lea 2(%rax), %rax
	ret
END camlThree.leaf_2

/* Allocates, and without a frame. */
FN camlThree.leaf_3
1:	sub $16, %r15
	cmp (%r14), %r15
	jb 2f
	lea 8(%r15), %rax
	ret
2:	call caml_call_gc
	jmp 1b
END camlThree.leaf_3

/* Has a frame of which nobody tells how much it leaves. */
FN camlThree.spills_4
	sub $232, %rsp
	mov %rax, 224(%rsp)
	call caml_call_gc
	mov 224(%rsp), %rax
	add $232, %rsp
	ret
END camlThree.spills_4

/* So has who sets a handler of exceptions. */
FN camlThree.pushes_5
	lea 1f(%rip), %r11
	push %r11
	push 48(%r14)
	mov %rsp, 48(%r14)
	mov (%rax), %rax
	pop 48(%r14)
	add $8, %rsp
1:	ret
END camlThree.pushes_5

/* Looks, but only where it has taken its frame. */
FN camlThree.late_6
	sub $136, %rsp
	lea -328(%rsp), %r10
	cmp 40(%r14), %r10
	jb 2f
1:	call camlThree.leaf_2
	add $136, %rsp
	ret
2:	push $34
	call caml_call_realloc_stack
	pop %r10
	jmp 1b
END camlThree.late_6

/* Looks only on one of its ways. */
FN camlThree.branches_7
	test $1, %al
	je 3f
	sub $136, %rsp
	mov (%rsp), %rax
	add $136, %rsp
	ret
3:	lea -328(%rsp), %r10
	cmp 40(%r14), %r10
	jb 2f
1:	sub $8, %rsp
	call camlThree.leaf_2
	add $8, %rsp
	ret
2:	push $34
	call caml_call_realloc_stack
	pop %r10
	jmp 1b
END camlThree.branches_7

	.globl camlThree.code_end
camlThree.code_end:

/* What the runtime has in assembler runs on what is left below a leaf's frame. */
	.globl caml_system__code_begin
caml_system__code_begin:
FN caml_alloc1
	sub $16, %r15
	cmp (%r14), %r15
	jb 1f
	ret
1:	jmp caml_call_gc
END caml_alloc1

	.globl caml_call_realloc_stack
FN caml_call_realloc_stack
	ret
END caml_call_realloc_stack

	.globl caml_system__code_end
caml_system__code_end:
	ret

	.section .note.GNU-stack, "", @progbits
