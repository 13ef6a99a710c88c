/* SPDX-License-Identifier: MIT */
/*
 * snapshot_waits.h - those who wait for values of all sessions: a part of struct server.
 */
#ifndef DINST_DAEMON_SNAPSHOT_WAITS_H
#define DINST_DAEMON_SNAPSHOT_WAITS_H

#include <stdbool.h>
#include <uv.h>

struct snapshot_waits {
	struct snapshot_waiter *first;
	uv_timer_t timer;
	bool timer_made;
	unsigned out; /* answers of all sessions that are out */
};

#endif
