/* SPDX-License-Identifier: MIT */
/* build: -O1 -fno-inline -fno-ipa-icf -fno-optimize-sibling-calls */
/*
 * why.c - programs with one thing wrong with them, among much that is innocent.
 *
 *   why cpu SEED      three kinds of work three calls deep in two threads; SEED says which one
 *                     takes nearly all the time: hash_red, hash_green or hash_blue
 *   why lock SEED     update_totals() keeps a mutex for long, others wait; or, with an odd
 *                     SEED, scan_table() does; an innocent mutex is taken much more often
 *   why io SEED       flush_journal() writes to a pipe that is read slowly; with an odd SEED
 *                     sync_journal() writes to a file and waits for the disk
 *   why leak SEED     keep_session() or keep_entry() allocates through a wrapper and forgets;
 *                     others allocate more and free it
 *   why idle          threads that wait for work which comes seldom
 *
 * Prints "ready", ends when its input does.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int seed;
static volatile uint64_t sink;

static void nap_us(long us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000};

	nanosleep(&t, NULL);
}

static void start(void *(*function)(void *arg), void *arg, const char *name)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, function, arg))
		abort();
	pthread_setname_np(thread, name);
	pthread_detach(thread);
}

/* --------------------------------------------------------------------- cpu */

#define HASH(colour, factor)                                         \
	static uint64_t hash_##colour(uint64_t value, long rounds)   \
	{                                                            \
		for (long i = 0; i < rounds; i++)                    \
			value = (value ^ (value >> 29)) * factor;    \
		return value;                                        \
	}                                                            \
	static uint64_t pack_##colour(uint64_t value, long rounds)   \
	{                                                            \
		return hash_##colour(value + 1, rounds) + 1;         \
	}                                                            \
	static uint64_t handle_##colour(uint64_t value, long rounds) \
	{                                                            \
		return pack_##colour(value, rounds) ^ value;         \
	}

HASH(red, 0xbf58476d1ce4e5b9)
HASH(green, 0x94d049bb133111eb)
HASH(blue, 0xd6e8feb86659fd93)

/* Called through a table, as commands of a server are. */
static uint64_t (*const handlers[])(uint64_t, long) = {handle_red, handle_green, handle_blue};

static uint64_t serve_request(uint64_t number)
{
	const unsigned kind = number % 3;

	return handlers[kind](number, kind == (unsigned)seed % 3 ? 200000 : 2000);
}

static void *serve(void *arg)
{
	for (uint64_t i = (uintptr_t)arg;; i++)
		sink += serve_request(i);
	return NULL;
}

static void *chores(void *arg)
{
	for (;;) {
		sink += hash_red(1, 20000) + hash_green(2, 20000) + hash_blue(3, 20000);
		nap_us(20000);
	}
	return arg;
}

/* -------------------------------------------------------------------- lock */

static pthread_mutex_t totals_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t innocent_lock = PTHREAD_MUTEX_INITIALIZER;

static void update_totals(void)
{
	pthread_mutex_lock(&totals_lock);
	nap_us(seed % 2 ? 20 : 4000);
	pthread_mutex_unlock(&totals_lock);
}

static void scan_table(void)
{
	pthread_mutex_lock(&totals_lock);
	nap_us(seed % 2 ? 4000 : 20);
	pthread_mutex_unlock(&totals_lock);
}

static void read_totals(void)
{
	pthread_mutex_lock(&totals_lock);
	sink++;
	pthread_mutex_unlock(&totals_lock);
}

static void count_innocent(void)
{
	pthread_mutex_lock(&innocent_lock);
	sink++;
	pthread_mutex_unlock(&innocent_lock);
}

static void *writer(void *arg)
{
	for (;;) {
		update_totals();
		scan_table();
		nap_us(100);
	}
	return arg;
}

static void *reader(void *arg)
{
	for (;;) {
		read_totals();
		for (int i = 0; i < 50; i++)
			count_innocent();
		nap_us(500);
	}
	return arg;
}

/* ---------------------------------------------------------------------- io */

static int journal, quick;

static void flush_journal(const char *block, size_t size)
{
	for (size_t at = 0; at < size; at += 512)
		if (write(journal, block + at, 512) != 512)
			abort();
}

static void sync_journal(const char *block, size_t size)
{
	if (pwrite(journal, block, size, 0) != (ssize_t)size || fsync(journal))
		abort();
}

static void note_quickly(const char *block)
{
	for (int i = 0; i < 20; i++)
		if (write(quick, block, 64) != 64)
			abort();
}

static void store_batch(const char *block, size_t size)
{
	if (seed % 2)
		sync_journal(block, size);
	else
		flush_journal(block, size);
}

static void *storer(void *arg)
{
	static char block[16384];

	for (;;) {
		note_quickly(block);
		store_batch(block, sizeof(block));
	}
	return arg;
}

static void *slow_reader(void *arg)
{
	static char block[4096];

	for (;;) {
		nap_us(20000);
		if (read(*(int *)arg, block, sizeof(block)) <= 0)
			break;
	}
	return NULL;
}

static void begin_io(void)
{
	static int ends[2];
	/* with what a terminal would obey */
	char path[] = "/var/tmp/dinst-why-\033[31m-XXXXXX";

	quick = open("/dev/null", O_WRONLY);
	if (seed % 2) {
		journal = mkstemp(path);
		unlink(path);
	} else {
		if (pipe(ends))
			abort();
		journal = ends[1];
		start(slow_reader, &ends[0], "slow-reader");
	}
	if (journal < 0 || quick < 0)
		abort();
	start(storer, NULL, "storer");
}

/* -------------------------------------------------------------------- leak */

struct item {
	struct item *next;
	char text[1000];
};

static struct item *volatile kept;

static void *must_malloc(size_t size)
{
	void *block = malloc(size);

	if (!block)
		abort();
	memset(block, 1, size);
	return block;
}

static void keep_session(void)
{
	struct item *item = must_malloc(sizeof(*item));

	item->next = kept;
	kept = item;
}

static void keep_entry(void)
{
	struct item *item = must_malloc(sizeof(*item) / 2);

	item->next = kept;
	kept = item;
}

static void parse_request(void)
{
	void *parts[8];

	for (int i = 0; i < 8; i++)
		parts[i] = must_malloc(64 + 100 * (size_t)i);
	for (int i = 0; i < 8; i++)
		free(parts[i]);
}

static void answer_request(int number)
{
	char *text = realloc(strdup("answer"), 400);

	parse_request();
	if (number % 4 == 0) {
		if (seed % 2)
			keep_entry();
		else
			keep_session();
	}
	free(text);
}

static void *answering(void *arg)
{
	for (int i = 0;; i++) {
		answer_request(i);
		if (i % 16 == 0)
			nap_us(1000);
	}
	return arg;
}

/* -------------------------------------------------------------------- idle */

static pthread_mutex_t work_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work_came = PTHREAD_COND_INITIALIZER;

static void *worker(void *arg)
{
	pthread_mutex_lock(&work_lock);
	for (;;) {
		pthread_cond_wait(&work_came, &work_lock);
		sink += hash_red(1, 1000);
	}
	return arg;
}

static void *giver(void *arg)
{
	for (;;) {
		nap_us(100000);
		pthread_cond_signal(&work_came);
	}
	return arg;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "idle";

	seed = argc > 2 ? atoi(argv[2]) : 0;
	if (!strcmp(what, "cpu")) {
		start(serve, (void *)1, "server");
		start(chores, NULL, "chores");
	} else if (!strcmp(what, "lock")) {
		start(writer, NULL, "writer");
		for (int i = 0; i < 3; i++)
			start(reader, NULL, "reader");
	} else if (!strcmp(what, "io")) {
		begin_io();
	} else if (!strcmp(what, "leak")) {
		start(answering, NULL, "answering");
	} else {
		for (int i = 0; i < 3; i++)
			start(worker, NULL, "worker");
		start(giver, NULL, "giver");
	}
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
