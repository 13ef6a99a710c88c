/* SPDX-License-Identifier: MIT */
/* build: -no-pie -Wl,-z,noexecstack */
/*
 * points-ocaml.S - an image of OCaml's before version 5: code of two units, and of others.
 * Expectations in tests/unit/points_ocaml.c; only main runs.
 */
#include "points-macros.inc"

/* As a function is whose frame has one word. */
.macro FRAME name
FN name
	sub $8, %rsp
	call caml_call_gc
	add $8, %rsp
	ret
END name
	.p2align 5, 0xcc
.endm

	.globl caml_call_gc
FN caml_call_gc
	ret
END caml_call_gc
	.p2align 5, 0xcc

	.globl camlOne__code_begin
camlOne__code_begin:
FRAME camlOne__f_1
	.globl camlOne__code_end
camlOne__code_end:

FRAME caml_between

	.globl camlTwo__code_begin
camlTwo__code_begin:
FRAME camlTwo__g_1
	.globl camlTwo__code_end
camlTwo__code_end:

FRAME caml_behind

	.section .note.GNU-stack, "", @progbits
