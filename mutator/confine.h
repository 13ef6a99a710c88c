/* SPDX-License-Identifier: MIT */
/*
 * confine.h - a process that can think and answer, and nothing else.
 *
 * For a child that reads what others have made with code that is not ours. What it may
 * still do: read and write what it has open, open files to read them, get memory that
 * is not executable, tell the time, end. Anything else ends it (SIGSYS): no program is
 * started, no socket opened, no process touched, nothing written to a file.
 *
 * The filter is the kernel's (seccomp_filter.rst) and stays for ever. It cannot be put on
 * a mutator itself: the kernel lets nobody who is filtered suspend or read the filter of
 * a process that he traces, nor, under Landlock, trace one outside of his own rules.
 */
#ifndef DINST_MUTATOR_CONFINE_H
#define DINST_MUTATOR_CONFINE_H

/*
 * Confines the calling thread, which must be the only one. 0, or the errno of a kernel
 * that cannot: then nothing has changed.
 */
int confine_self(void);

#endif
