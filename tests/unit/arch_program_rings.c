/* SPDX-License-Identifier: MIT */
/*
 * arch_program_rings.c - events: what emitted code writes into rings, run on random
 * states and judged by a model of a ring; rings that are full, taken, or filled
 * with rubbish; many threads, moved from CPU to CPU and interrupted at any
 * instruction by handlers that write events, too, with a reader beside them.
 * Nothing may be lost without being counted, and nothing written elsewhere.
 */
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>

#include "tests/unit/arch_program.h"

enum {
	RING_SHIFT = 12,
	RING_BYTES = 1 << RING_SHIFT,
	BLOCK_SHIFT = 14,
	RING_BLOCKS = (CPUS + 1) << BLOCK_SHIFT,
	RING_GUARD = 256, /* in front of each block's rings, and behind them */
	PAGE = 4096,
	SECOND_AT = 4096, /* of a second program in code */
};

static uint8_t *low_area, *far_area;
static uint8_t *pages; /* readable, then one that is not there */

static int setup(void **state)
{
	(void)state;
	find_tid();
	low_area = map_low(RING_BLOCKS, PROT_READ | PROT_WRITE);
	far_area =
		mmap(NULL, RING_BLOCKS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!low_area || far_area == MAP_FAILED || pages == MAP_FAILED ||
	    munmap(pages + PAGE, PAGE) != 0)
		return -1;
	run_fill(pages, PAGE);
	return map_all();
}

/* ------------------------------------------------------------------- rings */

static struct arch_stream stream_in(const uint8_t *area)
{
	return (struct arch_stream){.rings = address_of(area) + RING_GUARD,
				    .cpus = CPUS,
				    .cpu_shift = BLOCK_SHIFT,
				    .shift = RING_SHIFT};
}

static struct arch_ring *ring_at(const struct arch_stream *s, unsigned block, unsigned n)
{
	return (struct arch_ring *)(uintptr_t)arch_ring_at(s, block, n);
}

static struct arch_ring *any_ring(const struct arch_stream *s, unsigned number)
{
	return ring_at(s, number / ARCH_RINGS_EACH, number % ARCH_RINGS_EACH);
}

enum { ALL_RINGS = ARCH_RINGS_EACH * (CPUS + 1) };

static void clear_rings(uint8_t *area)
{
	const struct arch_stream s = stream_in(area);

	memset(area, 0x5a, RING_BLOCKS);
	for (unsigned n = 0; n < ALL_RINGS; n++)
		memset(any_ring(&s, n), 0, ARCH_RING_HEADER);
}

/* What lies around the rings is as it was. */
static void check_guards(const uint8_t *area)
{
	const size_t used = RING_GUARD + ARCH_RINGS_EACH * (ARCH_RING_HEADER + RING_BYTES);

	for (unsigned block = 0; block <= CPUS; block++) {
		const uint8_t *from = area + ((size_t)block << BLOCK_SHIFT);

		for (size_t at = 0; at < 1u << BLOCK_SHIFT; at++)
			if ((at < RING_GUARD || at >= used) && from[at] != 0x5a)
				fail_msg("block %u is changed at %zu", block, at);
	}
}

/* -------------------------------------------------------------- programs */

static unsigned next_value;

/* An event of `words` words: the first argument, then what it is times 2, 3 ... */
static void add_event(struct made *m, uint32_t id, unsigned words)
{
	const uint16_t record = (uint16_t)next_value++, ring = (uint16_t)next_value++;
	const uint16_t value = (uint16_t)next_value++;
	const int32_t size = (int32_t)(sizeof(struct arch_record) + 8 * words);

	add_op(m, (struct arch_op){.kind = ARCH_OP_ARGUMENT, .result = value, .number = 0});
	add_op(m, (struct arch_op){.kind = ARCH_OP_RING_OPEN,
				   .result = record,
				   .second = ring,
				   .number = id,
				   .immediate = size});
	add_op(m, (struct arch_op){.kind = ARCH_OP_IF,
				   .condition = ARCH_TEST_EQ,
				   .a = record,
				   .label = (uint16_t)id});
	for (unsigned n = 0; n < words; n++) {
		const uint16_t times = (uint16_t)next_value++;

		add_op(m, (struct arch_op){.kind = ARCH_OP_MUL,
					   .result = times,
					   .a = value,
					   .immediate = (int32_t)n + 1});
		add_op(m, (struct arch_op){.kind = ARCH_OP_STORE,
					   .size = 8,
					   .a = record,
					   .b = times,
					   .number = offsetof(struct arch_record, fields) + 8 * n});
	}
	add_op(m, (struct arch_op){.kind = ARCH_OP_RING_CLOSE, .a = ring, .immediate = size});
	add_op(m, (struct arch_op){.kind = ARCH_OP_LABEL, .label = (uint16_t)id});
}

static arch_regset random_live(void)
{
	switch (run_random() % 3) {
	case 0:
		return SET_ALL;
	case 1:
		return SET_ALL & ~SET_FLAGS;
	default:
		return SET(RSP) | (run_random() & SET_ALL);
	}
}

static void start(struct made *m, const uint8_t *area)
{
	begin_program(m, ARCH_COUNT_LOCKED);
	m->frame.live = random_live() | SET(RDI);
	m->frame.red_zone = run_random() & 1;
	m->env.pairing.tid_offset = tid_offset;
	m->env.stream = stream_in(area);
	next_value = 1;
}

static void run_it(const struct made *m)
{
	const char *what;

	random_state();
	what = run_program(m);
	if (what) {
		show_program(m);
		fail_msg("%s is not kept", what);
	}
}

/* ---------------------------------------------------------------- one writer */

/* What a ring should have: whose events, from which position on. */
struct model {
	uint64_t head, tail, dropped;
	uint64_t last; /* ticks */
};

static void expect_record(const struct arch_ring *ring, struct model *model, uint32_t id,
			  unsigned words)
{
	const uint32_t size = (uint32_t)(sizeof(struct arch_record) + 8 * words);
	const uint64_t offset = model->head % RING_BYTES, left = RING_BYTES - offset;
	const struct arch_record *r = (const void *)(ring->records + offset);
	const uint64_t skip = left < size ? left : 0;

	if (model->head + skip + size - model->tail > RING_BYTES) {
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

static void stay_here(unsigned *cpu)
{
	cpu_set_t set;

	*cpu = (unsigned)sched_getcpu();
	CPU_ZERO(&set);
	CPU_SET(*cpu, &set);
	assert_int_equal(sched_setaffinity(0, sizeof(set), &set), 0);
}

static void go_anywhere(void)
{
	cpu_set_t set;

	memset(&set, 0xff, sizeof(set));
	sched_setaffinity(0, sizeof(set), &set);
}

static void write_many(uint8_t *area, bool knows_cpu)
{
	static struct made m;
	struct arch_stream s = stream_in(area);
	struct model model = {0};
	struct arch_ring *ring;
	unsigned cpu;

	stay_here(&cpu);
	if (!knows_cpu || !__rseq_size)
		cpu = arch_ring_block(&s, (uint32_t)syscall(SYS_gettid));
	ring = ring_at(&s, cpu, 0);
	clear_rings(area);
	for (unsigned round = 0; round < 800; round++) {
		const unsigned words = (unsigned)(run_random() % 90), id = 1 + round % 50;

		start(&m, area);
		if (!knows_cpu)
			m.env.counter.rseq_offset = 0;
		add_event(&m, id, words);
		emit_program(&m);
		check_trace(&m);
		run_it(&m);
		expect_record(ring, &model, id, words);
		assert_int_equal(ring->head, model.head);
		assert_int_equal(ring->lock, 0);
		assert_int_equal(ring->dropped, model.dropped);
		if (run_random() % 12 == 0)
			ring->tail = model.tail = model.head - run_random() % 3 * 8;
		if (ring->tail > model.head)
			ring->tail = model.tail = model.head;
	}
	assert_true(model.dropped > 10 && model.head > 20 * RING_BYTES);
	check_guards(area);
	for (unsigned n = 0; n < ALL_RINGS; n++)
		assert_true(any_ring(&s, n) == ring || !any_ring(&s, n)->head);
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
	struct arch_ring *tries[4];
	unsigned cpu;

	(void)state;
	run_init();
	stay_here(&cpu);
	cpu = __rseq_size ? cpu : arch_ring_block(&s, (uint32_t)syscall(SYS_gettid));
	for (unsigned n = 0; n < 4; n++)
		tries[n] = ring_at(&s, n < 2 ? cpu : CPUS, n % 2);
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

/* Whatever head and tail are, nothing outside is written, and it ends. */
static void test_rubbish(void **state)
{
	static struct made m;
	struct arch_stream s = stream_in(low_area);
	unsigned cpu;

	(void)state;
	run_init();
	stay_here(&cpu);
	cpu = __rseq_size ? cpu : arch_ring_block(&s, (uint32_t)syscall(SYS_gettid));
	for (unsigned round = 0; round < 300; round++) {
		struct arch_ring *ring = ring_at(&s, cpu, 0);

		start(&m, low_area);
		add_event(&m, 9, (unsigned)(run_random() % 100));
		emit_program(&m);
		clear_rings(low_area);
		for (unsigned times = 0; times < 20; times++) {
			ring->head = run_random() >> (run_random() & 63);
			ring->tail = run_random() & 1 ? ring->head - run_random() % RING_BYTES
						      : run_random() >> (run_random() & 63);
			run_it(&m);
			assert_int_equal(ring->lock, 0);
		}
		check_guards(low_area);
		for (unsigned n = 0; n < ALL_RINGS; n++)
			assert_true(any_ring(&s, n) == ring || !any_ring(&s, n)->head);
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

/* ------------------------------------------------------------------- storms */

enum { THREADS = 6, SECONDS = 1, PATIENCE = 10, ENOUGH = 50, NUMBERS = 1 << 22 };

static bool stop_all;
static unsigned long interrupted;
static __thread uint64_t own_calls;
static __thread bool in_storm;
static uint64_t handler_calls;

static void call_code(size_t at, uint64_t a)
{
	const uintptr_t entry = (uintptr_t)code + at;

	__asm__ volatile("lea -128(%%rsp),%%rsp\n\tcall *%1\n\tlea 128(%%rsp),%%rsp"
			 : "+D"(a)
			 : "r"(entry)
			 : "rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
}

static void on_signal(int signal)
{
	(void)signal;
	if (!in_storm)
		return;
	__atomic_add_fetch(&interrupted, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&handler_calls, 1, __ATOMIC_RELAXED);
	call_code(SECOND_AT, 0);
}

static void *write_events(void *arg)
{
	const uint64_t who = (uintptr_t)arg;

	own_calls = 0;
	in_storm = true;
	while (!__atomic_load_n(&stop_all, __ATOMIC_RELAXED))
		call_code(0, who << 32 | own_calls++);
	in_storm = false;
	return (void *)(uintptr_t)own_calls;
}

struct seen {
	uint64_t kept, from_handlers, last[THREADS];
	uint64_t tails[ALL_RINGS], ticks[ALL_RINGS];
	uint8_t *numbers[THREADS];
};

static void see(struct seen *seen, const struct arch_record *r)
{
	uint64_t word;

	memcpy(&word, r->fields, 8);
	if (r->id == 2) {
		seen->from_handlers++;
		return;
	}
	assert_int_equal(r->id, 1);
	assert_int_equal(r->size, 40);
	assert_true(word >> 32 < THREADS);
	seen->kept++;
	/* Each number once, in whatever ring. */
	if ((uint32_t)word < NUMBERS) {
		assert_int_equal(seen->numbers[word >> 32][(uint32_t)word], 0);
		seen->numbers[word >> 32][(uint32_t)word] = 1;
	}
}

static void read_rings(const struct arch_stream *s, struct seen *seen)
{
	for (unsigned n = 0; n < ALL_RINGS; n++) {
		struct arch_ring *ring = any_ring(s, n);
		const uint64_t head = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE);

		assert_true(head - seen->tails[n] <= RING_BYTES);
		while (seen->tails[n] < head) {
			const struct arch_record *r =
				(const void *)(ring->records + seen->tails[n] % RING_BYTES);

			assert_true(r->size >= 8 && r->size % 8 == 0);
			if (r->id) {
				assert_true(r->ticks >= seen->ticks[n]);
				seen->ticks[n] = r->ticks;
				see(seen, r);
			}
			seen->tails[n] += r->size;
		}
		__atomic_store_n(&ring->tail, seen->tails[n], __ATOMIC_RELEASE);
	}
}

static uint64_t storm(const struct arch_stream *s, struct seen *seen)
{
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t threads[THREADS];
	uint64_t calls = 0;
	time_t end;

	interrupted = handler_calls = 0;
	__atomic_store_n(&stop_all, false, __ATOMIC_RELAXED);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, write_events, (void *)i), 0);
	end = time(NULL) + SECONDS;
	for (unsigned round = 0;
	     time(NULL) < end || (__atomic_load_n(&interrupted, __ATOMIC_RELAXED) <= ENOUGH &&
				  time(NULL) < end + PATIENCE);
	     round++) {
		for (unsigned i = 0; i < THREADS; i++) {
			cpu_set_t set;

			CPU_ZERO(&set);
			CPU_SET((round + i) % (unsigned)cpus, &set);
			pthread_setaffinity_np(threads[i], sizeof(set), &set);
			pthread_kill(threads[i], SIGUSR2);
		}
		for (unsigned times = 0; times < 20; times++)
			read_rings(s, seen);
	}
	__atomic_store_n(&stop_all, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < THREADS; i++) {
		void *result;

		pthread_join(threads[i], &result);
		calls += (uintptr_t)result;
	}
	read_rings(s, seen);
	return calls + handler_calls;
}

static void check_storm(uint8_t *area, bool knows_cpu)
{
	const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	static struct made first, second;
	static struct seen seen;
	struct arch_stream s = stream_in(area);
	uint64_t calls, dropped = 0;

	sigaction(SIGUSR2, &action, NULL);
	memset(&seen, 0, sizeof(seen));
	for (unsigned i = 0; i < THREADS; i++) {
		seen.numbers[i] = calloc(NUMBERS, 1);
		assert_non_null(seen.numbers[i]);
	}
	clear_rings(area);
	start(&first, area);
	first.frame.live = SET_ALL;
	first.frame.red_zone = false;
	add_event(&first, 1, 2);
	start(&second, area);
	second.frame.live = SET_ALL;
	second.frame.red_zone = false;
	add_event(&second, 2, 20);
	if (!knows_cpu)
		first.env.counter.rseq_offset = second.env.counter.rseq_offset = 0;
	emit_program_at(&first, 0, address_of(code) + EXIT_AT);
	emit_program_at(&second, SECOND_AT, address_of(code) + EXIT_AT);
	code[EXIT_AT] = 0xc3;
	calls = storm(&s, &seen);
	for (unsigned n = 0; n < ALL_RINGS; n++) {
		dropped += any_ring(&s, n)->dropped;
		assert_int_equal(any_ring(&s, n)->lock, 0);
	}
	assert_int_equal(seen.kept + seen.from_handlers + dropped, calls);
	assert_true(seen.kept > 100 && seen.from_handlers > 0);
	check_guards(area);
	for (unsigned i = 0; i < THREADS; i++)
		free(seen.numbers[i]);
	print_message("%llu kept, %llu of handlers, %llu dropped, %lu signals\n",
		      (unsigned long long)seen.kept, (unsigned long long)seen.from_handlers,
		      (unsigned long long)dropped, interrupted);
}

static void test_storm(void **state)
{
	(void)state;
	check_storm(low_area, true);
	check_storm(far_area, false);
}

/* For people: what an event takes where there is room. */
static void test_speed(void **state)
{
	enum { ROUNDS = 20, CALLS = 64 };
	static struct made m;
	struct arch_stream s = stream_in(low_area);
	uint64_t least = UINT64_MAX, bare = UINT64_MAX;
	unsigned cpu;

	(void)state;
	stay_here(&cpu);
	for (unsigned words = 0; words < 8; words += 4) {
		clear_rings(low_area);
		start(&m, low_area);
		m.frame.live = SET(RSP) | SET(RDI);
		m.frame.red_zone = false;
		add_event(&m, 1, words);
		arch_program_optimise(&m.p);
		emit_program(&m);
		code[EXIT_AT] = code[EXIT_AT - 1] = 0xc3;
		least = bare = UINT64_MAX;
		for (unsigned round = 0; round < ROUNDS; round++) {
			uint64_t before = arch_clock_ticks(), took;

			for (unsigned n = 0; n < CALLS; n++)
				call_code(0, n);
			took = arch_clock_ticks() - before;
			least = took < least ? took : least;
			before = arch_clock_ticks();
			for (unsigned n = 0; n < CALLS; n++)
				call_code(EXIT_AT, n);
			took = arch_clock_ticks() - before;
			bare = took < bare ? took : bare;
			for (unsigned n = 0; n < ALL_RINGS; n++)
				any_ring(&s, n)->tail = any_ring(&s, n)->head;
		}
		print_message("%u words: %llu ticks an event\n", words,
			      (unsigned long long)((least - bare) / CALLS));
	}
	go_anywhere();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_writer), cmocka_unit_test(test_two_events),
		cmocka_unit_test(test_taken),	   cmocka_unit_test(test_rubbish),
		cmocka_unit_test(test_bytes),	   cmocka_unit_test(test_refused),
		cmocka_unit_test(test_storm),	   cmocka_unit_test(test_speed),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
