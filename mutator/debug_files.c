/* SPDX-License-Identifier: MIT */
/*
 * debug_files.c - files that a program's file names for what it does not say itself: its separate debug file,
 * and the one that several of those share (dwz).
 *
 * They are looked for inside the given root only, whatever symbolic links say, and nothing is opened but
 * regular files. A wrong or damaged one is passed over: we can do without.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <lzma.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inject/files.h"
#include "inject/proc.h"
#include "mutator/image_private.h"

enum {
	PATH_TEXT = 4096,
	ID_MOST = 64,
	TEXTS_MOST = 64, /* sections of code that are compared */
	TRIES = 16,	 /* to follow a path while somebody renames directories */
};

/* Opens the file at `path` below the directory `top`, which no link or ".." leaves. -1 if it is not to be had. */
static int open_inside(int top, const char *path)
{
	struct open_how how = {
		.flags = O_PATH | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	int fd = syscall(SYS_openat2, top, path, &how, sizeof(how));

	if (fd < 0 && errno == ENOSYS)
		fd = openat(top, path, how.flags | O_NOFOLLOW);
	return file_reopen_regular(fd, true);
}

/* The same below `root`; -errno. EAGAIN: a rename anywhere, while a ".." was followed (openat2(2)). */
static int open_below(const char *root, const char *path)
{
	int top = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd = -EAGAIN;

	if (top < 0)
		return -errno;
	for (int i = 0; i < TRIES && (fd == -EAGAIN || fd == -EINTR); i++) {
		fd = open_inside(top, path);
		if (fd < 0)
			fd = -errno;
	}
	close(top);
	return fd;
}

static bool same_build_id(const struct elf_file *a, const struct elf_file *b)
{
	size_t x = 0, y = 0;
	const uint8_t *p = elf_build_id(a, &x), *q = elf_build_id(b, &y);

	return p && q && x == y && !memcmp(p, q, x);
}

/* False if sections of code in `other` have the name of this one, and all lie elsewhere. */
static bool lies_there(const struct elf_section *text, const struct elf_file *other)
{
	bool named = false;

	for (size_t i = 0; i < other->section_count; i++) {
		const struct elf_section *s = &other->sections[i];

		if (!(s->flags & SHF_EXECINSTR) || strcmp(s->name, text->name) != 0)
			continue;
		if (s->address == text->address && s->size == text->size)
			return true;
		named = true;
	}
	return !named;
}

bool debug_file_fits(const struct elf_file *program, const struct elf_file *debug)
{
	unsigned texts = 0;

	for (size_t i = 0; i < program->section_count && texts < TEXTS_MOST; i++) {
		const struct elf_section *s = &program->sections[i];

		if (!(s->flags & SHF_EXECINSTR) || !*s->name)
			continue;
		texts++;
		if (!lies_there(s, debug))
			return false;
	}
	return true;
}

/* Maps a debug file of somebody, perhaps the wrong one. img->lack: why it could not even be opened. */
static bool map_below(struct image *img, const char *root, const char *path, struct elf_file *f)
{
	struct dinst_error ignored = {0};
	const int fd = open_below(root, path + strspn(path, "/"));
	bool mapped;

	if (fd < 0) {
		proc_note_lack(&img->lack, fd);
		return false;
	}
	mapped = !elf_file_map(fd, path, ELF_DEBUG, f, &ignored);
	close(fd);
	return mapped;
}

static bool try_debug(struct image *img, const char *root, const char *path, const uint32_t *crc)
{
	bool right;

	if (!map_below(img, root, path, &img->debug))
		return false;
	if (crc)
		right = lzma_crc32(img->debug.bytes, img->debug.size, 0) == *crc;
	else
		right = same_build_id(&img->file, &img->debug);
	if (!right || !debug_file_fits(&img->file, &img->debug))
		elf_file_release(&img->debug);
	return img->debug.bytes != NULL;
}

/* Where the file with that build id is kept; false for ids that nobody makes. */
static bool path_of_id(const uint8_t *id, size_t size, char *path, size_t room)
{
	int used;

	if (!id || size < 2 || size > ID_MOST)
		return false;
	used = snprintf(path, room, "usr/lib/debug/.build-id/%02x/", id[0]);
	for (size_t i = 1; i < size; i++)
		used += snprintf(path + used, room - used, "%02x", id[i]);
	snprintf(path + used, room - used, ".debug");
	return true;
}

static bool debug_by_build_id(struct image *img, const char *root)
{
	char path[256];
	size_t size = 0;
	const uint8_t *id = elf_build_id(&img->file, &size);

	return path_of_id(id, size, path, sizeof(path)) && try_debug(img, root, path, NULL);
}

/* .gnu_debuglink: a file name, zeros up to a multiple of 4, the CRC of the file. */
static bool debug_by_link(struct image *img, const char *root)
{
	static const char *const places[] = {"%.*s/%s", "%.*s/.debug/%s", "usr/lib/debug%.*s/%s"};
	const struct elf_section *s = elf_section_named(&img->file, ".gnu_debuglink");
	const char *link, *slash = strrchr(img->name, '/');
	char path[PATH_TEXT];
	uint32_t crc;
	size_t length, at;

	if (!s || img->name[0] != '/')
		return false;
	link = (const char *)s->bytes;
	length = strnlen(link, s->size);
	at = (length + 4) & ~(size_t)3;
	if (!length || at > s->size || s->size - at < 4 || memchr(link, '/', length))
		return false;
	crc = elf_u32(s->bytes + at);
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		int n = snprintf(path, sizeof(path), places[i], (int)(slash - img->name), img->name,
				 link);

		if (n > 0 && (size_t)n < sizeof(path) && try_debug(img, root, path, &crc))
			return true;
	}
	return false;
}

/* What could not be looked for now is there another time, and nobody asks again in the image's life. */
static int tell_lack(const struct image *img, const struct elf_file *f, struct dinst_error *e)
{
	if (f->bytes || !img->lack)
		return 0;
	return dinst_fail_errno(e, DINST_NO_MEMORY, -img->lack, "%s: cannot open its debug file",
				img->name);
}

int debug_file_open(struct image *img, const char *root, struct dinst_error *e)
{
	img->lack = 0;
	if (!debug_by_build_id(img, root))
		debug_by_link(img, root);
	return tell_lack(img, &img->debug, e);
}

/* ------------------------------------------------------- what several share */

static bool try_shared(struct image *img, const char *root, const char *path, const uint8_t *id,
		       size_t size)
{
	const uint8_t *its;
	size_t its_size = 0;

	if (!map_below(img, root, path, &img->shared))
		return false;
	its = elf_build_id(&img->shared, &its_size);
	if (its && its_size == size && !memcmp(its, id, size))
		return true;
	elf_file_release(&img->shared);
	return false;
}

/* `link` from where the file at `from` is. */
static bool try_beside(struct image *img, const char *root, const char *from, const char *link,
		       const uint8_t *id, size_t size)
{
	const char *slash = strrchr(from, '/');
	char path[PATH_TEXT];
	int n;

	if (!slash)
		return false;
	n = snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - from), from, link);
	return n > 0 && (size_t)n < sizeof(path) && try_shared(img, root, path, id, size);
}

/* .gnu_debugaltlink: a path and a zero, the build id of the file. */
static void open_shared(struct image *img, const char *root)
{
	const struct elf_file *f = types_file(img);
	const struct elf_section *s = f ? elf_section_named(f, ".gnu_debugaltlink") : NULL;
	size_t length, size, own_size = 0;
	const uint8_t *id, *own;
	const char *link;
	char path[256];

	if (!s || !s->bytes)
		return;
	link = (const char *)s->bytes;
	length = strnlen(link, s->size);
	if (!length || length + 1 >= s->size)
		return;
	id = s->bytes + length + 1;
	size = s->size - length - 1;
	if (path_of_id(id, size, path, sizeof(path)) && try_shared(img, root, path, id, size))
		return;
	if (link[0] == '/') {
		try_shared(img, root, link, id, size);
		return;
	}
	own = elf_build_id(&img->file, &own_size);
	if (f == &img->debug && path_of_id(own, own_size, path, sizeof(path)) &&
	    try_beside(img, root, path, link, id, size))
		return;
	try_beside(img, root, img->name, link, id, size);
}

int debug_shared_open(struct image *img, const char *root, struct dinst_error *e)
{
	img->lack = 0;
	open_shared(img, root);
	return tell_lack(img, &img->shared, e);
}
