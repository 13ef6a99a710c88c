/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -fno-ipa-icf -fcf-protection=full -Wl,-z,now */
/*
 * control-flow.c - a processor that enforces control flow, in software: the
 * program traps itself at every instruction, keeps a shadow stack of return
 * addresses, and sees to it that an indirect branch leads to an endbr64 (Intel
 * SDM volume 1, chapter 17). What belongs to other files is let be: they are
 * not built for it here.
 *
 * control-flow: prints "ready". Commands:
 *   work     a round of calls of all kinds, untraced; "done"
 *   step     the same, enforced; "steps N shadow S branch B": how many
 *            instructions, and how many times a processor would have faulted
 * Exits with 1 if a result was wrong.
 */
#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))

enum { DEPTH = 4096, TRAP_FLAG = 0x100 };

static struct {
	uint64_t previous; /* instruction before this one, 0 at the beginning */
	uint64_t expected[DEPTH];
	unsigned depth;
	unsigned long steps, shadow, branch;
} machine;

static struct {
	uint64_t lo, hi;
} others[64]; /* code of libraries */
static size_t other_count;
static volatile int wrong;

/* ------------------------------------------------------------- the machine */

static int is_other(uint64_t pc)
{
	for (size_t i = 0; i < other_count; i++)
		if (pc >= others[i].lo && pc < others[i].hi)
			return 1;
	return 0;
}

/* What the instruction does: 'c' call, 'r' return, and whether it is checked: 'i' indirect. */
struct seen {
	int call, ret, indirect;
	unsigned length; /* of a call */
};

static unsigned operand_length(const uint8_t *p)
{
	unsigned mod = p[0] >> 6, rm = p[0] & 7, length = 1;

	if (mod == 3)
		return 1;
	if (rm == 4) {
		length++;
		if (mod == 0 && (p[1] & 7) == 5)
			length += 4;
	}
	if (mod == 0 && rm == 5)
		length += 4;
	return length + (mod == 1 ? 1 : mod == 2 ? 4 : 0);
}

static struct seen look(uint64_t pc)
{
	const uint8_t *p = (const uint8_t *)pc;
	struct seen s = {0};
	int notrack = 0;

	while (*p == 0xf2 || *p == 0xf3 || *p == 0x3e || *p == 0x66 || *p == 0x67 || *p == 0x2e ||
	       (*p & 0xf0) == 0x40)
		notrack |= *p++ == 0x3e;
	if (*p == 0xe8) {
		s.call = 1;
		s.length = (unsigned)(p + 5 - (const uint8_t *)pc);
	} else if (*p == 0xc3 || *p == 0xc2) {
		s.ret = 1;
	} else if (*p == 0xff && (p[1] >> 3 & 7) == 2) {
		s.call = 1;
		s.indirect = !notrack;
		s.length = (unsigned)(p + 1 + operand_length(p + 1) - (const uint8_t *)pc);
	} else if (*p == 0xff && (p[1] >> 3 & 7) == 4) {
		s.indirect = !notrack;
	}
	return s;
}

static void on_trap(int sig, siginfo_t *info, void *context)
{
	static const uint8_t endbr[] = {0xf3, 0x0f, 0x1e, 0xfa};
	uint64_t pc = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	struct seen s;

	machine.steps++;
	if (machine.previous) {
		s = look(machine.previous);
		if (s.call && machine.depth < DEPTH)
			machine.expected[machine.depth++] = machine.previous + s.length;
		if (s.ret && machine.depth && machine.expected[--machine.depth] != pc)
			machine.shadow++;
		if (s.indirect && !is_other(pc) && memcmp((const void *)pc, endbr, sizeof(endbr)))
			machine.branch++;
	}
	machine.previous = pc;
	(void)sig;
	(void)info;
}

KEEP static void enforce(void (*f)(void))
{
	memset(&machine, 0, sizeof(machine));
	__asm__ volatile("pushfq; orq %0,(%%rsp); popfq" ::"i"(TRAP_FLAG) : "memory", "cc");
	f();
	__asm__ volatile("pushfq; andq %0,(%%rsp); popfq" ::"i"(~TRAP_FLAG) : "memory", "cc");
}

static int add_code(struct dl_phdr_info *info, size_t size, void *arg)
{
	/* The first one is the program. */
	if (info->dlpi_name && *info->dlpi_name)
		for (int i = 0; i < info->dlpi_phnum && other_count < 64; i++)
			if (info->dlpi_phdr[i].p_type == PT_LOAD) {
				others[other_count].lo =
					info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
				others[other_count].hi =
					others[other_count].lo + info->dlpi_phdr[i].p_memsz;
				other_count++;
			}
	(void)size;
	(void)arg;
	return 0;
}

/* ---------------------------------------------------------------- the work */

typedef long (*function)(long);
static function volatile pointer;

KEEP long leaf(long n)
{
	return n * 3 + 1;
}

KEEP long other_leaf(long n)
{
	return n - 5;
}

/* A short indirect call among the first bytes, as compilers write it. */
KEEP long through(function f)
{
	return f(7) + 1;
}

KEEP long recursive(long n)
{
	return n <= 0 ? leaf(n) : recursive(n - 1) + 1;
}

KEEP long tail(long n)
{
	return leaf(n + 1);
}

KEEP long tail_indirect(long n)
{
	return pointer(n);
}

KEEP long cases(long n)
{
	switch (n) {
	case 0:
		return leaf(1);
	case 1:
		return other_leaf(20) * 2;
	case 2:
		return recursive(3);
	case 3:
		return tail(4) + 9;
	case 4:
		return through(leaf);
	case 5:
		return tail_indirect(5) * 7;
	default:
		return -n;
	}
}

KEEP int by_value(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* An entry whose second instruction is a two-byte call; then another just as short. */
long short_calls(function f, function g);
__asm__(".text\n"
	".globl short_calls\n"
	".type short_calls,@function\n"
	"short_calls:\n"
	".cfi_startproc\n"
	"	endbr64\n"
	"	push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbx,0\n"
	"	mov %rdi,%rax\n"
	"	push %rsi\n.cfi_adjust_cfa_offset 8\n"
	"	sub $8,%rsp\n.cfi_adjust_cfa_offset 8\n"
	"	mov $9,%edi\n"
	"	call *%rax\n"
	"	mov %rax,%rbx\n"
	"	mov %rbx,%rdi\n"
	"	call *8(%rsp)\n"
	"	add %rbx,%rax\n"
	"	add $8,%rsp\n.cfi_adjust_cfa_offset -8\n"
	"	pop %rsi\n.cfi_adjust_cfa_offset -8\n"
	"	pop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbx\n"
	"	ret\n"
	".cfi_endproc\n"
	".size short_calls,.-short_calls\n"
	/* The call is within the entry's first five bytes behind the landing pad. */
	".globl call_first\n"
	".type call_first,@function\n"
	"call_first:\n"
	".cfi_startproc\n"
	"	endbr64\n"
	"	push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbx,0\n"
	"	call *%rsi\n"
	"	add $3,%rax\n"
	"	pop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbx\n"
	"	ret\n"
	".cfi_endproc\n"
	".size call_first,.-call_first\n"
	".section .note.GNU-stack,\"\",@progbits\n"
	".text\n");
long call_first(long n, function f);

/*
 * Left by a jump, which a processor's shadow stack is told of (incssp in longjmp); the machine
 * is, too. What is entered next finds that the two were left.
 */
static jmp_buf out;

KEEP long jumps(long n)
{
	longjmp(out, (int)n);
}

KEEP long jumps_below(long n)
{
	return jumps(n) + 1;
}

KEEP long jumped(long n)
{
	const unsigned depth = machine.depth;
	const int result = __builtin_expect(setjmp(out), 0);

	if (!result)
		return jumps_below(n);
	machine.depth = depth;
	return leaf(result);
}

KEEP void work(void)
{
	static const long expected[] = {4, 30, 4, 25, 23, 112, -6};
	int numbers[] = {5, 3, 4, 1, 2};

	pointer = leaf;
	for (long i = 0; i < 7; i++)
		if (cases(i) != expected[i])
			wrong = 1;
	if (short_calls(leaf, other_leaf) != 28 + 23)
		wrong = 1;
	if (call_first(2, leaf) != 10)
		wrong = 1;
	if (jumped(5) != 16)
		wrong = 1;
	qsort(numbers, 5, sizeof(numbers[0]), by_value);
	for (int i = 0; i < 5; i++)
		if (numbers[i] != i + 1)
			wrong = 1;
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
	char line[64];

	dl_iterate_phdr(add_code, NULL);
	sigaction(SIGTRAP, &action, NULL);
	work();
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "step", 4)) {
			enforce(work);
			printf("steps %lu shadow %lu branch %lu\n", machine.steps, machine.shadow,
			       machine.branch);
		} else {
			work();
			puts("done");
		}
		fflush(stdout);
	}
	return wrong;
}
