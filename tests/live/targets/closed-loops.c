/* SPDX-License-Identifier: MIT */
/* build: -O2 */
/*
 * closed-loops.c - functions that nobody leaves, as they stand at the end of programs without an operating system
 * and in watchdogs: each jumps to its own beginning. "run N": a thread calls function N (0: loop_self, 1: loop_pause,
 * 2: loop_work, 3: loop_twice) and stays in it; "running". Ends with its input, status 0.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* The last two can be left, and nobody calls them, nor the two before. */
void loop_self(void), loop_pause(void), loop_work(void), loop_twice(void);
/* clang-format off */
__asm__(".text\n"
	".p2align 4, 0xcc\n"
	".type loop_self,@function\n"
	"loop_self:\n"
	"	.cfi_startproc\n"
	"	jmp loop_self\n"
	"	.cfi_endproc\n"
	".size loop_self,.-loop_self\n"
	".p2align 4, 0xcc\n"
	".type loop_pause,@function\n"
	"loop_pause:\n"
	"	.cfi_startproc\n"
	"	pause\n"
	"	jmp loop_pause\n"
	"	.cfi_endproc\n"
	".size loop_pause,.-loop_pause\n"
	".p2align 4, 0xcc\n"
	".type loop_work,@function\n"
	"loop_work:\n"
	"	.cfi_startproc\n"
	"	lea 1(%rax),%rax\n"
	"	imul %rdi,%rax\n"
	"	jmp loop_work\n"
	"	.cfi_endproc\n"
	".size loop_work,.-loop_work\n"
	".p2align 4, 0xcc\n"
	".type loop_twice,@function\n"
	"loop_twice:\n"
	"	.cfi_startproc\n"
	"	cmp %rsp,%rsp\n"
	"	jne loop_twice\n"
	"	lea 1(%rax),%rax\n"
	"	jmp loop_twice\n"
	"	.cfi_endproc\n"
	".size loop_twice,.-loop_twice\n"
	".p2align 4, 0xcc\n"
	".type loop_near,@function\n"
	"loop_near:\n"
	"	.cfi_startproc\n"
	"	.byte 0xe9\n"
	"	.long -5\n"
	"	.cfi_endproc\n"
	".size loop_near,.-loop_near\n"
	".p2align 4, 0xcc\n"
	".type loop_behind,@function\n"
	"loop_behind:\n"
	"	.cfi_startproc\n"
	"	mov %rdi,%rax\n"
	"	imul $5,%rax,%rax\n"
	"1:\n"
	"	pause\n"
	"	jmp 1b\n"
	"	.cfi_endproc\n"
	".size loop_behind,.-loop_behind\n"
	".p2align 4, 0xcc\n"
	".type way_out,@function\n"
	"way_out:\n"
	"	.cfi_startproc\n"
	"	cmp %edi,(%rsi)\n"
	"	je 1f\n"
	"	pause\n"
	"	jmp way_out\n"
	"1:\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size way_out,.-way_out\n"
	".p2align 4, 0xcc\n"
	".type way_down,@function\n"
	"way_down:\n"
	"	.cfi_startproc\n"
	"	lea 1(%rax),%rax\n"
	"	dec %edi\n"
	"	jne way_down\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size way_down,.-way_down\n");
/* clang-format on */

static void (*const loops[])(void) = {loop_self, loop_pause, loop_work, loop_twice};
static volatile int begun;

static void *run(void *arg)
{
	__atomic_store_n(&begun, 1, __ATOMIC_SEQ_CST);
	loops[(size_t)arg]();
	return NULL;
}

int main(void)
{
	pthread_t thread;
	char line[64];

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		size_t n = 0;

		if (sscanf(line, "run %zu", &n) != 1 || n >= sizeof(loops) / sizeof(*loops))
			return 2;
		begun = 0;
		if (pthread_create(&thread, NULL, run, (void *)n))
			return 2;
		while (!begun)
			continue;
		puts("running");
		fflush(stdout);
	}
	exit(0);
}
