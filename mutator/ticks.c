/* SPDX-License-Identifier: MIT */
/*
 * ticks.c - how long a tick of the processor's clock is, in ns of
 * CLOCK_MONOTONIC: that is the clock by which programs measure themselves.
 *
 * Measured once and then kept. The kernel may steer CLOCK_MONOTONIC by up to
 * 500 ppm (adjtimex(2)); following it would let totals that were shown already
 * change afterwards. Never called while a target is stopped: it waits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mutator/variable.h"

enum {
	SPAN_NS = 50 * 1000 * 1000,
	TRIES = 64,		       /* readings of both clocks, of which the fastest counts */
	APART_NS = 1000 * 1000 * 1000, /* the epoch is kept as long as it is right by that */
};

static struct calibration {
	bool began, done;
	struct dinst_error refused; /* why it cannot be: that does not change either */
	uint64_t ticks, ns;	    /* at the beginning */
	uint64_t multiplier;
	unsigned shift;
	int64_t epoch;
} now;

static uint64_t monotonic_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Both clocks at one moment: the pair between whose two readings of ticks the least time was. */
static void read_both(uint64_t *ticks, uint64_t *ns)
{
	uint64_t least = UINT64_MAX;

	for (unsigned i = 0; i < TRIES; i++) {
		const uint64_t before = arch_clock_ticks();
		const uint64_t at = monotonic_ns();
		const uint64_t took = arch_clock_ticks() - before;

		if (took >= least)
			continue;
		least = took;
		*ticks = before + took / 2;
		*ns = at;
	}
}

/*
 * The kernel watches the clock and takes it off its list where it goes wrong
 * or is not the same on all CPUs. False only if it says so.
 */
static bool kernel_trusts_it(void)
{
	static const char *const ours[] = {"tsc", "arch_sys_counter"};
	char text[256] = "";
	FILE *f = fopen("/sys/devices/system/clocksource/clocksource0/available_clocksource", "re");
	bool told;

	if (!f)
		return true;
	told = fgets(text, sizeof(text), f) != NULL;
	fclose(f);
	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
		const char *at = strstr(text, ours[i]);

		if (at && (at == text || at[-1] == ' ') && strchr(" \n", at[strlen(ours[i])]))
			return true;
	}
	return !told;
}

void ticks_begin(void)
{
	if (now.began)
		return;
	read_both(&now.ticks, &now.ns);
	now.began = true;
}

static void wait_for_span(void)
{
	const uint64_t end = now.ns + SPAN_NS;
	const struct timespec until = {(time_t)(end / 1000000000u), (long)(end % 1000000000u)};

	while (monotonic_ns() < end)
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static int look_at_clock(struct dinst_error *e)
{
	/* For tests: what happens on other machines. */
	if (getenv("DINST_UNSTEADY"))
		return dinst_fail(e, DINST_UNSUPPORTED,
				  "this processor's clock is not to be used (DINST_UNSTEADY)");
	if (!arch_clock_is_steady())
		return dinst_fail(e, DINST_UNSUPPORTED,
				  "this processor's clock does not run at one rate on all CPUs");
	if (!kernel_trusts_it())
		return dinst_fail(e, DINST_UNSUPPORTED,
				  "the kernel does not trust this processor's clock");
	return 0;
}

bool ticks_may_do(void)
{
	return !look_at_clock(NULL);
}

static int calibrate(struct dinst_error *e)
{
	uint64_t ticks, ns, numerator, denominator;
	int status = look_at_clock(e);

	if (status)
		return status;
	ticks_begin();
	wait_for_span();
	read_both(&ticks, &ns);
	if (ticks <= now.ticks || ns <= now.ns)
		return dinst_fail(e, DINST_UNSUPPORTED, "this processor's clock stands still");
	numerator = ns - now.ns;
	denominator = ticks - now.ticks;
	now.shift = 0;
	while (numerator >= denominator << now.shift)
		now.shift++;
	now.multiplier =
		(uint64_t)(((unsigned __int128)numerator << 64) / (denominator << now.shift));
	now.epoch = (int64_t)(ns - ticks_to_ns(ticks));
	return 0;
}

int ticks_calibrate(struct dinst_error *e)
{
	if (!now.done)
		calibrate(&now.refused);
	now.done = true;
	return now.refused.code ? dinst_fail(e, now.refused.code, "%s", now.refused.text) : 0;
}

uint64_t ticks_to_ns(uint64_t ticks)
{
	return (uint64_t)((unsigned __int128)ticks * now.multiplier >> 64) << now.shift;
}

void ticks_factor(uint64_t *multiplier, unsigned *shift)
{
	*multiplier = now.multiplier;
	*shift = now.shift;
}

int64_t ticks_epoch_now(void)
{
	uint64_t ticks = 0, ns = 0;

	read_both(&ticks, &ns);
	return (int64_t)(ns - ticks_to_ns(ticks));
}

int64_t ticks_epoch(void)
{
	const int64_t epoch = ticks_epoch_now();

	if (epoch - now.epoch > APART_NS || now.epoch - epoch > APART_NS)
		now.epoch = epoch;
	return now.epoch;
}

enum arch_clock ticks_wall_clock(void)
{
	struct dinst_error ignored = {0};

	return ticks_calibrate(&ignored) ? ARCH_CLOCK_MONOTONIC : ARCH_CLOCK_TICKS;
}
