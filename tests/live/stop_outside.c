/* SPDX-License-Identifier: MIT */
/*
 * stop_outside.c - threads in system calls that others work on: a supervisor, the verifier of BPF
 * programs, a device, the other end of a connection. A stop must not have them done twice, or given up.
 */
#include "tests/live/harness.h"
#include "tests/live/inject_help.h"

#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#include "inject/proc.h"
#include "inject/target.h"

/* What is told of the calls of a thread, which are none of its own then, and of all sockets. */
static struct {
	pid_t tid;
	struct proc_call call;
	bool is_sctp;
	int domain;	     /* 0: as it is */
	const char *channel; /* NULL: likewise */
} made_up;

int __real_proc_call_read(pid_t tid, struct proc_call *call);
int __wrap_proc_call_read(pid_t tid, struct proc_call *call);
void __real_proc_word(pid_t tid, const char *name, char *word, size_t size);
void __wrap_proc_word(pid_t tid, const char *name, char *word, size_t size);
int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *size);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size);

void __wrap_proc_word(pid_t tid, const char *name, char *word, size_t size)
{
	if (tid == made_up.tid && made_up.channel && !strcmp(name, "wchan"))
		snprintf(word, size, "%s", made_up.channel);
	else
		__real_proc_word(tid, name, word, size);
}

int __wrap_proc_call_read(pid_t tid, struct proc_call *call)
{
	if (tid != made_up.tid)
		return __real_proc_call_read(tid, call);
	*call = made_up.call;
	return 0;
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
	const int error = __real_getsockopt(fd, level, name, value, size);

	if (!error && made_up.is_sctp && level == SOL_SOCKET && name == SO_PROTOCOL)
		*(int *)value = IPPROTO_SCTP;
	if (!error && made_up.domain && level == SOL_SOCKET && name == SO_DOMAIN)
		*(int *)value = made_up.domain;
	return error;
}

static void wait_ms(long ms)
{
	const struct timespec pause = {.tv_nsec = ms * 1000000};

	nanosleep(&pause, NULL);
}

static void expect_busy(struct target *t, const char *said)
{
	const struct stop_options once = {.tries = 1};
	struct dinst_error e = {0};

	assert_int_equal(target_stop(t, &once, help_nothing, NULL, NULL, &e), DINST_BUSY);
	if (!strstr(e.text, said))
		fail_msg("%s", e.text);
}

/* A thread was taken out of a load that it has to begin anew. Once more in *arg. */
static int count_loads(struct stop *s, void *arg, struct dinst_error *e)
{
	const struct arch_regs *regs = &stop_thread(s, 0)->regs;

	(void)e;
	*(unsigned *)arg += arch_in_syscall(regs) && arch_syscall_number(regs) == SYS_bpf;
	return 0;
}

/* Asked is not yet asleep: between the two it looks like one that runs, and is stopped as that. */
static bool sleeps_in(const struct harness *h, const char *function)
{
	char channel[64];

	for (unsigned ms = 0; ms < HARNESS_ANSWER_MS; ms++) {
		proc_word(h->pid, "wchan", channel, sizeof(channel));
		if (!strncmp(channel, function, strlen(function)))
			return true;
		wait_ms(1);
	}
	return false;
}

/* fear A6: the supervisor of a filter has been asked to make the call: it is not asked twice */
static void test_supervised(void **state)
{
	enum { CALLS = 5, STOPS = 3 };
	const struct stop_options once = {.tries = 1};
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct target *t;

	harness_start(h, "supervised", NULL);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	for (int i = 0; i < CALLS; i++) {
		harness_send(h, "call\n");
		if (strcmp(harness_line(h, HARNESS_ANSWER_MS), "asked") != 0) {
			assert_string_equal(h->line, "cannot");
			target_close(t);
			skip();
		}
		assert_true(sleeps_in(h, "seccomp_do_user_notification"));
		for (int k = 0; k < STOPS; k++) {
			dinst_error_clear(&e);
			assert_int_equal(target_stop(t, &once, help_nothing, NULL, NULL, &e),
					 DINST_BUSY);
			assert_non_null(strstr(e.text, "supervisor"));
		}
		harness_send(h, "answer\n");
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "result 0 asked 1");
		/* It waits for the next one: as any other. */
		dinst_error_clear(&e);
		assert_int_equal(target_stop(t, NULL, help_nothing, NULL, NULL, &e), 0);
	}
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

static void *answer_late(void *arg)
{
	enum { LATE_MS = 120 };

	wait_ms(LATE_MS);
	harness_send(arg, "answer\n");
	return NULL;
}

/* fear A6: a file system in user space works on what a thread has asked for, and would give it up, done or not: the thread is not stopped before it has its answer, for which it is waited */
static void test_served_files(void **state)
{
	enum { CALLS = 5, STOPS = 2 };
	const struct stop_options once = {.tries = 1};
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct target *t;
	pthread_t thread;
	int waited = 0, status;

	harness_start(h, "served-files", NULL);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	for (int i = 0; i < CALLS; i++) {
		harness_send(h, "call\n");
		if (!strcmp(harness_line(h, HARNESS_ANSWER_MS), "cannot")) {
			print_message(
				"skipped: no file system in user space can be mounted here\n");
			target_close(t);
			skip();
		}
		assert_string_equal(h->line, "asked");
		assert_true(sleeps_in(h, "request_wait_answer"));
		for (int k = 0; k < STOPS; k++)
			expect_busy(t, "FUSE");
		dinst_error_clear(&e);
		assert_int_equal(pthread_create(&thread, NULL, answer_late, h), 0);
		status = target_stop(t, &once, help_nothing, NULL, NULL, &e);
		/* Where nobody gets a CPU the answer may be later than that. */
		if (status != DINST_BUSY)
			assert_int_equal(status, 0);
		waited += !status;
		pthread_join(thread, NULL);
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "result 0 interrupted 0");
	}
	assert_true(waited > 0);
	target_close(t);
	harness_end(h, 0);
}

/* fear A6: a BPF program is being verified, which the kernel gives up at any signal: it is loaded */
static void test_verified(void **state)
{
	enum { LOADS = 3, STOPS = 3, BETWEEN_MS = 40 };
	struct harness *h = *state;
	unsigned met = 0;
	struct dinst_error e = {0};
	struct target *t;

	harness_start(h, "verified", NULL);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	for (int i = 0; i < LOADS; i++) {
		harness_send(h, "load\n");
		for (int k = 0; k < STOPS; k++) {
			wait_ms(BETWEEN_MS);
			assert_int_equal(target_stop(t, NULL, count_loads, &met, NULL, &e), 0);
		}
		if (strcmp(harness_line(h, HARNESS_ANSWER_MS), "cannot") == 0) {
			target_close(t);
			skip();
		}
		assert_string_equal(h->line, "loaded");
	}
	print_message("%u of %d stops in a load\n", met, LOADS * STOPS);
	assert_true(met > 0);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear A6: a device works on what a thread has asked for by ioctl(2), and would do so twice, or give it up: such a thread is not stopped */
static void test_devices(void **state)
{
	static const struct {
		uint64_t request, argument;
		const char *said; /* NULL: it is stopped as any other */
	} cases[] = {
		{0x2285, 1, "SG_IO"},	{0xab03, 0, "nbd-client"}, {TCSBRK, 0, "TCSBRK"},
		{TCSBRKP, 3, "TCSBRK"}, {TCSBRK, 1, NULL},	   {0xffffffff00002285, 1, "SG_IO"},
		{FIONREAD, 1, NULL},
	};
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct target *t;

	harness_start(h, "supervised", NULL);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		made_up.call =
			(struct proc_call){SYS_ioctl, {0, cases[i].request, cases[i].argument}};
		made_up.tid = h->pid;
		if (cases[i].said)
			expect_busy(t, cases[i].said);
		else
			assert_int_equal(target_stop(t, NULL, help_nothing, NULL, NULL, &e), 0);
	}
	made_up.channel = "wait_for_tpm_stat";
	expect_busy(t, "TPM");
	made_up.channel = NULL;
	made_up.tid = 0;
	assert_int_equal(target_stop(t, NULL, help_nothing, NULL, NULL, &e), 0);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

/* Whether thread `tid` is asleep in a call with that number. */
static bool sleeps_in_call(pid_t tid, long number)
{
	struct proc_call call;

	for (unsigned ms = 0; ms < HARNESS_ANSWER_MS; ms++) {
		if (!__real_proc_call_read(tid, &call) && call.number == number)
			return true;
		wait_ms(1);
	}
	return false;
}

/* What comes of one who connects while the program is stopped, or is not. */
static void connect_by(struct harness *h, struct target *t, const char *how, long number,
		       const char *said)
{
	enum { STOPS = 3 };
	struct dinst_error e = {0};

	harness_send(h, how);
	harness_send(h, "\n");
	if (!strcmp(harness_line(h, HARNESS_ANSWER_MS), "cannot")) {
		target_close(t);
		skip();
	}
	assert_true(sleeps_in_call(atoi(h->line), number));
	for (int k = 0; k < STOPS; k++) {
		if (said)
			expect_busy(t, said);
		else
			assert_int_equal(target_stop(t, NULL, help_nothing, NULL, NULL, &e), 0);
	}
	harness_send(h, "accept\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "got HELLO;");
	assert_int_equal(target_stop(t, NULL, help_nothing, NULL, NULL, &e), 0);
}

/* fear A6: a thread connects and sends at once (TCP Fast Open): what it sends comes once; and who only connects can be stopped, but for SCTP, Bluetooth, vsock and SMC, whose connecting cannot be begun anew */
static void test_connecting(void **state)
{
	static const int domains[] = {AF_BLUETOOTH, AF_VSOCK, AF_SMC};
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct target *t;

	harness_start(h, "fast-open", NULL);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	connect_by(h, t, "sendto", SYS_sendto, "Fast Open");
	connect_by(h, t, "write", SYS_write, "Fast Open");
	connect_by(h, t, "connect", SYS_connect, NULL);
	made_up.is_sctp = true;
	connect_by(h, t, "connect", SYS_connect, "SCTP");
	made_up.is_sctp = false;
	for (size_t i = 0; i < sizeof(domains) / sizeof(domains[0]); i++) {
		made_up.domain = domains[i];
		connect_by(h, t, "connect", SYS_connect, "Bluetooth");
	}
	made_up.domain = 0;
	target_close(t);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_supervised, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_served_files, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_verified, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_devices, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_connecting, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests_name("live/stop_outside", tests, NULL, NULL);
}
