/* SPDX-License-Identifier: MIT */
/*
 * prove.c - proves that a process looks as it did before.
 *
 *   prove save PID FILE             writes down what the process looks like
 *   prove check PID FILE [exact | all | child]
 *                                   compares; says what differs (at most ten things, or
 *                                   all), exits with 1
 *
 * Compared are the mappings, all bytes of all executable mappings, and whether
 * a thread is stopped or traced. Mappings of anonymous writable memory come
 * and go with the program's own malloc: they are counted, and only with
 * `exact` is a difference there a failure. Anything executable, anything with
 * a name or a file is compared always, and memory that dinst keeps for threads is known by its first
 * word. For a `child`, forked by what the picture is of, the mappings of its own are no
 * difference: what is executable in both must have the same bytes.
 *
 * Stands alone on purpose: it shares no code with what it checks.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_SIZE = PATH_MAX + 128, SHOW_MAX = 10 };

/* What dinst's memory for threads begins with, but for its address. */
static const uint64_t THREADS_MAGIC = 0x7364616572687464;

struct region {
	uint64_t lo, hi;
	char *line;	/* as in /proc/PID/maps */
	uint8_t *bytes; /* of executable mappings, else NULL */
	bool of_dinst;	/* memory for threads */
};

struct picture {
	struct region *regions;
	size_t count;
};

static void die(const char *what)
{
	fprintf(stderr, "prove: %s: %s\n", what, strerror(errno));
	exit(2);
}

static bool is_executable(const struct region *r)
{
	return strchr(r->line, ' ')[3] == 'x' && strstr(r->line, "[vsyscall]") == NULL;
}

/* Writable, without a file and without a name but those of heap and stack. */
static bool is_own_memory(const struct region *r)
{
	const char *protection = strchr(r->line, ' ') + 1;
	unsigned long inode = 0;
	int used = 0;

	if (sscanf(protection, "%*s %*s %*s %lu %n", &inode, &used) < 1 || inode != 0 ||
	    protection[2] == 'x')
		return false;
	return protection[used] == '\0' || strcmp(protection + used, "[heap]") == 0 ||
	       strcmp(protection + used, "[stack]") == 0 ||
	       strncmp(protection + used, "[anon:", 6) == 0;
}

static struct region *add_region(struct picture *p, const char *line)
{
	struct region *r;

	p->regions = realloc(p->regions, (p->count + 1) * sizeof(*r));
	if (p->regions == NULL)
		die("memory");
	r = &p->regions[p->count++];
	r->line = strdup(line);
	r->bytes = NULL;
	r->of_dinst = false;
	if (r->line == NULL || sscanf(line, "%" SCNx64 "-%" SCNx64, &r->lo, &r->hi) != 2)
		die(line);
	return r;
}

static void read_fully(int fd, void *bytes, size_t size, uint64_t at, const char *what)
{
	for (size_t done = 0; done < size;) {
		ssize_t got = pread(fd, (char *)bytes + done, size - done, (off_t)(at + done));

		if (got <= 0)
			die(what);
		done += (size_t)got;
	}
}

static bool is_for_threads(int mem, const struct region *r)
{
	uint64_t first;

	return is_own_memory(r) &&
	       pread(mem, &first, sizeof(first), (off_t)r->lo) == sizeof(first) &&
	       first == (THREADS_MAGIC ^ r->lo);
}

static void take(pid_t pid, struct picture *p)
{
	char path[64], line[LINE_SIZE];
	FILE *maps;
	int mem;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "re");
	if (maps == NULL)
		die(path);
	while (fgets(line, sizeof(line), maps) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		add_region(p, line);
	}
	fclose(maps);
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	mem = open(path, O_RDONLY | O_CLOEXEC);
	if (mem < 0)
		die(path);
	for (size_t i = 0; i < p->count; i++) {
		struct region *r = &p->regions[i];

		r->of_dinst = is_for_threads(mem, r);
		if (!is_executable(r))
			continue;
		r->bytes = malloc(r->hi - r->lo);
		if (r->bytes == NULL)
			die("memory");
		read_fully(mem, r->bytes, r->hi - r->lo, r->lo, r->line);
	}
	close(mem);
}

static void save(const struct picture *p, const char *name)
{
	FILE *file = fopen(name, "we");

	if (file == NULL)
		die(name);
	for (size_t i = 0; i < p->count; i++) {
		const struct region *r = &p->regions[i];

		fprintf(file, "%s\n", r->line);
		if (r->bytes != NULL && fwrite(r->bytes, 1, r->hi - r->lo, file) != r->hi - r->lo)
			die(name);
	}
	if (fclose(file) != 0)
		die(name);
}

static void load(struct picture *p, const char *name)
{
	FILE *file = fopen(name, "re");
	char line[LINE_SIZE];

	if (file == NULL)
		die(name);
	while (fgets(line, sizeof(line), file) != NULL) {
		struct region *r;

		line[strcspn(line, "\n")] = '\0';
		r = add_region(p, line);
		if (!is_executable(r))
			continue;
		r->bytes = malloc(r->hi - r->lo);
		if (r->bytes == NULL || fread(r->bytes, 1, r->hi - r->lo, file) != r->hi - r->lo)
			die(name);
	}
	fclose(file);
}

/* ------------------------------------------------------------ comparing */

static size_t differences, shown_most = SHOW_MAX;

static void differ(const char *what, const char *detail)
{
	if (differences++ < shown_most)
		printf("  %s: %s\n", what, detail);
}

static const struct region *find(const struct picture *p, const struct region *r)
{
	for (size_t i = 0; i < p->count; i++)
		if (strcmp(p->regions[i].line, r->line) == 0)
			return &p->regions[i];
	return NULL;
}

/* What is in `a` and not in `b`. Returns how many of the program's own memory. */
static size_t compare_maps(const struct picture *a, const struct picture *b, const char *what,
			   bool exact)
{
	size_t own = 0;

	for (size_t i = 0; i < a->count; i++) {
		if (find(b, &a->regions[i]) != NULL)
			continue;
		if (is_own_memory(&a->regions[i]) && !exact)
			own++;
		else
			differ(what, a->regions[i].line);
	}
	return own;
}

static size_t compare_bytes(const struct picture *before, const struct picture *now)
{
	size_t total = 0;
	char text[LINE_SIZE + 64];

	for (size_t i = 0; i < before->count; i++) {
		const struct region *r = &before->regions[i], *other = find(now, r);

		if (r->bytes == NULL || other == NULL)
			continue;
		total += r->hi - r->lo;
		for (uint64_t k = 0; k < r->hi - r->lo; k++) {
			if (r->bytes[k] == other->bytes[k])
				continue;
			snprintf(text, sizeof(text), "%" PRIx64 " is %02x, was %02x in %s",
				 r->lo + k, other->bytes[k], r->bytes[k], r->line);
			differ("byte", text);
		}
	}
	return total;
}

/* A line of a thread's status, or the empty string. */
static void status_line(const char *path, const char *field, char *value, size_t size)
{
	char line[512];
	FILE *file = fopen(path, "re");

	value[0] = '\0';
	while (file != NULL && fgets(line, sizeof(line), file) != NULL)
		if (strncmp(line, field, strlen(field)) == 0)
			snprintf(value, size, "%s",
				 line + strlen(field) + strspn(line + strlen(field), " \t"));
	if (file != NULL)
		fclose(file);
}

static size_t check_threads(pid_t pid)
{
	char path[320], state[64], tracer[64];
	struct dirent *entry;
	size_t count = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	if (dir == NULL)
		die(path);
	while ((entry = readdir(dir)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		count++;
		snprintf(path, sizeof(path), "/proc/%d/task/%s/status", (int)pid, entry->d_name);
		status_line(path, "State:", state, sizeof(state));
		status_line(path, "TracerPid:", tracer, sizeof(tracer));
		if (state[0] == 'T' || state[0] == 't')
			differ("thread is stopped", entry->d_name);
		if (atoi(tracer) != 0)
			differ("thread is traced", entry->d_name);
	}
	closedir(dir);
	return count;
}

static int check(pid_t pid, const char *name, bool exact, bool child)
{
	struct picture before = {0}, now = {0};
	size_t own = 0, bytes, threads;

	load(&before, name);
	take(pid, &now);
	if (!child) {
		own = compare_maps(&before, &now, "mapping gone", exact);
		own += compare_maps(&now, &before, "mapping new", exact);
	}
	for (size_t i = 0; i < now.count; i++)
		if (now.regions[i].of_dinst)
			differ("memory of dinst", now.regions[i].line);
	bytes = compare_bytes(&before, &now);
	threads = check_threads(pid);
	if (differences != 0) {
		printf("DIFFERENT: %zu differences\n", differences);
		return 1;
	}
	printf("equal: %zu mappings, %zu KiB of executable bytes, none of %zu threads stopped or traced",
	       now.count, bytes / 1024, threads);
	if (own != 0)
		printf(" (%zu anonymous mappings changed with the program's own memory)", own);
	printf("\n");
	return 0;
}

int main(int argc, char **argv)
{
	struct picture p = {0};

	if (argc == 4 && strcmp(argv[1], "save") == 0) {
		take((pid_t)atoi(argv[2]), &p);
		save(&p, argv[3]);
		return 0;
	}
	if (argc >= 4 && strcmp(argv[1], "check") == 0) {
		const char *how = argc > 4 ? argv[4] : "";

		if (strcmp(how, "all") == 0)
			shown_most = SIZE_MAX;
		return check((pid_t)atoi(argv[2]), argv[3], strcmp(how, "exact") == 0,
			     strcmp(how, "child") == 0);
	}
	fprintf(stderr, "usage: prove save PID FILE | check PID FILE [exact | all | child]\n");
	return 2;
}
