/* SPDX-License-Identifier: MIT */
/*
 * pool.c - libuv's threads, made before anything depends on us.
 *
 * Owns when they are made. libuv makes them at the first work that needs one, and aborts
 * if it cannot (a limit of processes, pids.max): all mutators would go with us,
 * and what they inserted would stay in the targets.
 */
#include "daemon/server/server.h"

#include <stdio.h>
#include <stdlib.h>

enum { POOL_THREADS = 2 }; /* a process by its name, and a host by its name (otlp.c) */

static void wait_and_end(void *gate)
{
	uv_mutex_lock(gate);
	uv_mutex_unlock(gate);
}

/* As many threads at once as libuv is going to make, so that who starts us is told why it fails. */
static int try_threads(void)
{
	uv_thread_t threads[POOL_THREADS];
	uv_mutex_t gate;
	size_t made = 0;
	int err = uv_mutex_init(&gate);

	if (err)
		return err;
	uv_mutex_lock(&gate);
	while (!err && made < POOL_THREADS) {
		err = uv_thread_create(&threads[made], wait_and_end, &gate);
		made += err == 0;
	}
	uv_mutex_unlock(&gate);
	while (made)
		uv_thread_join(&threads[--made]);
	uv_mutex_destroy(&gate);
	return err;
}

static void nothing(uv_work_t *work)
{
	(void)work;
}

static void nothing_done(uv_work_t *work, int status)
{
	(void)work;
	(void)status;
}

int pool_start(struct dinst_error *e)
{
	uv_work_t work;
	uv_loop_t loop;
	char size[16];
	int err = try_threads();

	snprintf(size, sizeof(size), "%d", POOL_THREADS);
	if (!err && setenv("UV_THREADPOOL_SIZE", size, 0) != 0)
		err = UV_ENOMEM;
	if (!err)
		err = uv_loop_init(&loop);
	if (err)
		return dinst_fail(e, DINST_FAILED, "cannot make threads: %s", uv_strerror(err));
	err = uv_queue_work(&loop, &work, nothing, nothing_done);
	uv_run(&loop, UV_RUN_DEFAULT);
	uv_loop_close(&loop);
	return err ? dinst_fail(e, DINST_FAILED, "cannot use threads: %s", uv_strerror(err)) : 0;
}
