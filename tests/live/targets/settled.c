/* SPDX-License-Identifier: MIT */
/*
 * settled.c - two threads call one function when they are told to.
 *
 * Prints "ready". Commands, each answered with "done" when it is so:
 *   enter     the thread "holder" goes into piece() and stays there
 *   leave     ... until now
 *   pass      the first thread calls piece(), which returns at once
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool wanted, inside, ending;

__attribute__((noinline, noclone)) void piece(bool stays)
{
	__asm__ volatile("" : "+r"(stays));
	if (!stays)
		return;
	pthread_mutex_lock(&lock);
	inside = true;
	pthread_cond_broadcast(&changed);
	while (wanted)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void *hold(void *unused)
{
	pthread_setname_np(pthread_self(), "holder");
	pthread_mutex_lock(&lock);
	while (!ending) {
		if (!wanted) {
			pthread_cond_wait(&changed, &lock);
			continue;
		}
		pthread_mutex_unlock(&lock);
		piece(true);
		pthread_mutex_lock(&lock);
		inside = false;
		pthread_cond_broadcast(&changed);
	}
	pthread_mutex_unlock(&lock);
	return unused;
}

static void want(bool in)
{
	pthread_mutex_lock(&lock);
	wanted = in;
	pthread_cond_broadcast(&changed);
	while (inside != in)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

int main(void)
{
	pthread_t holder;
	char line[64];

	if (pthread_create(&holder, NULL, hold, NULL))
		return 1;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "pass\n"))
			piece(false);
		else
			want(!strcmp(line, "enter\n"));
		puts("done");
		fflush(stdout);
	}
	pthread_mutex_lock(&lock);
	ending = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	pthread_join(holder, NULL);
	return 0;
}
