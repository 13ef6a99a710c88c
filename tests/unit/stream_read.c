/* SPDX-License-Identifier: MIT */
/*
 * stream_read.c - the reader of rings, without a target: what a writer leaves comes
 * out in order, and whatever else is there, it ends, stays inside, and hands out nothing
 * that is no record of a known kind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "mutator/stream_private.h"
#include "mutator/variable.h"

enum { RINGS = 6, SHIFT = 12, BYTES = 1 << SHIFT, KINDS = 3, RUBBISH_ROUNDS = 60000 };

static struct session session;
static struct arena arena = {.mode = ARENA_PRIVATE, .fd = -1};
static struct stream *stream;
static struct stream_queue *queues[2];
static uint64_t seed = 88172645463325252ull;
static time_t steered; /* s by which CLOCK_MONOTONIC has gone away from the processor's clock */
static uint64_t ahead; /* ticks by which that one is ahead of what it would be after a sleep */

/* The C library's, and what suspended machines and NTP do to it. */
int clock_gettime(clockid_t clock, struct timespec *to)
{
	const long status = syscall(SYS_clock_gettime, clock, to);

	if (!status && clock == CLOCK_MONOTONIC)
		to->tv_sec += steered;
	return (int)status;
}

uint64_t __real_arch_clock_ticks(void);
uint64_t __wrap_arch_clock_ticks(void);

uint64_t __wrap_arch_clock_ticks(void)
{
	return __real_arch_clock_ticks() + ahead;
}

static uint64_t next(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/* Kinds: two values; a value and a string of 24; bytes of 5. */
static const uint32_t sizes[KINDS] = {40, 64, 40};

static void add_kind(unsigned n)
{
	struct stream_event *event = calloc(1, sizeof(*event));
	struct stream_field *fields = calloc(2, sizeof(*fields));

	assert_true(event && fields);
	fields[0] = (struct stream_field){.form = STREAM_VALUE, .offset = 24, .size = 8};
	fields[1] = (struct stream_field){.form = n == 1   ? STREAM_STRING
						  : n == 2 ? STREAM_BYTES
							   : STREAM_VALUE,
					  .offset = 32,
					  .size = n == 1 ? 32 : 8};
	if (n == 2)
		fields[0] = (struct stream_field){.form = STREAM_BYTES, .offset = 24, .size = 16};
	*event = (struct stream_event){.id = n + 1,
				       .size = sizes[n],
				       .told_size = sizes[n],
				       .fields = fields,
				       .field_count = n == 2 ? 1 : 2,
				       .queue = queues[n % 2]};
	stream->events[n] = event;
}

static int setup(void **state)
{
	(void)state;
	stream = calloc(1, sizeof(*stream));
	session = (struct session){.pid = getpid(), .state = SESSION_EXITED, .stream = stream};
	stream->session = &session;
	stream->arena = &arena;
	stream->at.shift = SHIFT;
	stream->ring_count = RINGS;
	stream->rings = calloc(RINGS, sizeof(*stream->rings));
	stream->copy = malloc(BYTES);
	for (unsigned n = 0; n < RINGS; n++)
		stream->rings[n].ring = calloc(1, ARCH_RING_HEADER + BYTES);
	stream->events = calloc(KINDS, sizeof(struct stream_event *));
	stream->event_count = stream->event_room = KINDS;
	for (unsigned n = 0; n < 2; n++) {
		queues[n] = calloc(1, sizeof(*queues[n]));
		queues[n]->next = stream->queues;
		stream->queues = queues[n];
	}
	for (unsigned n = 0; n < KINDS; n++)
		add_kind(n);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (unsigned n = 0; n < RINGS; n++)
		free(stream->rings[n].ring);
	stream_free(stream);
	return 0;
}

/* As a target does it; false: there is no room. */
static bool write_record(unsigned n, unsigned kind, uint64_t first, uint32_t tid)
{
	struct arch_ring *ring = stream->rings[n].ring;
	const uint32_t size = sizes[kind];
	uint64_t at = ring->head % BYTES / 8 * 8; /* as emitted code does, whatever head is */
	const uint64_t skip = BYTES - at < size ? BYTES - at : 0;
	struct arch_record record = {
		.id = kind + 1, .size = size, .ticks = arch_clock_ticks(), .tid = tid};
	uint64_t words[5] = {first, 11, 0x6261, 0, 0};

	if (ring->head + skip + size - ring->tail > BYTES)
		return false;
	if (skip) {
		const uint32_t filler[2] = {0, (uint32_t)skip};

		memcpy(ring->records + at, filler, sizeof(filler));
		at = 0;
	}
	if (kind == 2)
		words[0] = 5;
	memcpy(ring->records + at, &record, sizeof(record));
	memcpy(ring->records + at + sizeof(record), words, size - sizeof(record));
	ring->head += skip + size;
	return true;
}

static void take(struct stream_taken *taken)
{
	struct dinst_error e = {0};
	json_t *threads;

	if (stream_take(&session, NULL, 0, 1 << 20, taken, &threads, &e) < 0)
		fail_msg("%s", e.text);
	json_decref(threads);
	json_decref(taken->places);
}

/* Everything that is handed out is a record as its kind says. Returns how many there are. */
static unsigned check(const struct stream_taken *taken)
{
	unsigned count = 0;

	for (size_t at = 0; at < taken->size; count++) {
		const struct arch_record *r = (const void *)(taken->data + at);
		uint64_t length;

		assert_true(taken->size - at >= sizeof(*r));
		assert_true(r->id >= 1 && r->id <= KINDS);
		assert_int_equal(r->size, sizes[r->id - 1]);
		assert_true(r->size <= taken->size - at);
		assert_int_equal(r->flags, 0);
		memcpy(&length, r->fields + (r->id == 2 ? 8 : 0), sizeof(length));
		assert_true(r->id == 1 || length <= (r->id == 2 ? 24 : 8));
		at += r->size;
	}
	return count;
}

/* One writer that goes from ring to ring: its records come out as they went in. */
static void test_order(void **state)
{
	uint64_t written = 0, read = 0, last = 0;

	(void)state;
	for (unsigned round = 0; round < 3000; round++) {
		struct stream_taken taken;

		for (unsigned n = 0; n < 20; n++)
			written += write_record((unsigned)(next() % RINGS), 0, written,
						(uint32_t)getpid());
		stream_collect(&session);
		take(&taken);
		for (size_t at = 0; at < taken.size; read++) {
			const struct arch_record *r = (const void *)(taken.data + at);
			uint64_t word;

			memcpy(&word, r->fields, sizeof(word));
			assert_int_equal(word, read);
			assert_true(r->ticks >= last);
			assert_int_equal(r->tid, getpid());
			last = r->ticks;
			at += r->size;
		}
		free(taken.data);
	}
	assert_int_equal(read, written);
	assert_int_equal(stream->damaged, 0);
}

/* What is begun holds back what is later, and not for ever. */
static void test_held_back(void **state)
{
	struct stream_taken taken;

	(void)state;
	/* Where so much else runs that this took longer than anybody is held back: again. */
	for (unsigned tries = 0; tries < 200; tries++) {
		const uint64_t begin = clock_ns();

		stream->rings[1].ring->opened = arch_clock_ticks();
		stream->rings[1].ring->lock = (uint64_t)getpid();
		assert_true(write_record(0, 0, 1, 5));
		stream_collect(&session);
		take(&taken);
		free(taken.data);
		if (!taken.size)
			break;
		assert_true(clock_ns() - begin > 15000000);
	}
	assert_int_equal(taken.size, 0);
	assert_true(write_record(1, 0, 0, 5));
	memcpy(stream->rings[1].ring->records + (stream->rings[1].ring->head - 40) % BYTES + 8,
	       &stream->rings[1].ring->opened, 8);
	stream->rings[1].ring->lock = 0;
	stream_collect(&session);
	take(&taken);
	assert_int_equal(check(&taken), 2);
	assert_int_equal(taken.data[24], 0);
	assert_int_equal(taken.data[64], 1);
	free(taken.data);
	/* It stays open. */
	stream->rings[1].ring->opened = arch_clock_ticks();
	stream->rings[1].ring->lock = (uint64_t)getpid();
	assert_true(write_record(0, 0, 1, 5));
	usleep(30000);
	stream_collect(&session);
	take(&taken);
	assert_int_equal(check(&taken), 1);
	free(taken.data);
	stream->rings[1].ring->lock = 0;
	stream_collect(&session);
}

/* A target that is never caught up with: something is always left over, and it takes no memory for that. */
static void test_never_empty(void **state)
{
	unsigned left = 0;

	(void)state;
	for (unsigned round = 0; round < 20000; round++) {
		struct stream_taken taken;

		/* what was written before may go, what comes now may not */
		stream->rings[1].ring->opened = arch_clock_ticks();
		stream->rings[1].ring->lock = (uint64_t)getpid();
		assert_true(write_record(0, 0, 1, (uint32_t)getpid()));
		stream_collect(&session);
		left += stream->rings[0].begin < stream->rings[0].end;
		take(&taken);
		free(taken.data);
	}
	stream->rings[1].ring->lock = 0;
	stream_collect(&session);
	assert_true(left > 1000);
	assert_in_range(stream->rings[0].room, 1, 4 * BYTES);
}

/* A holder that is no thread (any more) gives its ring back. */
static void test_gone(void **state)
{
	const uint64_t lost = stream->lost;

	(void)state;
	stream->rings[2].ring->lock = 0x7ffffff0; /* beyond what the kernel gives out */
	stream->rings[3].ring->lock = UINT64_MAX;
	stream->rings[4].ring->lock = (uint64_t)getpid();
	for (unsigned tries = 0; tries < 50 && stream->rings[2].ring->lock; tries++) {
		stream_collect(&session);
		usleep(20000);
	}
	stream_collect(&session);
	assert_int_equal(stream->rings[2].ring->lock, 0);
	assert_int_equal(stream->rings[3].ring->lock, 0);
	assert_int_equal(stream->rings[4].ring->lock, getpid());
	assert_int_equal(stream->lost, lost + 2);
	stream->rings[4].ring->lock = 0;
}

/* How many events come now. */
static unsigned collected(void)
{
	struct stream_taken taken;
	unsigned count;

	stream_collect(&session);
	take(&taken);
	count = check(&taken);
	free(taken.data);
	return count;
}

/*
 * fear K4: the machine sleeps, or goes back to what it was saved as, and the processor's clock goes back with it:
 * events would be held, without bound, for as long as it was up before
 */
static void test_clock_goes_back(void **state)
{
	const uint64_t lost = stream->lost;
	unsigned told = 0;
	struct stream_taken taken;
	struct arch_record record;
	uint64_t begin;

	(void)state;
	usleep(1000);
	collected(); /* what others have left */
	ahead = 1ull << 50;
	assert_true(write_record(0, 0, 1, 5));
	assert_int_equal(collected(), 1);
	/* It waits for another one when that happens. */
	stream->rings[1].ring->opened = arch_clock_ticks();
	stream->rings[1].ring->lock = (uint64_t)getpid();
	assert_true(write_record(0, 0, 1, 5));
	told = collected();
	ahead = 0;
	for (unsigned n = 0; n < 1000; n++) {
		if (!write_record(0, 0, n, 5)) {
			told += collected();
			assert_true(write_record(0, 0, n, 5));
		}
	}
	told += collected();
	assert_int_equal(told + collected(), 1001);
	assert_in_range(stream->rings[0].room, 1, 4 * BYTES);
	assert_int_equal(stream->lost, lost);
	stream->rings[1].ring->lock = 0;
	/* What comes is told in the time of now. */
	begin = clock_ns();
	assert_true(write_record(0, 0, 7, 5));
	usleep(1000);
	stream_collect(&session);
	take(&taken);
	assert_int_equal(check(&taken), 1);
	memcpy(&record, taken.data, sizeof(record));
	assert_in_range(record.ticks, begin - 1000000, clock_ns());
	free(taken.data);
	stream->epoch = 0; /* as it was for those that follow */
}

/* Whoever writes more than fast, while another one is at a record, takes no more memory than that. */
static void test_held_in_bounds(void **state)
{
	const uint64_t lost = stream->lost;
	unsigned written = 0, told = 0;

	(void)state;
	stream->rings[1].ring->opened = arch_clock_ticks();
	stream->rings[1].ring->lock = (uint64_t)getpid();
	/* Where so much else runs that nobody is held back that long: again. */
	while (stream->lost == lost && written < 2000000) {
		stream->rings[1].ring->opened = arch_clock_ticks();
		for (unsigned laps = 0; laps < 32; laps++) {
			while (write_record(0, 0, 1, 5))
				written++;
			told += collected();
		}
	}
	assert_in_range(stream->rings[0].room, BYTES, 16 * BYTES);
	stream->rings[1].ring->lock = 0;
	told += collected();
	usleep(1000);
	told += collected();
	assert_int_equal(told + (stream->lost - lost), written);
	assert_true(stream->lost > lost);
}

static void spoil(struct arch_ring *ring)
{
	uint8_t *bytes = (uint8_t *)ring;
	const uint64_t number = next() >> (next() & 63);

	switch (next() % 9) {
	case 0:
		ring->head = number;
		break;
	case 1:
		ring->tail = number;
		break;
	case 2:
		ring->head += number % (2 * BYTES);
		break;
	case 3:
		ring->lock = next() % 3 ? 0 : number;
		break;
	case 4:
		ring->opened = next() % 2 ? number : arch_clock_ticks();
		break;
	case 5:
		memset(ring->records + next() % BYTES / 2, (int)(next() & 255), BYTES / 2);
		break;
	case 6: /* a record that claims to be larger, or to end outside */
		memcpy(ring->records + next() % (BYTES - 8), &number, 4);
		break;
	default:
		for (unsigned n = 0; n < 8; n++)
			bytes[next() % (ARCH_RING_HEADER + BYTES)] ^= (uint8_t)(1u << (next() & 7));
	}
}

static void test_rubbish(void **state)
{
	unsigned records = 0;

	(void)state;
	alarm(120);
	for (unsigned round = 0; round < RUBBISH_ROUNDS; round++) {
		struct stream_taken taken;

		for (unsigned n = 0; n < 4; n++)
			write_record((unsigned)(next() % RINGS), (unsigned)(next() % KINDS), next(),
				     (uint32_t)(next() % 3 ? (uint64_t)getpid() : next()));
		spoil(stream->rings[next() % RINGS].ring);
		if (next() % 2)
			continue;
		stream_collect(&session);
		take(&taken);
		records += check(&taken);
		free(taken.data);
	}
	assert_true(records > 1000);
	assert_true(stream->damaged > 1000);
	print_message("%u records, %llu times damaged\n", records,
		      (unsigned long long)stream->damaged);
	/* All is as new once the target behaves again. */
	for (unsigned n = 0; n < RINGS; n++)
		memset(stream->rings[n].ring, 0, sizeof(struct arch_ring));
	for (unsigned n = 0; n < 3; n++) {
		struct stream_taken taken;

		usleep(30000); /* for what was held back */
		stream_collect(&session);
		take(&taken);
		free(taken.data);
	}
	for (unsigned n = 0; n < RINGS; n++) {
		struct stream_taken taken;

		assert_true(write_record(n, 1, 7, (uint32_t)getpid()));
		usleep(1000);
		stream_collect(&session);
		take(&taken);
		assert_int_equal(check(&taken), 1);
		free(taken.data);
	}
}

/* Of a kind that is gone nothing comes out, and its queue goes. */
static void test_retired(void **state)
{
	const uint64_t damaged = stream->damaged;
	json_t *kept = json_object();
	struct stream_taken taken;

	(void)state;
	assert_true(write_record(0, 0, 7, 1));
	assert_true(write_record(0, 1, 7, 1));
	stream_retire(&session, queues[1]);
	stream_collect(&session);
	take(&taken);
	assert_int_equal(check(&taken), 2); /* for a while it can still be taken */
	free(taken.data);
	/* Also where nobody asks any more. */
	stream->asked_ns = 0;
	assert_in_range(stream_pump(&session), 1, 60000);
	assert_ptr_not_equal(stream->queues, queues[0]);
	queues[1]->retired_ns = 1;
	/* What nobody took out of the rings goes with it: it does not stand before what comes then. */
	assert_true(write_record(0, 1, 7, 1));
	assert_int_equal(stream_pump(&session), -1);
	assert_ptr_equal(stream->queues, queues[0]);
	assert_true(write_record(0, 0, 7, 1));
	usleep(1000);
	stream_collect(&session);
	take(&taken);
	assert_int_equal(check(&taken), 1);
	assert_int_equal(stream->damaged, damaged);
	free(taken.data);
	assert_true(write_record(0, 0, 7, 1));
	assert_true(write_record(0, 1, 7, 1));
	usleep(1000);
	stream_collect(&session);
	take(&taken);
	assert_int_equal(check(&taken), 1); /* a row is cut where something unknown stands */
	free(taken.data);
	stream_tell_kept(&session, kept); /* 1 and 3 */
	assert_int_equal(json_array_size(json_object_get(kept, "kept_kinds")), 2);
	json_decref(kept);
}

/* The name that comes with the next event of this thread, where one comes; until the next call. */
static const char *told_name(void)
{
	static char name[32];
	struct stream_taken taken;
	struct dinst_error e = {0};
	json_t *threads;

	name[0] = 0;
	assert_true(write_record(0, 0, 7, (uint32_t)getpid()));
	stream_collect(&session);
	assert_true(stream_take(&session, NULL, 0, 1 << 20, &taken, &threads, &e) >= 0);
	assert_int_equal(check(&taken), 1);
	if (json_array_size(threads))
		snprintf(name, sizeof(name), "%s",
			 json_string_value(json_object_get(json_array_get(threads, 0), "name")));
	json_decref(threads);
	json_decref(taken.places);
	free(taken.data);
	return name;
}

/* fear D7: an id is given to another thread after a while, or a thread calls itself otherwise: that is told */
static void test_named_anew(void **state)
{
	(void)state;
	prctl(PR_SET_NAME, "before");
	steered = 10;
	assert_string_equal(told_name(), "before");
	assert_string_equal(told_name(), "");
	prctl(PR_SET_NAME, "after");
	/* Not asked for with each event. */
	assert_string_equal(told_name(), "");
	steered = 20;
	assert_string_equal(told_name(), "after");
	steered = 30;
	assert_string_equal(told_name(), "");
	steered = 0;
}

/*
 * fear K4: events of a session that is weeks old are told in another time than that of now, and who
 * takes those of a moment gets none.
 */
static void test_steered(void **state)
{
	struct stream_queue *queue = NULL;
	struct dinst_error e = {0};
	struct stream_taken taken;
	struct arch_record record;
	uint64_t begin;

	(void)state;
	steered = 3600;
	/* One that is there goes on in the time in which it began. */
	assert_int_equal(stream_prepare(&session, NULL, &queue, &e), 0);
	assert_int_equal(stream->epoch, 0);
	stream_retire(&session, queue);
	stream_retire(&session, queues[0]);
	queue = NULL;
	assert_int_equal(stream_prepare(&session, NULL, &queue, &e), 0);
	stream->events[0]->queue = queue;
	begin = clock_ns();
	assert_true(write_record(0, 0, 7, (uint32_t)getpid()));
	usleep(1000);
	stream_collect(&session);
	take(&taken);
	assert_int_equal(check(&taken), 1);
	memcpy(&record, taken.data, sizeof(record));
	assert_in_range(record.ticks, begin - 1000000, clock_ns());
	free(taken.data);
	steered = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),	       cmocka_unit_test(test_held_back),
		cmocka_unit_test(test_never_empty),    cmocka_unit_test(test_clock_goes_back),
		cmocka_unit_test(test_held_in_bounds), cmocka_unit_test(test_gone),
		cmocka_unit_test(test_rubbish),	       cmocka_unit_test(test_retired),
		cmocka_unit_test(test_named_anew),     cmocka_unit_test(test_steered),
	};
	struct dinst_error e = {0};

	if (ticks_calibrate(&e) < 0) {
		print_message("SKIP stream_read: %s\n", e.text);
		return 0;
	}
	return cmocka_run_group_tests(tests, setup, teardown);
}
