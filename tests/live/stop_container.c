/* SPDX-License-Identifier: MIT */
/*
 * stop_container.c - the first process of a container (of a pid namespace) is sent SIGSTOP from in
 * there, which the kernel ignores, but not while it is traced: it is not stopped all the same. Who
 * sends it from outside does stop it.
 */
#include "tests/live/harness.h"

#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/remote.h"

enum { ROUNDS = 10, FAILS_MS = 300 };

enum kind {
	BARE,	  /* handles no signal, and sleeps in a call */
	SLEEPING, /* the same with a handler for SIGUSR1 */
	BUSY,	  /* in no call */
	FILTERED, /* sleeping, under a filter of seccomp */
	HOLDING, /* a thread waits in vfork(): it cannot be stopped, and all others are traced, and run, for long */
};

/* Shared by the test, the first process, and the process in there that sends it signals. */
struct container {
	enum kind kind;
	pid_t pid;
	int asks[2], orders[2], sent[2];
	volatile pid_t second; /* a thread, as it is known in there */
	volatile unsigned asked, answered, handled;
};

static struct container *container;

static void handle(int signal)
{
	(void)signal;
	container->handled++;
}

/* As an order: to the first thread. */
enum { TO_FIRST = 1000 };

/* In the container: for each order a signal to the first process, or to its first or (negative) its second thread. */
static void send_as_ordered(void)
{
	int signal;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(container->orders[0], &signal, sizeof(signal)) == sizeof(signal)) {
		const long failed = signal < 0 ? syscall(SYS_tgkill, 1, container->second, -signal)
				    : signal > TO_FIRST
					    ? syscall(SYS_tgkill, 1, 1, signal - TO_FIRST)
					    : kill(1, signal);

		if (write(container->sent[1], &failed, sizeof(failed)) != sizeof(failed))
			break;
	}
	_exit(0);
}

static void *be_second(void *arg)
{
	container->second = gettid();
	if (container->kind == HOLDING && !vfork())
		for (;;)
			pause();
	for (;;)
		pause();
	return arg;
}

static void be_filtered(void)
{
	struct sock_filter pass = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {.len = 1, .filter = &pass};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(1);
}

static void be_first(void)
{
	struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
	pthread_t second;
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int signal = 1; signal < SIGRTMIN; signal++)
		sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
	if (!fork())
		send_as_ordered();
	if (container->kind == FILTERED)
		be_filtered();
	if (container->kind != BARE)
		sigaction(SIGUSR1, &action, NULL);
	if (pthread_create(&second, NULL, be_second, NULL))
		_exit(1);
	for (;;) {
		if (container->kind != BUSY && read(container->asks[0], &byte, 1) != 1)
			_exit(1);
		container->answered = container->asked;
	}
}

/* 0: it is not there yet. */
static char state_of_second(void)
{
	struct dirent *entry;
	char path[64], state = 0;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)container->pid);
	tasks = opendir(path);
	assert_non_null(tasks);
	while ((entry = readdir(tasks)))
		if (entry->d_name[0] != '.' && atoi(entry->d_name) != container->pid)
			state = harness_status(container->pid, atoi(entry->d_name), "State:")[0];
	closedir(tasks);
	return state;
}

static void begin(enum kind kind)
{
	pid_t pid;
	int ours;

	container = mmap(NULL, sizeof(*container), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(container, MAP_FAILED);
	container->kind = kind;
	assert_int_equal(pipe(container->asks), 0);
	assert_int_equal(pipe(container->orders), 0);
	assert_int_equal(pipe(container->sent), 0);
	ours = harness_container_begin();
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		be_first();
	container->pid = pid;
	harness_container_end(ours);
	harness_until(container->second && state_of_second() == (kind == HOLDING ? 'D' : 'S'));
}

static void end(void)
{
	int status;

	assert_int_equal(kill(container->pid, SIGKILL), 0);
	assert_int_equal(waitpid(container->pid, &status, 0), container->pid);
	for (int i = 0; i < 2; i++) {
		close(container->asks[i]);
		close(container->orders[i]);
		close(container->sent[i]);
	}
	munmap(container, sizeof(*container));
}

static bool answers(void)
{
	const unsigned asked = ++container->asked;

	assert_int_equal(write(container->asks[1], "?", 1), 1);
	for (int ms = 0; ms < 5000 && container->answered != asked; ms++)
		usleep(1000);
	return container->answered == asked;
}

static void expect_runs(const char *after)
{
	/* Again: another thread may just take what stops all of them. */
	for (int i = 0; i < 2; i++) {
		if (!answers())
			fail_msg("a first process of kind %d is in state %s after %s",
				 (int)container->kind,
				 harness_status(container->pid, container->pid, "State:"), after);
		usleep(2000);
	}
}

static void order(int signal)
{
	struct pollfd p = {.fd = container->sent[0], .events = POLLIN};
	long failed = 1;

	assert_int_equal(write(container->orders[1], &signal, sizeof(signal)), sizeof(signal));
	assert_int_equal(poll(&p, 1, HARNESS_ANSWER_MS), 1);
	assert_int_equal(read(container->sent[0], &failed, sizeof(failed)), sizeof(failed));
	assert_int_equal(failed, 0);
}

static int call(struct stop *s, struct dinst_error *e)
{
	static const struct arch_remote_call getpid_call = {.number = SYS_getpid};
	static const struct arch_remote_program program = {.calls = &getpid_call, .count = 1};
	long result = 0;
	int code = remote_run(s, &program, 0, NULL, NULL, NULL, &result, e);

	if (!code && result != 1)
		code = dinst_fail(e, DINST_FAILED, "getpid returned %ld", result);
	return code;
}

static int stop_from_inside(struct stop *s, void *arg, struct dinst_error *e)
{
	(void)s;
	(void)arg;
	(void)e;
	order(SIGSTOP);
	return 0;
}

/* What is handled goes first, and by its handler. */
static int signal_and_stop_from_inside(struct stop *s, void *arg, struct dinst_error *e)
{
	if (container->kind != BARE)
		order(SIGUSR1);
	return stop_from_inside(s, arg, e);
}

static int stop_second_from_inside(struct stop *s, void *arg, struct dinst_error *e)
{
	(void)s;
	(void)arg;
	(void)e;
	order(-SIGSTOP);
	return 0;
}

static int stop_from_inside_and_call(struct stop *s, void *arg, struct dinst_error *e)
{
	stop_from_inside(s, arg, e);
	return call(s, e);
}

static int call_and_stop_from_inside(struct stop *s, void *arg, struct dinst_error *e)
{
	const int code = call(s, e);

	return code ? code : stop_from_inside(s, arg, e);
}

/* One of the two has made the call, and is released with it as the only one that the signal is for. */
static int call_and_stop_second_from_inside(struct stop *s, void *arg, struct dinst_error *e)
{
	const int code = call(s, e);

	return code ? code : stop_second_from_inside(s, arg, e);
}

static int call_and_stop_first_from_inside(struct stop *s, void *arg, struct dinst_error *e)
{
	const int code = call(s, e);

	(void)arg;
	order(TO_FIRST + SIGSTOP);
	return code;
}

static int stop_from_outside(struct stop *s, void *arg, struct dinst_error *e)
{
	(void)s;
	(void)arg;
	(void)e;
	assert_int_equal(kill(container->pid, SIGSTOP), 0);
	return 0;
}

static int stop_from_outside_and_call(struct stop *s, void *arg, struct dinst_error *e)
{
	stop_from_outside(s, arg, e);
	return call(s, e);
}

static const struct {
	const char *name;
	stop_work work;
	bool outside;
} works[] = {
	{"SIGSTOP in a stop", stop_from_inside, false},
	{"SIGUSR1 and SIGSTOP in a stop", signal_and_stop_from_inside, false},
	{"SIGSTOP to its second thread", stop_second_from_inside, false},
	{"SIGSTOP before a call of ours", stop_from_inside_and_call, false},
	{"SIGSTOP behind a call of ours", call_and_stop_from_inside, false},
	{"SIGSTOP to its second thread behind a call of ours", call_and_stop_second_from_inside,
	 false},
	{"SIGSTOP to its first thread behind a call of ours", call_and_stop_first_from_inside,
	 false},
	{"SIGSTOP from outside", stop_from_outside, true},
	{"SIGSTOP from outside before a call of ours", stop_from_outside_and_call, true},
};

static struct target *open_first(void)
{
	struct dinst_error e = {0};
	struct target *t = NULL;

	if (target_open(container->pid, &t, &e))
		fail_msg("%s", e.text);
	return t;
}

static void stop_well(struct target *t, stop_work work)
{
	struct dinst_error e = {0};

	for (int tries = 0; target_stop(t, NULL, work, NULL, NULL, &e); tries++) {
		if (e.code != DINST_BUSY || tries == 50)
			fail_msg("stop: %s", e.text);
		dinst_error_clear(&e);
		usleep(20000);
	}
}

static char state(void)
{
	return harness_status(container->pid, container->pid, "State:")[0];
}

static void run_works(enum kind kind, bool outside)
{
	struct target *t;

	begin(kind);
	t = open_first();
	for (size_t i = 0; i < sizeof(works) / sizeof(works[0]); i++) {
		for (int round = 0; works[i].outside == outside && round < ROUNDS; round++) {
			const unsigned handled = container->handled;

			stop_well(t, works[i].work);
			if (outside) {
				harness_until(state() == 'T');
				assert_int_equal(kill(container->pid, SIGCONT), 0);
			}
			expect_runs(works[i].name);
			if (works[i].work == signal_and_stop_from_inside)
				assert_int_equal(container->handled - handled, kind != BARE);
		}
	}
	target_close(t);
	end();
}

/*
 * fear A4: the first process of a container gets a SIGSTOP from in there in a stop, which the kernel would
 * have ignored: it goes on, and what else has come is handled
 */
static void test_from_inside(void **state)
{
	(void)state;
	for (enum kind kind = BARE; kind < HOLDING; kind++)
		run_works(kind, false);
}

/* fear A3: the same from outside, as by kill(1) of the host: it is stopped by that, until it is continued */
static void test_from_outside(void **state)
{
	(void)state;
	for (enum kind kind = BARE; kind < HOLDING; kind++)
		run_works(kind, true);
}

static void *send_while_traced(void *arg)
{
	harness_until(strcmp(harness_status(container->pid, container->pid, "TracerPid:"), "0") !=
		      0);
	for (int i = 0; i < 5; i++) {
		order(SIGSTOP);
		usleep(FAILS_MS * 1000 / 20);
	}
	return arg;
}

/* fear A3: the same while threads are only traced, and others are waited for */
static void test_before_stops(void **state)
{
	const struct stop_options once = {.deadline_us = 1000 * FAILS_MS, .tries = 1};
	struct dinst_error e = {0};
	pthread_t sender;
	struct target *t;

	(void)state;
	begin(HOLDING);
	t = open_first();
	for (int i = 0; i < ROUNDS; i++) {
		assert_int_equal(pthread_create(&sender, NULL, send_while_traced, NULL), 0);
		assert_int_equal(target_stop(t, &once, stop_from_inside, NULL, NULL, &e),
				 DINST_BUSY);
		assert_non_null(strstr(e.text, "state D"));
		dinst_error_clear(&e);
		pthread_join(sender, NULL);
		expect_runs("SIGSTOP before a stop");
	}
	target_close(t);
	end();
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_from_inside),
		CASE(test_from_outside),
		CASE(test_before_stops),
	};

	return cmocka_run_group_tests_name("live/stop_container", tests, NULL, NULL);
}
