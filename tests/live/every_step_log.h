/* SPDX-License-Identifier: MIT */
/*
 * every_step_log.h - the list of all that was done in a round, and how the programs that play such
 * rounds begin: it is told when a round fails, also by an assertion of the mutator's.
 */
#ifndef DINST_TESTS_LIVE_EVERY_STEP_LOG_H
#define DINST_TESTS_LIVE_EVERY_STEP_LOG_H

#include <stdio.h>
#include <sys/personality.h>

#include "tests/live/every_step.h"
#include "tests/live/harness.h"

static char *step_log_text; /* NULL: no round is played */
static size_t step_log_size;

/* Begins with what plays that round alone. */
static inline FILE *step_log_open(unsigned long seed)
{
	FILE *log = open_memstream(&step_log_text, &step_log_size);

	assert_non_null(log);
	fprintf(log, "STEPS_SEED=%lu STEPS_ROUNDS=1\n", seed);
	return log;
}

static inline void step_log_close(FILE *log)
{
	fclose(log);
	free(step_log_text);
	step_log_text = NULL;
}

/* Where the round has not come to its end. */
static inline void step_log_tell(FILE *log)
{
	if (!step_log_text)
		return;
	fflush(log);
	fputs(step_log_text, stderr);
}

/* An assertion of the mutator's. */
static inline void step_on_abort(int number)
{
	(void)number;
	if (step_log_text && write(STDOUT_FILENO, step_log_text, step_log_size) < 0)
		_exit(1);
}

static inline int step_setup(void **state)
{
	signal(SIGABRT, step_on_abort);
	/* That a seed leads to the same always. */
	personality(ADDR_NO_RANDOMIZE);
	return harness_setup(state);
}

#endif
