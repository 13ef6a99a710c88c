/* SPDX-License-Identifier: MIT */
/*
 * top_times.c - times of the functions that are shown: how long their calls take, and how much
 * of that is their own.
 *
 * Owns that it stays within its half of the limit: what half of the limit gives every second is
 * saved up, and spent on as many functions at a time as do not slow the target noticeably. Latencies and own
 * times are then taken one after the other, so that the clocks of one are not in the other.
 */
#include "daemon/client/top.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/client/values.h"

enum {
	GROUP_PERCENT = 10, /* of a CPU: what the functions that are timed at once may cost */
	CREDIT_SECONDS = 5, /* that may be saved up */
	SLICE_NS = 30 * 1000 * 1000,	/* longest time for a few of many */
	TOO_HOT = 3000000,		/* calls per second: even for a moment it would be felt */
	GUESS_NS = 60,			/* for a call of a function, before it was measured */
	WAITING_NS = 200 * 1000,	/* 99th percentile of calls that wait now and then */
	THREAD_NS = 1000 * 1000 * 1000, /* of one thread, in a second */
	LONG_NS = 20 * 1000, /* mean from which the processor's clock, a system call, is worth it */
};

static double budget(const struct top *t)
{
	return t->limit * t->scale * 1e7 / 2;
}

static double one_timing_ns(const struct function *f, enum timing what)
{
	const double rate = f->rate > 0 ? f->rate : 0;

	return rate * (f->timing_ns[what] >= 0 ? f->timing_ns[what] : GUESS_NS);
}

/* ------------------------------------------------------------------ reading */

static double member(json_t *row, const char *key)
{
	return json_number_value(json_object_get(row, key));
}

/* Says whether another one of that name had its turn in this reading: both are added up. */
static bool is_further(const struct top *t, struct function *f, enum timing what)
{
	const bool further = f->timed_ns[what] == t->reading_ns;

	f->timed_ns[what] = t->reading_ns;
	if (!further)
		f->paid_ns[what] = 0;
	return further;
}

/* What the timing of a call costs, as it was since the last reading. */
static void take_cost(struct probe *p, json_t *row, enum timing what, double calls)
{
	struct function *f = p->function;
	const double hits = member(row, "hits") - p->hits;

	f->paid_ns[what] += hits > 0 ? hits * p->hit_ns : 0;
	if (calls > 0 && f->paid_ns[what] > 0)
		f->timing_ns[what] = f->paid_ns[what] / calls;
}

/* Quantiles of the calls since the last reading; of several of one name by how often they are called. */
static void take_quantiles(struct probe *p, json_t *row, double share)
{
	struct function *f = p->function;
	json_t *since = p->buckets ? buckets_since(json_object_get(row, "buckets"), p->buckets)
				   : json_incref(json_object_get(row, "buckets"));
	const double p50 = buckets_quantile(since, member(row, "min"), member(row, "max"), 0.5);
	const double p99 = buckets_quantile(since, member(row, "min"), member(row, "max"), 0.99);

	f->p50 = share < 1 ? f->p50 + share * (p50 - f->p50) : p50;
	f->p99 = share < 1 && f->p99 > p99 ? f->p99 : p99;
	json_decref(since);
}

static void take_latency(struct top *t, struct probe *p, json_t *row, double seconds)
{
	struct function *f = p->function;
	const double calls = member(row, "value") - p->value;
	const double sum = member(row, "sum") - p->sum;
	const bool further = is_further(t, f, TIMING_LATENCY);

	f->calls = further ? f->calls + calls : calls;
	f->sum = further ? f->sum + sum : sum;
	take_cost(p, row, TIMING_LATENCY, f->calls);
	if (f->calls <= 0)
		/* none ended meanwhile: what is known stays, if it is called at all */
		f->wall = f->rate > 0 && f->wall >= 0 ? f->wall : 0;
	if (calls <= 0)
		return;
	take_quantiles(p, row, calls / f->calls);
	f->mean = f->sum / f->calls;
	/* while it is timed it may be called less often than it would be: the mean is what counts */
	f->wall = f->mean * (f->rate > 0 ? f->rate : f->calls / seconds);
	/* who waits has waited for our own stops, too: no more than there was time for */
	if (f->wall > THREAD_NS && f->wall > f->sum / seconds)
		f->wall = f->sum / seconds;
}

static void take_own(struct top *t, struct probe *p, json_t *row, double seconds)
{
	struct function *f = p->function;
	const double own = (member(row, "value") - p->value) / seconds;
	const bool further = is_further(t, f, TIMING_OWN);
	const bool at_most = json_object_get(row, "own_calls") != NULL;

	f->cpu = further ? f->cpu + own : own;
	f->at_most = at_most || (further && f->at_most);
	take_cost(p, row, TIMING_OWN, f->rate * seconds);
}

static int read_times(struct top *t, struct view *v, bool first, struct dinst_error *e)
{
	int err = probe_read(t, &v->latencies, first ? NULL : take_latency, e);

	if (!err)
		err = probe_read(t, &v->walls, first ? NULL : take_own, e);
	return err ? err : probe_read(t, &v->cpus, first ? NULL : take_own, e);
}

/* ------------------------------------------------------------- in and out */

static bool wants_latency(const struct function *f)
{
	return f->timed[TIMING_LATENCY];
}

/*
 * The processor time of calls that are long, or wait now and then; of the others, for which its
 * clock would take longer than they do, the time on the wall's.
 */
static bool is_long(const struct function *f)
{
	return f->mean >= LONG_NS || f->p99 >= WAITING_NS;
}

static bool wants_cpu(const struct function *f)
{
	return f->timed[TIMING_OWN] && is_long(f);
}

static bool wants_wall(const struct function *f)
{
	return f->timed[TIMING_OWN] && !is_long(f);
}

static bool no_latency(const struct probe *p)
{
	return !wants_latency(p->function);
}

static bool no_cpu(const struct probe *p)
{
	return !wants_cpu(p->function);
}

static bool no_wall(const struct probe *p)
{
	return !wants_wall(p->function);
}

static int insert_missing(struct top *t, struct view *v, struct probe_set *set, const char *metric,
			  bool (*wants)(const struct function *f), bool *any, struct dinst_error *e)
{
	struct function **some = calloc(v->count + 1, sizeof(*some));
	size_t count = 0;
	int err;

	if (!some)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for times");
	for (size_t n = 0; n < v->count; n++) {
		struct function *f = &v->functions[n];

		if (wants(f) && !f->refused && !probe_has(set, f))
			some[count++] = f;
	}
	err = probe_insert(t, set, metric, some, count, true, e);
	free(some);
	*any = *any || count;
	return err;
}

/* Makes the instances those of the functions that are `timed`, and no others. */
static int arrange(struct top *t, struct view *v, struct dinst_error *e)
{
	bool any = false;
	int err = probe_remove(t, &v->latencies, no_latency, e);

	if (!err)
		err = probe_remove(t, &v->walls, no_wall, e);
	if (!err)
		err = probe_remove(t, &v->cpus, no_cpu, e);
	if (!err)
		err = insert_missing(t, v, &v->latencies, v->latency, wants_latency, &any, e);
	if (!err && v->own[0])
		err = insert_missing(t, v, &v->walls, v->own, wants_wall, &any, e);
	if (!err && v->own[0])
		err = insert_missing(t, v, &v->cpus, "cpu", wants_cpu, &any, e);
	/* all begin at one time */
	return err || !any ? err : read_times(t, v, true, e);
}

/* Nothing is timed. */
static void unmark(struct view *v)
{
	for (size_t n = 0; n < v->count; n++)
		v->functions[n].timed[TIMING_LATENCY] = v->functions[n].timed[TIMING_OWN] = false;
}

/* ---------------------------------------------------------------- choosing */

struct wanted {
	struct function *function;
	enum timing what;
};

static int by_age(const void *a, const void *b)
{
	const struct wanted *x = a, *y = b;
	const uint64_t p = x->function->timed_ns[x->what], q = y->function->timed_ns[y->what];

	if (p != q)
		return p < q ? -1 : 1;
	/* the cheap ones first: they are the long ones, and many go at once */
	return (one_timing_ns(x->function, x->what) > one_timing_ns(y->function, y->what)) -
	       (one_timing_ns(x->function, x->what) < one_timing_ns(y->function, y->what));
}

static bool is_wanted(const struct top *t, const struct view *v, size_t line, enum timing what)
{
	const struct function *f = v->lines[line].function;

	if (!f || f->refused || f->rate > TOO_HOT || f->late_ns > top_now())
		return false;
	/* which clock its own time takes is known from its latency */
	if (what == TIMING_OWN && (!v->own[0] || !f->timed_ns[TIMING_LATENCY]))
		return false;
	/* what is on the screen; of the others, once, so that it is known which belong there */
	return (line >= v->first && line < v->first + t->rows) || !f->timed_ns[what];
}

/* Says what may be timed, that first whose times are oldest; returns what all cost, in ns per second. */
static double find_wanted(struct top *t, struct view *v, struct wanted *wanted, size_t *count)
{
	double all = 0;

	*count = 0;
	for (size_t n = 0; n < v->line_count; n++)
		for (enum timing what = 0; what < TIMINGS; what++)
			if (is_wanted(t, v, n, what)) {
				wanted[(*count)++] = (struct wanted){v->lines[n].function, what};
				all += one_timing_ns(v->lines[n].function, what);
			}
	if (*count)
		qsort(wanted, *count, sizeof(*wanted), by_age);
	return all;
}

/*
 * Marks the oldest of one kind, as many as may cost `most`, and one in any case; returns
 * what they cost, in ns per second.
 */
static double mark(struct view *v, const struct wanted *wanted, size_t count, double most)
{
	double sum = 0;

	unmark(v);
	for (size_t n = 0; n < count; n++) {
		const double cost = one_timing_ns(wanted[n].function, wanted[n].what);

		if (wanted[n].what != wanted[0].what || (n && sum + cost > most))
			continue;
		sum += cost;
		wanted[n].function->timed[wanted[n].what] = true;
	}
	return sum;
}

/* A few at a time, for a part of the time until then: as long as what was saved up lasts. */
static int take_slices(struct top *t, struct view *v, struct wanted *wanted, size_t count,
		       uint64_t until_ns, struct dinst_error *e)
{
	int err = 0;

	while (!err && question_going(&t->q) && !t->quit && t->action == ACTION_NONE) {
		const double before = t->spent_ns,
			     cost = mark(v, wanted, count, GROUP_PERCENT * 1e7);
		const double slice_ns = cost > 0 ? t->credit_ns / cost * 1e9 : SLICE_NS;
		uint64_t now = top_now();

		if (slice_ns < TOP_SLICE_MIN_MS * 1e6 ||
		    now + TOP_SLICE_MIN_MS * 1000000ull > until_ns)
			break;
		err = arrange(t, v, e);
		if (!err)
			top_pause(t, top_now() +
					     (slice_ns < SLICE_NS ? (uint64_t)slice_ns : SLICE_NS));
		if (!err)
			err = read_times(t, v, false, e);
		/* where stops are dear there are fewer of them */
		if (!err)
			err = probe_stops(t, e);
		t->credit_ns -= t->spent_ns - before;
		qsort(wanted, count, sizeof(*wanted), by_age);
	}
	unmark(v);
	return err ? err : arrange(t, v, e);
}

/* All of them, all the time. */
static int take_all(struct top *t, struct view *v, const struct wanted *wanted, size_t count,
		    uint64_t until_ns, struct dinst_error *e)
{
	const double before = t->spent_ns;
	int err;

	/* what is not called for a moment stays in, which costs nothing; to take it out would */
	for (size_t n = 0; n < v->count; n++)
		for (enum timing what = 0; v->functions[n].rate > 0 && what < TIMINGS; what++)
			v->functions[n].timed[what] = false;
	for (size_t n = 0; n < count; n++)
		wanted[n].function->timed[wanted[n].what] = true;
	err = arrange(t, v, e);
	top_pause(t, until_ns);
	if (!err)
		err = read_times(t, v, false, e);
	t->credit_ns -= t->spent_ns - before;
	return err;
}

int times_take(struct top *t, struct view *v, uint64_t until_ns, struct dinst_error *e)
{
	struct wanted *wanted = calloc(TIMINGS * v->line_count + 1, sizeof(*wanted));
	size_t count;
	int err;

	if (!wanted)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for times");
	t->credit_ns += budget(t) * t->interval;
	if (t->credit_ns > budget(t) * CREDIT_SECONDS)
		t->credit_ns = budget(t) * CREDIT_SECONDS;
	if (find_wanted(t, v, wanted, &count) <= budget(t)) {
		err = take_all(t, v, wanted, count, until_ns, e);
	} else {
		err = take_slices(t, v, wanted, count, until_ns, e);
		top_pause(t, until_ns);
	}
	free(wanted);
	return err;
}
