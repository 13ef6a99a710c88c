/* SPDX-License-Identifier: MIT */
/*
 * primitives.c - what each primitive of the metric language costs above the bare
 * trampoline (the way there and back with nothing in between), in one thread
 * and in two, beside the kernel's uprobes as perf and bpftrace use them; and
 * how long it takes to make code for ten thousand points. "wall" is the wall timers
 * alone, for machines whose processor's clock is not steady (DINST_UNSTEADY).
 *
 * The target is a child of ours, a fork of this program: on request it calls one
 * small function in a loop and answers with its CPU time per call. Every state is
 * measured once in each round, all are medians over rounds, of costs and of
 * differences within a round.
 */
#include <fcntl.h>
#include <signal.h>
#include <time.h>

#include "mutator/variable.h"
#include "mutator/wall_clock.h"
#include "tests/bench/many.h"
#include "tests/bench/measure.h"
#include "tests/bench/primitives.h"

static const char text[] =
	"list subject_func is procedure { items { \"primitives:primitive_subject\" }; }\n"
	"list many_func is procedure { items { \"primitives:many_*\" }; }\n"
	"constraint procedure /Code/*/* is counter {\n"
	"	append preInsn $constraint[0].entry (* procedure++; *)\n"
	"	prepend preInsn $constraint[0].return (* procedure--; *)\n"
	"}\n"
	"constraint key /SyncObject/Key/* is counter {\n"
	"	foreach f in subject_func append preInsn f.entry (* key = ($arg[0] == $constraint[0]); *)\n"
	"}\n"
	"metric p_counter { base is counter {\n"
	"	foreach f in subject_func append preInsn f.entry (* p_counter++; *) } }\n"
	"metric p_guarded { constraint procedure; base is counter {\n"
	"	foreach f in subject_func append preInsn f.entry (* p_guarded++; *) } }\n"
	"metric p_argument { base is counter {\n"
	"	foreach f in subject_func append preInsn f.entry (* p_argument += $arg[0]; *) } }\n"
	"metric p_distribution { base is distribution {\n"
	"	foreach f in subject_func append preInsn f.entry (* record(p_distribution, $arg[0]); *) } }\n"
	"metric p_vector {\n"
	"	constraint each /SyncObject/Key/* is replace counter {\n"
	"		foreach f in subject_func append preInsn f.entry\n"
	"			(* if ($arg[0] == $constraint[0]) p_vector++; *) }\n"
	"	base is counter { } }\n"
	"metric p_read { base is counter {\n"
	"	foreach f in subject_func append preInsn f.entry (* p_read += readMemory($arg[0], 8); *) } }\n"
	"metric p_wall { base is wallTimer { foreach f in subject_func {\n"
	"	append preInsn f.entry (* startWallTimer(p_wall); *)\n"
	"	prepend preInsn f.return (* stopWallTimer(p_wall); *) } } }\n"
	"metric p_thread { base is threadTimer { foreach f in subject_func {\n"
	"	append preInsn f.entry (* startThreadTimer(p_thread); *)\n"
	"	prepend preInsn f.return (* stopThreadTimer(p_thread); *) } } }\n"
	"metric p_latency { base is distribution { foreach f in subject_func\n"
	"	prepend preInsn f.return (* record(p_latency, $elapsed); *) } }\n"
	"metric p_flag { base is counter { foreach f in subject_func {\n"
	"	append preInsn f.entry (* p_flag++; *)\n"
	"	prepend preInsn f.return (* p_flag--; *) } } }\n"
	"metric p_many { base is counter {\n"
	"	foreach f in many_func append preInsn f.entry\n"
	"		(* if ($arg[0] > 7 && ($arg[0] & 3) != 1) p_many += $arg[0] * 3; *) } }\n";

enum { ROUNDS = 9, WINDOW_NS = 12 * 1000 * 1000 };

/* A state: what is inserted. Costs are above the state `above`. */
struct state {
	const char *title;
	const char *metric, *focus; /* NULL: a raw one */
	const char *raw;	    /* letters of measure.h; switched off again */
	unsigned above;
	bool inside;	/* the calls are made from primitive_inside() */
	bool counts;	/* the value is the number of calls */
	unsigned fewer; /* so many times fewer calls: they take longer */
};

enum {
	PLAIN,
	BARE,
	BARE_BOTH,
	COUNTER,
	GUARDED_TRUE,
	GUARDED_FALSE,
	ARGUMENT,
	DISTRIBUTION,
	VECTOR,
	READ,
	WALL,
	THREAD,
	LATENCY,
	STATES
};

#define INSIDE "/Code/primitives/primitive_inside"

static const struct state states[STATES] = {
	[PLAIN] = {.title = "uninstrumented"},
	[BARE] = {.title = "bare trampoline at entry", .raw = "e"},
	[BARE_BOTH] = {.title = "bare trampolines at entry and exits", .raw = "ex"},
	[COUNTER] = {.title = "counter", .metric = "p_counter", .above = BARE, .counts = true},
	[GUARDED_TRUE] = {.title = "guarded counter, true",
			  .metric = "p_guarded",
			  .focus = INSIDE,
			  .above = BARE,
			  .inside = true,
			  .counts = true},
	[GUARDED_FALSE] = {.title = "guarded counter, false",
			   .metric = "p_guarded",
			   .focus = INSIDE,
			   .above = BARE},
	[ARGUMENT] = {.title = "argument read, added", .metric = "p_argument", .above = BARE},
	[DISTRIBUTION] = {.title = "distribution",
			  .metric = "p_distribution",
			  .above = BARE,
			  .counts = true},
	[VECTOR] = {.title = "vector: a counter found by its key",
		    .metric = "p_vector",
		    .focus = "/SyncObject/Key/*",
		    .above = BARE,
		    .counts = true},
	[READ] = {.title = "safe memory read", .metric = "p_read", .above = BARE, .fewer = 50},
	[WALL] = {.title = "wall timer pair", .metric = "p_wall", .above = BARE_BOTH, .fewer = 4},
	[THREAD] = {.title = "thread timer pair",
		    .metric = "p_thread",
		    .above = BARE_BOTH,
		    .fewer = 4},
	[LATENCY] = {.title = "latency: pair, clocks, distribution",
		     .metric = "p_latency",
		     .above = BARE_BOTH,
		     .counts = true,
		     .fewer = 4},
};

struct table {
	double ns[2][STATES][ROUNDS]; /* by number of threads - 1 */
	bool known[STATES];
};

static int enter(struct session *s, const struct state *state, struct dinst_error *e)
{
	const struct measure_state raw = {.title = state->title,
					  .kinds = state->raw,
					  .jump_only = true,
					  .foci = {"/Code/primitives/primitive_subject"}};
	struct insert_result r;
	size_t points;
	int status;

	if (state->raw)
		return measure_enter(s, &raw, &points, e);
	if (!state->metric)
		return 0;
	status = request_insert(s, state->metric, &state->focus, state->focus != NULL, NULL, &r, e);
	if (status >= 0)
		free(r.instances);
	return status;
}

/* Of all elements, where it is a vector. */
static uint64_t value_of(const struct instance *i)
{
	const unsigned elements = instance_source(i)->variables[0]->elements;
	uint64_t sum = 0;

	for (unsigned k = 0; k < elements; k++) {
		struct dinst_error e = {0};
		struct variable_value v;

		if (instance_read(i, k, &v, &e) < 0)
			return 0;
		sum += (uint64_t)v.value;
		variable_value_release(&v);
	}
	return sum;
}

static int measure_once(struct session *s, struct primitive_child *c, unsigned state,
			unsigned round, uint64_t calls, struct table *t, struct dinst_error *e)
{
	const struct state *what = &states[state];
	uint64_t made, value;
	int status = enter(s, what, e);

	if (status < 0)
		return status;
	made = c->calls;
	for (unsigned threads = 1; threads <= 2; threads++)
		t->ns[threads - 1][state][round] = primitive_ask(
			c, what->inside, threads, what->fewer ? calls / what->fewer : calls);
	made = c->calls - made;
	value = what->counts ? value_of(s->instances) : made;
	if (value != made)
		return dinst_fail(e, DINST_FAILED, "%llu instead of %llu",
				  (unsigned long long)value, (unsigned long long)made);
	return measure_leave(s, e);
}

static double above(const struct table *t, unsigned threads, unsigned state, unsigned than)
{
	double values[ROUNDS];

	for (unsigned i = 0; i < ROUNDS; i++)
		values[i] = t->ns[threads - 1][state][i] - t->ns[threads - 1][than][i];
	return measure_median(values, ROUNDS);
}

static bool measure_all(struct session *s, struct primitive_child *c, bool wall, struct table *t)
{
	const uint64_t calls = (uint64_t)(WINDOW_NS / primitive_ask(c, false, 1, 100000) / 8);
	struct dinst_error e = {0};
	bool good = true;

	for (unsigned i = 0; i < STATES; i++)
		t->known[i] = !wall || i == PLAIN || i == BARE_BOTH || i == WALL || i == LATENCY;
	for (unsigned round = 0; round < ROUNDS; round++)
		for (unsigned i = 0; i < STATES; i++) {
			if (!t->known[i] || measure_once(s, c, i, round, calls, t, &e) >= 0)
				continue;
			printf("  %s: not measured: %s\n", states[i].title, e.text);
			t->known[i] = good = false;
			dinst_error_clear(&e);
			if (measure_leave(s, &e) < 0)
				return false;
		}
	return good;
}

static void show(const struct table *t)
{
	printf("  %-38s %10s %10s %12s %10s\n", "", "ns a call", "above bare", "two threads",
	       "above bare");
	for (unsigned i = 0; i < STATES; i++)
		if (t->known[i])
			printf("  %-38s %10.2f %+10.2f %12.2f %+10.2f\n", states[i].title,
			       measure_median(t->ns[0][i], ROUNDS), above(t, 1, i, states[i].above),
			       measure_median(t->ns[1][i], ROUNDS),
			       above(t, 2, i, states[i].above));
}

/* What one reading of the clock takes here. */
static double reading_ns(void)
{
	struct timespec a, b;
	uint64_t sum = 0;
	double ns;

	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < 1000000; i++)
		sum += arch_clock_ticks();
	clock_gettime(CLOCK_MONOTONIC, &b);
	ns = (double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec);
	return sum ? ns / 1e6 : 0;
}

static void wanted(const struct table *t)
{
	const double clock = reading_ns();

	printf("what is wanted (one reading of the clock: %.1f ns)\n", clock);
	if (t->known[GUARDED_TRUE])
		measure_want("guarded counter, true, above bare", above(t, 1, GUARDED_TRUE, BARE),
			     2, "ns");
	if (t->known[GUARDED_FALSE])
		measure_want("guarded counter, false, above bare", above(t, 1, GUARDED_FALSE, BARE),
			     2, "ns");
	if (t->known[WALL])
		measure_want("wall timer pair, above bare", above(t, 1, WALL, BARE_BOTH),
			     2 * clock + 8, "ns");
	if (t->known[DISTRIBUTION])
		measure_want("distribution, above a counter", above(t, 1, DISTRIBUTION, COUNTER), 6,
			     "ns");
	puts("  two threads by one: true of a quiet machine; on a busy one they take turns, and do not "
	     "meet");
	for (unsigned i = COUNTER; i < STATES; i++)
		if (t->known[i]) {
			char what[80];

			snprintf(what, sizeof(what), "%s, two threads by one", states[i].title);
			measure_want(what,
				     measure_median(t->ns[1][i], ROUNDS) /
					     measure_median(t->ns[0][i], ROUNDS),
				     1.2, "x");
		}
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Functions are known and planned by then: what is left is to compile, optimise and emit. */
static bool show_many(struct session *s)
{
	struct dinst_error e = {0};
	struct insert_result r;
	size_t points = 0, pending;
	double best = 0;

	for (int i = 0; i < 4; i++) {
		double start = seconds(), took;

		if (request_insert(s, "p_many", NULL, 0, NULL, &r, &e) < 0) {
			printf("  many points: %s\n", e.text);
			return false;
		}
		took = (seconds() - start) * 1e3;
		instance_points(r.instances[0], &points, &pending);
		free(r.instances);
		if (i > 0 && (best == 0 || took < best))
			best = took;
		if (measure_leave(s, &e) < 0)
			return false;
	}
	printf("code for %zu points, CPU time of a request whose functions are planned\n", points);
	measure_want("made and linked", best, 200, "ms");
	return points >= 9900;
}

/* With "wall" only what goes by the wall clock, whichever that is: DINST_UNSTEADY chooses. */
int main(int argc, char **argv)
{
	const bool wall = argc > 1 && !strcmp(argv[1], "wall");
	char clock[240];
	static struct table t;
	struct primitive_child child = {0};
	struct detach_result detached;
	struct dinst_error e = {0};
	struct session *s;
	unsigned sum = 0;
	bool good;

	alarm(110);
	for (size_t i = 0; i < MANY_COUNT; i++)
		sum += many[i](1);
	if (!sum || !primitive_start(&child))
		return 1;
	if (session_attach(child.pid, "primitives", &s, &e) < 0 ||
	    session_load_mdl(s, "primitives", text, sizeof(text) - 1, &e) < 0) {
		fprintf(stderr, "primitives: %s\n", e.text);
		return 1;
	}
	wall_clock_tell(s->wall_clock, clock, sizeof(clock));
	printf("primitives of the metric language at an empty function; wall clock: %s\n", clock);
	good = measure_all(s, &child, wall, &t);
	show(&t);
	if (!wall) {
		wanted(&t);
		good &= show_many(s);
	}
	if (session_detach(s, 5, &detached, &e) < 0)
		good = false;
	session_free(s);
	if (!wall)
		primitive_peers(&child);
	kill(child.pid, SIGKILL);
	return good ? 0 : 1;
}
