/* SPDX-License-Identifier: MIT */
/* build: -g0 */
/*
 * typed-fortran.S - a module of Fortran as gfortran describes it: what a function takes has the type of
 * the value, and is its address; a function of it that stands in a unit of C (-flto); and functions of
 * another language that take the address of what they are said to take. DWARF 5, by hand.
 */
	.text
	.macro function name
	.globl \name
	.type \name, @function
\name:
	mov (%rdi), %eax
	ret
.Lend_\name:
	.size \name, .Lend_\name - \name
	.endm
.Ltext:
	function takes_referred
.Ltext_end:
.Lother:
	function takes_instance
	function takes_address
	function takes_kept
	function takes_value
	.globl main
	.type main, @function
main:
	xor %eax, %eax
	ret
	.size main, . - main
	.balign 64
/* Variables begin at every 64th byte behind this function's beginning, in the order of the test. */
	.globl beside
	.type beside, @function
beside:
	ret
	.size beside, . - beside
	.macro variable name, bytes
	.balign 64
	.type \name, @object
	.size \name, \bytes
\name:	.zero \bytes
	.endm
	variable ratio, 8
	variable vector, 12
	variable shifted, 12
	variable matrix, 24
	variable elsewhere, 64
.Lother_end:

	.section .debug_abbrev, "", @progbits
.Labbrev:
	/* a unit: name, language, low_pc, high_pc */
	.uleb128 1, 0x11
	.byte 1, 0x03, 0x08, 0x13, 0x0b, 0x11, 0x01, 0x12, 0x07, 0, 0
	/* a base type: name, encoding, byte_size */
	.uleb128 2, 0x24
	.byte 0, 0x03, 0x08, 0x3e, 0x0b, 0x0b, 0x0b, 0, 0
	/* a module: name */
	.uleb128 3, 0x1e
	.byte 1, 0x03, 0x08, 0, 0
	/* a variable: name, type, location */
	.uleb128 4, 0x34
	.byte 0, 0x03, 0x08, 0x49, 0x13, 0x02, 0x18, 0, 0
	/* an array: type, ordering */
	.uleb128 5, 0x01
	.byte 1, 0x49, 0x13, 0x09, 0x0b, 0, 0
	/* one with its elements elsewhere: type, ordering, data_location */
	.uleb128 6, 0x01
	.byte 1, 0x49, 0x13, 0x09, 0x0b, 0x50, 0x18, 0, 0
	/* a dimension: upper_bound */
	.uleb128 7, 0x21
	.byte 0, 0x2f, 0x0b, 0, 0
	/* one with a beginning of its own: lower_bound, upper_bound */
	.uleb128 8, 0x21
	.byte 0, 0x22, 0x0d, 0x2f, 0x0b, 0, 0
	/* a function: name, low_pc, high_pc, type */
	.uleb128 9, 0x2e
	.byte 1, 0x03, 0x08, 0x11, 0x01, 0x12, 0x07, 0x49, 0x13, 0, 0
	/* an instance of one: abstract_origin, low_pc, high_pc */
	.uleb128 10, 0x2e
	.byte 1, 0x31, 0x10, 0x11, 0x01, 0x12, 0x07, 0, 0
	/* an argument: name, type, location */
	.uleb128 11, 0x05
	.byte 0, 0x03, 0x08, 0x49, 0x13, 0x02, 0x18, 0, 0
	.byte 0

	.section .debug_info, "", @progbits
	.macro described name, result, unit
	.uleb128 9
	.asciz "\name"
	.quad \name, .Lend_\name - \name
	.long \result - \unit
	.endm
	/* The location is one of no bytes, or of those that follow. */
	.macro argument name, type, unit, location:vararg
	.uleb128 11
	.asciz "\name"
	.long \type - \unit
	.uleb128 2f - 1f
1:	.byte \location
2:
	.endm
	.macro placed name, type
	.uleb128 4
	.asciz "\name"
	.long \type - .Lfortran
	.uleb128 9
	.byte 0x03
	.quad \name
	.endm
.Lfortran:
	.long 4f - 3f
3:	.value 5
	.byte 1, 8
	.long .Labbrev
	.uleb128 1
	.asciz "module.f90"
	.byte 0x23 /* DW_LANG_Fortran08 */
	.quad .Ltext, .Ltext_end - .Ltext
.Linteger:
	.uleb128 2
	.asciz "integer(kind=4)"
	.byte 5, 4
.Lreal:	.uleb128 2
	.asciz "real(kind=8)"
	.byte 4, 8
.Lvector:
	.uleb128 5
	.long .Linteger - .Lfortran
	.byte 1
	.uleb128 7
	.byte 3, 0
.Lshifted:
	.uleb128 5
	.long .Linteger - .Lfortran
	.byte 1
	.uleb128 8
	.sleb128 -1
	.byte 1, 0
.Lmatrix:
	.uleb128 5
	.long .Linteger - .Lfortran
	.byte 1
	.uleb128 7
	.byte 2
	.uleb128 7
	.byte 3, 0
.Lelsewhere:
	.uleb128 6
	.long .Linteger - .Lfortran
	.byte 1, 2, 0x97, 0x06 /* DW_OP_push_object_address, DW_OP_deref */
	.uleb128 7
	.byte 3, 0
	.uleb128 3
	.asciz "m"
	placed ratio, .Lreal
	placed vector, .Lvector
	placed shifted, .Lshifted
	placed matrix, .Lmatrix
	placed elsewhere, .Lelsewhere
.Ltakes_referred:
	described takes_referred, .Linteger, .Lfortran
	argument k, .Linteger, .Lfortran, 0x75, 0 /* DW_OP_breg5 0 */
	argument x, .Lreal, .Lfortran, 0x74, 0
	.byte 0
	.byte 0
	.byte 0
4:
.Lc:	.long 6f - 5f
5:	.value 5
	.byte 1, 8
	.long .Labbrev
	.uleb128 1
	.asciz "<artificial>"
	.byte 0x1d /* DW_LANG_C11 */
	.quad .Lother, .Lother_end - .Lother
.Lint:	.uleb128 2
	.asciz "int"
	.byte 5, 4
	.uleb128 10
	.long .Ltakes_referred
	.quad takes_instance, .Lend_takes_instance - takes_instance
	argument k, .Lint, .Lc, 0x55 /* DW_OP_reg5 */
	.byte 0
	described takes_address, .Lint, .Lc
	argument n, .Lint, .Lc, 0x54 /* DW_OP_reg4 */
	argument k, .Lint, .Lc, 0x75, 0
	.byte 0
	described takes_kept, .Lint, .Lc
	argument k, .Lint, .Lc, 0x91, 0x68, 0x06 /* DW_OP_fbreg -24, DW_OP_deref */
	.byte 0
	described takes_value, .Lint, .Lc
	argument k, .Lint, .Lc, 0x91, 0x68
	argument n, .Lint, .Lc, 0x77, 8 /* DW_OP_breg7 8: on the stack */
	.byte 0
	.byte 0
6:
	.section .note.GNU-stack, "", @progbits
