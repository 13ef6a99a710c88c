/* SPDX-License-Identifier: MIT */
/*
 * hooks.c - what the library's ways out of functions need while per-thread
 * state is in use: they note the time, so that timers of what they leave stop
 * then (threads.h). A hidden instance, with as many users as need it.
 */
#include "mutator/request.h"

int request_hook(struct request *r, struct dinst_error *e)
{
	(void)r;
	(void)e;
	return 0;
}
