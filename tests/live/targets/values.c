/* SPDX-License-Identifier: MIT */
/*
 * values.c - a target that does what it is told and nothing else, so that a
 * test knows every value that its functions were called with.
 *
 *   feed N    each of THREADS threads calls observe(value, key) N times
 *   enter     each thread calls resident(), which does not return
 *   leave     ... until now
 *
 * Threads are called worker-0 and so on. Each is answered with "done" when it is so. See values_sequence() in the test
 * for the values: both compute them alike.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4 };

static pthread_barrier_t barrier;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static enum { IDLE, FEED, ENTER, END } what;
static unsigned long count;
static int inside;

__attribute__((noinline, noclone)) long observe(long value, long key)
{
	__asm__ volatile("" : "+r"(value), "+r"(key));
	return value + key;
}

/* Waits with the lock held, as any blocking function would. */
__attribute__((noinline, noclone)) void resident(void)
{
	pthread_mutex_lock(&lock);
	inside++;
	pthread_cond_broadcast(&changed);
	while (what == ENTER)
		pthread_cond_wait(&changed, &lock);
	inside--;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void feed(unsigned thread)
{
	uint64_t x = thread + 1;

	for (unsigned long i = 0; i < count; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		observe((long)(x >> 33 >> (x >> 5 & 31)), (long)(x >> 40 & 63) * 64);
	}
}

static void *work(void *arg)
{
	const unsigned thread = (unsigned)(uintptr_t)arg;
	char name[16];

	snprintf(name, sizeof(name), "worker-%u", thread);
	pthread_setname_np(pthread_self(), name);
	for (;;) {
		int task;

		pthread_barrier_wait(&barrier);
		task = what;
		if (task == END)
			return NULL;
		if (task == FEED)
			feed(thread);
		if (task == ENTER)
			resident();
		pthread_barrier_wait(&barrier);
	}
}

static void wait_until_inside(int number)
{
	pthread_mutex_lock(&lock);
	while (inside != number)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void leave(void)
{
	pthread_mutex_lock(&lock);
	what = IDLE;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	pthread_barrier_wait(&barrier);
}

int main(void)
{
	pthread_t threads[THREADS];
	char line[64];

	pthread_barrier_init(&barrier, NULL, THREADS + 1);
	for (unsigned i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i))
			return 1;
	/* So that all of them have their names. */
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "feed %lu", &count) == 1) {
			what = FEED;
			pthread_barrier_wait(&barrier);
			pthread_barrier_wait(&barrier);
		} else if (!strcmp(line, "enter\n")) {
			what = ENTER;
			pthread_barrier_wait(&barrier);
			wait_until_inside(THREADS);
		} else if (!strcmp(line, "leave\n")) {
			leave();
		}
		puts("done");
		fflush(stdout);
	}
	what = END;
	pthread_barrier_wait(&barrier);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
