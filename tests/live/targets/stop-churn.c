/* SPDX-License-Identifier: MIT */
/*
 * stop-churn.c [CHAINS]: threads that live for a millisecond and create their
 * successor, in several chains, until standard input ends. Then the number of
 * threads born must be that of those that ended.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static atomic_int ended_input;
static atomic_long born, dead;

static void *generation(void *arg)
{
	struct timespec life = {0, 1000000};
	pthread_attr_t attributes;
	pthread_t next;

	nanosleep(&life, NULL);
	if (!ended_input) {
		pthread_attr_init(&attributes);
		pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
		atomic_fetch_add(&born, 1);
		if (pthread_create(&next, &attributes, generation, arg))
			abort();
		pthread_attr_destroy(&attributes);
	}
	atomic_fetch_add(&dead, 1);
	return NULL;
}

int main(int argc, char **argv)
{
	int chains = argc > 1 ? atoi(argv[1]) : 3;
	pthread_t thread;
	char byte;

	for (int i = 0; i < chains; i++) {
		atomic_fetch_add(&born, 1);
		if (pthread_create(&thread, NULL, generation, NULL))
			return 2;
		pthread_detach(thread);
	}
	printf("ready\n");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	ended_input = 1;
	for (int i = 0; i < 5000 && born != dead; i++)
		usleep(1000);
	printf("%ld\n", (long)born);
	return born != dead;
}
