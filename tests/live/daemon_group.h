/* SPDX-License-Identifier: MIT */
/*
 * daemon_group.h - the fixture of a group of tests with a daemon and its real mutator: setup(), teardown(), and
 * `o`, for what a dinst that is run says.
 */
#ifndef DINST_TESTS_DAEMON_GROUP_H
#define DINST_TESTS_DAEMON_GROUP_H

#include "tests/live/daemon_calls.h"

static struct output *o;

static int setup(void **state)
{
	int err = fixture_setup(state);

	unsetenv("DINST_MUTATOR");
	o = malloc(sizeof(*o));
	return err;
}

static int teardown(void **state)
{
	free(o);
	return fixture_teardown(state);
}

#endif
