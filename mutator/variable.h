/* SPDX-License-Identifier: MIT */
/*
 * variable.h - where the variables of metrics and constraints live, and what
 * they are worth.
 *
 *   form         in the target                                   shared by
 *   TOTAL        a counter per CPU in each place (heap.h)         the family
 *                (of hits beside a thread timer: all additions to it are locked ones)
 *   LEVEL        one word, locked operations, in one place        the family
 *   FLAG         a word in each thread's record                   nobody
 *   TIMER        two words in each thread's record, and a TOTAL   nobody / the family
 *                (of threads' clocks: all additions to it are locked ones)
 *   DISTRIBUTION VARIABLE_BUCKETS TOTALs in a row, then sum; min and max as words
 *   TABLE        struct arch_table: from keys to elements         the family
 *   STREAM       a TOTAL of its events, written or dropped; the events are in the session's
 *                rings (stream.h)
 *
 * A variable of a request that is many has `elements` of its form in a row, one
 * more than its table has places: the element of key k is at k's place in the
 * table, minus one. The last element is for keys that found no place.
 *
 *   element k of      is at
 *   TOTAL, TIMER, STREAM
 *                     variable_counter() + 8 * k
 *   LEVEL             word + 8 * k
 *   DISTRIBUTION      variable_counter() + 8 * VARIABLE_ROW * k: buckets, sum;
 *                     word + 16 * k: min, max (INT64_MAX and INT64_MIN at first)
 *
 * What is in records is there once, whatever the elements: a thread's timer runs
 * or it does not, and the element that is known when it stops gets the time.
 *
 * A timer in a record (times as its clock gives them, ticks or ns):
 *   word 0   how often it was started and not stopped (low 32 bits); times it
 *            has stopped (high 32 bits): the version by which readers know
 *   word 1   when it was started
 * Starting counts up; from 0 to 1 writes the time first. Stopping counts down;
 * from 1 to 0 adds to the TOTAL. A stop without a start changes nothing.
 */
#ifndef DINST_MUTATOR_VARIABLE_H
#define DINST_MUTATOR_VARIABLE_H

#include "arch/program.h"
#include "mutator/core.h"
#include "mutator/mdl/mdl.h"

enum variable_form {
	VARIABLE_TOTAL,
	VARIABLE_LEVEL,
	VARIABLE_FLAG,
	VARIABLE_TIMER,
	VARIABLE_DISTRIBUTION,
	VARIABLE_TABLE,
	VARIABLE_STREAM,
};

/*
 * Buckets of a distribution: a value v >= 0 is in bucket (e << 5) + (v >> e),
 * e = max(0, floor(log2(v)) - 5): exact below 64, then 32 to each power of two, so that a
 * bucket is at most 1/32 of its values wide.
 */
enum { VARIABLE_BUCKETS = 1920 };
static inline uint64_t variable_bucket_start(unsigned bucket)
{
	const unsigned e = bucket < 64 ? 0 : (bucket >> 5) - 1;

	return (uint64_t)(bucket - (e << 5)) << e;
}

enum { VARIABLE_ROW = VARIABLE_BUCKETS + 1 }; /* counters of a distribution; the sum is the last */

/* The most places of a table; all of them a power of two. See variable_table_places(). */
enum { VARIABLE_ELEMENTS = 16384, VARIABLE_ELEMENTS_MIN = 64, VARIABLE_PLACES = 16 };

/* A key that no object has: of places that are taken by nothing. */
#define VARIABLE_NO_KEY (UINT64_MAX - 1)

struct variable {
	char *name;
	enum mdl_vartype type;
	enum variable_form form;
	enum arch_clock clock; /* of timers */
	unsigned elements;     /* 1, or what a vector has */
	unsigned references;
	/* FLAG, TIMER: offset of its first word in struct pair_record; 0: none yet. */
	uint32_t record_offset;
	pid_t only_pid, only_tid; /* TIMER: see struct mdl_plan */
	uint64_t *keys;		  /* TABLE: variable_set_keys(), or NULL */
	size_t key_count;
	int64_t last;	/* TIMER, FLAG: what it was when it was read last, ns */
	int64_t *still; /* TIMER: what each element is worth for ever, ns; NULL: it goes on */
	struct stream_queue *queue; /* STREAM: its events; NULL: none yet */
	/* LEVEL, TABLE, min and max of a DISTRIBUTION: the word or table, the same for all places. */
	taddr_t word;
	struct place *word_place;
	/* Others: the counters, by place. */
	struct {
		struct place *place;
		taddr_t counter; /* the first of a row */
	} in[VARIABLE_PLACES];
	unsigned place_count;
};

/* How many places a table has whose vectors are of that form: what is large has fewer. */
unsigned variable_table_places(enum variable_form form);

/*
 * `form` and `elements` are set (of a TABLE: its places, a power of two; of its vectors one more);
 * the clock of timers by their type. Nothing is allocated in the target yet. Reference count 1.
 */
struct variable *variable_new(const char *name, enum mdl_vartype type, enum variable_form form,
			      unsigned elements, struct dinst_error *e);
struct variable *variable_ref(struct variable *v);
/* The last one gives back what it has in the target: code that uses it holds references (snippets
 * do, until no thread is in them). */
void variable_unref(struct session *s, struct variable *v);

/*
 * For a TABLE that nothing uses yet: it has these keys from the beginning and never gets others.
 * DINST_NO_MEMORY: too many for its places.
 */
int variable_set_keys(struct session *s, struct variable *table, const uint64_t *keys, size_t count,
		      struct dinst_error *e);

/*
 * Makes sure that place p can use it. DINST_NO_MEMORY: the place is full; DINST_REFUSED: no
 * per-thread state here. threads_prepare() was there for forms that live in records.
 */
int variable_prepare(struct session *s, struct variable *v, struct place *p, struct dinst_error *e);

/* Address of what code at place p adds to: the counter, of element 0; of a LEVEL or TABLE its word.
 * 0: FLAG. variable_prepare() was there. */
taddr_t variable_counter(const struct variable *v, const struct place *p);

/* ---------------------------------------------------------------- values */

struct variable_bucket {
	uint64_t lo, hi, count; /* values lo <= v < hi */
};

struct variable_value {
	int64_t value; /* counts, levels; timers in ns; a distribution: its count */
	/* Distributions only. */
	uint64_t count;
	int64_t sum, min, max;		 /* 0 where count is 0 */
	struct variable_bucket *buckets; /* those that are not empty, ascending; malloc'ed */
	size_t bucket_count;
};

/*
 * The value now, of element `element`: read from shared memory, running timers
 * included, without stopping anything; zeros where that fails. After the target has ended what it was
 * then. variable_value_release() frees what it holds.
 */
int variable_read(struct session *s, struct variable *v, unsigned element,
		  struct variable_value *out, struct dinst_error *e);
void variable_value_release(struct variable_value *value);
/* Values of elements [first, first + count) of a TOTAL, LEVEL or TIMER. Memory that no element was
 * ever written to is not touched. */
int variable_read_row(struct session *s, struct variable *v, unsigned first, unsigned count,
		      int64_t *values, struct dinst_error *e);
/* `later` - `earlier`: what was recorded in between. Min and max of a distribution are those of its
 * buckets then. Releases nothing; *value may be `later`. */
int variable_difference(const struct variable_value *later, const struct variable_value *earlier,
			struct variable_value *value, struct dinst_error *e);
/* Value at fraction q (0 to 1) of a distribution; 0 where it is empty. */
int64_t variable_quantile(const struct variable_value *value, double q);

/* How often there was no place for a key; where the keys were given others are not counted. */
uint64_t variable_full(const struct variable *table);
/* Keys of a table that have a place: *keys[place - 1], malloc'ed; *full: variable_full(). */
int variable_keys(struct session *s, const struct variable *table, uint64_t **keys, bool **used,
		  size_t *count, uint64_t *full, struct dinst_error *e);

/*
 * The place from 1 on of a key in a table of 2^bits places, given to it as emitted code does it (ARCH_OP_FIND) if
 * there is room; 0, and counted in `full`: there is none.
 */
size_t variable_take_place(struct arch_table *table, unsigned bits, uint64_t key);
/*
 * The number of the element for a key of a TABLE that is in a shared arena, which is given a place as code
 * that runs does it; where there is none that is counted, and it is the number of the last element.
 */
unsigned variable_element_of(const struct variable *table, uint64_t key);

/* -------------------------------------------------------------- time */

/*
 * Finds out how long a tick of ARCH_CLOCK_TICKS is, once: the factor then stays, so that no total
 * ever goes back. It takes 50 ms since ticks_begin(), or since it is called: not while anything is
 * stopped. DINST_UNSUPPORTED where the clock is not steady; the text says why.
 */
void ticks_begin(void);
int ticks_calibrate(struct dinst_error *e);
/* ns for a number of ticks, and what code multiplies by: ns = ticks * multiplier >> 64 << shift. */
uint64_t ticks_to_ns(uint64_t ticks);
void ticks_factor(uint64_t *multiplier, unsigned *shift);
/* CLOCK_MONOTONIC ns at tick 0, for $now: the same for all that is inserted, but where a sleep of the
 * machine, or weeks, have taken the clocks from each other by more than a second. */
int64_t ticks_epoch(void);
/* The same as it is at this moment: clocks go away from each other. After ticks_calibrate(). */
int64_t ticks_epoch_now(void);
/* False where ticks_calibrate() is certain to fail; takes no time. */
bool ticks_may_do(void);
/* The clock that wall timers use on this machine: ARCH_CLOCK_TICKS or ARCH_CLOCK_MONOTONIC. */
enum arch_clock ticks_wall_clock(void);

#endif
