/* SPDX-License-Identifier: MIT */
/*
 * installed.c - where files of metrics are: what is shipped, and the user's own.
 *
 * Owns the search and the reading of files. A file is read whole, and only up to
 * a limit. What lies in a directory is loaded in the order of its names; nothing
 * there may block us, and what everybody may write, or is neither ours nor root's, is not used.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mutator/mdl/private.h"

enum { FILES_MOST = 512, WARNINGS_MOST = 64 * 1024 };

/* ------------------------------------------------------------------- files */

/* The whole of fd, malloc'ed; one byte more than the limit stands for all that is too much. */
static int read_all(int fd, const char *path, char **text, size_t *size, struct dinst_error *e)
{
	char *bytes = malloc(TEXT_MOST + 1);
	size_t used = 0;
	ssize_t n = 1;

	if (!bytes)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory to read %s", path);
	while (n != 0 && used <= TEXT_MOST) {
		n = read(fd, bytes + used, TEXT_MOST + 1 - used);
		if (n > 0)
			used += (size_t)n;
		if (n < 0 && errno != EINTR) {
			free(bytes);
			return dinst_fail_errno(e, DINST_BAD_FILE, errno, "cannot read %s", path);
		}
	}
	*text = bytes;
	*size = used;
	return 0;
}

int read_file(const char *path, char **text, size_t *size, struct dinst_error *e)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int err;

	if (fd < 0)
		return dinst_fail_errno(e, DINST_BAD_FILE, errno, "cannot open %s", path);
	err = read_all(fd, path, text, size, e);
	close(fd);
	return err;
}

int mdl_load_file(struct mdl_library *l, const char *path, struct dinst_error *e)
{
	char *text = NULL;
	size_t size = 0;
	int err = read_file(path, &text, &size, e);

	if (!err)
		err = mdl_load_text(l, path, text, size, e);
	free(text);
	return err;
}

/* A file of a directory: only an ordinary one of ours or root's that, but for its group, nobody else can write. */
static int read_found(const char *path, char **text, size_t *size, struct dinst_error *e)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	int err;

	if (fd < 0)
		return dinst_fail_errno(e, DINST_BAD_FILE, errno, "cannot open %s", path);
	if (fstat(fd, &st) != 0)
		err = dinst_fail_errno(e, DINST_BAD_FILE, errno, "cannot look at %s", path);
	else if (!S_ISREG(st.st_mode))
		err = dinst_fail(e, DINST_BAD_FILE, "%s is no ordinary file", path);
	else if ((st.st_uid != geteuid() && st.st_uid != 0) || (st.st_mode & S_IWOTH))
		err = dinst_fail(e, DINST_NOT_PERMITTED,
				 "%s can be written by others: it is not used", path);
	else
		err = read_all(fd, path, text, size, e);
	close(fd);
	return err;
}

/* -------------------------------------------------------------- directories */

static int is_metrics_file(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);

	return entry->d_name[0] != '.' && length > 4 &&
	       strcmp(entry->d_name + length - 4, ".mdl") == 0;
}

/* Adds a line to the warnings; without memory for it, it is lost. */
static void warn(char **warnings, const char *text)
{
	size_t used = *warnings ? strlen(*warnings) : 0, length = strlen(text);
	char *more;

	if (used + length > WARNINGS_MOST)
		return;
	more = realloc(*warnings, used + length + 2);
	if (!more)
		return;
	snprintf(more + used, length + 2, "%s%s", used ? "\n" : "", text);
	*warnings = more;
}

/* What becomes of bad files: they are named in *warnings, or are an error if that is NULL. */
struct outcome {
	char **warnings;
	struct dinst_error *e;
	int err;
};

static void bad_file(struct outcome *o, const struct dinst_error *why)
{
	if (o->warnings && why->code != DINST_NO_MEMORY)
		warn(o->warnings, why->text);
	else if (!o->err)
		o->err = dinst_fail_text(o->e, why->code, why->text);
}

static void begin_file(struct mdl_library *l, struct loading **first, const char *path,
		       struct outcome *o)
{
	struct dinst_error own = {0};
	char *text = NULL;
	size_t size = 0;

	if (read_found(path, &text, &size, &own) ||
	    !loading_begin(l, first, path, text, size, DINST_ERROR_TEXT, &own))
		bad_file(o, &own);
	free(text);
}

/* All of directory's files, together. A directory that is not there has none. */
static int load_directory(struct mdl_library *l, const char *directory, char **warnings,
			  struct dinst_error *e)
{
	struct dirent **entries = NULL;
	int count = scandir(directory, &entries, is_metrics_file, alphasort);
	struct outcome o = {warnings, e, 0};
	struct loading *first = NULL, *next;
	char path[PATH_MAX];

	for (int i = 0; i < count; i++) {
		struct dinst_error own = {0};

		if (i < FILES_MOST && snprintf(path, sizeof(path), "%s/%s", directory,
					       entries[i]->d_name) < (int)sizeof(path)) {
			begin_file(l, &first, path, &o);
		} else if (i <= FILES_MOST) {
			dinst_fail(
				&own, DINST_BAD_FILE,
				"%s has more than %d files, or too long a name: not all are used",
				directory, FILES_MOST);
			bad_file(&o, &own);
		}
		free(entries[i]);
	}
	free(entries);
	loading_check(first);
	for (struct loading *at = first; at; at = next) {
		struct dinst_error own = {0};

		next = at->next;
		if (loading_end(l, at, NULL, &own))
			bad_file(&o, &own);
	}
	return o.err;
}

/* ------------------------------------------------------------------ places */

static bool is_directory(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The directory of our own binary with a slash behind it; "" if it is not known. */
static void own_directory(char *path, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", path, size - 1);
	char *slash;

	path[n > 0 ? n : 0] = '\0';
	slash = strrchr(path, '/');
	if (slash)
		slash[1] = '\0';
}

/*
 * Where what is shipped is: $DINST_METRICS, else `metrics` beside our binary (a
 * build directory), else ../share/dinst/metrics or ../../share/dinst/metrics
 * from there (bin and libexec/dinst), else where `make install` puts it. Test
 * programs are two levels deeper in a build directory.
 */
static bool find_shipped(char *path, size_t size)
{
	static const char *const places[] = {"metrics", "../share/dinst/metrics",
					     "../../share/dinst/metrics"};
	const char *given = getenv("DINST_METRICS");
	char own[PATH_MAX];

	if (given && *given)
		return snprintf(path, size, "%s", given) < (int)size && is_directory(path);
	own_directory(own, sizeof(own));
	for (size_t i = 0; *own && i < sizeof(places) / sizeof(places[0]); i++)
		if (snprintf(path, size, "%s%s", own, places[i]) < (int)size && is_directory(path))
			return true;
	if (strstr(own, "/tests/") && snprintf(path, size, "%s../../metrics", own) < (int)size &&
	    is_directory(path))
		return true;
	return snprintf(path, size, "%s/metrics", DINST_DATADIR) < (int)size && is_directory(path);
}

static bool find_users(char *path, size_t size)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

	if (config && config[0] == '/')
		return snprintf(path, size, "%s/dinst", config) < (int)size;
	return home && home[0] == '/' && snprintf(path, size, "%s/.config/dinst", home) < (int)size;
}

int mdl_library_load_installed(struct mdl_library *l, char **warnings, struct dinst_error *e)
{
	char found[PATH_MAX], path[PATH_MAX];
	int err;

	*warnings = NULL;
	if (!find_shipped(found, sizeof(found)) || !realpath(found, path))
		return dinst_fail(e, DINST_BAD_FILE,
				  "the metrics that dinst ships are not found in %s, nor beside "
				  "the program: is the installation complete?",
				  getenv("DINST_METRICS") ? getenv("DINST_METRICS")
							  : DINST_DATADIR "/metrics");
	err = load_directory(l, path, NULL, e);
	if (!err && find_users(path, sizeof(path)))
		err = load_directory(l, path, warnings, e);
	if (err) {
		free(*warnings);
		*warnings = NULL;
	}
	return err;
}
