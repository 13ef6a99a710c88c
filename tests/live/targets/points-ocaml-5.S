/* SPDX-License-Identifier: MIT */
/* build: -no-pie -Wl,-z,noexecstack -Itests/live/targets */
/*
 * points-ocaml-5.S - the same of OCaml's version 5. Expectations in tests/unit/points_ocaml.c.
 */
	.globl caml_call_realloc_stack
	.set caml_call_realloc_stack, caml_call_gc
#include "points-ocaml.S"
