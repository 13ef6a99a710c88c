/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -fno-ipa-cp -fno-ipa-icf */
/*
 * forks.c - a program that makes other processes in all the usual ways.
 *
 * Prints "ready". Commands, each answered with "done" unless said otherwise, with "wrong"
 * once a result was:
 *   fork N M      N children at once; each, and we, call hit() M times
 *   tree N M      a chain of N generations, each calls hit() M times
 *   vfork N       N times vfork() and execve() of ourselves ("echo" mode)
 *   spawn N       N times posix_spawn() of ourselves
 *   forkexec N    N times fork(), hit(), execve() of ourselves
 *   daemon M      a grandchild in a session of its own calls hit() M times
 *   save N        N times: a child checksums our table while we change it
 *   linger        a child that calls hit() until told to end; prints "child PID"
 *   count         prints how often the lingering child has called hit() so far
 *   unlinger      ends it; prints "ended STATUS"
 *   held          vfork() whose child waits for the next line; prints "held" before it
 *   exec          we execute ourselves again; prints "ready"
 *   execfail      we try to execute what is not there, what is no file, and what is no program
 *   execute PATH  we execute that
 * Exits with 1 if any process ended otherwise than it should.
 */
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { TABLE = 1 << 20, ECHO_STATUS = 17 };

struct shared {
	volatile unsigned long hits;
	volatile int end;
};

static int wrong;
static uint32_t *table;
static struct shared *shared;
static pid_t lingering;
static char self[4096];

__attribute__((noinline, noclone)) long hit(long n)
{
	return n * 5 + 1;
}

__attribute__((noinline, noclone)) void hits(long n)
{
	for (long i = 0; i < n; i++)
		if (hit(i) != i * 5 + 1)
			_exit(99);
}

static void say(const char *text)
{
	puts(text);
	fflush(stdout);
}

__attribute__((noinline, noclone)) void expect(pid_t pid, int status)
{
	int got = 0;

	if (pid <= 0 || waitpid(pid, &got, 0) != pid || !WIFEXITED(got) ||
	    WEXITSTATUS(got) != status) {
		fprintf(stderr, "child %d ended with %x, not %d\n", (int)pid, (unsigned)got,
			status);
		wrong = 1;
	}
}

static void do_fork(long n, long m)
{
	pid_t pids[256];

	for (long i = 0; i < n; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			hits(m);
			_exit(3);
		}
	}
	hits(m);
	for (long i = 0; i < n; i++)
		expect(pids[i], 3);
}

static void do_tree(long n, long m)
{
	pid_t pid;

	if (n == 0)
		return;
	pid = fork();
	if (pid == 0) {
		hits(m);
		do_tree(n - 1, m);
		hits(m);
		_exit(wrong ? 98 : 4);
	}
	expect(pid, 4);
}

static void do_vfork(void)
{
	char *const argv[] = {self, "echo", NULL};
	pid_t pid = vfork();

	if (pid == 0) {
		execve(self, argv, environ);
		_exit(97);
	}
	expect(pid, ECHO_STATUS);
}

static void do_spawn(void)
{
	char *const argv[] = {self, "echo", NULL};
	pid_t pid = 0;

	if (posix_spawn(&pid, self, NULL, NULL, argv, environ))
		wrong = 1;
	expect(pid, ECHO_STATUS);
}

static void do_forkexec(void)
{
	char *const argv[] = {self, "echo", NULL};
	pid_t pid = fork();

	if (pid == 0) {
		hits(1);
		execve(self, argv, environ);
		_exit(97);
	}
	expect(pid, ECHO_STATUS);
}

static void do_daemon(long m)
{
	char byte = 0;
	int ends[2];
	pid_t pid;

	if (pipe(ends))
		wrong = 1;
	pid = fork();
	if (pid == 0) {
		setsid();
		if (fork() == 0) {
			hits(m);
			byte = 'x';
			if (write(ends[1], &byte, 1) != 1)
				_exit(96);
			_exit(0);
		}
		_exit(5);
	}
	expect(pid, 5);
	close(ends[1]);
	if (read(ends[0], &byte, 1) != 1 || byte != 'x')
		wrong = 1;
	/* Until it has really ended: then the pipe has no writer. */
	if (read(ends[0], &byte, 1) != 0)
		wrong = 1;
	close(ends[0]);
}

static uint32_t checksum(void)
{
	uint32_t sum = 0;

	for (long i = 0; i < TABLE; i++)
		sum = sum * 31 + table[i];
	return sum;
}

/* As a server does that saves its data set: the child sees the table of the moment of the fork. */
static void do_save(void)
{
	uint32_t sum = checksum();
	pid_t pid = fork();

	if (pid == 0) {
		hits(100);
		_exit(checksum() == sum ? 6 : 95);
	}
	for (long i = 0; i < TABLE; i += 512) {
		table[i] += (uint32_t)hit(i);
		if (i % 4096 == 0)
			hits(1);
	}
	expect(pid, 6);
}

static void linger(void)
{
	shared->hits = 0;
	shared->end = 0;
	lingering = fork();
	if (lingering == 0) {
		while (!shared->end) {
			hits(1);
			shared->hits++;
		}
		_exit(7);
	}
	printf("child %d\n", (int)lingering);
	fflush(stdout);
}

static void unlinger(void)
{
	int status = 0;

	shared->end = 1;
	waitpid(lingering, &status, 0);
	printf("ended %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
	fflush(stdout);
}

static void held(void)
{
	char byte;
	pid_t pid;

	say("held");
	pid = vfork();
	if (pid == 0) {
		while (read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n')
			continue;
		_exit(8);
	}
	expect(pid, 8);
}

static void do_execfail(void)
{
	static const char *const paths[] = {"/nowhere/at/all", "/", "/proc/self/maps"};
	char *const argv[] = {self, NULL};

	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
		wrong |= execve(paths[i], argv, environ) != -1;
}

static void do_execute(const char *line)
{
	char path[4096] = "";
	char *const argv[] = {path, NULL};

	sscanf(line, "%*s %4095s", path);
	execve(path, argv, environ);
}

static void command(const char *line)
{
	char *const again[] = {self, NULL};
	char word[32] = "";
	long n = 0, m = 0;

	sscanf(line, "%31s %ld %ld", word, &n, &m);
	if (!strcmp(word, "exec"))
		execve(self, again, environ);
	if (!strcmp(word, "execfail"))
		do_execfail();
	if (!strcmp(word, "execute"))
		do_execute(line);
	if (!strcmp(word, "linger")) {
		linger();
		return;
	}
	if (!strcmp(word, "unlinger")) {
		unlinger();
		return;
	}
	if (!strcmp(word, "count")) {
		printf("%lu\n", shared->hits);
		fflush(stdout);
		return;
	}
	if (!strcmp(word, "fork"))
		do_fork(n, m);
	else if (!strcmp(word, "tree"))
		do_tree(n, m);
	else if (!strcmp(word, "daemon"))
		do_daemon(n);
	else if (!strcmp(word, "held"))
		held();
	for (long i = 0; i < n; i++) {
		if (!strcmp(word, "vfork"))
			do_vfork();
		else if (!strcmp(word, "spawn"))
			do_spawn();
		else if (!strcmp(word, "forkexec"))
			do_forkexec();
		else if (!strcmp(word, "save"))
			do_save();
	}
	say(wrong ? "wrong" : "done");
}

int main(int argc, char **argv)
{
	char line[128];
	ssize_t size;

	if (argc > 1 && !strcmp(argv[1], "echo")) {
		hits(10);
		return ECHO_STATUS;
	}
	size = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (size <= 0)
		return 2;
	table = calloc(TABLE, sizeof(*table));
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (!table || shared == MAP_FAILED)
		return 2;
	setvbuf(stdin, NULL, _IONBF, 0);
	say("ready");
	while (fgets(line, sizeof(line), stdin))
		command(line);
	return wrong;
}
