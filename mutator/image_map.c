/* SPDX-License-Identifier: MIT */
/*
 * image_map.c - files that are mapped here while others may write them.
 *
 * Whoever owns a file may cut it off or overwrite it at any time, also by an
 * upgrade that copies in place. Reading behind its new end is then SIGBUS: a
 * page of zeros takes the place of what has gone, and what reads it finds, as
 * in any damaged file, that nothing there makes sense. Behind each mapping lies
 * a page of zeros as well, so that a text whose end was overwritten ends there.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mutator/image_elf.h"

/* Entries are added at the front, used again, and never taken out: a handler may look at any time. */
struct mapping {
	struct mapping *next;
	const uint8_t *start;
	size_t size; /* 0: not in use */
};

static struct mapping *mappings;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static bool is_mapped_file(const uint8_t *at)
{
	const struct mapping *m = __atomic_load_n(&mappings, __ATOMIC_ACQUIRE);

	for (; m; m = m->next)
		if ((size_t)(at - m->start) < __atomic_load_n(&m->size, __ATOMIC_ACQUIRE))
			return true;
	return false;
}

static void on_bus_error(int sig, siginfo_t *info, void *context)
{
	const size_t page = page_size();
	uint8_t *at = (uint8_t *)((uintptr_t)info->si_addr / page * page);
	const int saved = errno;

	(void)context;
	if (!is_mapped_file(at) ||
	    mmap(at, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at)
		signal(sig, SIG_DFL); /* the access is made again, and ends us */
	errno = saved;
}

static void install(void)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_sigaction = on_bus_error;
	action.sa_flags = SA_SIGINFO;
	sigemptyset(&action.sa_mask);
	sigaction(SIGBUS, &action, NULL);
}

/* False without memory. */
static bool note(const uint8_t *start, size_t size)
{
	struct mapping *m;

	pthread_mutex_lock(&lock);
	for (m = mappings; m && m->size;)
		m = m->next;
	if (m) {
		m->start = start;
	} else if ((m = calloc(1, sizeof(*m)))) {
		m->start = start;
		m->next = mappings;
		__atomic_store_n(&mappings, m, __ATOMIC_RELEASE);
	}
	if (m)
		__atomic_store_n(&m->size, size, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
	return m != NULL;
}

uint8_t *file_map(int fd, size_t size)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	const size_t page = page_size();
	size_t whole;
	uint8_t *start;

	if (!size || size > SIZE_MAX - 2 * page) {
		errno = EINVAL;
		return NULL;
	}
	pthread_once(&once, install);
	whole = (size + page - 1) / page * page;
	start = mmap(NULL, whole + page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		     0);
	if (start == MAP_FAILED)
		return NULL;
	if (mmap(start, size, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == start &&
	    note(start, whole))
		return start;
	munmap(start, whole + page);
	errno = errno ? errno : ENOMEM;
	return NULL;
}

void file_unmap(uint8_t *start, size_t size)
{
	const size_t page = page_size(), whole = (size + page - 1) / page * page;

	pthread_mutex_lock(&lock);
	for (struct mapping *m = mappings; m; m = m->next)
		if (m->size && m->start == start)
			__atomic_store_n(&m->size, 0, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
	munmap(start, whole + page);
}
