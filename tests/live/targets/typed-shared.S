/* SPDX-License-Identifier: MIT */
/* build: -g0 */
/*
 * typed-shared.S - a function whose types are told in a file that several share, as dwz makes it: that
 * is built from this, too, with TYPES defined (typed-shared-types.S). The debug information is made by hand.
 */
	.text
	.globl main
	.type main, @function
main:
	xor %eax, %eax
	ret
	.size main, . - main
#ifndef TYPES
	.globl takes_shared
	.type takes_shared, @function
takes_shared:
	mov %edi, %eax
	ret
.Lend:
	.size takes_shared, . - takes_shared
#endif

	.section .debug_abbrev, "", @progbits
.Labbrev:
	/* a unit: name, language, low_pc, high_pc; and one that is a part of others */
	.uleb128 1, 0x11
	.byte 1, 0x03, 0x08, 0x13, 0x0b, 0x11, 0x01, 0x12, 0x07, 0, 0
	.uleb128 2, 0x3c
	.byte 1, 0x13, 0x0b, 0, 0
	/* a base type: name, encoding, byte_size */
	.uleb128 3, 0x24
	.byte 0, 0x03, 0x08, 0x3e, 0x0b, 0x0b, 0x0b, 0, 0
	/* a function: name, low_pc, high_pc, prototyped, type (DW_FORM_GNU_ref_alt) */
	.uleb128 4, 0x2e
	.byte 1, 0x03, 0x08, 0x11, 0x01, 0x12, 0x07, 0x27, 0x19, 0x49
	.uleb128 0x1f20
	.byte 0, 0
	/* an argument: name, type */
	.uleb128 5, 0x05
	.byte 0, 0x03, 0x08, 0x49
	.uleb128 0x1f20
	.byte 0, 0, 0

/* Where the types are in the shared file: behind the heads of its section and of its unit. */
#define DOUBLE 13
#define INT    (DOUBLE + 5)

	.section .debug_info, "", @progbits
	.long 2f - 1f
1:	.value 4
	.long .Labbrev
	.byte 8
#ifdef TYPES
	.uleb128 2
	.byte 0x0c
	.uleb128 3
	.asciz "d"
	.byte 4, 8
	.uleb128 3
	.asciz "i"
	.byte 5, 4
#else
	.uleb128 1
	.asciz "typed-shared"
	.byte 0x0c /* DW_LANG_C99 */
	.quad takes_shared, .Lend - takes_shared
	.uleb128 4
	.asciz "takes_shared"
	.quad takes_shared, .Lend - takes_shared
	.long INT
	.uleb128 5
	.asciz "a"
	.long DOUBLE
	.uleb128 5
	.asciz "b"
	.long INT
	.byte 0
#endif
	.byte 0
2:
	.section .note.GNU-stack, "", @progbits
