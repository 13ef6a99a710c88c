/* SPDX-License-Identifier: MIT */
/*
 * cache.c - the directory of cached files: see cache.h. Knows nothing of what
 * is in them.
 */
#include "mutator/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	ENTRIES_MAX = 4096,   /* files that are looked at when room is made */
	TEMPORARY_AGE = 3600, /* seconds after which a temporary file is nobody's */
	PATH_ROOM = 4096,
	LINKS_MOST = 40, /* of links to links, as the kernel has it */
	DIRECTORY = O_PATH | O_DIRECTORY | O_CLOEXEC,
};

static const char temporary[] = "new-plans-";
static const char suffix[] = ".plans";

/* ------------------------------------------------------------------- hash */

static uint64_t mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)(a ^ UINT64_C(0x9e3779b97f4a7c15)) *
				    (b ^ UINT64_C(0xd1b54a32d192ed03));

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t word_at(const uint8_t *p)
{
	uint64_t word;

	memcpy(&word, p, sizeof(word));
	return word;
}

uint64_t cache_hash(const void *bytes, size_t size, uint64_t seed)
{
	const uint8_t *p = bytes;
	uint64_t a = seed ^ size, b = ~seed, tail[2] = {0};
	size_t left = size;

	/* Two chains that do not wait for each other. */
	for (; left >= 32; left -= 32, p += 32) {
		a = mix(word_at(p) ^ a, word_at(p + 8));
		b = mix(word_at(p + 16) ^ b, word_at(p + 24));
	}
	for (; left >= 8; left -= 8, p += 8)
		a = mix(word_at(p) ^ a, left);
	memcpy(tail, p, left);
	return mix(a ^ tail[0], b ^ left);
}

/* -------------------------------------------------------------- directory */

static bool is_ours(int fd, bool directory)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || st.st_mode & 077)
		return false;
	return directory ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode) && st.st_nlink == 1;
}

static bool is_our_place(const struct stat *st)
{
	return S_ISDIR(st->st_mode) && st->st_uid == geteuid() &&
	       (!(st->st_mode & S_IWOTH) || (st->st_mode & S_ISVTX));
}

/* Takes the first name off `rest`; false if there is none. */
static bool take_name(char *rest, char name[NAME_MAX + 1])
{
	const char *from = rest + strspn(rest, "/");
	const size_t length = strcspn(from, "/");

	if (!length || length > NAME_MAX)
		return false;
	memcpy(name, from, length);
	name[length] = 0;
	memmove(rest, from + length, strlen(from + length) + 1);
	return true;
}

/* What has this name in directory `at`; a directory made for nobody but us where there is nothing and `at` is ours. */
static int find_or_make(int at, const char *name)
{
	enum { FLAGS = O_PATH | O_NOFOLLOW | O_CLOEXEC };
	const int fd = openat(at, name, FLAGS);
	struct stat st;

	if (fd >= 0 || errno != ENOENT || fstat(at, &st) < 0 || !is_our_place(&st))
		return fd;
	mkdirat(at, name, 0700);
	/* Who was quicker has what is there looked at like anything that was there before. */
	return openat(at, name, FLAGS);
}

/* Puts where the link of a descriptor leads to before `rest`; false of another user's, or where that is too long. */
static bool put_link_before(int link, const struct stat *st, char rest[PATH_ROOM])
{
	char target[PATH_ROOM];
	const ssize_t length = readlinkat(link, "", target, sizeof(target));
	const size_t left = strlen(rest) + 1;

	if ((st->st_uid && st->st_uid != geteuid()) || length <= 0 ||
	    (size_t)length + left > PATH_ROOM)
		return false;
	memmove(rest + length, rest, left);
	memcpy(rest, target, (size_t)length);
	return true;
}

/*
 * The directory `path` from `at` on, which is closed: a descriptor (O_PATH), -1 if there is none that we may use. It
 * goes from one descriptor to the next, so that nobody can put a link in between. What is missing is made below what
 * is ours: what sudo leaves in the environment may be another user's home, in which we would make directories for
 * him or, by his links, elsewhere. Only root's links and ours are followed, and none in the place of the last name.
 */
static int walk(int at, const char *path)
{
	char rest[PATH_ROOM], name[NAME_MAX + 1];
	unsigned links = 0;
	struct stat st;

	if ((size_t)snprintf(rest, sizeof(rest), "%s", path) >= sizeof(rest)) {
		close(at);
		return -1;
	}
	while (at >= 0 && take_name(rest, name)) {
		int next = find_or_make(at, name);

		if (next >= 0 && fstat(next, &st) == 0 && S_ISLNK(st.st_mode)) {
			const bool leads_on =
				*rest && ++links <= LINKS_MOST && put_link_before(next, &st, rest);

			close(next);
			next = !leads_on ? -1 : openat(at, *rest == '/' ? "/" : ".", DIRECTORY);
		}
		close(at);
		at = next;
	}
	/* A name that no directory can have. */
	if (at >= 0 && rest[strspn(rest, "/")]) {
		close(at);
		at = -1;
	}
	return at;
}

/* The directory, made if need be; -1 if there is none that we may use. */
static int open_directory(void)
{
	const char *off = secure_getenv("DINST_CACHE");
	const char *base = secure_getenv("XDG_CACHE_HOME"), *below = "/dinst";
	char path[PATH_ROOM];
	struct stat st;
	int at, fd;

	if (off && !strcmp(off, "off"))
		return -1;
	/* XDG Base Directory Specification: what is not absolute is to be ignored. */
	if (!base || base[0] != '/') {
		base = secure_getenv("HOME");
		below = "/.cache/dinst";
	}
	if (!base || base[0] != '/' ||
	    (size_t)snprintf(path, sizeof(path), "%s%s", base, below) >= sizeof(path))
		return -1;
	at = open(base, DIRECTORY);
	if (at < 0 && errno == ENOENT) {
		at = walk(open("/", DIRECTORY), path);
	} else if (at >= 0 && fstat(at, &st) == 0 && is_our_place(&st)) {
		at = walk(at, below);
	} else if (at >= 0) {
		close(at);
		at = -1;
	}
	if (at < 0)
		return -1;
	fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	close(at);
	if (fd >= 0 && !is_ours(fd, true)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* ---------------------------------------------------------------- reading */

static bool read_all(int fd, uint8_t *to, size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = read(fd, to + done, size - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return true;
}

static bool read_file(int fd, uint8_t **bytes, size_t *size)
{
	uint8_t *to;
	struct stat st;

	if (fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > CACHE_FILE_MAX)
		return false;
	to = malloc((size_t)st.st_size);
	if (!to)
		return false;
	if (!read_all(fd, to, (size_t)st.st_size)) {
		free(to);
		return false;
	}
	*bytes = to;
	*size = (size_t)st.st_size;
	return true;
}

bool cache_read(const char *name, uint8_t **bytes, size_t *size)
{
	int directory = open_directory(), fd;
	bool done = false;

	if (directory < 0)
		return false;
	fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0) {
		done = is_ours(fd, false) && read_file(fd, bytes, size);
		/* When it was used last: the others go first. */
		if (done)
			futimens(fd, NULL);
		close(fd);
	}
	close(directory);
	return done;
}

/* ---------------------------------------------------------------- writing */

struct entry {
	char name[128];
	off_t size;
	struct timespec used;
};

static bool is_name(const char *name)
{
	size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-");

	return n > 0 && !name[n] && name[0] != '.' && n < sizeof(((struct entry *)0)->name);
}

/* Somebody may keep other things in the same place: those are not ours to remove. */
static bool is_cached(const char *name)
{
	size_t n = strlen(name), end = strlen(suffix);

	return is_name(name) && n > end && !strcmp(name + n - end, suffix);
}

static bool is_temporary(const char *name)
{
	return is_name(name) && !strncmp(name, temporary, strlen(temporary));
}

static int by_use(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->used.tv_sec != y->used.tv_sec)
		return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
	return x->used.tv_nsec < y->used.tv_nsec ? -1 : x->used.tv_nsec > y->used.tv_nsec;
}

/* The files in the directory but `except`; temporary ones that nobody finishes are removed. */
static size_t list(int directory, const char *except, struct entry *entries)
{
	int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *d;
	struct stat st;
	size_t n = 0;

	if (!dir && copy >= 0)
		close(copy);
	while (dir && n < ENTRIES_MAX && (d = readdir(dir))) {
		if (!(is_cached(d->d_name) || is_temporary(d->d_name)) ||
		    !strcmp(d->d_name, except) ||
		    fstatat(directory, d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (is_temporary(d->d_name) && time(NULL) - st.st_mtime > TEMPORARY_AGE) {
			unlinkat(directory, d->d_name, 0);
			continue;
		}
		memcpy(entries[n].name, d->d_name,
		       strlen(d->d_name) + 1); /* is_name() has measured it */
		entries[n].size = st.st_size;
		entries[n++].used = st.st_mtim;
	}
	if (dir)
		closedir(dir);
	return n;
}

/* Removes what was used longest ago, until `size` more bytes fit, and one more file. */
static bool make_room(int directory, const char *except, size_t size)
{
	struct entry *entries = calloc(ENTRIES_MAX, sizeof(*entries));
	uint64_t total = size;
	size_t n;

	if (!entries)
		return false;
	n = list(directory, except, entries);
	qsort(entries, n, sizeof(*entries), by_use);
	for (size_t i = 0; i < n; i++)
		total += (uint64_t)entries[i].size;
	/* Where there are more than are looked at, those are too many. */
	for (size_t i = 0; i < n && (total > CACHE_TOTAL_MAX || (n == ENTRIES_MAX && i < n / 4));
	     i++)
		if (unlinkat(directory, entries[i].name, 0) == 0)
			total -= (uint64_t)entries[i].size;
	free(entries);
	return total <= CACHE_TOTAL_MAX;
}

static bool write_all(int fd, const uint8_t *from, size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = write(fd, from + done, size - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return true;
}

bool cache_write(const char *name, const void *bytes, size_t size)
{
	static unsigned number;
	int directory, fd;
	char path[64];
	bool done = false;

	if (!size || size > CACHE_FILE_MAX || !is_cached(name))
		return false;
	directory = open_directory();
	if (directory < 0)
		return false;
	snprintf(path, sizeof(path), "%s%ld-%u", temporary, (long)getpid(), number++);
	if (make_room(directory, name, size)) {
		fd = openat(directory, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			    0600);
		if (fd >= 0) {
			done = write_all(fd, bytes, size) && fsync(fd) == 0;
			done = close(fd) == 0 && done;
			done = done && renameat(directory, path, directory, name) == 0;
			if (!done)
				unlinkat(directory, path, 0);
		}
	}
	close(directory);
	return done;
}

/* -------------------------------------------------------------------- key */

static const char key_name[] = ".key";

static bool read_key(int directory, struct siphash_key *key)
{
	int fd = openat(directory, key_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	bool done = false;

	if (fd >= 0) {
		done = is_ours(fd, false) && read_all(fd, (uint8_t *)key, sizeof(*key));
		close(fd);
	}
	return done;
}

/* Of several who make one at a time the last one's stays: what the others wrote is ignored. */
static void make_key(int directory)
{
	struct siphash_key key;
	char path[64];
	bool done;
	int fd;

	if (getrandom(&key, sizeof(key), GRND_NONBLOCK) != sizeof(key))
		return;
	snprintf(path, sizeof(path), "%skey-%ld", temporary, (long)getpid());
	unlinkat(directory, path, 0);
	fd = openat(directory, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	done = write_all(fd, (const uint8_t *)&key, sizeof(key));
	done = close(fd) == 0 && done;
	if (!done || renameat(directory, path, directory, key_name) != 0)
		unlinkat(directory, path, 0);
}

bool cache_key(struct siphash_key *key)
{
	int directory = open_directory();
	bool done;

	if (directory < 0)
		return false;
	done = read_key(directory, key);
	if (!done) {
		make_key(directory);
		done = read_key(directory, key);
	}
	close(directory);
	return done;
}

void cache_remove(const char *name)
{
	int directory = is_cached(name) ? open_directory() : -1;

	if (directory < 0)
		return;
	unlinkat(directory, name, 0);
	close(directory);
}
