/* SPDX-License-Identifier: MIT */
/* build: -no-pie -Wl,-z,noexecstack */
/*
 * points-absolute.S - code that runs at its link-time address and names memory among it by
 * whole addresses. Expectations in tests/unit/points_plan.c; only main runs.
 */
#include "points-macros.inc"

	/* Constants that look like padding, and that somebody reads by their whole addresses. */
.macro X_READ name
	.p2align 4
FN_HERE \name
	ret
END \name
.L\name:	.quad 0
	.p2align 4, 0
.endm
	X_READ x_read_plain
	X_READ x_read_indexed
	X_READ x_read_based
	X_READ x_read_both
	X_READ x_read_wide
	X_READ x_read_never
FN_HERE x_reader
	mov .Lx_read_plain, %rax
	add .Lx_read_indexed(, %rdi, 8), %rax
	addb $1, .Lx_read_based(%rsi)
	movups .Lx_read_both(%rsi, %rdi, 2), %xmm0
	movabs .Lx_read_wide, %al
	ret
END x_reader
	FILL fill_read
