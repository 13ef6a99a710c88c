/* SPDX-License-Identifier: MIT */
/*
 * maps.c - reading and parsing /proc/PID/maps.
 *
 * Owns the text and the entries that point into it. Never touches the target,
 * never believes a line that does not parse to its end.
 */
#include "inject/maps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "inject/proc.h"
#include "inject/proc_open.h"

enum {
	FIRST_SIZE = 1 << 16,
	LOOKS = 64, /* for a thread that has memory: who was found may have ended */
	START_LOOKS =
		1000, /* many times the mappings of one file: what is made of 65,530 is no reason to wait */
};

/* /proc/PID/pagemap: Documentation/admin-guide/mm/pagemap.rst */
static const uint64_t PAGEMAP_PRESENT = (uint64_t)1 << 63;
static const uint64_t PAGEMAP_SWAPPED = (uint64_t)1 << 62;
const uint64_t MAPS_PAGEMAP_THERE = (uint64_t)3 << 62;
static const uint64_t PAGEMAP_FILE = (uint64_t)1 << 61;
static const uint64_t PAGEMAP_EXCLUSIVE = (uint64_t)1 << 56;
const uint64_t MAPS_PAGEMAP_GUARD = (uint64_t)1 << 58; /* since Linux 6.15 */

static const size_t SIZE_LIMIT = (size_t)1
				 << 28; /* 2 million mappings: far beyond any real limit */

/* What went wrong just now; never 0. */
static int last_error(void)
{
	return errno ? errno : EIO;
}

/*
 * Who has no memory any more when some of the text has been read seems to have no mapping beyond that: what the file
 * begins with is not there any more either (fs/proc/task_mmu.c, m_start()). 1, 0, or a negative errno value.
 */
static int has_lost_memory(int fd)
{
	ssize_t got;
	char first;

	if (lseek(fd, 0, SEEK_SET) < 0)
		return -last_error();
	do
		got = read(fd, &first, 1);
	while (got < 0 && errno == EINTR);
	return got < 0 ? -last_error() : !got;
}

/* Reads all mappings; 0, or an errno value. *size is 0 where there are none: it has no memory (any more). */
static int slurp(const char *path, char **text, size_t *size)
{
	size_t room = FIRST_SIZE, used = 0;
	char *buffer = NULL, *grown;
	int result = 0, lost;
	ssize_t got;
	int fd;

	fd = proc_open(path, O_RDONLY);
	if (fd < 0)
		return last_error();
	buffer = malloc(room + 1);
	if (!buffer) {
		result = ENOMEM;
		goto out;
	}
	for (;;) {
		got = read(fd, buffer + used, room - used);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			result = last_error();
			goto out;
		}
		if (got == 0)
			break;
		used += (size_t)got;
		if (used < room)
			continue;
		if (room >= SIZE_LIMIT) {
			result = EFBIG;
			goto out;
		}
		grown = realloc(buffer, room * 2 + 1);
		if (!grown) {
			result = ENOMEM;
			goto out;
		}
		buffer = grown;
		room *= 2;
	}
	lost = has_lost_memory(fd);
	if (lost < 0) {
		result = -lost;
		goto out;
	}
	*text = buffer;
	*size = lost ? 0 : used;
	buffer = NULL;
out:
	free(buffer);
	close(fd);
	return result;
}

/* Of one thread; ESRCH where it has no memory. */
static int slurp_task(const char *path, char **text, size_t *size)
{
	int result = slurp(path, text, size);

	if (!result && !*size) {
		free(*text);
		*text = NULL;
		result = ESRCH;
	}
	return result;
}

/*
 * An exited leader has no mappings, or cannot be asked, while other threads still have the memory. ENOENT: nobody has it;
 * ESRCH: who had it has ended meanwhile, or executed a program.
 */
static int slurp_any_thread(pid_t pid, char **text, size_t *size)
{
	char path[64];
	pid_t tid = 0;
	const int error = proc_memory_look(pid, NULL, &tid);
	int result;

	if (error || !tid)
		return error ? -error : ENOENT;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/maps", (int)pid, (int)tid);
	result = slurp_task(path, text, size);
	return result == ENOENT ? ESRCH : result;
}

int maps_read(pid_t pid, struct maps *m, struct dinst_error *e)
{
	char path[64], *text = NULL;
	size_t size = 0;
	int result = ESRCH;

	memset(m, 0, sizeof(*m));
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	for (int look = 0; look < LOOKS && result == ESRCH; look++) {
		result = slurp_task(path, &text, &size);
		if (result == ESRCH)
			result = slurp_any_thread(pid, &text, &size);
	}
	if (result == ENOENT || (!result && !text))
		return dinst_fail(e, DINST_GONE, "cannot read %s: the process has ended", path);
	if (result)
		return dinst_fail_errno(
			e, result == EACCES || result == EPERM ? DINST_NOT_PERMITTED : DINST_FAILED,
			result, "cannot read %s", path);
	return maps_parse(text, size, m, e);
}

/* A number in `base` followed by `end`; *at moves behind it. */
static bool number(const char **at, int base, char end, uint64_t *value)
{
	char *stop;

	/* strtoull would take blanks, signs and 0x. */
	if (!((**at >= '0' && **at <= '9') || (base == 16 && **at >= 'a' && **at <= 'f')) ||
	    (*at)[1] == 'x')
		return false;
	errno = 0;
	*value = strtoull(*at, &stop, base);
	if (errno || *stop != end)
		return false;
	*at = stop + 1;
	return true;
}

static bool permissions(const char **at, struct maps_entry *entry)
{
	const char *p = *at;

	if ((p[0] != 'r' && p[0] != '-') || (p[1] != 'w' && p[1] != '-') ||
	    (p[2] != 'x' && p[2] != '-') || (p[3] != 'p' && p[3] != 's') || p[4] != ' ')
		return false;
	entry->protection = (p[0] == 'r' ? PROT_READ : 0) | (p[1] == 'w' ? PROT_WRITE : 0) |
			    (p[2] == 'x' ? PROT_EXEC : 0);
	entry->shared = p[3] == 's';
	*at = p + 5;
	return true;
}

/* lo-hi perms offset major:minor inode   name */
static bool parse_line(const char *line, struct maps_entry *entry)
{
	uint64_t major, minor;
	const char *at = line;

	if (!number(&at, 16, '-', &entry->lo) || !number(&at, 16, ' ', &entry->hi) ||
	    !permissions(&at, entry) || !number(&at, 16, ' ', &entry->offset) ||
	    !number(&at, 16, ':', &major) || !number(&at, 16, ' ', &minor))
		return false;
	/* The inode is followed by blanks and the name, by one blank, or by nothing. */
	if (!number(&at, 10, ' ', &entry->inode)) {
		if (!number(&at, 10, '\0', &entry->inode))
			return false;
		at--;
	}
	while (*at == ' ')
		at++;
	entry->device = makedev(major, minor);
	entry->name = at;
	return entry->lo < entry->hi;
}

int maps_parse(char *text, size_t size, struct maps *m, struct dinst_error *e)
{
	struct maps_entry *grown, entry;
	size_t room = 0;
	char *line, *end;

	memset(m, 0, sizeof(*m));
	m->text = text;
	text[size] = '\0';
	for (line = text; line < text + size; line = end + 1) {
		end = memchr(line, '\n', (size_t)(text + size - line));
		if (!end)
			end = text + size;
		*end = '\0';
		if (!parse_line(line, &entry)) {
			dinst_fail(e, DINST_BAD_FILE, "a line of a maps file is malformed: %.80s",
				   line);
			maps_release(m);
			return DINST_BAD_FILE;
		}
		/* The kernel's text may repeat itself if the process changes it meanwhile. */
		if (m->count && entry.lo < m->entries[m->count - 1].hi)
			continue;
		if (m->count == room) {
			room = room ? room * 2 : 64;
			grown = realloc(m->entries, room * sizeof(*grown));
			if (!grown) {
				maps_release(m);
				return dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu mappings",
						  room);
			}
			m->entries = grown;
		}
		m->entries[m->count++] = entry;
	}
	return DINST_OK;
}

void maps_release(struct maps *m)
{
	free(m->entries);
	free(m->text);
	memset(m, 0, sizeof(*m));
}

size_t maps_index(const struct maps *m, taddr_t address)
{
	size_t lo = 0, hi = m->count;

	while (lo < hi) {
		size_t middle = lo + (hi - lo) / 2;

		if (m->entries[middle].hi <= address)
			lo = middle + 1;
		else
			hi = middle;
	}
	return lo;
}

const struct maps_entry *maps_find(const struct maps *m, taddr_t address)
{
	size_t at = maps_index(m, address);

	return at < m->count && m->entries[at].lo <= address ? &m->entries[at] : NULL;
}

static bool is_memory(const struct maps_entry *entry)
{
	const int both = PROT_READ | PROT_WRITE;

	return !entry->inode && (entry->protection & both) == both;
}

const struct maps_entry *maps_stack_end(const struct maps *m, const struct maps_entry *entry,
					taddr_t pointer)
{
	const struct maps_entry *last = entry, *end = m->entries + m->count;

	while (strcmp(last->name, "[stack]") != 0 && (pointer < last->lo || pointer >= last->hi)) {
		if (last + 1 == end || last[1].lo != last->hi || !is_memory(last) ||
		    !is_memory(&last[1]))
			return entry;
		last++;
	}
	return last;
}

const struct maps_entry *maps_file_start(const struct maps *m, const struct maps_entry *entry)
{
	const size_t at = (size_t)(entry - m->entries);

	for (size_t back = 0; entry->inode && back <= at && back <= START_LOOKS; back++) {
		const struct maps_entry *other = entry - back;

		if (other->inode == entry->inode && other->device == entry->device &&
		    !other->offset)
			return other;
	}
	return NULL;
}

bool maps_is_free(const struct maps *m, taddr_t lo, taddr_t hi)
{
	size_t at = maps_index(m, lo);

	return at == m->count || m->entries[at].lo >= hi;
}

const struct maps_entry *maps_named(const struct maps *m, const char *name)
{
	for (size_t i = 0; i < m->count; i++)
		if (!strcmp(m->entries[i].name, name))
			return &m->entries[i];
	return NULL;
}

bool maps_shares_memory(const struct maps_entry *entry)
{
	/* The last has a name that the program gave it (prctl(2), PR_SET_VMA_ANON_NAME), in place of /dev/zero. */
	static const char *const names[] = {
		"/dev/zero", "/dev/shm/", "/memfd:", "/SYSV", "/anon_hugepage", "[anon_shmem:"};

	for (size_t i = 0; entry->shared && i < sizeof(names) / sizeof(*names); i++)
		if (!strncmp(entry->name, names[i], strlen(names[i])))
			return true;
	return false;
}

int maps_open_pagemap(pid_t tid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)tid);
	return proc_open(path, O_RDONLY);
}

bool maps_is_copy(uint64_t entry)
{
	if (entry & PAGEMAP_SWAPPED)
		return true;
	return (entry & PAGEMAP_PRESENT) && !(entry & PAGEMAP_FILE);
}

int maps_page_is_copy(int pagemap, taddr_t page)
{
	const off_t at = (off_t)(page / (taddr_t)sysconf(_SC_PAGESIZE) * sizeof(uint64_t));
	uint64_t entry;

	if (pagemap < 0 || pread(pagemap, &entry, sizeof(entry), at) != (ssize_t)sizeof(entry))
		return -1;
	return maps_is_copy(entry);
}

bool maps_is_inherited(uint64_t entry)
{
	return maps_is_copy(entry) && !(entry & PAGEMAP_EXCLUSIVE);
}

taddr_t maps_skip_guards(int pagemap, taddr_t address, taddr_t end)
{
	const taddr_t size = (taddr_t)sysconf(_SC_PAGESIZE);
	uint64_t entry;

	while (address < end && address % size == 0 &&
	       pread(pagemap, &entry, sizeof(entry), (off_t)(address / size * sizeof(entry))) ==
		       (ssize_t)sizeof(entry) &&
	       entry & MAPS_PAGEMAP_GUARD)
		address += size;
	return address < end ? address : end;
}

/* PAGEMAP_SCAN of include/uapi/linux/fs.h, and what goes with it. */
struct scan_region {
	uint64_t start, end, categories;
};

struct scan_request {
	uint64_t size, flags, start, end, walk_end, regions, region_count, pages_most;
	uint64_t inverted, all_of, any_of, returned;
};

enum { IS_PRESENT = 1 << 3, IS_SWAPPED = 1 << 4 };

bool maps_finds_pages(int pagemap)
{
	struct scan_request request = {
		.size = sizeof(request), .any_of = IS_PRESENT, .returned = IS_PRESENT};

	request.end = (uint64_t)sysconf(_SC_PAGESIZE);
	return ioctl(pagemap, _IOWR('f', 16, struct scan_request), &request) >= 0;
}

taddr_t maps_first_page(int pagemap, taddr_t address, taddr_t end)
{
	struct scan_region found = {0};
	struct scan_request request = {
		.size = sizeof(request),
		.start = address,
		.end = end,
		.regions = (uintptr_t)&found,
		.region_count = 1,
		.any_of = IS_PRESENT | IS_SWAPPED,
		.returned = IS_PRESENT | IS_SWAPPED,
	};
	const int count = ioctl(pagemap, _IOWR('f', 16, struct scan_request), &request);

	if (count < 0)
		return address;
	return count && found.start > address ? found.start : count ? address : end;
}

bool maps_is_untouched(int pagemap, taddr_t address, size_t length)
{
	const taddr_t size = (taddr_t)sysconf(_SC_PAGESIZE);

	for (taddr_t page = address / size * size; page < address + length; page += size)
		if (maps_page_is_copy(pagemap, page))
			return false;
	return true;
}
