/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -l:libcrypto.so.3 */
/*
 * parked-jobs.c - as parked.c, by OpenSSL's jobs: a handler of this program's gives way in the
 * middle of one, and so an interrupted program counter is on the job's stack, on the heap, until
 * the job goes on. The program itself has no other switch. Prints "ready". Commands:
 *   park     begins a job that calls the function, which gets stuck so; "parked"
 *   resume   it goes on and returns; "resumed"
 *   go N     calls it N times without a fault; "done"
 * Exits with 1 if a result was wrong.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "parked.h"

enum { VALUE = 41 };

/* <openssl/async.h>, which need not be installed. */
enum { ASYNC_PAUSE = 2, ASYNC_FINISH = 3 };
struct job;
struct wait_context;
int ASYNC_start_job(struct job **job, struct wait_context *context, int *result, int (*run)(void *),
		    void *arguments, size_t size);
int ASYNC_pause_job(void);
struct wait_context *ASYNC_WAIT_CTX_new(void);

static struct wait_context *context;
static struct job *job;
static volatile int *page;
static volatile int wrong;

static int run_job(void *arguments)
{
	if (parked_function(page) != VALUE + 1)
		wrong = 1;
	wipe();
	(void)arguments;
	return 1;
}

static void on_fault(int sig)
{
	mprotect((void *)page, 4096, PROT_READ | PROT_WRITE);
	ASYNC_pause_job();
	(void)sig;
}

/* Begins the job, or goes on with it. */
static int go_on(void)
{
	int result = 0;

	return ASYNC_start_job(&job, context, &result, run_job, NULL, 0);
}

static void serve(void)
{
	char line[64];

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "park", 4)) {
			mprotect((void *)page, 4096, PROT_NONE);
			job = NULL;
			puts(go_on() == ASYNC_PAUSE ? "parked" : "not parked");
		} else if (!strncmp(line, "resume", 6)) {
			puts(go_on() == ASYNC_FINISH ? "resumed" : "not resumed");
		} else {
			for (long n = atol(line + 3); n > 0; n--)
				if (parked_function(page) != VALUE + 1)
					wrong = 1;
			puts("done");
		}
		fflush(stdout);
	}
}

int main(void)
{
	struct sigaction fault = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};

	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*page = VALUE;
	sigaction(SIGSEGV, &fault, NULL);
	context = ASYNC_WAIT_CTX_new();
	/* One from its beginning to its end: memory is there before anybody looks. */
	if (!context || go_on() != ASYNC_FINISH)
		return 2;
	serve();
	return wrong;
}
