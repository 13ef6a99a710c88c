/* SPDX-License-Identifier: MIT */
/*
 * traced.c - a target whose calls are known: functions that take and return values of all kinds,
 * call each other, and themselves; "round N", "hot N" on standard input, or for ever. `traced deep`:
 * a function in itself a hundred times, for ever.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEEP __attribute__((noipa, used))

enum colour { RED, GREEN = 7, BLUE = -3 };

struct point {
	int x;
	short y;
};

struct client {
	int id;
	const char *name;
	struct point at;
	double load;
	enum colour colour;
	unsigned low : 3;
	int sign : 5;
	char tag[4];
};

int64_t KEEP step(int64_t n);
const char *KEEP look_up(const char *key, size_t n);
enum colour KEEP paint(struct client *c, enum colour colour, bool hard);
double KEEP scale(double a, float b, int8_t n);
struct point KEEP move(struct point p, int by);
uint64_t KEEP fib(unsigned n);
int64_t KEEP tail(int n);
int KEEP leave(jmp_buf *to, int n);
int KEEP outer(int n);
void KEEP slow(int n, const char *what);
void KEEP sound(int n);
void KEEP dive(int n);

static volatile int64_t sum;

int64_t step(int64_t n)
{
	sum += n;
	return n * 2;
}

const char *look_up(const char *key, size_t n)
{
	sum++;
	return n > 3 ? key : NULL;
}

enum colour paint(struct client *c, enum colour colour, bool hard)
{
	const char *found = look_up(c->name, strlen(c->name));

	sum += hard;
	c->colour = found ? colour : RED;
	return c->colour;
}

double scale(double a, float b, int8_t n)
{
	sum++;
	return a * b + n;
}

struct point move(struct point p, int by)
{
	sum++;
	return (struct point){p.x + by, (short)(p.y - by)};
}

uint64_t fib(unsigned n)
{
	uint64_t before, last;

	sum++;
	if (n < 2)
		return n;
	before = fib(n - 1);
	last = fib(n - 2);
	/* or the compiler makes a loop of it */
	__asm__ volatile("" : "+r"(last));
	return before + last;
}

int64_t tail(int n)
{
	sum++;
	return step(n + 1);
}

int leave(jmp_buf *to, int n)
{
	sum++;
	longjmp(*to, n);
}

int outer(int n)
{
	static jmp_buf to;

	if (setjmp(to) == 0)
		leave(&to, n);
	return (int)step(n) + 1;
}

void slow(int n, const char *what)
{
	sum += what[0];
	usleep(n % 2 ? 3000 : 1);
	sum++;
}

void sound(int n)
{
	sum += n;
}

void dive(int n)
{
	if (n > 0)
		dive(n - 1);
	else
		sound(n);
	sum++;
}

static void round_of(int i)
{
	struct client c = {i, "al\"ice\n", {1, -2}, 0.25, RED, 5, -7, "xy"};
	struct client d = {i, "bob", {3, 4}, -1e9, RED, 1, 3, "abcd"};

	char name[] = "carol";

	paint(&c, i % 2 ? BLUE : GREEN, true);
	paint(&d, GREEN, false);
	paint(&d, (enum colour)3, false);
	look_up(name, sizeof(name) - 1);
	look_up(NULL, 0);
	scale(1.0 / 3, 0.1f, -5);
	move((struct point){10, 20}, i);
	fib(4);
	tail(i);
	outer(i + 1);
	slow(i, "something");
}

static void *hot(void *arg)
{
	const int64_t count = *(int64_t *)arg;

	for (int64_t i = 1; i <= count; i++)
		step(i);
	return NULL;
}

static void run_hot(int64_t count)
{
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, hot, &count);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
	char line[64];
	int count;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("ready\n");
	for (int i = 0; argc > 1 && !strcmp(argv[1], "on"); i++) {
		round_of(i);
		usleep(2000);
	}
	while (argc > 1 && !strcmp(argv[1], "deep")) {
		dive(100);
		sound(-1);
		usleep(2000);
	}
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "round %d", &count) == 1)
			for (int i = 0; i < count; i++)
				round_of(i);
		else if (sscanf(line, "hot %d", &count) == 1)
			run_hot(count);
		else
			return 1;
		printf("done %lld\n", (long long)sum);
	}
	return 0;
}
