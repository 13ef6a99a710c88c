/* SPDX-License-Identifier: MIT */
/*
 * error.h - how a failure is told.
 *
 * A function that can fail takes a struct dinst_error, returns 0 or a negative
 * enum dinst_code, and fills the error where it sees the failure. The first
 * message wins: callers pass it on and do not overwrite it. The text says what
 * was being done, to what, and what the user can do about it.
 */
#ifndef DINST_INJECT_ERROR_H
#define DINST_INJECT_ERROR_H

#include <stddef.h>

/* The machine-readable half; error_code_name() gives the word used in JSON. */
enum dinst_code {
	DINST_OK = 0,
	DINST_FAILED = -1,	  /* failed */
	DINST_NO_PROCESS = -2,	  /* no-such-process */
	DINST_GONE = -3,	  /* gone: the target ended; an ordinary answer */
	DINST_NOT_PERMITTED = -4, /* not-permitted */
	DINST_TRACED = -5,	  /* already-traced */
	DINST_UNSUPPORTED = -6,	  /* unsupported: 32-bit, strict seccomp, ... */
	DINST_NO_FUNCTION = -7,	  /* no-such-function */
	DINST_NO_MODULE = -8,	  /* no-such-module */
	DINST_NO_METRIC = -9,	  /* no-such-metric */
	DINST_NO_ID = -10,	  /* no-such-id */
	DINST_NO_SESSION = -11,	  /* no-such-session */
	DINST_USAGE = -12,	  /* usage */
	DINST_BUSY = -13,	  /* busy: a thread did not stop, or a name is taken */
	DINST_NO_MEMORY = -14,	  /* no-memory: ours, the heap's or the address space's */
	DINST_REFUSED = -15,	  /* refused: it would not be safe */
	DINST_BAD_FILE = -16,	  /* bad-file: ELF, journal, script */
	DINST_PROTOCOL = -17,	  /* protocol */
	DINST_DAEMON = -18,	  /* daemon: not reachable, or died */
};

enum { DINST_ERROR_TEXT = 2048 };

struct dinst_error {
	int code; /* enum dinst_code; 0 while nothing failed */
	/*
	 * Lower case, no full stop, one line; but what is wrong with a text of metrics has several
	 * messages, each of them with the line that it is about.
	 */
	char text[DINST_ERROR_TEXT];
};

/*
 * Fills *e unless it is filled already (or NULL) and returns `code`, so that
 * `return dinst_fail(e, DINST_BUSY, "...")` reads as what it is.
 */
int dinst_fail(struct dinst_error *e, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* As dinst_fail, with ": " and the text of `errnum` appended. */
int dinst_fail_errno(struct dinst_error *e, int code, int errnum, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* As dinst_fail, with a text of several lines, or one that is passed on: its newlines stay. */
int dinst_fail_text(struct dinst_error *e, int code, const char *text);

void dinst_error_clear(struct dinst_error *e);

/*
 * What a static analyzer cannot see from here: these return what they are given, never 0.
 */
#if defined(__clang_analyzer__) && !defined(DINST_ERROR_HERE)
#define dinst_fail(e, code, ...) ((void)(dinst_fail)(e, code, __VA_ARGS__), (code))
#define dinst_fail_errno(e, code, number, ...) \
	((void)(dinst_fail_errno)(e, code, number, __VA_ARGS__), (code))
#define dinst_fail_text(e, code, text) ((void)(dinst_fail_text)(e, code, text), (code))
#endif

/* "no-such-process" for DINST_NO_PROCESS, and so on; never NULL. */
const char *dinst_code_name(int code);

/* The inverse, DINST_FAILED for a word that is not known. */
int dinst_code_from_name(const char *name);

#endif
