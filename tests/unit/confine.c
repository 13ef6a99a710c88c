/* SPDX-License-Identifier: MIT */
/*
 * confine.c - confined children that answer little by little, never, too much, or without a
 * filter. What the filter keeps from them is in types_reader.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above */
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "inject/target.h"
#include "mutator/confine.h"

static const uint64_t SOON_NS = 400 * 1000000ULL, LATE_NS = 5 * 1000000000ULL;

/* One byte now and then, far longer than anybody waits; the time is told by the system alone. */
static void dribble(const void *arg, int fd)
{
	const uint64_t each_ns = 20 * 1000000ULL;

	(void)arg;
	for (int i = 0; i < 1000; i++) {
		const uint64_t until = clock_ns() + each_ns;

		if (!confine_write(fd, "x", 1))
			_exit(1);
		while (clock_ns() < until)
			sched_yield();
	}
}

static void say(const void *arg, int fd)
{
	if (!confine_write(fd, arg, strlen(arg)))
		_exit(1);
}

static void die(const void *arg, int fd)
{
	say(arg, fd);
	_exit(3);
}

/* Whoever reads sees the end, and that is not this one's. */
static void go_on(const void *arg, int fd)
{
	(void)arg;
	if (!confine_write(fd, "x", 1))
		_exit(1);
	close(fd);
	for (;;)
		sched_yield();
}

static void fault(const void *arg, int fd)
{
	say(arg, fd);
	__builtin_trap();
}

static int last_end; /* enum confined_end of the last run() */

static uint8_t *run(void (*work)(const void *, int), const char *text, size_t most, size_t *size)
{
	const struct confined_work w = {.what = "a test is done",
					.work = work,
					.arg = text,
					.most = most,
					.patience_ns = text ? LATE_NS * 4 : SOON_NS};
	int forked;
	uint8_t *bytes = confine_run(&w, size, &forked);

	assert_true(forked);
	last_end = forked;
	/* whatever it was, it has ended */
	assert_int_equal(waitpid(-1, NULL, 0), -1);
	assert_int_equal(errno, ECHILD);
	return bytes;
}

static void test_answers(void **state)
{
	size_t size;
	uint8_t *bytes = run(say, "good", 4, &size);

	(void)state;
	assert_non_null(bytes);
	assert_int_equal(size, 4);
	assert_memory_equal(bytes, "good", 4);
	free(bytes);
	assert_null(run(say, "too much", 7, &size));
	assert_null(run(say, "", 7, &size));
	assert_null(run(die, "and died", 100, &size));
}

/* What says something of what it was given, and what does not. */
static void test_ends(void **state)
{
	size_t size;

	(void)state;
	assert_null(run(die, "and died", 100, &size));
	assert_int_equal(last_end, CONFINED_ENDED);
	assert_null(run(say, "too much", 7, &size));
	assert_int_equal(last_end, CONFINED_ENDED);
	assert_null(run(fault, "and was ended", 100, &size));
	assert_int_equal(last_end, CONFINED_CUT);
	assert_null(run(dribble, NULL, 1 << 20, &size));
	assert_int_equal(last_end, CONFINED_CUT);
}

/* fear L1: who answers one byte now and then does not hold anybody up: time is given for the whole answer */
static void test_little_by_little(void **state)
{
	uint64_t begin = clock_ns();
	int pair[2];
	size_t size;
	char taken[2000];
	pid_t child;

	(void)state;
	assert_null(run(dribble, NULL, 1 << 20, &size));
	assert_true(clock_ns() - begin < LATE_NS);

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	child = fork();
	if (child == 0) {
		dribble(NULL, pair[1]);
		_exit(0);
	}
	begin = clock_ns();
	assert_false(confine_take(pair[0], taken, sizeof(taken), begin + SOON_NS));
	assert_true(clock_ns() - begin >= SOON_NS);
	assert_true(clock_ns() - begin < LATE_NS);
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	close(pair[0]);
	close(pair[1]);
}

/* fear L1: who could not look for a minute, stopped or without a processor, finds the answer that was there in time */
static void test_looked_late(void **state)
{
	const uint64_t begin = clock_ns();
	char taken[8];
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_true(confine_write(pair[1], "answered", 8));
	assert_true(confine_take(pair[0], taken, 8, begin - SOON_NS));
	assert_memory_equal(taken, "answered", 8);
	assert_false(confine_take(pair[0], taken, 1, begin - SOON_NS));
	/* Not all of it was there. */
	assert_true(confine_write(pair[1], "answer", 6));
	assert_false(confine_take(pair[0], taken, 8, begin - SOON_NS));
	assert_true(clock_ns() - begin < SOON_NS);
	close(pair[0]);
	close(pair[1]);
}

/* When the child began, in memory that it shares with us, and when we were away from. */
static uint64_t *begun_ns;
static volatile uint64_t away_ns;

static void say_after_a_while(const void *arg, int fd)
{
	const uint64_t until = clock_ns() + SOON_NS / 2;

	(void)arg;
	*begun_ns = until - SOON_NS / 2;
	while (clock_ns() < until)
		sched_yield();
	say("good", fd);
}

static void be_away(int number)
{
	const struct timespec long_enough = {2, 0};

	(void)number;
	away_ns = clock_ns();
	nanosleep(&long_enough, NULL);
}

/* True if we were away from before the child had said anything, and after it had begun. */
static bool go_away_meanwhile(void)
{
	const struct sigaction away = {.sa_handler = be_away};
	const struct itimerval soon = {.it_value = {0, SOON_NS / 8 / 1000}}, none = {0};
	struct itimerval whole;
	struct sigaction before;
	uint8_t *bytes;
	size_t size;

	*begun_ns = away_ns = 0;
	assert_int_equal(sigaction(SIGALRM, &away, &before), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &soon, &whole), 0);
	bytes = run(say_after_a_while, NULL, 100, &size);
	assert_int_equal(setitimer(ITIMER_REAL, &none, NULL), 0);
	assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &whole, NULL), 0);
	assert_non_null(bytes);
	assert_int_equal(size, 4);
	free(bytes);
	assert_true(*begun_ns > 0);
	return away_ns > *begun_ns && away_ns < *begun_ns + SOON_NS / 2;
}

/* The same of all that is read: how the child is confined, what it says, that it says no more, its end. */
static void test_away_meanwhile(void **state)
{
	bool away = false;

	(void)state;
	begun_ns = mmap(NULL, sizeof(*begun_ns), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	assert_true(begun_ns != MAP_FAILED);
	for (int turn = 0; turn < 5 && !away; turn++)
		away = go_away_meanwhile();
	assert_int_equal(munmap(begun_ns, sizeof(*begun_ns)), 0);
	if (!away) {
		print_message("skipped: too busy here to be away while a child is waited for\n");
		skip();
	}
}

/* fear L1: who gives away what he answers with and goes on does not hold anybody up */
static void test_answered_and_stays(void **state)
{
	const uint64_t begin = clock_ns();
	size_t size;

	(void)state;
	assert_null(run(go_on, NULL, 100, &size));
	assert_true(clock_ns() - begin < LATE_NS);
}

/* fear L1: who does not read what he is asked does not hold anybody up */
static void test_nobody_reads(void **state)
{
	const size_t much = 16 << 20;
	char *bytes = calloc(1, much);
	uint64_t begin;
	int pair[2];

	(void)state;
	assert_non_null(bytes);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	begin = clock_ns();
	assert_false(confine_send(pair[0], bytes, much, begin + SOON_NS));
	assert_true(clock_ns() - begin < LATE_NS);
	close(pair[1]);
	begin = clock_ns();
	assert_false(confine_send(pair[0], bytes, much, begin + LATE_NS));
	assert_true(clock_ns() - begin < LATE_NS);
	close(pair[0]);
	free(bytes);
}

/* From here on nobody gets a filter: as a kernel has it that was built without them. */
static int take_filters_away(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_SECCOMP, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0);
}

/* fear L1: where the kernel has no filters the work is done all the same, and that is said, once */
static void test_without_filter(void **state)
{
	char path[] = "/tmp/dinst-unit-XXXXXX", text[1000] = "";
	int file = mkstemp(path), status;
	static const char said[] =
		"a test is done without a filter of system calls (Invalid argument)";
	const char *first;
	pid_t child;

	(void)state;
	assert_true(file >= 0);
	unlink(path);
	fflush(NULL);
	child = fork();
	if (child == 0) {
		dup2(file, STDERR_FILENO);
		if (take_filters_away())
			_exit(99);
		for (int i = 0; i < 2; i++) {
			size_t size;
			uint8_t *bytes = run(say, "good", 100, &size);

			if (!bytes || size != 4)
				_exit(1);
			free(bytes);
		}
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 99) {
		close(file);
		print_message("skipped: this kernel has no filters of system calls\n");
		skip();
	}
	assert_int_equal(status, 0);
	assert_true(pread(file, text, sizeof(text) - 1, 0) >= 0);
	close(file);
	first = strstr(text, said);
	assert_non_null(first);
	assert_null(strstr(first + strlen(said), "without a filter"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answers),		 cmocka_unit_test(test_ends),
		cmocka_unit_test(test_little_by_little), cmocka_unit_test(test_looked_late),
		cmocka_unit_test(test_away_meanwhile),	 cmocka_unit_test(test_answered_and_stays),
		cmocka_unit_test(test_nobody_reads),	 cmocka_unit_test(test_without_filter),
	};

	alarm(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
