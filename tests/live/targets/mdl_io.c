/* SPDX-License-Identifier: MIT */
/* build: -O2 -rdynamic */
/*
 * mdl_io.c - reads and writes by every function of the C library that does so,
 * and keeps books: operations and bytes in all, and those of one descriptor.
 *
 * Prints "ready". Commands, each answered by "ops N bytes N fd N fd_ops N fd_bytes N" and more:
 *   files R     a file, a pipe, stdio: all that /proc/PID/io counts
 *   sockets R   a pair of sockets (/proc/PID/io does not count these)
 *   fail R      operations that fail: none counts
 *   many N      opens /dev/null N times, and then the file once more; "late FD", or "late -1"
 *               where the limits forbid so many
 *   late N      N operations on that one
 *   few 0       closes all of them
 *   wait MS     a thread reads a pipe that is written to after MS; "waited NS from FD"
 *   signal MS   the same, and half way a signal's handler of that thread writes to another pipe
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static long ops, bytes, fd_ops, fd_bytes, pipe_bytes, waited;
static int file, pipes[2], other[2], pair[2];
static char buffer[8192];

/* Writes down what a function did with a descriptor. */
static void book(int fd, long result)
{
	if (result < 0)
		return;
	ops++;
	bytes += result;
	if (fd == pipes[1])
		pipe_bytes += result;
	if (fd == file || fd == pair[0]) {
		fd_ops++;
		fd_bytes += result;
	}
}

static void files_once(int i)
{
	const int n = 100 + i * 37 % 4000;
	struct iovec v[2] = {{buffer, n}, {buffer + 4096, 17}};
	off_t zero = 0;

	book(file, lseek(file, 0, SEEK_SET) < 0 ? 0 : write(file, buffer, n));
	book(file, pwrite(file, buffer, n, 100));
	book(file, writev(file, v, 2));
	book(file, pwritev(file, v, 2, 50));
	book(file, pread(file, buffer, n, 0));
	book(file, preadv(file, v, 2, 0));
	if (lseek(file, 0, SEEK_SET) == 0) {
		book(file, read(file, buffer, n));
		book(file, readv(file, v, 2));
	}
	book(file, pwritev2(file, v, 2, 50, 0));
	book(file, preadv2(file, v, 2, 10, 0));
	book(pipes[1], write(pipes[1], buffer, n));
	book(pipes[0], read(pipes[0], buffer, sizeof(buffer)));
	book(pipes[1], sendfile(pipes[1], file, &zero, 64));
	book(pipes[0], read(pipes[0], buffer, sizeof(buffer)));
}

/* What stdio does with one buffer's worth: one read, one write. */
static void stdio_once(void)
{
	static char text[100];
	FILE *f = fdopen(dup(file), "r+");

	if (!f)
		return;
	rewind(f);
	memset(text, 'x', sizeof(text));
	if (fwrite(text, 1, sizeof(text), f) == sizeof(text) && fflush(f) == 0)
		book(-1, sizeof(text));
	setvbuf(f, NULL, _IOFBF, 4096);
	fclose(f);
}

static void sockets_once(int i)
{
	const int n = 50 + i * 13 % 2000;
	struct iovec v = {buffer, n};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};

	book(pair[0], send(pair[0], buffer, n, 0));
	book(pair[1], recv(pair[1], buffer, n, MSG_WAITALL));
	book(pair[0], sendto(pair[0], buffer, n, 0, NULL, 0));
	book(pair[1], recvfrom(pair[1], buffer, n, MSG_WAITALL, NULL, NULL));
	book(pair[0], sendmsg(pair[0], &m, 0));
	v.iov_len = n;
	book(pair[1], recvmsg(pair[1], &m, MSG_WAITALL));
	book(pair[0], write(pair[0], buffer, n));
	book(pair[1], recv(pair[1], buffer, n, MSG_WAITALL));
}

static void fail_once(void)
{
	book(-1, read(-1, buffer, 10));
	book(-1, write(-1, buffer, 10));
	book(-1, send(-1, buffer, 10, 0));
	book(-2, read(-2, buffer, 10));
	book(-1, recv(pair[0], buffer, 10, MSG_DONTWAIT));
}

__attribute__((noinline, noclone)) void *read_pipe(void *arg)
{
	struct timespec a, b;
	char c;

	(void)arg;
	clock_gettime(CLOCK_MONOTONIC, &a);
	if (read(pipes[0], &c, 1) != 1)
		exit(1);
	clock_gettime(CLOCK_MONOTONIC, &b);
	return (void *)((b.tv_sec - a.tv_sec) * 1000000000l + b.tv_nsec - a.tv_nsec);
}

static void on_signal(int sig)
{
	if (write(other[1], &sig, 1) != 1)
		_exit(1);
}

static void wait_once(long ms, int signals)
{
	pthread_t thread;
	void *ns;

	pthread_create(&thread, NULL, read_pipe, NULL);
	usleep(ms * 500);
	if (signals && pthread_kill(thread, SIGUSR1))
		exit(1);
	usleep(ms * 500);
	if (write(pipes[1], "x", 1) != 1)
		exit(1);
	pthread_join(thread, &ns);
	waited = (long)ns;
}

static int *opened, late = -1;
static long opened_count;

static void open_many(long n)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	opened = calloc(n, sizeof(*opened));
	while (opened_count < n && (opened[opened_count] = open("/dev/null", O_RDONLY)) >= 0)
		opened_count++;
	late = opened_count == n ? dup(file) : -1;
	printf("late %d\n", late);
}

static void close_many(void)
{
	while (opened_count)
		close(opened[--opened_count]);
	free(opened);
	if (late >= 0)
		close(late);
	late = -1;
	puts("done");
}

int main(void)
{
	const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	char line[100], name[32];
	long rounds;

	setvbuf(stdout, NULL, _IOLBF, 0);
	file = memfd_create("mdl_io", 0);
	if (file < 0 || pipe(pipes) != 0 || pipe(other) != 0 || sigaction(SIGUSR1, &action, NULL) ||
	    socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
		return 1;
	/* The first thread leaves a stack and a signal's handler behind. */
	wait_once(1, 0);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%31s %ld", name, &rounds) != 2)
			continue;
		ops = bytes = fd_ops = fd_bytes = pipe_bytes = 0;
		if (!strcmp(name, "wait") || !strcmp(name, "signal")) {
			wait_once(rounds, name[0] == 's');
			printf("waited %ld from %d\n", waited, pipes[0]);
			continue;
		}
		if (!strcmp(name, "many")) {
			open_many(rounds);
			continue;
		}
		if (!strcmp(name, "few")) {
			close_many();
			continue;
		}
		for (int i = 0; i < rounds; i++) {
			if (!strcmp(name, "late")) {
				book(late, pwrite(late, buffer, 10, 0));
			} else if (!strcmp(name, "files")) {
				files_once(i);
				stdio_once();
			} else if (!strcmp(name, "sockets")) {
				sockets_once(i);
			} else if (!strcmp(name, "fail")) {
				fail_once();
			}
		}
		printf("ops %ld bytes %ld fd %d fd_ops %ld fd_bytes %ld pipe %d pipe_bytes %ld\n",
		       ops, bytes, name[0] == 's' ? pair[0] : file, fd_ops, fd_bytes, pipes[1],
		       pipe_bytes);
	}
	return 0;
}
