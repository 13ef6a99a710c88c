/* SPDX-License-Identifier: MIT */
/*
 * arch_program_threads.c - programs that several threads run at once, moved
 * from CPU to CPU and interrupted: additions to counters by value and by index,
 * atomic words, tables, per-thread records and the thread's clock. Nothing may
 * get lost.
 */
#include <linux/rseq.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>

#include "tests/slower.h"
#include "tests/unit/arch_program.h"

enum {
	THREADS = 6,
	SECONDS = 1,
	ENOUGH = 50, /* signals */
	PATIENCE = 10,
	TABLE_SHIFT = 8,
	KEYS = 160,
	WORDS = 4, /* of data: sum, least, largest, and what a run found */
	TABLE_AT = 1024,
};

static bool stop_all;
static unsigned long interrupted;

static int setup(void **state)
{
	(void)state;
	find_tid();
	return map_all();
}

/* xorshift64 of a thread's own. */
static uint64_t next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/*
 * Calls the code, which ends in a ret, with arguments a and b and a place for
 * its results in c. All that the psABI lets a callee change is said to change.
 */
static void call_code(size_t at, uint64_t a, uint64_t b, void *c)
{
	const uintptr_t entry = (uintptr_t)code + at;

	__asm__ volatile("lea -128(%%rsp),%%rsp\n\tcall *%3\n\tlea 128(%%rsp),%%rsp"
			 : "+D"(a), "+S"(b), "+d"(c)
			 : "r"(entry)
			 : "rax", "rcx", "r8", "r9", "r10", "r11", "memory", "cc");
}

static void on_signal(int signal)
{
	(void)signal;
	__atomic_add_fetch(&interrupted, 1, __ATOMIC_RELAXED);
}

/* Runs `work` in all threads, moves and interrupts them, and ends. */
static void storm(void *(*work)(void *), void *arguments, size_t argument_size)
{
	const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t threads[THREADS];
	time_t end;

	sigaction(SIGUSR2, &action, NULL);
	interrupted = 0;
	__atomic_store_n(&stop_all, false, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work,
						(uint8_t *)arguments + i * argument_size),
				 0);
	end = time(NULL) + SECONDS;
	/* Longer where so much else runs that signals hardly arrive. */
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
		usleep(300);
	}
	__atomic_store_n(&stop_all, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_true(interrupted > ENOUGH);
}

static void put_ret(void)
{
	code[EXIT_AT] = 0xc3;
}

/* -------------------------------------------------------------- counters */

struct adder {
	uint64_t seed, runs;
	uint64_t sums[COUNTERS];
	uint64_t total;
	int64_t least, largest;
};

static void *add(void *arg)
{
	struct adder *a = arg;

	while (!__atomic_load_n(&stop_all, __ATOMIC_RELAXED)) {
		const uint64_t value = next(&a->seed) >> 20, index = a->seed % COUNTERS;

		call_code(0, value, index, NULL);
		a->sums[index] += value;
		a->total += value;
		a->least = (int64_t)value < a->least ? (int64_t)value : a->least;
		a->largest = (int64_t)value > a->largest ? (int64_t)value : a->largest;
		a->runs++;
	}
	return NULL;
}

static void write_adder(struct made *m)
{
	add_op(m, (struct arch_op){.kind = ARCH_OP_ARGUMENT, .result = 1, .number = 0});
	add_op(m, (struct arch_op){.kind = ARCH_OP_ARGUMENT, .result = 2, .number = 1});
	add_op(m, (struct arch_op){.kind = ARCH_OP_ADD, .result = 3, .a = 2, .b = 2});
	add_op(m, (struct arch_op){.kind = ARCH_OP_ADD, .result = 3, .a = 3, .b = 3});
	add_op(m, (struct arch_op){.kind = ARCH_OP_ADD, .result = 3, .a = 3, .b = 3});
	add_op(m, (struct arch_op){.kind = ARCH_OP_COUNT, .a = 3, .b = 1, .number = counter_at(0)});
}

static void check_adders(struct made *m, bool atomics)
{
	struct adder adders[THREADS] = {0};
	uint64_t runs = 0, total = 0;
	int64_t words[3] = {0, INT64_MAX, INT64_MIN}, least = INT64_MAX, largest = INT64_MIN;

	clear_counters();
	memcpy(data, words, sizeof(words));
	emit_program(m);
	put_ret();
	for (unsigned i = 0; i < THREADS; i++)
		adders[i] = (struct adder){
			.seed = run_random(), .least = INT64_MAX, .largest = INT64_MIN};
	storm(add, adders, sizeof(adders[0]));
	for (unsigned i = 0; i < THREADS; i++) {
		runs += adders[i].runs;
		total += adders[i].total;
		least = adders[i].least < least ? adders[i].least : least;
		largest = adders[i].largest > largest ? adders[i].largest : largest;
	}
	for (unsigned n = 0; n < COUNTERS; n++) {
		uint64_t sum = 0;

		for (unsigned i = 0; i < THREADS; i++)
			sum += adders[i].sums[n];
		assert_int_equal(counted(n), sum);
	}
	memcpy(words, data, sizeof(words));
	if (atomics) {
		assert_int_equal((uint64_t)words[0], total);
		assert_int_equal(words[1], least);
		assert_int_equal(words[2], largest);
	}
	print_message("%llu runs, %lu signals\n", (unsigned long long)runs, interrupted);
}

static void test_count_values(void **state)
{
	static const arch_regset lives[] = {SET_ALL, SET_ALL & ~SET_FLAGS};
	static struct made m;

	(void)state;
	if (!__rseq_size) {
		print_message("skipped: this process has no rseq registration\n");
		skip();
	}
	for (unsigned i = 0; i < 2; i++) { /* the sequence that keeps the flags, and the other */
		begin_program(&m, ARCH_COUNT_PER_CPU);
		m.frame.live = lives[i];
		write_adder(&m);
		check_adders(&m, false);
		assert_true(!(m.frame.needs & ARCH_NEED_FLAGS) == (i == 0));
	}
}

static void test_atomics(void **state)
{
	static struct made m;

	(void)state;
	begin_program(&m, ARCH_COUNT_LOCKED);
	m.frame.live = SET_ALL;
	write_adder(&m);
	add_op(&m,
	       (struct arch_op){.kind = ARCH_OP_ATOMIC_ADD, .b = 1, .number = address_of(data)});
	add_op(&m, (struct arch_op){
			   .kind = ARCH_OP_ATOMIC_MIN, .b = 1, .number = address_of(data) + 8});
	add_op(&m, (struct arch_op){
			   .kind = ARCH_OP_ATOMIC_MAX, .b = 1, .number = address_of(data) + 16});
	check_adders(&m, true);
}

/* ---------------------------------------------------------------- tables */

struct finder {
	uint64_t seed, runs, wrong;
	uint64_t places[KEYS]; /* what the thread was told, by key */
};

static uint64_t key_of(unsigned n)
{
	return n * 0x1234567ull * 4096;
}

static struct arch_table *table(void)
{
	return (struct arch_table *)(void *)(data + TABLE_AT);
}

static void *find(void *arg)
{
	struct finder *f = arg;

	while (!__atomic_load_n(&stop_all, __ATOMIC_RELAXED)) {
		const unsigned n = (unsigned)(next(&f->seed) >> 32) % KEYS;
		uint64_t place = UINT64_MAX;

		call_code(0, key_of(n), 0, &place);
		if (!place || place > 1u << TABLE_SHIFT ||
		    (f->places[n] && f->places[n] != place) ||
		    table()->keys[place - 1] != key_of(n) + 1)
			f->wrong++;
		f->places[n] = place;
		f->runs++;
	}
	return NULL;
}

static void write_finder(struct made *m, unsigned shift)
{
	add_op(m, (struct arch_op){.kind = ARCH_OP_ARGUMENT, .result = 1, .number = 0});
	add_op(m, (struct arch_op){.kind = ARCH_OP_ARGUMENT, .result = 2, .number = 2});
	add_op(m, (struct arch_op){.kind = ARCH_OP_FIND,
				   .result = 3,
				   .a = 1,
				   .number = address_of(data) + TABLE_AT,
				   .immediate = (int32_t)shift});
	add_op(m, (struct arch_op){.kind = ARCH_OP_STORE, .size = 8, .a = 2, .b = 3});
}

static void test_find(void **state)
{
	struct finder finders[THREADS];
	static struct made m;

	(void)state;
	for (unsigned round = 0; round < 2; round++) {
		memset(data, 0, DATA_SIZE);
		memset(finders, 0, sizeof(finders));
		begin_program(&m, ARCH_COUNT_LOCKED);
		m.frame.live = SET_ALL;
		write_finder(&m, TABLE_SHIFT);
		emit_program(&m);
		put_ret();
		for (unsigned i = 0; i < THREADS; i++)
			finders[i].seed = run_random();
		storm(find, finders, sizeof(finders[0]));
		for (unsigned i = 0; i < THREADS; i++) {
			assert_int_equal(finders[i].wrong, 0);
			for (unsigned n = 0; n < KEYS; n++)
				assert_true(finders[i].places[n] == finders[0].places[n]);
		}
		for (unsigned a = 0, used = 0; a < 1u << TABLE_SHIFT; a++) {
			used += table()->keys[a] != 0;
			assert_true(used <= KEYS);
		}
		assert_int_equal(table()->full, 0);
	}
}

/* 2^shift keys at most, each of which looks at ARCH_TABLE_PROBE places. */
static void test_full_table(void **state)
{
	static struct made m;

	(void)state;
	for (unsigned shift = 1; shift < 6; shift++) {
		uint64_t found = 0, none = 0, place;

		memset(data, 0, DATA_SIZE);
		begin_program(&m, ARCH_COUNT_LOCKED);
		m.frame.live = SET_ALL;
		write_finder(&m, shift);
		emit_program(&m);
		put_ret();
		for (unsigned n = 0; n < 100; n++) {
			place = UINT64_MAX;
			call_code(0, key_of(n), 0, &place);
			found += place != 0;
			none += place == 0;
			assert_true(!place || table()->keys[place - 1] == key_of(n) + 1);
		}
		assert_true(found <= 1u << shift && found >= (1u << shift) / 2);
		assert_int_equal(table()->full, none);
		place = 1;
		call_code(0, UINT64_MAX, 0, &place); /* has no place, ever */
		assert_int_equal(place, 0);
		assert_int_equal(table()->full, none + 1);
		/* Nothing lies behind the last place. */
		for (unsigned n = 0; n < 32; n++)
			assert_int_equal(table()->keys[(1u << shift) + n], 0);
	}
}

/* --------------------------------------------------------- records, clocks */

enum { FUNCTION = 5 };

/* What one call of an entry, then of an exit, found. */
struct seen {
	uint64_t record, entry, left, start;
};

static void write_result(struct made *m, unsigned v, size_t offset)
{
	add_op(m, (struct arch_op){.kind = ARCH_OP_STORE,
				   .size = 8,
				   .a = 10,
				   .b = (uint16_t)v,
				   .number = offset});
}

static void write_event(struct made *m, bool leave, bool with_record)
{
	add_op(m, (struct arch_op){.kind = ARCH_OP_ARGUMENT, .result = 10, .number = 2});
	add_op(m, (struct arch_op){.kind = ARCH_OP_RECORD, .result = 1});
	add_op(m, (struct arch_op){.kind = leave ? ARCH_OP_LEAVE : ARCH_OP_ENTER,
				   .result = 2,
				   .second = leave ? 3 : 0,
				   .a = with_record,
				   .number = FUNCTION});
	write_result(m, 1, offsetof(struct seen, record));
	write_result(m, 2, leave ? offsetof(struct seen, left) : offsetof(struct seen, entry));
	if (!leave)
		return;
	write_result(m, 3, offsetof(struct seen, start));
	add_op(m, (struct arch_op){.kind = ARCH_OP_LEFT, .a = with_record, .number = FUNCTION});
}

/* The code of two programs, one behind the other. */
static void emit_events(struct made *m, bool with_record, arch_regset live)
{
	for (unsigned leave = 0; leave < 2; leave++) {
		begin_program(m, ARCH_COUNT_LOCKED);
		m->frame.live = live;
		m->frame.red_zone = true;
		make_area(m);
		write_event(m, leave, with_record);
		emit_program_at(m, 4096 * leave, address_of(code) + EXIT_AT);
	}
	put_ret();
}

static void *pair(void *arg)
{
	struct adder *a = arg;

	while (!__atomic_load_n(&stop_all, __ATOMIC_RELAXED)) {
		struct seen seen = {0};
		const uint64_t start = next(&a->seed) | 1;

		call_code(0, 0, 0, &seen);
		if (!seen.record || !seen.entry)
			a->total++;
		else
			((struct pair_entry *)(uintptr_t)seen.entry)->start = start;
		seen.record = 0;
		call_code(4096, 0, 0, &seen);
		a->total += !seen.record || seen.left != 1 || seen.start != start;
		call_code(4096, 0, 0, &seen); /* once more: there is no entry */
		a->total += seen.left != 0;
		a->runs++;
	}
	return NULL;
}

static void test_events(void **state)
{
	static const arch_regset lives[] = {SET_ALL, SET_ALL & ~(SET(RAX) | SET(R11) | SET_FLAGS)};
	static struct made m;

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct adder adders[THREADS] = {0};
		uint64_t runs = 0;

		emit_events(&m, i & 1, lives[i / 2]);
		for (unsigned n = 0; n < THREADS; n++)
			adders[n].seed = run_random();
		storm(pair, adders, sizeof(adders[0]));
		for (unsigned n = 0; n < THREADS; n++) {
			assert_int_equal(adders[n].total, 0);
			runs += adders[n].runs;
		}
		print_message("%llu pairs\n", (unsigned long long)runs);
		assert_int_equal(statistics[0], 0);
	}
}

static uint64_t time_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

struct clock_reader {
	uint64_t seed, reads, less, most, offsets, last_offset;
};

enum { SLACK = 500000, SLEEP_US = 200000 };

/*
 * Between two readings of the true clock, but for what the calibration is wrong
 * by. Ticks go on while the kernel takes interrupts and while the hypervisor runs
 * somebody else, which the kernel may leave out of CPU time: too large by that
 * until the next switch. A switch that was not seen would be wrong by much more,
 * and stay so.
 */
static void *read_clock(void *arg)
{
	struct clock_reader *r = arg;

	while (!__atomic_load_n(&stop_all, __ATOMIC_RELAXED)) {
		uint64_t found[2], before = time_of(CLOCK_THREAD_CPUTIME_ID), after, offset;

		for (unsigned spin = (unsigned)(next(&r->seed) % 2000); spin; spin--)
			__asm__ volatile("");
		call_code(0, 0, 0, found);
		if (r->seed % 64 == 0)
			sched_yield();
		after = time_of(CLOCK_THREAD_CPUTIME_ID);
		r->less += found[0] + SLACK < before;
		if (found[0] > after && found[0] - after > r->most)
			r->most = found[0] - after;
		offset = ((struct pair_record *)(uintptr_t)found[1])->cpu_offset;
		r->offsets += offset != r->last_offset;
		r->last_offset = offset;
		r->reads++;
	}
	return NULL;
}

/* What hypervisor and interrupts have taken, in ns, of all CPUs (/proc/stat, proc(5)). */
static uint64_t taken_away(void)
{
	unsigned long long user, nice, system, idle, wait, irq, softirq, steal;
	FILE *f = fopen("/proc/stat", "r");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice,
				&system, &idle, &wait, &irq, &softirq, &steal),
			 8);
	fclose(f);
	return (irq + softirq + steal) * (1000000000ull / (uint64_t)sysconf(_SC_CLK_TCK));
}

/* Code that reads the thread's clock; what it says, and the record, is where its third argument points. */
static void make_clock(void)
{
	static struct made m;
	uint64_t ticks, ns;

	if (!__rseq_size) {
		print_message("skipped: no rseq registration\n");
		skip();
	}
	ns = time_of(CLOCK_MONOTONIC_RAW);
	ticks = arch_clock_ticks();
	usleep(200000);
	ticks = arch_clock_ticks() - ticks;
	ns = time_of(CLOCK_MONOTONIC_RAW) - ns;
	begin_program(&m, ARCH_COUNT_LOCKED);
	m.frame.live = SET_ALL;
	m.frame.red_zone = true;
	make_area(&m);
	m.env.thread_clock_by_rseq = true;
	m.env.clock_descriptor = address_of(shared);
	m.env.ticks_multiplier = (uint64_t)(((__uint128_t)ns << 64) / ticks);
	assert_true(ticks > ns); /* else there would be a shift */
	add_op(&m, (struct arch_op){.kind = ARCH_OP_ARGUMENT, .result = 10, .number = 2});
	add_op(&m, (struct arch_op){.kind = ARCH_OP_RECORD, .result = 1});
	add_op(&m,
	       (struct arch_op){
		       .kind = ARCH_OP_CLOCK, .result = 2, .a = 1, .number = ARCH_CLOCK_THREAD});
	write_result(&m, 2, 0);
	write_result(&m, 1, 8);
	emit_program(&m);
	put_ret();
}

static void test_thread_clock(void **state)
{
	struct clock_reader readers[THREADS] = {0};
	uint64_t reads = 0, offsets = 0, most = 0, taken;

	(void)state;
	make_clock();
	for (unsigned i = 0; i < THREADS; i++)
		readers[i].seed = run_random();
	taken = taken_away();
	storm(read_clock, readers, sizeof(readers[0]));
	/* What is less than a unit of each CPU is not shown there. */
	taken = taken_away() - taken +
		1000000000ull / (uint64_t)sysconf(_SC_CLK_TCK) *
			(uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
	leave_descriptor();
	for (unsigned i = 0; i < THREADS; i++) {
		reads += readers[i].reads;
		offsets += readers[i].offsets;
		assert_int_equal(readers[i].less, 0);
		most = readers[i].most > most ? readers[i].most : most;
	}
	print_message("%llu ns too large at most, %llu ns were taken away\n",
		      (unsigned long long)most, (unsigned long long)taken);
	assert_true(most <= SLACK + taken);
	print_message("%llu readings, %llu system calls\n", (unsigned long long)reads,
		      (unsigned long long)offsets);
	/* The point of it. */
	assert_true(offsets < reads / 4);
}

/* How much of its own time a thread sees pass while it sleeps, for which the kernel changes no rseq. */
static void *sleep_without_rseq(void *arg)
{
	void *area = (uint8_t *)__builtin_thread_pointer() + __rseq_offset;
	uint64_t *slept = arg, found[2][2] = {{0}};
	unsigned size = 32; /* as large as the C library has said: no header tells */

	while (size <= 256 && syscall(SYS_rseq, area, size, RSEQ_FLAG_UNREGISTER, RSEQ_SIG))
		size += 32;
	if (size > 256)
		return NULL;
	call_code(0, 0, 0, found[0]);
	usleep(SLEEP_US);
	call_code(0, 0, 0, found[1]);
	*slept = found[1][0] - found[0][0];
	return NULL;
}

/* As in threads of a program that has forbidden itself the system call since. */
static void test_thread_clock_without_rseq(void **state)
{
	uint64_t slept = UINT64_MAX;
	pthread_t thread;

	(void)state;
	make_clock();
	assert_int_equal(pthread_create(&thread, NULL, sleep_without_rseq, &slept), 0);
	pthread_join(thread, NULL);
	leave_descriptor();
	assert_true(slept < SLEEP_US * 1000ull / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_count_values),
		cmocka_unit_test(test_atomics),
		cmocka_unit_test(test_find),
		cmocka_unit_test(test_full_table),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_thread_clock),
		cmocka_unit_test(test_thread_clock_without_rseq),
	};

	alarm(100 * SLOWER);
	return cmocka_run_group_tests(tests, setup, NULL);
}
