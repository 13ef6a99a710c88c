/* SPDX-License-Identifier: MIT */
/* build: -g0 */
/*
 * typed-rules.S - functions of a language whose rules for passing things nobody has written down
 * (Rust), or of which the compiler says that it has changed how they are called, and a variable whose
 * address stands in a table, as clang writes it. The debug information is made by hand: DWARF 5.
 */
	.text
	.macro function name
	.globl \name
	.type \name, @function
\name:
	mov %edi, %eax
	ret
.Lend_\name:
	.size \name, .Lend_\name - \name
	.endm
.Ltext:
	function gives_wide
	function gives_number
	function takes_nothing
	function takes_changed
	function main
	.balign 16
/* 16 bytes behind this function's beginning */
	.globl beside
	.type beside, @function
beside:
	ret
	.size beside, . - beside
	.balign 16
ratio:
	.double 1.5
	.type ratio, @object
	.size ratio, 8
.Ltext_end:

	.section .debug_addr, "", @progbits
	.long 2f - 1f
1:	.value 5
	.byte 8, 0
.Ladr:	.quad ratio
2:

	.section .debug_abbrev, "", @progbits
.Labbrev:
	/* the unit: name, language, low_pc, high_pc, addr_base */
	.uleb128 1, 0x11
	.byte 1, 0x03, 0x08, 0x13, 0x0b, 0x11, 0x01, 0x12, 0x07
	.uleb128 0x73
	.byte 0x17, 0, 0
	/* a base type: name, encoding, byte_size */
	.uleb128 2, 0x24
	.byte 0, 0x03, 0x08, 0x3e, 0x0b, 0x0b, 0x0b, 0, 0
	/* a struct: name, byte_size */
	.uleb128 3, 0x13
	.byte 0, 0x03, 0x08, 0x0b, 0x0b, 0, 0
	/* a function: name, low_pc, high_pc, type, calling_convention */
	.uleb128 4, 0x2e
	.byte 1, 0x03, 0x08, 0x11, 0x01, 0x12, 0x07, 0x49, 0x13, 0x36, 0x0b, 0, 0
	/* an argument: name, type */
	.uleb128 5, 0x05
	.byte 0, 0x03, 0x08, 0x49, 0x13, 0, 0
	/* a variable: name, type, location */
	.uleb128 6, 0x34
	.byte 0, 0x03, 0x08, 0x49, 0x13, 0x02, 0x18, 0, 0
	.byte 0

	.section .debug_info, "", @progbits
	.macro described name, result, convention
	.uleb128 4
	.asciz "\name"
	.quad \name, .Lend_\name - \name
	.long \result - .Linfo
	.byte \convention
	.endm
	.macro argument name, type
	.uleb128 5
	.asciz "\name"
	.long \type - .Linfo
	.endm
.Linfo:
	.long 4f - 3f
3:	.value 5
	.byte 1, 8
	.long .Labbrev
	.uleb128 1
	.asciz "typed-rules"
	.byte 0x1c /* DW_LANG_Rust */
	.quad .Ltext, .Ltext_end - .Ltext
	.long .Ladr
.Lu32:	.uleb128 2
	.asciz "u32"
	.byte 7, 4
.Lf64:	.uleb128 2
	.asciz "f64"
	.byte 4, 8
.Lunit:	.uleb128 2
	.asciz "()"
	.byte 7, 0
.Lwide:	.uleb128 3
	.asciz "wide"
	.byte 24
	described gives_wide, .Lwide, 1
	argument a, .Lu32
	.byte 0
	described gives_number, .Lu32, 1
	argument a, .Lu32
	.byte 0
	described takes_nothing, .Lu32, 1
	argument a, .Lunit
	argument b, .Lu32
	.byte 0
	described takes_changed, .Lu32, 3 /* DW_CC_nocall */
	argument a, .Lu32
	.byte 0
	.uleb128 6
	.asciz "ratio"
	.long .Lf64 - .Linfo
	.uleb128 2
	.byte 0xa1, 0 /* DW_OP_addrx */
	.byte 0
4:
	.section .note.GNU-stack, "", @progbits
