/* SPDX-License-Identifier: MIT */
/* build: -g0 */
/*
 * typed-hostile.S - debug information made by hand (DWARF 5) to do harm: an enumeration that is of its
 * own type, and one of 256 enumerators that all have the same name, of 64 KB.
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
	function takes_endless
	function takes_long
	function main
.Ltext_end:

	.section .debug_str, "MS", @progbits, 1
.Lname:	.fill 65536, 1, 'n'
	.byte 0

	.section .debug_abbrev, "", @progbits
.Labbrev:
	/* the unit: name, language, low_pc, high_pc */
	.uleb128 1, 0x11
	.byte 1, 0x03, 0x08, 0x13, 0x0b, 0x11, 0x01, 0x12, 0x07, 0, 0
	/* an enumeration with nothing in it: name, byte_size, type */
	.uleb128 2, 0x04
	.byte 0, 0x03, 0x08, 0x0b, 0x0b, 0x49, 0x13, 0, 0
	/* an enumeration: name, byte_size */
	.uleb128 3, 0x04
	.byte 1, 0x03, 0x08, 0x0b, 0x0b, 0, 0
	/* an enumerator: name, const_value */
	.uleb128 4, 0x28
	.byte 0, 0x03, 0x0e, 0x1c, 0x0f, 0, 0
	/* a function: name, low_pc, high_pc */
	.uleb128 5, 0x2e
	.byte 1, 0x03, 0x08, 0x11, 0x01, 0x12, 0x07, 0, 0
	/* an argument: name, type */
	.uleb128 6, 0x05
	.byte 0, 0x03, 0x08, 0x49, 0x13, 0, 0
	.byte 0

	.section .debug_info, "", @progbits
	.macro described name
	.uleb128 5
	.asciz "\name"
	.quad \name, .Lend_\name - \name
	.endm
	.macro argument name, type
	.uleb128 6
	.asciz "\name"
	.long \type - .Linfo
	.endm
.Linfo:
	.long 4f - 3f
3:	.value 5
	.byte 1, 8
	.long .Labbrev
	.uleb128 1
	.asciz "typed-hostile"
	.byte 0x1d /* DW_LANG_C11 */
	.quad .Ltext, .Ltext_end - .Ltext
.Lendless:
	.uleb128 2
	.asciz "endless"
	.byte 4
	.long .Lendless - .Linfo
.Llong:	.uleb128 3
	.asciz "long"
	.byte 4
	.set number, 0
	.rept 256
	.uleb128 4
	.long .Lname
	.uleb128 number
	.set number, number + 1
	.endr
	.byte 0
	described takes_endless
	argument a, .Lendless
	.byte 0
	described takes_long
	argument a, .Llong
	argument b, .Llong
	argument c, .Llong
	argument d, .Llong
	.byte 0
	.byte 0
4:
	.section .note.GNU-stack, "", @progbits
