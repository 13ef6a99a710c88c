/* SPDX-License-Identifier: MIT */
/* build: -O2 -Wl,-z,noexecstack */
/*
 * address.c - functions each of which makes one access to memory last, at an
 * address that the program knows: all forms of operands.
 *
 * address: prints "ready"; "go N" calls every function N times, checks what they
 * have loaded and stored, and prints "done"; "list" prints a line
 * "NAME load|store ADDRESS" for each, then "end". Ends with its input.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTION(name, body)                                                                  \
	__asm__(".text\n.p2align 5\n.globl " #name "\n.type " #name ", @function\n" #name     \
		":\n.cfi_startproc\n" body ".cfi_endproc\n.size " #name ", . - " #name "\n"); \
	void name(void)

/* Arguments: rdi an array of words, rsi an index, rdx a value; the result is in rax. A return
 * would be a load, too: those that load leave by a jump. */
FUNCTION(a_leave, "	ret\n");
FUNCTION(a_store_base, "	mov %rdx, (%rdi)\n	mov $0, %eax\n	ret\n");
FUNCTION(a_store_small, "	mov %rdx, 24(%rdi)\n	mov $0, %eax\n	ret\n");
FUNCTION(a_store_large, "	mov %rdx, 0x400(%rdi)\n	mov $0, %eax\n	ret\n");
FUNCTION(a_store_index, "	mov %rdx, 8(%rdi,%rsi,8)\n	mov $0, %eax\n	ret\n");
FUNCTION(a_store_byte, "	mov %dl, (%rdi,%rsi)\n	mov $0, %eax\n	ret\n");
FUNCTION(a_store_scaled, "	shr $3, %rdi\n	mov %rdx, 16(,%rdi,8)\n	ret\n");
FUNCTION(a_store_global, "	mov %rdx, a_word(%rip)\n	mov $0, %eax\n	ret\n");
FUNCTION(a_store_below, "	mov %rdx, -16(%rsp)\n	mov -16(%rsp), %rax\n	ret\n");
FUNCTION(a_store_vector, "	movq %rdx, %xmm0\n	movdqu %xmm0, 32(%rdi)\n	ret\n");
FUNCTION(a_store_locked, "	lock addq $1, 8(%rdi)\n	mov $0, %eax\n	ret\n");
FUNCTION(a_store_string, "	mov %rdx, %rax\n	lea 40(%rdi), %rdi\n	stosq\n	ret\n");
FUNCTION(a_store_push, "	push %rdx\n	lea 1(%rdx), %rdx\n	pop %rax\n	ret\n");
FUNCTION(a_store_call, "	mov $7, %eax\n	call a_leave\n	ret\n");
FUNCTION(a_store_called, "	lea a_leave(%rip), %rax\n	call *%rax\n	ret\n");
FUNCTION(a_store_table, "	mov $7, %eax\n	call *a_leave_at(%rip)\n	ret\n");
FUNCTION(a_store_r12, "	push %r12\n	mov %rdi, %r12\n	mov %rdx, 8(%r12)\n"
		      "	pop %r12\n	ret\n");
FUNCTION(a_store_own, "	mov %rdi, %rax\n	mov %rax, 8(%rax)\n	mov $0, %eax\n	ret\n");
FUNCTION(a_load_base, "	mov (%rdi), %rax\n	jmp a_leave\n");
FUNCTION(a_load_own, "	mov %rdi, %rax\n	mov 8(%rax), %rax\n	jmp a_leave\n");
FUNCTION(a_load_index,
	 "	mov %rsi, %rax\n	mov (%rdi,%rax,4), %eax\n	jmp a_leave\n");
FUNCTION(a_load_global, "	cmp %rdx, a_word(%rip)\n	mov $0, %eax\n	jmp a_leave\n");
FUNCTION(a_load_thread, "	mov a_thread_word@gottpoff(%rip), %rax\n"
			"	mov %fs:(%rax), %rax\n	jmp a_leave\n");
FUNCTION(a_load_stack, "	mov (%rsp), %rax\n	mov $0, %eax\n	jmp a_leave\n");
FUNCTION(a_load_flags, "	cmp %rdx, (%rdi)\n	sete %al\n	jmp a_leave\n");
/* Everything but the first two instructions is a target: on a condition rax is changed in between. */
FUNCTION(a_store_chosen, "	lea 64(%rdi), %rax\n	cmp $5, %esi\n"
			 "1:	cmove %rdi, %rax\n2:	mov %rdx, 56(%rax)\n"
			 "3:	xor %ecx, %ecx\n	jne.d32 1b\n	jne.d32 2b\n"
			 "	jne.d32 3b\n	mov $0, %eax\n	ret\n");

/* Calls `function` and leaves where its stack begins in a_stack. */
uint64_t a_run(void (*function)(void), uint64_t *words, uint64_t index, uint64_t value);
__asm__(".text\n.globl a_run\n.type a_run, @function\n"
	"a_run:	mov %rdi, %rax\n"
	"	mov %rsi, %rdi\n"
	"	mov %rdx, %rsi\n"
	"	mov %rcx, %rdx\n"
	"	sub $8, %rsp\n"
	"	mov %rsp, a_stack(%rip)\n"
	"	call *%rax\n"
	"	add $8, %rsp\n"
	"	ret\n"
	".size a_run, . - a_run\n");

uint64_t a_word, a_stack;
__thread uint64_t a_thread_word = 99;
void (*a_leave_at)(void) = a_leave;
static uint64_t words[160];
static int wrong;

enum { INDEX = 5, VALUE = 0x1234 };

/* Where it is: in words, from a_stack, or at a symbol. */
enum where { WORDS, STACK, GLOBAL, THREAD };

static const struct {
	const char *name, *kind;
	void (*function)(void);
	enum where where;
	long offset;
} accesses[] = {
	{"a_store_base", "store", a_store_base, WORDS, 0},
	{"a_store_small", "store", a_store_small, WORDS, 24},
	{"a_store_large", "store", a_store_large, WORDS, 0x400},
	{"a_store_index", "store", a_store_index, WORDS, 8 + INDEX * 8},
	{"a_store_byte", "store", a_store_byte, WORDS, INDEX},
	{"a_store_scaled", "store", a_store_scaled, WORDS, 16},
	{"a_store_global", "store", a_store_global, GLOBAL, 0},
	{"a_store_below", "store", a_store_below, STACK, -8 - 16},
	{"a_store_vector", "store", a_store_vector, WORDS, 32},
	{"a_store_locked", "store", a_store_locked, WORDS, 8},
	{"a_store_string", "store", a_store_string, WORDS, 40},
	{"a_store_push", "store", a_store_push, STACK, -16},
	{"a_store_call", "store", a_store_call, STACK, -16},
	{"a_store_called", "store", a_store_called, STACK, -16},
	{"a_store_table", "store", a_store_table, STACK, -16},
	{"a_store_r12", "store", a_store_r12, WORDS, 8},
	{"a_store_own", "store", a_store_own, WORDS, 8},
	{"a_load_base", "load", a_load_base, WORDS, 0},
	{"a_load_own", "load", a_load_own, WORDS, 8},
	{"a_load_index", "load", a_load_index, WORDS, INDEX * 4},
	{"a_load_global", "load", a_load_global, GLOBAL, 0},
	{"a_load_thread", "load", a_load_thread, THREAD, 0},
	{"a_load_stack", "load", a_load_stack, STACK, -8},
	{"a_load_flags", "load", a_load_flags, WORDS, 0},
};

enum { ACCESSES = sizeof(accesses) / sizeof(accesses[0]) };

static uint64_t address_of(unsigned i)
{
	switch (accesses[i].where) {
	case WORDS:
		return (uint64_t)(uintptr_t)words + (uint64_t)accesses[i].offset;
	case STACK:
		return a_stack + (uint64_t)accesses[i].offset;
	case GLOBAL:
		return (uint64_t)(uintptr_t)&a_word;
	default:
		return (uint64_t)(uintptr_t)&a_thread_word;
	}
}

static void must(int right)
{
	wrong |= !right;
}

static void round_of_all(void)
{
	uint64_t result[ACCESSES];

	memset(words, 0, sizeof(words));
	for (unsigned i = 0; i < ACCESSES; i++)
		result[i] = a_run(accesses[i].function, words, INDEX, VALUE);
	a_run(a_store_chosen, words, INDEX, VALUE);
	must(words[7] == VALUE);
	/* a_store_base's word is changed by a_store_byte, that of a_store_locked by others. */
	must((words[0] & 0xffff) == VALUE && words[3] == VALUE && words[128] == VALUE);
	must(words[6] == VALUE && words[2] == VALUE && a_word == VALUE && words[4] == VALUE);
	must(words[5] == VALUE && words[1] == (uint64_t)(uintptr_t)words);
	must(result[7] == VALUE && result[11] == VALUE && result[12] == 7 && result[14] == 7);
	must(result[17] == words[0] && result[18] == words[1] && result[21] == 99);
	must(result[19] == (uint32_t)(words[2] >> 32) && (result[23] & 1) == (words[0] == VALUE));
}

int main(void)
{
	char line[64];

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "list", 4)) {
			for (unsigned i = 0; i < ACCESSES; i++)
				printf("%s %s %lu\n", accesses[i].name, accesses[i].kind,
				       (unsigned long)address_of(i));
			puts("end");
		} else {
			for (unsigned long n = strtoul(line + 3, NULL, 10); n; n--)
				round_of_all();
			puts(wrong ? "wrong" : "done");
		}
		fflush(stdout);
	}
	return wrong;
}
