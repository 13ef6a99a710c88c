/* SPDX-License-Identifier: MIT */
/*
 * process.h - processes by name, as /proc shows them. Nothing is opened for
 * longer than it is read, and no process is touched.
 */
#ifndef DINST_DAEMON_PROCESS_H
#define DINST_DAEMON_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "inject/error.h"

enum {
	PROCESS_NAME_MAX = 64, /* with the zero */
	PROCESS_FOUND_MAX = 64,
};

/* Name of `pid` (comm) into name[PROCESS_NAME_MAX]. Returns 0, DINST_NO_PROCESS, or DINST_FAILED. */
int process_name(pid_t pid, char *name, struct dinst_error *e);

/* Start time in clock ticks since boot (proc_pid_stat(5), field 22); 0 if there is no such process. */
uint64_t process_start(pid_t pid);

/*
 * The thread whose entry in /proc shows the process's program, memory and files: the leader, which
 * has `pid`, unless it has exited and others live.
 */
pid_t process_thread(pid_t pid);

/* True if a thread of it lives; its main thread may have exited. */
bool process_alive(pid_t pid);

/*
 * True only if it is certain that the process which began at `start` (process_start(); 0: any) has
 * ended: one that cannot be looked at for want of a descriptor or memory has not.
 */
bool process_ended(pid_t pid, uint64_t start);

/*
 * Pids of the processes whose comm, program file or argv[0] has the base name
 * `name`; zombies and kernel threads are left out. Returns how many there are,
 * of which at most `max` are in pids, ascending.
 */
size_t process_find(const char *name, pid_t *pids, size_t max);

/*
 * The pid that `target` stands for: a pid, or a name that matches exactly one
 * process (not one of `except`). DINST_NO_PROCESS, or DINST_USAGE with the
 * pids where several match.
 */
int process_resolve(const char *target, const pid_t *except, size_t except_count, pid_t *pid,
		    struct dinst_error *e);

/* Makes `name` fit to be a session name: printable ASCII without blanks, not a number. */
void session_name_clean(char *name);
/* True if session_name_clean() would not change it and it is 1..63 bytes long. */
int session_name_ok(const char *name);

#endif
