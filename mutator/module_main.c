/* SPDX-License-Identifier: MIT */
/*
 * module_main.c - which file the target runs, and under which name.
 *
 * Reads /proc and the target's memory, changes nothing.
 */
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inject/proc_open.h"
#include "mutator/module_private.h"

const char *path_base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

bool main_root_find(const struct target *t, char root[MAIN_ROOT_TEXT])
{
	char now[MAIN_ROOT_TEXT] = "";

	snprintf(now, sizeof(now), "/proc/%d/root", (int)target_memory_tid(t));
	if (!strcmp(now, root))
		return false;
	memcpy(root, now, sizeof(now));
	return true;
}

/* The string that the program was executed by (AT_EXECFN, getauxval(3)); "" if unknown. */
static void read_execfn(const struct target *t, char *text, size_t size)
{
	Elf64_auxv_t entries[64];
	char link[64];
	ssize_t n = -1;
	int fd;

	text[0] = 0;
	snprintf(link, sizeof(link), "/proc/%d/auxv", (int)target_memory_tid(t));
	fd = proc_open(link, O_RDONLY);
	if (fd >= 0) {
		n = read(fd, entries, sizeof(entries));
		close(fd);
	}
	for (ssize_t i = 0; (i + 1) * (ssize_t)sizeof(*entries) <= n; i++) {
		if (entries[i].a_type != AT_EXECFN)
			continue;
		text[target_read_some(t, entries[i].a_un.a_val, text, size - 1)] = 0;
		return;
	}
}

/* Does `name`, beside the program's file, stand for that file? */
static bool is_link_to(const struct main_program *p, const char *root, const char *name)
{
	const char *slash = strrchr(p->path, '/');
	char path[PATH_MAX_TEXT], to[PATH_MAX_TEXT];
	struct stat st;
	ssize_t n;

	if (!slash || !*name || strchr(name, '/'))
		return false;
	n = snprintf(path, sizeof(path), "%s%.*s/%s", root, (int)(slash - p->path), p->path, name);
	if (n < 0 || (size_t)n >= sizeof(path))
		return false;
	if (!proc_stat_file(path, &st) && st.st_ino == p->inode)
		return true;
	/* Where the file was replaced, the link still names it. */
	n = proc_readlink(path, to, sizeof(to) - 1);
	if (n <= 0)
		return false;
	to[n] = 0;
	return !strcmp(path_base(to), slash + 1);
}

/*
 * One file often has several names, and does what the one says that it was
 * started by (redis-server is a link to redis-check-rdb in Debian): that is the
 * name people look for.
 */
void main_program_find(const struct target *t, const char *root, struct main_program *p)
{
	char text[PATH_MAX_TEXT];
	const char *candidates[2];
	struct stat st;
	ssize_t n;

	snprintf(text, sizeof(text), "/proc/%d/exe", (int)target_memory_tid(t));
	if (!proc_stat_file(text, &st))
		p->inode = st.st_ino;
	n = proc_readlink(text, p->path, sizeof(p->path) - 1);
	p->path[n > 0 ? n : 0] = 0;
	if (path_is_deleted(p->path))
		p->path[strlen(p->path) - (strlen(path_deleted))] = 0;
	read_execfn(t, text, sizeof(text));
	candidates[0] = path_base(text);
	candidates[1] = target_name(t);
	snprintf(p->name, sizeof(p->name), "%s", path_base(p->path));
	for (size_t i = 0; i < 2; i++) {
		if (!is_link_to(p, root, candidates[i]))
			continue;
		snprintf(p->name, sizeof(p->name), "%s", candidates[i]);
		return;
	}
}
