/* SPDX-License-Identifier: MIT */
/*
 * callee_functions.h - functions by hand for callee_lift.c: each form of each
 * instruction that is lifted, and one for each reason to refuse.
 */
#ifndef DINST_TESTS_UNIT_CALLEE_FUNCTIONS_H
#define DINST_TESTS_UNIT_CALLEE_FUNCTIONS_H

#include <stdint.h>

#define FUNCTION(name, ...)                                                               \
	__asm__(".pushsection .text\n.globl " #name "\n.type " #name ",@function\n" #name \
		":\n" __VA_ARGS__ "\n.size " #name ",.-" #name "\n.popsection\n")

/* A function of arithmetic on rdi, rsi, rdx, rcx that returns rax. */
#define LIFTED(name, ...) FUNCTION(lifted_##name, __VA_ARGS__ "\nret")

LIFTED(add, "lea (%rdi,%rsi),%rax");
LIFTED(alu8, "mov %rdi,%rax\nadd %sil,%al\nsub %dl,%ah\nxor $0x5a,%al\nor %cl,%ah\nand $0x7f,%ah");
LIFTED(alu16, "mov %rdi,%rax\nadd %si,%ax\nsub $0x1234,%ax\nxor %dx,%ax\nnot %ax\nneg %ax");
LIFTED(alu32, "mov %edi,%eax\nadd %esi,%eax\nsub $5,%eax\nxor %edx,%eax\nimul %ecx,%eax\n"
	      "imul $-77,%eax,%eax\nneg %eax");
LIFTED(alu64, "mov %rdi,%rax\nadd %rsi,%rax\nsub $-129,%rax\nxor %rdx,%rax\nor $64,%rax\n"
	      "imul %rcx,%rax\nnot %rax\ninc %rax\ndec %edx\nadd %rdx,%rax");
LIFTED(accumulator, "mov %rdi,%rax\nadd $0x11223344,%rax\nsub $0x55,%al\nxor $0x1234,%ax\n"
		    "and $0x7fffffff,%eax\ntest $0x10,%al\nsete %dl\nmovzbl %dl,%edx\n"
		    "add %rdx,%rax");
LIFTED(carry, "mov %rdi,%rax\nadd %rsi,%rax\nadc $0,%rdx\ncmp %rsi,%rdi\nsbb $-1,%rdx\n"
	      "cmp %esi,%edi\nsbb %ecx,%ecx\nadd %rdx,%rax\nadd %rcx,%rax\n"
	      "cmp %dil,%sil\nadc %rcx,%rax");
LIFTED(shifts, "mov %rdi,%rax\nshl $3,%rax\nshr $5,%eax\nmov %rsi,%r8\nsar $7,%r8\nadd %r8,%rax\n"
	       "sar %edx\nshl %dx\nadd %rdx,%rax\nshr $3,%al\nsar $2,%ah\nsar $33,%r8\n"
	       "xor %r8,%rax");
LIFTED(shifts_by, "mov %rdi,%rax\nshl %cl,%rax\nmov %esi,%r8d\nshr %cl,%r8d\nsar %cl,%edx\n"
		  "add %r8,%rax\nadd %rdx,%rax\nsar %cl,%rsi\nxor %rsi,%rax\nshl %cl,%dil\n"
		  "add %dil,%al");
LIFTED(rotates, "mov %rdi,%rax\nrol $8,%ax\nror $5,%rax\nrol $17,%eax\nror $3,%al\n"
		"rol $1,%rsi\nadd %rsi,%rax");
LIFTED(swaps, "mov %edi,%eax\nbswap %eax\nbswap %rsi\nadd %rsi,%rax");
LIFTED(products, "mov %rdi,%rax\nmul %rsi\nadd %rdx,%rax\nimul %rcx\nadd %rdx,%rax\n"
		 "mul %esi\nadd %rdx,%rax\nimul %ecx\nadd %rdx,%rax");
LIFTED(tenth, "mov %edi,%eax\nmov $0xcccccccd,%edx\nimul %rdx,%rax\nshr $35,%rax");
LIFTED(widths, "movzbl %dil,%eax\nmovsbl %sil,%edx\nadd %rdx,%rax\nmovzwl %cx,%edx\n"
	       "add %rdx,%rax\nmovswq %cx,%rdx\nadd %rdx,%rax\nmovslq %edi,%rdx\nadd %rdx,%rax\n"
	       "mov %rdi,%rdx\nmovzbl %dh,%edx\nadd %rdx,%rax\nmovsbw %sil,%cx\nadd %rcx,%rax");
LIFTED(widen, "mov %rdi,%rax\ncltq\nmov %rax,%rcx\ncqto\nadd %rdx,%rcx\nmov %rsi,%rax\ncltd\n"
	      "add %rdx,%rcx\ncwtl\nadd %rax,%rcx\ncbtw\nadd %rcx,%rax");
LIFTED(numbers, "mov $0x1122334455667788,%rax\nmov $-7,%rcx\nmov $0x89abcdef,%edx\nadd %rcx,%rax\n"
		"xor %rdx,%rax\nmov $0x77,%cl\nmov $0x99,%ch\nadd %rcx,%rax\nor $-1,%edx\n"
		"add %rdx,%rax");
LIFTED(sets, "xor %eax,%eax\ncmp %rsi,%rdi\nsete %al\nlea (%rax,%rax),%rax\ncmp %rsi,%rdi\n"
	     "setl %cl\nmovzbl %cl,%ecx\nadd %rcx,%rax\nadd %rax,%rax\ncmp %esi,%edi\nsetbe %cl\n"
	     "movzbl %cl,%ecx\nadd %rcx,%rax\nadd %rax,%rax\ncmp %si,%di\nsetg %cl\n"
	     "movzbl %cl,%ecx\nadd %rcx,%rax\nadd %rax,%rax\ncmp %sil,%dil\nsetae %cl\n"
	     "movzbl %cl,%ecx\nadd %rcx,%rax\nadd %rax,%rax\ntest %edi,%esi\nsets %cl\n"
	     "movzbl %cl,%ecx\nadd %rcx,%rax\nadd %rax,%rax\nsub %edi,%esi\nsetns %cl\n"
	     "movzbl %cl,%ecx\nadd %rcx,%rax");
LIFTED(tests, "xor %eax,%eax\ntest %rdi,%rdi\nsetle %al\nadd %rax,%rax\nand %rdi,%rsi\nsetg %cl\n"
	      "movzbl %cl,%ecx\nadd %rcx,%rax\nadd %rax,%rax\nadd %edi,%edx\nsetb %cl\n"
	      "movzbl %cl,%ecx\nadd %rcx,%rax\nadd %rax,%rax\nneg %r8d\nsetb %cl\n"
	      "movzbl %cl,%ecx\nadd %rcx,%rax\nadd %rax,%rax\nneg %r9b\nsetg %cl\n"
	      "movzbl %cl,%ecx\nadd %rcx,%rax\nadd %rax,%rax\ndec %di\nsete %cl\n"
	      "movzbl %cl,%ecx\nadd %rcx,%rax\nadd %rax,%rax\nshr $3,%si\nsetne %cl\n"
	      "movzbl %cl,%ecx\nadd %rcx,%rax");
LIFTED(moves, "mov %rdi,%rax\ncmp %rsi,%rdi\ncmovl %rsi,%rax\ncmp %edx,%eax\ncmova %edx,%eax\n"
	      "test %cl,%cl\ncmovs %cx,%ax\ncmp %rcx,%rdx\ncmovne %rdi,%rdx\nadd %rdx,%rax");
LIFTED(bits, "mov $0x3ff000000000001,%rax\nbt %rdi,%rax\nsetb %al\nbt $5,%esi\nadc %rax,%rax\n"
	     "bt %cx,%dx\nsbb %edx,%edx\nadd %rdx,%rax");
LIFTED(branches, "cmp %rsi,%rdi\njl 1f\ncmp %edx,%esi\njbe 2f\nlea 1(%rdi),%rax\nret\n"
		 "1: test %ecx,%ecx\njs 2f\nmov %rsi,%rax\njmp 3f\n2: mov %rdx,%rax\nneg %rax\n"
		 "3: add $7,%rax");
LIFTED(joins, "xor %eax,%eax\ntest $1,%dil\njne 1f\nmov $5,%eax\n1: test $2,%dil\nje 2f\n"
	      "add %rsi,%rax\n2: test $4,%dil\njne 3f\nmov %rdx,%rcx\njmp 4f\n3: mov $9,%ecx\n"
	      "4: add %rcx,%rax");
LIFTED(frame, "push %rbp\nmov %rsp,%rbp\nmov %edi,-4(%rbp)\nmov %rsi,-16(%rbp)\nmov %dl,-20(%rbp)\n"
	      "mov -4(%rbp),%eax\ncltq\nadd -16(%rbp),%rax\nmovsbl -20(%rbp),%edx\n"
	      "movslq %edx,%rdx\nadd %rdx,%rax\naddl $3,-4(%rbp)\nmov -4(%rbp),%edx\n"
	      "add %rdx,%rax\npop %rbp");
LIFTED(saved, "push %rbx\npush %r12\nsub $24,%rsp\nmov %rdi,%rbx\nmov %rsi,%r12\n"
	      "mov %rbx,8(%rsp)\nmov %r12,16(%rsp)\nmov 16(%rsp),%rax\nsub 8(%rsp),%rax\n"
	      "imul %rbx,%rax\nadd $24,%rsp\npop %r12\npop %rbx");
LIFTED(local_pointer, "push %rbp\nmov %rsp,%rbp\nsub $32,%rsp\nmov %rdi,-8(%rbp)\n"
		      "lea -8(%rbp),%rax\nmov %rax,-16(%rbp)\nmov -16(%rbp),%rdx\n"
		      "addq $5,(%rdx)\nmov -8(%rbp),%rax\nleave");
LIFTED(pushes, "push %rdi\npush $-5\npush %rsi\npop %rax\npop %rcx\nadd %rcx,%rax\npop %rdx\n"
	       "add %rdx,%rax");
LIFTED(half_words, "mov %edi,-8(%rsp)\nmov %esi,-4(%rsp)\nmov -8(%rsp),%rax\nmovzwl -6(%rsp),%ecx\n"
		   "add %rcx,%rax\nmov %dl,-7(%rsp)\nadd -8(%rsp),%rax");
LIFTED(pointers, "mov 8(%rdi),%rax\nadd (%rsi),%eax\nmovzbl 3(%rdx),%ecx\nadd %rcx,%rax\n"
		 "movswl 6(%rdi),%ecx\nmovslq %ecx,%rcx\nadd %rcx,%rax");
LIFTED(table, "lea 1f(%rip),%rdx\nmovzbl %dil,%edi\nmov %edi,%esi\nand $7,%esi\n"
	      "movzbl (%rdx,%rsi),%eax\nmovswl 2(%rdx,%rsi,2),%ecx\nadd %rcx,%rax\n"
	      "add 1f(%rip),%rax\nret\n1: .quad 0x1122334455667788,0x99aabbccddeeff00,3,4");
LIFTED(half_lea, "lea 7(%rdi,%rsi,4),%eax\nlea -5(,%rdx,8),%cx\nmovzwl %cx,%ecx\n"
		 "lea (%rax,%rcx),%rax");
LIFTED(landing, "endbr64\nnop\nnopw 0(%rax,%rax)\nmov %edi,%eax\nrep ret");
LIFTED(nothing, "");

static const char *const lifted_names[] = {
	"lifted_add",	   "lifted_alu8",     "lifted_alu16",	      "lifted_alu32",
	"lifted_alu64",	   "lifted_carry",    "lifted_accumulator",   "lifted_shifts",
	"lifted_rotates",  "lifted_swaps",    "lifted_shifts_by",     "lifted_products",
	"lifted_tenth",	   "lifted_widths",   "lifted_widen",	      "lifted_numbers",
	"lifted_sets",	   "lifted_tests",    "lifted_moves",	      "lifted_bits",
	"lifted_branches", "lifted_joins",    "lifted_frame",	      "lifted_saved",
	"lifted_pushes",   "lifted_pointers", "lifted_local_pointer", "lifted_half_words",
	"lifted_table",	   "lifted_half_lea", "lifted_landing",	      "lifted_nothing",
};

/* In front of random code: every register has a number, and those that are kept are saved. */
__asm__(".pushsection .text\nrandom_head:\npush %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\n"
	"push %r15\nmov %rdi,%rax\nmov %rsi,%rbx\nmov %rdx,%rbp\nmov %rcx,%r10\nmov %r8,%r11\n"
	"mov %r9,%r12\nlea (%rdi,%rsi),%r13\nlea (%rdx,%rcx,8),%r14\nmov $77,%r15d\n"
	"cmp %rsi,%rdi\nrandom_head_end:\n.popsection\n");
/* Behind it: all registers go into the result, and so does what is known of the flags: nothing. */
__asm__(".pushsection .text\nrandom_tail:\n"
	".irp r,rbx,rbp,rcx,rdx,rsi,rdi,r8,r9,r10,r11,r12,r13,r14,r15\n"
	"imul $31,%rax,%rax\nadd %\\r,%rax\n.endr\n"
	"pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\nret\nrandom_tail_end:\n"
	".popsection\n");
extern const uint8_t random_head[], random_head_end[], random_tail[], random_tail_end[];

/* Of a variable's address and a number. */
FUNCTION(variable_set, "mov %rsi,(%rdi)\nret");
FUNCTION(variable_parts,
	 "mov %esi,4(%rdi)\nmov %sil,1(%rdi)\nmov %si,2(%rdi)\nmov 3(%rdi),%eax\nret");
FUNCTION(variable_add, "add %rsi,(%rdi)\nmov (%rdi),%rax\nret");
FUNCTION(variable_moved, "push %rbp\nmov %rsp,%rbp\nmov %rdi,-8(%rbp)\nmov -8(%rbp),%rax\n"
			 "add $4,%rax\nmov %esi,(%rax)\nlea -4(%rax),%rdx\nmov (%rdx),%rax\n"
			 "pop %rbp\nret");
FUNCTION(odd_half, "mov %si,1(%rdi)\nret");
FUNCTION(odd_word, "mov %rdi,%rax\nadd $2,%rax\nmov %esi,(%rax)\nret");
FUNCTION(beyond_above, "mov %rsi,1(%rdi)\nret");
FUNCTION(beyond_below, "mov %esi,-4(%rdi)\nret");
FUNCTION(beyond_unknown, "mov %rsi,(%rdi,%rsi,8)\nret");

static const char *const variable_names[] = {"variable_set", "variable_parts", "variable_add",
					     "variable_moved"};

FUNCTION(no_call, "call lifted_add\nret");
FUNCTION(no_indirect_call, "call *%rdi\nret");
FUNCTION(no_tail_call, "jmp lifted_add");
FUNCTION(no_indirect_jump, "jmp *%rdi");
FUNCTION(no_syscall, "mov $39,%eax\nsyscall\nret");
FUNCTION(no_loop, "1: dec %edi\njne 1b\nret");
FUNCTION(no_far_loop, "test %edi,%edi\nje 2f\n1: sub $3,%rdi\n2: cmp %rsi,%rdi\njg 1b\nret");
FUNCTION(no_abort, "mov $5,%eax\n.byte 0xc6,0xf8,7\nret");
FUNCTION(no_trap, "test %edi,%edi\nje 1f\nret\n1: ud2");
FUNCTION(no_breakpoint, "int3\nret");
FUNCTION(no_division, "mov %edi,%eax\ncltd\nidiv %esi\nret");
FUNCTION(no_vector, "movq %rdi,%xmm0\nmovq %xmm0,%rax\nret");
FUNCTION(no_avx, "vpxor %xmm0,%xmm0,%xmm0\nret");
FUNCTION(no_float, "fld1\nfstp %st(0)\nret");
FUNCTION(no_string, "rep stosb\nret");
FUNCTION(no_one_string, "movsb\nret");
FUNCTION(no_atomic, "lock incl (%rdi)\nret");
FUNCTION(no_exchange, "xchg %rsi,(%rdi)\nret");
FUNCTION(no_thread, "mov %fs:0,%rax\nret");
FUNCTION(no_privileged, "cli\nret");
FUNCTION(no_port, "in %dx,%al\nret");
FUNCTION(no_store, "mov %rsi,(%rdi)\nret");
FUNCTION(no_global_store, "mov %edi,1f(%rip)\nret\n1: .quad 0");
FUNCTION(no_added_store, "incl (%rdi)\nret");
FUNCTION(no_caller, "mov 8(%rsp),%rax\nret");
FUNCTION(no_return_address, "mov (%rsp),%rax\nret");
FUNCTION(no_overwrite, "mov %rdi,(%rsp)\nret");
FUNCTION(no_large_frame, "sub $4096,%rsp\nmov %rdi,(%rsp)\nadd $4096,%rsp\nret");
FUNCTION(no_alignment, "push %rbp\nmov %rsp,%rbp\nand $-32,%rsp\nleave\nret");
FUNCTION(no_balance, "push %rdi\nret");
FUNCTION(no_stack_pointer, "push %rsp\npop %rax\nmov %rsi,-8(%rsp)\nmov %rdi,-16(%rsp)\n"
			   "mov -8(%rax),%rax\nret");
FUNCTION(no_kept, "mov %rdi,%rbx\nret");
FUNCTION(no_lost, "push %rbx\nmov %rdi,%rbx\nadd $8,%rsp\nret");
FUNCTION(no_argument, "mov %rdx,%rax\nret");
FUNCTION(no_unset, "lea (%rax,%rdi),%rax\nret");
FUNCTION(no_unset_frame, "mov -8(%rsp),%rax\nret");
FUNCTION(no_half_set, "test %edi,%edi\nje 1f\nmov %rsi,-8(%rsp)\n1: mov -8(%rsp),%rax\nret");
FUNCTION(no_frame_address, "lea -8(%rsp),%rax\nret");
FUNCTION(no_frame_number, "mov %rsp,%rax\nshr $12,%rax\nret");
FUNCTION(no_frame_passed, "mov %rsi,-8(%rsp)\nlea -16(%rsp),%rcx\nmov (%rcx,%rdi,8),%rax\nret");
FUNCTION(no_overflow, "cmp %rsi,%rdi\nseto %al\nret");
FUNCTION(no_parity, "test %dil,%dil\nsetp %al\nret");
FUNCTION(no_flags, "sete %al\nret");
FUNCTION(no_old_flags, "cmp %rsi,%rdi\ninc %rdi\nsetb %al\nret");
FUNCTION(no_mixed_flags, "test %edi,%edi\nje 1f\ncmp %rsi,%rdi\n1: sete %al\nret");
FUNCTION(no_end, "mov %edi,%eax");
FUNCTION(no_far_return, "lretq");
FUNCTION(no_popping_return, "ret $8");
FUNCTION(no_direction, "std\nret");
FUNCTION(no_flags_word, "pushf\npop %rax\nret");
FUNCTION(no_counted, "mov %edi,%ecx\njrcxz 1f\nnop\n1: ret");
FUNCTION(no_bit_string, "bt %rsi,(%rdi)\nret");
FUNCTION(no_short_address, "mov (%edi),%eax\nret");
FUNCTION(no_cpuid, "cpuid\nret");
FUNCTION(no_time, "rdtsc\nret");
FUNCTION(no_carry_turn, "rcl $1,%rdi\nret");
FUNCTION(no_crossing, "mov %rdi,-16(%rsp)\nmov %rdi,-8(%rsp)\nmov -12(%rsp),%rax\nret");

static const struct {
	const char *name, *why;
} refused_names[] = {
	{"no_call", "+0x0, 'call"},
	{"no_call", "calls another function"},
	{"no_indirect_call", "calls another function"},
	{"no_tail_call", "goes on in another function"},
	{"no_indirect_jump", "where it goes is not known"},
	{"no_syscall", "+0x5, 'syscall"},
	{"no_syscall", "system call"},
	{"no_loop", "loop"},
	{"no_far_loop", "loop"},
	{"no_abort", "not one of those"},
	{"no_trap", "it traps"},
	{"no_breakpoint", "it traps"},
	{"no_division", "division may trap"},
	{"no_vector", "vector"},
	{"no_avx", "vector"},
	{"no_float", "floating point"},
	{"no_string", "goes through memory"},
	{"no_one_string", "goes through memory"},
	{"no_atomic", "atomic"},
	{"no_stack_pointer", "not one of those"},
	{"no_exchange", "not one of those"},
	{"no_thread", "belongs to its thread"},
	{"no_privileged", "privileged"},
	{"no_port", "privileged"},
	{"no_store", "memory that is not its own"},
	{"no_global_store", "memory that is not its own"},
	{"no_added_store", "memory that is not its own"},
	{"no_caller", "caller's frame"},
	{"no_return_address", "caller's frame"},
	{"no_overwrite", "caller's frame"},
	{"no_large_frame", "frame is too large"},
	{"no_alignment", "address of its own frame as a number"},
	{"no_balance", "stack pointer is not where it was"},
	{"no_kept", "register that functions must keep"},
	{"no_lost", "register that functions must keep"},
	{"no_argument", "argument that is not given"},
	{"no_unset", "not set before"},
	{"no_unset_frame", "not set before"},
	{"no_half_set", "not set before"},
	{"no_frame_address", "returns the address of its own frame"},
	{"no_frame_number", "address of its own frame as a number"},
	{"no_frame_passed", "address of its own frame as a number"},
	{"no_overflow", "overflow"},
	{"no_parity", "parity"},
	{"no_flags", "not known here"},
	{"no_old_flags", "not known here"},
	{"no_mixed_flags", "not known here"},
	{"no_end", "function's end"},
	{"no_far_return", "does not return as functions do"},
	{"no_popping_return", "does not return as functions do"},
	{"no_direction", "not one of those"},
	{"no_flags_word", "not one of those"},
	{"no_counted", "branch is not one of those"},
	{"no_bit_string", "bits of memory"},
	{"no_short_address", "32 bits"},
	{"no_cpuid", "not one of those"},
	{"no_time", "not one of those"},
	{"no_carry_turn", "through the carry"},
	{"no_crossing", "parts of two words"},
};

#endif
