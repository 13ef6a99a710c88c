/* SPDX-License-Identifier: MIT */
/*
 * life_jobs.c - targets that job control has stopped, on a terminal of their
 * own: by ^Z, by reading it in the background, by writing to it, by SIGSTOP.
 *
 * A process like a shell is their parent and says what it is told of them: each
 * SIGCHLD and each answer of waitpid(). What dinst does to a stopped job must be
 * no news to it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "tests/live/harness_session.h"
#include "tests/live/harness_thread.h"

enum { CYCLES = 10 };

struct shell {
	int terminal; /* our end of it */
	int events;   /* what the shell says */
	pid_t shell, job;
	char line[64];
};

enum job { JOB_FOREGROUND, JOB_READS, JOB_WRITES, JOB_SPINS };

/* ---------------------------------------------------------------- the shell */

static volatile sig_atomic_t children_signals, questions;

static void on_question(int sig)
{
	(void)sig;
	questions++;
}

static void on_child(int sig)
{
	(void)sig;
	children_signals++;
}

/* The job: reads or writes its terminal, or counts; 7 when a line "end" comes. */
static void be_job(int terminal, enum job job)
{
	char text[64];
	ssize_t got;

	setpgid(0, 0);
	signal(SIGCHLD, SIG_DFL);
	signal(SIGUSR1, SIG_DFL);
	if (job == JOB_FOREGROUND) {
		/* In the background that would stop it. */
		signal(SIGTTOU, SIG_IGN);
		tcsetpgrp(terminal, getpid());
		signal(SIGTTOU, SIG_DFL);
	}
	if (job == JOB_SPINS)
		for (;;)
			getppid();
	if (job == JOB_WRITES && write(terminal, "job\n", 4) != 4)
		_exit(1);
	do
		got = read(terminal, text, sizeof(text));
	while (got < 0 && errno == EINTR);
	_exit(got > 0 ? 7 : 1);
}

/* Tells every SIGCHLD and every state of the job as it comes. */
static void watch(pid_t job, int out)
{
	struct timespec pause = {0, 1000000};
	sig_atomic_t seen = 0, answered = 0;
	int status;

	for (;;) {
		const sig_atomic_t asked = questions;
		pid_t pid = waitpid(job, &status, WUNTRACED | WCONTINUED | WNOHANG);

		if (pid == job && WIFSTOPPED(status))
			dprintf(out, "stopped %d\n", WSTOPSIG(status));
		else if (pid == job && WIFCONTINUED(status))
			dprintf(out, "continued\n");
		else if (pid == job || pid < 0) {
			dprintf(out, "ended %d\n", pid == job ? status : -1);
			_exit(0);
		}
		while (seen < children_signals) {
			seen++;
			dprintf(out, "signal\n");
		}
		for (; answered < asked; answered++)
			dprintf(out, "here\n");
		nanosleep(&pause, NULL);
	}
}

static void be_shell(const char *name, int out, enum job job)
{
	struct sigaction action = {.sa_handler = on_child};
	struct termios modes;
	pid_t pid;
	int terminal;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setsid();
	terminal = open(name, O_RDWR);
	if (terminal < 0 || ioctl(terminal, TIOCSCTTY, 0) || tcgetattr(terminal, &modes))
		_exit(2);
	modes.c_lflag |= ISIG | ICANON;
	modes.c_lflag &= ~(tcflag_t)ECHO;
	if (job == JOB_WRITES)
		modes.c_lflag |= TOSTOP;
	tcsetattr(terminal, TCSANOW, &modes);
	sigaction(SIGCHLD, &action, NULL);
	signal(SIGUSR1, on_question);
	signal(SIGTTOU, SIG_IGN);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGTTOU, SIG_DFL);
		be_job(terminal, job);
	}
	dprintf(out, "job %d\n", (int)pid);
	watch(pid, out);
}

/* ----------------------------------------------------------------- the test */

/* The next thing that the shell has to say; false if it says nothing for that long. */
static bool next_event(struct shell *sh, int milliseconds)
{
	struct pollfd fd = {sh->events, POLLIN, 0};
	size_t used = 0;

	while (used + 1 < sizeof(sh->line) && poll(&fd, 1, milliseconds) > 0) {
		if (read(sh->events, sh->line + used, 1) != 1)
			break;
		if (sh->line[used++] == '\n') {
			sh->line[used - 1] = '\0';
			return true;
		}
	}
	sh->line[used] = '\0';
	return false;
}

/* What happens to the job is told by a state and one signal, in whatever order; its end ends both. */
static void expect_news(struct shell *sh, const char *news)
{
	bool signal_seen = !strncmp(news, "ended", 5), news_seen = false;

	while (!signal_seen || !news_seen) {
		if (!next_event(sh, HARNESS_ANSWER_MS))
			fail_msg("the shell does not say '%s' (signal: %d)", news, signal_seen);
		if (!strcmp(sh->line, "signal") && !signal_seen)
			signal_seen = true;
		else if (!strcmp(sh->line, news) && !news_seen)
			news_seen = true;
		else
			fail_msg("the shell says '%s' and not '%s'", sh->line, news);
	}
}

static void expect_no_news(struct shell *sh)
{
	if (next_event(sh, 100))
		fail_msg("the shell was told '%s'", sh->line);
}

static void begin(struct harness *h, struct shell *sh, enum job job)
{
	int fds[2], number;

	sh->terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	assert_true(sh->terminal >= 0);
	assert_int_equal(grantpt(sh->terminal) | unlockpt(sh->terminal), 0);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	fflush(NULL);
	sh->shell = fork();
	if (!sh->shell)
		be_shell(ptsname(sh->terminal), fds[1], job);
	close(fds[1]);
	sh->events = fds[0];
	assert_true(next_event(sh, HARNESS_ANSWER_MS));
	assert_int_equal(sscanf(sh->line, "job %d", &number), 1);
	sh->job = number;
	h->pid = number;
}

/* Has it all: the job goes on and ends as it would have; the shell knows. */
static void end(struct harness *h, struct shell *sh)
{
	if (sh->job) {
		expect_no_news(sh);
		/* In the background it would be stopped again: it is put into the foreground. */
		kill(sh->job, SIGKILL);
		expect_news(sh, "ended 9");
	}
	waitpid(sh->shell, NULL, 0);
	close(sh->terminal);
	close(sh->events);
	h->pid = 0;
}

static char state_of(pid_t pid)
{
	const char *state = harness_status(pid, pid, "State:");

	return state ? state[0] : '?';
}

/* Letting go of a stopped process makes it look runnable until it has stopped again. */
static void expect_stopped(struct shell *sh)
{
	for (int i = 0; i < 60000 && state_of(sh->job) != 'T'; i++)
		usleep(1000);
	assert_int_equal(state_of(sh->job), 'T');
	assert_string_equal(harness_status(sh->job, sh->job, "TracerPid:"), "0");
}

/* Everything that dinst does, again and again; the job stands still afterwards each time. */
static void work_on(struct harness *h, struct shell *sh)
{
	struct harness_snapshot *before = harness_snapshot_take(sh->job);
	char text[2048];

	assert_non_null(before);
	for (int i = 0; i < CYCLES; i++) {
		struct session *s = session_begin(h);
		unsigned id = session_insert(s, "/Code/libc.so.6/*read*");

		expect_stopped(sh);
		session_remove(s, session_insert_kind(s, "libc.so.6:getppid", POINT_EXIT));
		expect_stopped(sh);
		session_remove(s, id);
		session_flush_all(s);
		expect_stopped(sh);
		session_insert(s, "libc.so.6:getppid");
		session_end(s);
		expect_stopped(sh);
	}
	if (harness_differences(before, HARNESS_ALL & ~(unsigned)HARNESS_THREADS, text,
				sizeof(text)))
		fail_msg("the job is not as before:\n%s", text);
	harness_snapshot_free(before);
	expect_no_news(sh);
}

/*
 * fear A3: a job stopped by ^Z on its terminal is attached to, patched and detached from ten times: it
 * stays stopped, its shell hears of nothing, and it goes on where it was when told to.
 */
static void test_suspended(void **state)
{
	struct harness *h = *state;
	struct shell sh;

	begin(h, &sh, JOB_FOREGROUND);
	harness_until(tcgetpgrp(sh.terminal) == sh.job);
	thread_wait_syscall(sh.job, sh.job, SYS_read);
	assert_int_equal(write(sh.terminal, "\032", 1), 1);
	expect_news(&sh, "stopped 20");
	work_on(h, &sh);
	assert_int_equal(kill(sh.job, SIGCONT), 0);
	expect_news(&sh, "continued");
	assert_int_equal(write(sh.terminal, "end\n", 4), 4);
	expect_news(&sh, "ended 1792");
	sh.job = 0;
	end(h, &sh);
}

/*
 * fear A3: a job in the background that reads its terminal stands in SIGTTIN: the same, and when it
 * is continued it is stopped by its own read again, as it would have been without us.
 */
static void test_reads_in_background(void **state)
{
	struct harness *h = *state;
	struct shell sh;

	begin(h, &sh, JOB_READS);
	expect_news(&sh, "stopped 21");
	work_on(h, &sh);
	assert_int_equal(kill(sh.job, SIGCONT), 0);
	/* Both states may be there before the shell looks: the last one is told. */
	expect_stopped(&sh);
	while (next_event(&sh, HARNESS_ANSWER_MS) && strcmp(sh.line, "stopped 21"))
		;
	assert_string_equal(sh.line, "stopped 21");
	expect_stopped(&sh);
	/* Signals that were sent until now have been told before the answer to this one. */
	for (int i = 0; i < 2; i++) {
		assert_int_equal(kill(sh.shell, SIGUSR1), 0);
		while (next_event(&sh, HARNESS_ANSWER_MS) && strcmp(sh.line, "here"))
			;
		assert_string_equal(sh.line, "here");
	}
	work_on(h, &sh);
	end(h, &sh);
}

/* fear A3: the same for SIGTTOU, by writing to a terminal that does not want that. */
static void test_writes_in_background(void **state)
{
	struct harness *h = *state;
	struct shell sh;

	begin(h, &sh, JOB_WRITES);
	expect_news(&sh, "stopped 22");
	work_on(h, &sh);
	end(h, &sh);
}

/* fear A3: the same for SIGSTOP that comes to a job that runs; continued it runs, and was not noticed. */
static void test_stopped(void **state)
{
	struct harness *h = *state;
	struct session *s;
	struct shell sh;
	uint64_t calls;
	unsigned id;

	begin(h, &sh, JOB_SPINS);
	/* Nothing of what we do to a job that runs is told either. */
	for (int i = 0; i < CYCLES; i++) {
		s = session_begin(h);
		session_insert(s, "/Code/libc.so.6/get*");
		session_end(s);
	}
	expect_no_news(&sh);
	assert_int_equal(kill(sh.job, SIGSTOP), 0);
	expect_news(&sh, "stopped 19");
	work_on(h, &sh);
	/* Inserted while it is stopped, counted when it runs. */
	s = session_begin(h);
	id = session_insert(s, "libc.so.6:getppid");
	expect_stopped(&sh);
	calls = session_value(s, id);
	assert_int_equal(calls, 0);
	expect_no_news(&sh);
	assert_int_equal(kill(sh.job, SIGCONT), 0);
	expect_news(&sh, "continued");
	for (int i = 0; i < 60000 && !session_value(s, id); i++)
		usleep(1000);
	assert_true(session_value(s, id) > 0);
	session_end(s);
	end(h, &sh);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_suspended),
		CASE(test_reads_in_background),
		CASE(test_writes_in_background),
		CASE(test_stopped),
	};

	return cmocka_run_group_tests_name("live/life_jobs", tests, NULL, NULL);
}
