/* SPDX-License-Identifier: MIT */
/*
 * stop-calls.c CASE [SECONDS]: makes one blocking system call that should end after
 * one second, or after so many, and prints
 * "RESULT ERRNO MILLISECONDS". A case called with "handler" before it is
 * interrupted by a handler of SIGUSR1, which the test sends.
 */
#include <errno.h>
#include <linux/aio_abi.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct timespec second = {1, 0};
static struct timeval second_tv = {1, 0};
static int pipe_fds[2];

static int on_nanosleep(void)
{
	return nanosleep(&second, NULL);
}

static void go_under(struct sock_filter *code, unsigned short count)
{
	struct sock_fprog program = {count, code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		exit(3);
}

/* Under a filter that lets restart_syscall pass, as most do. */
static int on_filtered(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, SYS_restart_syscall, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	go_under(code, sizeof(code) / sizeof(code[0]));
	return nanosleep(&second, NULL);
}

static int on_clock_nanosleep(void)
{
	struct timespec at;
	int error;

	clock_gettime(CLOCK_MONOTONIC, &at);
	at.tv_sec += second.tv_sec;
	error = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
	errno = error;
	return error ? -1 : 0;
}

static int on_poll(void)
{
	struct pollfd fd = {pipe_fds[0], POLLIN, 0};

	return poll(&fd, 1, (int)second.tv_sec * 1000);
}

static int on_ppoll(void)
{
	struct pollfd fd = {pipe_fds[0], POLLIN, 0};

	return ppoll(&fd, 1, &second, NULL);
}

static int on_select(void)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(pipe_fds[0], &set);
	return select(pipe_fds[0] + 1, &set, NULL, NULL, &second_tv);
}

static int on_pselect(void)
{
	sigset_t none;

	sigemptyset(&none);
	return pselect(0, NULL, NULL, NULL, &second, &none);
}

static int on_epoll_wait(void)
{
	struct epoll_event event;

	return epoll_wait(epoll_create1(0), &event, 1, (int)second.tv_sec * 1000);
}

static int on_epoll_pwait(void)
{
	struct epoll_event event;
	sigset_t none;

	sigemptyset(&none);
	return epoll_pwait(epoll_create1(0), &event, 1, (int)second.tv_sec * 1000, &none);
}

static int on_epoll_pwait2(void)
{
	struct epoll_event event;

	return (int)syscall(441, epoll_create1(0), &event, 1, &second, NULL, 0);
}

static int on_futex(void)
{
	int word = 0;

	return (int)syscall(SYS_futex, &word, FUTEX_WAIT, 0, &second, NULL, 0);
}

static int on_sigtimedwait(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return sigtimedwait(&set, NULL, &second);
}

static int on_semtimedop(void)
{
	struct sembuf down = {0, -1, 0};
	int id = semget(IPC_PRIVATE, 1, 0600);
	int result = semtimedop(id, &down, 1, &second);
	int error = errno;

	semctl(id, 0, IPC_RMID);
	errno = error;
	return result;
}

static int on_recv(void)
{
	char byte;
	int pair[2];

	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &second_tv, sizeof(second_tv));
	return (int)recv(pair[0], &byte, 1, 0);
}

static int on_accept(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	struct sockaddr name = {.sa_family = AF_UNIX};

	bind(fd, &name, sizeof(name.sa_family));
	listen(fd, 1);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second_tv, sizeof(second_tv));
	return accept(fd, NULL, NULL);
}

static int on_io_getevents(void)
{
	aio_context_t context = 0;
	struct io_event event;

	syscall(SYS_io_setup, 4, &context);
	return (int)syscall(SYS_io_getevents, context, 1, 1, &event, &second);
}

/* The rest have no timeout: a byte written, or the alarm, ends them. */
static int on_timerfd(void)
{
	struct itimerspec when = {{0, 0}, second};
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);
	char text[8];

	timerfd_settime(fd, 0, &when, NULL);
	return read(fd, text, sizeof(text)) == sizeof(text) ? 0 : -1;
}

static int writer(int fd)
{
	pid_t child = fork();

	if (!child) {
		nanosleep(&second, NULL);
		_exit(write(fd, "x", 1) != 1);
	}
	return child;
}

static int on_read(void)
{
	char byte;

	writer(pipe_fds[1]);
	return read(pipe_fds[0], &byte, 1) == 1 ? 0 : -1;
}

static int on_inotify(void)
{
	char path[] = "/tmp/dinst-calls-XXXXXX";
	int file = mkstemp(path);
	char text[256];
	int fd = inotify_init();

	inotify_add_watch(fd, path, IN_MODIFY);
	unlink(path);
	writer(file);
	return read(fd, text, sizeof(text)) > 0 ? 0 : -1;
}

/* Some kernels and machines have no calls of 32-bit programs: SIGSEGV. */
static int has_narrow_calls(void)
{
	int status = -1;
	pid_t child;

	signal(SIGCHLD, SIG_DFL);
	child = fork();
	if (child == 0) {
		long number = 20; /* getpid */

		signal(SIGSEGV, SIG_DFL);
		__asm__ volatile("int $0x80" : "+a"(number) : : "memory", "r8", "r9", "r10", "r11");
		_exit(number != getpid());
	}
	waitpid(child, &status, 0);
	signal(SIGCHLD, SIG_IGN);
	return status == 0;
}

/* By a call of 32-bit programs: its number, 3, is that of close() for others. */
static int on_narrow_read(void)
{
	char *byte = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	long result = 3;
	int sockets[2];

	if (byte == MAP_FAILED || !has_narrow_calls())
		return on_recv();
	socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
	setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &second_tv, sizeof(second_tv));
	__asm__ volatile("int $0x80"
			 : "+a"(result)
			 : "b"((long)sockets[0]), "c"(byte), "d"(1l)
			 : "memory", "r8", "r9", "r10", "r11");
	errno = result < 0 ? (int)-result : errno;
	return result < 0 ? -1 : (int)result;
}

enum { NARROW_RESTART = 0, NARROW_NANOSLEEP = 162 };

/* By such a call, the restart of which is 0, not that of others. */
static int on_narrow_sleep(void)
{
	uint32_t *time = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	long result = NARROW_NANOSLEEP;

	if (time == MAP_FAILED || !has_narrow_calls())
		return nanosleep(&second, NULL);
	time[0] = (uint32_t)second.tv_sec;
	__asm__ volatile("int $0x80"
			 : "+a"(result)
			 : "b"(time), "c"(0l)
			 : "memory", "r8", "r9", "r10", "r11");
	errno = result < 0 ? (int)-result : errno;
	return result < 0 ? -1 : 0;
}

/* Under a filter that kills at `number` of 32-bit programs. */
static int narrow_sleep_under(unsigned number)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_I386, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	go_under(code, sizeof(code) / sizeof(code[0]));
	return on_narrow_sleep();
}

static int on_narrow_denied(void)
{
	return narrow_sleep_under(NARROW_RESTART);
}

/* The number with which others go on means something else there (madvise). */
static int on_narrow_filtered(void)
{
	return narrow_sleep_under(SYS_restart_syscall);
}

static int on_msgrcv(void)
{
	struct {
		long type;
		char text[8];
	} message = {1, ""};
	int id = msgget(IPC_PRIVATE, 0600);
	int result, error;

	if (!fork()) {
		nanosleep(&second, NULL);
		_exit(msgsnd(id, &message, 1, 0) != 0);
	}
	result = (int)msgrcv(id, &message, sizeof(message.text), 0, 0);
	error = errno;
	msgctl(id, IPC_RMID, NULL);
	errno = error;
	return result == 1 ? 0 : -1;
}

/*
 * Calls that may move a part of their data. A stop then ends them with that part, as a signal
 * would, and who goes on with the rest has all of it, once.
 */
enum { PARTS = 1 << 20, HALF = PARTS / 2 };

static unsigned char sent[PARTS], received[PARTS];

static void fill_parts(void)
{
	for (size_t i = 0; i < PARTS; i++)
		sent[i] = (unsigned char)(i * 7 + i / 251);
}

static size_t read_parts(int fd, int flags)
{
	size_t done = 0;
	ssize_t got;

	while (done < PARTS) {
		got = flags ? recv(fd, received + done, PARTS - done, flags)
			    : read(fd, received + done, PARTS - done);
		if (got <= 0)
			break;
		done += (size_t)got;
	}
	return done;
}

static size_t write_parts(int fd, size_t from, size_t to)
{
	ssize_t put;

	for (; from < to; from += (size_t)put) {
		put = write(fd, sent + from, to - from);
		if (put < 0)
			break;
	}
	return from;
}

static int on_write_parts(void)
{
	int answer[2];
	char right = 0;

	fill_parts();
	if (pipe(answer))
		return -2;
	if (!fork()) {
		nanosleep(&second, NULL);
		right = read_parts(pipe_fds[0], 0) == PARTS && !memcmp(sent, received, PARTS);
		_exit(write(answer[1], &right, 1) != 1);
	}
	if (write_parts(pipe_fds[1], 0, PARTS) < PARTS)
		return -1;
	return read(answer[0], &right, 1) == 1 && right ? 0 : -2;
}

static int on_recv_parts(void)
{
	int pair[2];

	fill_parts();
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return -2;
	if (!fork()) {
		write_parts(pair[1], 0, HALF);
		nanosleep(&second, NULL);
		_exit(write_parts(pair[1], HALF, PARTS) != PARTS);
	}
	if (read_parts(pair[0], MSG_WAITALL) < PARTS)
		return -1;
	return memcmp(sent, received, PARTS) ? -2 : 0;
}

static const struct {
	const char *name;
	int (*call)(void);
} calls[] = {
	{"nanosleep", on_nanosleep},
	{"filtered", on_filtered},
	{"clock_nanosleep", on_clock_nanosleep},
	{"poll", on_poll},
	{"ppoll", on_ppoll},
	{"select", on_select},
	{"pselect", on_pselect},
	{"epoll_wait", on_epoll_wait},
	{"epoll_pwait", on_epoll_pwait},
	{"epoll_pwait2", on_epoll_pwait2},
	{"futex", on_futex},
	{"sigtimedwait", on_sigtimedwait},
	{"semtimedop", on_semtimedop},
	{"recv", on_recv},
	{"accept", on_accept},
	{"io_getevents", on_io_getevents},
	{"timerfd", on_timerfd},
	{"read", on_read},
	{"inotify", on_inotify},
	{"narrow-read", on_narrow_read},
	{"narrow-sleep", on_narrow_sleep},
	{"narrow-denied", on_narrow_denied},
	{"narrow-filtered", on_narrow_filtered},
	{"msgrcv", on_msgrcv},
	{"write-parts", on_write_parts},
	{"recv-parts", on_recv_parts},
};

static void handler(int signal)
{
	(void)signal;
}

static long milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	struct sigaction action = {.sa_handler = handler};
	long start;
	int result;

	if (argc > 2)
		second.tv_sec = second_tv.tv_sec = atol(argv[2]);
	setvbuf(stdout, NULL, _IONBF, 0);
	signal(SIGCHLD, SIG_IGN);
	sigaction(SIGUSR1, &action, NULL);
	if (pipe(pipe_fds))
		return 1;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		if (strcmp(calls[i].name, name))
			continue;
		alarm(600);
		printf("ready\n");
		start = milliseconds();
		errno = 0;
		result = calls[i].call();
		printf("%d %d %ld\n", result, result < 0 ? errno : 0, milliseconds() - start);
		return 0;
	}
	return 2;
}
