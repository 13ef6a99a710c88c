/* SPDX-License-Identifier: MIT */
/*
 * harness_thread.h - putting one thread of a target where a test wants it.
 *
 * Uses ptrace itself: what it checks must not be moved by what is checked.
 *
 *   1. thread_seize(tid): stopped and traced by this thread of the test;
 *   2. thread_get(), thread_set(), thread_poke();
 *   3. thread_let_go(tid), or thread_freeze(pid, tid): the whole process stays
 *      stopped by SIGSTOP, this thread before the very next instruction;
 *   4. thread_thaw(pid).
 *
 * Every function fails the test itself when something goes wrong.
 */
#ifndef DINST_TESTS_LIVE_HARNESS_THREAD_H
#define DINST_TESTS_LIVE_HARNESS_THREAD_H

#include <sys/user.h>

#include "tests/live/harness.h"

void thread_seize(pid_t tid);
void thread_get(pid_t tid, struct user_regs_struct *regs);
void thread_set(pid_t tid, const struct user_regs_struct *regs);
void thread_let_go(pid_t tid);
/* Lets it run and keeps it traced. */
void thread_continue(pid_t tid);

/* Seizes the thread again and again until its pc is in [lo, hi) while it runs user code. */
void thread_seize_at(pid_t tid, uint64_t lo, uint64_t hi, struct user_regs_struct *regs);

void thread_poke(pid_t pid, uint64_t address, const void *bytes, size_t size);
void thread_peek(pid_t pid, uint64_t address, void *bytes, size_t size);

/* Sends SIGSTOP to a seized thread and lets it go; returns when the process is stopped. */
void thread_freeze(pid_t pid, pid_t tid);
/* The same for several seized threads. */
void thread_freeze_all(pid_t pid, const pid_t *tids, size_t count);
void thread_thaw(pid_t pid);

/* The program counter that /proc shows for a thread that is stopped or blocked; 0 if it runs. */
uint64_t thread_pc(pid_t pid, pid_t tid);
/* The number of the system call that it is blocked in; -1 if none. */
long thread_syscall(pid_t pid, pid_t tid);
/* Waits until the thread is blocked in this system call; fails after 5 seconds. */
void thread_wait_syscall(pid_t pid, pid_t tid, long number);

/* Waits until the main thread is in read(2) of its standard input. */
void thread_wait_input(pid_t pid);

/* Where a symbol of a program of ours (harness_path()) stands in its file; fails if it has none of that name. */
uint64_t harness_symbol(const char *program, const char *name);

/* Reads numbers from a line; returns how many. */
size_t harness_numbers(const char *line, pid_t *numbers, size_t max);

#endif
