/* SPDX-License-Identifier: MIT */
/*
 * stalls.c - tells when the loop stood still.
 *
 * All clients are served by one loop, so whatever takes long in it delays all of
 * them. Owns the measure of each turn of the loop, from what poll found until it
 * is asked again, and a line in the log for a turn that took over a second: how long,
 * how much of it was our own work (the rest is waiting for the kernel or for a
 * processor), and which step took most. Never changes what is done.
 */
#include "daemon/server/server.h"

#include <inttypes.h>
#include <time.h>

enum { LONG_MS = 1000, MS = 1000000 };

static uint64_t own_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void stalls_step(struct server *s, const char *what)
{
	struct stalls *st = &s->stalls;
	const uint64_t now = uv_hrtime();

	if (st->step && now - st->step_ns > st->longest_ns) {
		st->longest_ns = now - st->step_ns;
		st->longest = st->step;
	}
	st->step = what;
	st->step_ns = now;
	st->steps++;
}

static void begin(uv_check_t *check)
{
	struct stalls *st = &((struct server *)check->data)->stalls;

	st->began_ns = uv_hrtime();
	st->own_ns = own_ns();
	st->longest_ns = 0;
	st->longest = st->step = NULL;
	st->steps = 0;
}

static void end(uv_prepare_t *prepare)
{
	struct server *s = prepare->data;
	struct stalls *st = &s->stalls;
	const uint64_t ms = st->began_ns ? (uv_hrtime() - st->began_ns) / MS : 0;

	if (ms < LONG_MS)
		return;
	stalls_step(s, NULL);
	server_log("stood still for %" PRIu64 " ms, %" PRIu64
		   " of them at work, in %u steps; longest: %s, %" PRIu64 " ms",
		   ms, (own_ns() - st->own_ns) / MS, st->steps - 1,
		   st->longest ? st->longest : "none", st->longest_ns / MS);
}

void stalls_watch(struct server *s)
{
	struct stalls *st = &s->stalls;

	uv_prepare_init(&s->loop, &st->prepare);
	uv_check_init(&s->loop, &st->check);
	st->prepare.data = st->check.data = s;
	uv_prepare_start(&st->prepare, end);
	uv_check_start(&st->check, begin);
	/* they keep nobody awake by themselves */
	uv_unref((uv_handle_t *)&st->prepare);
	uv_unref((uv_handle_t *)&st->check);
}

void stalls_end(struct server *s)
{
	uv_close((uv_handle_t *)&s->stalls.prepare, NULL);
	uv_close((uv_handle_t *)&s->stalls.check, NULL);
}
