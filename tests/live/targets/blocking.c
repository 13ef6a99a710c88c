/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline */
/*
 * blocking.c - a thread in each kind of blocking system call.
 *
 * Prints "ready". "wait MS" begins all calls and prints "begun"; they end after
 * MS milliseconds, by their own timeout or because something is done for them.
 * "interrupt MS" is the same with one difference: before the time is over the
 * test says "kill", and SIGUSR1 (no SA_RESTART) goes to every thread. Then one
 * line a call, "NAME RESULT ERRNO MILLISECONDS KIND", and "done". KIND: t the
 * kernel or a register has the timeout, r memory has it, c completed by us.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long timeout_ms;
static struct timespec timeout;
static struct timeval timeout_us;
static int empty[2], byte_pipe[2], full[2], message_queue, semaphore, lock_fd, lock_other;
static int socket_pair[2], listener, epoll, watch, idle_pair[2];
static volatile int word, woken;
static char watched[64];
static aio_context_t aio;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1000 + (double)t.tv_nsec / 1e6;
}

static struct timespec until(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += timeout.tv_sec;
	t.tv_nsec += timeout.tv_nsec;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

static long do_nanosleep(void)
{
	struct timespec left;

	return nanosleep(&timeout, &left);
}

static long do_clock_nanosleep(void)
{
	struct timespec t = until();

	errno = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
	return errno ? -1 : 0;
}

static long do_poll(void)
{
	struct pollfd p = {.fd = empty[0], .events = POLLIN};

	return poll(&p, 1, (int)timeout_ms);
}

static long do_ppoll(void)
{
	struct pollfd p = {.fd = empty[0], .events = POLLIN};
	struct timespec t = timeout;

	return ppoll(&p, 1, &t, NULL);
}

static long do_select(void)
{
	struct timeval t = timeout_us;
	fd_set set;

	FD_ZERO(&set);
	FD_SET(empty[0], &set);
	return select(empty[0] + 1, &set, NULL, NULL, &t);
}

static long do_pselect(void)
{
	struct timespec t = timeout;
	sigset_t none;

	sigemptyset(&none);
	return pselect(0, NULL, NULL, NULL, &t, &none);
}

static long do_epoll_wait(void)
{
	struct epoll_event event;

	return epoll_wait(epoll, &event, 1, (int)timeout_ms);
}

static long do_epoll_pwait(void)
{
	struct epoll_event event;
	sigset_t none;

	sigemptyset(&none);
	return epoll_pwait(epoll, &event, 1, (int)timeout_ms, &none);
}

static long do_epoll_pwait2(void)
{
	struct epoll_event event;
	struct timespec t = timeout;

	return syscall(SYS_epoll_pwait2, epoll, &event, 1, &t, NULL, 0);
}

static long do_futex_timeout(void)
{
	struct timespec t = timeout;

	return syscall(SYS_futex, &word, FUTEX_WAIT, 0, &t, NULL, 0);
}

static long do_futex(void)
{
	return syscall(SYS_futex, &woken, FUTEX_WAIT, 0, NULL, NULL, 0);
}

static long do_sigtimedwait(void)
{
	struct timespec t = timeout;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 3);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	return sigtimedwait(&set, NULL, &t);
}

static long do_semtimedop(void)
{
	struct sembuf op = {0, -1, 0};
	struct timespec t = timeout;

	return semtimedop(semaphore, &op, 1, &t);
}

static long do_recv(void)
{
	char byte;

	setsockopt(idle_pair[0], SOL_SOCKET, SO_RCVTIMEO, &timeout_us, sizeof(timeout_us));
	return recv(idle_pair[0], &byte, 1, 0);
}

static long do_accept(void)
{
	setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &timeout_us, sizeof(timeout_us));
	return accept(listener, NULL, NULL);
}

static long do_io_getevents(void)
{
	struct timespec t = timeout;
	struct io_event event;

	return syscall(SYS_io_getevents, aio, 1, 1, &event, &t);
}

static long do_timerfd(void)
{
	struct itimerspec when = {.it_value = timeout};
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);
	uint64_t count;
	long got;
	int error;

	timerfd_settime(fd, 0, &when, NULL);
	got = read(fd, &count, sizeof(count));
	error = errno;
	close(fd);
	errno = error;
	return got;
}

static long do_read_pipe(void)
{
	char byte;

	return read(byte_pipe[0], &byte, 1);
}

static long do_write_pipe(void)
{
	return write(full[1], "x", 1);
}

static long do_recvmsg(void)
{
	char byte;
	struct iovec iov = {&byte, 1};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

	return recvmsg(socket_pair[0], &message, 0);
}

static long do_inotify(void)
{
	char event[512];

	return read(watch, event, sizeof(event)) > 0 ? 1 : -1;
}

static long do_msgrcv(void)
{
	struct {
		long type;
		char byte[8];
	} message;

	return msgrcv(message_queue, &message, 1, 0, 0);
}

static long do_wait(void)
{
	pid_t pid = fork();
	int status, error;
	long got;

	if (pid < 0)
		return -1; /* there is nobody to wait for, nor to kill */
	if (pid == 0) {
		/* Its own clock; SIGUSR1 goes to threads, not to it. */
		usleep((useconds_t)timeout_ms * 1000);
		_exit(0);
	}
	got = wait4(pid, &status, 0, NULL) == pid ? 1 : -1;
	error = errno;
	if (got < 0) {
		kill(pid, SIGKILL);
		wait4(pid, &status, 0, NULL);
	}
	errno = error;
	return got;
}

static long do_lock(void)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	long got = fcntl(lock_fd, F_OFD_SETLKW, &lock);

	if (!got) {
		lock.l_type = F_UNLCK;
		fcntl(lock_fd, F_OFD_SETLK, &lock);
	}
	return got;
}

static const struct call {
	const char *name;
	long (*function)(void);
	char kind;
} calls[] = {
	{"nanosleep", do_nanosleep, 't'},
	{"clock_nanosleep", do_clock_nanosleep, 't'},
	{"poll", do_poll, 't'},
	{"ppoll", do_ppoll, 'r'},
	{"select", do_select, 'r'},
	{"pselect", do_pselect, 'r'},
	{"epoll_wait", do_epoll_wait, 't'},
	{"epoll_pwait", do_epoll_pwait, 't'},
	{"epoll_pwait2", do_epoll_pwait2, 'r'},
	{"futex-timeout", do_futex_timeout, 't'},
	{"futex", do_futex, 'c'},
	{"sigtimedwait", do_sigtimedwait, 'r'},
	{"semtimedop", do_semtimedop, 'r'},
	{"recv-timeout", do_recv, 'r'},
	{"accept-timeout", do_accept, 'r'},
	{"io_getevents", do_io_getevents, 'r'},
	{"timerfd", do_timerfd, 'c'},
	{"read-pipe", do_read_pipe, 'c'},
	{"write-pipe", do_write_pipe, 'c'},
	{"recvmsg", do_recvmsg, 'c'},
	{"inotify", do_inotify, 'c'},
	{"msgrcv", do_msgrcv, 'c'},
	{"wait4", do_wait, 'c'},
	{"lock", do_lock, 'c'},
};

enum { CALLS = sizeof(calls) / sizeof(calls[0]) };

static struct outcome {
	pthread_t thread;
	long result;
	int error;
	double ms;
} outcomes[CALLS];

static pthread_barrier_t begun;
static atomic_int started;

/* Of our own, so that mappings do not come and go with the threads. */
static char stacks[CALLS][65536] __attribute__((aligned(4096)));

static void *call_thread(void *arg)
{
	struct outcome *o = arg;
	double start;

	pthread_barrier_wait(&begun);
	start = now();
	atomic_fetch_add(&started, 1);
	errno = 0;
	o->result = calls[o - outcomes].function();
	o->error = o->result < 0 ? errno : 0;
	o->ms = now() - start;
	return NULL;
}

static void on_signal(int sig)
{
	(void)sig;
}

/* Ends the calls that have no timeout of their own. */
static void complete(void)
{
	struct {
		long type;
		char byte[8];
	} message = {1, "x"};
	struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
	char bytes[4096];
	int fd;

	woken = 1;
	syscall(SYS_futex, &woken, FUTEX_WAKE, 1, NULL, NULL, 0);
	if (write(byte_pipe[1], "x", 1) != 1 || read(full[0], bytes, sizeof(bytes)) <= 0 ||
	    send(socket_pair[1], "x", 1, 0) != 1 || msgsnd(message_queue, &message, 1, 0))
		perror("complete");
	fd = open(watched, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, "x", 1) != 1)
		perror(watched);
	close(fd);
	fcntl(lock_other, F_OFD_SETLK, &lock);
}

static void prepare(long ms)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char bytes[4096] = {0};

	timeout_ms = ms;
	timeout = (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
	timeout_us = (struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
	woken = 0;
	fcntl(full[1], F_SETFL, O_NONBLOCK);
	while (write(full[1], bytes, sizeof(bytes)) > 0 || write(full[1], bytes, 1) > 0)
		continue;
	fcntl(full[1], F_SETFL, 0);
	fcntl(watch, F_SETFL, O_NONBLOCK);
	while (read(watch, bytes, sizeof(bytes)) > 0)
		continue;
	fcntl(watch, F_SETFL, 0);
	fcntl(lock_other, F_OFD_SETLKW, &lock);
}

static void report(const char *first)
{
	for (int i = 0; i < CALLS; i++) {
		pthread_join(outcomes[i].thread, NULL);
		printf("%s %ld %d %.0f %c\n", calls[i].name, outcomes[i].result, outcomes[i].error,
		       outcomes[i].ms, calls[i].kind);
	}
	puts(first);
	fflush(stdout);
}

static void run(long ms, int interrupt)
{
	char line[64];

	prepare(ms);
	atomic_store(&started, 0);
	pthread_barrier_init(&begun, NULL, CALLS + 1);
	for (int i = 0; i < CALLS; i++) {
		pthread_attr_t attributes;

		pthread_attr_init(&attributes);
		pthread_attr_setstack(&attributes, stacks[i], sizeof(stacks[i]));
		pthread_create(&outcomes[i].thread, &attributes, call_thread, &outcomes[i]);
		pthread_attr_destroy(&attributes);
	}
	pthread_barrier_wait(&begun);
	/* What we end lasts as long as we wait, also where a thread gets a CPU late. */
	while (atomic_load(&started) < CALLS)
		usleep(1000);
	usleep(50000);
	puts("begun");
	fflush(stdout);
	if (interrupt) {
		if (!fgets(line, sizeof(line), stdin))
			return;
		for (int i = 0; i < CALLS; i++)
			pthread_kill(outcomes[i].thread, SIGUSR1);
	} else {
		usleep((useconds_t)ms * 1000);
		complete();
	}
	report("done");
	if (interrupt)
		/* Nobody took what would have ended the calls: nothing to clear but the lock. */
		fcntl(lock_other, F_OFD_SETLK, &(struct flock){.l_type = F_UNLCK});
}

static int prepare_once(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	char locked[64];

	sigaction(SIGUSR1, &action, NULL);
	/* Not on a disk: where much is written there, opening it to write takes seconds. */
	snprintf(watched, sizeof(watched), "/dev/shm/dinst-blocking-%d", (int)getpid());
	snprintf(locked, sizeof(locked), "/tmp/dinst-locked-%d", (int)getpid());
	lock_fd = open(locked, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	lock_other = open(locked, O_RDWR | O_CLOEXEC);
	unlink(locked);
	if (pipe(empty) || pipe(byte_pipe) || pipe(full) || lock_fd < 0 || lock_other < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM, 0, socket_pair) ||
	    socketpair(AF_UNIX, SOCK_STREAM, 0, idle_pair))
		return -1;
	listener = socket(AF_INET, SOCK_STREAM, 0);
	listen(listener, 1);
	epoll = epoll_create1(0);
	watch = inotify_init();
	close(open(watched, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	inotify_add_watch(watch, watched, IN_MODIFY);
	message_queue = msgget(IPC_PRIVATE, 0600);
	semaphore = semget(IPC_PRIVATE, 1, 0600);
	return syscall(SYS_io_setup, 4, &aio) ? -1 : 0;
}

static void *do_nothing(void *arg)
{
	return arg;
}

int main(void)
{
	pthread_t idle;
	char line[64];

	/* libc installs a handler of its own with the first thread. */
	pthread_create(&idle, NULL, do_nothing, NULL);
	pthread_join(idle, NULL);
	if (prepare_once())
		return 2;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "wait ", 5))
			run(atol(line + 5), 0);
		else if (!strncmp(line, "interrupt ", 10))
			run(atol(line + 10), 1);
	}
	unlink(watched);
	msgctl(message_queue, IPC_RMID, NULL);
	semctl(semaphore, 0, IPC_RMID);
	return 0;
}
