/* SPDX-License-Identifier: MIT */
/*
 * confine.h - a process that can think and answer, and nothing else.
 *
 * For a child that reads what others have made with code that is not ours. What it may
 * still do: read and write what it has open, get memory that is not executable, tell the
 * time, end. To open a file is refused, and anything else ends it (SIGSYS): no program is
 * started, no socket opened, no process touched, no file opened to write to it.
 *
 * The filter is the kernel's (seccomp_filter.rst) and stays for ever. It cannot be put on
 * a mutator itself: the kernel lets nobody who is filtered suspend or read the filter of
 * a process that he traces, nor, under Landlock, trace one outside of his own rules.
 */
#ifndef DINST_MUTATOR_CONFINE_H
#define DINST_MUTATOR_CONFINE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The one descriptor that a confined child has. */
enum { CONFINED_FD = 3 };

/*
 * Confines the calling thread, which must be the only one. 0, or the errno of a kernel
 * that cannot: then nothing has changed.
 */
int confine_self(void);

/* Memory that a child may ask for: debug information that is compressed takes gigabytes. */
#define CONFINED_BYTES (4ULL << 30)

/*
 * In a child that was just forked by `parent`: gives up every descriptor but `fd`, which
 * becomes CONFINED_FD, dies with its parent, gets no more than CONFINED_BYTES of memory, and is
 * confined. Returns as confine_self().
 */
int confine_child(int fd, pid_t parent);

/* How long a child may take for an answer, in all: a walk through all of a large file takes seconds. */
#define CONFINE_PATIENCE_NS (60 * 1000000000ULL)

/* What confine_run() has a child do. */
struct confined_work {
	const char *what; /* is done by it, for the log: "names are read" */
	void (*work)(const void *arg, int fd);
	const void *arg;
	size_t most;	      /* bytes that it may write */
	uint64_t patience_ns; /* for all of them */
};

/* How it went: only a child that came to its end, or wrote too much, says something of what it was given. */
enum confined_end { CONFINED_NOT_FORKED, CONFINED_ENDED, CONFINED_CUT };

/*
 * Lets work(arg, fd) write to `fd` in a confined child, and returns what it wrote, malloc'ed:
 * at least one byte. NULL if it died, wrote more, had not ended in time, or if there can be no
 * child; *forked is an enum confined_end: CONFINED_CUT where a signal ended it, or it was late. A kernel
 * without filters has it done all the same, and the log says so once.
 */
uint8_t *confine_run(const struct confined_work *w, size_t *size, int *forked);

/* All of it, in a confined child: false if the other side has gone. */
int confine_write(int fd, const void *bytes, size_t size);

/*
 * All of it, to or from a child: false if the other side has gone, or at `deadline`, in ns of
 * clock_ns(), however little by little it goes. confine_send() is for sockets. 0: there is none.
 * What is there already confine_take() takes also after the deadline.
 */
int confine_send(int fd, const void *bytes, size_t size, uint64_t deadline);
int confine_take(int fd, void *bytes, size_t size, uint64_t deadline);

#endif
