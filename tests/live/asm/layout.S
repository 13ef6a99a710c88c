/* SPDX-License-Identifier: MIT */
/*
 * layout.S - A. What lies beside what: tiny functions with and without room
 * behind them, pages, lines, names, data in code.
 */
#include "torture.inc"

CASE t_a_ret, ODD
	ret
END t_a_ret

	.p2align 4
CASE_HERE t_a_ret_tight, ODD
	ret
END t_a_ret_tight
CASE_HERE t_a_ret_tight_next, ODD
	lea 3(%rdi, %r8), %rax
	ret
END t_a_ret_tight_next
CASE_HERE t_a_ret_between, ODD
	ret
END t_a_ret_between
CASE_HERE t_a_ret_row, ODD
	ret
END t_a_ret_row
CASE_HERE t_a_ret_row_last, ODD
	lea 5(%rdi, %r8), %rax
	ret
END t_a_ret_row_last

	/* Neither has room for a jump. */
CASE t_a_four_first, ODD
	mov %rdi, %rax
	ret
END t_a_four_first
CASE_HERE t_a_four_second, ODD
	mov %rdi, %rcx
	ret
END t_a_four_second
CASE_HERE t_a_four_behind, ODD
	lea 3(%rdi, %r8), %rax
	ret
END t_a_four_behind

CASE t_a_xor_ret, ODD
	xor %eax, %eax
	ret
END t_a_xor_ret

CASE t_a_xor_ret_tight, ODD
	xor %eax, %eax
	ret
END t_a_xor_ret_tight
CASE_HERE t_a_xor_ret_next, ODD
	xor %ecx, %ecx
	ret
END t_a_xor_ret_next
CASE_HERE t_a_four_bytes, ODD
	mov %rdi, %rax
	ret
END t_a_four_bytes
CASE_HERE t_a_five_bytes, ODD
	lea 1(%rdi), %rax
	ret
END t_a_five_bytes
CASE_HERE t_a_six_bytes, ODD
	mov $77, %eax
	ret
END t_a_six_bytes

	/* Ends in a call that does not return; the return address is the next function's. */
CASE t_a_noreturn
	lea 9(%rdi), %rax
	test %edi, %edi
	DOWN 8
	call torture_escape
END t_a_noreturn
CASE_HERE t_a_noreturn_next, ODD
	mov %rdi, %rax
	cmp $4, %edi
	jb 1f
	lea 11(%rax), %rax
1:	ret
END t_a_noreturn_next

	/* The same, and nothing but the call. */
CASE t_a_noreturn_only
	call torture_escape
END t_a_noreturn_only
CASE_HERE t_a_noreturn_only_next, ODD
	ret
END t_a_noreturn_only_next

CASE t_a_endbr_ret, ODD
	endbr64
	ret
END t_a_endbr_ret
CASE_HERE t_a_endbr_tight, ODD
	endbr64
	ret
END t_a_endbr_tight
CASE_HERE t_a_endbr_next, ODD
	endbr64
	lea 1(%r8), %rax
	ret
END t_a_endbr_next

	/* Called behind its endbr64, as linkers make calls that need none. */
CASE t_a_endbr_skipped
	lea 2(%rdi), %r8
	DOWN 8
	call t_a_endbr_next + 4
	UP 8
	MIX %rax
	ret
END t_a_endbr_skipped

	/* Blocks of four bytes that end in a jump to the next instruction. */
CASE t_a_jmp_zero, ODD
	mov %edi, %eax
	.byte 0xeb, 0
	ret
END t_a_jmp_zero
CASE_HERE t_a_jmp_zero_inside, ODD
	cmp $4, %edi
	jb 1f
	lea 7(%rcx), %rcx
1:	mov %edi, %eax
	.byte 0xeb, 0
	lea 1(%rax), %rax
	ret
END t_a_jmp_zero_inside

	/* Two names on one address. */
CASE t_a_two_names, ODD
	.globl t_a_second_name
	.type t_a_second_name, @function
	.set t_a_second_name, t_a_two_names
	lea 3(%r8), %rax
	xor %rdi, %rax
	ret
END t_a_two_names
	.size t_a_second_name, . - t_a_two_names

	/* A symbol without a size, as assembler code has. */
	.p2align 4
	REGISTER t_a_no_size, ODD | NOFRAME
	.globl t_a_no_size
t_a_no_size:
	lea 3(%r8), %rax
	cmp $3, %edi
	je 1f
	lea 4(%rax), %rax
1:	ret

	/* A function within a function: both are called. */
CASE t_a_nest, ODD
	lea 3(%r8), %rax
	cmp $3, %edi
	lea 1(%rcx), %rcx
	REGISTER t_a_nested, ODD
	.globl t_a_nested
	.type t_a_nested, @function
t_a_nested:
	lea 9(%r8), %rdx
	setc %al
	lea 2(%rdx), %rdx
	ret
	.size t_a_nested, . - t_a_nested
END t_a_nest

	/* Data within the function, looked at by it. */
CASE t_a_data, ODD
	lea 1f(%rip), %rax
	add (%rax, %rdi, 8), %r8
	jmp 2f
1:	.ascii "\xe8\x01\x02\x03\x04rc4(8x,int) \x0f\xe9\xc3\x0f\x05\xff\x25\xeb\x02 by somebody"
	.ascii "\x62\x06\xd5\xc4\xf0\xf3\x66\x67 and some more text to read from here on"
2:	lea 5(%r8), %rax
	ret
END t_a_data

	/* Zeros that are a table, not padding; and a one-byte function before them. */
CASE t_a_before_zeros, ODD
	mov t_a_zeros(%rip), %rax
	add t_a_zeros+8(%rip), %rax
	lea (%rax, %rdi), %rax
	ret
END t_a_before_zeros
CASE_HERE t_a_ret_before_zeros, ODD
	ret
END t_a_ret_before_zeros
t_a_zeros:
	.zero 16
CASE_HERE t_a_behind_zeros, ODD
	xor %eax, %eax
	ret
END t_a_behind_zeros

	/* Its first instructions lie across two lines of the cache, then across two pages. */
	.p2align 6
	.skip 62, 0xcc
CASE_HERE t_a_cross_line, ODD
	xchg %eax, %ecx
	xchg %eax, %edx
	xchg %eax, %ebx
	xchg %eax, %ecx
	xchg %eax, %edx
	ret
END t_a_cross_line

	.p2align 12
	.skip 4094, 0xcc
CASE_HERE t_a_cross_page, ODD
	xchg %eax, %ecx
	xchg %eax, %edx
	xchg %eax, %ebx
	xchg %eax, %ecx
	xchg %eax, %edx
	lea 5(%rax), %rax
	ret
END t_a_cross_page
	.p2align 12
	.skip 4093, 0xcc
	/* One instruction of seven bytes across. */
CASE_HERE t_a_cross_insn, ODD
	lea t_a_zeros(%rip), %rax
	mov %edi, %ecx
	ret
END t_a_cross_insn
	/* The exit across the pages. */
	.p2align 12
	.skip 4084, 0xcc
CASE_HERE t_a_cross_exit, ODD
	lea 1(%rdi), %rax
	lea 2(%rdi), %rcx
	xchg %eax, %ecx
	xchg %eax, %edx
	xchg %eax, %ebx
	xchg %eax, %ecx
	ret
END t_a_cross_exit
	/* Three bytes up to the end of the page. */
	.p2align 12
	.skip 4093, 0xcc
CASE_HERE t_a_page_end, ODD
	xor %eax, %eax
	ret
END t_a_page_end
CASE_HERE t_a_page_begin, ODD
	xor %edx, %edx
	ret
END t_a_page_begin

	/* The last bytes of a section of its own. */
	.section torture_last, "ax", @progbits
	.p2align 4
CASE_HERE t_a_section_end, ODD
	mov %edi, %eax
	ret
END t_a_section_end
