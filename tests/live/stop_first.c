/* SPDX-License-Identifier: MIT */
/*
 * stop_first.c - while the target stands still the tracer goes before all fair work, where it may,
 * and for a moment only.
 */
#include "tests/live/harness.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/target.h"

static int see_policy(struct stop *s, void *policy, struct dinst_error *e)
{
	(void)s;
	(void)e;
	*(int *)policy = sched_getscheduler(0);
	return 0;
}

/*
 * fear K2: while the target stands still its tracer waits for no CPU where it may go first, and
 * takes no more than its share where real-time work is limited; the mutator's other threads never do.
 */
static void test_tracer_goes_first(void **state)
{
	const struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_RR)};
	const struct sched_param more = {.sched_priority = sched_get_priority_min(SCHED_RR) + 1};
	const struct sched_param none = {0};
	struct harness *h = *state;
	struct rlimit before, limited;
	struct dinst_error e = {0};
	struct target *t;
	int policy = -1;
	bool may;

	harness_start(h, "stop-busy", "3", NULL);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	may = !sched_setscheduler(0, SCHED_RR, &lowest);
	assert_int_equal(sched_setscheduler(0, SCHED_OTHER, &none), 0);
	assert_int_equal(getrlimit(RLIMIT_RTTIME, &before), 0);
	assert_int_equal(target_stop(t, NULL, see_policy, &policy, NULL, &e), 0);
	assert_int_equal(policy, may && before.rlim_cur == RLIM_INFINITY
					 ? SCHED_RR | SCHED_RESET_ON_FORK
					 : SCHED_OTHER);
	assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
	if (may) {
		/* Who starts us with more is not put below that. */
		assert_int_equal(sched_setscheduler(0, SCHED_FIFO, &more), 0);
		assert_int_equal(target_stop(t, NULL, see_policy, &policy, NULL, &e), 0);
		assert_int_equal(policy, SCHED_FIFO);
		assert_int_equal(sched_getscheduler(0), SCHED_FIFO);
		assert_int_equal(sched_setscheduler(0, SCHED_OTHER, &none), 0);
	}
	limited = (struct rlimit){.rlim_cur = before.rlim_max == RLIM_INFINITY ? 1000000000
									       : before.rlim_max,
				  .rlim_max = before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_RTTIME, &limited), 0);
	assert_int_equal(target_stop(t, NULL, see_policy, &policy, NULL, &e), 0);
	assert_int_equal(policy, SCHED_OTHER);
	assert_int_equal(setrlimit(RLIMIT_RTTIME, &before), 0);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

struct hog {
	pid_t pid;
	volatile bool begun;
};

/* Takes the CPU that we are on for four seconds; we go on when we get one all the same. */
static int be_starved(struct stop *s, void *arg, struct dinst_error *e)
{
	const struct sched_param more = {.sched_priority = sched_get_priority_min(SCHED_RR) + 1};
	struct hog *hog = arg;
	cpu_set_t here;
	pid_t pid;

	(void)s;
	(void)e;
	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	if (sched_setaffinity(0, sizeof(here), &here))
		return DINST_FAILED;
	pid = fork();
	if (pid == 0) {
		const uint64_t until = clock_ns() + 4000000000;

		if (sched_setscheduler(0, SCHED_FIFO, &more))
			_exit(1);
		hog->begun = true;
		while (clock_ns() < until)
			continue;
		_exit(0);
	}
	hog->pid = pid;
	while (pid > 0 && !hog->begun && !waitpid(pid, NULL, WNOHANG))
		sched_yield();
	return hog->begun ? 0 : DINST_FAILED;
}

/*
 * fear K2: somebody's real-time work takes the tracer's CPU for good while the target stands still:
 * it is let go by the little that the kernel keeps for fair shares.
 */
static void test_tracer_is_starved(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct target *t;
	const struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_RR)};
	const struct sched_param none = {0};
	struct hog *hog;
	char kept[32] = "";
	bool may;
	int fd;

	fd = open("/proc/sys/kernel/sched_rt_runtime_us", O_RDONLY | O_CLOEXEC);
	may = !sched_setscheduler(0, SCHED_RR, &lowest);
	assert_int_equal(sched_setscheduler(0, SCHED_OTHER, &none), 0);
	if (fd < 0 || read(fd, kept, sizeof(kept) - 1) <= 0 || kept[0] == '-' || !may) {
		print_message("skipped: no real-time work, or nothing is kept from it\n");
		skip();
	}
	close(fd);
	hog = mmap(NULL, sizeof(*hog), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(hog, MAP_FAILED);
	harness_start(h, "stop-busy", "3", NULL);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	if (target_stop(t, NULL, be_starved, hog, NULL, &e))
		fail_msg("%s", e.text);
	assert_int_equal(waitpid(hog->pid, NULL, WNOHANG), 0); /* it is at it still */
	kill(hog->pid, SIGKILL);
	assert_int_equal(waitpid(hog->pid, NULL, 0), hog->pid);
	munmap(hog, sizeof(*hog));
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

enum { LONGER_MS = 300, PATIENCE_MS = 30000 };

static void rest_ms(unsigned ms)
{
	const uint64_t until = clock_ns() + ms * 1000000ull;

	while (clock_ns() < until)
		usleep(1000);
}

/* What it has then, after a stop that takes longer than a span of going first. */
static int take_longer(struct stop *s, void *policy, struct dinst_error *e)
{
	rest_ms(LONGER_MS);
	return see_policy(s, policy, e);
}

/* Until it has a fair share, or for long. */
static int work_until_fair(struct stop *s, void *policy, struct dinst_error *e)
{
	const uint64_t until = clock_ns() + PATIENCE_MS * 1000000ull;

	do
		see_policy(s, policy, e);
	while ((*(int *)policy & ~SCHED_RESET_ON_FORK) == SCHED_RR && clock_ns() < until);
	return 0;
}

/*
 * fear K2: on a machine with far more work than processors a stop that takes its time is not left to
 * wait for its fair share of them; but nobody goes first for good
 */
static void test_tracer_stays_first(void **state)
{
	const struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_RR)};
	const struct sched_param none = {0};
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct rlimit limit;
	struct target *t;
	int policy = -1;

	if (sched_setscheduler(0, SCHED_RR, &lowest) || getrlimit(RLIMIT_RTTIME, &limit) ||
	    limit.rlim_cur != RLIM_INFINITY) {
		print_message("skipped: nobody may go first here\n");
		skip();
	}
	assert_int_equal(sched_setscheduler(0, SCHED_OTHER, &none), 0);
	harness_start(h, "stop-busy", "3", NULL);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	assert_int_equal(target_stop(t, NULL, take_longer, &policy, NULL, &e), 0);
	assert_int_equal(policy, SCHED_RR | SCHED_RESET_ON_FORK);
	assert_int_equal(target_stop(t, NULL, work_until_fair, &policy, NULL, &e), 0);
	assert_int_equal(policy & ~SCHED_RESET_ON_FORK, SCHED_OTHER);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_tracer_goes_first, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_tracer_is_starved, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_tracer_stays_first, harness_setup,
						harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
