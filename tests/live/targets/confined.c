/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline */
/*
 * confined.c - threads under a seccomp filter that forbids what changes memory.
 *
 * confined THREADS [user=UID] [WHAT...]: takes on WHAT, prints "ready"; then "go N" makes every
 * thread call step() N times and prints "done"; "take WHAT" takes it on now and prints "taken";
 * "child WHAT" makes a child that does so and stays ("plain": takes on nothing), and prints "taken".
 * "children N WHAT" makes N, one after the other, that take it on, call step() at once and end; "vfork
 * N WHAT" does so by vfork(), "inside N WHAT" takes it on inside of forks(), from which the child returns,
 * too. All print "died K": how many of them a signal ended. "jump N" leaves leaps() so often by
 * longjmp() and prints "done".
 * It never makes one of the forbidden calls itself, and ends with its input. WHAT is
 *
 *   errno kill trap notify   all threads: mmap, mprotect, munmap, memfd_create, madvise and mremap fail
 *                            with EPERM, kill, raise SIGSYS, or wait for somebody who never answers
 *   calls calls-prctl calls-raw  clock_gettime, process_vm_readv, getpid and gettid kill, which this program
 *                            never makes; it gets the filter by syscall(), by prctl() or by itself
 *   main                     as kill, for the main thread only
 *   mdwe                     PR_SET_MDWE: nothing that is or was writable becomes executable
 *   undumpable no-new-privs
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PR_SET_MDWE
#define PR_SET_MDWE		 65
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#endif

static volatile int wrong;
static pthread_barrier_t start, finish;
static volatile unsigned long rounds;

__attribute__((noinline, noclone)) long step(long n)
{
	return n * 3 + 1;
}

__attribute__((noinline, noclone)) long other(long n)
{
	return step(n) + 5;
}

static jmp_buf back;

__attribute__((noinline, noclone)) long leaps(long n)
{
	if (step(n) > 0)
		longjmp(back, 1);
	return n;
}

static void jump(long count)
{
	for (volatile long n = 0; n < count; n++)
		if (!setjmp(back))
			leaps(n);
}

static void *work(void *arg)
{
	pthread_barrier_wait(&finish);
	for (;;) {
		pthread_barrier_wait(&start);
		for (unsigned long i = 0; i < rounds; i++)
			if (other((long)i) != (long)i * 3 + 6)
				wrong = 1;
		pthread_barrier_wait(&finish);
	}
	return arg;
}

static int filter(unsigned verdict, unsigned flags)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 6, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 5, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munmap, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, verdict),
	};
	struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) < 0;
}

/* Without the C library. */
static long raw_prctl(long option, long mode, void *program)
{
	long result = SYS_prctl;

	__asm__ volatile("syscall"
			 : "+a"(result)
			 : "D"(option), "S"(mode), "d"(program)
			 : "rcx", "r11", "memory");
	return result;
}

static int forbid_calls(const char *how)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_gettid, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (!strcmp(how, "-raw"))
		return raw_prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0;
	if (!strcmp(how, "-prctl"))
		return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0;
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) <
	       0;
}

static int take(const char *what)
{
	const unsigned all = SECCOMP_FILTER_FLAG_TSYNC;

	if (!strcmp(what, "errno"))
		return filter(SECCOMP_RET_ERRNO | EPERM, all);
	if (!strcmp(what, "kill"))
		return filter(SECCOMP_RET_KILL_PROCESS, all);
	if (!strcmp(what, "trap"))
		return filter(SECCOMP_RET_TRAP, all);
	if (!strcmp(what, "notify"))
		return filter(SECCOMP_RET_USER_NOTIF, all | SECCOMP_FILTER_FLAG_NEW_LISTENER |
							      SECCOMP_FILTER_FLAG_TSYNC_ESRCH);
	if (!strcmp(what, "main"))
		return filter(SECCOMP_RET_KILL_PROCESS, 0);
	if (!strcmp(what, "mdwe"))
		return prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0);
	if (!strncmp(what, "calls", 5))
		return forbid_calls(what + 5);
	if (!strcmp(what, "undumpable"))
		return prctl(PR_SET_DUMPABLE, 0);
	if (!strcmp(what, "hidden"))
		return filter(SECCOMP_RET_KILL_PROCESS, all) || prctl(PR_SET_DUMPABLE, 0);
	if (!strcmp(what, "no-new-privs"))
		return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return 1;
}

static int become(const char *user)
{
	const uid_t uid = (uid_t)strtoul(user, NULL, 10);

	return setresgid(uid, uid, uid) || setresuid(uid, uid, uid) || prctl(PR_SET_DUMPABLE, 1);
}

/* A forked child that takes it on and waits for our end. */
static int child(const char *what)
{
	int told[2];
	char failed = 1;

	if (pipe(told))
		return 1;
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		failed = strcmp(what, "plain") && take(what);
		if (write(told[1], &failed, 1) == 1)
			for (;;)
				pause();
		_exit(1);
	}
	if (read(told[0], &failed, 1) != 1)
		failed = 1;
	close(told[0]);
	close(told[1]);
	return failed;
}

/* In what vfork() leaves of a stack. */
static void confined_steps(const char *what)
{
	volatile long n = 0;

	if (what && take(what))
		_exit(1);
	for (; n < 100; n++)
		if (other(n) != n * 3 + 6)
			_exit(2);
	_exit(0);
}

__attribute__((noinline, noclone)) static pid_t forks(const char *what)
{
	const pid_t pid = fork();

	if (!pid && take(what))
		_exit(1);
	return pid;
}

enum how { BY_FORK, BY_VFORK, INSIDE };

/* How many of so many children a signal ended; -1 if one did wrong. */
static int children(const char *line, enum how how)
{
	char what[32];
	int count, died = 0;

	if (sscanf(line, "%d %31s", &count, what) != 2)
		return -1;
	for (int i = 0; i < count; i++) {
		const pid_t pid = how == BY_VFORK ? vfork() : how == INSIDE ? forks(what) : fork();
		int status;

		if (!pid)
			confined_steps(how == INSIDE ? NULL : what);
		if (pid < 0 || waitpid(pid, &status, 0) != pid ||
		    (WIFEXITED(status) && WEXITSTATUS(status)))
			return -1;
		died += WIFSIGNALED(status);
	}
	return died;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 1;
	pthread_t tid;
	char line[64];

	pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
	pthread_barrier_init(&finish, NULL, (unsigned)threads + 1);
	for (int i = 0; i < threads; i++)
		pthread_create(&tid, NULL, work, NULL);
	pthread_barrier_wait(&finish);
	/* What the library maps at its first use is mapped before anything is forbidden. */
	printf("%d threads\n", threads);
	fflush(stdout);
	for (int i = 2; i < argc; i++)
		if (strncmp(argv[i], "user=", 5) ? take(argv[i]) : become(argv[i] + 5))
			_exit(3);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		if (!strncmp(line, "take ", 5)) {
			puts(take(line + 5) ? "failed" : "taken");
		} else if (!strncmp(line, "children ", 9)) {
			printf("died %d\n", children(line + 9, BY_FORK));
		} else if (!strncmp(line, "vfork ", 6)) {
			printf("died %d\n", children(line + 6, BY_VFORK));
		} else if (!strncmp(line, "inside ", 7)) {
			printf("died %d\n", children(line + 7, INSIDE));
		} else if (!strncmp(line, "jump ", 5)) {
			jump(strtol(line + 5, NULL, 10));
			puts("done");
		} else if (!strncmp(line, "child ", 6)) {
			puts(child(line + 6) ? "failed" : "taken");
		} else {
			rounds = strtoul(line + 3, NULL, 10);
			pthread_barrier_wait(&start);
			pthread_barrier_wait(&finish);
			puts("done");
		}
		fflush(stdout);
	}
	_exit(wrong);
}
