/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline */
/*
 * cancelled.cc - threads that are cancelled (deferred, as all are by default) while they read: from
 * a pipe into which somebody writes without a break, so that they are seldom asleep in there.
 *
 * cancelled: prints "ready". Commands:
 *   read N     N threads with a guard around each read(), cancelled at random moments
 *   fgets N    N threads that call fgets() on one FILE
 * Answered with "done NUMBER": so many were cancelled (no more are begun after ten seconds), each
 * guard was released, the FILE is locked by nobody; "wrong" and what was not so otherwise.
 */
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

enum { SECONDS = 10, LINE = 8, FEED = 64 };

static std::atomic<long> held;
static std::atomic<bool> running;
static int ends[2];
static FILE *file;
static bool wrong;

struct guard {
	guard() { held++; }
	~guard() { held--; }
};

static void *reader(void *arg)
{
	char line[LINE];

	running = true;
	for (;;) {
		guard g;

		if (read(ends[0], line, sizeof(line)) < 0)
			abort();
	}
	return arg;
}

static void *line_reader(void *arg)
{
	char line[LINE];

	running = true;
	for (;;)
		if (!fgets(line, sizeof(line), file))
			abort();
	return arg;
}

/* A full pipe is waited for a little, not until there is room: it has to be joined. */
static void feed(long microseconds)
{
	static const char lines[FEED] = "1234567\n1234567\n1234567\n1234567\n"
					"1234567\n1234567\n1234567\n123456\n";
	struct timespec begin, now;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		if (write(ends[1], lines, sizeof(lines)) < 0)
			usleep(1);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000000 + (now.tv_nsec - begin.tv_nsec) / 1000 <
		 microseconds);
}

static void cancel_once(void *(*routine)(void *), long after)
{
	void *result = nullptr;
	pthread_t t;

	running = false;
	if (pthread_create(&t, nullptr, routine, nullptr))
		abort();
	while (!running)
		usleep(5);
	feed(after);
	pthread_cancel(t);
	pthread_join(t, &result);
	if (result != PTHREAD_CANCELED)
		wrong = true;
	if (held) {
		printf("a guard was not released, ");
		held = 0;
		wrong = true;
	}
	if (!ftrylockfile(file)) {
		funlockfile(file);
		return;
	}
	/* Nobody can use this one any more. */
	printf("the file is locked, ");
	file = fdopen(dup(ends[0]), "r");
	setvbuf(file, nullptr, _IOFBF, LINE);
	wrong = true;
}

static void cancel_all(void *(*routine)(void *), long n)
{
	const time_t end = time(nullptr) + SECONDS;
	long i;

	for (i = 0; i < n && time(nullptr) < end; i++)
		cancel_once(routine, i * 37 % 150);
	printf("%s %ld\n", wrong ? "wrong" : "done", i);
	fflush(stdout);
}

int main()
{
	char line[64];

	mallopt(M_ARENA_MAX, 1);
	setvbuf(stdin, nullptr, _IONBF, 0);
	if (pipe(ends) || fcntl(ends[1], F_SETFL, O_NONBLOCK))
		return 2;
	file = fdopen(ends[0], "r");
	setvbuf(file, nullptr, _IOFBF, LINE);
	/* What happens once: a handler of the C library, memory, libgcc_s. */
	for (int i = 0; i < 10; i++) {
		cancel_once(reader, 10);
		cancel_once(line_reader, 10);
	}
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "read ", 5))
			cancel_all(reader, atol(line + 5));
		else if (!strncmp(line, "fgets ", 6))
			cancel_all(line_reader, atol(line + 6));
	}
	return wrong;
}
