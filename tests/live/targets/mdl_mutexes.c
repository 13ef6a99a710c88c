/* SPDX-License-Identifier: MIT */
/* build: -O2 -rdynamic -fno-inline */
/*
 * mdl_mutexes.c - many mutexes, locked as often as their number says, and known
 * waits: threads that sleep with a mutex locked while another one wants it.
 *
 *   mdl_mutexes COUNT
 *
 * Prints "ready". Commands:
 *   where       "ADDRESS SIZE": of the first mutex, and how far they are apart
 *   go N        two threads lock and unlock mutex i (i % 7 + 1) * N times each; "done"
 *   wait N MS   N times: one thread sleeps MS with mutex 3 locked, the other one waits for it;
 *               "waited NS": by the program's own clock, around each lock
 *   timed N MS  the same, by pthread_mutex_timedlock
 *   hold N      locks mutexes 0 to N - 1; "done"
 *   drop N      unlocks them; "done"
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t *mutexes;
static long count, rounds, sleep_ms, timed;
static sem_t locked, begin[2], end;
static long long waited;
static char command;

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

__attribute__((noinline, noclone)) void lock_all(void)
{
	for (long i = 0; i < count; i++)
		for (long k = 0; k < (i % 7 + 1) * rounds; k++) {
			pthread_mutex_lock(&mutexes[i]);
			pthread_mutex_unlock(&mutexes[i]);
		}
}

/* Each holds the turn of the other until it has seen it begin. */
__attribute__((noinline, noclone)) void sleeper(void)
{
	for (long i = 0; i < rounds; i++) {
		pthread_mutex_lock(&mutexes[3]);
		sem_post(&locked);
		usleep(sleep_ms * 1000);
		pthread_mutex_unlock(&mutexes[3]);
		usleep(2000);
	}
}

__attribute__((noinline, noclone)) void waiter(void)
{
	for (long i = 0; i < rounds; i++) {
		struct timespec late;
		long long t;

		while (sem_trywait(&locked) != 0)
			usleep(200);
		clock_gettime(CLOCK_REALTIME, &late);
		late.tv_sec += 100;
		t = now();
		if (!timed)
			pthread_mutex_lock(&mutexes[3]);
		else if (pthread_mutex_timedlock(&mutexes[3], &late) != 0)
			exit(1);
		waited += now() - t;
		pthread_mutex_unlock(&mutexes[3]);
	}
}

static void *run(void *arg)
{
	const int number = (int)(long)arg;

	for (;;) {
		while (sem_wait(&begin[number]) != 0)
			;
		if (command == 'g')
			lock_all();
		else if (number == 0)
			sleeper();
		else
			waiter();
		sem_post(&end);
	}
	return NULL;
}

static void both(char what)
{
	command = what;
	sem_post(&begin[0]);
	sem_post(&begin[1]);
	while (sem_wait(&end) != 0)
		;
	while (sem_wait(&end) != 0)
		;
}

static void answer(const char *line)
{
	long n;

	if (!strncmp(line, "where", 5)) {
		printf("%p %zu\n", (void *)mutexes, sizeof(*mutexes));
	} else if (sscanf(line, "go %ld", &rounds) == 1) {
		both('g');
		puts("done");
	} else if (sscanf(line, "wait %ld %ld", &rounds, &sleep_ms) == 2 ||
		   sscanf(line, "timed %ld %ld", &rounds, &sleep_ms) == 2) {
		timed = line[0] == 't';
		waited = 0;
		both('w');
		printf("waited %lld\n", waited);
	} else if (sscanf(line, "hold %ld", &n) == 1) {
		for (long i = 0; i < n; i++)
			pthread_mutex_lock(&mutexes[i]);
		puts("done");
	} else if (sscanf(line, "drop %ld", &n) == 1) {
		for (long i = 0; i < n; i++)
			pthread_mutex_unlock(&mutexes[i]);
		puts("done");
	}
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	char line[100];

	count = argc > 1 ? atol(argv[1]) : 10;
	mutexes = calloc(count, sizeof(*mutexes));
	if (!mutexes || count < 4)
		return 1;
	setvbuf(stdout, NULL, _IOLBF, 0);
	sem_init(&locked, 0, 0);
	sem_init(&end, 0, 0);
	for (long i = 0; i < 2; i++) {
		sem_init(&begin[i], 0, 0);
		pthread_create(&threads[i], NULL, run, (void *)i);
	}
	puts("ready");
	while (fgets(line, sizeof(line), stdin))
		answer(line);
	return 0;
}
