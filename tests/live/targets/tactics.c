/* SPDX-License-Identifier: MIT */
/*
 * tactics.c - functions whose entries and exits can be had by a short jump into
 * another window, on the ways that lead to them, or round a loop only. Each
 * comes back with a sum that shows an instruction executed twice or not at all.
 *
 * tactics THREADS [crowded]: prints "ready"; `crowded`: memory is taken where jumps lead that
 * share a byte with a call. Commands, one a line:
 *   tids         the workers' thread ids
 *   go N         every worker calls each function N times; "done"
 *   start / end  every worker calls them until told to end; "started", then the
 *                number of times that each function was called in all
 * A worker that has nothing to do spins between `park` and `park_end`. Exits
 * with 1 if any result was wrong.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <sys/syscall.h>
#include <unistd.h>

struct control {
	volatile long rounds; /* 0: nothing to do, -1: end */
	volatile long done;
	void (*volatile function)(void);
	volatile long expected;
	volatile long wrong;
};

extern long worker(struct control *c);
extern void ladder(void), ways(void), looped(void), spun(void), tight(void), tight_door(void),
	landed(void);
extern void roomy(void), narrow(void), evened(void), thin(void);
extern void shared(void), restored(void), rewound(void), wound(void), parting(void), circling(void),
	woven(void), woven_in(void), laced(void);

/* The functions use rax, rcx and rdx, and look at rbp: the rounds that are left. */
__asm__(".text\n"
	".globl worker, park, park_end, back, ladder, ladder_in, ways, looped, landed, spun, tight\n"
	".globl tight_door, shared, restored, restored_out\n"
	".macro BEGIN name\n"
	"	.type \\name,@function\n"
	"\\name:\n"
	"	.cfi_startproc\n"
	".endm\n"
	".macro END name\n"
	"	.cfi_endproc\n"
	"	.size \\name,.-\\name\n"
	".endm\n"
	"BEGIN worker\n"
	"	push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbx,0\n"
	"	push %rbp\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbp,0\n"
	"	push %rax\n.cfi_adjust_cfa_offset 8\n"
	"	mov %rdi,%rbx\n"
	"park:	pause\n"
	"	mov (%rbx),%rbp\n"
	"	test %rbp,%rbp\n"
	"	jz park\n"
	"park_end:\n"
	"	js 3f\n"
	"1:	xor %eax,%eax\n"
	"	call *16(%rbx)\n"
	"back:	cmp 24(%rbx),%rax\n"
	"	je 2f\n"
	"	incq 32(%rbx)\n"
	"2:	incq 8(%rbx)\n"
	"	dec %rbp\n"
	"	jnz 1b\n"
	"	movq $0,(%rbx)\n"
	"	jmp park\n"
	"3:	pop %rcx\n.cfi_adjust_cfa_offset -8\n"
	"	pop %rbp\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbp\n"
	"	pop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbx\n"
	"	ret\n"
	"END worker\n"
	".p2align 4\n"
	"BEGIN leaf\n"
	"	add $100,%rax\n"
	"	lea 1(%rax),%rax\n"
	"	ret\n"
	"END leaf\n"
	/* Its exit has two bytes that a call comes back to; the hole is behind the second rung. */
	".p2align 4\n"
	"BEGIN ladder\n"
	"	push %r12\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %r12,0\n"
	"	inc %rax\n"
	"ladder_in:\n"
	"	inc %rax\n	inc %rax\n	inc %rax\n	inc %rax\n	inc %rax\n"
	"	call leaf\n"
	"	pop %r12\n.cfi_adjust_cfa_offset -8\n.cfi_restore %r12\n"
	"	ret\n"
	"END ladder\n"
	/* Jumps long and short, and a straight line, to a return that nothing is before. */
	"BEGIN ways\n"
	"	add $3,%rax\n"
	"	test $1,%bpl\n"
	"	je 4f\n"
	"	test $2,%bpl\n"
	"	je 5f\n"
	"	add $2,%rax\n"
	"	{disp32} jmp 6f\n"
	"4:	add $2,%rax\n"
	"	test $2,%bpl\n"
	"	{disp32} jne 6f\n"
	"	test $4,%bpl\n"
	"	je 6f\n"
	"	test $8,%bpl\n"
	"	{disp32} jmp 6f\n"
	"5:	lea 2(%rax),%rax\n"
	"6:	ret\n"
	"END ways\n"
	/* Back to its first instruction, from near and from far. */
	"BEGIN looped\n"
	"	inc %rax\n"
	"	lea (%rax,%rax),%rcx\n"
	"	lea 1(%rcx),%rcx\n"
	"	cmp $5,%rax\n"
	"	jb looped\n"
	"	test $1,%bpl\n"
	"	je 7f\n"
	"	cmp $9,%rax\n"
	"	{disp32} jb looped\n"
	"7:	mov $9,%eax\n"
	"	ret\n"
	"END looped\n"
	/* The same where a landing pad is the first, before which nothing stands. */
	"BEGIN landed\n"
	"	endbr64\n"
	"	inc %rax\n"
	"	lea (%rax,%rax),%rcx\n"
	"	lea 1(%rcx),%rcx\n"
	"	cmp $5,%rax\n"
	"	jb landed\n"
	"	test $1,%bpl\n"
	"	je 7f\n"
	"	cmp $9,%rax\n"
	"	{disp32} jb landed\n"
	"7:	mov $9,%eax\n"
	"	ret\n"
	"END landed\n"
	/* The same from within the entry's own window, as a spin lock does. */
	"BEGIN spun\n"
	"	inc %rax\n"
	"	test $3,%al\n"
	"	jne spun\n"
	"	mov %rax,%rdx\n"
	"	lea 1(%rdx),%rax\n"
	"	ret\n"
	"END spun\n"
	/* By a short jump, whose window begins before it. */
	".globl rewound, wound\n"
	"BEGIN rewound\n"
	"	add $1,%rax\n"
	"	lea (%rax),%rcx\n"
	"	cmp $51,%rcx\n"
	"	jae 9f\n"
	"	lea 16(%rax),%rax\n"
	"	jmp rewound\n"
	"9:	mov %rax,%rdx\n"
	"	lea (%rdx),%rax\n"
	"	ret\n"
	"END rewound\n"
	/* From within the entry's own window, and from behind it. */
	"BEGIN wound\n"
	"	inc %eax\n"
	"	test $3,%al\n"
	"	jne wound\n"
	"	lea 1(%rax),%rdx\n"
	"	cmp $9,%eax\n"
	"	jb wound\n"
	"	lea -1(%rdx),%rax\n"
	"	ret\n"
	"END wound\n"
	/* No room at all, but next door. */
	"BEGIN tight\n"
	"	add $7,%eax\n"
	"	ret\n"
	"END tight\n"
	"BEGIN tight_door\n"
	"	add $1,%rax\n"
	"	test %rax,%rax\n"
	"	je 8f\n"
	"	lea 3(%rax),%rcx\n"
	"	lea 2(%rcx),%rcx\n"
	"	lea 1(%rcx),%rcx\n"
	"	mov %rcx,%rax\n"
	"8:	ret\n"
	"END tight_door\n"
	"BEGIN behind_door\n"
	"	add $1,%rax\n"
	"	ret\n"
	"END behind_door\n"
	/* The fifth byte is a call's first one. */
	".p2align 4\n"
	"BEGIN shared\n"
	"	sub $8,%rsp\n.cfi_adjust_cfa_offset 8\n"
	"	call leaf\n"
	"	add $8,%rsp\n.cfi_adjust_cfa_offset -8\n"
	"	ret\n"
	"END shared\n"
	/* At its return nothing is free, three instructions before it much is. */
	".p2align 4\n"
	"BEGIN restored\n"
	"	push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbx,0\n"
	"	push %r12\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %r12,0\n"
	"	sub $8,%rsp\n.cfi_adjust_cfa_offset 8\n"
	"	lea 1(%rbp),%rbx\n"
	"	lea 2(%rbp),%r12\n"
	"	call leaf\n"
	"restored_out:\n"
	"	add $8,%rsp\n.cfi_adjust_cfa_offset -8\n"
	"	pop %r12\n.cfi_adjust_cfa_offset -8\n.cfi_restore %r12\n"
	"	pop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbx\n"
	"	ret\n"
	"END restored\n"
	/*
	 * No room at all but in its neighbour, and for the sake of the page not right behind that one's
	 * jump; no other is near: those are bytes of nobody, and no padding.
	 */
	".section holes,\"ax\",@progbits\n"
	".globl roomy, narrow\n"
	".p2align 12\n"
	".fill 4096 - 14,1,0x06\n"
	"BEGIN roomy\n"
	"	inc %rax\n	inc %rax\n"
	"	inc %rax\n	inc %rax\n"
	"	{disp32} lea 1(%rax),%rax\n"
	"	inc %rax\n	inc %rax\n"
	"	ret\n"
	"END roomy\n"
	"BEGIN narrow\n"
	"	add $7,%eax\n"
	"	ret\n"
	"END narrow\n"
	/* The same; an instruction begins where the near jump is put, behind one where time is spent. */
	".globl evened, thin\n"
	".p2align 12\n"
	".fill 64,1,0x06\n"
	"BEGIN evened\n"
	"	add $1,%eax\n	add $1,%eax\n"
	"	add $1,%eax\n	pause\n	mov %eax,%eax\n	add $1,%eax\n"
	"	add $1,%eax\n	add $1,%eax\n"
	"	ret\n"
	"END evened\n"
	"BEGIN thin\n"
	"	add $7,%eax\n"
	"	ret\n"
	"END thin\n"
	".fill 256,1,0x06\n"
	/* A loop goes round the entry's window, behind which an exit has no room, and one has it in it. */
	".globl woven, woven_in\n"
	".p2align 4\n"
	"BEGIN woven\n"
	"	inc %rax\n"
	"	test $3,%al\n"
	"	jne 1f\n"
	"	ret\n"
	"1:	mov %rax,%rcx\n"
	"	lea 1(%rcx),%rdx\n"
	"	{disp32} jmp woven\n"
	"END woven\n"
	".p2align 4\n"
	"BEGIN woven_in\n"
	"	add $-64,%al\n"
	"	jne 1f\n"
	"	ret\n"
	"1:	mov %rax,%rcx\n"
	"	lea 1(%rcx),%rdx\n"
	"	{disp32} jmp woven_in\n"
	"END woven_in\n"
	".p2align 4\n"
	/* A jump back to its first instruction nobody comes to; its exit has room next door only. */
	".globl laced\n"
	"BEGIN laced\n"
	"	inc %rax\n"
	"	cmp $3,%al\n"
	"	jb laced\n"
	"	push %rcx\n.cfi_adjust_cfa_offset 8\n"
	"	call leaf\n"
	"	pop %rcx\n.cfi_adjust_cfa_offset -8\n"
	"	ret\n"
	"	jmp laced\n"
	"END laced\n"
	"BEGIN laced_door\n"
	"	mov %rax,%rcx\n"
	"	lea 1(%rcx),%rdx\n"
	"	ret\n"
	"END laced_door\n"
	".fill 16,1,0x90\n"
	/* Its last branch leaves it either way, and so does a loop's where that is over. */
	".globl parting, circling\n"
	"BEGIN parting\n"
	"	add $1,%rax\n"
	"	lea (%rax),%rcx\n"
	"	test $1,%bpl\n"
	"	{disp32} jne parted\n"
	"END parting\n"
	"BEGIN party\n"
	"	lea 2(%rcx),%rax\n"
	"	mov %rax,%rdx\n"
	"	ret\n"
	"END party\n"
	"BEGIN parted\n"
	"	lea 2(%rax),%rax\n"
	"	mov %rax,%rdx\n"
	"	ret\n"
	"END parted\n"
	"BEGIN circling\n"
	"	add $1,%rax\n"
	"	lea (%rax),%rcx\n"
	"1:	add $1,%rax\n"
	"	cmp $5,%rax\n"
	"	{disp32} jb 1b\n"
	"END circling\n"
	"BEGIN circled\n"
	"	lea 1(%rax),%rax\n"
	"	mov %rax,%rdx\n"
	"	ret\n"
	"END circled\n"
	".fill 64,1,0x06\n"
	".text\n");

static const struct {
	void (*function)(void);
	long result;
} functions[] = {{ladder, 107},	  {ways, 5},	 {looped, 9},	  {spun, 5},	 {tight, 7},
		 {tight_door, 7}, {shared, 101}, {restored, 101}, {landed, 9},	 {roomy, 7},
		 {narrow, 7},	  {evened, 6},	 {thin, 7},	  {rewound, 52}, {wound, 12},
		 {parting, 3},	  {circling, 6}, {woven, 4},	  {woven_in, 0}, {laced, 104}};

enum { THREADS_MAX = 64, FUNCTIONS = sizeof(functions) / sizeof(*functions) };

static struct control controls[THREADS_MAX];
static pid_t tids[THREADS_MAX];
static int threads;
static pthread_barrier_t started;

static void *thread(void *arg)
{
	struct control *c = arg;

	tids[c - controls] = (pid_t)syscall(SYS_gettid);
	pthread_barrier_wait(&started);
	worker(c);
	return NULL;
}

static void say(const char *text)
{
	puts(text);
	fflush(stdout);
}

/* Gives a round of `n` calls of function f to all that have nothing to do, and waits. */
static void round_of(int f, long n)
{
	for (int i = 0; i < threads; i++) {
		controls[i].function = functions[f].function;
		controls[i].expected = functions[f].result;
		controls[i].rounds = n;
	}
	for (int i = 0; i < threads; i++)
		while (controls[i].rounds)
			usleep(100);
}

static void go(long n)
{
	for (int f = 0; f < FUNCTIONS; f++)
		round_of(f, n);
}

static volatile int running, busy, over;
static volatile long turns;

static void *driver(void *arg)
{
	(void)arg;
	while (!over) {
		usleep(1000);
		for (; running; turns++)
			go(1000);
		busy = 0;
	}
	return NULL;
}

static volatile int *apart; /* shared with the child: it goes on */
static pid_t child;

/* A child that does nothing but to call a function, and sees what comes of it. */
static void part(void)
{
	long result;

	apart = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	*apart = 1;
	child = fork();
	if (child)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (*apart) {
		__asm__ volatile("lea -256(%%rsp),%%rsp\n	xor %%eax,%%eax\n"
				 "	call evened\n	lea 256(%%rsp),%%rsp"
				 : "=a"(result)
				 :
				 : "rcx", "rdx", "memory", "cc");
		if (result != 6)
			_exit(1);
	}
	_exit(0);
}

static void command(char *line)
{
	char text[64];

	line[strcspn(line, "\n")] = 0;
	if (!strncmp(line, "go ", 3)) {
		go(atol(line + 3));
		say("done");
	} else if (!strcmp(line, "start")) {
		turns = 0;
		busy = running = 1;
		say("started");
	} else if (!strcmp(line, "end")) {
		running = 0;
		while (busy)
			usleep(100);
		snprintf(text, sizeof(text), "%ld", turns * 1000 * threads);
		say(text);
	} else if (!strcmp(line, "part")) {
		part();
		say("parted");
	} else if (!strcmp(line, "join")) {
		int status = -1;

		*apart = 0;
		waitpid(child, &status, 0);
		munmap((void *)apart, 4096);
		say(status ? "wrong" : "right");
	} else if (!strcmp(line, "tids")) {
		for (int i = 0; i < threads; i++)
			printf("%s%d", i ? " " : "", (int)tids[i]);
		say("");
	}
}

/* All that a jump of this program with the fifth byte e8 leads to, and some more. */
static int crowd(void)
{
	const unsigned long mib = 1UL << 20, size = 160 * mib;
	const unsigned long at = ((unsigned long)&shared & ~(mib - 1)) - 0x18000000 - 64 * mib;

	return mmap((void *)at, size, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
		    0) == (void *)at;
}

int main(int argc, char **argv)
{
	pthread_t ids[THREADS_MAX], at_work;
	char line[256];
	long wrong = 0;

	threads = argc > 1 ? atoi(argv[1]) : 1;
	if (threads < 1 || threads > THREADS_MAX || (argc > 2 && !crowd()))
		return 2;
	pthread_barrier_init(&started, NULL, (unsigned)threads + 1);
	for (int i = 0; i < threads; i++)
		if (pthread_create(&ids[i], NULL, thread, &controls[i]))
			return 2;
	pthread_barrier_wait(&started);
	if (pthread_create(&at_work, NULL, driver, NULL))
		return 2;
	say("ready");
	while (fgets(line, sizeof(line), stdin))
		command(line);
	running = 0;
	over = 1;
	pthread_join(at_work, NULL);
	for (int i = 0; i < threads; i++)
		controls[i].rounds = -1;
	for (int i = 0; i < threads; i++) {
		pthread_join(ids[i], NULL);
		wrong += controls[i].wrong;
	}
	return wrong != 0;
}
