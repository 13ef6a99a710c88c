/* SPDX-License-Identifier: MIT */
/*
 * listed.c - places in functions that no instruction names: distances in sections of the program's own, by
 * which it overwrites an instruction with a jump while it runs (static keys, with the jump's target in the
 * same function) and goes on elsewhere after a fault; and a jump to where a call has pushed its return
 * address, and some bytes more. And a function whose name ends as those of parts of functions do.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

struct pair {
	int32_t code, target; /* from where they stand */
};

extern const struct pair __start_keys[], __stop_keys[], __start_faults[], __stop_faults[];
extern int keyed(int n, int m, int *to), fetch(const int *from, int otherwise);
extern int whole(int n) __asm__("things.cold"); /* and there is no function things */
extern int fetch_more(const int *from, int *to), popped(int way, int n, int *to);

__asm__(".text\n"
	".macro BEGIN name\n"
	"	.globl \\name\n"
	"	.type \\name,@function\n"
	"\\name:\n"
	".endm\n"
	".macro END name\n"
	"	.size \\name,.-\\name\n"
	".endm\n"
	"BEGIN keyed\n"
	"	mov $77,%eax\n"
	".Lkey:	.byte 0x0f,0x1f,0x44,0,0\n"
	"	mov %edi,%eax\n"
	"	imul %esi,%eax\n"
	"	xor %eax,(%rdx)\n"
	"	movl $7,4(%rdx)\n"
	"	mov %esi,%eax\n"
	".Lon:	xor %edi,%eax\n"
	"	ret\n"
	"END keyed\n"
	"BEGIN fetch\n"
	".Lload:	mov (%rdi),%eax\n"
	"	add $5,%eax\n"
	"	ret\n"
	".Lfixed:	mov %esi,%eax\n"
	"	ret\n"
	"END fetch\n"
	"BEGIN fetch_more\n"
	"	xor %eax,%eax\n"
	"	inc %eax\n"
	".Ladd:	add (%rdi),%eax\n"
	"	xor %eax,(%rsi)\n"
	".Lskipped:	lea 1(%rax),%eax\n"
	"	ret\n"
	"END fetch_more\n"
	"BEGIN popped\n"
	"	call 1f\n"
	"1:	pop %rcx\n"
	"	add $(.Lafter-1b),%rcx\n"
	"	test $1,%dil\n"
	"	jne 3f\n"
	"	jmp 2f\n"
	"3:	jmp *%rcx\n"
	"2:	movl $7,4(%rdx)\n"
	"	mov %esi,%eax\n"
	"	xor %eax,8(%rdx)\n"
	".Lafter:	mov %esi,%eax\n"
	"	ret\n"
	"END popped\n"
	"BEGIN things.cold\n"
	"	lea 7(%rdi),%eax\n"
	"	imul $3,%eax\n"
	"	ret\n"
	"END things.cold\n"
	".pushsection keys,\"a\"\n"
	"	.long .Lkey-., .Lon-.\n"
	".popsection\n"
	".pushsection faults,\"a\"\n"
	"	.long .Lload-., .Lfixed-., .Ladd-., .Lskipped-.\n"
	".popsection\n");

static char *place(const int32_t *distance)
{
	return (char *)(uintptr_t)distance + *distance;
}

static void handler(int number, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;

	(void)info;
	for (const struct pair *p = __start_faults; p < __stop_faults; p++) {
		if (uc->uc_mcontext.gregs[REG_RIP] != (long)place(&p->code))
			continue;
		uc->uc_mcontext.gregs[REG_RIP] = (long)place(&p->target);
		return;
	}
	signal(number, SIG_DFL);
}

static void turn_on(const struct pair *p)
{
	const long page = sysconf(_SC_PAGESIZE);
	char *at = place(&p->code), *start = (char *)((uintptr_t)at & -(uintptr_t)page);
	const int32_t distance = (int32_t)(place(&p->target) - at - 5);

	mprotect(start, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC);
	*at = (char)0xe9;
	memcpy(at + 1, &distance, sizeof(distance));
	mprotect(start, 2 * page, PROT_READ | PROT_EXEC);
}

int main(int argc, char **argv)
{
	const struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	unsigned sum = 0;
	int words[4] = {0};

	(void)argv;
	sigaction(SIGSEGV, &action, NULL);
	for (int i = 0; i < 20; i++) {
		if (i == 10)
			turn_on(__start_keys);
		sum = sum * 3 + (unsigned)keyed(i, 3, words);
		sum = sum * 3 + (unsigned)fetch(i & 1 ? NULL : &argc, i);
		sum = sum * 3 + (unsigned)fetch_more(i & 2 ? NULL : &argc, words + 2);
		sum = sum * 3 + (unsigned)popped(i, argc, words) + (unsigned)whole(i);
	}
	printf("%u %d %d %d\n", sum, words[0], words[1], words[2]);
	return 0;
}
