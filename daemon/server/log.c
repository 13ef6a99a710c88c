/* SPDX-License-Identifier: MIT */
/*
 * log.c - the log, on standard error, written by a thread of its own.
 *
 * Owns what is on its way there. The loop never waits for who takes the log: a write
 * to a file lasts a minute where its disk is busy (a transaction of the file system
 * that another's gigabyte belongs to), and one to a pipe that nobody reads
 * lasts for good. What finds no room in the meantime is lost and counted. A file that
 * is ours alone, and that mutators write to as well, is cut to its end when it has become
 * large: it lies in memory.
 */
#include "daemon/server/server.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOG_ROOM = 256 << 10, LINE_ROOM = 1200, FILE_MAX = 4 << 20, FILE_KEPT = 1 << 20 };
#define LOG_END_NS  (2 * UINT64_C(1000000000)) /* what is left may take so long at the end */
#define LOG_LOOK_NS (2 * UINT64_C(1000000000)) /* mutators write without us */

static struct {
	uv_mutex_t lock;
	uv_cond_t more, done;
	uv_thread_t thread;
	bool started, ending, ended, bounded;
	size_t used;
	unsigned long long lost; /* lines */
	char waiting[LOG_ROOM], writing[LOG_ROOM];
} log_state;

static void write_all(const char *text, size_t size)
{
	while (size) {
		const ssize_t n = write(STDERR_FILENO, text, size);

		/* there is nobody to tell it to */
		if (n <= 0)
			return;
		text += n;
		size -= (size_t)n;
	}
}

/* "YYYY-MM-DD hh:mm:ss.mmm dinstd: TEXT\n"; returns its length. */
static size_t make_line(char line[LINE_ROOM], const char *text)
{
	char stamp[32];
	struct timespec now;
	struct tm tm;
	int n;

	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &tm);
	strftime(stamp, sizeof(stamp), "%Y-%m-%d %H:%M:%S", &tm);
	n = snprintf(line, LINE_ROOM, "%s.%03ld dinstd: %s\n", stamp, now.tv_nsec / 1000000, text);
	return n < LINE_ROOM ? (size_t)n : LINE_ROOM - 1;
}

/* The last FILE_KEPT bytes of the log, from where a line begins; *size 0 without memory or /proc. */
static char *read_end(off_t length, size_t *size)
{
	char *text = malloc(FILE_KEPT), *line;
	int fd = open("/proc/self/fd/2", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	ssize_t n = fd < 0 || !text ? 0 : pread(fd, text, FILE_KEPT, length - FILE_KEPT);

	if (fd >= 0)
		close(fd);
	line = n > 0 ? memchr(text, '\n', (size_t)n) : NULL;
	*size = line ? (size_t)(text + n - (line + 1)) : 0;
	if (*size)
		memmove(text, line + 1, *size);
	return text;
}

/* What mutators write in between is lost. */
static void bound_file(void)
{
	char line[LINE_ROOM], *kept;
	struct stat st;
	size_t size;
	int flags = fcntl(STDERR_FILENO, F_GETFL);

	if (flags < 0 || !(flags & O_APPEND) || fstat(STDERR_FILENO, &st) != 0 ||
	    !S_ISREG(st.st_mode) || st.st_size <= FILE_MAX)
		return;
	kept = read_end(st.st_size, &size);
	if (ftruncate(STDERR_FILENO, 0) == 0) {
		write_all(line, make_line(line, "this log was longer than 4 MiB: only its end is "
						"left"));
		write_all(kept, size);
	}
	free(kept);
}

static bool put(const char *line, size_t size)
{
	if (size > sizeof(log_state.waiting) - log_state.used)
		return false;
	memcpy(log_state.waiting + log_state.used, line, size);
	log_state.used += size;
	return true;
}

/* What was lost is told before what comes after it. */
static void put_line(const char *line, size_t size)
{
	char told[LINE_ROOM], text[80];
	size_t length;

	if (log_state.lost) {
		snprintf(text, sizeof(text), "%llu lines of this log are lost: nobody took them",
			 log_state.lost);
		length = make_line(told, text);
		if (length + size <= sizeof(log_state.waiting) - log_state.used &&
		    put(told, length))
			log_state.lost = 0;
	}
	if (log_state.lost || !put(line, size))
		log_state.lost++;
}

static void wait_for_more(void)
{
	if (!log_state.bounded) {
		uv_cond_wait(&log_state.more, &log_state.lock);
	} else if (uv_cond_timedwait(&log_state.more, &log_state.lock, LOG_LOOK_NS) != 0) {
		uv_mutex_unlock(&log_state.lock);
		bound_file();
		uv_mutex_lock(&log_state.lock);
	}
}

static void run(void *arg)
{
	(void)arg;
	uv_mutex_lock(&log_state.lock);
	for (;;) {
		const size_t size = log_state.used;

		if (size) {
			memcpy(log_state.writing, log_state.waiting, size);
			log_state.used = 0;
			uv_mutex_unlock(&log_state.lock);
			write_all(log_state.writing, size);
			if (log_state.bounded)
				bound_file();
			uv_mutex_lock(&log_state.lock);
		} else if (log_state.ending) {
			break;
		} else {
			wait_for_more();
		}
	}
	log_state.ended = true;
	uv_cond_signal(&log_state.done);
	uv_mutex_unlock(&log_state.lock);
}

void server_log(const char *format, ...)
{
	char text[1024], line[LINE_ROOM];
	va_list args;
	size_t size;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	/* names of processes and files: one line is one line, and a terminal obeys none */
	text_clean(text, false);
	size = make_line(line, text);
	if (!log_state.started) {
		write_all(line, size);
		if (log_state.bounded)
			bound_file();
		return;
	}
	uv_mutex_lock(&log_state.lock);
	put_line(line, size);
	uv_cond_signal(&log_state.more);
	uv_mutex_unlock(&log_state.lock);
}

void log_start(bool bounded)
{
	log_state.bounded = bounded;
	if (uv_mutex_init(&log_state.lock) != 0 || uv_cond_init(&log_state.more) != 0 ||
	    uv_cond_init(&log_state.done) != 0)
		return;
	/* without it the loop writes by itself, as before */
	log_state.started = uv_thread_create(&log_state.thread, run, NULL) == 0;
}

void log_end(void)
{
	bool ended;

	if (!log_state.started)
		return;
	uv_mutex_lock(&log_state.lock);
	log_state.ending = true;
	uv_cond_signal(&log_state.more);
	while (!log_state.ended &&
	       uv_cond_timedwait(&log_state.done, &log_state.lock, LOG_END_NS) == 0)
		;
	ended = log_state.ended;
	uv_mutex_unlock(&log_state.lock);
	/* else it is in a write that may last for good */
	if (ended)
		uv_thread_join(&log_state.thread);
}
