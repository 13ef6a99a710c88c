/* SPDX-License-Identifier: MIT */
/*
 * wakeups.c - pairs of threads that pass a token to and fro, each pair in its own
 * way: who has given it away waits until it comes back, without end or nearly so.
 * A wake-up that is lost stops a pair for ever.
 *
 * Prints "ready". A pair that makes no turn in 20 seconds is named on standard
 * error, and the program ends with 1. When its standard input has something to say each
 * pair has to make one more turn, which one that has lost a wake-up before does not; then it prints
 * "PAIR TURNS LONGEST" (milliseconds) for each and ends with 0. A call that returns
 * EINTR is made again: that is no matter here.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { LONG_MS = 60000, STUCK_MS = 20000, CROWD = 4 };

/* One end of a pair: what it waits at. */
struct end {
	int fd, other; /* to wait at, and to write to */
	int epoll;
	atomic_int word;
	sem_t sem;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	int given;	     /* guarded by `lock` */
	atomic_ulong thread; /* pthread_t */
};

struct kind {
	const char *name;
	void (*prepare)(struct end ends[2]);
	void (*give)(struct end *to);
	void (*take)(struct end *from);
};

struct pair {
	const struct kind *kind;
	struct end ends[2];
	atomic_ulong turns;
	atomic_long begun_ms, longest_ms; /* of the turn that is being made; of all */
};

static const struct timespec long_time = {LONG_MS / 1000, 0};
static _Thread_local volatile sig_atomic_t signalled;

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(2);
}

/* ---------------------------------------------------------- descriptors */

static void prepare_pipes(struct end ends[2])
{
	for (int i = 0; i < 2; i++) {
		int fds[2];

		must(!pipe(fds), "pipe");
		ends[i].fd = fds[0];
		ends[i].other = fds[1];
	}
}

static void prepare_sockets(struct end ends[2])
{
	const struct timeval limit = {LONG_MS / 1000, 0};

	for (int i = 0; i < 2; i++) {
		int fds[2];

		must(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds), "socketpair");
		must(!setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)),
		     "setsockopt");
		ends[i].fd = fds[0];
		ends[i].other = fds[1];
	}
}

static void prepare_events(struct end ends[2])
{
	for (int i = 0; i < 2; i++) {
		ends[i].fd = ends[i].other = eventfd(0, EFD_NONBLOCK);
		must(ends[i].fd >= 0, "eventfd");
	}
}

static void prepare_epoll(struct end ends[2])
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};

	prepare_events(ends);
	for (int i = 0; i < 2; i++) {
		ends[i].epoll = epoll_create1(0);
		must(!epoll_ctl(ends[i].epoll, EPOLL_CTL_ADD, ends[i].fd, &event), "epoll");
	}
}

static void give_byte(struct end *to)
{
	must(write(to->other, "x", 1) == 1, "write");
}

static void give_event(struct end *to)
{
	const uint64_t one = 1;

	must(write(to->other, &one, sizeof(one)) == sizeof(one), "write");
}

static void take_byte(struct end *from)
{
	char c;

	while (read(from->fd, &c, 1) != 1)
		;
}

static void take_message(struct end *from)
{
	char c;

	while (recv(from->fd, &c, 1, 0) != 1)
		;
}

static bool event_came(struct end *from)
{
	uint64_t value;

	return read(from->fd, &value, sizeof(value)) == sizeof(value);
}

static void take_epoll(struct end *from)
{
	struct epoll_event event;

	while (!event_came(from))
		epoll_wait(from->epoll, &event, 1, -1);
}

static void take_epoll_timed(struct end *from)
{
	struct epoll_event event;

	while (!event_came(from))
		epoll_wait(from->epoll, &event, 1, LONG_MS);
}

static void take_poll(struct end *from)
{
	struct pollfd p = {from->fd, POLLIN, 0};

	while (!event_came(from))
		poll(&p, 1, LONG_MS);
}

static void take_ppoll(struct end *from)
{
	struct pollfd p = {from->fd, POLLIN, 0};
	sigset_t none;

	sigemptyset(&none);
	while (!event_came(from))
		ppoll(&p, 1, &long_time, &none);
}

static void take_select(struct end *from)
{
	fd_set set;

	while (!event_came(from)) {
		FD_ZERO(&set);
		FD_SET(from->fd, &set);
		select(from->fd + 1, &set, NULL, NULL, NULL);
	}
}

static void prepare_listeners(struct end ends[2])
{
	for (int i = 0; i < 2; i++) {
		struct sockaddr_un own = {.sun_family = AF_UNIX};

		/* An abstract name, chosen by the kernel. */
		ends[i].fd = socket(AF_UNIX, SOCK_STREAM, 0);
		must(!bind(ends[i].fd, (struct sockaddr *)&own, sizeof(sa_family_t)), "bind");
		must(!listen(ends[i].fd, 8), "listen");
	}
}

static void give_connection(struct end *to)
{
	struct sockaddr_un address;
	socklen_t size = sizeof(address);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	must(!getsockname(to->fd, (struct sockaddr *)&address, &size), "getsockname");
	while (connect(fd, (struct sockaddr *)&address, size))
		must(errno == EINTR, "connect");
	close(fd);
}

static void take_connection(struct end *from)
{
	int fd;

	do
		fd = accept(from->fd, NULL, NULL);
	while (fd < 0);
	close(fd);
}

/* --------------------------------------------------------------- memory */

static void give_word(struct end *to)
{
	atomic_fetch_add(&to->word, 1);
	syscall(SYS_futex, &to->word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void wait_word(struct end *from, const struct timespec *limit)
{
	while (!atomic_load(&from->word))
		syscall(SYS_futex, &from->word, FUTEX_WAIT, 0, limit, NULL, 0);
	atomic_fetch_sub(&from->word, 1);
}

static void take_word(struct end *from)
{
	wait_word(from, NULL);
}

static void take_word_timed(struct end *from)
{
	wait_word(from, &long_time);
}

static void prepare_sems(struct end ends[2])
{
	for (int i = 0; i < 2; i++)
		sem_init(&ends[i].sem, 0, 0);
}

static void give_sem(struct end *to)
{
	sem_post(&to->sem);
}

static void take_sem(struct end *from)
{
	while (sem_wait(&from->sem))
		;
}

static void prepare_cond(struct end ends[2])
{
	for (int i = 0; i < 2; i++) {
		pthread_mutex_init(&ends[i].lock, NULL);
		pthread_cond_init(&ends[i].cond, NULL);
	}
}

static void prepare_cond_pi(struct end ends[2])
{
	pthread_mutexattr_t inherits;

	pthread_mutexattr_init(&inherits);
	pthread_mutexattr_setprotocol(&inherits, PTHREAD_PRIO_INHERIT);
	prepare_cond(ends);
	for (int i = 0; i < 2; i++)
		pthread_mutex_init(&ends[i].lock, &inherits);
}

static void give_cond(struct end *to)
{
	pthread_mutex_lock(&to->lock);
	to->given++;
	pthread_cond_signal(&to->cond);
	pthread_mutex_unlock(&to->lock);
}

static void take_cond(struct end *from)
{
	pthread_mutex_lock(&from->lock);
	while (!from->given)
		pthread_cond_wait(&from->cond, &from->lock);
	from->given--;
	pthread_mutex_unlock(&from->lock);
}

/* -------------------------------------------------------------- signals */

static void prepare_nothing(struct end ends[2])
{
	(void)ends;
}

static void signal_end(struct end *to, int signal)
{
	while (!atomic_load(&to->thread))
		usleep(1000);
	pthread_kill((pthread_t)atomic_load(&to->thread), signal);
}

static void give_blocked_signal(struct end *to)
{
	signal_end(to, SIGUSR1);
}

static void take_blocked_signal(struct end *from)
{
	sigset_t set;

	(void)from;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	while (sigtimedwait(&set, NULL, &long_time) != SIGUSR1)
		;
}

static void give_signal(struct end *to)
{
	signal_end(to, SIGUSR2);
}

static void take_signal(struct end *from)
{
	sigset_t set;

	(void)from;
	pthread_sigmask(SIG_SETMASK, NULL, &set);
	sigdelset(&set, SIGUSR2);
	while (!signalled)
		sigsuspend(&set);
	signalled = 0;
}

static void on_signal(int signal)
{
	(void)signal;
	signalled = 1;
}

/* ---------------------------------------------------------------- pairs */

static const struct kind kinds[] = {
	{"pipe", prepare_pipes, give_byte, take_byte},
	{"recv", prepare_sockets, give_byte, take_message},
	{"accept", prepare_listeners, give_connection, take_connection},
	{"epoll", prepare_epoll, give_event, take_epoll},
	{"epoll_timed", prepare_epoll, give_event, take_epoll_timed},
	{"poll", prepare_events, give_event, take_poll},
	{"ppoll", prepare_events, give_event, take_ppoll},
	{"select", prepare_events, give_event, take_select},
	{"futex", prepare_nothing, give_word, take_word},
	{"futex_timed", prepare_nothing, give_word, take_word_timed},
	{"sem", prepare_sems, give_sem, take_sem},
	{"cond", prepare_cond, give_cond, take_cond},
	{"cond_pi", prepare_cond_pi, give_cond, take_cond},
	{"sigtimedwait", prepare_nothing, give_blocked_signal, take_blocked_signal},
	{"sigsuspend", prepare_nothing, give_signal, take_signal},
	/* Its other end is several threads that wait at the same place. */
	{"crowd", prepare_sems, give_sem, take_sem},
};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static struct pair pairs[KINDS];

static void *answerer(void *arg)
{
	struct pair *p = arg;

	atomic_store(&p->ends[1].thread, (unsigned long)pthread_self());
	for (;;) {
		p->kind->take(&p->ends[1]);
		p->kind->give(&p->ends[0]);
	}
	return NULL;
}

static void *asker(void *arg)
{
	struct pair *p = arg;
	unsigned seed = (unsigned)(p - pairs);

	atomic_store(&p->ends[0].thread, (unsigned long)pthread_self());
	for (;;) {
		long took;

		p->kind->give(&p->ends[1]);
		p->kind->take(&p->ends[0]);
		took = now_ms() - atomic_load(&p->begun_ms);
		if (took > atomic_load(&p->longest_ms))
			atomic_store(&p->longest_ms, took);
		atomic_fetch_add(&p->turns, 1);
		/* Others have something to do, too. */
		usleep((unsigned)rand_r(&seed) % 1000);
		atomic_store(&p->begun_ms, now_ms());
	}
	return NULL;
}

static void start(struct pair *p, const struct kind *kind)
{
	const int answerers = strcmp(kind->name, "crowd") ? 1 : CROWD;
	pthread_t thread;

	p->kind = kind;
	kind->prepare(p->ends);
	atomic_store(&p->begun_ms, now_ms());
	for (int i = 0; i < answerers; i++)
		must(!pthread_create(&thread, NULL, answerer, p), "thread");
	must(!pthread_create(&thread, NULL, asker, p), "thread");
}

static bool all_move(void)
{
	bool move = true;

	for (size_t i = 0; i < KINDS; i++) {
		const long waits = now_ms() - atomic_load(&pairs[i].begun_ms);

		if (waits < STUCK_MS)
			continue;
		fprintf(stderr, "wakeups: %s waits for its answer since %ld ms, after %lu turns\n",
			pairs[i].kind->name, waits, atomic_load(&pairs[i].turns));
		move = false;
	}
	return move;
}

/* Each makes another turn from now on, within STUCK_MS: none has lost a wake-up. */
static bool all_turn_again(void)
{
	unsigned long before[KINDS];
	bool turned = true;

	for (size_t i = 0; i < KINDS; i++)
		before[i] = atomic_load(&pairs[i].turns);
	for (size_t i = 0; i < KINDS; i++) {
		while (atomic_load(&pairs[i].turns) == before[i] && turned) {
			turned = all_move();
			usleep(1000);
		}
	}
	return turned;
}

int main(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	struct pollfd input = {STDIN_FILENO, POLLIN, 0};
	sigset_t set;

	sigaction(SIGUSR2, &action, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	for (size_t i = 0; i < KINDS; i++)
		start(&pairs[i], &kinds[i]);
	puts("ready");
	fflush(stdout);
	while (poll(&input, 1, 200) <= 0)
		if (!all_move())
			return 1;
	if (!all_turn_again())
		return 1;
	for (size_t i = 0; i < KINDS; i++)
		printf("%s %lu %ld\n", pairs[i].kind->name, atomic_load(&pairs[i].turns),
		       atomic_load(&pairs[i].longest_ms));
	fflush(stdout);
	_exit(all_move() ? 0 : 1);
}
