/* SPDX-License-Identifier: MIT */
/*
 * libunwritten.c - preloaded to a daemon: there is no memory to write to a client that a mutator was
 * started again.
 */
#include <dlfcn.h>
#include <string.h>
#include <uv.h>

typedef int writer(uv_write_t *, uv_stream_t *, const uv_buf_t *, unsigned, uv_write_cb);

int uv_write(uv_write_t *request, uv_stream_t *stream, const uv_buf_t *bufs, unsigned count,
	     uv_write_cb done)
{
	writer *real = (writer *)dlsym(RTLD_NEXT, "uv_write");

	if (memmem(bufs[0].base, bufs[0].len, "\"kind\":\"restarted\"", 18))
		return UV_ENOMEM;
	return real(request, stream, bufs, count, done);
}
