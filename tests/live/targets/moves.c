/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -fno-ipa-cp -fno-ipa-icf */
/*
 * moves.c - many functions that threads, or forked children, call in rounds:
 * part_0 to part_2047 have room for a jump, tiny_0 to tiny_2047 only for a short
 * one, into the padding behind them.
 *
 * moves THREADS: prints "ready".
 *   go N        N rounds of every thread; prints "done"
 *   run         rounds without end; prints "running"
 *   stop        ends that; prints "done ROUNDS"
 *   children N  forks N children that make rounds until "reap"; prints "born"
 *   reap        ends them; prints "done ROUNDS"
 * Ends with its input; status 1 if a result was wrong.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PARTS = 2048, TINIES = 2048, MOST = 16 };

/* part_N returns N + its argument; tiny_N its argument, whose second instruction is jumped to. */
__asm__(".altmacro\n"
	".macro define prefix, n\n"
	".globl \\prefix\\n\n"
	".type \\prefix\\n, @function\n"
	".balign 16\n"
	"\\prefix\\n:\n"
	".endm\n"
	".macro part n\n"
	"define part_, \\n\n"
	"lea \\n(%rdi), %eax\n"
	"add $0, %eax\n"
	"ret\n"
	".size part_\\n, . - part_\\n\n"
	".endm\n"
	".macro tiny n\n"
	"define tiny_, \\n\n"
	"mov %edi, %eax\n"
	"1: test %eax, %eax\n"
	"js 1b\n"
	"ret\n"
	".size tiny_\\n, . - tiny_\\n\n"
	".endm\n"
	".macro address prefix, n\n"
	".quad \\prefix\\n\n"
	".endm\n"
	".text\n"
	".set i, 0\n"
	".rept 2048\n"
	"part %i\n"
	".set i, i + 1\n"
	".endr\n"
	".set i, 0\n"
	".rept 2048\n"
	"tiny %i\n"
	".set i, i + 1\n"
	".endr\n"
	".section .data.rel.ro, \"aw\"\n"
	"parts:\n"
	".set i, 0\n"
	".rept 2048\n"
	"address part_, %i\n"
	".set i, i + 1\n"
	".endr\n"
	"tinies:\n"
	".set i, 0\n"
	".rept 2048\n"
	"address tiny_, %i\n"
	".set i, i + 1\n"
	".endr\n"
	".text\n"
	".noaltmacro\n");

extern unsigned (*const volatile parts[PARTS])(unsigned),
	(*const volatile tinies[TINIES])(unsigned);

/* What children share with us. */
static struct shared {
	atomic_int over;
	atomic_long rounds[MOST];
} * shared;

static atomic_int wrong, running, ending;
static long rounds, done[MOST];
static pthread_barrier_t start, finish;
static pid_t children[MOST];

static int once(void)
{
	int bad = 0;

	for (unsigned i = 0; i < PARTS; i++)
		bad |= parts[i](7) != i + 7;
	for (unsigned i = 0; i < TINIES; i++)
		bad |= tinies[i](i) != i;
	return bad;
}

static void *work(void *arg)
{
	long *own = arg;

	for (;;) {
		pthread_barrier_wait(&start);
		if (ending)
			return NULL;
		for (*own = 0; rounds ? *own < rounds : running; (*own)++)
			if (once())
				wrong = 1;
		pthread_barrier_wait(&finish);
	}
}

static void be_child(int index)
{
	int bad = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(600);
	while (!shared->over) {
		bad |= once();
		shared->rounds[index]++;
	}
	_exit(bad);
}

static void bear(int count)
{
	memset(shared, 0, sizeof(*shared));
	for (int i = 0; i < count && i < MOST; i++) {
		children[i] = fork();
		if (!children[i])
			be_child(i);
	}
}

static long reap(void)
{
	long sum = 0;
	int status;

	shared->over = 1;
	for (int i = 0; i < MOST; i++) {
		if (children[i] > 0 && (waitpid(children[i], &status, 0) != children[i] || status))
			wrong = 1;
		children[i] = 0;
		sum += shared->rounds[i];
	}
	return sum;
}

static void answer(const char *line, int threads)
{
	long sum = 0;

	if (!strncmp(line, "go ", 3)) {
		rounds = strtol(line + 3, NULL, 10);
		pthread_barrier_wait(&start);
		pthread_barrier_wait(&finish);
		puts("done");
	} else if (!strncmp(line, "run", 3)) {
		rounds = 0;
		running = 1;
		pthread_barrier_wait(&start);
		puts("running");
	} else if (!strncmp(line, "stop", 4)) {
		running = 0;
		pthread_barrier_wait(&finish);
		for (int i = 0; i < threads; i++)
			sum += done[i];
		printf("done %ld\n", sum);
	} else if (!strncmp(line, "children ", 9)) {
		bear(atoi(line + 9));
		puts("born");
	} else if (!strncmp(line, "reap", 4)) {
		printf("done %ld\n", reap());
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	const int threads = argc > 1 ? atoi(argv[1]) : 1;
	pthread_t handles[MOST];
	char line[64];

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (threads < 1 || threads > MOST || shared == MAP_FAILED)
		return 2;
	pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
	pthread_barrier_init(&finish, NULL, (unsigned)threads + 1);
	for (int i = 0; i < threads; i++)
		pthread_create(&handles[i], NULL, work, &done[i]);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		answer(line, threads);
	if (running)
		answer("stop", threads);
	reap();
	ending = 1;
	pthread_barrier_wait(&start);
	for (int i = 0; i < threads; i++)
		pthread_join(handles[i], NULL);
	return wrong;
}
