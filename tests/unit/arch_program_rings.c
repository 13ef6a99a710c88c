/* SPDX-License-Identifier: MIT */
/*
 * arch_program_rings.c - events: what emitted code writes into rings, run on random
 * states and judged by a model of a ring; rings that are full, taken, or filled
 * with rubbish. Nothing may be lost without being counted, and nothing written elsewhere.
 */
#include "tests/unit/arch_program_rings.h"

/* ---------------------------------------------------------------- one writer */

/* What a ring should have: whose events, from which position on. */
struct model {
	uint64_t head, tail, dropped;
	uint64_t last; /* ticks */
};

static bool has_room(const struct model *model, uint64_t size)
{
	return model->head + size - model->tail <= RING_BYTES;
}

static void expect_record(const struct arch_ring *ring, struct model *model, uint32_t id,
			  unsigned words)
{
	const uint32_t size = (uint32_t)(sizeof(struct arch_record) + 8 * words);
	const uint64_t offset = model->head % RING_BYTES, left = RING_BYTES - offset;
	const struct arch_record *r = (const void *)(ring->records + offset);
	const uint64_t skip = left < size ? left : 0;

	if (!has_room(model, skip + size)) {
		model->dropped++;
		return;
	}
	if (skip) {
		assert_int_equal(r->id, 0);
		assert_int_equal(r->size, skip);
		r = (const void *)ring->records;
	}
	assert_int_equal(r->id, id);
	assert_int_equal(r->size, size);
	assert_int_equal(r->tid, syscall(SYS_gettid));
	assert_int_equal(r->flags, 0);
	assert_true(r->ticks > model->last);
	model->last = r->ticks;
	assert_true(ring->opened >= r->ticks);
	for (unsigned n = 0; n < words; n++) {
		uint64_t word;

		memcpy(&word, r->fields + 8 * n, 8);
		assert_true(word == run_in.r[RDI] * (n + 1));
	}
	model->head += skip + size;
}

enum { TRIES = 4 }; /* rings that a writer may take */

/* Returns how many different ones there are: a thread whose CPU is not known may have the block for all. */
static unsigned find_tries(const struct arch_stream *s, unsigned cpu, struct arch_ring **tries)
{
	for (unsigned n = 0; n < TRIES; n++)
		tries[n] = ring_at(s, n < 2 ? cpu : CPUS, n % 2);
	return cpu == CPUS ? TRIES / 2 : TRIES;
}

/* It is in the first ring that has room; where none has, the last one counts it. */
static void expect_somewhere(struct arch_ring *const *tries, unsigned count, struct model *models,
			     uint32_t id, unsigned words)
{
	const uint64_t size = sizeof(struct arch_record) + 8 * words;
	unsigned n = 0;

	while (n < count - 1 && !has_room(&models[n], size))
		n++;
	expect_record(tries[n], &models[n], id, words);
	for (n = 0; n < count; n++) {
		assert_int_equal(tries[n]->head, models[n].head);
		assert_int_equal(tries[n]->lock, 0);
		assert_int_equal(tries[n]->dropped, models[n].dropped);
	}
}

static void make_room(struct arch_ring *ring, struct model *model)
{
	ring->tail = model->tail = model->head - run_random() % 3 * 8;
	if (ring->tail > model->head)
		ring->tail = model->tail = model->head;
}

static bool is_tried(struct arch_ring *const *tries, const struct arch_ring *ring)
{
	for (unsigned n = 0; n < TRIES; n++)
		if (tries[n] == ring)
			return true;
	return false;
}

static void check_models(const struct arch_stream *s, struct arch_ring *const *tries,
			 unsigned count, const struct model *models)
{
	uint64_t dropped = 0;

	for (unsigned n = 0; n < count; n++) {
		assert_true(models[n].head > 4 * RING_BYTES);
		dropped += models[n].dropped;
	}
	assert_true(dropped > 10);
	for (unsigned n = 0; n < ALL_RINGS; n++)
		assert_true(is_tried(tries, any_ring(s, n)) || !any_ring(s, n)->head);
}

static void write_many(uint8_t *area, bool knows_cpu)
{
	static struct made m;
	struct arch_stream s = stream_in(area);
	struct model models[TRIES] = {0};
	struct arch_ring *tries[TRIES];
	unsigned cpu, count;

	stay_here(&cpu);
	if (!knows_cpu || !__rseq_size)
		cpu = arch_ring_block(&s, (uint32_t)syscall(SYS_gettid));
	count = find_tries(&s, cpu, tries);
	clear_rings(area);
	for (unsigned round = 0; round < 1600; round++) {
		const unsigned words = (unsigned)(run_random() % 90), id = 1 + round % 50;
		const unsigned read = (unsigned)(run_random() % 40);

		start(&m, area);
		if (!knows_cpu)
			m.env.counter.rseq_offset = 0;
		add_event(&m, id, words);
		emit_program(&m);
		check_trace(&m);
		run_it(&m);
		expect_somewhere(tries, count, models, id, words);
		if (read < count)
			make_room(tries[read], &models[read]);
	}
	check_models(&s, tries, count, models);
	check_guards(area);
	go_anywhere();
}

static void test_one_writer(void **state)
{
	(void)state;
	run_init();
	write_many(low_area, true);
	write_many(far_area, true);
	write_many(low_area, false);
	write_many(far_area, false);
}

/* Two events of one program, and one that is not written. */
static void test_two_events(void **state)
{
	static struct made m;
	struct arch_stream s = stream_in(low_area);
	struct model model = {0};
	unsigned cpu;

	(void)state;
	run_init();
	stay_here(&cpu);
	cpu = __rseq_size ? cpu : arch_ring_block(&s, (uint32_t)syscall(SYS_gettid));
	for (unsigned round = 0; round < 50; round++) {
		clear_rings(low_area);
		memset(&model, 0, sizeof(model));
		start(&m, low_area);
		add_event(&m, 1, 3);
		add_event(&m, 2, 5);
		arch_program_optimise(&m.p);
		emit_program(&m);
		run_it(&m);
		expect_record(ring_at(&s, cpu, 0), &model, 1, 3);
		expect_record(ring_at(&s, cpu, 0), &model, 2, 5);
		assert_int_equal(ring_at(&s, cpu, 0)->head, model.head);
	}
	go_anywhere();
}

/* ----------------------------------------------------------- rings in use */

static void test_taken(void **state)
{
	static struct made m;
	struct arch_stream s = stream_in(low_area);
	struct arch_ring *tries[TRIES];
	unsigned cpu;

	(void)state;
	run_init();
	stay_here(&cpu);
	cpu = __rseq_size ? cpu : arch_ring_block(&s, (uint32_t)syscall(SYS_gettid));
	find_tries(&s, cpu, tries);
	start(&m, low_area);
	add_event(&m, 7, 2);
	emit_program(&m);
	for (unsigned taken = 0; taken < 16; taken++) {
		unsigned first = 0;

		clear_rings(low_area);
		for (unsigned n = 0; n < 4; n++)
			tries[n]->lock = taken >> n & 1 ? 4711 + n : 0;
		run_it(&m);
		while (first < 4 && taken >> first & 1)
			first++;
		for (unsigned n = 0; n < 4; n++) {
			assert_int_equal(tries[n]->head, n == first ? 40 : 0);
			assert_int_equal(tries[n]->lock, taken >> n & 1 ? 4711 + n : 0);
			assert_int_equal(tries[n]->dropped, first == 4 && n == 3);
		}
	}
	go_anywhere();
}

static void write_rubbish(struct arch_ring *ring)
{
	ring->head = run_random() >> (run_random() & 63);
	ring->tail = run_random() & 1 ? ring->head - run_random() % RING_BYTES
				      : run_random() >> (run_random() & 63);
}

/* Whatever head and tail are, nothing outside is written, and it ends. */
static void test_rubbish(void **state)
{
	static struct made m;
	struct arch_stream s = stream_in(low_area);
	struct arch_ring *tries[TRIES];
	unsigned cpu;

	(void)state;
	run_init();
	stay_here(&cpu);
	cpu = __rseq_size ? cpu : arch_ring_block(&s, (uint32_t)syscall(SYS_gettid));
	find_tries(&s, cpu, tries);
	for (unsigned round = 0; round < 300; round++) {
		start(&m, low_area);
		add_event(&m, 9, (unsigned)(run_random() % 100));
		emit_program(&m);
		clear_rings(low_area);
		for (unsigned times = 0; times < 20; times++) {
			for (unsigned n = 0; n < TRIES; n++)
				write_rubbish(tries[n]);
			run_it(&m);
			for (unsigned n = 0; n < TRIES; n++)
				assert_int_equal(tries[n]->lock, 0);
		}
		check_guards(low_area);
		for (unsigned n = 0; n < ALL_RINGS; n++)
			assert_true(is_tried(tries, any_ring(&s, n)) || !any_ring(&s, n)->head);
	}
	go_anywhere();
}

/* ------------------------------------------------------------------- bytes */

static void check_bytes(uint64_t address, unsigned size, unsigned readable)
{
	static struct made m;
	struct arch_stream s = stream_in(low_area);
	const uint32_t room = (size + 7) / 8 * 8 + 8;
	const struct arch_record *r = NULL;
	uint64_t length, last;

	start(&m, low_area);
	clear_rings(low_area);
	next_value = 10;
	add_op(&m, (struct arch_op){.kind = ARCH_OP_CONST, .result = 1, .number = address});
	add_op(&m, (struct arch_op){.kind = ARCH_OP_ARGUMENT, .result = 2, .number = 3});
	add_op(&m, (struct arch_op){.kind = ARCH_OP_RING_OPEN,
				    .result = 3,
				    .second = 4,
				    .number = 5,
				    .immediate = (int32_t)(32 + room)});
	add_op(&m,
	       (struct arch_op){.kind = ARCH_OP_IF, .condition = ARCH_TEST_EQ, .a = 3, .label = 1});
	add_op(&m, (struct arch_op){.kind = ARCH_OP_RING_BYTES,
				    .a = 3,
				    .b = 1,
				    .number = 24,
				    .immediate = (int32_t)size});
	add_op(&m, (struct arch_op){
			   .kind = ARCH_OP_STORE, .size = 8, .a = 3, .b = 2, .number = 24 + room});
	add_op(&m, (struct arch_op){
			   .kind = ARCH_OP_RING_CLOSE, .a = 4, .immediate = (int32_t)(32 + room)});
	add_op(&m, (struct arch_op){.kind = ARCH_OP_LABEL, .label = 1});
	if (run_random() & 1)
		arch_program_optimise(&m.p);
	emit_program(&m);
	check_trace(&m);
	run_it(&m);
	for (unsigned n = 0; n < ALL_RINGS; n++)
		if (any_ring(&s, n)->head)
			r = (const void *)any_ring(&s, n)->records;
	assert_non_null(r);
	memcpy(&length, r->fields, 8);
	memcpy(&last, r->fields + room, 8);
	assert_int_equal(length, readable);
	assert_true(last == run_in.r[RCX]);
	if (readable)
		assert_memory_equal(r->fields + 8, (const void *)(uintptr_t)address, readable);
}

static void test_bytes(void **state)
{
	const uint64_t end = address_of(pages) + PAGE;

	(void)state;
	run_init();
	for (unsigned round = 0; round < 20; round++) {
		const unsigned size = 1 + (unsigned)(run_random() % 512);

		check_bytes(address_of(pages) + 100, size, size);
		check_bytes(end - size, size, size);
		check_bytes(end - 1, size, 1);
		check_bytes(end - size / 2, size, size / 2);
		check_bytes(end, size, 0);
		check_bytes(0, size, 0);
		check_bytes(8, size, 0);
		check_bytes(1ull << 63, size, 0);
		check_bytes(1ull << 47, size, 0);
		check_bytes(UINT64_MAX - 3, size, 0);
	}
}

/* As many addresses at once as there are fields: not all of them have a register. */
static void check_fields(unsigned fields)
{
	enum { SIZE = 8, FIELD = 16, FIRST = 24, VALUE = 10 };
	const uint64_t address = address_of(pages) + 100;
	const struct arch_record *r = NULL;
	struct arch_stream s = stream_in(low_area);
	const char *changed;
	static struct made m;

	start(&m, low_area);
	clear_rings(low_area);
	for (unsigned n = 0; n < fields; n++)
		add_op(&m, (struct arch_op){.kind = ARCH_OP_LOAD,
					    .size = 8,
					    .result = (uint16_t)(VALUE + n),
					    .number = address_of(data) + 8 * n});
	add_op(&m, (struct arch_op){.kind = ARCH_OP_RING_OPEN,
				    .result = 3,
				    .second = 4,
				    .number = 5,
				    .immediate = (int32_t)(FIRST + FIELD * fields)});
	add_op(&m,
	       (struct arch_op){.kind = ARCH_OP_IF, .condition = ARCH_TEST_EQ, .a = 3, .label = 1});
	for (unsigned n = 0; n < fields; n++)
		add_op(&m, (struct arch_op){.kind = ARCH_OP_RING_BYTES,
					    .a = 3,
					    .b = (uint16_t)(VALUE + n),
					    .number = FIRST + FIELD * n,
					    .immediate = SIZE});
	add_op(&m, (struct arch_op){.kind = ARCH_OP_RING_CLOSE,
				    .a = 4,
				    .immediate = (int32_t)(FIRST + FIELD * fields)});
	add_op(&m, (struct arch_op){.kind = ARCH_OP_LABEL, .label = 1});
	emit_program(&m);
	check_trace(&m);
	random_state();
	for (unsigned n = 0; n < fields; n++) {
		const uint64_t at = address + SIZE * n;

		memcpy(data + 8 * n, &at, sizeof(at));
	}
	changed = run_program(&m);
	if (changed)
		fail_msg("%u fields: %s", fields, changed);
	for (unsigned n = 0; n < ALL_RINGS; n++)
		if (any_ring(&s, n)->head)
			r = (const void *)any_ring(&s, n)->records;
	assert_non_null(r);
	for (unsigned n = 0; n < fields; n++) {
		uint64_t length;

		memcpy(&length, r->fields + FIELD * n, sizeof(length));
		assert_int_equal(length, SIZE);
		assert_memory_equal(r->fields + FIELD * n + sizeof(length),
				    (const void *)(uintptr_t)(address + SIZE * n), SIZE);
	}
}

/* Bytes of an event whose addresses have to be kept on the stack meanwhile. */
static void test_many_fields(void **state)
{
	(void)state;
	run_init();
	for (unsigned fields = 1; fields <= 16; fields++)
		check_fields(fields);
}

/*
 * Nobody can hold a ring without an id, which is what its lock would say: musl takes it from a thread
 * that ends while that goes on for a few calls.
 */
static void test_no_id(void **state)
{
	static _Thread_local uint32_t id;
	static struct made m;
	struct arch_stream s = stream_in(low_area);
	uint64_t dropped = 0;

	(void)state;
	run_init();
	for (unsigned round = 0; round < 20; round++) {
		clear_rings(low_area);
		start(&m, low_area);
		m.env.pairing.tid_offset =
			(int32_t)((intptr_t)&id - (intptr_t)__builtin_thread_pointer());
		if (round & 1)
			m.env.counter.rseq_offset = 0;
		add_event(&m, 7, 2);
		emit_program(&m);
		id = 0;
		run_it(&m);
		dropped = 0;
		for (unsigned n = 0; n < ALL_RINGS; n++) {
			assert_int_equal(any_ring(&s, n)->head, 0);
			assert_int_equal(any_ring(&s, n)->lock, 0);
			dropped += any_ring(&s, n)->dropped;
		}
		assert_int_equal(dropped, 1);
		id = 4711;
		run_it(&m);
		dropped = 0;
		for (unsigned n = 0; n < ALL_RINGS; n++)
			dropped += any_ring(&s, n)->head;
		assert_int_equal(dropped, 40);
	}
}

/*
 * A forked child that returns from the handler in which it was made goes on with its parent's record:
 * the ring is not its own, and may be anybody's by then.
 */
static void test_not_held(void **state)
{
	static const uint64_t holders[] = {0, 4711};
	static struct made m;
	struct arch_stream s = stream_in(low_area);

	(void)state;
	run_init();
	for (unsigned round = 0; round < 20; round++) {
		const int32_t size = sizeof(struct arch_record) + 8;
		const uint64_t holder = holders[round & 1];
		unsigned held = 0;

		clear_rings(low_area);
		start(&m, low_area);
		add_op(&m, (struct arch_op){.kind = ARCH_OP_RING_OPEN,
					    .result = 1,
					    .second = 2,
					    .number = 3,
					    .immediate = size});
		add_op(&m, (struct arch_op){.kind = ARCH_OP_STORE,
					    .size = 8,
					    .a = 2,
					    .number = offsetof(struct arch_ring, lock),
					    .immediate = (int32_t)holder});
		add_op(&m, (struct arch_op){.kind = ARCH_OP_RING_CLOSE, .a = 2, .immediate = size});
		next_value = 3;
		emit_program(&m);
		run_it(&m);
		for (unsigned n = 0; n < ALL_RINGS; n++) {
			assert_int_equal(any_ring(&s, n)->head, 0);
			held += any_ring(&s, n)->lock == holder && any_ring(&s, n)->opened;
		}
		assert_int_equal(held, 1);
	}
}

/* ----------------------------------------------------------------- refusals */

static void test_refused(void **state)
{
	static const int32_t sizes[] = {0, 16, 28, -24, 8, ARCH_RECORD_MAX + 8, RING_BYTES / 4 + 8};

	(void)state;
	for (unsigned n = 0; n < 4 + sizeof(sizes) / sizeof(*sizes); n++) {
		static struct made m;
		struct arch_buf hot = {.bytes = code, .size = COLD_AT, .pc = address_of(code)};
		struct arch_buf cold = {.bytes = code + COLD_AT,
					.size = EXIT_AT - COLD_AT,
					.pc = address_of(code) + COLD_AT};

		start(&m, low_area);
		add_event(&m, 1, 2);
		if (n == 0)
			m.env.stream.rings = 0;
		else if (n == 1)
			m.env.pairing.tid_offset = 0;
		else if (n == 2)
			m.ops[1].number = 0;
		else if (n == 3)
			m.env.undo = true;
		else
			m.ops[1].immediate = sizes[n - 4];
		arch_program_needs(&m.p, &m.env, &m.frame);
		arch_frame_open(&hot, &m.frame);
		arch_emit_program(&m.p, &m.env, &m.frame, &hot, &cold);
		assert_int_equal(hot.status, ARCH_REFUSED);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_writer), cmocka_unit_test(test_two_events),
		cmocka_unit_test(test_taken),	   cmocka_unit_test(test_rubbish),
		cmocka_unit_test(test_bytes),	   cmocka_unit_test(test_many_fields),
		cmocka_unit_test(test_no_id),	   cmocka_unit_test(test_not_held),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
