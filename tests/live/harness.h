/* SPDX-License-Identifier: MIT */
/*
 * harness.h - what every live test needs: a target program under control, and
 * the proof afterwards that nothing of ours is left in it.
 *
 * Calling sequence of a case (cmocka; every function fails the test itself and
 * says why, so none returns an error unless it says so):
 *
 *   1. harness_setup / harness_teardown as the case's fixtures;
 *   2. harness_start(h, "spin", "8", NULL): runs $DINST_BUILD/tests/live/targets/spin,
 *      waits until it prints "ready", and takes the snapshot `before`;
 *   3. work on h->pid: by the libraries in this process, or with harness_dinst();
 *   4. harness_verify(h): text equals the file, maps, threads, signals and
 *      descriptors are as before, nobody is stopped or traced;
 *   5. harness_end(h, 0): the target is told to end and does so with its own status.
 *
 * A target program prints "ready" on its standard output when it is set up,
 * works until its standard input ends, and then exits with 0 if all that it
 * computed was right. It runs in a process group of its own and does not
 * outlive the test, whatever happens (harness_setup sets an alarm).
 *
 * Ownership: the harness owns the target, its daemon (a private one, in a
 * private directory) and everything that it hands out as `const`.
 */
#ifndef DINST_TESTS_LIVE_HARNESS_H
#define DINST_TESTS_LIVE_HARNESS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <sys/types.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/slower.h"

/* Seconds that a case may take unless harness_limit() says otherwise. */
enum { HARNESS_SECONDS = 300, HARNESS_ANSWER_MS = 120000 };

struct harness_snapshot; /* opaque */

struct harness {
	pid_t pid;			 /* the target, 0 if none */
	int input, output;		 /* our ends of its standard input and output, -1 if none */
	struct harness_snapshot *before; /* taken by harness_start() */
	char directory[64];		 /* private: the socket of harness_dinst() is here */
	bool daemon_used;
	char *messages;	 /* standard error of the last harness_dinst() */
	char line[4096]; /* the last line of output; see harness_line() */
	size_t line_used;
	char pending[4096]; /* output that was read and not yet asked for */
};

/* Fixtures: *state is a struct harness. */
int harness_setup(void **state);
int harness_teardown(void **state);

/* Another limit in seconds for this case, from now on. */
void harness_limit(unsigned seconds);

/* The path of a file below $DINST_BUILD; valid until the next call. */
const char *harness_path(const char *relative);

/*
 * Starts a target program with arguments (end them with NULL), waits for
 * "ready" and takes the snapshot. Called again it starts another one; the first must have
 * ended before.
 */
void harness_start(struct harness *h, const char *program, ...) __attribute__((sentinel));

/*
 * What is started between these two is the first process of a container (a pid namespace) of its
 * own, and calls itself 1. One at a time. Skips the test where that cannot be made.
 */
int harness_container_begin(void);
void harness_container_end(int container);

/* As harness_start with any program (absolute path in argv[0], or one of $PATH); waits for
 * "ready" only if told so. */
void harness_start_argv(struct harness *h, const char *const *argv, bool wait_ready);

/* Fails: no line for so long. Tells what each thread of the process and of its children is doing. */
void harness_fail_silent(pid_t pid, unsigned milliseconds);

/* The next line of the target's output without its newline; fails after `milliseconds`. */
const char *harness_line(struct harness *h, unsigned milliseconds);

/*
 * Sends a command again that was answered with "done" by now: the target is at work as long as the
 * test is. Returns how often (0 or 1); the last answer is the caller's to read.
 */
unsigned harness_again(struct harness *h, const char *command);

/*
 * Waits for what somebody else does, however slow the machine is: looks every millisecond, and
 * fails after HARNESS_ANSWER_MS.
 */
#define harness_until(condition)                                        \
	do {                                                            \
		for (int ms = 0; !(condition); ms++) {                  \
			if (ms >= HARNESS_ANSWER_MS)                    \
				fail_msg("never came: %s", #condition); \
			usleep(1000);                                   \
		}                                                       \
	} while (0)

/* Writes `text` to the target's standard input. */
void harness_send(struct harness *h, const char *text);

/* Ends the standard input and waits for the target to exit with `status`. */
void harness_end(struct harness *h, int status);

/* Waits for the target to end by itself; what waitpid(2) says about it. */
int harness_wait(struct harness *h, unsigned milliseconds);

enum harness_limit {
	HARNESS_LIMIT_MEMORY, /* bytes */
	HARNESS_LIMIT_CPU, /* microseconds of CPU time in each tenth of a second, at least 1000 */
};

/*
 * Puts a process into a control group of its own, with that limit; false if that cannot be
 * had. `directory` is the caller's to remove when the process has ended.
 */
bool harness_confine(pid_t pid, enum harness_limit limit, const char *value, char *directory,
		     size_t size);

/* Writes one setting of a control group. */
bool harness_set(const char *directory, const char *name, const char *value);

/* Puts another one into that group. */
bool harness_join(pid_t pid, const char *directory);

/* Kills the target, if there is one. No test of anything. */
void harness_kill(struct harness *h);

/* ------------------------------------------------------------ snapshots */

enum harness_what {
	HARNESS_TEXT = 1 << 0,	   /* executable bytes equal the mapped file, or what they were */
	HARNESS_MAPS = 1 << 1,	   /* same mappings (the heap and the stack may have grown) */
	HARNESS_THREADS = 1 << 2,  /* same threads, none stopped or traced */
	HARNESS_SIGNALS = 1 << 3,  /* same masks and dispositions, nothing pending */
	HARNESS_FDS = 1 << 4,	   /* same descriptors */
	HARNESS_NO_ARENA = 1 << 5, /* MAPS: mappings of dinst itself do not count */
	HARNESS_ALL = HARNESS_TEXT | HARNESS_MAPS | HARNESS_THREADS | HARNESS_SIGNALS | HARNESS_FDS,
	/* What must hold while we are attached: all but the arena and the patched text. */
	HARNESS_ATTACHED =
		HARNESS_MAPS | HARNESS_NO_ARENA | HARNESS_THREADS | HARNESS_SIGNALS | HARNESS_FDS,
};

/* Takes a snapshot of any process; NULL if it is gone. The target keeps running. */
struct harness_snapshot *harness_snapshot_take(pid_t pid);
void harness_snapshot_free(struct harness_snapshot *shot);

/*
 * The same, once the process has settled: glibc blocks all signals in a thread that starts, and
 * a target says "ready" before the last of its threads is there.
 */
struct harness_snapshot *harness_snapshot_settled(pid_t pid);

/*
 * Compares what is now with `before`. Returns the number of differences; the first ones
 * are described in `text` (a line each).
 */
size_t harness_differences(const struct harness_snapshot *before, unsigned what, char *text,
			   size_t size);

/* Fails the test unless everything is as before (what is in motion gets a second to settle). */
void harness_verify(struct harness *h);
void harness_verify_what(struct harness *h, unsigned what);

/* The value of `field` ("State:", "SigBlk:") of a thread's status, in a static buffer. */
const char *harness_status(pid_t pid, pid_t tid, const char *field);

/* --------------------------------------------------------- command line */

/*
 * Runs `dinst --json ARGS...` with a private daemon. Returns its exit status. *rows (may be
 * NULL) is a new array of the JSON objects on its standard output, one per line; what is not
 * JSON there fails the test. Standard error is in h->messages.
 */
#define harness_dinst(h, rows, ...) \
	harness_dinst_argv((h), (rows), (const char *const[]){__VA_ARGS__, NULL})
int harness_dinst_argv(struct harness *h, json_t **rows, const char *const *arguments);

/* The integer at `key` of the first row that has it; fails if none has. */
int64_t harness_integer(const json_t *rows, const char *key);
/* The string at `key` of the first row that has it; fails if none has. */
const char *harness_string(const json_t *rows, const char *key);

/* Decimal text of a number, for argument lists; four may be in use at a time. */
const char *harness_number(int64_t value);
/* The number in a variable of the environment, with which tests/hostile makes cases longer. */
uint64_t harness_setting(const char *name, uint64_t otherwise);

#endif
