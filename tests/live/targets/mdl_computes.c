/* SPDX-License-Identifier: MIT */
/* build: -O2 -g -rdynamic -pthread */
/*
 * mdl_computes.c - functions that inserted code may call, and some that it may
 * not. subject() calls none of them; what they would have given for its arguments
 * is added up here by calling them.
 *
 * Prints "ready". The command "go THREADS ROUNDS" calls subject() so many times in
 * each thread and answers with the sums so far; "own ROUNDS" calls scale() itself. "vault open"
 * and "vault closed" make a page of the program's own variables what they say.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define KEEP __attribute__((noinline, noclone, used, externally_visible))

struct node {
	struct node *next;
	int value;
	short level;
};

static struct node nodes[8];
const int weights[4] = {3, -50, 700, -9000};
long base_value = 17;

/* A page of its own, which is closed but while it is used. */
enum { PAGE = 4096 };
_Alignas(PAGE) long vault[PAGE / sizeof(long)] = {42};

KEEP long scale(long x)
{
	return x * 3 + base_value;
}

/* The name looks like a pattern. */
long starred(long x) __asm__("\"main.(*T).Scale\"");

KEEP long starred(long x)
{
	return x * 3 + base_value;
}

KEEP int sign_of(int x)
{
	return x < 0 ? -1 : x > 0;
}

KEEP int narrow(signed char c, unsigned short s)
{
	return c * 2 - s;
}

KEEP int value_of(const struct node *n)
{
	return n->next->value + n->level;
}

KEEP void split(long x, int *low)
{
	*low = (int)x - 5;
}

KEEP long weight_of(unsigned char kind)
{
	return weights[kind & 3];
}

KEEP __attribute__((optimize("O0"))) int plain(int a, int b)
{
	int larger = a;

	if (b > larger)
		larger = b;
	return larger - 1;
}

KEEP long vault_of(unsigned char i)
{
	return vault[0] + vault[i];
}

KEEP long looped(long n)
{
	long sum = 0;

	for (long i = 0; i < n; i++)
		sum ^= sum * 3 + i;
	return sum;
}

KEEP long calls_scale(long n)
{
	return scale(n) + 1;
}

KEEP void stores(struct node *n)
{
	n->value = 5;
}

KEEP double half(double x)
{
	return x / 2;
}

KEEP int any_number(int n, ...)
{
	return n;
}

KEEP long subject(long i, struct node *n)
{
	__asm__ volatile("" : : "r"(i), "r"(n) : "memory");
	return i;
}

struct sums {
	long calls, scale, sign, narrow, value, low, weight, plain, network, given;
};

static struct sums all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t met;

static void add(struct sums *s, long i, struct node *n)
{
	int low;

	s->given += subject(i, n);
	s->calls++;
	s->scale += scale(i);
	s->sign += sign_of((int)i);
	s->narrow += narrow((signed char)i, (unsigned short)(i * 77));
	s->value += n ? value_of(n) : 0;
	split(i, &low);
	s->low += low;
	s->weight += weight_of((unsigned char)i);
	s->plain += plain((int)i, 100);
	s->network += htons((unsigned short)i);
}

static void *work(void *arg)
{
	const long rounds = *(long *)arg;
	struct sums s = {0};

	/* All at once, so that there are as many stacks as threads. */
	pthread_barrier_wait(&met);
	for (long i = -rounds / 2; i < rounds - rounds / 2; i++)
		add(&s, i, i % 9 == 0 ? NULL : &nodes[i & 7]);
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < sizeof(s) / sizeof(long); i++)
		((long *)&all)[i] += ((long *)&s)[i];
	pthread_mutex_unlock(&lock);
	return NULL;
}

enum { THREADS = 16, STACK = 128 * 1024 };

static void run(unsigned threads, long rounds)
{
	pthread_attr_t small;
	pthread_t ids[THREADS];

	if (threads > THREADS)
		threads = THREADS;
	pthread_barrier_init(&met, NULL, threads);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, STACK);
	for (unsigned i = 0; i < threads; i++)
		if (pthread_create(&ids[i], &small, work, &rounds))
			abort();
	for (unsigned i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	pthread_attr_destroy(&small);
	pthread_barrier_destroy(&met);
}

static void go(unsigned threads, long rounds)
{
	run(threads, rounds);
	printf("calls %ld scale %ld sign %ld narrow %ld value %ld low %ld weight %ld plain %ld "
	       "network %ld\n",
	       all.calls, all.scale, all.sign, all.narrow, all.value, all.low, all.weight,
	       all.plain, all.network);
}

static bool set_vault(const char *word)
{
	return !mprotect(vault, sizeof(vault),
			 !strcmp(word, "open") ? PROT_READ | PROT_WRITE : PROT_NONE);
}

int main(void)
{
	char line[64], word[16];
	unsigned threads;
	long rounds, sum = 0;

	for (unsigned i = 0; i < 8; i++)
		nodes[i] = (struct node){&nodes[(i + 1) & 7], -40 + 13 * (int)i, (short)(i * 5)};
	/* The C library keeps the stacks: the program looks the same ever after. */
	run(THREADS, 1);
	all = (struct sums){0};
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("ready\n");
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "go %u %ld", &threads, &rounds) == 2) {
			go(threads, rounds);
		} else if (sscanf(line, "own %ld", &rounds) == 1) {
			for (long i = 0; i < rounds; i++)
				sum += scale(i);
			printf("own %ld sum %ld\n", rounds, sum);
		} else if (sscanf(line, "vault %15s", word) == 1 && set_vault(word)) {
			printf("vault %s\n", word);
		} else {
			return 1;
		}
	}
	return 0;
}
