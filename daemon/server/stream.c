/* SPDX-License-Identifier: MIT */
/*
 * stream.c - a connection of lines on the libuv loop.
 *
 * Owns reading, pausing and writing. Never interprets a line, never blocks.
 */
#include "daemon/server/stream.h"

#include <stdlib.h>
#include <string.h>

struct stream_output {
	uv_write_t request;
	size_t length;
	char *text;
};

int stream_init(struct stream *st, uv_loop_t *loop, size_t limit)
{
	st->unwritten = 0;
	st->paused = st->ended = st->broken = st->closing = false;
	lines_init(&st->lines, limit);
	st->pipe.data = st;
	return uv_pipe_init(loop, &st->pipe, 0);
}

static void stream_dispatch(struct stream *st)
{
	size_t length = 0;
	char *line = NULL;

	while (!st->closing && !st->paused) {
		enum lines_result got = lines_next(&st->lines, &line, &length);

		if (got == LINES_MORE)
			break;
		if (got == LINES_LINE)
			st->on_line(st, line, length);
		else
			st->on_too_long(st);
	}
}

static void stream_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
	struct stream *st = handle->data;
	char *to = NULL;

	(void)suggested;
	buf->len = lines_room(&st->lines, &to);
	buf->base = to;
}

static void stream_read(uv_stream_t *pipe, ssize_t count, const uv_buf_t *buf)
{
	struct stream *st = pipe->data;

	(void)buf;
	if (count > 0) {
		lines_added(&st->lines, (size_t)count);
		stream_dispatch(st);
	} else if (count < 0 && !st->ended) {
		st->ended = true;
		uv_read_stop(pipe);
		if (!st->closing)
			st->on_end(st, count == UV_EOF ? 0 : (int)count);
	}
}

int stream_start(struct stream *st)
{
	return uv_read_start((uv_stream_t *)&st->pipe, stream_alloc, stream_read);
}

void stream_pause(struct stream *st)
{
	if (st->paused || st->closing)
		return;
	st->paused = true;
	uv_read_stop((uv_stream_t *)&st->pipe);
}

void stream_resume(struct stream *st)
{
	if (!st->paused || st->closing)
		return;
	st->paused = false;
	stream_dispatch(st);
	if (!st->paused && !st->closing && !st->ended)
		uv_read_start((uv_stream_t *)&st->pipe, stream_alloc, stream_read);
}

static void stream_written(uv_write_t *request, int status)
{
	struct stream_output *out = request->data;
	struct stream *st = request->handle->data;

	st->unwritten -= out->length;
	free(out->text);
	free(out);
	if (st->closing)
		return;
	if (status < 0) {
		/* also after the end of input: the other side takes nothing any more */
		if (!st->broken) {
			st->broken = st->ended = true;
			uv_read_stop((uv_stream_t *)&st->pipe);
			st->on_end(st, status);
		}
	} else if (status == 0 && st->unwritten == 0 && st->on_drained) {
		st->on_drained(st);
	}
}

int stream_write(struct stream *st, char *text)
{
	struct stream_output *out = NULL;
	uv_buf_t buf;
	int err;

	if (!text)
		return UV_ENOMEM;
	if (st->closing) {
		free(text);
		return UV_EPIPE;
	}
	out = malloc(sizeof(*out));
	if (!out) {
		free(text);
		return UV_ENOMEM;
	}
	out->request.data = out;
	out->text = text;
	out->length = strlen(text);
	buf = uv_buf_init(text, (unsigned)out->length);
	err = uv_write(&out->request, (uv_stream_t *)&st->pipe, &buf, 1, stream_written);
	if (err) {
		free(text);
		free(out);
		return err;
	}
	st->unwritten += out->length;
	return 0;
}

static void stream_was_closed(uv_handle_t *handle)
{
	struct stream *st = handle->data;

	lines_release(&st->lines);
	st->on_closed(st);
}

void stream_close(struct stream *st)
{
	if (st->closing)
		return;
	st->closing = true;
	uv_close((uv_handle_t *)&st->pipe, stream_was_closed);
}
