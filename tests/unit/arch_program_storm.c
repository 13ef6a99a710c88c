/* SPDX-License-Identifier: MIT */
/*
 * arch_program_storm.c - events of many threads, moved from CPU to CPU and interrupted at any
 * instruction by handlers that write events, too, with a reader beside them:
 * what is kept and what was dropped is what was written. And what an event takes.
 */
#include "tests/unit/arch_program_rings.h"

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

/* ------------------------------------------------------ CPUs that are not there */

enum { SPREAD_THREADS = 200 };

static void *write_one(void *arg)
{
	call_code(0, 1);
	return arg;
}

/* Threads whose CPU is not known have the blocks that somebody has paid for, and no others. */
static void test_spread(void **state)
{
	static const unsigned spreads[] = {0, 1, 2, 5, CPUS};
	static struct made m;

	(void)state;
	for (size_t i = 0; i < sizeof(spreads) / sizeof(spreads[0]); i++) {
		struct arch_stream s = stream_in(low_area);
		unsigned used = 0;

		start(&m, low_area);
		m.frame.live = SET_ALL;
		m.frame.red_zone = false;
		m.env.counter.rseq_offset = 0;
		m.env.stream.spread = s.spread = spreads[i];
		add_event(&m, 3, 1);
		emit_program_at(&m, 0, address_of(code) + EXIT_AT);
		code[EXIT_AT] = 0xc3;
		clear_rings(low_area);
		for (unsigned n = 0; n < SPREAD_THREADS; n++) {
			pthread_t thread;

			assert_int_equal(pthread_create(&thread, NULL, write_one, NULL), 0);
			assert_int_equal(pthread_join(thread, NULL), 0);
		}
		for (unsigned block = 0; block <= CPUS; block++) {
			const bool has = ring_at(&s, block, 0)->head;

			if (has && block >= s.spread && block != CPUS)
				fail_msg("spread %u: block %u is used", s.spread, block);
			used += has && block < s.spread;
		}
		assert_int_equal(!used, !s.spread);
		assert_true(used == s.spread || s.spread > 5);
		assert_int_equal(!s.spread, ring_at(&s, CPUS, 0)->head != 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_storm),
		cmocka_unit_test(test_speed),
		cmocka_unit_test(test_spread),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
