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

#include "inject/files.h"
#include "inject/maps.h"
#include "inject/mounts.h"
#include "mutator/image_private.h"

/* A module and what tells it from others in the maps. */
struct entry {
	struct module module;
	dev_t device;
	uint64_t inode;
	bool seen;     /* in the maps that are being looked at */
	bool placed;   /* its bias is known, whether it has an image or not */
	bool replaced; /* gone, and its file was written anew */
};

static int no_memory(struct dinst_error *e)
{
	return dinst_fail(e, DINST_NO_MEMORY, "no memory for the list of modules");
}

/* ----------------------------------------------------------------- opening */

static const char replaced[] =
	"the file was deleted or replaced since it was started; reading what is mapped instead "
	"takes CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE";

bool module_file_is_code(const struct maps_entry *m)
{
	static const char own_memfd[] = "/memfd:dinst";

	return (m->protection & PROT_EXEC) && m->inode && strcmp(m->name, "[vdso]") != 0 &&
	       strncmp(m->name, own_memfd, sizeof(own_memfd) - 1) != 0;
}

/* Mappings that are backed by a file only in name: JIT memory, shared memory. */
static bool is_no_program(const char *name)
{
	return !strncmp(name, "/memfd:", 7) || !strncmp(name, "/dev/", 5) ||
	       !strncmp(name, "/SYSV", 5) || !strncmp(name, "/anon_hugepage", 14);
}

static bool is_file_of(const struct file_image *f, const struct maps_entry *m)
{
	return f->inode == m->inode && f->device == m->device;
}

struct file_image *module_file_find(struct module_list *l, const struct maps_entry *m)
{
	/* Neighbours in the maps are so here, too, one way or the other: who looks at thousands has a stop. */
	for (size_t i = l->near ? l->near - 1 : 0; i < l->file_count && i <= l->near + 1; i++)
		if (is_file_of(&l->files[i], m)) {
			l->near = i;
			return &l->files[i];
		}
	for (size_t i = 0; i < l->file_count; i++)
		if (is_file_of(&l->files[i], m)) {
			l->near = i;
			return &l->files[i];
		}
	return NULL;
}

/* The file was written anew: what is mapped of it now are other modules. */
static void replace(struct reading *r, struct file_image *f)
{
	for (size_t i = 0; i < r->list->count; i++) {
		struct entry *x = r->list->entries[i];

		if (x->inode == f->inode && x->device == f->device)
			x->module.gone = x->replaced = r->changed = true;
	}
	f->inode = 0;
}

/* 1, 0, or -1 with the error where nobody can tell. */
static int is_rewritten(struct reading *r, const struct file_image *f, const struct maps_entry *m,
			const char *path)
{
	const int rewritten = file_is_rewritten(r, &f->stamp, m, path);

	if (rewritten < 0)
		dinst_fail(
			r->e, DINST_BUSY,
			"%s has been written to, and neither /proc/%d/pagemap nor the file can be read now: whether it was loaded anew cannot be told",
			path, (int)target_pid(r->target));
	return rewritten;
}

struct file_image *module_file_of(struct reading *r, const struct maps_entry *m, const char *path)
{
	struct module_list *l = r->list;
	struct file_image *f = module_file_find(l, m);
	struct dinst_error e = {0};
	const int rewritten = f && file_may_be_rewritten(r, f, m) ? is_rewritten(r, f, m, path) : 0;
	int fd;

	if (rewritten < 0)
		return NULL;
	if (f && !rewritten)
		return f;
	if (f)
		replace(r, f);
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
	fd = module_file_open(r, m, path, &f->exact);
	if (fd == -ENOENT && main_root_find(r->target, r->root))
		fd = module_file_open(r, m, path, &f->exact);
	/*
	 * No descriptor for it now: another time there is, and what would be said of the module until
	 * then (that it has no functions, that nothing in it parks program counters) would be wrong.
	 */
	if (fd < 0 && fd != -ENOENT) {
		l->file_count--;
		dinst_fail_errno(r->e, DINST_NO_MEMORY, -fd, "cannot open %s", path);
		return NULL;
	}
	if (fd < 0) {
		snprintf(f->problem, sizeof(f->problem), "%s",
			 path_is_deleted(m->name) ? replaced : "the file cannot be opened");
		f->none = is_no_program(path);
		return f;
	}
	if (!r->mounts)
		r->mounts = mounts_read(target_memory_tid(r->target));
	f->stamp = file_stamp(fd, r->mounts, m);
	if (image_open(fd, path, r->root, &f->image, &e) == DINST_NO_MEMORY) {
		close(fd);
		l->file_count--;
		dinst_fail(r->e, DINST_NO_MEMORY, "%s", e.text);
		return NULL;
	}
	if (!f->image) {
		snprintf(f->problem, sizeof(f->problem), "%.*s", (int)sizeof(f->problem) - 1,
			 e.text);
		f->none = e.code == DINST_UNSUPPORTED && is_no_program(path);
	}
	close(fd);
	return f;
}

/* ------------------------------------------------------------- believing it */

/*
 * Is what is in memory what the file says? The build id tells, wherever the
 * file puts it; without one the headers have to do, for the right file only.
 */
static bool is_in_memory(const struct reading *r, const struct image *img, taddr_t bias, bool exact)
{
	const struct elf_file *f = &img->file;
	const struct elf_segment *first = &f->loads[0];
	uint8_t memory[4096];
	size_t size = 0;
	const uint8_t *id = elf_build_id(f, &size);

	for (size_t i = 0; id && i < f->load_count; i++) {
		const struct elf_segment *s = &f->loads[i];
		taddr_t address = s->address + (id - s->bytes) + bias;

		if (id >= s->bytes && id < s->bytes + s->file_size && size <= sizeof(memory))
			return target_read_some(r->target, address, memory, size) == size &&
			       !memcmp(memory, id, size);
	}
	/* What follows the headers may be code, and that may have been patched. */
	size = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr);
	if (!exact || first->offset || first->file_size < size)
		return exact;
	return target_read_some(r->target, first->address + bias, memory, size) == size &&
	       !memcmp(memory, first->bytes, size);
}

/*
 * vaddr + bias = address, from a segment with these rights that this mapping shows: the first
 * from *segment on. Two segments may share a page of the file, so that more
 * than one may answer; and what comes before it in the file may be a part of the mapping
 * (shows_data()). False if none does; else *segment is the one after it.
 */
static bool find_bias(const struct image *img, const struct maps_entry *m, uint32_t rights,
		      size_t *segment, taddr_t *bias)
{
	const struct elf_file *f = &img->file;

	while (*segment < f->load_count) {
		const struct elf_segment *s = &f->loads[(*segment)++];
		uint64_t lo = s->offset & ~UINT64_C(0xfff), hi = s->offset + s->file_size;

		if ((s->flags & rights) != rights || m->offset >= hi ||
		    m->offset + (m->hi - m->lo) <= lo)
			continue;
		*bias = m->lo - ((s->address & ~UINT64_C(0xfff)) + (m->offset - lo));
		return true;
	}
	return false;
}

/* Without a bias it is not looked for in memory: that it is the right file has to do. */
static bool is_mapped(const struct reading *r, const struct file_image *f, bool biased,
		      taddr_t bias)
{
	return f->image && (biased ? is_in_memory(r, f->image, bias, f->exact) : f->exact);
}

bool module_file_shows(const struct reading *r, const struct file_image *f,
		       const struct maps_entry *m)
{
	size_t segment = 0;
	taddr_t bias = 0;
	const bool biased = f->image && find_bias(f->image, m, PF_X, &segment, &bias);

	return is_mapped(r, f, biased, bias);
}

/*
 * It shows data of the file: in some processes all that can be read can be executed
 * (READ_IMPLIES_EXEC, personality(2)).
 */
static bool shows_data(const struct image *img, const struct maps_entry *m)
{
	for (size_t i = 0; i < img->file.load_count; i++) {
		const struct elf_segment *s = &img->file.loads[i];
		const uint64_t lo = s->offset & ~UINT64_C(0xfff), hi = s->offset + s->file_size;

		if (!(s->flags & PF_X) && m->offset >= lo && m->offset < hi)
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
		/* What has no bias to go by is one module with all its mappings. */
		if (!biased || (x->placed ? x->module.bias == bias
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

	module->main = !strcmp(module->path, r->main.path);
	if (module->main)
		snprintf(module->name, sizeof(module->name), "%s", r->main.name);
	module->mapped = is_mapped(r, f, biased, bias) ? f->image : NULL;
	module->unread = !module->mapped;
	if (!f->image) {
		snprintf(module->problem, sizeof(module->problem), "%s", f->problem);
		span_by_maps(r, x);
		module->unread = !module_is_no_library(r, module->lo);
		return;
	}
	if (!biased) {
		snprintf(module->problem, sizeof(module->problem),
			 "not patched: it is not mapped as its program headers say");
		span_by_maps(r, x);
		return;
	}
	x->placed = true;
	module->bias = bias;
	module->lo = image_lowest(f->image) + bias;
	module->hi = (image_highest(f->image) + bias + 0xfff) & ~UINT64_C(0xfff);
	if (module->shared)
		snprintf(
			module->problem, sizeof(module->problem),
			"not patched: its code is mapped shared, and a patch would be everybody's");
	else if (image_is_mono(f->image))
		snprintf(
			module->problem, sizeof(module->problem),
			"not patched: Mono has compiled it ahead of time, and reads its calls while it runs");
	else if (module->mapped)
		module->image = f->image;
	else
		snprintf(module->problem, sizeof(module->problem), "%s", replaced);
}

/* The module that this mapping belongs to; NULL if it is a new one, whose bias is *bias. */
static struct entry *known_entry(struct reading *r, const struct maps_entry *m,
				 const struct file_image *f, bool *biased, taddr_t *bias)
{
	struct entry *x = NULL;
	size_t segment = 0;
	taddr_t other;

	*biased = f->image && find_bias(f->image, m, PF_X, &segment, bias);
	x = find_entry(r->list, m, *biased, *bias);
	while (!x && *biased && find_bias(f->image, m, PF_X, &segment, &other))
		x = find_entry(r->list, m, true, other);
	return x;
}

static int look_at_file(struct reading *r, const struct maps_entry *m)
{
	char *path = module_plain_path(m->name);
	const struct file_image *f;
	struct entry *x;
	taddr_t bias = 0;
	bool biased;

	if (!path)
		return no_memory(r->e);
	f = module_file_of(r, m, path);
	if (!f) {
		free(path);
		return no_memory(r->e);
	}
	x = known_entry(r, m, f, &biased, &bias);
	/* It came and went while the others were read, and what was looked for in memory was not there. */
	if (x && biased && x->placed && x->module.unread && is_mapped(r, f, true, x->module.bias)) {
		x->module.gone = true;
		bias = x->module.bias;
		x = NULL;
	}
	if (x || f->none || (!biased && f->image && shows_data(f->image, m))) {
		free(path);
		if (x) {
			x->seen = true;
			x->module.shared |= m->shared;
		}
		return 0;
	}
	x = new_entry(r, m, path);
	if (!x) {
		free(path);
		return no_memory(r->e);
	}
	x->seen = true;
	x->module.shared = m->shared;
	/* Not before somebody wants to know: it may have to wait for a file server. */
	if (!r->main_known)
		main_program_find(r->target, r->root, &r->main);
	r->main_known = true;
	settle(r, x, f, biased, bias);
	x->module.may_switch = x->module.unread && module_may_switch(r, m);
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
	main_root_find(r->target, r->root);
	for (size_t i = 0; i < l->count; i++)
		l->entries[i]->seen = false;
	for (size_t i = 0; i < r->maps.count && !status; i++) {
		const struct maps_entry *m = &r->maps.entries[i];

		if ((m->protection & PROT_EXEC) && !strcmp(m->name, "[vdso]"))
			status = look_at_vdso(r, m);
		else if (module_file_is_code(m))
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
	free(r->mounts);
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

/* True if this mapping shows the file as it lies in memory by the module's bias. */
static bool shows_module(const struct entry *x, const struct maps_entry *m)
{
	const struct module *module = &x->module;
	size_t segment = 0;
	taddr_t bias;

	if (m->inode != x->inode || m->device != x->device || !module->image)
		return false;
	while (find_bias(module->image, m, 0, &segment, &bias))
		if (bias == module->bias)
			return true;
	return false;
}

bool module_is_mapped(const struct module *m, const struct maps *maps, taddr_t address)
{
	const struct entry *x =
		(const struct entry *)((const char *)m - offsetof(struct entry, module));
	const struct maps_entry *at = maps_find(maps, address);

	if (!at || x->replaced)
		return false;
	if (at->inode == x->inode && at->device == x->device)
		return true;
	/* What is unloaded goes as a whole: where some of it is left, it is its text on other pages. */
	for (size_t i = maps_index(maps, m->lo); i < maps->count && maps->entries[i].lo < m->hi;
	     i++)
		if (shows_module(x, &maps->entries[i]))
			return true;
	return false;
}

bool module_has_name(const struct module *m, const char *name)
{
	const char *soname;

	if (!strcmp(m->name, name) || !strcmp(m->path, name) || !strcmp(path_base(m->path), name))
		return true;
	soname = m->image ? image_soname(m->image) : NULL;
	return soname && !strcmp(soname, name);
}
