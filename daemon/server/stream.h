/* SPDX-License-Identifier: MIT */
/*
 * stream.h - a connection of lines on the libuv loop, to a client or a mutator.
 *
 * Calling sequence: fill `owner` and the callbacks, stream_init(), give
 * `pipe` a descriptor, stream_start(). on_end() comes when the other side ends
 * its output (status 0) and when the connection is broken (a libuv error);
 * on_closed() comes once, after stream_close(), and only then may the stream
 * be freed.
 */
#ifndef DINST_DAEMON_STREAM_H
#define DINST_DAEMON_STREAM_H

#include <stdbool.h>
#include <uv.h>

#include "daemon/common/lines.h"

struct stream {
	uv_pipe_t pipe;
	struct lines lines;
	void *owner;
	void (*on_line)(struct stream *st, char *line, size_t length);
	void (*on_too_long)(struct stream *st);
	void (*on_end)(struct stream *st, int status); /* status: 0 or a libuv error */
	void (*on_drained)(struct stream *st);	       /* everything was written; may be NULL */
	void (*on_closed)(struct stream *st);
	size_t unwritten; /* bytes given to stream_write() that are not written yet */
	bool paused;
	bool ended;  /* nothing more to read */
	bool broken; /* a write failed */
	bool closing;
};

int stream_init(struct stream *st, uv_loop_t *loop, size_t limit);
int stream_start(struct stream *st);

/* No further on_line() until stream_resume(), which may call it at once. */
void stream_pause(struct stream *st);
void stream_resume(struct stream *st);

/*
 * Writes a malloc'ed text, which it frees in any case. NULL, a closing stream
 * and a failing one are told by a negative libuv error.
 */
int stream_write(struct stream *st, char *text);

/* Closes at once; what is not written yet is lost. May be called repeatedly. */
void stream_close(struct stream *st);

#endif
