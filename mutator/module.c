/* SPDX-License-Identifier: MIT */
/*
 * module.c - which ELF files are mapped in the target, and where.
 *
 * Owns the list of modules and the images that they share, by device and
 * inode. A module is a file and a bias: the same file loaded twice is two
 * modules of one image. Reads /proc and the target's memory while it runs, and
 * changes neither. A file that cannot be read or believed is a module, too,
 * with the reason; nothing is ever patched in it.
 */
#include "mutator/module_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inject/maps.h"
#include "mutator/image_private.h"

const char path_deleted[] = " (deleted)";
static const char own_memfd[] = "/memfd:dinst";

/* An image, or why there is none, for one file. */
struct file_image {
	dev_t device;
	uint64_t inode;
	struct image *image;
	char problem[160];
	bool none; /* not ELF, and not a file that anybody meant to be: no module */
};

/* A module and what tells it from others in the maps. */
struct entry {
	struct module module;
	dev_t device;
	uint64_t inode;
	bool seen; /* in the maps that are being looked at */
};

struct module_list {
	struct entry **entries;
	size_t count, capacity;
	struct file_image *files;
	size_t file_count, file_capacity;
};

/* One look at the maps. */
struct reading {
	struct module_list *list;
	const struct target *target;
	struct maps maps;
	char root[64]; /* /proc/PID/root */
	struct main_program main;
	bool changed;
	struct dinst_error *e;
};

static int no_memory(struct dinst_error *e)
{
	return dinst_fail(e, DINST_NO_MEMORY, "no memory for the list of modules");
}

/* ----------------------------------------------------------------- names */

/* The path as the target sees it: the maps write a newline as "\012". Malloc'ed. */
static char *plain_path(const char *name)
{
	char *path = strdup(name), *to = path;
	size_t length;

	if (!path)
		return NULL;
	for (const char *p = name; *p; p++) {
		if (!strncmp(p, "\\012", 4)) {
			*to++ = '\n';
			p += 3;
		} else {
			*to++ = *p;
		}
	}
	*to = 0;
	length = to - path;
	if (length > sizeof(path_deleted) - 1 &&
	    !strcmp(to - (sizeof(path_deleted) - 1), path_deleted))
		to[-(ptrdiff_t)(sizeof(path_deleted) - 1)] = 0;
	return path;
}

bool path_is_deleted(const char *name)
{
	size_t length = strlen(name);

	return length > sizeof(path_deleted) - 1 &&
	       !strcmp(name + length - (sizeof(path_deleted) - 1), path_deleted);
}

const char *path_base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

/* ----------------------------------------------------------------- opening */

static bool is_same_file(int fd, const struct maps_entry *m, bool device_too)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_ino == m->inode &&
	       (!device_too || st.st_dev == m->device);
}

/*
 * Opens the file of a mapping. The kernel's own link to it needs privileges;
 * without them it is looked for by its path, and then by what runs. Overlay
 * and btrfs tell stat() another device than the maps, so that the inode alone
 * has to do there; the contents are compared with memory in any case.
 */
static int open_mapped(const struct reading *r, const struct maps_entry *m, const char *path)
{
	static const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
	pid_t pid = target_pid(r->target);
	char link[PATH_MAX_TEXT];
	int fd, n;

	snprintf(link, sizeof(link), "/proc/%d/map_files/%llx-%llx", (int)pid,
		 (unsigned long long)m->lo, (unsigned long long)m->hi);
	fd = open(link, flags);
	if (fd >= 0 && is_same_file(fd, m, false))
		return fd;
	if (fd >= 0)
		close(fd);
	n = snprintf(link, sizeof(link), "%s%s", r->root, path);
	for (int i = 0; i < 2; i++) {
		if (n > 0 && (size_t)n < sizeof(link)) {
			fd = open(link, flags);
			if (fd >= 0 && is_same_file(fd, m, false))
				return fd;
			if (fd >= 0)
				close(fd);
		}
		n = snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
	}
	return -1;
}

static void explain_unopened(struct file_image *f, const struct maps_entry *m)
{
	if (path_is_deleted(m->name))
		snprintf(f->problem, sizeof(f->problem),
			 "the file was deleted or replaced since it was started; reading what is "
			 "mapped instead takes CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE");
	else
		snprintf(f->problem, sizeof(f->problem),
			 "the file cannot be opened, or another one has its name now");
}

/* Mappings that are backed by a file only in name: JIT memory, shared memory. */
static bool is_no_program(const char *name)
{
	return !strncmp(name, "/memfd:", 7) || !strncmp(name, "/dev/", 5) ||
	       !strncmp(name, "/SYSV", 5) || !strncmp(name, "/anon_hugepage", 14);
}

static struct file_image *find_file(struct module_list *l, const struct maps_entry *m)
{
	for (size_t i = 0; i < l->file_count; i++)
		if (l->files[i].inode == m->inode && l->files[i].device == m->device)
			return &l->files[i];
	return NULL;
}

/* The image of a mapping's file, opened at most once. NULL without memory. */
static struct file_image *file_of(struct reading *r, const struct maps_entry *m, const char *path)
{
	struct module_list *l = r->list;
	struct file_image *f = find_file(l, m);
	struct dinst_error e = {0};
	int fd;

	if (f)
		return f;
	if (l->file_count == l->file_capacity) {
		size_t capacity = l->file_capacity ? l->file_capacity * 2 : 16;
		struct file_image *more = realloc(l->files, capacity * sizeof(*more));

		if (!more)
			return NULL;
		l->files = more;
		l->file_capacity = capacity;
	}
	f = &l->files[l->file_count++];
	*f = (struct file_image){.device = m->device, .inode = m->inode};
	fd = open_mapped(r, m, path);
	if (fd < 0) {
		explain_unopened(f, m);
		f->none = is_no_program(path);
		return f;
	}
	if (image_open(fd, path, r->root, &f->image, &e)) {
		snprintf(f->problem, sizeof(f->problem), "%.*s", (int)sizeof(f->problem) - 1,
			 e.text);
		f->none = e.code == DINST_UNSUPPORTED && is_no_program(path);
	}
	close(fd);
	return f;
}

/* ------------------------------------------------------------- believing it */

/* Is what is in memory what the file says? The headers, and the build id wherever it is. */
static bool is_in_memory(const struct reading *r, const struct image *img, taddr_t bias)
{
	const struct elf_file *f = &img->file;
	const struct elf_segment *first = &f->loads[0];
	uint8_t memory[4096];
	size_t size = 0;
	const uint8_t *id = elf_build_id(f, &size), *here;
	taddr_t address;

	for (size_t i = 0; id && i < f->load_count; i++) {
		const struct elf_segment *s = &f->loads[i];

		if (id < s->bytes || id >= s->bytes + s->file_size || size > sizeof(memory))
			continue;
		address = s->address + (id - s->bytes) + bias;
		return target_read_some(r->target, address, memory, size) == size &&
		       !memcmp(memory, id, size);
	}
	/* No build id in memory: the headers have to do. */
	if (first->flags & PF_W)
		return true;
	size = first->file_size < sizeof(memory) ? first->file_size : sizeof(memory);
	size = target_read_some(r->target, first->address + bias, memory, size);
	here = first->bytes;
	return size >= sizeof(Elf64_Ehdr) && !memcmp(memory, here, size);
}

/* vaddr + bias = address, from the segment that this mapping shows; false if none does. */
static bool find_bias(const struct image *img, const struct maps_entry *m, taddr_t *bias)
{
	const struct elf_file *f = &img->file;

	for (size_t i = 0; i < f->load_count; i++) {
		const struct elf_segment *s = &f->loads[i];
		uint64_t lo = s->offset & ~UINT64_C(0xfff), hi = s->offset + s->file_size;

		if (!(s->flags & PF_X) || m->offset < lo || m->offset >= hi)
			continue;
		*bias = m->lo - ((s->address & ~UINT64_C(0xfff)) + (m->offset - lo));
		return true;
	}
	return false;
}

/* ------------------------------------------------------------------- list */

static struct entry *find_entry(struct module_list *l, const struct maps_entry *m, bool biased,
				taddr_t bias)
{
	for (size_t i = 0; i < l->count; i++) {
		struct entry *x = l->entries[i];

		if (x->module.gone || x->inode != m->inode || x->device != m->device)
			continue;
		/* What has no image has no bias to go by: its mappings are one module. */
		if (!biased || (x->module.image ? x->module.bias == bias
						: m->lo >= x->module.lo && m->lo < x->module.hi))
			return x;
	}
	return NULL;
}

static struct entry *new_entry(struct reading *r, const struct maps_entry *m, char *path)
{
	struct module_list *l = r->list;
	struct entry *x;

	if (l->count == l->capacity) {
		size_t capacity = l->capacity ? l->capacity * 2 : 16;
		struct entry **more = realloc(l->entries, capacity * sizeof(*more));

		if (!more)
			return NULL;
		l->entries = more;
		l->capacity = capacity;
	}
	x = calloc(1, sizeof(*x));
	if (!x)
		return NULL;
	x->device = m->device;
	x->inode = m->inode;
	x->module.path = path;
	x->module.lo = m->lo;
	x->module.hi = m->hi;
	snprintf(x->module.name, sizeof(x->module.name), "%s", path_base(path));
	l->entries[l->count++] = x;
	r->changed = true;
	return x;
}

/* The span of all mappings of a file whose layout is not known. */
static void span_by_maps(const struct reading *r, struct entry *x)
{
	for (size_t i = 0; i < r->maps.count; i++) {
		const struct maps_entry *m = &r->maps.entries[i];

		if (m->inode != x->inode || m->device != x->device)
			continue;
		if (m->lo < x->module.lo)
			x->module.lo = m->lo;
		if (m->hi > x->module.hi)
			x->module.hi = m->hi;
	}
}

static void settle(const struct reading *r, struct entry *x, const struct file_image *f,
		   bool biased, taddr_t bias)
{
	struct module *module = &x->module;

	module->main = x->inode == r->main.inode && !strcmp(module->path, r->main.path);
	if (module->main)
		snprintf(module->name, sizeof(module->name), "%s", r->main.name);
	if (!f->image) {
		snprintf(module->problem, sizeof(module->problem), "%s", f->problem);
		span_by_maps(r, x);
		return;
	}
	if (!biased) {
		snprintf(module->problem, sizeof(module->problem),
			 "not patched: it is not mapped as its program headers say");
		span_by_maps(r, x);
		return;
	}
	module->bias = bias;
	module->lo = image_lowest(f->image) + bias;
	module->hi = (image_highest(f->image) + bias + 0xfff) & ~UINT64_C(0xfff);
	if (is_in_memory(r, f->image, bias))
		module->image = f->image;
	else
		snprintf(module->problem, sizeof(module->problem),
			 "the file was replaced since it was started: what is in memory is not "
			 "%.80s",
			 module->path);
}

static int look_at_file(struct reading *r, const struct maps_entry *m)
{
	char *path = plain_path(m->name);
	const struct file_image *f;
	struct entry *x;
	taddr_t bias = 0;
	bool biased;

	if (!path)
		return no_memory(r->e);
	f = file_of(r, m, path);
	if (!f) {
		free(path);
		return no_memory(r->e);
	}
	biased = f->image && find_bias(f->image, m, &bias);
	x = find_entry(r->list, m, biased, bias);
	if (x || f->none) {
		free(path);
		if (x)
			x->seen = true;
		return 0;
	}
	x = new_entry(r, m, path);
	if (!x) {
		free(path);
		return no_memory(r->e);
	}
	x->seen = true;
	settle(r, x, f, biased, bias);
	return 0;
}

static int look_at_vdso(struct reading *r, const struct maps_entry *m)
{
	struct module_list *l = r->list;
	struct entry *x = NULL;
	char *path;

	for (size_t i = 0; i < l->count && !x; i++)
		if (!l->entries[i]->inode && l->entries[i]->module.lo == m->lo &&
		    !l->entries[i]->module.gone)
			x = l->entries[i];
	if (!x) {
		path = strdup(m->name);
		x = path ? new_entry(r, m, path) : NULL;
		if (!x) {
			free(path);
			return no_memory(r->e);
		}
		snprintf(x->module.problem, sizeof(x->module.problem),
			 "not patched: the kernel maps it into every process");
	}
	x->seen = true;
	return 0;
}

/* ------------------------------------------------------------ looking at all */

static int look(struct reading *r)
{
	struct module_list *l = r->list;
	int status = maps_read(target_pid(r->target), &r->maps, r->e);

	if (status)
		return status;
	snprintf(r->root, sizeof(r->root), "/proc/%d/root", (int)target_pid(r->target));
	main_program_find(r->target, r->root, &r->main);
	for (size_t i = 0; i < l->count; i++)
		l->entries[i]->seen = false;
	for (size_t i = 0; i < r->maps.count && !status; i++) {
		const struct maps_entry *m = &r->maps.entries[i];

		if (!(m->protection & PROT_EXEC))
			continue;
		if (!strcmp(m->name, "[vdso]"))
			status = look_at_vdso(r, m);
		else if (m->inode && strncmp(m->name, own_memfd, sizeof(own_memfd) - 1))
			status = look_at_file(r, m);
	}
	for (size_t i = 0; i < l->count && !status; i++) {
		struct entry *x = l->entries[i];

		if (!x->seen && !x->module.gone) {
			x->module.gone = true;
			r->changed = true;
		}
	}
	maps_release(&r->maps);
	return status;
}

int module_list_read(const struct target *t, struct module_list **out, struct dinst_error *e)
{
	struct module_list *l = calloc(1, sizeof(*l));
	bool changed;
	int status;

	if (!l)
		return no_memory(e);
	status = module_list_update(l, t, &changed, e);
	if (status)
		module_list_free(l);
	else
		*out = l;
	return status;
}

int module_list_update(struct module_list *l, const struct target *t, bool *changed,
		       struct dinst_error *e)
{
	struct reading *r = calloc(1, sizeof(*r));
	int status;

	if (!r)
		return no_memory(e);
	r->list = l;
	r->target = t;
	r->e = e;
	status = look(r);
	if (!status)
		*changed = r->changed;
	free(r);
	return status;
}

void module_list_free(struct module_list *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->count; i++) {
		free(l->entries[i]->module.path);
		free(l->entries[i]);
	}
	for (size_t i = 0; i < l->file_count; i++)
		image_close(l->files[i].image);
	free(l->entries);
	free(l->files);
	free(l);
}

/* -------------------------------------------------------------- questions */

size_t module_count(const struct module_list *l)
{
	return l->count;
}

struct module *module_get(const struct module_list *l, size_t index)
{
	return index < l->count ? &l->entries[index]->module : NULL;
}

struct module *module_at(const struct module_list *l, taddr_t address)
{
	for (size_t i = 0; i < l->count; i++) {
		struct module *m = &l->entries[i]->module;

		if (!m->gone && address >= m->lo && address < m->hi)
			return m;
	}
	return NULL;
}

bool module_has_name(const struct module *m, const char *name)
{
	const char *soname;

	if (!strcmp(m->name, name) || !strcmp(m->path, name) || !strcmp(path_base(m->path), name))
		return true;
	soname = m->image ? image_soname(m->image) : NULL;
	return soname && !strcmp(soname, name);
}

struct module *module_named(const struct module_list *l, const char *name)
{
	for (size_t i = 0; i < l->count; i++) {
		struct module *m = &l->entries[i]->module;

		if (!m->gone && module_has_name(m, name))
			return m;
	}
	return NULL;
}
