/* SPDX-License-Identifier: MIT */
/*
 * stop_woken.c - signals without effect, which wake threads up only because these are traced.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inject/proc.h"
#include "tests/live/harness.h"
#include "tests/live/inject_help.h"

enum {
	STOPS = 40 / SLOWER,
	TAKEN_MS = 20,	 /* for so long nobody else gets the CPU */
	ASLEEP_MOST = 2, /* looks of the tracer at threads that sleep all of them */
	PATIENCE_US = 5000000,
};

static struct {
	struct proc_ids threads;
	pid_t target, tracer; /* 0: not now */
	unsigned asleep;      /* so often all were seen to sleep */
	int taker;	      /* a byte, and the CPU is taken */
	unsigned times;
} sender;

static void stay_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		_exit(1);
}

/* A child that ends with us, on that CPU. */
static pid_t begin_child(int cpu)
{
	const pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	stay_on(cpu);
	return 0;
}

/* Takes its share all the time. */
static pid_t begin_hog(int cpu)
{
	const pid_t pid = begin_child(cpu);

	while (!pid)
		continue;
	return pid;
}

/* Takes all of it for TAKEN_MS at each byte. */
static pid_t begin_taker(int cpu, int bytes)
{
	const struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_FIFO)};
	const pid_t pid = begin_child(cpu);
	uint64_t until;
	char byte;

	if (pid)
		return pid;
	if (sched_setscheduler(0, SCHED_FIFO, &lowest))
		_exit(1);
	while (read(bytes, &byte, 1) == 1) {
		until = clock_ns() + TAKEN_MS * UINT64_C(1000000);
		while (clock_ns() < until)
			continue;
	}
	_exit(0);
}

/* All but the first thread. */
static bool are_asleep(void)
{
	struct proc_stat stat;

	for (size_t i = 0; i < sender.threads.count; i++)
		if (sender.threads.ids[i] != sender.target &&
		    (proc_thread_stat_read(sender.target, sender.threads.ids[i], &stat) ||
		     stat.state != 'S'))
			return false;
	return true;
}

static void rest_ms(unsigned ms)
{
	const struct timespec t = {0, ms * 1000000L};

	syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &t, NULL);
}

static void send_signals(void)
{
	assert_int_equal(write(sender.taker, "x", 1), 1);
	rest_ms(1);
	for (size_t i = 0; i < sender.threads.count; i++)
		if (sender.threads.ids[i] != sender.target)
			assert_int_equal(syscall(SYS_tgkill, sender.target, sender.threads.ids[i],
						 SIGCHLD),
					 0);
	sender.times++;
}

/*
 * In place of the library's. The tracer rests between two looks at threads on their way back into
 * their calls: once all are there but the first one, and it has seen that, each gets a signal, and has no CPU.
 */
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *request,
		    struct timespec *left)
{
	if (sender.tracer && gettid() == sender.tracer && are_asleep() &&
	    sender.asleep++ == ASLEEP_MOST)
		send_signals();
	return syscall(SYS_clock_nanosleep, clock, flags, request, left) ? errno : 0;
}

/* From now on, all are let go. */
static int begin_signals(struct stop *s, void *arg, struct dinst_error *e)
{
	(void)s;
	(void)arg;
	(void)e;
	sender.asleep = 0;
	sender.tracer = gettid();
	return 0;
}

static void end_child(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Two CPUs, and real-time priority, or the test is skipped. */
static void choose_cpus(int cpus[2])
{
	const struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_FIFO)};
	const struct sched_param none = {0};
	cpu_set_t set;
	int count = 0;

	assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
	for (int i = 0; i < CPU_SETSIZE && count < 2; i++)
		if (CPU_ISSET(i, &set))
			cpus[count++] = i;
	if (count < 2 || sched_setscheduler(0, SCHED_FIFO, &lowest)) {
		print_message("skipped: no two CPUs, or no real-time work\n");
		skip();
	}
	assert_int_equal(sched_setscheduler(0, SCHED_OTHER, &none), 0);
}

/*
 * fear A4, A6: SIGCHLD without a handler, which the kernel would have dropped, wakes threads up as long as they are
 * traced: none of their calls ends with EINTR, though they get no CPU before all others are back in their calls
 */
static void test_dropped_signals(void **state)
{
	const struct stop_options patient = {.deadline_us = PATIENCE_US};
	struct harness *h = *state;
	struct dinst_error e = {0};
	int cpus[2], bytes[2];
	pid_t hog, taker;
	struct target *t;
	char names[2][16];

	choose_cpus(cpus);
	for (int i = 0; i < 2; i++)
		snprintf(names[i], sizeof(names[i]), "%d", cpus[i]);
	harness_start(h, "woken", names[0], names[1], NULL);
	t = help_open(h->pid);
	sender.target = h->pid;
	assert_int_equal(proc_tasks(h->pid, &sender.threads), 0);
	assert_true(sender.threads.count > 1);
	assert_int_equal(pipe(bytes), 0);
	sender.taker = bytes[1];
	taker = begin_taker(cpus[1], bytes[0]);
	hog = begin_hog(cpus[0]);
	stay_on(cpus[0]);
	for (int i = 0; i < STOPS; i++) {
		if (target_stop(t, &patient, begin_signals, NULL, NULL, &e))
			fail_msg("%s", e.text);
		sender.tracer = 0;
		rest_ms(TAKEN_MS);
	}
	end_child(hog);
	end_child(taker);
	print_message("signals in %u of %d stops\n", sender.times, STOPS);
	assert_string_equal(help_ask(h, "count"), "0");
	assert_true(sender.times > 0);
	proc_ids_release(&sender.threads);
	close(bytes[0]);
	close(bytes[1]);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

/* So many microseconds of CPU time in each second; 0: as many as there are. */
static void set_share(const char *directory, unsigned us)
{
	char quota[32], most[64];

	snprintf(quota, sizeof(quota), "%d", us ? (int)us : -1);
	snprintf(most, sizeof(most), us ? "%u 1000000" : "max", us);
	if (!harness_set(directory, "cpu.cfs_period_us", "1000000") ||
	    !harness_set(directory, "cpu.cfs_quota_us", quota))
		assert_true(harness_set(directory, "cpu.max", most));
}

/*
 * fear A6: stops are given up since threads get no CPU to stop on, for seconds (a container that has used up its
 * share): none of their calls ends with EINTR, however late that is
 */
static void test_no_cpu(void **state)
{
	enum { WORKING = 4, GIVEN_UP = 5, TRIES = 20, SHARE_US = 1000 };
	const struct stop_options at_once = {.deadline_us = 5000, .tries = 1};
	struct harness *h = *state;
	struct dinst_error e = {0};
	uint64_t begun, longest = 0;
	unsigned given_up = 0;
	char directory[128];
	struct target *t;

	harness_limit(600);
	harness_start(h, "woken", "0", "0", harness_number(WORKING), NULL);
	t = help_open(h->pid);
	if (!harness_confine(h->pid, HARNESS_LIMIT_CPU, "1000", directory, sizeof(directory))) {
		print_message("skipped: no limit of CPU time can be set here\n");
		skip();
	}
	set_share(directory, SHARE_US);
	for (int i = 0; i < TRIES && given_up < GIVEN_UP; i++) {
		begun = clock_ns();
		if (target_stop(t, &at_once, help_nothing, NULL, NULL, &e) == DINST_BUSY)
			given_up++;
		dinst_error_clear(&e);
		if (clock_ns() - begun > longest)
			longest = clock_ns() - begun;
		rest_ms(300);
	}
	set_share(directory, 0);
	print_message("%u given up, the longest %.1f s\n", given_up, (double)longest / 1e9);
	assert_string_equal(help_ask(h, "count"), "0");
	assert_true(given_up > 0);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
	rmdir(directory);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_dropped_signals, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_no_cpu, harness_setup, harness_teardown),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("stop_woken", tests, NULL, NULL);
}
