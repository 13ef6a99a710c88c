/* SPDX-License-Identifier: MIT */
/*
 * harness_snapshot.c - what a process looks like from outside, and what has
 * changed since: mappings, executable bytes, threads, signals, descriptors.
 *
 * Deliberately uses nothing of the project: a checker that shared its code
 * with what it checks would share its mistakes. Reads /proc only; never stops
 * or touches the process.
 */
#include "tests/live/harness.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_MAX_SHOWN = 256, SETTLE_TRIES = 200, SETTLE_US = 10000, START_TRIES = 60 };

struct region {
	uint64_t lo, hi, offset, inode;
	char protection[8];
	char name[NAME_MAX_SHOWN];
	uint8_t *bytes; /* executable and without a file: what was there; else NULL */
};

struct thread {
	pid_t tid;
	char state;
	int tracer;
	char signals[4][24]; /* the fields of signal_fields[] */
};

struct descriptor {
	int fd;
	char target[NAME_MAX_SHOWN];
};

struct harness_snapshot {
	pid_t pid;
	pid_t tid; /* shows memory and descriptors in /proc: the leader, unless it has exited */
	struct region *regions;
	struct thread *threads;
	struct descriptor *descriptors;
	size_t region_count, thread_count, descriptor_count;
};

static const char *const signal_fields[4] = {"SigBlk:", "SigIgn:", "SigCgt:", "SigPnd:"};

/* Appends a zeroed element to a growing array; returns it. */
static void *grow(void *array, size_t *count, size_t element)
{
	char **base = array;

	*base = realloc(*base, (*count + 1) * element);
	if (*base == NULL)
		abort();
	memset(*base + *count * element, 0, element);
	return *base + (*count)++ * element;
}

static bool read_memory(pid_t pid, uint64_t address, uint8_t *bytes, size_t size)
{
	char path[64];
	size_t done = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	while (done < size) {
		ssize_t got = pread(fd, bytes + done, size - done, (off_t)(address + done));

		if (got <= 0)
			break;
		done += (size_t)got;
	}
	close(fd);
	return done == size;
}

/* Bytes of an executable mapping without a file (vdso, code made at run time). */
static uint8_t *copy_bytes(pid_t pid, const struct region *r)
{
	uint8_t *bytes = malloc(r->hi - r->lo);

	if (bytes != NULL && !read_memory(pid, r->lo, bytes, r->hi - r->lo)) {
		free(bytes);
		bytes = NULL;
	}
	return bytes;
}

static bool take_regions(struct harness_snapshot *shot)
{
	char path[64], line[PATH_MAX + 128];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)shot->tid);
	file = fopen(path, "re");
	if (file == NULL)
		return false;
	while (fgets(line, sizeof(line), file) != NULL) {
		struct region r = {0};
		unsigned long lo, hi, offset, inode;
		int used = 0;

		if (sscanf(line, "%lx-%lx %7s %lx %*s %lu %n", &lo, &hi, r.protection, &offset,
			   &inode, &used) < 5)
			continue;
		r.lo = lo;
		r.hi = hi;
		r.offset = offset;
		r.inode = inode;
		line[strcspn(line, "\n")] = '\0';
		snprintf(r.name, sizeof(r.name), "%.*s", NAME_MAX_SHOWN - 1, line + used);
		if (r.protection[2] == 'x' && r.inode == 0)
			r.bytes = copy_bytes(shot->tid, &r);
		*(struct region *)grow(&shot->regions, &shot->region_count, sizeof(r)) = r;
	}
	fclose(file);
	return shot->region_count > 0;
}

const char *harness_status(pid_t pid, pid_t tid, const char *field)
{
	static char value[128];
	char path[64], line[512];
	FILE *file;

	snprintf(value, sizeof(value), "?");
	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)tid);
	file = fopen(path, "re");
	if (file == NULL)
		return value;
	while (fgets(line, sizeof(line), file) != NULL) {
		if (strncmp(line, field, strlen(field)) != 0)
			continue;
		snprintf(value, sizeof(value), "%.*s", (int)sizeof(value) - 1,
			 line + strlen(field) + strspn(line + strlen(field), " \t"));
		value[strcspn(value, "\n")] = '\0';
		break;
	}
	fclose(file);
	return value;
}

static void take_threads(struct harness_snapshot *shot)
{
	char path[64];
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)shot->pid);
	dir = opendir(path);
	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		struct thread t = {.tid = atoi(entry->d_name)};

		if (t.tid <= 0)
			continue;
		t.state = harness_status(shot->pid, t.tid, "State:")[0];
		t.tracer = atoi(harness_status(shot->pid, t.tid, "TracerPid:"));
		for (size_t i = 0; i < 4; i++)
			snprintf(t.signals[i], sizeof(t.signals[i]), "%.20s",
				 harness_status(shot->pid, t.tid, signal_fields[i]));
		if (t.state == '?')
			continue; /* it ended while we looked */
		*(struct thread *)grow(&shot->threads, &shot->thread_count, sizeof(t)) = t;
	}
	if (dir != NULL)
		closedir(dir);
}

static void take_descriptors(struct harness_snapshot *shot)
{
	char path[300];
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)shot->tid);
	dir = opendir(path);
	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		struct descriptor d = {.fd = atoi(entry->d_name)};
		ssize_t size;

		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)shot->tid, d.fd);
		size = readlink(path, d.target, sizeof(d.target) - 1);
		if (size < 0)
			continue;
		d.target[size] = '\0';
		*(struct descriptor *)grow(&shot->descriptors, &shot->descriptor_count, sizeof(d)) =
			d;
	}
	if (dir != NULL)
		closedir(dir);
}

struct harness_snapshot *harness_snapshot_take(pid_t pid)
{
	struct harness_snapshot *shot = calloc(1, sizeof(*shot));

	if (shot == NULL)
		return NULL;
	shot->pid = shot->tid = pid;
	take_threads(shot);
	for (size_t i = 0; i < shot->thread_count; i++)
		if (!strchr("ZX", shot->threads[i].state)) {
			shot->tid = shot->threads[i].tid;
			break;
		}
	if (!take_regions(shot)) {
		harness_snapshot_free(shot);
		return NULL;
	}
	take_descriptors(shot);
	return shot;
}

void harness_snapshot_free(struct harness_snapshot *shot)
{
	if (shot == NULL)
		return;
	for (size_t i = 0; i < shot->region_count; i++)
		free(shot->regions[i].bytes);
	free(shot->regions);
	free(shot->threads);
	free(shot->descriptors);
	free(shot);
}

/* ------------------------------------------------------------ comparing */

struct report {
	char *text;
	size_t size, used, count;
};

static void differ(struct report *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void differ(struct report *r, const char *format, ...)
{
	va_list list;
	int n;

	r->count++;
	if (r->used + 1 >= r->size)
		return;
	va_start(list, format);
	n = vsnprintf(r->text + r->used, r->size - r->used, format, list);
	va_end(list);
	r->used += n > 0 ? (size_t)n : 0;
	if (r->used + 1 < r->size) {
		r->text[r->used++] = '\n';
		r->text[r->used] = '\0';
	}
}

static bool is_ours(const struct region *r)
{
	return strstr(r->name, "dinst") != NULL && strstr(r->name, "memfd:") != NULL;
}

static bool same_region(const struct region *a, const struct region *b)
{
	if (strcmp(a->protection, b->protection) != 0 || strcmp(a->name, b->name) != 0 ||
	    a->offset != b->offset || a->inode != b->inode)
		return false;
	if (strcmp(a->name, "[stack]") == 0)
		return a->hi == b->hi;
	if (strcmp(a->name, "[heap]") == 0)
		return a->lo == b->lo;
	return a->lo == b->lo && a->hi == b->hi;
}

static bool has_region(const struct harness_snapshot *shot, const struct region *r)
{
	for (size_t i = 0; i < shot->region_count; i++)
		if (same_region(&shot->regions[i], r))
			return true;
	return false;
}

static void compare_maps(const struct harness_snapshot *a, const struct harness_snapshot *b,
			 unsigned what, struct report *out)
{
	for (size_t i = 0; i < a->region_count; i++) {
		const struct region *r = &a->regions[i];

		if (!has_region(b, r))
			differ(out, "mapping gone: %llx-%llx %s %s", (unsigned long long)r->lo,
			       (unsigned long long)r->hi, r->protection, r->name);
	}
	for (size_t i = 0; i < b->region_count; i++) {
		const struct region *r = &b->regions[i];

		if ((what & HARNESS_NO_ARENA) && is_ours(r))
			continue;
		if (!has_region(a, r))
			differ(out, "mapping new: %llx-%llx %s %s", (unsigned long long)r->lo,
			       (unsigned long long)r->hi, r->protection, r->name);
	}
}

static void compare_bytes(const struct region *r, const uint8_t *want, const uint8_t *have,
			  size_t size, struct report *out)
{
	for (size_t i = 0; i < size; i++)
		if (want[i] != have[i])
			differ(out, "text at %llx (%s+0x%llx) is %02x, was %02x",
			       (unsigned long long)(r->lo + i), r->name,
			       (unsigned long long)(r->offset + i), have[i], want[i]);
}

/* The bytes that the file has for a mapping; behind its end there are zeros. */
static bool file_bytes(pid_t pid, const struct region *r, uint8_t *bytes)
{
	char path[PATH_MAX];
	size_t size = r->hi - r->lo, done = 0;
	int fd;

	memset(bytes, 0, size);
	snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", (int)pid,
		 (unsigned long long)r->lo, (unsigned long long)r->hi);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		snprintf(path, sizeof(path), "/proc/%d/root%s", (int)pid, r->name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	if (fd < 0)
		return false;
	while (done < size) {
		ssize_t got = pread(fd, bytes + done, size - done, (off_t)(r->offset + done));

		if (got <= 0)
			break;
		done += (size_t)got;
	}
	close(fd);
	return done > 0;
}

static void compare_text(const struct harness_snapshot *a, const struct harness_snapshot *b,
			 struct report *out)
{
	for (size_t i = 0; i < a->region_count; i++) {
		const struct region *r = &a->regions[i];
		size_t size = r->hi - r->lo;
		uint8_t *want, *have;

		if (r->protection[2] != 'x' || strcmp(r->name, "[vsyscall]") == 0)
			continue;
		want = malloc(size);
		have = malloc(size);
		if (want == NULL || have == NULL)
			abort();
		if (!read_memory(b->tid, r->lo, have, size))
			differ(out, "text of %s at %llx cannot be read", r->name,
			       (unsigned long long)r->lo);
		else if (r->inode == 0 && r->bytes != NULL)
			compare_bytes(r, r->bytes, have, size, out);
		else if (r->inode != 0 && file_bytes(b->tid, r, want))
			compare_bytes(r, want, have, size, out);
		else
			differ(out, "nothing to compare the text of %s at %llx with", r->name,
			       (unsigned long long)r->lo);
		free(want);
		free(have);
	}
}

static const struct thread *find_thread(const struct harness_snapshot *shot, pid_t tid)
{
	for (size_t i = 0; i < shot->thread_count; i++)
		if (shot->threads[i].tid == tid)
			return &shot->threads[i];
	return NULL;
}

static void compare_threads(const struct harness_snapshot *a, const struct harness_snapshot *b,
			    unsigned what, struct report *out)
{
	for (size_t i = 0; i < b->thread_count; i++) {
		const struct thread *now = &b->threads[i], *was = find_thread(a, now->tid);

		if (!(what & HARNESS_THREADS))
			break;
		if (was == NULL)
			differ(out, "thread %d is new", (int)now->tid);
		if (now->tracer != 0 && (was == NULL || was->tracer != now->tracer))
			differ(out, "thread %d is traced by %d", (int)now->tid, now->tracer);
		if ((now->state == 'T' || now->state == 't') &&
		    (was == NULL || was->state != now->state))
			differ(out, "thread %d is stopped (%c)", (int)now->tid, now->state);
	}
	for (size_t i = 0; i < a->thread_count; i++) {
		const struct thread *was = &a->threads[i], *now = find_thread(b, was->tid);

		if (now == NULL) {
			if (what & HARNESS_THREADS)
				differ(out, "thread %d is gone", (int)was->tid);
			continue;
		}
		for (size_t f = 0; (what & HARNESS_SIGNALS) && f < 4; f++)
			if (strcmp(was->signals[f], now->signals[f]) != 0)
				differ(out, "thread %d: %s is %s, was %s", (int)was->tid,
				       signal_fields[f], now->signals[f], was->signals[f]);
	}
}

static bool has_descriptor(const struct harness_snapshot *shot, const struct descriptor *d)
{
	for (size_t i = 0; i < shot->descriptor_count; i++)
		if (shot->descriptors[i].fd == d->fd &&
		    strcmp(shot->descriptors[i].target, d->target) == 0)
			return true;
	return false;
}

static void compare_descriptors(const struct harness_snapshot *a, const struct harness_snapshot *b,
				struct report *out)
{
	for (size_t i = 0; i < a->descriptor_count; i++)
		if (!has_descriptor(b, &a->descriptors[i]))
			differ(out, "descriptor %d (%s) is gone", a->descriptors[i].fd,
			       a->descriptors[i].target);
	for (size_t i = 0; i < b->descriptor_count; i++)
		if (!has_descriptor(a, &b->descriptors[i]))
			differ(out, "descriptor %d (%s) is new", b->descriptors[i].fd,
			       b->descriptors[i].target);
}

size_t harness_differences(const struct harness_snapshot *before, unsigned what, char *text,
			   size_t size)
{
	struct report out = {.text = text, .size = size};
	struct harness_snapshot *now = harness_snapshot_take(before->pid);

	if (size > 0)
		text[0] = '\0';
	if (now == NULL) {
		differ(&out, "process %d is gone", (int)before->pid);
		return out.count;
	}
	if (what & HARNESS_MAPS)
		compare_maps(before, now, what, &out);
	if (what & HARNESS_TEXT)
		compare_text(before, now, &out);
	compare_threads(before, now, what, &out);
	if (what & HARNESS_FDS)
		compare_descriptors(before, now, &out);
	harness_snapshot_free(now);
	return out.count;
}

/*
 * True if some thread blocks all but a few signals, as one does that is being made, or has not been
 * on a CPU since a signal came for it that it does not block.
 */
static bool is_moving(const struct harness_snapshot *shot)
{
	for (size_t i = 0; i < shot->thread_count; i++) {
		const uint64_t blocked = strtoull(shot->threads[i].signals[0], NULL, 16);
		const uint64_t pending = strtoull(shot->threads[i].signals[3], NULL, 16);

		if (__builtin_popcountll(blocked) > 56 || (pending & ~blocked))
			return true;
	}
	return false;
}

struct harness_snapshot *harness_snapshot_settled(pid_t pid)
{
	struct harness_snapshot *shot = harness_snapshot_take(pid);

	/*
	 * A target may really block everything, or never come to rest: it is taken as it is then.
	 * In the middle of an exec there is nothing to see for a moment.
	 */
	for (int i = 0; i < START_TRIES; i++) {
		char text[64];
		bool settled = shot != NULL && !is_moving(shot);

		usleep(SETTLE_US / 2);
		if (settled &&
		    harness_differences(shot, HARNESS_ALL & ~HARNESS_TEXT, text, sizeof(text)) == 0)
			break;
		harness_snapshot_free(shot);
		shot = harness_snapshot_take(pid);
	}
	return shot;
}

void harness_verify_what(struct harness *h, unsigned what)
{
	char text[4096];

	assert_non_null(h->before);
	/*
	 * A target in motion is seen with a signal blocked by a handler that runs, or with a
	 * descriptor that it has just opened: what is really different stays so.
	 */
	for (int i = 0; i < SETTLE_TRIES; i++) {
		if (harness_differences(h->before, what, text, sizeof(text)) == 0)
			return;
		usleep(SETTLE_US);
	}
	fail_msg("the target is not as it was before:\n%s", text);
}

void harness_verify(struct harness *h)
{
	harness_verify_what(h, HARNESS_ALL);
}
