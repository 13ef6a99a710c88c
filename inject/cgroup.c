/* SPDX-License-Identifier: MIT */
/*
 * cgroup.c - is a process frozen, and how much memory is left to it.
 *
 * Owns the ways from a process to the files of its control groups, of both
 * versions. Looks only; a group that cannot be seen from here limits nothing.
 */
#include "inject/cgroup.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inject/mounts.h"
#include "inject/proc.h"

enum { STAT_MAX = 16384 };

/* What version 1 shows where there is no limit: near the largest number of pages. */
static const uint64_t NO_LIMIT = (uint64_t)1 << 60;

/* -------------------------------------------------------------- the place */

/* True if `word` is one of the words of `list`, which are divided by commas. */
static bool has_word(const char *list, size_t length, const char *word)
{
	const size_t size = strlen(word);
	const char *end = list + length;

	while (list < end) {
		const char *comma = memchr(list, ',', (size_t)(end - list));
		const char *stop = comma ? comma : end;

		if ((size_t)(stop - list) == size && !memcmp(list, word, size))
			return true;
		list = stop + 1;
	}
	return false;
}

/* The group's name out of "N:CONTROLLERS:NAME", version 2 "0::NAME". */
static bool find_group(const char *groups, const char *controller, char *name, size_t size)
{
	const char *line = groups, *end, *list, *colon;

	for (; *line; line = *end ? end + 1 : end) {
		end = line + strcspn(line, "\n");
		list = memchr(line, ':', (size_t)(end - line));
		colon = list ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;
		if (!colon || (size_t)(end - colon) > size)
			continue;
		if (controller ? !has_word(list + 1, (size_t)(colon - list - 1), controller)
			       : line[0] != '0' || list != line + 1 || colon != list + 1)
			continue;
		memcpy(name, colon + 1, (size_t)(end - colon - 1));
		name[end - colon - 1] = '\0';
		return name[0] == '/' && !strstr(name, "/..");
	}
	return false;
}

/* Copies a path of mountinfo, where blanks and the like are "\040". False if it is too long. */
static bool unescape(const char *from, size_t length, char *to, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; i < length; i++) {
		char c = from[i];

		if (c == '\\' && length - i > 3) {
			c = (char)((from[i + 1] - '0') << 6 | (from[i + 2] - '0') << 3 |
				   (from[i + 3] - '0'));
			i += 3;
		}
		if (used + 1 >= size)
			return false;
		to[used++] = c;
	}
	to[used] = '\0';
	return true;
}

/* "ID PARENT DEVICE ROOT POINT OPTIONS [TAGS] - TYPE SOURCE SUPER" (proc_pid_mountinfo(5)). */
static bool parse_mount(const char *line, const char *end, const char *controller, char *root,
			char *point, size_t size)
{
	size_t root_length, point_length, type_length, super_length;
	const char *root_at = mounts_field(line, end, 3, &root_length);
	const char *point_at = mounts_field(line, end, 4, &point_length);
	const char *type = mounts_type(line, end, &type_length);
	const char *super = type ? mounts_field(type, end, 2, &super_length) : NULL;

	if (!root_at || !point_at || !super)
		return false;
	if (controller ? type_length != 6 || memcmp(type, "cgroup", 6) != 0 ||
				 !has_word(super, super_length, controller)
		       : type_length != 7 || memcmp(type, "cgroup2", 7) != 0)
		return false;
	return unescape(root_at, root_length, root, size) &&
	       unescape(point_at, point_length, point, size);
}

bool cgroup_locate(const char *mounts, const char *groups, const char *controller,
		   struct cgroup_place *place)
{
	char name[CGROUP_PATH_MAX], root[CGROUP_PATH_MAX], point[CGROUP_PATH_MAX];
	const char *line = mounts, *end, *below;
	size_t length;
	int used;

	if (!find_group(groups, controller, name, sizeof(name)))
		return false;
	for (; *line; line = *end ? end + 1 : end) {
		end = line + strcspn(line, "\n");
		if (!parse_mount(line, end, controller, root, point, sizeof(root)))
			continue;
		/* What is mounted may be a part of the hierarchy: a container's own. */
		length = strcmp(root, "/") != 0 ? strlen(root) : 0;
		if (strncmp(name, root, length) != 0 || (name[length] && name[length] != '/'))
			continue;
		below = name + length;
		used = snprintf(place->directory, sizeof(place->directory), "%s%s", point,
				strcmp(below, "/") != 0 ? below : "");
		if (used < 0 || (size_t)used >= sizeof(place->directory))
			return false;
		place->root = strlen(point);
		return true;
	}
	return false;
}

/* ------------------------------------------------------------- its files */

static ssize_t read_in(const char *directory, const char *file, char *text, size_t size)
{
	char path[CGROUP_PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/%s", directory, file);
	return proc_read(path, text, size);
}

/* Goes to the group above; false at the top. */
static bool go_up(struct cgroup_place *place)
{
	char *slash = strrchr(place->directory, '/');

	if (!slash || (size_t)(slash - place->directory) < place->root ||
	    strlen(place->directory) <= place->root)
		return false;
	*slash = '\0';
	return true;
}

/* The groups of a process, to be freed; NULL if they cannot be read: errno is why. */
static char *read_groups(pid_t pid)
{
	char path[64], *groups = malloc(STAT_MAX);
	ssize_t got;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	got = groups ? proc_read(path, groups, STAT_MAX) : -ENOMEM;
	if (got > 0)
		return groups;
	free(groups);
	errno = got ? (int)-got : ESRCH;
	return NULL;
}

/* Where the groups of a process say whether they are frozen. */
struct freezer {
	uint64_t mounts; /* mounts_generation() before it was looked up */
	char *groups;	 /* of the process, as /proc says; NULL: not looked up */
	bool has_state, has_events;
	struct cgroup_place state;  /* version 1 */
	struct cgroup_place events; /* version 2 */
};

/* The last one: processes that are forked from each other are mostly in the same groups. */
static struct freezer last;
static pthread_mutex_t last_lock = PTHREAD_MUTEX_INITIALIZER;

static void look_up(struct freezer *f, uint64_t generation, char *groups)
{
	char *mounts = mounts_read(getpid());

	free(f->groups);
	*f = (struct freezer){.mounts = generation};
	if (mounts) {
		f->groups = groups;
		f->has_state = cgroup_locate(mounts, groups, "freezer", &f->state);
		f->has_events = cgroup_locate(mounts, groups, NULL, &f->events);
	} else {
		free(groups);
	}
	free(mounts);
}

/* A copy without the text. Without a generation it is looked up each time. */
static struct freezer find_freezer(pid_t pid)
{
	/* Asked for before mounts are read: what changes meanwhile is seen the next time. */
	const uint64_t generation = mounts_generation();
	char *groups = read_groups(pid);
	struct freezer found = {0};

	if (!groups)
		return found;
	pthread_mutex_lock(&last_lock);
	if (last.groups && generation && generation == last.mounts && !strcmp(groups, last.groups))
		free(groups);
	else
		look_up(&last, generation, groups);
	if (last.groups)
		found = last;
	pthread_mutex_unlock(&last_lock);
	found.groups = NULL;
	return found;
}

void cgroup_find_freezer(pid_t pid)
{
	find_freezer(pid);
}

bool cgroup_is_frozen(pid_t pid, char *group, size_t size)
{
	const struct freezer f = find_freezer(pid);
	struct cgroup_place place = f.events;
	bool frozen = false;
	char text[256];

	if (f.has_state) {
		/* The state of a group says what those above it make of it. */
		frozen = read_in(f.state.directory, "freezer.state", text, sizeof(text)) > 0 &&
			 strncmp(text, "THAWED", 6) != 0;
		snprintf(group, size, "%s", f.state.directory);
	}
	if (!frozen && f.has_events) {
		frozen = read_in(place.directory, "cgroup.events", text, sizeof(text)) > 0 &&
			 strstr(text, "frozen 1");
		snprintf(group, size, "%s", place.directory);
		do {
			if (read_in(place.directory, "cgroup.freeze", text, sizeof(text)) <= 0 ||
			    text[0] != '1')
				continue;
			frozen = true;
			snprintf(group, size, "%s", place.directory);
			break;
		} while (go_up(&place));
	}
	return frozen;
}

/* The number behind `key`, which begins a line. */
static uint64_t number_at(const char *text, const char *key)
{
	const size_t length = strlen(key);

	for (; text; text = strchr(text, '\n')) {
		text += *text == '\n';
		if (!strncmp(text, key, length) && text[length] == ' ')
			return strtoull(text + length, NULL, 10);
	}
	return 0;
}

/* How each version calls its files. A limit that is "max" is none. */
static const struct memory_files {
	const char *limits[2], *usage, *inactive, *active;
} memory_files[2] = {
	{{"memory.limit_in_bytes"},
	 "memory.usage_in_bytes",
	 "total_inactive_file",
	 "total_active_file"},
	/* Above the second one nobody is killed, but each who allocates is made to sleep. */
	{{"memory.max", "memory.high"}, "memory.current", "inactive_file", "active_file"},
};

/* True if there is such a file; *lack as proc_note_lack(). */
static bool reads(const char *directory, const char *file, char *text, size_t size, int *lack)
{
	const ssize_t got = read_in(directory, file, text, size);

	if (got < 0)
		proc_note_lack(lack, (int)got);
	return got > 0;
}

/* The lowest limit of one group, and the name of its file; NO_LIMIT, or more, without one. */
static uint64_t limit_in(const char *directory, const struct memory_files *files, const char **file,
			 int *lack)
{
	uint64_t least = NO_LIMIT, limit;
	char text[64];

	for (size_t i = 0; i < 2 && files->limits[i]; i++) {
		if (!reads(directory, files->limits[i], text, sizeof(text), lack) || text[0] == 'm')
			continue;
		limit = strtoull(text, NULL, 10);
		if (limit >= least)
			continue;
		least = limit;
		*file = files->limits[i];
	}
	return least;
}

/* What is left in one group, and the file that says so; UINT64_MAX without a limit. */
static uint64_t room_in(const char *directory, const struct memory_files *files, const char **file,
			char *stat, int *lack)
{
	const uint64_t limit = limit_in(directory, files, file, lack);
	char text[64];
	uint64_t usage, cache;

	if (limit >= NO_LIMIT || !reads(directory, files->usage, text, sizeof(text), lack))
		return UINT64_MAX;
	usage = strtoull(text, NULL, 10);
	if (reads(directory, "memory.stat", stat, STAT_MAX, lack)) {
		cache = number_at(stat, files->inactive) + number_at(stat, files->active);
		usage -= cache < usage ? cache : usage;
	}
	return usage < limit ? limit - usage : 0;
}

uint64_t cgroup_least_room(const char *mounts, const char *groups, char *limit, size_t size,
			   int *lack)
{
	struct cgroup_place place;
	char *stat = malloc(STAT_MAX);
	uint64_t least = UINT64_MAX, room;
	const char *file = NULL;

	if (!stat)
		proc_note_lack(lack, -ENOMEM);
	for (int version = 0; stat && version < 2; version++) {
		if (!cgroup_locate(mounts, groups, version ? NULL : "memory", &place))
			continue;
		do {
			room = room_in(place.directory, &memory_files[version], &file, stat, lack);
			if (room >= least)
				continue;
			least = room;
			snprintf(limit, size, "%s/%s", place.directory, file);
		} while (go_up(&place));
	}
	free(stat);
	return least;
}

int cgroup_memory_room(pid_t pid, uint64_t *bytes, char *limit, size_t size, struct dinst_error *e)
{
	char *mounts, *groups;
	uint64_t least = UINT64_MAX;
	int lack = 0;

	mounts = mounts_read(getpid());
	if (!mounts)
		proc_note_lack(&lack, -errno);
	groups = read_groups(pid);
	if (!groups)
		proc_note_lack(&lack, -errno);
	if (mounts && groups)
		least = cgroup_least_room(mounts, groups, limit, size, &lack);
	free(mounts);
	free(groups);
	if (lack)
		return dinst_fail_errno(e, DINST_BUSY, -lack,
					"cannot look at how much memory process %d may take",
					(int)pid);
	*bytes = least;
	return DINST_OK;
}
